//! The log on a disk that crashes, tears and loses, against a plain list of what was acknowledged.
//!
//! Goal: whatever happens, opening succeeds; what was acknowledged survives a crash of the process, and a power loss if it was durable by
//! the flush policy; an offset never holds another record than the one that was acknowledged there; readers see whole batches in order and
//! aborted transactions by their list. Method: random operations from a seed on two partitions. `SIM_SEED=n cargo test --lib
//! log::model_tests` replays one seed, `SIM_SEEDS=n` runs more of them, `SIM_FULL=1` as many as CI does.

mod appends;
mod checks;
mod compaction;
mod crashes;
mod moving;
mod removal;
mod truncating;

use checks::*;

use super::{
    files::{self, Kind, Stage},
    io::{Disk, sim::SimDisk},
    producer_state::ProducerStates,
    *,
};
use crate::{
    config::TopicConfig,
    record::{BatchHeader, BatchRecords, EndTxnMarker, TimestampType, builder, builder::BatchBuilder, header::Compression},
    sim::{Random, for_each_seed},
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
    /// How far compaction may have looked at transactions: the last stable offset when it last ran.
    compacted_to: i64,
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
        let (cleanup_compact, cleanup_delete) = [(false, true), (true, true), (true, false)][random.below(3) as usize];
        let config = TopicConfig {
            segment_bytes: 1_200 + random.below(4_000) as usize,
            index_interval_bytes: random.below(400) as usize,
            segment_index_bytes: if random.one_in(4) { 40 } else { 10 << 20 },
            flush_messages: [i64::MAX, 1, 5][random.below(3) as usize],
            flush_ms: [i64::MAX, 5_000][random.below(2) as usize],
            cleanup_compact,
            cleanup_delete,
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
        if self.random.one_in(2) {
            // Those that a crash cut short.
            logs.run_moves(self.now, &|_| true);
        }
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
        match self.random.below(124) {
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
            100..=105 if self.config.cleanup_compact && self.random.one_in(2) => self.compact(partition),
            100..=105 => self.retain(partition),
            106..=108 => self.delete_records(),
            109..=111 if self.config.cleanup_compact => self.crash_while_compacting(partition),
            109..=114 => self.crash_while_removing(partition),
            115 | 116 => self.move_partition(partition),
            117 => self.give_up_a_move(partition),
            118 | 119 => self.crash_while_moving(partition),
            120 | 121 => self.truncate(partition),
            _ => self.crash_while_truncating(partition),
        }
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
    for_each_seed(if std::env::var_os("SIM_FULL").is_some() { 2_000 } else { 100 }, run);
}
