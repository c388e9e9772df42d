//! Reads a partition of an internal topic from its start to its end, as records to apply.

use super::{machine::Machine, records::Read};
use crate::{
    log::{Isolation, PartitionLog, ReadError},
    record::{BatchHeader, BatchRecords, EndTxnMarker, RecordsError},
    types::{Offset, ProducerId},
};
use std::collections::HashMap;

const READ_BYTES: usize = 1 << 20;
/// Coordinators write uncompressed; a Kafka whose `offsets.topic.compression.codec` was set did not.
const DECOMPRESSED_BYTES_MAX: usize = 128 << 20;

/// Why a partition can't be loaded: what is kept in it has no coordinator.
#[derive(Debug, thiserror::Error)]
pub enum LoadError {
    #[error(transparent)]
    Read(#[from] ReadError),
    #[error("copy a range of the log")]
    Copy(#[source] std::io::Error),
    #[error("the batch at offset {0} is cut short")]
    Cut(Offset),
    #[error("the batch at offset {offset}")]
    Records { offset: Offset, source: RecordsError },
}

/// What was read.
#[derive(Debug, Default, PartialEq, Eq, Clone, Copy)]
pub struct Loaded {
    pub records: u64,
    /// Records that can't be read, or that are of kinds which are not kept here.
    pub ignored: u64,
}

/// Hands every record that counts to `apply`, in order. Offsets that were committed in a transaction count from its commit marker on.
pub fn load<M: Machine>(log: &PartitionLog, mut apply: impl FnMut(&M::Record)) -> Result<Loaded, LoadError> {
    let marks = log.watermarks();
    let (mut next, end) = (marks.log_start, marks.high_watermark);
    let mut loading = Loading::<M> { in_transactions: HashMap::new(), loaded: Loaded::default() };
    while next < end {
        let slice = log.read(next, READ_BYTES, true, Isolation::ReadUncommitted)?;
        let bytes = slice.bytes().map_err(LoadError::Copy)?;
        let before = next;
        let mut rest = &bytes[..];
        while let Some(header) = BatchHeader::parse(rest) {
            let Some((batch, after)) = header.size().and_then(|size| rest.split_at_checked(size)) else { break };
            loading.batch(&header, batch, &mut apply)?;
            next = header.next_offset();
            rest = after;
        }
        if slice.len == 0 {
            // Compaction left nothing up to the end.
            break;
        }
        if next == before {
            return Err(LoadError::Cut(next));
        }
    }
    Ok(loading.loaded)
}

struct Loading<M: Machine> {
    in_transactions: HashMap<ProducerId, Vec<M::Record>>,
    loaded: Loaded,
}

impl<M: Machine> Loading<M> {
    fn batch(&mut self, header: &BatchHeader, batch: &[u8], apply: &mut impl FnMut(&M::Record)) -> Result<(), LoadError> {
        let fault = |source| LoadError::Records { offset: header.base_offset, source };
        let opened = BatchRecords::open(batch, DECOMPRESSED_BYTES_MAX).map_err(fault)?;
        for record in opened.iter() {
            let record = record.map_err(fault)?;
            let Some(key) = record.key else { continue };
            if header.is_control() {
                self.end_transaction(header.producer_id, EndTxnMarker::decode(key, record.value.unwrap_or_default()), apply);
                continue;
            }
            match M::decode(key, record.value) {
                Ok(Read::Known(record)) if header.is_transactional() => {
                    self.in_transactions.entry(header.producer_id).or_default().push(record);
                }
                Ok(Read::Known(record)) => {
                    self.loaded.records = self.loaded.records.saturating_add(1);
                    apply(&record);
                }
                Ok(Read::Ignored) => self.loaded.ignored = self.loaded.ignored.saturating_add(1),
                Err(error) => {
                    self.loaded.ignored = self.loaded.ignored.saturating_add(1);
                    tracing::warn!(offset = %record.offset, %error, "a record of {} can't be read; it is left out", M::PLURAL);
                }
            }
        }
        Ok(())
    }

    fn end_transaction(&mut self, producer: ProducerId, marker: Option<EndTxnMarker>, apply: &mut impl FnMut(&M::Record)) {
        let Some(marker) = marker else { return };
        let records = self.in_transactions.remove(&producer).unwrap_or_default();
        if marker.commit {
            self.loaded.records = self.loaded.records.saturating_add(records.len() as u64);
            records.iter().for_each(apply);
        }
    }
}
