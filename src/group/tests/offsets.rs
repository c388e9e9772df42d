//! Commits, who may make them, and how they end.

use super::ctx::*;
use crate::{
    group::{classic::*, *},
    types::*,
};

const DAY_MS: i64 = 24 * 3_600_000;

#[test]
fn anyone_may_commit_for_a_group_without_members() {
    let mut ctx = Ctx::undelayed();
    assert_eq!(ctx.commit_from(ctx.admin(), "t", 7), Ok(vec![ErrorCode::None]));
    assert_eq!((ctx.committed("t"), ctx.state()), (Some(7), State::Empty));
    let committed = ctx.groups.committed("g", "t", PartitionIndex(0)).unwrap();
    assert_eq!((committed.leader_epoch, committed.committed_at), (LeaderEpoch(3), ctx.now.wall));
    let listed: Vec<_> = ctx.groups.list().map(|listed| listed.protocol_type.to_string()).collect();
    assert_eq!(listed, [""]);
    let names: Vec<_> = ctx.groups.all_committed("g").map(|(topic, index, c)| (topic.to_string(), index.0, c.offset.0)).collect();
    assert_eq!(names, [("t".to_owned(), 0, 7)]);
}

#[test]
fn a_group_with_members_takes_commits_of_members_alone() {
    let mut ctx = Ctx::undelayed();
    let a = ctx.stable(&[join("a")]).remove(0);
    assert_eq!(ctx.commit_from(ctx.admin(), "t", 7), Err(ErrorCode::UnknownMemberId));
    let from = ctx.identity(&a);
    assert_eq!(ctx.commit_from(from.clone(), "t", 7), Ok(vec![ErrorCode::None]));
    let other = Identity { generation: Generation(9), ..from.clone() };
    assert_eq!(ctx.commit_from(other, "t", 8), Err(ErrorCode::IllegalGeneration));
    let stranger = Identity { member_id: "x".into(), ..from.clone() };
    assert_eq!(ctx.commit_from(stranger, "t", 8), Err(ErrorCode::UnknownMemberId));
    assert_eq!(ctx.committed("t"), Some(7));
    ctx.send_join(join("b"));
    assert_eq!(ctx.state(), State::PreparingRebalance);
    assert_eq!(ctx.commit_from(from, "t", 9), Ok(vec![ErrorCode::None]), "what it read before the rebalance");
}

#[test]
fn in_completing_rebalance_commits_are_refused() {
    let mut ctx = Ctx::undelayed();
    let a = ctx.join_now(join("a"));
    assert_eq!(ctx.commit_from(ctx.identity(&a), "t", 7), Err(ErrorCode::RebalanceInProgress));
    assert_eq!(ctx.commit_from(ctx.admin(), "t", 7), Err(ErrorCode::UnknownMemberId));
}

#[test]
fn a_commit_of_a_member_whose_group_is_gone() {
    let ctx = Ctx::undelayed();
    let from = Identity { member_id: "a".into(), generation: Generation(3), ..ctx.admin() };
    let commit = |tells_missing_group| Commit { from: from.clone(), retention_ms: -1, tells_missing_group, partitions: Vec::new() };
    assert_eq!(ctx.groups.decide_commit(ctx.now, &commit(false)).reply, Err(ErrorCode::IllegalGeneration));
    assert_eq!(ctx.groups.decide_commit(ctx.now, &commit(true)).reply, Err(ErrorCode::GroupIdNotFound));
}

#[test]
fn commits_keep_a_session_alive() {
    let mut ctx = Ctx::undelayed();
    let a = ctx.stable(&[join("a")]).remove(0);
    for offset in 0..5 {
        ctx.sleep(9_000);
        assert_eq!(ctx.commit_from(ctx.identity(&a), "t", offset), Ok(vec![ErrorCode::None]));
    }
    assert_eq!(ctx.heartbeat(&a), ErrorCode::None);
}

#[test]
fn metadata_has_a_limit_for_each_partition() {
    let mut ctx = Ctx::undelayed();
    let with = |index, metadata: &str| CommitPartition {
        partition: partition("t", index),
        offset: Offset(1),
        leader_epoch: LeaderEpoch::NONE,
        metadata: metadata.into(),
    };
    let partitions = vec![with(0, &"x".repeat(4_096)), with(1, &"x".repeat(4_097)), with(2, "é")];
    let commit = Commit { from: ctx.admin(), retention_ms: -1, tells_missing_group: false, partitions };
    let decision = ctx.groups.decide_commit(ctx.now, &commit);
    assert_eq!(ctx.apply(decision), Ok(vec![ErrorCode::None, ErrorCode::OffsetMetadataTooLarge, ErrorCode::None]));
    assert_eq!(ctx.groups.all_committed("g").count(), 2);
    assert_eq!(&*ctx.groups.committed("g", "t", PartitionIndex(2)).unwrap().metadata, "é");
}

fn expire(ctx: &mut Ctx) -> usize {
    let decision = ctx.groups.decide_expire(ctx.now);
    ctx.apply(decision)
}

#[test]
fn offsets_of_a_group_with_members_stay_as_long_as_they_read_the_topic() {
    let mut ctx = Ctx::undelayed();
    let long = Join { session_timeout_ms: 1_800_000, ..join("a") };
    let a = ctx.stable(&[long]).remove(0);
    ctx.commit_from(ctx.identity(&a), "t", 7).unwrap();
    ctx.commit_from(ctx.identity(&a), "forgotten", 7).unwrap();
    ctx.now.wall = ctx.now.wall.plus(8 * DAY_MS);
    assert_eq!(expire(&mut ctx), 1);
    assert_eq!((ctx.committed("t"), ctx.committed("forgotten")), (Some(7), None));
}

#[test]
fn an_empty_groups_offsets_age_from_when_it_became_empty() {
    let mut ctx = Ctx::undelayed();
    let a = ctx.stable(&[join("a")]).remove(0);
    ctx.commit_from(ctx.identity(&a), "t", 7).unwrap();
    ctx.now.wall = ctx.now.wall.plus(100 * DAY_MS);
    ctx.leave(&[(&a.member_id, None)]);
    ctx.now.wall = ctx.now.wall.plus(7 * DAY_MS - 1);
    assert_eq!(expire(&mut ctx), 0);
    ctx.now.wall = ctx.now.wall.plus(1);
    assert_eq!(expire(&mut ctx), 1);
    assert!(ctx.groups.is_empty() && ctx.replayed().is_empty());
}

#[test]
fn a_simple_groups_offsets_age_from_their_commit() {
    let mut ctx = Ctx::undelayed();
    ctx.commit_from(ctx.admin(), "t", 7).unwrap();
    ctx.now.wall = ctx.now.wall.plus(4 * DAY_MS);
    ctx.commit_from(ctx.admin(), "u", 7).unwrap();
    ctx.now.wall = ctx.now.wall.plus(3 * DAY_MS);
    assert_eq!(expire(&mut ctx), 1);
    assert_eq!((ctx.committed("t"), ctx.committed("u")), (None, Some(7)));
    ctx.now.wall = ctx.now.wall.plus(4 * DAY_MS);
    assert_eq!(expire(&mut ctx), 1);
    assert!(ctx.groups.is_empty() && ctx.replayed().is_empty());
}

#[test]
fn clients_of_old_set_their_own_retention() {
    let mut ctx = Ctx::undelayed();
    let asked = CommitPartition { partition: partition("t", 0), offset: Offset(1), leader_epoch: LeaderEpoch::NONE, metadata: "".into() };
    let commit = Commit { from: ctx.admin(), retention_ms: 1_000, tells_missing_group: false, partitions: vec![asked] };
    let decision = ctx.groups.decide_commit(ctx.now, &commit);
    ctx.apply(decision).unwrap();
    ctx.now.wall = ctx.now.wall.plus(999);
    assert_eq!(expire(&mut ctx), 0);
    ctx.now.wall = ctx.now.wall.plus(1);
    assert_eq!(expire(&mut ctx), 1);
}

#[test]
fn offsets_are_deleted_unless_the_group_reads_the_topic() {
    let mut ctx = Ctx::undelayed();
    let a = ctx.stable(&[join("a")]).remove(0);
    ctx.commit_from(ctx.identity(&a), "t", 7).unwrap();
    ctx.commit_from(ctx.identity(&a), "other", 7).unwrap();
    let asked = [partition("t", 0), partition("other", 0), partition("other", 5)];
    let decision = ctx.groups.decide_delete_offsets(&group(), &asked);
    assert_eq!(ctx.apply(decision), Ok(vec![ErrorCode::GroupSubscribedToTopic, ErrorCode::None, ErrorCode::None]));
    assert_eq!((ctx.committed("t"), ctx.committed("other")), (Some(7), None));
    let nowhere = ctx.groups.decide_delete_offsets(&"nowhere".into(), &asked);
    assert_eq!(nowhere.reply, Err(ErrorCode::GroupIdNotFound));
}

#[test]
fn offsets_of_other_protocols_groups_are_deleted_only_when_they_are_empty() {
    let mut ctx = Ctx::undelayed();
    ctx.stable(&[Join { protocol_type: "connect".into(), ..join("a") }]);
    assert_eq!(ctx.groups.decide_delete_offsets(&group(), &[partition("t", 0)]).reply, Err(ErrorCode::NonEmptyGroup));
    ctx.sleep(10_000);
    assert_eq!(ctx.groups.decide_delete_offsets(&group(), &[partition("t", 0)]).reply, Ok(vec![ErrorCode::None]));
}

#[test]
fn a_group_is_deleted_when_it_is_empty() {
    let mut ctx = Ctx::undelayed();
    let a = ctx.stable(&[join("a")]).remove(0);
    ctx.commit_from(ctx.identity(&a), "t", 7).unwrap();
    assert_eq!(ctx.groups.decide_delete_group(&group()).reply, ErrorCode::NonEmptyGroup);
    ctx.leave(&[(&a.member_id, None)]);
    let decision = ctx.groups.decide_delete_group(&group());
    assert_eq!(ctx.apply(decision), ErrorCode::None);
    assert!(ctx.groups.is_empty() && ctx.replayed().is_empty());
    assert_eq!(ctx.groups.decide_delete_group(&group()).reply, ErrorCode::GroupIdNotFound);
}

#[test]
fn a_deleted_topics_offsets_go_with_it() {
    let mut ctx = Ctx::undelayed();
    ctx.commit_from(ctx.admin(), "t", 7).unwrap();
    ctx.commit_from(ctx.admin(), "u", 7).unwrap();
    let t = TopicName::new("t").unwrap();
    let before = ctx.groups.decide_topic_deleted(&t, Millis(i64::MIN));
    assert!(before.records.is_empty(), "committed after another topic took the name");
    let decision = ctx.groups.decide_topic_deleted(&t, Millis(i64::MAX));
    ctx.apply(decision);
    assert_eq!((ctx.committed("t"), ctx.committed("u")), (None, Some(7)));
    assert_eq!(ctx.groups.decide_strays(|topic| topic.as_str() == "u").reply, 0);
    let strays = ctx.groups.decide_strays(|_| false);
    assert_eq!(ctx.apply(strays), 1);
    assert_eq!(ctx.committed("u"), None);
}
