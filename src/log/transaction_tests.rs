//! Transactions on one partition, end to end: who may open one, what readers of each isolation see, and what is left after restarts,
//! rolls, compaction, retention and DeleteRecords.

use super::{io::RealDisk, *};
use crate::{
    config::TopicConfig,
    record::{BatchHeader, BatchRecords, EndTxnMarker, builder::BatchBuilder, header::Compression},
    types::*,
};
use bytes::Bytes;
use std::{collections::HashMap, path::Path, sync::Arc};

const NOW: Millis = Millis(1_700_000_000_000);
const ID: TopicId = TopicId(uuid::Uuid::from_u128(7));

fn open(dir: &Path, config: &TopicConfig) -> (Logs, Arc<PartitionLog>) {
    let settings = LogSettings { dirs: vec![dir.to_owned()], ..LogSettings::default() };
    let logs = Logs::lock(Arc::new(RealDisk), settings).unwrap();
    let topic = TopicPartition { topic: TopicName::new("t").unwrap(), partition: PartitionIndex(0) };
    let spec = PartitionSpec { topic, topic_id: ID, config: Arc::new(config.clone()), leader_epoch: LeaderEpoch(0) };
    logs.open_all(vec![spec], NOW).unwrap();
    let log = logs.get(ID, PartitionIndex(0)).unwrap();
    (logs, log)
}

/// A batch of a producer's transaction; its records' values are the producer's id.
fn data(producer: i64, epoch: i16, sequence: i32, count: i64, at: Millis) -> Bytes {
    let value = producer.to_string();
    let builder = BatchBuilder::new(Compression::None).producer(ProducerId(producer), ProducerEpoch(epoch), sequence).transactional();
    (0..count).fold(builder, |b, i| b.record(at, Some(i.to_string().as_bytes()), Some(value.as_bytes()))).build().unwrap()
}

fn plain(value: &str) -> Bytes {
    BatchBuilder::new(Compression::None).record(NOW, Some(b"k"), Some(value.as_bytes())).build().unwrap()
}

fn write(log: &PartitionLog, producer: i64, sequence: i32, count: i64) -> Offset {
    let guard = log.begin_verification(NOW, ProducerId(producer), ProducerEpoch(0), sequence, false).unwrap();
    let origin = Origin::ClientInTransaction(Proof::of(guard));
    log.append(NOW, data(producer, 0, sequence, count, NOW), origin).unwrap().base_offset
}

fn end(log: &PartitionLog, producer: i64, epoch: i16, commit: bool, version: i16) -> Result<Offset, AppendError> {
    let marker = EndTxnMarker { commit, coordinator_epoch: 0 };
    log.end_transaction(NOW, ProducerId(producer), ProducerEpoch(epoch), marker, version).map(|appended| appended.base_offset)
}

/// What a consumer sees: it reads in steps of `bytes`, and drops control batches and what belongs to the aborted transactions it was
/// told of, as Kafka's clients do.
fn consume(log: &PartitionLog, isolation: Isolation, bytes: usize) -> Vec<(i64, String)> {
    let (mut from, mut seen) = (log.watermarks().log_start, Vec::new());
    loop {
        let slice = log.read(from, bytes, true, isolation).unwrap();
        if slice.len == 0 {
            return seen;
        }
        let mut aborts: Vec<_> = slice.aborted.clone();
        aborts.sort_by_key(|txn| txn.first_offset);
        let mut aborting: HashMap<i64, ()> = HashMap::new();
        let copied = slice.bytes().unwrap();
        let mut rest = &copied[..];
        while let Some(header) = BatchHeader::parse(rest).filter(|h| h.size().unwrap() <= rest.len()) {
            let (whole, after) = rest.split_at(header.size().unwrap());
            (rest, from) = (after, header.next_offset());
            while aborts.first().is_some_and(|txn| txn.first_offset <= header.last_offset()) {
                aborting.insert(aborts.remove(0).producer_id.0, ());
            }
            if header.is_control() {
                aborting.remove(&header.producer_id.0);
                continue;
            }
            if header.is_transactional() && aborting.contains_key(&header.producer_id.0) {
                continue;
            }
            let records = BatchRecords::open(whole, 1 << 20).unwrap();
            let text = |value: Option<&[u8]>| String::from_utf8(value.unwrap().to_vec()).unwrap();
            seen.extend(records.iter().map(|r| r.unwrap()).map(|r| (r.offset.0, text(r.value))));
        }
    }
}

fn values(log: &PartitionLog, isolation: Isolation) -> Vec<String> {
    let all: Vec<_> = [1, 200, 1 << 20].map(|bytes| consume(log, isolation, bytes)).into();
    assert!(all.windows(2).all(|two| two[0] == two[1]), "however much is read at once: {all:?}");
    all[0].iter().map(|(_, value)| value.clone()).collect()
}

#[test]
fn committed_readers_see_what_was_committed_whole_and_in_order() {
    let dir = tempfile::tempdir().unwrap();
    let config = TopicConfig { segment_bytes: 400, index_interval_bytes: 50, ..TopicConfig::default() };
    let check = |log: &PartitionLog| {
        assert_eq!(values(log, Isolation::ReadCommitted), ["1", "1", "a", "1", "3", "3"]);
        let uncommitted = values(log, Isolation::ReadUncommitted);
        assert_eq!(uncommitted, ["1", "1", "2", "a", "2", "1", "3", "3", "4", "b"]);
        let marks = log.watermarks();
        assert_eq!((marks.last_stable, marks.high_watermark), (Offset(11), Offset(13)), "producer 4's first record");
    };
    {
        let (logs, log) = open(dir.path(), &config);
        write(&log, 1, 0, 2);
        write(&log, 2, 0, 1);
        log.append(NOW, plain("a"), Origin::Client).unwrap();
        assert_eq!(values(&log, Isolation::ReadCommitted), [""; 0]);
        write(&log, 2, 1, 1);
        write(&log, 1, 2, 1);
        end(&log, 1, 0, true, 0).unwrap();
        assert_eq!(log.watermarks().last_stable, Offset(2), "producer 2 is still open");
        end(&log, 2, 0, false, 0).unwrap();
        write(&log, 3, 0, 2);
        end(&log, 3, 0, true, 0).unwrap();
        write(&log, 4, 0, 1);
        log.append(NOW, plain("b"), Origin::Client).unwrap();
        assert!(log.segment_count() >= 3, "{}", log.segment_count());
        check(&log);
        logs.close(NOW).unwrap();
    }
    let (logs, log) = open(dir.path(), &config);
    assert!(logs.was_clean());
    check(&log);
    drop((logs, log));
    let (logs, log) = open(dir.path(), &config);
    assert!(!logs.was_clean());
    check(&log);
    let open_now = log.open_transactions(10).unwrap();
    assert_eq!(open_now.iter().map(|txn| (txn.producer_id.0, txn.first_offset.0, txn.started)).collect::<Vec<_>>(), [(4, 11, NOW)]);
    end(&log, 4, 0, false, 0).unwrap();
    assert_eq!(values(&log, Isolation::ReadCommitted), ["1", "1", "a", "1", "3", "3", "b"]);
    assert_eq!(log.open_transactions(10).unwrap(), []);
}

#[test]
fn only_a_transaction_that_its_coordinator_knows_is_opened() {
    let dir = tempfile::tempdir().unwrap();
    let (_logs, log) = open(dir.path(), &TopicConfig::default());
    let (id, epoch) = (ProducerId(1), ProducerEpoch(0));
    let first = data(1, 0, 0, 1, NOW);
    assert!(matches!(log.append(NOW, first.clone(), Origin::Client), Err(AppendError::InvalidTxnState(_))));
    let stale = log.begin_verification(NOW, id, epoch, 0, false).unwrap().unwrap();
    end(&log, 1, 0, false, 0).unwrap();
    let late = log.append(NOW, first.clone(), Origin::ClientInTransaction(Proof::Guarded(stale)));
    assert!(matches!(late, Err(AppendError::InvalidTxnState(_))), "its transaction has ended since it was asked for: {late:?}");
    let guard = log.begin_verification(NOW, id, epoch, 0, false).unwrap();
    log.append(NOW, first.clone(), Origin::ClientInTransaction(Proof::of(guard))).unwrap();
    assert_eq!(log.begin_verification(NOW, id, epoch, 1, false).unwrap(), None, "it is open");
    assert!(log.append(NOW, first, Origin::Client).unwrap().duplicate);
    log.append(NOW, data(1, 0, 1, 1, NOW), Origin::Client).unwrap();
    end(&log, 1, 0, true, 0).unwrap();
    assert!(matches!(log.append(NOW, data(1, 0, 2, 1, NOW), Origin::Client), Err(AppendError::InvalidTxnState(_))));
    end(&log, 1, 1, false, 0).unwrap();
    assert!(matches!(log.begin_verification(NOW, id, epoch, 3, false), Err(AppendError::FencedProducer { .. })));
}

#[test]
fn a_later_batch_waits_for_the_first_whose_verification_failed() {
    let dir = tempfile::tempdir().unwrap();
    let (_logs, log) = open(dir.path(), &TopicConfig::default());
    let (id, epoch) = (ProducerId(1), ProducerEpoch(0));
    log.begin_verification(NOW, id, epoch, 0, false).unwrap();
    let guard = Proof::of(log.begin_verification(NOW, id, epoch, 1, false).unwrap());
    let ahead = log.append(NOW, data(1, 0, 1, 1, NOW), Origin::ClientInTransaction(guard));
    assert!(matches!(ahead, Err(AppendError::OutOfOrderSequence { got: 1, expected: 0, .. })), "{ahead:?}");
    log.append(NOW, data(1, 0, 0, 1, NOW), Origin::ClientInTransaction(guard)).unwrap();
    log.append(NOW, data(1, 0, 1, 1, NOW), Origin::Client).unwrap();
    // A client that bumps its epoch with each transaction begins each at sequence 0.
    let other = ProducerId(2);
    let guard = Proof::of(log.begin_verification(NOW, other, epoch, 4, true).unwrap());
    let refused = log.append(NOW, data(2, 0, 4, 1, NOW), Origin::ClientInTransaction(guard));
    assert!(matches!(refused, Err(AppendError::OutOfOrderSequence { got: 4, expected: 0, .. })), "{refused:?}");
}

#[test]
fn markers_of_version_2_must_raise_the_epoch() {
    let dir = tempfile::tempdir().unwrap();
    let (_logs, log) = open(dir.path(), &TopicConfig::default());
    write(&log, 1, 0, 1);
    assert!(matches!(end(&log, 1, 0, true, 2), Err(AppendError::FencedProducer { .. })), "of another transaction, and late");
    end(&log, 1, 1, true, 2).unwrap();
    end(&log, 1, 1, true, 2).unwrap();
    assert!(matches!(end(&log, 1, 0, true, 2), Err(AppendError::FencedProducer { .. })));
    assert!(matches!(end(&log, 1, 0, true, 0), Err(AppendError::FencedProducer { .. })));
    // The question of the next transaction, in its raised epoch, outlives the marker that comes again.
    let guard = log.begin_verification(NOW, ProducerId(1), ProducerEpoch(1), 0, true).unwrap();
    end(&log, 1, 1, true, 2).unwrap();
    log.append(NOW, data(1, 1, 0, 1, NOW), Origin::ClientInTransaction(Proof::of(guard))).unwrap();
    assert!(matches!(end(&log, 1, 1, true, 2), Err(AppendError::FencedProducer { .. })), "it would end the one that has begun since");
    assert_eq!(log.open_transactions(1).unwrap().len(), 1);
}

#[test]
fn an_old_coordinator_is_fenced_after_a_restart_too() {
    let dir = tempfile::tempdir().unwrap();
    let at_epoch = |log: &PartitionLog, coordinator_epoch| {
        let marker = EndTxnMarker { commit: true, coordinator_epoch };
        log.end_transaction(NOW, ProducerId(1), ProducerEpoch(0), marker, 0)
    };
    {
        let (logs, log) = open(dir.path(), &TopicConfig::default());
        write(&log, 1, 0, 1);
        at_epoch(&log, 5).unwrap();
        logs.close(NOW).unwrap();
    }
    let (_logs, log) = open(dir.path(), &TopicConfig::default());
    write(&log, 1, 1, 1);
    let fenced = at_epoch(&log, 4).unwrap_err();
    assert_eq!(ErrorCode::from(&fenced), ErrorCode::TransactionCoordinatorFenced);
    at_epoch(&log, 5).unwrap();
}

#[test]
fn an_open_transaction_outlives_its_deleted_records() {
    let dir = tempfile::tempdir().unwrap();
    let (logs, log) = open(dir.path(), &TopicConfig::default());
    write(&log, 1, 0, 1);
    log.append(NOW, plain("a"), Origin::Client).unwrap();
    logs.delete_records(&[(log.clone(), Offset(2))]).remove(0).unwrap();
    assert_eq!(log.watermarks().last_stable, Offset(2), "never below the log's start");
    let held = log.open_transactions(1).unwrap();
    assert_eq!((held[0].first_offset, held[0].started), (Offset(0), NOW));
    log.append(NOW, plain("b"), Origin::Client).unwrap();
    assert_eq!(values(&log, Isolation::ReadCommitted), [""; 0], "it holds readers back until it ends");
    end(&log, 1, 0, false, 0).unwrap();
    assert_eq!(values(&log, Isolation::ReadCommitted), ["b"]);
}
