//! The requests of a random script that are answered at once.

use std::fmt::Debug;

use anyhow::Result;
use kafka_protocol::messages::leave_group_request::MemberIdentity;
use kafka_protocol::messages::offset_commit_request::{OffsetCommitRequestPartition, OffsetCommitRequestTopic};
use kafka_protocol::messages::offset_delete_request::{OffsetDeleteRequestPartition, OffsetDeleteRequestTopic};
use kafka_protocol::messages::offset_delete_response::OffsetDeleteResponseTopic;
use kafka_protocol::messages::offset_fetch_request::{OffsetFetchRequestGroup, OffsetFetchRequestTopic, OffsetFetchRequestTopics};
use kafka_protocol::messages::{
    ConsumerGroupDescribeRequest, ConsumerGroupDescribeResponse, DeleteGroupsRequest, DescribeGroupsRequest, DescribeGroupsResponse,
    FindCoordinatorRequest, GroupId, HeartbeatRequest, LeaveGroupRequest, ListGroupsRequest, OffsetCommitRequest, OffsetDeleteRequest,
    OffsetFetchRequest,
};
use kafka_protocol::protocol::Request;

use crate::groups::gid;
use crate::masks::Masked;
use crate::random_groups::play::{Play, Said, instance};
use crate::random_groups::script::{At, Id, Offset, Step, What};
use crate::requests::{text, topic_name};

/// Says a step and shows the answer.
pub fn say(play: &mut Play, step: &Step) -> Result<Said> {
    let group = gid(&play.group(step.group));
    match &step.what {
        What::Heartbeat { version, id, at, instance: name } => {
            let request = HeartbeatRequest::default()
                .with_group_id(group)
                .with_member_id(play.id(step.member, false, *id))
                .with_generation_id(play.at(step.member, false, *at))
                .with_group_instance_id(name.map(instance));
            ask(play, "heartbeat", *version, &request, |_, _| {})
        }
        What::Leave { version, who } => leave(play, step, *version, who),
        What::Commit { version, consumer, id, at, instance: name, offsets } => {
            let request = OffsetCommitRequest::default()
                .with_group_id(group)
                .with_member_id(play.id(step.member, *consumer, *id))
                .with_generation_id_or_member_epoch(play.at(step.member, *consumer, *at))
                .with_group_instance_id(name.map(instance))
                .with_topics(committed(play, *version, offsets));
            ask(play, "commit", *version, &request, |_, _| {})
        }
        What::Fetch { version, groups, topics, stable, consumer, member } => {
            let request = fetch(play, step, *version, groups, topics.as_deref(), member.map(|(id, at)| (*consumer, id, at)));
            ask(play, "fetch", *version, &request.with_require_stable(*stable), |_, _| {})
        }
        What::OffsetDelete { topics } => delete_offsets(play, step, topics),
        What::Describe { version, groups } => {
            let request =
                DescribeGroupsRequest::default().with_groups(named(play, groups)).with_include_authorized_operations(*version >= 3);
            ask(play, "describe", *version, &request, show_classic)
        }
        What::ConsumerDescribe { version, groups } => {
            let request = ConsumerGroupDescribeRequest::default().with_group_ids(named(play, groups));
            ask(play, "describe consumers", *version, &request.with_include_authorized_operations(true), show_consumer)
        }
        What::List { version, states, types } => {
            let filter = |names: &[&'static str]| names.iter().map(|name| text(name)).collect();
            let request = ListGroupsRequest::default().with_states_filter(filter(states)).with_types_filter(filter(types));
            // Other scripts' groups are there too.
            let prefix = play.group(0).trim_end_matches('0').to_owned();
            ask(play, "list", *version, &request, |_, answer| answer.groups.retain(|listed| listed.group_id.starts_with(&prefix)))
        }
        What::Delete { version, groups } => {
            let request = DeleteGroupsRequest::default().with_groups_names(named(play, groups));
            // All scripts share the group without a name: with Kafka it may be there without an offset.
            ask(play, "delete", *version, &request, |_, answer| answer.results.retain(|result| !result.group_id.is_empty()))
        }
        What::Find { version, kind, groups } => {
            let request = FindCoordinatorRequest::default().with_key_type(if *version >= 1 { *kind } else { 0 });
            let keys: Vec<_> = groups.iter().map(|group| text(&play.group(*group))).collect();
            let request = if *version >= 4 { request.with_coordinator_keys(keys) } else { request.with_key(keys[0].clone()) };
            // Kafka has no words for a key that is none of a share group's.
            ask(play, "find", *version, &request, |_, answer| {
                answer.coordinators.iter_mut().filter(|_| *kind == 2).for_each(|found| found.error_message = None);
            })
        }
        What::Join(_) | What::Sync(_) | What::Beat(_) | What::Forget => anyhow::bail!("{step:?} may wait for others"),
    }
}

fn ask<R>(play: &mut Play, label: &str, version: i16, request: &R, show: impl FnOnce(&Play, &mut R::Response)) -> Result<Said>
where
    R: Request,
    R::Response: Masked + Debug,
{
    let whole = match play.answer(version, request)? {
        Some(mut answer) => {
            show(play, &mut answer);
            answer.mask();
            format!("{answer:#?}")
        }
        None => "the connection is closed".to_owned(),
    };
    Ok(Said { label: format!("v{version} {label}"), whole, led: None })
}

fn named(play: &Play, groups: &[u8]) -> Vec<GroupId> {
    groups.iter().map(|group| gid(&play.group(*group))).collect()
}

/// Members by their symbols, in an order that their ids don't decide.
pub fn show_classic(play: &Play, answer: &mut DescribeGroupsResponse) {
    for group in &mut answer.groups {
        group.members.iter_mut().for_each(|member| member.member_id = play.symbol(&member.member_id));
    }
    answer.mask();
    // Kafka has those first that are in the same partition of its topic.
    answer.groups.sort_by(|a, b| a.group_id.cmp(&b.group_id));
    answer.groups.iter_mut().for_each(|group| group.members.sort_by_key(|member| format!("{member:?}")));
}

pub fn show_consumer(play: &Play, answer: &mut ConsumerGroupDescribeResponse) {
    for group in &mut answer.groups {
        group.members.iter_mut().for_each(|member| member.member_id = play.symbol(&member.member_id));
    }
    answer.mask();
    answer.groups.iter_mut().for_each(|group| group.members.sort_by_key(|member| format!("{member:?}")));
}

fn leave(play: &mut Play, step: &Step, version: i16, who: &[(Id, Option<u8>)]) -> Result<Said> {
    let request = LeaveGroupRequest::default().with_group_id(gid(&play.group(step.group)));
    let request = if version < 3 {
        let id = who.first().map_or(Id::Mine, |(id, _)| *id);
        request.with_member_id(play.id(step.member, false, id))
    } else {
        let identity = |(id, name): &(Id, Option<u8>)| {
            MemberIdentity::default().with_member_id(play.id(step.member, false, *id)).with_group_instance_id(name.map(instance))
        };
        request.with_members(who.iter().map(identity).collect())
    };
    ask(play, "leave", version, &request, |play, answer| {
        answer.members.iter_mut().for_each(|member| member.member_id = play.symbol(&member.member_id));
    })
}

fn delete_offsets(play: &mut Play, step: &Step, topics: &[(u8, Vec<i32>)]) -> Result<Said> {
    let partition = |index: &i32| OffsetDeleteRequestPartition::default().with_partition_index(*index);
    let topic = |(number, partitions): &(u8, Vec<i32>)| {
        let named = OffsetDeleteRequestTopic::default().with_name(topic_name(play.topic(*number)));
        named.with_partitions(partitions.iter().map(partition).collect())
    };
    let request = OffsetDeleteRequest::default().with_group_id(gid(&play.group(step.group)));
    let request = request.with_topics(topics.iter().map(topic).collect());
    ask(play, "delete offsets", 0, &request, |_, answer| {
        // A topic that is named twice is there once or twice, and one of which nothing was asked is there or not.
        let mut topics: Vec<OffsetDeleteResponseTopic> = Vec::new();
        for topic in answer.topics.drain(..).filter(|topic| !topic.partitions.is_empty()) {
            match topics.iter_mut().find(|known| known.name == topic.name) {
                Some(known) => known.partitions.extend(topic.partitions),
                None => topics.push(topic),
            }
        }
        answer.topics = topics;
    })
}

fn committed(play: &Play, version: i16, offsets: &[Offset]) -> Vec<OffsetCommitRequestTopic> {
    let topic = |(number, partition, offset, metadata): &Offset| {
        let partition = OffsetCommitRequestPartition::default()
            .with_partition_index(*partition)
            .with_committed_offset(*offset)
            .with_committed_leader_epoch(if version >= 6 { 0 } else { -1 })
            .with_committed_metadata(metadata.map(|bytes| text(&"m".repeat(bytes))));
        OffsetCommitRequestTopic::default().with_name(topic_name(play.topic(*number))).with_partitions(vec![partition])
    };
    let mut topics: Vec<OffsetCommitRequestTopic> = Vec::new();
    for new in offsets.iter().map(topic) {
        match topics.iter_mut().find(|topic| topic.name == new.name) {
            Some(topic) => topic.partitions.extend(new.partitions),
            None => topics.push(new),
        }
    }
    topics
}

fn fetch(
    play: &Play,
    step: &Step,
    version: i16,
    groups: &[u8],
    topics: Option<&[(u8, Vec<i32>)]>,
    member: Option<(bool, Id, At)>,
) -> OffsetFetchRequest {
    if version < 8 {
        let topic = |(number, partitions): &(u8, Vec<i32>)| {
            OffsetFetchRequestTopic::default().with_name(topic_name(play.topic(*number))).with_partition_indexes(partitions.clone())
        };
        let topics = topics.map(|topics| topics.iter().map(topic).collect());
        return OffsetFetchRequest::default().with_group_id(gid(&play.group(step.group))).with_topics(topics);
    }
    let topic = |(number, partitions): &(u8, Vec<i32>)| {
        OffsetFetchRequestTopics::default().with_name(topic_name(play.topic(*number))).with_partition_indexes(partitions.clone())
    };
    let asked = |group: &u8| {
        let asked = OffsetFetchRequestGroup::default()
            .with_group_id(gid(&play.group(*group)))
            .with_topics(topics.map(|topics| topics.iter().map(topic).collect()));
        match member {
            Some((consumer, id, at)) => {
                asked.with_member_id(Some(play.id(step.member, consumer, id))).with_member_epoch(play.at(step.member, consumer, at))
            }
            None => asked.with_member_epoch(-1),
        }
    };
    OffsetFetchRequest::default().with_groups(groups.iter().map(asked).collect())
}
