//! What stays of each batch when a log is compacted (`Cleaner.cleanInto`, `MemoryRecords.filterTo`).
//!
//! Pure: a batch comes in and what is left of it is appended to a buffer. Offsets never change. A batch of which everything stays is copied
//! byte for byte; one that loses records is made anew with the same range of offsets and sequences.
//!
//! What stays: the newest record of each key; tombstones until their batch's delete horizon, which the first cleaning that meets them sets
//! (KIP-534); a transaction's marker while anything of the transaction is there, and then until such a horizon; each producer's last batch, and
//! the last batch of what is cleaned, without records if need be. Records of aborted transactions and records without a key go.

use super::{
    offset_map::OffsetMap,
    transactions::{LastRecord, LastRecords, Transactions},
};
use crate::{
    config::{CompressionType, TopicConfig},
    record::{
        BatchHeader, BatchRecords, Compression, ControlRecordType, Record, RecordsError, Rewrite, compression::CompressionError,
        rewrite::empty_batch,
    },
    types::{Millis, Offset},
};

/// The batch can't be read: its log can't be cleaned.
#[derive(Debug, thiserror::Error)]
pub enum FilterError {
    #[error(transparent)]
    Records(#[from] RecordsError),
    #[error(transparent)]
    Compression(#[from] CompressionError),
}

/// What one cleaning of a log goes by.
pub struct Filter<'a> {
    pub map: &'a OffsetMap,
    pub now: Millis,
    pub config: &'a TopicConfig,
    /// Where the range ends that is cleaned: the batch that ends here stays, so that the log's offsets have no end missing.
    pub upper: Offset,
    pub last_records: &'a LastRecords,
    /// What a batch may decompress to.
    pub decompressed_max: usize,
}

/// What became of a batch.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Outcome {
    /// The header of what was appended to the buffer; `None` if nothing is left.
    pub kept: Option<BatchHeader>,
    pub records_read: u64,
    pub records_kept: u64,
}

/// What is to be done to a batch as a whole.
#[derive(Clone, Copy, PartialEq, Eq)]
struct Verdict {
    /// No record stays.
    drop_records: bool,
    /// Without records it stays as a header.
    keep_empty: bool,
    /// It's a marker that nothing needs any more.
    is_idle_marker: bool,
}

impl Filter<'_> {
    /// Appends what is left of a whole batch to `out`. Batches come in the log's order.
    pub fn batch(&self, header: &BatchHeader, bytes: &[u8], txns: &mut Transactions, out: &mut Vec<u8>) -> Result<Outcome, FilterError> {
        let opened = if header.is_control() { Some(BatchRecords::open(bytes, self.decompressed_max)?) } else { None };
        let verdict = self.judge(header, opened.as_ref(), txns);
        if verdict.drop_records {
            let records_read = u64::try_from(header.record_count).unwrap_or(0);
            return Ok(Outcome { kept: Self::end_empty(header, verdict, out), records_read, records_kept: 0 });
        }
        let opened = match opened {
            Some(opened) => opened,
            None => BatchRecords::open(bytes, self.decompressed_max)?,
        };
        let (mut kept, mut has_tombstone) = (0_u64, false);
        let mut stays = Vec::with_capacity(usize::try_from(header.record_count).unwrap_or(0).min(opened.body().len()));
        for record in &opened {
            let record = record?;
            let keep = header.is_control() || self.keeps(header, &record);
            kept = kept.saturating_add(keep.into());
            has_tombstone |= keep && record.value.is_none();
            stays.push(keep);
        }
        let read = stays.len() as u64;
        let outcome = |kept_header, kept| Ok(Outcome { kept: kept_header, records_read: read, records_kept: kept });
        if kept == 0 {
            return outcome(Self::end_empty(header, verdict, out), 0);
        }
        let needs_horizon = (has_tombstone || verdict.is_idle_marker) && !header.has_delete_horizon();
        if kept == read && !needs_horizon {
            out.extend_from_slice(bytes);
            return outcome(Some(*header), kept);
        }
        let horizon = needs_horizon.then(|| self.now.plus(self.config.delete_retention_ms));
        outcome(Some(self.rewrite(header, &opened, &stays, horizon, out)?), kept)
    }

    fn judge(&self, header: &BatchHeader, control: Option<&BatchRecords<'_>>, txns: &mut Transactions) -> Verdict {
        let can_discard = match control {
            Some(records) => {
                let first = records.iter().next().and_then(Result::ok);
                txns.on_control(header, first.map(|r| r.key.and_then(ControlRecordType::decode).unwrap_or(ControlRecordType::Other(-1))))
            }
            None => txns.on_data(header),
        };
        let is_past_horizon = header.delete_horizon().is_some_and(|horizon| horizon <= self.now);
        Verdict {
            drop_records: can_discard && (!header.is_control() || is_past_horizon),
            keep_empty: self.is_last_of_producer(header) || header.next_offset() == self.upper,
            is_idle_marker: can_discard && header.is_control(),
        }
    }

    fn is_last_of_producer(&self, header: &BatchHeader) -> bool {
        match self.last_records.get(&header.producer_id).filter(|_| header.has_producer()) {
            None => false,
            Some(LastRecord::Data(offset)) => header.last_offset() == *offset,
            Some(LastRecord::Marker(epoch)) => header.is_control() && header.producer_epoch == *epoch,
        }
    }

    /// Whether a record of no aborted transaction stays.
    fn keeps(&self, header: &BatchHeader, record: &Record<'_>) -> bool {
        if self.map.latest().is_none_or(|latest| record.offset > latest) {
            return true;
        }
        let Some(key) = record.key else { return false };
        let is_newest = self.map.get(key).is_none_or(|newest| record.offset >= newest);
        is_newest && (record.value.is_some() || header.delete_horizon().is_none_or(|horizon| self.now < horizon))
    }

    fn end_empty(header: &BatchHeader, verdict: Verdict, out: &mut Vec<u8>) -> Option<BatchHeader> {
        verdict.keep_empty.then(|| {
            let (empty, bytes) = empty_batch(header);
            out.extend_from_slice(&bytes);
            empty
        })
    }

    fn rewrite(
        &self,
        header: &BatchHeader,
        opened: &BatchRecords<'_>,
        stays: &[bool],
        horizon: Option<Millis>,
        out: &mut Vec<u8>,
    ) -> Result<BatchHeader, FilterError> {
        let mut rewrite = Rewrite::of(*header, horizon);
        let (mut records, mut stays) = (opened.iter(), stays.iter());
        while let Some(next) = records.next_encoded() {
            let (record, encoded) = next?;
            if stays.next() == Some(&true) {
                rewrite.keep(&record, encoded);
            }
        }
        let own = header.compression().unwrap_or(Compression::None);
        let codec = match self.config.compression_type {
            CompressionType::Codec(codec) if !header.is_control() => codec,
            _ => own,
        };
        let (new, batch) = rewrite.build(codec, self.config.compression_level(codec))?;
        out.extend_from_slice(&batch);
        Ok(new)
    }
}
