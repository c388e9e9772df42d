//! All groups and topics as the last sweep saw them. Pure: a sweep is handed in, look-ups that are owed are handed out.

use super::{
    fetches::{ClientKey, Fetched},
    group::{GroupLag, GroupSeen, Summary},
    partition::{First, Outlook, Reader, Reading},
    topic::{EndedBy, Open, PartitionSeen, TopicFlow},
};
use crate::{
    group::GroupId,
    types::{Millis, Offset, PartitionIndex, TopicId, TopicName, TopicPartition},
};
use std::collections::BTreeMap;

/// When retention may take a record is looked at again after so long.
const OUTLOOK_INTERVAL_MS: i64 = 30_000;

/// What somebody has to look up in a log, for one group's reading of a partition.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Owed {
    pub group: GroupId,
    pub topic: TopicName,
    pub id: TopicId,
    pub partition: PartitionIndex,
    pub read_committed: bool,
    pub what: Wanted,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Wanted {
    /// The first visible record from here on.
    First(Offset),
    /// When retention may take this record.
    Outlook(Offset),
}

/// What a look-up came to.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Answer {
    First(First, Outlook),
    /// Nothing visible up to here, and whether the readable log ended there.
    Nothing {
        upto: Offset,
        ended: bool,
    },
    Outlook(Outlook),
}

/// Everything.
#[derive(Debug, Default)]
pub struct State {
    pub topics: BTreeMap<TopicName, TopicFlow>,
    pub groups: BTreeMap<GroupId, GroupLag>,
    sweep: u64,
    /// Where the next round of look-ups begins, so that all have their turn.
    next: Option<GroupId>,
}

impl State {
    /// A sweep begins: what it doesn't see is gone at its end.
    pub fn begin(&mut self) {
        self.sweep = self.sweep.saturating_add(1);
    }

    /// A topic, with its partitions in order; `None` for one whose log isn't here.
    pub fn note_topic(
        &mut self,
        now: Millis,
        name: &TopicName,
        id: TopicId,
        internal: bool,
        partitions: impl Iterator<Item = Option<PartitionSeen>>,
    ) {
        if self.topics.get(name).is_none_or(|flow| flow.id != id) {
            self.topics.insert(name.clone(), TopicFlow::new(id, internal));
        }
        let Some(flow) = self.topics.get_mut(name) else { return };
        flow.sweep = self.sweep;
        for (index, seen) in partitions.enumerate() {
            flow.note(now, index, seen);
        }
    }

    /// All topics have been noted: the others are gone.
    pub fn end_topics(&mut self) {
        self.topics.retain(|_, flow| flow.sweep == self.sweep);
    }

    /// The oldest open transaction of each partition that has one, after the topics.
    pub fn open_transactions(&self) -> impl Iterator<Item = (TopicId, TopicPartition, Open)> {
        self.topics.iter().flat_map(|(topic, flow)| {
            (0..).map(PartitionIndex).zip(&flow.partitions).filter_map(|(partition, of)| {
                let open = of.open?;
                Some((flow.id, TopicPartition { topic: topic.clone(), partition }, open))
            })
        })
    }

    /// Who ends the transaction that is open in a partition.
    pub fn note_ended_by(&mut self, at: &TopicPartition, ended_by: EndedBy) {
        let place = usize::try_from(at.partition.0).ok();
        let flow = self.topics.get_mut(&at.topic).zip(place).and_then(|(flow, place)| flow.partitions.get_mut(place));
        if let Some(flow) = flow {
            flow.ended_by = ended_by;
        }
    }

    /// A group, after the topics.
    pub fn note_group(
        &mut self,
        now: Millis,
        id: &GroupId,
        seen: GroupSeen<'_>,
        fetched: impl Fn(ClientKey, TopicId, PartitionIndex) -> Option<Fetched>,
    ) {
        if !self.groups.contains_key(id) {
            self.groups.insert(id.clone(), GroupLag::new(seen.described.clone()));
        }
        if let Some(group) = self.groups.get_mut(id) {
            group.note(now, self.sweep, seen, &self.topics, fetched);
            group.remember(now, &self.topics);
        }
    }

    /// A sweep ends. Groups that it did not see are gone, unless a coordinator was not there to show all: then they stay as they were.
    pub fn end(&mut self, saw_all: bool) {
        let sweep = self.sweep;
        self.groups.retain(|_, group| !saw_all || group.sweep == sweep);
    }

    /// Some of what is owed, at most so many, beginning where the call before it ended.
    pub fn owed(&mut self, now: Millis, max: usize) -> Vec<Owed> {
        let mut owed = Vec::new();
        let from = self.next.take();
        let (before, after): (Vec<_>, Vec<_>) = self.groups.iter().partition(|(id, _)| from.as_ref().is_some_and(|from| *id < from));
        for (id, group) in after.into_iter().chain(before) {
            if owed.len() >= max {
                self.next = Some(id.clone());
                break;
            }
            self.owed_by(now, id, group, &mut owed);
        }
        owed
    }

    fn owed_by(&self, now: Millis, id: &GroupId, group: &GroupLag, owed: &mut Vec<Owed>) {
        for (topic, reading) in &group.topics {
            let Some(flow) = self.topics.get(topic).filter(|flow| flow.id == reading.id) else { continue };
            for reader in reading.readers.iter().filter(|reader| reader.reading != Reading::Silent) {
                let marks = flow.partition(reader.partition).and_then(|flow| flow.marks);
                if let Some(what) = marks.and_then(|marks| wanted(now, reader, &marks)) {
                    owed.push(Owed {
                        group: id.clone(),
                        topic: topic.clone(),
                        id: reading.id,
                        partition: reader.partition,
                        read_committed: reader.read_committed,
                        what,
                    });
                }
            }
        }
    }

    /// What one group is owed.
    pub fn owed_to(&self, now: Millis, id: &str) -> Vec<Owed> {
        let mut owed = Vec::new();
        if let Some((id, group)) = self.groups.get_key_value(id) {
            self.owed_by(now, id, group, &mut owed);
        }
        owed
    }

    /// Takes the answer to something owed. Of no use if the group went on meanwhile.
    pub fn answer(&mut self, owed: &Owed, answer: Answer) {
        let marks = self.topics.get(&owed.topic).filter(|flow| flow.id == owed.id).and_then(|flow| flow.partition(owed.partition)?.marks);
        let reading = self.groups.get_mut(&owed.group).and_then(|group| group.topics.get_mut(&owed.topic));
        let (Some(marks), Some(reader)) = (marks, reading.and_then(|reading| reading.get_mut(owed.partition))) else { return };
        if reader.read_committed != owed.read_committed {
            return;
        }
        match (owed.what, answer) {
            (Wanted::First(asked), Answer::First(first, outlook)) => {
                reader.found(&marks, asked, first);
                reader.outlook = outlook;
            }
            (Wanted::First(asked), Answer::Nothing { upto, ended }) => reader.found_nothing(&marks, asked, upto, ended),
            (Wanted::Outlook(offset), Answer::Outlook(outlook)) if reader.first(&marks).is_some_and(|first| first.offset == offset) => {
                reader.outlook = outlook;
            }
            _ => {}
        }
    }

    /// A group's numbers together.
    pub fn summary(&self, now: Millis, group: &GroupLag) -> Summary {
        group.summary(now, &self.topics)
    }
}

fn wanted(now: Millis, reader: &Reader, marks: &super::partition::Marks) -> Option<Wanted> {
    if let Some(from) = reader.owes(marks) {
        return Some(Wanted::First(from));
    }
    let first = reader.first(marks)?;
    let is_due = reader.outlook.looked.is_none_or(|looked| now.0.abs_diff(looked.0) >= OUTLOOK_INTERVAL_MS.unsigned_abs());
    is_due.then_some(Wanted::Outlook(first.offset))
}
