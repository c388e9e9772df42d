//! The committed offsets of a group: commits, look-ups, deletion and expiry (`OffsetMetadataManager`).

use super::{
    Classic, Decision, Epoch, Group, GroupId, Groups, Now, Record, Settings, State, Volatile, classic::command::Identity, groups::Protocol,
};
use crate::types::{ErrorCode, LeaderEpoch, Millis, Offset, PartitionIndex, TopicName, TopicPartition};
use std::{collections::BTreeMap, sync::Arc};

/// What a group committed for a partition.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Committed {
    /// The next offset to be read.
    pub offset: Offset,
    /// The epoch of the last record that was read (KIP-320); −1 if not known.
    pub leader_epoch: LeaderEpoch,
    /// The client's own words.
    pub metadata: Arc<str>,
    pub committed_at: Millis,
    /// Only of clients of old, which set the retention themselves (OffsetCommit 2 to 4).
    pub expires_at: Option<Millis>,
}

/// OffsetCommit. Partitions that don't exist are refused before.
#[derive(Clone, Debug)]
pub struct Commit {
    pub from: Identity,
    /// −1: the broker's.
    pub retention_ms: i64,
    /// Version 9 and later tell a client that its group isn't there, and speak of members' epochs.
    pub tells_missing_group: bool,
    pub partitions: Vec<CommitPartition>,
}

/// One partition of a [`Commit`].
#[derive(Clone, PartialEq, Debug)]
pub struct CommitPartition {
    pub partition: TopicPartition,
    pub offset: Offset,
    pub leader_epoch: LeaderEpoch,
    pub metadata: Arc<str>,
}

/// A group's offsets.
#[derive(Clone, PartialEq, Debug, Default)]
pub(super) struct Offsets(BTreeMap<TopicName, BTreeMap<PartitionIndex, Committed>>);

impl Offsets {
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    pub fn get(&self, topic: &str, partition: PartitionIndex) -> Option<&Committed> {
        self.0.get(topic)?.get(&partition)
    }

    pub fn iter(&self) -> impl Iterator<Item = (&TopicName, PartitionIndex, &Committed)> {
        self.0.iter().flat_map(|(topic, partitions)| partitions.iter().map(move |(index, committed)| (topic, *index, committed)))
    }

    pub fn apply(&mut self, partition: &TopicPartition, value: Option<&Committed>) {
        match value {
            Some(committed) => {
                self.0.entry(partition.topic.clone()).or_default().insert(partition.partition, committed.clone());
            }
            None => {
                let Some(of_topic) = self.0.get_mut(&partition.topic) else { return };
                of_topic.remove(&partition.partition);
                if of_topic.is_empty() {
                    self.0.remove(&partition.topic);
                }
            }
        }
    }

    /// Tombstones for the offsets of a topic that were committed by `until`.
    fn tombstones_of(&self, group: &GroupId, topic: &TopicName, until: Millis) -> Vec<Record> {
        let tombstone = |partition: &PartitionIndex| Record::Offset {
            group: group.clone(),
            partition: TopicPartition { topic: topic.clone(), partition: *partition },
            value: None,
        };
        let old = self.0.get(topic).into_iter().flatten().filter(|(_, committed)| committed.committed_at <= until);
        old.map(|(partition, _)| tombstone(partition)).collect()
    }

    /// Tombstones for the offsets that `which` picks.
    fn tombstones(&self, group: &GroupId, mut which: impl FnMut(&TopicName, PartitionIndex, &Committed) -> bool) -> Vec<Record> {
        let picked = self.iter().filter(|(topic, partition, committed)| which(topic, *partition, committed));
        let tombstone = |(topic, partition, _): (&TopicName, PartitionIndex, &Committed)| Record::Offset {
            group: group.clone(),
            partition: TopicPartition { topic: topic.clone(), partition },
            value: None,
        };
        picked.map(tombstone).collect()
    }
}

/// What the age of a group's offsets counts from (KIP-211).
enum Ages {
    /// Consumers may come back to them: never too old.
    Never,
    /// From when the group lost its last member.
    Since(Millis),
    /// From each commit.
    FromCommit,
}

fn ages(group: &Classic) -> Ages {
    match group.state {
        // Without members ever: a consumer that assigns partitions to itself.
        _ if group.protocol_type.is_none() => Ages::FromCommit,
        State::Empty => group.state_since.map_or(Ages::FromCommit, Ages::Since),
        // Offsets of topics that nobody in the group reads any more.
        State::Stable if group.subscribed.is_some() && group.uses_consumer_protocol() => Ages::FromCommit,
        _ => Ages::Never,
    }
}

impl Committed {
    fn is_expired(&self, ages: &Ages, now: Millis, retention_ms: i64) -> bool {
        let since = match ages {
            Ages::Never => return false,
            Ages::Since(since) => *since,
            Ages::FromCommit => self.committed_at,
        };
        self.expires_at.map_or_else(|| now.0.saturating_sub(since.0) >= retention_ms, |expires_at| now >= expires_at)
    }
}

impl Groups {
    /// Each partition's answer is in the order of the request; an error for all of it is `Err`.
    pub fn decide_commit(&self, now: Now, commit: &Commit) -> Decision<Result<Vec<ErrorCode>, ErrorCode>> {
        let from = &commit.from;
        let group = self.get(&from.group);
        let checked = match group.map(Group::protocol) {
            Some(Protocol::Classic(classic)) => classic.check_commit(&from.member_id, from.instance_id.as_ref(), from.generation, false),
            Some(Protocol::Consumer(consumer)) => consumer.check_commit(self.topics(), commit, false),
            None if from.generation.0 < 0 => Ok(()),
            None if commit.tells_missing_group => Err(ErrorCode::GroupIdNotFound),
            None => Err(ErrorCode::IllegalGeneration),
        };
        if let Err(error) = checked {
            return Decision::only(Err(error));
        }
        let expires_at = (commit.retention_ms >= 0).then(|| now.wall.plus(commit.retention_ms));
        let (records, reply) = self.commit_records(now, commit, expires_at);
        // A commit shows that its member is alive.
        let alive = group.and_then(Group::classic).filter(|c| matches!(c.state, State::Stable | State::PreparingRebalance));
        let volatile = alive.and_then(|classic| classic.member(&from.member_id)).map(|member| Volatile::Alive {
            group: from.group.clone(),
            member: from.member_id.clone(),
            deadline: now.steady.plus(member.session_timeout_ms.into()),
            beats: None,
        });
        Decision { records, volatile, ..Decision::only(Ok(reply)) }
    }

    /// A record and an answer for each partition of a commit that is taken.
    pub(super) fn commit_records(&self, now: Now, commit: &Commit, expires_at: Option<Millis>) -> (Vec<Record>, Vec<ErrorCode>) {
        let mut records = Vec::with_capacity(commit.partitions.len());
        let mut reply = Vec::with_capacity(commit.partitions.len());
        for asked in &commit.partitions {
            if asked.metadata.encode_utf16().count() > self.settings().offset_metadata_max_bytes {
                reply.push(ErrorCode::OffsetMetadataTooLarge);
                continue;
            }
            let value = Committed {
                offset: asked.offset,
                leader_epoch: asked.leader_epoch,
                metadata: asked.metadata.clone(),
                committed_at: now.wall,
                expires_at,
            };
            records.push(Record::Offset { group: commit.from.group.clone(), partition: asked.partition.clone(), value: Some(value) });
            reply.push(ErrorCode::None);
        }
        (records, reply)
    }

    /// OffsetDelete: an error for each topic, or for the whole request. Partitions without an offset are no error.
    pub fn decide_delete_offsets(&self, group_id: &GroupId, partitions: &[TopicPartition]) -> Decision<Result<Vec<ErrorCode>, ErrorCode>> {
        let Some(group) = self.get(group_id) else { return Decision::only(Err(ErrorCode::GroupIdNotFound)) };
        if group.classic().is_some_and(|classic| classic.state != State::Empty && !classic.uses_consumer_protocol()) {
            return Decision::only(Err(ErrorCode::NonEmptyGroup));
        }
        let mut records = Vec::new();
        let mut delete = |partition: &TopicPartition| {
            if group.is_subscribed(&partition.topic) {
                return ErrorCode::GroupSubscribedToTopic;
            }
            let (topic, index) = (partition.topic.as_str(), partition.partition);
            if group.offsets().get(topic, index).is_some() || group.pending().has(topic, index) {
                records.push(Record::Offset { group: group_id.clone(), partition: partition.clone(), value: None });
            }
            ErrorCode::None
        };
        let reply = partitions.iter().map(&mut delete).collect();
        Decision { records, ..Decision::only(Ok(reply)) }
    }

    /// DeleteGroups, for one group.
    pub fn decide_delete_group(&self, group_id: &GroupId) -> Decision<ErrorCode> {
        let Some(group) = self.get(group_id) else { return Decision::only(ErrorCode::GroupIdNotFound) };
        if !group.is_empty() {
            return Decision::only(ErrorCode::NonEmptyGroup);
        }
        let mut records = group.offsets().tombstones(group_id, |_, _, _| true);
        records.extend(group.pending_tombstones(group_id, |_, _| true));
        records.extend(group.tombstones(group_id));
        Decision { records, ..Decision::only(ErrorCode::None) }
    }

    /// Forgets offsets that are too old, and groups that have nothing left. The reply says how many offsets went.
    pub fn decide_expire(&self, now: Now) -> Decision<usize> {
        let Settings { offsets_retention_ms, .. } = *self.settings();
        let mut records = Vec::new();
        let mut forgotten = 0_usize;
        for (id, group) in self.iter() {
            let ages = group.classic().map_or(Ages::FromCommit, ages);
            let expired = |topic: &TopicName, partition: PartitionIndex, committed: &Committed| {
                let in_use = group.is_subscribed(topic) || group.pending().has(topic.as_str(), partition);
                !in_use && committed.is_expired(&ages, now.wall, offsets_retention_ms)
            };
            let tombstones = group.offsets().tombstones(id, expired);
            forgotten = forgotten.saturating_add(tombstones.len());
            let nothing_left = tombstones.len() == group.offsets().iter().count() && group.pending().is_empty();
            records.extend(tombstones);
            if nothing_left && group.is_stored() && group.is_vacant() {
                records.extend(group.tombstones(id));
            }
        }
        Decision { records, ..Decision::only(forgotten) }
    }

    /// The topic is gone, and so are its offsets: those committed by `until`, since another topic may have its name by now.
    pub fn decide_topic_deleted(&self, topic: &TopicName, until: Millis) -> Decision<()> {
        let of_topic = self.iter().flat_map(|(id, group)| {
            let pending = group.pending_tombstones(id, |name, committed| name == topic && committed.committed_at <= until);
            group.offsets().tombstones_of(id, topic, until).into_iter().chain(pending)
        });
        Decision { records: of_topic.collect(), ..Decision::only(()) }
    }

    /// Offsets of topics that aren't there: their deletion was cut short by a crash. How many.
    pub fn decide_strays(&self, is_there: impl Fn(&TopicName) -> bool) -> Decision<usize> {
        let strays = self.iter().flat_map(|(id, group)| {
            let pending = group.pending_tombstones(id, |topic, _| !is_there(topic));
            group.offsets().tombstones(id, |topic, _, _| !is_there(topic)).into_iter().chain(pending)
        });
        let records: Vec<_> = strays.collect();
        let count = records.len();
        Decision { records, ..Decision::only(count) }
    }

    /// Whether one who says this of itself may fetch a group's offsets (OffsetFetch 9 and later).
    pub fn check_fetch(&self, group: &str, member_id: Option<&str>, epoch: Epoch) -> Result<(), ErrorCode> {
        match self.get(group).and_then(Group::consumer) {
            Some(consumer) => consumer.check_fetch(member_id, epoch),
            None => Ok(()),
        }
    }

    /// What a group committed for a partition.
    pub fn committed(&self, group: &str, topic: &str, partition: PartitionIndex) -> Option<&Committed> {
        self.get(group)?.offsets().get(topic, partition)
    }

    /// All that a group committed, by topic and partition.
    pub fn all_committed(&self, group: &str) -> impl Iterator<Item = (&TopicName, PartitionIndex, &Committed)> {
        self.get(group).into_iter().flat_map(|group| group.offsets().iter())
    }
}
