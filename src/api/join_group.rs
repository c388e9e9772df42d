//! JoinGroup (key 11), versions 0 to 9.
//!
//! - The answer comes when the members of the next generation are known; see `group::classic`.
//! - Version 0 has no rebalance timeout: the session timeout is it. From 4 on a new member is given an id and comes back with it
//!   (KIP-394). 5 has static members (KIP-345), 6 is flexible, 7 tells the protocol's type, 8 takes a reason (KIP-800), 9 tells a
//!   static leader that came back not to assign (KIP-814).

use super::{
    Api, Body, Context, FrameMax, Request,
    coordinated::{check_group, name, optional, when_answered, when_committed, wire, wire_optional},
};
use crate::{
    codec::shape::{I32, Kind, Shape, TEXT, always, since},
    group::{Generation, Join, Joined, JoinedMember, Protocol, Reply},
    net::{Answer, Refusal},
    types::ErrorCode,
};
use bytes::Bytes;
use kafka_protocol::{
    messages::{
        JoinGroupRequest, JoinGroupResponse, join_group_request::JoinGroupRequestProtocol, join_group_response::JoinGroupResponseMember,
    },
    protocol::StrBytes,
};
use std::{collections::HashSet, sync::Arc};

pub const API: Api = Api {
    key: 11,
    name: "JoinGroup",
    versions: 0..=9,
    advertised_min: 0,
    flexible_since: 6,
    frame_max: FrameMax::Control,
    body: Body::Shaped(Shape(&[
        always(TEXT),
        always(I32),
        since(1, I32),
        always(TEXT),
        since(5, TEXT),
        always(TEXT),
        always(Kind::Structs(&[always(TEXT), always(Kind::Blob)])),
        since(8, TEXT),
    ])),
    run,
    note: "eager and cooperative; static members",
};

/// A client supports a handful of assignors.
const PROTOCOLS_MAX: usize = 256;

fn run(context: &Arc<Context>, request: Request) -> Result<Answer, Refusal> {
    let asked: JoinGroupRequest = request.decode()?;
    let member_id = asked.member_id.clone();
    let checked = check_group(&asked.group_id).and(match asked.protocols.len() {
        0..=PROTOCOLS_MAX => Ok(()),
        _ => Err(ErrorCode::InconsistentGroupProtocol),
    });
    if let Err(error) = checked {
        return when_committed(request, Err(error), move |request, reply| respond(request, reply, &member_id));
    }
    let mut join = command(&asked, &request);
    let group = join.group.clone();
    let waiting = context.groups.decide_later(
        &group,
        |groups, now, ticket| {
            join.ticket = ticket;
            groups.decide_join(now, &join)
        },
        |_, _, _| None,
    );
    when_answered(context, request, waiting, move |request, reply| respond(request, reply, &member_id))
}

fn command(asked: &JoinGroupRequest, request: &Request) -> Join {
    let version = request.version();
    let client_id = request.header.client_id.as_deref().map(String::from_utf8_lossy).unwrap_or_default();
    let called = asked.group_instance_id.as_deref().unwrap_or(&client_id);
    Join {
        group: name(&asked.group_id),
        member_id: name(&asked.member_id),
        instance_id: optional(asked.group_instance_id.as_ref()),
        client_id: (*client_id).into(),
        // As Java prints an address.
        client_host: format!("/{}", request.connection.peer.ip()).into(),
        session_timeout_ms: asked.session_timeout_ms,
        rebalance_timeout_ms: if version >= 1 { asked.rebalance_timeout_ms } else { asked.session_timeout_ms },
        protocol_type: name(&asked.protocol_type),
        protocols: protocols(&asked.protocols),
        reason: optional(asked.reason.as_ref()),
        requires_known_member_id: version >= 4,
        supports_skipping_assignment: version >= 9,
        fresh_id: format!("{called}-{}", uuid::Uuid::new_v4()).into(),
        ticket: crate::group::Ticket(0),
    }
}

/// Each name once.
fn protocols(asked: &[JoinGroupRequestProtocol]) -> Arc<[Protocol]> {
    let mut seen = HashSet::new();
    let copied = |p: &JoinGroupRequestProtocol| Protocol { name: name(&p.name), metadata: Bytes::copy_from_slice(&p.metadata) };
    asked.iter().filter(|p| seen.insert(p.name.as_str())).map(copied).collect()
}

fn respond(request: &Request, reply: Result<Reply, ErrorCode>, member_id: &StrBytes) -> (JoinGroupResponse, ErrorCode) {
    let joined = match reply {
        Ok(Reply::Join(joined)) => joined,
        Ok(Reply::Sync(_) | Reply::Heartbeat(_) | Reply::Alive(_)) => Joined::error(ErrorCode::UnknownServerError, name(member_id)),
        Err(error) => Joined::error(error, name(member_id)),
    };
    let version = request.version();
    let protocol = wire_optional(joined.protocol.as_ref());
    let response = JoinGroupResponse::default()
        .with_error_code(joined.error.code())
        .with_generation_id(if joined.error.is_error() { Generation::NONE.0 } else { joined.generation.0 })
        .with_protocol_type(wire_optional(joined.protocol_type.as_ref()).filter(|_| version >= 7))
        // Null only where the version has it.
        .with_protocol_name(if version >= 7 { protocol } else { Some(protocol.unwrap_or_default()) })
        .with_leader(wire(&joined.leader))
        .with_skip_assignment(joined.skip_assignment && version >= 9)
        .with_member_id(wire(&joined.member_id))
        .with_members(joined.members.iter().map(|member| respond_member(member, version)).collect());
    (response, joined.error)
}

fn respond_member(member: &JoinedMember, version: i16) -> JoinGroupResponseMember {
    JoinGroupResponseMember::default()
        .with_member_id(wire(&member.member_id))
        .with_group_instance_id(wire_optional(member.instance_id.as_ref()).filter(|_| version >= 5))
        .with_metadata(member.metadata.clone())
}
