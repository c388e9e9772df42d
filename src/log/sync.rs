//! Making a partition durable: group commit of acknowledgements that wait (`flush.messages`), syncs by time (`flush.ms`), and of what was rolled.
//!
//! One sync runs at a time; who comes meanwhile waits and shares the next one. A failed sync takes the partition out of service: the pages
//! that it lost will not be written by trying again.

use super::{
    AppendError,
    files::{EPOCHS_FILE, Kind, METADATA_FILE},
    io::{Disk, OpenMode, write_atomically},
    partition::{PartitionLog, Writer},
    segment::optional,
    watch::Watch,
};
use crate::types::{Millis, Offset};
use parking_lot::{Condvar, Mutex};
use std::{
    io,
    path::Path,
    sync::atomic::{AtomicBool, AtomicI64, AtomicU64, Ordering},
};

/// What is durable, and who is at it. `tidy` and `rested` are at or below `synced`.
pub(super) struct Syncing {
    /// All batches below are durable.
    synced: AtomicI64,
    /// A segment's base: of all segments before it indexes and snapshots are durable too.
    tidy: AtomicI64,
    /// When that last moved or was found at the log's end.
    at: AtomicI64,
    /// Where the log last rested: all below is durable, indexes included, and a snapshot is there; −1 if it never did. A snapshot that isn't
    /// torn, at or below the recovery point, thus tells that the indexes can be trusted up to it.
    rested: AtomicI64,
    /// The log's end at the last look for partitions at rest.
    seen_end: AtomicI64,
    /// Files were made in the directory, or it itself was, since the last sync.
    dir_dirty: AtomicBool,
    running: Mutex<bool>,
    done: Condvar,
    /// Syncs that could not be, for lack of room, though nothing failed.
    refusals: AtomicU64,
    /// How often the log was cut to an earlier end.
    cuts: AtomicU64,
    /// In the directory's next round of syncs.
    pub is_asked: AtomicBool,
    /// Wakes who waits for a round.
    pub watch: Watch,
}

/// How far to sync.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Through {
    /// To the log's end.
    End,
    /// All segments but the one that is written to.
    Closed,
}

impl Syncing {
    pub fn new(synced: Offset, tidy: Offset, rested: Option<Offset>, now: Millis, dir_dirty: bool) -> Self {
        Self {
            synced: AtomicI64::new(synced.0),
            tidy: AtomicI64::new(tidy.0),
            at: AtomicI64::new(now.0),
            rested: AtomicI64::new(rested.map_or(-1, |o| o.0)),
            seen_end: AtomicI64::new(-1),
            dir_dirty: AtomicBool::new(dir_dirty),
            running: Mutex::new(false),
            done: Condvar::new(),
            refusals: AtomicU64::new(0),
            cuts: AtomicU64::new(0),
            is_asked: AtomicBool::new(false),
            watch: Watch::default(),
        }
    }

    /// Everything below is durable.
    pub fn synced(&self) -> Offset {
        Offset(self.synced.load(Ordering::Acquire))
    }

    /// Where checking begins after a crash.
    pub fn recovery_point(&self) -> Offset {
        Offset(self.tidy.load(Ordering::Acquire).max(self.rested.load(Ordering::Acquire)))
    }

    /// Of all segments before the one that begins here everything is durable.
    pub fn tidy(&self) -> Offset {
        Offset(self.tidy.load(Ordering::Acquire))
    }

    /// Whether a snapshot of this offset is there, durable.
    pub fn has_rested_at(&self, offset: Offset) -> bool {
        self.rested.load(Ordering::Acquire) == offset.0
    }

    /// Everything below `end` is durable, unless the log was cut since there were `cuts`.
    pub fn note_synced(&self, end: Offset, cuts: u64) {
        let _no_cut = self.running.lock();
        if self.cuts() == cuts {
            self.synced.fetch_max(end.0, Ordering::AcqRel);
        }
    }

    pub fn cuts(&self) -> u64 {
        self.cuts.load(Ordering::Acquire)
    }

    /// The log ends at `end` from now on. Of the segments before the one at `closed` indexes and snapshots are as durable as they were.
    pub fn note_cut(&self, end: Offset, closed: Offset) {
        let _no_round_ends = self.running.lock();
        self.cuts.fetch_add(1, Ordering::AcqRel);
        self.synced.fetch_min(end.0, Ordering::AcqRel);
        self.tidy.fetch_min(closed.0, Ordering::AcqRel);
        if self.rested.load(Ordering::Acquire) > end.0 {
            self.rested.store(-1, Ordering::Release);
        }
    }

    /// All before the segment that begins at `base` is durable, indexes and snapshots included.
    pub fn note_tidy(&self, base: Offset) {
        self.synced.fetch_max(base.0, Ordering::AcqRel);
        self.tidy.fetch_max(base.0, Ordering::AcqRel);
    }

    /// How many syncs there was no room for.
    pub fn refusals(&self) -> u64 {
        self.refusals.load(Ordering::Acquire)
    }

    /// Runs `work` while no sync of the partition runs.
    pub fn alone<R>(&self, work: impl FnOnce() -> R) -> R {
        let mut running = self.running.lock();
        while *running {
            self.done.wait(&mut running);
        }
        *running = true;
        drop(running);
        let result = work();
        *self.running.lock() = false;
        self.done.notify_all();
        result
    }

    /// The log is in another directory, and all of it durable there; with a snapshot at its end if it `rests`.
    pub fn note_moved(&self, log_end: Offset, active: Offset, rests: bool) {
        self.synced.fetch_max(log_end.0, Ordering::AcqRel);
        self.tidy.fetch_max(active.0, Ordering::AcqRel);
        self.rested.store(if rests { log_end.0 } else { -1 }, Ordering::Release);
        // A segment without batches has no file yet: its name comes with the first one.
        self.dir_dirty.store(true, Ordering::Release);
    }

    pub fn note_dir_change(&self) {
        self.dir_dirty.store(true, Ordering::Release);
    }

    /// Whether the log's end is the same as at the last call.
    pub fn is_quiet(&self, log_end: Offset) -> bool {
        self.seen_end.swap(log_end.0, Ordering::Relaxed) == log_end.0
    }

    /// Since when there may be something to sync.
    pub fn at(&self) -> Millis {
        Millis(self.at.load(Ordering::Relaxed))
    }

    pub fn note_time(&self, now: Millis) {
        self.at.store(now.0, Ordering::Relaxed);
    }
}

impl PartitionLog {
    /// Returns once everything below `offset` is durable. Blocks; calls that overlap share syncs.
    pub fn sync_to(&self, offset: Offset) -> Result<(), AppendError> {
        self.sync_until(offset, Through::End)
    }

    /// Makes the whole log durable.
    pub fn sync(&self) -> Result<(), AppendError> {
        self.sync_until(self.watermarks().log_end, Through::End)
    }

    /// Makes the segments durable that are no longer written to, with their indexes and snapshots.
    pub(super) fn sync_closed(&self) -> Result<(), AppendError> {
        let active = self.segments.load().last().map_or(Offset(0), |segment| segment.base());
        self.sync_until(active, Through::Closed)
    }

    fn sync_until(&self, offset: Offset, through: Through) -> Result<(), AppendError> {
        loop {
            let done = if through == Through::End { self.syncing.synced() } else { self.syncing.tidy() };
            if done >= offset {
                return Ok(());
            }
            self.check_writable()?;
            let log_end = self.watermarks().log_end;
            if offset > log_end {
                return Err(AppendError::Truncated(log_end));
            }
            let mut running = self.syncing.running.lock();
            if *running {
                self.syncing.done.wait(&mut running);
                continue;
            }
            *running = true;
            drop(running);
            let result = self.sync_once(through);
            *self.syncing.running.lock() = false;
            self.syncing.done.notify_all();
            result?;
        }
    }

    /// A failed sync is final, whatever its reason: the pages that it lost are marked clean.
    fn give_up(&self, error: io::Error) -> AppendError {
        self.fail(&error);
        AppendError::Io(error)
    }

    /// Nothing is lost by a small file that there was no room for.
    fn refuse_sync(&self, error: io::Error) -> AppendError {
        let refused = self.refuse(error);
        self.syncing.refusals.fetch_add(1, Ordering::AcqRel);
        refused
    }

    fn sync_once(&self, through: Through) -> Result<(), AppendError> {
        // The end first, then the segments: every batch below the end is in one of them.
        let end = self.watermarks().log_end;
        let segments = self.segments.load_full();
        let active = segments.last().map_or(Offset(0), |segment| segment.base());
        let first = super::model::segment_of(&segments, |s| s.base(), self.syncing.tidy()).unwrap_or(0);
        self.sync_epochs().map_err(|e| self.refuse_sync(e))?;
        let sync = || {
            for (segment, next) in segments.iter().zip(segments.iter().skip(1)).skip(first) {
                segment.sync()?;
                segment.sync_index()?;
                self.sync_snapshot(next.base())?;
            }
            if through == Through::End
                && end > active
                && let Some(segment) = segments.last()
            {
                segment.sync()?;
            }
            self.sync_dir()
        };
        sync().map_err(|e| self.give_up(e))?;
        let target = if through == Through::End { end } else { end.min(active) };
        self.syncing.synced.fetch_max(target.0, Ordering::AcqRel);
        self.syncing.tidy.fetch_max(active.0, Ordering::AcqRel);
        Ok(())
    }

    /// The directory's entries, and the directory itself in its parent.
    fn sync_dir(&self) -> io::Result<()> {
        if !self.syncing.dir_dirty.swap(false, Ordering::AcqRel) {
            return Ok(());
        }
        let place = self.place();
        let disk = &place.disk;
        if let Some(metadata) = optional(disk.open(&place.dir.join(METADATA_FILE), OpenMode::Write))? {
            metadata.sync()?;
        }
        disk.sync_dir(&place.dir)?;
        place.dir.parent().map_or(Ok(()), |parent| disk.sync_dir(parent))
    }

    /// The epochs are durable before the recovery point passes their batches, from which they'd come back otherwise.
    pub(super) fn sync_epochs(&self) -> io::Result<()> {
        if !self.epochs_dirty.swap(false, Ordering::AcqRel) {
            return Ok(());
        }
        let text = self.epochs.read().encode();
        let place = self.place();
        write_atomically(&*place.disk, &place.dir.join(EPOCHS_FILE), text.as_bytes())
            .inspect_err(|_| self.epochs_dirty.store(true, Ordering::Release))
    }

    pub(super) fn sync_snapshot(&self, offset: Offset) -> io::Result<()> {
        let place = self.place();
        let path = place.path(offset, Kind::Snapshot);
        optional(place.disk.open(&path, OpenMode::Write))?.map_or(Ok(()), |file| file.sync())
    }

    /// Everything durable and written that a start after a clean stop relies on: batches, indexes, epochs, the producers' snapshot. No write
    /// comes after it.
    pub(super) fn close(&self) -> Result<(), AppendError> {
        let mut writer = self.writer.lock();
        self.check_writable()?;
        writer.closed = true;
        if writer.dirty {
            self.rest_at_end(&writer)?;
            writer.dirty = false;
        }
        Ok(())
    }

    /// The first half of closing many partitions at once: all is written and nothing synced. False if there was nothing to write.
    pub(super) fn close_unsynced(&self) -> io::Result<bool> {
        let mut writer = self.writer.lock();
        if self.offline_reason().is_some() || !writer.dirty || self.has_nothing(&writer) {
            return Ok(false);
        }
        writer.closed = true;
        let end = self.watermarks().log_end;
        let write = || {
            writer.active.mend()?;
            writer.active.note_end()?;
            writer.active.flush_index()?;
            if !self.syncing.has_rested_at(end) {
                self.write_snapshot(&writer, end)?;
            }
            self.syncing.note_dir_change();
            self.epochs_dirty.store(true, Ordering::Relaxed);
            let text = self.epochs.read().encode();
            let place = self.place();
            write_unsynced(&*place.disk, &place.dir.join(EPOCHS_FILE), text.as_bytes())
        };
        write().inspect_err(|error| self.fail(error)).map(|()| true)
    }

    /// The second half: everything that was written is durable now.
    pub(super) fn note_closed(&self) {
        let mut writer = self.writer.lock();
        let end = self.watermarks().log_end;
        self.syncing.note_tidy(writer.active.base());
        self.syncing.synced.fetch_max(end.0, Ordering::AcqRel);
        self.remove_old_snapshot(end);
        writer.dirty = false;
    }

    /// Nothing was ever appended: its epoch comes back with the metadata.
    fn has_nothing(&self, writer: &Writer) -> bool {
        self.watermarks().log_end == Offset(0) && writer.active.size() == 0
    }

    /// Brings the recovery point to the end of a log that nobody writes to, so that a start after a crash finds nothing to check.
    pub(super) fn rest(&self) -> Result<(), AppendError> {
        let mut writer = self.writer.lock();
        if writer.dirty && self.offline_reason().is_none() {
            self.rest_at_end(&writer)?;
            writer.dirty = false;
        }
        Ok(())
    }

    /// Brings the recovery point to the log's end. The snapshot comes last: where it is whole, everything below it is durable. Appends wait.
    fn rest_at_end(&self, writer: &Writer) -> Result<(), AppendError> {
        let end = self.watermarks().log_end;
        if self.has_nothing(writer) {
            return Ok(());
        }
        self.sync_to(end)?;
        self.sync_closed()?;
        let write_index = || {
            writer.active.mend()?;
            writer.active.note_end()?;
            writer.active.flush_index()
        };
        write_index().map_err(|e| self.refuse(e))?;
        writer.active.sync_index().map_err(|e| self.give_up(e))?;
        self.sync_epochs().map_err(|e| self.refuse(e))?;
        let has_snapshot = self.syncing.has_rested_at(end);
        if !has_snapshot {
            self.write_snapshot(writer, end).map_err(|e| self.refuse(e))?;
        }
        let sync = || {
            if !has_snapshot {
                self.sync_snapshot(end)?;
            }
            self.syncing.note_dir_change();
            self.sync_dir()
        };
        sync().map_err(|e| self.give_up(e))?;
        self.remove_old_snapshot(end);
        Ok(())
    }

    /// The one written at the last rest is of no use any more, unless a segment begins there.
    fn remove_old_snapshot(&self, end: Offset) {
        let old = self.syncing.rested.swap(end.0, Ordering::AcqRel);
        let is_base = self.segments.load().iter().any(|segment| segment.base().0 == old);
        if old >= 0 && old != end.0 && !is_base {
            let _ = self.place().disk.remove_file(&self.place().path(Offset(old), Kind::Snapshot));
        }
    }
}

/// Replaces a file; a crash before the next sync of the file system may leave neither the old nor the new one.
pub(super) fn write_unsynced(disk: &dyn Disk, path: &Path, contents: &[u8]) -> io::Result<()> {
    let file = disk.open(path, OpenMode::Create)?;
    file.set_len(0)?;
    file.write_at(&[io::IoSlice::new(contents)], 0)
}
