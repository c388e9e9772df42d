import com.fasterxml.jackson.databind.ObjectMapper;
import com.fasterxml.jackson.databind.node.ObjectNode;
import java.nio.ByteBuffer;
import java.time.Duration;
import java.util.Arrays;
import java.util.HexFormat;
import java.util.List;
import java.util.Map;
import org.apache.kafka.clients.consumer.ConsumerRecord;
import org.apache.kafka.clients.consumer.KafkaConsumer;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.protocol.ApiMessage;
import org.apache.kafka.common.protocol.ByteBufferAccessor;
import org.apache.kafka.common.protocol.MessageUtil;
import org.apache.kafka.common.serialization.ByteArrayDeserializer;
import org.apache.kafka.coordinator.group.generated.CoordinatorRecordJsonConverters;
import org.apache.kafka.coordinator.group.generated.CoordinatorRecordType;

/**
 * Reads all of __consumer_offsets as monitors do, with the classes that Apache Kafka itself reads and writes it by: a JSON object a record,
 * {"partition", "offset", "type", "key", "version" of the value, "value"}. It fails at bytes that those classes would not have written.
 *
 * java OffsetsTopic.java BOOTSTRAP
 */
public final class OffsetsTopic {
    private static final String TOPIC = "__consumer_offsets";
    private static final Duration WAIT = Duration.ofSeconds(30);
    private static final ObjectMapper JSON = new ObjectMapper();

    public static void main(String[] args) throws Exception {
        Map<String, Object> config = Map.of("bootstrap.servers", args[0], "fetch.max.wait.ms", "50");
        try (KafkaConsumer<byte[], byte[]> consumer = new KafkaConsumer<>(config, new ByteArrayDeserializer(), new ByteArrayDeserializer())) {
            List<TopicPartition> all =
                consumer.partitionsFor(TOPIC, WAIT).stream().map(info -> new TopicPartition(TOPIC, info.partition())).toList();
            consumer.assign(all);
            consumer.seekToBeginning(all);
            Map<TopicPartition, Long> ends = consumer.endOffsets(all, WAIT);
            long deadline = System.nanoTime() + WAIT.toNanos();
            while (ends.entrySet().stream().anyMatch(end -> consumer.position(end.getKey(), WAIT) < end.getValue())) {
                if (System.nanoTime() > deadline) {
                    throw new IllegalStateException("end offsets not reached: " + ends);
                }
                for (ConsumerRecord<byte[], byte[]> record : consumer.poll(Duration.ofMillis(200))) {
                    System.out.println(JSON.writeValueAsString(told(record)));
                }
            }
        }
    }

    private static ObjectNode told(ConsumerRecord<byte[], byte[]> record) {
        ByteBuffer bytes = ByteBuffer.wrap(record.key());
        CoordinatorRecordType type = CoordinatorRecordType.fromId(bytes.getShort());
        ApiMessage key = type.newRecordKey();
        key.read(new ByteBufferAccessor(bytes), (short) 0);
        same(record, bytes, record.key(), MessageUtil.toCoordinatorTypePrefixedBytes(key));
        ObjectNode told = JSON.createObjectNode();
        told.put("partition", record.partition());
        told.put("offset", record.offset());
        told.put("type", type.toString());
        told.set("key", CoordinatorRecordJsonConverters.writeRecordKeyAsJson(key));
        if (record.value() == null) {
            told.putNull("value");
            return told;
        }
        bytes = ByteBuffer.wrap(record.value());
        short version = bytes.getShort();
        ApiMessage value = type.newRecordValue();
        value.read(new ByteBufferAccessor(bytes), version);
        same(record, bytes, record.value(), MessageUtil.toVersionPrefixedBytes(version, value));
        told.put("version", version);
        told.set("value", CoordinatorRecordJsonConverters.writeRecordValueAsJson(value, version));
        return told;
    }

    private static void same(ConsumerRecord<byte[], byte[]> record, ByteBuffer read, byte[] was, byte[] would) {
        if (read.hasRemaining() || !Arrays.equals(was, would)) {
            HexFormat hex = HexFormat.of();
            throw new IllegalStateException(record + ": " + hex.formatHex(was) + " would be " + hex.formatHex(would));
        }
    }
}
