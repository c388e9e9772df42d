//! DescribeProducers (key 61), version 0.
//!
//! - The idempotent and transactional producers that partitions know: their epoch and last sequence, and where an open transaction began.
//!   `kafka-transactions find-hanging` looks for transactions that have no coordinator with it.

use super::{
    Api, Body, Context, FrameMax, Request,
    convert::{first_error, text},
};
use crate::{
    codec::shape::{I32, Kind, Shape, TEXT, always},
    log::producer_state::ProducerEntry,
    net::{Answer, Refusal},
    types::{ErrorCode, PartitionIndex, TopicId, TopicName},
};
use kafka_protocol::messages::{
    DescribeProducersRequest, DescribeProducersResponse, ProducerId,
    describe_producers_response::{PartitionResponse, ProducerState, TopicResponse},
};
use std::sync::Arc;

pub const API: Api = Api {
    key: 61,
    name: "DescribeProducers",
    versions: 0..=0,
    advertised_min: 0,
    flexible_since: 0,
    frame_max: FrameMax::Control,
    body: Body::Shaped(Shape(&[always(Kind::Structs(&[always(TEXT), always(Kind::Array(&I32))]))])),
    run,
    note: "",
};

fn run(context: &Arc<Context>, request: Request) -> Result<Answer, Refusal> {
    let asked: DescribeProducersRequest = request.decode()?;
    let mut topics = Vec::with_capacity(asked.topics.len());
    for topic in &asked.topics {
        let bad_name = TopicName::new(&topic.name).err();
        let is_there = context.image().topic(&topic.name).is_some();
        let partitions = topic.partition_indexes.iter().map(|index| {
            let response = PartitionResponse::default().with_partition_index(*index).with_error_message(None);
            let refused = |error: ErrorCode, message: String| {
                PartitionResponse::default()
                    .with_partition_index(*index)
                    .with_error_code(error.code())
                    .with_error_message(Some(text(message)))
            };
            match &bad_name {
                Some(bad) => return refused(ErrorCode::InvalidTopicException, format!("Topic name is invalid: {bad}")),
                None if !is_there => {
                    return refused(ErrorCode::UnknownTopicOrPartition, "This server does not host this topic-partition.".to_owned());
                }
                None => {}
            }
            match context.leader_log(&topic.name, TopicId::ZERO, PartitionIndex(*index)) {
                Ok(log) => response.with_active_producers(log.producers().iter().map(state).collect()),
                Err(error) => response.with_error_code(error.code()),
            }
        });
        topics.push(TopicResponse::default().with_name(topic.name.clone()).with_partitions(partitions.collect()));
    }
    let error = first_error(topics.iter().flat_map(|topic| &topic.partitions).map(|partition| partition.error_code));
    request.ready(&DescribeProducersResponse::default().with_topics(topics), error)
}

fn state(entry: &ProducerEntry) -> ProducerState {
    ProducerState::default()
        .with_producer_id(ProducerId(entry.producer_id.0))
        .with_producer_epoch(entry.epoch.0.into())
        .with_last_sequence(entry.last_sequence())
        .with_last_timestamp(entry.last_timestamp.0)
        .with_coordinator_epoch(entry.coordinator_epoch)
        .with_current_txn_start_offset(entry.current_txn_first_offset.map_or(-1, |first| first.0))
}
