//! AddPartitionsToTxn (key 24), versions 0 to 5.
//!
//! - Up to version 3 a client adds partitions to its transaction: all, or none if one of them isn't there (OPERATION_NOT_ATTEMPTED for the
//!   others). The topics of coordinators are nobody's to write to.
//! - From version 4 on it is between brokers: many transactions, each of which is added to or only verified (KIP-890). Version 5 comes
//!   from clients that bump their epoch with each transaction. The answer is each transaction's.
//! - PRODUCER_FENCED came with version 2: before it, the error is INVALID_PRODUCER_EPOCH.

use super::{
    Api, Body, Context, FrameMax, Request,
    convert::first_error,
    transactional::{epoch_error, producer, transactional_id},
};
use crate::{
    codec::shape::{BOOL, I16, I32, I64, Kind, Shape, TEXT, always, since, until},
    coordinator::{Committing, Outcome},
    net::{Answer, Refusal},
    txn::{AddPartitions, TransactionVersion, VerifyPartitions},
    types::{ErrorCode, PartitionIndex, ProducerIdAndEpoch, TopicName, TopicPartition},
};
use kafka_protocol::messages::{
    self, AddPartitionsToTxnRequest, AddPartitionsToTxnResponse, TransactionalId,
    add_partitions_to_txn_request::AddPartitionsToTxnTopic,
    add_partitions_to_txn_response::{AddPartitionsToTxnPartitionResult, AddPartitionsToTxnResult, AddPartitionsToTxnTopicResult},
};
use std::sync::Arc;

const TOPICS: Kind = Kind::Structs(&[always(TEXT), always(Kind::Array(&I32))]);

pub const API: Api = Api {
    key: 24,
    name: "AddPartitionsToTxn",
    versions: 0..=5,
    advertised_min: 0,
    flexible_since: 3,
    frame_max: FrameMax::Control,
    body: Body::Shaped(Shape(&[
        since(4, Kind::Structs(&[always(TEXT), always(I64), always(I16), always(BOOL), always(TOPICS)])),
        until(3, TEXT),
        until(3, I64),
        until(3, I16),
        until(3, TOPICS),
    ])),
    run,
    note: "both flows",
};

/// The first version that brokers send.
const BATCHED_SINCE: i16 = 4;

/// One transaction of a request.
struct Asked<'a> {
    id: &'a TransactionalId,
    producer: ProducerIdAndEpoch,
    verify_only: bool,
    topics: &'a [AddPartitionsToTxnTopic],
}

/// What a transaction is answered: for each partition in the request's order.
struct Answered {
    errors: Vec<ErrorCode>,
    committing: Option<Committing>,
}

impl Answered {
    fn all(error: ErrorCode, of: &Asked<'_>) -> Self {
        Self { errors: vec![error; of.topics.iter().map(|topic| topic.partitions.len()).sum()], committing: None }
    }
}

fn run(context: &Arc<Context>, request: Request) -> Result<Answer, Refusal> {
    let asked: AddPartitionsToTxnRequest = request.decode()?;
    let version = request.version();
    let answered: Vec<Answered> = transactions(&asked, version).iter().map(|one| decide(context, one, version)).collect();
    if answered.iter().all(|one| one.committing.is_none()) {
        let (response, error) = respond(&asked, version, answered);
        return request.ready(&response, error);
    }
    Ok(Answer::Later(Box::pin(async move {
        let mut settled = Vec::with_capacity(answered.len());
        for Answered { mut errors, committing } in answered {
            if let Some(committing) = committing
                && let Err(error) = committing.wait().await
            {
                errors.fill(error);
            }
            settled.push(Answered { errors, committing: None });
        }
        let (response, error) = respond(&asked, version, settled);
        request.reply(&response, error)
    })))
}

fn transactions(asked: &AddPartitionsToTxnRequest, version: i16) -> Vec<Asked<'_>> {
    if version < BATCHED_SINCE {
        let producer = producer(asked.v3_and_below_producer_id, asked.v3_and_below_producer_epoch);
        let (id, topics) = (&asked.v3_and_below_transactional_id, &*asked.v3_and_below_topics);
        return vec![Asked { id, producer, verify_only: false, topics }];
    }
    let one = |t: &'_ messages::add_partitions_to_txn_request::AddPartitionsToTxnTransaction| -> (ProducerIdAndEpoch, bool) {
        (producer(t.producer_id, t.producer_epoch), t.verify_only)
    };
    let all = asked.transactions.iter().map(|t| {
        let (producer, verify_only) = one(t);
        Asked { id: &t.transactional_id, producer, verify_only, topics: &t.topics }
    });
    all.collect()
}

fn decide(context: &Context, asked: &Asked<'_>, version: i16) -> Answered {
    let image = context.image();
    let mut partitions = Vec::new();
    let mut errors = Vec::new();
    for topic in asked.topics {
        let found = image.topic(&topic.name);
        let hidden = version < BATCHED_SINCE && TopicName::new(&topic.name).is_ok_and(|name| name.is_internal());
        for index in topic.partitions.iter().copied().map(PartitionIndex) {
            let there = found.filter(|topic| topic.partition(index).is_some());
            partitions.extend(there.map(|topic| TopicPartition { topic: topic.name.clone(), partition: index }));
            errors.push(match there {
                _ if hidden => ErrorCode::TopicAuthorizationFailed,
                None => ErrorCode::UnknownTopicOrPartition,
                Some(_) => ErrorCode::None,
            });
        }
    }
    if errors.iter().any(|error| error.is_error()) {
        errors.iter_mut().filter(|error| !error.is_error()).for_each(|error| *error = ErrorCode::OperationNotAttempted);
        return Answered { errors, committing: None };
    }
    let id = transactional_id(asked.id);
    if asked.verify_only {
        return match context.transactions.verify(&VerifyPartitions { id, producer: asked.producer, partitions }) {
            Ok(errors) => Answered { errors, committing: None },
            Err(error) => Answered::all(error, asked),
        };
    }
    let client_version = if version > BATCHED_SINCE { TransactionVersion::V2 } else { TransactionVersion::V0 };
    match context.transactions.add_partitions(&AddPartitions { id, producer: asked.producer, partitions, client_version }) {
        Ok(Outcome { reply, committing }) => Answered { committing, ..Answered::all(epoch_error(reply, version, 2), asked) },
        Err(error) => Answered::all(error, asked),
    }
}

fn respond(asked: &AddPartitionsToTxnRequest, version: i16, answered: Vec<Answered>) -> (AddPartitionsToTxnResponse, ErrorCode) {
    let error = first_error(answered.iter().flat_map(|one| &one.errors).map(|error| error.code()));
    let mut results: Vec<AddPartitionsToTxnResult> = Vec::with_capacity(answered.len());
    for (of, one) in transactions(asked, version).iter().zip(answered) {
        let mut errors = one.errors.into_iter();
        let mut partition = |index: &i32| {
            let error = errors.next().unwrap_or_default();
            AddPartitionsToTxnPartitionResult::default().with_partition_index(*index).with_partition_error_code(error.code())
        };
        let mut topics = Vec::with_capacity(of.topics.len());
        for topic in of.topics {
            let partitions = topic.partitions.iter().map(&mut partition).collect();
            topics.push(AddPartitionsToTxnTopicResult::default().with_name(topic.name.clone()).with_results_by_partition(partitions));
        }
        results.push(AddPartitionsToTxnResult::default().with_transactional_id(of.id.clone()).with_topic_results(topics));
    }
    let response = AddPartitionsToTxnResponse::default();
    if version >= BATCHED_SINCE {
        return (response.with_results_by_transaction(results), error);
    }
    let topics = results.into_iter().next().map(|result| result.topic_results).unwrap_or_default();
    (response.with_results_by_topic_v3_and_below(topics), error)
}
