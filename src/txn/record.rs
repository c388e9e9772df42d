//! What transactional ids keep: the records of `__transaction_state` in their meaning. Their bytes are `coordinator::records`' business.

use super::{State, TransactionVersion, TransactionalId};
use crate::types::{Millis, ProducerId, ProducerIdAndEpoch, TopicPartition};
use std::collections::BTreeSet;

/// One record. `None` is a tombstone: the id has expired.
#[derive(Clone, PartialEq, Debug)]
pub struct Record {
    pub id: TransactionalId,
    pub value: Option<Metadata>,
}

/// `TransactionLogValue`: a transactional id and its transaction as they stand.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Metadata {
    pub producer: ProducerIdAndEpoch,
    /// The id that it had before the last change; −1 in records of old.
    pub previous_producer_id: ProducerId,
    /// The id that it gets once the markers are written, since the epochs of this one are used up; −1 if it keeps this one.
    pub next_producer_id: ProducerId,
    /// `transaction.timeout.ms` of the producer.
    pub timeout_ms: i32,
    pub state: State,
    pub partitions: BTreeSet<TopicPartition>,
    /// When the transaction began; −1 before the first.
    pub started_at: Millis,
    pub updated_at: Millis,
    /// What the client spoke in the transaction.
    pub client_version: TransactionVersion,
}
