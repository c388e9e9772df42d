//! THE table of topic configs, each with the server keys that it takes its default from, and the way from a topic's overrides to the
//! [`TopicConfig`] that its log obeys.
//!
//! Names, ranges, messages and the order of synonyms are Apache Kafka's (`TopicConfig`, `LogConfig`, `ServerTopicConfigSynonyms`).

use super::{
    CompressionType, TopicConfig,
    key::{
        Importance::Medium,
        InvalidValue, Key,
        Kind::{Boolean, Double, Int, List, Long, String as Text},
        Valid::{Any, AtLeast, Between, BetweenOrMinusOne, OneOf, Replicas},
        Value, markdown_table,
    },
    keys::{CLEANUP_POLICIES, COMPRESSION_TYPES, DECOMPRESSED_MAX, DECOMPRESSED_NOTE, DECOMPRESSED_VALID, NEVER, TIMESTAMP_TYPES},
};
use crate::record::{Compression, TimestampType};
use std::collections::BTreeMap;

/// What a server key's number counts, where it is the default of a topic config in milliseconds.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Unit {
    Same,
    Minutes,
    Hours,
}

impl Unit {
    /// The server key's value in the topic config's unit.
    pub fn convert(self, value: Value) -> Value {
        let factor = match self {
            Self::Same => return value,
            Self::Minutes => 60_000,
            Self::Hours => 3_600_000,
        };
        match value {
            Value::Integer(n) => Value::Integer(n.saturating_mul(factor)),
            other => other,
        }
    }
}

/// A topic config and the server keys that it defaults to, the strongest first.
#[derive(Clone, Copy, Debug)]
pub struct TopicKey {
    pub key: Key,
    pub synonyms: &'static [(&'static str, Unit)],
}

const fn same(key: Key, synonyms: &'static [(&'static str, Unit)]) -> TopicKey {
    TopicKey { key, synonyms }
}

macro_rules! from {
    ($($name:literal)*) => { &[$(($name, Unit::Same)),*] };
}

/// Every config that a topic can have, in README's order.
pub static TOPIC_KEYS: &[TopicKey] = &[
    same(
        Key::new(
            "cleanup.policy",
            List,
            Some("delete"),
            OneOf(CLEANUP_POLICIES),
            Medium,
            "What becomes of old segments: delete, compact (the latest record of each key stays; one without a key is refused), or both.",
        ),
        from!("log.cleanup.policy"),
    ),
    same(
        Key::new(
            "compression.type",
            Text,
            Some("producer"),
            OneOf(COMPRESSION_TYPES),
            Medium,
            "The codec that batches are stored in; producer keeps what the producer chose.",
        ),
        from!("compression.type"),
    ),
    same(
        Key::new("compression.gzip.level", Int, Some("-1"), BetweenOrMinusOne(1, 9), Medium, "The level where batches are stored in gzip."),
        from!("compression.gzip.level"),
    ),
    same(
        Key::new("compression.lz4.level", Int, Some("9"), Between(1, 17), Medium, "The level where batches are stored in lz4."),
        from!("compression.lz4.level"),
    ),
    same(
        Key::new("compression.zstd.level", Int, Some("3"), Between(-131_072, 22), Medium, "The level where batches are stored in zstd."),
        from!("compression.zstd.level"),
    ),
    same(
        Key::new(
            "delete.retention.ms",
            Long,
            Some("86400000"),
            AtLeast(0),
            Medium,
            "How long a compacted topic keeps tombstones, once compacted.",
        ),
        from!("log.cleaner.delete.retention.ms"),
    ),
    same(
        Key::new(
            "errors.deadletterqueue.group.enable",
            Boolean,
            Some("false"),
            Any,
            Medium,
            "For share groups, which there are none of yet. Without effect.",
        ),
        &[],
    ),
    same(
        Key::new(
            "file.delete.delay.ms",
            Long,
            Some("60000"),
            AtLeast(0),
            Medium,
            "How long a deleted segment's files stay on the disk under another name.",
        ),
        from!("log.segment.delete.delay.ms"),
    ),
    same(
        Key::new(
            "flush.messages",
            Long,
            NEVER,
            AtLeast(1),
            Medium,
            "A partition is synced to its disk, and the write waits for it, when this many records have come since the last time.",
        ),
        from!("log.flush.interval.messages"),
    ),
    same(
        Key::new("flush.ms", Long, NEVER, AtLeast(0), Medium, "A partition with records older than this that are not synced is synced."),
        from!("log.flush.interval.ms" "log.flush.scheduler.interval.ms"),
    ),
    same(
        Key::new(
            "follower.replication.throttled.replicas",
            List,
            Some(""),
            Replicas,
            Medium,
            "Followers whose replication is held back. Kept, but without effect with one broker.",
        ),
        &[],
    ),
    same(
        Key::new(
            "index.interval.bytes",
            Int,
            Some("4096"),
            AtLeast(0),
            Medium,
            "The bytes of log between two entries of its offset index.",
        ),
        from!("log.index.interval.bytes"),
    ),
    same(
        Key::new(
            "leader.replication.throttled.replicas",
            List,
            Some(""),
            Replicas,
            Medium,
            "Leaders whose replication is held back. Kept, but without effect with one broker.",
        ),
        &[],
    ),
    same(
        Key::new(
            "local.retention.bytes",
            Long,
            Some("-2"),
            AtLeast(-2),
            Medium,
            "For tiered storage, which there is none of yet. Without effect.",
        ),
        &[],
    ),
    same(
        Key::new(
            "local.retention.ms",
            Long,
            Some("-2"),
            AtLeast(-2),
            Medium,
            "For tiered storage, which there is none of yet. Without effect.",
        ),
        &[],
    ),
    same(
        Key::new(
            "max.compaction.lag.ms",
            Long,
            NEVER,
            AtLeast(1),
            Medium,
            "How long a superseded record of a compacted topic may wait for its compaction.",
        ),
        from!("log.cleaner.max.compaction.lag.ms"),
    ),
    same(
        Key::new("max.decompressed.message.bytes", Int, DECOMPRESSED_MAX, DECOMPRESSED_VALID, Medium, DECOMPRESSED_NOTE),
        from!("max.decompressed.message.bytes"),
    ),
    same(
        Key::new(
            "max.message.bytes",
            Int,
            Some("1048588"),
            AtLeast(0),
            Medium,
            "The largest record batch that the topic takes, as it is stored.",
        ),
        from!("message.max.bytes"),
    ),
    same(
        Key::new(
            "message.timestamp.after.max.ms",
            Long,
            Some("3600000"),
            AtLeast(0),
            Medium,
            "A record whose timestamp is ahead of now by more than this is refused.",
        ),
        from!("log.message.timestamp.after.max.ms"),
    ),
    same(
        Key::new(
            "message.timestamp.before.max.ms",
            Long,
            NEVER,
            AtLeast(0),
            Medium,
            "A record whose timestamp is older than now by more than this is refused.",
        ),
        from!("log.message.timestamp.before.max.ms"),
    ),
    same(
        Key::new(
            "message.timestamp.type",
            Text,
            Some("CreateTime"),
            OneOf(TIMESTAMP_TYPES),
            Medium,
            "Whether a record keeps its producer's timestamp or gets the time of its append.",
        ),
        from!("log.message.timestamp.type"),
    ),
    same(
        Key::new(
            "min.cleanable.dirty.ratio",
            Double,
            Some("0.5"),
            Between(0, 1),
            Medium,
            "The share of a compacted log that must have been written since the last compaction for the next one to start.",
        ),
        from!("log.cleaner.min.cleanable.ratio"),
    ),
    same(
        Key::new(
            "min.compaction.lag.ms",
            Long,
            Some("0"),
            AtLeast(0),
            Medium,
            "How long a record of a compacted topic is kept at the least.",
        ),
        from!("log.cleaner.min.compaction.lag.ms"),
    ),
    same(
        Key::new(
            "min.insync.replicas",
            Int,
            Some("1"),
            AtLeast(1),
            Medium,
            "How many replicas must be in sync for a write with acks=all to be taken.",
        ),
        from!("min.insync.replicas"),
    ),
    same(
        Key::new("preallocate", Boolean, Some("false"), Any, Medium, "Reserve a new segment's whole size on the disk at once."),
        from!("log.preallocate"),
    ),
    same(
        Key::new(
            "remote.copy.lag.bytes",
            Long,
            Some("-1"),
            AtLeast(-1),
            Medium,
            "For tiered storage, which there is none of yet. Without effect.",
        ),
        &[],
    ),
    same(
        Key::new(
            "remote.copy.lag.ms",
            Long,
            Some("0"),
            AtLeast(-1),
            Medium,
            "For tiered storage, which there is none of yet. Without effect.",
        ),
        &[],
    ),
    same(
        Key::new(
            "remote.log.copy.disable",
            Boolean,
            Some("false"),
            Any,
            Medium,
            "For tiered storage, which there is none of yet. Without effect.",
        ),
        &[],
    ),
    same(
        Key::new(
            "remote.log.delete.on.disable",
            Boolean,
            Some("false"),
            Any,
            Medium,
            "For tiered storage, which there is none of yet. Without effect.",
        ),
        &[],
    ),
    same(
        Key::new(
            "remote.storage.enable",
            Boolean,
            Some("false"),
            Any,
            Medium,
            "Keep old segments in tiered storage, which there is none of yet: true is refused.",
        ),
        &[],
    ),
    same(
        Key::new(
            "retention.bytes",
            Long,
            Some("-1"),
            Any,
            Medium,
            "How large a partition grows before its oldest segments go; -1 for no bound.",
        ),
        from!("log.retention.bytes"),
    ),
    same(
        Key::new(
            "retention.ms",
            Long,
            Some("604800000"),
            AtLeast(-1),
            Medium,
            "A segment whose newest record is older than this goes; -1 keeps all for ever.",
        ),
        &[("log.retention.ms", Unit::Same), ("log.retention.minutes", Unit::Minutes), ("log.retention.hours", Unit::Hours)],
    ),
    same(
        Key::new(
            "segment.bytes",
            Int,
            Some("1073741824"),
            AtLeast(1 << 20),
            Medium,
            "A segment file that would grow over this is closed for a new one.",
        ),
        from!("log.segment.bytes"),
    ),
    same(
        Key::new(
            "segment.index.bytes",
            Int,
            Some("10485760"),
            AtLeast(4),
            Medium,
            "A segment whose index would grow over this is closed for a new one.",
        ),
        from!("log.index.size.max.bytes"),
    ),
    same(
        Key::new(
            "segment.jitter.ms",
            Long,
            Some("0"),
            AtLeast(0),
            Medium,
            "Up to this much is taken off segment.ms, so that segments don't roll together.",
        ),
        &[("log.roll.jitter.ms", Unit::Same), ("log.roll.jitter.hours", Unit::Hours)],
    ),
    same(
        Key::new("segment.ms", Long, Some("604800000"), AtLeast(1), Medium, "A segment older than this is closed for a new one."),
        &[("log.roll.ms", Unit::Same), ("log.roll.hours", Unit::Hours)],
    ),
    same(
        Key::new(
            "unclean.leader.election.enable",
            Boolean,
            Some("false"),
            Any,
            Medium,
            "Let a replica that is not in sync become leader. Has no effect with one broker.",
        ),
        from!("unclean.leader.election.enable"),
    ),
];

/// The topic config of this name.
pub fn find(name: &str) -> Option<&'static TopicKey> {
    TOPIC_KEYS.iter().find(|topic| topic.key.name == name)
}

/// The topic config that takes its default from this server key.
pub fn topic_key_of(server_key: &str) -> Option<&'static str> {
    TOPIC_KEYS.iter().find(|topic| topic.synonyms.iter().any(|(name, _)| *name == server_key)).map(|topic| topic.key.name)
}

/// README's table of topic configs.
pub fn markdown() -> String {
    let row = |topic: &TopicKey| {
        let default = match topic.synonyms.first() {
            Some((name, _)) => format!("of `{name}`"),
            None => format!("`{}`", topic.key.default.unwrap_or_default()),
        };
        vec![
            format!("`{}`", topic.key.name),
            topic.key.kind.name().to_lowercase(),
            default,
            topic.key.valid.describe(),
            topic.key.doc.to_owned(),
        ]
    };
    markdown_table(&["topic config", "type", "default", "valid", "what it does"], TOPIC_KEYS.iter().map(row))
}

/// Why a topic's configs are refused (INVALID_CONFIG); the texts are Kafka's.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum InvalidTopicConfig {
    #[error("Unknown topic config name: {0}")]
    Unknown(String),
    #[error(transparent)]
    Value(#[from] InvalidValue),
    #[error("Can't {op} to key {key} because its type is not LIST.")]
    NotAList { op: &'static str, key: String },
    #[error("conflict topic config setting min.compaction.lag.ms ({min}) > max.compaction.lag.ms ({max})")]
    CompactionLags { min: i64, max: i64 },
    #[error("Tiered Storage functionality is disabled in the broker. Topic cannot be configured with remote log storage.")]
    RemoteStorage,
}

/// The typed form. Every key of the table has a value, so the fallbacks below are never taken; they spare the log a panic.
pub(super) fn build(values: &BTreeMap<&'static str, Value>) -> TopicConfig {
    let fallback = TopicConfig::default();
    let long = |name: &str, otherwise: i64| match values.get(name) {
        Some(Value::Integer(n)) => *n,
        _ => otherwise,
    };
    let int = |name: &str, otherwise: i32| i32::try_from(long(name, otherwise.into())).unwrap_or(otherwise);
    let bytes = |name: &str, otherwise: usize| usize::try_from(long(name, -1)).unwrap_or(otherwise);
    let flag = |name: &str| matches!(values.get(name), Some(Value::Boolean(true)));
    let word = |name: &str| match values.get(name) {
        Some(Value::String(text)) => text.as_str(),
        _ => "",
    };
    let policy = |wanted: &str| matches!(values.get("cleanup.policy"), Some(Value::List(items)) if items.iter().any(|item| item == wanted));
    let ratio = match values.get("min.cleanable.dirty.ratio") {
        Some(Value::Double(d)) => (d * 1e6) as u32,
        _ => fallback.min_cleanable_dirty_ratio_ppm,
    };
    TopicConfig {
        cleanup_compact: policy("compact"),
        cleanup_delete: policy("delete"),
        compression_type: compression_type(word("compression.type")),
        compression_gzip_level: int("compression.gzip.level", fallback.compression_gzip_level),
        compression_lz4_level: int("compression.lz4.level", fallback.compression_lz4_level),
        compression_zstd_level: int("compression.zstd.level", fallback.compression_zstd_level),
        delete_retention_ms: long("delete.retention.ms", fallback.delete_retention_ms),
        file_delete_delay_ms: long("file.delete.delay.ms", fallback.file_delete_delay_ms),
        flush_messages: long("flush.messages", fallback.flush_messages),
        flush_ms: long("flush.ms", fallback.flush_ms),
        index_interval_bytes: bytes("index.interval.bytes", fallback.index_interval_bytes),
        max_compaction_lag_ms: long("max.compaction.lag.ms", fallback.max_compaction_lag_ms),
        max_decompressed_message_bytes: bytes("max.decompressed.message.bytes", fallback.max_decompressed_message_bytes),
        max_message_bytes: bytes("max.message.bytes", fallback.max_message_bytes),
        message_timestamp_type: timestamp_type(word("message.timestamp.type")),
        message_timestamp_before_max_ms: long("message.timestamp.before.max.ms", fallback.message_timestamp_before_max_ms),
        message_timestamp_after_max_ms: long("message.timestamp.after.max.ms", fallback.message_timestamp_after_max_ms),
        min_cleanable_dirty_ratio_ppm: ratio,
        min_compaction_lag_ms: long("min.compaction.lag.ms", fallback.min_compaction_lag_ms),
        min_insync_replicas: int("min.insync.replicas", fallback.min_insync_replicas),
        preallocate: flag("preallocate"),
        retention_bytes: long("retention.bytes", fallback.retention_bytes),
        retention_ms: long("retention.ms", fallback.retention_ms).max(-1),
        segment_bytes: bytes("segment.bytes", fallback.segment_bytes),
        segment_index_bytes: bytes("segment.index.bytes", fallback.segment_index_bytes),
        segment_jitter_ms: long("segment.jitter.ms", fallback.segment_jitter_ms),
        segment_ms: long("segment.ms", fallback.segment_ms),
        unclean_leader_election_enable: flag("unclean.leader.election.enable"),
    }
}

fn compression_type(word: &str) -> CompressionType {
    match word {
        "uncompressed" => CompressionType::Codec(Compression::None),
        "gzip" => CompressionType::Codec(Compression::Gzip),
        "snappy" => CompressionType::Codec(Compression::Snappy),
        "lz4" => CompressionType::Codec(Compression::Lz4),
        "zstd" => CompressionType::Codec(Compression::Zstd),
        _ => CompressionType::Producer,
    }
}

fn timestamp_type(word: &str) -> TimestampType {
    if word == "LogAppendTime" { TimestampType::LogAppendTime } else { TimestampType::CreateTime }
}

#[cfg(test)]
mod tests {
    use super::{super::TopicDefaults, *};

    fn overrides(pairs: &[(&str, &str)]) -> BTreeMap<String, String> {
        pairs.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned())).collect()
    }

    fn refusal(pairs: &[(&str, &str)]) -> String {
        TopicDefaults::default().resolve(&overrides(pairs)).unwrap_err().to_string()
    }

    #[test]
    fn the_tables_defaults_are_kafkas() {
        assert_eq!(TopicDefaults::default().resolve(&BTreeMap::new()), Ok(TopicConfig::default()));
    }

    #[test]
    fn every_topic_default_is_its_servers_default() {
        for topic in TOPIC_KEYS {
            let default = topic.key.check(topic.key.default.unwrap()).unwrap();
            let from_server = topic.synonyms.iter().find_map(|(name, unit)| {
                let server = crate::config::keys::find(name).unwrap_or_else(|| panic!("{name} is not in the table"));
                Some(unit.convert(server.check(server.default?).unwrap()))
            });
            assert_eq!(from_server.unwrap_or(default.clone()), default, "{}", topic.key.name);
        }
    }

    #[test]
    fn every_override_reaches_the_config() {
        let text = [
            ("cleanup.policy", "compact,delete"),
            ("compression.type", "zstd"),
            ("flush.messages", "7"),
            ("max.message.bytes", "1000"),
            ("message.timestamp.type", "LogAppendTime"),
            ("min.cleanable.dirty.ratio", "0.25"),
            ("retention.ms", "-1"),
            ("segment.ms", "60000"),
            ("preallocate", "true"),
        ];
        let config = TopicDefaults::default().resolve(&overrides(&text)).unwrap();
        let expected = TopicConfig {
            cleanup_compact: true,
            compression_type: CompressionType::Codec(Compression::Zstd),
            flush_messages: 7,
            max_message_bytes: 1000,
            message_timestamp_type: TimestampType::LogAppendTime,
            min_cleanable_dirty_ratio_ppm: 250_000,
            retention_ms: -1,
            segment_ms: 60_000,
            preallocate: true,
            ..TopicConfig::default()
        };
        assert_eq!(config, expected);
    }

    #[test]
    fn refusals_are_kafkas() {
        assert_eq!(refusal(&[("segment.size", "1")]), "Unknown topic config name: segment.size");
        assert_eq!(refusal(&[("retention.ms", "-2")]), "Invalid value -2 for configuration retention.ms: Value must be at least -1");
        assert_eq!(
            refusal(&[("min.compaction.lag.ms", "10"), ("max.compaction.lag.ms", "9")]),
            "conflict topic config setting min.compaction.lag.ms (10) > max.compaction.lag.ms (9)"
        );
        assert_eq!(
            refusal(&[("remote.storage.enable", "true")]),
            "Tiered Storage functionality is disabled in the broker. Topic cannot be configured with remote log storage."
        );
    }

    #[test]
    fn hours_count_only_where_milliseconds_are_not_set() {
        let int = |n: i64| (n.to_string(), Value::Integer(n));
        let mut set = BTreeMap::from([("log.retention.hours", int(2)), ("log.roll.hours", int(3))]);
        let config = TopicDefaults::from_server(set.clone()).resolve(&BTreeMap::new()).unwrap();
        assert_eq!((config.retention_ms, config.segment_ms), (7_200_000, 10_800_000));
        set.insert("log.retention.minutes", int(5));
        assert_eq!(TopicDefaults::from_server(set.clone()).resolve(&BTreeMap::new()).unwrap().retention_ms, 300_000);
        set.insert("log.retention.ms", int(-1));
        assert_eq!(TopicDefaults::from_server(set.clone()).resolve(&BTreeMap::new()).unwrap().retention_ms, -1);
    }

    #[test]
    fn a_stored_override_of_an_older_version_falls_back() {
        let stored = overrides(&[("was.once.a.key", "1"), ("segment.ms", "never"), ("retention.ms", "5")]);
        let config = TopicDefaults::default().resolve_stored(&stored);
        assert_eq!(config, TopicConfig { retention_ms: 5, ..TopicConfig::default() });
    }
}
