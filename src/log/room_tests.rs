//! Disks that are full, low on space or broken in part, and rounds of syncs: nothing acknowledged is lost, and what can come back does.

use super::{
    io::{Disk, sim::SimDisk},
    read::Isolation,
    *,
};
use crate::{
    config::TopicConfig,
    record::{BatchHeader, BatchRecords, builder::BatchBuilder, header::Compression},
    sim::Random,
    types::*,
};
use bytes::Bytes;
use std::{path::Path, sync::Arc};

const NOW: Millis = Millis(1_700_000_000_000);
const ID: TopicId = TopicId(uuid::Uuid::from_u128(7));
const PRODUCER: ProducerId = ProducerId(5);

fn spec(partition: i32, config: &TopicConfig) -> PartitionSpec {
    let topic = TopicPartition { topic: TopicName::new("t").unwrap(), partition: PartitionIndex(partition) };
    PartitionSpec { topic, topic_id: ID, config: Arc::new(config.clone()), leader_epoch: LeaderEpoch(0) }
}

fn settings(dirs: &[&str], min_free_bytes: u64) -> LogSettings {
    LogSettings { dirs: dirs.iter().map(Into::into).collect(), min_free_bytes, ..LogSettings::default() }
}

fn open(disk: &SimDisk, settings: LogSettings, partitions: i32, config: &TopicConfig) -> Logs {
    let logs = Logs::lock(Arc::new(disk.clone()), settings).unwrap();
    logs.open_all((0..partitions).map(|i| spec(i, config)).collect(), NOW).unwrap();
    logs
}

fn log(logs: &Logs, partition: i32) -> Arc<PartitionLog> {
    logs.get(ID, PartitionIndex(partition)).unwrap()
}

/// One record, its value `value` and filler.
fn batch(sequence: i32, bytes: usize) -> Bytes {
    let value = [&sequence.to_be_bytes()[..], &vec![7; bytes]].concat();
    BatchBuilder::new(Compression::None)
        .producer(PRODUCER, ProducerEpoch(0), sequence)
        .record(Millis(NOW.0 + i64::from(sequence)), Some(b"k"), Some(&value))
        .build()
        .unwrap()
}

/// The numbers in the records' values, in order.
fn numbers(log: &PartitionLog) -> Vec<i32> {
    let (mut from, mut seen) = (log.watermarks().log_start, Vec::new());
    loop {
        let slice = log.read(from, 20_000, true, Isolation::ReadUncommitted).unwrap();
        if slice.len == 0 {
            return seen;
        }
        let bytes = slice.bytes().unwrap();
        let mut rest = &bytes[..];
        while let Some(header) = BatchHeader::parse(rest).filter(|h| h.size().unwrap() <= rest.len()) {
            let (whole, after) = rest.split_at(header.size().unwrap());
            assert_eq!(crate::record::header::batch_crc(whole), header.crc);
            for record in BatchRecords::open(whole, 1 << 20).unwrap().iter().map(|r| r.unwrap()) {
                seen.push(i32::from_be_bytes(record.value.unwrap()[..4].try_into().unwrap()));
            }
            (from, rest) = (header.next_offset(), after);
        }
    }
}

fn is_storage_error(error: &AppendError) -> bool {
    ErrorCode::from(error) == ErrorCode::KafkaStorageError
}

#[test]
fn a_full_disk_refuses_and_the_partition_goes_on_where_it_was() {
    let disk = SimDisk::new(1);
    let logs = open(&disk, settings(&["/d"], 0), 1, &TopicConfig::default());
    let log = log(&logs, 0);
    log.append(NOW, batch(0, 500), Origin::Client).unwrap();
    let file = Path::new("/d/t-0/00000000000000000000.log");
    let whole = disk.read(file).unwrap();
    disk.set_room(Some(100));
    for _ in 0..3 {
        let refused = log.append(NOW, batch(1, 500), Origin::Client).unwrap_err();
        assert!(is_storage_error(&refused), "{refused}");
        assert_eq!(disk.read(file).unwrap(), whole, "the torn bytes are cut off");
        assert_eq!(log.offline_reason(), None);
        assert_eq!(numbers(&log), [0], "reads go on");
    }
    assert_eq!(logs.dirs()[0].status, DirStatus::LowOnSpace);
    log.append(NOW, batch(1, 1), Origin::Client).unwrap();
    assert_eq!(logs.dirs()[0].status, DirStatus::Online);
    disk.set_room(None);
    assert_eq!(log.append(NOW, batch(2, 500), Origin::Client).unwrap().base_offset, Offset(2));
    assert_eq!(numbers(&log), [0, 1, 2]);
}

#[test]
fn bytes_that_could_not_be_cut_off_are_cut_off_later() {
    let disk = SimDisk::new(1);
    let logs = open(&disk, settings(&["/d"], 0), 1, &TopicConfig::default());
    let log = log(&logs, 0);
    log.append(NOW, batch(0, 500), Origin::Client).unwrap();
    let whole = disk.read(Path::new("/d/t-0/00000000000000000000.log")).unwrap();
    disk.set_room(Some(100));
    // The write is one call; the cut after it is the next.
    disk.fail_after(1);
    assert!(log.append(NOW, batch(1, 500), Origin::Client).is_err());
    assert!(!disk.is_armed());
    assert_eq!(disk.read(Path::new("/d/t-0/00000000000000000000.log")).unwrap().len(), whole.len() + 100);
    assert_eq!(numbers(&log), [0], "they're nowhere to be seen");
    disk.set_room(None);
    log.append(NOW, batch(1, 5), Origin::Client).unwrap();
    assert_eq!(numbers(&log), [0, 1]);
    logs.close(NOW).unwrap();
    drop((log, logs));
    let logs = open(&disk, settings(&["/d"], 0), 1, &TopicConfig::default());
    assert!(logs.was_clean());
    assert_eq!(numbers(&self::log(&logs, 0)), [0, 1]);
}

/// A producer that goes on trying the same batch, on a disk whose room comes and goes, through rolls, rests, syncs and crashes.
#[test]
fn nothing_acknowledged_is_lost_while_room_comes_and_goes() {
    for seed in 0..300 {
        let mut random = Random::new(seed);
        let config = TopicConfig {
            segment_bytes: 1_500,
            index_interval_bytes: 200,
            flush_messages: if random.one_in(2) { 1 } else { i64::MAX },
            ..TopicConfig::default()
        };
        let mut disk = SimDisk::new(seed);
        let mut logs = open(&disk, settings(&["/d"], 0), 1, &config);
        let (mut next, mut refused, mut minute) = (0, 0, 0);
        for _ in 0..120 {
            if random.one_in(4) {
                disk.set_room(Some(random.below(1_500)));
            } else if random.one_in(3) {
                disk.set_room(None);
            }
            let log = self::log(&logs, 0);
            let answered = log.append(NOW, batch(next, random.below(300) as usize), Origin::Client);
            match answered.and_then(|appended| appended.sync_to.map_or(Ok(()), |to| log.sync_to(to))) {
                Ok(()) => next += 1,
                Err(error) => {
                    assert!(is_storage_error(&error), "seed {seed}: {error}");
                    assert_eq!(log.offline_reason(), None, "seed {seed}");
                    refused += 1;
                }
            }
            if random.one_in(10) {
                minute += 1;
                logs.tick(Millis(NOW.0 + minute * 61_000));
            }
            // A batch whose sync was refused may be there though nobody was told so.
            let seen = numbers(&log);
            assert!(seen == (0..next).collect::<Vec<_>>() || seen == (0..=next).collect::<Vec<_>>(), "seed {seed}: {next}, {seen:?}");
            if random.one_in(25) {
                // A start needs room; a crash doesn't.
                disk.set_room(None);
                disk = if random.one_in(2) {
                    if config.flush_messages == i64::MAX {
                        log.sync().unwrap();
                    }
                    disk.power_loss()
                } else {
                    disk.process_crash()
                };
                logs = open(&disk, settings(&["/d"], 0), 1, &config);
            }
        }
        assert!(refused > 0, "seed {seed}: no room was ever missed");
    }
}

#[test]
fn the_guard_leaves_room_and_goes_when_there_is_more() {
    const MIN: u64 = 4_000;
    let disk = SimDisk::new(1);
    disk.set_room(Some(10_000));
    let logs = open(&disk, settings(&["/d"], MIN), 1, &TopicConfig::default());
    let log = log(&logs, 0);
    let taken = (0..).take_while(|i| log.append(NOW, batch(*i, 400), Origin::Client).is_ok()).count() as i32;
    assert!((10..14).contains(&taken), "{taken} batches of about 480 bytes, with no look between");
    let refused = log.append(NOW, batch(taken, 1), Origin::Client).unwrap_err();
    assert!(matches!(&refused, AppendError::NoRoom(dir) if dir == Path::new("/d")) && is_storage_error(&refused));
    assert!(disk.free_bytes(Path::new("/d")).unwrap() > MIN - 500);
    assert_eq!(numbers(&log), (0..taken).collect::<Vec<_>>());
    log.sync().unwrap();
    logs.tick(NOW);
    assert!(log.append(NOW, batch(taken, 1), Origin::Client).is_err(), "no more room than before");
    disk.set_room(Some(20_000));
    logs.tick(NOW);
    log.append(NOW, batch(taken, 1), Origin::Client).unwrap();
    let info = &logs.dirs()[0];
    assert_eq!((&info.status, info.total_bytes, info.partitions.len()), (&DirStatus::Online, Some(1 << 40), 1));
    assert_eq!(info.partitions[0].size_bytes(), log.size_bytes());
}

#[test]
fn a_broken_directory_takes_only_its_own_partitions_along() {
    let disk = SimDisk::new(1);
    let config = TopicConfig::default();
    let logs = open(&disk, settings(&["/a", "/b"], 0), 6, &config);
    (0..6).for_each(|i| {
        log(&logs, i).append(NOW, batch(0, 10), Origin::Client).unwrap();
    });
    disk.break_below(Path::new("/b"));
    logs.tick(NOW);
    let [a, b] = &logs.dirs()[..] else { panic!() };
    assert_eq!((a.partitions.len(), b.partitions.len()), (3, 3));
    assert_eq!(b.status, DirStatus::Online, "nobody has noticed");
    assert!(is_storage_error(&b.partitions[0].append(NOW, batch(1, 10), Origin::Client).unwrap_err()));
    logs.tick(NOW);
    assert!(matches!(&logs.dirs()[1].status, DirStatus::Failed(why) if why.contains("simulated")));
    for log in &b.partitions {
        assert!(is_storage_error(&log.append(NOW, batch(1, 10), Origin::Client).unwrap_err()));
        assert_eq!(numbers(log), [0]);
    }
    for log in &a.partitions {
        log.append(NOW, batch(1, 10), Origin::Client).unwrap();
    }
    assert_eq!(logs.dirs()[0].status, DirStatus::Online);
    (6..9).for_each(|i| {
        logs.create(spec(i, &config), NOW).unwrap().append(NOW, batch(0, 10), Origin::Client).unwrap();
    });
    assert_eq!((logs.dirs()[0].partitions.len(), logs.dirs()[1].partitions.len()), (6, 3));
}

#[test]
fn one_file_that_fails_is_not_the_whole_directory() {
    let disk = SimDisk::new(1);
    let logs = open(&disk, settings(&["/d"], 0), 2, &TopicConfig::default());
    disk.fail_after(0);
    assert!(log(&logs, 0).append(NOW, batch(0, 10), Origin::Client).is_err());
    logs.tick(NOW);
    assert!(log(&logs, 0).offline_reason().is_some());
    log(&logs, 1).append(NOW, batch(0, 10), Origin::Client).unwrap();
    assert_eq!(logs.dirs()[0].status, DirStatus::Online);
}

#[test]
fn few_partitions_sync_side_by_side_and_many_in_rounds() {
    for seed in 0..8 {
        let disk = SimDisk::new(seed);
        let config = TopicConfig { flush_messages: 1, ..TopicConfig::default() };
        let logs = open(&disk, settings(&["/d"], 0), 20, &config);
        (0..20).for_each(|i| {
            log(&logs, i).append(NOW, batch(0, 10), Origin::Client).unwrap();
            log(&logs, i).sync().unwrap();
        });
        let waiter = watch::Waiter::new();
        let (mut waits, mut runs) = (Vec::new(), Vec::new());
        for (sequence, i) in (0..20).map(|i| (1, i)).chain((0..20).map(|i| (2, i))) {
            let appended = log(&logs, i).append(NOW, batch(sequence, 10), Origin::Client).unwrap();
            let (wait, run) = log(&logs, i).ask_sync(appended.sync_to.unwrap(), &waiter);
            waits.push(wait);
            runs.extend(run);
        }
        assert_eq!(runs.len(), 17, "sixteen on their own, one that runs the rounds of all others");
        assert!(waits.iter().all(|wait| wait.outcome().is_none()));
        let before = disk.syncs();
        runs.pop().unwrap().run();
        // A simulated disk can sync everything at once half of the time.
        let in_round = disk.syncs() - before;
        assert!(in_round == 0 || in_round == 4, "{in_round} syncs of files");
        assert!(waits.iter().skip(16).take(4).all(|wait| matches!(wait.outcome(), Some(Ok(())))));
        runs.into_iter().for_each(SyncRun::run);
        assert!(waits.iter().all(|wait| matches!(wait.outcome(), Some(Ok(())))), "two acknowledgements each share a sync");
        let after = disk.power_loss();
        for i in 0..20 {
            let name = format!("/d/t-{i}/00000000000000000000.log");
            assert_eq!(after.read(Path::new(&name)).unwrap().len() as u64, log(&logs, i).size_bytes());
        }
        let (wait, run) = log(&logs, 1).ask_sync(Offset(3), &waiter);
        assert!(run.is_none() && matches!(wait.outcome(), Some(Ok(()))), "nothing to do");
    }
}

#[test]
fn a_failed_sync_is_final_and_only_its_own() {
    let disk = SimDisk::new(1);
    let config = TopicConfig { flush_messages: 1, ..TopicConfig::default() };
    let logs = open(&disk, settings(&["/d"], 0), 20, &config);
    let waiter = watch::Waiter::new();
    let asked: Vec<_> = (0..20)
        .map(|i| {
            let appended = log(&logs, i).append(NOW, batch(0, 10), Origin::Client).unwrap();
            log(&logs, i).ask_sync(appended.sync_to.unwrap(), &waiter)
        })
        .collect();
    let (waits, runs): (Vec<_>, Vec<_>) = asked.into_iter().unzip();
    // Whether it's the one of everything, or else one file's: at most one partition is to blame.
    disk.fail_after(0);
    runs.into_iter().flatten().for_each(SyncRun::run);
    let refused = waits.iter().filter(|wait| matches!(wait.outcome(), Some(Err(error)) if is_storage_error(&error))).count();
    let served = waits.iter().filter(|wait| matches!(wait.outcome(), Some(Ok(())))).count();
    assert_eq!((refused, served), (1, 19));
    assert!(log(&logs, 0).offline_reason().is_some(), "a failed sync is final");
}

#[test]
fn a_sync_without_room_for_the_epochs_is_refused_and_tried_again() {
    let disk = SimDisk::new(1);
    let config = TopicConfig { flush_messages: 1, ..TopicConfig::default() };
    let logs = open(&disk, settings(&["/d"], 0), 1, &config);
    let log = log(&logs, 0);
    let waiter = watch::Waiter::new();
    let appended = log.append(NOW, batch(0, 10), Origin::Client).unwrap();
    disk.set_room(Some(0));
    let (wait, run) = log.ask_sync(appended.sync_to.unwrap(), &waiter);
    run.unwrap().run();
    assert!(matches!(wait.outcome(), Some(Err(error)) if is_storage_error(&error)));
    assert_eq!(log.offline_reason(), None);
    disk.set_room(None);
    let again = log.append(NOW, batch(0, 10), Origin::Client).unwrap();
    assert!(again.duplicate);
    let (wait, run) = log.ask_sync(again.sync_to.unwrap(), &waiter);
    run.unwrap().run();
    assert!(matches!(wait.outcome(), Some(Ok(()))));
    assert_eq!(numbers(&log), [0]);
}

#[test]
fn retention_makes_room_on_a_full_disk() {
    let disk = SimDisk::new(1);
    let config = TopicConfig { segment_bytes: 2_000, retention_bytes: 4_000, file_delete_delay_ms: 0, ..TopicConfig::default() };
    let logs = open(&disk, settings(&["/d"], 0), 1, &config);
    let log = log(&logs, 0);
    disk.set_room(Some(12_000));
    let fill = |from: i32| (from..).find(|i| log.append(NOW, batch(*i, 500), Origin::Client).is_err()).unwrap();
    let full = fill(0);
    logs.tick(NOW);
    assert!(log.append(NOW, batch(full, 500), Origin::Client).is_err());
    assert!(logs.retain(NOW) > 0);
    logs.tick(NOW.plus(1));
    assert!(fill(full) > full, "it takes batches again");
    let start = log.watermarks().log_start.0 as i32;
    assert!(start > 0 && numbers(&log) == (start..numbers(&log).last().unwrap() + 1).collect::<Vec<_>>());
}

#[test]
fn retention_needs_no_room_at_all() {
    for (retention_bytes, rest) in [(4_000, 4_000), (0, 2_000)] {
        let disk = SimDisk::new(1);
        let config = TopicConfig { segment_bytes: 2_000, retention_bytes, file_delete_delay_ms: 0, ..TopicConfig::default() };
        let logs = open(&disk, settings(&["/d"], 0), 1, &config);
        let log = log(&logs, 0);
        // Nothing is durable yet, the epochs' file not even written.
        (0..15).for_each(|i| _ = log.append(NOW, batch(i, 500), Origin::Client).unwrap());
        disk.set_room(Some(0));
        assert!(logs.retain(NOW) > 0, "with {retention_bytes} to keep");
        assert_eq!(log.offline_reason(), None);
        assert!(log.size_bytes() <= rest + 2_000);
        logs.tick(NOW.plus(1));
        let start = log.watermarks().log_start;
        drop((log, logs));
        let logs = open(&disk.power_loss(), settings(&["/d"], 0), 1, &config);
        let log = self::log(&logs, 0);
        assert!(log.watermarks().log_start >= start);
    }
}
