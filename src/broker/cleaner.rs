//! The threads that compact logs (`LogCleaner`): each cleans the dirtiest log, and waits for `log.cleaner.backoff.ms` if none is dirty enough. How many
//! there are and what they go by follows the configs that are set while the broker runs.
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
    collections::BTreeMap,
    sync::{
        Arc,
        atomic::{AtomicU64, AtomicUsize, Ordering},
    },
    thread::{self, JoinHandle},
    time::{Duration, Instant},
};

/// Told when threads have to end.
#[derive(Default)]
pub struct Stop {
    state: Mutex<StopState>,
    changed: Condvar,
}

#[derive(Default)]
struct StopState {
    is_set: bool,
    /// How often sleepers were woken.
    wakes: u64,
}

impl Stop {
    /// The broker stops.
    pub fn set(&self) {
        self.state.lock().is_set = true;
        self.changed.notify_all();
    }

    /// Ends everyone's sleep.
    pub fn wake(&self) {
        let mut state = self.state.lock();
        state.wakes = state.wakes.wrapping_add(1);
        drop(state);
        self.changed.notify_all();
    }

    /// Sleeps, unless woken; true if the broker stops.
    pub fn sleep(&self, pause: Duration) -> bool {
        let mut state = self.state.lock();
        if pause.is_zero() {
            return state.is_set;
        }
        let (until, wakes) = (Instant::now().checked_add(pause), state.wakes);
        while !state.is_set && state.wakes == wakes {
            let timed_out = match until {
                Some(until) => self.changed.wait_until(&mut state, until).timed_out(),
                None => {
                    self.changed.wait(&mut state);
                    false
                }
            };
            if timed_out {
                break;
            }
        }
        state.is_set
    }
}

/// The running threads, and what they go by.
pub struct Cleaner {
    context: Arc<Context>,
    stop: Stop,
    compactor: Arc<Compactor>,
    /// How many there are to be.
    wanted: AtomicUsize,
    backoff_ms: AtomicU64,
    /// By their numbers. One that there's no use for takes itself off.
    threads: Mutex<BTreeMap<usize, JoinHandle<()>>>,
}

impl Cleaner {
    /// Starts them, if `log.cleaner.enable` says so.
    pub fn start(context: &Arc<Context>) -> anyhow::Result<Arc<Self>> {
        let config = current(context)?;
        let cleaner = Arc::new(Self {
            context: Arc::clone(context),
            stop: Stop::default(),
            compactor: Arc::new(Compactor::new(settings(&config))),
            wanted: AtomicUsize::new(0),
            backoff_ms: AtomicU64::new(0),
            threads: Mutex::default(),
        });
        cleaner.obey(&config)?;
        Ok(cleaner)
    }

    /// What they share.
    pub fn compactor(&self) -> &Arc<Compactor> {
        &self.compactor
    }

    /// Goes by this from now on: there are more or fewer threads, which pause as long and clean as fast as it says.
    pub fn obey(self: &Arc<Self>, config: &LogCleanerConfig) -> anyhow::Result<()> {
        self.compactor.configure(settings(config));
        self.backoff_ms.store(config.backoff_ms, Ordering::Relaxed);
        let mut threads = self.threads.lock();
        if self.stop.state.lock().is_set {
            // Nobody would wait for a thread that begins now.
            return Ok(());
        }
        let wanted = if config.enable { config.threads } else { 0 };
        self.wanted.store(wanted, Ordering::Release);
        for i in (0..wanted).filter(|i| !threads.contains_key(i)).collect::<Vec<_>>() {
            let cleaner = Arc::clone(self);
            let thread = thread::Builder::new().name(format!("log-cleaner-{i}")).spawn(move || cleaner.run(i));
            threads.insert(i, thread.context("start a thread for compaction")?);
        }
        drop(threads);
        self.stop.wake();
        Ok(())
    }

    /// Ends them; blocks until what they are at has ended, which is soon.
    pub fn stop(&self) {
        self.stop.set();
        let threads = std::mem::take(&mut *self.threads.lock());
        for thread in threads.into_values() {
            if thread.join().is_err() {
                tracing::error!("a thread of compaction had panicked");
            }
        }
    }

    fn is_wanted(&self, i: usize) -> bool {
        i < self.wanted.load(Ordering::Acquire)
    }

    fn run(&self, i: usize) {
        let now = || self.context.now();
        let pace = |bytes| self.is_wanted(i) && !self.stop.sleep(Duration::from_millis(self.compactor.pause_ms(bytes, now())));
        loop {
            let cleaned = self.context.logs.compact_next(&self.compactor, now(), &pace);
            // Another log may be waiting.
            let pause = if cleaned.is_some() { 0 } else { self.backoff_ms.load(Ordering::Relaxed) };
            if self.stop.sleep(Duration::from_millis(pause)) {
                return;
            }
            if !self.is_wanted(i) {
                let mut threads = self.threads.lock();
                if !self.is_wanted(i) {
                    threads.remove(&i);
                    return;
                }
            }
        }
    }
}

/// What compaction goes by now.
fn current(context: &Context) -> anyhow::Result<LogCleanerConfig> {
    Ok(context.config.with_layers(context.image().layers())?.log_cleaner)
}

fn settings(config: &LogCleanerConfig) -> CompactSettings {
    CompactSettings {
        threads: config.threads,
        dedupe_buffer_bytes: config.dedupe_buffer_bytes,
        load_factor: config.io_buffer_load_factor,
        io_buffer_bytes: config.io_buffer_bytes,
        io_bytes_per_second: config.io_max_bytes_per_second,
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
