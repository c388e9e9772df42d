//! Checks a whole data directory that no broker is using: its checkpoints and every partition in it.

use super::{
    super::{
        LogError,
        checkpoints::decode_offsets,
        files::{self, CLEAN_FILE, DirKind, HIGH_WATERMARKS_FILE, LOCK_FILE, LOG_STARTS_FILE, RECOVERY_POINTS_FILE},
        io::Disk,
        segment::optional,
    },
    Finding, Severity, partition,
};
use crate::types::{Offset, TopicPartition};
use parking_lot::Mutex;
use std::{
    collections::HashMap,
    io,
    path::Path,
    sync::atomic::{AtomicUsize, Ordering},
    thread,
};

/// What a data directory holds and what is wrong with it.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Verified {
    /// The last process that used it stopped cleanly.
    pub clean: bool,
    pub partitions: u64,
    pub segments: u64,
    pub batches: u64,
    /// Of whole batches.
    pub bytes: u64,
    /// In the order of the partitions' names.
    pub findings: Vec<Finding>,
}

impl Verified {
    /// Nothing is damaged: what is noted the next start deals with.
    pub fn is_sound(&self) -> bool {
        self.findings.iter().all(|finding| finding.severity == Severity::Note)
    }
}

/// Checks the data directory `dir`, several partitions at a time. [`LogError::Locked`] if a process uses it. Writes nothing.
pub fn verify(disk: &dyn Disk, dir: &Path, threads: usize) -> Result<Verified, LogError> {
    let entries = disk.list(dir)?;
    let lock = dir.join(LOCK_FILE);
    // One that isn't there is held by nobody, and isn't made.
    let _held = match disk.exists(&lock).then(|| disk.lock(&lock)) {
        Some(Err(error)) if error.kind() == io::ErrorKind::WouldBlock => return Err(LogError::Locked(dir.to_owned())),
        Some(locked) => Some(locked?),
        None => None,
    };
    let mut verified = Verified { clean: disk.exists(&dir.join(CLEAN_FILE)), ..Verified::default() };
    let recovery_points = checkpoint(disk, dir, RECOVERY_POINTS_FILE, &mut verified.findings)?;
    let log_starts = checkpoint(disk, dir, LOG_STARTS_FILE, &mut verified.findings)?;
    checkpoint(disk, dir, HIGH_WATERMARKS_FILE, &mut verified.findings)?;
    let mut work: Vec<(TopicPartition, String)> = Vec::new();
    for entry in entries.into_iter().filter(|e| e.is_dir) {
        match files::parse_dir(&entry.name) {
            DirKind::Partition(topic) => work.push((topic, entry.name)),
            DirKind::Deleted => note(&mut verified.findings, dir, &entry.name, "of a deleted topic; the next start removes it"),
            DirKind::Future(_) => {
                note(&mut verified.findings, dir, &entry.name, "a copy for a move to this directory; the next start makes it anew")
            }
            DirKind::Stray => note(&mut verified.findings, dir, &entry.name, "of a partition that the metadata didn't know; it isn't used"),
            DirKind::Other => note(&mut verified.findings, dir, &entry.name, "no partition's directory"),
        }
    }
    let clean = verified.clean;
    let said = |topic: &TopicPartition| partition::Said {
        clean,
        recovery_point: recovery_points.get(topic).copied().unwrap_or_default(),
        log_start: log_starts.get(topic).copied(),
    };
    let next = AtomicUsize::new(0);
    let done = Mutex::new(Vec::new());
    let one = || {
        loop {
            let i = next.fetch_add(1, Ordering::Relaxed);
            let Some((topic, name)) = work.get(i) else { return };
            let mut findings = Vec::new();
            let contents = partition::check(disk, &dir.join(name), said(topic), &mut findings);
            done.lock().push((i, contents, findings));
        }
    };
    thread::scope(|scope| (0..threads.clamp(1, work.len().max(1))).for_each(|_| drop(scope.spawn(one))));
    let mut done = done.into_inner();
    done.sort_by_key(|(i, ..)| *i);
    for (_, contents, mut findings) in done {
        let contents = contents?;
        verified.partitions = verified.partitions.saturating_add(1);
        verified.segments = verified.segments.saturating_add(contents.segments);
        verified.batches = verified.batches.saturating_add(contents.batches);
        verified.bytes = verified.bytes.saturating_add(contents.bytes);
        verified.findings.append(&mut findings);
    }
    Ok(verified)
}

fn note(findings: &mut Vec<Finding>, dir: &Path, name: &str, what: &str) {
    findings.push(Finding { severity: Severity::Note, path: dir.join(name), what: what.into() });
}

fn checkpoint(disk: &dyn Disk, dir: &Path, name: &str, findings: &mut Vec<Finding>) -> Result<HashMap<TopicPartition, Offset>, LogError> {
    let path = dir.join(name);
    let Some(bytes) = optional(disk.read(&path))? else { return Ok(HashMap::new()) };
    Ok(decode_offsets(&String::from_utf8_lossy(&bytes)).unwrap_or_else(|error| {
        findings.push(Finding { severity: Severity::Wrong, path, what: error.to_string() });
        HashMap::new()
    }))
}
