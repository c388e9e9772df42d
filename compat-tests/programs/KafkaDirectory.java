import java.nio.charset.StandardCharsets;
import java.time.Duration;
import java.util.ArrayList;
import java.util.HexFormat;
import java.util.List;
import java.util.Map;
import java.util.Optional;
import java.util.Random;
import java.util.TreeMap;
import java.util.concurrent.Future;
import java.util.zip.CRC32C;
import org.apache.kafka.clients.admin.Admin;
import org.apache.kafka.clients.admin.NewTopic;
import org.apache.kafka.clients.admin.TopicDescription;
import org.apache.kafka.clients.consumer.ConsumerRecord;
import org.apache.kafka.clients.consumer.KafkaConsumer;
import org.apache.kafka.clients.consumer.OffsetAndTimestamp;
import org.apache.kafka.clients.producer.KafkaProducer;
import org.apache.kafka.clients.producer.ProducerRecord;
import org.apache.kafka.clients.producer.RecordMetadata;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.header.Header;
import org.apache.kafka.common.header.internals.RecordHeader;
import org.apache.kafka.common.serialization.ByteArrayDeserializer;
import org.apache.kafka.common.serialization.ByteArraySerializer;

/**
 * Writes topics with everything that a data directory can hold, and prints all that a consumer sees of them, a line a fact, so that
 * what two brokers show can be compared as text. It never joins a group.
 *
 * java KafkaDirectory.java write BOOTSTRAP
 * java KafkaDirectory.java append BOOTSTRAP      a few records more to each topic, idempotent
 * java KafkaDirectory.java read BOOTSTRAP
 */
public final class KafkaDirectory {
    private static final long START_MS = 1_700_000_000_000L;
    private static final String CODECS = "codecs";
    private static final String TRANSACTIONS = "transactions.committed_and-aborted";
    private static final String APPEND_TIME = "append-time";
    private static final String RECOMPRESSED = "recompressed";
    private static final List<String> TOPICS = List.of(CODECS, TRANSACTIONS, APPEND_TIME, RECOMPRESSED);
    private static final Duration WAIT = Duration.ofSeconds(30);
    private static final Random RANDOM = new Random(42);

    public static void main(String[] args) throws Exception {
        switch (args[0]) {
            case "write" -> write(args[1]);
            case "append" -> append(args[1]);
            case "read" -> read(args[1]);
            default -> throw new IllegalArgumentException(args[0]);
        }
    }

    private static void write(String bootstrap) throws Exception {
        try (Admin admin = Admin.create(Map.of("bootstrap.servers", bootstrap))) {
            admin.createTopics(List.of(
                new NewTopic(CODECS, 3, (short) 1),
                new NewTopic(TRANSACTIONS, 2, (short) 1),
                new NewTopic(APPEND_TIME, 1, (short) 1).configs(Map.of("message.timestamp.type", "LogAppendTime")),
                new NewTopic(RECOMPRESSED, 1, (short) 1).configs(Map.of("compression.type", "zstd")))).all().get();
        }
        for (String codec : List.of("none", "gzip", "snappy", "lz4", "zstd")) {
            try (KafkaProducer<byte[], byte[]> producer = producer(bootstrap, Map.of("compression.type", codec))) {
                oddRecords(producer, codec);
                bulk(producer, CODECS, 3, codec, 150);
                bulk(producer, APPEND_TIME, 1, codec, 50);
                bulk(producer, RECOMPRESSED, 1, codec, 50);
            }
        }
        transactions(bootstrap);
    }

    /** Null and empty keys and values, headers with null, empty, repeated and non-ASCII parts, timestamps out of order. */
    private static void oddRecords(KafkaProducer<byte[], byte[]> producer, String codec) throws Exception {
        List<Future<RecordMetadata>> sent = new ArrayList<>();
        List<Header> headers = List.of(new RecordHeader("codec", bytes(codec)), new RecordHeader("twice", bytes("1")),
            new RecordHeader("twice", bytes("2")), new RecordHeader("null", (byte[]) null), new RecordHeader("", new byte[0]),
            new RecordHeader("Überschrift", new byte[] {0, -1, -128, 127}));
        for (int partition = 0; partition < 3; partition++) {
            long at = START_MS + partition;
            sent.add(producer.send(new ProducerRecord<>(CODECS, partition, at + 500, (byte[]) null, (byte[]) null)));
            sent.add(producer.send(new ProducerRecord<>(CODECS, partition, at, null, bytes("no key"))));
            sent.add(producer.send(new ProducerRecord<>(CODECS, partition, at + 900, bytes("tombstone"), null, headers)));
            sent.add(producer.send(new ProducerRecord<>(CODECS, partition, at + 100, new byte[0], new byte[0], headers)));
            sent.add(producer.send(new ProducerRecord<>(CODECS, partition, 0L, bytes("the epoch"), bytes("1970"))));
        }
        finish(producer, sent);
    }

    /** Values that don't compress well, in many batches, so that a log has several segments of 1 MB. */
    private static void bulk(KafkaProducer<byte[], byte[]> producer, String topic, int partitions, String key, int each) throws Exception {
        List<Future<RecordMetadata>> sent = new ArrayList<>();
        for (int number = 0; number < each * partitions; number++) {
            byte[] value = new byte[5_000 + RANDOM.nextInt(5_000)];
            RANDOM.nextBytes(value);
            long timestamp = START_MS + 10_000L * number;
            sent.add(producer.send(new ProducerRecord<>(topic, number % partitions, timestamp, bytes(key + number), value)));
        }
        finish(producer, sent);
    }

    /** Records without a transaction, committed ones, aborted ones, two producers' transactions across each other, some over many segments. */
    private static void transactions(String bootstrap) throws Exception {
        try (KafkaProducer<byte[], byte[]> plain = producer(bootstrap, Map.of());
                KafkaProducer<byte[], byte[]> one = producer(bootstrap, Map.of("transactional.id", "one"));
                KafkaProducer<byte[], byte[]> two = producer(bootstrap, Map.of("transactional.id", "two", "compression.type", "lz4"))) {
            one.initTransactions();
            two.initTransactions();
            for (int round = 0; round < 4; round++) {
                bulk(plain, TRANSACTIONS, 2, "plain" + round, 20);
                one.beginTransaction();
                bulk(one, TRANSACTIONS, 2, "one" + round, 60);
                two.beginTransaction();
                bulk(two, TRANSACTIONS, 2, "two" + round, 60);
                if (round % 2 == 0) {
                    one.abortTransaction();
                    two.commitTransaction();
                } else {
                    two.abortTransaction();
                    bulk(one, TRANSACTIONS, 2, "more" + round, 20);
                    one.commitTransaction();
                }
            }
            bulk(plain, TRANSACTIONS, 2, "last", 20);
        }
    }

    private static void append(String bootstrap) throws Exception {
        for (String codec : List.of("none", "zstd")) {
            try (KafkaProducer<byte[], byte[]> producer = producer(bootstrap, Map.of("compression.type", codec))) {
                for (String topic : TOPICS) {
                    bulk(producer, topic, 1, "appended" + codec, 30);
                }
            }
        }
    }

    private static void read(String bootstrap) throws Exception {
        try (Admin admin = Admin.create(Map.of("bootstrap.servers", bootstrap))) {
            for (TopicDescription topic : new TreeMap<>(admin.describeTopics(TOPICS).allTopicNames().get()).values()) {
                System.out.println("topic " + topic.name() + " " + topic.topicId() + " partitions " + topic.partitions().size());
            }
        }
        for (String isolation : List.of("read_uncommitted", "read_committed")) {
            try (KafkaConsumer<byte[], byte[]> consumer = new KafkaConsumer<>(
                    Map.of("bootstrap.servers", bootstrap, "isolation.level", isolation, "enable.auto.commit", "false", "fetch.max.wait.ms", "50"),
                    new ByteArrayDeserializer(), new ByteArrayDeserializer())) {
                for (String topic : TOPICS) {
                    int partitions = consumer.partitionsFor(topic, WAIT).size();
                    for (int partition = 0; partition < partitions; partition++) {
                        readPartition(consumer, new TopicPartition(topic, partition), isolation);
                    }
                }
            }
        }
    }

    private static void readPartition(KafkaConsumer<byte[], byte[]> consumer, TopicPartition partition, String isolation) {
        consumer.assign(List.of(partition));
        long begin = consumer.beginningOffsets(List.of(partition), WAIT).get(partition);
        long end = consumer.endOffsets(List.of(partition), WAIT).get(partition);
        String what = isolation + " " + partition;
        System.out.println(what + " offsets " + begin + " to " + end);
        for (long ahead : new long[] {-1, 0, 1, 499, 10_000, 123_456, 555_555, 999_999, 1_490_000, 9_999_999_999_999L}) {
            OffsetAndTimestamp found = consumer.offsetsForTimes(Map.of(partition, START_MS + ahead), WAIT).get(partition);
            System.out.println(what + " at +" + ahead + " " + found);
        }
        consumer.seek(partition, begin);
        long deadline = System.nanoTime() + WAIT.toNanos();
        while (consumer.position(partition) < end) {
            for (ConsumerRecord<byte[], byte[]> record : consumer.poll(Duration.ofMillis(200))) {
                if (record.offset() < end) {
                    System.out.println(what + " " + show(record));
                }
            }
            if (System.nanoTime() > deadline) {
                throw new IllegalStateException(what + " stays at " + consumer.position(partition) + " of " + end);
            }
        }
    }

    private static String show(ConsumerRecord<byte[], byte[]> record) {
        StringBuilder line = new StringBuilder("record " + record.offset() + " epoch " + record.leaderEpoch().map(String::valueOf).orElse("-"));
        line.append(' ').append(record.timestampType()).append(' ').append(record.timestamp());
        line.append(" key ").append(hex(record.key())).append(" value ").append(hex(record.value()));
        for (Header header : record.headers()) {
            line.append(" header ").append(header.key()).append('=').append(hex(header.value()));
        }
        return line.toString();
    }

    /** Short bytes as they are, long ones by length and checksum, null as a dash. */
    private static String hex(byte[] data) {
        if (data == null) {
            return "-";
        }
        if (data.length <= 64) {
            return "[" + HexFormat.of().formatHex(data) + "]";
        }
        CRC32C checksum = new CRC32C();
        checksum.update(data);
        return "[" + data.length + " bytes, crc " + Long.toHexString(checksum.getValue()) + "]";
    }

    private static KafkaProducer<byte[], byte[]> producer(String bootstrap, Map<String, Object> more) {
        Map<String, Object> config = new TreeMap<>(more);
        config.put("bootstrap.servers", bootstrap);
        return new KafkaProducer<>(config, new ByteArraySerializer(), new ByteArraySerializer());
    }

    private static void finish(KafkaProducer<byte[], byte[]> producer, List<Future<RecordMetadata>> sent) throws Exception {
        producer.flush();
        for (Future<RecordMetadata> each : sent) {
            each.get();
        }
    }

    private static byte[] bytes(String text) {
        return text.getBytes(StandardCharsets.UTF_8);
    }
}
