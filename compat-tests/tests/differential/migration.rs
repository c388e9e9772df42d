//! Groups that are asked in the other protocol, and groups that go over to it: what each member is answered on the way.

use anyhow::{Context, Result};
use kafka_protocol::messages::offset_delete_request::{OffsetDeleteRequestPartition, OffsetDeleteRequestTopic};
use kafka_protocol::messages::{ConsumerGroupDescribeRequest, DeleteGroupsRequest, JoinGroupRequest, OffsetDeleteRequest};
use kafka_protocol::protocol::StrBytes;

use crate::consumer_groups::{LEAVE, Owned, given, heard_of, heartbeat as beat, join as come, owning, settled};
use crate::groups::{self, coordinated, describe, gid, heartbeat, leave, list, sync};
use crate::requests::{text, topic_name};
use crate::side::{Side, compare};

/// A classic member that subscribes to `topic`.
fn join(version: i16, group: &str, member: &str, topic: &str) -> JoinGroupRequest {
    let mut asked = groups::join(version, group, member, None);
    let subscription =
        [&b"\0\0\0\0\0\x01"[..], &u16::try_from(topic.len()).unwrap_or(0).to_be_bytes(), topic.as_bytes(), b"\xff\xff\xff\xff"].concat();
    asked.protocols.iter_mut().for_each(|protocol| protocol.metadata = subscription.clone().into());
    asked
}

/// Joins until it is a member; its id and generation.
fn member(side: &mut Side, group: &str, topic: &str) -> Result<(StrBytes, i32)> {
    let asked = side.answer("join", 5, &join(5, group, "", topic))?;
    let joined = side.answer("join with the id", 5, &join(5, group, &asked.member_id, topic))?;
    Ok((joined.member_id, joined.generation_id))
}

fn told(side: &mut Side, group: &str) -> Result<()> {
    side.step("describe", 1, &ConsumerGroupDescribeRequest::default().with_group_ids(vec![gid(group)]))?;
    describe(side, 6, group)?;
    list(side, 5, group, &[], &[])
}

#[test]
fn a_consumer_group_is_asked_as_a_classic_one() {
    compare(|side| {
        coordinated(side, "mg-consumer")?;
        side.topic("mg-consumer-t", 2, &[])?;
        heard_of(side, "mg-consumer", "mg-consumer-t", 2)?;
        let (epoch, _) = settled(side, "mg-consumer", "me", &["mg-consumer-t"], 2)?;
        for version in [0, 3, 5, 9] {
            side.step("a stranger's heartbeat", version.min(4), &heartbeat("mg-consumer", "you", epoch))?;
            side.step("its heartbeat", version.min(4), &heartbeat("mg-consumer", "me", epoch))?;
            side.step("its sync", version.min(5), &sync(version.min(5), "mg-consumer", "me", epoch))?;
            side.step("its join", version, &join(version, "mg-consumer", "me", "mg-consumer-t"))?;
            side.step(
                "another type joins",
                version,
                &join(version, "mg-consumer", "", "mg-consumer-t").with_protocol_type(text("connect")),
            )?;
            let garbage = |member: &str, instance: Option<&str>| {
                let mut asked = groups::join(version, "mg-consumer", member, instance);
                asked.protocols.iter_mut().for_each(|protocol| protocol.metadata = b"garbage"[..].into());
                asked
            };
            side.step("words that are no subscription", version, &garbage("you", None))?;
            if version >= 5 {
                side.step("the same as an instance that nobody is", version, &garbage("you", Some("nobody")))?;
            }
            side.step("nothing to choose from", version, &join(version, "mg-consumer", "", "mg-consumer-t").with_protocols(Vec::new()))?;
            side.step("a stranger leaves", version.min(5), &leave(version.min(5), "mg-consumer", &[("you", None)]))?;
        }
        let topic = OffsetDeleteRequestTopic::default()
            .with_name(topic_name("mg-consumer-t"))
            .with_partitions(vec![OffsetDeleteRequestPartition::default()]);
        side.step("delete its offsets", 0, &OffsetDeleteRequest::default().with_group_id(gid("mg-consumer")).with_topics(vec![topic]))?;
        side.step("delete it", 2, &DeleteGroupsRequest::default().with_groups_names(vec![gid("mg-consumer")]))?;
        side.step("an administrator removes it", 5, &leave(5, "mg-consumer", &[("me", None)]))?;
        told(side, "mg-consumer")
    });
}

#[test]
fn a_classic_group_is_asked_as_a_consumer_group() {
    compare(|side| {
        coordinated(side, "mg-classic")?;
        side.topic("mg-classic-t", 2, &[])?;
        // Its assignment is no consumer's.
        let (id, generation) = member(side, "mg-classic", "mg-classic-t")?;
        side.step("sync", 5, &sync(5, "mg-classic", &id, generation))?;
        for version in 0..=1 {
            side.beat("its heartbeat", version, &beat("mg-classic", &id, generation))?;
            side.beat("it leaves", version, &beat("mg-classic", &id, LEAVE))?;
            side.beat("a stranger leaves", version, &beat("mg-classic", "you", LEAVE))?;
        }
        told(side, "mg-classic")?;
        // A group of connect workers never goes over.
        coordinated(side, "mg-connect")?;
        let asked = join(3, "mg-connect", "", "mg-classic-t").with_protocol_type(text("connect"));
        side.answer("a worker joins", 3, &asked)?;
        side.beat("a consumer joins workers", 1, &come("mg-connect", "me", &["mg-classic-t"]))?;
        told(side, "mg-connect")
    });
}

/// An empty group is the other kind as soon as somebody joins it so, and keeps its offsets.
#[test]
fn empty_groups_change_their_kind() {
    compare(|side| {
        coordinated(side, "mg-empty")?;
        side.topic("mg-empty-t", 2, &[])?;
        heard_of(side, "mg-empty", "mg-empty-t", 2)?;
        let (id, generation) = member(side, "mg-empty", "mg-empty-t")?;
        side.step("sync", 5, &sync(5, "mg-empty", &id, generation))?;
        side.step("leave", 5, &leave(5, "mg-empty", &[(&id, None)]))?;
        told(side, "mg-empty")?;
        side.beat("a consumer joins", 1, &come("mg-empty", "me", &["mg-empty-t"]))?;
        told(side, "mg-empty")?;
        side.beat("it leaves", 1, &beat("mg-empty", "me", LEAVE))?;
        told(side, "mg-empty")?;
        let (id, generation) = member(side, "mg-empty", "mg-empty-t")?;
        side.step("sync", 5, &sync(5, "mg-empty", &id, generation))?;
        told(side, "mg-empty")
    });
}

/// The whole way with members: a classic one, then one of each, then both new, then back.
#[test]
fn groups_go_over_with_their_members() {
    compare(|side| {
        coordinated(side, "mg-live")?;
        side.topic("mg-live-t", 4, &[])?;
        heard_of(side, "mg-live", "mg-live-t", 4)?;
        let (id, generation) = member(side, "mg-live", "mg-live-t")?;
        let assigned = b"\0\0\0\0\0\x01\0\x09mg-live-t\0\0\0\x04\0\0\0\0\0\0\0\x01\0\0\0\x02\0\0\0\x03\xff\xff\xff\xff";
        let mut whole = sync(5, "mg-live", &id, generation);
        whole.assignments[0].assignment = bytes::Bytes::from_static(assigned);
        side.step("sync", 5, &whole)?;
        let joined = side.beat("a consumer comes", 1, &come("mg-live", "me", &["mg-live-t"]))?;
        told(side, "mg-live")?;
        side.step("the classic one's heartbeat", 4, &heartbeat("mg-live", &id, generation))?;
        side.step("its sync", 5, &sync(5, "mg-live", &id, generation))?;
        let again = side.answer("it joins again", 5, &join(5, "mg-live", &id, "mg-live-t"))?;
        side.step("its sync with an older generation", 5, &sync(5, "mg-live", &id, generation))?;
        side.step("its sync", 5, &sync(5, "mg-live", &id, again.generation_id))?;
        side.step("its heartbeat", 4, &heartbeat("mg-live", &id, again.generation_id))?;
        told(side, "mg-live")?;
        let (mut epoch, mut owned) = (joined.member_epoch, given(&joined).unwrap_or_default());
        for round in 0..3 {
            let answer =
                side.beat(format!("the consumer, round {round}"), 1, &beat("mg-live", "me", epoch).with_topic_partitions(owning(&owned)))?;
            (epoch, owned) = (answer.member_epoch, given(&answer).unwrap_or(owned));
        }
        told(side, "mg-live")?;
        side.step("its heartbeat", 4, &heartbeat("mg-live", &id, again.generation_id))?;
        side.step("a lie about its generation", 4, &heartbeat("mg-live", &id, again.generation_id + 1))?;
        // The last consumer leaves: the group is a classic one again.
        side.beat("the consumer leaves", 1, &beat("mg-live", "me", LEAVE))?;
        told_without_epochs(side, "mg-live")?;
        side.step("the classic one's heartbeat", 4, &heartbeat("mg-live", &id, again.generation_id))?;
        let back = side.answer("it joins again", 5, &join(5, "mg-live", &id, "mg-live-t"))?;
        side.step("its sync", 5, &sync(5, "mg-live", &id, back.generation_id))?;
        told(side, "mg-live")?;
        let _: Owned = owned;
        Some(()).context("the end")
    });
}

/// The group in between: its generation is looked at once it is stable.
fn told_without_epochs(side: &mut Side, group: &str) -> Result<()> {
    describe(side, 6, group)?;
    list(side, 5, group, &[], &[])
}
