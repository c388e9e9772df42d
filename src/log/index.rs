//! The sparse offset and time indexes of one segment (`OffsetIndex`, `TimeIndex`), kept in memory as the file's own bytes.
//!
//! Pure: bytes in, bytes out. Entries ascend strictly, so that what a crash left of a file (zeros, an older tail) is told from an index.
//! An index only shortens a search: it may lack its last entries at any time.

use super::model::{OFFSET_ENTRY_BYTES, TIME_ENTRY_BYTES, relative};
use crate::types::{Millis, Offset};

/// The file holds something that can't be an index of its segment; it's rebuilt from the log.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("entry {0} is out of order or out of the segment")]
pub struct BrokenIndex(pub usize);

/// Where batches lie in a segment.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct OffsetIndex {
    base: Offset,
    entries: Vec<[u8; OFFSET_ENTRY_BYTES]>,
}

/// A batch by its last offset, and where it begins.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct BatchPosition {
    pub last_offset: Offset,
    pub position: u32,
}

/// From when batches are.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct TimeIndex {
    base: Offset,
    entries: Vec<[u8; TIME_ENTRY_BYTES]>,
}

/// The largest timestamp of a stretch of log, and the last offset of the batch that has it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct TimestampOffset {
    pub timestamp: Millis,
    pub offset: Offset,
}

impl OffsetIndex {
    pub fn new(base: Offset) -> Self {
        Self { base, entries: Vec::new() }
    }

    /// Reads a file's bytes. Zeros after the last entry are room that Kafka reserved; anything else that breaks the order is an error.
    pub fn decode(base: Offset, bytes: &[u8], log_bytes: u64) -> Result<Self, BrokenIndex> {
        let (raw, over) = bytes.as_chunks::<OFFSET_ENTRY_BYTES>();
        let mut index = Self::new(base);
        let good = raw.iter().take_while(|e| index.accepts(**e, log_bytes) && index.push(**e)).count();
        let rest = bytes.get(good.saturating_mul(OFFSET_ENTRY_BYTES)..).unwrap_or_default();
        if !over.is_empty() || rest.iter().any(|b| *b != 0) {
            return Err(BrokenIndex(good));
        }
        index.entries.shrink_to_fit();
        Ok(index)
    }

    /// The longest prefix of a file's bytes that can be an index: for recovery, which checks it against the log.
    pub fn decode_prefix(base: Offset, bytes: &[u8], log_bytes: u64) -> Self {
        let mut index = Self::new(base);
        let _ = bytes.as_chunks().0.iter().take_while(|e| index.accepts(**e, log_bytes) && index.push(**e)).count();
        index
    }

    fn accepts(&self, entry: [u8; OFFSET_ENTRY_BYTES], log_bytes: u64) -> bool {
        let (relative, position) = split(entry);
        let ascends = match self.entries.last() {
            Some(last) => relative > split(*last).0 && position > split(*last).1,
            // An entry at position 0 is never written: the first batch needs none, and a zeroed file would look like one.
            None => position > 0,
        };
        ascends && u64::from(position) < log_bytes && i32::try_from(relative).is_ok()
    }

    fn push(&mut self, entry: [u8; OFFSET_ENTRY_BYTES]) -> bool {
        self.entries.push(entry);
        true
    }

    /// Notes the batch that ends at `last_offset` and begins at `position`. The caller appends in order and within `i32`; else nothing is noted.
    pub fn append(&mut self, last_offset: Offset, position: u32) {
        let Some(relative) = relative(self.base, last_offset) else { return };
        let [a, b, c, d] = relative.to_be_bytes();
        let [e, f, g, h] = position.to_be_bytes();
        let entry = [a, b, c, d, e, f, g, h];
        if self.accepts(entry, u64::MAX) {
            self.entries.push(entry);
        }
    }

    /// The last entry at or before `offset`. Its batch may hold `offset` as its last one, or ends before it.
    pub fn floor(&self, offset: Offset) -> Option<BatchPosition> {
        let delta = offset.0.saturating_sub(self.base.0);
        let after = self.entries.partition_point(|e| i64::from(split(*e).0) <= delta);
        after.checked_sub(1).and_then(|i| self.entry(i))
    }

    /// The first entry whose batch begins at or after `position`.
    pub fn at_or_after_position(&self, position: u64) -> Option<BatchPosition> {
        self.entry(self.entries.partition_point(|e| u64::from(split(*e).1) < position))
    }

    /// The last entry whose batch begins before `position`.
    pub fn before_position(&self, position: u64) -> Option<BatchPosition> {
        self.entries.partition_point(|e| u64::from(split(*e).1) < position).checked_sub(1).and_then(|i| self.entry(i))
    }

    pub fn entry(&self, i: usize) -> Option<BatchPosition> {
        let (relative, position) = split(*self.entries.get(i)?);
        Some(BatchPosition { last_offset: self.base.plus(i64::from(relative)), position })
    }

    pub fn last(&self) -> Option<BatchPosition> {
        self.entries.len().checked_sub(1).and_then(|i| self.entry(i))
    }

    pub fn len(&self) -> usize {
        self.entries.len()
    }

    pub fn is_empty(&self) -> bool {
        self.entries.is_empty()
    }

    /// Keeps the first `len` entries.
    pub fn truncate(&mut self, len: usize) {
        self.entries.truncate(len);
    }

    /// Drops the entries of batches that begin at or after `position`.
    pub fn truncate_from(&mut self, position: u64) {
        self.entries.truncate(self.entries.partition_point(|e| u64::from(split(*e).1) < position));
    }

    /// The file's bytes.
    pub fn bytes(&self) -> &[u8] {
        self.entries.as_flattened()
    }
}

impl TimeIndex {
    pub fn new(base: Offset) -> Self {
        Self { base, entries: Vec::new() }
    }

    /// Reads a file's bytes; as [`OffsetIndex::decode`].
    pub fn decode(base: Offset, bytes: &[u8]) -> Result<Self, BrokenIndex> {
        let (raw, over) = bytes.as_chunks::<TIME_ENTRY_BYTES>();
        let mut index = Self::new(base);
        let good = raw.iter().take_while(|e| index.accepts(**e) && index.push(**e)).count();
        let rest = bytes.get(good.saturating_mul(TIME_ENTRY_BYTES)..).unwrap_or_default();
        if !over.is_empty() || rest.iter().any(|b| *b != 0) {
            return Err(BrokenIndex(good));
        }
        index.entries.shrink_to_fit();
        Ok(index)
    }

    /// The longest prefix of a file's bytes that can be an index.
    pub fn decode_prefix(base: Offset, bytes: &[u8]) -> Self {
        let mut index = Self::new(base);
        let _ = bytes.as_chunks().0.iter().take_while(|e| index.accepts(**e) && index.push(**e)).count();
        index
    }

    fn accepts(&self, entry: [u8; TIME_ENTRY_BYTES]) -> bool {
        let (timestamp, relative) = split_time(entry);
        let ascends = match self.entries.last() {
            Some(last) => timestamp > split_time(*last).0 && relative >= split_time(*last).1,
            // A timestamp of 0 at relative offset 0 is what zeros look like.
            None => timestamp > 0 || (timestamp == 0 && relative > 0),
        };
        ascends && i32::try_from(relative).is_ok()
    }

    fn push(&mut self, entry: [u8; TIME_ENTRY_BYTES]) -> bool {
        self.entries.push(entry);
        true
    }

    /// Notes the largest timestamp so far, unless it's what the last entry says.
    pub fn append(&mut self, largest: TimestampOffset) {
        let Some(relative) = relative(self.base, largest.offset) else { return };
        let [a, b, c, d, e, f, g, h] = largest.timestamp.0.to_be_bytes();
        let [i, j, k, l] = relative.to_be_bytes();
        let entry = [a, b, c, d, e, f, g, h, i, j, k, l];
        if self.accepts(entry) {
            self.entries.push(entry);
        }
    }

    /// The last entry whose timestamp is at or before `timestamp`: everything up to its offset is no later than that.
    pub fn floor(&self, timestamp: Millis) -> Option<TimestampOffset> {
        let after = self.entries.partition_point(|e| split_time(*e).0 <= timestamp.0);
        after.checked_sub(1).and_then(|i| self.entry(i))
    }

    pub fn entry(&self, i: usize) -> Option<TimestampOffset> {
        let (timestamp, relative) = split_time(*self.entries.get(i)?);
        Some(TimestampOffset { timestamp: Millis(timestamp), offset: self.base.plus(i64::from(relative)) })
    }

    pub fn last(&self) -> Option<TimestampOffset> {
        self.entries.len().checked_sub(1).and_then(|i| self.entry(i))
    }

    pub fn len(&self) -> usize {
        self.entries.len()
    }

    pub fn is_empty(&self) -> bool {
        self.entries.is_empty()
    }

    /// Drops the entries of batches that end at or after `offset`.
    pub fn truncate_from(&mut self, offset: Offset) {
        let delta = offset.0.saturating_sub(self.base.0);
        self.entries.truncate(self.entries.partition_point(|e| i64::from(split_time(*e).1) < delta));
    }

    /// The file's bytes.
    pub fn bytes(&self) -> &[u8] {
        self.entries.as_flattened()
    }
}

fn split(entry: [u8; OFFSET_ENTRY_BYTES]) -> (u32, u32) {
    let [a, b, c, d, e, f, g, h] = entry;
    (u32::from_be_bytes([a, b, c, d]), u32::from_be_bytes([e, f, g, h]))
}

fn split_time(entry: [u8; TIME_ENTRY_BYTES]) -> (i64, u32) {
    let [a, b, c, d, e, f, g, h, i, j, k, l] = entry;
    (i64::from_be_bytes([a, b, c, d, e, f, g, h]), u32::from_be_bytes([i, j, k, l]))
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn position(last_offset: i64, position: u32) -> BatchPosition {
        BatchPosition { last_offset: Offset(last_offset), position }
    }

    #[test]
    fn bytes_are_kafkas() {
        let mut offsets = OffsetIndex::new(Offset(100));
        offsets.append(Offset(107), 4_200);
        assert_eq!(offsets.bytes(), [0, 0, 0, 7, 0, 0, 0x10, 0x68]);
        let mut times = TimeIndex::new(Offset(100));
        times.append(TimestampOffset { timestamp: Millis(0x0102), offset: Offset(107) });
        assert_eq!(times.bytes(), [0, 0, 0, 0, 0, 0, 1, 2, 0, 0, 0, 7]);
    }

    #[test]
    fn reserved_room_is_no_entry_and_nonsense_is_an_error() {
        let mut index = OffsetIndex::new(Offset(0));
        index.append(Offset(5), 100);
        index.append(Offset(9), 200);
        let reserved = [index.bytes(), &[0; 80]].concat();
        assert_eq!(OffsetIndex::decode(Offset(0), &reserved, 300), Ok(index.clone()));
        assert_eq!(OffsetIndex::decode(Offset(0), &[0; 80], 300), Ok(OffsetIndex::new(Offset(0))));
        assert_eq!(OffsetIndex::decode(Offset(0), index.bytes(), 150), Err(BrokenIndex(1)), "beyond the log");
        let swapped = [&index.bytes()[8..], &index.bytes()[..8]].concat();
        assert_eq!(OffsetIndex::decode(Offset(0), &swapped, 300), Err(BrokenIndex(1)));
        assert_eq!(OffsetIndex::decode_prefix(Offset(0), &swapped, 300).len(), 1);
        assert_eq!(OffsetIndex::decode(Offset(0), &index.bytes()[..12], 300), Err(BrokenIndex(1)));
        assert_eq!(TimeIndex::decode(Offset(0), &[0; 24]), Ok(TimeIndex::new(Offset(0))));
        assert_eq!(TimeIndex::decode(Offset(0), &[1; 24]), Err(BrokenIndex(1)));
    }

    proptest! {
        #[test]
        fn an_index_survives_its_bytes_and_finds_the_floor(steps in prop::collection::vec((1i64..50, 1u32..5_000), 0..60), asked in 0i64..3_000) {
            let (mut index, mut entries) = (OffsetIndex::new(Offset(10)), Vec::new());
            let (mut offset, mut at) = (10, 0);
            for (offsets, bytes) in steps {
                (offset, at) = (offset + offsets, at + bytes);
                index.append(Offset(offset), at);
                entries.push(position(offset, at));
            }
            prop_assert_eq!(OffsetIndex::decode(Offset(10), index.bytes(), u64::from(at) + 1), Ok(index.clone()));
            let floor = entries.iter().rev().find(|e| e.last_offset <= Offset(asked)).copied();
            prop_assert_eq!(index.floor(Offset(asked)), floor);
            let after = entries.iter().find(|e| i64::from(e.position) >= asked).copied();
            prop_assert_eq!(index.at_or_after_position(asked.unsigned_abs()), after);
        }

        #[test]
        fn any_bytes_are_read_without_a_panic(bytes: Vec<u8>, base in 0i64..10) {
            let _ = OffsetIndex::decode(Offset(base), &bytes, 1 << 20);
            let _ = TimeIndex::decode(Offset(base), &bytes);
            let prefix = TimeIndex::decode_prefix(Offset(base), &bytes);
            prop_assert!((1..prefix.len()).all(|i| prefix.entry(i - 1).unwrap().timestamp < prefix.entry(i).unwrap().timestamp));
        }
    }
}
