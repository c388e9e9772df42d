//! Group commit of a data directory: acknowledgements that wait for a sync (`flush.messages`) share rounds of syncs with those of all its
//! partitions.
//!
//! One round runs at a time: it takes every partition that is asked for by then and syncs them, several at once, which lets the file system
//! commit them together; who asks meanwhile is in the next. Starts no task: who is told so runs the rounds, on a thread that may block.

use super::{
    AppendError,
    partition::PartitionLog,
    watch::{Registration, Waiter},
};
use crate::types::Offset;
use parking_lot::Mutex;
use std::{
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering},
    },
    thread,
};

/// So many syncs of one round run at once.
const THREADS_MAX: usize = 8;

/// The rounds of one directory.
#[derive(Default)]
pub(super) struct Rounds {
    queue: Mutex<Queue>,
}

#[derive(Default)]
struct Queue {
    asked: Vec<Arc<PartitionLog>>,
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
        // In this order: a refusal counts only if it came before the end that was synced, and a failure after a sync changes nothing.
        let refused = self.log.syncing.refusals() != self.refusals;
        if self.log.syncing.synced() >= self.to {
            return Some(Ok(()));
        }
        match self.log.check_writable() {
            Ok(()) if refused => Some(Err(AppendError::NoRoom(self.log.place.dir.clone()))),
            Ok(()) => None,
            Err(error) => Some(Err(error)),
        }
    }
}

impl PartitionLog {
    /// Asks for everything up to `to` to be made durable with the directory's next round. `waiter` is woken when [`SyncWait::outcome`] is
    /// known. If the second is true nobody runs the rounds, and the caller has to let a thread call [`PartitionLog::run_sync_rounds`].
    #[must_use]
    pub fn ask_sync(self: &Arc<Self>, to: Offset, waiter: &Arc<Waiter>) -> (SyncWait, bool) {
        let registration = self.syncing.watch.register(waiter);
        let wait = SyncWait { log: Arc::clone(self), to, refusals: self.syncing.refusals(), _registration: registration };
        if wait.outcome().is_some() {
            waiter.wake();
            return (wait, false);
        }
        let mut queue = self.place.health.rounds.queue.lock();
        if !self.syncing.is_asked.swap(true, Ordering::AcqRel) {
            queue.asked.push(Arc::clone(self));
        }
        (wait, !std::mem::replace(&mut queue.running, true))
    }

    /// Runs rounds of this partition's directory until nobody asks any more. Blocks.
    pub fn run_sync_rounds(&self) {
        let rounds = &self.place.health.rounds;
        loop {
            let asked = {
                let mut queue = rounds.queue.lock();
                queue.running = !queue.asked.is_empty();
                if !queue.running {
                    return;
                }
                std::mem::take(&mut queue.asked)
            };
            let next = AtomicUsize::new(0);
            let work = || {
                while let Some(log) = asked.get(next.fetch_add(1, Ordering::Relaxed)) {
                    // Who asks from here on may have appended after the end that this sync sees, and is in the next round.
                    log.syncing.is_asked.swap(false, Ordering::AcqRel);
                    // A failure is seen by those who wait, and logged where it happens.
                    let _ = log.sync();
                    log.syncing.watch.wake();
                }
            };
            thread::scope(|scope| {
                (1..THREADS_MAX.min(asked.len())).for_each(|_| drop(scope.spawn(work)));
                work();
            });
        }
    }
}
