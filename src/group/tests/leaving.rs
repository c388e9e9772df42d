//! LeaveGroup, and tools' views of a group.

use super::ctx::*;
use crate::{
    group::{classic::*, *},
    types::*,
};

#[test]
fn a_member_that_leaves_is_gone_at_once() {
    let mut ctx = Ctx::undelayed();
    let members = ctx.stable(&[join("a"), join("b")]);
    assert_eq!(ctx.leave(&[(&members[1].member_id, None)]), [ErrorCode::None]);
    assert_eq!(ctx.state(), State::PreparingRebalance);
    assert!(
        matches!(ctx.notes.last(), Some(Note::Preparing { cause: Cause::Left { members: left }, .. }) if left.len() == 1 && left[0].0.member == members[1].member_id)
    );
    let a = ctx.join_now(Join { member_id: members[0].member_id.clone(), ..join("a") });
    assert_eq!((a.generation, a.members.len()), (Generation(2), 1));
}

#[test]
fn the_last_one_to_leave_leaves_an_empty_group() {
    let mut ctx = Ctx::undelayed();
    let members = ctx.stable(&[join("a")]);
    assert_eq!(ctx.leave(&[(&members[0].member_id, None)]), [ErrorCode::None]);
    assert_eq!((ctx.state(), ctx.groups.len()), (State::Empty, 1));
    let listed: Vec<_> = ctx.groups.list().collect();
    assert_eq!(listed, [Listed { group: group(), protocol_type: "consumer".into(), state: "Empty", kind: Kind::Classic }]);
}

#[test]
fn many_leave_in_one_request_each_with_its_answer() {
    let mut ctx = Ctx::undelayed();
    let members = ctx.stable(&[static_join("one"), static_join("two"), join("a")]);
    let waiting = ctx.join_now(Join { requires_known_member_id: true, ..join("b") });
    let errors = ctx.leave(&[
        ("", Some("one")),
        ("", Some("nobody")),
        (&members[2].member_id, None),
        ("x", None),
        (&waiting.member_id, None),
        (&members[2].member_id, Some("two")),
    ]);
    let (fine, unknown) = (ErrorCode::None, ErrorCode::UnknownMemberId);
    assert_eq!(errors, [fine, unknown, fine, unknown, fine, ErrorCode::FencedInstanceId]);
    assert_eq!(ctx.member_ids(), [&*members[1].member_id]);
}

#[test]
fn leaving_a_group_that_is_not_there() {
    let mut ctx = Ctx::undelayed();
    assert_eq!(ctx.leave(&[("a", None), ("b", None)]), [ErrorCode::UnknownMemberId; 2]);
}

#[test]
fn one_who_leaves_completes_the_rebalance_that_waited_for_it() {
    let mut ctx = Ctx::undelayed();
    let members = ctx.stable(&[join("a"), join("b")]);
    let a = ctx.send_join(Join { member_id: members[0].member_id.clone(), ..join("a") });
    assert!(ctx.waits(a));
    ctx.leave(&[(&members[1].member_id, None)]);
    assert_eq!(ctx.joined(a).generation, Generation(2));
}

#[test]
fn one_who_waits_and_leaves_is_answered() {
    let mut ctx = Ctx::undelayed();
    let members = ctx.stable(&[join("a"), join("b")]);
    let b = ctx.send_join(Join { member_id: members[1].member_id.clone(), protocols: protocols(&["range", "x"]), ..join("b") });
    ctx.leave(&[(&members[1].member_id, None)]);
    assert_eq!(ctx.joined(b).error, ErrorCode::UnknownMemberId);
}

#[test]
fn descriptions_show_assignments_once_the_group_is_stable() {
    let mut ctx = Ctx::undelayed();
    let tickets = ["a", "b"].map(|name| ctx.send_join(join(name)));
    ctx.sleep(0);
    let described = ctx.groups.describe("g").unwrap();
    assert_eq!((described.state, &*described.protocol, described.members.len()), (State::CompletingRebalance, "", 2));
    assert!(described.members[0].metadata.is_empty());
    let members = ctx.sync_all(&tickets);
    let described = ctx.groups.describe("g").unwrap();
    assert_eq!((described.state.name(), &*described.protocol_type, &*described.protocol), ("Stable", "consumer", "range"));
    assert_eq!(described.members[1].assignment, members[1].member_id.as_bytes());
    assert_eq!(described.members[1].metadata, subscription(&["t"]));
    assert_eq!(ctx.groups.describe("nowhere"), None);
}
