//! The log against real files: what is written is what Kafka writes, and what is left is what opens.

use super::{
    io::{Disk, RealDisk},
    *,
};
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
