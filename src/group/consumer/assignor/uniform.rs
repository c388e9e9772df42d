//! The `uniform` assignor where all members subscribe to the same topics: all get as many partitions, to within one, and no partition
//! moves that need not.

use super::Spec;
use crate::{
    group::consumer::Partitions,
    types::{PartitionIndex, TopicId},
};
use std::collections::BTreeSet;

/// A partition of a topic.
pub(super) type At = (TopicId, PartitionIndex);

/// What a member may keep of what it has: partitions that are there, are subscribed to and are not another's.
pub(super) fn kept(spec: &Spec<'_>) -> (Vec<Vec<At>>, BTreeSet<At>) {
    let mut taken = BTreeSet::new();
    let mut all = Vec::with_capacity(spec.members.len());
    for member in &spec.members {
        let mine = member.assigned.iter().flat_map(|(topic, partitions)| partitions.iter().map(move |partition| (*topic, *partition)));
        let is_there = |(topic, partition): &At| {
            member.subscribed.contains(topic) && spec.partitions.get(topic).is_some_and(|count| (0..*count).contains(&partition.0))
        };
        all.push(mine.filter(is_there).filter(|partition| taken.insert(*partition)).collect());
    }
    (all, taken)
}

/// All partitions, in their order, that nobody keeps.
pub(super) fn free<'a>(spec: &'a Spec<'_>, taken: &'a BTreeSet<At>) -> impl Iterator<Item = At> + use<'a> {
    let all = spec.partitions.iter().flat_map(|(topic, count)| (0..*count).map(move |index| (*topic, PartitionIndex(index))));
    all.filter(|partition| !taken.contains(partition))
}

pub(super) fn partitions(list: Vec<At>) -> Partitions {
    let mut partitions = Partitions::new();
    for (topic, partition) in list {
        partitions.entry(topic).or_default().insert(partition);
    }
    partitions
}

pub(super) fn assign(spec: &Spec<'_>) -> Vec<Partitions> {
    let (mut lists, mut taken) = kept(spec);
    let total: usize = spec.partitions.values().filter_map(|count| usize::try_from(*count).ok()).sum();
    let Some(each) = total.checked_div(spec.members.len()) else { return Vec::new() };
    let mut extras = total.saturating_sub(each.saturating_mul(spec.members.len()));

    // Those who have more keep one more, as long as there are such places; the others who get one follow in their order.
    let mut quotas = Vec::with_capacity(lists.len());
    for list in &lists {
        let extra = list.len() > each && extras > 0;
        extras = extras.saturating_sub(usize::from(extra));
        quotas.push(each.saturating_add(usize::from(extra)));
    }
    for quota in quotas.iter_mut().filter(|quota| **quota == each) {
        let extra = usize::from(extras > 0);
        extras = extras.saturating_sub(extra);
        *quota = quota.saturating_add(extra);
    }
    for (list, quota) in lists.iter_mut().zip(&quotas) {
        for given_up in list.drain((*quota).min(list.len())..) {
            taken.remove(&given_up);
        }
    }
    let mut free = free(spec, &taken);
    for (list, quota) in lists.iter_mut().zip(quotas) {
        let missing = quota.saturating_sub(list.len());
        list.extend(free.by_ref().take(missing));
    }
    lists.into_iter().map(partitions).collect()
}
