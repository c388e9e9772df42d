//! All groups of the broker: which shard a group belongs to, the offsets topic, loading, and the clock of the timers.
#![allow(clippy::disallowed_methods, reason = "a shell: deadlines are measured by the monotonic clock")]

use super::{
    CoordinatorSettings, OFFSETS_TOPIC,
    shard::{Outcome, Shard, Waiting},
    timers::Timers,
};
use crate::{
    cluster::{AdminError, Cluster, Image, NewTopic},
    group::{Decision, Groups, Now, Ticket},
    log::Logs,
    types::{Clock, ErrorCode, Millis, PartitionIndex, TopicId, TopicName},
};
use arc_swap::ArcSwap;
use parking_lot::Mutex;
use std::{
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering},
    },
    thread,
    time::{Duration, Instant},
};
use tokio::sync::watch;

/// The partition of the offsets topic that a group's records lie in: `Utils.abs(groupId.hashCode()) % partitions`.
pub fn partition_of(group: &str, partitions: usize) -> usize {
    let hash = group.encode_utf16().fold(0_i32, |hash, unit| hash.wrapping_mul(31).wrapping_add(unit.into()));
    let hash = hash.checked_abs().unwrap_or(0);
    usize::try_from(hash).unwrap_or(0).checked_rem(partitions).unwrap_or(0)
}

/// The offsets topic as it is now.
#[derive(Default)]
struct Shards {
    topic: Option<TopicId>,
    by_partition: Vec<Option<Arc<Shard>>>,
}

/// The coordinator of all groups. One for the whole broker.
pub struct GroupCoordinator {
    settings: CoordinatorSettings,
    logs: Arc<Logs>,
    clock: Arc<dyn Clock>,
    started: Instant,
    shards: ArcSwap<Shards>,
    /// Held while the offsets topic is looked for or created.
    opening: Mutex<()>,
    timers: Arc<Timers>,
    tickets: AtomicU64,
    /// Deleted topics whose offsets could not be forgotten yet, and when they were deleted.
    gone: Mutex<Vec<(TopicName, Millis)>>,
    /// Offsets of topics that aren't there may be left from before the start.
    strays: AtomicBool,
}

impl GroupCoordinator {
    pub fn new(settings: CoordinatorSettings, logs: Arc<Logs>, clock: Arc<dyn Clock>) -> Self {
        Self {
            settings,
            logs,
            clock,
            started: Instant::now(),
            shards: ArcSwap::default(),
            opening: Mutex::default(),
            timers: Arc::default(),
            tickets: AtomicU64::new(1),
            gone: Mutex::default(),
            strays: AtomicBool::new(true),
        }
    }

    fn now(&self) -> Now {
        let steady = i64::try_from(self.started.elapsed().as_millis()).unwrap_or(i64::MAX);
        Now { wall: self.clock.now(), steady: Millis(steady) }
    }

    pub fn settings(&self) -> &CoordinatorSettings {
        &self.settings
    }

    /// Takes the offsets topic as the image has it. Its groups answer COORDINATOR_LOAD_IN_PROGRESS until [`GroupCoordinator::load`] is done.
    pub fn open(&self, image: &Image) {
        let _one_at_a_time = self.opening.lock();
        self.open_locked(image);
    }

    fn open_locked(&self, image: &Image) {
        let current = self.shards.load();
        let Some(topic) = image.topic(OFFSETS_TOPIC) else {
            self.shards.store(Arc::default());
            return;
        };
        let same = current.topic == Some(topic.id);
        let shard = |index: usize, partition: PartitionIndex| {
            let there = current.by_partition.get(index).and_then(Clone::clone).filter(|_| same);
            let made = || Some(Arc::new(Shard::new(index, self.logs.get(topic.id, partition)?, self.timers.clone())));
            there.or_else(made)
        };
        let by_partition = topic.indexed().enumerate().map(|(index, (partition, _))| shard(index, partition)).collect();
        self.shards.store(Arc::new(Shards { topic: Some(topic.id), by_partition }));
    }

    /// Loads what isn't loaded, several partitions at a time. Blocks on the disk.
    pub fn load(&self) {
        let shards = self.shards.load_full();
        let next = AtomicUsize::new(0);
        let work = || {
            while let Some(shard) = shards.by_partition.get(next.fetch_add(1, Ordering::Relaxed)) {
                shard.iter().for_each(|shard| shard.load(self.settings.groups, || self.now()));
            }
        };
        let threads = self.settings.load_threads.clamp(1, shards.by_partition.len().max(1));
        thread::scope(|scope| (0..threads).for_each(|_| drop(scope.spawn(work))));
    }

    /// Creates the offsets topic on its first use. Blocks on the disk.
    pub fn ensure_topic(&self, cluster: &Cluster) -> Result<(), ErrorCode> {
        let _one_at_a_time = self.opening.lock();
        let image = cluster.image();
        let there = image.topic(OFFSETS_TOPIC).map(|topic| topic.id);
        if there.is_none() {
            self.create_topic(cluster, &image)?;
        }
        if there.is_none() || there != self.shards.load().topic {
            self.open_locked(&cluster.image());
            self.load();
        }
        Ok(())
    }

    fn create_topic(&self, cluster: &Cluster, image: &Image) -> Result<(), ErrorCode> {
        let brokers = i16::try_from(image.brokers.len()).unwrap_or(i16::MAX);
        let config = |key: &str, value: String| (key.to_owned(), Some(value));
        let topic = NewTopic {
            name: OFFSETS_TOPIC.to_owned(),
            partitions: self.settings.offsets_topic_num_partitions,
            replication_factor: self.settings.offsets_topic_replication_factor.min(brokers).max(1),
            assignments: Vec::new(),
            configs: vec![
                config("cleanup.policy", "compact".to_owned()),
                config("compression.type", "producer".to_owned()),
                config("segment.bytes", self.settings.offsets_topic_segment_bytes.to_string()),
            ],
        };
        match cluster.create_topics(&[topic], false).pop() {
            None | Some(Ok(_) | Err(AdminError::Exists(_))) => Ok(()),
            Some(Err(error)) => {
                tracing::error!(%error, "can't create {OFFSETS_TOPIC}: groups have no coordinator");
                Err(ErrorCode::CoordinatorNotAvailable)
            }
        }
    }

    /// Whether the topic is there and its shards are known: FindCoordinator has nothing to create.
    pub fn is_open(&self, image: &Image) -> bool {
        image.topic(OFFSETS_TOPIC).is_some_and(|topic| self.shards.load().topic == Some(topic.id))
    }

    fn shard(&self, group: &str) -> Result<Arc<Shard>, ErrorCode> {
        let shards = self.shards.load();
        let index = partition_of(group, shards.by_partition.len());
        shards.by_partition.get(index).and_then(Clone::clone).ok_or(ErrorCode::NotCoordinator)
    }

    /// Looks at the shard of a group.
    pub fn query<R>(&self, group: &str, look: impl FnOnce(&Groups) -> R) -> Result<R, ErrorCode> {
        self.shard(group)?.query(look)
    }

    /// Looks at all shards, one after the other. None of them may be loading.
    pub fn query_all(&self, mut look: impl FnMut(&Groups)) -> Result<(), ErrorCode> {
        self.shards.load().by_partition.iter().flatten().try_for_each(|shard| shard.query(&mut look))
    }

    /// Decides on a group, and makes it so.
    pub fn decide<R>(&self, group: &str, decide: impl FnOnce(&Groups, Now) -> Decision<R>) -> Result<Outcome<R>, ErrorCode> {
        let now = self.now();
        self.shard(group)?.decide(now, |groups| decide(groups, now))
    }

    /// The same for a request whose answer may come later, by its ticket. `failed` decides what becomes of the group if the records of the
    /// decision can't be written.
    pub fn decide_later(
        &self,
        group: &str,
        decide: impl FnOnce(&Groups, Now, Ticket) -> Decision<()>,
        failed: impl FnOnce(&Groups, Now, ErrorCode) -> Option<Decision<()>>,
    ) -> Result<Waiting, ErrorCode> {
        let now = self.now();
        let ticket = Ticket(self.tickets.fetch_add(1, Ordering::Relaxed));
        let failed = |groups: &Groups, error| failed(groups, now, error);
        self.shard(group)?.decide_later(now, ticket, |groups| decide(groups, now, ticket), failed)
    }

    /// A topic was deleted: so are the offsets of it. Blocks on the disk.
    pub fn topic_deleted(&self, topic: &TopicName) {
        if !self.forget_topic(topic, Millis(i64::MAX)) {
            tracing::warn!(%topic, "offsets of a deleted topic can't be forgotten now; it is tried again");
            self.gone.lock().push((topic.clone(), self.clock.now()));
        }
    }

    /// Whether no shard is left to try again. One that can't be loaded has nothing to forget.
    fn forget_topic(&self, topic: &TopicName, until: Millis) -> bool {
        let forget = |shard: &Arc<Shard>| match shard.clean(self.now(), |groups| groups.decide_topic_deleted(topic, until)) {
            Ok(()) | Err(ErrorCode::NotCoordinator) => true,
            Err(_) => false,
        };
        // Every shard is asked, whatever the others say.
        let left = self.shards.load().by_partition.iter().flatten().filter(|shard| !forget(shard)).count();
        left == 0
    }

    /// What a deletion could not do at once, or a crash cut short: offsets of topics that are gone are forgotten. Blocks on the disk.
    pub fn sweep(&self, is_there: impl Fn(&TopicName) -> bool) {
        let gone = std::mem::take(&mut *self.gone.lock());
        let left: Vec<_> = gone.into_iter().filter(|(topic, deleted)| !self.forget_topic(topic, *deleted)).collect();
        self.gone.lock().extend(left);
        if !self.strays.load(Ordering::Acquire) {
            return;
        }
        let mut all = true;
        for shard in self.shards.load().by_partition.iter().flatten() {
            match shard.clean(self.now(), |groups| groups.decide_strays(&is_there)) {
                Ok(0) | Err(ErrorCode::NotCoordinator) => {}
                Ok(offsets) => tracing::info!(partition = %shard.log().topic(), offsets, "forgot offsets of topics that are gone"),
                Err(_) => all = false,
            }
        }
        self.strays.store(!all, Ordering::Release);
    }

    /// Forgets what is too old. Blocks on the disk.
    pub fn expire(&self) {
        for shard in self.shards.load().by_partition.iter().flatten() {
            let now = self.now();
            match shard.clean(now, |groups| groups.decide_expire(now)) {
                Ok(0) | Err(ErrorCode::CoordinatorLoadInProgress) => {}
                Ok(offsets) => tracing::info!(partition = %shard.log().topic(), offsets, "forgot offsets that are too old"),
                Err(error) => tracing::warn!(partition = %shard.log().topic(), %error, "can't forget offsets that are too old"),
            }
        }
    }

    /// Runs the timers until the broker stops.
    pub async fn run_timers(&self, mut stopping: watch::Receiver<bool>) {
        loop {
            let now = self.now();
            while let Some((deadline, index, group)) = self.timers.pop_due(now.steady) {
                let shard = self.shards.load().by_partition.get(index).and_then(Clone::clone);
                shard.iter().for_each(|shard| shard.tick(now, deadline, &group));
            }
            tokio::select! {
                () = self.timers.wait(self.now().steady) => {}
                _ = stopping.wait_for(|stopping| *stopping) => return,
            }
        }
    }

    /// Forgets what is too old, every `offsets.retention.check.interval.ms`, until the broker stops.
    pub async fn run_expiry(self: Arc<Self>, mut stopping: watch::Receiver<bool>) {
        let interval = Duration::from_millis(self.settings.offsets_retention_check_interval_ms.unsigned_abs().max(1));
        loop {
            tokio::select! {
                () = tokio::time::sleep(interval) => {}
                _ = stopping.wait_for(|stopping| *stopping) => return,
            }
            let this = self.clone();
            if let Err(error) = tokio::task::spawn_blocking(move || this.expire()).await {
                tracing::error!(%error, "forgetting old offsets failed");
            }
        }
    }
}
