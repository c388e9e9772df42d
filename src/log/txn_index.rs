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
