//! Copies one partition to another data directory while it is used, and takes it over there (`Partition.maybeReplaceCurrentWithFutureReplica`).
//!
//! The copy grows in a directory named `-future` until little is missing. Then appends wait while the rest is copied and made durable, and
//! one rename is the point of no return: before it a start goes on with the old directory, after it with the new one. The file [`MOVED_FILE`] in
//! the new one tells so as long as the old one still has its name. An error at or after the rename takes the partition out of service until a
//! start has looked which of the two it is.

use super::{
    MoveError,
    checkpoints::encode_metadata,
    files::{self, EPOCHS_FILE, Kind, METADATA_FILE, MOVED_FILE},
    health::DirHealth,
    io::{Disk, OpenMode},
    partition::{PartitionLog, Writer},
    resume,
    segment::{Place, Segment, optional, remove_if_there},
};
use crate::types::{Millis, Offset};
use std::{
    collections::BTreeSet,
    io::{self, IoSlice},
    path::{Path, PathBuf},
    sync::{Arc, atomic::Ordering},
};

/// What is read and written at once.
const CHUNK_BYTES: usize = 1 << 20;
/// So much may be missing when appends are made to wait.
const REST_BYTES_MAX: u64 = 4 << 20;
/// Rounds of copying after which more would not bring it nearer: producers are as fast.
const ROUNDS_MAX: usize = 16;
/// More files than these are made durable with one sync of their file system.
const SYNCED_ALONE_MAX: usize = 16;

/// Called after each stretch of so many bytes; false ends the copying. It may pause first.
pub type Pace<'a> = &'a (dyn Fn(u64) -> bool + Sync);

/// The copy of one segment.
struct Copied {
    of: Arc<Segment>,
    bytes: u64,
    /// All of it is there, with its indexes.
    is_complete: bool,
}

/// A log's copy that is being made.
pub(super) struct Copy<'a> {
    log: &'a PartitionLog,
    disk: Arc<dyn Disk>,
    dir: PathBuf,
    /// Of the data directory that it is in.
    health: Arc<DirHealth>,
    /// In the order of the log's segments as they were last looked at.
    segments: Vec<Copied>,
    /// Files that were written to since the last sync.
    unsynced: BTreeSet<PathBuf>,
    pace: Pace<'a>,
    /// Told how many bytes were copied, and how much there is now of which segment.
    progress: &'a dyn Fn(u64, &Arc<Segment>, u64),
}

impl<'a> Copy<'a> {
    /// Begins in `dir`, which is there, with what it holds of the log already.
    pub fn begin(
        log: &'a PartitionLog,
        dir: &Path,
        health: &Arc<DirHealth>,
        now: Millis,
        pace: Pace<'a>,
        progress: &'a dyn Fn(u64, &Arc<Segment>, u64),
    ) -> Result<Self, MoveError> {
        let disk = Arc::clone(&log.place().disk);
        let copied = resume::copied(log, dir, health, now, pace)?;
        let (dir, health) = (dir.to_owned(), Arc::clone(health));
        let mut copy = Self { log, disk, dir, health, segments: Vec::new(), unsynced: BTreeSet::new(), pace, progress };
        for (of, bytes) in copied {
            let path = copy.dir.join(files::name(of.base(), Kind::Log));
            (copy.progress)(bytes, &of, bytes);
            copy.segments.push(Copied { of, bytes, is_complete: false });
            copy.unsynced.insert(path);
        }
        for entry in copy.disk.list(&copy.dir)?.into_iter().filter(|entry| !entry.is_dir) {
            let path = copy.dir.join(entry.name);
            if !copy.unsynced.contains(&path) {
                copy.disk.remove_file(&path)?;
            }
        }
        copy.write_file(METADATA_FILE, encode_metadata(log.topic_id()).as_bytes())?;
        Ok(copy)
    }

    /// Copies until little is missing.
    pub fn catch_up(&mut self) -> Result<(), MoveError> {
        self.draw_near()?;
        // A sync takes a while, in which producers go on: what came meanwhile is little against all that was there before it.
        self.sync()?;
        self.draw_near()
    }

    fn draw_near(&mut self) -> Result<(), MoveError> {
        for _ in 0..ROUNDS_MAX {
            if self.advance(true)? <= REST_BYTES_MAX {
                break;
            }
        }
        Ok(())
    }

    /// Follows what has become of the log since the last call; how many bytes that were.
    fn advance(&mut self, paced: bool) -> Result<u64, MoveError> {
        let segments = self.log.segments.load_full();
        self.arrange(&segments)?;
        let mut total: u64 = 0;
        for i in 0..segments.len() {
            total = total.saturating_add(self.copy_batches(i, paced)?);
            if i.saturating_add(1) < segments.len() {
                self.complete(i)?;
            }
        }
        Ok(total)
    }

    /// A copy, perhaps an empty one still, for each segment and no other: retention takes some, and compaction replaces some.
    fn arrange(&mut self, segments: &[Arc<Segment>]) -> io::Result<()> {
        // One that was truncated meanwhile is copied anew.
        let is_there =
            |copied: &Copied| segments.iter().any(|segment| Arc::ptr_eq(segment, &copied.of)) && copied.bytes <= copied.of.size();
        let (kept, gone): (Vec<_>, Vec<_>) = std::mem::take(&mut self.segments).into_iter().partition(is_there);
        for copied in gone {
            for kind in Kind::OF_SEGMENT.into_iter().chain([Kind::Snapshot]) {
                let path = self.dir.join(files::name(copied.of.base(), kind));
                remove_if_there(&*self.disk, &path)?;
                self.unsynced.remove(&path);
            }
        }
        let mut kept = kept.into_iter().peekable();
        for segment in segments {
            let copied = match kept.next_if(|copied| Arc::ptr_eq(&copied.of, segment)) {
                Some(copied) => copied,
                None => self.new_copy(segment)?,
            };
            self.segments.push(copied);
        }
        Ok(())
    }

    fn new_copy(&self, segment: &Arc<Segment>) -> io::Result<Copied> {
        let file = self.disk.open(&self.dir.join(files::name(segment.base(), Kind::Log)), OpenMode::Create)?;
        file.set_len(0)?;
        Ok(Copied { of: Arc::clone(segment), bytes: 0, is_complete: false })
    }

    /// Copies the batches that segment `i` has got since the last call.
    fn copy_batches(&mut self, i: usize, paced: bool) -> Result<u64, MoveError> {
        let Some(copied) = self.segments.get_mut(i) else { return Ok(0) };
        let size = copied.of.size();
        if copied.is_complete || copied.bytes >= size {
            return Ok(0);
        }
        let path = self.dir.join(files::name(copied.of.base(), Kind::Log));
        let (from, to) = (copied.of.file()?, self.disk.open(&path, OpenMode::Write)?);
        let began = copied.bytes;
        self.unsynced.insert(path);
        let mut buf = vec![0; CHUNK_BYTES.min(usize::try_from(size.saturating_sub(began)).unwrap_or(CHUNK_BYTES))];
        while copied.bytes < size {
            let want = usize::try_from(size.saturating_sub(copied.bytes)).unwrap_or(CHUNK_BYTES).min(buf.len());
            let part = buf.get_mut(..want).unwrap_or_default();
            super::io::read_exact_at(&*from, part, copied.bytes)?;
            to.write_at(&[IoSlice::new(part)], copied.bytes)?;
            copied.bytes = copied.bytes.saturating_add(want as u64);
            (self.progress)(want as u64, &copied.of, copied.bytes);
            if paced && !(self.pace)(want as u64) {
                return Err(MoveError::GivenUp("the broker stops, or the move was cancelled".into()));
            }
        }
        Ok(size.saturating_sub(began))
    }

    /// A segment that isn't written to any more: its indexes and the producers' snapshot at its start.
    fn complete(&mut self, i: usize) -> io::Result<()> {
        let Some(copied) = self.segments.get_mut(i).filter(|copied| !copied.is_complete) else { return Ok(()) };
        copied.is_complete = true;
        let segment = Arc::clone(&copied.of);
        self.write_indexes(&segment)?;
        self.copy_snapshot(segment.base())
    }

    /// Where the newest segment of the copy begins: what is before it is durable, and its indexes are.
    pub fn active_base(&self) -> Offset {
        self.segments.last().map_or(Offset(0), |copied| copied.of.base())
    }

    fn write_indexes(&mut self, segment: &Segment) -> io::Result<()> {
        let indexes = segment.with_index(|indexes| indexes.clone())?;
        let aborted = indexes.aborted_bytes();
        let parts = [(Kind::OffsetIndex, indexes.offsets.bytes()), (Kind::TimeIndex, indexes.times.bytes()), (Kind::TxnIndex, &aborted)];
        for (kind, bytes) in parts.into_iter().filter(|(kind, bytes)| *kind != Kind::TxnIndex || !bytes.is_empty()) {
            self.write_file(&files::name(segment.base(), kind), bytes)?;
        }
        Ok(())
    }

    fn copy_snapshot(&mut self, offset: Offset) -> io::Result<()> {
        let snapshot = optional(self.disk.read(&self.log.place().path(offset, Kind::Snapshot)))?;
        snapshot.map_or(Ok(()), |bytes| self.write_file(&files::name(offset, Kind::Snapshot), &bytes))
    }

    /// A log that never had a record has no files.
    fn is_empty(&self) -> bool {
        self.log.watermarks().log_end == Offset(0)
    }

    fn write_file(&mut self, name: &str, bytes: &[u8]) -> io::Result<()> {
        let path = self.dir.join(name);
        let file = self.disk.open(&path, OpenMode::Create)?;
        file.set_len(0)?;
        file.write_at(&[IoSlice::new(bytes)], 0)?;
        self.unsynced.insert(path);
        Ok(())
    }

    /// Makes what was written durable: file by file, or all at once if they're many.
    fn sync(&mut self) -> io::Result<()> {
        let many = self.unsynced.len() > SYNCED_ALONE_MAX;
        let at_once = match self.health.rounds.sync_all.get() {
            Some(sync_all) if many => sync_all()?,
            _ => false,
        };
        for path in std::mem::take(&mut self.unsynced) {
            if !at_once {
                self.disk.open(&path, OpenMode::Write)?.sync()?;
            }
        }
        Ok(())
    }

    /// Makes the copy whole and durable: with it a start finds the log at rest at its end. No append and nothing else that changes the log
    /// is under way.
    fn finish(&mut self, writer: &Writer) -> Result<(), MoveError> {
        writer.active.mend()?;
        self.advance(false)?;
        writer.active.note_end()?;
        self.write_indexes(&writer.active)?;
        self.copy_snapshot(writer.active.base())?;
        let log_end = self.log.watermarks().log_end;
        self.write_file(&files::name(log_end, Kind::Snapshot), &writer.producers.encode_snapshot())?;
        let (epochs, old) = (self.log.epochs.read().encode(), self.log.place().dir.display().to_string());
        self.write_file(EPOCHS_FILE, epochs.as_bytes())?;
        self.write_file(MOVED_FILE, old.as_bytes())?;
        if self.is_empty() {
            for kind in Kind::OF_SEGMENT.into_iter().chain([Kind::Snapshot]) {
                let path = self.dir.join(files::name(log_end, kind));
                remove_if_there(&*self.disk, &path)?;
                self.unsynced.remove(&path);
            }
        }
        self.sync()?;
        Ok(self.disk.sync_dir(&self.dir)?)
    }

    /// Takes the log over to `to`, where its directory gets its name; the old directory is renamed to `aside`, not durably. The caller holds
    /// the log's `reshaping`.
    pub fn take_over(mut self, to: &Path, aside: &Path) -> Result<(), MoveError> {
        let log = self.log;
        let mut writer = log.writer.lock();
        log.syncing.alone(|| {
            log.check_writable().map_err(|error| MoveError::Offline(error.to_string()))?;
            if writer.closed {
                return Err(MoveError::GivenUp("the broker stops".into()));
            }
            self.finish(&writer)?;
            let parent = to.parent().unwrap_or(to);
            let renamed = self.disk.rename(&self.dir, to).and_then(|()| self.disk.sync_dir(parent));
            renamed.inspect_err(|error| log.fail(error))?;
            self.adopt(&mut writer, to);
            let old = log.place().dir.clone();
            log.set_place(Arc::new(self.place_at(to)));
            // Left with its name it is known by the file in the new one at the next start.
            self.disk.rename(&old, aside).unwrap_or_else(|error| {
                tracing::warn!(dir = %old.display(), %error, "the old directory of a partition that moved keeps its name until the next start");
            });
            Ok(())
        })
    }

    fn place_at(&self, dir: &Path) -> Place {
        let index_interval = self.log.place().index_interval;
        Place { disk: Arc::clone(&self.disk), dir: dir.to_owned(), index_interval, health: Arc::clone(&self.health) }
    }

    /// The log's segments are those of the copy from now on. All is durable.
    fn adopt(&self, writer: &mut Writer, dir: &Path) {
        let log = self.log;
        let place = Arc::new(self.place_at(dir));
        let old = log.segments.load_full();
        let mut segments = Vec::with_capacity(old.len());
        for segment in old.iter() {
            // Who still reads it writes none of its indexes.
            segment.set_retired(true);
            let place = Arc::clone(&place);
            segments.push(Arc::new(if self.is_empty() { Segment::create(place, segment.base()) } else { segment.moved(place) }));
        }
        if let Some(active) = segments.last() {
            writer.active = Arc::clone(active);
        }
        log.segments.store(Arc::new(segments));
        log.trash.lock().clear();
        log.compaction.forget_deletions();
        let log_end = log.watermarks().log_end;
        log.syncing.note_moved(log_end, writer.active.base(), !self.is_empty());
        log.epochs_dirty.store(false, Ordering::Release);
        // When records arrived is written anew with its next turn.
        log.arrivals.lock().note_unwritten();
    }
}
