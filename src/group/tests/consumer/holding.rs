//! Heartbeats whose answers are held back until there is news.

use super::*;

fn held(id: &str, epoch: i32) -> Heartbeat {
    Heartbeat { hold_ms: 5_000, ..beat(id, epoch) }
}

#[test]
fn an_answer_without_news_is_held_back_for_its_time() {
    let mut kip = Kip::new(4);
    let answer = kip.heartbeat_now(Heartbeat { hold_ms: 5_000, ..joining("a") });
    assert_eq!(answer.heartbeat_interval_ms, 1_000, "the group has just changed");
    let mut waits = |for_ms: i64, next_ms: i32| {
        let ticket = kip.send(held("a", 2));
        kip.sleep(for_ms - 1);
        assert!(kip.waits(ticket));
        kip.sleep(1);
        let answer = kip.answer(ticket);
        assert_eq!((answer.error, answer.member_epoch, answer.assignment), (ErrorCode::None, Epoch(2), None));
        assert_eq!(answer.heartbeat_interval_ms, next_ms);
    };
    // Each is answered before the member gives up on it.
    waits(800, 1_000);
    (0..73).for_each(|_| waits(800, 1_000));
    waits(800, 5_000);
    waits(4_500, 5_000);
    // Its session goes on from then.
    kip.sleep(44_999);
    assert_eq!(kip.consumer().state(), ConsumerState::Stable);
    kip.sleep(1);
    assert_eq!(kip.consumer().state(), ConsumerState::Empty);
}

#[test]
fn news_comes_at_once() {
    let mut kip = Kip::new(4);
    kip.ok(joining("a"));
    let a = kip.send(held("a", 2));
    kip.ok(joining("b"));
    let answer = kip.answer(a);
    assert_eq!(answer.assignment.as_ref().map(indexes), Some(vec![0, 1]), "b has joined");
    let b = kip.send(held("b", 3));
    assert!(kip.waits(b), "nothing is free for it yet");
    let a = kip.send(Heartbeat { owned: Some(of_t(0..2)), ..held("a", 2) });
    assert!(kip.waits(a), "it has let go, and is here for what comes next");
    assert_eq!(kip.answer(b).assignment.as_ref().map(indexes), Some(vec![2, 3]), "a has let go");
    let b = kip.send(held("b", 3));
    kip.ok(beat("a", -1));
    assert_eq!(kip.answer(b).assignment.as_ref().map(indexes), Some(vec![0, 1, 2, 3]), "a has left");
    let b = kip.send(held("b", 4));
    kip.learn(&[("t", 5)]);
    let decision = kip.groups.decide_topics_changed(kip.now, &group());
    kip.apply(decision);
    assert_eq!(kip.answer(b).assignment.as_ref().map(indexes), Some(vec![0, 1, 2, 3, 4]), "the topic has grown");
    kip.check_replay();
}

#[test]
fn one_that_has_to_let_go_is_never_held_back() {
    let mut kip = Kip::new(4);
    kip.ok(joining("a"));
    kip.ok(joining("b"));
    kip.ok(beat("a", 2));
    let ticket = kip.send(held("a", 2));
    assert!(!kip.waits(ticket));
}

#[test]
fn another_request_on_its_connection_lets_it_go() {
    let mut kip = Kip::new(4);
    kip.ok(joining("a"));
    let ticket = kip.send(held("a", 2));
    kip.release(ticket, false);
    assert_eq!(kip.answer(ticket).error, ErrorCode::None);
    let decision = kip.groups.decide_release(kip.now, &group(), ticket, false);
    assert!(decision.replies.is_empty(), "once");
    assert!(kip.groups.decide_release(kip.now, &"none".into(), ticket, false).replies.is_empty());
}

#[test]
fn a_second_one_answers_the_first() {
    let mut kip = Kip::new(4);
    kip.ok(joining("a"));
    let first = kip.send(held("a", 2));
    let second = kip.send(held("a", 2));
    assert!(!kip.waits(first) && kip.waits(second));
    let full = kip.send(Heartbeat { member_epoch: Epoch(2), owned: Some(of_t(0..4)), hold_ms: 5_000, ..joining("a") });
    assert!(!kip.waits(second) && !kip.waits(full));
}

#[test]
fn whoever_is_taken_out_hears_of_it() {
    let mut kip = Kip::new(4);
    kip.ok(joining("a"));
    let ticket = kip.send(held("a", 2));
    kip.ok(beat("a", -1));
    assert_eq!(kip.answer(ticket).error, ErrorCode::UnknownMemberId);
    assert!(kip.groups.next_deadline("g").is_none());
}

#[test]
fn held_answers_come_when_the_target_is_computed_at_its_time() {
    let mut kip = Kip::with(4, Settings::default());
    kip.ok(joining("a"));
    let a = kip.send(held("a", 2));
    kip.ok(joining("b"));
    assert!(kip.waits(a));
    kip.sleep(1_000);
    assert_eq!(kip.answer(a).assignment.as_ref().map(indexes), Some(vec![0, 1]));
}
