//! Which segments go, by age, by size and below the log's start (`UnifiedLog.deleteOldSegments`). Decides only: no clock, no files.
//!
//! Always whole segments from the oldest on, never one that reaches beyond the high watermark, never the last one if it's empty. The last one
//! goes like any other if it's breached, and an empty one takes its place: a topic that nobody writes to any more becomes empty.

use super::model::Watermarks;
use crate::{
    config::TopicConfig,
    types::{Millis, Offset},
};

/// A segment as retention sees it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Extent {
    pub base: Offset,
    pub bytes: u64,
}

/// How many of the oldest segments go by which rule: first those below the log's start, of the others those above the size, then the old ones.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Breached {
    pub by_log_start: usize,
    pub by_size: usize,
    pub by_time: usize,
}

impl Breached {
    pub fn total(&self) -> usize {
        self.by_log_start.saturating_add(self.by_size).saturating_add(self.by_time)
    }
}

/// What goes at `now`. `segments` ascend and the last one is written to. `timestamp` is asked for the time of a segment by its place, and only
/// as far as age decides: the largest timestamp of its records, or when it was last written to if they have none; `None` keeps it.
///
/// By age a segment goes once `now` is more than `retention.ms` after its time, so one with a time in the future stays until that is past. By
/// size the oldest go as long as what remains has at least `retention.bytes`. Both only where `cleanup.policy` has `delete`.
pub fn breached<E>(
    segments: &[Extent],
    marks: &Watermarks,
    config: &TopicConfig,
    now: Millis,
    mut timestamp: impl FnMut(usize) -> Result<Option<Millis>, E>,
) -> Result<Breached, E> {
    let next_base = |i: usize| segments.get(i.saturating_add(1)).map(|next| next.base);
    let removable = |i: usize, segment: &Extent| {
        let is_last_and_empty = next_base(i).is_none() && segment.bytes == 0;
        marks.high_watermark >= next_base(i).unwrap_or(marks.log_end) && !is_last_and_empty
    };
    let mut places = segments.iter().enumerate().take_while(|(i, segment)| removable(*i, segment)).peekable();
    let mut breached = Breached::default();
    while places.next_if(|(i, _)| next_base(*i).is_some_and(|base| base <= marks.log_start)).is_some() {
        breached.by_log_start = breached.by_log_start.saturating_add(1);
    }
    if !config.cleanup_delete {
        return Ok(breached);
    }
    if let Ok(bytes_max) = u64::try_from(config.retention_bytes) {
        let held = segments.iter().skip(breached.by_log_start).map(|segment| segment.bytes).fold(0, u64::saturating_add);
        let mut over = held.checked_sub(bytes_max);
        while let Some((_, segment)) = places.next_if(|(_, segment)| over.is_some_and(|over| over >= segment.bytes)) {
            over = over.map(|over| over.saturating_sub(segment.bytes));
            breached.by_size = breached.by_size.saturating_add(1);
        }
    }
    if config.retention_ms >= 0 {
        for (i, _) in places {
            let age_ms = timestamp(i)?.map(|time| now.0.saturating_sub(time.0));
            if age_ms.is_none_or(|age_ms| age_ms <= config.retention_ms) {
                break;
            }
            breached.by_time = breached.by_time.saturating_add(1);
        }
    }
    Ok(breached)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::convert::Infallible;

    /// Segments of so many offsets, bytes and largest timestamps, from offset 0 on.
    type Plan = Vec<(i64, u64, Option<i64>)>;

    fn extents(plan: &Plan) -> (Vec<Extent>, Offset) {
        let mut base = 0;
        let segments = plan
            .iter()
            .map(|(offsets, bytes, _)| {
                base += offsets;
                Extent { base: Offset(base - offsets), bytes: *bytes }
            })
            .collect();
        (segments, Offset(base))
    }

    fn decide(plan: &Plan, log_start: i64, high_watermark: Option<i64>, config: &TopicConfig, now: i64) -> Breached {
        let (segments, log_end) = extents(plan);
        let high_watermark = high_watermark.map_or(log_end, Offset);
        let marks = Watermarks { log_start: Offset(log_start), last_stable: high_watermark, high_watermark, log_end };
        let time = |i: usize| Ok::<_, Infallible>(plan[i].2.map(Millis));
        breached(&segments, &marks, config, Millis(now), time).unwrap()
    }

    fn config(retention_ms: i64, retention_bytes: i64) -> TopicConfig {
        TopicConfig { retention_ms, retention_bytes, ..TopicConfig::default() }
    }

    fn by_time(plan: &Plan, retention_ms: i64, now: i64) -> usize {
        let breached = decide(plan, 0, None, &config(retention_ms, -1), now);
        assert_eq!((breached.by_log_start, breached.by_size), (0, 0));
        breached.by_time
    }

    #[test]
    fn age_counts_from_the_largest_timestamp_and_only_more_than_retention_is_too_old() {
        let plan = vec![(10, 100, Some(1_000)), (10, 100, Some(2_000)), (10, 100, Some(3_000))];
        assert_eq!([1_500, 1_501, 2_501, 3_500].map(|now| by_time(&plan, 500, now)), [0, 1, 2, 2]);
        assert_eq!(by_time(&plan, 500, 3_501), 3, "the one that is written to goes, too");
        assert_eq!(by_time(&plan, -1, i64::MAX), 0, "for ever");
        assert_eq!(by_time(&plan, 0, 1_001), 1);
    }

    #[test]
    fn the_future_and_the_unknown_keep_a_segment_and_all_after_it() {
        assert_eq!(by_time(&vec![(1, 9, Some(9_000)), (1, 9, Some(1))], 5, 5_000), 0);
        assert_eq!(by_time(&vec![(1, 9, Some(1)), (1, 9, None), (1, 9, Some(1))], 5, 5_000), 1);
        assert_eq!(by_time(&vec![(1, 9, Some(i64::MAX))], 5, i64::MIN), 0);
        assert_eq!(by_time(&vec![(1, 9, Some(0))], i64::MAX, i64::MAX), 0);
    }

    #[test]
    fn an_empty_last_segment_stays() {
        assert_eq!(by_time(&vec![(1, 9, Some(1)), (0, 0, Some(1))], 5, 5_000), 1);
        assert_eq!(by_time(&vec![(0, 0, Some(1))], 5, 5_000), 0);
    }

    #[test]
    fn by_size_what_remains_is_not_less_than_the_bound() {
        let plan = vec![(1, 100, None), (1, 100, None), (1, 50, None)];
        let by_size = |bytes| decide(&plan, 0, None, &config(-1, bytes), 0).by_size;
        assert_eq!([-1, 251, 250, 151, 150, 51, 50, 1, 0].map(by_size), [0, 0, 0, 0, 1, 1, 2, 2, 3]);
    }

    #[test]
    fn below_the_log_start_segments_go_whatever_the_policy() {
        let plan = vec![(10, 100, None), (10, 100, None), (10, 100, None)];
        let compacted = TopicConfig { cleanup_compact: true, cleanup_delete: false, ..config(0, 0) };
        let by_start = |log_start| decide(&plan, log_start, None, &compacted, i64::MAX);
        assert_eq!([0, 9, 10, 20, 30].map(|start| by_start(start).by_log_start), [0, 0, 1, 2, 2]);
        assert_eq!(by_start(30).total(), 2, "neither age nor size counts without delete");
        let both = TopicConfig { cleanup_delete: true, ..compacted };
        assert_eq!(decide(&plan, 10, None, &both, 0), Breached { by_log_start: 1, by_size: 2, by_time: 0 });
    }

    #[test]
    fn nothing_goes_beyond_the_high_watermark() {
        let plan = vec![(10, 100, Some(0)), (10, 100, Some(0))];
        let total = |high_watermark| decide(&plan, 0, Some(high_watermark), &config(0, -1), 10).total();
        assert_eq!([0, 9, 10, 19, 20].map(total), [0, 0, 1, 1, 2]);
    }

    type Left = [(Extent, Option<i64>)];

    /// One segment after the other is taken off as long as a rule says so, with sums made anew each time.
    fn plainly(plan: &Plan, log_start: i64, high_watermark: i64, config: &TopicConfig, now: i64) -> usize {
        let mut left = extents(plan).0.into_iter().zip(plan.iter().map(|(.., time)| *time)).collect::<Vec<_>>();
        let log_end = extents(plan).1.0;
        let after = |left: &Left| left.get(1).map_or(log_end, |(next, _)| next.base.0);
        let below_start = |left: &Left| left.len() > 1 && after(left) <= log_start;
        let too_large = |left: &Left| {
            let rest: u64 = left[1..].iter().map(|(segment, _)| segment.bytes).sum();
            config.cleanup_delete && config.retention_bytes >= 0 && rest >= config.retention_bytes as u64
        };
        let too_old = |left: &Left| {
            config.cleanup_delete && config.retention_ms >= 0 && left[0].1.is_some_and(|time| now - time > config.retention_ms)
        };
        let rules: [&dyn Fn(&Left) -> bool; 3] = [&below_start, &too_large, &too_old];
        for rule in rules {
            while !left.is_empty() && after(&left) <= high_watermark && (left.len() > 1 || left[0].0.bytes > 0) && rule(&left) {
                left.remove(0);
            }
        }
        plan.len() - left.len()
    }

    proptest! {
        #[test]
        fn the_choice_is_the_plain_ones(
            plan in prop::collection::vec((1..9_i64, 1..200_u64, prop::option::weighted(0.9, 0..1_000_i64)), 1..8),
            empty_last: bool,
            marks in (0..60_i64, 0..60_i64),
            (retention_ms, retention_bytes) in (-1..800_i64, -1..900_i64),
            (compact, delete) in (any::<bool>(), any::<bool>()),
            now in 0..1_500_i64,
        ) {
            let mut plan = plan;
            if empty_last {
                plan.push((0, 0, Some(0)));
            }
            let log_end = extents(&plan).1.0;
            let high_watermark = marks.1.min(log_end);
            let log_start = marks.0.min(high_watermark);
            let config = TopicConfig { cleanup_compact: compact, cleanup_delete: delete, ..config(retention_ms, retention_bytes) };
            let breached = decide(&plan, log_start, Some(high_watermark), &config, now);
            prop_assert_eq!(breached.total(), plainly(&plan, log_start, high_watermark, &config, now), "{:?}", breached);
        }
    }
}
