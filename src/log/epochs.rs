//! Where each leader epoch of a partition began (`LeaderEpochFileCache`), and the text of its `leader-epoch-checkpoint` file.
//!
//! Pure: says whether it changed, so that the caller writes the file; it never touches one.

use crate::types::{LeaderEpoch, Offset};
use std::fmt::Write;

/// "Not known" as the answer to a look-up of an epoch's end.
const UNDEFINED: (LeaderEpoch, Offset) = (LeaderEpoch::NONE, Offset(-1));
const FILE_VERSION: &str = "0";

/// One epoch and the offset of its first record.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct EpochStart {
    pub epoch: LeaderEpoch,
    pub start: Offset,
}

/// A `leader-epoch-checkpoint` that can't be read.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum EpochsError {
    #[error("leader-epoch-checkpoint has unknown version {0:?}")]
    Version(String),
    #[error("leader-epoch-checkpoint says {said:?} entries and has {found}")]
    Count { said: String, found: usize },
    #[error("leader-epoch-checkpoint has a malformed line {0:?}")]
    Line(String),
}

/// The epochs of one partition: both epochs and starts strictly ascend.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Epochs {
    entries: Vec<EpochStart>,
}

impl Epochs {
    /// All epochs, oldest first.
    pub fn entries(&self) -> &[EpochStart] {
        &self.entries
    }

    /// The newest epoch that has records.
    pub fn latest(&self) -> Option<EpochStart> {
        self.entries.last().copied()
    }

    /// A batch of `epoch` begins at `start`. True if that is news, to be written to the file. Entries that contradict it go: newer
    /// or equal epochs, and those that began at or after it. A negative epoch or offset is no news.
    pub fn assign(&mut self, epoch: LeaderEpoch, start: Offset) -> bool {
        let known = self.latest().is_some_and(|last| last.epoch == epoch && last.start <= start);
        if known || epoch < LeaderEpoch(0) || start < Offset(0) {
            return false;
        }
        while self.latest().is_some_and(|last| last.epoch >= epoch || last.start >= start) {
            self.entries.pop();
        }
        self.entries.push(EpochStart { epoch, start });
        true
    }

    /// The epoch that a record at `offset` was written in.
    pub fn epoch_for(&self, offset: Offset) -> Option<LeaderEpoch> {
        let after = self.entries.partition_point(|e| e.start <= offset);
        after.checked_sub(1).and_then(|i| self.entries.get(i)).map(|e| e.epoch)
    }

    /// The largest epoch at or below `requested`, and where it ended: the next one's start, or the log's end for the newest.
    /// (−1, −1) if `requested` is −1 or above all epochs; an epoch older than all answers itself and the first known start (KIP-101, KIP-279).
    pub fn end_offset_for(&self, requested: LeaderEpoch, log_end: Offset) -> (LeaderEpoch, Offset) {
        if requested == LeaderEpoch::NONE {
            return UNDEFINED;
        }
        if self.latest().is_some_and(|last| last.epoch == requested) {
            return (requested, log_end);
        }
        let after = self.entries.partition_point(|e| e.epoch <= requested);
        let Some(higher) = self.entries.get(after) else { return UNDEFINED };
        let floor = after.checked_sub(1).and_then(|i| self.entries.get(i));
        (floor.map_or(requested, |e| e.epoch), higher.start)
    }

    /// The log now ends at `end`: epochs that began at or after it go. True if any did.
    pub fn truncate_from_end(&mut self, end: Offset) -> bool {
        let before = self.entries.len();
        if end >= Offset(0) {
            self.entries.truncate(self.entries.partition_point(|e| e.start < end));
        }
        self.entries.len() != before
    }

    /// The log now starts at `start`: the epoch that it lies in begins there, older ones go. True if anything changed.
    pub fn truncate_from_start(&mut self, start: Offset) -> bool {
        let Some(last_before) = self.entries.partition_point(|e| e.start <= start).checked_sub(1) else { return false };
        let changed = last_before > 0 || self.entries.first().is_some_and(|e| e.start != start);
        self.entries.drain(..last_before);
        if let Some(first) = self.entries.first_mut() {
            first.start = start;
        }
        changed
    }

    pub fn clear(&mut self) {
        self.entries.clear();
    }

    /// The file's text: version, count, then `epoch start` lines.
    pub fn encode(&self) -> String {
        let mut text = format!("{FILE_VERSION}\n{}\n", self.entries.len());
        for entry in &self.entries {
            // Writing to a String can't fail.
            let _ = writeln!(text, "{} {}", entry.epoch, entry.start);
        }
        text
    }

    /// Reads the file's text. Entries that contradict later ones are dropped, as Kafka does.
    pub fn decode(text: &str) -> Result<Self, EpochsError> {
        let quote = |line: &str| line.chars().take(80).collect::<String>();
        let mut lines = text.lines();
        let version = lines.next().unwrap_or_default();
        if version.trim() != FILE_VERSION {
            return Err(EpochsError::Version(quote(version)));
        }
        let said = lines.next().unwrap_or_default();
        let mut epochs = Self::default();
        let mut found = 0;
        for line in lines {
            let bad = || EpochsError::Line(quote(line));
            let mut words = line.split_whitespace();
            let (Some(epoch), Some(start), None) = (words.next(), words.next(), words.next()) else { return Err(bad()) };
            let epoch = LeaderEpoch(epoch.parse().map_err(|_| bad())?);
            let start = Offset(start.parse().map_err(|_| bad())?);
            if epoch < LeaderEpoch(0) || start < Offset(0) {
                return Err(bad());
            }
            epochs.assign(epoch, start);
            found += 1;
        }
        if said.trim().parse() != Ok(found) {
            return Err(EpochsError::Count { said: quote(said), found });
        }
        Ok(epochs)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn epochs(entries: &[(i32, i64)]) -> Epochs {
        let mut epochs = Epochs::default();
        for (epoch, start) in entries {
            assert!(epochs.assign(LeaderEpoch(*epoch), Offset(*start)));
        }
        epochs
    }

    fn pairs(epochs: &Epochs) -> Vec<(i32, i64)> {
        epochs.entries().iter().map(|e| (e.epoch.0, e.start.0)).collect()
    }

    fn end(epochs: &Epochs, requested: i32) -> (i32, i64) {
        let (epoch, offset) = epochs.end_offset_for(LeaderEpoch(requested), Offset(100));
        (epoch.0, offset.0)
    }

    #[test]
    fn an_epoch_keeps_its_first_start() {
        let mut known = epochs(&[(2, 10)]);
        assert!(!known.assign(LeaderEpoch(2), Offset(11)));
        assert!(!known.assign(LeaderEpoch(-1), Offset(20)), "batches without an epoch say nothing");
        assert_eq!(pairs(&known), [(2, 10)]);
        assert!(known.assign(LeaderEpoch(2), Offset(8)), "an earlier start is news");
        assert_eq!(pairs(&known), [(2, 8)]);
    }

    #[test]
    fn contradictions_go() {
        let mut known = epochs(&[(1, 0), (2, 10), (3, 20)]);
        assert!(known.assign(LeaderEpoch(4), Offset(10)));
        assert_eq!(pairs(&known), [(1, 0), (4, 10)]);
        assert!(known.assign(LeaderEpoch(2), Offset(12)));
        assert_eq!(pairs(&known), [(1, 0), (2, 12)]);
    }

    #[test]
    fn ends_are_kafkas() {
        let known = epochs(&[(2, 10), (4, 20), (5, 30)]);
        assert_eq!(end(&known, 5), (5, 100), "the newest ends at the log's end");
        assert_eq!(end(&known, 4), (4, 30));
        assert_eq!(end(&known, 3), (2, 20), "the largest at or below the requested");
        assert_eq!(end(&known, 2), (2, 20));
        assert_eq!(end(&known, 1), (1, 10), "older than all");
        assert_eq!(end(&known, 6), (-1, -1), "newer than all");
        assert_eq!(end(&known, -1), (-1, -1));
        assert_eq!(end(&Epochs::default(), 0), (-1, -1));
    }

    #[test]
    fn truncation_is_kafkas() {
        let mut known = epochs(&[(2, 10), (4, 20), (5, 30)]);
        assert!(!known.truncate_from_end(Offset(31)));
        assert!(known.truncate_from_end(Offset(30)));
        assert_eq!(pairs(&known), [(2, 10), (4, 20)]);
        assert!(!known.truncate_from_start(Offset(9)));
        assert!(known.truncate_from_start(Offset(15)));
        assert_eq!(pairs(&known), [(2, 15), (4, 20)]);
        assert!(known.truncate_from_start(Offset(20)));
        assert_eq!(pairs(&known), [(4, 20)]);
        assert!(!known.truncate_from_start(Offset(20)));
        assert!(known.truncate_from_start(Offset(50)));
        assert_eq!(pairs(&known), [(4, 50)]);
        assert!(!known.truncate_from_end(Offset(-1)));
        known.clear();
        assert!(known.entries().is_empty());
    }

    #[test]
    fn the_text_is_kafkas() {
        let known = epochs(&[(0, 0), (3, 42)]);
        assert_eq!(known.encode(), "0\n2\n0 0\n3 42\n");
        assert_eq!(Epochs::decode("0\n0\n"), Ok(Epochs::default()));
        assert_eq!(Epochs::decode(""), Err(EpochsError::Version(String::new())));
        assert_eq!(Epochs::decode("1\n0\n"), Err(EpochsError::Version("1".into())));
        assert_eq!(Epochs::decode("0\n2\n0 0\n"), Err(EpochsError::Count { said: "2".into(), found: 1 }));
        assert_eq!(Epochs::decode("0\n1\n0 zero\n"), Err(EpochsError::Line("0 zero".into())));
        assert_eq!(Epochs::decode("0\n1\n0 0 0\n"), Err(EpochsError::Line("0 0 0".into())));
        assert_eq!(Epochs::decode("0\n1\n-1 0\n"), Err(EpochsError::Line("-1 0".into())));
    }

    proptest! {
        #[test]
        fn the_text_survives(assigned in prop::collection::vec((0..50_i32, 0..500_i64), 0..50)) {
            let mut known = Epochs::default();
            for (epoch, start) in assigned {
                known.assign(LeaderEpoch(epoch), Offset(start));
                prop_assert!(known.entries().is_sorted_by(|a, b| a.epoch < b.epoch && a.start < b.start));
            }
            prop_assert_eq!(Epochs::decode(&known.encode()), Ok(known));
        }

        #[test]
        fn any_text_is_no_panic(text: String, lines: Vec<(String, String)>) {
            let _ = Epochs::decode(&text);
            let lines: String = lines.iter().map(|(a, b)| format!("{a} {b}\n")).collect();
            let _ = Epochs::decode(&format!("0\n{}\n{lines}", lines.len()));
        }

        /// Against a plain list of every record's epoch, as a log that only grows would have it.
        #[test]
        fn look_ups_agree_with_the_records(lengths in prop::collection::vec((0..3_i32, 0..5_usize), 1..20), asked in 0..70_i32) {
            let mut known = Epochs::default();
            let mut records: Vec<i32> = Vec::new();
            let mut epoch = 0;
            for (step, length) in lengths {
                epoch += step;
                if length > 0 {
                    known.assign(LeaderEpoch(epoch), Offset(records.len() as i64));
                }
                records.extend(std::iter::repeat_n(epoch, length));
            }
            for (offset, epoch) in records.iter().enumerate() {
                prop_assert_eq!(known.epoch_for(Offset(offset as i64)), Some(LeaderEpoch(*epoch)));
            }
            let log_end = Offset(records.len() as i64);
            let (found, end) = known.end_offset_for(LeaderEpoch(asked), log_end);
            if records.last().is_some_and(|last| *last >= asked) {
                let below = records.iter().filter(|epoch| **epoch <= asked).count();
                prop_assert_eq!(end, Offset(below as i64));
                let largest = records.iter().filter(|epoch| **epoch <= asked).max();
                prop_assert_eq!(found, LeaderEpoch(largest.copied().unwrap_or(asked)));
            } else {
                prop_assert_eq!((found, end), UNDEFINED);
            }
        }
    }
}
