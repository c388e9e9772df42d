//! ConsumerGroupHeartbeat (key 68), versions 0 and 1 (KIP-848).
//!
//! - A member joins (epoch 0), leaves (−1; −2 as a static member that comes back), says that it is alive and what it owns, and hears what it
//!   shall own. Version 1 has regular expressions that the broker resolves, and members that make their own ids.
//! - An answer without news is held back until there is news, another request comes on the connection, or the member's interval is nearly
//!   over: librdkafka gives up on an answer that takes longer than the interval which it was told. So members hear of a change at once,
//!   where Kafka's wait for their next heartbeat.
//! - Where `group.coordinator.rebalance.protocols` doesn't name consumer, or `group.version` is 0, it is UNSUPPORTED_VERSION, and clients say so.

use super::{
    Api, Body, Context, FrameMax, Request,
    convert::text,
    coordinated::{has_consumer_groups, name, optional, when_committed, when_held, wire_optional},
};
use crate::{
    codec::shape::{I32, Kind, Shape, TEXT, UUID, always, since},
    group::{
        Epoch, Reply, Ticket,
        consumer::{Heartbeat, Heartbeaten, Partitions},
    },
    net::{Answer, Refusal},
    types::{ErrorCode, PartitionIndex, TopicId},
};
use kafka_protocol::messages::{
    ConsumerGroupHeartbeatRequest, ConsumerGroupHeartbeatResponse,
    consumer_group_heartbeat_request::TopicPartitions as Owned,
    consumer_group_heartbeat_response::{Assignment, TopicPartitions},
};
use std::sync::Arc;

pub const API: Api = Api {
    key: 68,
    name: "ConsumerGroupHeartbeat",
    versions: 0..=1,
    advertised_min: 0,
    flexible_since: 0,
    frame_max: FrameMax::Control,
    body: Body::Shaped(Shape(&[
        always(TEXT),
        always(TEXT),
        always(I32),
        always(TEXT),
        always(TEXT),
        always(I32),
        always(Kind::Array(&TEXT)),
        since(1, TEXT),
        always(TEXT),
        always(Kind::Structs(&[always(UUID), always(Kind::Array(&I32))])),
    ])),
    run,
    note: "KIP-848; an answer waits for news",
};

fn run(context: &Arc<Context>, request: Request) -> Result<Answer, Refusal> {
    let asked: ConsumerGroupHeartbeatRequest = request.decode()?;
    if !has_consumer_groups(context) {
        return when_committed(request, Err(ErrorCode::UnsupportedVersion), respond);
    }
    let mut heartbeat = command(&asked, &request);
    let group = heartbeat.group.clone();
    if heartbeat.member_epoch == Epoch::JOIN {
        context.groups.catch_up(&group, &|| context.image());
    }
    let waiting = context.groups.decide_held(&group, |groups, now, ticket| {
        heartbeat.ticket = ticket;
        groups.decide_consumer_heartbeat(now, &heartbeat)
    });
    when_held(context, request, waiting, respond)
}

fn command(asked: &ConsumerGroupHeartbeatRequest, request: &Request) -> Heartbeat {
    let client_id = request.header.client_id.as_deref().map(String::from_utf8_lossy).unwrap_or_default();
    Heartbeat {
        group: name(&asked.group_id),
        member_id: name(&asked.member_id),
        fresh_id: if asked.member_id.is_empty() { uuid_text().into() } else { Arc::default() },
        member_epoch: Epoch(asked.member_epoch),
        instance_id: optional(asked.instance_id.as_ref()),
        rack_id: optional(asked.rack_id.as_ref()),
        rebalance_timeout_ms: asked.rebalance_timeout_ms,
        subscribed_topic_names: asked.subscribed_topic_names.as_ref().map(|names| names.iter().map(|topic| name(&topic.0)).collect()),
        subscribed_topic_regex: optional(asked.subscribed_topic_regex.as_ref()),
        server_assignor: optional(asked.server_assignor.as_ref()),
        owned: asked.topic_partitions.as_deref().map(owned),
        client_id: (*client_id).into(),
        // As Java prints an address.
        client_host: format!("/{}", request.connection.peer.ip()).into(),
        requires_member_id: request.version() >= 1,
        ticket: Ticket(0),
        hold_ms: HOLD_MS_MAX,
    }
}

/// The group holds it for less: see `group::consumer`.
const HOLD_MS_MAX: i64 = 30_000;

/// Kafka's ids of members: a UUID in base64.
fn uuid_text() -> String {
    TopicId(uuid::Uuid::new_v4()).to_string()
}

/// A topic that stands twice has the partitions of both; one without partitions is none.
fn owned(asked: &[Owned]) -> Partitions {
    let mut all = Partitions::new();
    for topic in asked.iter().filter(|topic| !topic.partitions.is_empty()) {
        all.entry(TopicId(topic.topic_id)).or_default().extend(topic.partitions.iter().copied().map(PartitionIndex));
    }
    all
}

fn respond(_: &Request, reply: Result<Reply, ErrorCode>) -> (ConsumerGroupHeartbeatResponse, ErrorCode) {
    let response = ConsumerGroupHeartbeatResponse::default();
    let told = match reply {
        Ok(Reply::Heartbeat(told)) => told,
        Ok(Reply::Join(_) | Reply::Sync(_) | Reply::Alive(_)) => Heartbeaten::error(ErrorCode::UnknownServerError, ""),
        Err(error) => return (response.with_error_code(error.code()), error),
    };
    let topic = |(id, partitions): (&TopicId, &std::collections::BTreeSet<PartitionIndex>)| {
        TopicPartitions::default().with_topic_id(id.0).with_partitions(partitions.iter().map(|partition| partition.0).collect())
    };
    let assignment = told.assignment.as_ref().map(|owned| Assignment::default().with_topic_partitions(owned.iter().map(topic).collect()));
    let response = response
        .with_error_code(told.error.code())
        .with_error_message(told.error_message.as_deref().map(text))
        .with_member_id(wire_optional(told.member_id.as_ref()))
        .with_member_epoch(told.member_epoch.0)
        .with_heartbeat_interval_ms(told.heartbeat_interval_ms)
        .with_assignment(assignment);
    (response, told.error)
}
