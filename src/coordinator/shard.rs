//! One partition of an internal topic: the state machine in it, who waits for an answer, and the way of a decision to the log and back.

use super::{
    load::{self, Loaded},
    machine::{Key, Machine, Steps},
    outcome::{Committing, Outcome, Waiting},
    timers::Timers,
};
use crate::{
    group::{Now, Ticket},
    log::{AppendError, PartitionLog, validate::Origin},
    record::BatchBuilder,
    types::{ErrorCode, Millis},
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

enum State<M: Machine> {
    Loading,
    Serving(Box<Serving<M>>),
    /// It could not be loaded. The reason was logged.
    Failed,
}

struct Serving<M: Machine> {
    machine: M,
    waiting: HashMap<Ticket, oneshot::Sender<Outcome<M::Reply>>>,
    /// The deadline that the timers have for each key.
    armed: HashMap<Key, Millis>,
    /// What was appended last, while it isn't committed.
    last: Option<Committing>,
}

/// A decision that was made so.
pub(super) struct Enacted<M: Machine, R> {
    pub outcome: Outcome<R>,
    /// To be done once what the outcome waits for is committed.
    pub effects: Vec<M::Effect>,
}

pub(super) struct Shard<M: Machine> {
    index: usize,
    log: Arc<PartitionLog>,
    timers: Arc<Timers>,
    load_begun: AtomicBool,
    /// When the next failed write may be told of.
    warn_from: AtomicI64,
    state: Mutex<State<M>>,
}

impl<M: Machine> Shard<M> {
    pub fn new(index: usize, log: Arc<PartitionLog>, timers: Arc<Timers>) -> Self {
        Self { index, log, timers, load_begun: AtomicBool::new(false), warn_from: AtomicI64::new(0), state: Mutex::new(State::Loading) }
    }

    /// Loads the state, and begins to serve. Blocks on the disk, and nobody else meanwhile. Does nothing if it was done. `tell` tells the
    /// machine what it is to know besides. The answer is what loading found to be done elsewhere.
    pub fn load(&self, settings: M::Settings, tell: impl FnOnce(&mut M), now: impl Fn() -> Now) -> Vec<M::Effect> {
        if self.load_begun.swap(true, Ordering::AcqRel) {
            return Vec::new();
        }
        let mut machine = M::new(settings);
        let loaded = load::load(&self.log, &mut machine);
        let mut state = self.state.lock();
        // What there is to know from here on waits for the lock.
        tell(&mut machine);
        match loaded {
            Ok(loaded) => {
                let keys = machine.keys();
                if loaded != Loaded::default() {
                    let Loaded { records, ignored } = loaded;
                    tracing::info!(partition = %self.log.topic(), count = keys.len(), records, ignored, "loaded {}", M::PLURAL);
                }
                let mut serving = Serving { machine, waiting: HashMap::new(), armed: HashMap::new(), last: None };
                let mut effects = Vec::new();
                for key in &keys {
                    let steps = serving.machine.decide_loaded(now(), key);
                    let enacted = self.enact(&mut serving, now(), steps);
                    effects.extend(enacted.into_iter().flat_map(|enacted| enacted.effects));
                }
                *state = State::Serving(Box::new(serving));
                effects
            }
            Err(error) => {
                tracing::error!(partition = %self.log.topic(), error = &error as &dyn std::error::Error, "can't load {}", M::PLURAL);
                *state = State::Failed;
                Vec::new()
            }
        }
    }

    fn with<R>(&self, run: impl FnOnce(&mut Serving<M>) -> R) -> Result<R, ErrorCode> {
        match &mut *self.state.lock() {
            State::Loading => Err(ErrorCode::CoordinatorLoadInProgress),
            State::Failed => Err(ErrorCode::NotCoordinator),
            State::Serving(serving) => Ok(run(serving)),
        }
    }

    /// Changes the state by what is written to its log meanwhile, in another way than a decision's records are.
    pub fn with_log<R>(&self, run: impl FnOnce(&mut M, &Arc<PartitionLog>) -> R) -> Result<R, ErrorCode> {
        self.with(|serving| run(&mut serving.machine, &self.log))
    }

    /// Looks at the state.
    pub fn query<R>(&self, look: impl FnOnce(&M) -> R) -> Result<R, ErrorCode> {
        self.with(|serving| look(&serving.machine))
    }

    /// Tells the machine something that no decision is needed for.
    pub fn tell<R>(&self, tell: impl FnOnce(&mut M) -> R) -> Result<R, ErrorCode> {
        self.with(|serving| tell(&mut serving.machine))
    }

    /// Decides, appends and applies.
    pub fn decide<R>(&self, now: Now, decide: impl FnOnce(&M) -> Steps<M, R>) -> Result<Enacted<M, R>, ErrorCode> {
        self.with(|serving| {
            let steps = decide(&serving.machine);
            self.enact(serving, now, steps)
        })?
    }

    /// The same for a request that may have to wait. If its records can't be written, `failed` decides what the others hear.
    pub fn decide_later(
        &self,
        now: Now,
        ticket: Ticket,
        decide: impl FnOnce(&M) -> Steps<M>,
        failed: impl FnOnce(&M, ErrorCode) -> Option<Steps<M>>,
    ) -> Result<Waiting<M::Reply>, ErrorCode> {
        self.with(|serving| {
            let (sender, receiver) = oneshot::channel();
            serving.waiting.insert(ticket, sender);
            let steps = decide(&serving.machine);
            let Err(error) = self.enact(serving, now, steps) else { return Ok(Waiting(receiver)) };
            serving.waiting.remove(&ticket);
            if let Some(steps) = failed(&serving.machine, error) {
                let _ = self.enact(serving, now, steps);
            }
            Err(error)
        })?
    }

    /// A deadline that the timers had has come.
    pub fn tick(&self, now: Now, deadline: Millis, key: &Key) -> Vec<M::Effect> {
        let ticked = self.with(|serving| {
            if serving.armed.get(key) != Some(&deadline) {
                return Vec::new();
            }
            serving.armed.remove(key);
            let steps = serving.machine.decide_tick(now, key);
            let enacted = self.enact(serving, now, steps);
            self.rearm(serving, key);
            enacted.map(|enacted| enacted.effects).unwrap_or_default()
        });
        // A shard that is loading has no deadlines, and one that failed needs none.
        ticked.unwrap_or_default()
    }

    /// Tombstones, in as many batches as they take.
    pub fn clean<R>(&self, now: Now, decide: impl Fn(&M) -> Steps<M, R>) -> Result<R, ErrorCode> {
        const RECORDS_PER_BATCH: usize = 1_000;
        self.with(|serving| {
            let Steps { reply, records, .. } = decide(&serving.machine);
            for records in records.chunks(RECORDS_PER_BATCH) {
                self.enact(serving, now, Steps::write((), records.to_vec()))?;
            }
            Ok(reply)
        })?
    }

    fn enact<R>(&self, serving: &mut Serving<M>, now: Now, steps: Steps<M, R>) -> Result<Enacted<M, R>, ErrorCode> {
        let Steps { reply, records, volatile, notes, replies, effects, records_may_fail } = steps;
        let committing = match self.append(&serving.machine, &records, now) {
            Ok(None) if records.is_empty() && M::ANSWERS_WAIT => serving.pending(),
            Ok(committing) => {
                serving.machine.apply_all(&records);
                if M::ANSWERS_WAIT && !records.is_empty() {
                    serving.last.clone_from(&committing);
                }
                committing
            }
            Err(error) if records_may_fail => {
                tracing::warn!(partition = %self.log.topic(), %error, "can't write what a restart finds out by itself");
                None
            }
            Err(error) => return Err(error),
        };
        let changed: Vec<Key> = volatile.into_iter().filter_map(|change| serving.machine.apply_volatile(change)).collect();
        notes.iter().for_each(|note| serving.machine.tell(now, note));
        for (ticket, reply) in replies {
            // Whoever waited may be gone with its connection.
            if let Some(waiting) = serving.waiting.remove(&ticket) {
                let _ = waiting.send(Outcome { reply, committing: committing.clone() });
            }
        }
        changed.iter().for_each(|key| self.rearm(serving, key));
        Ok(Enacted { outcome: Outcome { reply, committing }, effects })
    }

    fn append(&self, machine: &M, records: &[M::Record], now: Now) -> Result<Option<Committing>, ErrorCode> {
        if records.is_empty() {
            return Ok(None);
        }
        let batch = batch(machine, records, now.wall)?;
        let appended = self.log.append(now.wall, batch, Origin::Coordinator).map_err(|error| {
            if self.may_warn(now) {
                tracing::warn!(partition = %self.log.topic(), error = &error as &dyn std::error::Error, "can't write what is decided of {}", M::PLURAL);
            }
            error_of(&error)
        })?;
        Ok(Committing::of(&self.log, &appended))
    }

    /// Once a second at most: clients try again and again.
    fn may_warn(&self, now: Now) -> bool {
        const BETWEEN_WARNINGS_MS: i64 = 1_000;
        let due = now.steady.0 >= self.warn_from.load(Ordering::Relaxed);
        if due {
            self.warn_from.store(now.steady.plus(BETWEEN_WARNINGS_MS).0, Ordering::Relaxed);
        }
        due
    }

    /// Makes sure that the key is looked at in time.
    fn rearm(&self, serving: &mut Serving<M>, key: &Key) {
        match serving.machine.next_deadline(key) {
            None => {
                serving.armed.remove(key);
            }
            Some(deadline) if serving.armed.get(key).is_none_or(|armed| deadline < *armed) => {
                serving.armed.insert(key.clone(), deadline);
                self.timers.add(deadline, self.index, key.clone());
            }
            Some(_) => {}
        }
    }

    /// Which partition of the topic it is.
    pub fn index(&self) -> usize {
        self.index
    }

    pub fn log(&self) -> &Arc<PartitionLog> {
        &self.log
    }
}

impl<M: Machine> Serving<M> {
    /// What was appended last, if that isn't committed yet.
    fn pending(&mut self) -> Option<Committing> {
        self.last.take_if(|last| !last.is_pending());
        self.last.clone()
    }
}

fn batch<M: Machine>(machine: &M, records: &[M::Record], timestamp: Millis) -> Result<Bytes, ErrorCode> {
    let mut builder = BatchBuilder::default();
    for record in records {
        // A name of more than 32 KiB: no client has one.
        let (key, value) = machine.encode(record).map_err(|_| ErrorCode::InvalidRequest)?;
        builder.append(timestamp, Some(&key), value.as_deref(), &[]);
    }
    builder.build().map_err(|_| ErrorCode::UnknownServerError)
}

/// What a client hears of a failed write (`CoordinatorOperationExceptionHelper`).
pub(super) fn error_of(error: &AppendError) -> ErrorCode {
    match error {
        AppendError::Offline(_) | AppendError::Io(_) => ErrorCode::NotCoordinator,
        // There may be room again by the time that a client tries again.
        AppendError::NoRoom(_) => ErrorCode::CoordinatorNotAvailable,
        _ => ErrorCode::UnknownServerError,
    }
}
