//! Groups of the consumer protocol (KIP-848): ConsumerGroupHeartbeat, ConsumerGroupDescribe, and offsets with member epochs, in good order and
//! in every way that is refused.
//!
//! Members by hand on one connection, each heard when the script says so: who waits for whom is shown by the simulation of the library and
//! by real clients.

use std::collections::BTreeSet;

use anyhow::{Context, Result};
use compat_tests::heartbeats;
pub use compat_tests::heartbeats::{JOIN, LEAVE, Owned, STATIC_LEAVE, given, heartbeat, join, owning};
use kafka_protocol::messages::offset_commit_request::{OffsetCommitRequestPartition, OffsetCommitRequestTopic};
use kafka_protocol::messages::offset_fetch_request::{OffsetFetchRequestGroup, OffsetFetchRequestTopics};
use kafka_protocol::messages::{
    ConsumerGroupDescribeRequest, ConsumerGroupHeartbeatRequest, DeleteGroupsRequest, OffsetCommitRequest, OffsetFetchRequest,
};

use crate::groups::{coordinated, describe as describe_classic, gid, list};
use crate::requests::{NOBODY, text, topic_name};
use crate::side::{Side, compare};

/// Waits until the group's coordinator knows a topic, which it may hear of after everybody else: a member joins and leaves. Nothing is left of
/// the group.
///
/// # Errors
/// If it never does.
pub fn heard_of(side: &mut Side, group: &str, topic: &str, partitions: usize) -> Result<()> {
    settled(side, group, "scout", &[topic], partitions)?;
    side.quiet_beat(1, &heartbeat(group, "scout", LEAVE))?;
    let deleted = side.ask(2, &DeleteGroupsRequest::default().with_groups_names(vec![gid(group)]))?;
    anyhow::ensure!(deleted.results.iter().all(|result| result.error_code == 0), "{group} can't be deleted: {deleted:?}");
    Ok(())
}

/// [`heartbeats::settled`] by the script's connection.
///
/// # Errors
/// As that.
pub fn settled(side: &mut Side, group: &str, member: &str, topics: &[&str], count: usize) -> Result<(i32, Owned)> {
    heartbeats::settled(side.client(), &join(group, member, topics), count)
}

pub fn commit(group: &str, member: &str, epoch: i32, topic: &str) -> OffsetCommitRequest {
    let partition = OffsetCommitRequestPartition::default().with_committed_offset(7).with_committed_leader_epoch(0);
    let topic = OffsetCommitRequestTopic::default()
        .with_name(topic_name(topic))
        .with_partitions(vec![partition.clone(), partition.with_partition_index(1)]);
    OffsetCommitRequest::default()
        .with_group_id(gid(group))
        .with_member_id(text(member))
        .with_generation_id_or_member_epoch(epoch)
        .with_topics(vec![topic])
}

fn fetch(group: &str, member: Option<&str>, epoch: i32, topic: &str) -> OffsetFetchRequest {
    let topic = OffsetFetchRequestTopics::default().with_name(topic_name(topic)).with_partition_indexes(vec![0, 1, 2]);
    let asked = OffsetFetchRequestGroup::default()
        .with_group_id(gid(group))
        .with_member_id(member.map(text))
        .with_member_epoch(epoch)
        .with_topics(Some(vec![topic]));
    OffsetFetchRequest::default().with_groups(vec![asked])
}

/// What both versions of ConsumerGroupDescribe, and DescribeGroups, say of it.
fn describe(side: &mut Side, group: &str) -> Result<()> {
    for version in 0..=1 {
        let request =
            ConsumerGroupDescribeRequest::default().with_group_ids(vec![gid(group)]).with_include_authorized_operations(version == 1);
        side.step(format!("describe {group}"), version, &request)?;
    }
    for version in [5, 6] {
        describe_classic(side, version, group)?;
    }
    Ok(())
}

#[test]
fn a_groups_life() {
    compare(|side| {
        coordinated(side, "cg-life")?;
        side.topic("cg-life-topic", 4, &[])?;
        for version in 0..=1 {
            let group = format!("cg-life-{version}");
            heard_of(side, &group, "cg-life-topic", 4)?;
            // In version 0 the coordinator makes the id.
            let asked = join(&group, if version == 0 { "" } else { "me" }, &["cg-life-topic", "cg-nowhere"]);
            let joined = side.beat("join", version, &asked.with_rack_id(Some(text("rack"))))?;
            let me = joined.member_id.clone().context("no id")?;
            let owned = given(&joined).unwrap_or_default();
            describe(side, &group)?;
            for kind in [&[][..], &["consumer"], &["CONSUMER", "classic"], &["classic"]] {
                list(side, 5, &group, &[], kind)?;
            }
            for state in ["stable", "Empty", "assigning", "Reconciling"] {
                list(side, 4, &group, &[state], &[])?;
            }
            let epoch = joined.member_epoch;
            side.beat("it owns all", version, &heartbeat(&group, &me, epoch).with_topic_partitions(owning(&owned)))?;
            side.beat("it is there", version, &heartbeat(&group, &me, epoch))?;
            side.step("commit", 9, &commit(&group, &me, epoch, "cg-life-topic"))?;
            side.step("fetch", 9, &fetch(&group, Some(&me), epoch, "cg-life-topic"))?;
            side.step("delete too early", 2, &DeleteGroupsRequest::default().with_groups_names(vec![gid(&group)]))?;
            side.beat("another subscription", version, &{
                let names = Some(vec![topic_name("cg-nowhere")]);
                heartbeat(&group, &me, epoch).with_subscribed_topic_names(names).with_topic_partitions(owning(&owned))
            })?;
            describe(side, &group)?;
            side.beat("leave", version, &heartbeat(&group, &me, LEAVE))?;
            describe(side, &group)?;
            list(side, 5, &group, &[], &[])?;
            side.beat("leave again", version, &heartbeat(&group, &me, LEAVE))?;
            side.beat("a heartbeat of one who left", version, &heartbeat(&group, &me, epoch))?;
            side.step("what it committed", 9, &fetch(&group, None, -1, "cg-life-topic"))?;
            side.step("delete", 2, &DeleteGroupsRequest::default().with_groups_names(vec![gid(&group)]))?;
            describe(side, &group)?;
            list(side, 5, &group, &[], &[])?;
        }
        Ok(())
    });
}

#[test]
fn heartbeats_that_are_refused() {
    compare(|side| {
        coordinated(side, "cg-bad")?;
        let id = side.topic("cg-bad-topic", 2, &[])?;
        let ask = || join("cg-bad", "me", &["cg-bad-topic"]);
        for version in 0..=1 {
            side.beat("a group without a name", version, &join("", "me", &["cg-bad-topic"]))?;
            side.beat("a group of blanks", version, &join("  ", "me", &["cg-bad-topic"]))?;
            side.beat("no rebalance timeout", version, &ask().with_rebalance_timeout_ms(-1))?;
            side.beat("no partitions said", version, &ask().with_topic_partitions(None))?;
            side.beat("it owns partitions already", version, &ask().with_topic_partitions(owning(&[(id, vec![0])])))?;
            side.beat("no subscription", version, &ask().with_subscribed_topic_names(None))?;
            side.beat("an empty instance", version, &ask().with_instance_id(Some(text(""))))?;
            side.beat("an empty rack", version, &ask().with_rack_id(Some(text(""))))?;
            side.beat("an assignor that isn't there", version, &ask().with_server_assignor(Some(text("mine"))))?;
            side.beat("an assignor without a name", version, &ask().with_server_assignor(Some(text(""))))?;
            for epoch in [-3, i32::MIN, STATIC_LEAVE] {
                side.beat(format!("epoch {epoch}"), version, &heartbeat("cg-bad", "me", epoch))?;
            }
            for epoch in [LEAVE, 1, i32::MAX] {
                side.beat(format!("epoch {epoch}, nobody"), version, &heartbeat("cg-bad", "", epoch))?;
                side.beat(format!("epoch {epoch}, no group"), version, &heartbeat("cg-bad", "me", epoch))?;
                side.beat(
                    format!("epoch {epoch}, an instance, no group"),
                    version,
                    &heartbeat("cg-bad", "me", epoch).with_instance_id(Some(text("i"))),
                )?;
            }
        }
        side.beat("a member without an id", 1, &join("cg-bad", "", &["cg-bad-topic"]))?;
        for pattern in ["(", "*", "[z-a]", "(?<=x)y", "(?P<n", "\\8"] {
            let regex = ask().with_subscribed_topic_names(None).with_subscribed_topic_regex(Some(text(pattern)));
            side.beat(format!("the expression {pattern}"), 1, &regex)?;
        }
        describe(side, "cg-bad")?;
        Ok(())
    });
}

#[test]
fn members_that_lie_about_their_epoch_and_partitions() {
    compare(|side| {
        coordinated(side, "cg-lie")?;
        let id = side.topic("cg-lie-topic", 4, &[])?;
        heard_of(side, "cg-lie", "cg-lie-topic", 4)?;
        let (first, owned) = settled(side, "cg-lie", "a", &["cg-lie-topic"], 4)?;
        side.note("its epoch", first.to_string());
        for version in 0..=1 {
            for (what, epoch) in [("a greater epoch", first + 1), ("a much greater epoch", i32::MAX), ("a smaller epoch", first - 1)] {
                // Epoch 0 is a join, and no lie.
                if epoch != JOIN {
                    side.beat(what, version, &heartbeat("cg-lie", "a", epoch))?;
                }
            }
            side.beat("a stranger", version, &heartbeat("cg-lie", "b", first))?;
            side.beat("an instance that nobody is", version, &heartbeat("cg-lie", "a", first).with_instance_id(Some(text("i"))))?;
            side.beat(
                "partitions of a topic that isn't there",
                version,
                &heartbeat("cg-lie", "a", first).with_topic_partitions(owning(&[(NOBODY, vec![0])])),
            )?;
            side.beat(
                "a partition that isn't there",
                version,
                &heartbeat("cg-lie", "a", first).with_topic_partitions(owning(&[(id, vec![77, -1])])),
            )?;
            side.beat("nothing at all", version, &heartbeat("cg-lie", "a", first).with_topic_partitions(owning(&[])))?;
            side.beat(
                "the same twice",
                version,
                &heartbeat("cg-lie", "a", first).with_topic_partitions(owning(&[(id, vec![0, 0]), (id, vec![0])])),
            )?;
            side.beat("all said again", version, &{
                let mut full = join("cg-lie", "a", &["cg-lie-topic"]).with_topic_partitions(owning(&owned));
                full.member_epoch = first;
                full
            })?;
        }
        side.beat("it joins again under its id", 1, &join("cg-lie", "a", &["cg-lie-topic"]))?;
        describe(side, "cg-lie")?;
        // Another one comes: `a` has to let go of some.
        side.beat("b joins", 1, &join("cg-lie", "b", &["cg-lie-topic"]))?;
        let told = side.beat("a is told", 1, &heartbeat("cg-lie", "a", first))?;
        let kept = given(&told).unwrap_or_default();
        describe(side, "cg-lie")?;
        side.beat("a is silent about them", 1, &heartbeat("cg-lie", "a", told.member_epoch))?;
        side.beat("a keeps them", 1, &heartbeat("cg-lie", "a", told.member_epoch).with_topic_partitions(owning(&owned)))?;
        describe(side, "cg-lie")?;
        let went_on = side.beat("a lets go", 1, &heartbeat("cg-lie", "a", told.member_epoch).with_topic_partitions(owning(&kept)))?;
        side.beat(
            "the answer was lost: the epoch before",
            1,
            &heartbeat("cg-lie", "a", told.member_epoch).with_topic_partitions(owning(&kept)),
        )?;
        side.beat(
            "the epoch before, with what it let go",
            1,
            &heartbeat("cg-lie", "a", told.member_epoch).with_topic_partitions(owning(&owned)),
        )?;
        side.beat("the epoch before, silent", 1, &heartbeat("cg-lie", "a", told.member_epoch))?;
        side.beat("a claims what b gets", 1, &heartbeat("cg-lie", "a", went_on.member_epoch).with_topic_partitions(owning(&owned)))?;
        describe(side, "cg-lie")?;
        Ok(())
    });
}

#[test]
fn partitions_go_from_one_to_the_other() {
    compare(|side| {
        coordinated(side, "cg-move")?;
        for assignor in ["uniform", "range"] {
            let (group, topic) = (format!("cg-move-{assignor}"), format!("cg-move-topic-{assignor}"));
            coordinated(side, &group)?;
            side.topic(&topic, 6, &[])?;
            heard_of(side, &group, &topic, 6)?;
            let mut members: Vec<(&str, i32, Owned)> = Vec::new();
            for name in ["a", "b", "c"] {
                let asked = join(&group, name, &[&topic]).with_server_assignor(Some(text(assignor)));
                let joined = side.beat(format!("{assignor}: {name} joins"), 1, &asked)?;
                members.push((name, joined.member_epoch, given(&joined).unwrap_or_default()));
                // Until nobody hears of anything new, each says what it has, in turn.
                for round in 0..4 {
                    for (name, epoch, owned) in &mut members {
                        let said = heartbeat(&group, name, *epoch).with_topic_partitions(owning(owned));
                        let answer = side.beat(format!("{assignor}: {name}, round {round}"), 1, &said)?;
                        *epoch = answer.member_epoch;
                        if let Some(new) = given(&answer) {
                            *owned = new;
                        }
                    }
                }
                describe(side, &group)?;
                let all: Vec<i32> = members.iter().flat_map(|(_, _, owned)| owned).flat_map(|(_, partitions)| partitions.clone()).collect();
                side.note("all are owned, once", format!("{}", all.len() == 6 && all.iter().collect::<BTreeSet<_>>().len() == 6));
            }
            let (left, _, _) = members.remove(1);
            side.beat("the second leaves", 1, &heartbeat(&group, left, LEAVE))?;
            for round in 0..4 {
                for (name, epoch, owned) in &mut members {
                    let said = heartbeat(&group, name, *epoch).with_topic_partitions(owning(owned));
                    let answer = side.beat(format!("{assignor}: {name} after it, round {round}"), 1, &said)?;
                    *epoch = answer.member_epoch;
                    if let Some(new) = given(&answer) {
                        *owned = new;
                    }
                }
            }
            describe(side, &group)?;
        }
        Ok(())
    });
}

#[test]
fn static_members_come_back_and_are_fenced() {
    compare(|side| {
        coordinated(side, "cg-static")?;
        side.topic("cg-static-topic", 3, &[])?;
        heard_of(side, "cg-static", "cg-static-topic", 3)?;
        let one = |asked: ConsumerGroupHeartbeatRequest| asked.with_instance_id(Some(text("one")));
        let joined = side.beat("join", 1, &one(join("cg-static", "old", &["cg-static-topic"])))?;
        let epoch = joined.member_epoch;
        let owned = given(&joined).unwrap_or_default();
        side.beat("it owns all", 1, &one(heartbeat("cg-static", "old", epoch)).with_topic_partitions(owning(&owned)))?;
        side.beat("another of its name", 1, &one(join("cg-static", "new", &["cg-static-topic"])))?;
        side.beat("another of its name says it is it", 1, &one(heartbeat("cg-static", "new", epoch)))?;
        side.beat("without its name", 1, &heartbeat("cg-static", "old", epoch))?;
        side.beat("another name", 1, &heartbeat("cg-static", "old", epoch).with_instance_id(Some(text("two"))))?;
        side.beat("it leaves as another", 1, &one(heartbeat("cg-static", "new", STATIC_LEAVE)))?;
        side.beat("it leaves for a while", 1, &one(heartbeat("cg-static", "old", STATIC_LEAVE)))?;
        describe(side, "cg-static")?;
        side.beat("a heartbeat while it is away", 1, &one(heartbeat("cg-static", "old", epoch)))?;
        side.step("a commit while it is away", 9, &commit("cg-static", "old", epoch, "cg-static-topic"))?;
        let back = side.beat("it comes back", 1, &one(join("cg-static", "new", &["cg-static-topic"])))?;
        describe(side, "cg-static")?;
        side.beat("the old one", 1, &one(heartbeat("cg-static", "old", epoch)))?;
        side.beat("the old one without its name", 1, &heartbeat("cg-static", "old", epoch))?;
        side.step("the old one commits", 9, &commit("cg-static", "old", epoch, "cg-static-topic"))?;
        side.step(
            "the old one commits by its name",
            9,
            &commit("cg-static", "old", epoch, "cg-static-topic").with_group_instance_id(Some(text("one"))),
        )?;
        side.step("the new one commits", 9, &commit("cg-static", "new", back.member_epoch, "cg-static-topic"))?;
        side.beat("the old one leaves", 1, &one(heartbeat("cg-static", "old", LEAVE)))?;
        side.beat("it leaves for good", 1, &one(heartbeat("cg-static", "new", LEAVE)))?;
        describe(side, "cg-static")?;
        Ok(())
    });
}

#[test]
fn offsets_go_by_member_epochs() {
    compare(|side| {
        coordinated(side, "cg-epoch")?;
        side.topic("cg-epoch-topic", 2, &[])?;
        heard_of(side, "cg-epoch", "cg-epoch-topic", 2)?;
        let (epoch, _) = settled(side, "cg-epoch", "me", &["cg-epoch-topic"], 2)?;
        let cases = [
            ("its epoch", "me", epoch),
            ("a later epoch", "me", epoch + 1),
            ("an earlier epoch", "me", epoch - 1),
            ("no epoch", "me", -1),
            ("a stranger", "you", epoch),
            ("nobody", "", epoch),
            ("a tool", "", -1),
        ];
        for version in 2..=9 {
            for (what, member, epoch) in cases {
                side.step(format!("commit: {what}"), version, &commit("cg-epoch", member, epoch, "cg-epoch-topic"))?;
            }
        }
        for (what, member, epoch) in cases {
            side.step(format!("fetch: {what}"), 9, &fetch("cg-epoch", Some(member), epoch, "cg-epoch-topic"))?;
            side.step(format!("fetch: {what}, no group"), 9, &fetch("cg-nobody", Some(member), epoch, "cg-epoch-topic"))?;
            side.step(format!("commit: {what}, no group"), 9, &commit("cg-nobody-either", member, epoch, "cg-epoch-topic"))?;
        }
        side.step("fetch without a member", 9, &fetch("cg-epoch", None, -1, "cg-epoch-topic"))?;
        Ok(())
    });
}

#[test]
fn subscriptions_by_expression() {
    compare(|side| {
        coordinated(side, "cg-regex")?;
        for name in ["cg-regex-a", "cg-regex-b", "cg-other"] {
            side.topic(name, 2, &[])?;
        }
        let by = |member: &str, pattern: &str| {
            join("cg-regex", member, &[]).with_subscribed_topic_names(None).with_subscribed_topic_regex(Some(text(pattern)))
        };
        // Kafka resolves them in the background: what comes of it is looked at once it is there.
        side.quiet_beat(1, &by("me", "cg-regex-[a-z]"))?;
        side.wait_for("the expression is resolved", |side| {
            let full = by("me", "cg-regex-[a-z]").with_topic_partitions(owning(&[]));
            let answer = side.quiet_beat(1, &full)?;
            Ok(given(&answer).is_some_and(|given| given.len() == 2))
        })?;
        let answer = side.quiet_beat(1, &by("me", "cg-regex-[a-z]"))?;
        let (mut epoch, owned) = (answer.member_epoch, given(&answer).unwrap_or_default());
        describe_members(side, "cg-regex")?;
        // Nothing, taken back, and by name too.
        let mut said = heartbeat("cg-regex", "me", epoch).with_topic_partitions(owning(&owned));
        said.subscribed_topic_regex = Some(text(""));
        said.subscribed_topic_names = Some(vec![topic_name("cg-other")]);
        side.beat("by name now", 1, &said)?;
        for _ in 0..3 {
            epoch = side.quiet_beat(1, &heartbeat("cg-regex", "me", epoch).with_topic_partitions(owning(&[])))?.member_epoch;
        }
        describe_members(side, "cg-regex")?;
        Ok(())
    });
}

/// Members, without the group's epochs: how often Kafka raises those while it resolves expressions is chance.
fn describe_members(side: &mut Side, group: &str) -> Result<()> {
    let request = ConsumerGroupDescribeRequest::default().with_group_ids(vec![gid(group)]);
    side.step_with("describe", 1, &request, |answer| {
        for group in &mut answer.groups {
            (group.group_epoch, group.assignment_epoch) = (0, 0);
            group.members.iter_mut().for_each(|member| member.member_epoch = 0);
        }
    })?;
    Ok(())
}

#[test]
fn groups_that_are_not_there_are_not_described() {
    compare(|side| {
        coordinated(side, "cg-none")?;
        for version in 0..=1 {
            let ask = |names: &[&str]| ConsumerGroupDescribeRequest::default().with_group_ids(names.iter().map(|name| gid(name)).collect());
            side.step("none", version, &ask(&[]))?;
            side.step("some", version, &ask(&["cg-none", ""]))?;
            side.step("the same twice", version, &ask(&["cg-none", "cg-none"]))?;
        }
        Ok(())
    });
}
