//! The aborted transactions of a segment (`TransactionIndex`, `AbortedTxn`): the entries of its `.txnindex` file.
//!
//! Pure: works on the file's bytes; it never opens one.

use super::producer_state::CompletedTxn;
use crate::types::{Offset, ProducerId};

/// An entry's size on disk.
pub const ENTRY_BYTES: usize = 2 + 8 + 8 + 8 + 8;
const VERSION: i16 = 0;

/// One aborted transaction. On disk: version `i16`, then producer id, first offset, last offset and last stable offset as `i64`, big-endian.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct AbortedTxn {
    pub producer_id: ProducerId,
    pub first_offset: Offset,
    /// The abort marker's offset.
    pub last_offset: Offset,
    /// The last stable offset right after this transaction ended: a search for a range below it need look no further.
    pub last_stable_offset: Offset,
}

/// A `.txnindex` that can't be trusted; it's rebuilt from the log.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum TxnIndexError {
    #[error("transaction index entry {0} has unknown version {1}")]
    Version(usize, i16),
    #[error("transaction index entry {0} ends at {1}, before its segment's start or the entry before it")]
    Order(usize, Offset),
    #[error("transaction index of {0} bytes ends within an entry")]
    Length(usize),
}

impl AbortedTxn {
    /// The entry for a transaction; `None` if it was committed, which no index keeps.
    pub fn of(txn: &CompletedTxn) -> Option<Self> {
        txn.aborted.then_some(Self {
            producer_id: txn.producer_id,
            first_offset: txn.first_offset,
            last_offset: txn.last_offset,
            last_stable_offset: txn.last_stable_offset,
        })
    }

    pub fn encode(&self) -> [u8; ENTRY_BYTES] {
        let numbers = [self.producer_id.0, self.first_offset.0, self.last_offset.0, self.last_stable_offset.0];
        let mut entry = [0; ENTRY_BYTES];
        let (version, rest) = entry.split_at_mut(2);
        version.copy_from_slice(&VERSION.to_be_bytes());
        for (place, number) in rest.as_chunks_mut::<8>().0.iter_mut().zip(numbers) {
            *place = number.to_be_bytes();
        }
        entry
    }

    fn decode(entry: &[u8; ENTRY_BYTES]) -> Result<Self, i16> {
        let [v0, v1, numbers @ ..] = entry;
        let version = i16::from_be_bytes([*v0, *v1]);
        let [producer_id, first, last, stable] = numbers.as_chunks::<8>().0 else { return Err(version) };
        if version != VERSION {
            return Err(version);
        }
        Ok(Self {
            producer_id: ProducerId(i64::from_be_bytes(*producer_id)),
            first_offset: Offset(i64::from_be_bytes(*first)),
            last_offset: Offset(i64::from_be_bytes(*last)),
            last_stable_offset: Offset(i64::from_be_bytes(*stable)),
        })
    }
}

/// Reads a whole `.txnindex` of the segment at `base_offset` and checks that its entries ascend.
pub fn decode(bytes: &[u8], base_offset: Offset) -> Result<Vec<AbortedTxn>, TxnIndexError> {
    let (raw, over) = bytes.as_chunks::<ENTRY_BYTES>();
    if !over.is_empty() {
        return Err(TxnIndexError::Length(bytes.len()));
    }
    let mut entries: Vec<AbortedTxn> = Vec::with_capacity(raw.len());
    for (i, entry) in raw.iter().enumerate() {
        let entry = AbortedTxn::decode(entry).map_err(|version| TxnIndexError::Version(i, version))?;
        let after_last = entries.last().is_none_or(|before| before.last_offset < entry.last_offset);
        if entry.last_offset < base_offset || !after_last {
            return Err(TxnIndexError::Order(i, entry.last_offset));
        }
        entries.push(entry);
    }
    Ok(entries)
}

/// How many entries stay when the log is cut to end at `end`; the file is cut to that many times [`ENTRY_BYTES`].
pub fn entries_below(entries: &[AbortedTxn], end: Offset) -> usize {
    entries.iter().position(|txn| txn.last_offset >= end).unwrap_or(entries.len())
}

/// Adds to `found` the aborted transactions of one segment that overlap `fetch_offset` (included) to `upper_bound` (not included).
/// True if no later segment can hold another one, so that the search ends.
pub fn collect_aborted(entries: &[AbortedTxn], fetch_offset: Offset, upper_bound: Offset, found: &mut Vec<AbortedTxn>) -> bool {
    for txn in entries {
        if txn.last_offset >= fetch_offset && txn.first_offset < upper_bound {
            found.push(*txn);
        }
        if txn.last_stable_offset >= upper_bound {
            return true;
        }
    }
    false
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn txn(producer: i64, first: i64, last: i64, stable: i64) -> AbortedTxn {
        AbortedTxn {
            producer_id: ProducerId(producer),
            first_offset: Offset(first),
            last_offset: Offset(last),
            last_stable_offset: Offset(stable),
        }
    }

    fn collect(entries: &[AbortedTxn], from: i64, to: i64) -> (Vec<i64>, bool) {
        let mut found = Vec::new();
        let complete = collect_aborted(entries, Offset(from), Offset(to), &mut found);
        (found.iter().map(|t| t.producer_id.0).collect(), complete)
    }

    #[test]
    fn bytes_are_kafkas() {
        let bytes = txn(1, 2, 3, 4).encode();
        assert_eq!(bytes.len(), 34);
        let mut expected = vec![0, 0];
        expected.extend([1_i64, 2, 3, 4].iter().flat_map(|n| n.to_be_bytes()));
        assert_eq!(&bytes[..], &expected[..]);
    }

    #[test]
    fn overlapping_transactions_are_found() {
        // As TransactionIndexTest has them: producer 0 spans 0..10, 1 spans 5..15, and so on.
        let entries = [txn(0, 0, 10, 2), txn(1, 5, 15, 16), txn(2, 18, 35, 25), txn(3, 32, 50, 40)];
        assert_eq!(collect(&entries, 0, 100), (vec![0, 1, 2, 3], false));
        assert_eq!(collect(&entries, 0, 32), (vec![0, 1, 2], true));
        assert_eq!(collect(&entries, 0, 35), (vec![0, 1, 2, 3], true));
        assert_eq!(collect(&entries, 10, 35), (vec![0, 1, 2, 3], true));
        assert_eq!(collect(&entries, 11, 35), (vec![1, 2, 3], true));
        assert_eq!(collect(&entries, 20, 41), (vec![2, 3], false));
        assert_eq!(collect(&entries, 51, 60), (vec![], false));
    }

    #[test]
    fn a_cut_keeps_what_ended_below_it() {
        let entries = [txn(0, 0, 10, 2), txn(1, 5, 15, 16), txn(2, 18, 35, 25)];
        assert_eq!(entries_below(&entries, Offset(100)), 3);
        assert_eq!(entries_below(&entries, Offset(15)), 1);
        assert_eq!(entries_below(&entries, Offset(0)), 0);
    }

    #[test]
    fn a_broken_index_is_told() {
        let good = [txn(0, 0, 10, 2).encode(), txn(1, 5, 15, 16).encode()].concat();
        assert_eq!(decode(&good, Offset(0)).unwrap().len(), 2);
        assert_eq!(decode(&good[..40], Offset(0)), Err(TxnIndexError::Length(40)));
        assert_eq!(decode(&good, Offset(11)), Err(TxnIndexError::Order(0, Offset(10))));
        let twice = [txn(0, 0, 10, 2).encode(), txn(0, 0, 10, 2).encode()].concat();
        assert_eq!(decode(&twice, Offset(0)), Err(TxnIndexError::Order(1, Offset(10))));
        let mut newer = good.clone();
        newer[1] = 1;
        assert_eq!(decode(&newer, Offset(0)), Err(TxnIndexError::Version(0, 1)));
    }

    #[test]
    fn only_aborted_ones_are_kept() {
        let done = CompletedTxn {
            producer_id: ProducerId(1),
            first_offset: Offset(2),
            last_offset: Offset(3),
            aborted: true,
            last_stable_offset: Offset(4),
        };
        assert_eq!(AbortedTxn::of(&done), Some(txn(1, 2, 3, 4)));
        assert_eq!(AbortedTxn::of(&CompletedTxn { aborted: false, ..done }), None);
    }

    proptest! {
        #[test]
        fn entries_survive_their_bytes(raw in prop::collection::vec((any::<i64>(), any::<i64>(), 1..1000_i64, any::<i64>()), 0..20)) {
            let mut last = 0;
            let entries: Vec<_> = raw.into_iter().map(|(producer, first, step, stable)| {
                last += step;
                txn(producer, first, last, stable)
            }).collect();
            let bytes: Vec<u8> = entries.iter().flat_map(|e| e.encode()).collect();
            prop_assert_eq!(decode(&bytes, Offset(0)), Ok(entries));
        }

        #[test]
        fn any_bytes_are_no_panic(bytes: Vec<u8>) {
            let _ = decode(&bytes, Offset(0));
        }
    }
}
