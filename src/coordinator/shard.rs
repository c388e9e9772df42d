//! One partition of the offsets topic: its groups, who waits for an answer, and the way of a decision to the log and back.

use super::{
    load::{self, Loaded},
    records,
    timers::Timers,
};
use crate::{
    codec::header::client_id_text,
    group::{Decision, GroupId, Groups, Note, Now, Record, Reply, Settings, Ticket, Volatile, names},
    log::{AppendError, Appended, PartitionLog, Waiter, validate::Origin},
    record::BatchBuilder,
    types::{ErrorCode, Millis, Offset},
};
use bytes::Bytes;
use parking_lot::Mutex;
use std::{
    collections::HashMap,
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicI64, Ordering},
    },
};
use tokio::sync::oneshot;

/// A decision's answer, and what it waits for.
#[derive(Debug)]
pub struct Outcome<R> {
    pub reply: R,
    /// `None`: its records are committed, or it has none.
    pub committing: Option<Committing>,
}

/// Records that are appended but not committed yet.
#[derive(Clone)]
pub struct Committing {
    log: Arc<PartitionLog>,
    /// They end here.
    end: Offset,
    /// `flush.messages` asks for a sync.
    sync_to: Option<Offset>,
}

impl std::fmt::Debug for Committing {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Committing {{ {} up to {} }}", self.log.topic(), self.end)
    }
}

impl Committing {
    fn of(log: &Arc<PartitionLog>, appended: &Appended) -> Option<Self> {
        let committing = Self { log: log.clone(), end: appended.last_offset.plus(1), sync_to: appended.sync_to };
        (appended.sync_to.is_some() || !committing.is_committed()).then_some(committing)
    }

    fn is_committed(&self) -> bool {
        self.log.watermarks().high_watermark >= self.end
    }

    /// Waits until they are committed, and synced where that is asked for.
    pub async fn wait(self) -> Result<(), ErrorCode> {
        if let Some(to) = self.sync_to {
            let log = self.log.clone();
            let synced = tokio::task::spawn_blocking(move || log.sync_to(to)).await;
            if !matches!(synced, Ok(Ok(()))) {
                return Err(ErrorCode::NotCoordinator);
            }
        }
        let waiter = Waiter::new();
        let _registration = self.log.watch().register(&waiter);
        while !self.is_committed() {
            if self.log.is_deleted() {
                return Err(ErrorCode::NotCoordinator);
            }
            waiter.wait().await;
        }
        Ok(())
    }
}

/// A request whose answer may come later.
#[derive(Debug)]
pub struct Waiting(pub oneshot::Receiver<Outcome<Reply>>);

enum State {
    Loading,
    Serving(Box<Serving>),
    /// It could not be loaded. The reason was logged.
    Failed,
}

struct Serving {
    groups: Groups,
    waiting: HashMap<Ticket, oneshot::Sender<Outcome<Reply>>>,
    /// The deadline that the timers have for each group.
    armed: HashMap<GroupId, Millis>,
}

pub(super) struct Shard {
    index: usize,
    log: Arc<PartitionLog>,
    timers: Arc<Timers>,
    load_begun: AtomicBool,
    /// When the next failed write may be told of.
    warn_from: AtomicI64,
    state: Mutex<State>,
}

impl Shard {
    pub fn new(index: usize, log: Arc<PartitionLog>, timers: Arc<Timers>) -> Self {
        Self { index, log, timers, load_begun: AtomicBool::new(false), warn_from: AtomicI64::new(0), state: Mutex::new(State::Loading) }
    }

    /// Loads the groups, and begins to serve. Blocks on the disk, and nobody else meanwhile. Does nothing if it was done.
    pub fn load(&self, settings: Settings, now: impl Fn() -> Now) {
        if self.load_begun.swap(true, Ordering::AcqRel) {
            return;
        }
        let mut groups = Groups::new(settings);
        let loaded = load::load(&self.log, |record| groups.apply(record));
        let mut state = self.state.lock();
        match loaded {
            Ok(loaded) => {
                if loaded != Loaded::default() {
                    let Loaded { records, ignored } = loaded;
                    tracing::info!(partition = %self.log.topic(), groups = groups.len(), records, ignored, "loaded groups");
                }
                let ids: Vec<GroupId> = groups.iter().map(|(id, _)| id.clone()).collect();
                let mut serving = Serving { groups, waiting: HashMap::new(), armed: HashMap::new() };
                for id in &ids {
                    let decision = serving.groups.decide_loaded(now(), id);
                    let _ = self.enact(&mut serving, now(), decision);
                }
                *state = State::Serving(Box::new(serving));
            }
            Err(error) => {
                tracing::error!(partition = %self.log.topic(), error = &error as &dyn std::error::Error, "can't load groups");
                *state = State::Failed;
            }
        }
    }

    fn with<R>(&self, run: impl FnOnce(&mut Serving) -> R) -> Result<R, ErrorCode> {
        match &mut *self.state.lock() {
            State::Loading => Err(ErrorCode::CoordinatorLoadInProgress),
            State::Failed => Err(ErrorCode::NotCoordinator),
            State::Serving(serving) => Ok(run(serving)),
        }
    }

    /// Looks at the groups.
    pub fn query<R>(&self, look: impl FnOnce(&Groups) -> R) -> Result<R, ErrorCode> {
        self.with(|serving| look(&serving.groups))
    }

    /// Decides, appends and applies.
    pub fn decide<R>(&self, now: Now, decide: impl FnOnce(&Groups) -> Decision<R>) -> Result<Outcome<R>, ErrorCode> {
        self.with(|serving| {
            let decision = decide(&serving.groups);
            self.enact(serving, now, decision)
        })?
    }

    /// The same for a request that may have to wait. If its records can't be written, `failed` decides what the others hear.
    pub fn decide_later(
        &self,
        now: Now,
        ticket: Ticket,
        decide: impl FnOnce(&Groups) -> Decision<()>,
        failed: impl FnOnce(&Groups, ErrorCode) -> Option<Decision<()>>,
    ) -> Result<Waiting, ErrorCode> {
        self.with(|serving| {
            let (sender, receiver) = oneshot::channel();
            serving.waiting.insert(ticket, sender);
            let decision = decide(&serving.groups);
            let Err(error) = self.enact(serving, now, decision) else { return Ok(Waiting(receiver)) };
            serving.waiting.remove(&ticket);
            if let Some(decision) = failed(&serving.groups, error) {
                let _ = self.enact(serving, now, decision);
            }
            Err(error)
        })?
    }

    /// A deadline that the timers had has come.
    pub fn tick(&self, now: Now, deadline: Millis, group: &GroupId) {
        let ticked = self.with(|serving| {
            if serving.armed.get(group) != Some(&deadline) {
                return;
            }
            serving.armed.remove(group);
            let decision = serving.groups.decide_tick(now, group);
            let _ = self.enact(serving, now, decision);
            self.rearm(serving, group);
        });
        // Groups that are loading have no deadlines, and those that failed need none.
        let _ = ticked;
    }

    /// Tombstones, in as many batches as they take.
    pub fn clean<R>(&self, now: Now, decide: impl Fn(&Groups) -> Decision<R>) -> Result<R, ErrorCode> {
        const RECORDS_PER_BATCH: usize = 1_000;
        self.with(|serving| {
            let Decision { reply, records, .. } = decide(&serving.groups);
            for records in records.chunks(RECORDS_PER_BATCH) {
                self.enact(serving, now, Decision { records: records.to_vec(), ..Decision::only(()) })?;
            }
            Ok(reply)
        })?
    }

    fn enact<R>(&self, serving: &mut Serving, now: Now, decision: Decision<R>) -> Result<Outcome<R>, ErrorCode> {
        let Decision { reply, records, volatile, replies, notes, records_may_fail } = decision;
        let committing = match self.append(&records, now) {
            Ok(committing) => {
                records.iter().for_each(|record| serving.groups.apply(record));
                committing
            }
            Err(error) if records_may_fail => {
                tracing::warn!(partition = %self.log.topic(), %error, "can't write that a group is empty");
                None
            }
            Err(error) => return Err(error),
        };
        let changed = match &volatile {
            Some(Volatile::Classic(group, _)) => Some(group.clone()),
            _ => None,
        };
        volatile.into_iter().for_each(|change| serving.groups.apply_volatile(change));
        for note in &notes {
            log_note(note);
            serving.groups.tell(now, note);
        }
        for (ticket, reply) in replies {
            // Whoever waited may be gone with its connection.
            if let Some(waiting) = serving.waiting.remove(&ticket) {
                let _ = waiting.send(Outcome { reply, committing: committing.clone() });
            }
        }
        if let Some(group) = changed {
            self.rearm(serving, &group);
        }
        Ok(Outcome { reply, committing })
    }

    fn append(&self, records: &[Record], now: Now) -> Result<Option<Committing>, ErrorCode> {
        if records.is_empty() {
            return Ok(None);
        }
        let batch = batch(records, now.wall)?;
        let appended = self.log.append(now.wall, batch, Origin::Coordinator).map_err(|error| {
            if self.may_warn(now) {
                tracing::warn!(partition = %self.log.topic(), error = &error as &dyn std::error::Error, "can't write to the offsets topic");
            }
            error_of(&error)
        })?;
        Ok(Committing::of(&self.log, &appended))
    }

    /// Once a second at most: members try again and again.
    fn may_warn(&self, now: Now) -> bool {
        const BETWEEN_WARNINGS_MS: i64 = 1_000;
        let due = now.steady.0 >= self.warn_from.load(Ordering::Relaxed);
        if due {
            self.warn_from.store(now.steady.plus(BETWEEN_WARNINGS_MS).0, Ordering::Relaxed);
        }
        due
    }

    /// Makes sure that the group is looked at in time.
    fn rearm(&self, serving: &mut Serving, group: &GroupId) {
        match serving.groups.next_deadline(group) {
            None => {
                serving.armed.remove(group);
            }
            Some(deadline) if serving.armed.get(group).is_none_or(|armed| deadline < *armed) => {
                serving.armed.insert(group.clone(), deadline);
                self.timers.add(deadline, self.index, group.clone());
            }
            Some(_) => {}
        }
    }

    pub fn log(&self) -> &Arc<PartitionLog> {
        &self.log
    }
}

fn batch(records: &[Record], timestamp: Millis) -> Result<Bytes, ErrorCode> {
    let mut builder = BatchBuilder::default();
    for record in records {
        // A name of more than 32 KiB: no client has one.
        let (key, value) = records::encode(record).map_err(|_| ErrorCode::InvalidRequest)?;
        builder.append(timestamp, Some(&key), value.as_deref(), &[]);
    }
    builder.build().map_err(|_| ErrorCode::UnknownServerError)
}

/// What a member hears of a failed write (`CoordinatorOperationExceptionHelper`).
fn error_of(error: &AppendError) -> ErrorCode {
    match error {
        AppendError::Offline(_) | AppendError::Io(_) => ErrorCode::NotCoordinator,
        // There may be room again by the time that a client tries again.
        AppendError::NoRoom(_) => ErrorCode::CoordinatorNotAvailable,
        _ => ErrorCode::UnknownServerError,
    }
}

fn log_note(note: &Note) {
    let group = client_id_text(Some(note.group().as_bytes()));
    match note {
        Note::Preparing { generation, members, cause, .. } => {
            tracing::info!(group, generation = generation.0, members, %cause, "a group rebalances");
        }
        Note::Generation { generation, members, removed, last, .. } => {
            let last = last.as_ref().map(ToString::to_string).unwrap_or_default();
            let removed = names(removed);
            tracing::info!(group, generation = generation.0, members, removed, last, "all members have joined, or their time is up");
        }
        Note::Stable { generation, members, .. } => {
            tracing::info!(group, generation = generation.0, members, "a group is stable");
        }
        Note::Empty { generation, .. } => tracing::info!(group, generation = generation.0, "a group is empty"),
        Note::Fenced { old, new, .. } => tracing::warn!(
            group, %old, %new,
            "a second process has joined with group.instance.id of a member that was alive; the first one is fenced"
        ),
        Note::NobodyJoined { .. } => tracing::warn!(group, "nobody has joined again in time"),
    }
}
