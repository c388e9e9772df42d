//! LeaveGroup (key 13), versions 0 to 5.
//!
//! - From version 3 on many leave in one request, static members by their instance id alone if an administrator wants it (KIP-345);
//!   each has its answer. Before, one leaves and its error is the request's. Version 4 is flexible, 5 takes reasons (KIP-800).

use super::{
    Api, Body, Context, FrameMax, Request,
    convert::first_error,
    coordinated::{check_group, name, optional, when_committed, wire, wire_optional},
};
use crate::{
    codec::shape::{Kind, Shape, TEXT, always, since, until},
    group::{Leave, LeaveMember, Left},
    net::{Answer, Refusal},
    types::ErrorCode,
};
use kafka_protocol::messages::{
    LeaveGroupRequest, LeaveGroupResponse, leave_group_request::MemberIdentity, leave_group_response::MemberResponse,
};
use std::sync::Arc;

pub const API: Api = Api {
    key: 13,
    name: "LeaveGroup",
    versions: 0..=5,
    advertised_min: 0,
    flexible_since: 4,
    frame_max: FrameMax::Control,
    body: Body::Shaped(Shape(&[always(TEXT), until(2, TEXT), since(3, Kind::Structs(&[always(TEXT), always(TEXT), since(5, TEXT)]))])),
    run,
    note: "members, or static ones by name",
};

fn run(context: &Arc<Context>, request: Request) -> Result<Answer, Refusal> {
    let asked: LeaveGroupRequest = request.decode()?;
    let members = if request.version() >= 3 {
        let member = |m: &MemberIdentity| LeaveMember {
            member_id: name(&m.member_id),
            instance_id: optional(m.group_instance_id.as_ref()),
            reason: optional(m.reason.as_ref()),
        };
        asked.members.iter().map(member).collect()
    } else {
        vec![LeaveMember { member_id: name(&asked.member_id), instance_id: None, reason: None }]
    };
    let leave = Leave { group: name(&asked.group_id), members };
    let outcome =
        check_group(&asked.group_id).and_then(|()| context.groups.decide(&leave.group, |groups, now| groups.decide_leave(now, &leave)));
    when_committed(request, outcome, respond)
}

fn respond(request: &Request, reply: Result<Vec<Left>, ErrorCode>) -> (LeaveGroupResponse, ErrorCode) {
    let response = LeaveGroupResponse::default();
    match reply {
        Err(error) => (response.with_error_code(error.code()), error),
        Ok(left) if request.version() < 3 => {
            let error = left.first().map_or(ErrorCode::None, |left| left.error);
            (response.with_error_code(error.code()), error)
        }
        Ok(left) => {
            let member = |left: &Left| {
                MemberResponse::default()
                    .with_member_id(wire(&left.member_id))
                    .with_group_instance_id(wire_optional(left.instance_id.as_ref()))
                    .with_error_code(left.error.code())
            };
            (response.with_members(left.iter().map(member).collect()), first_error(left.iter().map(|left| left.error.code())))
        }
    }
}
