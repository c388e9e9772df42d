//! OffsetCommit (key 8), versions 2 to 9.
//!
//! - Acknowledged when the offsets are in `__consumer_offsets`. A partition that doesn't exist is UNKNOWN_TOPIC_OR_PARTITION, metadata over
//!   `offset.metadata.max.bytes` OFFSET_METADATA_TOO_LARGE; the others are committed all the same.
//! - Who may commit: see `group::Classic`. Versions 2 to 4 may set how long the offset is kept, 6 has leader epochs (KIP-320), 7 static
//!   members, 8 is flexible, 9 says GROUP_ID_NOT_FOUND where a member's group is gone.

use super::{
    Api, Body, Context, FrameMax, Request,
    convert::first_error,
    coordinated::{identity, when_committed},
};
use crate::{
    codec::shape::{Field, I32, I64, Kind, Shape, TEXT, always, since},
    group::{Commit, CommitPartition, Decision},
    net::{Answer, Refusal},
    types::{ErrorCode, LeaderEpoch, Offset, PartitionIndex, TopicId, TopicPartition},
};
use kafka_protocol::messages::{
    OffsetCommitRequest, OffsetCommitResponse,
    offset_commit_response::{OffsetCommitResponsePartition, OffsetCommitResponseTopic},
};
use std::sync::Arc;

pub const API: Api = Api {
    key: 8,
    name: "OffsetCommit",
    versions: 2..=9,
    advertised_min: 2,
    flexible_since: 8,
    frame_max: FrameMax::Control,
    body: Body::Shaped(Shape(&[
        always(TEXT),
        always(I32),
        always(TEXT),
        since(7, TEXT),
        Field { kind: I64, since: 2, until: 4 },
        always(Kind::Structs(&[always(TEXT), always(Kind::Structs(&[always(I32), always(I64), since(6, I32), always(TEXT)]))])),
    ])),
    run,
    note: "",
};

fn run(context: &Arc<Context>, request: Request) -> Result<Answer, Refusal> {
    let asked: OffsetCommitRequest = request.decode()?;
    let image = context.image();
    let mut partitions = Vec::new();
    // What each partition of the request is answered, in its order: at once, or as the group decides.
    let mut known = Vec::new();
    for topic in &asked.topics {
        let found = image.topic(&topic.name);
        for partition in &topic.partitions {
            let index = PartitionIndex(partition.partition_index);
            let there = found.filter(|topic| topic.partition(index).is_some());
            known.push(there.is_some());
            partitions.extend(there.map(|topic| CommitPartition {
                partition: TopicPartition { topic: topic.name.clone(), partition: index },
                offset: Offset(partition.committed_offset),
                leader_epoch: LeaderEpoch(partition.committed_leader_epoch),
                metadata: partition.committed_metadata.as_deref().unwrap_or_default().into(),
            }));
        }
    }
    if partitions.is_empty() {
        let none = Ok(crate::coordinator::Outcome { reply: Ok(Vec::new()), committing: None });
        return when_committed(request, none, move |_, reply| respond(&asked, &known, reply));
    }
    let commit = Commit {
        from: identity(&asked.group_id, &asked.member_id, asked.group_instance_id.as_ref(), asked.generation_id_or_member_epoch),
        retention_ms: asked.retention_time_ms,
        tells_missing_group: request.version() >= 9,
        partitions,
    };
    let ids: Vec<TopicId> = asked.topics.iter().filter_map(|topic| image.topic(&topic.name)).map(|topic| topic.id).collect();
    let outcome = context.groups.decide(&asked.group_id, |groups, now| {
        // A topic that was deleted meanwhile has had its offsets forgotten: this commit would stay, and pass for the next topic's.
        let image = context.image();
        match ids.iter().all(|id| image.topic_by_id(*id).is_some()) {
            true => groups.decide_commit(now, &commit),
            false => Decision::only(Err(ErrorCode::UnknownTopicOrPartition)),
        }
    });
    when_committed(request, outcome, move |_, reply| respond(&asked, &known, reply))
}

fn respond(
    asked: &OffsetCommitRequest,
    known: &[bool],
    reply: Result<Result<Vec<ErrorCode>, ErrorCode>, ErrorCode>,
) -> (OffsetCommitResponse, ErrorCode) {
    let (decided, all) = match reply.and_then(|reply| reply) {
        Ok(decided) => (decided, None),
        Err(error) => (Vec::new(), Some(error)),
    };
    let (mut decided, mut known) = (decided.into_iter(), known.iter());
    let mut answer = |index: i32| {
        let error = match known.next() {
            Some(true) => all.or_else(|| decided.next()).unwrap_or_default(),
            _ => ErrorCode::UnknownTopicOrPartition,
        };
        OffsetCommitResponsePartition::default().with_partition_index(index).with_error_code(error.code())
    };
    let mut topics = Vec::with_capacity(asked.topics.len());
    for topic in &asked.topics {
        let partitions = topic.partitions.iter().map(|p| answer(p.partition_index)).collect();
        topics.push(OffsetCommitResponseTopic::default().with_name(topic.name.clone()).with_partitions(partitions));
    }
    let error = first_error(topics.iter().flat_map(|topic| &topic.partitions).map(|p| p.error_code));
    (OffsetCommitResponse::default().with_topics(topics), error)
}
