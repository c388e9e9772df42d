//! Truncations that the model doesn't look at by themselves: what a move that goes on makes of its copy, and waiters.

use super::{
    io::{Disk, sim::SimDisk},
    *,
};
use crate::{
    config::TopicConfig,
    record::{builder::BatchBuilder, header::Compression},
    types::*,
};
use bytes::Bytes;
use std::{
    path::{Path, PathBuf},
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
};

const NOW: Millis = Millis(1_000_000);
const TOPIC: TopicId = TopicId(uuid::Uuid::from_u128(7));

fn open(disk: &SimDisk, epoch: i32) -> Logs {
    let settings = LogSettings { dirs: vec!["/a".into(), "/b".into()], initial_task_delay_ms: i64::MAX, ..LogSettings::default() };
    let logs = Logs::lock(Arc::new(disk.clone()), settings).unwrap();
    logs.found().unwrap();
    let topic = TopicPartition { topic: TopicName::new("t").unwrap(), partition: PartitionIndex(0) };
    let config = Arc::new(TopicConfig { segment_bytes: 4_000, retention_ms: -1, ..TopicConfig::default() });
    logs.open_all(vec![PartitionSpec { topic, topic_id: TOPIC, config, leader_epoch: LeaderEpoch(epoch) }], NOW).unwrap();
    logs
}

fn log_of(logs: &Logs) -> Arc<PartitionLog> {
    logs.get(TOPIC, PartitionIndex(0)).unwrap()
}

fn batch(value: u64) -> Bytes {
    let value = [&value.to_be_bytes()[..], &[7; 200]].concat();
    BatchBuilder::new(Compression::None).record(NOW, None, Some(&value)).build().unwrap()
}

fn append(log: &PartitionLog, values: std::ops::Range<u64>) {
    values.for_each(|value| _ = log.append(NOW, batch(value), Origin::Client).unwrap());
}

fn contents(log: &PartitionLog) -> Vec<u8> {
    let (mut next, mut all) = (log.watermarks().log_start, Vec::new());
    while next < log.watermarks().log_end {
        let bytes = log.read(next, 1, true, Isolation::ReadUncommitted).unwrap().bytes().unwrap();
        next = crate::record::BatchHeader::parse(&bytes).unwrap().next_offset();
        all.extend(bytes);
    }
    all
}

/// The future directory in `/b`.
fn future(disk: &SimDisk) -> PathBuf {
    let names = disk.list(Path::new("/b")).unwrap().into_iter().map(|entry| entry.name);
    Path::new("/b").join(names.into_iter().find(|name| name.ends_with("-future")).unwrap())
}

/// What the copy still has of the log, by the bytes of each segment.
fn copied(logs: &Logs, disk: &SimDisk) -> Vec<u64> {
    let health = Arc::clone(&logs.dirs[1].health);
    let copied = resume::copied(&log_of(logs), &future(disk), &health, NOW, &|_| true).unwrap();
    copied.into_iter().map(|(_, bytes)| bytes).collect()
}

#[test]
fn a_copy_that_is_ahead_of_its_source_or_differs_from_it_is_truncated_and_gone_on_with() {
    let disk = SimDisk::new(1);
    let logs = open(&disk, 0);
    let log = log_of(&logs);
    append(&log, 0..40);
    log.sync().unwrap();
    append(&log, 40..45);
    logs.move_to(&log, Path::new("/b")).unwrap();
    // The copy is durable when it has come near, the source's last batches are not; then the move is cut short.
    let told = AtomicU64::new(0);
    let size = log.size_bytes();
    logs.run_moves(NOW, &|bytes| told.fetch_add(bytes, Ordering::Relaxed) + bytes < size);
    disk.list(&future(&disk)).unwrap().into_iter().for_each(|entry| {
        let file = disk.open(&future(&disk).join(entry.name), io::OpenMode::Write).unwrap();
        file.sync().unwrap();
    });
    disk.sync_dir(&future(&disk)).unwrap();
    drop((log, logs));

    let disk = disk.power_loss();
    let logs = open(&disk, 1);
    let log = log_of(&logs);
    let survived = log.watermarks().log_end;
    assert!((Offset(40)..=Offset(45)).contains(&survived));
    append(&log, 100..110);
    let kept = copied(&logs, &disk);
    let bytes: u64 = kept.iter().sum();
    let per_batch = size / 45;
    assert_eq!(bytes, per_batch * survived.0 as u64, "of {kept:?}: all that both have and nothing else");
    assert!(kept.len() > 2);
    assert_eq!(copied(&logs, &disk), kept, "a second look finds the same");

    let before = contents(&log);
    assert!(logs.run_moves(NOW, &|_| true).iter().all(|(_, result)| result.is_ok()));
    assert_eq!(log.place().dir, Path::new("/b/t-0"));
    assert_eq!(contents(&log), before);
    drop((log, logs));
    let logs = open(&disk.power_loss(), 2);
    assert_eq!(contents(&log_of(&logs)), before);
}

#[test]
fn a_copy_of_which_nothing_can_be_used_is_made_anew() {
    let disk = SimDisk::new(2);
    let logs = open(&disk, 0);
    let log = log_of(&logs);
    append(&log, 0..40);
    logs.move_to(&log, Path::new("/b")).unwrap();
    logs.run_moves(NOW, &|_| false);
    let first = future(&disk).join("00000000000000000000.log");
    disk.corrupt(&first, |bytes| bytes.iter_mut().for_each(|byte| *byte ^= 1));
    drop((log, logs));
    let disk = disk.process_crash();
    let logs = open(&disk, 1);
    assert!(copied(&logs, &disk).is_empty());
    let log = log_of(&logs);
    let before = contents(&log);
    assert!(logs.run_moves(NOW, &|_| true).iter().all(|(_, result)| result.is_ok()));
    assert_eq!((&*log.place().dir, contents(&log)), (Path::new("/b/t-0"), before));
}

#[test]
fn who_waits_for_a_sync_of_what_is_truncated_is_told_and_so_is_who_deletes_up_to_it() {
    let logs = open(&SimDisk::new(3), 0);
    let log = log_of(&logs);
    append(&log, 0..10);
    let waiter = watch::Waiter::new();
    let (wait, run) = log.ask_sync(Offset(10), &waiter);
    assert_eq!(logs.truncate_to(&log, Offset(4), NOW).unwrap(), Offset(4));
    assert!(matches!(wait.outcome(), Some(Err(AppendError::Truncated(Offset(4))))));
    run.unwrap().run();
    assert!(matches!(log.sync_to(Offset(10)), Err(AppendError::Truncated(Offset(4)))));
    assert_eq!(log.synced(), Offset(4));
    let marks = log.watermarks();
    assert_eq!((marks.last_stable, marks.high_watermark, marks.log_end), (Offset(4), Offset(4), Offset(4)));
    assert_eq!(logs.truncate_to(&log, Offset(9), NOW).unwrap(), Offset(4), "it ends before that");
    append(&log, 4..6);
    assert_eq!(log.watermarks().log_end, Offset(6));
    assert!(matches!(log.read(Offset(7), 1, true, Isolation::ReadUncommitted), Err(ReadError::OutOfRange { .. })));
}
