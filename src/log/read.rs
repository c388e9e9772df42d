//! Reading a partition: ranges of its files for fetches, and look-ups by time.
//!
//! Never waits for an append, never hands out a byte at or beyond the high watermark (the last stable offset for `read_committed`), and
//! copies no records: a fetch gets a range of a file that begins at a batch. The range may end within a batch, as in Kafka, unless it
//! is all there is below the watermark.

use super::{
    AbortedTxn, ReadError,
    io::DiskFile,
    model::{self, Watermarks},
    partition::{PartitionLog, Spot},
    scan::{self, Found, Walk},
    segment::{Segment, scan_buffer},
    txn_index,
    validate::DECOMPRESSED_BYTES_MAX,
};
use crate::{
    record::BatchRecords,
    types::{LeaderEpoch, Millis, Offset},
};
use std::{
    fmt, io,
    sync::{Arc, atomic::Ordering},
};

/// How far a consumer reads (`isolation.level`).
#[derive(Clone, Copy, PartialEq, Eq, Debug, Hash)]
pub enum Isolation {
    /// Up to the high watermark.
    ReadUncommitted,
    /// Up to the last stable offset, and with the aborted transactions to skip.
    ReadCommitted,
}

/// A range of a file with whole batches from the one that holds the offset asked for (the last may be cut short).
#[derive(Clone)]
pub struct ReadSlice {
    /// `None` if there's nothing to read now.
    pub file: Option<Arc<dyn DiskFile>>,
    pub position: u64,
    pub len: usize,
    pub watermarks: Watermarks,
    /// The aborted transactions that overlap the range, by their end; empty unless asked for with [`Isolation::ReadCommitted`].
    pub aborted: Vec<AbortedTxn>,
    /// What was asked for.
    from: Offset,
    segment: Option<Arc<Segment>>,
}

impl fmt::Debug for ReadSlice {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { position, len, watermarks, aborted, .. } = self;
        write!(f, "ReadSlice {{ {len} bytes at {position}, {watermarks:?}, {aborted:?} }}")
    }
}

impl ReadSlice {
    fn empty(watermarks: Watermarks) -> Self {
        Self { file: None, position: 0, len: 0, watermarks, aborted: Vec::new(), from: Offset(0), segment: None }
    }

    /// Copies the range.
    pub fn bytes(&self) -> io::Result<Vec<u8>> {
        let mut bytes = vec![0; self.len];
        if let Some(file) = &self.file {
            super::io::read_exact_at(&**file, &mut bytes, self.position)?;
        }
        Ok(bytes)
    }
}

impl PartitionLog {
    /// Notes for metrics that a range has been sent. Records are counted by offsets, up to the end of the range's last whole batch:
    /// the sparse index says where to look for that, so that no more than an index interval of headers is read.
    pub fn sent(&self, slice: &ReadSlice) {
        let Some(segment) = &slice.segment else { return };
        self.stats.bytes_out.fetch_add(slice.len as u64, Ordering::Relaxed);
        let end = slice.position.saturating_add(slice.len as u64);
        let ends = *self.ends.lock();
        let next = match ends.high == (Spot { segment: segment.base(), position: end }) {
            true => Ok(Some(ends.marks.high_watermark)),
            false => segment.offset_after(slice.position, end),
        };
        // A header that can't be read is the reader's to find: here only a count is lost.
        if let Ok(Some(next)) = next {
            let records = u64::try_from(next.0.saturating_sub(slice.from.0)).unwrap_or(0);
            self.stats.records_out.fetch_add(records, Ordering::Relaxed);
        }
    }
}

/// A record found by its timestamp.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct TimedOffset {
    pub offset: Offset,
    pub timestamp: Millis,
    /// The epoch that the record was written in.
    pub leader_epoch: LeaderEpoch,
}

/// How far a read may go: the offset, and where it lies if that's known.
#[derive(Clone, Copy)]
struct Limit {
    offset: Offset,
    spot: Option<Spot>,
}

impl PartitionLog {
    /// The batches from the one that holds `from` on, at most `max_bytes` of them. If the first batch is larger than that, it comes alone
    /// with `at_least_one`, and nothing comes without. An offset above the limit of the isolation level but within the log reads nothing.
    pub fn read(&self, from: Offset, max_bytes: usize, at_least_one: bool, isolation: Isolation) -> Result<ReadSlice, ReadError> {
        let read = || self.read_once(from, max_bytes, at_least_one, isolation);
        let shape = self.shape();
        // The partition may just have moved to another directory, or its end been cut off.
        let gone =
            |error: &ReadError| matches!(error, ReadError::Io(error) if error.kind() == io::ErrorKind::NotFound || self.shape() != shape);
        read().or_else(|error| if gone(&error) { read() } else { Err(error) }).map_err(|error| {
            let marks = self.watermarks();
            // Its segment's files may have gone away under the read.
            let is_removed = matches!(error, ReadError::Io(_)) && from < marks.log_start;
            if is_removed { ReadError::OutOfRange { asked: from, log_start: marks.log_start, log_end: marks.log_end } } else { error }
        })
    }

    fn read_once(&self, from: Offset, max_bytes: usize, at_least_one: bool, isolation: Isolation) -> Result<ReadSlice, ReadError> {
        let ends = *self.ends.lock();
        let marks = ends.marks;
        if from < marks.log_start || from > marks.log_end {
            return Err(ReadError::OutOfRange { asked: from, log_start: marks.log_start, log_end: marks.log_end });
        }
        let limit = match isolation {
            Isolation::ReadCommitted if marks.last_stable < marks.high_watermark => Limit { offset: marks.last_stable, spot: None },
            _ => Limit { offset: marks.high_watermark, spot: Some(ends.high) },
        };
        self.stats.reads.fetch_add(1, Ordering::Relaxed);
        if from >= limit.offset {
            return Ok(ReadSlice::empty(marks));
        }
        let segments = self.segments.load();
        let after_tail = |tail: Spot| limit.spot.filter(|spot| *spot == ends.end && spot.segment == tail.segment);
        let at_tail = ends.tail.filter(|(base, _)| *base == from).and_then(|(_, tail)| Some((tail, after_tail(tail)?)));
        let (segment, position, first_bytes, end) = if let Some((tail, end)) = at_tail
            && let Some(segment) = segments.last().filter(|segment| segment.base() == tail.segment)
        {
            (segment, tail.position, end.position.saturating_sub(tail.position), end.position)
        } else {
            let Some((segment, batch, end)) = first_batch(&segments, from, limit).map_err(ReadError::Io)? else {
                return Ok(ReadSlice::empty(marks));
            };
            (segment, batch.position, batch.size, end)
        };
        let room = usize::try_from(end.saturating_sub(position)).unwrap_or(usize::MAX);
        let first_bytes = usize::try_from(first_bytes).unwrap_or(usize::MAX);
        let len = match max_bytes {
            max if max >= first_bytes => max.min(room),
            _ if at_least_one => first_bytes.min(room),
            _ => return Ok(ReadSlice::empty(marks)),
        };
        let aborted = match isolation {
            Isolation::ReadUncommitted => Vec::new(),
            Isolation::ReadCommitted => {
                aborted_in(&segments, segment, from, position.saturating_add(len as u64), limit.offset).map_err(ReadError::Io)?
            }
        };
        let file = Some(segment.file().map_err(ReadError::Io)?);
        Ok(ReadSlice { file, position, len, watermarks: marks, aborted, from, segment: Some(Arc::clone(segment)) })
    }

    /// Where the batch that holds `offset` begins, below `end`.
    pub(super) fn spot_of(&self, offset: Offset, end: Spot) -> io::Result<Option<Spot>> {
        let segments = self.segments.load();
        let limit = Limit { offset: Offset(i64::MAX), spot: Some(end) };
        let found = first_batch(&segments, offset, limit)?;
        Ok(found.map(|(segment, batch, _)| Spot { segment: segment.base(), position: batch.position }))
    }

    /// The first timestamp of the batch that begins at `offset`, if it is still there.
    pub(super) fn batch_timestamp(&self, offset: Offset) -> io::Result<Option<Millis>> {
        let ends = *self.ends.lock();
        if offset < ends.marks.log_start {
            return Ok(None);
        }
        let segments = self.segments.load();
        let found = first_batch(&segments, offset, Limit { offset: Offset(i64::MAX), spot: Some(ends.end) })?;
        Ok(found.map(|(_, batch, _)| batch.header).filter(|header| header.base_offset == offset).map(|header| header.base_timestamp))
    }

    /// The first record whose timestamp is `target` or later, below the high watermark.
    pub fn offset_for_time(&self, target: Millis) -> Result<Option<TimedOffset>, ReadError> {
        self.search(|segment, end, log_start| {
            if segment.largest()?.is_some_and(|largest| largest.timestamp < target) {
                return Ok(None);
            }
            let wanted = |timestamp, offset| timestamp >= target && offset >= log_start;
            match find_time(segment, segment.start_of_time(target)?, end, wanted, target) {
                Err(error) if error.kind() == io::ErrorKind::InvalidData => {
                    segment.mend_index(error)?;
                    find_time(segment, segment.start_of_time(target)?, end, wanted, target)
                }
                found => found,
            }
        })
        .map_err(ReadError::Io)
    }

    /// The first record with the largest timestamp of all, from the log's start up to the high watermark; −1 is the least.
    pub fn offset_of_max_timestamp(&self) -> Result<Option<TimedOffset>, ReadError> {
        let mut max = Millis::NONE;
        self.search(|segment, end, log_start| {
            let largest = match segment.largest()? {
                // The largest of the whole segment may have been deleted.
                Some(_) if segment.base() < log_start => largest_from(segment, end, log_start)?,
                largest => largest.map_or(Millis::NONE, |largest| largest.timestamp),
            };
            max = max.max(largest);
            Ok(None::<()>)
        })
        .map_err(ReadError::Io)?;
        self.offset_for_time(max)
    }

    /// The first hit in the segments below the high watermark, oldest first; `look` gets each with where its readable batches end.
    fn search<R>(&self, mut look: impl FnMut(&Segment, u64, Offset) -> io::Result<Option<R>>) -> io::Result<Option<R>> {
        match self.search_once(&mut look) {
            // The partition may just have moved to another directory.
            Err(error) if error.kind() == io::ErrorKind::NotFound => self.search_once(&mut look),
            done => done,
        }
    }

    fn search_once<R>(&self, look: &mut impl FnMut(&Segment, u64, Offset) -> io::Result<Option<R>>) -> io::Result<Option<R>> {
        let ends = *self.ends.lock();
        let segments = self.segments.load();
        let limit = Limit { offset: ends.marks.high_watermark, spot: Some(ends.high) };
        let first = model::segment_of(&segments, |s| s.base(), ends.marks.log_start).unwrap_or(0);
        for (i, segment) in segments.iter().enumerate().skip(first) {
            if segment.base() >= limit.offset {
                break;
            }
            let end = readable_end(&segments, i, segment, limit)?;
            if let Some(hit) = look(segment, end, ends.marks.log_start)? {
                return Ok(Some(hit));
            }
        }
        Ok(None)
    }
}

/// The first batch that ends at or after `from` below the limit, its segment, and where what may be read of that segment ends.
fn first_batch(segments: &[Arc<Segment>], from: Offset, limit: Limit) -> io::Result<Option<(&Arc<Segment>, Found, u64)>> {
    let first = model::segment_of(segments, |s| s.base(), from).unwrap_or(0);
    for (i, segment) in segments.iter().enumerate().skip(first) {
        if segment.base() >= limit.offset {
            break;
        }
        let end = readable_end(segments, i, segment, limit)?;
        // Compaction may have left nothing after `from` in its segment.
        if let Some(batch) = segment.find(from, end)? {
            return Ok(Some((segment, batch, end)));
        }
    }
    Ok(None)
}

/// Where what may be read of a segment ends: a batch's end.
fn readable_end(segments: &[Arc<Segment>], i: usize, segment: &Segment, limit: Limit) -> io::Result<u64> {
    if let Some(spot) = limit.spot.filter(|spot| spot.segment == segment.base()) {
        return Ok(spot.position);
    }
    if segments.get(i.saturating_add(1)).is_some_and(|next| next.base() <= limit.offset) {
        return Ok(segment.size());
    }
    // The limit lies somewhere in this segment: an open transaction begins there.
    let size = segment.size();
    Ok(segment.find(limit.offset, size)?.map_or(size, |batch| batch.position))
}

/// The aborted transactions that overlap a range of a segment. Looks at later segments too: an abort is noted where its marker lies.
fn aborted_in(segments: &[Arc<Segment>], segment: &Arc<Segment>, from: Offset, end: u64, limit: Offset) -> io::Result<Vec<AbortedTxn>> {
    let i = model::segment_of(segments, |s| s.base(), segment.base()).unwrap_or(0);
    let next_base = segments.get(i.saturating_add(1)).map(|next| next.base());
    let in_index = segment.with_index(|index| index.offsets.at_or_after_position(end).map(|e| e.last_offset))?;
    let upper = in_index.or(next_base).unwrap_or(limit).min(limit);
    let mut found = Vec::new();
    for segment in segments.iter().skip(i) {
        if segment
            .with_index(|index| {
                let mut hits = Vec::new();
                let done = txn_index::collect_aborted(&index.aborted, from, upper, &mut hits);
                (hits, done)
            })
            .map(|(hits, done)| {
                found.extend(hits);
                done
            })?
        {
            break;
        }
    }
    Ok(found)
}

/// The largest timestamp of the records from `from` on, in a segment that begins below it.
fn largest_from(segment: &Segment, end: u64, from: Offset) -> io::Result<Millis> {
    let mut max = Millis::NONE;
    let Some(first) = segment.find(from, end)? else { return Ok(max) };
    let file = segment.file()?;
    let mut buf = scan_buffer(end.saturating_sub(first.position));
    let mut walk = Walk::new(&*file, first.position, end, &mut buf);
    while let Some(batch) = walk.next_batch()? {
        if batch.header.base_offset >= from {
            max = max.max(batch.header.max_timestamp);
            continue;
        }
        let bytes = scan::read_batch(&*file, &batch)?;
        let records = BatchRecords::open(&bytes, DECOMPRESSED_BYTES_MAX).map_err(|e| io::Error::new(io::ErrorKind::InvalidData, e))?;
        for record in &records {
            let record = record.map_err(|e| io::Error::new(io::ErrorKind::InvalidData, e))?;
            max = if record.offset >= from { max.max(record.timestamp) } else { max };
        }
    }
    Ok(max)
}

/// The first record from `position` on that `wanted` takes, in a batch that reaches `at_least` by its header.
fn find_time(
    segment: &Segment,
    position: u64,
    end: u64,
    wanted: impl Fn(Millis, Offset) -> bool,
    at_least: Millis,
) -> io::Result<Option<TimedOffset>> {
    let file = segment.file()?;
    let mut buf = scan_buffer(end.saturating_sub(position));
    let mut walk = Walk::new(&*file, position, end, &mut buf);
    while let Some(batch) = walk.next_batch()? {
        if batch.header.max_timestamp < at_least {
            continue;
        }
        let bytes = scan::read_batch(&*file, &batch)?;
        let records = BatchRecords::open(&bytes, DECOMPRESSED_BYTES_MAX).map_err(|e| io::Error::new(io::ErrorKind::InvalidData, e))?;
        for record in &records {
            let record = record.map_err(|e| io::Error::new(io::ErrorKind::InvalidData, e))?;
            if wanted(record.timestamp, record.offset) {
                let leader_epoch = batch.header.leader_epoch;
                return Ok(Some(TimedOffset { offset: record.offset, timestamp: record.timestamp, leader_epoch }));
            }
        }
    }
    Ok(None)
}
