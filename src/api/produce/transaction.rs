//! The transactional side of a Produce request: its partitions are in the producer's transaction, or join it, before anything is
//! appended (KIP-890; Kafka's `ReplicaManager.handleProduceAppend`).
//!
//! All transactional batches of a request are of one producer, and the request names its transactional id. A partition that has the
//! transaction open needs no word of the coordinator.

use super::Failure;
use crate::{
    api::{
        Context,
        transactional::{Supports, Word, ask},
    },
    codec::produce::ProduceRequest,
    coordinator::Committing,
    log::{
        AppendError, Proof,
        validate::{Origin, split_one_batch, whole_batch},
    },
    record::{BatchHeader, header::MAGIC},
    txn::TransactionalId,
    types::{ErrorCode, ProducerIdAndEpoch},
};
use bytes::Bytes;
use std::{collections::HashMap, sync::atomic::Ordering, time::Duration};
use tokio::time::Instant;

/// A partition of a request: its topic's place and its own.
pub type Place = (usize, usize);

/// How the partitions of a request may be appended to.
#[derive(Default)]
pub struct Transaction {
    places: HashMap<Place, Result<Proof, Failure>>,
    /// Every partition is refused.
    refused: Option<ErrorCode>,
    /// Appending waits for this: the coordinator's word is not committed yet.
    committing: Option<Committing>,
    /// The markers of the producer's last transaction are being written, and this one can't begin before.
    last_is_ending: bool,
}

/// A batch that is in a transaction.
struct Batch {
    place: Place,
    producer: ProducerIdAndEpoch,
    sequence: i32,
}

impl Transaction {
    /// Has the request's transactional batches verified. A request without any costs a look at its headers.
    pub fn of(context: &Context, request: &ProduceRequest, version: i16) -> Self {
        let refuse = |error| Self { refused: Some(error), ..Self::default() };
        match has_transactional(request) {
            Ok(false) => return Self::default(),
            Ok(true) => {}
            Err(error) => return refuse(ErrorCode::from(&error)),
        }
        let Some(id) = request.transactional_id.as_ref() else { return refuse(ErrorCode::TransactionalIdAuthorizationFailed) };
        let Ok(id) = std::str::from_utf8(id) else { return refuse(ErrorCode::InvalidRequest) };
        let batches = transactional(context, request, version);
        let Some(first) = batches.first() else { return Self::default() };
        if batches.iter().any(|batch| batch.producer != first.producer) {
            return refuse(ErrorCode::InvalidProducerIdMapping);
        }
        Self::verified(context, request, id.into(), &batches, Supports::of_produce(version))
    }

    fn verified(context: &Context, request: &ProduceRequest, id: TransactionalId, batches: &[Batch], supports: Supports) -> Self {
        let mut transaction = Self::default();
        let asks = supports.bumps_epochs() || context.verifies_transactions.load(Ordering::Relaxed);
        let mut guards = Vec::new();
        for batch in batches {
            if !asks {
                transaction.places.insert(batch.place, Ok(Proof::Unchecked));
                continue;
            }
            // Whoever doesn't find the partition is told so when it is appended to.
            let Some(log) = request.topics.get(batch.place.0).and_then(|topic| {
                let name = std::str::from_utf8(&topic.name).ok()?;
                context.leader_log(name, topic.id, topic.partitions.get(batch.place.1)?.index).ok()
            }) else {
                continue;
            };
            let ProducerIdAndEpoch { id, epoch } = batch.producer;
            match log.begin_verification(context.now(), id, epoch, batch.sequence, supports.bumps_epochs()) {
                Ok(None) => {}
                Ok(Some(guard)) => guards.push((batch.place, guard, log.topic().clone())),
                // Before anything is appended, so that nothing is said of the log.
                Err(error) => {
                    transaction.places.insert(batch.place, Err(Failure::Records(error)));
                }
            }
        }
        if let Some(batch) = batches.first().filter(|_| !guards.is_empty()) {
            let partitions = guards.iter().map(|(_, _, partition)| partition.clone()).collect();
            let Word { errors, committing } = ask(context, id, batch.producer, partitions, supports);
            transaction.last_is_ending = supports.bumps_epochs() && errors.contains(&ErrorCode::ConcurrentTransactions);
            for ((place, guard, _), error) in guards.into_iter().zip(errors) {
                let answered = if error.is_error() { Err(failure(error, supports)) } else { Ok(Proof::Guarded(guard)) };
                transaction.places.insert(place, answered);
            }
            transaction.committing = committing;
        }
        transaction
    }

    /// Whether there is something to wait for.
    pub fn waits(&self) -> bool {
        self.last_is_ending || self.committing.is_some()
    }

    /// The same once it is known: a producer goes on right after EndTxn was answered, so that the end of its last transaction is waited for
    /// here, for `add.partitions.to.txn.retry.backoff.max.ms`, rather than by a client that starts anew (KAFKA-18575).
    pub async fn settled(mut self, context: &Context, request: &ProduceRequest, version: i16) -> Self {
        let retry = &context.config.transactions;
        let span = |ms: i64| Duration::from_millis(ms.unsigned_abs());
        let begun = Instant::now();
        while self.last_is_ending && begun.elapsed() < span(retry.add_partitions_retry_backoff_max_ms) {
            tokio::time::sleep(span(retry.add_partitions_retry_backoff_ms)).await;
            self = Self::of(context, request, version);
        }
        if let Some(committing) = self.committing.take()
            && committing.wait().await.is_err()
        {
            self.lose();
        }
        self
    }

    /// Why every partition of the request is refused, if it is.
    pub fn refused(&self) -> Option<ErrorCode> {
        self.refused
    }

    /// How a partition's batch is appended, or why it isn't.
    pub fn origin(&mut self, place: Place) -> Result<Origin, Failure> {
        self.places.remove(&place).map_or(Ok(Origin::Client), |answered| answered.map(Origin::ClientInTransaction))
    }

    /// The coordinator's word was lost: whoever needed it is to try again.
    fn lose(&mut self) {
        for answered in self.places.values_mut().filter(|answered| matches!(answered, Ok(Proof::Guarded(_)))) {
            *answered = Err(failure(ErrorCode::NotCoordinator, Supports::DefaultError));
        }
    }
}

/// Whether a partition's first batch is in a transaction. A batch before it whose length or magic can't be refuses the whole request, since
/// what it holds isn't known (`RequestUtils.hasTransactionalRecords`).
fn has_transactional(request: &ProduceRequest) -> Result<bool, AppendError> {
    for records in request.topics.iter().flat_map(|topic| &topic.partitions).filter_map(|partition| partition.records.as_ref()) {
        let header = whole_batch(records)?.and_then(|_| BatchHeader::parse(records));
        if header.is_some_and(|header| header.magic == MAGIC && header.is_transactional()) {
            return Ok(true);
        }
    }
    Ok(false)
}

/// The batches of partitions that are there, in a form that may be appended: the others are refused for what they are.
fn transactional(context: &Context, request: &ProduceRequest, version: i16) -> Vec<Batch> {
    let mut batches = Vec::new();
    for (topic_place, topic) in request.topics.iter().enumerate() {
        let Ok(name) = std::str::from_utf8(&topic.name) else { continue };
        for (place, partition) in topic.partitions.iter().enumerate() {
            let records = partition.records.as_ref().filter(|_| context.leader_log(name, topic.id, partition.index).is_ok());
            let batch = records.and_then(|records: &Bytes| split_one_batch(records, version).ok());
            let header = batch.and_then(|batch| BatchHeader::parse(&batch));
            if let Some(header) = header.filter(|header| header.is_transactional() && header.has_producer()) {
                let producer = ProducerIdAndEpoch { id: header.producer_id, epoch: header.producer_epoch };
                batches.push(Batch { place: (topic_place, place), producer, sequence: header.base_sequence });
            }
        }
    }
    batches
}

/// What a producer hears where the coordinator didn't agree. Clients of old don't try again after a coordinator's errors, but after
/// NOT_ENOUGH_REPLICAS they do.
fn failure(error: ErrorCode, supports: Supports) -> Failure {
    let retried = match error {
        ErrorCode::CoordinatorLoadInProgress | ErrorCode::CoordinatorNotAvailable | ErrorCode::NotCoordinator => true,
        ErrorCode::ConcurrentTransactions => !supports.bumps_epochs(),
        ErrorCode::InvalidTxnState => {
            return Failure::Transaction { code: error, message: "Partition was not added to the transaction".to_owned() };
        }
        _ => false,
    };
    if !retried {
        return Failure::Code(error);
    }
    let message = format!("Unable to verify the partition has been added to the transaction. Underlying error: {error}");
    Failure::Transaction { code: ErrorCode::NotEnoughReplicas, message }
}
