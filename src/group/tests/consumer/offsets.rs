//! Commits and fetches of offsets by members' epochs, and what tools do with the groups.

use super::*;

fn from(id: &str, epoch: i32) -> Identity {
    Identity { group: group(), member_id: id.into(), instance_id: None, generation: Generation(epoch) }
}

fn commit(kip: &mut Kip, id: &str, epoch: i32, index: i32) -> Result<Vec<ErrorCode>, ErrorCode> {
    let asked = CommitPartition { partition: partition("t", index), offset: Offset(7), leader_epoch: LeaderEpoch(0), metadata: "".into() };
    let commit = Commit { from: from(id, epoch), retention_ms: -1, tells_missing_group: true, partitions: vec![asked] };
    let decision = kip.groups.decide_commit(kip.now, &commit);
    kip.apply(decision)
}

const TAKEN: Result<Vec<ErrorCode>, ErrorCode> = Ok(Vec::new());

fn is_taken(result: &Result<Vec<ErrorCode>, ErrorCode>) -> bool {
    result.as_ref().is_ok_and(|errors| errors.iter().all(|error| !error.is_error()))
}

#[test]
fn a_member_may_commit_what_it_has_by_an_epoch_in_which_it_had_it() {
    let mut kip = Kip::new(4);
    kip.ok(joining("a"));
    kip.ok(joining("b"));
    kip.ok(beat("a", 2));
    assert!(is_taken(&commit(&mut kip, "a", 2, 3)), "it has still to let it go");
    kip.ok(Heartbeat { owned: Some(of_t(0..2)), ..beat("a", 2) });
    assert!(is_taken(&commit(&mut kip, "a", 3, 0)));
    assert!(is_taken(&commit(&mut kip, "a", 2, 0)), "it had it in epoch 2, and may not have heard of 3");
    assert_eq!(commit(&mut kip, "a", 2, 3), Err(ErrorCode::StaleMemberEpoch), "no longer its own");
    assert_eq!(commit(&mut kip, "a", 4, 0), Err(ErrorCode::StaleMemberEpoch));
    kip.ok(beat("b", 3));
    assert_eq!(commit(&mut kip, "b", 2, 3), Err(ErrorCode::StaleMemberEpoch), "not before it had it");
    assert_eq!(commit(&mut kip, "c", 2, 3), Err(ErrorCode::UnknownMemberId));
    assert_eq!(commit(&mut kip, "", -1, 3), Err(ErrorCode::UnknownMemberId), "nobody commits from outside meanwhile");
    let old = Commit { from: from("a", 2), retention_ms: -1, tells_missing_group: false, partitions: Vec::new() };
    assert_eq!(kip.groups.decide_commit(kip.now, &old).reply, Err(ErrorCode::UnsupportedVersion));
    kip.ok(beat("a", -1));
    kip.ok(beat("b", -1));
    assert!(is_taken(&commit(&mut kip, "", -1, 3)));
    assert!(is_taken(&TAKEN));
}

#[test]
fn a_fetch_names_the_epoch_or_nobody() {
    let mut kip = Kip::new(4);
    kip.ok(joining("a"));
    assert_eq!(kip.groups.check_fetch("g", None, Epoch(-1)), Ok(()));
    assert_eq!(kip.groups.check_fetch("g", Some("a"), Epoch(2)), Ok(()));
    assert_eq!(kip.groups.check_fetch("g", Some("a"), Epoch(3)), Err(ErrorCode::StaleMemberEpoch));
    assert_eq!(kip.groups.check_fetch("g", Some("b"), Epoch(2)), Err(ErrorCode::UnknownMemberId));
    assert_eq!(kip.groups.check_fetch("none", Some("b"), Epoch(2)), Ok(()));
}

#[test]
fn a_group_is_deleted_with_all_its_records_but_not_while_it_has_members() {
    let mut kip = Kip::new(4);
    kip.ok(joining("a"));
    commit(&mut kip, "a", 2, 0).unwrap();
    let decision = kip.groups.decide_delete_group(&group());
    assert_eq!(kip.apply(decision), ErrorCode::NonEmptyGroup);
    let decision = kip.groups.decide_delete_offsets(&group(), &[partition("t", 0), partition("u", 0)]);
    assert_eq!(kip.apply(decision), Ok(vec![ErrorCode::GroupSubscribedToTopic, ErrorCode::None]));
    kip.ok(beat("a", -1));
    let decision = kip.groups.decide_delete_offsets(&group(), &[partition("t", 0)]);
    assert_eq!(kip.apply(decision), Ok(vec![ErrorCode::None]));
    let decision = kip.groups.decide_delete_group(&group());
    assert_eq!(kip.apply(decision), ErrorCode::None);
    assert!(kip.groups.is_empty() && kip.replayed().is_empty());
}

#[test]
fn offsets_of_topics_that_nobody_reads_any_more_expire_and_an_empty_group_with_them() {
    let mut kip = Kip::new(4);
    kip.ok(joining("a"));
    commit(&mut kip, "a", 2, 0).unwrap();
    let week = 7 * 24 * 3_600_000;
    kip.now.wall = kip.now.wall.plus(week);
    let decision = kip.groups.decide_expire(kip.now);
    assert_eq!(kip.apply(decision), 0, "subscribed to");
    kip.ok(beat("a", -1));
    let decision = kip.groups.decide_expire(kip.now);
    assert_eq!(kip.apply(decision), 1);
    assert!(kip.groups.is_empty() && kip.replayed().is_empty());
}

#[test]
fn tools_see_the_group_and_its_type() {
    let mut kip = Kip::new(2);
    kip.ok(Heartbeat { rack_id: Some("r".into()), ..static_joining("a", "i") });
    let listed: Vec<_> = kip.groups.list().collect();
    assert_eq!(listed, [Listed { group: group(), protocol_type: "consumer".into(), state: "Stable", kind: Kind::Consumer }]);
    assert_eq!(kip.groups.describe("g"), None, "it is no classic group");
    let described = kip.groups.describe_consumer("g").unwrap();
    assert_eq!((described.state, described.epoch, described.assignment_epoch), (ConsumerState::Stable, Epoch(2), Epoch(2)));
    let [member] = &described.members[..] else { panic!("{described:?}") };
    let both =
        vec![DescribedTopic { id: id_of("t"), name: TopicName::new("t").unwrap(), partitions: vec![PartitionIndex(0), PartitionIndex(1)] }];
    assert_eq!((&member.assignment, &member.target_assignment, member.kind), (&both, &both, Kind::Consumer));
    assert_eq!((member.instance_id.as_deref(), member.rack_id.as_deref(), member.member_epoch), (Some("i"), Some("r"), Epoch(2)));
    assert_eq!(kip.groups.describe_consumer("none"), None);
}
