//! All shards of an internal topic: which one a key belongs to, the topic's creation, loading, and the clock of the timers.
#![allow(clippy::disallowed_methods, reason = "a shell: deadlines are measured by the monotonic clock")]

use super::{machine::Machine, shard::Shard, timers::Timers};
use crate::{
    cluster::{AdminError, Cluster, Image, NewTopic},
    group::Now,
    log::Logs,
    types::{Clock, ErrorCode, Millis, PartitionIndex, TopicId},
};
use arc_swap::ArcSwap;
use parking_lot::Mutex;
use std::{
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering},
    },
    thread,
    time::Instant,
};
use tokio::sync::watch;

/// The partition of an internal topic that a key's records lie in: `Utils.abs(key.hashCode()) % partitions`.
pub fn partition_of(key: &str, partitions: usize) -> usize {
    let hash = key.encode_utf16().fold(0_i32, |hash, unit| hash.wrapping_mul(31).wrapping_add(unit.into()));
    let hash = hash.checked_abs().unwrap_or(0);
    usize::try_from(hash).unwrap_or(0).checked_rem(partitions).unwrap_or(0)
}

/// The topic as it is created on its first use.
pub(super) struct Plan {
    pub name: &'static str,
    pub partitions: i32,
    /// Fewer if there are fewer brokers.
    pub replication_factor: i16,
    /// Its overrides, for so many replicas.
    pub configs: Box<dyn Fn(i16) -> Vec<(&'static str, String)> + Send + Sync>,
    pub load_threads: usize,
}

/// The topic as it is now.
struct Topic<M: Machine> {
    id: Option<TopicId>,
    shards: Vec<Option<Arc<Shard<M>>>>,
}

impl<M: Machine> Default for Topic<M> {
    fn default() -> Self {
        Self { id: None, shards: Vec::new() }
    }
}

/// What is done with what loading a shard found to be done elsewhere.
pub(super) type OnLoaded<M> = Box<dyn Fn(&Arc<Shard<M>>, Vec<<M as Machine>::Effect>) + Send + Sync>;

/// Tells a shard that is being loaded what it is to know besides: its index, and how many there are.
pub(super) type OnLoading<M> = Box<dyn Fn(usize, usize, &mut M) + Send + Sync>;

pub(super) struct Shards<M: Machine> {
    plan: Plan,
    settings: M::Settings,
    logs: Arc<Logs>,
    clock: Arc<dyn Clock>,
    started: Instant,
    topic: ArcSwap<Topic<M>>,
    /// Held while the topic is looked for or created.
    opening: Mutex<()>,
    timers: Arc<Timers>,
    on_loading: OnLoading<M>,
    on_loaded: OnLoaded<M>,
}

impl<M: Machine> Shards<M> {
    pub fn new(plan: Plan, settings: M::Settings, logs: Arc<Logs>, clock: Arc<dyn Clock>, on_loaded: OnLoaded<M>) -> Self {
        let (topic, opening, timers) = (ArcSwap::default(), Mutex::default(), Arc::default());
        let on_loading: OnLoading<M> = Box::new(|_, _, _| ());
        Self { plan, settings, logs, clock, started: Instant::now(), topic, opening, timers, on_loading, on_loaded }
    }

    pub fn telling(self, on_loading: OnLoading<M>) -> Self {
        Self { on_loading, ..self }
    }

    /// How many partitions the topic has.
    pub fn count(&self) -> usize {
        self.topic.load().shards.len()
    }

    pub fn now(&self) -> Now {
        let steady = i64::try_from(self.started.elapsed().as_millis()).unwrap_or(i64::MAX);
        Now { wall: self.clock.now(), steady: Millis(steady) }
    }

    /// Takes the topic as the image has it. Its shards answer COORDINATOR_LOAD_IN_PROGRESS until [`Shards::load`] is done.
    pub fn open(&self, image: &Image) {
        let _one_at_a_time = self.opening.lock();
        self.open_locked(image);
    }

    fn open_locked(&self, image: &Image) {
        let current = self.topic.load();
        let Some(topic) = image.topic(self.plan.name) else {
            self.topic.store(Arc::default());
            return;
        };
        let same = current.id == Some(topic.id);
        let shard = |index: usize, partition: PartitionIndex| {
            let there = current.shards.get(index).and_then(Clone::clone).filter(|_| same);
            let made = || Some(Arc::new(Shard::new(index, self.logs.get(topic.id, partition)?, self.timers.clone())));
            there.or_else(made)
        };
        let shards = topic.indexed().enumerate().map(|(index, (partition, _))| shard(index, partition)).collect();
        self.topic.store(Arc::new(Topic { id: Some(topic.id), shards }));
    }

    /// Loads what isn't loaded, several partitions at a time. Blocks on the disk.
    pub fn load(&self) {
        let topic = self.topic.load_full();
        let next = AtomicUsize::new(0);
        let work = || {
            while let Some(shard) = topic.shards.get(next.fetch_add(1, Ordering::Relaxed)) {
                let Some(shard) = shard else { continue };
                let tell = |machine: &mut M| (self.on_loading)(shard.index(), topic.shards.len(), machine);
                let effects = shard.load(self.settings.clone(), tell, || self.now());
                if !effects.is_empty() {
                    (self.on_loaded)(shard, effects);
                }
            }
        };
        let threads = self.plan.load_threads.clamp(1, topic.shards.len().max(1));
        thread::scope(|scope| (0..threads).for_each(|_| drop(scope.spawn(work))));
    }

    /// Creates the topic on its first use. Blocks on the disk.
    pub fn ensure_topic(&self, cluster: &Cluster) -> Result<(), ErrorCode> {
        let _one_at_a_time = self.opening.lock();
        let image = cluster.image();
        let there = image.topic(self.plan.name).map(|topic| topic.id);
        if there.is_none() {
            self.create_topic(cluster, &image)?;
        }
        if there.is_none() || there != self.topic.load().id {
            self.open_locked(&cluster.image());
            self.load();
        }
        Ok(())
    }

    fn create_topic(&self, cluster: &Cluster, image: &Image) -> Result<(), ErrorCode> {
        let brokers = i16::try_from(image.brokers.len()).unwrap_or(i16::MAX);
        let replication_factor = self.plan.replication_factor.min(brokers).max(1);
        let topic = NewTopic {
            name: self.plan.name.to_owned(),
            partitions: self.plan.partitions,
            replication_factor,
            assignments: Vec::new(),
            configs: (self.plan.configs)(replication_factor).into_iter().map(|(key, value)| (key.to_owned(), Some(value))).collect(),
        };
        match cluster.create_topics(&[topic], false).pop() {
            None | Some(Ok(_) | Err(AdminError::Exists(_))) => Ok(()),
            Some(Err(error)) => {
                tracing::error!(%error, "can't create {}: {} have no coordinator", self.plan.name, M::PLURAL);
                Err(ErrorCode::CoordinatorNotAvailable)
            }
        }
    }

    /// Whether the topic is there and its shards are known: FindCoordinator has nothing to create.
    pub fn is_open(&self, image: &Image) -> bool {
        image.topic(self.plan.name).is_some_and(|topic| self.topic.load().id == Some(topic.id))
    }

    /// The shard that a key belongs to.
    pub fn of(&self, key: &str) -> Result<Arc<Shard<M>>, ErrorCode> {
        let topic = self.topic.load();
        let index = partition_of(key, topic.shards.len());
        topic.shards.get(index).and_then(Clone::clone).ok_or(ErrorCode::NotCoordinator)
    }

    /// The shard of a partition of the topic.
    pub fn at(&self, partition: PartitionIndex) -> Option<Arc<Shard<M>>> {
        self.topic.load().shards.get(usize::try_from(partition.0).ok()?).and_then(Clone::clone)
    }

    /// The shards that are there.
    pub fn all(&self) -> Vec<Arc<Shard<M>>> {
        self.topic.load().shards.iter().flatten().cloned().collect()
    }

    /// Runs the timers until the broker stops.
    pub async fn run_timers(&self, mut stopping: watch::Receiver<bool>, done: impl Fn(&Arc<Shard<M>>, Vec<M::Effect>)) {
        loop {
            let now = self.now();
            while let Some((deadline, index, key)) = self.timers.pop_due(now.steady) {
                let shard = self.topic.load().shards.get(index).and_then(Clone::clone);
                shard.iter().for_each(|shard| done(shard, shard.tick(now, deadline, &key)));
            }
            tokio::select! {
                () = self.timers.wait(self.now().steady) => {}
                _ = stopping.wait_for(|stopping| *stopping) => return,
            }
        }
    }
}
