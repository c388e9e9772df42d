//! What files and directories of the log are called (`LogFileUtils`, `LocalLog`): names to values and back. Never touches a disk.

use crate::types::{Offset, PartitionIndex, TopicName, TopicPartition};

/// A file of a partition's directory that belongs to one offset.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug, Hash)]
pub enum Kind {
    /// The batches.
    Log,
    /// The sparse offset index.
    OffsetIndex,
    /// The sparse time index.
    TimeIndex,
    /// The aborted transactions.
    TxnIndex,
    /// The producers' state up to the offset.
    Snapshot,
}

impl Kind {
    /// The files that make a segment.
    pub const OF_SEGMENT: [Self; 4] = [Self::Log, Self::OffsetIndex, Self::TimeIndex, Self::TxnIndex];

    /// The end of the file's name.
    pub fn suffix(self) -> &'static str {
        match self {
            Self::Log => ".log",
            Self::OffsetIndex => ".index",
            Self::TimeIndex => ".timeindex",
            Self::TxnIndex => ".txnindex",
            Self::Snapshot => ".snapshot",
        }
    }
}

/// What may follow a segment file's name while it is being replaced or removed.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Stage {
    /// In use.
    Live,
    /// To be removed: whatever it held is elsewhere or gone.
    Deleted,
    /// Being written by the cleaner: not complete.
    Cleaned,
    /// Complete, and to take the place of the segments that it covers.
    Swap,
}

pub const DELETED_SUFFIX: &str = ".deleted";
const FUTURE_SUFFIX: &str = "-future";
pub const EPOCHS_FILE: &str = "leader-epoch-checkpoint";
pub const METADATA_FILE: &str = "partition.metadata";
pub const RECOVERY_POINTS_FILE: &str = "recovery-point-offset-checkpoint";
pub const LOG_STARTS_FILE: &str = "log-start-offset-checkpoint";
pub const HIGH_WATERMARKS_FILE: &str = "replication-offset-checkpoint";
/// Where compaction last ended.
pub const CLEANED_FILE: &str = "cleaner-offset-checkpoint";
pub const CLEAN_FILE: &str = ".kafka_cleanshutdown";
/// When records arrived: ours, and left alone by Apache Kafka.
pub const ARRIVALS_FILE: &str = "arrival-times";
pub const LOCK_FILE: &str = ".lock";
/// Written and removed to see whether a directory works.
pub const PROBE_FILE: &str = ".highwater-probe";

/// In a partition's directory that has taken another one's place in another data directory, until that one has lost its name.
pub const MOVED_FILE: &str = ".highwater-moved";

/// In a partition's directory while its log is being truncated.
pub const TRUNCATING_FILE: &str = ".highwater-truncating";

const NAME_BYTES_MAX: usize = 255;

/// The file's name: the offset in 20 digits, and the suffix.
pub fn name(offset: Offset, kind: Kind) -> String {
    format!("{:020}{}", offset.0, kind.suffix())
}

impl Stage {
    /// What the file's name ends with.
    pub fn suffix(self) -> &'static str {
        match self {
            Self::Live => "",
            Self::Deleted => DELETED_SUFFIX,
            Self::Cleaned => ".cleaned",
            Self::Swap => ".swap",
        }
    }
}

/// The file's name at a stage.
pub fn staged_name(offset: Offset, kind: Kind, stage: Stage) -> String {
    format!("{:020}{}{}", offset.0, kind.suffix(), stage.suffix())
}

/// Reads a file's name; `None` for any that is not of an offset.
pub fn parse(name: &str) -> Option<(Offset, Kind, Stage)> {
    let stages = [Stage::Deleted, Stage::Cleaned, Stage::Swap];
    let staged = stages.into_iter().find_map(|stage| name.strip_suffix(stage.suffix()).map(|rest| (rest, stage)));
    let (name, stage) = staged.unwrap_or((name, Stage::Live));
    let (digits, _) = name.split_once('.')?;
    let suffix = name.get(digits.len()..)?;
    let kinds = [Kind::Log, Kind::OffsetIndex, Kind::TimeIndex, Kind::TxnIndex, Kind::Snapshot];
    let kind = kinds.into_iter().find(|kind| kind.suffix() == suffix)?;
    let digits_only = digits.len() == 20 && digits.bytes().all(|b| b.is_ascii_digit());
    let offset = if digits_only { digits.parse().ok()? } else { return None };
    Some((Offset(offset), kind, stage))
}

/// What a directory in a data directory is.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum DirKind {
    Partition(TopicPartition),
    /// Of a deleted partition: `TOPIC-N.<hex>-delete`.
    Deleted,
    /// Of a partition that the metadata doesn't know: `TOPIC-N.<hex>-stray`. Kept until an operator removes it.
    Stray,
    /// A copy that is to take its partition's place: `TOPIC-N.<hex>-future`.
    Future(TopicPartition),
    /// Of no log.
    Other,
}

/// What a directory is, by its name.
pub fn parse_dir(name: &str) -> DirKind {
    let marked = |suffix| name.strip_suffix(suffix).and_then(|rest: &str| rest.rsplit_once('.')).is_some_and(|(tp, _)| tp.contains('-'));
    if marked("-delete") {
        return DirKind::Deleted;
    }
    if marked("-stray") {
        return DirKind::Stray;
    }
    if let Some((partition, _)) = name.strip_suffix(FUTURE_SUFFIX).and_then(|rest| rest.rsplit_once('.'))
        && let DirKind::Partition(topic) = parse_dir(partition)
    {
        return DirKind::Future(topic);
    }
    let partition = || {
        let (topic, index) = name.rsplit_once('-')?;
        let canonical = index == "0" || !index.starts_with('0') && index.bytes().all(|b| b.is_ascii_digit());
        let index = if canonical { index.parse().ok()? } else { return None };
        Some(TopicPartition { topic: TopicName::new(topic).ok()?, partition: PartitionIndex(index) })
    };
    partition().map_or(DirKind::Other, DirKind::Partition)
}

/// `TOPIC-N.<id>-future`; `None` if that would be too long for a file's name: unlike the others it must tell the topic.
pub fn future_dir(topic: &TopicPartition, id: u128) -> Option<String> {
    Some(format!("{}-{}.{id:032x}{FUTURE_SUFFIX}", topic.topic, topic.partition)).filter(|name| name.len() <= NAME_BYTES_MAX)
}

/// `TOPIC-N.<id>SUFFIX`, the topic cut so that it is a legal file name. `suffix` is `-delete` or `-stray`.
pub fn marked_dir(topic: &TopicPartition, id: u128, suffix: &str) -> String {
    let end = format!("-{}.{id:032x}{suffix}", topic.partition);
    let name = topic.topic.as_str();
    let keep = name.len().min(NAME_BYTES_MAX.saturating_sub(end.len()));
    format!("{}{end}", name.get(..keep).unwrap_or_default())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn tp(topic: &str, partition: i32) -> TopicPartition {
        TopicPartition { topic: TopicName::new(topic).unwrap(), partition: PartitionIndex(partition) }
    }

    #[test]
    fn file_names_are_kafkas() {
        assert_eq!(name(Offset(42), Kind::TimeIndex), "00000000000000000042.timeindex");
        assert_eq!(parse("00000000000000000042.timeindex"), Some((Offset(42), Kind::TimeIndex, Stage::Live)));
        assert_eq!(parse("00000000000000000042.log.swap"), Some((Offset(42), Kind::Log, Stage::Swap)));
        assert_eq!(staged_name(Offset(42), Kind::Log, Stage::Swap), "00000000000000000042.log.swap");
        assert_eq!(parse("00000000000000000042.index.deleted"), Some((Offset(42), Kind::OffsetIndex, Stage::Deleted)));
        for other in ["leader-epoch-checkpoint", "42.log", "99999999999999999999.log", "+0000000000000000042.log", "x.log", ".log"] {
            assert_eq!(parse(other), None, "{other}");
        }
    }

    #[test]
    fn directories_are_told_apart() {
        assert_eq!(parse_dir("a-b.c-12"), DirKind::Partition(tp("a-b.c", 12)));
        assert_eq!(parse_dir("a-0"), DirKind::Partition(tp("a", 0)));
        for other in ["a", "a-", "-1", "a-01", "a-+1", "a-99999999999", "lost+found", "a-1-future"] {
            assert!(!matches!(parse_dir(other), DirKind::Deleted | DirKind::Stray), "{other}");
        }
        assert_eq!(parse_dir("a-01"), DirKind::Other);
        assert_eq!(parse_dir(&marked_dir(&tp("a.b", 3), 7, "-delete")), DirKind::Deleted);
        assert_eq!(parse_dir(&marked_dir(&tp("a.b", 3), 7, "-stray")), DirKind::Stray);
        let future = future_dir(&tp("a.b-c", 3), 7).unwrap();
        assert_eq!(
            (future.as_str(), parse_dir(&future)),
            ("a.b-c-3.00000000000000000000000000000007-future", DirKind::Future(tp("a.b-c", 3)))
        );
        assert_eq!(future_dir(&tp(&"x".repeat(249), 3), 7), None);
        assert_eq!(parse_dir("a-1-future"), DirKind::Other);
        let long = marked_dir(&tp(&"x".repeat(249), 3), u128::MAX, "-delete");
        assert_eq!((long.len(), parse_dir(&long)), (255, DirKind::Deleted));
    }
}
