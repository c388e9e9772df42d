//! What becomes of the partition directories that are found at the start: known, to be deleted, adopted as topics, or left alone.
//!
//! A directory that Apache Kafka wrote, or one whose journal is lost, becomes a topic again. Decides only; touches no directory.

use super::{
    admin::Decision,
    image::{Image, PartitionState, Topic},
    record::Record,
};
use crate::types::{LeaderEpoch, PartitionIndex, TopicId, TopicName, TopicPartition};
use std::collections::BTreeMap;

/// A partition's directory, as the log layer found it.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct FoundPartition {
    pub topic: TopicPartition,
    /// From `partition.metadata`; none in directories older than topic ids.
    pub topic_id: Option<TopicId>,
    /// The last entry of `leader-epoch-checkpoint`.
    pub newest_epoch: Option<LeaderEpoch>,
}

/// What becomes of it. In the order of what was found.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Verdict {
    /// It is a partition of this topic.
    Belongs(TopicId),
    /// Its topic was deleted: remove it.
    Remove,
    /// It is Apache Kafka's own metadata: leave it as it is, for the way back.
    Kafkas,
    /// It belongs to no topic and can't become one; the text says why. Not opened.
    Stray(String),
}

/// A directory's number beyond this is a mistake, not a partition: adopting it would create all those below.
const PARTITION_INDEX_MAX: i32 = 99_999;
/// KRaft's own log, which is no topic.
const KAFKAS_METADATA: &str = "__cluster_metadata";

impl Image {
    /// Judges the found directories. `fresh_ids` are for topics that have none, taken from the front; one for each found is enough.
    pub fn decide_adopt(&self, found: &[FoundPartition], fresh_ids: &[TopicId]) -> Decision<Vec<Verdict>> {
        let mut fresh_ids = fresh_ids.iter();
        let mut adopted: BTreeMap<TopicName, Adopted> = BTreeMap::new();
        let mut raised = Vec::new();
        let mut more: BTreeMap<TopicId, BTreeMap<i32, LeaderEpoch>> = BTreeMap::new();
        let mut verdicts = Vec::with_capacity(found.len());
        for one in found {
            verdicts.push(match self.judge(one) {
                Judgement::Final(verdict) => verdict,
                Judgement::Known(topic) => {
                    match topic.partition(one.topic.partition) {
                        Some(state) => raised.extend(raise(topic, state, one)),
                        None => _ = more.entry(topic.id).or_default().insert(one.topic.partition.0, next_epoch(one)),
                    }
                    Verdict::Belongs(topic.id)
                }
                Judgement::New => adopt(&mut adopted, one, || fresh_ids.next().copied()),
            });
        }
        let mut records: Vec<Record> = adopted.into_iter().map(|(name, topic)| self.record(name, topic)).collect();
        records.extend(more.into_iter().filter_map(|(id, epochs)| {
            let has = self.topic_by_id(id)?.partitions.len();
            Some(Record::Partitions { id, partitions: self.states(i32::try_from(has).ok()?, &epochs) })
        }));
        records.extend(raised);
        Decision { records, reply: verdicts }
    }

    fn judge(&self, one: &FoundPartition) -> Judgement<'_> {
        let stray = |why: &str| Judgement::Final(Verdict::Stray(why.to_owned()));
        let name = one.topic.topic.as_str();
        let id = one.topic_id.filter(|id| !id.is_zero());
        if id.is_some_and(|id| self.deleting.contains_key(&id)) {
            return Judgement::Final(Verdict::Remove);
        }
        if name == KAFKAS_METADATA {
            return Judgement::Final(Verdict::Kafkas);
        }
        if one.topic.partition.0 > PARTITION_INDEX_MAX {
            return stray("its partition number is too high");
        }
        match self.topic(name) {
            Some(topic) if id.is_none_or(|id| id == topic.id) => Judgement::Known(topic),
            Some(_) => stray("another topic has its name"),
            None if id.is_some_and(|id| self.topic_by_id(id).is_some()) => stray("another topic has its id"),
            None => Judgement::New,
        }
    }

    fn record(&self, name: TopicName, topic: Adopted) -> Record {
        let overrides = adopted_overrides(&name);
        Record::Topic { id: topic.id, name, overrides, partitions: self.states(0, &topic.epochs) }
    }

    /// Partitions from `first` to the highest that was found. Those between that have no directory start empty.
    fn states(&self, first: i32, epochs: &BTreeMap<i32, LeaderEpoch>) -> Vec<PartitionState> {
        let last = epochs.last_key_value().map_or(first.saturating_sub(1), |(index, _)| *index);
        let state = |index: i32| PartitionState::new(vec![self.node_id], epochs.get(&index).copied().unwrap_or(LeaderEpoch(0)));
        (first..=last).map(state).collect()
    }
}

enum Judgement<'a> {
    Final(Verdict),
    Known(&'a Topic),
    New,
}

struct Adopted {
    id: TopicId,
    epochs: BTreeMap<i32, LeaderEpoch>,
}

/// An epoch after every one that the directory has seen.
fn next_epoch(one: &FoundPartition) -> LeaderEpoch {
    LeaderEpoch(one.newest_epoch.map_or(0, |epoch| epoch.0.saturating_add(1)).max(0))
}

/// The log knows of a later epoch than the journal (which was restored from an older copy): never go back.
fn raise(topic: &Topic, state: &PartitionState, one: &FoundPartition) -> Option<Record> {
    let behind = one.newest_epoch.is_some_and(|newest| newest > state.leader_epoch);
    behind.then(|| Record::LeaderEpochSet { id: topic.id, partition: one.topic.partition, leader_epoch: next_epoch(one) })
}

fn adopt(adopted: &mut BTreeMap<TopicName, Adopted>, one: &FoundPartition, fresh: impl FnOnce() -> Option<TopicId>) -> Verdict {
    let own = one.topic_id.filter(|id| !id.is_zero());
    let PartitionIndex(index) = one.topic.partition;
    if let Some(topic) = adopted.get_mut(&one.topic.topic) {
        if own.is_some_and(|own| own != topic.id) {
            return Verdict::Stray("another partition of its topic has another topic id".to_owned());
        }
        topic.epochs.insert(index, next_epoch(one));
        return Verdict::Belongs(topic.id);
    }
    if own.is_some_and(|own| adopted.values().any(|topic| topic.id == own)) {
        return Verdict::Stray("another topic has its id".to_owned());
    }
    let Some(id) = own.or_else(fresh) else { return Verdict::Stray("there is no id for its topic".to_owned()) };
    adopted.insert(one.topic.topic.clone(), Adopted { id, epochs: BTreeMap::from([(index, next_epoch(one))]) });
    Verdict::Belongs(id)
}

/// What an adopted topic's configs begin as. Those that it had where it was written are not in its directories: until they are set again
/// nothing of it may be deleted by age or size, which the broker's defaults would do.
fn adopted_overrides(name: &TopicName) -> BTreeMap<String, String> {
    let internal = internal_overrides(name);
    if !internal.is_empty() {
        return internal;
    }
    ["retention.ms", "retention.bytes"].map(|key| (key.to_owned(), "-1".to_owned())).into()
}

/// The overrides that Kafka creates its internal topics with: retention would eat what they hold.
fn internal_overrides(name: &TopicName) -> BTreeMap<String, String> {
    let compacted = matches!(name.as_str(), "__consumer_offsets" | "__transaction_state" | "__share_group_state");
    let pair = |key: &str, value: &str| (key.to_owned(), value.to_owned());
    if compacted { BTreeMap::from([pair("cleanup.policy", "compact"), pair("segment.bytes", "104857600")]) } else { BTreeMap::new() }
}
