//! DescribeTransactions (key 65), version 0.
//!
//! - Where transactional ids stand: producer, state, timeout, begin and partitions. One that isn't known is TRANSACTIONAL_ID_NOT_FOUND.

use super::{
    Api, Body, Context, FrameMax, Request,
    convert::{first_error, text, topic_name},
};
use crate::{
    codec::shape::{Kind, Shape, TEXT, always},
    net::{Answer, Refusal},
    txn::Described,
    types::{ErrorCode, TopicPartition},
};
use kafka_protocol::messages::{
    DescribeTransactionsRequest, DescribeTransactionsResponse, ProducerId, TransactionalId,
    describe_transactions_response::{TopicData, TransactionState},
};
use std::{collections::BTreeSet, sync::Arc};

pub const API: Api = Api {
    key: 65,
    name: "DescribeTransactions",
    versions: 0..=0,
    advertised_min: 0,
    flexible_since: 0,
    frame_max: FrameMax::Control,
    body: Body::Shaped(Shape(&[always(Kind::Array(&TEXT))])),
    run,
    note: "",
};

fn run(context: &Arc<Context>, request: Request) -> Result<Answer, Refusal> {
    let asked: DescribeTransactionsRequest = request.decode()?;
    let states: Vec<_> = asked.transactional_ids.iter().map(|id| state(id, context.transactions.describe(id))).collect();
    let error = first_error(states.iter().map(|state| state.error_code));
    request.ready(&DescribeTransactionsResponse::default().with_transaction_states(states), error)
}

fn state(id: &TransactionalId, described: Result<Described, ErrorCode>) -> TransactionState {
    let state = TransactionState::default().with_transactional_id(id.clone());
    match described {
        Ok(described) => state
            .with_transaction_state(text(described.state.name()))
            .with_transaction_timeout_ms(described.timeout_ms)
            .with_transaction_start_time_ms(described.started_at.0)
            .with_producer_id(ProducerId(described.producer.id.0))
            .with_producer_epoch(described.producer.epoch.0)
            .with_topics(topics(&described.partitions)),
        Err(error) => state.with_error_code(error.code()),
    }
}

fn topics(partitions: &BTreeSet<TopicPartition>) -> Vec<TopicData> {
    let mut topics: Vec<TopicData> = Vec::new();
    for partition in partitions {
        if topics.last().is_none_or(|last| last.topic.as_str() != partition.topic.as_str()) {
            topics.push(TopicData::default().with_topic(topic_name(&partition.topic)));
        }
        if let Some(last) = topics.last_mut() {
            last.partitions.push(partition.partition.0);
        }
    }
    topics
}
