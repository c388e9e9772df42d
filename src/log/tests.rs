//! The log against real files: what is written is what Kafka writes, and what is left is what opens.

use super::{io::RealDisk, *};
use crate::{
    config::TopicConfig,
    record::{BatchHeader, BatchRecords, builder::BatchBuilder, header::Compression},
    types::*,
};
use bytes::Bytes;
use std::{path::Path, sync::Arc};

const NOW: Millis = Millis(1_700_000_000_000);
const ID: TopicId = TopicId(uuid::Uuid::from_u128(7));

fn tp(topic: &str, partition: i32) -> TopicPartition {
    TopicPartition { topic: TopicName::new(topic).unwrap(), partition: PartitionIndex(partition) }
}

fn settings(dir: &Path) -> LogSettings {
    LogSettings { dirs: vec![dir.to_owned()], ..LogSettings::default() }
}

fn spec(partition: i32, config: TopicConfig) -> PartitionSpec {
    PartitionSpec { topic: tp("t", partition), topic_id: ID, config: Arc::new(config), leader_epoch: LeaderEpoch(0) }
}

fn open(dir: &Path, config: TopicConfig) -> (Logs, Arc<PartitionLog>) {
    let logs = Logs::lock(Arc::new(RealDisk), settings(dir)).unwrap();
    logs.open_all(vec![spec(0, config)], NOW).unwrap();
    let log = logs.get(ID, PartitionIndex(0)).unwrap();
    (logs, log)
}

/// `count` records from `timestamp` on, one a millisecond, each with a value of `bytes` bytes.
fn batch(timestamp: i64, count: i64, bytes: usize) -> Bytes {
    let value = vec![b'v'; bytes];
    let records = (0..count).fold(BatchBuilder::new(Compression::None), |b, i| b.record(Millis(timestamp + i), None, Some(&value)));
    records.build().unwrap()
}

fn idempotent(producer: i64, epoch: i16, sequence: i32, count: i64) -> Bytes {
    let builder = BatchBuilder::new(Compression::None).producer(ProducerId(producer), ProducerEpoch(epoch), sequence);
    (0..count).fold(builder, |b, i| b.record(Millis(NOW.0 + i), Some(b"k"), Some(b"v"))).build().unwrap()
}

fn append(log: &PartitionLog, batch: Bytes) -> Appended {
    log.append(NOW, batch, Origin::Client).unwrap()
}

/// All offsets that a consumer sees from `from` on.
fn consume(log: &PartitionLog, mut from: Offset) -> Vec<(i64, i64)> {
    let mut seen = Vec::new();
    loop {
        let slice = log.read(from, 50_000, true, Isolation::ReadUncommitted).unwrap();
        if slice.len == 0 {
            return seen;
        }
        let bytes = slice.bytes().unwrap();
        let mut rest = &bytes[..];
        while let Some(header) = BatchHeader::parse(rest).filter(|h| h.size().unwrap() <= rest.len()) {
            let (whole, after) = rest.split_at(header.size().unwrap());
            assert_eq!(crate::record::header::batch_crc(whole), header.crc);
            let records = BatchRecords::open(whole, 1 << 20).unwrap();
            seen.extend(records.iter().map(|r| r.unwrap()).filter(|r| r.offset >= from).map(|r| (r.offset.0, r.timestamp.0)));
            from = header.next_offset();
            rest = after;
        }
    }
}

#[test]
fn what_is_appended_is_read_back_before_and_after_a_restart() {
    let dir = tempfile::tempdir().unwrap();
    let config = TopicConfig { segment_bytes: 20_000, ..TopicConfig::default() };
    let expected: Vec<_> = (0..300).map(|i| (i, 1_000 + i)).collect();
    {
        let (logs, log) = open(dir.path(), config.clone());
        assert!(log.read(Offset(0), 1_000, true, Isolation::ReadUncommitted).unwrap().file.is_none());
        for i in 0..100 {
            let appended = append(&log, batch(1_000 + i * 3, 3, 200));
            assert_eq!((appended.base_offset, appended.last_offset), (Offset(i * 3), Offset(i * 3 + 2)));
        }
        assert!(log.segment_count() > 3);
        assert_eq!(consume(&log, Offset(0)), expected);
        assert_eq!(consume(&log, Offset(100)), expected[100..]);
        logs.close(NOW).unwrap();
    }
    let (logs, log) = open(dir.path(), config.clone());
    assert!(logs.was_clean());
    assert_eq!(consume(&log, Offset(0)), expected);
    assert_eq!(append(&log, batch(5_000, 1, 10)).base_offset, Offset(300));
    drop((logs, log));
    let (logs, log) = open(dir.path(), config);
    assert!(!logs.was_clean(), "the second process was killed");
    assert_eq!(consume(&log, Offset(0)).len(), 301);
}

fn dir_bytes(dir: &Path, name: &str) -> Vec<u8> {
    std::fs::read(dir.join("t-0").join(name)).unwrap()
}

const FIRST: &str = "00000000000000000000";

/// A directory with `count` batches of two records in it, left by a kill.
fn killed(dir: &Path, count: i64, config: &TopicConfig) {
    let (_logs, log) = open(dir, config.clone());
    for i in 0..count {
        append(&log, batch(1_000 + 2 * i, 2, 100));
    }
}

#[test]
fn a_torn_end_is_cut_and_the_rest_kept() {
    let dir = tempfile::tempdir().unwrap();
    let config = TopicConfig::default();
    killed(dir.path(), 10, &config);
    let log_file = dir.path().join("t-0").join(format!("{FIRST}.log"));
    let whole = std::fs::read(&log_file).unwrap();
    for cut in [1, 61, 100] {
        std::fs::write(&log_file, &whole[..whole.len() - cut]).unwrap();
        let (_logs, log) = open(dir.path(), config.clone());
        assert_eq!(consume(&log, Offset(0)).len(), 18);
        assert_eq!(append(&log, batch(9_000, 2, 100)).base_offset, Offset(18));
    }
    // What comes after a batch that was changed is cut with it.
    let mut changed = whole.clone();
    changed[whole.len() / 2] ^= 1;
    std::fs::write(&log_file, &changed).unwrap();
    let (_logs, log) = open(dir.path(), config);
    assert_eq!(consume(&log, Offset(0)).len(), 10);
}

#[test]
fn a_message_of_an_old_magic_is_not_cut() {
    let dir = tempfile::tempdir().unwrap();
    killed(dir.path(), 1, &TopicConfig::default());
    let log_file = dir.path().join("t-0").join(format!("{FIRST}.log"));
    // Magic 1: offset, size, CRC-32, magic, attributes, timestamp, null key, a value of one byte.
    let mut body = vec![1, 0];
    body.extend_from_slice(&NOW.0.to_be_bytes());
    body.extend_from_slice(&[0xff, 0xff, 0xff, 0xff, 0, 0, 0, 1, b'v']);
    let mut crc = flate2::Crc::new();
    crc.update(&body);
    let size = (body.len() as u32 + 4).to_be_bytes();
    let old = [&[0; 8][..], &size, &crc.sum().to_be_bytes(), &body, &[0; 40]].concat();
    std::fs::write(&log_file, &old).unwrap();
    let logs = Logs::lock(Arc::new(RealDisk), settings(dir.path())).unwrap();
    let error = logs.open_all(vec![spec(0, TopicConfig::default())], NOW).unwrap_err();
    assert!(error.to_string().contains("magic 1"), "{error}");
    assert_eq!(std::fs::read(&log_file).unwrap(), old, "nothing is changed");
}

#[test]
fn indexes_that_are_missing_broken_or_reserved_do_no_harm() {
    let dir = tempfile::tempdir().unwrap();
    let config = TopicConfig { segment_bytes: 2_000, index_interval_bytes: 300, ..TopicConfig::default() };
    {
        let (logs, log) = open(dir.path(), config.clone());
        (0..30).for_each(|i| {
            append(&log, batch(1_000 + 2 * i, 2, 100));
        });
        logs.close(NOW).unwrap();
    }
    let part = dir.path().join("t-0");
    let (index, times) = (dir_bytes(dir.path(), &format!("{FIRST}.index")), dir_bytes(dir.path(), &format!("{FIRST}.timeindex")));
    assert!(index.len() >= 16 && times.len() >= 24);
    let damages: [&dyn Fn(); 4] = [
        &|| std::fs::remove_file(part.join(format!("{FIRST}.index"))).unwrap(),
        &|| std::fs::write(part.join(format!("{FIRST}.index")), [&index[..], &[0; 800]].concat()).unwrap(),
        &|| std::fs::write(part.join(format!("{FIRST}.index")), [1; 801]).unwrap(),
        &|| std::fs::write(part.join(format!("{FIRST}.timeindex")), [1; 24]).unwrap(),
    ];
    for damage in damages {
        damage();
        let (logs, log) = open(dir.path(), config.clone());
        assert!(logs.was_clean());
        assert_eq!(consume(&log, Offset(0)).len(), 60);
        assert_eq!(log.offset_for_time(Millis(1_011)).unwrap().unwrap().offset, Offset(11));
        logs.close(NOW).unwrap();
        assert_eq!(dir_bytes(dir.path(), &format!("{FIRST}.index")), index);
        assert_eq!(dir_bytes(dir.path(), &format!("{FIRST}.timeindex")), times);
    }
}

#[test]
fn a_directory_that_kafka_was_killed_in_opens() {
    let dir = tempfile::tempdir().unwrap();
    let config = TopicConfig::default();
    killed(dir.path(), 50, &config);
    // Kafka reserves its index files whole, and may have reserved the log too; its checkpoint knows nothing yet.
    let part = dir.path().join("t-0");
    std::fs::write(part.join(format!("{FIRST}.index")), vec![0; 10 << 20]).unwrap();
    std::fs::write(part.join(format!("{FIRST}.timeindex")), vec![0; 10 << 20]).unwrap();
    let log = std::fs::OpenOptions::new().write(true).open(part.join(format!("{FIRST}.log"))).unwrap();
    log.set_len(log.metadata().unwrap().len() + 4_096).unwrap();
    std::fs::write(dir.path().join("recovery-point-offset-checkpoint"), "0\n1\nt 0 0\n").unwrap();
    let (logs, log) = open(dir.path(), config);
    assert_eq!(consume(&log, Offset(0)).len(), 100);
    logs.close(NOW).unwrap();
    assert!(dir_bytes(dir.path(), &format!("{FIRST}.index")).len() < 1_000);
}

#[test]
fn segments_that_a_cleaner_had_just_written_take_their_place() {
    let dir = tempfile::tempdir().unwrap();
    let config = TopicConfig { segment_bytes: 700, ..TopicConfig::default() };
    killed(dir.path(), 9, &config);
    let part = dir.path().join("t-0");
    let name = |offset: i64, suffix: &str| part.join(format!("{offset:020}{suffix}"));
    let bases: Vec<i64> = (0..20).filter(|offset| name(*offset, ".log").exists()).collect();
    assert!(bases.len() > 3, "{bases:?}");
    // The first two segments became one; a third was only half done.
    let merged = [std::fs::read(name(bases[0], ".log")).unwrap(), std::fs::read(name(bases[1], ".log")).unwrap()].concat();
    std::fs::write(name(bases[0], ".log.swap"), merged).unwrap();
    std::fs::write(name(bases[2], ".log.cleaned"), b"half").unwrap();
    std::fs::write(name(bases[3], ".index.deleted"), b"gone").unwrap();
    let (_logs, log) = open(dir.path(), TopicConfig::default());
    assert_eq!(consume(&log, Offset(0)).len(), 18);
    assert_eq!(log.segment_count(), bases.len() - 1);
    assert!(!name(bases[1], ".log").exists() && !name(bases[2], ".log.cleaned").exists() && !name(bases[3], ".index.deleted").exists());
}

#[test]
fn a_second_process_is_refused() {
    let dir = tempfile::tempdir().unwrap();
    let first = Logs::lock(Arc::new(RealDisk), settings(dir.path())).unwrap();
    let second = Logs::lock(Arc::new(RealDisk), settings(dir.path()));
    assert!(matches!(second, Err(LogError::Locked(path)) if path == dir.path()));
    drop(first);
    assert!(Logs::lock(Arc::new(RealDisk), settings(dir.path())).is_ok());
}

#[test]
fn a_deletion_survives_being_cut_short() {
    let dir = tempfile::tempdir().unwrap();
    let names = || {
        let entries = std::fs::read_dir(dir.path()).unwrap().map(|e| e.unwrap());
        entries.filter(|e| e.path().is_dir()).map(|e| e.file_name().into_string().unwrap()).collect::<Vec<_>>()
    };
    let (logs, log) = open(dir.path(), TopicConfig { file_delete_delay_ms: 1_000, ..TopicConfig::default() });
    append(&log, batch(1_000, 2, 10));
    let waiter = Waiter::new();
    let registration = log.watch().register(&waiter);
    assert_eq!(logs.delete_topic(ID, NOW).unwrap(), 1);
    assert!(log.is_deleted() && logs.get(ID, PartitionIndex(0)).is_none());
    assert!(matches!(log.append(NOW, batch(1_000, 1, 1), Origin::Client), Err(AppendError::Offline(_))));
    assert!(names()[0].starts_with("t-0.") && names()[0].ends_with("-delete"));
    logs.tick(Millis(NOW.0 + 999));
    assert_eq!(names().len(), 1);
    drop((logs, registration));
    // The process dies before the files are gone; the next one ends it.
    let logs = Logs::lock(Arc::new(RealDisk), settings(dir.path())).unwrap();
    assert_eq!(logs.found().unwrap(), []);
    assert_eq!(names().len(), 0);
    let again = logs.create(PartitionSpec { topic_id: TopicId(uuid::Uuid::from_u128(8)), ..spec(0, TopicConfig::default()) }, NOW).unwrap();
    assert_eq!(again.watermarks(), Watermarks::default());
}

#[test]
fn a_directory_of_another_topic_is_moved_aside_and_kept() {
    let dir = tempfile::tempdir().unwrap();
    killed(dir.path(), 3, &TopicConfig::default());
    let logs = Logs::lock(Arc::new(RealDisk), settings(dir.path())).unwrap();
    let other = TopicId(uuid::Uuid::from_u128(99));
    logs.open_all(vec![PartitionSpec { topic_id: other, ..spec(0, TopicConfig::default()) }], NOW).unwrap();
    assert_eq!(logs.get(other, PartitionIndex(0)).unwrap().watermarks().log_end, Offset(0));
    let found = logs.found().unwrap();
    assert_eq!(found.iter().map(|f| (f.topic.to_string(), f.topic_id)).collect::<Vec<_>>(), [("t-0".to_owned(), Some(other))]);
    let stray =
        std::fs::read_dir(dir.path()).unwrap().map(|e| e.unwrap().path()).find(|p| p.to_string_lossy().ends_with("-stray")).unwrap();
    assert!(std::fs::metadata(stray.join(format!("{FIRST}.log"))).unwrap().len() > 0);
}

#[test]
fn new_partitions_go_where_fewest_are() {
    let (a, b) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    let dirs = vec![a.path().to_owned(), b.path().to_owned()];
    let logs = Logs::lock(Arc::new(RealDisk), LogSettings { dirs, ..LogSettings::default() }).unwrap();
    logs.open_all((0..3).map(|i| spec(i, TopicConfig::default())).collect(), NOW).unwrap();
    logs.create(spec(3, TopicConfig::default()), NOW).unwrap();
    assert!(matches!(logs.create(spec(3, TopicConfig::default()), NOW), Err(LogError::Exists(_))));
    let count = |dir: &Path| std::fs::read_dir(dir).unwrap().filter(|e| e.as_ref().unwrap().path().is_dir()).count();
    assert_eq!((count(a.path()), count(b.path())), (2, 2));
}

#[test]
fn a_read_keeps_to_its_limits() {
    let dir = tempfile::tempdir().unwrap();
    let (_logs, log) = open(dir.path(), TopicConfig::default());
    let size = batch(1_000, 2, 100).len();
    (0..4).for_each(|i| {
        append(&log, batch(1_000 + i, 2, 100));
    });
    let read = |from, max, at_least_one| {
        log.read(Offset(from), max, at_least_one, Isolation::ReadUncommitted).map(|slice| (slice.position, slice.len))
    };
    assert_eq!(read(0, 1 << 20, false).unwrap(), (0, 4 * size));
    assert_eq!(read(3, size, false).unwrap(), (size as u64, size), "from the batch that holds the offset");
    assert_eq!(read(2, size + 10, false).unwrap(), (size as u64, size + 10), "the last one may be cut short");
    assert_eq!(read(2, size - 1, false).unwrap().1, 0);
    assert_eq!(read(2, 0, true).unwrap(), (size as u64, size));
    assert_eq!(read(6, 10, true).unwrap(), (3 * size as u64, size));
    assert_eq!(read(8, 1 << 20, true).unwrap().1, 0);
    assert!(matches!(read(9, 1, true), Err(ReadError::OutOfRange { .. })));
    assert!(matches!(read(-1, 1, true), Err(ReadError::OutOfRange { .. })));
    // An append in progress keeps nobody from reading.
    let _in_progress = log.writer.lock();
    assert_eq!(read(0, 1 << 20, true).unwrap(), (0, 4 * size));
    assert_eq!(log.watermarks().log_end, Offset(8));
}

#[test]
fn epochs_and_producers_survive() {
    let dir = tempfile::tempdir().unwrap();
    let config = TopicConfig::default();
    {
        let (logs, log) = open(dir.path(), config.clone());
        append(&log, idempotent(5, 0, 0, 2));
        log.lead(LeaderEpoch(3));
        append(&log, idempotent(5, 0, 2, 3));
        logs.close(NOW).unwrap();
        assert!(
            matches!(log.append(NOW, idempotent(5, 0, 5, 1), Origin::Client), Err(AppendError::Offline(_))),
            "nothing after a clean stop"
        );
    }
    let text = String::from_utf8(dir_bytes(dir.path(), "leader-epoch-checkpoint")).unwrap();
    assert_eq!(text, "0\n2\n0 0\n3 2\n");
    let text = std::fs::read_to_string(dir.path().join("recovery-point-offset-checkpoint")).unwrap();
    assert_eq!(text, "0\n1\nt 0 5\n");
    for _ in 0..2 {
        let logs = Logs::lock(Arc::new(RealDisk), settings(dir.path())).unwrap();
        assert_eq!(logs.found().unwrap()[0].newest_epoch, LeaderEpoch(3));
        logs.open_all(vec![PartitionSpec { leader_epoch: LeaderEpoch(4), ..spec(0, config.clone()) }], NOW).unwrap();
        let log = logs.get(ID, PartitionIndex(0)).unwrap();
        assert_eq!(log.epoch_end(LeaderEpoch(0)), (LeaderEpoch(0), Offset(2)));
        assert_eq!(log.epoch_end(LeaderEpoch(3)), (LeaderEpoch(3), Offset(5)));
        assert_eq!((log.epoch_end(LeaderEpoch(4)), log.latest_epoch()), ((LeaderEpoch(4), Offset(5)), LeaderEpoch(4)));
        let again = append(&log, idempotent(5, 0, 2, 3));
        assert!(again.duplicate);
        assert_eq!((again.base_offset, again.last_offset), (Offset(2), Offset(4)));
        assert!(matches!(
            log.append(NOW, idempotent(5, 0, 9, 1), Origin::Client),
            Err(AppendError::OutOfOrderSequence { expected: 5, .. })
        ));
        // The second time it's after a kill.
    }
}

#[test]
fn a_sync_makes_all_before_it_durable_at_once() {
    let disk = super::io::sim::SimDisk::new(1);
    let logs = Logs::lock(Arc::new(disk.clone()), settings(Path::new("/d"))).unwrap();
    let config = TopicConfig { flush_messages: 4, ..TopicConfig::default() };
    let log = logs.create(spec(0, config), NOW).unwrap();
    assert_eq!(append(&log, batch(1, 3, 10)).sync_to, None);
    let due = append(&log, batch(1, 3, 10)).sync_to;
    assert_eq!(due, Some(Offset(6)));
    append(&log, batch(1, 1, 10));
    log.sync_to(Offset(6)).unwrap();
    assert_eq!(log.synced(), Offset(7), "what came meanwhile goes along");
    let syncs = disk.syncs();
    log.sync_to(Offset(7)).unwrap();
    assert_eq!(disk.syncs(), syncs, "nothing to do");
    append(&log, batch(1, 1, 10));
    disk.fail_after(0);
    assert!(matches!(log.sync_to(Offset(8)), Err(AppendError::Io(_))));
    assert!(matches!(log.sync_to(Offset(8)), Err(AppendError::Offline(_))), "a failed sync is not tried again");
    assert!(matches!(log.append(NOW, batch(1, 1, 1), Origin::Client), Err(AppendError::Offline(_))));
    assert_eq!(consume(&log, Offset(0)).len(), 8, "what was acknowledged is still served");
}

#[test]
fn flush_ms_is_kept_by_the_tick() {
    let dir = tempfile::tempdir().unwrap();
    let (logs, log) = open(dir.path(), TopicConfig { flush_ms: 1_000, ..TopicConfig::default() });
    logs.tick(NOW);
    append(&log, batch(1, 3, 10));
    logs.tick(Millis(NOW.0 + 999));
    assert_eq!(log.synced(), Offset(0));
    logs.tick(Millis(NOW.0 + 1_000));
    assert_eq!(log.synced(), Offset(3));
}

#[test]
fn a_partition_at_rest_is_not_checked_after_a_kill() {
    let dir = tempfile::tempdir().unwrap();
    {
        // Its records are of 1970.
        let (logs, log) = open(dir.path(), TopicConfig { retention_ms: -1, ..TopicConfig::default() });
        append(&log, batch(1, 3, 10));
        for minute in 0..4 {
            logs.tick(Millis(NOW.0 + minute * 60_000));
        }
        assert_eq!((log.synced(), log.recovery_point()), (Offset(3), Offset(3)));
        append(&log, batch(1, 2, 10));
    }
    let text = std::fs::read_to_string(dir.path().join("recovery-point-offset-checkpoint")).unwrap();
    assert_eq!(text, "0\n1\nt 0 3\n");
    let (_logs, log) = open(dir.path(), TopicConfig::default());
    assert_eq!(consume(&log, Offset(0)).len(), 5);
    assert_eq!(log.recovery_point(), Offset(3));
}

/// Names of a directory's files that end so.
fn names(dir: &Path, end: &str) -> Vec<String> {
    let mut names: Vec<_> = std::fs::read_dir(dir.join("t-0")).unwrap().map(|e| e.unwrap().file_name().into_string().unwrap()).collect();
    names.retain(|name| name.ends_with(end));
    names.sort();
    names
}

fn read_from(log: &PartitionLog, from: i64) -> Result<ReadSlice, ReadError> {
    log.read(Offset(from), 50_000, true, Isolation::ReadUncommitted)
}

#[test]
fn retention_takes_old_segments_and_a_reader_under_way_keeps_its_file() {
    let dir = tempfile::tempdir().unwrap();
    let config = TopicConfig { segment_bytes: 1_000, retention_ms: 1_000, file_delete_delay_ms: 60_000, ..TopicConfig::default() };
    let (logs, log) = open(dir.path(), config.clone());
    for i in 0..6 {
        append(&log, batch(NOW.0 + 500 * i, 1, 700));
    }
    let under_way = read_from(&log, 0).unwrap();
    let now = Millis(NOW.0 + 2_001);
    assert_eq!((logs.retain(now), logs.retain(now)), (3, 0), "two are more than a second old by then, and one is a second and 1 ms");
    assert_eq!(log.watermarks().log_start, Offset(3));
    assert_eq!(consume(&log, Offset(3)).len(), 3);
    assert!(matches!(read_from(&log, 2), Err(ReadError::OutOfRange { log_start: Offset(3), .. })));
    assert_eq!(names(dir.path(), ".log").first().unwrap(), "00000000000000000003.log");
    assert_eq!(names(dir.path(), ".log.deleted").len(), 3);
    assert_eq!(names(dir.path(), ".snapshot").first().unwrap(), "00000000000000000003.snapshot");
    logs.tick(now.plus(59_999));
    assert_eq!(names(dir.path(), ".log.deleted").len(), 3);
    logs.tick(now.plus(60_000));
    assert!(names(dir.path(), ".deleted").is_empty());
    assert_eq!(BatchHeader::parse(&under_way.bytes().unwrap()).unwrap().base_offset, Offset(0));
}

#[test]
fn an_idle_log_becomes_empty_and_goes_on_where_it_was() {
    let dir = tempfile::tempdir().unwrap();
    let config = TopicConfig { retention_ms: 1_000, ..TopicConfig::default() };
    let (logs, log) = open(dir.path(), config.clone());
    append(&log, idempotent(5, 0, 0, 4));
    let later = Millis(NOW.0 + 10_000);
    assert_eq!((logs.retain(Millis(NOW.0 + 1_003)), logs.retain(later), logs.retain(later)), (0, 1, 0));
    let marks = log.watermarks();
    assert_eq!((marks.log_start, marks.last_stable, marks.log_end, log.size_bytes()), (Offset(4), Offset(4), Offset(4), 0));
    drop((logs, log));
    let (logs, log) = open(dir.path(), config.clone());
    assert!(!logs.was_clean());
    assert_eq!((log.watermarks(), log.segment_count()), (marks, 1));
    assert_eq!(names(dir.path(), ".log"), ["00000000000000000004.log"]);
    assert!(append(&log, idempotent(5, 0, 0, 4)).duplicate, "the producer is known");
    assert_eq!(append(&log, idempotent(5, 0, 4, 1)).base_offset, Offset(4));
    logs.close(NOW).unwrap();
    drop((logs, log));
    let (_logs, log) = open(dir.path(), config);
    assert_eq!(consume(&log, Offset(4)).len(), 1);
}

#[test]
fn records_without_a_timestamp_age_from_when_they_were_written() {
    let dir = tempfile::tempdir().unwrap();
    let (logs, log) = open(dir.path(), TopicConfig { retention_ms: 1_000, ..TopicConfig::default() });
    append(&log, batch(-1, 1, 10));
    let path = dir.path().join("t-0").join(format!("{FIRST}.log"));
    let written = std::fs::metadata(path).unwrap().modified().unwrap().duration_since(std::time::UNIX_EPOCH).unwrap();
    let written = written.as_millis() as i64;
    assert_eq!((logs.retain(Millis(written + 1_000)), logs.retain(Millis(written + 1_001))), (0, 1));
}

#[test]
fn retention_is_looked_at_by_the_clock_and_not_while_segments_are_replaced() {
    let dir = tempfile::tempdir().unwrap();
    let (logs, log) = open(dir.path(), TopicConfig { retention_ms: 1_000, ..TopicConfig::default() });
    append(&log, batch(1, 1, 10));
    logs.tick(NOW);
    logs.tick(NOW.plus(29_999));
    assert_eq!(log.watermarks().log_start, Offset(0));
    logs.tick(NOW.plus(30_000));
    assert_eq!(log.watermarks().log_start, Offset(1));
    append(&log, batch(1, 1, 10));
    logs.tick(NOW.plus(329_999));
    assert_eq!(log.watermarks().log_start, Offset(1));
    let replacing = log.reshaping.lock();
    assert_eq!(logs.retain(NOW.plus(330_000)), 0);
    drop(replacing);
    logs.tick(NOW.plus(330_000));
    assert_eq!(log.watermarks().log_start, Offset(2));
}

#[test]
fn deleted_records_are_gone_after_a_kill_and_their_segments_go_with_retention() {
    let dir = tempfile::tempdir().unwrap();
    let config = TopicConfig { segment_bytes: 1_000, retention_ms: -1, ..TopicConfig::default() };
    let start_file = dir.path().join("log-start-offset-checkpoint");
    {
        let (logs, log) = open(dir.path(), config.clone());
        for i in 0..3 {
            append(&log, batch(NOW.0 + 100 * i, 4, 150));
        }
        let below = |before| logs.delete_records(&[(log.clone(), Offset(before))]).remove(0);
        assert_eq!([below(0).unwrap(), below(6).unwrap(), below(5).unwrap()], [Offset(0), Offset(6), Offset(6)]);
        assert!(matches!(below(13), Err(DeleteRecordsError::OutOfRange { high_watermark: Offset(12), .. })));
        assert!(matches!(below(-2), Err(DeleteRecordsError::OutOfRange { .. })));
        assert_eq!(std::fs::read_to_string(&start_file).unwrap(), "0\n1\nt 0 6\n");
        log.configure(Arc::new(TopicConfig { cleanup_compact: true, cleanup_delete: false, ..config.clone() }));
        assert!(matches!(below(7), Err(DeleteRecordsError::Policy)));
        log.configure(Arc::new(TopicConfig { cleanup_compact: false, cleanup_delete: false, ..config.clone() }));
        assert_eq!(below(6).unwrap(), Offset(6), "a topic without any policy");
    }
    let (logs, log) = open(dir.path(), config.clone());
    assert_eq!(consume(&log, Offset(6)).iter().map(|(offset, _)| *offset).collect::<Vec<_>>(), [6, 7, 8, 9, 10, 11]);
    assert!(read_from(&log, 5).is_err());
    assert_eq!((log.segment_count(), logs.retain(NOW), log.segment_count()), (3, 1, 2), "that which is wholly below goes");
    assert_eq!(log.watermarks().log_start, Offset(6));
    let at_time = |ms| log.offset_for_time(Millis(NOW.0 + ms)).unwrap().map(|found| found.offset.0);
    assert_eq!([at_time(0), at_time(101), at_time(103)], [Some(6), Some(6), Some(7)]);
    assert_eq!(logs.delete_records(&[(log.clone(), Offset(-1))]).remove(0).unwrap(), Offset(12));
    assert_eq!((log.offset_of_max_timestamp().unwrap(), at_time(0)), (None, None));
    assert_eq!((logs.retain(NOW), log.segment_count()), (1, 1));
    assert_eq!(append(&log, batch(NOW.0, 1, 10)).base_offset, Offset(12));
    assert_eq!(log.offset_of_max_timestamp().unwrap().map(|found| found.offset), Some(Offset(12)));
}

/// One thread appends, one removes what is too much and its files at once, one deletes records, and two read from the start again and again.
#[test]
fn readers_never_stumble_over_what_is_removed() {
    let dir = tempfile::tempdir().unwrap();
    let config = TopicConfig { segment_bytes: 2_000, retention_bytes: 6_000, file_delete_delay_ms: 0, ..TopicConfig::default() };
    let (logs, log) = open(dir.path(), config);
    let done = std::sync::atomic::AtomicBool::new(false);
    let is_done = || done.load(std::sync::atomic::Ordering::Acquire);
    let read = || {
        let mut from = Offset(0);
        while !is_done() {
            match log.read(from, 10_000, true, Isolation::ReadUncommitted) {
                Ok(slice) if slice.len > 0 => {
                    let first = BatchHeader::parse(&slice.bytes().unwrap()).unwrap();
                    assert!(first.base_offset <= from && from <= first.last_offset(), "{from}: {first:?}");
                    from = first.next_offset();
                }
                Ok(slice) => from = slice.watermarks.log_start,
                Err(ReadError::OutOfRange { log_start, .. }) => from = log_start,
                Err(error) => panic!("{error:?}"),
            }
        }
    };
    let start = || {
        let mut last = Offset(0);
        for now in 1_i64.. {
            logs.retain(NOW.plus(now));
            logs.tick(NOW.plus(now));
            let marks = log.watermarks();
            assert!(marks.in_order() && marks.log_start >= last, "{marks:?}");
            last = marks.log_start;
            if is_done() {
                return;
            }
        }
    };
    let delete = || {
        while !is_done() {
            let before = Offset(log.watermarks().log_end.0 - 5);
            if before > Offset(0) {
                logs.delete_records(&[(log.clone(), before)]).remove(0).unwrap();
            }
        }
    };
    std::thread::scope(|scope| {
        [&read as &(dyn Fn() + Sync), &read, &start, &delete].into_iter().for_each(|work| _ = scope.spawn(work));
        (0..1_500).for_each(|i| _ = append(&log, batch(NOW.0 + i, 2, 100)));
        done.store(true, std::sync::atomic::Ordering::Release);
    });
    assert_eq!((log.watermarks().log_end, log.offline_reason()), (Offset(3_000), None));
    logs.retain(NOW);
    // Retention leaves less than a segment above its limit; the deletions may have left as little as the active segment.
    assert!(log.size_bytes() < 8_000, "{}", log.size_bytes());
}
