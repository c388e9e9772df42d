//! Groups of the classic protocol and their offsets: the life of a group in every version, and everything that is refused.
//!
//! One member at a time on one connection: who waits for whom is shown by the simulation of the library and by real clients.

use anyhow::{Context, Result};
use bytes::Bytes;
use kafka_protocol::messages::describe_groups_response::DescribedGroup;
use kafka_protocol::messages::join_group_request::JoinGroupRequestProtocol;
use kafka_protocol::messages::leave_group_request::MemberIdentity;
use kafka_protocol::messages::offset_commit_request::{OffsetCommitRequestPartition, OffsetCommitRequestTopic};
use kafka_protocol::messages::offset_delete_request::{OffsetDeleteRequestPartition, OffsetDeleteRequestTopic};
use kafka_protocol::messages::offset_fetch_request::{OffsetFetchRequestGroup, OffsetFetchRequestTopic, OffsetFetchRequestTopics};
use kafka_protocol::messages::sync_group_request::SyncGroupRequestAssignment;
use kafka_protocol::messages::{
    DeleteGroupsRequest, DescribeGroupsRequest, FindCoordinatorRequest, GroupId, HeartbeatRequest, JoinGroupRequest, LeaveGroupRequest,
    ListGroupsRequest, OffsetCommitRequest, OffsetDeleteRequest, OffsetFetchRequest, SyncGroupRequest,
};
use kafka_protocol::protocol::StrBytes;

use crate::requests::{text, topic_name};
use crate::side::{Side, compare};

pub fn gid(name: &str) -> GroupId {
    GroupId(text(name))
}

/// Waits until the group, and those of its name and a digit, have a coordinator: Kafka first has to make the topic and load it.
pub fn coordinated(side: &mut Side, group: &str) -> Result<()> {
    let all: Vec<GroupId> = (0..10).map(|nth| gid(&format!("{group}-{nth}"))).chain([gid(group), gid("diff-nobody"), gid("")]).collect();
    side.wait_for("groups have a coordinator", |side| {
        let found = side.ask(4, &FindCoordinatorRequest::default().with_coordinator_keys(vec![text(group)]))?;
        let described = side.ask(5, &DescribeGroupsRequest::default().with_groups(all.clone()))?;
        let fine = |code: i16| code == 0;
        Ok(found.coordinators.iter().all(|found| fine(found.error_code)) && described.groups.iter().all(|group| fine(group.error_code)))
    })
}

fn consumer_metadata() -> Bytes {
    Bytes::from_static(b"\0\0\0\0\0\x01\0\x05topic\xff\xff\xff\xff")
}

pub fn join(version: i16, group: &str, member: &str, instance: Option<&str>) -> JoinGroupRequest {
    let protocol = |name| JoinGroupRequestProtocol::default().with_name(text(name)).with_metadata(consumer_metadata());
    JoinGroupRequest::default()
        .with_group_id(gid(group))
        .with_session_timeout_ms(30_000)
        .with_rebalance_timeout_ms(if version >= 1 { 60_000 } else { -1 })
        .with_member_id(text(member))
        .with_group_instance_id(instance.filter(|_| version >= 5).map(text))
        .with_protocol_type(text("consumer"))
        .with_protocols(vec![protocol("range"), protocol("sticky")])
        .with_reason((version >= 8).then(|| text("why")))
}

pub fn sync(version: i16, group: &str, member: &str, generation: i32) -> SyncGroupRequest {
    let assignment = SyncGroupRequestAssignment::default().with_member_id(text(member)).with_assignment(Bytes::from_static(b"\0\0all"));
    SyncGroupRequest::default()
        .with_group_id(gid(group))
        .with_generation_id(generation)
        .with_member_id(text(member))
        .with_protocol_type((version >= 5).then(|| text("consumer")))
        .with_protocol_name((version >= 5).then(|| text("range")))
        .with_assignments(vec![assignment])
}

pub fn heartbeat(group: &str, member: &str, generation: i32) -> HeartbeatRequest {
    HeartbeatRequest::default().with_group_id(gid(group)).with_member_id(text(member)).with_generation_id(generation)
}

pub fn leave(version: i16, group: &str, members: &[(&str, Option<&str>)]) -> LeaveGroupRequest {
    let request = LeaveGroupRequest::default().with_group_id(gid(group));
    if version < 3 {
        return request.with_member_id(text(members.first().map_or("", |(id, _)| id)));
    }
    let identity = |(id, instance): &(&str, Option<&str>)| {
        MemberIdentity::default().with_member_id(text(id)).with_group_instance_id(instance.map(text))
    };
    request.with_members(members.iter().map(identity).collect())
}

/// Offsets for partition 0 with metadata, for 1 without, and for a partition and a topic that aren't there.
pub fn commit(version: i16, group: &str, topic: &str, member: &str, generation: i32, metadata: &str) -> OffsetCommitRequest {
    let partition = |index, metadata: Option<&str>| {
        OffsetCommitRequestPartition::default()
            .with_partition_index(index)
            .with_committed_offset(40 + i64::from(index))
            .with_committed_leader_epoch(if version >= 6 { 0 } else { -1 })
            .with_committed_metadata(metadata.map(text))
    };
    let of = |name: &str, partitions| OffsetCommitRequestTopic::default().with_name(topic_name(name)).with_partitions(partitions);
    let topics = vec![
        of(topic, vec![partition(0, Some(metadata)), partition(1, None), partition(9, None)]),
        of("nowhere", vec![partition(0, None)]),
    ];
    OffsetCommitRequest::default()
        .with_group_id(gid(group))
        .with_generation_id_or_member_epoch(generation)
        .with_member_id(text(member))
        .with_topics(topics)
}

fn fetch(version: i16, group: &str, topic: Option<&str>) -> OffsetFetchRequest {
    let request = OffsetFetchRequest::default().with_require_stable(version >= 7);
    let indexes = vec![0, 1, 2, 9];
    if version < 8 {
        let topics = topic.map(|name| {
            let of = |name, indexes| OffsetFetchRequestTopic::default().with_name(topic_name(name)).with_partition_indexes(indexes);
            vec![of(name, indexes), of("nowhere", vec![3])]
        });
        return request.with_group_id(gid(group)).with_topics(topics);
    }
    let topics = topic.map(|name| {
        let of = |name, indexes| OffsetFetchRequestTopics::default().with_name(topic_name(name)).with_partition_indexes(indexes);
        vec![of(name, indexes), of("nowhere", vec![3])]
    });
    let of_group = |name| OffsetFetchRequestGroup::default().with_group_id(gid(name)).with_topics(topics.clone());
    request.with_groups(vec![of_group(group), of_group("diff-nobody")])
}

/// Joins until it is a member; its id and generation.
pub fn member(side: &mut Side, version: i16, group: &str, instance: Option<&str>) -> Result<(StrBytes, i32)> {
    let mut joined = side.answer("join", version, &join(version, group, "", instance))?;
    if joined.error_code == 79 {
        joined = side.answer("join with the id", version, &join(version, group, &joined.member_id, instance))?;
    }
    Ok((joined.member_id, joined.generation_id))
}

pub fn describe(side: &mut Side, version: i16, group: &str) -> Result<Option<DescribedGroup>> {
    let request = DescribeGroupsRequest::default().with_groups(vec![gid(group)]).with_include_authorized_operations(version >= 3);
    Ok(side.answer("describe", version, &request)?.groups.into_iter().next())
}

#[test]
fn coordinators() {
    compare(|side| {
        coordinated(side, "diff-found")?;
        for version in 0..=6 {
            let request = FindCoordinatorRequest::default();
            let request = if version >= 4 {
                request.with_coordinator_keys(vec![text("diff-found"), text("")])
            } else {
                request.with_key(text("diff-found"))
            };
            side.step("find", version, &request)?;
        }
        Ok(())
    });
}

#[test]
fn a_groups_life_in_every_version() {
    compare(|side| {
        coordinated(side, "diff-life")?;
        side.topic("diff-life-topic", 3, &[])?;
        for version in 0..=9 {
            let group = format!("diff-life-{version}");
            let (id, generation) = member(side, version, &group, None)?;
            describe(side, version.min(6), &group)?;
            side.step(
                "commit before the assignment",
                version.max(2),
                &commit(version.max(2), &group, "diff-life-topic", &id, generation, "m"),
            )?;
            side.step("sync", version.min(5), &sync(version.min(5), &group, &id, generation))?;
            side.step("sync again", version.min(5), &sync(version.min(5), &group, &id, generation))?;
            side.step("heartbeat", version.min(4), &heartbeat(&group, &id, generation))?;
            side.step("commit", version.max(2), &commit(version.max(2), &group, "diff-life-topic", &id, generation, "m"))?;
            side.step("fetch", version.max(1), &fetch(version.max(1), &group, Some("diff-life-topic")))?;
            if version >= 2 {
                side.step("fetch all", version, &fetch(version, &group, None))?;
            }
            describe(side, version.min(6), &group)?;
            list(side, version.min(5), &group, &[], &[])?;
            side.step("delete too early", version.min(2), &DeleteGroupsRequest::default().with_groups_names(vec![gid(&group)]))?;
            side.step("leave", version.min(5), &leave(version.min(5), &group, &[(&id, None)]))?;
            describe(side, version.min(6), &group)?;
            list(side, version.min(5), &group, &[], &[])?;
            side.step("fetch", version.max(1), &fetch(version.max(1), &group, Some("diff-life-topic")))?;
            side.step("delete", version.min(2), &DeleteGroupsRequest::default().with_groups_names(vec![gid(&group)]))?;
            side.step("delete again", version.min(2), &DeleteGroupsRequest::default().with_groups_names(vec![gid(&group)]))?;
            describe(side, version.min(6), &group)?;
            list(side, version.min(5), &group, &[], &[])?;
        }
        Ok(())
    });
}

/// Lists, and leaves out other scripts' groups.
pub fn list(side: &mut Side, version: i16, group: &str, states: &[&str], types: &[&str]) -> Result<()> {
    let filter = |names: &[&str]| names.iter().map(|name| text(name)).collect();
    let request = ListGroupsRequest::default().with_states_filter(filter(states)).with_types_filter(filter(types));
    side.step_with(format!("list {states:?} {types:?}"), version, &request, |answer| {
        answer.groups.retain(|listed| &*listed.group_id == group)
    })?;
    Ok(())
}

#[test]
fn groups_are_listed_by_state_and_type() {
    compare(|side| {
        coordinated(side, "diff-list")?;
        let (id, generation) = member(side, 5, "diff-list", None)?;
        side.step("sync", 5, &sync(5, "diff-list", &id, generation))?;
        for states in [&["Stable"][..], &["stable"], &["STABLE", "Empty"], &["Empty"], &["Dead"], &["nonsense"], &[""]] {
            list(side, 4, "diff-list", states, &[])?;
            list(side, 5, "diff-list", states, &[])?;
        }
        for types in [&["classic"][..], &["Classic"], &["consumer"], &["share"], &["nonsense"], &["consumer", "CLASSIC"]] {
            list(side, 5, "diff-list", &[], types)?;
        }
        Ok(())
    });
}

#[test]
fn joins_that_are_refused() {
    compare(|side| {
        coordinated(side, "diff-join")?;
        for version in 0..=9 {
            let ask = |group: &str| join(version, group, "", None);
            side.step("a group without a name", version, &ask(""))?;
            side.step("an id that nobody gave, no group", version, &join(version, "diff-join-1", "me", None))?;
            for ms in [-1, 0, 5_999, 1_800_001] {
                side.step(format!("a session of {ms} ms"), version, &ask("diff-join").with_session_timeout_ms(ms))?;
            }
            side.step("no protocols", version, &ask("diff-join-2").with_protocols(Vec::new()))?;
            side.step("no protocol type", version, &ask("diff-join-2").with_protocol_type(text("")))?;
        }
        let (id, generation) = member(side, 5, "diff-join", None)?;
        side.step("sync", 5, &sync(5, "diff-join", &id, generation))?;
        for version in [3, 4, 9] {
            let ask = |member: &str, instance| join(version, "diff-join", member, instance);
            side.step("another protocol type", version, &ask("", None).with_protocol_type(text("connect")))?;
            let mut other = ask("", None);
            other.protocols.retain(|protocol| &*protocol.name == "none");
            side.step("no protocols", version, &other)?;
            side.step("an id that nobody gave", version, &ask("me", None))?;
            side.step(
                "an instance that nobody is",
                version,
                &ask(&id, Some("nobody")).with_group_instance_id((version >= 5).then(|| text("nobody"))),
            )?;
        }
        Ok(())
    });
}

#[test]
fn members_that_are_not_who_they_say() {
    compare(|side| {
        coordinated(side, "diff-who")?;
        side.topic("diff-who-topic", 2, &[])?;
        let (id, generation) = member(side, 5, "diff-who", None)?;
        for state in ["completing", "stable"] {
            for version in 0..=5 {
                let ask = |member: &str, generation| sync(version, "diff-who", member, generation);
                side.step(format!("{state}: sync of another generation"), version, &ask(&id, generation + 1))?;
                side.step(format!("{state}: sync of a stranger"), version, &ask("me", generation))?;
                side.step(format!("{state}: sync without a group's name"), version, &ask(&id, generation).with_group_id(gid("")))?;
                side.step(format!("{state}: sync nowhere"), version, &ask(&id, generation).with_group_id(gid("diff-nobody")))?;
                if version >= 3 {
                    let instance = Some(text("nobody"));
                    side.step(format!("{state}: sync as an instance"), version, &ask(&id, generation).with_group_instance_id(instance))?;
                }
                if version >= 5 {
                    let other = ask(&id, generation).with_protocol_name(Some(text("sticky")));
                    side.step(format!("{state}: sync with another protocol"), version, &other)?;
                    let other = ask(&id, generation).with_protocol_type(None);
                    side.step(format!("{state}: sync without a type"), version, &other)?;
                    side.step(format!("{state}: sync without a type or a group's name"), version, &other.with_group_id(gid("")))?;
                }
            }
            for version in 0..=4 {
                for (member, generation) in [(&*id, generation), (&*id, generation + 1), (&*id, -1), ("me", generation), ("", generation)] {
                    side.step(format!("{state}: heartbeat {generation}"), version, &heartbeat("diff-who", member, generation))?;
                }
                side.step(format!("{state}: heartbeat nowhere"), version, &heartbeat("diff-nobody", &id, generation))?;
                side.step(format!("{state}: heartbeat without a group's name"), version, &heartbeat("", &id, generation))?;
            }
            for version in 2..=9 {
                let ask = |group, member, generation| commit(version, group, "diff-who-topic", member, generation, "m");
                for (member, generation) in [(&*id, generation + 1), (&*id, -1), ("me", generation), ("", -1), ("", generation), ("me", -1)]
                {
                    side.step(format!("{state}: commit {generation}"), version, &ask("diff-who", member, generation))?;
                }
                side.step(format!("{state}: commit nowhere"), version, &ask("diff-nobody", &id, generation))?;
            }
            for version in 0..=5 {
                side.step(format!("{state}: leave as a stranger"), version, &leave(version, "diff-who", &[("me", None)]))?;
                side.step(format!("{state}: leave nowhere"), version, &leave(version, "diff-nobody", &[("me", None)]))?;
                side.step(format!("{state}: leave without a group's name"), version, &leave(version, "", &[("me", None)]))?;
                if version >= 3 {
                    let strangers = [("", Some("nobody")), (&*id, Some("nobody")), ("", None)];
                    side.step(format!("{state}: strangers leave"), version, &leave(version, "diff-who", &strangers))?;
                    side.step(format!("{state}: nobody leaves"), version, &leave(version, "diff-who", &[]))?;
                }
            }
            if state == "completing" {
                side.step("sync", 5, &sync(5, "diff-who", &id, generation))?;
            }
        }
        Ok(())
    });
}

#[test]
fn offsets_of_a_group_without_members() {
    compare(|side| {
        coordinated(side, "diff-simple")?;
        side.topic("diff-simple-topic", 2, &[])?;
        for version in 2..=9 {
            let group = format!("diff-simple-{version}");
            let ask = |metadata: &str| commit(version, &group, "diff-simple-topic", "", -1, metadata);
            side.step("commit", version, &ask("words of mine"))?;
            side.step("commit with long metadata", version, &ask(&"x".repeat(4_097)))?;
            side.step("commit with metadata that just fits", version, &ask(&"x".repeat(4_096)))?;
            side.step("commit nothing", version, &ask("m").with_topics(Vec::new()))?;
            side.step("fetch", version, &fetch(version, &group, Some("diff-simple-topic")))?;
            side.step("fetch all", version, &fetch(version, &group, None))?;
            describe(side, version.min(6), &group)?;
            list(side, version.min(5), &group, &[], &[])?;
            let (id, generation) = member(side, version, &group, None)?;
            side.step("an administrator commits meanwhile", version, &ask("m"))?;
            side.step("sync", version.min(5), &sync(version.min(5), &group, &id, generation))?;
            side.step("leave", version.min(5), &leave(version.min(5), &group, &[(&id, None)]))?;
            side.step("an administrator commits again", version, &ask("m"))?;
            side.step("heartbeat of one who left", version.min(4), &heartbeat(&group, &id, generation))?;
            side.step("sync of one who left", version.min(5), &sync(version.min(5), &group, &id, generation))?;
            side.step("join of one who left", version, &join(version, &group, &id, None))?;
        }
        Ok(())
    });
}

#[test]
fn offsets_are_deleted() {
    compare(|side| {
        coordinated(side, "diff-delete")?;
        side.topic("topic", 2, &[])?;
        side.topic("diff-delete-topic", 2, &[])?;
        let ask = |group: &str, topic: &str| {
            let partition = |index| OffsetDeleteRequestPartition::default().with_partition_index(index);
            let of = OffsetDeleteRequestTopic::default().with_name(topic_name(topic));
            let topics = vec![of.with_partitions(vec![partition(0), partition(1), partition(9)])];
            OffsetDeleteRequest::default().with_group_id(gid(group)).with_topics(topics)
        };
        side.step("nowhere", 0, &ask("diff-nobody", "topic"))?;
        side.step("nowhere, of a topic that isn't there", 0, &ask("diff-nobody", "nowhere"))?;
        side.step("nowhere, of nothing", 0, &OffsetDeleteRequest::default().with_group_id(gid("diff-nobody")))?;
        side.step("without a name", 0, &ask("", "topic"))?;
        for topic in ["topic", "diff-delete-topic"] {
            side.step("commit", 8, &commit(8, "diff-delete", topic, "", -1, "m"))?;
        }
        let (id, generation) = member(side, 5, "diff-delete", None)?;
        side.step("sync", 5, &sync(5, "diff-delete", &id, generation))?;
        // Its subscription names `topic`.
        side.step("of a topic that is read", 0, &ask("diff-delete", "topic"))?;
        side.step("of one that isn't", 0, &ask("diff-delete", "diff-delete-topic"))?;
        side.step("of one that isn't there", 0, &ask("diff-delete", "nowhere"))?;
        side.step("what is left", 8, &fetch(8, "diff-delete", None))?;
        side.step("leave", 5, &leave(5, "diff-delete", &[(&id, None)]))?;
        side.step("of a topic that was read", 0, &ask("diff-delete", "topic"))?;
        side.step("what is left", 8, &fetch(8, "diff-delete", None))?;
        side.step(
            "delete groups",
            2,
            &DeleteGroupsRequest::default().with_groups_names(vec![gid("diff-delete"), gid("diff-nobody"), gid(""), gid("diff-delete")]),
        )?;
        Ok(())
    });
}

#[test]
fn static_members_come_back_and_are_fenced() {
    compare(|side| {
        coordinated(side, "diff-static")?;
        side.topic("diff-static-topic", 2, &[])?;
        for version in 5..=9 {
            let group = format!("diff-static-{version}");
            let (old, generation) = member(side, version, &group, Some("one"))?;
            side.step("sync", version.min(5), &sync(version.min(5), &group, &old, generation).with_group_instance_id(Some(text("one"))))?;
            let back = side.answer("come back", version, &join(version, &group, "", Some("one")))?;
            let new = back.member_id.clone();
            let as_one = Some(text("one"));
            side.step("sync of the new", 5, &sync(5, &group, &new, back.generation_id).with_group_instance_id(as_one.clone()))?;
            side.step("sync of the old", 5, &sync(5, &group, &old, generation).with_group_instance_id(as_one.clone()))?;
            side.step("heartbeat of the old", 4, &heartbeat(&group, &old, generation).with_group_instance_id(as_one.clone()))?;
            side.step("heartbeat of the old by its id", 4, &heartbeat(&group, &old, generation))?;
            let ask =
                |member: &str| commit(8, &group, "diff-static-topic", member, generation, "m").with_group_instance_id(Some(text("one")));
            side.step("commit of the old", 8, &ask(&old))?;
            side.step("commit of the new", 8, &ask(&new))?;
            side.step("join of the old", version, &join(version, &group, &old, Some("one")))?;
            side.step("leave of the old", 5, &leave(5, &group, &[(&old, Some("one"))]))?;
            let described = describe(side, 6, &group)?.context("a description")?;
            side.note("who is in it", format!("{}", described.members.first().is_some_and(|found| found.member_id == new)));
            side.step("an administrator removes it", 5, &leave(5, &group, &[("", Some("one"))]))?;
            describe(side, 6, &group)?;
        }
        Ok(())
    });
}
