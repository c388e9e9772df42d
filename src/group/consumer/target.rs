//! The target assignment: when it is computed, from what, and which records say so (`TargetAssignmentBuilder`).

use super::{
    Partitions,
    assignor::{self, Spec, SpecMember},
    draft::ConsumerDraft,
};
use crate::{
    group::{ConsumerRecord, MemberId, TargetMetadata},
    types::{Millis, TopicId},
};
use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
};

/// How many members' worth of computing is done in a millisecond at most, while partitions have no owner.
const MEMBERS_PER_MS: i64 = 10;

impl ConsumerDraft<'_> {
    /// Computes the target assignment of the group's epoch, unless it was computed just now: then it waits for its time.
    pub(super) fn assign_if_due(&mut self) {
        self.group.memory.assign_at = None;
        if self.group.target.assignment_epoch >= self.group.epoch || self.group.members.is_empty() {
            return;
        }
        let Millis(last) = self.group.target.assignment_timestamp;
        let since_ms = self.around.now.wall.0.saturating_sub(last);
        let wait_ms = self.wait_ms();
        // A wall clock that was set back says nothing.
        if last == 0 || !(0..wait_ms).contains(&since_ms) {
            self.assign();
        } else {
            self.group.memory.assign_at = Some(self.around.after(wait_ms.saturating_sub(since_ms)));
        }
    }

    /// How long after the last assignment the next may be computed. Partitions that nobody will get by the last one don't wait for the
    /// interval, only for as long as keeps the computing cheap in a large group.
    fn wait_ms(&self) -> i64 {
        let interval_ms = self.around.assignment_interval_ms().max(0);
        let orphans = || self.group.target_partitions() < self.group.all_partitions(self.around.topics);
        let members = i64::try_from(self.group.members.len()).unwrap_or(i64::MAX);
        if members / MEMBERS_PER_MS < interval_ms && orphans() { members / MEMBERS_PER_MS } else { interval_ms }
    }

    fn assign(&mut self) {
        let topics = self.around.topics;
        // Members that subscribe alike share the set.
        let mut sets = BTreeMap::<(Option<&Arc<str>>, &BTreeSet<_>), Arc<BTreeSet<TopicId>>>::new();
        let nothing = Partitions::new();
        let mut spec = Spec { members: Vec::with_capacity(self.group.members.len()), partitions: BTreeMap::new() };
        for member in self.group.members() {
            let key = (member.regex(), &member.metadata.subscribed_topic_names);
            let subscribed = sets.entry(key).or_insert_with(|| Arc::new(self.group.topics_of(member, topics))).clone();
            for id in &*subscribed {
                spec.partitions.entry(*id).or_insert_with(|| topics.by_id(*id).map_or(0, |topic| topic.partitions.max(0)));
            }
            spec.members.push(SpecMember {
                id: &member.id,
                instance_id: member.metadata.instance_id.as_ref(),
                subscribed,
                assigned: self.group.targets.get(&member.id).map_or(&nothing, |target| target),
            });
        }
        let homogeneous = self.group.is_homogeneous();
        let assignment = assignor::assign(self.group.assignor(&self.around.settings.group_consumer_assignors), &spec, homogeneous);
        let ids: Vec<MemberId> = self.group.members.keys().cloned().collect();
        for (id, target) in ids.into_iter().zip(assignment) {
            if self.group.targets.get(&id).is_none_or(|old| **old != target) {
                self.put(ConsumerRecord::Target(id, Some(target)));
            }
        }
        let metadata = TargetMetadata { assignment_epoch: self.group.epoch, assignment_timestamp: self.around.now.wall };
        self.put(ConsumerRecord::TargetMetadata(Some(metadata)));
    }
}

impl super::Consumer {
    /// How many partitions the members shall have.
    fn target_partitions(&self) -> usize {
        self.targets.values().flat_map(|target| target.values()).map(BTreeSet::len).sum()
    }

    /// How many partitions the topics have that somebody subscribes to.
    fn all_partitions(&self, topics: &dyn super::super::Topics) -> usize {
        let partitions = |name: &Arc<str>| topics.by_name(name).and_then(|topic| usize::try_from(topic.partitions).ok()).unwrap_or(0);
        self.subscribed().into_iter().map(partitions).sum()
    }
}
