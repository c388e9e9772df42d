//! What Kafka checks on a batch before it gives it offsets (`LogValidator`, `UnifiedLog.analyzeAndValidateRecords`,
//! `ProduceRequest.validateRecords`).
//!
//! Pure. It never assigns an offset, and it never copies a batch unless the topic's `compression.type` forces another codec.

use super::AppendError;
use crate::{config::TopicConfig, record::BatchHeader, types::Millis};
use bytes::Bytes;

/// Who appends (`AppendOrigin`): how much is checked.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Origin {
    /// A Produce request: everything is checked, and transactional batches are refused.
    Client,
    /// A Produce request whose transaction the coordinator knows of (later: KIP-890's verification).
    ClientInTransaction,
    /// A coordinator of this broker: writes markers and its own topic, without sequences.
    Coordinator,
    /// A copy from the leader, which has checked it; only its integrity is checked.
    Replication,
}

impl Origin {
    pub fn is_client(self) -> bool {
        matches!(self, Self::Client | Self::ClientInTransaction)
    }
}

/// A batch that may be appended: write `header` (with the offset and leader epoch that the log gives it; the CRC covers neither) and then `records`.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Accepted {
    /// The header as it is to be stored, CRC included: differs from the one that came if the topic stamps LogAppendTime or recompresses.
    pub header: BatchHeader,
    /// Everything after the header, as it is to be stored: a slice of what came, or the recompressed records.
    pub records: Bytes,
    /// The time that the topic stamped; [`Millis::NONE`] under CreateTime. What a Produce answer says.
    pub log_append_time: Millis,
}

impl Accepted {
    /// The whole batch in bytes.
    pub fn size(&self) -> usize {
        crate::record::HEADER_BYTES.saturating_add(self.records.len())
    }
}

/// What a Produce request's records of one partition must be, by the request's version: exactly one batch, of magic 2, with zstd only from
/// version 7 on. Answers that batch's bytes; an incomplete batch after it is cut off, as Kafka does.
pub fn split_one_batch(records: &Bytes, produce_version: i16) -> Result<Bytes, AppendError> {
    let _ = (records, produce_version);
    Err(AppendError::Corrupt(String::new()))
}

/// Checks one batch's bytes, and prepares what is to be stored.
pub fn validate(batch: &Bytes, config: &TopicConfig, now: Millis, origin: Origin) -> Result<Accepted, AppendError> {
    let _ = (batch, config, now, origin);
    Err(AppendError::Corrupt(String::new()))
}
