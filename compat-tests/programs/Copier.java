import java.time.Duration;
import java.util.ArrayList;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.stream.Collectors;
import org.apache.kafka.clients.consumer.ConsumerRecord;
import org.apache.kafka.clients.consumer.ConsumerRecords;
import org.apache.kafka.clients.consumer.KafkaConsumer;
import org.apache.kafka.clients.consumer.OffsetAndMetadata;
import org.apache.kafka.clients.producer.KafkaProducer;
import org.apache.kafka.clients.producer.ProducerRecord;
import org.apache.kafka.common.KafkaException;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.serialization.StringDeserializer;
import org.apache.kafka.common.serialization.StringSerializer;

/**
 * kafka-clients' exactly once, as a program of the compat tests. {@code copy} reads committed records of a topic, writes each to the same
 * partition of another and commits its offsets in the same transaction, however often its broker dies, until it has copied all of a topic
 * that has so many records; {@code read} prints every committed record as PARTITION TAB VALUE up to the end that it found.
 */
public final class Copier {
    private static final Duration POLL = Duration.ofMillis(200);
    /** Transactions are small, so that many are cut by a crash. */
    private static final int RECORDS_PER_TRANSACTION = 20;

    public static void main(String[] args) throws Exception {
        switch (args[0]) {
            case "copy" -> copy(args[1], args[2], args[3], args[4], Long.parseLong(args[5]));
            case "read" -> read(args[1], args[2]);
            case "hang" -> hang(args[1], args[2], args[3]);
            default -> throw new IllegalArgumentException(args[0]);
        }
    }

    private static KafkaConsumer<String, String> consumer(String bootstrap, String group) {
        Map<String, Object> config = new HashMap<>(Map.of(
                "bootstrap.servers", bootstrap,
                "isolation.level", "read_committed",
                "auto.offset.reset", "earliest",
                "enable.auto.commit", false,
                "max.poll.records", RECORDS_PER_TRANSACTION,
                "reconnect.backoff.max.ms", 200));
        if (group != null) {
            config.put("group.id", group);
        }
        return new KafkaConsumer<>(config, new StringDeserializer(), new StringDeserializer());
    }

    private static KafkaProducer<String, String> producer(String bootstrap, String id) {
        Map<String, Object> config = Map.of(
                "bootstrap.servers", bootstrap,
                "transactional.id", id,
                "reconnect.backoff.max.ms", 200,
                "linger.ms", 0);
        return new KafkaProducer<>(config, new StringSerializer(), new StringSerializer());
    }

    private static List<TopicPartition> partitions(KafkaConsumer<?, ?> consumer, String topic) {
        return consumer.partitionsFor(topic).stream().map(p -> new TopicPartition(topic, p.partition())).collect(Collectors.toList());
    }

    private static void copy(String bootstrap, String from, String to, String group, long wanted) {
        int copied = 0;
        int begun = 0;
        while (true) {
            begun++;
            try (KafkaConsumer<String, String> consumer = consumer(bootstrap, group);
                    KafkaProducer<String, String> producer = producer(bootstrap, group + "-copier")) {
                producer.initTransactions();
                List<TopicPartition> partitions = partitions(consumer, from);
                consumer.subscribe(List.of(from));
                Map<TopicPartition, Long> ends = null;
                while (true) {
                    ConsumerRecords<String, String> records = consumer.poll(POLL);
                    if (records.isEmpty()) {
                        ends = consumer.endOffsets(partitions);
                        if (ends.values().stream().mapToLong(Long::longValue).sum() >= wanted
                                && consumer.assignment().size() == partitions.size()
                                && ends.entrySet().stream().allMatch(end -> consumer.position(end.getKey()) >= end.getValue())) {
                            System.out.println(copied + " " + begun);
                            return;
                        }
                        continue;
                    }
                    Map<TopicPartition, OffsetAndMetadata> offsets = new HashMap<>();
                    producer.beginTransaction();
                    for (ConsumerRecord<String, String> record : records) {
                        producer.send(new ProducerRecord<>(to, record.partition(), record.key(), record.value()));
                        offsets.put(new TopicPartition(from, record.partition()), new OffsetAndMetadata(record.offset() + 1));
                    }
                    producer.sendOffsetsToTransaction(offsets, consumer.groupMetadata());
                    producer.commitTransaction();
                    copied += records.count();
                }
            } catch (KafkaException error) {
                // Whatever it was, a new producer fences the old one and goes on where the group is.
                System.err.println(error);
            }
        }
    }

    private static void read(String bootstrap, String topic) {
        try (KafkaConsumer<String, String> consumer = consumer(bootstrap, null)) {
            List<TopicPartition> partitions = partitions(consumer, topic);
            consumer.assign(partitions);
            consumer.seekToBeginning(partitions);
            Map<TopicPartition, Long> ends = consumer.endOffsets(partitions);
            List<String> lines = new ArrayList<>();
            while (ends.entrySet().stream().anyMatch(end -> consumer.position(end.getKey()) < end.getValue())) {
                consumer.poll(POLL).forEach(record -> lines.add(record.partition() + "\t" + record.value()));
            }
            lines.forEach(System.out::println);
        }
    }

    /** Begins a transaction, and leaves it as a process does that is killed. */
    private static void hang(String bootstrap, String topic, String id) throws Exception {
        KafkaProducer<String, String> producer = producer(bootstrap, id);
        producer.initTransactions();
        producer.beginTransaction();
        System.out.println(producer.send(new ProducerRecord<>(topic, 0, "k", "hangs")).get().offset());
        System.out.flush();
        Runtime.getRuntime().halt(0);
    }
}
