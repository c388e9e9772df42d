//! What a partition remembers of the producers that write to it (`ProducerStateManager`, `ProducerAppendInfo`,
//! `ProducerStateEntry`): the epoch and the last five batches of each, and the transactions that are open.
//!
//! Pure: it decides ([`ProducerStates::admit`]) and applies ([`ProducerStates::apply`]); it never reads a clock or touches a file.
//! `apply` is the same function for a live append, for recovery and for a follower, so that replaying headers gives the state that
//! the live partition had. Snapshots are bytes in Kafka's `.snapshot` format; they keep only the last batch of each producer.
//!
//! Near-twins, as in Kafka: a transaction is *undecided* until its marker is written, and *unstable* until that marker lies below
//! the high watermark. The last stable offset goes by the second.

use super::{AppendError, validate::Origin, verification::Verification};
use crate::{
    record::{BatchHeader, EndTxnMarker},
    types::{Millis, Offset, ProducerEpoch, ProducerId},
};
use std::collections::BTreeMap;

/// A producer may have this many requests in flight, so that many batches can come twice (`ProducerStateEntry.NUM_BATCHES_TO_RETAIN`).
pub const BATCHES_RETAINED: usize = 5;

/// The sequence of batches without one (`RecordBatch.NO_SEQUENCE`).
const NO_SEQUENCE: i32 = -1;
const SNAPSHOT_VERSION: i16 = 1;
/// Version, CRC and the number of entries.
const SNAPSHOT_HEAD_BYTES: usize = 2 + 4 + 4;
/// The CRC covers the snapshot from here on.
const SNAPSHOT_CRC_COVERS_FROM: usize = 2 + 4;
const SNAPSHOT_ENTRY_BYTES: usize = 8 + 2 + 4 + 8 + 4 + 8 + 4 + 8;

/// What to do with a batch.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Admission {
    Append,
    /// The partition has this batch already: answer with the offsets and the timestamp that it got, and append nothing.
    Duplicate {
        base_offset: Offset,
        last_offset: Offset,
        timestamp: Millis,
    },
}

/// A batch that a producer wrote, for telling duplicates.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct BatchMetadata {
    pub last_sequence: i32,
    pub last_offset: Offset,
    pub offset_delta: i32,
    /// The batch's maximum timestamp.
    pub timestamp: Millis,
}

impl BatchMetadata {
    /// The sequence of the first record; wraps from 0 down to `i32::MAX` (`DefaultRecordBatch.decrementSequence`).
    pub fn first_sequence(&self) -> i32 {
        let first = i64::from(self.last_sequence) - i64::from(self.offset_delta);
        let wrapped = if self.offset_delta > self.last_sequence { first + i64::from(i32::MAX) + 1 } else { first };
        i32::try_from(wrapped).unwrap_or(NO_SEQUENCE)
    }

    pub fn first_offset(&self) -> Offset {
        self.last_offset.plus(-i64::from(self.offset_delta))
    }
}

/// One producer on one partition.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct ProducerEntry {
    pub producer_id: ProducerId,
    pub epoch: ProducerEpoch,
    /// The epoch of the coordinator that wrote the last marker; −1 before any.
    pub coordinator_epoch: i32,
    pub last_timestamp: Millis,
    /// Where the open transaction began.
    pub current_txn_first_offset: Option<Offset>,
    /// The latest batches of `epoch`, oldest first; at most [`BATCHES_RETAINED`].
    batches: Vec<BatchMetadata>,
}

impl ProducerEntry {
    fn new(producer_id: ProducerId) -> Self {
        Self {
            producer_id,
            epoch: ProducerEpoch::NONE,
            coordinator_epoch: -1,
            last_timestamp: Millis::NONE,
            current_txn_first_offset: None,
            batches: Vec::new(),
        }
    }

    /// The latest batches of the current epoch, oldest first.
    pub fn batches(&self) -> &[BatchMetadata] {
        &self.batches
    }

    /// The last record's sequence; −1 if no batch is known.
    pub fn last_sequence(&self) -> i32 {
        self.batches.last().map_or(NO_SEQUENCE, |b| b.last_sequence)
    }

    fn raise_epoch(&mut self, epoch: ProducerEpoch) {
        if self.epoch != epoch {
            self.batches.clear();
            self.epoch = epoch;
        }
    }

    fn add_batch(&mut self, header: &BatchHeader) {
        self.raise_epoch(header.producer_epoch);
        if self.batches.len() >= BATCHES_RETAINED {
            self.batches.remove(0);
        }
        self.batches.push(BatchMetadata {
            last_sequence: last_sequence(header),
            last_offset: header.last_offset(),
            offset_delta: header.last_offset_delta,
            timestamp: header.max_timestamp,
        });
        self.last_timestamp = header.max_timestamp;
    }
}

/// A transaction that a marker has just ended on this partition.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct CompletedTxn {
    pub producer_id: ProducerId,
    pub first_offset: Offset,
    /// The marker's offset.
    pub last_offset: Offset,
    pub aborted: bool,
    /// What the last stable offset will be once the marker lies below the high watermark: what the transaction index keeps.
    pub last_stable_offset: Offset,
}

/// A transaction whose marker is written, but perhaps not yet below the high watermark.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
struct Unreplicated {
    last_offset: Offset,
}

/// Why a snapshot can't be used; Kafka then goes back to an older one and replays from there.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum SnapshotError {
    #[error("producer snapshot of {0} bytes is cut short or has bytes over")]
    Length(usize),
    #[error("producer snapshot has unknown version {0}")]
    Version(i16),
    #[error("producer snapshot has CRC {stored:#010x} where its bytes have {computed:#010x}")]
    Crc { stored: u32, computed: u32 },
}

/// The producers of one partition, up to [`ProducerStates::end_offset`].
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct ProducerStates {
    producers: BTreeMap<ProducerId, ProducerEntry>,
    /// Open transactions by their first offset.
    ongoing: BTreeMap<Offset, ProducerId>,
    /// Ended transactions by their first offset, until the high watermark passes their marker.
    unreplicated: BTreeMap<Offset, Unreplicated>,
    end_offset: Offset,
}

impl ProducerStates {
    /// No producers, at `end_offset` (a log's start, where nothing older is known).
    pub fn starting_at(end_offset: Offset) -> Self {
        Self { end_offset, ..Self::default() }
    }

    /// The offset after the last batch applied: what a snapshot of this state is named by.
    pub fn end_offset(&self) -> Offset {
        self.end_offset
    }

    /// No producer is known, so a snapshot would be empty.
    pub fn is_empty(&self) -> bool {
        self.producers.is_empty() && self.unreplicated.is_empty()
    }

    /// Every known producer by its id (DescribeProducers).
    pub fn entries(&self) -> impl ExactSizeIterator<Item = &ProducerEntry> {
        self.producers.values()
    }

    /// The transactions that are open, oldest first: where each began.
    pub fn ongoing(&self) -> impl ExactSizeIterator<Item = (Offset, ProducerId)> {
        self.ongoing.iter().map(|(first, producer)| (*first, *producer))
    }

    pub fn entry(&self, producer_id: ProducerId) -> Option<&ProducerEntry> {
        self.producers.get(&producer_id)
    }

    /// Whether the batch may be appended, is a duplicate, or breaks the producer's order or epoch. `marker` is the decoded record
    /// of a control batch that ends a transaction, `verification` what is under way for the batch's producer. Batches without a
    /// producer always pass; replicated ones were judged by their leader.
    ///
    /// Of clients: a batch of one of the last five's exact epoch and sequences is a duplicate; a new epoch starts at sequence 0; a producer
    /// that the partition doesn't know (expired, or its records deleted) may start with any sequence, unless it is a transactional one
    /// that bumps its epoch.
    pub fn admit(
        &self,
        header: &BatchHeader,
        marker: Option<&EndTxnMarker>,
        origin: Origin,
        verification: Option<&Verification>,
    ) -> Result<Admission, AppendError> {
        if !header.has_producer() || origin == Origin::Replication {
            return Ok(Admission::Append);
        }
        let entry = self.producers.get(&header.producer_id);
        if let Some(duplicate) = entry.filter(|_| origin.is_client()).and_then(|entry| Self::find_duplicate(entry, header)) {
            let (base_offset, last_offset) = (duplicate.first_offset(), duplicate.last_offset);
            return Ok(Admission::Duplicate { base_offset, last_offset, timestamp: duplicate.timestamp });
        }
        if let Some(marker) = marker {
            return entry.map_or(Ok(()), |entry| Self::admit_marker(entry, header, marker, origin)).map(|()| Admission::Append);
        }
        if let Some(entry) = entry.filter(|entry| header.producer_epoch < entry.epoch) {
            return Err(fenced(header, entry));
        }
        let open = entry.filter(|entry| entry.current_txn_first_offset.is_some());
        let goes_on = open.is_some_and(|entry| entry.epoch == header.producer_epoch);
        if header.is_transactional() && !header.is_control() && !goes_on && !origin.proof().holds(verification) {
            return Err(AppendError::InvalidTxnState("Record was not part of an ongoing transaction".into()));
        }
        if origin.is_client() {
            Self::admit_sequence(entry, header, verification)?;
        }
        match open.and_then(|entry| entry.current_txn_first_offset) {
            Some(first) if !header.is_transactional() => Err(AppendError::InvalidTxnState(format!(
                "producer {} wrote outside of the transaction that it began at offset {first}",
                header.producer_id
            ))),
            _ => Ok(Admission::Append),
        }
    }

    fn find_duplicate<'a>(entry: &'a ProducerEntry, header: &BatchHeader) -> Option<&'a BatchMetadata> {
        let same = |b: &&BatchMetadata| b.first_sequence() == header.base_sequence && b.last_sequence == last_sequence(header);
        entry.batches.iter().find(same).filter(|_| entry.epoch == header.producer_epoch)
    }

    /// From `transaction.version` 2 on a coordinator raises the epoch with each marker, so that one of the producer's own epoch is late: it
    /// would end a transaction that began after it. One that comes again when nothing is open ends nothing; one of the last epoch can't
    /// have raised it.
    fn admit_marker(entry: &ProducerEntry, header: &BatchHeader, marker: &EndTxnMarker, origin: Origin) -> Result<(), AppendError> {
        let raises = matches!(origin, Origin::Marker { transaction_version: 2.. });
        let comes_again = entry.current_txn_first_offset.is_none() || header.producer_epoch.0 == i16::MAX;
        let late = raises && header.producer_epoch == entry.epoch && !comes_again;
        if header.producer_epoch < entry.epoch || late {
            return Err(fenced(header, entry));
        }
        let (got, current) = (marker.coordinator_epoch, entry.coordinator_epoch);
        if got < current {
            return Err(AppendError::FencedCoordinator { producer_id: header.producer_id, got, current });
        }
        Ok(())
    }

    fn admit_sequence(entry: Option<&ProducerEntry>, header: &BatchHeader, verification: Option<&Verification>) -> Result<(), AppendError> {
        let got = header.base_sequence;
        let refuse = |expected| Err(AppendError::OutOfOrderSequence { producer_id: header.producer_id, got, expected });
        if let Some(verification) = verification {
            let is_new = entry.is_none_or(|entry| entry.batches.is_empty());
            if verification.bumps_epoch && is_new && got != 0 {
                return refuse(0);
            }
            if got > verification.lowest_sequence {
                return refuse(verification.lowest_sequence);
            }
        }
        // An entry without an epoch says nothing of its producer.
        let Some(entry) = entry.filter(|entry| entry.epoch != ProducerEpoch::NONE) else { return Ok(()) };
        let expected = if header.producer_epoch != entry.epoch || entry.last_sequence() == i32::MAX {
            0
        } else {
            // Without a batch in this epoch (a marker raised it) that is −1 and so 0 is due.
            entry.last_sequence().saturating_add(1)
        };
        if got == expected { Ok(()) } else { refuse(expected) }
    }

    /// Takes an appended batch in, with its final offsets. `marker` is the decoded record of a control batch that ends a transaction.
    /// Never fails: what is in the log has been judged before.
    pub fn apply(&mut self, header: &BatchHeader, marker: Option<&EndTxnMarker>) -> Option<CompletedTxn> {
        self.end_offset = self.end_offset.max(header.next_offset());
        if !header.has_producer() {
            return None;
        }
        if header.is_control() && header.record_count == 0 {
            // Compaction has left the header of a marker, for the epoch in it.
            let entry = self.producers.entry(header.producer_id).or_insert_with(|| ProducerEntry::new(header.producer_id));
            entry.raise_epoch(header.producer_epoch);
            entry.last_timestamp = header.max_timestamp;
            return None;
        }
        if header.is_control() {
            return marker.and_then(|marker| self.apply_marker(header, marker));
        }
        let entry = self.producers.entry(header.producer_id).or_insert_with(|| ProducerEntry::new(header.producer_id));
        entry.add_batch(header);
        if header.is_transactional() && entry.current_txn_first_offset.is_none() {
            entry.current_txn_first_offset = Some(header.base_offset);
            self.ongoing.insert(header.base_offset, header.producer_id);
        }
        None
    }

    fn apply_marker(&mut self, header: &BatchHeader, marker: &EndTxnMarker) -> Option<CompletedTxn> {
        let entry = self.producers.entry(header.producer_id).or_insert_with(|| ProducerEntry::new(header.producer_id));
        entry.raise_epoch(header.producer_epoch);
        entry.coordinator_epoch = marker.coordinator_epoch;
        entry.last_timestamp = header.max_timestamp;
        // A marker without data before it moves nothing and is in no index.
        let first_offset = entry.current_txn_first_offset.take()?;
        let last_offset = header.base_offset;
        self.ongoing.remove(&first_offset);
        let next_open = self.ongoing.first_key_value().map(|(first, _)| *first);
        self.unreplicated.insert(first_offset, Unreplicated { last_offset });
        Some(CompletedTxn {
            producer_id: header.producer_id,
            first_offset,
            last_offset,
            aborted: !marker.commit,
            last_stable_offset: next_open.unwrap_or(last_offset.plus(1)),
        })
    }

    /// Where the oldest open transaction began, whatever the high watermark (Kafka's `firstUndecidedOffset`).
    pub fn first_undecided_offset(&self) -> Option<Offset> {
        self.ongoing.first_key_value().map(|(first, _)| *first)
    }

    /// Where the oldest transaction began that is open or whose marker isn't below the high watermark yet.
    pub fn first_unstable_offset(&self) -> Option<Offset> {
        let unreplicated = self.unreplicated.first_key_value().map(|(first, _)| *first);
        self.first_undecided_offset().into_iter().chain(unreplicated).min()
    }

    /// The last stable offset for a high watermark that [`ProducerStates::on_high_watermark`] has been told of; never beyond it.
    pub fn last_stable_offset(&self, high_watermark: Offset) -> Offset {
        self.first_unstable_offset().map_or(high_watermark, |first| first.min(high_watermark))
    }

    /// The high watermark has moved: transactions whose markers lie below it are stable now.
    pub fn on_high_watermark(&mut self, high_watermark: Offset) {
        self.unreplicated.retain(|_, txn| txn.last_offset >= high_watermark);
    }

    /// The log start has moved. Producers stay known although their records are gone (`onLogStartOffsetIncremented`).
    pub fn on_log_start(&mut self, log_start: Offset) {
        self.on_high_watermark(log_start);
        self.end_offset = self.end_offset.max(log_start);
    }

    /// Forgets producers that have written nothing for `ttl_ms` (`producer.id.expiration.ms`) and have no transaction open.
    pub fn expire(&mut self, now: Millis, ttl_ms: i64) {
        let idle = |entry: &ProducerEntry| now.0.saturating_sub(entry.last_timestamp.0) >= ttl_ms;
        self.producers.retain(|_, entry| entry.current_txn_first_offset.is_some() || !idle(entry));
    }

    /// Forgets everything: the log was emptied and goes on at `offset` (`truncateFullyAndStartAt`). To cut a log's end off, start
    /// from the newest snapshot at or below the cut ([`ProducerStates::decode_snapshot`]) and apply the batches after it.
    pub fn reset(&mut self, offset: Offset) {
        *self = Self::starting_at(offset);
    }

    /// This state as a `.snapshot` file, to be named by [`ProducerStates::end_offset`].
    pub fn encode_snapshot(&self) -> Vec<u8> {
        let count = self.producers.len();
        let mut out = Vec::with_capacity(count.saturating_mul(SNAPSHOT_ENTRY_BYTES).saturating_add(SNAPSHOT_HEAD_BYTES));
        out.extend_from_slice(&i32::try_from(count).unwrap_or(i32::MAX).to_be_bytes());
        for entry in self.producers.values().take(i32::MAX as usize) {
            let last = entry.batches.last();
            out.extend_from_slice(&entry.producer_id.0.to_be_bytes());
            out.extend_from_slice(&entry.epoch.0.to_be_bytes());
            out.extend_from_slice(&entry.last_sequence().to_be_bytes());
            out.extend_from_slice(&last.map_or(-1, |b| b.last_offset.0).to_be_bytes());
            out.extend_from_slice(&last.map_or(0, |b| b.offset_delta).to_be_bytes());
            out.extend_from_slice(&entry.last_timestamp.0.to_be_bytes());
            out.extend_from_slice(&entry.coordinator_epoch.to_be_bytes());
            out.extend_from_slice(&entry.current_txn_first_offset.map_or(-1, |o| o.0).to_be_bytes());
        }
        let crc = crc32c::crc32c(&out);
        [&SNAPSHOT_VERSION.to_be_bytes()[..], &crc.to_be_bytes(), &out].concat()
    }

    /// Reads a `.snapshot` file; `end_offset` is the one in its name.
    pub fn decode_snapshot(bytes: &[u8], end_offset: Offset) -> Result<Self, SnapshotError> {
        let short = || SnapshotError::Length(bytes.len());
        let mut head = Reader(bytes);
        let version = i16::from_be_bytes(head.take().ok_or_else(short)?);
        if version != SNAPSHOT_VERSION {
            return Err(SnapshotError::Version(version));
        }
        let stored = u32::from_be_bytes(head.take().ok_or_else(short)?);
        let computed = crc32c::crc32c(bytes.get(SNAPSHOT_CRC_COVERS_FROM..).ok_or_else(short)?);
        if stored != computed {
            return Err(SnapshotError::Crc { stored, computed });
        }
        let count = i32::from_be_bytes(head.take().ok_or_else(short)?);
        let (entries, over) = head.0.as_chunks::<SNAPSHOT_ENTRY_BYTES>();
        if !over.is_empty() || usize::try_from(count) != Ok(entries.len()) {
            return Err(short());
        }
        let mut states = Self::starting_at(end_offset);
        for entry in entries {
            let entry = decode_entry(entry).ok_or_else(short)?;
            if let Some(first) = entry.current_txn_first_offset {
                states.ongoing.insert(first, entry.producer_id);
            }
            states.producers.insert(entry.producer_id, entry);
        }
        Ok(states)
    }
}

fn fenced(header: &BatchHeader, entry: &ProducerEntry) -> AppendError {
    AppendError::FencedProducer { producer_id: header.producer_id, got: header.producer_epoch, current: entry.epoch }
}

fn last_sequence(header: &BatchHeader) -> i32 {
    if header.base_sequence == NO_SEQUENCE { NO_SEQUENCE } else { header.last_sequence() }
}

struct Reader<'a>(&'a [u8]);

impl Reader<'_> {
    fn take<const N: usize>(&mut self) -> Option<[u8; N]> {
        let (taken, rest) = self.0.split_first_chunk()?;
        self.0 = rest;
        Some(*taken)
    }
}

fn decode_entry(bytes: &[u8; SNAPSHOT_ENTRY_BYTES]) -> Option<ProducerEntry> {
    let mut r = Reader(bytes);
    let producer_id = ProducerId(i64::from_be_bytes(r.take()?));
    let epoch = ProducerEpoch(i16::from_be_bytes(r.take()?));
    let last_sequence = i32::from_be_bytes(r.take()?);
    let last_offset = Offset(i64::from_be_bytes(r.take()?));
    let offset_delta = i32::from_be_bytes(r.take()?);
    let timestamp = Millis(i64::from_be_bytes(r.take()?));
    let coordinator_epoch = i32::from_be_bytes(r.take()?);
    let first_offset = Offset(i64::from_be_bytes(r.take()?));
    let last = (last_offset >= Offset(0)).then_some(BatchMetadata { last_sequence, last_offset, offset_delta, timestamp });
    Some(ProducerEntry {
        producer_id,
        epoch,
        coordinator_epoch,
        last_timestamp: timestamp,
        current_txn_first_offset: (first_offset >= Offset(0)).then_some(first_offset),
        batches: last.into_iter().collect(),
    })
}

#[cfg(test)]
mod tests;
