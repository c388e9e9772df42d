//! Puts a cleaned segment in the place of those that it was made of, so that a crash at any step leaves the old or the new log
//! (`LocalLog.replaceSegments`).
//!
//! The steps: files written as `.cleaned` and synced; renamed to `.swap`; the old ones renamed to `.deleted`; the new ones to their names.
//! Opening ends what was begun: anything `.cleaned`, and `.swap` beside it, goes; `.swap` without `.cleaned` takes its place. Readers under
//! way keep the old files and their indexes, which were opened before they lost their names.

use super::{
    super::{
        files::{self, Kind, Stage},
        io::{DiskFile, OpenMode},
        partition::PartitionLog,
        segment::{Indexes, Segment, optional, remove_if_there},
    },
    CleanError,
};
use crate::types::{Millis, Offset};
use std::{
    io::{self, IoSlice},
    path::PathBuf,
    sync::{Arc, atomic::Ordering},
};

/// A segment that's being written beside those that it will replace. Its files go when it is dropped.
pub(super) struct Staged<'a> {
    log: &'a PartitionLog,
    base: Offset,
    file: Arc<dyn DiskFile>,
    bytes: u64,
    kinds: Vec<Kind>,
    stage: Stage,
}

impl<'a> Staged<'a> {
    /// Makes its log file. A deleted topic's directory may be another's already, so none of these is made in one.
    pub fn create(log: &'a PartitionLog, base: Offset) -> Result<Self, CleanError> {
        let file = create(log, base, Kind::Log)?;
        Ok(Self { log, base, file, bytes: 0, kinds: vec![Kind::Log], stage: Stage::Cleaned })
    }

    /// Appends batches.
    pub fn write(&mut self, batches: &[u8]) -> Result<(), CleanError> {
        let end = self.bytes.saturating_add(batches.len() as u64);
        if i32::try_from(end).is_err() {
            return Err(CleanError::Uncleanable("what is left would be larger than a segment can be".into()));
        }
        if !batches.is_empty() {
            self.file.write_at(&[IoSlice::new(batches)], self.bytes)?;
        }
        self.bytes = end;
        Ok(())
    }

    pub fn bytes(&self) -> u64 {
        self.bytes
    }

    /// Writes the indexes and makes everything durable.
    pub fn finish(&mut self, indexes: &Indexes) -> Result<(), CleanError> {
        let aborted = indexes.aborted_bytes();
        let parts = [(Kind::OffsetIndex, indexes.offsets.bytes()), (Kind::TimeIndex, indexes.times.bytes()), (Kind::TxnIndex, &aborted)];
        for (kind, bytes) in parts {
            if kind == Kind::TxnIndex && bytes.is_empty() {
                continue;
            }
            let file = create(self.log, self.base, kind)?;
            self.kinds.push(kind);
            file.write_at(&[IoSlice::new(bytes)], 0)?;
            file.sync()?;
        }
        self.file.sync()?;
        Ok(())
    }

    fn path(&self, kind: Kind, stage: Stage) -> PathBuf {
        self.log.place().dir.join(files::staged_name(self.base, kind, stage))
    }

    fn rename(&self, from: Stage, to: Stage) -> io::Result<()> {
        self.kinds.iter().try_for_each(|kind| self.log.place().disk.rename(&self.path(*kind, from), &self.path(*kind, to)))
    }

    /// Removes all that there is of it: swaps first, since without anything `.cleaned` beside them they would count as complete.
    fn remove(&self) -> io::Result<()> {
        for stage in [Stage::Swap, Stage::Cleaned] {
            self.kinds.iter().try_for_each(|kind| remove_if_there(&*self.log.place().disk, &self.path(*kind, stage)))?;
        }
        Ok(())
    }
}

impl Drop for Staged<'_> {
    fn drop(&mut self) {
        // In its place, or in a directory that's no longer ours.
        if self.stage == Stage::Live || self.log.is_deleted() {
            return;
        }
        if let Err(error) = self.remove() {
            tracing::warn!(partition = %self.log.topic, %error, "can't remove the files of a cleaning that was given up");
        }
    }
}

fn create(log: &PartitionLog, base: Offset, kind: Kind) -> Result<Arc<dyn DiskFile>, CleanError> {
    let _writer = log.writer.lock();
    if log.is_deleted() {
        return Err(CleanError::Changed);
    }
    let place = log.place();
    let file = place.disk.open(&place.dir.join(files::staged_name(base, kind, Stage::Cleaned)), OpenMode::Create)?;
    file.set_len(0)?;
    Ok(file)
}

/// Replaces `old`, segments that follow one another, by `staged`, whose indexes are `indexes`. Appends wait for some renames. The files of the
/// old ones go at `due`.
pub(super) fn swap(old: &[Arc<Segment>], mut staged: Staged<'_>, indexes: Indexes, due: Millis) -> Result<(), CleanError> {
    let log = staged.log;
    let release = |error: CleanError| {
        old.iter().for_each(|segment| segment.set_retired(false));
        error
    };
    // Slow the first time, and appends wait for the second.
    old.iter().try_for_each(|segment| segment.hold_open()).map_err(|error| release(error.into()))?;
    let writer = log.writer.lock();
    if log.is_deleted() || log.offline_reason().is_some() {
        return Err(release(CleanError::Changed));
    }
    let segments = log.segments.load_full();
    let at = old
        .first()
        .and_then(|first| segments.iter().position(|segment| Arc::ptr_eq(segment, first)))
        .ok_or(CleanError::Changed)
        .map_err(release)?;
    let after = at.saturating_add(old.len());
    let same = segments.get(at..after).is_some_and(|there| there.iter().zip(old).all(|(there, old)| Arc::ptr_eq(there, old)));
    if !same || after >= segments.len() {
        return Err(release(CleanError::Changed));
    }
    old.iter().try_for_each(|segment| segment.hold_open()).map_err(|error| release(error.into()))?;
    old.iter().for_each(|segment| segment.set_retired(true));
    if let Err(error) = staged.rename(Stage::Cleaned, Stage::Swap) {
        if let Err(error) = staged.remove() {
            // Half of it would be taken for all of it once the other half is gone.
            log.fail(&error);
        }
        return Err(release(error.into()));
    }
    // The next start would end it; there's no way back.
    let done = retire(log, old, due).and_then(|()| staged.rename(Stage::Swap, Stage::Live));
    staged.stage = Stage::Live;
    if let Err(error) = done {
        log.fail(&error);
        return Err(error.into());
    }
    let new = Segment::existing(Arc::clone(&log.place()), staged.base, staged.bytes);
    new.set_largest(indexes.times.last());
    new.set_index(indexes);
    let mut list = segments.get(..at).unwrap_or_default().to_vec();
    list.push(Arc::new(new));
    list.extend_from_slice(segments.get(after..).unwrap_or_default());
    log.segments.store(Arc::new(list));
    log.shape.fetch_add(1, Ordering::Release);
    drop(writer);
    // Without it a power loss may bring the old ones back, which is the old log.
    let place = log.place();
    place.disk.sync_dir(&place.dir)?;
    Ok(())
}

/// Takes the old segments' files out of the way, and the snapshots at the starts of those that will be none.
fn retire(log: &PartitionLog, old: &[Arc<Segment>], due: Millis) -> io::Result<()> {
    let place = log.place();
    let disk = &place.disk;
    let mut gone = Vec::new();
    for segment in old {
        for kind in Kind::OF_SEGMENT {
            let to = place.dir.join(files::staged_name(segment.base(), kind, Stage::Deleted));
            if optional(disk.rename(&place.path(segment.base(), kind), &to))?.is_some() {
                gone.push((due, to));
            }
        }
    }
    log.compaction.deletions.lock().extend(gone);
    for segment in old.iter().skip(1) {
        // One that stays is removed by the next start.
        let _ = remove_if_there(&**disk, &place.path(segment.base(), Kind::Snapshot));
    }
    Ok(())
}

/// Removes the files of replaced segments whose time has come.
pub(super) fn delete_due(log: &PartitionLog, now: Millis) {
    let mut deletions = log.compaction.deletions.lock();
    deletions.retain(|(due, path)| {
        if *due > now {
            return true;
        }
        if let Err(error) = remove_if_there(&*log.place().disk, path) {
            tracing::warn!(file = %path.display(), %error, "can't remove a file of a segment that was compacted now");
        }
        false
    });
}
