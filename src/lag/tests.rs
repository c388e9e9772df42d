//! The lag against reading every record: random workloads on real logs, looked up in steps as small as can be, and what a client computes that
//! reads the whole partition.

use super::{
    partition::{Commit, First, Marks, Reader},
    sampler,
};
use crate::{
    config::TopicConfig,
    log::{
        CompactSettings, Compactor, Isolation, LogSettings, Logs, Look, PartitionLog, PartitionSpec, Proof, io::sim::SimDisk,
        validate::Origin,
    },
    record::{BatchBuilder, BatchHeader, BatchRecords, Compression, EndTxnMarker},
    sim::{Random, for_each_seed},
    types::*,
};
use std::{
    collections::{BTreeMap, BTreeSet},
    path::PathBuf,
    sync::Arc,
};

const ID: TopicId = TopicId(uuid::Uuid::from_u128(7));
const START: i64 = 1_700_000_000_000;

struct World {
    random: Random,
    disk: SimDisk,
    config: Arc<TopicConfig>,
    logs: Option<Logs>,
    log: Arc<PartitionLog>,
    now: i64,
    /// Open transactions: producer, next sequence.
    open: BTreeMap<i64, i32>,
    next_producer: i64,
    /// When each batch arrived, by its first offset.
    arrived: BTreeMap<i64, i64>,
    /// Below here arrivals may have been lost to a kill.
    killed_below: i64,
    compactor: Compactor,
}

impl World {
    fn new(seed: u64) -> Self {
        let mut random = Random::new(seed);
        let compacted = random.one_in(2);
        let config = Arc::new(TopicConfig {
            cleanup_compact: compacted,
            cleanup_delete: true,
            segment_bytes: 600 + random.below(2_000) as usize,
            index_interval_bytes: 100,
            retention_ms: 400_000,
            min_cleanable_dirty_ratio_ppm: 0,
            ..TopicConfig::default()
        });
        let disk = SimDisk::new(seed);
        let (logs, log) = open(&disk, &config, START);
        let compactor = Compactor::new(CompactSettings {
            threads: 1,
            dedupe_buffer_bytes: 1 << 20,
            load_factor: 0.9,
            io_buffer_bytes: 1 << 16,
            io_bytes_per_second: f64::MAX,
        });
        Self {
            random,
            disk,
            config,
            logs: Some(logs),
            log,
            now: START,
            open: BTreeMap::new(),
            next_producer: 1,
            arrived: BTreeMap::new(),
            killed_below: 0,
            compactor,
        }
    }

    fn builder(&mut self) -> BatchBuilder {
        let codecs = [Compression::None, Compression::None, Compression::Gzip, Compression::Snappy, Compression::Lz4, Compression::Zstd];
        BatchBuilder::new(codecs[self.random.below(6) as usize])
    }

    fn fill(&mut self, mut builder: BatchBuilder, count: u64) -> bytes::Bytes {
        for _ in 0..count {
            // Of today, replayed from long ago, or of 1970.
            let timestamp = match self.random.below(4) {
                0 => self.now - 86_400_000 * self.random.below(400) as i64,
                1 => self.random.below(5) as i64,
                _ => self.now - self.random.below(3_000) as i64,
            };
            let key = format!("k{}", self.random.below(6));
            builder = builder.record(Millis(timestamp), Some(key.as_bytes()), Some(b"value"));
        }
        builder.build().unwrap()
    }

    fn append(&mut self, batch: bytes::Bytes, origin: Origin) {
        let appended = self.log.append(Millis(self.now), batch, origin).unwrap();
        self.arrived.insert(appended.base_offset.0, self.now);
    }

    fn step(&mut self) {
        // The clock goes on, and is set back now and then.
        self.now += if self.random.one_in(20) { -5_000 } else { self.random.below(4) as i64 * 900 };
        match self.random.below(16) {
            0..=5 => {
                let count = 1 + self.random.below(5);
                let builder = self.builder();
                let batch = self.fill(builder, count);
                self.append(batch, Origin::Client);
            }
            6..=8 => self.transact(),
            9..=11 => self.end_one(),
            12 => {
                let to = self.log.watermarks().log_start.0 + self.random.below(6) as i64;
                let to = to.min(self.log.watermarks().last_stable.0);
                let logs = self.logs.as_ref().unwrap();
                logs.delete_records(&[(self.log.clone(), Offset(to))]).pop().unwrap().unwrap();
            }
            13 => {
                self.log.retain(Millis(self.now)).unwrap();
            }
            14 => {
                let logs = self.logs.as_ref().unwrap();
                // Past the deletions' delays.
                logs.compact_next(&self.compactor, Millis(self.now + 200_000_000), &|_| true);
            }
            _ => self.restart(),
        }
    }

    fn transact(&mut self) {
        let known: Vec<i64> = self.open.keys().copied().collect();
        let producer = match known.first().filter(|_| self.random.one_in(2)) {
            Some(producer) => *producer,
            None => {
                self.next_producer += 1;
                self.next_producer
            }
        };
        let sequence = *self.open.entry(producer).or_insert(0);
        let count = 1 + self.random.below(3);
        let builder = self.builder().producer(ProducerId(producer), ProducerEpoch(0), sequence).transactional();
        let batch = self.fill(builder, count);
        let guard = self.log.begin_verification(Millis(self.now), ProducerId(producer), ProducerEpoch(0), sequence, false).unwrap();
        self.append(batch, Origin::ClientInTransaction(Proof::of(guard)));
        self.open.insert(producer, sequence + count as i32);
    }

    fn end_one(&mut self) {
        let Some(producer) = self.open.keys().next().copied() else { return };
        self.open.remove(&producer);
        let marker = EndTxnMarker { commit: self.random.one_in(2), coordinator_epoch: 0 };
        let ended = self.log.end_transaction(Millis(self.now), ProducerId(producer), ProducerEpoch(0), marker, 0).unwrap();
        self.arrived.insert(ended.base_offset.0, self.now);
    }

    /// After a clean stop, or after a kill, which loses nothing but the arrival times of late.
    fn restart(&mut self) {
        let logs = self.logs.take().unwrap();
        if self.random.one_in(2) {
            logs.close(Millis(self.now)).unwrap();
        } else {
            self.killed_below = self.log.watermarks().log_end.0;
        }
        drop(logs);
        let (logs, log) = open(&self.disk, &self.config, self.now);
        (self.logs, self.log) = (Some(logs), log);
    }

    /// Every record that a reader sees: offset and timestamp.
    fn read_all(&self, isolation: Isolation) -> Vec<(i64, i64)> {
        let (mut from, mut seen) = (self.log.watermarks().log_start, Vec::new());
        let start = from;
        loop {
            let slice = self.log.read(from, 1 << 20, true, isolation).unwrap();
            if slice.len == 0 {
                return seen;
            }
            let mut aborts: Vec<_> = slice.aborted.iter().map(|txn| (txn.first_offset, txn.producer_id)).collect();
            aborts.sort_unstable();
            let mut aborting = BTreeSet::new();
            let copied = slice.bytes().unwrap();
            let mut rest = &copied[..];
            while let Some(header) = BatchHeader::parse(rest).filter(|header| header.size().unwrap() <= rest.len()) {
                let (whole, after) = rest.split_at(header.size().unwrap());
                (rest, from) = (after, header.next_offset());
                while aborts.first().is_some_and(|(first, _)| *first <= header.last_offset()) {
                    aborting.insert(aborts.remove(0).1);
                }
                if header.is_control() {
                    aborting.remove(&header.producer_id);
                } else if !header.is_transactional() || !aborting.contains(&header.producer_id) {
                    let records = BatchRecords::open(whole, 1 << 20).unwrap();
                    let records = records.iter().map(|record| record.unwrap()).filter(|record| record.offset >= start);
                    seen.extend(records.map(|record| (record.offset.0, record.timestamp.0)));
                }
            }
        }
    }

    fn arrival_is_right(&self, offset: i64, told: Option<i64>) {
        let (_, at) = self.arrived.range(..=offset).next_back().unwrap();
        match told {
            // It may be of a batch that compaction has taken since, but is never off by more than this.
            Some(told) => {
                assert!((at - told).abs() <= 1_000 + (self.now - told).abs() / 50, "offset {offset} came at {at}, told is {told}")
            }
            None => assert!(offset < self.killed_below, "offset {offset} came at {at}, and that isn't known"),
        }
    }
}

fn open(disk: &SimDisk, config: &Arc<TopicConfig>, now: i64) -> (Logs, Arc<PartitionLog>) {
    let settings = LogSettings { dirs: vec![PathBuf::from("/data")], ..LogSettings::default() };
    let logs = Logs::lock(Arc::new(disk.clone()), settings).unwrap();
    let topic = TopicPartition { topic: TopicName::new("t").unwrap(), partition: PartitionIndex(0) };
    let spec = PartitionSpec { topic, topic_id: ID, config: config.clone(), leader_epoch: LeaderEpoch(0) };
    logs.open_all(vec![spec], Millis(now)).unwrap();
    let log = logs.get(ID, PartitionIndex(0)).unwrap();
    (logs, log)
}

fn marks(log: &PartitionLog) -> Marks {
    sampler::seen(log).marks
}

/// Looks until nothing is owed, a batch at a time.
fn settle(world: &World, reader: &mut Reader) {
    let marks = marks(&world.log);
    reader.note_marks(&marks);
    let isolation = if reader.read_committed { Isolation::ReadCommitted } else { Isolation::ReadUncommitted };
    let mut looks = 0;
    while let Some(asked) = reader.owes(&marks) {
        looks += 1;
        assert!(looks < 10_000, "a look-up that never ends");
        let (look, _) = world.log.next_visible(asked, isolation, 1).unwrap();
        match look {
            Look::Found(found) => {
                let arrived = world.log.arrival_of(found.offset);
                world.arrival_is_right(found.offset.0, arrived.map(|at| at.0));
                reader.found(&marks, asked, First { offset: found.offset, timestamp: found.timestamp, arrived });
            }
            Look::Nothing(upto) => reader.found_nothing(&marks, asked, upto, true),
            Look::More(upto) => {
                assert!(upto > asked, "no progress");
                reader.found_nothing(&marks, asked, upto, false);
            }
        }
    }
}

fn check(world: &World, reader: &Reader, committed: i64) {
    let isolation = if reader.read_committed { Isolation::ReadCommitted } else { Isolation::ReadUncommitted };
    let marks = marks(&world.log);
    let end = if reader.read_committed { marks.last_stable } else { marks.high_watermark };
    let from = committed.max(marks.log_start.0);
    let first = world.read_all(isolation).into_iter().find(|(offset, _)| *offset >= from);
    let now = Millis(world.now);
    let behind = reader.behind(now, &marks, None);
    assert!(!behind.pending, "{behind:?}");
    assert_eq!(behind.records, first.map_or(0, |(offset, _)| end.0 - offset), "{behind:?}, committed {committed}, {marks:?}");
    assert_eq!(behind.first.map(|first| (first.offset.0, first.timestamp.0)), first);
    let event_ms = first.map(|(_, timestamp)| (world.now - timestamp).max(0));
    assert_eq!(behind.event_ms, event_ms, "by the record's timestamp");
    match first {
        None => assert_eq!(behind.ms, Some(0)),
        Some(_) => assert!(behind.ms.is_some_and(|ms| ms >= 0), "{behind:?}"),
    }
}

fn run(seed: u64) {
    let mut world = World::new(seed);
    // Two groups, one of each isolation level, which go on from commit to commit.
    let mut readers: Vec<(Reader, i64)> = [false, true]
        .into_iter()
        .map(|read_committed| {
            let mut reader = Reader::new(PartitionIndex(0));
            reader.note_isolation(read_committed);
            (reader, 0)
        })
        .collect();
    for _ in 0..60 {
        world.step();
        let end = world.log.watermarks().log_end.0;
        for (reader, committed) in &mut readers {
            if world.random.one_in(2) {
                let to = match world.random.below(8) {
                    0 => -1,
                    1 => end + world.random.below(5) as i64,
                    2 => end,
                    3 => world.random.below(end as u64 + 1) as i64,
                    _ => (*committed + world.random.below(6) as i64).min(end),
                };
                reader.note_commit(Millis(world.now), Commit { offset: Offset(to), at: Millis(world.now) });
                *committed = to.max(0);
            }
            if reader.commit.is_some() {
                settle(&world, reader);
                check(&world, reader, *committed);
            }
        }
    }
}

#[test]
fn the_lag_is_what_reading_every_record_gives() {
    for_each_seed(60, run);
}
