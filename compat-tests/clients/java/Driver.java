import com.fasterxml.jackson.databind.JsonNode;
import com.fasterxml.jackson.databind.ObjectMapper;
import com.fasterxml.jackson.databind.node.ArrayNode;
import com.fasterxml.jackson.databind.node.ObjectNode;
import java.io.BufferedReader;
import java.io.BufferedWriter;
import java.io.IOException;
import java.io.InputStreamReader;
import java.io.OutputStreamWriter;
import java.io.UncheckedIOException;
import java.nio.charset.StandardCharsets;
import java.time.Duration;
import java.util.ArrayList;
import java.util.Base64;
import java.util.Collection;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.Optional;
import java.util.Set;
import java.util.TreeSet;
import java.util.concurrent.Future;
import java.util.concurrent.atomic.AtomicBoolean;
import java.util.stream.Collectors;
import org.apache.kafka.clients.admin.Admin;
import org.apache.kafka.clients.admin.NewTopic;
import org.apache.kafka.clients.consumer.CommitFailedException;
import org.apache.kafka.clients.consumer.ConsumerRebalanceListener;
import org.apache.kafka.clients.consumer.ConsumerRecord;
import org.apache.kafka.clients.consumer.ConsumerRecords;
import org.apache.kafka.clients.consumer.KafkaConsumer;
import org.apache.kafka.clients.producer.KafkaProducer;
import org.apache.kafka.clients.producer.ProducerRecord;
import org.apache.kafka.clients.producer.RecordMetadata;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.errors.RebalanceInProgressException;
import org.apache.kafka.common.header.Header;
import org.apache.kafka.common.header.internals.RecordHeader;
import org.apache.kafka.common.serialization.ByteArrayDeserializer;
import org.apache.kafka.common.serialization.ByteArraySerializer;

/**
 * kafka-clients as a command of the compat tests; the contract is in compat-tests/src/driver.rs.
 * `consume` joins no group: it assigns every partition itself and stops at the end offsets that it found when it started. `member` does.
 */
public final class Driver {
    private static final ObjectMapper JSON = new ObjectMapper();
    private static final Duration WAIT = Duration.ofSeconds(30);

    public static void main(String[] args) throws Exception {
        switch (args[0]) {
            case "create" -> create(args[1], args[2], Integer.parseInt(args[3]));
            case "produce" -> produce(args[1], args[2], args[3]);
            case "consume" -> consume(args[1], args[2]);
            case "member" -> member(args[1], args[2], args[3], args[4], args[5]);
            default -> throw new IllegalArgumentException(args[0]);
        }
    }

    private static void create(String bootstrap, String topic, int partitions) throws Exception {
        try (Admin admin = Admin.create(Map.of("bootstrap.servers", bootstrap))) {
            admin.createTopics(List.of(new NewTopic(topic, Optional.of(partitions), Optional.empty()))).all().get();
        }
    }

    private static void produce(String bootstrap, String topic, String codec) throws Exception {
        Map<String, Object> config = Map.of("bootstrap.servers", bootstrap, "compression.type", codec);
        List<Future<RecordMetadata>> sent = new ArrayList<>();
        try (KafkaProducer<byte[], byte[]> producer = new KafkaProducer<>(config, new ByteArraySerializer(), new ByteArraySerializer())) {
            BufferedReader in = new BufferedReader(new InputStreamReader(System.in, StandardCharsets.UTF_8));
            for (String line = in.readLine(); line != null; line = in.readLine()) {
                sent.add(producer.send(recordOf(topic, JSON.readTree(line))));
            }
        }
        for (Future<RecordMetadata> future : sent) {
            future.get();
        }
    }

    private static ProducerRecord<byte[], byte[]> recordOf(String topic, JsonNode record) {
        List<Header> headers = new ArrayList<>();
        for (JsonNode header : record.get("headers")) {
            headers.add(new RecordHeader(header.get(0).textValue(), decode(header.get(1))));
        }
        Integer partition = record.get("partition").isNull() ? null : record.get("partition").intValue();
        Long timestamp = record.get("timestamp").isNull() ? null : record.get("timestamp").longValue();
        return new ProducerRecord<>(topic, partition, timestamp, decode(record.get("key")), decode(record.get("value")), headers);
    }

    private static void consume(String bootstrap, String topic) throws IOException {
        Map<String, Object> config = Map.of("bootstrap.servers", bootstrap);
        try (KafkaConsumer<byte[], byte[]> consumer = new KafkaConsumer<>(config, new ByteArrayDeserializer(), new ByteArrayDeserializer());
                BufferedWriter out = new BufferedWriter(new OutputStreamWriter(System.out, StandardCharsets.UTF_8))) {
            List<TopicPartition> partitions = consumer.partitionsFor(topic, WAIT).stream()
                    .map(info -> new TopicPartition(topic, info.partition()))
                    .collect(Collectors.toList());
            consumer.assign(partitions);
            consumer.seekToBeginning(partitions);
            Map<TopicPartition, Long> ends = consumer.endOffsets(partitions, WAIT);
            long deadline = System.nanoTime() + WAIT.toNanos();
            while (ends.entrySet().stream().anyMatch(end -> consumer.position(end.getKey(), WAIT) < end.getValue())) {
                if (System.nanoTime() > deadline) {
                    throw new IllegalStateException("end offsets not reached: " + ends);
                }
                for (ConsumerRecord<byte[], byte[]> record : consumer.poll(Duration.ofSeconds(1))) {
                    out.write(lineOf(record));
                    out.newLine();
                }
            }
        }
    }

    private static void member(String bootstrap, String topic, String group, String strategy, String instance) throws Exception {
        Map<String, Object> config = new HashMap<>(Map.of(
                "bootstrap.servers", bootstrap,
                "group.id", group,
                "auto.offset.reset", "earliest",
                "enable.auto.commit", false));
        if (strategy.equals("consumer")) {
            // KIP-848: timeouts and assignors are the broker's.
            config.put("group.protocol", "consumer");
        } else {
            config.putAll(Map.of(
                    "group.protocol", "classic",
                    "partition.assignment.strategy", strategy.equals("cooperative-sticky")
                            ? "org.apache.kafka.clients.consumer.CooperativeStickyAssignor"
                            : "org.apache.kafka.clients.consumer.RangeAssignor",
                    "session.timeout.ms", 6000,
                    "heartbeat.interval.ms", 500));
        }
        if (!instance.equals("-")) {
            config.put("group.instance.id", instance);
        }
        AtomicBoolean ended = new AtomicBoolean();
        Thread reader = new Thread(() -> {
            try {
                System.in.readAllBytes();
            } catch (IOException gone) {
                // The test ended with it.
            }
            ended.set(true);
        });
        reader.setDaemon(true);
        reader.start();
        try (KafkaConsumer<byte[], byte[]> consumer = new KafkaConsumer<>(config, new ByteArrayDeserializer(), new ByteArrayDeserializer())) {
            consumer.subscribe(List.of(topic), new Telling());
            while (!ended.get()) {
                ConsumerRecords<byte[], byte[]> records = consumer.poll(Duration.ofMillis(100));
                for (ConsumerRecord<byte[], byte[]> record : records) {
                    say("record", List.of(record.partition(), record.offset()));
                }
                try {
                    consumer.commitSync();
                } catch (CommitFailedException | RebalanceInProgressException error) {
                    // A rebalance came first: whoever has the partition now reads the records again.
                    say("error", error.toString());
                }
            }
        }
        say("closed", true);
    }

    /** Tells of every change as it happens: a look after each poll would miss partitions that were lost and given back meanwhile. */
    private static final class Telling implements ConsumerRebalanceListener {
        private final Set<Integer> owns = new TreeSet<>();

        @Override
        public void onPartitionsAssigned(Collection<TopicPartition> partitions) {
            partitions.forEach(partition -> owns.add(partition.partition()));
            say("owns", owns);
        }

        @Override
        public void onPartitionsRevoked(Collection<TopicPartition> partitions) {
            partitions.forEach(partition -> owns.remove(partition.partition()));
            say("owns", owns);
        }
    }

    private static void say(String event, Object what) {
        try {
            System.out.println(JSON.writeValueAsString(Map.of(event, what)));
        } catch (IOException impossible) {
            throw new UncheckedIOException(impossible);
        }
        System.out.flush();
    }

    private static String lineOf(ConsumerRecord<byte[], byte[]> record) throws IOException {
        ObjectNode line = JSON.createObjectNode();
        line.put("partition", record.partition());
        line.put("offset", record.offset());
        line.put("timestamp", record.timestamp());
        line.put("key", encode(record.key()));
        line.put("value", encode(record.value()));
        ArrayNode headers = line.putArray("headers");
        for (Header header : record.headers()) {
            headers.addArray().add(header.key()).add(encode(header.value()));
        }
        return JSON.writeValueAsString(line);
    }

    private static byte[] decode(JsonNode text) {
        return text.isNull() ? null : Base64.getDecoder().decode(text.textValue());
    }

    private static String encode(byte[] data) {
        return data == null ? null : Base64.getEncoder().encodeToString(data);
    }
}
