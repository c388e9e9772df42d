//! What producers and tools ask of the transaction coordinator, and what they hear.

use super::{State, TransactionVersion, TransactionalId};
use crate::types::{Millis, ProducerEpoch, ProducerId, ProducerIdAndEpoch, TopicPartition};
use std::collections::BTreeSet;

/// InitProducerId with a transactional id. The answer is the producer to go on as.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct InitProducerId {
    pub id: TransactionalId,
    pub timeout_ms: i32,
    /// The producer as which it went on until now (KIP-360): it is fenced if that is another one's by now. `None` to take over.
    pub expected: Option<ProducerIdAndEpoch>,
}

/// AddPartitionsToTxn, AddOffsetsToTxn (with the group's partition of the offsets topic), and what Produce and TxnOffsetCommit imply.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct AddPartitions {
    pub id: TransactionalId,
    pub producer: ProducerIdAndEpoch,
    pub partitions: Vec<TopicPartition>,
    /// Version 2 if the request is one that only its clients send.
    pub client_version: TransactionVersion,
}

/// Whether partitions are in an open transaction (AddPartitionsToTxn's `verify_only`).
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct VerifyPartitions {
    pub id: TransactionalId,
    pub producer: ProducerIdAndEpoch,
    pub partitions: Vec<TopicPartition>,
}

/// EndTxn. The answer is the producer to go on as: of version 2, with the next epoch.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct EndTxn {
    pub id: TransactionalId,
    pub producer: ProducerIdAndEpoch,
    pub commit: bool,
    /// Version 2 for EndTxn from version 5 on.
    pub client_version: TransactionVersion,
}

/// Markers that are to be written: an effect of a decision, once its records are committed, and of loading.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Ending {
    pub id: TransactionalId,
    pub producer: ProducerIdAndEpoch,
    pub commit: bool,
    /// Of version 2, the markers' epoch is above the epoch of every record of the transaction.
    pub version: TransactionVersion,
    pub partitions: BTreeSet<TopicPartition>,
}

/// DescribeTransactions.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Described {
    pub producer: ProducerIdAndEpoch,
    pub state: State,
    pub timeout_ms: i32,
    /// −1 if there was no transaction yet.
    pub started_at: Millis,
    pub partitions: BTreeSet<TopicPartition>,
}

/// One of ListTransactions' answers.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Listed {
    pub id: TransactionalId,
    pub producer_id: ProducerId,
    pub state: State,
}

/// What of the transactions is asked for. Empty sets ask for all.
#[derive(Default)]
pub struct Filter<'a> {
    pub producer_ids: Vec<ProducerId>,
    pub states: Vec<State>,
    /// None of the names that were asked for is a state: nothing fits.
    pub no_known_state: bool,
    /// Only those that began longer ago than this.
    pub longer_than_ms: Option<i64>,
    pub id_fits: Option<&'a dyn Fn(&str) -> bool>,
}

/// Whether no further epoch may be given out of a producer id: the last one is kept for fencing.
pub(super) fn is_exhausted(epoch: ProducerEpoch) -> bool {
    epoch.0 >= i16::MAX - 1
}
