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
