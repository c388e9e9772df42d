//! Group commit of a data directory: acknowledgements that wait for a sync (`flush.messages`) share syncs with those of all its partitions.
//!
//! Few partitions sync their files side by side. From [`ALONE_MAX`] at once on, rounds begin: one runs at a time, takes every partition that is
//! asked for by then and makes all of them durable with one sync of the file system; who asks meanwhile is in the next. Starts no task:
//! who is handed a [`SyncRun`] runs it, on a thread that may block.

use super::{
    AppendError,
    health::DirHealth,
    io::SyncAll,
    partition::PartitionLog,
    watch::{Registration, Waiter},
};
use crate::types::Offset;
use parking_lot::Mutex;
use std::sync::{Arc, OnceLock, atomic::Ordering};

/// So many partitions of a directory sync their own files at once before one sync of the file system for all is cheaper.
const ALONE_MAX: usize = 16;

/// The rounds of one directory.
#[derive(Default)]
pub(super) struct Rounds {
    queue: Mutex<Queue>,
    /// Held open, so that no failed write of the file system goes unseen.
    pub sync_all: OnceLock<SyncAll>,
}

#[derive(Default)]
struct Queue {
    asked: Vec<Arc<PartitionLog>>,
    /// Partitions that sync their own files now.
    alone: usize,
    /// Rounds run: everyone joins the next.
    running: bool,
}

/// Waits for a partition to be durable up to an offset.
pub struct SyncWait {
    log: Arc<PartitionLog>,
    to: Offset,
    refusals: u64,
    _registration: Registration,
}

impl SyncWait {
    /// What became of it; `None` if that's not known yet. Look again when the waiter was woken.
    pub fn outcome(&self) -> Option<Result<(), AppendError>> {
        // In this order: what is durable by now is so whatever was refused before.
        let refused = self.log.syncing.refusals() != self.refusals;
        if self.log.syncing.synced() >= self.to {
            return Some(Ok(()));
        }
        match self.log.check_writable() {
            Ok(()) if self.to > self.log.watermarks().log_end => Some(Err(AppendError::Truncated(self.log.watermarks().log_end))),
            Ok(()) if refused => Some(Err(AppendError::NoRoom(self.log.place().dir.clone()))),
            Ok(()) => None,
            Err(error) => Some(Err(error)),
        }
    }
}

/// Syncs that somebody has to run: it blocks until they are done.
#[must_use = "nobody else runs it"]
pub struct SyncRun {
    log: Arc<PartitionLog>,
    /// Of the directory that it was in when it was asked for.
    health: Arc<DirHealth>,
    alone: bool,
}

impl SyncRun {
    /// Syncs the one partition, or runs rounds until nobody asks any more. Failures are seen by those who wait.
    pub fn run(self) {
        let rounds = &self.health.rounds;
        if self.alone {
            sync_one(&self.log);
            let mut queue = rounds.queue.lock();
            queue.alone = queue.alone.saturating_sub(1);
            return;
        }
        loop {
            let asked = {
                let mut queue = rounds.queue.lock();
                queue.running = !queue.asked.is_empty();
                if !queue.running {
                    return;
                }
                std::mem::take(&mut queue.asked)
            };
            self.health.run_round(&asked);
        }
    }
}

impl DirHealth {
    fn run_round(&self, asked: &[Arc<PartitionLog>]) {
        // A partition that has moved to another directory since isn't on this file system: what it appended there isn't covered.
        let is_here = |log: &PartitionLog| std::ptr::eq(&*log.place().health, self);
        let ends: Vec<_> = asked.iter().map(|log| Some((log.syncing.cuts(), end_of_asked(log))).filter(|_| is_here(log))).collect();
        let synced = match (asked, self.rounds.sync_all.get()) {
            ([_], _) | (_, None) => false,
            // A failure may be another's: each file tells its own.
            (_, Some(sync_all)) => sync_all().unwrap_or(false),
        };
        for (log, end) in asked.iter().zip(ends) {
            match end {
                Some((cuts, end)) if synced => {
                    log.syncing.note_synced(end, cuts);
                    log.syncing.watch.wake();
                }
                _ => sync_one(log),
            }
        }
    }
}

/// The end that a sync which begins now covers. Who asks from here on is in the next one: it may have appended behind that end.
fn end_of_asked(log: &PartitionLog) -> Offset {
    log.syncing.is_asked.swap(false, Ordering::AcqRel);
    log.watermarks().log_end
}

fn sync_one(log: &PartitionLog) {
    let end = end_of_asked(log);
    // A failure takes the partition out of service, and is logged there.
    let _ = log.sync_to(end);
    log.syncing.watch.wake();
}

impl PartitionLog {
    /// Asks for everything up to `to` to be made durable. `waiter` is woken when [`SyncWait::outcome`] is known. A run that is handed out is
    /// the caller's to run; without one somebody's is under way that does.
    pub fn ask_sync(self: &Arc<Self>, to: Offset, waiter: &Arc<Waiter>) -> (SyncWait, Option<SyncRun>) {
        let registration = self.syncing.watch.register(waiter);
        let wait = SyncWait { log: Arc::clone(self), to, refusals: self.syncing.refusals(), _registration: registration };
        if wait.outcome().is_some() {
            return (wait, None);
        }
        let health = Arc::clone(&self.place().health);
        let mut queue = health.rounds.queue.lock();
        if self.syncing.is_asked.swap(true, Ordering::AcqRel) {
            return (wait, None);
        }
        let alone = !queue.running && queue.alone < ALONE_MAX;
        if alone {
            queue.alone = queue.alone.saturating_add(1);
        } else {
            queue.asked.push(Arc::clone(self));
            if std::mem::replace(&mut queue.running, true) {
                return (wait, None);
            }
        }
        drop(queue);
        (wait, Some(SyncRun { log: Arc::clone(self), health, alone }))
    }
}
