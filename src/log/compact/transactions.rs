//! Which transactions the cleaner is in while it goes through a log, and so which batches and markers it may drop
//! (`CleanedTransactionMetadata`). Pure: batches come in the log's order.

use super::super::txn_index::AbortedTxn;
use crate::{
    record::{BatchHeader, ControlRecordType},
    types::{Offset, ProducerId},
};
use std::collections::{BTreeMap, BTreeSet, HashMap, HashSet};

/// An aborted transaction that has begun and not ended.
struct Open {
    txn: AbortedTxn,
    /// A batch of it is still there, perhaps one without records.
    has_batches: bool,
}

/// See the module.
#[derive(Default)]
pub struct Transactions {
    /// Aborted ones that haven't begun yet, by where they do.
    ahead: BTreeSet<(Offset, ProducerId, Offset, Offset)>,
    aborted: HashMap<ProducerId, Open>,
    committed: HashSet<ProducerId>,
    /// The aborted ones whose marker stays, for the new segment's transaction index; in the order of their markers.
    kept: Vec<AbortedTxn>,
}

impl Transactions {
    /// Aborted transactions that overlap what comes next.
    pub fn expect(&mut self, aborted: impl IntoIterator<Item = AbortedTxn>) {
        self.ahead.extend(aborted.into_iter().map(|t| (t.first_offset, t.producer_id, t.last_offset, t.last_stable_offset)));
    }

    fn begin_up_to(&mut self, offset: Offset) {
        while let Some((first_offset, producer_id, last_offset, last_stable_offset)) = self.ahead.first().copied() {
            if first_offset > offset {
                break;
            }
            self.ahead.pop_first();
            let txn = AbortedTxn { producer_id, first_offset, last_offset, last_stable_offset };
            self.aborted.entry(producer_id).or_insert(Open { txn, has_batches: false });
        }
    }

    /// A batch of records comes by: whether it belongs to an aborted transaction.
    pub fn on_data(&mut self, header: &BatchHeader) -> bool {
        self.begin_up_to(header.last_offset());
        if !header.is_transactional() {
            return false;
        }
        if let Some(open) = self.aborted.get_mut(&header.producer_id) {
            open.has_batches = true;
            return true;
        }
        self.committed.insert(header.producer_id);
        false
    }

    /// A control batch comes by, with its record's type (`None` if it has no record any more): whether nothing is left that needs it.
    pub fn on_control(&mut self, header: &BatchHeader, kind: Option<ControlRecordType>) -> bool {
        self.begin_up_to(header.last_offset());
        match kind {
            None => true,
            Some(ControlRecordType::Commit) => !self.committed.remove(&header.producer_id),
            Some(ControlRecordType::Abort) => match self.aborted.remove(&header.producer_id) {
                Some(open) if open.has_batches => {
                    self.kept.push(open.txn);
                    false
                }
                _ => true,
            },
            Some(ControlRecordType::Other(_)) => false,
        }
    }

    /// Batches came by of a transaction whose marker did not: it lies further on.
    pub fn has_open(&self) -> bool {
        !self.committed.is_empty() || self.aborted.values().any(|open| open.has_batches)
    }

    /// The transaction index of the segment that has been written since the last call.
    pub fn take_kept(&mut self) -> Vec<AbortedTxn> {
        std::mem::take(&mut self.kept)
    }
}

/// The last thing that a producer wrote, as far as its state depends on it (`LastRecord`).
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum LastRecord {
    /// Its last batch of records ends at this offset: that has its last sequence.
    Data(Offset),
    /// Only markers, of this epoch.
    Marker(crate::types::ProducerEpoch),
}

/// By producer.
pub type LastRecords = BTreeMap<ProducerId, LastRecord>;

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{record::BatchBuilder, types::*};

    fn header(producer: i64, offset: i64, control: bool) -> BatchHeader {
        let builder = BatchBuilder::default().producer(ProducerId(producer), ProducerEpoch(0), 0).transactional();
        let builder = if control { builder.control() } else { builder };
        let batch = builder.base_offset(Offset(offset)).record(Millis(1), Some(b"k"), Some(b"v")).build().unwrap();
        BatchHeader::parse(&batch).unwrap()
    }

    fn aborted(producer: i64, first: i64, last: i64) -> AbortedTxn {
        AbortedTxn {
            producer_id: ProducerId(producer),
            first_offset: Offset(first),
            last_offset: Offset(last),
            last_stable_offset: Offset(last + 1),
        }
    }

    #[test]
    fn a_marker_is_needed_while_batches_of_its_transaction_are_there() {
        let mut txns = Transactions::default();
        txns.expect([aborted(1, 0, 4), aborted(1, 0, 4), aborted(2, 9, 9)]);
        assert!(!txns.has_open());
        assert!(txns.on_data(&header(1, 0, false)), "aborted");
        assert!(txns.has_open());
        assert!(!txns.on_data(&header(3, 1, false)), "committed");
        assert!(!txns.on_control(&header(1, 4, true), Some(ControlRecordType::Abort)));
        assert!(!txns.on_data(&header(1, 5, false)), "the next one of the same producer");
        assert!(!txns.on_control(&header(1, 6, true), Some(ControlRecordType::Commit)));
        assert!(txns.on_control(&header(1, 7, true), Some(ControlRecordType::Commit)), "a transaction without batches");
        assert!(!txns.on_control(&header(3, 8, true), Some(ControlRecordType::Commit)));
        assert!(txns.on_control(&header(2, 9, true), Some(ControlRecordType::Abort)), "its batches went before");
        assert!(!txns.on_control(&header(2, 10, true), Some(ControlRecordType::Other(2))));
        assert!(txns.on_control(&header(2, 11, true), None));
        assert!(!txns.has_open());
        assert_eq!(txns.take_kept(), [aborted(1, 0, 4)]);
        assert_eq!(txns.take_kept(), []);
    }
}
