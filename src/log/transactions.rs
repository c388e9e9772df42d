//! What a partition says of the producers that write to it, and how transactions on it are verified and ended.

use super::{
    AppendError, Appended, PartitionLog,
    producer_state::ProducerEntry,
    validate::Origin,
    verification::{Guard, Proof},
};
use crate::{
    record::{EndTxnMarker, builder::end_txn_batch},
    types::{Millis, Offset, ProducerEpoch, ProducerId},
};
use std::io;

/// A transaction that holds back the partition's last stable offset.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct OpenTransaction {
    pub producer_id: ProducerId,
    pub producer_epoch: ProducerEpoch,
    pub coordinator_epoch: i32,
    pub first_offset: Offset,
    /// The timestamp of its first batch, by its producer's clock unless the topic stamps LogAppendTime.
    pub started: Millis,
    /// The timestamp of its last batch.
    pub last_timestamp: Millis,
}

impl PartitionLog {
    /// The producers that the partition knows (DescribeProducers).
    pub fn producers(&self) -> Vec<ProducerEntry> {
        self.writer.lock().producers.entries().cloned().collect()
    }

    /// A transactional batch with this sequence came: what to ask its coordinator with before it is appended; `None` if it goes on in a
    /// transaction that is open here. `bumps_epoch`: see [`super::verification::Verification`].
    pub fn begin_verification(
        &self,
        now: Millis,
        producer_id: ProducerId,
        epoch: ProducerEpoch,
        sequence: i32,
        bumps_epoch: bool,
    ) -> Result<Option<Guard>, AppendError> {
        let mut writer = self.writer.lock();
        if let Some(entry) = writer.producers.entry(producer_id) {
            if epoch < entry.epoch {
                return Err(AppendError::FencedProducer { producer_id, got: epoch, current: entry.epoch });
            }
            if entry.current_txn_first_offset.is_some() && entry.epoch == epoch {
                return Ok(None);
            }
        }
        Ok(Some(writer.verifications.begin(now, producer_id, epoch, sequence, bumps_epoch)))
    }

    /// Ends a producer's transaction here with a marker, for its coordinator. By `transaction_version` an epoch is late or not.
    pub fn end_transaction(
        &self,
        now: Millis,
        producer_id: ProducerId,
        epoch: ProducerEpoch,
        marker: EndTxnMarker,
        transaction_version: i16,
    ) -> Result<Appended, AppendError> {
        self.append(now, end_txn_batch(producer_id, epoch, marker, now), Origin::Marker { transaction_version })
    }

    /// The transactions that are open here, oldest first; at most `max` of them. Reads the header of each one's first batch.
    pub fn open_transactions(&self, max: usize) -> io::Result<Vec<OpenTransaction>> {
        let open: Vec<_> = {
            let writer = self.writer.lock();
            let entry = |(first, producer)| writer.producers.entry(producer).map(|entry| (first, entry.clone()));
            writer.producers.ongoing().filter_map(entry).take(max).collect()
        };
        let mut found = Vec::with_capacity(open.len());
        for (first_offset, entry) in open {
            let started = self.batch_timestamp(first_offset)?;
            found.push(OpenTransaction {
                producer_id: entry.producer_id,
                producer_epoch: entry.epoch,
                coordinator_epoch: entry.coordinator_epoch,
                first_offset,
                // Its first batch may have been deleted.
                started: started.unwrap_or(entry.last_timestamp).min(entry.last_timestamp),
                last_timestamp: entry.last_timestamp,
            });
        }
        Ok(found)
    }
}

impl Proof {
    /// What a batch goes with after [`PartitionLog::begin_verification`].
    pub fn of(guard: Option<Guard>) -> Self {
        guard.map_or(Self::Missing, Self::Guarded)
    }
}
