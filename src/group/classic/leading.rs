//! What a leader would see, where nobody may know that they lead: that there are partitions which nobody was given.
//!
//! A classic group's leader watches the topics and joins again when there is more to assign. But a static leader that comes back goes on
//! without assigning; it takes the topics as it finds them for those that it knows, and a client too old to be told (KIP-814) doesn't even
//! know that it leads. Partitions that came meanwhile, or come later, would be read by nobody until something else makes the group rebalance,
//! and in Apache Kafka they are. So the coordinator looks, where a rebalance is the leader's to ask for and it may not.

use super::{Cause, Classic, State, draft::Draft};
use crate::{
    group::{Topics, subscription::Assignment},
    types::{PartitionIndex, TopicName},
};
use std::collections::{BTreeMap, BTreeSet};

impl Classic {
    /// Its leader may not know that it is.
    pub fn is_unled(&self) -> bool {
        self.unled && self.state == State::Stable
    }

    /// Whether there are partitions of topics that its members subscribe to which nobody was given. Where one can't tell, there are none.
    pub(super) fn leaves_unread(&self, topics: &dyn Topics) -> bool {
        let Some(subscribed) = self.subscribed.as_deref().filter(|_| self.uses_consumer_protocol()) else { return false };
        let there = subscribed.iter().filter_map(|topic| topics.by_name(topic.as_str()));
        let mut missing: BTreeMap<TopicName, BTreeSet<PartitionIndex>> =
            there.map(|topic| (topic.name, (0..topic.partitions).map(PartitionIndex).collect())).collect();
        for member in self.members().filter(|member| !member.assignment.is_empty()) {
            let Some(assignment) = Assignment::read(&member.assignment) else { return false };
            for (topic, partitions) in assignment.partitions {
                let Some(missing) = missing.get_mut(&topic) else { continue };
                for partition in &partitions {
                    missing.remove(partition);
                }
            }
        }
        missing.values().any(|partitions| !partitions.is_empty())
    }
}

impl Draft<'_> {
    /// After a change of topics.
    pub fn topics_changed(&mut self) {
        if self.group.is_unled() && self.group.leaves_unread(self.topics) {
            self.prepare(Cause::TopicsChanged);
        }
    }
}
