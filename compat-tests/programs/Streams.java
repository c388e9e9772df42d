import java.io.IOException;
import java.time.Duration;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.List;
import java.util.Map;
import java.util.Properties;
import java.util.TreeMap;
import java.util.TreeSet;
import java.util.stream.Collectors;
import org.apache.kafka.clients.admin.Admin;
import org.apache.kafka.clients.admin.Config;
import org.apache.kafka.clients.admin.ConfigEntry;
import org.apache.kafka.clients.admin.TopicDescription;
import org.apache.kafka.common.config.ConfigResource;
import org.apache.kafka.common.serialization.Serdes;
import org.apache.kafka.common.utils.Bytes;
import org.apache.kafka.streams.KafkaStreams;
import org.apache.kafka.streams.KeyValue;
import org.apache.kafka.streams.StreamsBuilder;
import org.apache.kafka.streams.errors.StreamsUncaughtExceptionHandler.StreamThreadExceptionResponse;
import org.apache.kafka.streams.kstream.Grouped;
import org.apache.kafka.streams.kstream.JoinWindows;
import org.apache.kafka.streams.kstream.KGroupedStream;
import org.apache.kafka.streams.kstream.KStream;
import org.apache.kafka.streams.kstream.KTable;
import org.apache.kafka.streams.kstream.Materialized;
import org.apache.kafka.streams.kstream.Named;
import org.apache.kafka.streams.kstream.SessionWindows;
import org.apache.kafka.streams.kstream.StreamJoined;
import org.apache.kafka.streams.kstream.Suppressed;
import org.apache.kafka.streams.kstream.Suppressed.BufferConfig;
import org.apache.kafka.streams.kstream.TableJoined;
import org.apache.kafka.streams.kstream.TimeWindows;
import org.apache.kafka.streams.kstream.Windowed;
import org.apache.kafka.streams.state.KeyValueStore;
import org.apache.kafka.streams.state.Stores;
import org.apache.kafka.streams.state.WindowStore;

/**
 * Kafka Streams, as a program of the compat tests.
 *
 * <p>{@code run BOOTSTRAP APPLICATION TOPOLOGIES [CONFIG=VALUE]...} runs the topologies (names with commas between them) until its input
 * ends: then it closes as an application does. It says {@code state STATE} at each change, {@code error WHAT} for what ended one of its
 * threads (which ends the application), and {@code closed} last. {@code topics BOOTSTRAP APPLICATION} prints the application's internal
 * topics, one a line: name, partitions, and the configs that are the topic's own.
 */
public final class Streams {
    /** Of the windows of {@code windowed} and {@code last}; the test knows it too. */
    private static final Duration WINDOW = Duration.ofSeconds(10);
    /** How far apart two records may be to be joined; the test knows it too. */
    private static final Duration APART = Duration.ofSeconds(5);
    /** More than the test's records are out of order by, so that no outcome depends on how partitions are interleaved. */
    private static final Duration GRACE = Duration.ofMinutes(30);

    public static void main(String[] args) throws Exception {
        switch (args[0]) {
            case "run" -> run(args[1], args[2], args[3], Arrays.copyOfRange(args, 4, args.length));
            case "topics" -> topics(args[1], args[2]);
            default -> throw new IllegalArgumentException(args[0]);
        }
    }

    private static void run(String bootstrap, String application, String topologies, String[] options) throws IOException {
        Properties config = new Properties();
        config.put("bootstrap.servers", bootstrap);
        config.put("application.id", application);
        config.put("default.key.serde", Serdes.StringSerde.class);
        config.put("default.value.serde", Serdes.StringSerde.class);
        // Every update is written, at once, and it isn't long until the next commit.
        config.put("statestore.cache.max.bytes", 0);
        config.put("producer.linger.ms", 0);
        config.put("commit.interval.ms", 100);
        config.put("repartition.purge.interval.ms", 200);
        config.put("replication.factor", 1);
        config.put("heartbeat.interval.ms", 500);
        config.put("reconnect.backoff.max.ms", 200);
        for (String option : options) {
            config.put(option.substring(0, option.indexOf('=')), option.substring(option.indexOf('=') + 1));
        }
        StreamsBuilder builder = new StreamsBuilder();
        for (String topology : topologies.split(",")) {
            switch (topology) {
                case "counts" -> counts(builder);
                case "joins" -> joins(builder);
                case "tables" -> tables(builder);
                case "stores" -> stores(builder);
                default -> throw new IllegalArgumentException(topology);
            }
        }
        KafkaStreams streams = new KafkaStreams(builder.build(config), config);
        streams.setStateListener((to, from) -> say("state " + to));
        streams.setUncaughtExceptionHandler(error -> {
            say("error " + error.toString().replace('\n', ' '));
            error.printStackTrace();
            return StreamThreadExceptionResponse.SHUTDOWN_CLIENT;
        });
        streams.start();
        while (System.in.read() >= 0) {
            // Until its end.
        }
        streams.close();
        say("closed");
    }

    private static synchronized void say(String what) {
        System.out.println(what);
        System.out.flush();
    }

    /** Words of {@code lines}: how often each was there, and how often in each window. */
    private static void counts(StreamsBuilder builder) {
        KGroupedStream<String, String> words = builder.<String, String>stream("lines")
                .flatMapValues(line -> List.of(line.split(" ")))
                .groupBy((key, word) -> word, Grouped.as("words"));
        words.count(Materialized.as("counts-store")).toStream().mapValues(String::valueOf).to("counts");
        words.windowedBy(TimeWindows.ofSizeAndGrace(WINDOW, GRACE))
                .count(Materialized.as("windowed-store"))
                .toStream((window, count) -> name(window))
                .mapValues(String::valueOf)
                .to("windowed");
    }

    /** Pairs of {@code left} and {@code right} of one key that are not too far apart. A value is KEY:ID, a joined one LEFT ID+RIGHT ID. */
    private static void joins(StreamsBuilder builder) {
        keyed(builder, "left")
                .join(
                        keyed(builder, "right"),
                        (left, right) -> left + "+" + right,
                        JoinWindows.ofTimeDifferenceAndGrace(APART, GRACE),
                        StreamJoined.<String, String, String>as("pairs").withStoreName("pairs-store"))
                .to("joined");
    }

    private static KStream<String, String> keyed(StreamsBuilder builder, String topic) {
        return builder.<String, String>stream(topic)
                .map((key, value) -> KeyValue.pair(value.substring(0, value.indexOf(':')), value.substring(value.indexOf(':') + 1)), Named.as(topic));
    }

    /** Orders (CUSTOMER:ITEM) with their customers by foreign key, and with names of items from a global table; and the last count of a window. */
    private static void tables(StreamsBuilder builder) {
        KTable<String, String> customers = builder.table("customers", Materialized.as("customers-store"));
        KTable<String, String> orders = builder.table("orders", Materialized.as("orders-store"));
        orders.join(
                        customers,
                        order -> order.substring(0, order.indexOf(':')),
                        (order, customer) -> order + "@" + customer,
                        TableJoined.as("of-customer"),
                        Materialized.as("ordered-store"))
                .toStream()
                .to("ordered");
        orders.toStream()
                .join(
                        builder.<String, String>globalTable("items"),
                        (order, value) -> value == null ? null : value.substring(value.indexOf(':') + 1),
                        (order, item) -> item)
                .to("named");
        orders.toStream()
                .groupBy(
                        (order, value) -> value == null ? "none" : value.substring(0, value.indexOf(':')),
                        Grouped.with("by-customer", Serdes.String(), Serdes.String()))
                .windowedBy(TimeWindows.ofSizeAndGrace(WINDOW, GRACE))
                .count(Materialized.<String, Long, WindowStore<Bytes, byte[]>>as("last-store")
                        .withKeySerde(Serdes.String())
                        .withValueSerde(Serdes.Long()))
                .suppress(Suppressed.untilWindowCloses(BufferConfig.unbounded()).withName("last-buffer"))
                .toStream((window, count) -> name(window))
                .mapValues(String::valueOf)
                .to("last");
    }

    /** Stores whose changelogs are configured in ways of their own; nothing comes of them. */
    private static void stores(StreamsBuilder builder) {
        KGroupedStream<String, String> grouped =
                builder.<String, String>stream("lines").groupByKey(Grouped.with("line", Serdes.String(), Serdes.String()));
        grouped.count(Materialized.<String, Long>as(Stores.persistentVersionedKeyValueStore("versioned-store", Duration.ofHours(1))));
        grouped.windowedBy(SessionWindows.ofInactivityGapAndGrace(WINDOW, GRACE)).count(Materialized.as("session-store"));
        grouped.count(Materialized.<String, Long, KeyValueStore<Bytes, byte[]>>as("configured-store")
                .withLoggingEnabled(Map.of("min.cleanable.dirty.ratio", "0.1", "delete.retention.ms", "1000")));
    }

    private static String name(Windowed<String> window) {
        return window.key() + "@" + window.window().start();
    }

    private static void topics(String bootstrap, String application) throws Exception {
        try (Admin admin = Admin.create(Map.of("bootstrap.servers", bootstrap))) {
            List<String> names = new TreeSet<>(admin.listTopics().names().get())
                    .stream().filter(name -> name.startsWith(application + "-")).collect(Collectors.toList());
            Map<String, TopicDescription> described = admin.describeTopics(names).allTopicNames().get();
            List<ConfigResource> resources =
                    names.stream().map(name -> new ConfigResource(ConfigResource.Type.TOPIC, name)).collect(Collectors.toList());
            Map<String, Config> configs = new TreeMap<>();
            admin.describeConfigs(resources).all().get().forEach((resource, config) -> configs.put(resource.name(), config));
            for (String name : names) {
                List<String> own = new ArrayList<>(new TreeSet<>(configs.get(name).entries().stream()
                        .filter(entry -> entry.source() == ConfigEntry.ConfigSource.DYNAMIC_TOPIC_CONFIG)
                        .map(entry -> entry.name() + "=" + entry.value())
                        .collect(Collectors.toList())));
                System.out.println(name + " " + described.get(name).partitions().size() + " " + String.join(" ", own));
            }
        }
    }
}
