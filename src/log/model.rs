//! The log's decisions without files: when a segment is full, which segment holds an offset, how the watermarks lie.
//!
//! Pure; time comes as an argument.

use crate::{
    config::TopicConfig,
    types::{Millis, Offset},
};

/// An offset index entry: the batch's last offset relative to the segment's base, and the batch's position; `u32` big-endian each.
pub const OFFSET_ENTRY_BYTES: usize = 8;
/// A time index entry: the largest timestamp so far (`i64`), and the last offset of its batch relative to the base (`u32`).
pub const TIME_ENTRY_BYTES: usize = 12;

/// The offset relative to a segment's base, if an index can hold it (a Java `int`).
pub fn relative(base: Offset, offset: Offset) -> Option<u32> {
    offset.0.checked_sub(base.0).and_then(|delta| i32::try_from(delta).ok()).and_then(|delta| u32::try_from(delta).ok())
}

/// What rolling depends on, of the segment that is written to.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct ActiveSegment {
    pub base: Offset,
    pub bytes: u64,
    pub offset_entries: usize,
    pub time_entries: usize,
    /// The first batch's largest timestamp; `None` if it has none.
    pub first_timestamp: Option<Millis>,
    pub created: Millis,
}

/// What rolling depends on, of the batch that comes.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Incoming {
    pub bytes: u64,
    pub last_offset: Offset,
    pub max_timestamp: Millis,
}

/// Whether the batch begins a new segment (`LogSegment.shouldRoll`): the segment would grow above `segment.bytes`, the batch is
/// `segment.ms` (less the jitter) younger by its own timestamps than the segment's first one, an index is full, or the batch's offsets
/// are too far from the segment's base. An empty segment never rolls.
pub fn should_roll(segment: &ActiveSegment, batch: &Incoming, config: &TopicConfig, jitter_ms: i64, now: Millis) -> bool {
    if segment.bytes == 0 {
        return false;
    }
    let age_ms = match segment.first_timestamp {
        Some(first) => batch.max_timestamp.0.saturating_sub(first.0),
        None => now.0.saturating_sub(segment.created.0),
    };
    let offsets_max = config.segment_index_bytes / OFFSET_ENTRY_BYTES;
    // One entry is kept for the largest timestamp, which is noted when the segment is closed.
    let times_max = (config.segment_index_bytes / TIME_ENTRY_BYTES).saturating_sub(1);
    segment.bytes.saturating_add(batch.bytes) > config.segment_bytes as u64
        || age_ms > config.segment_ms_max().saturating_sub(jitter_ms)
        || segment.offset_entries >= offsets_max
        || segment.time_entries >= times_max
        || relative(segment.base, batch.last_offset).is_none()
}

/// How much earlier than `segment.ms` this segment rolls: spread over partitions by `seed`, so that they don't all roll at once.
pub fn roll_jitter_ms(config: &TopicConfig, seed: u64) -> i64 {
    let range = config.segment_jitter_ms.min(config.segment_ms_max());
    u64::try_from(range).ok().and_then(|range| seed.checked_rem(range)).and_then(|ms| i64::try_from(ms).ok()).unwrap_or(0)
}

/// The place of the segment that holds `offset` in a list in ascending order of `base`; `None` if it lies before all of them.
pub fn segment_of<T>(segments: &[T], base: impl Fn(&T) -> Offset, offset: Offset) -> Option<usize> {
    segments.partition_point(|segment| base(segment) <= offset).checked_sub(1)
}

/// A partition's offsets of note. Always `log_start <= last_stable <= high_watermark <= log_end`.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Watermarks {
    /// The first offset that may be read.
    pub log_start: Offset,
    /// Below it no transaction is open: how far `read_committed` reads.
    pub last_stable: Offset,
    /// How far consumers read: below it every in-sync replica has the records.
    pub high_watermark: Offset,
    /// The next offset to be given out.
    pub log_end: Offset,
}

impl Watermarks {
    /// Whether the order holds.
    pub fn in_order(&self) -> bool {
        self.log_start <= self.last_stable && self.last_stable <= self.high_watermark && self.high_watermark <= self.log_end
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn segment() -> ActiveSegment {
        ActiveSegment {
            base: Offset(100),
            bytes: 500,
            offset_entries: 1,
            time_entries: 1,
            first_timestamp: Some(Millis(1_000)),
            created: Millis(50),
        }
    }

    fn batch() -> Incoming {
        Incoming { bytes: 500, last_offset: Offset(200), max_timestamp: Millis(1_500) }
    }

    fn config() -> TopicConfig {
        TopicConfig { segment_bytes: 1_000, segment_ms: 500, segment_index_bytes: 48, ..TopicConfig::default() }
    }

    #[test]
    fn rolls_as_kafka_does() {
        let rolls = |s: ActiveSegment, b: Incoming| should_roll(&s, &b, &config(), 0, Millis(10_000));
        assert!(!rolls(segment(), batch()));
        assert!(rolls(segment(), Incoming { bytes: 501, ..batch() }), "too large");
        assert!(rolls(segment(), Incoming { max_timestamp: Millis(1_501), ..batch() }), "too old by the records' own clock");
        assert!(rolls(ActiveSegment { first_timestamp: None, ..segment() }, batch()), "too old by the wall clock");
        assert!(rolls(ActiveSegment { offset_entries: 6, ..segment() }, batch()), "offset index full");
        assert!(rolls(ActiveSegment { time_entries: 3, ..segment() }, batch()), "time index full but for one entry");
        assert!(rolls(segment(), Incoming { last_offset: Offset(101 + i64::from(i32::MAX)), ..batch() }), "offset too far");
        assert!(!rolls(segment(), Incoming { last_offset: Offset(100 + i64::from(i32::MAX)), ..batch() }));
        assert!(!rolls(ActiveSegment { bytes: 0, ..segment() }, Incoming { bytes: 5_000, ..batch() }), "an empty segment stays");
        let late = Incoming { max_timestamp: Millis(1_450), ..batch() };
        assert!(should_roll(&segment(), &late, &config(), 100, Millis(0)), "jitter makes it earlier");
        let compacted = TopicConfig { cleanup_compact: true, max_compaction_lag_ms: 449, ..config() };
        assert!(should_roll(&segment(), &late, &compacted, 0, Millis(0)), "records wait for compaction");
        assert!(!should_roll(&segment(), &late, &TopicConfig { max_compaction_lag_ms: 450, ..compacted }, 0, Millis(0)));
    }

    #[test]
    fn jitter_stays_in_range() {
        let config = TopicConfig { segment_jitter_ms: 10, segment_ms: 4, ..TopicConfig::default() };
        assert!((0..100).all(|seed| (0..4).contains(&roll_jitter_ms(&config, seed))));
        assert_eq!(roll_jitter_ms(&TopicConfig::default(), 7), 0);
    }

    #[test]
    fn finds_the_segment_of_an_offset() {
        let of = |offset| segment_of(&[Offset(0), Offset(10), Offset(20)], |base| *base, Offset(offset));
        assert_eq!([of(-1), of(0), of(9), of(10), of(25)], [None, Some(0), Some(0), Some(1), Some(2)]);
    }
}
