//! The threads that move partitions between data directories (`ReplicaAlterLogDirsThread`): one for each directory, asleep unless there is a move.
#![allow(clippy::disallowed_methods, reason = "a shell: threads that sleep until they are woken or told to end")]

use crate::api::Context;
use anyhow::Context as _;
use parking_lot::{Condvar, Mutex};
use std::{
    sync::Arc,
    thread::{self, JoinHandle},
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
    fn stops(&self) -> bool {
        self.state.lock().stops
    }

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

/// The running threads.
pub struct Mover {
    signal: Arc<Signal>,
    threads: Vec<JoinHandle<()>>,
}

impl Mover {
    /// Starts them, if there is more than one directory.
    pub fn start(context: &Arc<Context>) -> anyhow::Result<Self> {
        let mut mover = Self { signal: Arc::default(), threads: Vec::new() };
        let count = context.config.log_dirs.len();
        for i in 0..if count > 1 { count } else { 0 } {
            let (context, signal) = (context.clone(), mover.signal.clone());
            let thread = thread::Builder::new().name(format!("log-mover-{i}")).spawn(move || run(&context, &signal));
            mover.threads.push(thread.context("start a thread for moves between data directories")?);
        }
        let signal = mover.signal.clone();
        context.logs.wake_for_moves(Box::new(move || signal.change(|state| state.asked = state.asked.wrapping_add(1))));
        Ok(mover)
    }

    /// Ends them; blocks until what they are at is given up, which is soon. The next start goes on with it.
    pub fn stop(self) {
        self.signal.change(|state| state.stops = true);
        for thread in self.threads {
            if thread.join().is_err() {
                tracing::error!("a thread that moves partitions had panicked");
            }
        }
    }
}

fn run(context: &Context, signal: &Signal) {
    let mut seen = 0;
    while signal.wait(&mut seen) {
        let _ = context.logs.run_moves(context.now(), &|_| !signal.stops());
    }
}
