//! Who is refused, and how.

use super::*;

#[test]
fn what_a_heartbeat_must_and_must_not_say() {
    let mut kip = Kip::new(1);
    let bad = [
        Heartbeat { group: "".into(), ..joining("a") },
        Heartbeat { instance_id: Some("".into()), ..joining("a") },
        Heartbeat { rack_id: Some("".into()), ..joining("a") },
        Heartbeat { rebalance_timeout_ms: -1, ..joining("a") },
        Heartbeat { owned: None, ..joining("a") },
        Heartbeat { owned: Some(of_t(0..1)), ..joining("a") },
        Heartbeat { subscribed_topic_names: None, ..joining("a") },
        Heartbeat { member_epoch: Epoch(-3), ..joining("a") },
        Heartbeat { member_epoch: Epoch::STATIC_LEAVE, ..joining("a") },
        Heartbeat { requires_member_id: false, ..beat("", -1) },
        Heartbeat { requires_member_id: false, ..beat("", 4) },
    ];
    for heartbeat in bad {
        assert_eq!(kip.refused(heartbeat.clone()), ErrorCode::InvalidRequest, "{heartbeat:?}");
    }
    let answer = kip.heartbeat_now(Heartbeat { server_assignor: Some("sticky".into()), ..joining("a") });
    assert_eq!(answer.error, ErrorCode::UnsupportedAssignor);
    assert_eq!(answer.error_message.as_deref(), Some("ServerAssignor sticky is not supported. Supported assignors: uniform, range."));
    assert!(kip.log.is_empty() && kip.groups.is_empty());
}

#[test]
fn who_is_not_there_is_told() {
    let mut kip = Kip::new(1);
    assert_eq!(kip.refused(beat("a", 2)), ErrorCode::GroupIdNotFound);
    assert_eq!(kip.refused(beat("a", -1)), ErrorCode::GroupIdNotFound);
    kip.ok(joining("a"));
    assert_eq!(kip.refused(beat("b", 2)), ErrorCode::UnknownMemberId);
    assert_eq!(kip.refused(beat("b", -1)), ErrorCode::UnknownMemberId);
    assert_eq!(kip.consumer().members().len(), 1);
}

#[test]
fn an_epoch_that_was_never_given_is_fenced_and_one_whose_answer_was_lost_is_not() {
    let mut kip = Kip::new(4);
    kip.ok(joining("a"));
    kip.ok(joining("b"));
    kip.ok(beat("a", 2));
    kip.ok(Heartbeat { owned: Some(of_t(0..2)), ..beat("a", 2) });
    let log = kip.log.len();
    assert_eq!(kip.refused(beat("a", 4)), ErrorCode::FencedMemberEpoch);
    // In epoch 2 by now, but it may not have heard.
    assert_eq!(kip.refused(beat("a", 2)), ErrorCode::FencedMemberEpoch, "it has to say what it owns");
    assert_eq!(kip.refused(Heartbeat { owned: Some(of_t(0..4)), ..beat("a", 2) }), ErrorCode::FencedMemberEpoch);
    assert_eq!(kip.log.len(), log, "a fenced member changes nothing");
    assert_eq!(kip.ok(Heartbeat { owned: Some(of_t(0..2)), ..beat("a", 2) }).0, 3);
    kip.check_replay();
}

#[test]
fn a_full_group_takes_nobody_but_its_own() {
    let mut kip = Kip::with(2, Settings { group_consumer_max_size: 2, ..Settings::default() });
    kip.ok(joining("a"));
    kip.ok(static_joining("b", "i"));
    assert_eq!(kip.refused(joining("c")), ErrorCode::GroupMaxSizeReached);
    assert_eq!(kip.ok(joining("a")).0, 2);
    kip.ok(Heartbeat { instance_id: Some("i".into()), ..beat("b", -2) });
    assert_eq!(kip.heartbeat_now(static_joining("b2", "i")).error, ErrorCode::None);
}

#[test]
fn whoever_does_not_let_go_in_time_is_out() {
    let mut kip = Kip::new(4);
    kip.ok(Heartbeat { rebalance_timeout_ms: 10_000, ..joining("a") });
    kip.ok(joining("b"));
    assert_eq!(kip.ok(beat("a", 2)), (2, Some(vec![0, 1])));
    kip.sleep(9_999);
    kip.ok(beat("a", 2));
    kip.sleep(1);
    assert_eq!(kip.refused(beat("a", 2)), ErrorCode::UnknownMemberId);
    assert_eq!(kip.ok(beat("b", 3)), (4, Some(vec![0, 1, 2, 3])));
    let causes: Vec<_> = kip.groups.get("g").unwrap().story().rebalances().map(|r| r.cause.clone()).collect();
    assert!(matches!(causes.last(), Some(Cause::RevocationTimeout { .. })), "{causes:?}");
    kip.check_replay();
}

#[test]
fn partitions_that_a_member_only_claims_are_not_its_own() {
    let mut kip = Kip::new(4);
    kip.ok(joining("a"));
    kip.ok(joining("b"));
    kip.ok(beat("a", 2));
    // It says that it still has what it has to let go, and things that don't exist.
    let lies = Partitions::from([(id_of("t"), (0..1_000).map(PartitionIndex).collect()), (id_of("zz"), [PartitionIndex(-5)].into())]);
    assert_eq!(kip.ok(Heartbeat { owned: Some(lies.clone()), ..beat("a", 2) }), (2, None));
    assert_eq!(kip.ok(Heartbeat { owned: Some(lies), ..beat("b", 3) }), (3, None));
    assert_eq!(indexes(&draft_partitions(kip.member("a"))), [0, 1]);
    assert!(kip.member("b").assigned.is_empty());
}

fn draft_partitions(member: &ConsumerMember) -> Partitions {
    member.assigned.iter().map(|(topic, owned)| (*topic, owned.keys().copied().collect())).collect()
}
