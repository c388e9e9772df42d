//! The threads that move partitions between data directories (`ReplicaAlterLogDirsThread`): one for each directory, asleep unless there is a move.
//! Together they stay below `replica.alter.log.dirs.io.max.bytes.per.second`.
#![allow(clippy::disallowed_methods, reason = "a shell: threads that sleep until they are woken or told to end")]

use super::cleaner::Stop;
use crate::{api::Context, log::Throttle, types::Millis};
use anyhow::Context as _;
use parking_lot::{Condvar, Mutex};
use std::{
    sync::Arc,
    thread::{self, JoinHandle},
    time::Duration,
};

#[derive(Default)]
struct Signal {
    state: Mutex<State>,
    changed: Condvar,
}

#[derive(Default)]
struct State {
    /// Grows with each move that is asked for.
    asked: u64,
    stops: bool,
}

impl Signal {
    fn change(&self, change: impl FnOnce(&mut State)) {
        change(&mut self.state.lock());
        self.changed.notify_all();
    }

    /// Waits for a move beyond `seen`, and counts up to it; false if the broker stops.
    fn wait(&self, seen: &mut u64) -> bool {
        let mut state = self.state.lock();
        while !state.stops && state.asked == *seen {
            self.changed.wait(&mut state);
        }
        *seen = state.asked;
        !state.stops
    }
}

/// What the threads share.
#[derive(Default)]
pub struct Shared {
    signal: Signal,
    /// Where they pause.
    pauses: Stop,
    /// `None`: they copy as fast as they can.
    throttle: Mutex<Option<Throttle>>,
}

impl Shared {
    /// From now on they copy so many bytes a second at the most.
    pub fn limit(&self, bytes_per_second: Option<i64>) {
        let bytes_per_second = bytes_per_second.filter(|bytes| *bytes != i64::MAX);
        *self.throttle.lock() = bytes_per_second.map(|bytes| Throttle::new(bytes as f64));
        self.pauses.wake();
    }

    /// So many bytes were copied: pauses for them; false if the broker stops. Locks may be held where nothing was copied.
    fn pace(&self, bytes: u64, now: Millis) -> bool {
        let pause_ms = match self.throttle.lock().as_mut() {
            Some(throttle) if bytes > 0 => throttle.pause_ms(bytes, now),
            _ => 0,
        };
        !self.pauses.sleep(Duration::from_millis(pause_ms))
    }
}

/// The running threads.
pub struct Mover {
    shared: Arc<Shared>,
    threads: Vec<JoinHandle<()>>,
}

impl Mover {
    /// Starts them, if there is more than one directory.
    pub fn start(context: &Arc<Context>) -> anyhow::Result<Self> {
        let mut mover = Self { shared: Arc::default(), threads: Vec::new() };
        let count = context.config.log_dirs.len();
        for i in 0..if count > 1 { count } else { 0 } {
            let (context, shared) = (context.clone(), mover.shared.clone());
            let thread = thread::Builder::new().name(format!("log-mover-{i}")).spawn(move || run(&context, &shared));
            mover.threads.push(thread.context("start a thread for moves between data directories")?);
        }
        let shared = mover.shared.clone();
        context.logs.wake_for_moves(Box::new(move || {
            shared.signal.change(|state| state.asked = state.asked.wrapping_add(1));
            // One that pauses may be at a move that was cancelled.
            shared.pauses.wake();
        }));
        Ok(mover)
    }

    /// What the threads share.
    pub fn shared(&self) -> Arc<Shared> {
        self.shared.clone()
    }

    /// Ends them; blocks until what they are at is given up, which is soon. The next start goes on with it.
    pub fn stop(self) {
        self.shared.pauses.set();
        self.shared.signal.change(|state| state.stops = true);
        for thread in self.threads {
            if thread.join().is_err() {
                tracing::error!("a thread that moves partitions had panicked");
            }
        }
    }
}

fn run(context: &Context, shared: &Shared) {
    let mut seen = 0;
    while shared.signal.wait(&mut seen) {
        let _ = context.logs.run_moves(context.now(), &|bytes| shared.pace(bytes, context.now()));
    }
}
