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
        let mut given: BTreeMap<TopicName, BTreeSet<PartitionIndex>> = BTreeMap::new();
        for member in self.members().filter(|member| !member.assignment.is_empty()) {
            let Some(assignment) = Assignment::read(&member.assignment) else { return false };
            assignment.partitions.into_iter().for_each(|(topic, partitions)| given.entry(topic).or_default().extend(partitions));
        }
        let is_whole = |topic: &TopicName| {
            let Some(there) = topics.by_name(topic.as_str()) else { return true };
            let given = given.get(topic);
            (0..there.partitions).all(|index| given.is_some_and(|given| given.contains(&PartitionIndex(index))))
        };
        !subscribed.iter().all(is_whole)
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
