//! Static members (KIP-345, KIP-814): they come back without a rebalance, and their former selves are fenced.

use super::ctx::*;
use crate::{
    group::{classic::*, *},
    types::*,
};
use bytes::Bytes;

#[test]
fn a_static_member_comes_back_without_a_rebalance() {
    let mut ctx = Ctx::undelayed();
    let members = ctx.stable(&[static_join("one"), static_join("two")]);
    let back = ctx.join_now(static_join("two"));
    assert_eq!((back.error, back.generation, ctx.state()), (ErrorCode::None, Generation(1), State::Stable));
    assert_ne!(back.member_id, members[1].member_id);
    assert_eq!((&back.leader, back.skip_assignment, back.members.len()), (&members[0].member_id, false, 0));
    let ticket = ctx.sync(&back, &[]);
    assert_eq!(ctx.synced(ticket).assignment, members[1].member_id.as_bytes(), "what its former self had");
    assert_eq!(ctx.heartbeat(&members[0]), ErrorCode::None);
    assert_eq!(ctx.replayed().get("g").unwrap().classic().unwrap().to_metadata(), ctx.classic().to_metadata());
}

#[test]
fn a_static_leader_comes_back_and_is_told_not_to_assign() {
    let mut ctx = Ctx::undelayed();
    ctx.stable(&[static_join("one"), static_join("two")]);
    let back = ctx.join_now(static_join("one"));
    assert_eq!((&back.leader, back.skip_assignment, back.members.len()), (&back.member_id, true, 2));
    assert_eq!(ctx.state(), State::Stable);
}

#[test]
fn a_static_leader_of_old_believes_that_it_is_a_follower() {
    let mut ctx = Ctx::undelayed();
    let members = ctx.stable(&[static_join("one"), static_join("two")]);
    let back = ctx.join_now(Join { supports_skipping_assignment: false, ..static_join("one") });
    assert_eq!((&back.leader, back.skip_assignment, back.members.len()), (&members[0].member_id, false, 0));
    assert_eq!(ctx.classic().leader(), Some(&back.member_id));
}

#[test]
fn its_former_self_is_fenced_in_every_request() {
    let mut ctx = Ctx::undelayed();
    let old = ctx.stable(&[static_join("one"), static_join("two")]).remove(1);
    let new = ctx.join_now(static_join("two"));
    let from = Identity { instance_id: Some("two".into()), ..ctx.identity(&old) };
    assert_eq!(ctx.heartbeat_from(&from), ErrorCode::FencedInstanceId);
    let sync = Sync { from: from.clone(), protocol_type: None, protocol: None, assignments: Default::default(), ticket: Ticket(0) };
    let ticket = ctx.send_sync(sync);
    assert_eq!(ctx.synced(ticket).error, ErrorCode::FencedInstanceId);
    assert_eq!(ctx.commit_from(from, "t", 5), Err(ErrorCode::FencedInstanceId));
    assert_eq!(ctx.leave(&[(&old.member_id, Some("two"))]), [ErrorCode::FencedInstanceId]);
    let again = ctx.join_now(Join { member_id: old.member_id.clone(), ..static_join("two") });
    assert_eq!(again.error, ErrorCode::FencedInstanceId);
    // Without its instance it is nobody.
    assert_eq!(ctx.heartbeat(&old), ErrorCode::UnknownMemberId);
    let unknown = Identity { instance_id: Some("three".into()), ..ctx.identity(&new) };
    assert_eq!(ctx.heartbeat_from(&unknown), ErrorCode::UnknownMemberId);
    assert_eq!(ctx.heartbeat(&new), ErrorCode::None);
}

#[test]
fn a_duplicate_that_waits_is_fenced_at_once_and_both_are_named() {
    let mut ctx = Ctx::new(Settings::default());
    let first = ctx.send_join(static_join("one"));
    let second = ctx.send_join(Join { client_host: "/10.0.0.9".into(), ..static_join("one") });
    assert_eq!(ctx.joined(first).error, ErrorCode::FencedInstanceId);
    assert!(ctx.waits(second));
    assert!(
        matches!(ctx.notes.last(), Some(Note::Fenced { old, new, .. }) if &*old.member == "one-1" && &*new.member == "one-2" && &*new.host == "/10.0.0.9")
    );
    ctx.sleep(3_000);
    assert_eq!(ctx.joined(second).members.len(), 1);
}

#[test]
fn one_that_changes_the_choice_of_protocol_causes_a_rebalance() {
    let mut ctx = Ctx::undelayed();
    let both = protocols(&["range", "sticky"]);
    let members = ctx.stable(&[static_join("one"), static_join("two")].map(|j| Join { protocols: both.clone(), ..j }));
    let back = ctx.send_join(Join { protocols: protocols(&["sticky"]), ..static_join("two") });
    assert!(ctx.waits(back));
    let again = Join { member_id: members[0].member_id.clone(), protocols: both, ..static_join("one") };
    ctx.join_now(again);
    assert_eq!((ctx.joined(back).protocol.as_deref(), ctx.joined(back).generation), (Some("sticky"), Generation(2)));
}

/// Seed 5195 of both protocols' simulation: what a leader was new to was read by nobody, since it is told not to assign.
#[test]
fn one_that_subscribes_to_other_topics_causes_a_rebalance() {
    let subscribed = |instance: &str, topics: &[&str]| {
        let range = Protocol { name: "range".into(), metadata: subscription(topics) };
        Join { protocols: [range].into(), ..static_join(instance) }
    };
    let mut ctx = Ctx::undelayed();
    let joined = ctx.stable(&[subscribed("one", &["t"]), subscribed("two", &["t", "u"])]);
    // The same topics in another order are the same.
    let back = ctx.join_now(subscribed("two", &["u", "t"]));
    assert_eq!((back.generation, ctx.state()), (Generation(1), State::Stable));
    let leader = ctx.send_join(subscribed("one", &["t", "v"]));
    assert_eq!((ctx.heartbeat(&back), ctx.waits(leader)), (ErrorCode::RebalanceInProgress, true));
    assert_ne!(joined[0].member_id, *ctx.classic().leader().unwrap());
    let two = ctx.join_now(Join { member_id: back.member_id, ..subscribed("two", &["t", "u"]) });
    let one = ctx.joined(leader);
    assert_eq!((one.generation, two.generation, one.skip_assignment, &one.leader), (Generation(2), Generation(2), false, &one.member_id));
    // Fewer are others, too; and so after a restart, when only what the group chose is known.
    ctx.sync_all(&[leader]);
    ctx.restart();
    let fewer = ctx.send_join(subscribed("one", &["v"]));
    assert_eq!((ctx.state(), ctx.waits(fewer)), (State::PreparingRebalance, true));
}

/// What isn't a subscription is compared as Kafka does: not at all.
#[test]
fn one_whose_metadata_is_no_subscription_comes_back_without_a_rebalance() {
    let with = |metadata: &'static [u8]| {
        let range = Protocol { name: "range".into(), metadata: Bytes::from_static(metadata) };
        Join { protocols: [range].into(), ..static_join("one") }
    };
    let mut ctx = Ctx::undelayed();
    ctx.stable(&[with(b"a worker's url")]);
    for other in [&b"another's"[..], b"", b"\0\0\0\0\0\0\xff\xff\xff\xff"] {
        assert_eq!((ctx.join_now(with(other)).generation, ctx.state()), (Generation(1), State::Stable));
    }
}

#[test]
fn one_that_comes_back_while_the_leader_assigns_causes_a_rebalance() {
    let mut ctx = Ctx::undelayed();
    let tickets = ["one", "two"].map(|name| ctx.send_join(static_join(name)));
    ctx.sleep(0);
    let [one, _] = tickets.map(|ticket| ctx.joined(ticket));
    let back = ctx.send_join(static_join("two"));
    assert_eq!(ctx.state(), State::PreparingRebalance);
    let sync = ctx.sync(&one, &[]);
    assert_eq!(ctx.synced(sync).error, ErrorCode::RebalanceInProgress);
    ctx.join_now(Join { member_id: one.member_id, ..static_join("one") });
    assert_eq!(ctx.joined(back).generation, Generation(2));
}

#[test]
fn a_static_member_that_is_away_keeps_its_place_until_its_session_ends() {
    let mut ctx = Ctx::undelayed();
    let join_two = Join { session_timeout_ms: 100_000, ..static_join("two") };
    let members = ctx.stable(&[static_join("one"), join_two]);
    // A third comes: the rebalance waits for `two`, then goes on with it as a member that is away.
    let three = ctx.send_join(static_join("three"));
    ctx.send_join(Join { member_id: members[0].member_id.clone(), ..static_join("one") });
    ctx.sleep(60_000);
    assert_eq!(ctx.joined(three).error, ErrorCode::None);
    assert_eq!(ctx.member_ids().len(), 3);
}

#[test]
fn when_no_static_member_comes_back_the_rebalance_waits_for_their_sessions() {
    let mut ctx = Ctx::undelayed();
    let members = ctx.stable(&[Join { session_timeout_ms: 200_000, ..static_join("one") }, join("two")]);
    assert_eq!(ctx.leave(&[(&members[1].member_id, None)]), [ErrorCode::None]);
    ctx.sleep(60_000);
    assert_eq!(ctx.state(), State::PreparingRebalance);
    assert!(ctx.notes.iter().any(|note| matches!(note, Note::NobodyJoined { .. })));
    ctx.sleep(150_000);
    assert_eq!(ctx.state(), State::Empty);
}

#[test]
fn static_members_survive_a_restart() {
    let mut ctx = Ctx::undelayed();
    let members = ctx.stable(&[static_join("one"), static_join("two")]);
    ctx.restart();
    let back = ctx.join_now(static_join("two"));
    assert_eq!((back.error, back.generation, ctx.state()), (ErrorCode::None, Generation(1), State::Stable));
    let ticket = ctx.sync(&back, &[]);
    assert_eq!(ctx.synced(ticket).assignment, members[1].member_id.as_bytes());
}
