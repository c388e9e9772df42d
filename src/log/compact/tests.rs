//! Compaction against a plain model: a list of batches and what stays of each, by what the test knows of keys, transactions and producers.

use super::{super::*, *};
use crate::{
    config::{CompressionType, TopicConfig},
    log::{
        files::Kind,
        io::{Disk, sim::SimDisk},
    },
    record::{BatchBuilder, BatchHeader, BatchRecords, Compression, EndTxnMarker, TimestampType, builder},
    sim::{Random, for_each_seed},
    types::*,
};
use std::{
    collections::{BTreeMap, BTreeSet},
    path::Path,
    sync::Arc,
};

/// A record: offset, timestamp, key and value.
type Plain = (i64, i64, Vec<u8>, Option<Vec<u8>>);

#[derive(Clone, PartialEq, Eq, Debug)]
struct Batch {
    base: i64,
    last: i64,
    producer: i64,
    sequence: i32,
    is_control: bool,
    records: Vec<Plain>,
    horizon: Option<i64>,
    max_timestamp: i64,
    /// Which transaction it is of: the model's own, batches as read have none.
    txn: Option<usize>,
}

#[derive(Default)]
struct Model {
    batches: Vec<Batch>,
    log_end: i64,
    /// Whether each transaction was aborted; `None` while it's open.
    txns: Vec<Option<bool>>,
    open: BTreeMap<i64, usize>,
    sequences: BTreeMap<i64, i32>,
}

impl Model {
    fn is_aborted(&self, batch: &Batch) -> bool {
        batch.txn.is_some_and(|txn| self.txns[txn] == Some(true))
    }

    /// What a cleaning of `from..to` leaves, if its map held all keys.
    fn compact(&mut self, from: i64, to: i64, now: i64, config: &TopicConfig) {
        let mut newest: BTreeMap<Vec<u8>, i64> = BTreeMap::new();
        for batch in self.batches.iter().filter(|b| !b.is_control && !self.is_aborted(b)) {
            for (offset, _, key, _) in batch.records.iter().filter(|r| (from..to).contains(&r.0)) {
                newest.insert(key.clone(), *offset);
            }
        }
        let mut last_of: BTreeMap<i64, i64> = BTreeMap::new();
        for batch in self.batches.iter().filter(|b| b.producer >= 0 && !b.is_control) {
            last_of.insert(batch.producer, batch.last);
        }
        let marker_only: BTreeSet<i64> = self.batches.iter().map(|b| b.producer).filter(|p| !last_of.contains_key(p)).collect();
        let with_data: BTreeSet<usize> = self.batches.iter().filter(|b| !b.is_control).filter_map(|b| b.txn).collect();
        let aborted: Vec<bool> = self.batches.iter().map(|b| self.is_aborted(b)).collect();
        let mut left = Vec::new();
        for (mut batch, is_aborted) in std::mem::take(&mut self.batches).into_iter().zip(aborted) {
            if batch.base >= to {
                left.push(batch);
                continue;
            }
            let expired = batch.horizon.is_some_and(|horizon| horizon <= now);
            let is_idle = batch.is_control && (batch.records.is_empty() || batch.txn.is_none_or(|txn| !with_data.contains(&txn)));
            batch.records.retain(|(offset, _, key, value)| {
                if batch.is_control {
                    return !(is_idle && expired);
                }
                let is_newest = newest.get(key).is_none_or(|newest| offset >= newest);
                !is_aborted && is_newest && (value.is_some() || !expired)
            });
            let is_last = last_of.get(&batch.producer) == Some(&batch.last) || batch.is_control && marker_only.contains(&batch.producer);
            if batch.records.is_empty() {
                batch.horizon = None;
                if is_last && batch.producer >= 0 || batch.last + 1 == to {
                    left.push(batch);
                }
                continue;
            }
            let has_tombstone = !batch.is_control && batch.records.iter().any(|r| r.3.is_none());
            if batch.horizon.is_none() && (has_tombstone || is_idle) {
                batch.horizon = Some(now + config.delete_retention_ms);
            }
            if config.message_timestamp_type == TimestampType::CreateTime {
                batch.max_timestamp = batch.records.iter().map(|r| r.1).max().unwrap();
            }
            left.push(batch);
        }
        self.batches = left;
    }

    fn without_txns(&self) -> Vec<Batch> {
        self.batches.iter().cloned().map(|b| Batch { txn: None, ..b }).collect()
    }

    fn stable(&self) -> i64 {
        let first_of = |txn: &usize| self.batches.iter().find(|b| b.txn == Some(*txn)).map(|b| b.base);
        self.open.values().filter_map(first_of).min().unwrap_or(self.log_end)
    }
}

struct World {
    random: Random,
    disk: SimDisk,
    logs: Option<Logs>,
    config: Arc<TopicConfig>,
    settings: CompactSettings,
    model: Model,
    now: Millis,
    keys: u64,
}

impl World {
    fn new(seed: u64) -> Self {
        let mut random = Random::new(seed);
        let codecs = [CompressionType::Producer, CompressionType::Codec(Compression::Zstd), CompressionType::Codec(Compression::None)];
        let config = TopicConfig {
            cleanup_compact: true,
            cleanup_delete: false,
            segment_bytes: 700 + random.below(1_500) as usize,
            index_interval_bytes: random.below(300) as usize,
            compression_type: codecs[random.below(3) as usize],
            delete_retention_ms: [0, 5_000, 50_000][random.below(3) as usize],
            message_timestamp_type: if random.one_in(5) { TimestampType::LogAppendTime } else { TimestampType::CreateTime },
            message_timestamp_after_max_ms: i64::MAX,
            ..TopicConfig::default()
        };
        let settings = CompactSettings { io_buffer_bytes: 2 * random.below(4_000) as usize, ..CompactSettings::default() };
        let keys = 1 + random.below(12);
        let disk = SimDisk::new(random.number());
        Self { random, disk, logs: None, config: Arc::new(config), settings, model: Model::default(), now: Millis(1_000_000), keys }
    }

    fn open(&mut self) {
        let settings =
            LogSettings { dirs: vec!["/d".into()], producer_id_expiration_ms: i64::MAX, recovery_threads: 1, ..LogSettings::default() };
        let logs = Logs::lock(Arc::new(self.disk.clone()), settings).unwrap();
        let topic = TopicPartition { topic: TopicName::new("t").unwrap(), partition: PartitionIndex(0) };
        let config = Arc::clone(&self.config);
        logs.open_all(vec![PartitionSpec { topic, topic_id: topic_id(), config, leader_epoch: LeaderEpoch(3) }], self.now).unwrap();
        self.logs = Some(logs);
    }

    fn log(&self) -> Arc<PartitionLog> {
        self.logs.as_ref().unwrap().get(topic_id(), PartitionIndex(0)).unwrap()
    }

    fn key(&mut self) -> Vec<u8> {
        format!("key-{}", self.random.below(self.keys)).into_bytes()
    }

    /// Appends a batch of `producer` (−1: none; 1 and 2 idempotent; 3 and 4 transactional), or ends its transaction.
    fn append(&mut self) {
        let producer = [-1, -1, 1, 2, 3, 4][self.random.below(6) as usize];
        if producer >= 3 && self.random.one_in(3) {
            return self.end_txn(producer);
        }
        let codecs = [Compression::None, Compression::Gzip, Compression::Snappy, Compression::Lz4, Compression::Zstd];
        let mut builder = BatchBuilder::new(codecs[self.random.below(5) as usize]);
        let sequence = self.model.sequences.get(&producer).copied().unwrap_or(0);
        if producer >= 0 {
            builder = builder.producer(ProducerId(producer), ProducerEpoch(0), sequence);
        }
        if producer >= 3 {
            builder = builder.transactional();
        }
        let base = self.model.log_end;
        let is_stamped = self.config.message_timestamp_type == TimestampType::LogAppendTime;
        let records: Vec<Plain> = (0..1 + self.random.below(5) as i64)
            .map(|i| {
                let value =
                    (!self.random.one_in(4)).then(|| format!("value-{}-{}", base + i, "x".repeat(self.random.below(60) as usize)).into());
                let timestamp = self.now.0 - self.random.below(2_000) as i64;
                (base + i, if is_stamped { self.now.0 } else { timestamp }, self.key(), value)
            })
            .collect();
        for (_, timestamp, key, value) in &records {
            builder.append(Millis(*timestamp), Some(key), value.as_deref(), &[(b"h", None)]);
        }
        let origin = if producer >= 3 { Origin::ClientInTransaction(Proof::Unchecked) } else { Origin::Client };
        let appended = self.log().append(self.now, builder.build().unwrap(), origin).unwrap();
        assert_eq!(appended.base_offset.0, base);
        let count = records.len() as i32;
        let max_timestamp = records.iter().map(|r| r.1).max().unwrap();
        let txn = (producer >= 3).then(|| {
            let txns = &mut self.model.txns;
            *self.model.open.entry(producer).or_insert_with(|| {
                txns.push(None);
                txns.len() - 1
            })
        });
        let (last, sequence) = (appended.last_offset.0, if producer >= 0 { sequence } else { -1 });
        self.model.batches.push(Batch { base, last, producer, sequence, is_control: false, records, horizon: None, max_timestamp, txn });
        *self.model.sequences.entry(producer).or_default() += count;
        self.model.log_end = last + 1;
    }

    fn end_txn(&mut self, producer: i64) {
        let commit = self.random.one_in(2);
        let marker = EndTxnMarker { commit, coordinator_epoch: 0 };
        let batch = builder::end_txn_batch(ProducerId(producer), ProducerEpoch(0), marker, self.now);
        let base = self.log().append(self.now, batch, Origin::Coordinator).unwrap().base_offset.0;
        let txn = self.model.open.remove(&producer);
        if let Some(txn) = txn {
            self.model.txns[txn] = Some(!commit);
        }
        let (key, value) = marker.encode();
        let records = vec![(base, self.now.0, key.to_vec(), Some(value.to_vec()))];
        let max_timestamp = self.now.0;
        self.model.batches.push(Batch {
            base,
            last: base,
            producer,
            sequence: -1,
            is_control: true,
            records,
            horizon: None,
            max_timestamp,
            txn,
        });
        self.model.log_end = base + 1;
    }

    fn compact(&mut self) -> Cleaned {
        let log = self.log();
        let dirt = log.dirt(self.now).unwrap();
        let cleaned = log.compact(&self.settings, self.now, &|_| true).unwrap();
        assert_eq!((cleaned.from, cleaned.upper), (dirt.first_dirty, dirt.first_uncleanable));
        assert!(cleaned.to <= log.watermarks().last_stable && log.watermarks().last_stable.0 == self.model.stable());
        if cleaned.to > cleaned.from {
            self.model.compact(cleaned.from.0, cleaned.to.0, self.now.0, &self.config);
        }
        self.check();
        cleaned
    }

    fn check(&self) {
        let log = self.log();
        assert_eq!(log.watermarks().log_end.0, self.model.log_end);
        let (seen, due) = (read_all(&log), self.model.without_txns());
        let differs = (0..seen.len().max(due.len())).find(|i| seen.get(*i) != due.get(*i));
        if let Some(i) = differs {
            panic!("batch {i}:\n saw {:?}\n due {:?}", seen.get(i), due.get(i));
        }
    }

    /// Any offset yields the batch with the next record that is left.
    fn check_reads(&self) {
        let log = self.log();
        for from in 0..self.model.log_end {
            let due = self.model.batches.iter().find(|b| b.last >= from).map(|b| b.base);
            let bytes = log.read(Offset(from), 0, true, Isolation::ReadUncommitted).unwrap().bytes().unwrap();
            assert_eq!(BatchHeader::parse(&bytes).map(|h| h.base_offset.0), due, "from {from}");
        }
        for target in (self.now.0 - 3_000..self.now.0).step_by(97) {
            let all = self.model.batches.iter().flat_map(|b| &b.records);
            let due = all.clone().find(|r| r.1 >= target).map(|r| r.0);
            assert_eq!(log.offset_for_time(Millis(target)).unwrap().map(|t| t.offset.0), due, "at {target}");
            let max = all.clone().map(|r| r.1).max();
            let due = all.clone().find(|r| Some(r.1) == max).map(|r| r.0);
            assert_eq!(log.offset_of_max_timestamp().unwrap().map(|t| t.offset.0), due);
        }
    }

    /// The aborted transactions that a consumer is told of hide exactly the aborted records.
    fn check_committed(&self) {
        let slice = self.log().read(Offset(0), usize::MAX >> 1, true, Isolation::ReadCommitted).unwrap();
        let due = self.model.batches.iter().filter(|b| self.model.is_aborted(b) && !b.is_control && b.base < self.model.stable());
        let hides = |b: &Batch| {
            slice.aborted.iter().any(|t| t.producer_id.0 == b.producer && (t.first_offset.0..t.last_offset.0).contains(&b.base))
        };
        let committed = self.model.batches.iter().filter(|b| b.producer >= 3 && !b.is_control && !self.model.is_aborted(b));
        if slice.len as u64 == self.log().size_bytes() {
            assert!(due.clone().all(hides), "an aborted batch would be shown");
        }
        assert_eq!(committed.filter(|b| hides(b)).count(), 0, "a committed batch would be hidden");
    }

    /// Without snapshots and recovery points all that is known of producers comes from what compaction left.
    fn check_producers(&mut self) {
        let known = |log: &PartitionLog| log.producers().iter().map(|p| (p.producer_id, p.epoch, p.last_sequence())).collect::<Vec<_>>();
        let before = known(&self.log());
        let stable = self.log().watermarks().last_stable;
        self.logs.take().unwrap().close(self.now).unwrap();
        for name in ["recovery-point-offset-checkpoint", ".kafka_cleanshutdown"] {
            self.disk.remove_file(&Path::new("/d").join(name)).unwrap();
        }
        for entry in self.disk.list(Path::new("/d/t-0")).unwrap() {
            if matches!(files::parse(&entry.name), Some((_, Kind::Snapshot | Kind::TxnIndex, _))) {
                self.disk.remove_file(&Path::new("/d/t-0").join(entry.name)).unwrap();
            }
        }
        self.open();
        assert_eq!(known(&self.log()), before);
        assert_eq!(self.log().watermarks().last_stable, stable);
        self.check();
        self.check_committed();
    }

    fn files(&self) -> Vec<(String, Vec<u8>)> {
        let dir = Path::new("/d/t-0");
        let logs = self.disk.list(dir).unwrap().into_iter().map(|e| e.name).filter(|name| name.ends_with(".log"));
        logs.map(|name| (name.clone(), self.disk.read(&dir.join(name)).unwrap())).collect()
    }
}

fn topic_id() -> TopicId {
    TopicId(uuid::Uuid::from_u128(9))
}

fn read_all(log: &PartitionLog) -> Vec<Batch> {
    let mut batches = Vec::new();
    let mut from = Offset(0);
    loop {
        let bytes = log.read(from, 0, true, Isolation::ReadUncommitted).unwrap().bytes().unwrap();
        let Some(header) = BatchHeader::parse(&bytes) else { return batches };
        assert_eq!(crate::record::header::batch_crc(&bytes), header.crc);
        assert_eq!(header.leader_epoch, LeaderEpoch(3));
        let opened = BatchRecords::open(&bytes, 1 << 20).unwrap();
        let record = |r: crate::record::Record<'_>| {
            assert!(header.is_control() || r.headers.count() == 1);
            (r.offset.0, r.timestamp.0, r.key.unwrap().to_vec(), r.value.map(<[u8]>::to_vec))
        };
        batches.push(Batch {
            base: header.base_offset.0,
            last: header.last_offset().0,
            producer: header.producer_id.0,
            sequence: header.base_sequence,
            is_control: header.is_control(),
            records: opened.iter().map(|r| record(r.unwrap())).collect(),
            horizon: header.delete_horizon().map(|h| h.0),
            max_timestamp: header.max_timestamp.0,
            txn: None,
        });
        from = header.next_offset();
    }
}

fn run(seed: u64) {
    let mut world = World::new(seed);
    world.open();
    for _ in 0..5 {
        for _ in 0..world.random.below(60) {
            world.append();
            world.now = world.now.plus(world.random.below(300) as i64);
        }
        world.now = world.now.plus([0, 6_000, 60_000][world.random.below(3) as usize]);
        world.compact();
        let before = world.files();
        // All of it once more at the same time: nothing is left to be done but for what has lost its last batch by now.
        world.log().compaction.set_cleaned(None);
        world.compact();
        world.log().compaction.set_cleaned(None);
        world.compact();
        if world.config.delete_retention_ms > 0 {
            let settled = world.files();
            world.log().compaction.set_cleaned(None);
            world.compact();
            assert_eq!(world.files(), settled, "cleaning what is clean changes nothing");
        }
        drop(before);
        world.check_reads();
        world.check_committed();
        if world.random.one_in(2) {
            world.check_producers();
        }
    }
}

#[test]
fn what_is_left_is_exactly_the_models() {
    for_each_seed(60, run);
}

/// The newest value of each key that is shown.
fn latest(batches: &[Batch], is_shown: impl Fn(&Batch) -> bool) -> BTreeMap<Vec<u8>, Vec<u8>> {
    let mut latest = BTreeMap::new();
    for (_, _, key, value) in batches.iter().filter(|b| !b.is_control && is_shown(b)).flat_map(|b| &b.records) {
        match value {
            Some(value) => latest.insert(key.clone(), value.clone()),
            None => latest.remove(key),
        };
    }
    latest
}

/// All records but tombstones, which may expire between two cleanings.
fn values(batches: &[Batch]) -> Vec<&Plain> {
    batches.iter().filter(|b| !b.is_control).flat_map(|b| &b.records).filter(|r| r.3.is_some()).collect()
}

/// A world with something to clean, all of it durable.
fn dirty_world(seed: u64) -> World {
    let mut world = World::new(seed);
    world.open();
    for _ in 0..50 {
        world.append();
        world.now = world.now.plus(100);
    }
    world.log().sync().unwrap();
    world.logs.as_ref().unwrap().tick(world.now);
    world
}

/// A write, sync or rename fails or is the last one before a crash: the log is the old one, the new one, or, segment by segment, in part this and in
/// part that; never neither, and a key never has another value.
#[test]
fn a_failure_or_a_crash_at_any_step_leaves_the_old_or_the_new_log() {
    for_each_seed(6, |seed| {
        for step in 0.. {
            let mut world = dirty_world(seed);
            let old = world.model.without_txns();
            let log = world.log();
            let slice = log.read(Offset(0), 10_000, true, Isolation::ReadUncommitted).unwrap();
            let bytes = slice.bytes().unwrap();
            world.disk.fail_after(step);
            let result = log.compact(&world.settings, world.now, &|_| true);
            let is_over = world.disk.is_armed();
            assert_eq!(slice.bytes().unwrap(), bytes, "who was reading reads on what was there");
            let cleaned_to = log.dirt(world.now).unwrap().first_uncleanable;
            let dirty_end = world.model.log_end.min(cleaned_to.0);
            world.model.compact(0, dirty_end, world.now.0, &world.config);
            let new = world.model.without_txns();
            let check = |seen: &[Batch]| {
                assert!(
                    seen.iter().all(|batch| old.contains(batch) || new.contains(batch)),
                    "a batch that is neither the old nor the new one"
                );
                let has = |base: i64| seen.iter().any(|b| b.base == base);
                assert!(new.iter().all(|batch| has(batch.base)), "a batch that had to stay is gone");
                assert!(seen.windows(2).all(|pair| pair[0].last < pair[1].base));
            };
            check(&read_all(&log));
            assert!(is_over == result.is_ok() || is_over, "{result:?}");
            let power = world.random.one_in(2);
            world.logs = None;
            world.disk = if power { world.disk.power_loss() } else { world.disk.process_crash() };
            world.open();
            check(&read_all(&world.log()));
            let names: Vec<_> = world.disk.list(Path::new("/d/t-0")).unwrap().into_iter().map(|e| e.name).collect();
            assert!(
                names.iter().all(|name| !name.contains(".cleaned") && !name.contains(".swap") && !name.contains(".deleted")),
                "{names:?}"
            );
            world.check_committed_after_crash();
            world.log().compaction.set_cleaned(None);
            let again = world.log().compact(&world.settings, world.now, &|_| true).unwrap();
            assert_eq!(again.to.0, dirty_end);
            let seen = read_all(&world.log());
            assert!(values(&seen) == values(&new), "cleaned again it is as clean as it would have been");
            if is_over {
                assert!(step > 8, "only {step} steps");
                break;
            }
        }
    });
}

impl World {
    /// Whatever is left, a consumer of committed records is shown each key's newest committed value and no aborted record.
    fn check_committed_after_crash(&self) {
        let log = self.log();
        let slice = log.read(Offset(0), usize::MAX >> 1, true, Isolation::ReadCommitted).unwrap();
        if (slice.len as u64) < log.size_bytes() {
            return;
        }
        let hidden = |b: &Batch| {
            slice.aborted.iter().any(|t| t.producer_id.0 == b.producer && (t.first_offset.0..t.last_offset.0).contains(&b.base))
        };
        let aborted = |b: &Batch| self.model.batches.iter().any(|m| m.base == b.base && self.model.is_aborted(m));
        assert!(read_all(&log).iter().filter(|b| !b.is_control && !b.records.is_empty()).all(|b| !aborted(b) || hidden(b)));
    }
}

#[test]
fn a_map_that_is_too_small_cleans_as_far_as_it_reaches_and_goes_on_from_there() {
    for_each_seed(10, |seed| {
        let mut world = dirty_world(seed);
        let settings = CompactSettings { dedupe_buffer_bytes: 4 * offset_map::ENTRY_BYTES, ..world.settings.clone() };
        let aborted: Vec<i64> = world.model.batches.iter().filter(|b| world.model.is_aborted(b)).map(|b| b.base).collect();
        let expected = latest(&world.model.batches, |b| !aborted.contains(&b.base));
        let log = world.log();
        let end = log.dirt(world.now).unwrap().first_uncleanable;
        let mut rounds = 0;
        let mut from = Offset(0);
        while from < end {
            let cleaned = log.compact(&settings, world.now, &|_| true).unwrap();
            assert!(cleaned.map_bytes <= 4 * offset_map::ENTRY_BYTES as u64 && cleaned.from == from && cleaned.to > from, "{cleaned:?}");
            (from, rounds) = (cleaned.to, rounds + 1);
        }
        assert!(rounds > 1 || world.keys < 4, "{rounds} rounds for {} keys", world.keys);
        world.config = Arc::new(TopicConfig { delete_retention_ms: i64::MAX, ..(*world.config).clone() });
        let seen = read_all(&log);
        assert_eq!(latest(&seen, |b| !aborted.contains(&b.base)), expected);
        let all: Vec<_> =
            seen.iter().filter(|b| b.base < end.0 && !b.is_control && !aborted.contains(&b.base)).flat_map(|b| &b.records).collect();
        let keys: BTreeSet<_> = all.iter().map(|r| &r.2).collect();
        assert_eq!(keys.len(), all.len(), "one record of each key");
    });
}

#[test]
fn a_cleaning_that_is_stopped_or_overtaken_leaves_nothing_behind() {
    let world = dirty_world(3);
    let log = world.log();
    let before = read_all(&log);
    let stopped = log.compact(&world.settings, world.now, &|_| false);
    assert!(matches!(stopped, Err(CleanError::Stopped)), "{stopped:?}");
    let names = || world.disk.list(Path::new("/d/t-0")).unwrap().into_iter().map(|e| e.name).collect::<Vec<_>>();
    assert!(names().iter().all(|name| !name.contains(".cleaned")));
    assert_eq!((read_all(&log), log.compaction.cleaned()), (before, None));
    let logs = world.logs.as_ref().unwrap();
    // All was read once, and something is being written, when the topic goes.
    let (seen, size) = (std::sync::atomic::AtomicU64::new(0), log.size_bytes());
    let settings = CompactSettings { io_buffer_bytes: 0, ..world.settings.clone() };
    let overtaken = log.compact(&settings, world.now, &|bytes| {
        let before = seen.fetch_add(bytes, Ordering::Relaxed);
        if before < size && before + bytes >= size {
            logs.delete_topic(topic_id(), world.now).unwrap();
        }
        true
    });
    assert!(matches!(overtaken, Err(CleanError::Changed)), "{overtaken:?}");
    assert!(!world.disk.exists(Path::new("/d/t-0")), "its directory was made again");
}

#[test]
fn a_log_that_cannot_be_read_is_left_alone_and_others_go_on() {
    let mut world = dirty_world(5);
    world.logs.take().unwrap().close(world.now).unwrap();
    world.disk.corrupt(&Path::new("/d/t-0").join(files::name(Offset(0), Kind::Log)), |bytes| bytes[70] ^= 1);
    world.open();
    let compactor = Compactor::new(world.settings.clone());
    let logs = world.logs.as_ref().unwrap();
    let before = world.files();
    assert!(logs.compact_next(&compactor, world.now, &|_| true).is_none());
    assert!(world.log().compaction.is_uncleanable());
    assert_eq!(world.files(), before);
    assert!(logs.compact_next(&compactor, world.now.plus(1 << 40), &|_| true).is_none());
    assert_eq!(compactor.stats().uncleanable.load(Ordering::Relaxed), 1);
}

#[test]
fn the_dirtiest_log_is_cleaned_its_end_is_written_down_and_old_files_go_when_they_are_due() {
    let mut world = dirty_world(7);
    let compactor = Compactor::new(world.settings.clone());
    let logs = world.logs.as_ref().unwrap();
    let (log, cleaned) = logs.compact_next(&compactor, world.now, &|_| true).unwrap();
    assert!(logs.compact_next(&compactor, world.now, &|_| true).is_none(), "it is clean now");
    assert_eq!(compactor.stats().max_dirty_ppm.load(Ordering::Relaxed), 0);
    let deleted = || world.disk.list(Path::new("/d/t-0")).unwrap().iter().filter(|e| e.name.ends_with(".deleted")).count();
    assert!(deleted() >= 6, "the files of {} segments", cleaned.segments_before);
    let due = world.now.plus(world.config.file_delete_delay_ms);
    logs.compact_next(&compactor, due.plus(-1), &|_| true);
    assert!(deleted() >= 6);
    logs.compact_next(&compactor, due, &|_| true);
    assert_eq!(deleted(), 0);
    logs.tick(world.now);
    let checkpoint = world.disk.read(Path::new("/d/cleaner-offset-checkpoint")).unwrap();
    assert_eq!(String::from_utf8(checkpoint).unwrap(), format!("0\n1\nt 0 {}\n", cleaned.to));
    drop(log);
    world.logs = None;
    world.disk = world.disk.process_crash();
    world.open();
    assert_eq!(world.log().compaction.cleaned(), Some(cleaned.to));
}
