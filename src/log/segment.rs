//! One segment: a log file and its indexes (`LogSegment`). Files open when they're first needed, and those of idle segments close again.
//!
//! Any number of readers share it with one writer. What a reader may see ends at a position that its caller gives; the segment itself
//! knows no watermark. Index entries are kept in memory and written when the segment is closed or synced: a crash loses only what a
//! scan of the log brings back.

use super::{
    descriptors::SegmentFile,
    files::{self, Kind},
    health::DirHealth,
    index::{OffsetIndex, TimeIndex, TimestampOffset},
    io::{Disk, DiskFile, OpenMode, is_out_of_room},
    scan::{Found, Walk, WalkError},
    txn_index::{self, AbortedTxn},
};
use crate::{
    record::HEADER_BYTES,
    types::{Millis, Offset},
};
use parking_lot::{Mutex, RwLock};
use std::{
    io::{self, IoSlice},
    path::{Path, PathBuf},
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicU64, Ordering},
    },
};

/// What a look-up reads at once: about the distance of two index entries.
const LOOKUP_BYTES: usize = 4096;
/// What a scan reads at once.
const SCAN_BYTES: usize = 256 << 10;

/// A buffer for scans of files of up to `bytes`.
pub fn scan_buffer(bytes: u64) -> Vec<u8> {
    vec![0; usize::try_from(bytes).unwrap_or(SCAN_BYTES).clamp(HEADER_BYTES, SCAN_BYTES)]
}

/// Where a partition's files are.
pub struct Place {
    pub disk: Arc<dyn Disk>,
    pub dir: PathBuf,
    /// How far apart index entries are when an index is rebuilt: `index.interval.bytes` when the partition was opened.
    pub index_interval: u64,
    /// Of the data directory that it's in.
    pub health: Arc<DirHealth>,
}

impl Place {
    pub fn path(&self, offset: Offset, kind: Kind) -> PathBuf {
        self.dir.join(files::name(offset, kind))
    }
}

/// The indexes of a segment, as far as they're in memory.
#[derive(Clone)]
pub struct Indexes {
    pub offsets: OffsetIndex,
    pub times: TimeIndex,
    pub aborted: Vec<AbortedTxn>,
    /// Bytes of each that the files have (offsets, times, aborted); `None` for a file that is to be written anew.
    written: [Option<usize>; 3],
}

impl Indexes {
    pub fn empty(base: Offset) -> Self {
        Self { offsets: OffsetIndex::new(base), times: TimeIndex::new(base), aborted: Vec::new(), written: [None; 3] }
    }

    /// As read from files that hold exactly this.
    pub fn loaded(offsets: OffsetIndex, times: TimeIndex, aborted: Vec<AbortedTxn>) -> Self {
        let mut loaded = Self { offsets, times, aborted, written: [None; 3] };
        loaded.note_written();
        loaded
    }

    /// The transaction index's file.
    pub fn aborted_bytes(&self) -> Vec<u8> {
        self.aborted.iter().flat_map(AbortedTxn::encode).collect()
    }

    /// The files hold exactly this.
    pub fn note_written(&mut self) {
        let aborted = self.aborted.len().saturating_mul(txn_index::ENTRY_BYTES);
        self.written = [self.offsets.bytes().len(), self.times.bytes().len(), aborted].map(Some);
    }

    /// Drops what is of batches at or after `position`, or that end at or after `end`. The files still have it.
    pub fn truncate(&mut self, position: u64, end: Offset) {
        self.offsets.truncate_from(position);
        self.times.truncate_from(end);
        self.aborted.truncate(txn_index::entries_below(&self.aborted, end));
        let aborted = self.aborted.len().saturating_mul(txn_index::ENTRY_BYTES);
        let left = [self.offsets.bytes().len(), self.times.bytes().len(), aborted];
        self.written.iter_mut().flatten().zip(left).for_each(|(written, left)| *written = left.min(*written));
    }

    /// Makes the next flush write everything anew, whatever the files hold.
    pub fn rewrite(&mut self) {
        self.written = [None; 3];
    }

    /// The same for the two that come back from the batches alone. A transaction index that's durable is left as it is: losing it to a
    /// power loss while it's being written would not be noticed.
    fn rewrite_positions(&mut self) {
        let [.., aborted] = self.written;
        self.written = [None, None, aborted];
    }
}

pub struct Segment {
    base: Offset,
    place: Arc<Place>,
    /// Whole batches written.
    size: AtomicU64,
    file: SegmentFile,
    index: RwLock<Option<Indexes>>,
    /// The largest timestamp; known of a closed segment once asked for.
    largest: Mutex<Option<TimestampOffset>>,
    /// Used since the last look at idle segments.
    used: AtomicBool,
    /// A write that failed left bytes behind the last batch.
    torn: AtomicBool,
    /// Another segment has, or is about to get, the names of its files: only who holds it already reads it, and it writes to none.
    retired: AtomicBool,
    /// Its files have the names of removed ones.
    removed: AtomicBool,
}

impl Segment {
    /// A new one without batches; the file is made by the first write.
    pub fn create(place: Arc<Place>, base: Offset) -> Self {
        let segment = Self::existing(place, base, 0);
        *segment.index.write() = Some(Indexes::empty(base));
        segment
    }

    /// One whose log file has `size` bytes of batches. Its indexes load when they're needed.
    pub fn existing(place: Arc<Place>, base: Offset, size: u64) -> Self {
        let file = SegmentFile::new(&place.health.files);
        Self {
            base,
            place,
            size: AtomicU64::new(size),
            file,
            index: RwLock::new(None),
            largest: Mutex::new(None),
            used: AtomicBool::new(true),
            torn: AtomicBool::new(false),
            retired: AtomicBool::new(false),
            removed: AtomicBool::new(false),
        }
    }

    /// The same segment in a copy of its files elsewhere. What this one has in memory of its indexes, the files hold.
    pub fn moved(&self, place: Arc<Place>) -> Self {
        let moved = Self::existing(place, self.base, self.size());
        let mut indexes = self.index.read().clone();
        if let Some(indexes) = &mut indexes {
            indexes.note_written();
        }
        *moved.index.write() = indexes;
        *moved.largest.lock() = *self.largest.lock();
        moved
    }

    pub fn base(&self) -> Offset {
        self.base
    }

    pub fn size(&self) -> u64 {
        self.size.load(Ordering::Acquire)
    }

    pub fn place(&self) -> &Place {
        &self.place
    }

    fn path(&self, kind: Kind) -> PathBuf {
        if self.removed.load(Ordering::Acquire) { self.removed_path(kind) } else { self.place.path(self.base, kind) }
    }

    fn removed_path(&self, kind: Kind) -> PathBuf {
        self.place.dir.join(files::name(self.base, kind) + files::DELETED_SUFFIX)
    }

    /// Gives its files the names of removed ones, by which whoever still holds the segment goes on finding them. The batches go first, and
    /// nothing is durable until the directory is: a crash leaves either all that they need, or no batches.
    pub fn mark_removed(&self) -> io::Result<()> {
        // Who opens a file meanwhile waits, and then finds it by its new name.
        let _index = self.index.write();
        let _file = self.file.hold();
        self.removed.store(true, Ordering::Release);
        for kind in Kind::OF_SEGMENT {
            optional(self.place.disk.rename(&self.place.path(self.base, kind), &self.removed_path(kind)))?;
        }
        Ok(())
    }

    /// Removes the files of a segment that was marked so.
    pub fn remove_files(&self) -> io::Result<()> {
        Kind::OF_SEGMENT.into_iter().try_for_each(|kind| remove_if_there(&*self.place.disk, &self.removed_path(kind)))
    }

    /// The log file, opened now if it isn't.
    pub fn file(&self) -> io::Result<Arc<dyn DiskFile>> {
        if !self.used.load(Ordering::Relaxed) {
            self.used.store(true, Ordering::Relaxed);
        }
        self.file.get(|is_first| {
            let path = self.path(Kind::Log);
            if !is_first || self.size() > 0 {
                return self.place.disk.open(&path, OpenMode::Write);
            }
            let new = self.place.disk.open(&path, OpenMode::Create)?;
            if !new.is_empty()? {
                // Left by a write that was never acknowledged.
                new.set_len(0)?;
            }
            Ok(new)
        })
    }

    /// Writes a batch in parts after the last one; the size moves only if all of it was written. Where it wasn't for lack of room, what was
    /// is cut off again, now or before the next write.
    pub fn append(&self, parts: &[IoSlice<'_>], bytes: u64) -> io::Result<()> {
        self.mend()?;
        let position = self.size();
        if let Err(error) = self.file()?.write_at(parts, position) {
            if is_out_of_room(&error) {
                self.torn.store(true, Ordering::Relaxed);
                let _ = self.mend();
            }
            return Err(error);
        }
        self.size.store(position.saturating_add(bytes), Ordering::Release);
        Ok(())
    }

    /// Cuts off what a failed write has left. The one who appends calls it.
    pub fn mend(&self) -> io::Result<()> {
        if self.torn.load(Ordering::Relaxed) {
            self.file()?.set_len(self.size())?;
            self.torn.store(false, Ordering::Relaxed);
        }
        Ok(())
    }

    /// Sets the size after the file was cut.
    pub fn set_size(&self, size: u64) {
        self.size.store(size, Ordering::Release);
    }

    /// Cuts the file at `position`, a batch's end, and the index files to what `indexes` says that they have; all of it durably.
    pub fn cut(&self, position: u64, indexes: Indexes, largest: Option<TimestampOffset>) -> io::Result<()> {
        let file = self.file()?;
        file.set_len(position)?;
        file.sync()?;
        let mut index = self.index.write();
        for (kind, written) in [Kind::OffsetIndex, Kind::TimeIndex, Kind::TxnIndex].into_iter().zip(indexes.written) {
            let Some(file) = optional(self.place.disk.open(&self.path(kind), OpenMode::Write))? else { continue };
            if let Some(written) = written.map(|written| written as u64).filter(|written| file.len().is_ok_and(|len| len > *written)) {
                file.set_len(written)?;
                file.sync()?;
            }
        }
        *self.largest.lock() = largest;
        self.write_index(index.insert(indexes))?;
        self.sync_index()
    }

    /// Makes the batches and indexes durable.
    pub fn sync(&self) -> io::Result<()> {
        self.file()?.sync()
    }

    /// Reads the indexes, loading them if need be.
    pub fn with_index<R>(&self, look: impl Fn(&Indexes) -> R) -> io::Result<R> {
        if let Some(index) = &*self.index.read() {
            return Ok(look(index));
        }
        let mut index = self.index.write();
        if index.is_none() {
            *index = Some(self.load_index()?);
        }
        index.as_ref().map(look).ok_or_else(|| io::ErrorKind::NotFound.into())
    }

    /// Changes the indexes, loading them if need be.
    pub fn edit_index<R>(&self, edit: impl FnOnce(&mut Indexes) -> R) -> io::Result<R> {
        let mut index = self.index.write();
        if index.is_none() {
            *index = Some(self.load_index()?);
        }
        index.as_mut().map(edit).ok_or_else(|| io::ErrorKind::NotFound.into())
    }

    /// Puts indexes in place that were built by a scan.
    pub fn set_index(&self, indexes: Indexes) {
        *self.index.write() = Some(indexes);
    }

    /// The files' indexes if they can be trusted, else new ones from the log.
    fn load_index(&self) -> io::Result<Indexes> {
        let aborted = self.load_aborted()?;
        let read = |kind| optional(self.place.disk.read(&self.path(kind)));
        let (offsets, times) = (read(Kind::OffsetIndex)?, read(Kind::TimeIndex)?);
        if let (Some(offsets), Some(times)) = (offsets, times) {
            match (OffsetIndex::decode(self.base, &offsets, self.size()), TimeIndex::decode(self.base, &times)) {
                (Ok(good_offsets), Ok(good_times)) => {
                    // Room that Kafka reserved goes, so that entries can be appended.
                    self.trim(Kind::OffsetIndex, offsets.len(), good_offsets.bytes().len())?;
                    self.trim(Kind::TimeIndex, times.len(), good_times.bytes().len())?;
                    return Ok(Indexes::loaded(good_offsets, good_times, aborted));
                }
                (Err(broken), _) | (_, Err(broken)) => {
                    let segment = self.path(Kind::Log);
                    tracing::warn!(segment = %segment.display(), %broken, "rebuilding a broken index");
                }
            }
        }
        let (offsets, times) = (OffsetIndex::new(self.base), TimeIndex::new(self.base));
        self.rebuild_index(Indexes::loaded(offsets, times, aborted))
    }

    /// Cuts an index file of `from` bytes to its first `to` bytes, durably: once the next segment has begun, a recovery point at the cut lets
    /// the file be believed unread, and after a power loss the entries of batches that are gone would be back.
    pub fn trim(&self, kind: Kind, from: usize, to: usize) -> io::Result<()> {
        if from == to {
            return Ok(());
        }
        let file = self.place.disk.open(&self.path(kind), OpenMode::Write)?;
        file.set_len(to as u64)?;
        file.sync()
    }

    fn load_aborted(&self) -> io::Result<Vec<AbortedTxn>> {
        let Some(bytes) = optional(self.place.disk.read(&self.path(Kind::TxnIndex)))? else { return Ok(Vec::new()) };
        txn_index::decode(&bytes, self.base).map_err(|e| io::Error::new(io::ErrorKind::InvalidData, e))
    }

    /// The offset and time index from the batches' headers, written to their files.
    fn rebuild_index(&self, mut indexes: Indexes) -> io::Result<Indexes> {
        (indexes.offsets, indexes.times) = (OffsetIndex::new(self.base), TimeIndex::new(self.base));
        indexes.rewrite_positions();
        let file = self.file()?;
        let mut buf = scan_buffer(self.size());
        let mut walk = Walk::new(&*file, 0, self.size(), &mut buf);
        let mut noted = Noted::default();
        while let Some(batch) = walk.next_batch()? {
            noted.note(&mut indexes, &batch, self.place.index_interval);
        }
        noted.finish(&mut indexes);
        self.write_index(&mut indexes)?;
        self.sync_index()?;
        Ok(indexes)
    }

    /// The batch that holds `offset`, or else the first one after it, of those that end at or before position `end`.
    pub fn find(&self, offset: Offset, end: u64) -> io::Result<Option<Found>> {
        match self.find_once(offset, end) {
            Err(error) if error.kind() == io::ErrorKind::InvalidData => {
                self.mend_index(error)?;
                self.find_once(offset, end)
            }
            found => found,
        }
    }

    /// Rebuilds the indexes after a look-up by them met `error` instead of a batch.
    pub fn mend_index(&self, error: io::Error) -> io::Result<()> {
        let segment = self.path(Kind::Log);
        tracing::warn!(segment = %segment.display(), %error, "rebuilding an index that doesn't fit its log");
        let mut index = self.index.write();
        // It isn't there if it could not be loaded: then it isn't rebuilt by halves.
        let broken = index.clone().ok_or(error)?;
        *index = Some(self.rebuild_index(broken)?);
        Ok(())
    }

    fn find_once(&self, offset: Offset, end: u64) -> io::Result<Option<Found>> {
        let entry = self.with_index(|i| i.offsets.floor(offset))?;
        let entry = entry.filter(|e| u64::from(e.position) < end);
        let file = self.file()?;
        let mut buf = [0; LOOKUP_BYTES];
        let mut walk = Walk::new(&*file, entry.map_or(0, |e| e.position.into()), end, &mut buf);
        let mut first = true;
        while let Some(batch) = walk.next_batch()? {
            let last = batch.header.last_offset();
            if first && entry.is_some_and(|e| e.last_offset != last) {
                return Err(WalkError::Bad { position: batch.position, what: super::scan::Bad::Offsets }.into());
            }
            if last >= offset {
                return Ok(Some(batch));
            }
            first = false;
        }
        Ok(None)
    }

    /// The offset after the last batch that lies whole in `position..end`; `None` if none does. `position` is a batch's start.
    pub fn offset_after(&self, position: u64, end: u64) -> io::Result<Option<Offset>> {
        let entry = self.with_index(|i| i.offsets.before_position(end))?;
        let near = entry.map_or(0, |e| u64::from(e.position)).max(position);
        let file = self.file()?;
        let mut buf = [0; LOOKUP_BYTES];
        for start in [near, position] {
            let mut walk = Walk::new(&*file, start, end, &mut buf);
            let mut last = None;
            // The walk ends at the batch that the range cuts short.
            while let Ok(Some(batch)) = walk.next_batch() {
                last = Some(batch.header.next_offset());
            }
            if last.is_some() {
                return Ok(last);
            }
        }
        Ok(None)
    }

    /// Where a search for `timestamp` begins: all batches before it are earlier.
    pub fn start_of_time(&self, timestamp: Millis) -> io::Result<u64> {
        let Some(from) = self.with_index(|i| i.times.floor(timestamp))? else { return Ok(0) };
        // By the log itself: an index that doesn't fit it is found out here.
        Ok(self.find(from.offset, self.size())?.map_or(0, |batch| batch.position))
    }

    /// The largest timestamp of the segment; `None` if it isn't known, and every search must look.
    pub fn largest(&self) -> io::Result<Option<TimestampOffset>> {
        if let Some(largest) = *self.largest.lock() {
            return Ok(Some(largest));
        }
        let last = self.with_index(|i| i.times.last())?;
        *self.largest.lock() = last;
        Ok(last)
    }

    /// Takes a batch's timestamp in; the one who appends calls it.
    pub fn note_largest(&self, batch: TimestampOffset) -> TimestampOffset {
        let mut largest = self.largest.lock();
        let max = largest.filter(|l| l.timestamp >= batch.timestamp).unwrap_or(batch);
        *largest = Some(max);
        max
    }

    /// Forgets the largest timestamp, so that the index says it.
    pub fn set_largest(&self, largest: Option<TimestampOffset>) {
        *self.largest.lock() = largest;
    }

    /// Notes the largest timestamp in the time index: done when a segment is closed.
    pub fn note_end(&self) -> io::Result<()> {
        let largest = *self.largest.lock();
        largest.map_or(Ok(()), |largest| self.edit_index(|i| i.times.append(largest)))
    }

    /// Writes what the index files don't have yet. Nothing is made durable.
    pub fn flush_index(&self) -> io::Result<()> {
        self.index.write().as_mut().map_or(Ok(()), |indexes| self.write_index(indexes))
    }

    fn write_index(&self, indexes: &mut Indexes) -> io::Result<()> {
        if self.is_retired() {
            return Ok(());
        }
        let aborted = indexes.aborted_bytes();
        let parts =
            [(Kind::OffsetIndex, indexes.offsets.bytes()), (Kind::TimeIndex, indexes.times.bytes()), (Kind::TxnIndex, aborted.as_slice())];
        for ((kind, bytes), written) in parts.into_iter().zip(&mut indexes.written) {
            if *written == Some(bytes.len()) {
                continue;
            }
            let path = self.path(kind);
            if kind == Kind::TxnIndex && bytes.is_empty() {
                remove_if_there(&*self.place.disk, &path)?;
            } else {
                let file = self.place.disk.open(&path, OpenMode::Create)?;
                let from = written.filter(|written| *written < bytes.len()).unwrap_or(0);
                if from == 0 {
                    file.set_len(0)?;
                }
                file.write_at(&[IoSlice::new(bytes.get(from..).unwrap_or_default())], from as u64)?;
            }
            *written = Some(bytes.len());
        }
        Ok(())
    }

    /// Makes the index files durable, after [`Segment::flush_index`].
    pub fn sync_index(&self) -> io::Result<()> {
        if self.is_retired() {
            return Ok(());
        }
        for kind in [Kind::OffsetIndex, Kind::TimeIndex, Kind::TxnIndex] {
            if let Some(file) = optional(self.place.disk.open(&self.path(kind), OpenMode::Write))? {
                file.sync()?;
            }
        }
        Ok(())
    }

    /// Opens what is needed to read it without the names of its files, which it's about to lose. They stay open unless it rests.
    pub fn hold_open(&self) -> io::Result<()> {
        self.file.pin(true);
        self.file()?;
        self.with_index(|_| ())
    }

    pub fn set_retired(&self, retired: bool) {
        self.retired.store(retired, Ordering::Release);
        self.file.pin(retired);
    }

    fn is_retired(&self) -> bool {
        self.retired.load(Ordering::Acquire)
    }

    /// Closes the file until it's needed again.
    pub fn close_file(&self) {
        self.file.close();
    }

    /// Closes the file and drops the indexes if they weren't used since the last call. Only for segments with nothing to sync or flush.
    pub fn rest(&self) {
        if self.used.swap(false, Ordering::Relaxed) {
            return;
        }
        self.file.close();
        *self.index.write() = None;
    }
}

/// Makes index entries while batches go by, at the places where Kafka makes them.
#[derive(Default)]
pub struct Noted {
    last_entry: u64,
    largest: Option<TimestampOffset>,
}

impl Noted {
    /// After an index that ends with an entry at `position`.
    pub fn after(position: u64, largest: Option<TimestampOffset>) -> Self {
        Self { last_entry: position, largest }
    }

    pub fn note(&mut self, indexes: &mut Indexes, batch: &Found, interval: u64) {
        let end = TimestampOffset { timestamp: batch.header.max_timestamp, offset: batch.header.last_offset() };
        // A batch that compaction has emptied has no record of its timestamp.
        if batch.header.record_count > 0 && self.largest.is_none_or(|l| l.timestamp < end.timestamp) {
            self.largest = Some(end);
        }
        if batch.position.saturating_sub(self.last_entry) > interval
            && let Ok(position) = u32::try_from(batch.position)
        {
            indexes.offsets.append(end.offset, position);
            self.finish(indexes);
            self.last_entry = batch.position;
        }
    }

    pub fn finish(&self, indexes: &mut Indexes) {
        if let Some(largest) = self.largest {
            indexes.times.append(largest);
        }
    }

    pub fn largest(&self) -> Option<TimestampOffset> {
        self.largest
    }
}

/// `None` for what isn't there.
pub fn optional<T>(result: io::Result<T>) -> io::Result<Option<T>> {
    match result {
        Ok(value) => Ok(Some(value)),
        Err(e) if e.kind() == io::ErrorKind::NotFound => Ok(None),
        Err(e) => Err(e),
    }
}

/// Removes a file that may not be there.
pub fn remove_if_there(disk: &dyn Disk, path: &Path) -> io::Result<()> {
    optional(disk.remove_file(path)).map(|_| ())
}

const _: () = assert!(LOOKUP_BYTES >= HEADER_BYTES && SCAN_BYTES >= HEADER_BYTES);
