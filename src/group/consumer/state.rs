//! What a consumer group is, how records change it, and what can be asked of it.

use super::{ConsumerMember, ConsumerState, MemberState, Owned, Partitions, Timers};
use crate::{
    group::{
        Assignor, Assignors, ConsumerGroupMetadata, ConsumerRecord, Epoch, InstanceId, MemberId, ResolvedRegex, TargetMetadata, Topics,
    },
    types::{Millis, PartitionIndex, TopicId, TopicName},
};
use std::{
    collections::{BTreeMap, BTreeSet, HashMap},
    sync::Arc,
};

/// What is only in memory of a group.
#[derive(Clone, PartialEq, Debug, Default)]
pub struct Memory {
    pub(in crate::group) timers: BTreeMap<MemberId, Timers>,
    /// The version of the topics that the group was last compared with; 0 for none.
    pub(in crate::group) topics_seen: u64,
    /// Regular expressions to be resolved again, and when that may be done, while it waits.
    pub(in crate::group) stale: BTreeSet<Arc<str>>,
    pub(in crate::group) resolve_at: Option<Millis>,
    pub(in crate::group) resolved_at: Option<Millis>,
    /// When the target assignment may be computed again, while it waits for that.
    pub(in crate::group) assign_at: Option<Millis>,
}

/// A consumer group. Copies are cheap: members are shared until they change.
#[derive(Clone, PartialEq, Debug)]
pub struct Consumer {
    pub(super) epoch: Epoch,
    pub(super) metadata_hash: i64,
    pub(super) target: TargetMetadata,
    pub(super) members: BTreeMap<MemberId, Arc<ConsumerMember>>,
    pub(super) targets: BTreeMap<MemberId, Arc<Partitions>>,
    pub(super) regexes: BTreeMap<Arc<str>, Arc<ResolvedRegex>>,
    // What follows is computed from the members.
    pub(super) statics: BTreeMap<InstanceId, MemberId>,
    /// Who has each partition, or has not let it go yet.
    pub(super) owners: HashMap<(TopicId, PartitionIndex), MemberId>,
    /// How many members name each topic, subscribe by each expression, ask for each assignor.
    pub(super) by_name: BTreeMap<Arc<str>, usize>,
    pub(super) by_regex: BTreeMap<Arc<str>, usize>,
    pub(super) by_assignor: BTreeMap<Arc<str>, usize>,
    /// How many members speak the classic protocol, and how many of them support each classic protocol.
    pub(super) classics: usize,
    pub(super) by_protocol: BTreeMap<Arc<str>, usize>,
    /// What all members' metadata takes of memory, about.
    pub(super) metadata_bytes: usize,
    pub(in crate::group) memory: Memory,
}

/// What a group has that nothing was assigned in.
const NO_TARGET: TargetMetadata = TargetMetadata { assignment_epoch: Epoch(-1), assignment_timestamp: Millis(0) };

impl Default for Consumer {
    fn default() -> Self {
        Self {
            epoch: Epoch(0),
            metadata_hash: 0,
            target: NO_TARGET,
            members: BTreeMap::new(),
            targets: BTreeMap::new(),
            regexes: BTreeMap::new(),
            statics: BTreeMap::new(),
            owners: HashMap::new(),
            by_name: BTreeMap::new(),
            by_regex: BTreeMap::new(),
            by_assignor: BTreeMap::new(),
            classics: 0,
            by_protocol: BTreeMap::new(),
            metadata_bytes: 0,
            memory: Memory::default(),
        }
    }
}

fn count(counts: &mut BTreeMap<Arc<str>, usize>, name: &Arc<str>, more: bool) {
    let count = counts.entry(name.clone()).or_default();
    *count = if more { count.saturating_add(1) } else { count.saturating_sub(1) };
    if *count == 0 {
        counts.remove(name);
    }
}

impl Consumer {
    /// One that has just begun: there is nothing yet that the topics could differ from. Its first member raises the epoch to 2, as in Kafka since
    /// assignments may wait (KIP-1263): a member that waits for the first has to have an epoch, which 0 is not.
    pub(super) fn new(topics_seen: u64) -> Self {
        Self { epoch: Epoch(1), memory: Memory { topics_seen, ..Memory::default() }, ..Self::default() }
    }

    pub fn epoch(&self) -> Epoch {
        self.epoch
    }

    pub fn assignment_epoch(&self) -> Epoch {
        self.target.assignment_epoch
    }

    pub fn members(&self) -> impl ExactSizeIterator<Item = &ConsumerMember> {
        self.members.values().map(|member| &**member)
    }

    pub fn member(&self, id: &str) -> Option<&ConsumerMember> {
        self.members.get(id).map(|member| &**member)
    }

    pub fn target(&self, id: &str) -> Option<&Partitions> {
        self.targets.get(id).map(|target| &**target)
    }

    /// Its regular expressions, with the topics that they stand for.
    pub fn regexes(&self) -> impl Iterator<Item = (&Arc<str>, &ResolvedRegex)> {
        self.regexes.iter().map(|(regex, resolved)| (regex, &**resolved))
    }

    pub fn state(&self) -> ConsumerState {
        if self.members.is_empty() {
            ConsumerState::Empty
        } else if self.epoch > self.target.assignment_epoch {
            ConsumerState::Assigning
        } else if self.members().all(|member| member.is_reconciled_to(self.target.assignment_epoch)) {
            ConsumerState::Stable
        } else {
            ConsumerState::Reconciling
        }
    }

    pub(super) fn static_member(&self, instance_id: &str) -> Option<&Arc<ConsumerMember>> {
        self.members.get(self.statics.get(instance_id)?)
    }

    /// The assignor that most of those who ask for one ask for. Ties go to the one that the broker names first, as in Kafka those of the two
    /// that there are go to `uniform`.
    pub(in crate::group) fn assignor(&self, offered: &Assignors) -> Assignor {
        let place = |name: &str| offered.iter().position(|assignor| assignor.name() == name).unwrap_or(usize::MAX);
        let most = self.by_assignor.iter().max_by_key(|(name, count)| (**count, std::cmp::Reverse(place(name.as_ref()))));
        most.and_then(|(name, _)| offered.iter().find(|assignor| assignor.name() == &**name)).unwrap_or(offered.default)
    }

    /// The names of all topics that somebody subscribes to.
    pub(in crate::group) fn subscribed(&self) -> BTreeSet<&Arc<str>> {
        self.by_name.keys().chain(self.regexes.values().flat_map(|resolved| &resolved.topics)).collect()
    }

    pub(in crate::group) fn is_subscribed(&self, topic: &TopicName) -> bool {
        self.by_name.contains_key(topic.as_str()) || self.regexes.values().any(|resolved| resolved.topics.contains(topic.as_str()))
    }

    /// Whether a member subscribes to a topic that is there.
    pub(super) fn subscribes(&self, member: &ConsumerMember, topic: &str) -> bool {
        let by_regex = || member.regex().and_then(|regex| self.regexes.get(regex)).is_some_and(|resolved| resolved.topics.contains(topic));
        member.metadata.subscribed_topic_names.contains(topic) || by_regex()
    }

    /// A member's topics that are there.
    pub(super) fn topics_of(&self, member: &ConsumerMember, topics: &dyn Topics) -> BTreeSet<TopicId> {
        let by_regex = member.regex().and_then(|regex| self.regexes.get(regex)).into_iter().flat_map(|resolved| &resolved.topics);
        let names = member.metadata.subscribed_topic_names.iter().chain(by_regex);
        names.filter_map(|name| topics.by_name(name)).map(|topic| topic.id).collect()
    }

    /// Whether all members subscribe to the same (`ConsumerGroup.subscriptionType`).
    pub(super) fn is_homogeneous(&self) -> bool {
        let all = |count: &usize| *count == self.members.len();
        self.by_name.values().all(all) && self.by_regex.values().all(all)
    }

    /// A number that changes when the topics do that the group subscribes to: FNV-1a over name, id and partitions of each.
    pub(super) fn hash_of_topics(&self, topics: &dyn Topics) -> i64 {
        let mut hash = 0xcbf2_9ce4_8422_2325_u64;
        let mut any = false;
        let mut add = |bytes: &[u8]| bytes.iter().for_each(|byte| hash = (hash ^ u64::from(*byte)).wrapping_mul(0x0000_0100_0000_01b3));
        for topic in self.subscribed().into_iter().filter_map(|name| topics.by_name(name)) {
            any = true;
            add(topic.name.as_str().as_bytes());
            add(&[0]);
            add(topic.id.0.as_bytes());
            add(&topic.partitions.to_be_bytes());
        }
        if any { i64::from_ne_bytes(hash.to_ne_bytes()) } else { 0 }
    }

    /// The members whose heartbeats are held back.
    pub(in crate::group) fn hearing(&self) -> impl Iterator<Item = &MemberId> {
        self.memory.timers.iter().filter(|(_, timers)| timers.held.is_some() || timers.beats.held.is_some()).map(|(id, _)| id)
    }

    /// When something has to be done next, if nothing happens until then.
    pub fn next_deadline(&self) -> Option<Millis> {
        let Memory { timers, resolve_at, assign_at, .. } = &self.memory;
        timers.values().filter_map(Timers::next).chain(*resolve_at).chain(*assign_at).min()
    }

    /// What its records say, without what is only in memory.
    pub fn stored(&self) -> Self {
        Self { memory: Memory::default(), ..self.clone() }
    }

    /// Applies a record. The group is gone with the tombstone of [`ConsumerRecord::Group`], which its shard sees to.
    pub(in crate::group) fn apply(&mut self, record: &ConsumerRecord) {
        match record {
            ConsumerRecord::Group(value) => {
                let ConsumerGroupMetadata { epoch, metadata_hash } =
                    value.unwrap_or(ConsumerGroupMetadata { epoch: Epoch(0), metadata_hash: 0 });
                (self.epoch, self.metadata_hash) = (epoch, metadata_hash);
            }
            ConsumerRecord::NoPartitionMetadata => {}
            ConsumerRecord::Member(id, Some(metadata)) => self.change(id, |member| member.metadata = metadata.clone()),
            ConsumerRecord::Member(id, None) => {
                if let Some(gone) = self.members.remove(id) {
                    self.count_member(&gone, false);
                }
                self.memory.timers.remove(id);
            }
            ConsumerRecord::TargetMetadata(value) => self.target = value.unwrap_or(NO_TARGET),
            ConsumerRecord::Target(id, Some(partitions)) => drop(self.targets.insert(id.clone(), Arc::new(partitions.clone()))),
            ConsumerRecord::Target(id, None) => drop(self.targets.remove(id)),
            ConsumerRecord::Current(id, Some(current)) => self.change(id, |member| {
                (member.epoch, member.previous_epoch, member.state) = (current.member_epoch, current.previous_member_epoch, current.state);
                (member.assigned, member.pending_revocation) = (current.assigned.clone(), current.pending_revocation.clone());
            }),
            ConsumerRecord::Current(id, None) => {
                if self.members.contains_key(id) {
                    self.change(id, |member| {
                        (member.epoch, member.previous_epoch, member.state) = (Epoch::LEAVE, Epoch::LEAVE, MemberState::Stable);
                        (member.assigned, member.pending_revocation) = (Owned::new(), Owned::new());
                    });
                }
            }
            ConsumerRecord::Regex(regex, Some(resolved)) => drop(self.regexes.insert(regex.clone(), Arc::new(resolved.clone()))),
            ConsumerRecord::Regex(regex, None) => drop(self.regexes.remove(regex)),
        }
    }

    fn change(&mut self, id: &MemberId, change: impl FnOnce(&mut ConsumerMember)) {
        let mut member = self.members.remove(id).unwrap_or_else(|| Arc::new(ConsumerMember::new(id.clone())));
        self.count_member(&member, false);
        change(Arc::make_mut(&mut member));
        self.count_member(&member, true);
        self.members.insert(id.clone(), member);
    }

    /// Keeps in step what is computed from the members.
    fn count_member(&mut self, member: &ConsumerMember, more: bool) {
        let metadata = &member.metadata;
        let bytes = metadata.bytes();
        self.metadata_bytes = if more { self.metadata_bytes.saturating_add(bytes) } else { self.metadata_bytes.saturating_sub(bytes) };
        metadata.subscribed_topic_names.iter().for_each(|name| count(&mut self.by_name, name, more));
        member.regex().into_iter().for_each(|regex| count(&mut self.by_regex, regex, more));
        metadata.server_assignor.iter().for_each(|name| count(&mut self.by_assignor, name, more));
        if let Some(classic) = &metadata.classic {
            self.classics = if more { self.classics.saturating_add(1) } else { self.classics.saturating_sub(1) };
            classic.protocols.iter().for_each(|protocol| count(&mut self.by_protocol, &protocol.name, more));
        }
        if let Some(instance_id) = &metadata.instance_id {
            if more {
                self.statics.insert(instance_id.clone(), member.id.clone());
            } else if self.statics.get(instance_id) == Some(&member.id) {
                self.statics.remove(instance_id);
            }
        }
        for (topic, partitions) in member.assigned.iter().chain(&member.pending_revocation) {
            for partition in partitions.keys() {
                let key = (*topic, *partition);
                if more {
                    self.owners.insert(key, member.id.clone());
                } else if self.owners.get(&key) == Some(&member.id) {
                    self.owners.remove(&key);
                }
            }
        }
    }
}
