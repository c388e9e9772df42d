//! Looks at a partition for those who ask how far behind its readers are: the next record that a reader would see, when it arrived, when
//! retention may take it, and the newest records to show to people. Every look reads a bounded part of the log, whatever lies in it.

use super::{
    AbortedTxn, ReadError,
    arrivals::Arrivals,
    files::ARRIVALS_FILE,
    model,
    partition::PartitionLog,
    read::{Isolation, ReadSlice},
    segment::{Place, Segment, optional},
    sync::write_unsynced,
    validate::DECOMPRESSED_BYTES_MAX,
};
use crate::{
    record::{BatchHeader, BatchRecords},
    types::{Millis, Offset, ProducerId, TopicId},
};
use std::{
    io,
    sync::{Arc, atomic::Ordering},
};

/// What is read at once. A larger batch comes whole.
const LOOK_BYTES: usize = 16 << 10;

/// A record that a reader would see.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Visible {
    pub offset: Offset,
    pub timestamp: Millis,
}

/// What a look for the next visible record came to.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Look {
    Found(Visible),
    /// None up to here, where what may be read ends now.
    Nothing(Offset),
    /// None up to here: the bytes that were allowed are used up.
    More(Offset),
}

/// When retention may take a record, as things are.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Outlook {
    /// By age: once the clock is past this.
    pub by_time: Option<Millis>,
    /// By size: once so many bytes more have been appended.
    pub by_size: Option<u64>,
}

impl PartitionLog {
    /// The first record at or after `from` that a reader of this isolation level would see, and how many bytes were read for it: little more
    /// than `bytes_max`. `from` is within the log.
    pub fn next_visible(&self, from: Offset, isolation: Isolation, bytes_max: usize) -> Result<(Look, usize), ReadError> {
        let (mut next, mut read) = (from, 0_usize);
        loop {
            let slice = self.read(next, LOOK_BYTES, true, isolation)?;
            if slice.len == 0 {
                let marks = slice.watermarks;
                let limit = if isolation == Isolation::ReadCommitted { marks.last_stable } else { marks.high_watermark };
                return Ok((Look::Nothing(limit.max(next)), read));
            }
            let before = next;
            read = read.saturating_add(slice.len);
            if let Some(found) = self.first_in(&slice, &mut next, isolation)? {
                return Ok((Look::Found(found), read));
            }
            if read >= bytes_max || next == before {
                return Ok((Look::More(next), read));
            }
        }
    }

    /// The first visible record of a range; `next` moves to where the range's whole batches end.
    fn first_in(&self, slice: &ReadSlice, next: &mut Offset, isolation: Isolation) -> Result<Option<Visible>, ReadError> {
        let bytes = slice.bytes().map_err(ReadError::Io)?;
        let mut rest = &bytes[..];
        while let Some(header) = BatchHeader::parse(rest) {
            let Some(size) = header.size() else { return Err(ReadError::Io(io::ErrorKind::InvalidData.into())) };
            let shown = !header.is_control() && header.record_count > 0 && !is_aborted(&header, &slice.aborted);
            if shown && size > rest.len() {
                // The range cuts it short: it comes whole if it is asked for.
                let whole = self.read(header.base_offset.max(*next), size, true, isolation)?;
                let bytes = whole.bytes().map_err(ReadError::Io)?;
                let found = first_of(bytes.get(..size).unwrap_or(&bytes), *next)?;
                *next = if found.is_none() { header.next_offset() } else { *next };
                return Ok(found);
            }
            let batch = rest.get(..size.min(rest.len())).unwrap_or_default();
            if shown && let Some(found) = first_of(batch, *next)? {
                return Ok(Some(found));
            }
            *next = header.next_offset().max(*next);
            rest = rest.get(size..).unwrap_or_default();
        }
        Ok(None)
    }

    /// When the record at this offset arrived, as far as that's known.
    pub fn arrival_of(&self, offset: Offset) -> Option<Millis> {
        self.arrivals.lock().at(offset)
    }

    /// When retention may take the record at this offset.
    pub fn outlook(&self, offset: Offset) -> Result<Outlook, ReadError> {
        let config = self.config();
        if !config.cleanup_delete {
            return Ok(Outlook::default());
        }
        let segments = self.segments.load_full();
        let Some(at) = model::segment_of(&segments, |s| s.base(), offset) else { return Ok(Outlook::default()) };
        let mut outlook = Outlook::default();
        if config.retention_ms >= 0
            && let Some(segment) = segments.get(at)
            && let Some(newest) = newest_of(segment).map_err(ReadError::Io)?
        {
            outlook.by_time = Some(newest.plus(config.retention_ms));
        }
        if let Ok(bytes_max) = u64::try_from(config.retention_bytes) {
            let after = segments.iter().skip(at.saturating_add(1)).map(|segment| segment.size()).fold(0, u64::saturating_add);
            outlook.by_size = Some(bytes_max.saturating_sub(after));
        }
        Ok(outlook)
    }

    /// Raised whenever compaction or a truncation changes which records are there.
    pub fn shape(&self) -> u64 {
        self.shape.load(Ordering::Acquire)
    }

    /// The oldest transaction that is open, if it holds readers of committed records back. Reads no file.
    pub fn oldest_open(&self) -> Option<OldestOpen> {
        let marks = self.watermarks();
        if marks.last_stable >= marks.high_watermark {
            return None;
        }
        let (first_offset, producer_id, last_timestamp) = {
            let writer = self.writer.lock();
            let (first, producer) = writer.producers.ongoing().next()?;
            (first, producer, writer.producers.entry(producer)?.last_timestamp)
        };
        Some(OldestOpen { producer_id, first_offset, since: self.arrival_of(first_offset).unwrap_or(last_timestamp) })
    }

    /// Writes the arrival times if there are new ones; whether it did. Nothing is made durable: after a power loss records' own timestamps serve.
    pub(super) fn save_arrivals(&self, now: Millis) -> bool {
        if self.is_deleted() || self.offline_reason().is_some() {
            return false;
        }
        let marks = self.watermarks();
        let changed = self.arrivals.lock().take_changed(self.topic_id(), marks.log_start, marks.log_end, now);
        let Some(bytes) = changed else { return false };
        let place = self.place();
        if let Err(error) = write_unsynced(&*place.disk, &place.dir.join(ARRIVALS_FILE), &bytes) {
            tracing::debug!(partition = %self.topic(), %error, "can't write when records arrived");
            self.arrivals.lock().note_unwritten();
        }
        true
    }
}

/// A transaction that is not ended.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct OldestOpen {
    pub producer_id: ProducerId,
    pub first_offset: Offset,
    /// When its first batch arrived; where that isn't known, the timestamp of its last one.
    pub since: Millis,
}

/// The arrival times in a partition's directory.
pub(super) fn load_arrivals(place: &Place, topic: TopicId, log_end: Offset) -> Arrivals {
    let bytes = optional(place.disk.read(&place.dir.join(ARRIVALS_FILE))).ok().flatten();
    bytes.and_then(|bytes| Arrivals::decode(&bytes, topic, log_end)).unwrap_or_else(|| Arrivals::unknown(log_end))
}

fn is_aborted(header: &BatchHeader, aborted: &[AbortedTxn]) -> bool {
    let holds =
        |txn: &AbortedTxn| txn.producer_id == header.producer_id && (txn.first_offset..txn.last_offset).contains(&header.base_offset);
    header.is_transactional() && aborted.iter().any(holds)
}

/// The first record of a whole batch at or after an offset.
fn first_of(batch: &[u8], from: Offset) -> Result<Option<Visible>, ReadError> {
    let bad = |error| ReadError::Io(io::Error::new(io::ErrorKind::InvalidData, error));
    let records = BatchRecords::open(batch, DECOMPRESSED_BYTES_MAX).map_err(bad)?;
    for record in &records {
        let record = record.map_err(bad)?;
        if record.offset >= from {
            return Ok(Some(Visible { offset: record.offset, timestamp: record.timestamp }));
        }
    }
    Ok(None)
}

/// As retention sees a segment's age.
fn newest_of(segment: &Arc<Segment>) -> io::Result<Option<Millis>> {
    match segment.largest()?.map(|largest| largest.timestamp).filter(|timestamp| timestamp.0 >= 0) {
        Some(timestamp) => Ok(Some(timestamp)),
        None if segment.size() == 0 => Ok(None),
        None => optional(segment.file()).and_then(|file| file.map_or(Ok(None), |file| file.modified())),
    }
}
