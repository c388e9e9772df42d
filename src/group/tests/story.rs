//! The story of rebalances: causes, people, phases and ends.

use super::ctx::*;
use crate::group::{classic::*, story::*, *};

fn last(ctx: &Ctx) -> Rebalance {
    ctx.groups.get("g").unwrap().story().rebalances().last().cloned().unwrap()
}

#[test]
fn a_rebalance_is_told_from_its_cause_to_its_end() {
    let mut ctx = Ctx::undelayed();
    let members = ctx.stable(&[join("a"), static_join("b")]);
    let first = last(&ctx);
    assert!(matches!(&first.cause, Cause::Joined { who, .. } if &*who.client_id == "a"));
    assert_eq!(first.ended.map(|(_, end)| end), Some(End::Stable));

    let began = ctx.now.wall;
    let c = ctx.send_join(Join { reason: Some("because".into()), ..join("c") });
    ctx.sleep(1_000);
    let a = ctx.send_join(Join { member_id: members[0].member_id.clone(), ..join("a") });
    ctx.sleep(500);
    let b = ctx.send_join(Join { member_id: members[1].member_id.clone(), ..static_join("b") });
    ctx.sleep(200);
    ctx.sync_all(&[a, b, c]);
    let rebalance = last(&ctx);
    assert!(matches!(&rebalance.cause, Cause::Joined { who, reason } if &*who.client_id == "c" && reason.as_deref() == Some("because")));
    assert_eq!((rebalance.began, rebalance.from, rebalance.members_before), (began, Generation(1), 3));
    let joined = rebalance.joined.unwrap();
    assert_eq!((joined.at, joined.generation, joined.members), (began.plus(1_500), Generation(2), 3));
    let held_up_by = joined.last.unwrap();
    assert_eq!((held_up_by.instance.as_deref(), &*held_up_by.host), (Some("b"), "/127.0.0.1"));
    assert_eq!(rebalance.ended, Some((began.plus(1_700), End::Stable)));
    assert_eq!(rebalance.cause.to_string(), "c-3 (c at /127.0.0.1) joined: because");
    assert_eq!(held_up_by.to_string(), "b-2 (b at /127.0.0.1, instance b)");
}

#[test]
fn who_left_who_expired_and_who_was_late() {
    let mut ctx = Ctx::undelayed();
    let members = ctx.stable(&[join("a"), Join { session_timeout_ms: 200_000, ..join("b") }, join("c")]);
    let decision = ctx.groups.decide_leave(
        ctx.now,
        &Leave {
            group: group(),
            members: vec![LeaveMember { member_id: members[2].member_id.clone(), instance_id: None, reason: Some("done".into()) }],
        },
    );
    ctx.apply(decision);
    assert!(
        matches!(&last(&ctx).cause, Cause::Left { members } if members[0].1.as_deref() == Some("done") && &*members[0].0.client_id == "c")
    );
    let a = ctx.send_join(Join { member_id: members[0].member_id.clone(), ..join("a") });
    ctx.sleep(60_000);
    let removed = last(&ctx).joined.unwrap().removed;
    assert_eq!(removed.iter().map(|who| &*who.client_id).collect::<Vec<_>>(), ["b"]);
    ctx.sync_all(&[a]);
    ctx.sleep(10_000);
    assert!(matches!(&last(&ctx).cause, Cause::SessionExpired { who } if who.member == members[0].member_id));
    assert_eq!(last(&ctx).ended.map(|(_, end)| end), Some(End::Empty));
    let story = ctx.groups.get("g").unwrap().story();
    assert_eq!((story.counts(), story.rebalances().len()), (&[("joined", 1), ("left", 1)].into(), 3), "the last one's going is told only");
}

#[test]
fn an_interrupted_one_ends_and_only_the_last_ones_are_kept() {
    let mut ctx = Ctx::undelayed();
    let slow = Join { session_timeout_ms: 1_000_000, ..join("a") };
    let a = ctx.join_now(slow.clone());
    for nth in 0..REBALANCES_MAX + 5 {
        let again = Join { member_id: a.member_id.clone(), protocols: protocols(&["range", &format!("p{nth}")]), ..slow.clone() };
        ctx.join_now(again);
    }
    let story: Vec<_> = ctx.groups.get("g").unwrap().story().rebalances().cloned().collect();
    assert_eq!(story.len(), REBALANCES_MAX);
    assert!(matches!(story[0].cause, Cause::MetadataChanged { .. }));
    assert_eq!(story[0].ended.map(|(_, end)| end), Some(End::Interrupted));
    assert_eq!(story.last().unwrap().ended, None);
}
