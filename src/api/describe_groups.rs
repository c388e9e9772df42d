//! DescribeGroups (key 15), versions 0 to 6.
//!
//! - A classic group's state and members; subscriptions and the protocol once it is stable. A group that isn't there, or is a consumer group
//!   (ConsumerGroupDescribe), is Dead; from version 6 on also GROUP_ID_NOT_FOUND.
//! - Version 3 tells the operations allowed on it, 4 instance ids, 5 is flexible.

use super::{
    Api, Body, Context, FrameMax, Request,
    convert::{first_error, text},
    coordinated::{wire, wire_optional},
};
use crate::{
    codec::shape::{BOOL, Kind, Shape, TEXT, always, since},
    group::{Described, DescribedMember},
    net::{Answer, Refusal},
    types::ErrorCode,
};
use kafka_protocol::messages::{
    DescribeGroupsRequest, DescribeGroupsResponse, GroupId,
    describe_groups_response::{DescribedGroup, DescribedGroupMember},
};
use std::sync::Arc;

pub const API: Api = Api {
    key: 15,
    name: "DescribeGroups",
    versions: 0..=6,
    advertised_min: 0,
    flexible_since: 5,
    frame_max: FrameMax::Control,
    body: Body::Shaped(Shape(&[always(Kind::Array(&TEXT)), since(3, BOOL)])),
    run,
    note: "",
};

/// All that may be done to a group where nobody is kept from anything: read, delete, describe, describe and alter its configs.
pub(super) const GROUP_OPERATIONS: i32 = 1 << 3 | 1 << 6 | 1 << 8 | 1 << 10 | 1 << 11;

fn run(context: &Arc<Context>, request: Request) -> Result<Answer, Refusal> {
    let asked: DescribeGroupsRequest = request.decode()?;
    let describe = |id: &GroupId| {
        let described = context.groups.query(id, |groups| groups.describe(id).ok_or(groups.get(id).is_some()));
        let operations = if asked.include_authorized_operations { GROUP_OPERATIONS } else { i32::MIN };
        let group = respond_group(id, described, request.version());
        // An error tells nothing of operations.
        if group.error_code == ErrorCode::None.code() { group.with_authorized_operations(operations) } else { group }
    };
    let groups: Vec<_> = asked.groups.iter().map(describe).collect();
    let error = first_error(groups.iter().map(|group| group.error_code));
    request.ready(&DescribeGroupsResponse::default().with_groups(groups), error)
}

fn respond_group(id: &GroupId, described: Result<Result<Described, bool>, ErrorCode>, version: i16) -> DescribedGroup {
    let group = DescribedGroup::default().with_group_id(id.clone());
    match described {
        Err(error) => group.with_error_code(error.code()),
        Ok(Err(is_another_kind)) => {
            let why = if is_another_kind { "is not a classic group" } else { "not found" };
            let dead = group.with_group_state(text("Dead"));
            if version < 6 {
                return dead;
            }
            dead.with_error_code(ErrorCode::GroupIdNotFound.code()).with_error_message(Some(text(format!("Group {} {why}.", id.0))))
        }
        Ok(Ok(described)) => group
            .with_group_state(text(described.state.name()))
            .with_protocol_type(wire(&described.protocol_type))
            .with_protocol_data(wire(&described.protocol))
            .with_members(described.members.iter().map(|member| respond_member(member, version)).collect()),
    }
}

fn respond_member(member: &DescribedMember, version: i16) -> DescribedGroupMember {
    DescribedGroupMember::default()
        .with_member_id(wire(&member.member_id))
        .with_group_instance_id(wire_optional(member.instance_id.as_ref()).filter(|_| version >= 4))
        .with_client_id(wire(&member.client_id))
        .with_client_host(wire(&member.client_host))
        .with_member_metadata(member.metadata.clone())
        .with_member_assignment(member.assignment.clone())
}
