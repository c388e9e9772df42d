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
    net::{Answer, Refusal},
    types::{ErrorCode, PartitionIndex, TopicPartition},
};
use indexmap::IndexMap;
use kafka_protocol::messages::{
    OffsetDeleteRequest, OffsetDeleteResponse, TopicName,
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
    // The group has its say even where nothing that is there was asked for.
    let outcome = check_group(&asked.group_id)
        .and_then(|()| context.groups.decide(&group, |groups, _| groups.decide_delete_offsets(&group, &partitions)));
    when_committed(request, outcome, move |_, reply| respond(&asked, &known, reply.and_then(|reply| reply)))
}

fn respond(asked: &OffsetDeleteRequest, known: &[bool], reply: Result<Vec<ErrorCode>, ErrorCode>) -> (OffsetDeleteResponse, ErrorCode) {
    let decided = match reply {
        Ok(decided) => decided,
        Err(error) => return (OffsetDeleteResponse::default().with_error_code(error.code()), error),
    };
    let answers =
        |index: i32, error: ErrorCode| OffsetDeleteResponsePartition::default().with_partition_index(index).with_error_code(error.code());
    let mut topics: IndexMap<_, Vec<OffsetDeleteResponsePartition>> = IndexMap::new();
    let (mut known, mut decided) = (known.iter().copied(), decided.into_iter());
    let each = asked.topics.iter().flat_map(|topic| topic.partitions.iter().map(move |p| (&topic.name, p.partition_index)));
    // Each topic once, those first that aren't there.
    let (there, missing): (Vec<_>, Vec<_>) = each.partition(|_| known.next().unwrap_or(false));
    let missing = missing.into_iter().map(|(name, index)| (name, answers(index, ErrorCode::UnknownTopicOrPartition)));
    let there = there.into_iter().map(|(name, index)| (name, answers(index, decided.next().unwrap_or_default())));
    for (name, answer) in missing.chain(there) {
        topics.entry(name).or_default().push(answer);
    }
    let topic =
        |(name, partitions): (&TopicName, Vec<_>)| OffsetDeleteResponseTopic::default().with_name(name.clone()).with_partitions(partitions);
    let topics: Vec<_> = topics.into_iter().map(topic).collect();
    let error = first_error(topics.iter().flat_map(|topic| &topic.partitions).map(|p| p.error_code));
    (OffsetDeleteResponse::default().with_topics(topics), error)
}
