//! What the APIs of transactions share: names from the wire, errors by version, and the coordinator's word on partitions that Produce and
//! TxnOffsetCommit write to (KIP-890; Kafka's `AddPartitionsToTxnManager`).

use super::Context;
use crate::{
    coordinator::{Committing, Outcome},
    txn::{AddPartitions, TransactionVersion, TransactionalId, VerifyPartitions},
    types::{ErrorCode, ProducerEpoch, ProducerId, ProducerIdAndEpoch, TopicPartition},
};
use kafka_protocol::messages;

pub(super) fn producer(id: messages::ProducerId, epoch: i16) -> ProducerIdAndEpoch {
    ProducerIdAndEpoch { id: ProducerId(id.0), epoch: ProducerEpoch(epoch) }
}

/// A copy, which doesn't hold on to the frame.
pub(super) fn transactional_id(id: &messages::TransactionalId) -> TransactionalId {
    id.as_str().into()
}

/// PRODUCER_FENCED came with version `since` of an API: older clients know INVALID_PRODUCER_EPOCH.
pub(super) fn epoch_error(error: ErrorCode, version: i16, since: i16) -> ErrorCode {
    if error == ErrorCode::ProducerFenced && version < since { ErrorCode::InvalidProducerEpoch } else { error }
}

/// What a client that writes to a partition knows of transactions, by its request's version (`TransactionSupportedOperation`).
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Supports {
    /// Neither.
    DefaultError,
    /// TRANSACTION_ABORTABLE.
    GenericError,
    /// That a partition joins the transaction by being written to, and that each transaction has its own epoch.
    AddPartition,
}

impl Supports {
    pub fn of_produce(version: i16) -> Self {
        match version {
            ..=10 => Self::DefaultError,
            11 => Self::GenericError,
            _ => Self::AddPartition,
        }
    }

    pub fn of_txn_offset_commit(version: i16) -> Self {
        match version {
            ..=3 => Self::DefaultError,
            4 => Self::GenericError,
            _ => Self::AddPartition,
        }
    }

    pub fn bumps_epochs(self) -> bool {
        self == Self::AddPartition
    }
}

/// The coordinator's word on partitions of a transaction.
pub(super) struct Word {
    /// For each partition, in their order.
    pub errors: Vec<ErrorCode>,
    /// They may be written to once this is committed.
    pub committing: Option<Committing>,
}

/// Has partitions verified, or added, by the coordinator of a transaction.
pub(super) fn ask(
    context: &Context,
    id: TransactionalId,
    producer: ProducerIdAndEpoch,
    partitions: Vec<TopicPartition>,
    supports: Supports,
) -> Word {
    let count = partitions.len();
    let (mut errors, committing) = if supports.bumps_epochs() {
        let client_version = TransactionVersion::V2;
        match context.transactions.add_partitions(&AddPartitions { id, producer, partitions, client_version }) {
            Ok(Outcome { reply, committing }) => (vec![reply; count], committing),
            Err(error) => (vec![error; count], None),
        }
    } else {
        match context.transactions.verify(&VerifyPartitions { id, producer, partitions }) {
            Ok(errors) => (errors, None),
            Err(error) => (vec![error; count], None),
        }
    };
    for error in &mut errors {
        *error = match *error {
            // What producers expect of a write.
            ErrorCode::ProducerFenced => ErrorCode::InvalidProducerEpoch,
            ErrorCode::TransactionAbortable if supports == Supports::DefaultError => ErrorCode::InvalidTxnState,
            error => error,
        };
    }
    Word { errors, committing }
}
