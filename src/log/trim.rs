//! Moving a partition's start: segments that retention takes, and records that a client deletes (DeleteRecords).
//!
//! What goes is decided in `retention`. Here it is put into effect in an order that a crash may cut anywhere: first the producers' state that
//! the records leave behind is durable, then the log's start moves, then the segments get names of removed files, oldest first and durably,
//! and only then they're forgotten; their files go after `file.delete.delay.ms`. So the log is whole from its first segment on at any time,
//! and the checkpoint of log starts, which leaves out those that a segment's name tells, never tells less than what was answered.

use super::{
    AppendError, DeleteRecordsError,
    files::Kind,
    io::is_out_of_room,
    logs::Logs,
    partition::{PartitionLog, Spot, Writer},
    retention::{self, Breached, Extent},
    segment::Segment,
};
use crate::types::{Millis, Offset, TopicPartition};
use std::{
    collections::HashMap,
    io,
    sync::{Arc, atomic::Ordering},
};

impl PartitionLog {
    /// Removes what retention says at `now`; how many segments that were. Does nothing while something else replaces segments. Blocks on I/O.
    pub fn retain(&self, now: Millis) -> Result<usize, AppendError> {
        let Some(_alone) = self.reshaping.try_lock() else { return Ok(0) };
        if self.offline_reason().is_some() {
            return Ok(0);
        }
        let (removed, by_rule) = self.choose(now).map_err(|e| self.refuse(e))?;
        let Some(start) = removed.last().and_then(|last| self.base_after(last.base())) else { return Ok(0) };
        if self.syncing.tidy() < start {
            // The snapshot where the log will start, or what was deleted before it would come back as unknown producers.
            self.sync_closed().or_else(|error| self.sync_start(start, error))?;
        }
        let mut writer = self.writer.lock();
        if writer.closed {
            return Ok(0);
        }
        self.raise_log_start(&mut writer, start);
        drop(writer);
        self.set_aside(&removed).map_err(|e| self.refuse(e))?;
        self.forget_before(start);
        let Breached { by_log_start, by_size, by_time } = by_rule;
        tracing::info!(partition = %self.topic, by_log_start, by_size, by_time, "removed old segments");
        let due = now.plus(self.config.load().file_delete_delay_ms);
        let count = removed.len();
        self.trash.lock().extend(removed.into_iter().map(|segment| (due, segment)));
        Ok(count)
    }

    /// Without room for the epochs, which come back from what stays, the snapshot alone is made durable: removing makes room.
    fn sync_start(&self, start: Offset, error: AppendError) -> Result<(), AppendError> {
        if self.offline_reason().is_some() || !matches!(&error, AppendError::Io(error) if is_out_of_room(error)) {
            return Err(error);
        }
        let place = self.place();
        let synced = self.sync_snapshot(start).and_then(|()| place.disk.sync_dir(&place.dir));
        synced.map_err(|error| {
            self.fail(&error);
            AppendError::Io(error)
        })
    }

    /// The segments that go, oldest first, and by which rules. If they're all, an empty one has been added to write to.
    fn choose(&self, now: Millis) -> io::Result<(Vec<Arc<Segment>>, Breached)> {
        let mut segments = self.segments.load_full();
        let mut breached = self.breached(&segments, now)?;
        if breached.total() == segments.len() {
            let mut writer = self.writer.lock();
            // Something may have been appended meanwhile.
            segments = self.segments.load_full();
            breached = self.breached(&segments, now)?;
            if breached.total() == segments.len() && !writer.closed {
                match self.begin_anew(&mut writer, now) {
                    // The others go first, and make room for it.
                    Err(error) if is_out_of_room(&error) && segments.len() > 1 => {
                        let kept = segments.len().saturating_sub(1);
                        return Ok((segments.iter().take(kept).cloned().collect(), breached));
                    }
                    done => done?,
                }
            }
        }
        Ok((segments.iter().take(breached.total()).cloned().collect(), breached))
    }

    fn breached(&self, segments: &[Arc<Segment>], now: Millis) -> io::Result<Breached> {
        let extents: Vec<_> = segments.iter().map(|segment| Extent { base: segment.base(), bytes: segment.size() }).collect();
        let time = |i: usize| segments.get(i).map_or(Ok(None), |segment| time_of(segment));
        retention::breached(&extents, &self.watermarks(), &self.config.load(), now, time)
    }

    /// An empty segment at the log's end, whose file tells after a crash where the log goes on.
    fn begin_anew(&self, writer: &mut Writer, now: Millis) -> io::Result<()> {
        let log_end = self.watermarks().log_end;
        writer.dirty = true;
        self.roll(writer, log_end, now, &self.config.load())?;
        writer.active.file()?;
        self.move_end(writer, log_end, Spot { segment: log_end, position: 0 }, None);
        Ok(())
    }

    fn base_after(&self, base: Offset) -> Option<Offset> {
        self.segments.load().iter().map(|segment| segment.base()).find(|next| *next > base)
    }

    /// The log starts at `to`, or at its high watermark if a truncation has brought that below, if it doesn't start later already. Producers
    /// stay known.
    fn raise_log_start(&self, writer: &mut Writer, to: Offset) {
        let to = to.min(self.watermarks().high_watermark);
        if to <= self.watermarks().log_start {
            return;
        }
        writer.producers.on_log_start(to);
        if self.epochs.write().truncate_from_start(to) {
            self.epochs_dirty.store(true, Ordering::Relaxed);
        }
        let mut ends = self.ends.lock();
        ends.marks.log_start = to;
        ends.marks.last_stable = ends.marks.last_stable.max(to);
        debug_assert!(ends.marks.in_order(), "{:?}", ends.marks);
    }

    /// Gives the segments' files the names of removed ones, durably.
    fn set_aside(&self, removed: &[Arc<Segment>]) -> io::Result<()> {
        removed.iter().try_for_each(|segment| segment.mark_removed())?;
        let place = self.place();
        place.disk.sync_dir(&place.dir)?;
        for segment in removed {
            // Left over they do no harm, and the next start removes them.
            let _ = place.disk.remove_file(&place.path(segment.base(), Kind::Snapshot));
        }
        Ok(())
    }

    /// Takes the segments before `start` out of the list.
    fn forget_before(&self, start: Offset) {
        let _no_append = self.writer.lock();
        let kept = self.segments.load().iter().filter(|segment| segment.base() >= start).cloned().collect();
        self.segments.store(Arc::new(kept));
    }

    /// Removes the files that are due at `now`.
    pub(super) fn empty_trash(&self, now: Millis) {
        let mut trash = self.trash.lock();
        if trash.is_empty() || self.is_deleted() {
            return;
        }
        trash.retain(|(due, segment)| {
            let is_due = *due <= now;
            if is_due && let Err(error) = segment.remove_files() {
                tracing::warn!(partition = %self.topic, base = %segment.base(), %error, "can't remove an old segment; the next start will");
            }
            !is_due
        });
    }

    /// Deletes the records below `before` (−1: the high watermark); where the log starts now. Durable once the checkpoint of log starts is: the
    /// log's end never falls below its start, and the producers stay known, because the records are durable themselves before they go.
    fn delete_below(&self, before: Offset) -> Result<Offset, DeleteRecordsError> {
        if let Some(why) = self.offline_reason() {
            return Err(DeleteRecordsError::Offline(why.to_owned()));
        }
        let config = self.config.load();
        if config.cleanup_compact && !config.cleanup_delete {
            return Err(DeleteRecordsError::Policy);
        }
        let high_watermark = self.watermarks().high_watermark;
        let before = if before == Offset(-1) { high_watermark } else { before };
        if before < Offset(0) || before > high_watermark {
            return Err(DeleteRecordsError::OutOfRange { before, high_watermark });
        }
        self.sync_to(before).map_err(|error| DeleteRecordsError::Offline(error.to_string()))?;
        self.raise_log_start(&mut self.writer.lock(), before);
        Ok(self.watermarks().log_start)
    }

    /// Where the log starts, if no segment's file is sure to say so after a crash.
    pub(super) fn log_start_to_checkpoint(&self) -> Option<Offset> {
        let log_start = self.watermarks().log_start;
        let segments = self.segments.load();
        let told = segments.first().is_some_and(|first| first.base() >= log_start && (first.size() > 0 || segments.len() > 1));
        Some(log_start).filter(|start| !told && *start > Offset(0))
    }
}

/// The largest timestamp of a segment's records, or when it was last written to if they have none (`LogSegment.largestTimestamp`).
fn time_of(segment: &Segment) -> io::Result<Option<Millis>> {
    match segment.largest()?.map(|largest| largest.timestamp).filter(|timestamp| timestamp.0 >= 0) {
        Some(timestamp) => Ok(Some(timestamp)),
        None => segment.file()?.modified(),
    }
}

impl Logs {
    /// Removes what retention says of every partition; how many segments that were. A failure takes its partition out of service.
    pub fn retain(&self, now: Millis) -> usize {
        self.partitions().iter().map(|log| log.retain(now).unwrap_or(0)).sum()
    }

    /// Deletes the records of some partitions below an offset each (−1: the high watermark), durably; where they start then. Blocks on I/O.
    pub fn delete_records(&self, asked: &[(Arc<PartitionLog>, Offset)]) -> Vec<Result<Offset, DeleteRecordsError>> {
        let mut answers: Vec<_> = asked.iter().map(|(log, before)| log.delete_below(*before)).collect();
        if answers.iter().all(Result::is_err) {
            return answers;
        }
        if let Err(error) = self.write_log_starts() {
            tracing::error!(%error, "can't write the logs' start offsets");
            for answer in answers.iter_mut().filter(|answer| answer.is_ok()) {
                *answer = Err(DeleteRecordsError::Checkpoint(error.to_string()));
            }
        }
        answers
    }

    /// Writes where the logs start. Only what changed is written.
    fn write_log_starts(&self) -> Result<(), super::LogError> {
        let _one_at_a_time = self.checkpointing.lock();
        let mut all: Vec<HashMap<TopicPartition, Offset>> = self.dirs.iter().map(|_| HashMap::new()).collect();
        for held in self.partitions.read().values() {
            if let (Some(into), Some(start)) = (all.get_mut(held.dir), held.log.log_start_to_checkpoint()) {
                into.insert(held.log.topic().clone(), start);
            }
        }
        self.dirs.iter().zip(all).try_for_each(|(dir, starts)| dir.write_log_starts(starts))
    }
}
