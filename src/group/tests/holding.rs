//! Heartbeats of classic members whose answers are held back until the group rebalances.

use super::ctx::*;
use crate::{
    group::{classic::*, *},
    types::*,
};

/// Its heartbeats come every 3 s, and the last one is held.
fn held(ctx: &mut Ctx, joined: &Joined) -> Ticket {
    let from = ctx.identity(joined);
    held_from(ctx, &from)
}

fn held_from(ctx: &mut Ctx, from: &Identity) -> Ticket {
    let first = ctx.send_beat(from);
    assert_eq!(ctx.beaten(first), ErrorCode::None, "nothing is known of its interval");
    ctx.sleep(3_000);
    let second = ctx.send_beat(from);
    assert!(ctx.waits(second));
    second
}

/// A stable group of two, and nobody else's deadline is near.
fn two() -> (Ctx, Joined, Joined) {
    let mut ctx = Ctx::undelayed();
    let joined = ctx.stable(&[Join { session_timeout_ms: 30_000, ..join("a") }, Join { session_timeout_ms: 30_000, ..join("b") }]);
    let [a, b] = <[Joined; 2]>::try_from(joined).unwrap();
    (ctx, a, b)
}

#[test]
fn an_answer_that_says_nothing_is_held_back_for_its_time() {
    let (mut ctx, a, _) = two();
    let records = ctx.log.len();
    let ticket = held(&mut ctx, &a);
    assert_eq!(ctx.groups.next_deadline("g"), Some(ctx.now.steady.plus(2_700)));
    ctx.sleep(2_699);
    assert!(ctx.waits(ticket));
    ctx.sleep(1);
    assert_eq!(ctx.beaten(ticket), ErrorCode::None);
    ctx.sleep(300);
    let ticket = held_again(&mut ctx, &a);
    // The session counts from when it came, not from the answer.
    let ends = ctx.now.steady.plus(30_000);
    ctx.sleep(2_700);
    assert_eq!(ctx.beaten(ticket), ErrorCode::None);
    assert_eq!(ctx.classic().member(&a.member_id).unwrap().session_deadline(), Some(ends));
    assert_eq!(ctx.log.len(), records, "nothing of it is written");
}

fn held_again(ctx: &mut Ctx, joined: &Joined) -> Ticket {
    let from = ctx.identity(joined);
    let ticket = ctx.send_beat(&from);
    assert!(ctx.waits(ticket));
    ticket
}

#[test]
fn a_rebalance_is_heard_of_at_once() {
    let (mut ctx, a, b) = two();
    let ticket = held(&mut ctx, &a);
    ctx.send_join(join("c"));
    assert_eq!(ctx.beaten(ticket), ErrorCode::RebalanceInProgress, "one joins");
    let from = ctx.identity(&a);
    let next = ctx.send_beat(&from);
    assert_eq!(ctx.beaten(next), ErrorCode::RebalanceInProgress, "and none is held until that is over");

    let (mut ctx, a, b2) = two();
    assert_eq!(b.generation, b2.generation);
    let ticket = held(&mut ctx, &a);
    ctx.leave(&[(&b2.member_id, None)]);
    assert_eq!(ctx.beaten(ticket), ErrorCode::RebalanceInProgress, "one leaves");

    let (mut ctx, a, _) = two();
    ctx.sleep(24_000);
    let ticket = held(&mut ctx, &a);
    ctx.sleep(2_700);
    assert_eq!(ctx.beaten(ticket), ErrorCode::None);
    ctx.sleep(200);
    let ticket = held_again(&mut ctx, &a);
    ctx.sleep(100);
    assert_eq!((ctx.beaten(ticket), ctx.state()), (ErrorCode::RebalanceInProgress, State::PreparingRebalance), "one's session ends");

    let (mut ctx, a, b) = two();
    let ticket = held(&mut ctx, &b);
    ctx.send_join(Join { member_id: a.member_id.clone(), ..join("a") });
    assert_eq!(ctx.beaten(ticket), ErrorCode::RebalanceInProgress, "the leader wants one");
}

/// Members of an eager group stop reading when they hear of a rebalance: none does so for one that hears of it later.
#[test]
fn all_hear_together_if_not_all_are_held() {
    // Two of 3 s, the second one's heartbeats 1 s after the first one's.
    let begin = || {
        let (mut ctx, a, b) = two();
        let (from_a, from_b) = (ctx.identity(&a), ctx.identity(&b));
        ctx.send_beat(&from_a);
        ctx.sleep(1_000);
        ctx.send_beat(&from_b);
        ctx.sleep(2_000);
        let first = ctx.send_beat(&from_a);
        ctx.sleep(1_000);
        let second = ctx.send_beat(&from_b);
        assert!(ctx.waits(first) && ctx.waits(second));
        (ctx, a, b, first, second)
    };
    let (mut ctx, _, _, first, second) = begin();
    ctx.send_join(join("c"));
    assert_eq!((ctx.beaten(first), ctx.beaten(second)), (ErrorCode::RebalanceInProgress, ErrorCode::RebalanceInProgress));

    // The first one commits.
    let (mut ctx, _, _, first, second) = begin();
    ctx.release(first, false);
    ctx.send_join(join("c"));
    ctx.sleep(1_999);
    assert!(ctx.waits(second));
    ctx.sleep(1);
    assert_eq!(ctx.beaten(second), ErrorCode::RebalanceInProgress, "the first one's next is due");

    // The second one does.
    let (mut ctx, a, b, first, second) = begin();
    ctx.release(second, false);
    ctx.send_join(join("c"));
    ctx.sleep(1_699);
    assert!(ctx.waits(first));
    ctx.sleep(1);
    assert_eq!(ctx.beaten(first), ErrorCode::RebalanceInProgress, "it is held for no longer than it may be");
    assert_eq!(a.generation, b.generation);

    // It hears of it sooner than it is due.
    let (mut ctx, _, b, first, second) = begin();
    ctx.release(second, false);
    ctx.send_join(join("c"));
    assert!(ctx.waits(first));
    ctx.send_join(Join { member_id: b.member_id, ..join("b") });
    assert_eq!(ctx.beaten(first), ErrorCode::RebalanceInProgress);

    // Its commit comes while it is waited for.
    let (mut ctx, _, _, first, second) = begin();
    ctx.release(second, false);
    ctx.send_join(join("c"));
    ctx.release(first, false);
    assert_eq!(ctx.beaten(first), ErrorCode::RebalanceInProgress);
}

#[test]
fn the_interval_outlives_a_generation() {
    let (mut ctx, a, b) = two();
    held(&mut ctx, &a);
    let again = |joined: &Joined| Join { member_id: joined.member_id.clone(), session_timeout_ms: 30_000, ..join("x") };
    let tickets = [ctx.send_join(again(&a)), ctx.send_join(again(&b))];
    ctx.sleep(20_000);
    let joined = ctx.sync_all(&tickets);
    held_again(&mut ctx, &joined[0]);
}

#[test]
fn another_request_on_its_connection_lets_it_go() {
    let (mut ctx, a, _) = two();
    let ticket = held(&mut ctx, &a);
    ctx.release(ticket, false);
    assert_eq!(ctx.beaten(ticket), ErrorCode::None);
    let again = ctx.groups.decide_release(ctx.now, &group(), ticket, false);
    assert!(again.replies.is_empty(), "once");
    assert!(ctx.groups.decide_release(ctx.now, &"none".into(), ticket, false).replies.is_empty());
    ctx.sleep(3_000);
    held_again(&mut ctx, &a);
}

#[test]
fn one_that_gave_up_is_held_for_half_as_long() {
    let (mut ctx, a, _) = two();
    let ticket = held(&mut ctx, &a);
    ctx.sleep(1_000);
    ctx.release(ticket, true);
    // It tries again at once, on another connection.
    let ticket = held_again(&mut ctx, &a);
    ctx.sleep(499);
    assert!(ctx.waits(ticket));
    ctx.sleep(1);
    assert!(!ctx.waits(ticket));
}

#[test]
fn a_second_one_answers_the_first() {
    let (mut ctx, a, _) = two();
    let first = held(&mut ctx, &a);
    ctx.sleep(2_000);
    let second = held_again(&mut ctx, &a);
    assert_eq!(ctx.beaten(first), ErrorCode::None);
    assert_eq!(ctx.heartbeat(&a), ErrorCode::None, "from a connection whose client isn't held");
    assert_eq!(ctx.beaten(second), ErrorCode::None);
}

#[test]
fn whoever_is_taken_out_hears_of_it() {
    let (mut ctx, a, _) = two();
    let ticket = held(&mut ctx, &a);
    ctx.leave(&[(&a.member_id, None)]);
    assert_eq!(ctx.beaten(ticket), ErrorCode::UnknownMemberId);

    let mut ctx = Ctx::undelayed();
    let joined = ctx.stable(&[static_join("i"), join("b")]);
    for (instance_id, told) in [(Some("i".into()), ErrorCode::FencedInstanceId), (None, ErrorCode::UnknownMemberId)] {
        let member_id = ctx.classic().statics.get("i").unwrap().clone();
        let from = Identity { instance_id, member_id, ..ctx.identity(&joined[0]) };
        let ticket = held_from(&mut ctx, &from);
        ctx.join_now(static_join("i"));
        assert_eq!(ctx.beaten(ticket), told, "a twin has taken its place");
    }
}

#[test]
fn a_clock_that_jumps_leaves_nobody_waiting() {
    let (mut ctx, a, _) = two();
    let ticket = held(&mut ctx, &a);
    ctx.now.wall = Millis(0);
    ctx.tick();
    assert!(ctx.waits(ticket), "deadlines go by the other clock");
    ctx.now.steady = ctx.now.steady.plus(3_600_000);
    ctx.tick();
    assert_eq!((ctx.beaten(ticket), ctx.state()), (ErrorCode::UnknownMemberId, State::Empty));
}

#[test]
fn who_is_not_held() {
    let not_held = |settings: Settings, join: Join| {
        let mut ctx = Ctx::new(Settings { group_initial_rebalance_delay_ms: 0, ..settings });
        let a = ctx.stable(&[join]).remove(0);
        let from = ctx.identity(&a);
        for _ in 0..3 {
            ctx.sleep(3_000);
            let ticket = ctx.send_beat(&from);
            assert_eq!(ctx.beaten(ticket), ErrorCode::None);
        }
    };
    not_held(Settings { group_classic_heartbeat_hold_max_ms: 0, ..Settings::default() }, join("a"));
    not_held(Settings::default(), Join { protocols: protocols(&["stream"]), ..join("a") });

    let mut ctx = Ctx::undelayed();
    let crowd: Vec<Join> = (0..=1_000).map(|_| join("a")).collect();
    let joined = ctx.stable(&crowd);
    let from = ctx.identity(&joined[0]);
    for _ in 0..3 {
        ctx.sleep(3_000);
        let ticket = ctx.send_beat(&from);
        assert_eq!(ctx.beaten(ticket), ErrorCode::None, "a large group");
    }
}

/// One may send heartbeats as soon as it has joined; there is nothing to be heard of yet but the end of that.
#[test]
fn none_is_held_before_there_is_an_assignment() {
    let (mut ctx, a, _) = two();
    held(&mut ctx, &a);
    let c = ctx.send_join(join("c"));
    ctx.sleep(30_000);
    let c = ctx.joined(c);
    assert_eq!(ctx.state(), State::CompletingRebalance);
    let from = ctx.identity(&c);
    for _ in 0..3 {
        let ticket = ctx.send_beat(&from);
        assert_eq!(ctx.beaten(ticket), ErrorCode::None);
        ctx.sleep(3_000);
    }
}

/// Clients that count their interval from the answer come later for it, and nobody's session ends.
#[test]
fn sessions_hold_however_clients_count() {
    for (session_timeout_ms, interval_ms) in [(6_000, 3_000), (6_000, 5_000), (10_000, 3_000)] {
        let mut ctx = Ctx::undelayed();
        let a = ctx.stable(&[Join { session_timeout_ms, ..join("a") }]).remove(0);
        let from = ctx.identity(&a);
        let mut waited = 0;
        for _ in 0..100 {
            let ticket = ctx.send_beat(&from);
            while ctx.waits(ticket) {
                ctx.sleep(10);
                waited += 1;
            }
            assert_eq!(ctx.beaten(ticket), ErrorCode::None);
            ctx.sleep(interval_ms);
        }
        assert_eq!((waited > 0, ctx.state()), (true, State::Stable), "{session_timeout_ms} {interval_ms}");
    }
}
