//! SyncGroup (key 14), versions 0 to 5.
//!
//! - The leader brings the assignment; all get theirs once it is written. Version 3 has static members, 4 is flexible, 5 checks the
//!   protocol's type and name (KIP-559).

use super::{
    Api, Body, Context, FrameMax, Request,
    coordinated::{check_group, identity, name, optional, when_answered, when_committed, wire_optional},
};
use crate::{
    codec::shape::{I32, Kind, Shape, TEXT, always, since},
    group::{Reply, Sync, Synced, Ticket},
    net::{Answer, Refusal},
    types::ErrorCode,
};
use bytes::Bytes;
use kafka_protocol::messages::{SyncGroupRequest, SyncGroupResponse};
use std::sync::Arc;

pub const API: Api = Api {
    key: 14,
    name: "SyncGroup",
    versions: 0..=5,
    advertised_min: 0,
    flexible_since: 4,
    frame_max: FrameMax::Control,
    body: Body::Shaped(Shape(&[
        always(TEXT),
        always(I32),
        always(TEXT),
        since(3, TEXT),
        since(5, TEXT),
        since(5, TEXT),
        always(Kind::Structs(&[always(TEXT), always(Kind::Blob)])),
    ])),
    run,
    note: "",
};

fn run(context: &Arc<Context>, request: Request) -> Result<Answer, Refusal> {
    let asked: SyncGroupRequest = request.decode()?;
    let version = request.version();
    // Clients of version 5 must say what they believe to speak (`areMandatoryProtocolTypeAndNamePresent`).
    let incomplete = version >= 5 && (asked.protocol_type.is_none() || asked.protocol_name.is_none());
    let checked = if incomplete { Err(ErrorCode::InconsistentGroupProtocol) } else { check_group(&asked.group_id) };
    if let Err(error) = checked {
        return when_committed(request, Err(error), respond);
    }
    let assignments = asked.assignments.iter().map(|a| (name(&a.member_id), Bytes::copy_from_slice(&a.assignment))).collect();
    let mut sync = Sync {
        from: identity(&asked.group_id, &asked.member_id, asked.group_instance_id.as_ref(), asked.generation_id),
        protocol_type: optional(asked.protocol_type.as_ref()),
        protocol: optional(asked.protocol_name.as_ref()),
        assignments,
        ticket: Ticket(0),
    };
    let (group, generation) = (sync.from.group.clone(), sync.from.generation);
    let waiting = context.groups.decide_later(
        &group,
        |groups, now, ticket| {
            sync.ticket = ticket;
            groups.decide_sync(now, &sync)
        },
        |groups, now, error| Some(groups.decide_assignment_not_stored(now, &group, generation, error)),
    );
    when_answered(context, request, waiting, respond)
}

fn respond(request: &Request, reply: Result<Reply, ErrorCode>) -> (SyncGroupResponse, ErrorCode) {
    let synced = match reply {
        Ok(Reply::Sync(synced)) => synced,
        Ok(Reply::Join(_) | Reply::Heartbeat(_) | Reply::Alive(_)) => Synced::error(ErrorCode::UnknownServerError),
        Err(error) => Synced::error(error),
    };
    let since_5 = request.version() >= 5;
    let response = SyncGroupResponse::default()
        .with_error_code(synced.error.code())
        .with_protocol_type(wire_optional(synced.protocol_type.as_ref()).filter(|_| since_5))
        .with_protocol_name(wire_optional(synced.protocol.as_ref()).filter(|_| since_5))
        .with_assignment(synced.assignment);
    (response, synced.error)
}
