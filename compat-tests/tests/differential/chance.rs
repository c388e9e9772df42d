//! Chance by a seed.

/// A small generator (SplitMix64): a seed gives the same numbers for ever.
pub struct Chance(u64);

impl Chance {
    pub fn new(seed: u64) -> Self {
        Self(seed)
    }

    fn number(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    /// From 0 up to `end`, which is not included.
    pub fn below(&mut self, end: usize) -> usize {
        usize::try_from(self.number() % u64::try_from(end.max(1)).unwrap_or(1)).unwrap_or(0)
    }

    /// Both ends are included.
    pub fn between(&mut self, from: i32, to: i32) -> i32 {
        from + i32::try_from(self.below(usize::try_from(to - from + 1).unwrap_or(1))).unwrap_or(0)
    }

    /// Both ends are included.
    pub fn version(&mut self, from: i16, to: i16) -> i16 {
        i16::try_from(self.between(from.into(), to.into())).unwrap_or(from)
    }

    /// True once in `n` times.
    pub fn one_in(&mut self, n: usize) -> bool {
        self.below(n) == 0
    }

    pub fn one_of<T: Copy>(&mut self, all: &[T]) -> T {
        all[self.below(all.len())]
    }

    /// Mostly `usual`, once in `n` times one of the others.
    pub fn mostly<T: Copy>(&mut self, usual: T, n: usize, others: &[T]) -> T {
        if self.one_in(n) { self.one_of(others) } else { usual }
    }

    /// From `least` to `most` of something.
    pub fn some<T>(&mut self, least: usize, most: usize, mut make: impl FnMut(&mut Self) -> T) -> Vec<T> {
        let count = least + self.below(most - least + 1);
        (0..count).map(|_| make(self)).collect()
    }
}
