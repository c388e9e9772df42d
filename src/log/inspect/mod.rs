//! Looking at files of the log without changing them: what they hold, in the words of Apache Kafka's `DumpLogSegments`, and what is wrong with
//! them. Reads through [`Disk`] only; never writes, opens no partition and repairs nothing.

mod indexes;
mod partition;
mod print;
mod segment;
#[cfg(test)]
mod tests;
mod verify;

pub use verify::{Verified, verify};

use super::{
    files::{self, Kind, Stage},
    io::{Disk, OpenMode},
    segment::optional,
};
use crate::types::Offset;
use segment::SegmentFacts;
use std::{
    fmt,
    io::{self, Write},
    path::{Path, PathBuf},
};

/// How much a finding matters.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub enum Severity {
    /// The next start deals with it and loses nothing that was acknowledged: a torn end after a crash, a missing index.
    Note,
    /// Data is damaged or missing.
    Wrong,
}

/// Something that isn't as it should be.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Finding {
    pub severity: Severity,
    pub path: PathBuf,
    /// What, and where in the file.
    pub what: String,
}

impl fmt::Display for Finding {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let word = if self.severity == Severity::Wrong { "wrong" } else { "note" };
        write!(f, "{word}: {}: {}", self.path.display(), self.what)
    }
}

/// Collects findings of one file.
struct Findings<'a> {
    all: &'a mut Vec<Finding>,
    path: &'a Path,
}

impl Findings<'_> {
    fn add(&mut self, severity: Severity, what: impl Into<String>) {
        self.all.push(Finding { severity, path: self.path.to_owned(), what: what.into() });
    }

    fn wrong(&mut self, what: impl Into<String>) {
        self.add(Severity::Wrong, what);
    }
}

/// What of a segment is printed, besides its batches.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct DumpOptions {
    /// One line for each record.
    pub records: bool,
    /// With its key and value, as text.
    pub data: bool,
}

/// Prints what a file holds and answers what is wrong with it. By the end of its name: a segment's batches (`.log`), index entries (`.index`,
/// `.timeindex`, `.txnindex`; checked against the `.log` beside), producers (`.snapshot`).
pub fn dump(disk: &dyn Disk, path: &Path, options: DumpOptions, out: &mut dyn Write) -> io::Result<Vec<Finding>> {
    let name = path.file_name().map(|name| name.to_string_lossy().into_owned()).unwrap_or_default();
    let Some((base, kind, _)) = files::parse(&name).filter(|(_, _, stage)| matches!(stage, Stage::Live | Stage::Cleaned | Stage::Swap))
    else {
        let what = "no file of a segment: its name is not twenty digits and .log, .index, .timeindex, .txnindex or .snapshot";
        return Ok(vec![Finding { severity: Severity::Wrong, path: path.to_owned(), what: what.into() }]);
    };
    writeln!(out, "Dumping {}", path.display())?;
    let mut all = Vec::new();
    let mut findings = Findings { all: &mut all, path };
    match kind {
        Kind::Log => {
            writeln!(out, "Log starting offset: {base}")?;
            let file = disk.open(path, OpenMode::Read)?;
            segment::read(&*file, base, &mut findings, &mut |batch| print::batch(batch, options, out))?;
        }
        Kind::OffsetIndex | Kind::TimeIndex | Kind::TxnIndex => {
            let facts = beside(disk, path, base, &name)?;
            let bytes = disk.read(path)?;
            indexes::check(kind, base, &bytes, facts.as_ref(), &mut findings, Some(out))?;
        }
        Kind::Snapshot => indexes::snapshot(base, &disk.read(path)?, &mut findings, Some(out))?,
    }
    Ok(all)
}

/// The batches of the `.log` that an index belongs to; `None` if it isn't there. What is wrong with it is found when it is dumped itself.
fn beside(disk: &dyn Disk, index: &Path, base: Offset, name: &str) -> io::Result<Option<SegmentFacts>> {
    let stage = name.rsplit_once('.').map(|(_, end)| end).filter(|end| matches!(*end, "cleaned" | "swap"));
    let mut log = files::name(base, Kind::Log);
    if let Some(stage) = stage {
        log.push('.');
        log.push_str(stage);
    }
    let path = index.with_file_name(log);
    let Some(file) = optional(disk.open(&path, OpenMode::Read))? else { return Ok(None) };
    let mut unsaid = Vec::new();
    segment::read(&*file, base, &mut Findings { all: &mut unsaid, path: &path }, &mut |_| Ok(())).map(Some)
}
