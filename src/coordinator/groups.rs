//! The coordinator of all groups: what handlers call.
#![allow(clippy::disallowed_methods, reason = "a shell: it sleeps between the rounds in which old offsets are forgotten")]

mod in_transactions;
mod machine;

use super::{
    CoordinatorSettings, OFFSETS_TOPIC,
    outcome::{Outcome, Waiting},
    shard::Shard,
    shards::{Plan, Shards},
    topics::Known,
};
use crate::{
    cluster::{Cluster, Image},
    group::{Decision, GroupId, Groups, Now, Ticket},
    log::Logs,
    types::{Clock, ErrorCode, Millis, TopicName},
};
use arc_swap::ArcSwapOption;
use parking_lot::Mutex;
use std::{
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicU64, Ordering},
    },
    time::Duration,
};
use tokio::sync::watch;

/// A request whose answer is held back. Whoever lets go of it wants the answer now: another request waits behind it, or, where it is just
/// dropped, the connection is gone.
pub struct Held {
    groups: Arc<GroupCoordinator>,
    group: GroupId,
    ticket: Ticket,
    answered: Arc<AtomicBool>,
    interrupted: bool,
}

impl Held {
    /// Another request waits behind the answer.
    pub fn interrupt(mut self) {
        self.interrupted = true;
    }

    /// To be set when the answer is there.
    pub fn answered(&self) -> Arc<AtomicBool> {
        self.answered.clone()
    }
}

impl Drop for Held {
    fn drop(&mut self) {
        if !self.answered.load(Ordering::Acquire) {
            // Where the group can't be decided on, nobody waits: its senders are gone.
            let _ = self.groups.decide(&self.group, |groups, now| groups.decide_release(now, &self.group, self.ticket, !self.interrupted));
        }
    }
}

/// The coordinator of all groups. One for the whole broker.
pub struct GroupCoordinator {
    settings: CoordinatorSettings,
    shards: Shards<Groups>,
    /// The metadata as groups were last told of it.
    image: Arc<ArcSwapOption<Image>>,
    /// What all shards have been told of.
    told: ArcSwapOption<Image>,
    tickets: AtomicU64,
    /// Deleted topics whose offsets could not be forgotten yet, and when they were deleted.
    gone: Mutex<Vec<(TopicName, Millis)>>,
    /// Offsets of topics that aren't there may be left from before the start.
    strays: AtomicBool,
}

fn plan(settings: &CoordinatorSettings) -> Plan {
    let segment_bytes = settings.offsets_topic_segment_bytes.to_string();
    Plan {
        name: OFFSETS_TOPIC,
        partitions: settings.offsets_topic_num_partitions,
        replication_factor: settings.offsets_topic_replication_factor,
        configs: Box::new(move |_| {
            vec![
                ("cleanup.policy", "compact".to_owned()),
                ("compression.type", "producer".to_owned()),
                ("segment.bytes", segment_bytes.clone()),
            ]
        }),
        load_threads: settings.load_threads,
    }
}

impl GroupCoordinator {
    pub fn new(settings: CoordinatorSettings, logs: Arc<Logs>, clock: Arc<dyn Clock>) -> Self {
        let image = Arc::new(ArcSwapOption::<Image>::empty());
        let (seen, defaults) = (image.clone(), settings.group_defaults.clone());
        let tell = move |index: usize, count: usize, groups: &mut Groups| {
            seen.load_full().iter().for_each(|image| Known::of(image, &defaults, index, count).tell(groups));
        };
        let shards = Shards::new(plan(&settings), settings.groups, logs, clock, Box::new(|_, _| ())).telling(Box::new(tell));
        let (tickets, told) = (AtomicU64::new(1), ArcSwapOption::empty());
        Self { settings, shards, image, told, tickets, gone: Mutex::default(), strays: AtomicBool::new(true) }
    }

    pub fn settings(&self) -> &CoordinatorSettings {
        &self.settings
    }

    /// Takes the offsets topic as the image has it. Its groups answer COORDINATOR_LOAD_IN_PROGRESS until [`GroupCoordinator::load`] is done.
    pub fn open(&self, image: &Image) {
        self.shards.open(image);
    }

    /// Loads what isn't loaded, several partitions at a time. Blocks on the disk.
    pub fn load(&self) {
        self.shards.load();
    }

    /// Creates the offsets topic on its first use. Blocks on the disk.
    pub fn ensure_topic(&self, cluster: &Cluster) -> Result<(), ErrorCode> {
        self.shards.ensure_topic(cluster)
    }

    /// Whether the topic is there and its shards are known: FindCoordinator has nothing to create.
    pub fn is_open(&self, image: &Image) -> bool {
        self.shards.is_open(image)
    }

    /// Looks at the shard of a group.
    pub fn query<R>(&self, group: &str, look: impl FnOnce(&Groups) -> R) -> Result<R, ErrorCode> {
        self.shards.of(group)?.query(look)
    }

    /// Looks at all shards, one after the other. None of them may be loading.
    pub fn query_all(&self, mut look: impl FnMut(&Groups)) -> Result<(), ErrorCode> {
        self.shards.all().iter().try_for_each(|shard| shard.query(&mut look))
    }

    /// Looks at all shards that can be looked at, one after the other; whether that were all that there are.
    pub fn look_at_serving(&self, mut look: impl FnMut(&Groups)) -> bool {
        // Every shard is looked at, whatever the others say.
        let unseen = self.shards.all().iter().filter(|shard| shard.query(&mut look).is_err()).count();
        unseen == 0
    }

    /// Decides on a group, and makes it so.
    pub fn decide<R>(&self, group: &str, decide: impl FnOnce(&Groups, Now) -> Decision<R>) -> Result<Outcome<R>, ErrorCode> {
        let now = self.shards.now();
        self.shards.of(group)?.decide(now, |groups| decide(groups, now).into()).map(|enacted| enacted.outcome)
    }

    /// The same for a request whose answer may come later, by its ticket. `failed` decides what becomes of the group if the records of the
    /// decision can't be written.
    pub fn decide_later(
        &self,
        group: &str,
        decide: impl FnOnce(&Groups, Now, Ticket) -> Decision<()>,
        failed: impl FnOnce(&Groups, Now, ErrorCode) -> Option<Decision<()>>,
    ) -> Result<Waiting, ErrorCode> {
        let now = self.shards.now();
        let ticket = Ticket(self.tickets.fetch_add(1, Ordering::Relaxed));
        let failed = |groups: &Groups, error| failed(groups, now, error).map(Into::into);
        self.shards.of(group)?.decide_later(now, ticket, |groups| decide(groups, now, ticket).into(), failed)
    }

    /// The metadata has changed: groups whose topics have hear of it, one after the other, so that none keeps the others waiting. `current`
    /// gives the metadata as it is. Blocks on the disk.
    pub fn learn(&self, current: &impl Fn() -> Arc<Image>) {
        let image = current();
        // Seen by the shards that load from now on; the others are told below.
        self.image.store(Some(image.clone()));
        for shard in self.shards.all() {
            let told = shard.tell(|groups| {
                self.show(current, shard.index(), groups);
                groups.iter().filter(|(_, group)| group.cares_for_topics()).map(|(id, _)| id.clone()).collect::<Vec<_>>()
            });
            for id in told.unwrap_or_default() {
                let now = self.shards.now();
                if let Err(error) = shard.decide(now, |groups| groups.decide_topics_changed(now, &id).into()) {
                    // Its members' next heartbeats do it.
                    tracing::debug!(%error, group = %id, "a group can't be told of a change of topics now");
                }
            }
        }
        self.told.store(Some(image));
    }

    /// Tells the shard of a group of the metadata, if that has changed since all were told: a member that joins is to find the topics that
    /// there are, and its group need not change again as soon as they are heard of.
    pub fn catch_up(&self, group: &str, current: &impl Fn() -> Arc<Image>) {
        if self.told.load().as_ref().is_some_and(|told| Arc::ptr_eq(told, &current())) {
            return;
        }
        if let Ok(shard) = self.shards.of(group) {
            let _ = shard.tell(|groups| self.show(current, shard.index(), groups));
        }
    }

    /// The metadata is looked at while the shard is held: who holds it later never shows it something older.
    fn show(&self, current: &impl Fn() -> Arc<Image>, index: usize, groups: &mut Groups) {
        Known::of(&current(), &self.settings.group_defaults, index, self.shards.count()).tell(groups);
    }

    /// Tells the groups of changes of the metadata until the broker stops.
    pub async fn run_learning(self: Arc<Self>, cluster: Arc<Cluster>, mut stopping: watch::Receiver<bool>) {
        /// Changes come in bursts, and each is a look at every group.
        const BETWEEN: Duration = Duration::from_millis(50);
        let mut images = cluster.images();
        loop {
            images.mark_unchanged();
            let (this, cluster) = (self.clone(), cluster.clone());
            if let Err(error) = tokio::task::spawn_blocking(move || this.learn(&|| cluster.image())).await {
                tracing::error!(%error, "telling groups of a change of the metadata failed");
            }
            tokio::time::sleep(BETWEEN).await;
            tokio::select! {
                changed = images.changed() => if changed.is_err() { return },
                _ = stopping.wait_for(|stopping| *stopping) => return,
            }
        }
    }

    /// Decides on a request whose answer is held back until there is news. Dropping what comes with it gives the answer.
    pub fn decide_held(
        self: &Arc<Self>,
        group: &GroupId,
        decide: impl FnOnce(&Groups, Now, Ticket) -> Decision<()>,
    ) -> Result<(Waiting, Held), ErrorCode> {
        let now = self.shards.now();
        let ticket = Ticket(self.tickets.fetch_add(1, Ordering::Relaxed));
        let waiting = self.shards.of(group)?.decide_later(now, ticket, |groups| decide(groups, now, ticket).into(), |_, _| None)?;
        Ok((waiting, Held { groups: self.clone(), group: group.clone(), ticket, answered: Arc::default(), interrupted: false }))
    }

    /// A topic was deleted: so are the offsets of it. Blocks on the disk.
    pub fn topic_deleted(&self, topic: &TopicName) {
        if !self.forget_topic(topic, Millis(i64::MAX)) {
            tracing::warn!(%topic, "offsets of a deleted topic can't be forgotten now; it is tried again");
            self.gone.lock().push((topic.clone(), self.shards.now().wall));
        }
    }

    /// Whether no shard is left to try again. One that can't be loaded has nothing to forget.
    fn forget_topic(&self, topic: &TopicName, until: Millis) -> bool {
        let forget =
            |shard: &Arc<Shard<Groups>>| match shard.clean(self.shards.now(), |groups| groups.decide_topic_deleted(topic, until).into()) {
                Ok(()) | Err(ErrorCode::NotCoordinator) => true,
                Err(_) => false,
            };
        // Every shard is asked, whatever the others say.
        let left = self.shards.all().iter().filter(|shard| !forget(shard)).count();
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
        for shard in self.shards.all() {
            match shard.clean(self.shards.now(), |groups| groups.decide_strays(&is_there).into()) {
                Ok(0) | Err(ErrorCode::NotCoordinator) => {}
                Ok(offsets) => tracing::info!(partition = %shard.log().topic(), offsets, "forgot offsets of topics that are gone"),
                Err(_) => all = false,
            }
        }
        self.strays.store(!all, Ordering::Release);
    }

    /// Forgets what is too old. Blocks on the disk.
    pub fn expire(&self) {
        for shard in self.shards.all() {
            let now = self.shards.now();
            match shard.clean(now, |groups| groups.decide_expire(now).into()) {
                Ok(0) | Err(ErrorCode::CoordinatorLoadInProgress) => {}
                Ok(offsets) => tracing::info!(partition = %shard.log().topic(), offsets, "forgot offsets that are too old"),
                Err(error) => tracing::warn!(partition = %shard.log().topic(), %error, "can't forget offsets that are too old"),
            }
        }
    }

    /// Runs the timers until the broker stops.
    pub async fn run_timers(&self, stopping: watch::Receiver<bool>) {
        self.shards.run_timers(stopping, |_, _| ()).await;
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
