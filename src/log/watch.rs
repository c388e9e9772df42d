//! The one place where anything waits for the log: fetches, acks and delayed answers. Holds no data and never polls.
//!
//! A [`Waiter`] belongs to one task and may be registered with the [`Watch`]es of many partitions. The order that loses no wake-up:
//! register, then look at the watermarks, then wait. A wake-up that comes between is kept.

use parking_lot::Mutex;
use std::sync::{
    Arc,
    atomic::{AtomicUsize, Ordering, fence},
};
use tokio::{sync::Notify, time::Instant};

/// What a task waits with.
#[derive(Debug, Default)]
pub struct Waiter {
    notify: Notify,
}

impl Waiter {
    pub fn new() -> Arc<Self> {
        Arc::new(Self::default())
    }

    /// Waits until woken (true) or the deadline passes (false). A wake-up since the last wait counts; many count as one.
    pub async fn wait_until(&self, deadline: Instant) -> bool {
        tokio::time::timeout_at(deadline, self.notify.notified()).await.is_ok()
    }

    /// Waits until woken.
    pub async fn wait(&self) {
        self.notify.notified().await;
    }

    /// Wakes the task, or makes its next wait end at once.
    pub fn wake(&self) {
        self.notify.notify_one();
    }
}

/// What a partition wakes when its watermarks move or it goes away. A wake-up without waiters is one atomic load.
#[derive(Debug, Default)]
pub struct Watch {
    shared: Arc<Shared>,
}

#[derive(Debug, Default)]
struct Shared {
    waiting: AtomicUsize,
    waiters: Mutex<Vec<Arc<Waiter>>>,
}

/// Registered until dropped.
#[derive(Debug)]
#[must_use = "a registration that is dropped wakes nobody"]
pub struct Registration {
    shared: Arc<Shared>,
    waiter: Arc<Waiter>,
}

impl Watch {
    /// From now on [`Watch::wake`] wakes `waiter`.
    pub fn register(&self, waiter: &Arc<Waiter>) -> Registration {
        let mut waiters = self.shared.waiters.lock();
        waiters.push(Arc::clone(waiter));
        self.shared.waiting.store(waiters.len(), Ordering::Relaxed);
        drop(waiters);
        // Pairs with the fence in `wake`: either that sees the waiter, or the waiter sees what was changed before it.
        fence(Ordering::SeqCst);
        Registration { shared: Arc::clone(&self.shared), waiter: Arc::clone(waiter) }
    }

    /// Wakes all that are registered. Called after what they look at has changed.
    pub fn wake(&self) {
        fence(Ordering::SeqCst);
        if self.shared.waiting.load(Ordering::Relaxed) == 0 {
            return;
        }
        for waiter in self.shared.waiters.lock().iter() {
            waiter.wake();
        }
    }

    /// How many are registered.
    pub fn waiting(&self) -> usize {
        self.shared.waiting.load(Ordering::Relaxed)
    }
}

impl Drop for Registration {
    fn drop(&mut self) {
        let mut waiters = self.shared.waiters.lock();
        if let Some(i) = waiters.iter().position(|w| Arc::ptr_eq(w, &self.waiter)) {
            waiters.swap_remove(i);
        }
        if waiters.is_empty() {
            waiters.shrink_to_fit();
        }
        self.shared.waiting.store(waiters.len(), Ordering::Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::{
        future::Future,
        pin::pin,
        task::{Context, Poll, Waker},
    };

    fn poll_once(future: impl Future) -> bool {
        pin!(future).poll(&mut Context::from_waker(Waker::noop())).is_ready()
    }

    #[test]
    fn a_wake_up_before_the_wait_counts_once() {
        let (watch, waiter) = (Watch::default(), Waiter::new());
        let registration = watch.register(&waiter);
        watch.wake();
        watch.wake();
        assert!(poll_once(waiter.wait()));
        assert!(!poll_once(waiter.wait()));
        drop(registration);
        watch.wake();
        assert!(!poll_once(waiter.wait()), "no longer registered");
        assert_eq!(watch.waiting(), 0);
    }

    #[test]
    fn one_waiter_waits_for_many_partitions() {
        let (a, b, waiter) = (Watch::default(), Watch::default(), Waiter::new());
        let _registrations = [a.register(&waiter), b.register(&waiter)];
        let mut wait = pin!(waiter.wait());
        let mut context = Context::from_waker(Waker::noop());
        assert_eq!(wait.as_mut().poll(&mut context), Poll::Pending);
        b.wake();
        assert_eq!(wait.as_mut().poll(&mut context), Poll::Ready(()));
    }

    #[test]
    fn registrations_of_one_waiter_end_one_by_one() {
        let (watch, waiter) = (Watch::default(), Waiter::new());
        let first = watch.register(&waiter);
        let second = watch.register(&waiter);
        drop(first);
        assert_eq!(watch.waiting(), 1);
        watch.wake();
        assert!(poll_once(waiter.wait()));
        drop(second);
        assert_eq!(watch.waiting(), 0);
    }
}
