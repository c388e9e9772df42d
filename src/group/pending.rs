//! Offsets that were committed in transactions: they count from the transaction's commit marker on (`OffsetMetadataManager`, KIP-447).
//!
//! Until the marker comes a consumer that wants stable offsets is sent away. Whatever was committed later than a pending offset, in a
//! transaction or not, stays when the older one's marker comes.

use super::{Commit, Committed, Decision, Group, GroupId, Groups, Now, Record, groups::Protocol};
use crate::types::{ErrorCode, PartitionIndex, ProducerId, TopicName, TopicPartition};
use std::collections::{BTreeMap, hash_map::Entry};

/// One offset that waits for its marker.
#[derive(Clone, PartialEq, Debug)]
struct Waiting {
    committed: Committed,
    /// Its place among the pending offsets of the group, in the order of the log.
    order: u64,
    /// Something later was committed for the partition: a commit of this one changes nothing.
    outdated: bool,
}

/// A group's offsets that wait for markers.
#[derive(Clone, PartialEq, Debug, Default)]
pub(super) struct Pending {
    by_producer: BTreeMap<ProducerId, BTreeMap<TopicPartition, Waiting>>,
    orders: u64,
}

impl Pending {
    pub fn is_empty(&self) -> bool {
        self.by_producer.is_empty()
    }

    pub fn has(&self, topic: &str, partition: PartitionIndex) -> bool {
        let waits = |of: &BTreeMap<TopicPartition, Waiting>| of.keys().any(|p| p.partition == partition && p.topic.as_str() == topic);
        self.by_producer.values().any(waits)
    }

    /// What waits; a partition comes as often as producers committed for it.
    fn iter(&self) -> impl Iterator<Item = (&TopicPartition, &Committed)> {
        self.by_producer.values().flatten().map(|(partition, waiting)| (partition, &waiting.committed))
    }

    fn insert(&mut self, producer: ProducerId, partition: TopicPartition, committed: Committed) {
        self.orders = self.orders.saturating_add(1);
        let waiting = Waiting { committed, order: self.orders, outdated: false };
        self.by_producer.entry(producer).or_default().insert(partition, waiting);
    }

    /// A later offset was committed for the partition.
    fn outdate(&mut self, partition: &TopicPartition, before: u64) {
        let of_partition = self.by_producer.values_mut().filter_map(|of| of.get_mut(partition));
        of_partition.filter(|waiting| waiting.order < before).for_each(|waiting| waiting.outdated = true);
    }

    /// The partition's offset was forgotten, and with it what waits for it.
    fn forget(&mut self, partition: &TopicPartition) {
        self.by_producer.retain(|_, of| {
            of.remove(partition);
            !of.is_empty()
        });
        self.rest();
    }

    /// Takes out what a producer's marker ends.
    fn end(&mut self, producer: ProducerId, commit: bool) -> Vec<(TopicPartition, Committed)> {
        let ended = self.by_producer.remove(&producer).unwrap_or_default();
        let mut counts = Vec::new();
        for (partition, waiting) in ended.into_iter().filter(|(_, waiting)| commit && !waiting.outdated) {
            self.outdate(&partition, waiting.order);
            counts.push((partition, waiting.committed));
        }
        self.rest();
        counts
    }

    /// Without anything pending the order begins anew: states that hold the same are equal.
    fn rest(&mut self) {
        if self.by_producer.is_empty() {
            self.orders = 0;
        }
    }
}

impl Group {
    /// A record of the offsets topic outside of transactions.
    pub(super) fn apply_offset(&mut self, partition: &TopicPartition, value: Option<&Committed>) {
        match value {
            Some(_) => self.pending.outdate(partition, u64::MAX),
            None => self.pending.forget(partition),
        }
        self.offsets.apply(partition, value);
    }

    /// Tombstones for what is pending and not committed as well, where `which` picks it.
    pub(super) fn pending_tombstones(&self, group: &GroupId, which: impl Fn(&TopicName, &Committed) -> bool) -> Vec<Record> {
        let is_committed = |p: &TopicPartition| self.offsets.get(p.topic.as_str(), p.partition).is_some();
        let picked = self.pending.iter().filter(|(p, committed)| !is_committed(p) && which(&p.topic, committed));
        let mut partitions: Vec<_> = picked.map(|(partition, _)| partition).collect();
        partitions.sort_unstable();
        partitions.dedup();
        let tombstone = |p: &TopicPartition| Record::Offset { group: group.clone(), partition: p.clone(), value: None };
        partitions.into_iter().map(tombstone).collect()
    }
}

impl Groups {
    /// TxnOffsetCommit. The records are to be appended in the producer's transaction, and applied by [`Groups::apply_pending`]. Each
    /// partition's answer is in the order of the request; an error for all of it is `Err`.
    pub fn decide_commit_in_transaction(&self, now: Now, commit: &Commit) -> Decision<Result<Vec<ErrorCode>, ErrorCode>> {
        let from = &commit.from;
        let checked = match self.get(&from.group).map(Group::protocol) {
            Some(Protocol::Classic(classic)) => classic.check_commit(&from.member_id, from.instance_id.as_ref(), from.generation, true),
            Some(Protocol::Consumer(consumer)) => consumer.check_commit(self.topics(), commit, true),
            None if from.generation.0 < 0 => Ok(()),
            None => Err(ErrorCode::IllegalGeneration),
        };
        if let Err(error) = checked {
            return Decision::only(Err(error));
        }
        let (records, reply) = self.commit_records(now, commit, None);
        Decision { records, ..Decision::only(Ok(reply)) }
    }

    /// Applies a record of a producer's transaction: it waits for the marker.
    pub fn apply_pending(&mut self, producer: ProducerId, record: &Record) {
        // Only offsets are written in transactions; anything else counts at once.
        let Record::Offset { group, partition, value: Some(committed) } = record else { return self.apply(record) };
        let entry = match self.groups.entry(group.clone()) {
            Entry::Occupied(entry) => entry.into_mut(),
            Entry::Vacant(entry) => entry.insert(Group::default()),
        };
        entry.pending.insert(producer, partition.clone(), committed.clone());
        self.in_transactions.entry(producer).or_default().insert(group.clone());
    }

    /// A marker has ended a producer's transaction.
    pub fn end_transaction(&mut self, producer: ProducerId, commit: bool) {
        for id in self.in_transactions.remove(&producer).unwrap_or_default() {
            let Some(group) = self.groups.get_mut(&id) else { continue };
            for (partition, committed) in group.pending.end(producer, commit) {
                group.offsets.apply(&partition, Some(&committed));
            }
            if group.is_nothing() {
                self.groups.remove(&id);
            }
        }
    }

    /// Whether an offset may still change by a transaction that is open (UNSTABLE_OFFSET_COMMIT).
    pub fn is_unstable(&self, group: &str, topic: &str, partition: PartitionIndex) -> bool {
        self.get(group).is_some_and(|group| group.pending.has(topic, partition))
    }

    /// Whether a producer has offsets here that wait for its marker.
    pub fn has_pending(&self, producer: ProducerId) -> bool {
        self.in_transactions.contains_key(&producer)
    }
}
