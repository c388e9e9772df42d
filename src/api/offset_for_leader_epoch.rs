//! OffsetForLeaderEpoch (key 23), versions 2 to 4.
//!
//! - Answers where the largest epoch at or below the one asked for ends, so that a consumer finds out that the log was cut under it
//!   (KIP-320). An epoch that was never there is (−1, −1).
//! - Version 3 has the replica id, 4 is flexible.

use super::{Api, Body, Context, FrameMax, Request};
use crate::{
    codec::shape::{I32, Kind, Shape, TEXT, always, since},
    net::{Answer, Refusal},
    types::{ErrorCode, LeaderEpoch, PartitionIndex, TopicId},
};
use kafka_protocol::messages::{
    OffsetForLeaderEpochRequest, OffsetForLeaderEpochResponse,
    offset_for_leader_epoch_request::OffsetForLeaderPartition,
    offset_for_leader_epoch_response::{EpochEndOffset, OffsetForLeaderTopicResult},
};
use std::sync::Arc;

pub const API: Api = Api {
    key: 23,
    name: "OffsetForLeaderEpoch",
    versions: 2..=4,
    advertised_min: 2,
    flexible_since: 4,
    frame_max: FrameMax::Control,
    body: Body::Shaped(Shape(&[
        since(3, I32),
        always(Kind::Structs(&[always(TEXT), always(Kind::Structs(&[always(I32), always(I32), always(I32)]))])),
    ])),
    run,
    note: "consumers check with it whether the log was cut (KIP-320)",
};

fn run(context: &Arc<Context>, request: Request) -> Result<Answer, Refusal> {
    let asked: OffsetForLeaderEpochRequest = request.decode()?;
    let mut worst = ErrorCode::None;
    let mut topics = Vec::with_capacity(asked.topics.len());
    for topic in &asked.topics {
        let partitions = topic.partitions.iter().map(|partition| match end_offset(context, &topic.topic, partition) {
            Ok(answer) => answer,
            Err(error) => {
                worst = error;
                EpochEndOffset::default().with_error_code(error.code())
            }
            .with_leader_epoch(-1)
            .with_end_offset(-1)
            .with_partition(partition.partition),
        });
        let partitions = partitions.collect();
        topics.push(OffsetForLeaderTopicResult::default().with_topic(topic.topic.clone()).with_partitions(partitions));
    }
    request.ready(&OffsetForLeaderEpochResponse::default().with_topics(topics), worst)
}

fn end_offset(context: &Context, topic: &str, asked: &OffsetForLeaderPartition) -> Result<EpochEndOffset, ErrorCode> {
    let index = PartitionIndex(asked.partition);
    let (log, _) = context.leader_at_epoch(topic, TopicId::ZERO, index, LeaderEpoch(asked.current_leader_epoch))?;
    let (epoch, end) = log.epoch_end(LeaderEpoch(asked.leader_epoch));
    Ok(EpochEndOffset::default().with_partition(asked.partition).with_leader_epoch(epoch.0).with_end_offset(end.0))
}
