//! A simulated partition around the real judges of it: producer state, verification, and for the offsets topic the groups.

use super::Bug;
use crate::{
    group::{self, Groups},
    log::{
        AppendError, Origin,
        producer_state::{Admission, CompletedTxn, ProducerStates},
        verification::Verifications,
    },
    record::{BatchHeader, EndTxnMarker},
    types::*,
};
use std::collections::{BTreeSet, VecDeque};

/// A copy of one input record, by one attempt of one transaction.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub struct Value {
    pub slot: usize,
    pub index: i64,
    pub attempt: u32,
}

#[derive(Clone, Debug)]
pub enum Payload {
    Values(Vec<Value>),
    Offset(group::Record),
    Marker(EndTxnMarker),
}

#[derive(Clone, Debug)]
struct Entry {
    header: BatchHeader,
    payload: Payload,
}

#[derive(Default)]
pub struct Partition {
    entries: Vec<Entry>,
    /// Entries that a loss of power leaves.
    pub synced: usize,
    /// Its topic was deleted.
    pub is_gone: bool,
    pub states: ProducerStates,
    pub verifications: Verifications,
    /// The groups, if it is one of the offsets topic.
    pub groups: Option<Groups>,
    pub bug: Option<Bug>,
    aborted: Vec<CompletedTxn>,
    end: i64,
}

pub fn header(producer: ProducerIdAndEpoch, sequence: i32, records: i32, control: bool) -> BatchHeader {
    BatchHeader {
        base_offset: Offset(0),
        batch_length: 100,
        leader_epoch: LeaderEpoch(0),
        magic: 2,
        crc: 0,
        attributes: if control { 1 << 4 | 1 << 5 } else { 1 << 4 },
        last_offset_delta: records - 1,
        base_timestamp: Millis(0),
        max_timestamp: Millis(0),
        producer_id: producer.id,
        producer_epoch: producer.epoch,
        base_sequence: sequence,
        record_count: records,
    }
}

impl Partition {
    pub fn of_groups() -> Self {
        Self { groups: Some(Groups::default()), ..Self::default() }
    }

    /// The answer is how many entries have to be synced for it to last.
    pub fn append(&mut self, mut header: BatchHeader, payload: Payload, origin: Origin) -> Result<usize, AppendError> {
        let marker = if let Payload::Marker(marker) = &payload { Some(*marker) } else { None };
        header.base_offset = Offset(self.end);
        let verification = self.verifications.of(header.producer_id);
        let admitted = self.states.admit(&header, marker.as_ref(), origin, verification);
        match admitted {
            Ok(Admission::Append) => {}
            Ok(Admission::Duplicate { .. }) if self.bug != Some(Bug::DuplicatesAreAppended) => return Ok(self.entries.len()),
            Err(AppendError::FencedProducer { .. }) if marker.is_none() && self.bug == Some(Bug::PartitionsTakeOldEpochs) => {}
            Err(error) => return Err(error),
            Ok(_) => {}
        }
        self.take(Entry { header, payload });
        Ok(self.entries.len())
    }

    fn take(&mut self, entry: Entry) {
        let Entry { header, payload } = &entry;
        let marker = if let Payload::Marker(marker) = payload { Some(marker) } else { None };
        self.end = header.next_offset().0;
        let completed = self.states.apply(header, marker);
        self.aborted.extend(completed.filter(|txn| txn.aborted));
        self.verifications.appended(header.producer_id, header.producer_epoch, header.is_control());
        self.states.on_high_watermark(Offset(self.end));
        if let Some(groups) = &mut self.groups {
            match payload {
                Payload::Offset(record) if self.bug == Some(Bug::OffsetsCountAtOnce) => groups.apply(record),
                Payload::Offset(record) => groups.apply_pending(header.producer_id, record),
                Payload::Marker(marker) => groups.end_transaction(header.producer_id, marker.commit),
                Payload::Values(_) => {}
            }
        }
        self.entries.push(entry);
    }

    /// Starts again with the first entries.
    pub fn recover(&mut self, keep: usize) {
        let mut entries = std::mem::take(&mut self.entries);
        entries.truncate(keep);
        let groups = self.groups.is_some().then(Groups::default);
        *self = Self { is_gone: self.is_gone, bug: self.bug, groups, ..Self::default() };
        entries.into_iter().for_each(|entry| self.take(entry));
        self.synced = self.len();
    }

    pub fn len(&self) -> usize {
        self.entries.len()
    }

    pub fn last_stable(&self) -> i64 {
        self.states.last_stable_offset(Offset(self.end)).0
    }

    pub fn end(&self) -> i64 {
        self.end
    }

    /// What a consumer with `read_committed` gets: up to the last stable offset, without what the list of aborted transactions names.
    pub fn committed(&self) -> Vec<(i64, Value)> {
        let until = if self.bug == Some(Bug::ReadersSeeOpenTransactions) { self.end } else { self.last_stable() };
        let mut aborted: Vec<_> = self.aborted.clone();
        aborted.sort_by_key(|txn| txn.first_offset);
        let mut aborted = VecDeque::from(aborted);
        let mut aborting = BTreeSet::new();
        let mut visible = Vec::new();
        for Entry { header, payload } in self.entries.iter().take_while(|entry| entry.header.base_offset.0 < until) {
            while aborted.front().is_some_and(|txn| txn.first_offset <= header.last_offset()) {
                aborting.extend(aborted.pop_front().map(|txn| txn.producer_id));
            }
            match payload {
                Payload::Marker(marker) if !marker.commit => drop(aborting.remove(&header.producer_id)),
                Payload::Values(values) if !aborting.contains(&header.producer_id) => {
                    visible.extend((header.base_offset.0..).zip(values.iter().copied()));
                }
                _ => {}
            }
        }
        visible
    }
}
