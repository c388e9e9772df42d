//! Static members of consumer groups.

use super::*;

fn away(id: &str, instance: &str) -> Heartbeat {
    Heartbeat { instance_id: Some(instance.into()), ..beat(id, -2) }
}

fn two() -> Kip {
    let mut kip = Kip::new(4);
    kip.ok(static_joining("a", "i"));
    kip.ok(static_joining("b", "j"));
    let of_a = |owned| Heartbeat { instance_id: Some("i".into()), owned, ..beat("a", 2) };
    kip.ok(of_a(None));
    assert_eq!(kip.ok(of_a(Some(of_t(0..2)))).0, 3);
    assert_eq!(kip.ok(Heartbeat { instance_id: Some("j".into()), ..beat("b", 3) }), (3, Some(vec![2, 3])));
    kip
}

#[test]
fn one_that_comes_back_has_what_it_had_and_nobody_else_notices() {
    let mut kip = two();
    assert_eq!(kip.ok(away("a", "i")), (-2, None));
    assert_eq!(kip.ok(beat("b", 3)), (3, None));
    kip.sleep(44_000);
    kip.ok(beat("b", 3));
    assert_eq!(kip.ok(static_joining("a2", "i")), (3, Some(vec![0, 1])));
    assert_eq!(kip.ok(beat("b", 3)), (3, None));
    assert_eq!(kip.consumer().epoch(), Epoch(3), "no rebalance");
    kip.check_replay();
}

#[test]
fn one_that_stays_away_is_out() {
    let mut kip = two();
    kip.ok(away("a", "i"));
    kip.sleep(40_000);
    kip.ok(beat("b", 3));
    kip.sleep(5_000);
    assert_eq!(kip.ok(beat("b", 3)), (4, Some(vec![0, 1, 2, 3])));
    kip.check_replay();
}

#[test]
fn a_name_in_use_is_not_given_away_and_the_old_holder_is_fenced() {
    let mut kip = two();
    let log = kip.log.len();
    let told = kip.heartbeat_now(static_joining("a2", "i"));
    assert_eq!(told.error, ErrorCode::UnreleasedInstanceId);
    assert_eq!(kip.log.len(), log);
    kip.ok(away("a", "i"));
    kip.ok(static_joining("a2", "i"));
    assert_eq!(kip.refused(Heartbeat { instance_id: Some("i".into()), ..beat("a", 3) }), ErrorCode::FencedInstanceId);
    assert_eq!(kip.refused(away("a", "i")), ErrorCode::FencedInstanceId);
    assert_eq!(kip.refused(Heartbeat { instance_id: Some("none".into()), ..beat("b", 3) }), ErrorCode::UnknownMemberId);
}

#[test]
fn one_may_leave_for_good() {
    let mut kip = two();
    kip.ok(Heartbeat { instance_id: Some("i".into()), ..beat("a", -1) });
    assert_eq!(kip.ok(beat("b", 3)), (4, Some(vec![0, 1, 2, 3])));
}

#[test]
fn what_it_was_to_let_go_is_free_when_it_goes_away() {
    let mut kip = Kip::new(4);
    kip.ok(static_joining("a", "i"));
    kip.ok(joining("b"));
    kip.ok(Heartbeat { instance_id: Some("i".into()), ..beat("a", 2) });
    kip.ok(away("a", "i"));
    assert_eq!(kip.ok(beat("b", 3)), (3, Some(vec![2, 3])));
    assert_eq!(kip.ok(static_joining("a2", "i")), (3, Some(vec![0, 1])));
    kip.check_replay();
}

#[test]
fn one_that_comes_back_with_another_subscription_raises_the_epoch() {
    let mut kip = two();
    kip.learn(&[("t", 4), ("u", 2)]);
    kip.ok(away("a", "i"));
    let both = Heartbeat { subscribed_topic_names: Some(["t", "u"].map(Into::into).into()), ..static_joining("a2", "i") };
    assert_eq!(kip.ok(both).0, 4);
    kip.check_replay();
}
