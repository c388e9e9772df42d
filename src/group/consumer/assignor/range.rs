//! The `range` assignor: each topic's partitions in ranges, in the members' order, so that members that subscribe alike get the same
//! partitions of topics with as many partitions, and can join them. Static members come first and keep their place over restarts; what
//! members own so far doesn't count.

use super::{Spec, SpecMember};
use crate::{
    group::consumer::Partitions,
    types::{PartitionIndex, TopicId},
};
use std::collections::BTreeMap;

/// What is left of a topic.
struct Left {
    next: i32,
    each: i32,
    extra: i32,
}

pub(super) fn assign(spec: &Spec<'_>) -> Vec<Partitions> {
    let mut order: Vec<usize> = (0..spec.members.len()).collect();
    let place = |member: &SpecMember<'_>| (member.instance_id.is_none(), member.instance_id.cloned(), member.id.clone());
    order.sort_by_cached_key(|at| spec.members.get(*at).map(place));

    let mut subscribers: BTreeMap<TopicId, i32> = BTreeMap::new();
    for topic in spec.members.iter().flat_map(|member| &*member.subscribed) {
        let count = subscribers.entry(*topic).or_default();
        *count = count.saturating_add(1);
    }
    let left = |(topic, count): (TopicId, i32)| {
        let partitions = spec.partitions.get(&topic).copied().unwrap_or(0);
        let each = partitions.checked_div(count).unwrap_or(0);
        (topic, Left { next: 0, each, extra: partitions.checked_rem(count).unwrap_or(0) })
    };
    let mut left: BTreeMap<TopicId, Left> = subscribers.into_iter().map(left).collect();

    let mut assignment = vec![Partitions::new(); spec.members.len()];
    for at in order {
        let (Some(member), Some(mine)) = (spec.members.get(at), assignment.get_mut(at)) else { continue };
        for topic in &*member.subscribed {
            let Some(left) = left.get_mut(topic) else { continue };
            let extra = i32::from(left.extra > 0);
            left.extra = left.extra.saturating_sub(extra);
            let end = left.next.saturating_add(left.each).saturating_add(extra);
            if left.next < end {
                mine.insert(*topic, (left.next..end).map(PartitionIndex).collect());
            }
            left.next = end;
        }
    }
    assignment
}
