//! What the transaction coordinator asks of partitions when a transaction ends, and what it hears. It does not know what a partition does
//! with a marker: the logs write it, and groups also take or drop the offsets that were committed in the transaction.

use super::super::Committing;
use crate::{
    txn::TransactionVersion,
    types::{ErrorCode, ProducerIdAndEpoch, TopicPartition},
};

/// Ends a producer's transaction in a partition.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Marker {
    pub producer: ProducerIdAndEpoch,
    pub commit: bool,
    /// The leader epoch of the coordinator's partition of `__transaction_state`.
    pub coordinator_epoch: i32,
    /// From version 2 on, the epoch is above that of every record of the transaction.
    pub version: TransactionVersion,
}

/// What became of a marker in one partition.
#[derive(Clone, Debug)]
pub enum MarkerOutcome {
    /// It is in the log, or was there already: it is written again after a crash. If something is given, it counts once that is committed.
    Written(Option<Committing>),
    /// There is no such partition any more.
    Gone,
    /// Not now: the log takes no writes, or a coordinator is loading. It is tried again.
    Later(ErrorCode),
}

/// Who writes markers.
pub trait MarkerWriter: Send + Sync {
    /// Appends a marker to one partition and, if that is one of the offsets topic, ends the transaction in its groups. May write to the disk
    /// but not wait for it. A partition whose producer has gone on to another epoch has had this marker: the answer is `Written`.
    fn write(&self, marker: &Marker, partition: &TopicPartition) -> MarkerOutcome;
}
