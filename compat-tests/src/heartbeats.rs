//! A member of a consumer group (KIP-848) by hand: its heartbeats, said when the test says so. Unlike [`crate::seat`] it does nothing by itself,
//! so it is there for as long as the group's session timeout after each.

use anyhow::{Result, bail};
use kafka_protocol::messages::consumer_group_heartbeat_request::TopicPartitions;
use kafka_protocol::messages::{ConsumerGroupHeartbeatRequest, ConsumerGroupHeartbeatResponse, GroupId, TopicName};
use kafka_protocol::protocol::StrBytes;
use uuid::Uuid;

use crate::wire::Client;

/// Member epochs that mean something else (`ConsumerGroupHeartbeatRequest`).
pub const JOIN: i32 = 0;
pub const LEAVE: i32 = -1;
pub const STATIC_LEAVE: i32 = -2;

/// Partitions by topic id, as a member says what it owns.
pub type Owned = Vec<(Uuid, Vec<i32>)>;

fn text(text: &str) -> StrBytes {
    StrBytes::from_string(text.to_owned())
}

/// A heartbeat that says nothing but that the member is there.
pub fn heartbeat(group: &str, member: &str, epoch: i32) -> ConsumerGroupHeartbeatRequest {
    ConsumerGroupHeartbeatRequest::default().with_group_id(GroupId(text(group))).with_member_id(text(member)).with_member_epoch(epoch)
}

pub fn join(group: &str, member: &str, topics: &[&str]) -> ConsumerGroupHeartbeatRequest {
    heartbeat(group, member, JOIN)
        .with_rebalance_timeout_ms(60_000)
        .with_subscribed_topic_names(Some(topics.iter().map(|name| TopicName(text(name))).collect()))
        .with_topic_partitions(Some(Vec::new()))
}

/// What a heartbeat says of what its member owns.
pub fn owning(owned: &[(Uuid, Vec<i32>)]) -> Option<Vec<TopicPartitions>> {
    let topic = |(id, partitions): &(Uuid, Vec<i32>)| TopicPartitions::default().with_topic_id(*id).with_partitions(partitions.clone());
    Some(owned.iter().map(topic).collect())
}

/// What an answer gives.
pub fn given(answer: &ConsumerGroupHeartbeatResponse) -> Option<Owned> {
    let topics = &answer.assignment.as_ref()?.topic_partitions;
    Some(topics.iter().map(|topic| (topic.topic_id, topic.partitions.clone())).collect())
}

/// How many partitions that are.
pub fn count(owned: &Owned) -> usize {
    owned.iter().map(|(_, partitions)| partitions.len()).sum()
}

/// Joins as a member that makes its own id, and takes what it is given until it has `wanted` partitions; its epoch and partitions.
///
/// # Errors
/// If it never has as many.
pub fn settled(client: &mut Client, asked: &ConsumerGroupHeartbeatRequest, wanted: usize) -> Result<(i32, Owned)> {
    let mut answer = beat(client, asked)?;
    let mut owned = given(&answer).unwrap_or_default();
    for _ in 0..200 {
        if answer.error_code == 0 && count(&owned) == wanted {
            return Ok((answer.member_epoch, owned));
        }
        let mut said =
            ConsumerGroupHeartbeatRequest::default().with_group_id(asked.group_id.clone()).with_member_id(asked.member_id.clone());
        said = said.with_instance_id(asked.instance_id.clone()).with_member_epoch(answer.member_epoch);
        answer = beat(client, &said.with_topic_partitions(owning(&owned)))?;
        owned = given(&answer).unwrap_or(owned);
    }
    bail!("{asked:?}: it owns {owned:?} after {answer:?}")
}

/// A heartbeat in version 1, with another request right behind it: highwater holds an answer without news back until there is one.
///
/// # Errors
/// If there is no answer.
pub fn beat(client: &mut Client, said: &ConsumerGroupHeartbeatRequest) -> Result<ConsumerGroupHeartbeatResponse> {
    match client.ask_with_another_behind(1, said)? {
        Some(answer) => Ok(answer),
        None => bail!("the connection is closed"),
    }
}
