//! Joining, leaving and the epochs.

use super::*;

#[test]
fn the_first_member_gets_all_and_the_epoch_goes_on_with_each_change() {
    let mut kip = Kip::new(6);
    assert_eq!(kip.ok(joining("a")), (2, Some(vec![0, 1, 2, 3, 4, 5])));
    assert_eq!(kip.ok(beat("a", 2)), (2, None), "nothing new");
    assert_eq!(kip.consumer().state(), ConsumerState::Stable);
    // Another joins: it gets what the first lets go, once it has.
    assert_eq!(kip.ok(joining("b")), (3, Some(vec![])));
    assert_eq!(kip.consumer().state(), ConsumerState::Reconciling);
    assert_eq!(kip.ok(beat("a", 2)), (2, Some(vec![0, 1, 2])), "told to let go, in its old epoch");
    assert_eq!(kip.ok(beat("b", 3)), (3, None), "not before");
    assert_eq!(kip.ok(Heartbeat { owned: Some(of_t(0..3)), ..beat("a", 2) }), (3, None));
    assert_eq!(kip.ok(beat("b", 3)), (3, Some(vec![3, 4, 5])));
    assert_eq!(kip.consumer().state(), ConsumerState::Stable);
    kip.check_replay();
    // One leaves: the other gets its partitions.
    assert_eq!(kip.ok(beat("a", -1)), (-1, None));
    assert_eq!(kip.ok(beat("b", 3)), (4, Some(vec![0, 1, 2, 3, 4, 5])));
    assert_eq!(kip.ok(beat("b", -1)), (-1, None));
    assert_eq!(kip.consumer().state(), ConsumerState::Empty);
    kip.check_replay();
}

#[test]
fn a_join_of_version_0_is_given_an_id() {
    let mut kip = Kip::new(1);
    let answer = kip.heartbeat_now(Heartbeat { requires_member_id: false, ..joining("") });
    assert_eq!(answer.member_id.as_deref(), Some("made-1"));
    assert_eq!(kip.ok(beat("made-1", 2)), (2, None));
    assert_eq!(kip.refused(joining("")), ErrorCode::InvalidRequest);
}

#[test]
fn a_full_heartbeat_and_a_second_join_are_told_the_whole_assignment() {
    let mut kip = Kip::new(2);
    kip.ok(joining("a"));
    let full = Heartbeat { member_epoch: Epoch(2), owned: Some(of_t(0..2)), ..joining("a") };
    assert_eq!(kip.ok(full), (2, Some(vec![0, 1])));
    assert_eq!(kip.ok(joining("a")), (2, Some(vec![0, 1])));
}

#[test]
fn changed_subscriptions_and_assignors_raise_the_epoch() {
    let mut kip = Kip::new(2);
    kip.learn(&[("t", 2), ("u", 3)]);
    kip.ok(joining("a"));
    let both = Heartbeat { subscribed_topic_names: Some(["t", "u"].map(Into::into).into()), ..beat("a", 2) };
    assert_eq!(kip.ok(both.clone()), (3, Some(vec![0, 1, 0, 1, 2])));
    assert_eq!(kip.ok(Heartbeat { member_epoch: Epoch(3), ..both }), (3, None), "the same again");
    assert_eq!(kip.ok(Heartbeat { server_assignor: Some("range".into()), ..beat("a", 3) }), (4, None));
    assert_eq!(kip.groups.describe_consumer("g").unwrap().assignor, "range");
    // What is no longer subscribed to is to be let go at once.
    let only_u = Heartbeat { subscribed_topic_names: Some(["u".into()].into()), ..beat("a", 4) };
    assert_eq!(kip.ok(only_u), (4, Some(vec![0, 1, 2])));
    assert_eq!(kip.member("a").state, MemberState::UnrevokedPartitions);
    kip.check_replay();
}

#[test]
fn as_many_wishes_for_one_assignor_as_for_the_other_get_the_default() {
    for wishes in [["range", "uniform"], ["uniform", "range"]] {
        let mut kip = Kip::new(2);
        for (id, wish) in ["a", "b"].into_iter().zip(wishes) {
            kip.ok(Heartbeat { server_assignor: Some(wish.into()), ..joining(id) });
        }
        assert_eq!(kip.groups.describe_consumer("g").unwrap().assignor, "uniform");
    }
}

#[test]
fn topics_that_come_grow_and_go_are_noticed() {
    let mut kip = Kip::new(2);
    let both = Heartbeat { subscribed_topic_names: Some(["t", "u"].map(Into::into).into()), ..joining("a") };
    assert_eq!(kip.ok(both), (2, Some(vec![0, 1])));
    kip.learn(&[("t", 3)]);
    assert_eq!(kip.ok(beat("a", 2)), (3, Some(vec![0, 1, 2])));
    kip.learn(&[("t", 3), ("x", 9)]);
    assert_eq!(kip.ok(beat("a", 3)), (3, None), "not subscribed to");
    kip.learn(&[("t", 3), ("u", 1)]);
    assert_eq!(kip.ok(beat("a", 3)).0, 4);
    kip.learn(&[("u", 1)]);
    assert_eq!(kip.ok(beat("a", 4)), (4, Some(vec![0])));
    let u = Partitions::from([(id_of("u"), [PartitionIndex(0)].into())]);
    assert_eq!(kip.ok(Heartbeat { owned: Some(u), ..beat("a", 4) }), (5, None));
    kip.check_replay();
}

#[test]
fn more_members_than_partitions_idle_and_take_over_at_once() {
    let mut kip = Kip::new(1);
    kip.ok(joining("a"));
    assert_eq!(kip.ok(joining("b")), (3, Some(vec![])));
    assert_eq!(kip.ok(beat("a", 2)), (3, None), "it keeps what it has");
    kip.ok(beat("a", -1));
    assert_eq!(kip.ok(beat("b", 3)), (4, Some(vec![0])));
}

#[test]
fn whoever_is_not_heard_of_for_its_session_timeout_is_out() {
    let mut kip = Kip::new(2);
    kip.ok(joining("a"));
    kip.ok(joining("b"));
    kip.sleep(44_999);
    kip.ok(beat("b", 3));
    kip.sleep(1);
    assert_eq!(kip.consumer().members().map(|m| &*m.id).collect::<Vec<_>>(), ["b"]);
    assert_eq!(kip.ok(beat("b", 3)), (4, Some(vec![0, 1])));
    assert_eq!(kip.refused(beat("a", 2)), ErrorCode::UnknownMemberId);
    kip.check_replay();
}

#[test]
fn a_group_has_settings_of_its_own() {
    let mut kip = Kip::new(2);
    let own = GroupSettings {
        consumer_session_timeout_ms: Some(60_000),
        consumer_heartbeat_interval_ms: Some(7_000),
        consumer_assignment_interval_ms: None,
    };
    kip.groups.configure(group(), own);
    assert_eq!(kip.heartbeat_now(joining("a")).heartbeat_interval_ms, 7_000);
    kip.sleep(59_999);
    assert_eq!(kip.consumer().state(), ConsumerState::Stable);
    kip.sleep(1);
    assert_eq!(kip.consumer().state(), ConsumerState::Empty);
    kip.groups.configure(group(), GroupSettings::default());
    assert_eq!(kip.heartbeat_now(joining("a")).heartbeat_interval_ms, 5_000);
}

#[test]
fn the_target_is_computed_once_an_interval_but_orphans_do_not_wait() {
    let mut kip = Kip::with(6, Settings::default());
    kip.ok(joining("a"));
    assert_eq!(kip.ok(joining("b")), (2, Some(vec![])), "the target is of the epoch before");
    assert_eq!(kip.consumer().state(), ConsumerState::Assigning);
    kip.sleep(999);
    assert_eq!(kip.ok(beat("a", 2)), (2, None));
    kip.sleep(1);
    assert_eq!(kip.ok(beat("a", 2)), (2, Some(vec![0, 1, 2])));
    assert_eq!(kip.ok(Heartbeat { owned: Some(of_t(0..3)), ..beat("a", 2) }), (3, None));
    assert_eq!(kip.ok(beat("b", 2)), (3, Some(vec![3, 4, 5])));
    kip.ok(beat("a", -1));
    assert_eq!(kip.ok(beat("b", 3)), (4, Some(vec![0, 1, 2, 3, 4, 5])), "what nobody has is given at once");
    kip.check_replay();
}

#[test]
fn members_of_a_changing_group_are_to_come_back_soon() {
    let mut kip = Kip::new(4);
    assert_eq!(kip.heartbeat_now(joining("a")).heartbeat_interval_ms, 5_000);
    let soon = kip.heartbeat_now(joining("b"));
    assert_eq!(soon.heartbeat_interval_ms, kip.groups.settings().group_consumer_rebalance_heartbeat_interval_ms);
}

#[test]
fn after_a_restart_members_go_on() {
    let mut kip = Kip::new(4);
    kip.ok(joining("a"));
    kip.ok(joining("b"));
    kip.ok(beat("a", 2));
    kip.restart();
    kip.learn(&[("t", 4)]);
    assert_eq!(kip.ok(beat("b", 3)), (3, None));
    assert_eq!(kip.ok(Heartbeat { owned: Some(of_t(0..2)), ..beat("a", 2) }), (3, None));
    assert_eq!(kip.ok(beat("b", 3)), (3, Some(vec![2, 3])));
    kip.restart();
    kip.sleep(45_000);
    assert_eq!(kip.consumer().state(), ConsumerState::Empty);
    kip.check_replay();
}

#[test]
fn a_large_group_that_comes_all_at_once_is_even() {
    let mut kip = Kip::with(300, Settings::default());
    for nth in 0..300 {
        kip.ok(joining(&format!("m{nth}")));
    }
    kip.sleep(1_000);
    let targets: usize = kip.consumer().members().map(|m| kip.consumer().target(&m.id).map_or(0, |t| indexes(t).len())).sum();
    assert_eq!(targets, 300);
    assert!(kip.consumer().members().all(|m| kip.consumer().target(&m.id).is_some_and(|t| indexes(t).len() == 1)));
}
