//! OffsetFetch (key 9), versions 1 to 9.
//!
//! - What a group committed: for the partitions asked for (offset −1 where there is nothing, and no error), or from version 2 on with null
//!   topics for all. An error of the group is each partition's in version 1, the request's from 2 on, the group's from 8 on.
//! - Version 5 has leader epochs, 6 is flexible, 7 asks for stable offsets (KIP-447: UNSTABLE_OFFSET_COMMIT while a transaction may change
//!   one), 8 asks for many groups, 9 names the member and its epoch, which consumer groups check.

use super::{
    Api, Body, Context, FrameMax, Request,
    convert::{first_error, topic_name},
};
use crate::{
    codec::shape::{BOOL, I32, Kind, Shape, TEXT, always, since, until},
    group::{Committed, Epoch, Groups},
    net::{Answer, Refusal},
    types::{ErrorCode, LeaderEpoch, PartitionIndex},
};
use kafka_protocol::{
    messages::{
        OffsetFetchRequest, OffsetFetchResponse, TopicName,
        offset_fetch_response::{
            OffsetFetchResponseGroup, OffsetFetchResponsePartition, OffsetFetchResponsePartitions, OffsetFetchResponseTopic,
            OffsetFetchResponseTopics,
        },
    },
    protocol::StrBytes,
};
use std::sync::Arc;

const TOPICS: Kind = Kind::Structs(&[always(TEXT), always(Kind::Array(&I32))]);

pub const API: Api = Api {
    key: 9,
    name: "OffsetFetch",
    versions: 1..=9,
    advertised_min: 1,
    flexible_since: 6,
    frame_max: FrameMax::Control,
    body: Body::Shaped(Shape(&[
        until(7, TEXT),
        until(7, TOPICS),
        since(8, Kind::Structs(&[always(TEXT), since(9, TEXT), since(9, I32), always(TOPICS)])),
        since(7, BOOL),
    ])),
    run,
    note: "many groups, all topics",
};

/// Topics and partitions asked for; `None` is all.
type Asked<'a> = Option<Vec<(&'a TopicName, &'a [i32])>>;

fn run(context: &Arc<Context>, request: Request) -> Result<Answer, Refusal> {
    let asked: OffsetFetchRequest = request.decode()?;
    let response = OffsetFetchResponse::default();
    if request.version() >= 8 {
        let fetch = |group: &kafka_protocol::messages::offset_fetch_request::OffsetFetchRequestGroup| {
            let topics: Asked<'_> = group.topics.as_ref().map(|topics| topics.iter().map(|t| (&t.name, &*t.partition_indexes)).collect());
            let answer = OffsetFetchResponseGroup::default().with_group_id(group.group_id.clone());
            let (member, epoch) = (group.member_id.as_deref(), Epoch(group.member_epoch));
            let fetched = context.groups.query(&group.group_id, |groups| {
                groups.check_fetch(&group.group_id, member, epoch).map(|()| fetch(groups, &group.group_id, &topics, asked.require_stable))
            });
            match fetched.and_then(|fetched| fetched) {
                Ok(topics) => answer.with_topics(topics),
                Err(error) => answer.with_error_code(error.code()),
            }
        };
        let groups: Vec<_> = asked.groups.iter().map(fetch).collect();
        let error = first_error(groups.iter().map(|group| group.error_code));
        return request.ready(&response.with_groups(groups), error);
    }
    // Before version 2 nothing could be null.
    let topics: Asked<'_> = asked.topics.as_ref().map(|topics| topics.iter().map(|t| (&t.name, &*t.partition_indexes)).collect());
    match context.groups.query(&asked.group_id, |groups| fetch(groups, &asked.group_id, &topics, asked.require_stable)) {
        Ok(topics) => request.ready(&response.with_topics(topics.into_iter().map(old_topic).collect()), ErrorCode::None),
        Err(error) if request.version() >= 2 => request.ready(&response.with_error_code(error.code()), error),
        Err(error) => {
            let failed = |index: &i32| partition(*index, None).with_error_code(error.code());
            let topic = |(name, indexes): (&TopicName, &[i32])| {
                OffsetFetchResponseTopics::default().with_name(name.clone()).with_partitions(indexes.iter().map(failed).collect())
            };
            let topics = topics.unwrap_or_default().into_iter().map(topic).map(old_topic).collect();
            request.ready(&response.with_topics(topics), error)
        }
    }
}

fn fetch(groups: &Groups, group: &str, asked: &Asked<'_>, stable: bool) -> Vec<OffsetFetchResponseTopics> {
    let Some(asked) = asked else { return fetch_all(groups, group, stable) };
    let topic = |(name, indexes): &(&TopicName, &[i32])| {
        let look = |index: &i32| match stable && groups.is_unstable(group, name, PartitionIndex(*index)) {
            true => unstable(*index),
            false => partition(*index, groups.committed(group, name, PartitionIndex(*index))),
        };
        OffsetFetchResponseTopics::default().with_name((*name).clone()).with_partitions(indexes.iter().map(look).collect())
    };
    asked.iter().map(topic).collect()
}

fn fetch_all(groups: &Groups, group: &str, stable: bool) -> Vec<OffsetFetchResponseTopics> {
    let mut topics: Vec<OffsetFetchResponseTopics> = Vec::new();
    for (topic, index, committed) in groups.all_committed(group) {
        if topics.last().is_none_or(|last| last.name.as_str() != topic.as_str()) {
            topics.push(OffsetFetchResponseTopics::default().with_name(topic_name(topic)));
        }
        if let Some(last) = topics.last_mut() {
            let waits = stable && groups.is_unstable(group, topic.as_str(), index);
            last.partitions.push(if waits { unstable(index.0) } else { partition(index.0, Some(committed)) });
        }
    }
    topics
}

/// An open transaction may change it: to be asked for again.
fn unstable(index: i32) -> OffsetFetchResponsePartitions {
    partition(index, None).with_error_code(ErrorCode::UnstableOffsetCommit.code())
}

fn partition(index: i32, committed: Option<&Committed>) -> OffsetFetchResponsePartitions {
    OffsetFetchResponsePartitions::default()
        .with_partition_index(index)
        .with_committed_offset(committed.map_or(-1, |committed| committed.offset.0))
        .with_committed_leader_epoch(committed.map_or(LeaderEpoch::NONE, |committed| committed.leader_epoch).0)
        .with_metadata(Some(StrBytes::from_string(committed.map_or(String::new(), |committed| committed.metadata.to_string()))))
}

/// The form before version 8.
fn old_topic(topic: OffsetFetchResponseTopics) -> OffsetFetchResponseTopic {
    let old = |p: OffsetFetchResponsePartitions| {
        OffsetFetchResponsePartition::default()
            .with_partition_index(p.partition_index)
            .with_committed_offset(p.committed_offset)
            .with_committed_leader_epoch(p.committed_leader_epoch)
            .with_metadata(p.metadata)
            .with_error_code(p.error_code)
    };
    OffsetFetchResponseTopic::default().with_name(topic.name).with_partitions(topic.partitions.into_iter().map(old).collect())
}
