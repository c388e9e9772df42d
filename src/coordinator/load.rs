//! Reads a partition of an internal topic from its start to its end, as records to apply.

use super::{machine::Machine, records::Read};
use crate::{
    log::{Isolation, PartitionLog, ReadError},
    record::{BatchHeader, BatchRecords, EndTxnMarker, RecordsError},
    types::Offset,
};

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

/// Applies every record, in order. Those of a transaction wait for its marker.
pub fn load<M: Machine>(log: &PartitionLog, machine: &mut M) -> Result<Loaded, LoadError> {
    let marks = log.watermarks();
    let (mut next, end) = (marks.log_start, marks.high_watermark);
    let mut loading = Loading { machine, loaded: Loaded::default() };
    while next < end {
        let slice = log.read(next, READ_BYTES, true, Isolation::ReadUncommitted)?;
        let bytes = slice.bytes().map_err(LoadError::Copy)?;
        let before = next;
        let mut rest = &bytes[..];
        while let Some(header) = BatchHeader::parse(rest) {
            let Some((batch, after)) = header.size().and_then(|size| rest.split_at_checked(size)) else { break };
            loading.batch(&header, batch)?;
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

struct Loading<'a, M: Machine> {
    machine: &'a mut M,
    loaded: Loaded,
}

impl<M: Machine> Loading<'_, M> {
    fn batch(&mut self, header: &BatchHeader, batch: &[u8]) -> Result<(), LoadError> {
        let fault = |source| LoadError::Records { offset: header.base_offset, source };
        let opened = BatchRecords::open(batch, DECOMPRESSED_BYTES_MAX).map_err(fault)?;
        for record in opened.iter() {
            let record = record.map_err(fault)?;
            let Some(key) = record.key else { continue };
            if header.is_control() {
                if let Some(marker) = EndTxnMarker::decode(key, record.value.unwrap_or_default()) {
                    self.machine.end_transaction(header.producer_id, marker.commit);
                }
                continue;
            }
            match M::decode(key, record.value) {
                Ok(Read::Known(record)) => {
                    self.loaded.records = self.loaded.records.saturating_add(1);
                    if header.is_transactional() {
                        self.machine.apply_pending(header.producer_id, &record);
                    } else {
                        self.machine.apply(&record);
                    }
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
}
