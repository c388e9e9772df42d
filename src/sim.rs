//! What simulations share: chance by a seed, and the variables that say which seeds are run.

use parking_lot::Mutex;
use std::{
    collections::BTreeSet,
    panic::{AssertUnwindSafe, catch_unwind},
    sync::atomic::{AtomicU64, Ordering},
};

/// A small generator (SplitMix64): a seed gives the same numbers for ever.
#[derive(Clone, Debug, Default)]
pub struct Random(u64);

impl Random {
    pub fn new(seed: u64) -> Self {
        Self(seed)
    }

    pub fn number(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    /// From 0 up to `end`, which is not included.
    pub fn below(&mut self, end: u64) -> u64 {
        self.number() % end.max(1)
    }

    /// Both ends are included.
    pub fn between(&mut self, from: i64, to: i64) -> i64 {
        from + self.below((to - from + 1) as u64) as i64
    }

    /// True once in `n` times.
    pub fn one_in(&mut self, n: u64) -> bool {
        self.below(n) == 0
    }
}

/// The one seed to run (`SIM_SEED`).
pub fn seed() -> Option<u64> {
    number("SIM_SEED")
}

fn number(name: &str) -> Option<u64> {
    std::env::var(name).ok().and_then(|text| text.parse().ok())
}

/// Runs `SIM_SEED`, or `SIM_SEEDS` seeds (else `seeds`) on all cores; panics with the lowest one that was seen to fail.
pub fn for_each_seed(seeds: u64, run: impl Fn(u64) + Sync) {
    if let Some(seed) = seed() {
        return run(seed);
    }
    let seeds = number("SIM_SEEDS").unwrap_or(seeds);
    let next = AtomicU64::new(0);
    let failed = Mutex::new(BTreeSet::new());
    let work = || {
        while failed.lock().is_empty() {
            let seed = next.fetch_add(1, Ordering::Relaxed);
            if seed >= seeds {
                return;
            }
            if catch_unwind(AssertUnwindSafe(|| run(seed))).is_err() {
                failed.lock().insert(seed);
            }
        }
    };
    let threads = std::thread::available_parallelism().map_or(1, |n| n.get());
    std::thread::scope(|scope| (0..threads).for_each(|_| drop(scope.spawn(work))));
    if let Some(seed) = failed.into_inner().first() {
        panic!("seed {seed} failed: SIM_SEED={seed} and the name of this test replay it");
    }
}
