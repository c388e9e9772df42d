//! One group's reading of one partition: what is known of it, and how far behind it is by that. Pure; about 240 bytes each.

use super::rate::Rate;
use crate::types::{Millis, Offset, PartitionIndex};

/// How a partition ends and begins now.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Marks {
    pub log_start: Offset,
    pub last_stable: Offset,
    pub high_watermark: Offset,
    /// Raised whenever compaction changes which records are there.
    pub shape: u64,
}

/// The first record that a group has not consumed.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct First {
    pub offset: Offset,
    /// The record's own; [`Millis::NONE`] if it has none.
    pub timestamp: Millis,
    /// When it came to this broker, if that's known.
    pub arrived: Option<Millis>,
}

/// What is known of the visible records from the group's position on.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Seen {
    /// None below `from`; nobody has looked further.
    Owed {
        from: Offset,
    },
    First(First),
    /// None below `upto`, where the readable log ended.
    Nothing {
        upto: Offset,
    },
}

/// What a group does with a partition.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub enum Reading {
    /// A member owns it, and there is a commit.
    Committing,
    /// A member owns it and fetches it, and nothing was ever committed.
    FetchingOnly,
    /// A member owns it; it was neither committed nor, lately, fetched.
    Silent,
    /// There is a commit, and the group has no members.
    Idle,
    /// There is a commit, and the members read this topic no more.
    Abandoned,
    /// There is a commit and the members read the topic, but nobody owns the partition now.
    Unowned,
}

impl Reading {
    pub fn name(self) -> &'static str {
        match self {
            Self::Committing => "committing",
            Self::FetchingOnly => "fetching_only",
            Self::Silent => "silent",
            Self::Idle => "idle",
            Self::Abandoned => "abandoned",
            Self::Unowned => "unowned",
        }
    }
}

/// The last commit.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Commit {
    pub offset: Offset,
    pub at: Millis,
}

/// When retention may take the first unconsumed record, as it was at the last look.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Outlook {
    /// By age: once the clock is past this.
    pub by_time: Option<Millis>,
    /// By size: once so many bytes more have been appended.
    pub by_size: Option<u64>,
    pub looked: Option<Millis>,
}

/// A group's reading of a partition.
#[derive(Clone, Debug)]
pub struct Reader {
    pub partition: PartitionIndex,
    pub commit: Option<Commit>,
    pub reading: Reading,
    /// The owner's place among the group's members.
    pub owner: Option<usize>,
    pub read_committed: bool,
    pub consumed: Rate,
    /// Offsets that were removed before the group had read them.
    pub lost: u64,
    pub outlook: Outlook,
    position: Offset,
    /// When it came to this position.
    moved: Millis,
    /// The last commit is older than the marks that it is held against.
    settled: bool,
    /// Removed offsets below are counted.
    lost_to: Offset,
    seen: Seen,
    /// The first record of an earlier position: no later one has been here for longer.
    before: Option<First>,
    shape: u64,
    /// The sweep that saw it last.
    pub(super) sweep: u64,
}

/// How far behind a group is on a partition. Unknown is `None`, never a guess; nothing is negative.
#[derive(Clone, Copy, PartialEq, Debug, Default)]
pub struct Behind {
    pub records: i64,
    /// Time behind: by arrival, or by the record's timestamp where the arrival isn't known.
    pub ms: Option<i64>,
    /// By the record's own timestamp.
    pub event_ms: Option<i64>,
    pub first: Option<First>,
    /// Until retention may take the first unconsumed record.
    pub margin_ms: Option<i64>,
    /// The records behind are a bound from above: a look-up is owed.
    pub pending: bool,
    /// For how long it has stood before this record without a step; `None` if that isn't known.
    pub stalled_ms: Option<i64>,
    /// Offsets by which the commit lies beyond the log's end: the log isn't the one that was read, and the next fetch is out of range.
    pub beyond: i64,
}

impl Reader {
    /// A group that was not known to read the partition before.
    pub fn new(partition: PartitionIndex) -> Self {
        Self {
            partition,
            commit: None,
            reading: Reading::Silent,
            owner: None,
            read_committed: false,
            consumed: Rate::default(),
            lost: 0,
            outlook: Outlook::default(),
            position: Offset(0),
            moved: Millis(0),
            settled: false,
            lost_to: Offset(0),
            seen: Seen::Owed { from: Offset(0) },
            before: None,
            shape: 0,
            sweep: 0,
        }
    }

    /// Where the group goes on reading: its commit, or what it fetches where it commits nothing.
    pub fn position(&self) -> Offset {
        self.position
    }

    /// What was committed last.
    pub fn note_commit(&mut self, now: Millis, commit: Commit) {
        let position = commit.offset.max(Offset(0));
        if self.commit.is_none() || position != self.position {
            self.moved = commit.at.min(now);
        }
        // What is committed while the marks are taken may rightly lie beyond them.
        self.settled = commit.at < now;
        self.commit = Some(commit);
        self.consumed.note(now, position.0);
        self.move_to(position);
    }

    /// The offset that was fetched last, by a group that commits nothing.
    pub fn note_fetch(&mut self, now: Millis, offset: Offset) {
        let position = offset.max(Offset(0));
        if self.moved == Millis(0) || position != self.position {
            self.moved = now;
        }
        self.commit = None;
        self.consumed.note(now, position.0);
        self.move_to(position);
    }

    fn move_to(&mut self, position: Offset) {
        if position == self.position {
            return;
        }
        let forward = position > self.position;
        self.position = position;
        let holds = forward
            && match self.seen {
                Seen::First(first) => first.offset >= position,
                Seen::Nothing { upto } => upto >= position,
                Seen::Owed { from } => from >= position,
            };
        if !holds {
            self.look_again(position, forward);
        }
    }

    fn look_again(&mut self, from: Offset, keep_estimate: bool) {
        self.before = match self.seen {
            _ if !keep_estimate => None,
            Seen::First(first) => Some(first),
            _ => self.before,
        };
        self.seen = Seen::Owed { from };
        self.outlook = Outlook::default();
    }

    /// Whether it reads committed records only.
    pub fn note_isolation(&mut self, read_committed: bool) {
        if self.read_committed != read_committed {
            self.read_committed = read_committed;
            self.look_again(self.position, true);
        }
    }

    /// How the partition is now.
    pub fn note_marks(&mut self, marks: &Marks) {
        if self.commit.is_some() && marks.log_start > self.position {
            let counted = self.position.max(self.lost_to);
            let lost = marks.log_start.0.saturating_sub(counted.0);
            self.lost = self.lost.saturating_add(u64::try_from(lost).unwrap_or(0));
            self.lost_to = self.lost_to.max(marks.log_start);
        }
        let from = self.position.max(marks.log_start);
        let gone = match self.seen {
            Seen::First(first) => first.offset < marks.log_start,
            Seen::Nothing { upto } => upto < marks.log_start,
            Seen::Owed { from } => from < marks.log_start,
        };
        if gone || self.shape != marks.shape {
            self.shape = marks.shape;
            self.look_again(from, true);
        }
        if let Seen::Owed { from } = self.seen
            && from >= self.end(marks)
        {
            // It has all there is, and no look is owed: what comes next has waited for no record of before.
            self.seen = Seen::Nothing { upto: from };
            self.before = None;
        }
    }

    fn end(&self, marks: &Marks) -> Offset {
        if self.read_committed { marks.last_stable } else { marks.high_watermark }
    }

    /// From where on somebody has to look for the next visible record.
    pub fn owes(&self, marks: &Marks) -> Option<Offset> {
        let from = match self.seen {
            Seen::First(_) => return None,
            Seen::Nothing { upto } => upto,
            Seen::Owed { from } => from,
        };
        (from.max(marks.log_start) < self.end(marks)).then_some(from.max(marks.log_start))
    }

    /// The first visible record after a look from `asked` on. Of no use if something changed meanwhile.
    pub fn found(&mut self, marks: &Marks, asked: Offset, first: First) {
        if self.owes(marks) == Some(asked) && first.offset >= asked {
            self.seen = Seen::First(first);
            self.before = None;
        }
    }

    /// Nothing visible from `asked` up to here. `ended`: the readable log ended there.
    pub fn found_nothing(&mut self, marks: &Marks, asked: Offset, upto: Offset, ended: bool) {
        if self.owes(marks) == Some(asked) && upto >= asked {
            self.seen = if ended { Seen::Nothing { upto } } else { Seen::Owed { from: upto } };
            self.before = self.before.filter(|_| !ended);
        }
    }

    /// The first unconsumed record, if it's known and still there.
    pub fn first(&self, marks: &Marks) -> Option<First> {
        match self.seen {
            Seen::First(first) if first.offset >= marks.log_start && first.offset < self.end(marks) => Some(first),
            _ => None,
        }
    }

    /// How far behind it is. `bytes_per_second` is what is produced to the partition.
    pub fn behind(&self, now: Millis, marks: &Marks, bytes_per_second: Option<f64>) -> Behind {
        let from = match self.seen {
            Seen::First(First { offset: from, .. }) | Seen::Nothing { upto: from } | Seen::Owed { from } => from,
        };
        let records = self.end(marks).0.saturating_sub(from.max(self.position).max(marks.log_start).0).max(0);
        if records == 0 {
            let beyond = if self.settled { self.position.0.saturating_sub(marks.high_watermark.0).max(0) } else { 0 };
            return Behind { ms: Some(0), beyond, ..Behind::default() };
        }
        let first = self.first(marks);
        let known = first.or(self.before);
        let waited = |since: Millis| now.0.saturating_sub(since.0).max(0);
        let event_ms = known.filter(|first| first.timestamp.0 >= 0).map(|first| waited(first.timestamp));
        let by_arrival = known.and_then(|first| first.arrived).map(waited);
        let ms = match (self.seen, known) {
            // What came after the last look has only just come.
            (Seen::Nothing { .. }, _) => Some(0),
            (_, Some(_)) => by_arrival.or(event_ms),
            _ => None,
        };
        let margin_ms = first.and_then(|_| self.margin_ms(now, bytes_per_second));
        // It may have stood there for longer, while there was nothing to read.
        let stalled_ms = ms.map(|ms| ms.min(waited(self.moved)));
        Behind { records, ms, event_ms, first, margin_ms, pending: first.is_none(), stalled_ms, beyond: 0 }
    }

    fn margin_ms(&self, now: Millis, bytes_per_second: Option<f64>) -> Option<i64> {
        let by_time = self.outlook.by_time.map(|at| at.0.saturating_sub(now.0).max(0));
        let by_size = match (self.outlook.by_size, bytes_per_second) {
            (Some(0), _) => Some(0),
            (Some(bytes), Some(rate)) if rate > 0.0 => Some((bytes as f64 * 1_000.0 / rate) as i64),
            _ => None,
        };
        by_time.into_iter().chain(by_size).min()
    }
}

/// A partition with records to read whose owner takes no step for so long is stuck: as long as a consumer may take over what it has polled
/// (`max.poll.interval.ms`, by default), and as the alert waits.
const STUCK_MS: i64 = 300_000;

impl Behind {
    /// Whether somebody should read on and doesn't.
    pub fn is_stuck(&self, reading: Reading) -> bool {
        matches!(reading, Reading::Committing | Reading::FetchingOnly) && self.stalled_ms.is_some_and(|ms| ms >= STUCK_MS)
    }
}

/// When a backlog is worked off at the present rates.
#[derive(Clone, Copy, PartialEq, Debug, Default)]
pub enum CatchUp {
    /// The rates aren't known yet.
    #[default]
    Unknown,
    /// In so many seconds.
    In(f64),
    Never,
}

impl CatchUp {
    /// `None` if never, or not known.
    pub fn seconds(self) -> Option<f64> {
        if let Self::In(seconds) = self { Some(seconds) } else { None }
    }

    /// Whether it comes; `None` if that isn't known.
    pub fn comes(self) -> Option<bool> {
        match self {
            Self::Unknown => None,
            Self::In(_) => Some(true),
            Self::Never => Some(false),
        }
    }
}

/// A backlog of so many seconds' work is what consumers have under way that keep up: they commit every five seconds by default.
const UNDER_WAY_SECONDS: f64 = 10.0;

/// When a backlog is worked off at these rates.
pub fn catch_up(records: i64, consumed: Option<f64>, produced: Option<f64>) -> CatchUp {
    if records <= 0 {
        return CatchUp::In(0.0);
    }
    let Some(consumed) = consumed else { return CatchUp::Unknown };
    let at_work = records as f64 / consumed;
    if consumed > 0.0 && at_work <= UNDER_WAY_SECONDS {
        return CatchUp::In(at_work);
    }
    let gain = consumed - produced.unwrap_or(0.0);
    let seconds = records as f64 / gain;
    // A gain of next to nothing is none: a century is never.
    if gain > 0.0 && seconds < 3.2e9 { CatchUp::In(seconds) } else { CatchUp::Never }
}

#[cfg(test)]
mod tests;
