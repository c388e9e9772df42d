//! The newest offset of each key, in bounded memory whatever the keys are (`SkimpyOffsetMap`).
//!
//! Pure. A key is told by 128 bits of a keyed hash (SipHash with a secret), so that nobody can choose keys that are taken for one another;
//! keys themselves are not kept. Open addressing with linear probing; an entry takes 24 bytes; nothing is ever removed.

use crate::types::Offset;
use std::hash::{BuildHasher, Hasher, RandomState};

/// What one key takes: 16 bytes of hash and 8 of offset.
pub const ENTRY_BYTES: usize = 24;

/// Hash, and the offset and one: 0 is an empty slot.
type Entry = [u64; 3];

/// See the module.
pub struct OffsetMap {
    slots: Vec<Entry>,
    len: usize,
    /// Keys that it takes.
    len_max: usize,
    secret: RandomState,
    latest: Option<Offset>,
}

impl OffsetMap {
    /// A map of at most `bytes`, filled to `load_factor` at most, for no more than `keys_max` keys: it takes no more memory than those need.
    pub fn new(bytes: usize, load_factor: f64, keys_max: u64, secret: RandomState) -> Self {
        let factor = load_factor.clamp(0.05, 1.0);
        let slots_max = (bytes / ENTRY_BYTES).max(2);
        let len_max = ((slots_max as f64 * factor) as usize).clamp(1, slots_max.saturating_sub(1));
        let len_max = len_max.min(usize::try_from(keys_max).unwrap_or(usize::MAX).max(1));
        let slots = ((len_max as f64 / factor).ceil() as usize).saturating_add(1).min(slots_max);
        Self { slots: vec![[0; 3]; slots], len: 0, len_max, secret, latest: None }
    }

    fn hash(&self, key: &[u8]) -> (u64, u64) {
        let half = |which: u8| {
            let mut hasher = self.secret.build_hasher();
            hasher.write_u8(which);
            hasher.write(key);
            hasher.finish()
        };
        (half(0), half(1))
    }

    /// The slot of a key: its own, or the empty one where it would go. There is always an empty one.
    fn find(&self, key: &[u8]) -> (usize, Entry) {
        let (a, b) = self.hash(key);
        let slots = self.slots.len();
        // The hash's share of the slots.
        let mut at = usize::try_from((u128::from(a) * slots as u128) >> 64).unwrap_or(0);
        loop {
            match self.slots.get(at) {
                None => at = 0,
                Some([_, _, 0]) => return (at, [a, b, 0]),
                Some(entry @ [x, y, _]) if *x == a && *y == b => return (at, *entry),
                Some(_) => at = at.saturating_add(1),
            }
        }
    }

    /// Notes a key's newest offset. False if the key is new and the map is full: nothing has changed then.
    #[must_use]
    pub fn put(&mut self, key: &[u8], offset: Offset) -> bool {
        let (at, [a, b, known]) = self.find(key);
        if known == 0 {
            if self.len >= self.len_max {
                return false;
            }
            self.len = self.len.saturating_add(1);
        }
        if let Some(slot) = self.slots.get_mut(at) {
            *slot = [a, b, offset.0.cast_unsigned().saturating_add(1)];
        }
        self.latest = Some(offset);
        true
    }

    /// The key's newest offset, if it was noted.
    pub fn get(&self, key: &[u8]) -> Option<Offset> {
        let (_, [_, _, known]) = self.find(key);
        known.checked_sub(1).map(|offset| Offset(offset.cast_signed()))
    }

    /// The log was looked at up to here: what lies beyond is not for this map to judge. `None` if nothing was.
    pub fn latest(&self) -> Option<Offset> {
        self.latest
    }

    /// Moves that forward over offsets without keys.
    pub fn note_latest(&mut self, offset: Offset) {
        self.latest = self.latest.max(Some(offset));
    }

    pub fn len(&self) -> usize {
        self.len
    }

    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// What it takes.
    pub fn bytes(&self) -> usize {
        self.slots.len().saturating_mul(ENTRY_BYTES)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::collections::BTreeMap;

    proptest! {
        #[test]
        fn it_knows_the_newest_offset_of_each_key_until_it_is_full(
            puts in prop::collection::vec(prop::collection::vec(any::<u8>(), 0..3), 0..400),
            slots in 2usize..200,
            factor in 0.1f64..1.0,
        ) {
            let mut map = OffsetMap::new(slots * ENTRY_BYTES, factor, u64::MAX, RandomState::new());
            let mut model = BTreeMap::new();
            let bound = ((slots as f64 * factor) as usize).max(1);
            for (i, key) in puts.iter().enumerate() {
                let fits = map.put(key, Offset(i as i64));
                prop_assert_eq!(fits, model.contains_key(key) || model.len() < bound);
                if fits {
                    model.insert(key.clone(), Offset(i as i64));
                    prop_assert_eq!(map.latest(), Some(Offset(i as i64)));
                }
            }
            prop_assert!(map.bytes() <= slots * ENTRY_BYTES);
            prop_assert_eq!(map.len(), model.len());
            for key in &puts {
                prop_assert_eq!(map.get(key), model.get(key).copied());
            }
            prop_assert_eq!(map.get(b"never put"), None);
        }
    }

    #[test]
    fn it_takes_no_more_memory_than_the_keys_that_can_come() {
        let map = OffsetMap::new(128 << 20, 0.9, 900, RandomState::new());
        assert!(map.bytes() <= 1_002 * ENTRY_BYTES, "{}", map.bytes());
        let full = OffsetMap::new(128 << 20, 0.9, u64::MAX, RandomState::new());
        assert!(full.bytes() <= 128 << 20);
        assert_eq!(full.len_max, 5_033_164);
    }
}
