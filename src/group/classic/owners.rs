//! Which partitions the consumers of a classic group read, as far as they have said and been told: for the group's story. No decision looks
//! at it.

use super::{Classic, Member, Note, State};
use crate::{
    group::{
        GroupId, MemberId,
        subscription::{Assignment, Subscription},
    },
    types::{PartitionIndex, TopicName, TopicPartition},
};
use std::{collections::BTreeSet, sync::Arc};

fn flat(partitions: Vec<(TopicName, Vec<PartitionIndex>)>) -> BTreeSet<TopicPartition> {
    let each = partitions
        .into_iter()
        .flat_map(|(topic, partitions)| partitions.into_iter().map(move |partition| TopicPartition { topic: topic.clone(), partition }));
    each.collect()
}

/// What a member reads while its group is in a state. Whoever has joined a new generation reads what it said that it keeps; an eager member
/// keeps nothing.
fn reads(state: State, member: &Member) -> BTreeSet<TopicPartition> {
    let assigned = || flat(Assignment::read(&member.assignment).unwrap_or_default().partitions);
    let kept = || {
        let metadata = member.protocols.first().map(|protocol| &protocol.metadata);
        flat(metadata.and_then(|bytes| Subscription::read(bytes)).unwrap_or_default().owned)
    };
    match state {
        State::Empty => BTreeSet::new(),
        State::Stable => assigned(),
        State::PreparingRebalance if member.awaiting_join.is_none() && !member.assignment.is_empty() => assigned(),
        State::PreparingRebalance | State::CompletingRebalance => kept(),
    }
}

/// What changed hands from a group to what it is now.
pub(super) fn moved(group: &GroupId, was: &Classic, is: &Classic) -> Option<Note> {
    if !is.uses_consumer_protocol() && !was.uses_consumer_protocol() {
        return None;
    }
    let same = |id: &MemberId, member: &Arc<Member>, other: &Classic| {
        was.state == is.state && other.members.get(id).is_some_and(|there| Arc::ptr_eq(there, member))
    };
    let of = |group: &Classic, other: &Classic| -> BTreeSet<TopicPartition> {
        let changed = group.members.iter().filter(|(id, member)| !same(id, member, other));
        changed.flat_map(|(_, member)| reads(group.state, member)).collect()
    };
    let (before, after) = (of(was, is), of(is, was));
    let lost: Vec<_> = before.difference(&after).cloned().collect();
    let gained: Vec<_> = after.difference(&before).cloned().collect();
    let any = !lost.is_empty() || !gained.is_empty();
    any.then(|| Note::Moved { group: group.clone(), lost, gained })
}
