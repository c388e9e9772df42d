import java.io.BufferedInputStream;
import java.io.ByteArrayOutputStream;
import java.io.IOException;
import java.io.InputStream;
import java.util.Arrays;
import java.util.Map;
import java.util.concurrent.atomic.AtomicLong;
import org.apache.kafka.clients.producer.KafkaProducer;
import org.apache.kafka.clients.producer.ProducerRecord;
import org.apache.kafka.common.serialization.ByteArraySerializer;

/**
 * A Java producer, idempotent as it is by default, that outlives restarts of its broker: every line KEY TAB VALUE of its input is a record.
 * It prints the number of acknowledged records at its end and fails if one was given up. It never looks into a line.
 *
 * java Lines.java BOOTSTRAP TOPIC
 */
public final class Lines {
    private static final String TEN_MINUTES_MS = "600000";

    public static void main(String[] args) throws Exception {
        Map<String, Object> config = Map.of(
            "bootstrap.servers", args[0],
            "delivery.timeout.ms", TEN_MINUTES_MS,
            "max.block.ms", TEN_MINUTES_MS);
        AtomicLong acknowledged = new AtomicLong();
        AtomicLong failed = new AtomicLong();
        try (KafkaProducer<byte[], byte[]> producer = new KafkaProducer<>(config, new ByteArraySerializer(), new ByteArraySerializer())) {
            InputStream in = new BufferedInputStream(System.in, 1 << 16);
            for (byte[] line = line(in); line != null; line = line(in)) {
                int tab = tab(line);
                byte[] key = Arrays.copyOfRange(line, 0, tab);
                byte[] value = Arrays.copyOfRange(line, tab + 1, line.length);
                producer.send(new ProducerRecord<>(args[1], key, value), (metadata, error) -> {
                    if (error == null) {
                        acknowledged.incrementAndGet();
                    } else if (failed.incrementAndGet() == 1) {
                        error.printStackTrace();
                    }
                });
            }
        }
        System.out.println(acknowledged.get());
        System.exit(failed.get() == 0 ? 0 : 1);
    }

    /** Bytes up to the next end of line, or null: lines needn't be UTF-8. */
    private static byte[] line(InputStream in) throws IOException {
        ByteArrayOutputStream line = new ByteArrayOutputStream();
        for (int next = in.read(); next != '\n'; next = in.read()) {
            if (next < 0) {
                return null;
            }
            line.write(next);
        }
        return line.toByteArray();
    }

    private static int tab(byte[] line) {
        int at = 0;
        while (line[at] != '\t') {
            at++;
        }
        return at;
    }
}
