//! JoinGroup: ids, the first rebalance's delay, votes, limits, and who has to come back.

use super::ctx::*;
use crate::{
    group::{classic::*, *},
    types::*,
};

#[test]
fn a_new_member_gets_an_id_and_is_none_until_it_comes_back() {
    let mut ctx = Ctx::undelayed();
    let first = ctx.join_now(Join { requires_known_member_id: true, ..join("a") });
    assert_eq!((first.error, &*first.member_id), (ErrorCode::MemberIdRequired, "a-1"));
    assert_eq!((ctx.state(), ctx.member_ids().len()), (State::Empty, 0));
    let second = ctx.join_now(Join { member_id: first.member_id.clone(), requires_known_member_id: true, ..join("a") });
    assert_eq!((second.error, second.generation, &second.leader), (ErrorCode::None, Generation(1), &first.member_id));
    assert_eq!(second.members.len(), 1);
    assert_eq!(second.protocol.as_deref(), Some("range"));
}

#[test]
fn an_id_that_nobody_comes_back_with_is_forgotten_with_its_group() {
    let mut ctx = Ctx::undelayed();
    let given = ctx.join_now(Join { requires_known_member_id: true, ..join("a") });
    ctx.sleep(10_001);
    assert!(ctx.groups.is_empty());
    let late = ctx.join_now(Join { member_id: given.member_id, ..join("a") });
    assert_eq!(late.error, ErrorCode::UnknownMemberId);
    assert!(ctx.groups.is_empty() && ctx.log.is_empty());
}

#[test]
fn a_pending_id_holds_up_the_rebalance_until_its_session_ends() {
    let mut ctx = Ctx::undelayed();
    let a = ctx.stable(&[join("a")]).remove(0);
    ctx.join_now(Join { requires_known_member_id: true, session_timeout_ms: 7_000, ..join("b") });
    let again = ctx.send_join(Join { member_id: a.member_id, ..join("a") });
    assert!(ctx.waits(again));
    ctx.sleep(6_999);
    assert!(ctx.waits(again));
    ctx.sleep(1);
    assert_eq!(ctx.joined(again).generation, Generation(2));
}

#[test]
fn the_first_rebalance_waits_and_waits_longer_while_members_come() {
    let mut ctx = Ctx::new(Settings::default());
    let a = ctx.send_join(join("a"));
    ctx.sleep(2_000);
    let b = ctx.send_join(join("b"));
    ctx.sleep(2_999);
    assert!(ctx.waits(a) && ctx.waits(b), "extended by one delay");
    ctx.sleep(1_001);
    let (a, b) = (ctx.joined(a), ctx.joined(b));
    assert_eq!((a.generation, a.members.len(), b.members.len()), (Generation(1), 2, 0));
    assert_eq!(a.leader, b.leader);
}

#[test]
fn the_delay_is_never_longer_than_the_rebalance_timeout() {
    let mut ctx = Ctx::new(Settings::default());
    let hasty = |name: &str| Join { rebalance_timeout_ms: 7_000, ..join(name) };
    let first = ctx.send_join(hasty("a"));
    for i in 0..6 {
        ctx.sleep(1_000);
        ctx.send_join(hasty(&format!("m{i}")));
    }
    ctx.sleep(1_000);
    assert_eq!(ctx.joined(first).members.len(), 7);
}

#[test]
fn the_protocol_that_all_support_and_most_prefer_is_chosen() {
    let mut ctx = Ctx::undelayed();
    let joins =
        [["sticky", "range"], ["range", "sticky"], ["range", "sticky"]].map(|names| Join { protocols: protocols(&names), ..join("m") });
    let tickets = joins.map(|join| ctx.send_join(join));
    ctx.sleep(0);
    assert_eq!(ctx.joined(tickets[0]).protocol.as_deref(), Some("range"));
    let other = ctx.join_now(Join { protocols: protocols(&["roundrobin"]), ..join("x") });
    assert_eq!(other.error, ErrorCode::InconsistentGroupProtocol);
    let other = ctx.join_now(Join { protocol_type: "connect".into(), ..join("x") });
    assert_eq!(other.error, ErrorCode::InconsistentGroupProtocol);
    let none = ctx.join_now(Join { protocols: protocols(&[]), ..join("x") });
    assert_eq!(none.error, ErrorCode::InconsistentGroupProtocol);
}

#[test]
fn session_timeouts_have_bounds() {
    let mut ctx = Ctx::undelayed();
    for ms in [-1, 0, 5_999, 1_800_001] {
        assert_eq!(ctx.join_now(Join { session_timeout_ms: ms, ..join("a") }).error, ErrorCode::InvalidSessionTimeout, "{ms}");
    }
}

#[test]
fn a_full_group_turns_new_members_away_and_keeps_its_own() {
    let mut ctx = Ctx::new(Settings { group_max_size: 2, group_initial_rebalance_delay_ms: 0, ..Settings::default() });
    let members = ctx.stable(&[join("a"), join("b")]);
    let third = ctx.join_now(join("c"));
    assert_eq!((third.error, &*third.member_id), (ErrorCode::GroupMaxSizeReached, ""));
    assert_eq!(ctx.state(), State::Stable);
    let tickets: Vec<_> = members.iter().map(|m| ctx.send_join(Join { member_id: m.member_id.clone(), ..join("again") })).collect();
    assert_eq!(ctx.joined(tickets[1]).generation, Generation(2));
}

#[test]
fn a_group_that_became_too_large_shrinks_after_a_restart() {
    let mut ctx = Ctx::undelayed();
    let members = ctx.stable(&[join("a"), join("b"), join("c")]);
    ctx.groups = Groups::new(Settings { group_max_size: 2, ..*ctx.groups.settings() });
    ctx.restart();
    assert_eq!(ctx.state(), State::PreparingRebalance);
    let tickets: Vec<_> = members.iter().map(|m| ctx.send_join(Join { member_id: m.member_id.clone(), ..join("again") })).collect();
    assert_eq!(ctx.joined(tickets[2]).error, ErrorCode::GroupMaxSizeReached);
    assert_eq!(ctx.joined(tickets[0]).error, ErrorCode::None);
    assert_eq!(ctx.member_ids().len(), 2);
}

#[test]
fn members_that_do_not_come_back_in_time_are_out() {
    let mut ctx = Ctx::undelayed();
    let members = ctx.stable(&[join("a"), Join { session_timeout_ms: 90_000, ..join("b") }]);
    let c = ctx.send_join(join("c"));
    assert_eq!(ctx.heartbeat(&members[0]), ErrorCode::RebalanceInProgress, "and it counts as alive");
    let a = ctx.send_join(Join { member_id: members[0].member_id.clone(), ..join("a") });
    ctx.sleep(59_999);
    assert!(ctx.waits(a) && ctx.waits(c));
    ctx.sleep(1);
    assert_eq!((ctx.joined(a).generation, ctx.joined(c).error), (Generation(2), ErrorCode::None));
    assert_eq!(ctx.heartbeat(&members[1]), ErrorCode::UnknownMemberId);
}

#[test]
fn a_leader_that_does_not_come_back_is_replaced() {
    let mut ctx = Ctx::undelayed();
    let members = ctx.stable(&[Join { session_timeout_ms: 90_000, ..join("a") }, join("b")]);
    assert_eq!(members[0].leader, members[0].member_id);
    let again = Join { member_id: members[1].member_id.clone(), protocols: protocols(&["range", "new"]), ..join("b") };
    let b = ctx.send_join(again);
    ctx.sleep(60_000);
    let b = ctx.joined(b);
    assert_eq!((b.leader, b.members.len()), (members[1].member_id.clone(), 1));
}

#[test]
fn a_follower_that_joins_again_unchanged_causes_no_rebalance_but_a_leader_does() {
    let mut ctx = Ctx::undelayed();
    let members = ctx.stable(&[join("a"), join("b")]);
    let follower = ctx.join_now(Join { member_id: members[1].member_id.clone(), ..join("b") });
    assert_eq!((follower.error, follower.generation, ctx.state()), (ErrorCode::None, Generation(1), State::Stable));
    let leader = ctx.send_join(Join { member_id: members[0].member_id.clone(), ..join("a") });
    assert!(ctx.waits(leader));
    assert_eq!(ctx.state(), State::PreparingRebalance);
    assert!(matches!(ctx.notes.last(), Some(Note::Preparing { cause: Cause::LeaderRejoined { .. }, .. })));
}

#[test]
fn a_join_that_is_sent_again_replaces_the_first_one() {
    let mut ctx = Ctx::undelayed();
    let members = ctx.stable(&[join("a"), join("b")]);
    let again = Join { member_id: members[0].member_id.clone(), ..join("a") };
    let (first, second) = (ctx.send_join(again.clone()), ctx.send_join(again));
    assert_eq!(ctx.joined(first).error, ErrorCode::RebalanceInProgress);
    assert!(ctx.waits(second));
}

#[test]
fn in_completing_rebalance_a_lost_answer_is_given_again() {
    let mut ctx = Ctx::undelayed();
    let a = ctx.join_now(join("a"));
    let again = ctx.join_now(Join { member_id: a.member_id.clone(), ..join("a") });
    assert_eq!(again, a);
}

#[test]
fn a_new_member_whose_client_is_gone_is_given_up_after_five_minutes() {
    let mut ctx = Ctx::undelayed();
    let slow = Join { rebalance_timeout_ms: 1_000_000, session_timeout_ms: 1_000_000, ..join("a") };
    let members = ctx.stable(std::slice::from_ref(&slow));
    let gone = ctx.send_join(join("b"));
    ctx.sleep(299_999);
    assert!(ctx.waits(gone));
    ctx.sleep(1);
    assert_eq!(ctx.joined(gone).error, ErrorCode::UnknownMemberId);
    let back = ctx.join_now(Join { member_id: members[0].member_id.clone(), ..slow });
    assert_eq!((back.generation, back.members.len()), (Generation(2), 1));
}

#[test]
fn a_refused_join_leaves_nothing_behind() {
    let mut ctx = Ctx::undelayed();
    assert_eq!(ctx.join_now(Join { protocols: protocols(&[]), ..join("a") }).error, ErrorCode::InconsistentGroupProtocol);
    assert_eq!(ctx.join_now(Join { member_id: "x".into(), ..join("a") }).error, ErrorCode::UnknownMemberId);
    assert!(ctx.groups.is_empty() && ctx.log.is_empty());
}

#[test]
fn a_group_of_a_thousand_is_stable_in_one_generation_and_after_a_restart() {
    let mut ctx = Ctx::undelayed();
    let joins: Vec<_> = (0..1_000).map(|i| if i % 2 == 0 { join(&format!("m{i}")) } else { static_join(&format!("m{i}")) }).collect();
    let members = ctx.stable(&joins);
    assert!(members.iter().all(|member| member.generation == Generation(1)));
    ctx.restart();
    assert!(members.iter().all(|member| ctx.heartbeat(member) == ErrorCode::None));
    assert_eq!((ctx.state(), ctx.member_ids().len(), ctx.log.len()), (State::Stable, 1_000, 1));
}
