//! Checks one partition's directory: each segment, what its other files say of it, and that they fit together.

use super::{
    super::{
        arrivals::Arrivals,
        checkpoints::decode_metadata,
        epochs::Epochs,
        files::{self, ARRIVALS_FILE, EPOCHS_FILE, Kind, METADATA_FILE, Stage},
        io::{Disk, OpenMode},
        segment::optional,
    },
    Finding, Findings, Severity, indexes,
    segment::{self, SegmentFacts},
};
use crate::types::{Offset, ProducerId};
use std::{
    collections::{BTreeSet, HashMap},
    io,
    path::{Path, PathBuf},
};

/// What the data directory says of a partition.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub(super) struct Said {
    /// The last process stopped cleanly: nothing may be unfinished.
    pub clean: bool,
    /// Everything below is durable, whatever happened.
    pub recovery_point: Offset,
    pub log_start: Option<Offset>,
}

/// What was found in a partition.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub(super) struct Contents {
    pub segments: u64,
    pub batches: u64,
    pub bytes: u64,
    pub start: Offset,
    pub end: Offset,
}

/// One partition while it is checked.
struct Checker<'a> {
    disk: &'a dyn Disk,
    dir: &'a Path,
    said: Said,
    findings: &'a mut Vec<Finding>,
    contents: Contents,
    epochs: Option<Epochs>,
    /// Where the transactions began that are open so far.
    open_txns: HashMap<ProducerId, Offset>,
}

/// Checks the partition in `dir`.
pub(super) fn check(disk: &dyn Disk, dir: &Path, said: Said, findings: &mut Vec<Finding>) -> io::Result<Contents> {
    let names: Vec<String> = disk.list(dir)?.into_iter().filter(|e| !e.is_dir).map(|e| e.name).collect();
    let parsed: Vec<_> =
        names.iter().filter_map(|name| files::parse(name).map(|(offset, kind, stage)| (name, offset, kind, stage))).collect();
    let of = |wanted: Kind| {
        let live = parsed.iter().filter(|(.., stage)| *stage == Stage::Live);
        live.filter(move |(_, _, kind, _)| *kind == wanted).map(|(_, offset, ..)| *offset).collect::<BTreeSet<_>>()
    };
    let mut checker = Checker { disk, dir, said, findings, contents: Contents::default(), epochs: None, open_txns: HashMap::new() };
    for (name, .., stage) in &parsed {
        let unfinished = Severity::Note;
        match stage {
            Stage::Live => {}
            Stage::Deleted => checker.note(name, unfinished, "marked for removal; the next start removes it"),
            Stage::Cleaned => checker.note(name, unfinished, "a compaction was cut short; the next start removes it"),
            Stage::Swap => checker.note(name, unfinished, "a compaction was cut short; the next start completes it"),
        }
    }
    checker.small_files(&names)?;
    let bases = of(Kind::Log);
    for base in &bases {
        checker.segment(*base, bases.range(base.plus(1)..).next().copied())?;
    }
    for kind in [Kind::OffsetIndex, Kind::TimeIndex, Kind::TxnIndex] {
        for orphan in of(kind).difference(&bases) {
            checker.note(&files::name(*orphan, kind), Severity::Note, "no segment begins there; the next start removes it");
        }
    }
    let snapshots = of(Kind::Snapshot);
    for offset in &snapshots {
        checker.snapshot(*offset, &bases)?;
    }
    checker.ends();
    Ok(checker.contents)
}

impl Checker<'_> {
    fn note(&mut self, name: &str, severity: Severity, what: impl Into<String>) {
        self.findings.push(Finding { severity, path: self.dir.join(name), what: what.into() });
    }

    /// Whether a crash explains what is wrong at `offset`: nobody was told that it is durable.
    fn severity_at(&self, offset: Offset) -> Severity {
        if !self.said.clean && offset >= self.said.recovery_point { Severity::Note } else { Severity::Wrong }
    }

    /// The same for what speaks of everything below `end`.
    fn severity_below(&self, end: Offset) -> Severity {
        if !self.said.clean && end > self.said.recovery_point { Severity::Note } else { Severity::Wrong }
    }

    fn small_files(&mut self, names: &[String]) -> io::Result<()> {
        match optional(self.disk.read(&self.dir.join(METADATA_FILE)))? {
            None => self.note(METADATA_FILE, Severity::Note, "missing; the next start writes it"),
            Some(text) if decode_metadata(&String::from_utf8_lossy(&text)).is_none() => {
                let severity = if self.said.clean { Severity::Wrong } else { Severity::Note };
                self.note(METADATA_FILE, severity, "holds no topic id");
            }
            Some(_) => {}
        }
        if let Some(text) = optional(self.disk.read(&self.dir.join(EPOCHS_FILE)))? {
            match Epochs::decode(&String::from_utf8_lossy(&text)) {
                Ok(epochs) => self.epochs = Some(epochs),
                Err(error) => self.note(EPOCHS_FILE, Severity::Wrong, error.to_string()),
            }
        }
        if let Some(bytes) = optional(self.disk.read(&self.dir.join(ARRIVALS_FILE)))?
            && !Arrivals::is_whole(&bytes)
        {
            self.note(ARRIVALS_FILE, Severity::Note, "can't be read: when records arrived is not known");
        }
        for name in names {
            if files::parse(name).is_none() && ![METADATA_FILE, EPOCHS_FILE, ARRIVALS_FILE].contains(&name.as_str()) {
                self.note(name, Severity::Note, "no file of a log");
            }
        }
        Ok(())
    }

    fn segment(&mut self, base: Offset, next: Option<Offset>) -> io::Result<()> {
        let path = self.dir.join(files::name(base, Kind::Log));
        let mut found = Vec::new();
        let file = self.disk.open(&path, OpenMode::Read)?;
        let facts = segment::read(&*file, base, &mut Findings { all: &mut found, path: &path }, &mut |_| Ok(()))?;
        if self.contents.segments == 0 {
            self.contents.start = base;
        } else if base < self.contents.end {
            self.note(
                &files::name(base, Kind::Log),
                Severity::Wrong,
                format!("begins before the end of the segment before it, {}", self.contents.end),
            );
        }
        // A torn end is what a crash leaves, unless what it tore was durable.
        let torn = facts.cut_at.map(|at| self.severity_at(at)).filter(|severity| *severity == Severity::Note);
        found.iter_mut().for_each(|finding| finding.severity = torn.unwrap_or(finding.severity).min(finding.severity));
        self.findings.append(&mut found);
        // After a crash the indexes of a segment that wasn't durable whole are made anew, and of the last one trimmed to what was.
        let severity = torn.unwrap_or_else(|| next.map_or(self.severity_at(Offset(i64::MAX)), |next| self.severity_below(next)));
        self.indexes(base, &facts, next.is_none(), severity)?;
        self.transactions(base, &facts, severity)?;
        self.epochs_of(&facts);
        self.contents.segments = self.contents.segments.saturating_add(1);
        self.contents.batches = self.contents.batches.saturating_add(facts.batches.len() as u64);
        self.contents.bytes = self.contents.bytes.saturating_add(facts.good_bytes);
        self.contents.end = self.contents.end.max(facts.end);
        Ok(())
    }

    fn indexes(&mut self, base: Offset, facts: &SegmentFacts, is_last: bool, severity: Severity) -> io::Result<()> {
        for kind in [Kind::OffsetIndex, Kind::TimeIndex] {
            let path = self.dir.join(files::name(base, kind));
            let Some(bytes) = optional(self.disk.read(&path))? else {
                if (self.said.clean || !is_last) && !facts.batches.is_empty() {
                    self.note(&files::name(base, kind), Severity::Note, "missing; it is made anew from the log when it's needed");
                }
                continue;
            };
            self.with(&path, severity, |findings| indexes::check(kind, base, &bytes, Some(facts), findings, None))?;
        }
        Ok(())
    }

    /// Every transaction that was seen to begin and is aborted here must be in the index: its records would be taken for committed ones else.
    fn transactions(&mut self, base: Offset, facts: &SegmentFacts, severity: Severity) -> io::Result<()> {
        let path = self.dir.join(files::name(base, Kind::TxnIndex));
        let bytes = optional(self.disk.read(&path))?.unwrap_or_default();
        let entries = self.with(&path, severity, |findings| Ok(indexes::aborted(base, &bytes, Some(facts), findings)))?;
        for batch in &facts.batches {
            match batch.marker {
                Some(marker) => {
                    let began = self.open_txns.remove(&batch.producer_id);
                    let is_there = entries.iter().any(|t| t.producer_id == batch.producer_id && t.last_offset == batch.last_offset);
                    if let Some(began) = began.filter(|_| !marker.commit && !is_there) {
                        let what = format!("lacks the transaction of producer {} from {began} to {}", batch.producer_id, batch.last_offset);
                        self.note(&files::name(base, Kind::TxnIndex), severity, what);
                    }
                }
                None if batch.is_transactional && !batch.is_control => {
                    self.open_txns.entry(batch.producer_id).or_insert(batch.base_offset);
                }
                None => {}
            }
        }
        Ok(())
    }

    fn epochs_of(&mut self, facts: &SegmentFacts) {
        let Some(epochs) = self.epochs.clone() else { return };
        let Some(first) = epochs.entries().first().map(|e| e.start) else { return };
        for batch in facts.batches.iter().filter(|batch| batch.base_offset >= first) {
            if epochs.epoch_for(batch.base_offset) != Some(batch.leader_epoch) {
                let (severity, offset) = (self.severity_at(batch.base_offset), batch.base_offset);
                let what = format!("offset {offset} was written in epoch {}, which it doesn't say", batch.leader_epoch);
                return self.note(EPOCHS_FILE, severity, what);
            }
        }
    }

    fn snapshot(&mut self, offset: Offset, bases: &BTreeSet<Offset>) -> io::Result<()> {
        let name = files::name(offset, Kind::Snapshot);
        let path: PathBuf = self.dir.join(&name);
        let bytes = self.disk.read(&path)?;
        let severity = self.severity_below(offset);
        self.with(&path, severity, |findings| indexes::snapshot(offset, &bytes, findings, None))?;
        if offset > self.contents.end && !bases.is_empty() {
            self.note(&name, severity, format!("is of an offset above the log's end, {}", self.contents.end));
        }
        Ok(())
    }

    /// What the checkpoints say must be there.
    fn ends(&mut self) {
        let Contents { end, segments, start, .. } = self.contents;
        let point = self.said.recovery_point;
        if point > end {
            let what = format!("the log ends at {end}, though it was durable up to {point} (recovery-point-offset-checkpoint)");
            self.findings.push(Finding { severity: Severity::Wrong, path: self.dir.to_owned(), what });
        }
        if let Some(log_start) = self.said.log_start.filter(|at| segments > 0 && (*at < start || *at > end)) {
            let what = format!("the log is from {start} to {end}, and its start {log_start} (log-start-offset-checkpoint) isn't in it");
            self.findings.push(Finding { severity: Severity::Note, path: self.dir.to_owned(), what });
        }
    }

    /// Runs a check of one file, whose findings are no worse than `severity`.
    fn with<T>(&mut self, path: &Path, severity: Severity, check: impl FnOnce(&mut Findings<'_>) -> io::Result<T>) -> io::Result<T> {
        let mut found = Vec::new();
        let checked = check(&mut Findings { all: &mut found, path })?;
        found.iter_mut().for_each(|finding| finding.severity = finding.severity.min(severity));
        self.findings.append(&mut found);
        Ok(checked)
    }
}
