//! OffsetDelete (key 47), version 0, which was never flexible (KIP-496).
//!
//! - Forgets committed offsets of topics that the group doesn't read; those that it does are GROUP_SUBSCRIBED_TO_TOPIC. Topics that don't
//!   exist are UNKNOWN_TOPIC_OR_PARTITION: their offsets went with them.

use super::{
    Api, Body, Context, FrameMax, Request,
    convert::first_error,
    coordinated::{check_group, name, when_committed},
};
use crate::{
    codec::shape::{I32, Kind, Shape, TEXT, always},
    coordinator::Outcome,
    net::{Answer, Refusal},
    types::{ErrorCode, PartitionIndex, TopicPartition},
};
use kafka_protocol::messages::{
    OffsetDeleteRequest, OffsetDeleteResponse,
    offset_delete_response::{OffsetDeleteResponsePartition, OffsetDeleteResponseTopic},
};
use std::sync::Arc;

pub const API: Api = Api {
    key: 47,
    name: "OffsetDelete",
    versions: 0..=0,
    advertised_min: 0,
    flexible_since: i16::MAX,
    frame_max: FrameMax::Control,
    body: Body::Shaped(Shape(&[always(TEXT), always(Kind::Structs(&[always(TEXT), always(Kind::Structs(&[always(I32)]))]))])),
    run,
    note: "",
};

fn run(context: &Arc<Context>, request: Request) -> Result<Answer, Refusal> {
    let asked: OffsetDeleteRequest = request.decode()?;
    let image = context.image();
    let mut partitions = Vec::new();
    let mut known = Vec::new();
    for topic in &asked.topics {
        let found = image.topic(&topic.name);
        for partition in &topic.partitions {
            let index = PartitionIndex(partition.partition_index);
            let there = found.filter(|topic| topic.partition(index).is_some());
            known.push(there.is_some());
            partitions.extend(there.map(|topic| TopicPartition { topic: topic.name.clone(), partition: index }));
        }
    }
    let group = name(&asked.group_id);
    let outcome = check_group(&asked.group_id).and_then(|()| {
        if partitions.is_empty() {
            return Ok(Outcome { reply: Ok(Vec::new()), committing: None });
        }
        context.groups.decide(&group, |groups, _| groups.decide_delete_offsets(&group, &partitions))
    });
    when_committed(request, outcome, move |_, reply| respond(&asked, &known, reply.and_then(|reply| reply)))
}

fn respond(asked: &OffsetDeleteRequest, known: &[bool], reply: Result<Vec<ErrorCode>, ErrorCode>) -> (OffsetDeleteResponse, ErrorCode) {
    let decided = match reply {
        Ok(decided) => decided,
        Err(error) => return (OffsetDeleteResponse::default().with_error_code(error.code()), error),
    };
    let (mut decided, mut known) = (decided.into_iter(), known.iter());
    let mut answer = |index: i32| {
        let error = match known.next() {
            Some(true) => decided.next().unwrap_or_default(),
            _ => ErrorCode::UnknownTopicOrPartition,
        };
        OffsetDeleteResponsePartition::default().with_partition_index(index).with_error_code(error.code())
    };
    let mut topics = Vec::with_capacity(asked.topics.len());
    for topic in &asked.topics {
        let partitions = topic.partitions.iter().map(|p| answer(p.partition_index)).collect();
        topics.push(OffsetDeleteResponseTopic::default().with_name(topic.name.clone()).with_partitions(partitions));
    }
    let error = first_error(topics.iter().flat_map(|topic| &topic.partitions).map(|p| p.error_code));
    (OffsetDeleteResponse::default().with_topics(topics), error)
}
