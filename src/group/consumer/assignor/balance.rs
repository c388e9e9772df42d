//! The `uniform` assignor where members subscribe to different topics: as even as their subscriptions allow, and few partitions move.
//!
//! First whoever has least gets what is free. Then partitions move, each from a member to another subscriber of its topic, along chains
//! that begin at a member with many and end at one with at least two fewer, until there is no such chain: then no assignment is more even.

use super::{
    Spec,
    uniform::{free, kept, partitions},
};
use crate::{
    group::consumer::Partitions,
    types::{PartitionIndex, TopicId},
};
use std::{
    cmp::Reverse,
    collections::{BTreeMap, BTreeSet, BinaryHeap, VecDeque},
};

/// What looking for chains may cost, in steps from a member to a member: a group that needs more stays a little less even.
const STEPS_MAX: usize = 5_000_000;

struct Balance {
    /// Each member's partitions by topic.
    owned: Vec<BTreeMap<TopicId, BTreeSet<PartitionIndex>>>,
    load: Vec<usize>,
    subscribers: BTreeMap<TopicId, Vec<usize>>,
    steps: usize,
}

pub(super) fn assign(spec: &Spec<'_>) -> Vec<Partitions> {
    let (lists, taken) = kept(spec);
    let load = lists.iter().map(Vec::len).collect();
    let mut subscribers: BTreeMap<TopicId, Vec<usize>> = BTreeMap::new();
    for (at, member) in spec.members.iter().enumerate() {
        for topic in &*member.subscribed {
            subscribers.entry(*topic).or_default().push(at);
        }
    }
    let mut balance = Balance { owned: lists.into_iter().map(partitions).collect(), load, subscribers, steps: 0 };
    balance.hand_out(free(spec, &taken).collect());
    balance.even_out();
    balance.owned
}

impl Balance {
    fn give(&mut self, to: usize, topic: TopicId, partition: PartitionIndex) {
        if let (Some(owned), Some(load)) = (self.owned.get_mut(to), self.load.get_mut(to)) {
            owned.entry(topic).or_default().insert(partition);
            *load = load.saturating_add(1);
        }
    }

    /// Takes one of a topic's partitions, the last one.
    fn take(&mut self, from: usize, topic: TopicId) -> Option<PartitionIndex> {
        let of_topics = self.owned.get_mut(from)?;
        let of_topic = of_topics.get_mut(&topic)?;
        let partition = of_topic.pop_last()?;
        if of_topic.is_empty() {
            of_topics.remove(&topic);
        }
        if let Some(load) = self.load.get_mut(from) {
            *load = load.saturating_sub(1);
        }
        Some(partition)
    }

    /// The topics with the fewest subscribers first: they have the least choice.
    fn hand_out(&mut self, free: Vec<(TopicId, PartitionIndex)>) {
        let mut by_topic: BTreeMap<TopicId, Vec<PartitionIndex>> = BTreeMap::new();
        for (topic, partition) in free {
            by_topic.entry(topic).or_default().push(partition);
        }
        let mut topics: Vec<_> = by_topic.into_iter().collect();
        topics.sort_by_key(|(topic, _)| self.subscribers.get(topic).map_or(0, Vec::len));
        for (topic, partitions) in topics {
            let Some(subscribers) = self.subscribers.get(&topic) else { continue };
            let load = |at: &usize| self.load.get(*at).copied().unwrap_or(0);
            let mut least: BinaryHeap<_> = subscribers.iter().map(|at| Reverse((load(at), *at))).collect();
            for partition in partitions {
                let Some(Reverse((load, at))) = least.pop() else { break };
                self.give(at, topic, partition);
                least.push(Reverse((load.saturating_add(1), at)));
            }
        }
    }

    fn even_out(&mut self) {
        loop {
            let mut order: Vec<usize> = (0..self.load.len()).collect();
            order.sort_by_key(|at| Reverse(self.load.get(*at).copied().unwrap_or(0)));
            let least = self.load.iter().min().copied().unwrap_or(0);
            let mut moved = false;
            // Whoever a search has reached needs no search of its own while it has no more than where that began.
            let mut reached = vec![false; self.load.len()];
            for from in order {
                let load = self.load.get(from).copied().unwrap_or(0);
                if load < least.saturating_add(2) || self.steps >= STEPS_MAX {
                    break;
                }
                if !reached.get(from).copied().unwrap_or(true) && self.relieve(from, &mut reached) {
                    moved = true;
                    break;
                }
            }
            if !moved {
                return;
            }
        }
    }

    /// Moves a partition from a member along the shortest chain to one that has at least two fewer; whether there is such a chain.
    fn relieve(&mut self, from: usize, reached: &mut [bool]) -> bool {
        let load_of = |balance: &Self, at: usize| balance.load.get(at).copied().unwrap_or(0);
        let load = load_of(self, from);
        // How each member was reached: from whom, by which topic.
        let mut came: BTreeMap<usize, (usize, TopicId)> = BTreeMap::new();
        let mut topics_seen: BTreeSet<TopicId> = BTreeSet::new();
        let mut next = VecDeque::from([from]);
        while let Some(at) = next.pop_front() {
            if let Some(reached) = reached.get_mut(at) {
                *reached = true;
            }
            let Some(owned) = self.owned.get(at) else { continue };
            for topic in owned.keys() {
                // Whoever subscribes to it was reached already.
                if !topics_seen.insert(*topic) {
                    continue;
                }
                for to in self.subscribers.get(topic).into_iter().flatten() {
                    self.steps = self.steps.saturating_add(1);
                    if *to == from || came.contains_key(to) {
                        continue;
                    }
                    came.insert(*to, (at, *topic));
                    if load_of(self, *to).saturating_add(2) <= load {
                        self.shift(from, *to, &came);
                        return true;
                    }
                    next.push_back(*to);
                }
            }
        }
        false
    }

    fn shift(&mut self, from: usize, to: usize, came: &BTreeMap<usize, (usize, TopicId)>) {
        let mut at = to;
        while at != from {
            let Some((before, topic)) = came.get(&at) else { return };
            if let Some(partition) = self.take(*before, *topic) {
                self.give(at, *topic, partition);
            }
            at = *before;
        }
    }
}
