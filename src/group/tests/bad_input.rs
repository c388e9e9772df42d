//! Members that lie, that take room, that never go on; and clocks that jump: the right error, what a group holds has a bound, and nobody else
//! is held up. (Epochs and partitions that a member of a consumer group only claims: `consumer/errors.rs`.)

use super::{
    consumer::{Kip, beat, joining},
    ctx::*,
};
use crate::{
    group::{classic::*, consumer::Heartbeat, *},
    types::*,
};
use bytes::Bytes;
use std::sync::Arc;

const MIB: usize = 1 << 20;
const YEAR_MS: i64 = 365 * 24 * 3_600_000;

fn with_metadata(name: &str, metadata: Bytes) -> Join {
    Join { protocols: [Protocol { name: "range".into(), metadata }].into(), ..join(name) }
}

#[test]
fn classic_members_take_no_more_room_than_there_is() {
    let mut ctx = Ctx::undelayed();
    let large = Bytes::from(vec![7; 5 * MIB]);
    let a = ctx.stable(&[with_metadata("a", large.clone())]).remove(0);
    let waiting: Vec<_> = ["b", "c"].into_iter().map(|name| ctx.send_join(with_metadata(name, large.clone()))).collect();
    assert_eq!(ctx.join_now(with_metadata("d", large.clone())).error, ErrorCode::GroupMaxSizeReached);
    let larger = Join { member_id: a.member_id.clone(), ..with_metadata("a", Bytes::from(vec![7; 7 * MIB])) };
    assert_eq!(ctx.join_now(larger).error, ErrorCode::GroupMaxSizeReached, "its own metadata grows too far");
    // It says the same as before, so it may come back; and there is room for a small one.
    let small = ctx.send_join(join("small"));
    let again = ctx.send_join(Join { member_id: a.member_id, ..with_metadata("a", large) });
    for ticket in waiting.into_iter().chain([small, again]) {
        assert_eq!(ctx.joined(ticket).error, ErrorCode::None);
    }
    assert_eq!(ctx.member_ids().len(), 4);
}

#[test]
fn members_of_a_consumer_group_take_no_more_room_than_there_is() {
    let mut kip = Kip::new(4);
    let many = |member: &str| {
        let names = (0..5 * MIB / 300).map(|nth| Arc::from(format!("{member}-{nth:0230}"))).collect();
        Heartbeat { subscribed_topic_names: Some(names), ..joining(member) }
    };
    for member in ["a", "b", "c"] {
        kip.ok(many(member));
    }
    assert_eq!(kip.refused(many("d")), ErrorCode::GroupMaxSizeReached);
    let (epoch, _) = kip.ok(joining("small"));
    let before = kip.consumer().clone();
    assert_eq!(kip.refused(Heartbeat { member_epoch: Epoch(epoch), ..many("small") }), ErrorCode::GroupMaxSizeReached);
    assert_eq!(*kip.consumer(), before, "a refusal changes nothing");
    // Whoever leaves makes room.
    kip.ok(beat("a", -1));
    kip.ok(many("d"));
    kip.check_replay();
}

#[test]
fn whoever_joins_and_never_syncs_is_out_and_the_others_go_on() {
    let mut ctx = Ctx::undelayed();
    let patient = |name: &str| Join { session_timeout_ms: 300_000, ..join(name) };
    let first = ctx.send_join(patient("leader"));
    ctx.sleep(0);
    let tickets: Vec<_> = (0..500).map(|nth| ctx.send_join(patient(&format!("m{nth}")))).collect();
    let leader = ctx.joined(first);
    // The first one was alone, and has to come back.
    let again = ctx.send_join(Join { member_id: leader.member_id, ..patient("leader") });
    let leader = ctx.joined(again);
    let honest = ctx.joined(tickets[7]);
    assert_eq!((leader.members.len(), honest.generation), (501, leader.generation));
    let synced = [ctx.sync(&honest, &[]), ctx.sync(&leader, &[(&honest.member_id, "yours")])];
    assert_eq!((ctx.synced(synced[0]).error, ctx.state()), (ErrorCode::None, State::Stable));
    ctx.sleep(60_000);
    assert_eq!((ctx.state(), ctx.member_ids().len()), (State::PreparingRebalance, 2), "the others' time is up");
    let back = [&leader, &honest].map(|joined| ctx.send_join(Join { member_id: joined.member_id.clone(), ..patient("m") }));
    assert_eq!(back.map(|ticket| ctx.joined(ticket).error), [ErrorCode::None; 2]);
}

#[test]
fn an_assignment_of_any_bytes_is_its_members_alone() {
    for bytes in ["", "\0", "\0\0", "\0\0\x7f\x7f\x7f\x7f", "no assignment at all", "\0\x03\0\0\0\x01\0\x01t\0\0\0\x7f"] {
        let mut ctx = Ctx::undelayed();
        let joined = ctx.join_now(join("a"));
        let ticket = ctx.sync(&joined, &[(&joined.member_id, bytes), ("nobody", "for nobody")]);
        assert_eq!((ctx.synced(ticket).error, ctx.state()), (ErrorCode::None, State::Stable), "{bytes:?}");
        assert_eq!(ctx.groups.describe("g").unwrap().members[0].assignment, bytes.as_bytes());
        assert_eq!(ctx.groups.watch("g").unwrap().members[0].owned(), [], "{bytes:?}");
        assert_eq!(ctx.replayed().describe("g"), ctx.groups.describe("g"));
    }
}

#[test]
fn deadlines_go_by_a_clock_that_does_not_jump() {
    for jump_ms in [YEAR_MS, -YEAR_MS] {
        let mut ctx = Ctx::undelayed();
        let joined = ctx.stable(&[join("a")]).remove(0);
        let mut kip = Kip::with(4, Settings::default());
        kip.ok(joining("a"));
        kip.ok(joining("b"));
        ctx.now.wall = ctx.now.wall.plus(jump_ms);
        kip.now.wall = kip.now.wall.plus(jump_ms);
        ctx.sleep(9_999);
        kip.sleep(44_999);
        assert_eq!(ctx.heartbeat(&joined), ErrorCode::None, "{jump_ms}");
        assert_eq!(kip.consumer().members().len(), 2, "{jump_ms}");
        // An assignment that waits for its interval is computed all the same, and a new one too.
        let (epoch, _) = kip.ok(joining("c"));
        assert_eq!((kip.consumer().assignment_epoch(), kip.consumer().epoch()), (Epoch(epoch), Epoch(epoch)), "{jump_ms}");
        ctx.sleep(10_000);
        kip.sleep(45_000);
        assert_eq!((ctx.member_ids().len(), kip.consumer().members().len()), (0, 0), "{jump_ms}");
        // What the story tells of times stays possible.
        let story = kip.groups.get("g").unwrap().story();
        assert!(story.rebalances().all(|rebalance| rebalance.unowned_ms >= 0), "{jump_ms}");
        kip.check_replay();
    }
}
