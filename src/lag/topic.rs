//! What is produced to a topic, and how evenly over its partitions. Pure.

use super::{partition::Marks, rate::Rate};
use crate::types::{Millis, Offset, PartitionIndex, ProducerId, TopicId};
use std::sync::Arc;

/// A partition as a sweep sees it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct PartitionSeen {
    pub marks: Marks,
    pub log_end: Offset,
    /// Bytes appended since the broker started.
    pub bytes_in: i64,
    /// It takes no writes.
    pub offline: bool,
    pub open: Option<Open>,
}

/// The oldest transaction that is open and holds readers of committed records back.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Open {
    pub producer_id: ProducerId,
    pub first_offset: Offset,
    pub since: Millis,
}

/// A transaction of a younger age is on its way: naming it in every scrape would be a new series for each.
const NAMED_AFTER_MS: i64 = 10_000;

impl Open {
    pub fn age_ms(&self, now: Millis) -> i64 {
        now.0.saturating_sub(self.since.0).max(0)
    }
}

/// Who ends the open transaction of a partition.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub enum EndedBy {
    /// Not known: a coordinator that loads can't say.
    #[default]
    Unknown,
    /// The coordinator, which has the partition in the transaction of this transactional id.
    Coordinator(Arc<str>),
    /// Nobody: it hangs (KIP-664). An administrator ends it.
    Nobody,
}

impl EndedBy {
    /// Each way's name.
    pub fn name(&self) -> &'static str {
        match self {
            Self::Unknown => "unknown",
            Self::Coordinator(_) => "coordinator",
            Self::Nobody => "nobody",
        }
    }

    pub fn transactional_id(&self) -> Option<&str> {
        match self {
            Self::Coordinator(id) => Some(id),
            Self::Unknown | Self::Nobody => None,
        }
    }
}

/// A partition's flow.
#[derive(Clone, PartialEq, Debug, Default)]
pub struct Flow {
    /// `None` while no log of it is here.
    pub marks: Option<Marks>,
    pub offline: bool,
    pub open: Option<Open>,
    /// Of the open transaction.
    pub ended_by: EndedBy,
    pub records: Rate,
    pub bytes: Rate,
}

impl Flow {
    /// The open transaction, once it is worth a name: it is open for long, or hangs.
    pub fn held_back_by(&self, now: Millis) -> Option<Open> {
        self.open.filter(|open| self.ended_by == EndedBy::Nobody || open.age_ms(now) >= NAMED_AFTER_MS)
    }
}

/// A topic's flow.
#[derive(Clone, PartialEq, Debug)]
pub struct TopicFlow {
    pub id: TopicId,
    pub internal: bool,
    pub partitions: Vec<Flow>,
    pub(super) sweep: u64,
}

/// How unevenly a topic is produced to.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct Skew {
    /// The busiest partition's rate over the mean: 1 is even, the number of partitions is all in one.
    pub ratio: f64,
    pub hottest: PartitionIndex,
}

/// Below this a topic is as good as silent, and its skew would be an accident.
const RATE_MIN: f64 = 0.01;

impl TopicFlow {
    pub fn new(id: TopicId, internal: bool) -> Self {
        Self { id, internal, partitions: Vec::new(), sweep: 0 }
    }

    pub fn partition(&self, index: PartitionIndex) -> Option<&Flow> {
        self.partitions.get(usize::try_from(index.0).ok()?)
    }

    /// The partition as it is now; `None` if its log isn't here.
    pub fn note(&mut self, now: Millis, index: usize, seen: Option<PartitionSeen>) {
        if self.partitions.len() <= index {
            self.partitions.resize(index.saturating_add(1), Flow::default());
        }
        let Some(flow) = self.partitions.get_mut(index) else { return };
        flow.marks = seen.map(|seen| seen.marks);
        flow.offline = seen.is_none_or(|seen| seen.offline);
        let open = seen.and_then(|seen| seen.open);
        let same = |a: Open, b: Open| (a.producer_id, a.first_offset) == (b.producer_id, b.first_offset);
        if !flow.open.zip(open).is_some_and(|(before, now)| same(before, now)) {
            flow.ended_by = EndedBy::Unknown;
        }
        flow.open = open;
        if let Some(seen) = seen {
            flow.records.note(now, seen.log_end.0);
            flow.bytes.note(now, seen.bytes_in);
        }
    }

    /// Records per second, over all partitions.
    pub fn rate(&self) -> f64 {
        self.partitions.iter().filter_map(|flow| flow.records.per_second()).sum()
    }

    pub fn bytes_rate(&self) -> f64 {
        self.partitions.iter().filter_map(|flow| flow.bytes.per_second()).sum()
    }

    /// `None` where nothing is produced, or there's only one partition.
    pub fn skew(&self) -> Option<Skew> {
        let rate = self.rate();
        if self.partitions.len() < 2 || rate < RATE_MIN {
            return None;
        }
        let rates = self.partitions.iter().map(|flow| flow.records.per_second().unwrap_or(0.0));
        let (hottest, busiest) = (0..).map(PartitionIndex).zip(rates).max_by(|(_, a), (_, b)| a.total_cmp(b))?;
        Some(Skew { ratio: busiest * self.partitions.len() as f64 / rate, hottest })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn flow(rates: &[i64]) -> TopicFlow {
        let mut topic = TopicFlow::new(TopicId::ZERO, false);
        for second in 0..3 {
            for (index, rate) in rates.iter().enumerate() {
                let seen = PartitionSeen {
                    marks: Marks::default(),
                    log_end: Offset(second * rate),
                    bytes_in: second * rate * 10,
                    offline: false,
                    open: None,
                };
                topic.note(Millis(second * 1_000), index, Some(seen));
            }
        }
        topic
    }

    #[test]
    fn a_hot_partition_shows() {
        let skew = flow(&[10, 10, 70, 10]).skew().unwrap();
        assert!((skew.ratio - 2.8).abs() < 1e-9 && skew.hottest == PartitionIndex(2), "{skew:?}");
        assert!((flow(&[5, 5]).skew().unwrap().ratio - 1.0).abs() < 1e-9);
        assert!((flow(&[0, 9, 0]).skew().unwrap().ratio - 3.0).abs() < 1e-9);
    }

    #[test]
    fn a_silent_topic_and_a_single_partition_have_none() {
        assert_eq!(flow(&[0, 0]).skew(), None);
        assert_eq!(flow(&[9]).skew(), None);
        assert_eq!(flow(&[]).skew(), None);
        assert!((flow(&[4, 6]).rate() - 10.0).abs() < 1e-9 && (flow(&[4, 6]).bytes_rate() - 100.0).abs() < 1e-9);
    }

    #[test]
    fn a_transaction_has_a_name_once_it_is_open_for_long_or_hangs() {
        let mut topic = TopicFlow::new(TopicId::ZERO, false);
        let open = |producer, since| Open { producer_id: ProducerId(producer), first_offset: Offset(5), since: Millis(since) };
        let seen = |open| PartitionSeen { marks: Marks::default(), log_end: Offset(9), bytes_in: 0, offline: false, open: Some(open) };
        let named = |topic: &TopicFlow, now| topic.partitions[0].held_back_by(Millis(now)).map(|open| open.producer_id.0);
        topic.note(Millis(1_000), 0, Some(seen(open(7, 1_000))));
        assert_eq!((named(&topic, 10_999), named(&topic, 11_000), named(&topic, 0)), (None, Some(7), None));
        topic.partitions[0].ended_by = EndedBy::Nobody;
        assert_eq!(named(&topic, 1_000), Some(7));
        topic.note(Millis(2_000), 0, Some(seen(open(7, 1_000))));
        assert_eq!(topic.partitions[0].ended_by, EndedBy::Nobody, "it is the same");
        topic.note(Millis(3_000), 0, Some(seen(open(8, 3_000))));
        assert_eq!((topic.partitions[0].ended_by.clone(), named(&topic, 3_000)), (EndedBy::Unknown, None), "another");
        topic.note(Millis(4_000), 0, Some(PartitionSeen { open: None, ..seen(open(8, 3_000)) }));
        assert_eq!(topic.partitions[0].open, None);
    }

    #[test]
    fn a_log_that_is_not_here_has_no_marks() {
        let mut topic = flow(&[1]);
        topic.note(Millis(9_000), 1, None);
        assert_eq!((topic.partitions.len(), topic.partition(PartitionIndex(1)).unwrap().marks), (2, None));
        assert_eq!(topic.partition(PartitionIndex(-1)), None);
    }
}
