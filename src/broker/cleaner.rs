//! The threads that compact logs (`LogCleaner`): each cleans the dirtiest log, and waits for `log.cleaner.backoff.ms` if none is dirty enough.
#![allow(clippy::disallowed_methods, reason = "a shell: threads that sleep until they are told to end")]

use crate::{
    api::Context,
    config::LogCleanerConfig,
    log::{CompactSettings, Compactor},
    telemetry::CompactionSample,
};
use anyhow::Context as _;
use parking_lot::{Condvar, Mutex};
use std::{
    sync::{Arc, atomic::Ordering},
    thread::{self, JoinHandle},
    time::{Duration, Instant},
};

/// Told when threads have to end.
#[derive(Default)]
pub struct Stop {
    is_set: Mutex<bool>,
    changed: Condvar,
}

impl Stop {
    /// The broker stops.
    pub fn set(&self) {
        *self.is_set.lock() = true;
        self.changed.notify_all();
    }

    /// Sleeps; true if the broker stops.
    pub fn sleep(&self, pause: Duration) -> bool {
        if pause.is_zero() {
            return *self.is_set.lock();
        }
        let until = Instant::now().checked_add(pause);
        let mut is_set = self.is_set.lock();
        while !*is_set {
            let timed_out = match until {
                Some(until) => self.changed.wait_until(&mut is_set, until).timed_out(),
                None => {
                    self.changed.wait(&mut is_set);
                    false
                }
            };
            if timed_out {
                break;
            }
        }
        *is_set
    }
}

/// The running threads.
pub struct Cleaner {
    stop: Arc<Stop>,
    threads: Vec<JoinHandle<()>>,
    compactor: Arc<Compactor>,
}

impl Cleaner {
    /// Starts them, if `log.cleaner.enable` says so.
    pub fn start(context: &Arc<Context>) -> anyhow::Result<Self> {
        let LogCleanerConfig { enable, threads, dedupe_buffer_bytes, io_buffer_load_factor, io_buffer_bytes, .. } =
            context.config.log_cleaner;
        let compactor = Arc::new(Compactor::new(CompactSettings {
            threads,
            dedupe_buffer_bytes,
            load_factor: io_buffer_load_factor,
            io_buffer_bytes,
            io_bytes_per_second: context.config.log_cleaner.io_max_bytes_per_second,
        }));
        let mut cleaner = Self { stop: Arc::default(), threads: Vec::new(), compactor };
        for i in 0..if enable { threads } else { 0 } {
            let (context, stop, compactor) = (context.clone(), cleaner.stop.clone(), cleaner.compactor.clone());
            let thread = thread::Builder::new().name(format!("log-cleaner-{i}")).spawn(move || run(&context, &compactor, &stop));
            cleaner.threads.push(thread.context("start a thread for compaction")?);
        }
        Ok(cleaner)
    }

    /// What they share.
    pub fn compactor(&self) -> &Arc<Compactor> {
        &self.compactor
    }

    /// Ends them; blocks until what they are at has ended, which is soon.
    pub fn stop(self) {
        self.stop.set();
        for thread in self.threads {
            if thread.join().is_err() {
                tracing::error!("a thread of compaction had panicked");
            }
        }
    }
}

fn run(context: &Context, compactor: &Compactor, stop: &Stop) {
    let backoff = Duration::from_millis(context.config.log_cleaner.backoff_ms);
    let pace = |bytes| !stop.sleep(Duration::from_millis(compactor.pause_ms(bytes, context.now())));
    loop {
        let cleaned = context.logs.compact_next(compactor, context.now(), &pace);
        // Another log may be waiting.
        let pause = if cleaned.is_some() { Duration::ZERO } else { backoff };
        if stop.sleep(pause) {
            return;
        }
    }
}

/// What metrics say of it.
pub fn sample(compactor: &Compactor) -> CompactionSample {
    let stats = compactor.stats();
    CompactionSample {
        read_bytes: stats.bytes_read.load(Ordering::Relaxed),
        written_bytes: stats.bytes_written.load(Ordering::Relaxed),
        compactions: stats.cleanings.load(Ordering::Relaxed),
        max_dirty_ratio: stats.max_dirty_ppm.load(Ordering::Relaxed) as f64 / 1e6,
        last_run_s: stats.last_run_ms.load(Ordering::Relaxed) as f64 / 1e3,
        uncleanable_partitions: stats.uncleanable.load(Ordering::Relaxed),
    }
}
