//! The deadlines of all shards, in one heap that one task sleeps on.
//!
//! A deadline is a reason to look at a key, no more: what is due then its state says. So a deadline that moved later (every heartbeat
//! does that) stays where it is in the heap, and the look sets the next one.

use super::{machine::Key, millis_until};
use crate::types::Millis;
use parking_lot::Mutex;
use std::{cmp::Reverse, collections::BinaryHeap, time::Duration};
use tokio::sync::Notify;

/// A key of a shard, to be looked at.
pub(super) type Due = (Millis, usize, Key);

#[derive(Default)]
pub(super) struct Timers {
    heap: Mutex<BinaryHeap<Reverse<Due>>>,
    sooner: Notify,
}

impl Timers {
    pub fn add(&self, deadline: Millis, shard: usize, key: Key) {
        let mut heap = self.heap.lock();
        let first = heap.peek().is_none_or(|Reverse((at, ..))| deadline < *at);
        heap.push(Reverse((deadline, shard, key)));
        drop(heap);
        if first {
            self.sooner.notify_one();
        }
    }

    /// Takes one that is due.
    pub fn pop_due(&self, now: Millis) -> Option<Due> {
        let mut heap = self.heap.lock();
        if heap.peek().is_some_and(|Reverse((at, ..))| *at <= now) { heap.pop().map(|Reverse(due)| due) } else { None }
    }

    /// Waits until one may be due.
    pub async fn wait(&self, now: Millis) {
        let next = self.heap.lock().peek().map(|Reverse((at, ..))| *at);
        match next {
            None => self.sooner.notified().await,
            Some(at) => {
                let span = Duration::from_millis(millis_until(now, at));
                let _ = tokio::time::timeout(span, self.sooner.notified()).await;
            }
        }
    }
}
