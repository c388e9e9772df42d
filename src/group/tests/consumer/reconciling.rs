//! From an assignment to the next, one partition never with two.

use super::*;

#[test]
fn one_that_joins_again_after_it_lost_all_frees_what_it_had() {
    let mut kip = Kip::new(4);
    kip.ok(joining("a"));
    kip.ok(joining("b"));
    kip.ok(beat("a", 2));
    // It was fenced, or its process began anew: it has nothing.
    assert_eq!(kip.ok(joining("a")), (3, Some(vec![0, 1])));
    assert_eq!(kip.ok(beat("b", 3)), (3, Some(vec![2, 3])));
    kip.check_replay();
}

#[test]
fn a_partition_that_goes_back_and_forth_is_with_one_at_a_time() {
    let mut kip = Kip::new(3);
    kip.ok(joining("a"));
    kip.ok(joining("b"));
    // a is told to let go of 2, and b leaves before a did.
    assert_eq!(kip.ok(beat("a", 2)), (2, Some(vec![0, 1])));
    kip.ok(beat("b", -1));
    // It may own 2 again, but only after it said that it let it go.
    assert_eq!(kip.ok(beat("a", 2)), (2, None));
    assert_eq!(kip.ok(Heartbeat { owned: Some(of_t(0..3)), ..beat("a", 2) }), (2, None));
    assert_eq!(kip.ok(Heartbeat { owned: Some(of_t(0..2)), ..beat("a", 2) }), (4, Some(vec![0, 1, 2])));
    assert_eq!(kip.member("a").assigned[&id_of("t")][&PartitionIndex(2)], Epoch(4), "with the epoch at which it got it");
    assert_eq!(kip.member("a").assigned[&id_of("t")][&PartitionIndex(0)], Epoch(2));
    kip.check_replay();
}

#[test]
fn the_story_tells_how_long_each_partition_had_no_owner() {
    let mut kip = Kip::new(4);
    kip.ok(joining("a"));
    kip.sleep(1_000);
    kip.ok(joining("b"));
    kip.ok(beat("a", 2));
    kip.sleep(300);
    kip.ok(Heartbeat { owned: Some(of_t(0..2)), ..beat("a", 2) });
    kip.sleep(200);
    kip.ok(beat("b", 3));
    let of_last = |kip: &Kip| {
        let last = kip.groups.get("g").unwrap().story().rebalances().last().unwrap().clone();
        (last.unowned.iter().map(|(p, ms)| (p.partition.0, *ms)).collect::<Vec<_>>(), last.unowned_ms)
    };
    assert_eq!(of_last(&kip), (vec![(2, 500), (3, 500)], 1_000), "from when a was told until b was");
    kip.ok(beat("a", -1));
    assert_eq!(kip.groups.get("g").unwrap().story().without_owner().len(), 2);
    kip.sleep(70);
    kip.ok(beat("b", 3));
    assert_eq!(of_last(&kip), (vec![(0, 70), (1, 70)], 140));
    let story = kip.groups.get("g").unwrap().story();
    assert_eq!(story.unowned_ms(kip.now.wall), 1_140);
    assert_eq!(story.counts(), &[("joined", 2), ("left", 1)].into());
    // Nobody is told of partitions that nobody has to give up.
    kip.ok(joining("c"));
    assert_eq!(kip.groups.get("g").unwrap().story().without_owner().len(), 0);
}

#[test]
fn a_partition_whose_owner_leaves_and_whose_next_one_waits_has_no_gap() {
    let mut kip = Kip::new(4);
    kip.ok(joining("a"));
    kip.ok(joining("b"));
    kip.ok(beat("a", 2));
    kip.ok(Heartbeat { owned: Some(of_t(0..2)), ..beat("a", 2) });
    kip.ok(beat("b", 3));
    kip.sleep(1_000);
    kip.send(Heartbeat { hold_ms: 5_000, ..beat("b", 3) });
    kip.ok(beat("a", -1));
    let last = kip.groups.get("g").unwrap().story().rebalances().last().unwrap().clone();
    assert_eq!((last.unowned_ms, last.ended.map(|(_, end)| end)), (0, Some(End::Stable)));
}

#[test]
fn the_story_tells_why_who_and_how_it_ended() {
    let mut kip = Kip::new(4);
    kip.ok(joining("a"));
    kip.ok(joining("b"));
    kip.ok(beat("a", 2));
    kip.ok(Heartbeat { owned: Some(of_t(0..2)), ..beat("a", 2) });
    kip.ok(beat("b", 3));
    kip.ok(beat("a", -1));
    kip.ok(beat("b", 3));
    kip.ok(beat("b", -1));
    let story: Vec<_> = kip.groups.get("g").unwrap().story().rebalances().cloned().collect();
    let told: Vec<_> =
        story.iter().map(|r| (r.from.0, r.members_before, r.joined.as_ref().map(|j| j.generation.0), r.ended.map(|(_, e)| e))).collect();
    use End::*;
    assert_eq!(
        told,
        [(1, 0, Some(2), Some(Stable)), (2, 1, Some(3), Some(Stable)), (3, 2, Some(4), Some(Stable)), (4, 1, None, Some(Empty))]
    );
    let last: Vec<_> = story.iter().map(|r| r.joined.as_ref().and_then(|joined| Some(joined.last.as_ref()?.member.to_string()))).collect();
    assert_eq!(last, [None, Some("a".to_owned()), None, None], "b waited for what a had to let go");
    assert!(matches!(&story[1].cause, Cause::Joined { who, .. } if &*who.member == "b"));
    assert!(matches!(&story[2].cause, Cause::Left { members } if &*members[0].0.member == "a"));
    let counts = kip.groups.get("g").unwrap().story().counts();
    assert_eq!(counts, &[("joined", 2), ("left", 1)].into(), "nobody was left to be handed anything by the last");
}
