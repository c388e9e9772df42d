//! What is produced to a topic, and how evenly over its partitions. Pure.

use super::{partition::Marks, rate::Rate};
use crate::types::{Millis, Offset, PartitionIndex, ProducerId, TopicId};

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

/// A partition's flow.
#[derive(Clone, Copy, PartialEq, Debug, Default)]
pub struct Flow {
    /// `None` while no log of it is here.
    pub marks: Option<Marks>,
    pub offline: bool,
    pub open: Option<Open>,
    pub records: Rate,
    pub bytes: Rate,
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
        flow.open = seen.and_then(|seen| seen.open);
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
    fn a_log_that_is_not_here_has_no_marks() {
        let mut topic = flow(&[1]);
        topic.note(Millis(9_000), 1, None);
        assert_eq!((topic.partitions.len(), topic.partition(PartitionIndex(1)).unwrap().marks), (2, None));
        assert_eq!(topic.partition(PartitionIndex(-1)), None);
    }
}
