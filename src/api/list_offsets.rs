//! ListOffsets (key 2), versions 1 to 10.
//!
//! - By time: the first record whose timestamp is at or after it, at record granularity; none is offset −1, timestamp −1.
//! - −1 latest (the high watermark, or the last stable offset under read_committed), −2 earliest, −3 the largest timestamp (version 7),
//!   −4 earliest on local disk (8; the same as −2 without tiered storage), −5 latest tiered (9; −1 without it). One asked for in a
//!   version before its own, or any other negative time, is UNSUPPORTED_VERSION.
//! - Version 2 has isolation levels, 4 leader epochs (KIP-320), 6 is flexible, 10 a time limit that only tiered storage needs.
//! - A partition asked for twice is INVALID_REQUEST.

use super::{Api, Body, Context, FrameMax, Request};
use crate::{
    codec::shape::{I8, I32, I64, Kind, Shape, TEXT, always, since},
    log::PartitionLog,
    net::{Answer, Refusal},
    types::{ErrorCode, LeaderEpoch, Millis, Offset, PartitionIndex, TopicId},
};
use kafka_protocol::messages::{
    ListOffsetsRequest, ListOffsetsResponse,
    list_offsets_request::ListOffsetsPartition,
    list_offsets_response::{ListOffsetsPartitionResponse, ListOffsetsTopicResponse},
};
use std::{collections::HashSet, sync::Arc};

pub const API: Api = Api {
    key: 2,
    name: "ListOffsets",
    versions: 1..=10,
    advertised_min: 1,
    flexible_since: 6,
    frame_max: FrameMax::Control,
    body: Body::Shaped(Shape(&[
        always(I32),
        since(2, I8),
        always(Kind::Structs(&[always(TEXT), always(Kind::Structs(&[always(I32), since(4, I32), always(I64)]))])),
        since(10, I32),
    ])),
    run,
    note: "by time at record granularity; −1 to −5",
};

const LATEST: i64 = -1;
const EARLIEST: i64 = -2;
const MAX_TIMESTAMP: i64 = -3;
const EARLIEST_LOCAL: i64 = -4;
const LATEST_TIERED: i64 = -5;

/// The first version that may ask for a special timestamp; `None` for one that doesn't exist.
fn supported_since(timestamp: i64) -> Option<i16> {
    match timestamp {
        0.. | LATEST | EARLIEST => Some(1),
        MAX_TIMESTAMP => Some(7),
        EARLIEST_LOCAL => Some(8),
        LATEST_TIERED => Some(9),
        _ => None,
    }
}

fn run(context: &Arc<Context>, request: Request) -> Result<Answer, Refusal> {
    let asked: ListOffsetsRequest = request.decode()?;
    let duplicates = duplicates(&asked);
    let mut worst = ErrorCode::None;
    let mut topics = Vec::with_capacity(asked.topics.len());
    for topic in &asked.topics {
        let answer = |partition: &ListOffsetsPartition| {
            let known = supported_since(partition.timestamp).is_some_and(|since| request.version() >= since);
            let found = if duplicates.contains(&(topic.name.as_str(), partition.partition_index)) {
                Err(ErrorCode::InvalidRequest)
            } else if known {
                look_up(context, &topic.name, partition, asked.isolation_level == 1)
            } else {
                Err(ErrorCode::UnsupportedVersion)
            };
            partition_answer(partition.partition_index, found, request.version())
        };
        let partitions: Vec<_> = topic.partitions.iter().map(answer).collect();
        worst = partitions.iter().filter(|p| p.error_code != 0).find_map(|p| ErrorCode::from_code(p.error_code)).unwrap_or(worst);
        topics.push(ListOffsetsTopicResponse::default().with_name(topic.name.clone()).with_partitions(partitions));
    }
    request.ready(&ListOffsetsResponse::default().with_topics(topics), worst)
}

/// Partitions that stand more than once in a request.
fn duplicates(asked: &ListOffsetsRequest) -> HashSet<(&str, i32)> {
    let mut seen = HashSet::new();
    let all = asked.topics.iter().flat_map(|t| t.partitions.iter().map(|p| (t.name.as_str(), p.partition_index)));
    all.filter(|partition| !seen.insert(*partition)).collect()
}

/// An offset found, its timestamp (−1 where none was looked for) and its leader epoch.
struct Found {
    offset: Offset,
    timestamp: Millis,
    epoch: LeaderEpoch,
}

impl Found {
    const NOTHING: Self = Self { offset: Offset(-1), timestamp: Millis::NONE, epoch: LeaderEpoch::NONE };

    fn at(offset: Offset, epoch: LeaderEpoch) -> Self {
        Self { offset, timestamp: Millis::NONE, epoch }
    }
}

fn look_up(context: &Context, topic: &str, asked: &ListOffsetsPartition, committed: bool) -> Result<Found, ErrorCode> {
    let (log, leader_epoch) =
        context.leader_at_epoch(topic, TopicId::ZERO, PartitionIndex(asked.partition_index), LeaderEpoch(asked.current_leader_epoch))?;
    let marks = log.watermarks();
    let visible_end = if committed { marks.last_stable } else { marks.high_watermark };
    match asked.timestamp {
        LATEST => Ok(Found::at(visible_end, leader_epoch)),
        EARLIEST | EARLIEST_LOCAL => Ok(Found::at(marks.log_start, log.epoch_at(marks.log_start).unwrap_or(LeaderEpoch::NONE))),
        LATEST_TIERED => Ok(Found::NOTHING),
        timestamp => by_time(&log, timestamp, visible_end),
    }
}

/// A record that the reader may not see yet is not found.
fn by_time(log: &PartitionLog, timestamp: i64, visible_end: Offset) -> Result<Found, ErrorCode> {
    let found = match timestamp {
        MAX_TIMESTAMP => log.offset_of_max_timestamp(),
        _ => log.offset_for_time(Millis(timestamp)),
    };
    let found = found.map_err(|e| {
        tracing::error!(partition = %log.topic(), error = %e, "cannot look up an offset by time");
        ErrorCode::from(&e)
    })?;
    Ok(match found {
        Some(at) if at.offset < visible_end => Found { offset: at.offset, timestamp: at.timestamp, epoch: at.leader_epoch },
        _ => Found::NOTHING,
    })
}

fn partition_answer(index: i32, found: Result<Found, ErrorCode>, version: i16) -> ListOffsetsPartitionResponse {
    let (found, error) = match found {
        Ok(found) => (found, ErrorCode::None),
        Err(error) => (Found::NOTHING, error),
    };
    ListOffsetsPartitionResponse::default()
        .with_partition_index(index)
        .with_error_code(error.code())
        .with_timestamp(found.timestamp.0)
        .with_offset(found.offset.0)
        .with_leader_epoch(if version >= 4 { found.epoch.0 } else { LeaderEpoch::NONE.0 })
}
