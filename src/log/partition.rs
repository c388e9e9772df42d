//! One partition's log: appends and the state that they move. Reading is in `read`, syncing in `sync`, opening in `recover`.
//!
//! Locks, in the order in which they're taken: `writer` (held during an append's one write), `epochs`, a segment's, `ends` (held for a copy).
//! Readers take `ends` and the list of segments, and so never wait for a write. What lies beyond `ends` in a file isn't there for them.
//!
//! After a failed write or sync the partition takes no more writes until it is opened again: what the disk holds then is not known. It
//! goes on serving what was acknowledged.

use super::{
    AppendError,
    arrivals::{self, Arrivals},
    compact::Compaction,
    epochs::Epochs,
    files::Kind,
    index::TimestampOffset,
    io::{OpenMode, is_out_of_room},
    model::{self, ActiveSegment, Incoming, Watermarks, relative},
    producer_state::{Admission, ProducerStates},
    segment::{Place, Segment},
    sync::Syncing,
    txn_index::AbortedTxn,
    validate::{self, Accepted, Origin},
    verification::Verifications,
    watch::Watch,
};
use crate::{
    config::TopicConfig,
    record::{BatchHeader, BatchRecords, EndTxnMarker},
    types::{LeaderEpoch, Millis, Offset, PartitionIndex, TopicId, TopicPartition},
};
use arc_swap::ArcSwap;
use bytes::Bytes;
use parking_lot::{Mutex, RwLock};
use std::{
    hash::{DefaultHasher, Hash, Hasher},
    io::{self, IoSlice},
    sync::{
        Arc, OnceLock,
        atomic::{AtomicBool, AtomicU64, Ordering},
    },
};

/// What became of a batch.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Appended {
    pub base_offset: Offset,
    pub last_offset: Offset,
    /// The time that the topic stamped; [`Millis::NONE`] under CreateTime.
    pub log_append_time: Millis,
    pub log_start: Offset,
    /// The partition had the batch already: the offsets are those that it got then.
    pub duplicate: bool,
    /// `flush.messages` is reached: the acknowledgement waits for [`PartitionLog::sync_to`] of this offset.
    pub sync_to: Option<Offset>,
}

/// What has gone through the partition since it was opened.
#[derive(Debug, Default)]
pub struct Stats {
    pub bytes_in: AtomicU64,
    pub records_in: AtomicU64,
    pub batches_in: AtomicU64,
    pub bytes_out: AtomicU64,
    pub records_out: AtomicU64,
    pub reads: AtomicU64,
}

/// A position in a segment.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Spot {
    pub segment: Offset,
    pub position: u64,
}

/// The watermarks and where they lie in the files: always changed and copied together.
#[derive(Clone, Copy, Debug)]
pub(super) struct Ends {
    pub marks: Watermarks,
    /// Where the log ends.
    pub end: Spot,
    /// Where the high watermark lies.
    pub high: Spot,
    /// The last batch appended: who waits at the end reads it next, and needs no look-up.
    pub tail: Option<(Offset, Spot)>,
}

/// What only the one who appends sees.
pub(super) struct Writer {
    pub active: Arc<Segment>,
    pub producers: ProducerStates,
    pub verifications: Verifications,
    /// What batches are stamped with.
    pub epoch: LeaderEpoch,
    /// The active segment's first batch's largest timestamp; the outer `None` until it's looked up.
    pub first_timestamp: Option<Option<Millis>>,
    pub created: Millis,
    pub jitter_ms: i64,
    /// Where the active segment's last index entry points.
    pub last_entry: u64,
    /// Entries in the active segment's offset and time index.
    pub entries: (usize, usize),
    /// Something changed that a clean stop has to write.
    pub dirty: bool,
    /// A clean stop has begun: nothing is appended any more.
    pub closed: bool,
    /// When an arrival was last noted.
    pub arrival_noted: Option<Millis>,
}

/// One partition's log. All methods may be called from any thread; those that do I/O block.
pub struct PartitionLog {
    pub(super) topic: TopicPartition,
    pub(super) topic_id: TopicId,
    /// Changes when the partition moves to another data directory, while the writer's lock is held and no sync runs.
    place: ArcSwap<Place>,
    pub(super) config: ArcSwap<TopicConfig>,
    /// Ascending; never empty; the last one is written to.
    pub(super) segments: ArcSwap<Vec<Arc<Segment>>>,
    pub(super) ends: Mutex<Ends>,
    pub(super) writer: Mutex<Writer>,
    pub(super) epochs: RwLock<Epochs>,
    /// The epochs changed since their file was written. Lost by a crash they come back from the batches.
    pub(super) epochs_dirty: AtomicBool,
    pub(super) syncing: Syncing,
    /// Held by whoever removes or replaces segments. Taken before any other lock.
    pub(super) reshaping: Mutex<()>,
    /// Removed segments whose files are still there, and when they go.
    pub(super) trash: Mutex<Vec<(Millis, Arc<Segment>)>>,
    failed: OnceLock<String>,
    deleted: AtomicBool,
    watch: Watch,
    pub(super) stats: Stats,
    pub(super) compaction: Compaction,
    pub(super) arrivals: Mutex<Arrivals>,
    /// Raised whenever compaction or a truncation changes which records are there.
    pub(super) shape: AtomicU64,
}

/// What a partition is built from when it's opened or made.
pub(super) struct Parts {
    pub topic: TopicPartition,
    pub topic_id: TopicId,
    pub place: Arc<Place>,
    pub config: Arc<TopicConfig>,
    pub segments: Vec<Arc<Segment>>,
    pub marks: Watermarks,
    pub epochs: Epochs,
    pub producers: ProducerStates,
    pub arrivals: Arrivals,
    /// All batches below are durable.
    pub synced: Offset,
    /// The base of the segment from which on indexes and snapshots may not be durable.
    pub tidy: Offset,
    /// The newest snapshot that was found whole, and up to which indexes could be trusted.
    pub rested: Option<Offset>,
    pub now: Millis,
    pub dirty: bool,
    /// The directory's entries, or its metadata, are not durable yet.
    pub dir_dirty: bool,
}

impl PartitionLog {
    /// `parts.segments` is not empty; the last one's index is in memory.
    pub(super) fn new(parts: Parts) -> io::Result<Self> {
        let active = parts.segments.last().cloned().ok_or(io::ErrorKind::InvalidInput)?;
        let (last_entry, entries) =
            active.with_index(|i| (i.offsets.last().map_or(0, |e| e.position.into()), (i.offsets.len(), i.times.len())))?;
        // From here on each append keeps it.
        active.largest()?;
        let end = Spot { segment: active.base(), position: active.size() };
        let jitter_ms = roll_jitter_ms(&parts.topic, active.base(), &parts.config);
        let created = parts.now;
        let writer = Writer {
            active,
            producers: parts.producers,
            verifications: Verifications::default(),
            epoch: LeaderEpoch::NONE,
            first_timestamp: None,
            created,
            jitter_ms,
            last_entry,
            entries,
            dirty: parts.dirty,
            closed: false,
            arrival_noted: None,
        };
        Ok(Self {
            topic: parts.topic,
            topic_id: parts.topic_id,
            place: ArcSwap::new(parts.place),
            config: ArcSwap::new(parts.config),
            segments: ArcSwap::from_pointee(parts.segments),
            ends: Mutex::new(Ends { marks: parts.marks, end, high: end, tail: None }),
            writer: Mutex::new(writer),
            epochs: RwLock::new(parts.epochs),
            epochs_dirty: AtomicBool::new(parts.dirty),
            syncing: Syncing::new(parts.synced, parts.tidy, parts.rested, parts.now, parts.dir_dirty),
            reshaping: Mutex::default(),
            trash: Mutex::default(),
            failed: OnceLock::new(),
            deleted: AtomicBool::new(false),
            watch: Watch::default(),
            stats: Stats::default(),
            compaction: Compaction::default(),
            arrivals: Mutex::new(parts.arrivals),
            shape: AtomicU64::new(0),
        })
    }

    /// Checks a batch (exactly one, as [`super::split_one_batch`] cuts it) and appends it. When this returns the batch is written, as far
    /// as the operating system is concerned, and waiters are awake; it is durable once [`PartitionLog::sync_to`] says so.
    pub fn append(&self, now: Millis, batch: Bytes, origin: Origin) -> Result<Appended, AppendError> {
        self.check_writable()?;
        self.place().health.check_room()?;
        let config = self.config.load();
        let accepted = validate::validate(&batch, &config, now, origin)?;
        let mut writer = self.writer.lock();
        let appended = self.append_accepted(&mut writer, now, accepted, origin, &config)?;
        drop(writer);
        if !appended.duplicate {
            self.watch.wake();
        }
        Ok(appended)
    }

    fn append_accepted(
        &self,
        writer: &mut Writer,
        now: Millis,
        accepted: Accepted,
        origin: Origin,
        config: &TopicConfig,
    ) -> Result<Appended, AppendError> {
        self.check_writable()?;
        if writer.closed {
            return Err(AppendError::Offline("the broker is stopping".into()));
        }
        let Accepted { mut header, records, log_append_time } = accepted;
        let marker = marker_of(&header, &records);
        let marks = self.watermarks();
        if origin == Origin::Replication {
            if header.base_offset < marks.log_end {
                return Err(AppendError::Corrupt(format!("offset {} was appended before", header.base_offset)));
            }
        } else {
            (header.base_offset, header.leader_epoch) = (marks.log_end, writer.epoch);
        }
        let answer = |base_offset, last_offset, log_end: Offset, duplicate| {
            let unsynced = log_end.0.saturating_sub(self.syncing.synced().0);
            let sync_to = (unsynced >= config.flush_messages).then_some(log_end);
            Appended { base_offset, last_offset, log_append_time, log_start: marks.log_start, duplicate, sync_to }
        };
        let verification = writer.verifications.of(header.producer_id);
        let admission = writer.producers.admit(&header, marker.as_ref(), origin, verification)?;
        if let Admission::Duplicate { base_offset, last_offset, timestamp } = admission {
            let log_append_time = if log_append_time == Millis::NONE { log_append_time } else { timestamp };
            return Ok(Appended { log_append_time, ..answer(base_offset, last_offset, marks.log_end, true) });
        }
        let batch = Incoming {
            bytes: (crate::record::HEADER_BYTES as u64).saturating_add(records.len() as u64),
            last_offset: header.last_offset(),
            max_timestamp: header.max_timestamp,
        };
        if batch.bytes > config.segment_bytes as u64 || relative(header.base_offset, batch.last_offset).is_none() {
            let size = usize::try_from(batch.bytes).unwrap_or(usize::MAX);
            return Err(AppendError::LargerThanSegment { size, segment_bytes: config.segment_bytes });
        }
        self.write(writer, now, &header, &records, &batch, marker.as_ref(), config).map_err(|e| self.refuse(e))?;
        self.place().health.spend(batch.bytes);
        let count = u64::try_from(header.record_count).unwrap_or(0);
        self.stats.records_in.fetch_add(count, Ordering::Relaxed);
        self.stats.bytes_in.fetch_add(batch.bytes, Ordering::Relaxed);
        self.stats.batches_in.fetch_add(1, Ordering::Relaxed);
        Ok(answer(header.base_offset, header.last_offset(), header.next_offset(), false))
    }

    /// The effects of an append, in the order that a crash may cut anywhere: roll, epoch, write, indexes, producers, watermarks. What fails up
    /// to the write for lack of room has changed nothing that a later append doesn't do again.
    #[expect(clippy::too_many_arguments, reason = "one call, which hands over what it has decided")]
    fn write(
        &self,
        writer: &mut Writer,
        now: Millis,
        header: &BatchHeader,
        records: &Bytes,
        batch: &Incoming,
        marker: Option<&EndTxnMarker>,
        config: &TopicConfig,
    ) -> io::Result<()> {
        writer.dirty = true;
        let state = self.active_state(writer)?;
        if model::should_roll(&state, batch, config, writer.jitter_ms, now) {
            self.roll(writer, header.base_offset, now, config)?;
        }
        if self.epochs.read().latest().is_none_or(|last| last.epoch != header.leader_epoch)
            && self.epochs.write().assign(header.leader_epoch, header.base_offset)
        {
            self.epochs_dirty.store(true, Ordering::Relaxed);
        }
        let active = Arc::clone(&writer.active);
        let position = active.size();
        active.append(&[IoSlice::new(&header.encode()), IoSlice::new(records)], batch.bytes)?;
        // The lock is taken once a second, not once a batch.
        if writer.arrival_noted.is_none_or(|noted| arrivals::is_apart(noted, now)) {
            writer.arrival_noted = Some(self.arrivals.lock().note(header.base_offset, now));
        }
        self.take_in(writer, header, batch, marker, config, position).inspect_err(|e| self.fail(e))
    }

    /// The batch is in the file, at `position`; everything else follows.
    fn take_in(
        &self,
        writer: &mut Writer,
        header: &BatchHeader,
        batch: &Incoming,
        marker: Option<&EndTxnMarker>,
        config: &TopicConfig,
        position: u64,
    ) -> io::Result<()> {
        let active = Arc::clone(&writer.active);
        if position == 0 {
            writer.first_timestamp = Some(Some(header.max_timestamp).filter(|t| t.0 >= 0));
        }
        let largest = active.note_largest(TimestampOffset { timestamp: header.max_timestamp, offset: batch.last_offset });
        if position.saturating_sub(writer.last_entry) > config.index_interval_bytes as u64 {
            writer.entries = active.edit_index(|i| {
                i.offsets.append(batch.last_offset, u32::try_from(position).unwrap_or(u32::MAX));
                i.times.append(largest);
                (i.offsets.len(), i.times.len())
            })?;
            writer.last_entry = position;
        }
        if let Some(aborted) = writer.producers.apply(header, marker).as_ref().and_then(AbortedTxn::of) {
            active.edit_index(|i| i.aborted.push(aborted))?;
        }
        if header.is_transactional() {
            writer.verifications.appended(header.producer_id, header.producer_epoch, header.is_control());
        }
        let end = Spot { segment: active.base(), position: active.size() };
        let tail = Some((header.base_offset, Spot { segment: active.base(), position }));
        self.move_end(writer, header.next_offset(), end, tail);
        Ok(())
    }

    /// The log ends elsewhere now. This broker is the only in-sync replica, so the high watermark goes along.
    pub(super) fn move_end(&self, writer: &mut Writer, log_end: Offset, end: Spot, tail: Option<(Offset, Spot)>) {
        writer.producers.on_high_watermark(log_end);
        let last_stable = writer.producers.last_stable_offset(log_end);
        let mut ends = self.ends.lock();
        ends.marks.log_end = log_end;
        (ends.end, ends.tail) = (end, tail);
        Self::raise_high_watermark(&mut ends, log_end, end, last_stable);
    }

    fn raise_high_watermark(ends: &mut Ends, to: Offset, spot: Spot, last_stable: Offset) {
        ends.marks.high_watermark = to;
        ends.high = spot;
        ends.marks.last_stable = last_stable.max(ends.marks.log_start).min(to);
        debug_assert!(ends.marks.in_order(), "{:?}", ends.marks);
    }

    fn active_state(&self, writer: &mut Writer) -> io::Result<ActiveSegment> {
        let segment = &writer.active;
        if writer.first_timestamp.is_none() {
            let first = if segment.size() == 0 { None } else { segment.find(segment.base(), segment.size())? };
            writer.first_timestamp = Some(first.map(|b| b.header.max_timestamp).filter(|t| t.0 >= 0));
        }
        Ok(ActiveSegment {
            base: segment.base(),
            bytes: segment.size(),
            offset_entries: writer.entries.0,
            time_entries: writer.entries.1,
            first_timestamp: writer.first_timestamp.flatten(),
            created: writer.created,
        })
    }

    /// Closes the active segment and begins one at `base`: indexes and the producers' snapshot are written, and made durable with the next sync.
    pub(super) fn roll(&self, writer: &mut Writer, base: Offset, now: Millis, config: &TopicConfig) -> io::Result<()> {
        writer.active.note_end()?;
        writer.active.flush_index()?;
        if !self.syncing.has_rested_at(base) {
            self.write_snapshot(writer, base)?;
        }
        self.begin_segment(writer, self.segments.load().to_vec(), base, now, config)?;
        tracing::debug!(partition = %self.topic, %base, "rolled a segment");
        Ok(())
    }

    /// A segment at `base`, to write to, after `segments`.
    pub(super) fn begin_segment(
        &self,
        writer: &mut Writer,
        mut segments: Vec<Arc<Segment>>,
        base: Offset,
        now: Millis,
        config: &TopicConfig,
    ) -> io::Result<()> {
        let segment = Arc::new(Segment::create(Arc::clone(&self.place()), base));
        if config.preallocate {
            segment.file()?.allocate(config.segment_bytes as u64)?;
        }
        segments.push(Arc::clone(&segment));
        self.segments.store(Arc::new(segments));
        self.syncing.note_dir_change();
        writer.jitter_ms = roll_jitter_ms(&self.topic, base, config);
        (writer.created, writer.first_timestamp, writer.last_entry, writer.entries) = (now, None, 0, (0, 0));
        writer.active = segment;
        Ok(())
    }

    /// Writes the producers' state as it is at `offset`, the log's end.
    pub(super) fn write_snapshot(&self, writer: &Writer, offset: Offset) -> io::Result<()> {
        let place = self.place();
        let file = place.disk.open(&place.path(offset, Kind::Snapshot), OpenMode::Create)?;
        file.set_len(0)?;
        file.write_at(&[IoSlice::new(&writer.producers.encode_snapshot())], 0)
    }

    /// All in-sync replicas have the records below `to`: consumers may read them. Never goes back, nor beyond the log's end.
    pub fn advance_high_watermark(&self, to: Offset) -> io::Result<()> {
        let mut writer = self.writer.lock();
        let ends = *self.ends.lock();
        if to <= ends.marks.high_watermark || to > ends.marks.log_end {
            return Ok(());
        }
        let spot = if to == ends.marks.log_end { Some(ends.end) } else { self.spot_of(to, ends.end)? };
        let Some(spot) = spot else { return Ok(()) };
        writer.producers.on_high_watermark(to);
        let last_stable = writer.producers.last_stable_offset(to);
        Self::raise_high_watermark(&mut self.ends.lock(), to, spot, last_stable);
        drop(writer);
        self.watch.wake();
        Ok(())
    }

    /// Appends carry this epoch from now on (`makeLeader`): it begins at the log's end.
    pub fn lead(&self, epoch: LeaderEpoch) {
        let mut writer = self.writer.lock();
        writer.epoch = epoch;
        if self.epochs.write().assign(epoch, self.watermarks().log_end) {
            writer.dirty = true;
            self.epochs_dirty.store(true, Ordering::Relaxed);
        }
    }

    /// The largest epoch at or below `requested` and where it ended; (−1, −1) if there's none (KIP-101).
    pub fn epoch_end(&self, requested: LeaderEpoch) -> (LeaderEpoch, Offset) {
        let epochs = self.epochs.read();
        epochs.end_offset_for(requested, self.watermarks().log_end)
    }

    /// The epoch that the record at `offset` was written in.
    pub fn epoch_at(&self, offset: Offset) -> Option<LeaderEpoch> {
        self.epochs.read().epoch_for(offset)
    }

    /// The newest epoch; [`LeaderEpoch::NONE`] if none is known.
    pub fn latest_epoch(&self) -> LeaderEpoch {
        self.epochs.read().latest().map_or(LeaderEpoch::NONE, |last| last.epoch)
    }

    /// The partition's offsets of note, as they are together at one moment.
    pub fn watermarks(&self) -> Watermarks {
        self.ends.lock().marks
    }

    /// Where its files are now.
    pub(super) fn place(&self) -> arc_swap::Guard<Arc<Place>> {
        self.place.load()
    }

    /// Its files, the same ones, are elsewhere from now on.
    pub(super) fn set_place(&self, place: Arc<Place>) {
        self.place.store(place);
    }

    /// What waits for this partition's watermarks.
    pub fn watch(&self) -> &Watch {
        &self.watch
    }

    pub fn topic(&self) -> &TopicPartition {
        &self.topic
    }

    pub fn topic_id(&self) -> TopicId {
        self.topic_id
    }

    pub fn partition(&self) -> PartitionIndex {
        self.topic.partition
    }

    pub fn config(&self) -> Arc<TopicConfig> {
        self.config.load_full()
    }

    /// Obeys another config from now on.
    pub fn configure(&self, config: Arc<TopicConfig>) {
        self.config.store(config);
    }

    /// Bytes of all segments' batches.
    pub fn size_bytes(&self) -> u64 {
        self.segments.load().iter().map(|segment| segment.size()).sum()
    }

    pub fn segment_count(&self) -> usize {
        self.segments.load().len()
    }

    pub fn stats(&self) -> &Stats {
        &self.stats
    }

    /// Why the partition takes no writes, if it doesn't.
    pub fn offline_reason(&self) -> Option<&str> {
        self.failed.get().map(String::as_str)
    }

    pub fn is_deleted(&self) -> bool {
        self.deleted.load(Ordering::Acquire)
    }

    pub(super) fn check_writable(&self) -> Result<(), AppendError> {
        match self.failed.get() {
            None => Ok(()),
            Some(why) => Err(AppendError::Offline(why.clone())),
        }
    }

    /// What a failed call means: without room nothing was done and it can be tried again, anything else takes the partition out of service.
    pub(super) fn refuse(&self, error: io::Error) -> AppendError {
        if is_out_of_room(&error) {
            self.place().health.note_full(&error);
        } else {
            self.fail(&error);
        }
        AppendError::Io(error)
    }

    /// Takes the partition out of service for writes.
    pub(super) fn fail(&self, error: &io::Error) {
        self.place().health.note_suspect();
        if self.failed.set(error.to_string()).is_ok() {
            tracing::error!(partition = %self.topic, %error, "the partition takes no writes until the broker is restarted");
            self.watch.wake();
            self.syncing.watch.wake();
        }
    }

    /// The partition is gone: no writes, and everyone who waits is woken to see it.
    pub(super) fn mark_deleted(&self) {
        self.deleted.store(true, Ordering::Release);
        let _ = self.failed.set("the topic is deleted".into());
        // A swap of its files that is under way ends first: the directory's name may be another's next.
        drop(self.writer.lock());
        self.watch.wake();
        self.syncing.watch.wake();
    }
}

/// The decoded record of a control batch that ends a transaction.
pub(super) fn marker_of(header: &BatchHeader, records: &[u8]) -> Option<EndTxnMarker> {
    /// A marker takes 10 bytes; a control batch is never compressed to more than a page.
    const CONTROL_BYTES_MAX: usize = 4096;
    if !header.is_control() {
        return None;
    }
    let records = BatchRecords::from_parts(*header, records, CONTROL_BYTES_MAX).ok()?;
    let first = records.iter().next()?.ok()?;
    EndTxnMarker::decode(first.key?, first.value?)
}

fn roll_jitter_ms(topic: &TopicPartition, base: Offset, config: &TopicConfig) -> i64 {
    if config.segment_jitter_ms <= 0 {
        return 0;
    }
    let mut hasher = DefaultHasher::new();
    (topic, base).hash(&mut hasher);
    model::roll_jitter_ms(config, hasher.finish())
}
