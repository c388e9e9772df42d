//! Properties of the assignors, over groups that change step by step.

use super::*;
use crate::types::PartitionIndex;
use proptest::prelude::*;
use std::collections::HashSet;

fn topic(nth: u8) -> TopicId {
    TopicId(uuid::Uuid::from_u128(u128::from(nth) + 1))
}

/// A group at one time: who is there (by number), what each subscribes to, and how many partitions each topic has.
#[derive(Debug, Clone)]
struct Group {
    members: BTreeMap<u8, BTreeSet<u8>>,
    partitions: BTreeMap<u8, i32>,
}

fn group(topics: u8) -> impl Strategy<Value = Group> {
    let members = proptest::collection::btree_map(0..12_u8, proptest::collection::btree_set(0..topics, 0..=usize::from(topics)), 1..10);
    let partitions = proptest::collection::btree_map(0..topics, 1..12_i32, usize::from(topics));
    (members, partitions).prop_map(|(members, partitions)| Group { members, partitions })
}

/// Groups that subscribe alike.
fn alike(topics: u8) -> impl Strategy<Value = Group> {
    group(topics).prop_map(|mut group| {
        let first = group.members.values().next().cloned().unwrap_or_default();
        group.members.values_mut().for_each(|subscribed| *subscribed = first.clone());
        group
    })
}

type Assigned = BTreeMap<u8, Partitions>;

fn run(assignor: Assignor, group: &Group, before: &Assigned, homogeneous: bool) -> Assigned {
    let ids: Vec<(u8, MemberId)> = group.members.keys().map(|nth| (*nth, format!("m{nth:02}").into())).collect();
    let nothing = Partitions::new();
    let subscribed = |nth: &u8| group.members[nth].iter().filter(|t| group.partitions.contains_key(t)).map(|t| topic(*t)).collect();
    let members = ids.iter().map(|(nth, id)| SpecMember {
        id,
        instance_id: None,
        subscribed: Arc::new(subscribed(nth)),
        assigned: before.get(nth).unwrap_or(&nothing),
    });
    let members: Vec<_> = members.collect();
    let wanted: HashSet<TopicId> = members.iter().flat_map(|m| m.subscribed.iter().copied()).collect();
    let partitions = group.partitions.iter().map(|(t, count)| (topic(*t), *count)).filter(|(id, _)| wanted.contains(id)).collect();
    let spec = Spec { members, partitions };
    let assignment = assign(assignor, &spec, homogeneous);
    assert_eq!(assignment.len(), ids.len());
    ids.into_iter().map(|(nth, _)| nth).zip(assignment).collect()
}

fn load(partitions: &Partitions) -> usize {
    partitions.values().map(BTreeSet::len).sum()
}

/// Every partition that somebody subscribes to is with exactly one who does.
fn check_whole(group: &Group, assigned: &Assigned) {
    let mut seen = BTreeSet::new();
    for (nth, partitions) in assigned {
        for (id, indexes) in partitions {
            assert!(!indexes.is_empty());
            let subscribed = group.members[nth].iter().any(|t| topic(*t) == *id);
            assert!(subscribed, "{nth} does not subscribe to {id}");
            indexes.iter().for_each(|index| assert!(seen.insert((*id, *index)), "{id}-{index} is with two"));
        }
    }
    for (t, count) in &group.partitions {
        let wanted = group.members.values().any(|subscribed| subscribed.contains(t));
        let given = (0..*count).filter(|index| seen.contains(&(topic(*t), PartitionIndex(*index)))).count();
        assert_eq!(given, if wanted { usize::try_from(*count).unwrap() } else { 0 });
    }
}

/// How many partitions changed hands that had an owner who is still there and may keep it.
fn moved(group: &Group, before: &Assigned, after: &Assigned) -> usize {
    let keeps = |nth: &u8, id: &TopicId, index: &PartitionIndex| after[nth].get(id).is_some_and(|mine| mine.contains(index));
    let may = |nth: &u8, id: &TopicId, index: &PartitionIndex| {
        group.members[nth].iter().any(|t| topic(*t) == *id && group.partitions.get(t).is_some_and(|count| index.0 < *count))
    };
    let there = before.iter().filter(|(nth, _)| group.members.contains_key(nth));
    let each = there.flat_map(|(nth, owned)| owned.iter().flat_map(move |(id, set)| set.iter().map(move |index| (nth, id, index))));
    each.filter(|(nth, id, index)| may(nth, id, index) && !keeps(nth, id, index)).count()
}

/// The least that has to move: what each has beyond its share.
fn must_move(group: &Group, before: &Assigned, after: &Assigned) -> usize {
    let kept = |nth: &u8| {
        let empty = Partitions::new();
        let owned = before.get(nth).unwrap_or(&empty).clone();
        let there = |id: &TopicId, index: &PartitionIndex| {
            group.members[nth].iter().any(|t| topic(*t) == *id && group.partitions.get(t).is_some_and(|count| index.0 < *count))
        };
        owned.iter().flat_map(|(id, set)| set.iter().map(move |index| (id, index))).filter(|(id, index)| there(id, index)).count()
    };
    let total: usize = after.values().map(load).sum();
    let (each, mut extras) = (total / group.members.len(), total % group.members.len());
    let over = |count: usize| {
        let extra = usize::from(count > each && extras > 0);
        extras -= extra;
        count.saturating_sub(each + extra)
    };
    group.members.keys().map(kept).map(over).sum()
}

/// Whether a chain of moves leads from one with many to one with at least two fewer: then it could be more even.
fn could_be_more_even(group: &Group, assigned: &Assigned) -> bool {
    assigned.keys().any(|from| {
        let mut reached = BTreeSet::from([*from]);
        let mut next = vec![*from];
        while let Some(at) = next.pop() {
            for id in assigned[&at].keys() {
                for (to, subscribed) in &group.members {
                    if subscribed.iter().any(|t| topic(*t) == *id) && reached.insert(*to) {
                        next.push(*to);
                    }
                }
            }
        }
        reached.iter().any(|to| load(&assigned[to]) + 2 <= load(&assigned[from]))
    })
}

proptest! {
    #[test]
    fn uniform_is_even_to_within_one_and_moves_no_more_than_it_must(steps in proptest::collection::vec(alike(3), 1..6)) {
        let mut before = Assigned::new();
        for group in steps {
            let after = run(Assignor::Uniform, &group, &before, true);
            check_whole(&group, &after);
            let (least, most) = (after.values().map(load).min().unwrap(), after.values().map(load).max().unwrap());
            prop_assert!(most - least <= 1);
            prop_assert_eq!(moved(&group, &before, &after), must_move(&group, &before, &after));
            prop_assert_eq!(&run(Assignor::Uniform, &group, &after, true), &after, "nothing has changed");
            before = after;
        }
    }

    #[test]
    fn uniform_is_as_even_as_different_subscriptions_allow(steps in proptest::collection::vec(group(4), 1..6)) {
        let mut before = Assigned::new();
        for group in steps {
            let after = run(Assignor::Uniform, &group, &before, false);
            check_whole(&group, &after);
            prop_assert!(!could_be_more_even(&group, &after), "{after:?}");
            prop_assert_eq!(&run(Assignor::Uniform, &group, &after, false), &after, "nothing has changed");
            before = after;
        }
    }

    #[test]
    fn both_ways_to_be_uniform_are_even_where_all_subscribe_alike(group in alike(3)) {
        let after = run(Assignor::Uniform, &group, &Assigned::new(), false);
        check_whole(&group, &after);
        prop_assert!(!could_be_more_even(&group, &after));
    }

    #[test]
    fn range_gives_ranges_even_to_within_one_in_each_topic(group in group(4)) {
        let after = run(Assignor::Range, &group, &Assigned::new(), false);
        check_whole(&group, &after);
        for t in group.partitions.keys() {
            let of_topic = |nth: &u8| after[nth].get(&topic(*t)).cloned().unwrap_or_default();
            let subscribers: Vec<u8> = group.members.iter().filter(|(_, subscribed)| subscribed.contains(t)).map(|(nth, _)| *nth).collect();
            let sizes: Vec<usize> = subscribers.iter().map(|nth| of_topic(nth).len()).collect();
            prop_assert!(sizes.iter().max().unwrap_or(&0) - sizes.iter().min().unwrap_or(&0) <= 1);
            let in_order: Vec<PartitionIndex> = subscribers.iter().flat_map(of_topic).collect();
            prop_assert!(in_order.is_sorted(), "{in_order:?}");
        }
        prop_assert_eq!(run(Assignor::Range, &group, &after, false), after);
    }
}

#[test]
fn range_gives_members_that_subscribe_alike_the_same_partitions_of_all_topics_and_static_ones_their_old_place() {
    let topics: Arc<BTreeSet<TopicId>> = Arc::new([topic(0), topic(1)].into());
    let (a, b, c, i): (MemberId, MemberId, MemberId, InstanceId) = ("a".into(), "b".into(), "c".into(), "i".into());
    let nothing = Partitions::new();
    let member = |id, instance_id| SpecMember { id, instance_id, subscribed: topics.clone(), assigned: &nothing };
    let members = vec![member(&a, None), member(&b, None), member(&c, Some(&i))];
    let spec = Spec { members, partitions: [(topic(0), 5), (topic(1), 5)].into() };
    let assignment = assign(Assignor::Range, &spec, true);
    let indexes = |at: usize, t: u8| assignment[at][&topic(t)].iter().map(|p| p.0).collect::<Vec<_>>();
    assert_eq!((indexes(2, 0), indexes(0, 0), indexes(1, 0)), (vec![0, 1], vec![2, 3], vec![4]));
    assert!((0..3).all(|at| indexes(at, 0) == indexes(at, 1)));
}

#[test]
fn a_large_uneven_group_ends_and_is_even() {
    let all: Arc<BTreeSet<TopicId>> = Arc::new([topic(0), topic(1)].into());
    let one: Arc<BTreeSet<TopicId>> = Arc::new([topic(0)].into());
    let ids: Vec<MemberId> = (0..400).map(|nth| format!("m{nth:03}").into()).collect();
    let hoard = Partitions::from([(topic(0), (0..1_000).map(PartitionIndex).collect())]);
    let nothing = Partitions::new();
    let member = |(nth, id)| SpecMember {
        id,
        instance_id: None,
        subscribed: if nth % 2 == 0 { all.clone() } else { one.clone() },
        assigned: if nth == 0 { &hoard } else { &nothing },
    };
    let spec = Spec { members: ids.iter().enumerate().map(member).collect(), partitions: [(topic(0), 1_000), (topic(1), 1_000)].into() };
    let loads: Vec<usize> = assign(Assignor::Uniform, &spec, false).iter().map(load).collect();
    assert_eq!((loads.iter().min(), loads.iter().max(), loads.iter().sum::<usize>()), (Some(&5), Some(&5), 2_000));
}
