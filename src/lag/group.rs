//! A group: the partitions that it reads, who owns them, its rebalances, and its last hour. Pure.

use super::{
    fetches::{ClientKey, Fetched},
    partition::{Behind, CatchUp, Commit, Reader, Reading, catch_up},
    topic::TopicFlow,
};
use crate::{
    group::{Committed, Watched, WatchedMember},
    types::{Millis, PartitionIndex, TopicId, TopicName, TopicPartition},
};
use std::{
    collections::{BTreeMap, BTreeSet, VecDeque},
    sync::Arc,
};

/// A point of the history is taken so often …
const HISTORY_INTERVAL_MS: i64 = 30_000;
/// … and so many make the last hour.
const HISTORY_POINTS: usize = 120;
/// Sweeps further apart than this don't say what was between them.
const SWEEP_GAP_MS_MAX: i64 = 10_000;

/// A moment of a group's past.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Point {
    pub at: Millis,
    pub records: i64,
    pub ms: Option<i64>,
}

/// What a group does with a topic.
#[derive(Clone, Debug)]
pub struct TopicReading {
    pub id: TopicId,
    /// By partition.
    pub readers: Vec<Reader>,
}

impl TopicReading {
    fn new(id: TopicId) -> Self {
        Self { id, readers: Vec::new() }
    }

    pub fn get_mut(&mut self, partition: PartitionIndex) -> Option<&mut Reader> {
        let at = self.find(partition).ok()?;
        self.readers.get_mut(at)
    }

    /// Where a partition's reader is, or belongs. A group mostly reads all partitions: then each has its own number's place.
    fn find(&self, partition: PartitionIndex) -> Result<usize, usize> {
        let own = usize::try_from(partition.0).unwrap_or(usize::MAX);
        match self.readers.get(own) {
            Some(reader) if reader.partition == partition => Ok(own),
            _ => self.readers.binary_search_by_key(&partition, |reader| reader.partition),
        }
    }

    fn entry(&mut self, partition: PartitionIndex) -> Option<&mut Reader> {
        let at = match self.find(partition) {
            Ok(at) => at,
            Err(at) => {
                self.readers.insert(at, Reader::new(partition));
                at
            }
        };
        self.readers.get_mut(at)
    }
}

/// A member, by its place in the group's description.
#[derive(Clone, Debug)]
struct Owned {
    client: Option<ClientKey>,
    partitions: Vec<(TopicName, Vec<PartitionIndex>)>,
}

/// A group as a sweep sees it.
pub struct GroupSeen<'a> {
    pub described: Watched,
    pub committed: Vec<(&'a TopicName, PartitionIndex, &'a Committed)>,
    /// How often it rebalanced, by cause.
    pub rebalances: BTreeMap<&'static str, u64>,
    /// When the rebalance that is under way began.
    pub rebalancing_since: Option<Millis>,
    /// Partition-milliseconds that partitions had no owner between two of them.
    pub between_owners_ms: u64,
    /// The partitions that are between two owners now.
    pub between_owners: BTreeSet<TopicPartition>,
}

/// A group and how far behind it is.
#[derive(Debug)]
pub struct GroupLag {
    pub described: Watched,
    pub topics: BTreeMap<TopicName, TopicReading>,
    pub history: VecDeque<Point>,
    pub rebalances: BTreeMap<&'static str, u64>,
    pub rebalancing_since: Option<Millis>,
    /// As the group's story has them, to the millisecond.
    between_owners_ms: u64,
    /// Partition-milliseconds of partitions that never had an owner, as sweeps saw them.
    never_owned_ms: u64,
    owned: Vec<Owned>,
    swept: Option<Millis>,
    pub(super) sweep: u64,
}

/// All of a group in a few numbers. Abandoned and silent partitions are counted and otherwise left out.
#[derive(Clone, PartialEq, Debug, Default)]
pub struct Summary {
    pub partitions: usize,
    pub records: i64,
    pub records_max: i64,
    /// The worst; `None` if none is known.
    pub ms: Option<i64>,
    pub event_ms: Option<i64>,
    pub margin_ms: Option<i64>,
    pub oldest: Option<Millis>,
    pub last_commit: Option<Millis>,
    pub lost: u64,
    pub consumed: Option<f64>,
    pub produced: Option<f64>,
    pub catch_up: CatchUp,
    pub abandoned: usize,
    pub uncommitted: usize,
    pub pending: usize,
    pub stuck: usize,
    pub beyond: usize,
    /// Partitions whose committed records are read, and that a transaction is open in for long or for ever.
    pub held_back: usize,
}

impl GroupLag {
    pub fn new(described: Watched) -> Self {
        let mut group = Self {
            described,
            topics: BTreeMap::new(),
            history: VecDeque::new(),
            rebalances: BTreeMap::new(),
            rebalancing_since: None,
            between_owners_ms: 0,
            never_owned_ms: 0,
            owned: Vec::new(),
            swept: None,
            sweep: 0,
        };
        group.note_members();
        group
    }

    fn note_members(&mut self) {
        let owned = |member: &WatchedMember| Owned {
            client: ClientKey::of_member(&member.client_id, &member.client_host),
            partitions: member.owned(),
        };
        self.owned = self.described.members.iter().map(owned).collect();
    }

    /// The group as it is now, with the topics that are there.
    pub fn note(
        &mut self,
        now: Millis,
        sweep: u64,
        seen: GroupSeen<'_>,
        topics: &BTreeMap<TopicName, TopicFlow>,
        fetched: impl Fn(ClientKey, TopicId, PartitionIndex) -> Option<Fetched>,
    ) {
        self.sweep = sweep;
        (self.rebalances, self.rebalancing_since) = (seen.rebalances, seen.rebalancing_since);
        self.between_owners_ms = seen.between_owners_ms;
        if self.described != seen.described {
            self.described = seen.described;
            self.note_members();
        }
        for of_topic in seen.committed.chunk_by(|(one, ..), (next, ..)| one == next) {
            let Some((flow, reading)) = of_topic.first().and_then(|(topic, ..)| reading_of(&mut self.topics, topics, topic)) else {
                continue;
            };
            for (_, partition, committed) in of_topic.iter().filter(|(_, partition, _)| flow.partition(*partition).is_some()) {
                let Some(reader) = reading.entry(*partition) else { continue };
                reader.note_commit(now, Commit { offset: committed.offset, at: committed.committed_at });
                (reader.sweep, reader.owner) = (sweep, None);
            }
        }
        self.note_owners(now, sweep, topics, fetched);
        for reading in self.topics.values_mut() {
            reading.readers.retain(|reader| reader.sweep == sweep);
        }
        self.topics.retain(|_, reading| !reading.readers.is_empty());
        self.note_readings();
        self.note_marks(topics);
        self.note_never_owned(now, topics, &seen.between_owners);
        self.swept = Some(now);
    }

    /// Whose the partitions are; those without a commit are there by what is fetched of them.
    fn note_owners(
        &mut self,
        now: Millis,
        sweep: u64,
        topics: &BTreeMap<TopicName, TopicFlow>,
        fetched: impl Fn(ClientKey, TopicId, PartitionIndex) -> Option<Fetched>,
    ) {
        for (place, member) in self.owned.iter().enumerate() {
            for (topic, partitions) in &member.partitions {
                let Some((flow, reading)) = reading_of(&mut self.topics, topics, topic) else { continue };
                for partition in partitions.iter().filter(|partition| flow.partition(**partition).is_some()) {
                    let Some(reader) = reading.entry(*partition) else { continue };
                    let fetched = member.client.and_then(|client| fetched(client, flow.id, *partition));
                    if let Some(fetched) = fetched {
                        reader.note_isolation(fetched.read_committed);
                    }
                    if reader.sweep != sweep {
                        // Not committed.
                        reader.reading = if fetched.is_some() { Reading::FetchingOnly } else { Reading::Silent };
                        reader.commit = None;
                        fetched.iter().for_each(|fetched| reader.note_fetch(now, fetched.offset));
                    }
                    (reader.sweep, reader.owner) = (sweep, Some(place));
                }
            }
        }
    }

    fn note_readings(&mut self) {
        let has_members = !self.described.members.is_empty();
        for (topic, reading) in &mut self.topics {
            let is_read = self.described.subscribed.as_ref().is_none_or(|subscribed| subscribed.contains(topic));
            for reader in reading.readers.iter_mut().filter(|reader| reader.commit.is_some()) {
                reader.reading = match reader.owner {
                    Some(_) => Reading::Committing,
                    None if !has_members => Reading::Idle,
                    None if !is_read => Reading::Abandoned,
                    None => Reading::Unowned,
                };
            }
        }
    }

    /// Where the partitions begin and end now.
    pub fn note_marks(&mut self, topics: &BTreeMap<TopicName, TopicFlow>) {
        for (topic, reading) in &mut self.topics {
            let Some(flow) = topics.get(topic).filter(|flow| flow.id == reading.id) else { continue };
            for reader in &mut reading.readers {
                if let Some(marks) = flow.partition(reader.partition).and_then(|flow| flow.marks) {
                    reader.note_marks(&marks);
                }
            }
        }
    }

    /// Partition-milliseconds without an owner, while it had members.
    pub fn unowned_ms(&self) -> u64 {
        self.between_owners_ms.saturating_add(self.never_owned_ms)
    }

    /// Adds up how long partitions that its members read were nobody's and had not been somebody's just before: that the group's story knows.
    fn note_never_owned(&mut self, now: Millis, topics: &BTreeMap<TopicName, TopicFlow>, between_owners: &BTreeSet<TopicPartition>) {
        let passed = self.swept.map_or(0, |swept| now.0.saturating_sub(swept.0)).clamp(0, SWEEP_GAP_MS_MAX);
        if self.described.members.is_empty() || passed == 0 {
            return;
        }
        let read = self.described.subscribed.iter().flat_map(|topics| topics.iter()).filter_map(|topic| Some((topic, topics.get(topic)?)));
        let all: usize = read.map(|(_, flow)| flow.partitions.len()).sum();
        let owned = || self.owned.iter().flat_map(|member| &member.partitions);
        let mut known: usize = owned().map(|(_, partitions)| partitions.len()).sum();
        if !between_owners.is_empty() {
            // While a group rebalances, members that have let go of partitions still have their last assignment.
            let each = owned().flat_map(|(topic, partitions)| {
                partitions.iter().map(|partition| TopicPartition { topic: topic.clone(), partition: *partition })
            });
            let still = each.filter(|partition| between_owners.contains(partition)).count();
            known = known.saturating_add(between_owners.len()).saturating_sub(still);
        }
        let never = u64::try_from(all.saturating_sub(known)).unwrap_or(0);
        self.never_owned_ms = self.never_owned_ms.saturating_add(never.saturating_mul(passed.unsigned_abs()));
    }

    /// Each partition that it reads, with how far behind it is.
    pub fn partitions<'a>(
        &'a self,
        now: Millis,
        topics: &'a BTreeMap<TopicName, TopicFlow>,
    ) -> impl Iterator<Item = (&'a TopicName, &'a Reader, Option<Behind>)> {
        self.topics.iter().flat_map(move |(topic, reading)| {
            let flow = topics.get(topic).filter(|flow| flow.id == reading.id);
            reading.readers.iter().map(move |reader| {
                let flow = flow.and_then(|flow| flow.partition(reader.partition));
                let behind = flow.and_then(|flow| Some(reader.behind(now, &flow.marks?, flow.bytes.per_second())));
                (topic, reader, behind.filter(|_| reader.reading != Reading::Silent))
            })
        })
    }

    pub fn summary(&self, now: Millis, topics: &BTreeMap<TopicName, TopicFlow>) -> Summary {
        let mut sum = Summary::default();
        let (mut consumed, mut produced): (Option<f64>, Option<f64>) = (None, None);
        let add = |to: &mut Option<f64>, rate: Option<f64>| *to = rate.map(|rate| to.unwrap_or(0.0) + rate).or(*to);
        for (topic, reader, behind) in self.partitions(now, topics) {
            sum.partitions = sum.partitions.saturating_add(1);
            sum.lost = sum.lost.saturating_add(reader.lost);
            sum.last_commit = sum.last_commit.max(reader.commit.map(|commit| commit.at));
            match reader.reading {
                Reading::Abandoned => {
                    sum.abandoned = sum.abandoned.saturating_add(1);
                    continue;
                }
                Reading::FetchingOnly => sum.uncommitted = sum.uncommitted.saturating_add(1),
                _ => {}
            }
            let flow = topics.get(topic).and_then(|flow| flow.partition(reader.partition));
            let holds = reader.read_committed && flow.is_some_and(|flow| flow.held_back_by(now).is_some());
            sum.held_back = sum.held_back.saturating_add(usize::from(holds));
            let Some(behind) = behind else { continue };
            sum.records = sum.records.saturating_add(behind.records);
            sum.records_max = sum.records_max.max(behind.records);
            sum.ms = sum.ms.max(behind.ms);
            sum.event_ms = sum.event_ms.max(behind.event_ms);
            sum.margin_ms = sum.margin_ms.into_iter().chain(behind.margin_ms).min();
            let timestamp = behind.first.map(|first| first.timestamp).filter(|timestamp| timestamp.0 >= 0);
            sum.oldest = sum.oldest.into_iter().chain(timestamp).min();
            sum.pending = sum.pending.saturating_add(usize::from(behind.pending));
            sum.stuck = sum.stuck.saturating_add(usize::from(behind.is_stuck(reader.reading)));
            sum.beyond = sum.beyond.saturating_add(usize::from(behind.beyond > 0));
            add(&mut consumed, reader.consumed.per_second());
            add(&mut produced, flow.and_then(|flow| flow.records.per_second()));
        }
        (sum.consumed, sum.produced) = (consumed, produced);
        sum.catch_up = catch_up(sum.records, consumed, produced);
        sum
    }

    /// Takes a point of the history, if it's time.
    pub fn remember(&mut self, now: Millis, topics: &BTreeMap<TopicName, TopicFlow>) {
        let is_due = self.history.back().is_none_or(|last| now.0.abs_diff(last.at.0) >= HISTORY_INTERVAL_MS.unsigned_abs());
        if !is_due {
            return;
        }
        let Summary { records, ms, .. } = self.summary(now, topics);
        // A clock set back would draw the past behind the future.
        self.history.retain(|point| point.at < now);
        if self.history.len() >= HISTORY_POINTS {
            self.history.pop_front();
        }
        self.history.push_back(Point { at: now, records, ms });
    }

    /// The member at a place, as readers name their owners.
    pub fn member(&self, place: usize) -> Option<&Arc<str>> {
        self.described.members.get(place).map(|member| &member.member_id)
    }

    /// What the member at a place was given.
    pub fn assignment(&self, place: usize) -> &[(TopicName, Vec<PartitionIndex>)] {
        self.owned.get(place).map_or(&[], |owned| &owned.partitions)
    }
}

/// The reading of a topic that is there; made if need be, anew if the topic is another of the same name.
fn reading_of<'a, 'b>(
    readings: &'a mut BTreeMap<TopicName, TopicReading>,
    topics: &'b BTreeMap<TopicName, TopicFlow>,
    topic: &TopicName,
) -> Option<(&'b TopicFlow, &'a mut TopicReading)> {
    let flow = topics.get(topic)?;
    if readings.get(topic).is_none_or(|reading| reading.id != flow.id) {
        readings.insert(topic.clone(), TopicReading::new(flow.id));
    }
    Some((flow, readings.get_mut(topic)?))
}
