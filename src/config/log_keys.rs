//! The server's keys of the log: where the data lies, segments, durability, retention and compaction. Part of THE table of server keys.
//!
//! Names, types, ranges and defaults are Apache Kafka's (`ServerLogConfigs`, `CleanerConfig`) but for `log.dir.min.free.bytes`, which is ours.

use super::{
    key::{
        Importance::{High, Low, Medium},
        Key,
        Kind::{Boolean, Double, Int, List, Long, String},
        Valid::{Any, AtLeast, Between, OneOf},
    },
    keys::{CLEANUP_POLICIES, NEVER},
};

/// In README's order.
pub(super) const LOG_KEYS: &[Key] = &[
    // Where the data lies.
    Key::new(
        "log.dirs",
        List,
        None,
        Any,
        High,
        "The data directories, comma-separated; a new partition goes to the one with the fewest. Unset: log.dir.",
    ),
    Key::new("log.dir", List, Some("./highwater-data"), Any, High, "The data directory, where log.dirs is not set."),
    Key::new("metadata.log.dir", String, None, Any, High, "Where the metadata journal lies. Unset: the first of the data directories."),
    Key::new(
        "log.dir.min.free.bytes",
        Long,
        Some("268435456"),
        AtLeast(0),
        Medium,
        "Appends to a data directory are refused while its disk has less than this left, so that there is room to delete and compact; 0 is off.",
    ),
    Key::new(
        "num.recovery.threads.per.data.dir",
        Int,
        Some("2"),
        AtLeast(1),
        High,
        "Threads by data directory that open and recover logs.",
    )
    .dynamic(),
    // Segments.
    Key::new(
        "log.segment.bytes",
        Int,
        Some("1073741824"),
        AtLeast(1 << 20),
        High,
        "A segment file that would grow over this is closed for a new one.",
    )
    .dynamic(),
    Key::new("log.roll.ms", Long, None, Any, High, "A segment older than this is closed for a new one. Unset: log.roll.hours.").dynamic(),
    Key::new("log.roll.hours", Int, Some("168"), AtLeast(1), High, "log.roll.ms in hours."),
    Key::new(
        "log.roll.jitter.ms",
        Long,
        None,
        Any,
        High,
        "Up to this much is taken off log.roll.ms, so that segments don't roll together. Unset: log.roll.jitter.hours.",
    )
    .dynamic(),
    Key::new("log.roll.jitter.hours", Int, Some("0"), AtLeast(0), High, "log.roll.jitter.ms in hours."),
    Key::new(
        "log.index.interval.bytes",
        Int,
        Some("4096"),
        AtLeast(0),
        Medium,
        "The bytes of log between two entries of its offset index.",
    )
    .dynamic(),
    Key::new(
        "log.index.size.max.bytes",
        Int,
        Some("10485760"),
        AtLeast(4),
        Medium,
        "A segment whose index would grow over this is closed for a new one.",
    )
    .dynamic(),
    Key::new("log.preallocate", Boolean, Some("false"), Any, Medium, "Reserve a new segment's whole size on the disk at once.").dynamic(),
    Key::new(
        "log.segment.delete.delay.ms",
        Long,
        Some("60000"),
        AtLeast(0),
        High,
        "How long a deleted segment's or topic's files stay on the disk under another name.",
    )
    .dynamic(),
    // Durability.
    Key::new(
        "log.flush.interval.messages",
        Long,
        NEVER,
        AtLeast(1),
        High,
        "A partition is synced to its disk, and the write waits for it, when this many records have come since the last time.",
    )
    .dynamic(),
    Key::new(
        "log.flush.interval.ms",
        Long,
        None,
        Any,
        High,
        "A partition with records older than this that are not synced is synced. Unset: log.flush.scheduler.interval.ms.",
    )
    .dynamic(),
    Key::new("log.flush.scheduler.interval.ms", Long, NEVER, Any, High, "What log.flush.interval.ms is where that is not set."),
    Key::new(
        "log.flush.offset.checkpoint.interval.ms",
        Int,
        Some("60000"),
        AtLeast(0),
        High,
        "How often the offsets are written down that recovery after a crash starts from, and the log start offsets.",
    ),
    // Retention and compaction.
    Key::new(
        "log.cleanup.policy",
        List,
        Some("delete"),
        OneOf(CLEANUP_POLICIES),
        Medium,
        "What becomes of old segments: delete, compact (the latest record of each key stays; one without a key is refused), or both.",
    )
    .dynamic(),
    Key::new(
        "log.retention.ms",
        Long,
        None,
        Any,
        High,
        "A segment whose newest record is older than this goes; -1 keeps all for ever. Unset: log.retention.minutes.",
    )
    .dynamic(),
    Key::new("log.retention.minutes", Int, None, Any, High, "log.retention.ms in minutes. Unset: log.retention.hours."),
    Key::new("log.retention.hours", Int, Some("168"), Any, High, "log.retention.ms in hours."),
    Key::new(
        "log.retention.bytes",
        Long,
        Some("-1"),
        Any,
        High,
        "How large a partition grows before its oldest segments go; -1 for no bound.",
    )
    .dynamic(),
    Key::new("log.cleaner.enable", Boolean, Some("true"), Any, Medium, "Whether topics whose cleanup.policy has compact are compacted."),
    Key::new("log.cleaner.threads", Int, Some("1"), AtLeast(0), Medium, "How many threads compact; they share the buffers.").dynamic(),
    Key::new(
        "log.cleaner.io.max.bytes.per.second",
        Double,
        Some("1.7976931348623157E308"),
        Any,
        Medium,
        "How many bytes all of them read and write in a second at the most.",
    )
    .dynamic(),
    Key::new(
        "log.cleaner.dedupe.buffer.size",
        Long,
        Some("134217728"),
        Any,
        Medium,
        "The memory for the keys that compaction tells apart, 24 bytes each. What doesn't fit is left for the next round.",
    )
    .dynamic(),
    Key::new(
        "log.cleaner.io.buffer.size",
        Int,
        Some("524288"),
        AtLeast(0),
        Medium,
        "The memory for what compaction reads and writes; it grows for a batch that is larger.",
    )
    .dynamic(),
    Key::new("log.cleaner.io.buffer.load.factor", Double, Some("0.9"), Any, Medium, "How full the dedupe buffer gets, from 0 to 1.")
        .dynamic(),
    Key::new(
        "log.cleaner.backoff.ms",
        Long,
        Some("15000"),
        AtLeast(0),
        Medium,
        "How long compaction waits before it looks again when there's nothing to do.",
    )
    .dynamic(),
    Key::new(
        "log.retention.check.interval.ms",
        Long,
        Some("300000"),
        AtLeast(1),
        Medium,
        "How often segments are looked for that retention takes.",
    ),
    Key::new(
        "log.initial.task.delay.ms",
        Long,
        Some("30000"),
        AtLeast(0),
        Low,
        "How long after the start segments are first looked for that retention takes.",
    ),
    Key::new(
        "log.cleaner.delete.retention.ms",
        Long,
        Some("86400000"),
        AtLeast(0),
        Medium,
        "How long a compacted topic keeps tombstones, once compacted.",
    )
    .dynamic(),
    Key::new(
        "log.cleaner.min.compaction.lag.ms",
        Long,
        Some("0"),
        AtLeast(0),
        Medium,
        "How long a record of a compacted topic is kept at the least.",
    )
    .dynamic(),
    Key::new(
        "log.cleaner.max.compaction.lag.ms",
        Long,
        NEVER,
        AtLeast(1),
        Medium,
        "How long a superseded record of a compacted topic may wait for its compaction.",
    )
    .dynamic(),
    Key::new(
        "log.cleaner.min.cleanable.ratio",
        Double,
        Some("0.5"),
        Between(0, 1),
        Medium,
        "The share of a compacted log that must have been written since the last compaction for the next one to start.",
    )
    .dynamic(),
];
