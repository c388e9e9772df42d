//! ConsumerGroupDescribe (key 69), versions 0 and 1 (KIP-848).
//!
//! - A consumer group's epochs, assignor and members, with what each has and what it shall have. One that isn't there, or is classic, is
//!   GROUP_ID_NOT_FOUND. Version 1 tells which protocol a member speaks.

use super::{
    Api, Body, Context, FrameMax, Request,
    convert::{first_error, text},
    coordinated::{has_consumer_groups, wire, wire_optional},
    describe_groups::GROUP_OPERATIONS,
};
use crate::{
    codec::shape::{BOOL, Kind, Shape, TEXT, always},
    group::{self, ConsumerDescribed, ConsumerDescribedMember},
    net::{Answer, Refusal},
    types::ErrorCode,
};
use kafka_protocol::messages::{
    ConsumerGroupDescribeRequest, ConsumerGroupDescribeResponse, GroupId, TopicName,
    consumer_group_describe_response::{Assignment, DescribedGroup, Member, TopicPartitions},
};
use std::sync::Arc;

pub const API: Api = Api {
    key: 69,
    name: "ConsumerGroupDescribe",
    versions: 0..=1,
    advertised_min: 0,
    flexible_since: 0,
    frame_max: FrameMax::Control,
    body: Body::Shaped(Shape(&[always(Kind::Array(&TEXT)), always(BOOL)])),
    run,
    note: "",
};

fn run(context: &Arc<Context>, request: Request) -> Result<Answer, Refusal> {
    let asked: ConsumerGroupDescribeRequest = request.decode()?;
    let operations = if asked.include_authorized_operations { GROUP_OPERATIONS } else { i32::MIN };
    let describe = |id: &GroupId| {
        let answer = DescribedGroup::default().with_group_id(id.clone());
        let failed = |error: ErrorCode| answer.clone().with_error_code(error.code());
        if !has_consumer_groups(context) {
            return failed(ErrorCode::UnsupportedVersion);
        }
        if id.is_empty() {
            return failed(ErrorCode::InvalidGroupId);
        }
        match context.groups.query(id, |groups| (groups.describe_consumer(id), groups.get(id).is_some())) {
            Ok((Some(described), _)) => respond_group(answer, &described, request.version()).with_authorized_operations(operations),
            Ok((None, there)) => {
                let why = if there { "is not a consumer group" } else { "not found" };
                failed(ErrorCode::GroupIdNotFound).with_error_message(Some(text(format!("Group {} {why}.", id.0))))
            }
            Err(error) => failed(error),
        }
    };
    let groups: Vec<_> = asked.group_ids.iter().map(describe).collect();
    let error = first_error(groups.iter().map(|group| group.error_code));
    request.ready(&ConsumerGroupDescribeResponse::default().with_groups(groups), error)
}

fn respond_group(answer: DescribedGroup, described: &ConsumerDescribed, version: i16) -> DescribedGroup {
    answer
        .with_group_state(text(described.state.name()))
        .with_group_epoch(described.epoch.0)
        .with_assignment_epoch(described.assignment_epoch.0)
        .with_assignor_name(text(described.assignor))
        .with_members(described.members.iter().map(|member| respond_member(member, version)).collect())
}

fn respond_member(member: &ConsumerDescribedMember, version: i16) -> Member {
    /// `ConsumerGroupDescribeResponse.CLASSIC_MEMBER_TYPE` and `CONSUMER_MEMBER_TYPE`.
    const TYPES: (i8, i8) = (0, 1);
    let kind = if member.kind == group::Kind::Classic { TYPES.0 } else { TYPES.1 };
    Member::default()
        .with_member_id(wire(&member.member_id))
        .with_instance_id(wire_optional(member.instance_id.as_ref()))
        .with_rack_id(wire_optional(member.rack_id.as_ref()))
        .with_member_epoch(member.member_epoch.0)
        .with_client_id(wire(&member.client_id))
        .with_client_host(wire(&member.client_host))
        .with_subscribed_topic_names(member.subscribed_topic_names.iter().map(|topic| TopicName(wire(topic))).collect())
        .with_subscribed_topic_regex(Some(member.subscribed_topic_regex.as_deref().map_or_else(Default::default, text)))
        .with_assignment(assignment(&member.assignment))
        .with_target_assignment(assignment(&member.target_assignment))
        .with_member_type(if version >= 1 { kind } else { -1 })
}

fn assignment(topics: &[group::DescribedTopic]) -> Assignment {
    let topic = |topic: &group::DescribedTopic| {
        TopicPartitions::default()
            .with_topic_id(topic.id.0)
            .with_topic_name(super::convert::topic_name(&topic.name))
            .with_partitions(topic.partitions.iter().map(|partition| partition.0).collect())
    };
    Assignment::default().with_topic_partitions(topics.iter().map(topic).collect())
}
