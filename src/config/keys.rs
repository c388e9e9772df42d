//! THE table of server keys. Parsing, defaults, DescribeConfigs and README's table all read it; nothing else names a default.
//!
//! Names, types, ranges and defaults are Apache Kafka's (`KafkaConfig` and the `*Configs` classes it is put together from) but for the
//! loopback listeners, the data directory, `node.id`, and `http.listeners`, `lag.metrics.*` and `log.dir.min.free.bytes`, which are ours. The documentation is in our words.

use super::{
    group_keys,
    key::{
        Importance::{High, Low, Medium},
        Key,
        Kind::{Boolean, Int, List, Long, String},
        Valid::{self, Any, AtLeast, Between, BetweenOrMinusOne, OneOf},
        markdown_table,
    },
    log_keys, transaction_keys,
};
use std::sync::LazyLock;

/// What a `compression.type` may be.
pub(super) const COMPRESSION_TYPES: &[&str] = &["uncompressed", "zstd", "lz4", "snappy", "gzip", "producer"];
pub(super) const CLEANUP_POLICIES: &[&str] = &["compact", "delete"];
pub(super) const TIMESTAMP_TYPES: &[&str] = &["CreateTime", "LogAppendTime"];
/// Exporters whose names `lag.metrics.compat` takes on.
pub(super) const LAG_EXPORTERS: &[&str] = &["kafka-lag-exporter"];
/// A `long` that means "never" or "no bound".
pub(super) const NEVER: Option<&str> = Some("9223372036854775807");
const INT_MAX: Option<&str> = Some("2147483647");
/// No bound but what Kafka can hold in memory.
pub(super) const DECOMPRESSED_MAX: Option<&str> = Some("2147483639");
pub(super) const DECOMPRESSED_VALID: Valid = Between(1, 2_147_483_639);
pub(super) const DECOMPRESSED_NOTE: &str =
    "A record of a compressed batch that is larger than this is refused. Batches are decompressed to see that where it is set.";

/// Every key that the broker reads, in README's order.
pub static KEYS: LazyLock<Vec<Key>> =
    LazyLock::new(|| [BROKER_KEYS, log_keys::LOG_KEYS, GROUP_KEYS, transaction_keys::KEYS, group_keys::SERVER_KEYS].concat());

const BROKER_KEYS: &[Key] = &[
    // Who the broker is and where it listens.
    Key::new("node.id", Int, Some("1"), AtLeast(0), High, "This broker's id in its cluster."),
    Key::new("broker.id", Int, None, AtLeast(0), High, "The older name of node.id; if both are set, they must agree."),
    Key::new(
        "broker.rack",
        String,
        None,
        Any,
        Medium,
        "The rack or zone that this broker stands in, as Metadata answers tell it to clients.",
    ),
    Key::new(
        "listeners",
        List,
        Some("PLAINTEXT://127.0.0.1:9092"),
        Any,
        High,
        "Where clients connect: a comma-separated list of NAME://HOST:PORT. An empty host or 0.0.0.0 means \
         every interface, port 0 any free port.",
    ),
    Key::new(
        "advertised.listeners",
        List,
        None,
        Any,
        High,
        "The addresses that clients are told to connect to, by listener name, where they differ from listeners. Must not be 0.0.0.0.",
    ),
    Key::new(
        "listener.security.protocol.map",
        String,
        Some("PLAINTEXT:PLAINTEXT,SSL:SSL,SASL_PLAINTEXT:SASL_PLAINTEXT,SASL_SSL:SASL_SSL"),
        Any,
        Low,
        "The security protocol of each listener name, as NAME:PROTOCOL pairs. Only PLAINTEXT can be served yet.",
    ),
    Key::new(
        "controller.listener.names",
        List,
        None,
        Any,
        High,
        "Listeners that Apache Kafka keeps for its controllers. There are none here, so these names are left out of listeners.",
    ),
    Key::new(
        "http.listeners",
        String,
        Some("127.0.0.1:9308"),
        Any,
        Medium,
        "Where health and metrics are served: HOST:PORT or http://HOST:PORT, comma-separated; empty turns HTTP off.",
    ),
    Key::new(
        "lag.metrics.max.series",
        Int,
        Some("1000000"),
        AtLeast(0),
        Medium,
        "The most series about consumer groups in one scrape of the metrics. What is left out is counted by highwater_lag_dropped_series.",
    ),
    Key::new(
        "lag.metrics.group.include",
        String,
        Some(".*"),
        Any,
        Low,
        "A regular expression: metrics tell of the groups that it matches anywhere in their names (kafka_exporter's group.filter).",
    ),
    Key::new(
        "lag.metrics.group.exclude",
        String,
        Some("^$"),
        Any,
        Low,
        "A regular expression: metrics tell nothing of the groups that it matches (kafka_exporter's group.exclude).",
    ),
    Key::new(
        "lag.metrics.topic.include",
        String,
        Some(".*"),
        Any,
        Low,
        "The same for topics, in the metrics named kafka_ (kafka_exporter's topic.filter).",
    ),
    Key::new("lag.metrics.topic.exclude", String, Some("^$"), Any, Low, "The same for topics (kafka_exporter's topic.exclude)."),
    Key::new(
        "lag.metrics.compat",
        List,
        Some(""),
        OneOf(LAG_EXPORTERS),
        Low,
        "kafka-lag-exporter: the metrics of seglo/kafka-lag-exporter are there too, for dashboards that ask for its names.",
    ),
    // Connections and requests.
    Key::new("max.connections", Int, INT_MAX, AtLeast(0), Medium, "How many client connections the broker holds at once."),
    Key::new("max.connections.per.ip", Int, INT_MAX, AtLeast(0), Medium, "How many client connections one address may hold at once."),
    Key::new(
        "connections.max.idle.ms",
        Long,
        Some("600000"),
        Any,
        Medium,
        "A connection without a request for this long is closed; negative for never.",
    ),
    Key::new("socket.request.max.bytes", Int, Some("104857600"), AtLeast(1), High, "The largest request that is read from a connection."),
    Key::new(
        "queued.max.request.bytes",
        Long,
        Some("-1"),
        Any,
        Medium,
        "The memory that requests may hold between being read and being answered; reading stops while it is used up. -1 is 512 \
         MiB, or twice socket.request.max.bytes if that is more.",
    ),
    Key::new("fetch.max.bytes", Int, Some("57671680"), AtLeast(1024), Medium, "The most bytes of records that one Fetch answer carries."),
    Key::new(
        "max.incremental.fetch.session.cache.slots",
        Int,
        Some("1000"),
        AtLeast(0),
        Medium,
        "How many incremental fetch sessions (KIP-227) are kept.",
    ),
    Key::new(
        "max.request.partition.size.limit",
        Int,
        Some("2000"),
        AtLeast(1),
        Medium,
        "The most partitions that one DescribeTopicPartitions answer carries; the rest is read with its cursor.",
    ),
    // Topics.
    Key::new("num.partitions", Int, Some("1"), AtLeast(1), Medium, "The partitions of a topic that is created without saying how many."),
    Key::new(
        "default.replication.factor",
        Int,
        Some("1"),
        Any,
        Medium,
        "The replicas of a topic that is created without saying how many. One broker can hold 1.",
    ),
    Key::new("auto.create.topics.enable", Boolean, Some("true"), Any, High, "Create a topic when a client asks for it by name."),
    Key::new("delete.topic.enable", Boolean, Some("true"), Any, High, "Let clients delete topics."),
    Key::new(
        "min.insync.replicas",
        Int,
        Some("1"),
        AtLeast(1),
        High,
        "How many replicas must be in sync for a write with acks=all to be taken.",
    )
    .dynamic(),
    Key::new(
        "unclean.leader.election.enable",
        Boolean,
        Some("false"),
        Any,
        High,
        "Let a replica that is not in sync become leader, losing what it lacks. Has no effect with one broker.",
    )
    .dynamic(),
    Key::new("message.max.bytes", Int, Some("1048588"), AtLeast(0), High, "The largest record batch that a topic takes, as it is stored.")
        .dynamic(),
    Key::new("max.decompressed.message.bytes", Int, DECOMPRESSED_MAX, DECOMPRESSED_VALID, Medium, DECOMPRESSED_NOTE).dynamic(),
    Key::new(
        "compression.type",
        String,
        Some("producer"),
        OneOf(COMPRESSION_TYPES),
        High,
        "The codec that batches are stored in; producer keeps what the producer chose.",
    )
    .dynamic(),
    Key::new("compression.gzip.level", Int, Some("-1"), BetweenOrMinusOne(1, 9), Medium, "The level where batches are stored in gzip.")
        .dynamic(),
    Key::new("compression.lz4.level", Int, Some("9"), Between(1, 17), Medium, "The level where batches are stored in lz4.").dynamic(),
    Key::new("compression.zstd.level", Int, Some("3"), Between(-131_072, 22), Medium, "The level where batches are stored in zstd.")
        .dynamic(),
    Key::new(
        "log.message.timestamp.type",
        String,
        Some("CreateTime"),
        OneOf(TIMESTAMP_TYPES),
        Medium,
        "Whether a record keeps its producer's timestamp or gets the time of its append.",
    )
    .dynamic(),
    Key::new(
        "log.message.timestamp.before.max.ms",
        Long,
        NEVER,
        AtLeast(0),
        Medium,
        "A record whose timestamp is older than now by more than this is refused.",
    )
    .dynamic(),
    Key::new(
        "log.message.timestamp.after.max.ms",
        Long,
        Some("3600000"),
        AtLeast(0),
        Medium,
        "A record whose timestamp is ahead of now by more than this is refused.",
    )
    .dynamic(),
];

/// Of groups that speak the classic protocol, and of committed offsets.
const GROUP_KEYS: &[Key] = &[
    Key::new(
        "group.min.session.timeout.ms",
        Int,
        Some("6000"),
        AtLeast(0),
        Medium,
        "The shortest session timeout that a member may ask for.",
    ),
    Key::new(
        "group.max.session.timeout.ms",
        Int,
        Some("1800000"),
        AtLeast(0),
        Medium,
        "The longest session timeout that a member may ask for.",
    ),
    Key::new(
        "group.initial.rebalance.delay.ms",
        Int,
        Some("3000"),
        AtLeast(0),
        Medium,
        "How long a group without members waits for more of them after the first; each that comes makes it wait as long again.",
    ),
    Key::new(
        "group.classic.heartbeat.hold.max.ms",
        Int,
        Some("8000"),
        AtLeast(0),
        Medium,
        "The longest that the answer to a classic member's heartbeat is held back until its group rebalances, for clients that bear it; always less \
         than their interval. 0 turns it off: members hear of rebalances with their next heartbeats, as from Apache Kafka.",
    ),
    Key::new("group.max.size", Int, INT_MAX, AtLeast(1), Medium, "The most members that a group takes."),
    Key::new(
        "offset.metadata.max.bytes",
        Int,
        Some("4096"),
        AtLeast(0),
        High,
        "The most characters of a client's own that go with a committed offset.",
    ),
    Key::new(
        "offsets.retention.minutes",
        Int,
        Some("10080"),
        AtLeast(1),
        High,
        "How long committed offsets are kept after their group has lost its last member, or after the commit where it never had one.",
    ),
    Key::new(
        "offsets.retention.check.interval.ms",
        Long,
        Some("600000"),
        AtLeast(1),
        High,
        "How often offsets that are too old are looked for.",
    ),
    Key::new(
        "offsets.topic.num.partitions",
        Int,
        Some("50"),
        AtLeast(1),
        High,
        "The partitions of __consumer_offsets, when it is created.",
    ),
    Key::new(
        "offsets.topic.replication.factor",
        Int,
        Some("3"),
        AtLeast(1),
        High,
        "The replicas of __consumer_offsets, when it is created: as many as there are brokers for.",
    ),
    Key::new(
        "offsets.topic.segment.bytes",
        Int,
        Some("104857600"),
        AtLeast(1_048_576),
        High,
        "segment.bytes of __consumer_offsets, when it is created.",
    ),
];

/// The key of this name.
pub fn find(name: &str) -> Option<&'static Key> {
    KEYS.iter().find(|key| key.name == name)
}

/// README's table of server keys.
pub fn markdown() -> std::string::String {
    let row = |key: &Key| {
        let default = key.default.map_or_else(|| "unset".to_owned(), |text| format!("`{text}`"));
        let topic = super::topic_keys::topic_key_of(key.name).map_or_else(std::string::String::new, |topic| format!("`{topic}`"));
        vec![format!("`{}`", key.name), key.kind.name().to_lowercase(), default, key.valid.describe(), topic, key.doc.to_owned()]
    };
    markdown_table(&["key", "type", "default", "valid", "topic's own", "what it does"], KEYS.iter().map(row))
}
