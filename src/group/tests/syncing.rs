//! SyncGroup, Heartbeat, and what is left after a restart.

use super::ctx::*;
use crate::{
    group::{classic::*, *},
    types::*,
};
use bytes::Bytes;

#[test]
fn only_the_leaders_assignment_counts_and_all_wait_for_it() {
    let mut ctx = Ctx::undelayed();
    let tickets = ["a", "b", "c"].map(|name| ctx.send_join(join(name)));
    ctx.sleep(0);
    let [a, b, c] = tickets.map(|ticket| ctx.joined(ticket));
    let b_sync = ctx.sync(&b, &[(&b.member_id, "mine")]);
    assert!(ctx.waits(b_sync));
    assert_eq!(ctx.heartbeat(&b), ErrorCode::None);
    let a_sync = ctx.sync(&a, &[(&a.member_id, "for a"), (&b.member_id, "for b")]);
    assert_eq!(ctx.synced(a_sync).assignment, "for a");
    assert_eq!(ctx.synced(b_sync).assignment, "for b");
    let c_sync = ctx.sync(&c, &[]);
    let forgotten = ctx.synced(c_sync);
    assert_eq!((forgotten.error, forgotten.assignment), (ErrorCode::None, Bytes::new()));
    assert_eq!(ctx.synced(b_sync).protocol.as_deref(), Some("range"));
    assert_eq!(ctx.log.len(), 1, "one record a rebalance");
}

#[test]
fn wrong_generations_members_and_protocols_are_told_so() {
    let mut ctx = Ctx::undelayed();
    let a = ctx.join_now(join("a"));
    let wrong = Joined { generation: Generation(7), ..a.clone() };
    let ticket = ctx.sync(&wrong, &[]);
    assert_eq!(ctx.synced(ticket).error, ErrorCode::IllegalGeneration);
    let ticket = ctx.sync(&Joined { member_id: "x".into(), ..a.clone() }, &[]);
    assert_eq!(ctx.synced(ticket).error, ErrorCode::UnknownMemberId);
    let from = ctx.identity(&a);
    let other = Sync { from, protocol_type: None, protocol: Some("sticky".into()), assignments: Default::default(), ticket: Ticket(0) };
    let ticket = ctx.send_sync(other);
    assert_eq!(ctx.synced(ticket).error, ErrorCode::InconsistentGroupProtocol);
    assert_eq!(ctx.heartbeat(&wrong), ErrorCode::IllegalGeneration);
    let from = Identity { group: "nowhere".into(), ..ctx.identity(&a) };
    assert_eq!(ctx.heartbeat_from(&from), ErrorCode::UnknownMemberId);
}

#[test]
fn a_member_that_joins_but_never_syncs_is_removed() {
    let mut ctx = Ctx::undelayed();
    let slow = |name| Join { session_timeout_ms: 100_000, ..join(name) };
    let tickets = ["a", "b"].map(|name| ctx.send_join(slow(name)));
    ctx.sleep(0);
    let [a, b] = tickets.map(|ticket| ctx.joined(ticket));
    ctx.sync(&a, &[]);
    assert_eq!(ctx.state(), State::Stable);
    ctx.sleep(59_999);
    assert_eq!(ctx.state(), State::Stable);
    ctx.sleep(1);
    assert_eq!(ctx.state(), State::PreparingRebalance);
    assert_eq!(ctx.heartbeat(&b), ErrorCode::UnknownMemberId);
    assert_eq!(ctx.heartbeat(&a), ErrorCode::RebalanceInProgress);
}

#[test]
fn a_leader_that_never_syncs_does_not_hold_the_others_for_ever() {
    let mut ctx = Ctx::undelayed();
    let tickets = ["a", "b"].map(|name| ctx.send_join(join(name)));
    ctx.sleep(0);
    let [a, b] = tickets.map(|ticket| ctx.joined(ticket));
    let waiting = ctx.sync(&b, &[]);
    ctx.sleep(10_000);
    assert_eq!(ctx.synced(waiting).error, ErrorCode::RebalanceInProgress, "the leader's session ended");
    let b = ctx.join_now(Join { member_id: b.member_id, ..join("b") });
    assert_eq!((b.generation, &b.leader, b.members.len()), (Generation(2), &b.member_id, 1));
    assert_eq!(ctx.heartbeat(&a), ErrorCode::UnknownMemberId);
}

#[test]
fn a_rebalance_that_begins_during_another_sends_waiting_members_back() {
    let mut ctx = Ctx::undelayed();
    let tickets = ["a", "b"].map(|name| ctx.send_join(join(name)));
    ctx.sleep(0);
    let [_, b] = tickets.map(|ticket| ctx.joined(ticket));
    let waiting = ctx.sync(&b, &[]);
    ctx.send_join(join("c"));
    assert_eq!(ctx.synced(waiting).error, ErrorCode::RebalanceInProgress);
    let late = ctx.sync(&b, &[]);
    assert_eq!(ctx.synced(late).error, ErrorCode::RebalanceInProgress);
}

#[test]
fn an_assignment_that_cannot_be_written_is_not_given_out() {
    let mut ctx = Ctx::undelayed();
    let tickets = ["a", "b"].map(|name| ctx.send_join(join(name)));
    ctx.sleep(0);
    let [a, b] = tickets.map(|ticket| ctx.joined(ticket));
    let waiting = ctx.sync(&b, &[]);
    let sync = Sync { from: ctx.identity(&a), protocol_type: None, protocol: None, assignments: Default::default(), ticket: Ticket(99) };
    drop(ctx.groups.decide_sync(ctx.now, &sync));
    assert_eq!(ctx.state(), State::CompletingRebalance, "a decision that is dropped changed nothing");
    let decision = ctx.groups.decide_assignment_not_stored(ctx.now, &group(), Generation(1), ErrorCode::CoordinatorNotAvailable);
    ctx.apply(decision);
    assert_eq!(ctx.synced(waiting).error, ErrorCode::CoordinatorNotAvailable);
    assert_eq!((ctx.state(), ctx.log.len()), (State::PreparingRebalance, 0));
}

#[test]
fn sessions_end_without_heartbeats_and_not_with_them() {
    let mut ctx = Ctx::undelayed();
    let members = ctx.stable(&[join("a"), join("b")]);
    for _ in 0..10 {
        ctx.sleep(9_000);
        members.iter().for_each(|m| assert_eq!(ctx.heartbeat(m), ErrorCode::None));
    }
    ctx.sleep(9_999);
    assert_eq!(ctx.heartbeat(&members[0]), ErrorCode::None);
    ctx.sleep(1);
    assert_eq!(ctx.heartbeat(&members[0]), ErrorCode::RebalanceInProgress);
    assert_eq!(ctx.member_ids(), [&*members[0].member_id]);
}

#[test]
fn when_the_last_session_ends_the_group_is_empty_in_a_new_generation() {
    let mut ctx = Ctx::undelayed();
    ctx.stable(&[join("a")]);
    ctx.sleep(10_000);
    assert_eq!((ctx.state(), ctx.classic().generation()), (State::Empty, Generation(2)));
    assert_eq!(ctx.replayed().get("g").unwrap().classic().unwrap().to_metadata(), ctx.classic().to_metadata());
}

#[test]
fn after_a_restart_members_go_on_without_a_rebalance() {
    let mut ctx = Ctx::undelayed();
    let members = ctx.stable(&[join("a"), join("b")]);
    ctx.restart();
    assert_eq!(ctx.state(), State::Stable);
    members.iter().for_each(|m| assert_eq!(ctx.heartbeat(m), ErrorCode::None));
    let ticket = ctx.sync(&members[1], &[]);
    assert_eq!(ctx.synced(ticket).assignment, members[1].member_id.as_bytes());
    ctx.sleep(9_999);
    assert_eq!(ctx.state(), State::Stable, "sessions began anew");
    ctx.sleep(1);
    assert_eq!(ctx.state(), State::Empty);
}

#[test]
fn a_restart_during_a_rebalance_goes_back_to_the_last_stable_generation() {
    let mut ctx = Ctx::undelayed();
    let members = ctx.stable(&[join("a")]);
    ctx.send_join(join("b"));
    let again = ctx.send_join(Join { member_id: members[0].member_id.clone(), ..join("a") });
    let unfinished = ctx.joined(again);
    assert_eq!(unfinished.generation, Generation(2));
    ctx.restart();
    assert_eq!((ctx.state(), ctx.classic().generation()), (State::Stable, Generation(1)));
    assert_eq!(ctx.heartbeat(&unfinished), ErrorCode::IllegalGeneration);
    assert_eq!(ctx.heartbeat(&members[0]), ErrorCode::None);
}
