//! Groups that change their protocol while they have members.

use super::*;
use crate::group::{
    classic::State,
    subscription::{Assignment, Subscription},
};

/// A subscription (version 1) to topics, that says what its member has.
pub fn subscription_of(topics: &[&str], owned: &BTreeMap<TopicName, Vec<PartitionIndex>>) -> bytes::Bytes {
    let mut bytes = subscription(topics).to_vec();
    bytes[1] = 1;
    bytes.extend((owned.len() as i32).to_be_bytes());
    for (topic, partitions) in owned {
        bytes.extend((topic.as_str().len() as i16).to_be_bytes());
        bytes.extend(topic.as_str().as_bytes());
        bytes.extend((partitions.len() as i32).to_be_bytes());
        partitions.iter().for_each(|partition| bytes.extend(partition.0.to_be_bytes()));
    }
    bytes.into()
}

/// What a cooperative leader gives to each: an even share, but nothing that another member still has.
pub fn assign(members: &[JoinedMember], topics: &dyn Topics) -> BTreeMap<MemberId, bytes::Bytes> {
    let said: Vec<_> = members.iter().map(|member| Subscription::read(&member.metadata).unwrap()).collect();
    let names: BTreeSet<&TopicName> = said.iter().flat_map(|said| &said.topics).collect();
    let mut given: Vec<BTreeMap<TopicName, Vec<PartitionIndex>>> = vec![BTreeMap::new(); members.len()];
    for topic in names.into_iter().filter_map(|name| topics.by_name(name.as_str())) {
        let subscribers: Vec<usize> = (0..members.len()).filter(|at| said[*at].topics.contains(&topic.name)).collect();
        for index in 0..topic.partitions {
            let partition = PartitionIndex(index);
            let has = |at: &usize| said[*at].owned.iter().any(|(name, set)| *name == topic.name && set.contains(&partition));
            let share = subscribers[index as usize % subscribers.len()];
            if !(0..members.len()).any(|at| at != share && has(&at)) {
                given[share].entry(topic.name.clone()).or_default().push(partition);
            }
        }
    }
    let write = |partitions: BTreeMap<_, _>| Assignment { partitions: partitions.into_iter().collect(), user_data: false }.write(1);
    members.iter().map(|member| member.member_id.clone()).zip(given.into_iter().map(write)).collect()
}

/// A classic member's JoinGroup with a subscription to `t` that says what it has.
fn classic_join(name: &str, owned: impl IntoIterator<Item = i32>) -> Join {
    let owned: Vec<PartitionIndex> = owned.into_iter().map(PartitionIndex).collect();
    let owned = if owned.is_empty() { BTreeMap::new() } else { [(TopicName::new("t").unwrap(), owned)].into() };
    let metadata = subscription_of(&["t"], &owned);
    Join { protocols: Arc::new([Protocol { name: "cooperative-sticky".into(), metadata }]), ..join(name) }
}

fn assignment_of(partitions: &[i32]) -> bytes::Bytes {
    let partitions = partitions.iter().map(|index| PartitionIndex(*index)).collect();
    Assignment { partitions: vec![(TopicName::new("t").unwrap(), partitions)], user_data: false }.write(1)
}

fn assigned(bytes: &[u8]) -> Vec<i32> {
    Assignment::read(bytes).unwrap().partitions.iter().flat_map(|(_, partitions)| partitions).map(|p| p.0).collect()
}

/// A stable classic group of one that has all of `t`.
fn classic_group(kip: &mut Kip) -> Joined {
    let joined = kip.join_now(classic_join("c", []));
    assert_eq!(sync_assignment(kip, &joined, None, &[0, 1, 2, 3]), [0, 1, 2, 3]);
    joined
}

/// SyncGroup of one that leads, perhaps as a static member, and gives itself these; what it hears.
fn sync_assignment(kip: &mut Kip, joined: &Joined, instance_id: Option<&str>, partitions: &[i32]) -> Vec<i32> {
    let from = Identity { instance_id: instance_id.map(Into::into), ..kip.identity(joined) };
    let assignments = [(joined.member_id.clone(), assignment_of(partitions))].into();
    let ticket = kip.send_sync(Sync { from, protocol_type: None, protocol: None, assignments, ticket: Ticket(0) });
    assigned(&kip.synced(ticket).assignment)
}

fn sync_now(kip: &mut Kip, joined: &Joined) -> Synced {
    let ticket = kip.sync(joined, &[]);
    kip.synced(ticket)
}

/// The classic member comes to what it shall have: it joins as often as it is told to, each time with what it has left.
fn follow(kip: &mut Kip, joined: &Joined, mut owned: Vec<i32>) -> (Joined, Vec<i32>) {
    let mut joined = joined.clone();
    for _ in 0..5 {
        if kip.heartbeat(&joined) == ErrorCode::None {
            break;
        }
        joined = kip.join_now(Join { member_id: joined.member_id.clone(), ..classic_join("c", owned.clone()) });
        assert_eq!(joined.error, ErrorCode::None);
        owned = assigned(&sync_now(kip, &joined).assignment);
    }
    (joined, owned)
}

#[test]
fn a_classic_group_becomes_a_consumer_group_and_a_classic_one_again() {
    let mut kip = Kip::new(4);
    let c = classic_group(&mut kip);
    // The first member of the new protocol joins: the classic one goes on, and is led to less.
    assert_eq!(kip.ok(joining("n")), (2, Some(vec![])));
    kip.check_replay();
    assert_eq!(kip.heartbeat(&c), ErrorCode::RebalanceInProgress);
    let (c, owned) = follow(&mut kip, &c, vec![0, 1, 2, 3]);
    assert_eq!((c.generation, owned), (Generation(2), vec![0, 1]));
    assert_eq!(kip.ok(beat("n", 2)), (2, Some(vec![2, 3])));
    assert_eq!(kip.consumer().state(), ConsumerState::Stable);
    assert_eq!(kip.groups.describe_consumer("g").unwrap().members.iter().filter(|m| m.kind == Kind::Classic).count(), 1);
    kip.check_replay();
    // Its commits go by the generation that it was told.
    let from = kip.identity(&c);
    assert_eq!(kip.commit_from(from, "t", 5), Ok(vec![ErrorCode::None]));
    // The last of the new protocol leaves.
    kip.ok(beat("n", -1));
    assert_eq!(kip.state(), State::PreparingRebalance);
    let again = kip.join_now(Join { member_id: c.member_id.clone(), ..classic_join("c", [0, 1]) });
    assert_eq!((again.error, again.generation, &again.leader), (ErrorCode::None, Generation(3), &again.member_id));
    assert_eq!(kip.committed("t"), Some(5));
    let causes: Vec<_> = kip.groups.get("g").unwrap().story().rebalances().map(|r| r.cause.clone()).collect();
    assert_eq!(causes.len(), 4, "one story for both protocols: {causes:?}");
}

#[test]
fn whoever_waits_in_the_classic_group_is_told_to_join_again() {
    let mut kip = Kip::new(4);
    let c = classic_group(&mut kip);
    let waits = kip.send_join(classic_join("d", []));
    assert!(kip.waits(waits));
    kip.ok(joining("n"));
    assert_eq!(kip.joined(waits).error, ErrorCode::RebalanceInProgress);
    assert_eq!(kip.heartbeat(&c), ErrorCode::RebalanceInProgress);
    kip.check_replay();
}

#[test]
fn the_policy_says_whether_a_group_with_members_may_change() {
    for (policy, up, down) in [
        (MigrationPolicy::Bidirectional, true, true),
        (MigrationPolicy::Upgrade, true, false),
        (MigrationPolicy::Downgrade, false, true),
        (MigrationPolicy::Disabled, false, false),
    ] {
        let settings =
            Settings { group_consumer_migration_policy: policy, group_consumer_assignment_interval_ms: 0, ..Settings::default() };
        let mut kip = Kip::with(4, settings);
        classic_group(&mut kip);
        let answer = kip.heartbeat_now(joining("n"));
        assert_eq!(answer.error == ErrorCode::None, up, "{policy:?}");
        let mut kip = Kip::with(4, settings);
        kip.ok(joining("n"));
        let joined = kip.join_now(classic_join("c", []));
        if policy == MigrationPolicy::Disabled {
            assert_eq!(joined.error, ErrorCode::InconsistentGroupProtocol);
            continue;
        }
        assert_eq!(joined.error, ErrorCode::None);
        kip.ok(beat("n", -1));
        assert_eq!(kip.groups.get("g").unwrap().classic().is_some(), down, "{policy:?}");
    }
}

#[test]
fn an_empty_group_changes_its_protocol_at_any_time() {
    let mut kip = Kip::with(4, Settings { group_consumer_migration_policy: MigrationPolicy::Disabled, ..Settings::default() });
    let c = classic_group(&mut kip);
    kip.leave(&[(&c.member_id, None)]);
    assert_eq!(kip.ok(joining("n")), (2, Some(vec![0, 1, 2, 3])));
    kip.check_replay();
    kip.ok(beat("n", -1));
    assert_eq!(kip.join_now(classic_join("c", [])).generation, Generation(1));
    assert!(kip.replayed().get("g").is_none_or(|group| group.classic().is_some()));
}

#[test]
fn only_consumers_of_the_classic_protocol_come_along() {
    let mut kip = Kip::new(4);
    let joined = kip.join_now(Join { protocol_type: "connect".into(), ..join("w") });
    kip.sync(&joined, &[]);
    assert_eq!(kip.refused(joining("n")), ErrorCode::GroupIdNotFound);
    let mut kip = Kip::new(4);
    let c = kip.join_now(classic_join("c", []));
    kip.sync(&c, &[(&c.member_id, "no assignment")]);
    assert_eq!(kip.refused(joining("n")), ErrorCode::GroupIdNotFound, "malformed");
    let mut kip = Kip::new(4);
    kip.ok(joining("n"));
    let connect = Join { protocol_type: "connect".into(), ..classic_join("c", []) };
    assert_eq!(kip.join_now(connect).error, ErrorCode::InconsistentGroupProtocol);
    let garbage = Join { protocols: Arc::new([Protocol { name: "range".into(), metadata: bytes::Bytes::from_static(&[9]) }]), ..join("c") };
    assert_eq!(kip.join_now(garbage).error, ErrorCode::InconsistentGroupProtocol);
    assert_eq!(kip.consumer().members().len(), 1);
}

#[test]
fn a_classic_member_that_does_not_follow_in_time_is_out() {
    let mut kip = Kip::new(4);
    let c = classic_group(&mut kip);
    kip.ok(joining("n"));
    assert_eq!(kip.heartbeat(&c), ErrorCode::RebalanceInProgress);
    for _ in 0..11 {
        kip.sleep(5_000);
        kip.ok(beat("n", 2));
        kip.heartbeat(&c);
    }
    kip.sleep(5_000);
    assert_eq!(kip.heartbeat(&c), ErrorCode::UnknownMemberId);
    assert_eq!(kip.ok(beat("n", 2)), (3, Some(vec![0, 1, 2, 3])));
    kip.check_replay();
}

#[test]
fn one_that_was_taken_out_does_not_come_back_with_what_it_had() {
    let mut kip = Kip::new(4);
    let c = classic_group(&mut kip);
    kip.ok(joining("n"));
    kip.leave(&[(&c.member_id, None)]);
    let again = Join { member_id: c.member_id.clone(), ..classic_join("c", [0, 1]) };
    assert_eq!(kip.join_now(again).error, ErrorCode::UnknownMemberId);
    assert_eq!(kip.join_now(Join { member_id: c.member_id, ..classic_join("c", []) }).error, ErrorCode::None);
}

#[test]
fn the_story_of_an_eager_classic_group_tells_how_long_all_paused() {
    let mut kip = Kip::new(4);
    let c = classic_group(&mut kip);
    let d = kip.send_join(classic_join("d", []));
    kip.sleep(400);
    // It lets go of all and joins; the assignment comes a little later.
    let c = kip.send_join(Join { member_id: c.member_id.clone(), ..classic_join("c", []) });
    kip.sleep(100);
    let (c, d) = (kip.joined(c), kip.joined(d));
    let assignments = [(c.member_id.clone(), assignment_of(&[0, 1])), (d.member_id.clone(), assignment_of(&[2, 3]))].into();
    let from = kip.identity(&c);
    kip.send_sync(Sync { from, protocol_type: None, protocol: None, assignments, ticket: Ticket(0) });
    let last = kip.groups.get("g").unwrap().story().rebalances().last().unwrap().clone();
    assert_eq!((last.unowned_ms, last.unowned.len(), last.ended.map(|(_, end)| end)), (400, 4, Some(End::Stable)));
}

#[test]
fn one_that_joins_and_never_syncs_is_out() {
    let mut kip = Kip::new(4);
    kip.ok(joining("n"));
    let c = kip.join_now(classic_join("c", []));
    for _ in 0..12 {
        kip.sleep(5_000);
        let epoch = kip.member("n").epoch.0;
        kip.ok(beat("n", epoch));
        kip.heartbeat(&c);
    }
    assert_eq!(kip.consumer().members().len(), 1);
}

#[test]
fn classic_members_are_who_they_say() {
    let mut kip = Kip::new(4);
    kip.ok(joining("n"));
    let known = Join { requires_known_member_id: true, ..classic_join("c", []) };
    let given = kip.join_now(known.clone());
    assert_eq!(given.error, ErrorCode::MemberIdRequired);
    let c = kip.join_now(Join { member_id: given.member_id, ..known });
    assert_eq!(c.error, ErrorCode::None);
    assert_eq!(sync_now(&mut kip, &Joined { generation: Generation(9), ..c.clone() }).error, ErrorCode::IllegalGeneration);
    assert_eq!(kip.heartbeat(&Joined { generation: Generation(9), ..c.clone() }), ErrorCode::IllegalGeneration);
    assert_eq!(kip.heartbeat(&Joined { member_id: "n".into(), ..c.clone() }), ErrorCode::UnknownMemberId, "it speaks the new protocol");
    let fetched = kip.groups.check_fetch("g", Some(&c.member_id), Epoch(77));
    assert_eq!(fetched, Err(ErrorCode::IllegalGeneration));
    assert_eq!(kip.leave(&[("nobody", None), (&c.member_id, None)]), [ErrorCode::UnknownMemberId, ErrorCode::None]);
    kip.check_replay();
}

#[test]
fn a_static_member_changes_protocol_with_its_partitions() {
    let mut kip = Kip::new(4);
    kip.ok(static_joining("n", "i"));
    let c = kip.join_now(Join { instance_id: Some("i".into()), ..classic_join("c", []) });
    assert_eq!((c.error, c.generation), (ErrorCode::None, Generation(2)));
    // It was the only one: the group is a classic one again, and there was no rebalance.
    assert_eq!(kip.state(), State::Stable);
    // It leads, and knows: a partition that is added makes it join again (seed 8733).
    assert_eq!((&c.leader, c.skip_assignment, c.members.len()), (&c.member_id, true, 1));
    assert_eq!(kip.classic().leader(), Some(&c.member_id));
    let from = Identity { instance_id: Some("i".into()), ..kip.identity(&c) };
    let ticket = kip.send_sync(Sync { from, protocol_type: None, protocol: None, assignments: BTreeMap::new(), ticket: Ticket(0) });
    assert_eq!(assigned(&kip.synced(ticket).assignment), [0, 1, 2, 3]);
    assert_eq!(kip.ok(static_joining("n2", "i")), (3, Some(vec![0, 1, 2, 3])), "and back");
    kip.check_replay();
}

/// Seed 7104: what the member that was gone had read stayed unread, since nobody was told of the rebalance any more.
#[test]
fn a_group_that_became_a_classic_one_rebalances_also_after_a_crash() {
    let mut kip = Kip::new(4);
    let c = classic_group(&mut kip);
    kip.ok(joining("n"));
    let (c, owned) = follow(&mut kip, &c, vec![0, 1, 2, 3]);
    assert_eq!(owned, [0, 1]);
    kip.ok(beat("n", -1));
    assert_eq!(kip.state(), State::PreparingRebalance);
    kip.restart();
    assert_eq!((kip.state(), kip.heartbeat(&c)), (State::PreparingRebalance, ErrorCode::RebalanceInProgress));
    let again = kip.join_now(Join { member_id: c.member_id.clone(), ..classic_join("c", [0, 1]) });
    assert_eq!((again.error, &again.leader), (ErrorCode::None, &c.member_id));
    kip.sync(&again, &[]);
    kip.restart();
    assert_eq!(kip.state(), State::Stable, "it has rebalanced");
}

/// Nobody but the coordinator sees that there is more to assign while the leader is away, or where it doesn't know that it leads.
#[test]
fn partitions_that_come_while_nobody_leads_are_assigned() {
    let join = |skips: bool| Join { instance_id: Some("i".into()), supports_skipping_assignment: skips, ..classic_join("c", []) };
    for (skips, away) in [(false, false), (false, true), (true, true)] {
        let mut kip = Kip::new(4);
        let c = kip.join_now(join(skips));
        sync_assignment(&mut kip, &c, Some("i"), &[0, 1, 2, 3]);
        let back = if away { None } else { Some(kip.join_now(join(skips))) };
        assert_eq!(kip.state(), State::Stable, "it came back without a rebalance");
        kip.learn(&[("t", 4), ("other", 1)]);
        let decision = kip.groups.decide_topics_changed(kip.now, &group());
        kip.apply(decision);
        assert_eq!(kip.state(), State::Stable, "another topic is none of the group's");
        kip.learn(&[("t", 5), ("other", 1)]);
        assert_eq!(kip.groups.get("g").unwrap().cares_for_topics(), !away);
        let decision = kip.groups.decide_topics_changed(kip.now, &group());
        kip.apply(decision);
        match back {
            Some(back) => assert_eq!(kip.heartbeat(&back), ErrorCode::RebalanceInProgress),
            None => {
                let back = kip.join_now(join(skips));
                assert_eq!((back.generation, &back.leader, back.skip_assignment), (Generation(2), &back.member_id, false));
                assert!(!kip.groups.get("g").unwrap().cares_for_topics());
            }
        }
        kip.check_replay();
    }
}

/// A cooperative member lets go of what another is to have, and joins again so that the other gets it; one that restarts in between doesn't.
#[test]
fn what_a_static_member_let_go_of_as_it_restarted_is_assigned() {
    let mut kip = Kip::new(4);
    let join = Join { instance_id: Some("i".into()), ..classic_join("c", []) };
    let c = kip.join_now(join.clone());
    sync_assignment(&mut kip, &c, Some("i"), &[0, 1, 3]);
    assert_eq!(kip.state(), State::Stable);
    let back = kip.join_now(join);
    assert_eq!((back.error, back.generation, &back.leader, back.skip_assignment), (ErrorCode::None, Generation(2), &back.member_id, false));
    kip.check_replay();
}

/// A client that can't be told to lead without assigning takes part in a rebalance, so that somebody leads.
#[test]
fn a_static_member_of_old_changes_protocol_with_a_rebalance() {
    let mut kip = Kip::new(4);
    kip.ok(static_joining("n", "i"));
    let join = Join { instance_id: Some("i".into()), supports_skipping_assignment: false, ..classic_join("c", []) };
    let c = kip.join_now(join.clone());
    assert_eq!((c.error, kip.state()), (ErrorCode::None, State::PreparingRebalance));
    let again = kip.join_now(Join { member_id: c.member_id.clone(), ..join });
    assert_eq!((again.error, &again.leader), (ErrorCode::None, &c.member_id));
    kip.check_replay();
}

/// Seed 3291: the classic group had not assigned anything yet, and nothing else would have made the group assign.
#[test]
fn a_static_member_that_changes_protocol_before_the_group_has_assigned_gets_its_partitions() {
    let mut kip = Kip::new(4);
    let c = kip.join_now(Join { instance_id: Some("i".into()), ..classic_join("c", []) });
    assert_eq!((c.error, kip.state()), (ErrorCode::None, State::CompletingRebalance));
    assert_eq!(kip.ok(static_joining("n", "i")), (2, Some(vec![0, 1, 2, 3])));
    kip.check_replay();
}

/// Its heartbeats come every 3 s, and the last one is held.
fn held(kip: &mut Kip, joined: &Joined) -> Ticket {
    let from = kip.identity(joined);
    for _ in 0..2 {
        let ticket = kip.send_beat(&from);
        if kip.waits(ticket) {
            return ticket;
        }
        assert_eq!(kip.beaten(ticket), ErrorCode::None);
        kip.sleep(3_000);
    }
    let ticket = kip.send_beat(&from);
    assert!(kip.waits(ticket));
    ticket
}

#[test]
fn a_classic_member_hears_at_once_what_a_consumer_group_wants_of_it() {
    let mut kip = Kip::new(4);
    let c = classic_group(&mut kip);
    let ticket = held(&mut kip, &c);
    kip.ok(joining("n"));
    assert_eq!(kip.beaten(ticket), ErrorCode::RebalanceInProgress, "the group migrates, and n shall have something of it");
    let (c, owned) = follow(&mut kip, &c, vec![0, 1]);
    assert_eq!(owned, [0, 1]);
    let ticket = held(&mut kip, &c);
    kip.sleep(2_700);
    assert_eq!(kip.beaten(ticket), ErrorCode::None, "its time is up");
    let ticket = held(&mut kip, &c);
    kip.release(ticket, false);
    assert_eq!(kip.beaten(ticket), ErrorCode::None, "another request came");
    let ticket = held(&mut kip, &c);
    let next = held(&mut kip, &c);
    assert_eq!(kip.beaten(ticket), ErrorCode::None, "the next one came");
    kip.ok(beat("n", -1));
    assert_eq!(kip.beaten(next), ErrorCode::RebalanceInProgress, "n has left, and the group goes back to the classic protocol");
    assert_eq!(kip.state(), State::PreparingRebalance);
    kip.check_replay();
}

/// Kafka Streams closes without leaving, and waits for every answer: it isn't held while its group migrates either.
#[test]
fn streams_is_not_held_in_a_consumer_group() {
    for (protocol, holds) in [("cooperative-sticky", true), ("stream", false)] {
        let mut kip = Kip::new(4);
        let join = |owned: &[i32]| {
            let join = classic_join("c", owned.iter().copied());
            Join { protocols: Arc::new([Protocol { name: protocol.into(), metadata: join.protocols[0].metadata.clone() }]), ..join }
        };
        let c = kip.join_now(join(&[]));
        sync_assignment(&mut kip, &c, None, &[0, 1, 2, 3]);
        kip.ok(joining("n"));
        assert_eq!(kip.heartbeat(&c), ErrorCode::RebalanceInProgress);
        let mut c = c;
        for owned in [&[0, 1, 2, 3][..], &[0, 1]] {
            c = kip.join_now(Join { member_id: c.member_id.clone(), ..join(owned) });
            assert_eq!(sync_now(&mut kip, &c).error, ErrorCode::None);
        }
        let from = kip.identity(&c);
        let mut held = false;
        for _ in 0..3 {
            let ticket = kip.send_beat(&from);
            held |= kip.waits(ticket);
            kip.sleep(3_000);
        }
        assert_eq!((kip.groups.get("g").unwrap().consumer().is_some(), held), (true, holds), "{protocol}");
    }
}

#[test]
fn a_classic_member_of_a_consumer_group_that_is_taken_out_hears_of_it() {
    let mut kip = Kip::new(4);
    let c = classic_group(&mut kip);
    kip.ok(joining("n"));
    let (c, _) = follow(&mut kip, &c, vec![0, 1]);
    let ticket = held(&mut kip, &c);
    kip.leave(&[(&c.member_id, None)]);
    assert_eq!(kip.beaten(ticket), ErrorCode::UnknownMemberId);
}
