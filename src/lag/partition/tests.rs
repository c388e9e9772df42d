//! A group's reading of a partition, driven by hand and at random.

use super::*;
use proptest::prelude::*;

const NOW: Millis = Millis(10_000_000);

fn marks(log_start: i64, end: i64) -> Marks {
    Marks { log_start: Offset(log_start), last_stable: Offset(end), high_watermark: Offset(end), shape: 0 }
}

fn first(offset: i64, timestamp: i64, arrived: Option<i64>) -> First {
    First { offset: Offset(offset), timestamp: Millis(timestamp), arrived: arrived.map(Millis) }
}

fn committed(offset: i64) -> Reader {
    let mut reader = Reader::new(PartitionIndex(0));
    reader.note_commit(NOW, Commit { offset: Offset(offset), at: NOW });
    reader
}

#[test]
fn behind_is_zero_exactly_when_nothing_visible_is_left() {
    let mut reader = committed(5);
    let log = marks(0, 8);
    reader.note_marks(&log);
    let before = reader.behind(NOW, &log, None);
    assert_eq!((before.records, before.ms, before.pending), (3, None, true));
    assert_eq!(reader.owes(&log), Some(Offset(5)));
    // Markers alone lie up to the end.
    reader.found_nothing(&log, Offset(5), Offset(8), true);
    assert_eq!(reader.behind(NOW, &log, None), Behind { ms: Some(0), ..Behind::default() });
    assert_eq!(reader.owes(&log), None);
    let more = marks(0, 9);
    assert_eq!((reader.behind(NOW, &more, None).records, reader.behind(NOW, &more, None).ms), (1, Some(0)), "it has only just come");
    assert_eq!(reader.owes(&more), Some(Offset(8)));
    reader.found(&more, Offset(8), first(8, 1, Some(9_999_000)));
    let behind = reader.behind(NOW, &more, None);
    assert_eq!((behind.records, behind.ms, behind.event_ms, behind.pending), (1, Some(1_000), Some(9_999_999), false));
}

#[test]
fn a_commit_short_of_the_first_record_needs_no_new_look() {
    let mut reader = committed(5);
    let log = marks(0, 100);
    reader.found(&log, Offset(5), first(50, 0, None));
    reader.note_commit(NOW, Commit { offset: Offset(40), at: NOW });
    assert_eq!((reader.owes(&log), reader.behind(NOW, &log, None).records), (None, 50));
    reader.note_commit(NOW, Commit { offset: Offset(51), at: NOW });
    assert_eq!(reader.owes(&log), Some(Offset(51)));
    let behind = reader.behind(NOW, &log, None);
    assert_eq!((behind.records, behind.event_ms, behind.pending), (49, Some(NOW.0), true), "the record before bounds the time");
    reader.note_commit(NOW, Commit { offset: Offset(3), at: NOW });
    assert_eq!((reader.owes(&log), reader.behind(NOW, &log, None).ms), (Some(Offset(3)), None), "going back, nothing bounds it");
}

/// It waited long for one record, and since then it has been at the end whenever somebody looked: the next record has only just come.
#[test]
fn a_group_that_keeps_up_is_not_behind_by_what_it_once_was() {
    let mut reader = committed(5);
    let log = marks(0, 6);
    reader.note_marks(&log);
    reader.found(&log, Offset(5), first(5, 0, Some(NOW.0 - 900_000)));
    assert_eq!(reader.behind(NOW, &log, None).ms, Some(900_000));
    for end in 6..20 {
        let log = marks(0, end);
        reader.note_commit(NOW, Commit { offset: Offset(end), at: NOW });
        reader.note_marks(&log);
        assert_eq!((reader.behind(NOW, &log, None).ms, reader.owes(&log)), (Some(0), None));
    }
    let log = marks(0, 21);
    reader.note_marks(&log);
    let behind = reader.behind(NOW, &log, None);
    assert_eq!((behind.records, behind.ms, reader.owes(&log)), (2, Some(0), Some(Offset(19))));
}

#[test]
fn commits_that_lie_beyond_the_log_or_below_zero_do_no_harm() {
    let log = marks(10, 20);
    for offset in [20, 21, i64::MAX] {
        let mut reader = committed(offset);
        reader.note_marks(&log);
        assert_eq!((reader.behind(NOW, &log, None).records, reader.owes(&log), reader.lost), (0, None, 0), "{offset}");
        // It may have been committed since the marks were taken; at the next look it wasn't.
        assert_eq!(reader.behind(NOW, &log, None).beyond, 0, "{offset}");
        reader.note_commit(NOW.plus(1), Commit { offset: Offset(offset), at: NOW });
        assert_eq!(reader.behind(NOW, &log, None).beyond, offset - 20, "{offset}");
    }
    for (offset, lost) in [(10, 0), (4, 6), (0, 10), (-1, 10), (i64::MIN, 10)] {
        let mut reader = committed(offset);
        reader.note_marks(&log);
        assert_eq!((reader.behind(NOW, &log, None).records, reader.owes(&log), reader.lost), (10, Some(Offset(10)), lost), "{offset}");
    }
}

#[test]
fn what_retention_takes_is_lost_once_and_only_if_it_was_not_read() {
    let mut reader = committed(5);
    reader.note_marks(&marks(0, 100));
    reader.note_marks(&marks(30, 100));
    reader.note_marks(&marks(30, 100));
    assert_eq!(reader.lost, 25);
    reader.note_marks(&marks(40, 100));
    assert_eq!(reader.lost, 35);
    reader.note_commit(NOW, Commit { offset: Offset(90), at: NOW });
    reader.note_marks(&marks(60, 100));
    assert_eq!(reader.lost, 35);
    reader.note_commit(NOW, Commit { offset: Offset(0), at: NOW });
    reader.note_marks(&marks(60, 100));
    assert_eq!(reader.lost, 55, "asked for again: what was counted before is not counted twice");
    let mut fetching = Reader::new(PartitionIndex(0));
    fetching.note_fetch(NOW, Offset(0));
    fetching.note_marks(&marks(60, 100));
    assert_eq!(fetching.lost, 0, "it never committed");
}

#[test]
fn timestamps_of_any_kind_give_no_negative_time() {
    let log = marks(0, 8);
    let times = |timestamp, arrived| {
        let mut reader = committed(5);
        reader.found(&log, Offset(5), first(6, timestamp, arrived));
        let behind = reader.behind(NOW, &log, None);
        (behind.ms, behind.event_ms)
    };
    assert_eq!(times(-1, None), (None, None));
    assert_eq!(times(-1, Some(9_998_000)), (Some(2_000), None));
    assert_eq!(times(0, Some(9_998_000)), (Some(2_000), Some(10_000_000)), "1970, but it came two seconds ago");
    assert_eq!(times(10_413_792_000_000, None), (Some(0), Some(0)), "2300");
    assert_eq!(times(i64::MAX, Some(i64::MAX)), (Some(0), Some(0)));
    assert_eq!(times(i64::MIN, Some(20_000_000)), (Some(0), None), "the clock was set back");
}

#[test]
fn the_isolation_level_says_where_the_log_ends() {
    let mut reader = committed(5);
    let log = Marks { last_stable: Offset(6), ..marks(0, 100) };
    reader.found(&log, Offset(5), first(5, 0, None));
    assert_eq!(reader.behind(NOW, &log, None).records, 95);
    reader.note_isolation(true);
    assert_eq!((reader.owes(&log), reader.behind(NOW, &log, None).records), (Some(Offset(5)), 1));
    reader.found_nothing(&log, Offset(5), Offset(6), true);
    assert_eq!(reader.behind(NOW, &log, None).records, 0);
}

#[test]
fn compaction_makes_it_look_again() {
    let mut reader = committed(5);
    let log = marks(0, 100);
    reader.found(&log, Offset(5), first(7, 0, None));
    let compacted = Marks { shape: 1, ..log };
    reader.note_marks(&compacted);
    assert_eq!(reader.owes(&compacted), Some(Offset(5)));
    reader.found(&compacted, Offset(5), first(60, 0, None));
    assert_eq!(reader.behind(NOW, &compacted, None).records, 40);
}

#[test]
fn the_margin_is_what_comes_first_of_age_and_size() {
    let mut reader = committed(5);
    let log = marks(0, 100);
    reader.found(&log, Offset(5), first(7, 0, None));
    let margin = |reader: &mut Reader, by_time: Option<i64>, by_size, rate| {
        reader.outlook = Outlook { by_time: by_time.map(Millis), by_size, looked: None };
        reader.behind(NOW, &log, rate).margin_ms
    };
    assert_eq!(margin(&mut reader, None, None, None), None);
    assert_eq!(margin(&mut reader, Some(NOW.0 + 500), None, None), Some(500));
    assert_eq!(margin(&mut reader, Some(0), None, None), Some(0), "overdue");
    assert_eq!(margin(&mut reader, Some(NOW.0 + 500_000), Some(1_000), Some(10.0)), Some(100_000));
    assert_eq!(margin(&mut reader, None, Some(1_000), Some(0.0)), None, "nothing is produced");
    assert_eq!(margin(&mut reader, None, Some(0), None), Some(0));
}

#[test]
fn catching_up_takes_a_gain() {
    assert_eq!(catch_up(0, None, Some(10.0)), CatchUp::In(0.0));
    assert_eq!(catch_up(1_000, Some(30.0), Some(10.0)), CatchUp::In(50.0));
    assert_eq!(catch_up(1_000, Some(10.0), Some(10.0)), CatchUp::Never);
    assert_eq!(catch_up(1_000, Some(0.0), Some(0.0)), CatchUp::Never);
    assert_eq!(catch_up(50, Some(10.0), Some(10.0)), CatchUp::In(5.0), "under way");
    assert_eq!(catch_up(100, None, None), CatchUp::Unknown, "nobody has looked twice");
    assert_eq!(catch_up(i64::MAX, Some(1e-300), None), CatchUp::Never);
    assert_eq!([CatchUp::Unknown, CatchUp::In(5.0), CatchUp::Never].map(CatchUp::comes), [None, Some(true), Some(false)]);
}

/// Five minutes without a step before a record that waits, however often the same offset is committed; a record that has only just come has
/// not waited for as long as the group has.
#[test]
fn a_partition_is_stuck_that_should_be_read_and_is_not() {
    let log = marks(0, 8);
    let mut reader = committed(5);
    reader.found(&log, Offset(5), first(5, 0, Some(NOW.0 - 900_000)));
    let stalled = |reader: &Reader, now: i64| {
        let behind = reader.behind(Millis(now), &log, None);
        (behind.stalled_ms, behind.is_stuck(Reading::Committing))
    };
    assert_eq!(stalled(&reader, NOW.0), (Some(0), false));
    assert_eq!(stalled(&reader, NOW.0 + 299_999), (Some(299_999), false));
    let again = Commit { offset: Offset(5), at: Millis(NOW.0 + 299_000) };
    reader.note_commit(Millis(NOW.0 + 300_000), again);
    assert_eq!(stalled(&reader, NOW.0 + 300_000), (Some(300_000), true));
    let behind = reader.behind(Millis(NOW.0 + 300_000), &log, None);
    let others = [Reading::Idle, Reading::Abandoned, Reading::Unowned, Reading::Silent];
    assert!(behind.is_stuck(Reading::FetchingOnly) && others.iter().all(|reading| !behind.is_stuck(*reading)));
    reader.note_commit(Millis(NOW.0 + 310_000), Commit { offset: Offset(6), at: Millis(NOW.0 + 309_000) });
    reader.found(&log, Offset(6), first(6, 0, Some(NOW.0 + 308_000)));
    assert_eq!(stalled(&reader, NOW.0 + 310_000), (Some(1_000), false));
    // Its last commit is a day old when it is seen first.
    let mut old = Reader::new(PartitionIndex(0));
    old.note_commit(NOW, Commit { offset: Offset(5), at: Millis(NOW.0 - 86_400_000) });
    old.found(&log, Offset(5), first(5, 0, Some(NOW.0 - 310_000)));
    assert_eq!(stalled(&old, NOW.0), (Some(310_000), true));
}

/// A log of records, markers and gaps: by offset, whether a record lies there.
#[derive(Clone, Debug)]
enum Step {
    Append(Vec<bool>),
    Commit(i64),
    Retain(i64),
    Compact(i64),
    Look(i64),
}

fn step() -> impl Strategy<Value = Step> {
    prop_oneof![
        prop::collection::vec(any::<bool>(), 1..6).prop_map(Step::Append),
        (-3..60_i64).prop_map(Step::Commit),
        (0..60_i64).prop_map(Step::Retain),
        (0..60_i64).prop_map(Step::Compact),
        (1..20_i64).prop_map(Step::Look),
    ]
}

proptest! {
    /// Whatever happens in whatever order: once nothing is owed, the answer is what reading every record gives.
    #[test]
    fn what_is_not_owed_is_exact(steps in prop::collection::vec(step(), 1..80)) {
        let (mut reader, mut log) = (committed(0), Vec::<bool>::new());
        let (mut now, mut position) = (marks(0, 0), 0);
        for step in steps {
            match step {
                Step::Append(records) => log.extend(records),
                Step::Commit(offset) => {
                    position = offset.max(0);
                    reader.note_commit(NOW, Commit { offset: Offset(offset), at: NOW });
                }
                Step::Retain(to) => now.log_start = now.log_start.max(Offset(to.min(log.len() as i64))),
                Step::Compact(offset) => {
                    if let Some(record) = log.get_mut(offset as usize) {
                        *record = false;
                        now.shape += 1;
                    }
                }
                Step::Look(bound) => {
                    if let Some(asked) = reader.owes(&now) {
                        let to = (asked.0 + bound).min(log.len() as i64);
                        match (asked.0..to).find(|at| log[*at as usize]) {
                            Some(at) => reader.found(&now, asked, first(at, at, None)),
                            None => reader.found_nothing(&now, asked, Offset(to), to == log.len() as i64),
                        }
                    }
                }
            }
            (now.high_watermark, now.last_stable) = (Offset(log.len() as i64), Offset(log.len() as i64));
            reader.note_marks(&now);
            let behind = reader.behind(NOW, &now, None);
            let from = position.max(now.log_start.0);
            let truth = (from..log.len() as i64).find(|at| log[*at as usize]);
            let exact = truth.map_or(0, |at| log.len() as i64 - at);
            prop_assert!(behind.records >= exact && behind.records <= (log.len() as i64 - from).max(0), "{:?} is not near {}", behind, exact);
            if reader.owes(&now).is_none() {
                prop_assert_eq!(behind.records, exact);
                prop_assert_eq!(behind.first.map(|first| first.offset.0), truth);
                prop_assert!(!behind.pending);
            }
        }
    }
}
