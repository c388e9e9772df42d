//! Cleans one log (`Cleaner`): goes through its dirty part for the newest offset of each key, then through all of it up to there, group of
//! segments by group, and swaps what is left of each into place.

use super::{
    super::{
        index::TimestampOffset,
        model,
        partition::PartitionLog,
        scan::Found,
        segment::{Indexes, Noted, Segment},
        txn_index::{self, AbortedTxn},
        validate::DECOMPRESSED_BYTES_MAX,
    },
    CleanError, Cleaned, CompactSettings, Pace,
    choose::{self, Dirt, SegmentFacts},
    filter::Filter,
    offset_map::OffsetMap,
    reader::Batches,
    swap::{self, Staged},
    transactions::{LastRecord, LastRecords, Transactions},
};
use crate::{
    config::TopicConfig,
    record::{BatchHeader, BatchRecords, ControlRecordType},
    types::{Millis, Offset},
};
use std::{cell::Cell, hash::RandomState, io, sync::Arc};

/// One cleaning.
pub(super) struct Cleaning<'a> {
    pub log: &'a PartitionLog,
    pub config: &'a TopicConfig,
    pub settings: &'a CompactSettings,
    pub dirt: Dirt,
    pub now: Millis,
    pub pace: Pace<'a>,
    /// Bytes that nobody was told of yet.
    pub untold: Cell<u64>,
}

/// What is read and what is to be written, whichever segment it is of.
#[derive(Default)]
struct Buffers {
    read: Vec<u8>,
    write: Vec<u8>,
}

impl Cleaning<'_> {
    pub fn run(&self) -> Result<Cleaned, CleanError> {
        // What is merged must be durable first: the recovery point lies above it then, and nobody goes by its snapshots.
        self.log.sync_closed()?;
        let segments = self.log.segments.load_full();
        let upper = self.dirt.first_uncleanable;
        let mut cleaned = Cleaned { from: self.dirt.first_dirty, to: self.dirt.first_dirty, upper, ..Cleaned::default() };
        let mut buffers = Buffers::default();
        let last_records = last_records(self.log);
        let mut txns = Transactions::default();
        let map = self.build_map(&segments, &mut txns, &mut buffers, &mut cleaned)?;
        let synced = self.log.synced();
        let is_beyond = |last: &LastRecord| matches!(last, LastRecord::Data(offset) if *offset >= synced);
        if txns.has_open() || last_records.values().any(is_beyond) {
            // What stays depends on markers and batches beyond the closed segments. A power loss must not take those back once the consequences
            // are on disk.
            self.log.sync()?;
        }
        cleaned.map_bytes = map.bytes() as u64;
        let Some(end) = map.latest().map(|latest| latest.plus(1)).filter(|end| *end > self.dirt.first_dirty) else { return Ok(cleaned) };
        cleaned.to = end;
        let closed = segments.iter().take_while(|s| s.base() < upper);
        let facts = closed.map(|s| facts_for_groups(s)).collect::<io::Result<Vec<_>>>()?;
        let mut txns = Transactions::default();
        let filter = Filter {
            map: &map,
            now: self.now,
            config: self.config,
            upper,
            last_records: &last_records,
            decompressed_max: DECOMPRESSED_BYTES_MAX,
        };
        for range in choose::groups(&facts, end, upper, self.config) {
            let group = segments.get(range).unwrap_or_default();
            self.clean_group(&segments, group, &filter, &mut txns, &mut buffers, &mut cleaned)?;
        }
        Ok(cleaned)
    }

    fn go_on(&self, bytes: u64) -> Result<(), CleanError> {
        let untold = self.untold.get().saturating_add(bytes);
        // Telling may cost as much as a small batch.
        if untold < self.io_bytes() as u64 {
            self.untold.set(untold);
            return Ok(());
        }
        self.untold.set(0);
        if self.log.is_deleted() {
            return Err(CleanError::Changed);
        }
        if (self.pace)(untold) { Ok(()) } else { Err(CleanError::Stopped) }
    }

    /// The newest offset of each key of the dirty part, or of as much of it as the map takes.
    fn build_map(
        &self,
        segments: &[Arc<Segment>],
        txns: &mut Transactions,
        buffers: &mut Buffers,
        cleaned: &mut Cleaned,
    ) -> Result<OffsetMap, CleanError> {
        let Dirt { first_dirty, first_uncleanable, .. } = self.dirt;
        let keys_max = u64::try_from(first_uncleanable.0.saturating_sub(first_dirty.0)).unwrap_or(0);
        let budget = self.settings.dedupe_buffer_bytes / self.settings.threads.max(1);
        let mut map = OffsetMap::new(budget, self.settings.load_factor, keys_max, RandomState::new());
        txns.expect(aborted_between(segments, first_dirty, first_uncleanable)?);
        let first = model::segment_of(segments, |s| s.base(), first_dirty).unwrap_or(0);
        for (i, segment) in segments.iter().enumerate().skip(first).take_while(|(_, s)| s.base() < first_uncleanable) {
            let size = segment.size();
            let position = segment.find(first_dirty, size)?.map_or(size, |batch| batch.position);
            let file = segment.file()?;
            let mut batches = Batches::new(&*file, position, size, &mut buffers.read, self.io_bytes());
            while let Some((found, bytes)) = batches.next_batch()? {
                cleaned.bytes_read = cleaned.bytes_read.saturating_add(found.size);
                if !note_keys(&mut map, txns, &found.header, bytes, first_dirty)? {
                    return Ok(map);
                }
                self.go_on(found.size)?;
            }
            // Offsets that have no batch any more.
            let next = segments.get(i.saturating_add(1)).map_or(first_uncleanable, |next| next.base());
            map.note_latest(next.plus(-1));
        }
        Ok(map)
    }

    fn io_bytes(&self) -> usize {
        // Half for what is read and half for what is written, of this thread's part.
        self.settings.io_buffer_bytes / self.settings.threads.max(1) / 2
    }

    /// Cleans segments that become one.
    fn clean_group(
        &self,
        segments: &[Arc<Segment>],
        group: &[Arc<Segment>],
        filter: &Filter<'_>,
        txns: &mut Transactions,
        buffers: &mut Buffers,
        cleaned: &mut Cleaned,
    ) -> Result<(), CleanError> {
        let Some(first) = group.first() else { return Ok(()) };
        let mut output = Output {
            staged: Staged::create(self.log, first.base())?,
            indexes: Indexes::empty(first.base()),
            noted: Noted::default(),
            interval: self.config.index_interval_bytes as u64,
            is_changed: group.len() > 1,
        };
        buffers.write.clear();
        for segment in group {
            let next = model::segment_of(segments, |s| s.base(), segment.base()).and_then(|i| segments.get(i.saturating_add(1)));
            let next = next.map_or(self.dirt.first_uncleanable, |next| next.base());
            txns.expect(aborted_between(segments, segment.base(), next)?);
            self.clean_segment(segment, filter, txns, buffers, &mut output, cleaned)?;
        }
        output.staged.write(&buffers.write)?;
        output.noted.finish(&mut output.indexes);
        output.indexes.aborted = txns.take_kept();
        cleaned.bytes_written = cleaned.bytes_written.saturating_add(output.staged.bytes());
        cleaned.segments_before = cleaned.segments_before.saturating_add(group.len() as u64);
        cleaned.segments_after = cleaned.segments_after.saturating_add(1);
        if !output.is_changed && first.with_index(|index| index.aborted == output.indexes.aborted)? {
            // It is as clean as it can be: nothing to swap.
            return Ok(());
        }
        output.staged.finish(&output.indexes)?;
        output.indexes.note_written();
        swap::swap(group, output.staged, output.indexes, self.now.plus(self.config.file_delete_delay_ms))
    }

    fn clean_segment(
        &self,
        segment: &Segment,
        filter: &Filter<'_>,
        txns: &mut Transactions,
        buffers: &mut Buffers,
        output: &mut Output<'_>,
        cleaned: &mut Cleaned,
    ) -> Result<(), CleanError> {
        let file = segment.file()?;
        let mut batches = Batches::new(&*file, 0, segment.size(), &mut buffers.read, self.io_bytes());
        while let Some((found, bytes)) = batches.next_batch()? {
            let before = buffers.write.len();
            let outcome = filter.batch(&found.header, bytes, txns, &mut buffers.write)?;
            cleaned.bytes_read = cleaned.bytes_read.saturating_add(found.size);
            cleaned.records_read = cleaned.records_read.saturating_add(outcome.records_read);
            cleaned.records_kept = cleaned.records_kept.saturating_add(outcome.records_kept);
            let size = buffers.write.len().saturating_sub(before) as u64;
            output.is_changed |= outcome.kept != Some(found.header);
            if let Some(header) = outcome.kept {
                let position = output.staged.bytes().saturating_add(before as u64);
                output.noted.note(&mut output.indexes, &Found { header, position, size }, output.interval);
            }
            if buffers.write.len() >= self.io_bytes() {
                output.staged.write(&buffers.write)?;
                buffers.write.clear();
            }
            self.go_on(found.size.saturating_add(size))?;
        }
        Ok(())
    }
}

/// A group's new segment.
struct Output<'a> {
    staged: Staged<'a>,
    indexes: Indexes,
    noted: Noted,
    interval: u64,
    /// It isn't what was there, byte for byte.
    is_changed: bool,
}

/// Notes the keys of a batch from `from` on. False if the map is full: it has judged up to the record before then.
fn note_keys(map: &mut OffsetMap, txns: &mut Transactions, header: &BatchHeader, bytes: &[u8], from: Offset) -> Result<bool, CleanError> {
    let unreadable = |error: crate::record::RecordsError| CleanError::Uncleanable(error.to_string());
    if header.is_control() {
        let records = BatchRecords::open(bytes, DECOMPRESSED_BYTES_MAX).map_err(unreadable)?;
        let first = records.iter().next().and_then(Result::ok);
        let kind = first.map(|r| r.key.and_then(ControlRecordType::decode).unwrap_or(ControlRecordType::Other(-1)));
        txns.on_control(header, kind);
    } else if !txns.on_data(header) && header.record_count > 0 {
        let records = BatchRecords::open(bytes, DECOMPRESSED_BYTES_MAX).map_err(unreadable)?;
        for record in &records {
            let record = record.map_err(unreadable)?;
            if let Some(key) = record.key.filter(|_| record.offset >= from)
                && !map.put(key, record.offset)
            {
                return Ok(false);
            }
        }
    }
    if header.last_offset() >= from {
        map.note_latest(header.last_offset());
    }
    Ok(true)
}

/// What the groups depend on; the rest is not looked at.
fn facts_for_groups(segment: &Segment) -> io::Result<SegmentFacts> {
    let index_bytes = segment.with_index(|i| [i.offsets.bytes().len() as u64, i.times.bytes().len() as u64])?;
    Ok(SegmentFacts { base: segment.base(), bytes: segment.size(), index_bytes, largest: None, first: None })
}

/// The aborted transactions that overlap `from..upper`. Looks at later segments too: an abort is noted where its marker lies.
fn aborted_between(segments: &[Arc<Segment>], from: Offset, upper: Offset) -> io::Result<Vec<AbortedTxn>> {
    let first = model::segment_of(segments, |s| s.base(), from).unwrap_or(0);
    let mut found = Vec::new();
    for segment in segments.iter().skip(first) {
        let (hits, done) = segment.with_index(|index| {
            let mut hits = Vec::new();
            let done = txn_index::collect_aborted(&index.aborted, from, upper, &mut hits);
            (hits, done)
        })?;
        found.extend(hits);
        if done {
            break;
        }
    }
    Ok(found)
}

/// The last record of each producer that the partition knows (`UnifiedLog.lastRecordsOfActiveProducers`).
fn last_records(log: &PartitionLog) -> LastRecords {
    let writer = log.writer.lock();
    let last = |entry: &super::super::producer_state::ProducerEntry| {
        let data = entry.batches().last().map(|batch| LastRecord::Data(batch.last_offset));
        (entry.producer_id, data.unwrap_or(LastRecord::Marker(entry.epoch)))
    };
    writer.producers.entries().map(last).collect()
}

/// The facts of a log's segments that [`choose::dirt`] needs.
pub(super) fn facts(log: &PartitionLog, segments: &[Arc<Segment>], config: &TopicConfig) -> io::Result<Vec<SegmentFacts>> {
    let cleaned = log.compaction.cleaned().unwrap_or_default().max(log.watermarks().log_start);
    let dirty_from = model::segment_of(segments, |s| s.base(), cleaned).unwrap_or(0);
    let active = segments.len().saturating_sub(1);
    let mut facts = Vec::with_capacity(segments.len());
    for (i, segment) in segments.iter().enumerate() {
        let looks = (dirty_from..active).contains(&i);
        let largest = if looks && choose::needs_largest(config) { segment.largest()? } else { None };
        let first = if looks && choose::needs_first(config) { segment.find(segment.base(), segment.size())? } else { None };
        facts.push(SegmentFacts {
            base: segment.base(),
            bytes: segment.size(),
            index_bytes: [0, 0],
            largest: largest.map(|TimestampOffset { timestamp, .. }| timestamp),
            first: first.map(|batch| batch.header.max_timestamp),
        });
    }
    Ok(facts)
}
