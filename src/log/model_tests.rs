//! The log on a disk that crashes, tears and loses, against a plain list of what was acknowledged.
//!
//! Goal: whatever happens, opening succeeds; what was acknowledged survives a crash of the process, and a power loss if it was durable by
//! the flush policy; an offset never holds another record than the one that was acknowledged there; readers see whole batches in order and
//! aborted transactions by their list. Method: random operations from a seed on two partitions. `SIM_SEED=n cargo test --lib
//! log::model_tests` replays one seed, `SIM_SEEDS=n` runs more of them.

mod removal;

use super::{
    files::{self, Kind, Stage},
    io::{
        Disk,
        sim::{Random, SimDisk},
    },
    producer_state::ProducerStates,
    *,
};
use crate::{
    config::TopicConfig,
    record::{BatchHeader, BatchRecords, EndTxnMarker, TimestampType, builder, builder::BatchBuilder, header::Compression},
    types::*,
};
use bytes::Bytes;
use std::{
    collections::{BTreeMap, BTreeSet},
    path::{Path, PathBuf},
    sync::Arc,
};

const STEPS: u64 = 150;

/// The timestamps and values of a batch.
type Values = Vec<(i64, Vec<u8>)>;

/// One record that was acknowledged.
#[derive(Clone, PartialEq, Eq, Debug)]
struct Record {
    timestamp: i64,
    /// What it's told by; control records have none.
    value: Option<u64>,
    producer: i64,
    sequence: i32,
    /// In which transaction, by the offset where it began.
    txn: Option<i64>,
}

/// A producer as it knows itself.
#[derive(Clone, Default, Debug)]
struct Producer {
    next_sequence: i32,
    last: Option<(Bytes, Offset)>,
}

#[derive(Clone, Default)]
struct Model {
    /// Those below `log_start` too: producers are known by them.
    records: BTreeMap<i64, Record>,
    log_start: i64,
    log_end: i64,
    /// Below it all must survive a power loss.
    durable: i64,
    producers: BTreeMap<i64, Producer>,
    /// The open transaction of the one transactional producer.
    open_txn: Option<i64>,
    /// Transactions that were aborted, by their first offset, and their marker's offset.
    aborted: BTreeMap<i64, i64>,
    /// The sequence after each batch of each producer, by the batch's last offset: compaction leaves that, whatever becomes of the records.
    sequences: BTreeMap<i64, BTreeMap<i64, i32>>,
    /// What a compaction that failed or was cut short may have removed.
    may_go: BTreeSet<i64>,
}

struct World {
    random: Random,
    disk: SimDisk,
    logs: Option<Logs>,
    models: [Model; 2],
    config: Arc<TopicConfig>,
    now: Millis,
    topic: TopicId,
    epoch: i32,
    next_value: u64,
    old_topics: Vec<TopicId>,
    /// A bit of an index was turned, which nobody sees until the entry is used.
    bit_turned: bool,
}

/// Idempotent producers are 1 and 2; 3 writes transactions.
const TXN_PRODUCER: i64 = 3;

impl World {
    fn new(seed: u64) -> Self {
        let mut random = Random::new(seed);
        let config = TopicConfig {
            segment_bytes: 1_200 + random.below(4_000) as usize,
            index_interval_bytes: random.below(400) as usize,
            segment_index_bytes: if random.one_in(4) { 40 } else { 10 << 20 },
            flush_messages: [i64::MAX, 1, 5][random.below(3) as usize],
            flush_ms: [i64::MAX, 5_000][random.below(2) as usize],
            cleanup_compact: random.one_in(2),
            delete_retention_ms: 1 << 50,
            segment_ms: [i64::MAX, 2_000][random.below(2) as usize],
            message_timestamp_type: if random.one_in(4) { TimestampType::LogAppendTime } else { TimestampType::CreateTime },
            message_timestamp_after_max_ms: i64::MAX,
            retention_ms: [-1, 0, 10_000, 60_000][random.below(4) as usize],
            retention_bytes: [-1, -1, 0, 9_000][random.below(4) as usize],
            file_delete_delay_ms: [0, 60_000][random.below(2) as usize],
            ..TopicConfig::default()
        };
        Self {
            disk: SimDisk::new(random.number()),
            random,
            logs: None,
            models: Default::default(),
            config: Arc::new(config),
            now: Millis(1_000_000),
            topic: TopicId(uuid::Uuid::from_u128(1)),
            epoch: 0,
            next_value: 0,
            old_topics: Vec::new(),
            bit_turned: false,
        }
    }

    fn open(&mut self) {
        let settings = LogSettings {
            dirs: vec!["/a".into(), "/b".into()],
            producer_id_expiration_ms: i64::MAX,
            recovery_threads: 1,
            // The model says when.
            initial_task_delay_ms: i64::MAX,
            ..LogSettings::default()
        };
        let logs = Logs::lock(Arc::new(self.disk.clone()), settings).unwrap();
        if !logs.was_clean() {
            self.epoch += 1;
        }
        for found in logs.found().unwrap() {
            match found.topic_id {
                Some(id) if id == self.topic => {}
                Some(id) if self.old_topics.contains(&id) => logs.delete_found(&found, self.now).unwrap(),
                Some(id) => panic!("unknown topic {id}"),
                None => {}
            }
        }
        let specs = (0..2).map(|i| self.spec(i)).collect();
        logs.open_all(specs, self.now).unwrap();
        self.logs = Some(logs);
    }

    fn spec(&self, partition: i32) -> PartitionSpec {
        let topic = TopicPartition { topic: TopicName::new("t").unwrap(), partition: PartitionIndex(partition) };
        PartitionSpec { topic, topic_id: self.topic, config: Arc::clone(&self.config), leader_epoch: LeaderEpoch(self.epoch) }
    }

    fn log(&self, partition: usize) -> Arc<PartitionLog> {
        self.logs.as_ref().unwrap().get(self.topic, PartitionIndex(partition as i32)).unwrap()
    }

    fn step(&mut self) {
        self.now = self.now.plus(self.random.below(1_500) as i64);
        let partition = self.random.below(2) as usize;
        match self.random.below(115) {
            0..=29 => self.append_plain(partition),
            30..=49 => self.append_idempotent(partition),
            50..=64 => self.append_transactional(partition),
            65..=79 => self.check_read(partition),
            80..=86 => self.check_time(partition),
            87..=89 => self.sync(partition),
            90..=93 => {
                self.now = self.now.plus(self.random.below(70_000) as i64);
                self.logs.as_ref().unwrap().tick(self.now);
                self.note_durable();
            }
            94 => self.restart_cleanly(),
            95 => self.crash(false),
            96 => self.crash(true),
            97 => self.crash_while_failing(partition),
            98 => self.damage_index_and_restart(partition),
            99 if self.random.one_in(3) => self.replace_topic(),
            99 => {}
            // Compaction has no say in what DeleteRecords hides, nor in what retention counts: each has worlds of its own.
            100..=114 if self.config.cleanup_compact => match self.random.below(4) {
                0 => self.crash_while_compacting(partition),
                1 | 2 => self.compact(partition),
                _ => {}
            },
            100..=106 => self.retain(partition),
            107..=109 => self.delete_records(),
            _ => self.crash_while_removing(partition),
        }
    }

    fn records(&mut self) -> Vec<(i64, Vec<u8>)> {
        let count = 1 + self.random.below(4);
        let mut timestamp = self.now.0 - self.random.below(3_000) as i64;
        (0..count)
            .map(|_| {
                self.next_value += 1;
                timestamp += self.random.below(20) as i64 - 5;
                let filler = self.random.below(200) as usize;
                (timestamp, [&self.next_value.to_be_bytes()[..], &vec![7; filler]].concat())
            })
            .collect()
    }

    fn build(records: &[(i64, Vec<u8>)], builder: BatchBuilder) -> Bytes {
        records.iter().fold(builder, |b, (t, v)| b.record(Millis(*t), Some(&key_of(id_of(v))), Some(v))).build().unwrap()
    }

    fn codec(&mut self) -> Compression {
        [Compression::None, Compression::None, Compression::Lz4, Compression::Zstd][self.random.below(4) as usize]
    }

    fn append(&mut self, partition: usize, batch: Bytes, origin: Origin) -> Result<Appended, AppendError> {
        let log = self.log(partition);
        let appended = log.append(self.now, batch, origin)?;
        if let Some(offset) = appended.sync_to {
            log.sync_to(offset)?;
            self.models[partition].durable = self.models[partition].durable.max(offset.0);
        }
        Ok(appended)
    }

    fn note(&mut self, partition: usize, appended: &Appended, records: &[(i64, Vec<u8>)], producer: i64) {
        let model = &mut self.models[partition];
        assert_eq!(appended.base_offset.0, model.log_end, "offsets are given out without gaps");
        let txn = (producer == TXN_PRODUCER).then(|| *model.open_txn.get_or_insert(appended.base_offset.0));
        let next_sequence = model.producers.get(&producer).map_or(0, |p| p.next_sequence);
        for (i, (timestamp, value)) in records.iter().enumerate() {
            let timestamp = if appended.log_append_time == Millis::NONE { *timestamp } else { appended.log_append_time.0 };
            let record = Record { timestamp, value: Some(id_of(value)), producer, sequence: next_sequence + i as i32, txn };
            model.records.insert(appended.base_offset.0 + i as i64, record);
        }
        model.log_end = appended.last_offset.0 + 1;
        model.sequences.entry(producer).or_default().insert(appended.last_offset.0, next_sequence + records.len() as i32);
    }

    fn append_plain(&mut self, partition: usize) {
        let records = self.records();
        let codec = self.codec();
        let appended = self.append(partition, Self::build(&records, BatchBuilder::new(codec)), Origin::Client).unwrap();
        self.note(partition, &appended, &records, -1);
    }

    fn append_idempotent(&mut self, partition: usize) {
        let producer = 1 + self.random.below(2) as i64;
        let state = self.models[partition].producers.entry(producer).or_default().clone();
        if let (true, Some((batch, offset))) = (self.random.one_in(4), state.last.clone()) {
            let again = self.append(partition, batch, Origin::Client).unwrap();
            assert!(again.duplicate && again.base_offset == offset, "{again:?} where {offset} was due");
            return;
        }
        let records = self.records();
        let codec = self.codec();
        let with = |sequence| BatchBuilder::new(codec).producer(ProducerId(producer), ProducerEpoch(0), sequence);
        if state.next_sequence > 0 && self.random.one_in(6) {
            let gap = self.append(partition, Self::build(&records, with(state.next_sequence + 5)), Origin::Client);
            assert!(matches!(gap, Err(AppendError::OutOfOrderSequence { .. })), "{gap:?}");
            return;
        }
        let batch = Self::build(&records, with(state.next_sequence));
        let appended = self.append(partition, batch.clone(), Origin::Client).unwrap();
        self.note(partition, &appended, &records, producer);
        let state = self.models[partition].producers.entry(producer).or_default();
        state.next_sequence += records.len() as i32;
        state.last = Some((batch, appended.base_offset));
    }

    fn append_transactional(&mut self, partition: usize) {
        let (id, epoch) = (ProducerId(TXN_PRODUCER), ProducerEpoch(0));
        if let (true, Some(first)) = (self.random.one_in(3), self.models[partition].open_txn) {
            let commit = self.random.one_in(2);
            let marker = builder::end_txn_batch(id, epoch, EndTxnMarker { commit, coordinator_epoch: 0 }, self.now);
            let appended = self.append(partition, marker, Origin::Coordinator).unwrap();
            let model = &mut self.models[partition];
            assert_eq!(appended.base_offset.0, model.log_end);
            let record = Record { timestamp: self.now.0, value: None, producer: TXN_PRODUCER, sequence: -1, txn: None };
            model.records.insert(model.log_end, record);
            if !commit {
                model.aborted.insert(first, model.log_end);
            }
            model.log_end += 1;
            model.open_txn = None;
            return;
        }
        let records = self.records();
        let sequence = self.models[partition].producers.entry(TXN_PRODUCER).or_default().next_sequence;
        let batch = Self::build(&records, BatchBuilder::new(Compression::None).producer(id, epoch, sequence).transactional());
        let appended = self.append(partition, batch, Origin::ClientInTransaction(Proof::Unchecked)).unwrap();
        self.note(partition, &appended, &records, TXN_PRODUCER);
        self.models[partition].producers.entry(TXN_PRODUCER).or_default().next_sequence += records.len() as i32;
    }

    fn sync(&mut self, partition: usize) {
        self.log(partition).sync().unwrap();
        self.models[partition].durable = self.models[partition].log_end;
    }

    /// What the log says is durable must be.
    fn note_durable(&mut self) {
        for partition in 0..2 {
            let point = self.log(partition).synced().0;
            let model = &mut self.models[partition];
            assert!(point <= model.log_end);
            model.durable = model.durable.max(point);
        }
    }

    fn restart_cleanly(&mut self) {
        self.logs.take().unwrap().close(self.now).unwrap();
        for (i, model) in self.models.iter_mut().enumerate() {
            model.durable = model.log_end;
            if !self.bit_turned {
                check_files(&self.disk, i, Offset(model.log_start));
            }
        }
        if self.random.one_in(2) {
            self.disk = self.disk.power_loss();
        }
        self.open();
        assert!(self.logs.as_ref().unwrap().was_clean());
        self.check_all();
    }

    fn crash(&mut self, power: bool) {
        self.note_durable();
        self.logs = None;
        self.disk = if power { self.disk.power_loss() } else { self.disk.process_crash() };
        self.open();
        self.adopt_what_survived(power, &[None, None]);
    }

    /// A write or sync fails somewhere; the partition then takes nothing, serves what it had, and the broker is restarted.
    fn crash_while_failing(&mut self, partition: usize) {
        self.disk.fail_after(self.random.below(12));
        let mut maybe: [Option<Values>; 2] = [None, None];
        for _ in 0..20 {
            let records = self.records();
            let log = self.log(partition);
            let before = log.watermarks();
            let batch = Self::build(&records, BatchBuilder::new(Compression::None));
            match log.append(self.now, batch, Origin::Client) {
                Ok(appended) => {
                    self.note(partition, &appended, &records, -1);
                    if let Some(offset) = appended.sync_to {
                        match log.sync_to(offset) {
                            Ok(()) => self.models[partition].durable = offset.0,
                            Err(_) => break,
                        }
                    }
                }
                Err(error) => {
                    assert!(matches!(error, AppendError::Io(_)), "{error:?}");
                    assert_eq!(log.watermarks(), before);
                    maybe[partition] = Some(records);
                    break;
                }
            }
        }
        if !self.disk.is_armed() {
            let more = Self::build(&self.records(), BatchBuilder::new(Compression::None));
            assert!(matches!(self.append(partition, more, Origin::Client), Err(AppendError::Offline(_))));
            self.check_read(partition);
        }
        let power = self.random.one_in(2);
        if self.random.one_in(2) && !self.disk.is_armed() {
            self.note_durable();
            let _ = self.logs.as_ref().unwrap().close(self.now);
            let other = 1 - partition;
            self.models[other].durable = self.models[other].log_end;
        }
        self.note_durable();
        self.logs = None;
        self.disk = if power { self.disk.power_loss() } else { self.disk.process_crash() };
        self.open();
        self.adopt_what_survived(power, &maybe);
    }

    /// Compaction's result is exactly the model's.
    fn compact(&mut self, partition: usize) {
        if !self.config.cleanup_compact {
            return;
        }
        let log = self.log(partition);
        let cleaned = log.compact(&CompactSettings::default(), self.now, &|_| true).unwrap();
        assert_eq!(cleaned.to, cleaned.upper, "the map takes all keys");
        assert!(cleaned.to <= log.watermarks().last_stable);
        self.note_durable();
        let model = &mut self.models[partition];
        for gone in model.superseded(cleaned.from.0, cleaned.to.0) {
            model.records.remove(&gone);
        }
        self.check_all();
    }

    /// The disk fails at some step of it, or it all crashes right after.
    fn crash_while_compacting(&mut self, partition: usize) {
        if !self.config.cleanup_compact {
            return;
        }
        let log = self.log(partition);
        let dirt = log.dirt(self.now).unwrap();
        let model = &mut self.models[partition];
        model.may_go = model.superseded(dirt.first_dirty.0, dirt.first_uncleanable.0);
        self.disk.fail_after(self.random.below(60));
        let _ = log.compact(&CompactSettings::default(), self.now, &|_| true);
        drop(log);
        let power = self.random.one_in(2);
        self.crash(power);
    }

    fn damage_index_and_restart(&mut self, partition: usize) {
        self.logs.take().unwrap().close(self.now).unwrap();
        let dir = self.dir(partition);
        let kinds = [Kind::OffsetIndex, Kind::TimeIndex, Kind::TxnIndex, Kind::Snapshot];
        let damaged: Vec<_> = live_files(&self.disk, &dir).into_iter().map(|(name, _, kind)| (name, kind)).collect();
        let damaged: Vec<_> = damaged.into_iter().filter(|(_, kind)| kinds[..3].contains(kind)).collect();
        for model in &mut self.models {
            model.durable = model.log_end;
        }
        if !damaged.is_empty() {
            let (name, kind) = &damaged[self.random.below(damaged.len() as u64) as usize];
            if self.random.one_in(3) && *kind != Kind::TxnIndex {
                self.disk.remove_file(&dir.join(name)).unwrap();
            } else {
                let at = self.random.number() as usize;
                self.bit_turned |= at % 3 == 1;
                self.disk.corrupt(&dir.join(name), |bytes| match at % 3 {
                    0 => bytes.push(9),
                    1 if !bytes.is_empty() && *kind != Kind::TxnIndex && *kind != Kind::TimeIndex => {
                        let i = at / 3 % bytes.len();
                        bytes[i] ^= 1 << (at % 8);
                    }
                    _ => bytes.extend_from_slice(&[0; 24]),
                });
            }
        }
        self.open();
        self.check_all();
    }

    fn replace_topic(&mut self) {
        let logs = self.logs.as_ref().unwrap();
        assert_eq!(logs.delete_topic(self.topic, self.now).unwrap(), 2);
        self.old_topics.push(self.topic);
        self.topic = TopicId(uuid::Uuid::from_u128(self.topic.0.as_u128() + 1));
        self.models = Default::default();
        if self.random.one_in(2) {
            for i in 0..2 {
                logs.create(self.spec(i), self.now).unwrap();
            }
        } else {
            self.logs = None;
            self.disk = if self.random.one_in(2) { self.disk.power_loss() } else { self.disk.process_crash() };
            self.open();
        }
        self.check_all();
    }

    fn dir(&self, partition: usize) -> PathBuf {
        dir_of(&self.disk, partition)
    }

    fn check_all(&mut self) {
        for partition in 0..2 {
            let log = self.log(partition);
            let marks = log.watermarks();
            let model = &self.models[partition];
            assert_eq!((marks.log_start.0, marks.log_end.0), (model.log_start, model.log_end));
            let seen = read_all(&log, marks.log_start, Isolation::ReadUncommitted);
            let expected: Vec<_> = model.visible().map(|(o, r)| (*o, r.value)).collect();
            assert_same(&seen.iter().map(|(o, _, v)| (*o, *v)).collect::<Vec<_>>(), &expected);
        }
        for _ in 0..3 {
            self.check_read(0);
            self.check_read(1);
        }
    }

    /// After a crash: all that had to survive did, where it was; what didn't have to may be gone. `maybe` was written but not acknowledged.
    fn adopt_what_survived(&mut self, power: bool, maybe: &[Option<Values>; 2]) {
        for (partition, maybe) in maybe.iter().enumerate() {
            let log = self.log(partition);
            let marks = log.watermarks();
            let model = &mut self.models[partition];
            let must = if power { model.durable } else { model.log_end };
            assert!(marks.log_end.0 >= must, "{marks:?}: lost what was acknowledged up to {must}");
            assert_eq!(marks.log_start.0, model.log_start, "where the log starts");
            let seen = read_all(&log, marks.log_start, Isolation::ReadUncommitted);
            let mut survived: BTreeMap<_, _> = model.records.range(..model.log_start).map(|(o, r)| (*o, r.clone())).collect();
            for (offset, timestamp, value) in seen {
                if let Some(record) = model.records.get(&offset) {
                    assert_eq!((record.timestamp, &record.value), (timestamp, &value), "another record at {offset}");
                    survived.insert(offset, record.clone());
                } else {
                    let place = usize::try_from(offset - model.log_end).expect("a record that was never written");
                    let records = maybe.as_ref().expect("a record that was never written");
                    assert_eq!(Some(id_of(&records[place].1)), value);
                    survived.insert(offset, Record { timestamp, value, producer: -1, sequence: -1, txn: None });
                }
            }
            let lost = model.records.keys().find(|o| **o < must && !survived.contains_key(o) && !model.may_go.contains(o));
            // A batch is there if its last record is, or was removed by a compaction, which comes after the batch was durable.
            let is_there = |last: &i64| {
                let is_removed = !model.records.contains_key(last) || model.may_go.contains(last) && *last < must;
                survived.contains_key(last) || is_removed && *last < marks.log_end.0
            };
            model.sequences.values_mut().for_each(|written| written.retain(|last, _| is_there(last)));
            model.may_go.clear();
            assert_eq!(lost, None, "lost what was acknowledged");
            model.records = survived;
            model.log_end = marks.log_end.0;
            model.durable = model.durable.min(model.log_end);
            model.forget_what_is_lost();
            let states = log.producers();
            for (id, producer) in &model.producers {
                let known = states.iter().find(|p| p.producer_id.0 == *id).map_or(-1, |p| p.last_sequence());
                assert_eq!(known, producer.next_sequence - 1, "producer {id}");
            }
        }
        self.check_all();
    }

    fn check_read(&mut self, partition: usize) {
        let log = self.log(partition);
        let model = &self.models[partition];
        let from = self.random.below(model.log_end as u64 + 2) as i64;
        let max = self.random.below(2_000) as usize;
        let read = log.read(Offset(from), max, self.random.one_in(2), Isolation::ReadUncommitted);
        if from > model.log_end || from < model.log_start {
            assert!(matches!(read, Err(ReadError::OutOfRange { .. })));
            return;
        }
        let first = batches(&read.unwrap().bytes().unwrap()).into_iter().next();
        if let Some((header, _)) = first {
            assert!(header.last_offset().0 >= from);
            let skipped = model.records.range(from..header.base_offset.0.max(from)).next();
            assert_eq!(skipped, None, "a read from {from} began at {}", header.base_offset);
        }
        let seen = read_all(&log, Offset(from), Isolation::ReadUncommitted);
        let expected: Vec<_> = model.records.range(from..).map(|(o, r)| (*o, r.timestamp, r.value)).collect();
        assert_same(&seen, &expected);
        let stable = model.open_txn.unwrap_or(model.log_end).max(model.log_start);
        assert_eq!(log.watermarks().last_stable.0, stable);
        let committed: Vec<_> = read_all(&log, Offset(from), Isolation::ReadCommitted).into_iter().map(|(o, _, v)| (o, v)).collect();
        let visible = model.records.range(from..stable.max(from)).filter(|(_, r)| !r.txn.is_some_and(|t| model.aborted.contains_key(&t)));
        assert_same(&committed, &visible.map(|(o, r)| (*o, r.value)).collect::<Vec<_>>());
    }

    fn check_time(&mut self, partition: usize) {
        let model = &self.models[partition];
        let target = self.now.0 - self.random.below(40_000) as i64;
        let expected = model.visible().find(|(_, r)| r.timestamp >= target).map(|(o, r)| (*o, r.timestamp));
        let found = self.log(partition).offset_for_time(Millis(target)).unwrap();
        assert_eq!(found.map(|f| (f.offset.0, f.timestamp.0)), expected);
        let max = model.visible().map(|(_, r)| r.timestamp).max();
        let expected = model.visible().find(|(_, r)| Some(r.timestamp) == max).map(|(o, r)| (*o, r.timestamp));
        let found = self.log(partition).offset_of_max_timestamp().unwrap();
        assert_eq!(found.map(|f| (f.offset.0, f.timestamp.0)), expected);
    }
}

impl Model {
    /// What a compaction of `from..to` removes: records of aborted transactions, and those whose key has a newer committed one in the range.
    fn superseded(&self, from: i64, to: i64) -> BTreeSet<i64> {
        if from >= to {
            return BTreeSet::new();
        }
        let is_aborted = |record: &Record| record.txn.is_some_and(|txn| self.aborted.contains_key(&txn));
        let mut newest = BTreeMap::new();
        for (offset, record) in self.records.range(from..to).filter(|(_, record)| !is_aborted(record)) {
            record.value.map(|value| newest.insert(key_of(value), *offset));
        }
        let goes = |(offset, record): &(&i64, &Record)| {
            is_aborted(record) || record.value.is_some_and(|value| newest.get(&key_of(value)).is_some_and(|newest| newest > *offset))
        };
        self.records.range(..to).filter(goes).map(|(offset, _)| *offset).collect()
    }

    /// The producers know what they wrote by what is left of it, as they would by asking the broker.
    fn forget_what_is_lost(&mut self) {
        let records = &self.records;
        self.aborted.retain(|_, marker| records.contains_key(marker));
        let last_marker = records.iter().rev().find(|(_, r)| r.value.is_none()).map_or(-1, |(o, _)| *o);
        let open = records.iter().find(|(o, r)| **o > last_marker && r.producer == TXN_PRODUCER);
        self.open_txn = open.map(|(o, _)| *o);
        if let Some(first) = self.open_txn {
            let of_open = self.records.range_mut(first..).filter(|(_, r)| r.txn.is_some());
            of_open.for_each(|(_, r)| r.txn = Some(first));
        }
        for (id, producer) in &mut self.producers {
            let kept = self.sequences.get(id).and_then(|written| written.values().next_back()).copied().unwrap_or(0);
            if kept != producer.next_sequence {
                (producer.next_sequence, producer.last) = (kept, None);
            }
        }
    }
}

fn id_of(value: &[u8]) -> u64 {
    u64::from_be_bytes(value[..8].try_into().unwrap())
}

/// Few keys, so that most records are superseded soon.
fn key_of(id: u64) -> [u8; 1] {
    [(id * 7 % 11) as u8]
}

fn live_files(disk: &SimDisk, dir: &Path) -> Vec<(String, Offset, Kind)> {
    let named = disk.list(dir).unwrap().into_iter().filter_map(|e| files::parse(&e.name).map(|parsed| (e.name, parsed)));
    named.filter(|(_, (.., stage))| *stage == files::Stage::Live).map(|(name, (offset, kind, _))| (name, offset, kind)).collect()
}

fn assert_same<T: PartialEq + std::fmt::Debug>(seen: &[T], expected: &[T]) {
    let differs = (0..seen.len().max(expected.len())).find(|i| seen.get(*i) != expected.get(*i));
    if let Some(i) = differs {
        panic!("at {i} of {}: saw {:?} where {:?} was due", expected.len(), seen.get(i), expected.get(i));
    }
}

/// All whole batches in some bytes.
fn batches(mut bytes: &[u8]) -> Vec<(BatchHeader, Vec<u8>)> {
    let mut found = Vec::new();
    while let Some(header) = BatchHeader::parse(bytes).filter(|h| h.size().unwrap() <= bytes.len()) {
        let (batch, rest) = bytes.split_at(header.size().unwrap());
        assert_eq!(crate::record::header::batch_crc(batch), header.crc);
        found.push((header, batch.to_vec()));
        bytes = rest;
    }
    found
}

/// What a consumer makes of a partition: offset, timestamp and value of each record that it shows.
fn read_all(log: &PartitionLog, mut from: Offset, isolation: Isolation) -> Vec<(i64, i64, Option<u64>)> {
    let start = from;
    let mut seen: Vec<(i64, i64, Option<u64>)> = Vec::new();
    loop {
        let slice = log.read(from, 1_500, true, isolation).unwrap();
        let found = batches(&slice.bytes().unwrap());
        if found.is_empty() {
            assert_eq!(slice.len, 0, "at least one whole batch");
            return seen;
        }
        for (header, batch) in found {
            assert!(header.last_offset() >= from, "batches are in order");
            let aborted = |txn: &&AbortedTxn| {
                txn.producer_id == header.producer_id && txn.first_offset <= header.base_offset && header.base_offset < txn.last_offset
            };
            let skipped = header.is_transactional() && !header.is_control() && slice.aborted.iter().find(aborted).is_some();
            for record in BatchRecords::open(&batch, 1 << 20).unwrap().iter().map(|r| r.unwrap()) {
                if record.offset >= start && !skipped {
                    let value = record.value.filter(|_| !header.is_control());
                    seen.push((record.offset.0, record.timestamp.0, value.map(id_of)));
                }
            }
            from = header.next_offset();
        }
    }
}

fn dir_of(disk: &SimDisk, partition: usize) -> PathBuf {
    let dirs = ["/a", "/b"].map(|d| Path::new(d).join(format!("t-{partition}")));
    dirs.into_iter().find(|d| disk.exists(d)).unwrap()
}

/// What Kafka's DumpLogSegments checks on a closed directory: index entries point at batches that end at their offset, time index entries are
/// the largest timestamp so far, snapshots can be read; and that no index was forgotten.
fn check_files(disk: &SimDisk, partition: usize, log_start: Offset) {
    let dir = dir_of(disk, partition);
    let names = live_files(disk, &dir);
    for (name, base, _) in names.iter().filter(|(_, _, kind)| *kind == Kind::Log) {
        let all = batches(&disk.read(&dir.join(name)).unwrap());
        let mut position = 0;
        let starts: BTreeMap<u64, BatchHeader> = all
            .iter()
            .map(|(header, batch)| {
                position += batch.len() as u64;
                (position - batch.len() as u64, *header)
            })
            .collect();
        // What is damaged below the log's start nobody reads, and so nobody mends.
        let is_below_start = all.last().is_some_and(|(header, _)| header.last_offset() < log_start);
        if all.is_empty() && *base == Offset(0) || is_below_start {
            continue;
        }
        let read = |kind| disk.read(&dir.join(files::name(*base, kind))).unwrap();
        let offsets = index::OffsetIndex::decode(*base, &read(Kind::OffsetIndex), position).unwrap();
        for i in 0..offsets.len() {
            let entry = offsets.entry(i).unwrap();
            assert_eq!(starts.get(&entry.position.into()).map(|h| h.last_offset()), Some(entry.last_offset));
        }
        let times = index::TimeIndex::decode(*base, &read(Kind::TimeIndex)).unwrap();
        for i in 0..times.len() {
            let entry = times.entry(i).unwrap();
            let batch = starts.values().find(|h| h.last_offset() == entry.offset).unwrap();
            assert_eq!(batch.max_timestamp, entry.timestamp);
        }
        let largest = starts.values().filter(|h| h.record_count > 0).map(|h| h.max_timestamp).max();
        assert_eq!(times.last().map(|t| t.timestamp), largest, "a closed segment's largest timestamp is noted");
    }
    for (name, offset, _) in names.iter().filter(|(_, _, kind)| *kind == Kind::Snapshot) {
        ProducerStates::decode_snapshot(&disk.read(&dir.join(name)).unwrap(), *offset).unwrap();
    }
}

fn run(seed: u64) {
    let mut world = World::new(seed);
    world.open();
    for _ in 0..STEPS {
        world.step();
    }
    world.check_all();
    world.restart_cleanly();
}

#[test]
fn nothing_that_was_promised_is_lost() {
    let number = |name| std::env::var(name).ok().and_then(|text| text.parse::<u64>().ok());
    if let Some(seed) = number("SIM_SEED") {
        return run(seed);
    }
    for seed in 0..number("SIM_SEEDS").unwrap_or(100) {
        if std::panic::catch_unwind(|| run(seed)).is_err() {
            panic!("seed {seed} failed: SIM_SEED={seed} cargo test --lib log::model_tests replays it");
        }
    }
}
