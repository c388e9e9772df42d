//! How dirty a log is, whether that is enough, and which of its segments are merged (`LogCleanerManager`, `Cleaner.groupSegmentsBySize`).
//!
//! Pure: segments come as facts, the time as an argument. Offsets of the log: what was cleaned before lies below `first_dirty`; from there to
//! `first_uncleanable`, a segment's base, may be cleaned now.

use super::super::model::{self, Watermarks};
use crate::{
    config::TopicConfig,
    types::{Millis, Offset},
};
use std::ops::Range;

/// What the choice depends on, of one segment.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct SegmentFacts {
    pub base: Offset,
    pub bytes: u64,
    /// Of the offset index's and of the time index's file.
    pub index_bytes: [u64; 2],
    /// The largest timestamp; `None` if there is none, or nobody needs it.
    pub largest: Option<Millis>,
    /// The first batch's largest timestamp; `None` if there is none, or nobody needs it.
    pub first: Option<Millis>,
}

/// Whether [`SegmentFacts::largest`] of segments that are not active is needed.
pub fn needs_largest(config: &TopicConfig) -> bool {
    config.min_compaction_lag_ms > 0
}

/// Whether [`SegmentFacts::first`] of segments that are not active is needed.
pub fn needs_first(config: &TopicConfig) -> bool {
    config.max_compaction_lag_ms < i64::MAX
}

/// What could be cleaned of a log now.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Dirt {
    pub first_dirty: Offset,
    pub first_uncleanable: Offset,
    pub clean_bytes: u64,
    pub cleanable_bytes: u64,
    /// How long the oldest dirty record has been there beyond `max.compaction.lag.ms`; 0 if it hasn't.
    pub overdue_ms: i64,
    /// Where the last cleaning ended is no offset of this log: all of it is dirty.
    pub was_reset: bool,
}

impl Dirt {
    /// The dirty share of what was or can be cleaned, in millionths.
    pub fn ratio_ppm(&self) -> u64 {
        let total = u128::from(self.clean_bytes) + u128::from(self.cleanable_bytes);
        let ppm = (u128::from(self.cleanable_bytes) * 1_000_000).checked_div(total).unwrap_or(0);
        u64::try_from(ppm).unwrap_or(u64::MAX)
    }

    /// Whether it is enough to clean now: the share is above `min.cleanable.dirty.ratio`, or records wait longer than `max.compaction.lag.ms`.
    pub fn is_due(&self, config: &TopicConfig) -> bool {
        self.cleanable_bytes > 0 && (self.overdue_ms > 0 || self.ratio_ppm() > u64::from(config.min_cleanable_dirty_ratio_ppm))
    }
}

/// Looks at a log. `segments` are all of them, the active one last; `cleaned` is where the last cleaning ended. Never beyond the last
/// stable offset, the active segment, or a segment with a record that is younger than `min.compaction.lag.ms`.
pub fn dirt(segments: &[SegmentFacts], cleaned: Option<Offset>, marks: &Watermarks, config: &TopicConfig, now: Millis) -> Dirt {
    let valid = cleaned.filter(|offset| *offset >= marks.log_start && *offset <= marks.log_end);
    let first_dirty = valid.unwrap_or(marks.log_start);
    let closed = segments.split_last().map_or(&[][..], |(_, closed)| closed);
    let active = segments.last().map_or(Offset(0), |s| s.base);
    let from = |offset: Offset| closed.get(model::segment_of(closed, |s| s.base, offset).unwrap_or(0)..).unwrap_or_default();
    // `from` finds the last closed segment for an offset in the active one.
    let dirty = if first_dirty >= active { &[][..] } else { from(first_dirty) };
    let mut limit = marks.last_stable.min(active);
    if config.min_compaction_lag_ms > 0 {
        let young = now.0.saturating_sub(config.min_compaction_lag_ms);
        let first_young = dirty.iter().find(|s| s.largest.is_some_and(|largest| largest.0 > young));
        limit = first_young.map_or(limit, |s| limit.min(s.base));
    }
    let limit = limit.max(first_dirty);
    let first_uncleanable = if limit >= active { active } else { from(limit).first().map_or(active, |s| s.base) };
    let bytes = |wanted: &dyn Fn(&SegmentFacts) -> bool| segments.iter().filter(|s| wanted(s)).map(|s| s.bytes).sum();
    let dirty_base = dirty.first().map_or(active, |s| s.base).min(first_uncleanable);
    let earliest = dirty.iter().filter_map(|s| s.first).filter(|first| first.0 > 0).min();
    let until = now.0.saturating_sub(config.max_compaction_lag_ms);
    Dirt {
        first_dirty,
        first_uncleanable,
        clean_bytes: bytes(&|s| s.base < first_dirty),
        cleanable_bytes: bytes(&|s| s.base >= dirty_base && s.base < first_uncleanable),
        overdue_ms: earliest.map_or(0, |first| until.saturating_sub(first.0)).max(0),
        was_reset: cleaned.is_some() && valid.is_none(),
    }
}

/// The segments that begin below `end`, in groups that each become one: by the sizes that they have now, none becomes larger than `segment.bytes`
/// or `segment.index.bytes`, and offsets stay within an index's reach. Ranges of `segments`, which are below `first_uncleanable`.
pub fn groups(segments: &[SegmentFacts], end: Offset, first_uncleanable: Offset, config: &TopicConfig) -> Vec<Range<usize>> {
    let bytes_max = config.segment_bytes as u64;
    let index_max = config.segment_index_bytes as u64;
    let sum = |a: &SegmentFacts, b: &SegmentFacts| {
        let ([ao, at], [bo, bt]) = (a.index_bytes, b.index_bytes);
        SegmentFacts { bytes: a.bytes.saturating_add(b.bytes), index_bytes: [ao.saturating_add(bo), at.saturating_add(bt)], ..*a }
    };
    let mut groups: Vec<(Range<usize>, SegmentFacts)> = Vec::new();
    for (i, segment) in segments.iter().enumerate().take_while(|(_, s)| s.base < end) {
        let next = segments.get(i.saturating_add(1)).map_or(first_uncleanable, |next| next.base.min(first_uncleanable));
        let merged = groups.last().map(|(_, so_far)| sum(so_far, segment)).filter(|merged| {
            let within = merged.bytes <= bytes_max && merged.index_bytes.iter().all(|bytes| *bytes <= index_max);
            within && (segment.bytes == 0 || model::relative(merged.base, next.plus(-1)).is_some())
        });
        match (groups.last_mut(), merged) {
            (Some((range, so_far)), Some(merged)) => {
                range.end = i.saturating_add(1);
                *so_far = merged;
            }
            _ => groups.push((i..i.saturating_add(1), *segment)),
        }
    }
    groups.into_iter().map(|(range, _)| range).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn segment(base: i64, bytes: u64) -> SegmentFacts {
        SegmentFacts { base: Offset(base), bytes, index_bytes: [8, 12], largest: Some(Millis(base)), first: Some(Millis(base)) }
    }

    fn marks(stable: i64, end: i64) -> Watermarks {
        Watermarks { log_start: Offset(0), last_stable: Offset(stable), high_watermark: Offset(end), log_end: Offset(end) }
    }

    fn log() -> Vec<SegmentFacts> {
        (0..5).map(|i| segment(i * 10, 100)).collect()
    }

    fn config() -> TopicConfig {
        TopicConfig { cleanup_compact: true, ..TopicConfig::default() }
    }

    fn look(cleaned: Option<i64>, marks: Watermarks, config: &TopicConfig, now: i64) -> Dirt {
        dirt(&log(), cleaned.map(Offset), &marks, config, Millis(now))
    }

    #[test]
    fn what_is_dirty_ends_at_the_active_segment_the_last_stable_offset_and_young_records() {
        let all = look(None, marks(45, 45), &config(), 1_000);
        assert_eq!((all.first_dirty, all.first_uncleanable, all.clean_bytes, all.cleanable_bytes), (Offset(0), Offset(40), 0, 400));
        assert_eq!((all.ratio_ppm(), all.is_due(&config())), (1_000_000, true));
        assert_eq!(look(None, marks(25, 45), &config(), 1_000).first_uncleanable, Offset(20), "of the segment with the last stable offset");
        assert_eq!(look(None, marks(30, 45), &config(), 1_000).first_uncleanable, Offset(30));
        let lag = TopicConfig { min_compaction_lag_ms: 15, ..config() };
        assert_eq!(look(None, marks(45, 45), &lag, 24).first_uncleanable, Offset(10), "10 is younger than 15 at 24");
        assert_eq!(look(None, marks(45, 45), &lag, 25).first_uncleanable, Offset(20), "10 is 15 old at 25");
        assert_eq!(look(Some(30), marks(45, 45), &lag, 0).cleanable_bytes, 0);
    }

    #[test]
    fn the_ratio_must_be_exceeded_unless_records_wait_too_long() {
        let half = look(Some(20), marks(45, 45), &config(), 1_000);
        assert_eq!((half.clean_bytes, half.cleanable_bytes, half.ratio_ppm(), half.is_due(&config())), (200, 200, 500_000, false));
        assert!(half.is_due(&TopicConfig { min_cleanable_dirty_ratio_ppm: 499_999, ..config() }));
        let waits = |now| look(Some(20), marks(45, 45), &TopicConfig { max_compaction_lag_ms: 100, ..config() }, now);
        assert_eq!((waits(120).overdue_ms, waits(120).is_due(&config())), (0, false));
        assert_eq!((waits(121).overdue_ms, waits(121).is_due(&config())), (1, true));
        let partly = look(Some(25), marks(45, 45), &config(), 1_000);
        assert_eq!((partly.clean_bytes, partly.cleanable_bytes), (300, 200), "a segment that is clean in part counts as both");
        assert!(!look(Some(40), marks(45, 45), &TopicConfig { min_cleanable_dirty_ratio_ppm: 0, ..config() }, 1_000).is_due(&config()));
    }

    #[test]
    fn an_end_of_cleaning_that_the_log_does_not_have_counts_for_nothing() {
        let beyond = look(Some(46), marks(45, 45), &config(), 0);
        assert_eq!((beyond.first_dirty, beyond.was_reset), (Offset(0), true));
        let below = dirt(&log(), Some(Offset(3)), &Watermarks { log_start: Offset(15), ..marks(45, 45) }, &config(), Millis(0));
        assert_eq!((below.first_dirty, below.was_reset, below.cleanable_bytes), (Offset(15), true, 300));
        assert!(!dirt(&[], None, &marks(0, 0), &config(), Millis(0)).is_due(&config()));
    }

    #[test]
    fn groups_stay_within_the_segment_and_index_sizes() {
        let sized = |bytes: [u64; 5]| (0..5).map(|i| segment(i * 10, bytes[i as usize])).collect::<Vec<_>>();
        let with = |bytes, index| TopicConfig { segment_bytes: bytes, segment_index_bytes: index, ..config() };
        let of = |sizes, end, config: &TopicConfig| groups(&sized(sizes), Offset(end), Offset(40), config);
        assert_eq!(of([50, 50, 50, 50, 50], 40, &with(100, 1_000)), [0..2, 2..4]);
        assert_eq!(of([50, 51, 50, 50, 50], 40, &with(101, 1_000)), [0..2, 2..4]);
        assert_eq!(of([200, 51, 50, 50, 50], 40, &with(100, 1_000)), [0..1, 1..2, 2..4], "one that's too large stays alone");
        assert_eq!(of([1, 1, 1, 1, 1], 40, &with(100, 24)), [0..2, 2..4], "time indexes of 12 bytes");
        assert_eq!(of([1, 1, 1, 1, 1], 25, &with(2, 1_000)), [0..2, 2..3], "not beyond the end");
        let far = [segment(0, 1), segment(10, 1), segment(i64::from(i32::MAX) + 2, 0), segment(i64::from(i32::MAX) + 9, 1)];
        let ranges = groups(&far, Offset(i64::MAX), Offset(i64::MAX), &config());
        assert_eq!(ranges, [0..1, 1..3, 3..4], "10 may reach to where the next begins; an empty one reaches nowhere");
    }

    proptest! {
        #[test]
        fn groups_cover_what_is_cleaned_once_and_in_order(sizes in prop::collection::vec(0u64..300, 0..30), end in 0i64..320) {
            let all: Vec<_> = sizes.iter().enumerate().map(|(i, bytes)| segment(i as i64 * 10, *bytes)).collect();
            let config = TopicConfig { segment_bytes: 500, segment_index_bytes: 60, ..config() };
            let ranges = groups(&all, Offset(end), Offset(sizes.len() as i64 * 10), &config);
            prop_assert_eq!(ranges.iter().cloned().flatten().collect::<Vec<_>>(), (0..all.iter().filter(|s| s.base.0 < end).count()).collect::<Vec<_>>());
            for range in ranges.into_iter().filter(|range| range.len() > 1) {
                prop_assert!(all[range.clone()].iter().map(|s| s.bytes).sum::<u64>() <= 500);
                prop_assert!(all[range].iter().map(|s| s.index_bytes[1]).sum::<u64>() <= 60);
            }
        }
    }
}
