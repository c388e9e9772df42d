/* The load of the bench: one librdkafka client that produces or consumes a given number of records as fast as it can.
 * It never measures: the bench reads the broker's CPU time around it and the batch sizes from the broker's files.
 *
 *   load produce BOOTSTRAP TOPIC RECORDS RECORD_BYTES RECORDS_PER_BATCH   acks=all, no compression, keys null
 *   load consume BOOTSTRAP TOPIC RECORDS                                  from the start, without a group, in large fetches
 *   load delete  BOOTSTRAP TOPIC...
 *   load touch   MEGABYTES                                                 makes the machine hand out memory once, before anything is timed
 *
 * Exit 0 only if every record was acknowledged or read. */
#include <librdkafka/rdkafka.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#define CONSUME_AT_ONCE 1000
#define QUIET_MS_MAX 20000

static long acknowledged, failed;

static void die(const char *form, ...) {
    va_list arguments;
    va_start(arguments, form);
    fprintf(stderr, "load: ");
    vfprintf(stderr, form, arguments);
    fprintf(stderr, "\n");
    va_end(arguments);
    exit(1);
}

static void set(rd_kafka_conf_t *conf, const char *key, const char *value) {
    char error[512];
    if (rd_kafka_conf_set(conf, key, value, error, sizeof error) != RD_KAFKA_CONF_OK) die("%s=%s: %s", key, value, error);
}

static rd_kafka_t *client(rd_kafka_type_t type, rd_kafka_conf_t *conf) {
    char error[512];
    rd_kafka_t *kafka = rd_kafka_new(type, conf, error, sizeof error);
    if (!kafka) die("%s", error);
    return kafka;
}

static void delivered(rd_kafka_t *kafka, const rd_kafka_message_t *message, void *opaque) {
    (void)kafka, (void)opaque;
    if (message->err) {
        if (!failed++) fprintf(stderr, "load: %s\n", rd_kafka_err2str(message->err));
    } else {
        acknowledged++;
    }
}

static void produce(const char *bootstrap, const char *topic, long records, size_t record_bytes, const char *records_per_batch) {
    rd_kafka_conf_t *conf = rd_kafka_conf_new();
    set(conf, "bootstrap.servers", bootstrap);
    set(conf, "acks", "all");
    set(conf, "linger.ms", "200"); /* a batch leaves when it has its records, not when a clock says so */
    set(conf, "batch.num.messages", records_per_batch);
    set(conf, "batch.size", "1000000");
    set(conf, "queue.buffering.max.messages", "100000");
    rd_kafka_conf_set_dr_msg_cb(conf, delivered);
    rd_kafka_t *kafka = client(RD_KAFKA_PRODUCER, conf);
    rd_kafka_topic_t *handle = rd_kafka_topic_new(kafka, topic, NULL);
    char *payload = malloc(2 * record_bytes);
    unsigned state = 1;
    for (size_t at = 0; at < 2 * record_bytes; at++) payload[at] = (char)((state = state * 1103515245u + 12345u) >> 16);
    for (long sent = 0; sent < records;) {
        void *value = payload + sent % (long)record_bytes; /* records differ, nothing is copied */
        if (rd_kafka_produce(handle, 0, 0, value, record_bytes, NULL, 0, NULL) == 0) {
            if (++sent % 256 == 0) rd_kafka_poll(kafka, 0);
        } else if (rd_kafka_last_error() == RD_KAFKA_RESP_ERR__QUEUE_FULL) {
            rd_kafka_poll(kafka, 10);
        } else {
            die("produce: %s", rd_kafka_err2str(rd_kafka_last_error()));
        }
    }
    rd_kafka_flush(kafka, QUIET_MS_MAX);
    if (failed || acknowledged != records) die("%ld of %ld records acknowledged, %ld failed", acknowledged, records, failed);
    rd_kafka_topic_destroy(handle);
    rd_kafka_destroy(kafka);
}

static void consume(const char *bootstrap, const char *topic, long records) {
    rd_kafka_conf_t *conf = rd_kafka_conf_new();
    set(conf, "bootstrap.servers", bootstrap);
    set(conf, "fetch.message.max.bytes", "16777216");
    set(conf, "fetch.max.bytes", "52428800");
    set(conf, "queued.max.messages.kbytes", "131072");
    rd_kafka_t *kafka = client(RD_KAFKA_CONSUMER, conf);
    rd_kafka_topic_t *handle = rd_kafka_topic_new(kafka, topic, NULL);
    if (rd_kafka_consume_start(handle, 0, RD_KAFKA_OFFSET_BEGINNING) != 0) die("consume: %s", rd_kafka_err2str(rd_kafka_last_error()));
    rd_kafka_message_t *messages[CONSUME_AT_ONCE];
    for (long got = 0; got < records;) {
        ssize_t count = rd_kafka_consume_batch(handle, 0, QUIET_MS_MAX, messages, CONSUME_AT_ONCE);
        if (count <= 0) die("%ld of %ld records read", got, records);
        for (ssize_t at = 0; at < count; at++) {
            if (messages[at]->err) die("consume: %s", rd_kafka_message_errstr(messages[at]));
            got++;
            rd_kafka_message_destroy(messages[at]);
        }
    }
    rd_kafka_consume_stop(handle, 0);
    rd_kafka_topic_destroy(handle);
    rd_kafka_destroy(kafka);
}

static void delete_topics(const char *bootstrap, char **topics, size_t count) {
    rd_kafka_conf_t *conf = rd_kafka_conf_new();
    set(conf, "bootstrap.servers", bootstrap);
    rd_kafka_t *kafka = client(RD_KAFKA_PRODUCER, conf);
    rd_kafka_queue_t *queue = rd_kafka_queue_new(kafka);
    for (size_t at = 0; at < count; at++) {
        rd_kafka_DeleteTopic_t *topic = rd_kafka_DeleteTopic_new(topics[at]);
        rd_kafka_DeleteTopics(kafka, &topic, 1, NULL, queue);
        rd_kafka_event_t *event = rd_kafka_queue_poll(queue, QUIET_MS_MAX);
        if (!event) die("delete %s: no answer", topics[at]);
        size_t answers = 0;
        const rd_kafka_topic_result_t **results = rd_kafka_DeleteTopics_result_topics(rd_kafka_event_DeleteTopics_result(event), &answers);
        if (rd_kafka_event_error(event)) die("delete %s: %s", topics[at], rd_kafka_event_error_string(event));
        if (answers != 1 || rd_kafka_topic_result_error(results[0])) die("delete %s failed", topics[at]);
        rd_kafka_event_destroy(event);
        rd_kafka_DeleteTopic_destroy(topic);
    }
    rd_kafka_queue_destroy(queue);
    rd_kafka_destroy(kafka);
}

static void touch(size_t megabytes) {
    char *memory = mmap(NULL, megabytes << 20, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (memory == MAP_FAILED) die("no %zu MB to touch", megabytes);
    for (size_t at = 0; at < megabytes << 20; at += 4096) memory[at] = 1;
    munmap(memory, megabytes << 20);
}

int main(int count, char **words) {
    if (count == 7 && !strcmp(words[1], "produce")) produce(words[2], words[3], atol(words[4]), (size_t)atol(words[5]), words[6]);
    else if (count == 5 && !strcmp(words[1], "consume")) consume(words[2], words[3], atol(words[4]));
    else if (count >= 4 && !strcmp(words[1], "delete")) delete_topics(words[2], words + 3, (size_t)count - 3);
    else if (count == 3 && !strcmp(words[1], "touch")) touch((size_t)atol(words[2]));
    else die("usage: see the head of load.c");
    return 0;
}
