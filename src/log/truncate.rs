//! Cutting a log's end off (`UnifiedLog.truncateTo`): a replica's, or a copy's in another data directory, that has more than what it follows.
//!
//! The order, in which a crash may cut anywhere: the checkpoints tell no more than what stays, durably; then the leader epochs; then the segments
//! above lose their names, newest first; then the last one that stays is cut, behind a whole batch. So what is left at any time is the old
//! log's beginning, and at least what was to stay. A start that finds [`TRUNCATING_FILE`] makes that durable before it goes by it. What comes next goes into a segment of its own: no byte of a file that somebody may still
//! be sending ever becomes another one.

use super::{
    LogError, TruncateError,
    files::{self, ARRIVALS_FILE, Kind, Stage, TRUNCATING_FILE},
    index::TimestampOffset,
    io::OpenMode,
    logs::Logs,
    model,
    partition::{PartitionLog, Spot, Writer},
    producer_state::ProducerStates,
    recover::replay_range,
    scan::{Bad, Walk, WalkError},
    segment::{Indexes, Noted, Segment, remove_if_there, scan_buffer},
    verification::Verifications,
};
use crate::types::{Millis, Offset};
use std::{
    io,
    sync::{Arc, atomic::Ordering},
};

/// Makes durable what the data directory's checkpoints say of the partition: its recovery point, its log start where that is to be told, and
/// where it was cleaned up to.
pub(super) type Tell<'a> = &'a dyn Fn(Offset, Option<Offset>, Option<Offset>) -> Result<(), LogError>;

/// What a truncation comes to.
struct Cut {
    kept: Vec<Arc<Segment>>,
    /// In the order of the log.
    dropped: Vec<Arc<Segment>>,
    /// How much stays of the last one that is kept, and its indexes then.
    last: Option<(Arc<Segment>, u64, Indexes, Option<TimestampOffset>)>,
    end: Offset,
    producers: ProducerStates,
    /// A snapshot of just that is there; what is durable is not written again.
    has_snapshot: bool,
}

impl Cut {
    /// Where the segment begins that is cut; what is before it is as it was.
    fn closed(&self) -> Offset {
        self.kept.last().or(self.dropped.first()).map_or(self.end, |segment| segment.base())
    }
}

impl PartitionLog {
    /// Removes the records from `target` on, durably; where the log ends then: at `target`, or where the last batch ends that lies wholly below
    /// it. The caller holds `reshaping`, and no checkpoint is written meanwhile. An error that comes too late to go back takes the partition
    /// out of service. Blocks on I/O, and appends wait.
    pub(super) fn truncate_to(&self, target: Offset, now: Millis, tell: Tell<'_>) -> Result<Offset, TruncateError> {
        let mut writer = self.writer.lock();
        self.check_writable().map_err(|error| TruncateError::Offline(error.to_string()))?;
        if writer.closed {
            return Err(TruncateError::Offline("the broker is stopping".into()));
        }
        let marks = self.watermarks();
        if target < marks.log_start {
            return Err(TruncateError::BelowStart { target, log_start: marks.log_start });
        }
        if target >= marks.log_end {
            // An epoch may have begun there, and without records it isn't this log's.
            if self.epochs.write().truncate_from_end(target) {
                writer.dirty = true;
                self.epochs_dirty.store(true, Ordering::Relaxed);
            }
            return Ok(marks.log_end);
        }
        self.syncing.alone(|| {
            writer.active.mend()?;
            let cut = self.plan(target)?;
            self.announce(&cut, tell)?;
            let end = cut.end;
            self.put_into_effect(&mut writer, cut, now).inspect_err(|error| self.fail(error))?;
            tracing::info!(partition = %self.topic, from = %marks.log_end, to = %end, "truncated a log");
            Ok(end)
        })
    }

    /// Decides what stays. Changes nothing.
    fn plan(&self, target: Offset) -> io::Result<Cut> {
        let log_start = self.watermarks().log_start;
        let mut kept = self.segments.load().to_vec();
        let mut dropped = Vec::new();
        let mut end = None;
        let mut position = 0;
        while let Some(segment) = kept.last() {
            let first_to_go = if segment.base() > target { None } else { Some(segment.find(target, segment.size())?) };
            position = first_to_go.map_or(0, |batch| batch.map_or(segment.size(), |batch| batch.position));
            if position > 0 {
                end = segment.offset_after(0, position)?;
                break;
            }
            dropped.extend(kept.pop());
        }
        if end.is_none_or(|end| end < log_start) {
            dropped.extend(kept.drain(..).rev());
        }
        dropped.reverse();
        let end = end.unwrap_or(log_start).max(log_start);
        let last = match kept.last() {
            Some(last) => {
                let (indexes, largest) = match indexes_below(last, position, end) {
                    Err(error) if error.kind() == io::ErrorKind::InvalidData => {
                        last.mend_index(error)?;
                        indexes_below(last, position, end)
                    }
                    done => done,
                }?;
                Some((Arc::clone(last), position, indexes, largest))
            }
            None => None,
        };
        let (mut producers, has_snapshot) = self.producers_at(end)?;
        producers.on_log_start(log_start);
        producers.on_high_watermark(self.watermarks().high_watermark.min(end));
        Ok(Cut { kept, dropped, last, end, producers, has_snapshot })
    }

    /// The producers as the newest snapshot at or below `end` and the batches between have them; and whether that is a snapshot at `end`.
    fn producers_at(&self, end: Offset) -> io::Result<(ProducerStates, bool)> {
        let (place, segments) = (self.place(), self.segments.load_full());
        let mut snapshots: Vec<_> = self.snapshots()?.into_iter().filter(|at| *at <= end).collect();
        let mut producers = ProducerStates::starting_at(segments.first().map_or(end, |first| first.base().min(end)));
        let mut has_snapshot = false;
        while let Some(at) = snapshots.pop() {
            if let Ok(states) = ProducerStates::decode_snapshot(&place.disk.read(&place.path(at, Kind::Snapshot))?, at) {
                (producers, has_snapshot) = (states, at == end);
                break;
            }
        }
        let from = producers.end_offset();
        let first = model::segment_of(&segments, |segment| segment.base(), from).unwrap_or(0);
        let mut buf = scan_buffer(segments.iter().map(|segment| segment.size()).max().unwrap_or(0));
        for segment in segments.iter().skip(first).take_while(|segment| segment.base() < end) {
            let size = segment.find(end, segment.size())?.map_or(segment.size(), |batch| batch.position);
            if let Some(batch) = segment.find(from, size)? {
                replay_range(&*segment.file()?, batch.position, size, from, &mut producers, &mut buf)?;
            }
        }
        Ok((producers, has_snapshot))
    }

    /// The offsets of the snapshots in the directory, ascending.
    fn snapshots(&self) -> io::Result<Vec<Offset>> {
        let place = self.place();
        let named = place.disk.list(&place.dir)?.into_iter().filter_map(|entry| files::parse(&entry.name));
        Ok(named.filter(|(_, kind, stage)| (*kind, *stage) == (Kind::Snapshot, Stage::Live)).map(|(at, ..)| at).collect())
    }

    /// What is written down elsewhere tells no more than what stays. A failure here has changed nothing that a crash would not mend.
    fn announce(&self, cut: &Cut, tell: Tell<'_>) -> Result<(), TruncateError> {
        let point = self.syncing.recovery_point().min(cut.end);
        // A transaction whose marker goes may end otherwise.
        let cleaned = self.compaction.cleaned().map(|cleaned| cleaned.min(cut.producers.last_stable_offset(cut.end)));
        let log_start = if cut.kept.is_empty() { Some(self.watermarks().log_start) } else { self.log_start_to_checkpoint() };
        self.syncing.note_cut(cut.end, cut.closed());
        self.compaction.set_cleaned(cleaned);
        tell(point, log_start, cleaned)?;
        let before = self.epochs.read().clone();
        if self.epochs.write().truncate_from_end(cut.end) {
            self.epochs_dirty.store(true, Ordering::Release);
        }
        Ok(self.sync_epochs().inspect_err(|_| *self.epochs.write() = before)?)
    }

    fn put_into_effect(&self, writer: &mut Writer, cut: Cut, now: Millis) -> io::Result<()> {
        let closed = cut.closed();
        let Cut { kept, dropped, last, end, producers, has_snapshot } = cut;
        let snapshot = |writer: &Writer| {
            if !has_snapshot {
                self.write_snapshot(writer, end)?;
            }
            self.sync_snapshot(end)
        };
        let config = self.config.load_full();
        writer.dirty = true;
        (writer.producers, writer.verifications, writer.arrival_noted) = (producers, Verifications::default(), None);
        let is_empty = kept.is_empty();
        // Who reads from now on sees nothing of what goes.
        if let Some((segment, position, ..)) = &last {
            segment.set_size(*position);
        }
        self.lower_ends(writer, end);
        self.shape.fetch_add(1, Ordering::Release);
        self.arrivals.lock().truncate(end);
        let place = self.place();
        if is_empty {
            // No batch will tell of the producers, once those below the log's start are gone.
            snapshot(writer)?;
            place.disk.sync_dir(&place.dir)?;
        }
        let mark = place.dir.join(TRUNCATING_FILE);
        place.disk.open(&mark, OpenMode::Create)?;
        dropped.iter().rev().try_for_each(|segment| segment.mark_removed())?;
        for at in self.snapshots()?.into_iter().filter(|at| *at > end) {
            place.disk.remove_file(&place.path(at, Kind::Snapshot))?;
        }
        remove_if_there(&*place.disk, &place.dir.join(ARRIVALS_FILE))?;
        place.disk.sync_dir(&place.dir)?;
        if let Some((segment, position, indexes, largest)) = last {
            segment.cut(position, indexes, largest)?;
            // Where it is whole the indexes below it are durable.
            snapshot(writer)?;
        }
        self.begin_segment(writer, kept, end, now, &config)?;
        if is_empty {
            // Its name alone tells from now on where the log goes on.
            writer.active.file()?;
        }
        place.disk.remove_file(&mark)?;
        place.disk.sync_dir(&place.dir)?;
        if self.syncing.tidy() == closed {
            self.syncing.note_tidy(end);
        }
        let due = now.plus(config.file_delete_delay_ms);
        self.trash.lock().extend(dropped.into_iter().map(|segment| (due, segment)));
        self.watch().wake();
        self.syncing.watch.wake();
        Ok(())
    }

    /// The log ends at `end`, where a segment is about to begin.
    fn lower_ends(&self, writer: &mut Writer, end: Offset) {
        let high_watermark = self.watermarks().high_watermark.min(end);
        let last_stable = writer.producers.last_stable_offset(high_watermark);
        let spot = Spot { segment: end, position: 0 };
        let mut ends = self.ends.lock();
        ends.marks.log_end = end;
        (ends.end, ends.tail) = (spot, None);
        if high_watermark == end {
            ends.high = spot;
        }
        ends.marks.high_watermark = high_watermark;
        ends.marks.last_stable = last_stable.max(ends.marks.log_start).min(high_watermark);
        debug_assert!(ends.marks.in_order(), "{:?}", ends.marks);
    }
}

/// The indexes of a segment that is cut at `position`, where batches end that lie below `end`, as when a segment is closed; and its largest timestamp.
fn indexes_below(segment: &Segment, position: u64, end: Offset) -> io::Result<(Indexes, Option<TimestampOffset>)> {
    let mut indexes = segment.with_index(Clone::clone)?;
    indexes.truncate(position, end);
    let last = indexes.offsets.last();
    let from = last.map_or(0, |last| last.position.into());
    let mut noted = Noted::after(from, indexes.times.last());
    let file = segment.file()?;
    let mut buf = scan_buffer(position.saturating_sub(from));
    let mut walk = Walk::new(&*file, from, position, &mut buf);
    while let Some(batch) = walk.next_batch()? {
        if last.is_some_and(|last| u64::from(last.position) == batch.position && last.last_offset != batch.header.last_offset()) {
            return Err(WalkError::Bad { position: batch.position, what: Bad::Offsets }.into());
        }
        noted.note(&mut indexes, &batch, segment.place().index_interval);
    }
    noted.finish(&mut indexes);
    Ok((indexes, noted.largest()))
}

impl Logs {
    /// Removes a partition's records from `target` on, durably; where its log ends then. Blocks on I/O.
    pub fn truncate_to(&self, log: &PartitionLog, target: Offset, now: Millis) -> Result<Offset, TruncateError> {
        let _alone = log.reshaping.lock();
        let _no_checkpoint = self.checkpointing.lock();
        let held_in = self.partitions.read().get(&(log.topic_id(), log.partition())).map(|held| held.dir);
        let dir = held_in.and_then(|place| self.dirs.get(place)).ok_or_else(|| TruncateError::Offline("it is gone".into()))?;
        log.truncate_to(target, now, &|point, start, cleaned| dir.expect(log.topic(), point, start, cleaned))
    }
}
