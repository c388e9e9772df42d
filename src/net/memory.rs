//! The budget for the bytes of requests in flight (`queued.max.request.bytes`).
//!
//! A frame takes its length from it once enough of it has come to be worth a buffer of its own, and gives it back when its answer has
//! left. Without room a connection stops reading: its client slows down, the broker doesn't grow. There is no queue: whoever fits into
//! what is free goes first, so that a few giants that wait don't hold up everybody's ordinary requests.

use std::{
    pin::pin,
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering::SeqCst},
    },
};
use tokio::sync::Notify;

/// Shared by all connections.
#[derive(Debug, Clone)]
pub struct Memory(Arc<Budget>);

#[derive(Debug)]
struct Budget {
    used: AtomicUsize,
    max: usize,
    waiting: AtomicUsize,
    freed: Notify,
}

/// A part of the budget; comes back when dropped.
#[derive(Debug)]
pub struct Reserved {
    budget: Arc<Budget>,
    bytes: usize,
}

impl Drop for Reserved {
    fn drop(&mut self) {
        self.budget.used.fetch_sub(self.bytes, SeqCst);
        // Whoever waits has counted itself before it looked for room: it sees this room or is seen here.
        if self.budget.waiting.load(SeqCst) > 0 {
            self.budget.freed.notify_waiters();
        }
    }
}

/// Counts a waiting frame for as long as it waits.
struct Waiting<'a>(&'a AtomicUsize);

impl Drop for Waiting<'_> {
    fn drop(&mut self) {
        self.0.fetch_sub(1, SeqCst);
    }
}

impl Memory {
    pub fn new(bytes: usize) -> Self {
        let (used, waiting) = (AtomicUsize::new(0), AtomicUsize::new(0));
        Self(Arc::new(Budget { used, max: bytes.max(1), waiting, freed: Notify::new() }))
    }

    /// A request larger than the whole budget takes all of it, so that it passes alone instead of never.
    pub fn try_reserve(&self, bytes: usize) -> Option<Reserved> {
        let bytes = bytes.min(self.0.max);
        let fits = |used: usize| used.checked_add(bytes).filter(|sum| *sum <= self.0.max);
        self.0.used.fetch_update(SeqCst, SeqCst, fits).ok()?;
        Some(Reserved { budget: self.0.clone(), bytes })
    }

    /// Waits for room.
    pub async fn reserve(&self, bytes: usize) -> Reserved {
        self.0.waiting.fetch_add(1, SeqCst);
        let _waiting = Waiting(&self.0.waiting);
        loop {
            let mut freed = pin!(self.0.freed.notified());
            freed.as_mut().enable();
            if let Some(reserved) = self.try_reserve(bytes) {
                return reserved;
            }
            freed.await;
        }
    }

    /// Whether a frame waits for room.
    pub fn is_contended(&self) -> bool {
        self.0.waiting.load(SeqCst) > 0
    }

    /// What is taken, for metrics.
    pub fn used_bytes(&self) -> usize {
        self.0.used.load(SeqCst)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn room_comes_back() {
        let memory = Memory::new(10 * 1024);
        let eight = memory.try_reserve(8 * 1024).unwrap();
        assert!(memory.try_reserve(4 * 1024).is_none());
        assert_eq!(memory.used_bytes(), 8 * 1024);
        drop(eight);
        assert!(memory.try_reserve(1 << 30).is_some(), "a giant passes alone");
    }

    #[tokio::test]
    async fn a_waiting_giant_does_not_hold_up_others() {
        let memory = Memory::new(100);
        let half = memory.try_reserve(50).unwrap();
        let mut giant = pin!(memory.reserve(100));
        assert!(futures_now(giant.as_mut()).is_none() && memory.is_contended());
        let small = memory.reserve(30).await;
        drop(half);
        assert!(futures_now(giant.as_mut()).is_none());
        drop(small);
        drop(giant.await);
        assert!(!memory.is_contended() && memory.used_bytes() == 0);
    }

    /// Polls once.
    fn futures_now<F: Future>(future: std::pin::Pin<&mut F>) -> Option<F::Output> {
        match future.poll(&mut std::task::Context::from_waker(std::task::Waker::noop())) {
            std::task::Poll::Ready(value) => Some(value),
            std::task::Poll::Pending => None,
        }
    }
}
