//! Opening a partition's directory, whoever left it and however (`LogLoader`).
//!
//! After a clean stop the end is found by the index and a few headers, and the producers come from their snapshot. After any other stop every
//! batch from the recovery point on is checked, indexes, producers and epochs are made from what is there, and the log is cut at the
//! first batch that is torn or wrong, with one warning that says what was cut. Never fails on what a crash may leave; it does on files
//! that can't be read and on formats that it doesn't know, and then changes nothing.

use super::{
    LogError, PartitionSpec, checkpoints, compact,
    epochs::Epochs,
    files::{self, EPOCHS_FILE, Kind, METADATA_FILE, Stage, TRUNCATING_FILE},
    health::DirHealth,
    index::{OffsetIndex, TimeIndex},
    io::{Disk, DiskFile, Entry, OpenMode},
    look::load_arrivals,
    model::{self, Watermarks, relative},
    partition::{PartitionLog, Parts, marker_of},
    producer_state::ProducerStates,
    scan::{self, Bad, Found, Walk, WalkError},
    segment::{Indexes, Noted, Place, Segment, optional, remove_if_there, scan_buffer},
    txn_index::{self, AbortedTxn},
};
use crate::{
    record::HEADER_BYTES,
    types::{Millis, Offset},
};
use std::{collections::BTreeSet, io, path::PathBuf, sync::Arc};

/// What is known of a directory before it is opened.
pub(super) struct Opening<'a> {
    pub disk: &'a Arc<dyn Disk>,
    pub dir: PathBuf,
    pub spec: &'a PartitionSpec,
    /// The directory holds the topic's id.
    pub has_metadata: bool,
    /// The data directory was left by a clean stop.
    pub clean: bool,
    /// Everything below was durable.
    pub recovery_point: Option<Offset>,
    /// Lowers the checkpoint of that, durably.
    pub lower_recovery_point: &'a dyn Fn(Offset) -> Result<(), LogError>,
    /// Where the log starts by its checkpoint: records below were deleted, though their segment may be there.
    pub log_start: Option<Offset>,
    pub now: Millis,
    pub producer_id_expiration_ms: i64,
    /// Of the data directory that it's in.
    pub health: &'a Arc<DirHealth>,
}

/// Makes a directory for a partition that has none.
pub(super) fn create(opening: &Opening<'_>) -> Result<PartitionLog, LogError> {
    opening.disk.create_dir_all(&opening.dir)?;
    open(opening)
}

/// Opens a partition's directory.
pub(super) fn open(opening: &Opening<'_>) -> Result<PartitionLog, LogError> {
    let index_interval = opening.spec.config.index_interval_bytes as u64;
    let place =
        Arc::new(Place { disk: Arc::clone(opening.disk), dir: opening.dir.clone(), index_interval, health: Arc::clone(opening.health) });
    let mut listing = place.disk.list(&place.dir)?;
    if compact::finish_replacements(&place, &listing)? {
        listing = place.disk.list(&place.dir)?;
    }
    if !opening.has_metadata {
        write_metadata(&place, opening)?;
    }
    let mut recovery = Recovery::new(opening, &place, &listing)?;
    let (log_end, checked_from) = recovery.find_end(opening)?;
    let log_end = recovery.settle(opening, &listing, log_end)?;
    if listing.iter().any(|entry| entry.name == TRUNCATING_FILE) {
        recovery.settle_truncation()?;
    }
    let first = recovery.segments.first().map_or(log_end, |segment| segment.base());
    let log_start = opening.log_start.unwrap_or(first).max(first).min(log_end);
    recovery.epochs.truncate_from_end(log_end);
    recovery.epochs.truncate_from_start(log_start);
    recovery.producers.on_log_start(log_start);
    recovery.producers.on_high_watermark(log_end);
    recovery.producers.expire(opening.now, opening.producer_id_expiration_ms);
    let rested = recovery.remove_stray_snapshots(&listing, log_end);
    // Descriptors are few and partitions many: files open again when they're used.
    recovery.segments.iter().for_each(|segment| segment.close_file());
    let was_checked = checked_from.is_some();
    let last_stable = recovery.producers.last_stable_offset(log_end).max(log_start);
    // What was checked was written anew, indexes at least, and is not durable.
    let synced = checked_from.map_or(log_end, |from| from.clamp(first.min(log_end), log_end));
    let tidy =
        model::segment_of(&recovery.segments, |s| s.base(), synced).and_then(|i| recovery.segments.get(i)).map_or(log_end, |s| s.base());
    let arrivals = load_arrivals(&place, opening.spec.topic_id, log_end);
    Ok(PartitionLog::new(Parts {
        topic: opening.spec.topic.clone(),
        topic_id: opening.spec.topic_id,
        place: Arc::clone(&place),
        config: Arc::clone(&opening.spec.config),
        segments: recovery.segments,
        marks: Watermarks { log_start, last_stable, high_watermark: log_end, log_end },
        epochs: recovery.epochs,
        producers: recovery.producers,
        arrivals,
        synced,
        tidy,
        rested: rested.filter(|rested| *rested <= synced),
        now: opening.now,
        dirty: was_checked,
        dir_dirty: was_checked || !opening.has_metadata,
    })?)
}

/// Writes the topic id. It becomes durable with the first sync.
fn write_metadata(place: &Place, opening: &Opening<'_>) -> Result<(), LogError> {
    let file = place.disk.open(&place.dir.join(METADATA_FILE), OpenMode::Create)?;
    file.set_len(0)?;
    file.write_at(&[io::IoSlice::new(checkpoints::encode_metadata(opening.spec.topic_id).as_bytes())], 0)?;
    Ok(())
}

/// A partition while it's being opened.
struct Recovery<'a> {
    place: &'a Arc<Place>,
    segments: Vec<Arc<Segment>>,
    producers: ProducerStates,
    epochs: Epochs,
    /// Ascending; those that may be used.
    snapshots: BTreeSet<Offset>,
    /// The segments that have a transaction index.
    txn_indexes: BTreeSet<Offset>,
    buf: Vec<u8>,
}

/// Where checking begins in a segment, and what is kept of its indexes.
struct Trusted {
    indexes: Indexes,
    noted: Noted,
    /// A batch's start.
    position: u64,
    /// The files hold `indexes`.
    kept: bool,
}

impl Trusted {
    fn nothing(base: Offset) -> Self {
        let mut indexes = Indexes::empty(base);
        indexes.rewrite();
        Self { indexes, noted: Noted::default(), position: 0, kept: false }
    }
}

impl<'a> Recovery<'a> {
    fn new(opening: &Opening<'_>, place: &'a Arc<Place>, listing: &[Entry]) -> Result<Self, LogError> {
        let of = |wanted: Kind| {
            let live = listing.iter().filter_map(|e| files::parse(&e.name)).filter(|(_, _, stage)| *stage == Stage::Live);
            live.filter(move |(_, kind, _)| *kind == wanted).map(|(offset, ..)| offset).collect::<BTreeSet<_>>()
        };
        let bases = of(Kind::Log);
        for kind in [Kind::OffsetIndex, Kind::TimeIndex, Kind::TxnIndex] {
            for orphan in of(kind).difference(&bases) {
                remove_if_there(&*place.disk, &place.path(*orphan, kind))?;
            }
        }
        let mut segments = Vec::with_capacity(bases.len());
        for base in &bases {
            let size = place.disk.open(&place.path(*base, Kind::Log), OpenMode::Read)?.len()?;
            segments.push(Arc::new(Segment::existing(Arc::clone(place), *base, size)));
        }
        let buf = scan_buffer(segments.iter().map(|segment| segment.size()).max().unwrap_or(0));
        let mut recovery = Self {
            place,
            segments,
            producers: ProducerStates::default(),
            epochs: Epochs::default(),
            snapshots: of(Kind::Snapshot),
            txn_indexes: of(Kind::TxnIndex),
            buf,
        };
        match load_epochs(place, listing)? {
            Some(epochs) => recovery.epochs = epochs,
            None => recovery.rebuild_epochs(if opening.clean { Offset(i64::MAX) } else { opening.recovery_point.unwrap_or_default() })?,
        }
        if opening.clean {
            let (offsets, times) = (of(Kind::OffsetIndex), of(Kind::TimeIndex));
            for segment in recovery.segments.iter().filter(|s| !offsets.contains(&s.base()) || !times.contains(&s.base())) {
                tracing::warn!(partition = %opening.spec.topic, base = %segment.base(), "rebuilding a missing index");
                // A log that can't be walked is dealt with when its end is looked for.
                let _ = segment.with_index(|_| ());
            }
        }
        Ok(recovery)
    }

    /// The epochs of the batches in segments that begin below `point`, by their headers; those above are checked, and noted then.
    fn rebuild_epochs(&mut self, point: Offset) -> Result<(), LogError> {
        for segment in self.segments.iter().filter(|segment| segment.base() < point && segment.size() > 0) {
            let file = segment.file()?;
            let mut walk = Walk::new(&*file, 0, segment.size(), &mut self.buf);
            // What can't be walked is cut or refused later.
            while let Ok(Some(batch)) = walk.next_batch() {
                if self.epochs.latest().is_none_or(|last| batch.header.leader_epoch > last.epoch) {
                    self.epochs.assign(batch.header.leader_epoch, batch.header.base_offset);
                }
            }
        }
        Ok(())
    }

    /// The log's end, with the producers as they are there; and from where on it was checked, if it was.
    fn find_end(&mut self, opening: &Opening<'_>) -> Result<(Offset, Option<Offset>), LogError> {
        let start = opening.log_start.unwrap_or_default();
        let Some(last) = self.segments.last().cloned() else { return Ok((start, (!opening.clean).then_some(start))) };
        let first = self.segments.first().map_or(Offset(0), |segment| segment.base());
        let point = opening.recovery_point.unwrap_or(first).max(first);
        if let Some(base) = self.broken_txn_index() {
            tracing::warn!(partition = %opening.spec.topic, %base, "rebuilding a broken transaction index");
            let point = if opening.clean { base } else { base.min(point) };
            return Ok((self.check_from(point, opening)?, Some(point)));
        }
        if opening.clean {
            match self.end_by_index(&last) {
                Ok(end) => {
                    self.load_producers_after_clean_stop(end)?;
                    return Ok((end, None));
                }
                Err(error) if error.kind() == io::ErrorKind::InvalidData => {
                    tracing::warn!(partition = %opening.spec.topic, %error, "checking a log that isn't as a clean stop leaves it");
                }
                Err(error) => return Err(error.into()),
            }
            return Ok((self.check_from(last.base(), opening)?, Some(last.base())));
        }
        Ok((self.check_from(point, opening)?, Some(point)))
    }

    /// The first segment whose transaction index can't be read: without it aborted records would be taken for committed ones.
    fn broken_txn_index(&self) -> Option<Offset> {
        self.txn_indexes.iter().copied().find(|base| self.is_txn_index_broken(*base))
    }

    fn is_txn_index_broken(&self, base: Offset) -> bool {
        let bytes = self.txn_indexes.contains(&base).then(|| self.place.disk.read(&self.place.path(base, Kind::TxnIndex)).ok()).flatten();
        bytes.is_some_and(|bytes| txn_index::decode(&bytes, base).is_err())
    }

    /// By the last index entry and the headers after it, which must fill the file.
    fn end_by_index(&mut self, segment: &Arc<Segment>) -> io::Result<Offset> {
        let from = segment.with_index(|i| i.offsets.last())?;
        let file = segment.file()?;
        let mut walk = Walk::new(&*file, from.map_or(0, |e| e.position.into()), segment.size(), &mut self.buf);
        let mut end = segment.base();
        let mut first = true;
        while let Some(batch) = walk.next_batch()? {
            if batch.header.base_offset < end || first && from.is_some_and(|e| e.last_offset != batch.header.last_offset()) {
                return Err(WalkError::Bad { position: batch.position, what: Bad::Offsets }.into());
            }
            end = batch.header.next_offset();
            first = false;
        }
        Ok(end)
    }

    fn load_producers_after_clean_stop(&mut self, end: Offset) -> Result<(), LogError> {
        let Some(states) = self.newest_snapshot(end) else {
            // Written before there were any, as Kafka takes it: it always leaves one.
            self.producers = ProducerStates::starting_at(end);
            return Ok(());
        };
        self.producers = states;
        let from = self.producers.end_offset();
        if from < end {
            let first = model::segment_of(&self.segments, |s| s.base(), from).unwrap_or(0);
            for segment in self.segments.iter().skip(first) {
                replay(segment, from, &mut self.producers, &mut self.buf)?;
            }
        }
        Ok(())
    }

    /// The newest snapshot at or below `offset` that can be read. Those that can't are removed.
    fn newest_snapshot(&mut self, offset: Offset) -> Option<ProducerStates> {
        while let Some(at) = self.snapshots.range(..=offset).next_back().copied() {
            let path = self.place.path(at, Kind::Snapshot);
            let bytes = self.place.disk.read(&path).ok();
            match bytes.map(|bytes| ProducerStates::decode_snapshot(&bytes, at)) {
                Some(Ok(states)) => return Some(states),
                Some(Err(error)) => tracing::warn!(snapshot = %path.display(), %error, "removing a producer snapshot that can't be read"),
                None => {}
            }
            let _ = self.place.disk.remove_file(&path);
            self.snapshots.remove(&at);
        }
        None
    }

    /// Checks every batch from the snapshot before `point` on, or from its segment's start if the snapshot is older; the log's end.
    fn check_from(&mut self, point: Offset, opening: &Opening<'_>) -> Result<Offset, LogError> {
        let first = model::segment_of(&self.segments, |s| s.base(), point).unwrap_or(0);
        // A segment that the point lies right behind may have been closed after it: its indexes' last entries need not be durable.
        let closed_after = first > 0 && self.segments.get(first).is_some_and(|segment| segment.base() == point);
        let first = if closed_after { first.saturating_sub(1) } else { first };
        let Some(segment) = self.segments.get(first).cloned() else { return Ok(point) };
        if opening.recovery_point.is_some_and(|durable| durable > point) {
            // Files that it speaks for are about to be replaced.
            (opening.lower_recovery_point)(point)?;
        }
        let start = self.segments.first().map_or(Offset(0), |s| s.base());
        let broken = self.is_txn_index_broken(segment.base());
        let limit = if broken { segment.base() } else { point };
        self.producers = self.newest_snapshot(limit).unwrap_or_else(|| ProducerStates::starting_at(start));
        let replay_from = self.producers.end_offset();
        let trusted = trusted_below(&segment, replay_from)?;
        // Those above may be torn, and come anew with their segments.
        self.snapshots.retain(|offset| *offset <= replay_from);
        let replay_first = model::segment_of(&self.segments, |s| s.base(), replay_from).unwrap_or(0);
        for segment in self.segments.iter().take(first).skip(replay_first) {
            replay(segment, replay_from, &mut self.producers, &mut self.buf)?;
        }
        let mut end = segment.base();
        let mut trusted = Some(trusted);
        for i in first..self.segments.len() {
            let Some(segment) = self.segments.get(i).cloned() else { break };
            // Compaction leaves such gaps.
            if segment.base() > end && !opening.spec.config.cleanup_compact {
                tracing::warn!(partition = %opening.spec.topic, from = %end, to = %segment.base(), "no records in this range of offsets");
            }
            // One that was believed is durable, and stays as it is.
            if i > first && !self.snapshots.contains(&segment.base()) {
                self.write_snapshot(segment.base())?;
            }
            let mut trusted = trusted.take().unwrap_or_else(|| Trusted::nothing(segment.base()));
            let times_before = trusted.indexes.times.len();
            let (segment_end, bad) = self.check_segment(&segment, &mut trusted, replay_from, end)?;
            end = segment_end.max(end);
            segment.set_largest(trusted.noted.largest());
            if bad.is_none() && i.saturating_add(1) < self.segments.len() {
                trusted.noted.finish(&mut trusted.indexes);
            }
            let kept = trusted.kept;
            let grown = trusted.indexes.times.len() > times_before;
            segment.set_index(trusted.indexes);
            if let Some((position, what)) = bad {
                self.cut(i, &segment, position, end, what, opening)?;
            }
            // Those of a rest were durable once, and the recovery point relies on them; those of the segment that's written to can wait.
            let replaced = i == first && replay_from > segment.base() && (!kept || closed_after && grown);
            if replaced || i.saturating_add(1) < self.segments.len() {
                segment.flush_index()?;
            }
            if replaced {
                segment.sync_index()?;
            }
        }
        Ok(end)
    }

    fn write_snapshot(&mut self, offset: Offset) -> Result<(), LogError> {
        let file = self.place.disk.open(&self.place.path(offset, Kind::Snapshot), OpenMode::Create)?;
        file.set_len(0)?;
        file.write_at(&[io::IoSlice::new(&self.producers.encode_snapshot())], 0)?;
        self.snapshots.insert(offset);
        Ok(())
    }

    /// Checks one segment's batches; the offset after the last good one, and where and what the first bad one is.
    fn check_segment(
        &mut self,
        segment: &Arc<Segment>,
        trusted: &mut Trusted,
        replay_from: Offset,
        previous_end: Offset,
    ) -> Result<(Offset, Option<(u64, Bad)>), LogError> {
        if segment.size() == 0 {
            return Ok((segment.base(), None));
        }
        let file = segment.file()?;
        let mut walk = Walk::new(&*file, trusted.position, segment.size(), &mut self.buf);
        let mut end = segment.base().max(if trusted.position == 0 { previous_end } else { segment.base() });
        loop {
            let batch = match walk.next_batch() {
                Ok(Some(batch)) => batch,
                Ok(None) => return Ok((end, None)),
                Err(WalkError::Io(error)) => return Err(error.into()),
                Err(WalkError::Bad { what: Bad::OldMagic(magic), position }) if scan::is_old_message(&*file, position, segment.size())? => {
                    let path = self.place.path(segment.base(), Kind::Log);
                    return Err(LogError::Unreadable {
                        path,
                        what: format!("holds batches of the old magic {magic}: let Apache Kafka 3 convert it"),
                    });
                }
                Err(WalkError::Bad { position, what }) => return Ok((end, Some((position, what)))),
            };
            if batch.header.base_offset < end || relative(segment.base(), batch.header.last_offset()).is_none() {
                return Ok((end, Some((batch.position, Bad::Offsets))));
            }
            if !walk.crc_matches(&batch)? {
                return Ok((end, Some((batch.position, Bad::Crc))));
            }
            if batch.header.last_offset() >= replay_from
                && let Some(aborted) = apply(&*file, &batch, &mut self.producers)?
            {
                trusted.indexes.aborted.push(aborted);
            }
            trusted.noted.note(&mut trusted.indexes, &batch, self.place.index_interval);
            if self.epochs.latest().is_none_or(|last| batch.header.leader_epoch > last.epoch) {
                self.epochs.assign(batch.header.leader_epoch, batch.header.base_offset);
            }
            end = batch.header.next_offset();
        }
    }

    /// Ends the log at `position` of segment `i`, durably: what comes after must not come back behind new records.
    fn cut(&mut self, i: usize, segment: &Segment, position: u64, end: Offset, what: Bad, opening: &Opening<'_>) -> Result<(), LogError> {
        let rest = self.segments.split_off(i.saturating_add(1));
        let bytes = rest.iter().map(|s| s.size()).sum::<u64>().saturating_add(segment.size().saturating_sub(position));
        tracing::warn!(
            partition = %opening.spec.topic, file = %self.place.path(segment.base(), Kind::Log).display(),
            position, bytes, segments = rest.len(), log_end = %end, %what,
            "cut the log at the first batch that isn't whole"
        );
        let file = segment.file()?;
        file.set_len(position)?;
        file.sync()?;
        segment.set_size(position);
        for segment in rest {
            for kind in Kind::OF_SEGMENT {
                remove_if_there(&*self.place.disk, &self.place.path(segment.base(), kind))?;
            }
        }
        self.place.disk.sync_dir(&self.place.dir)?;
        Ok(())
    }

    /// A log always has a segment to write to, and never ends below its start.
    fn settle(&mut self, opening: &Opening<'_>, listing: &[Entry], log_end: Offset) -> Result<Offset, LogError> {
        let log_start = opening.log_start.unwrap_or_default();
        let log_end = if log_end < log_start {
            tracing::warn!(partition = %opening.spec.topic, %log_end, %log_start, "removing all segments: they end below the log's start");
            for segment in self.segments.drain(..) {
                for kind in Kind::OF_SEGMENT {
                    remove_if_there(&*self.place.disk, &self.place.path(segment.base(), kind))?;
                }
            }
            self.epochs.clear();
            log_start
        } else {
            log_end
        };
        if self.segments.is_empty() {
            // A truncation that was cut short leaves no segment, but one snapshot, just there.
            self.snapshots.retain(|at| *at == log_end);
            self.producers = self.newest_snapshot(log_end).unwrap_or_else(|| ProducerStates::starting_at(log_end));
            // The others speak of records that are gone, and would be believed after the next crash.
            let others = snapshots_in(listing).map(|(at, ..)| at).filter(|at| !self.snapshots.contains(at));
            others
                .collect::<Vec<_>>()
                .into_iter()
                .try_for_each(|at| remove_if_there(&*self.place.disk, &self.place.path(at, Kind::Snapshot)))?;
            let segment = Segment::create(Arc::clone(self.place), log_end);
            if log_end > Offset(0) {
                // Its name alone tells from now on where the log goes on.
                segment.file()?;
                self.place.disk.sync_dir(&self.place.dir)?;
            }
            self.segments.push(Arc::new(segment));
        }
        Ok(log_end)
    }

    /// A truncation was cut short: what it has taken must not be back after a power loss. The last segment or the one before it was cut.
    fn settle_truncation(&self) -> Result<(), LogError> {
        for segment in self.segments.iter().rev().take(2).filter(|segment| segment.size() > 0) {
            segment.sync()?;
        }
        remove_if_there(&*self.place.disk, &self.place.dir.join(TRUNCATING_FILE))?;
        Ok(self.place.disk.sync_dir(&self.place.dir)?)
    }

    /// Snapshots above the end speak of records that are gone; of the others those at a segment's base stay, and the newest, which is answered.
    fn remove_stray_snapshots(&self, listing: &[Entry], log_end: Offset) -> Option<Offset> {
        let newest = self.snapshots.range(..=log_end).next_back();
        for (offset, ..) in snapshots_in(listing) {
            let is_base = self.segments.iter().any(|segment| segment.base() == offset);
            if !self.snapshots.contains(&offset) || offset > log_end || !is_base && Some(&offset) != newest {
                let _ = self.place.disk.remove_file(&self.place.path(offset, Kind::Snapshot));
            }
        }
        newest.copied()
    }
}

fn snapshots_in(listing: &[Entry]) -> impl Iterator<Item = (Offset, Kind, Stage)> + '_ {
    listing.iter().filter_map(|e| files::parse(&e.name)).filter(|(_, kind, _)| *kind == Kind::Snapshot)
}

/// The part of a segment's indexes that a snapshot at `point` says was durable; their files are cut to it. If the log disagrees with the offset
/// index, or one is missing, all of the segment is checked and they're written anew.
fn trusted_below(segment: &Arc<Segment>, point: Offset) -> Result<Trusted, LogError> {
    let mut trusted = Trusted::nothing(segment.base());
    if point <= segment.base() {
        return Ok(trusted);
    }
    let place = segment.place();
    let read = |kind| optional(place.disk.read(&place.path(segment.base(), kind)));
    let aborted_bytes = read(Kind::TxnIndex)?.unwrap_or_default();
    let mut aborted = txn_index::decode(&aborted_bytes, segment.base()).unwrap_or_default();
    aborted.truncate(txn_index::entries_below(&aborted, point));
    trusted.indexes.aborted.clone_from(&aborted);
    let (Some(offset_bytes), Some(time_bytes)) = (read(Kind::OffsetIndex)?, read(Kind::TimeIndex)?) else { return Ok(trusted) };
    let mut offsets = OffsetIndex::decode_prefix(segment.base(), &offset_bytes, segment.size());
    let mut times = TimeIndex::decode_prefix(segment.base(), &time_bytes);
    while offsets.last().is_some_and(|e| e.last_offset >= point) {
        offsets.truncate(offsets.len().saturating_sub(1));
    }
    times.truncate_from(point);
    if let Some(last) = offsets.last() {
        let file = segment.file()?;
        let mut buf = [0; HEADER_BYTES];
        let agrees = Walk::new(&*file, last.position.into(), segment.size(), &mut buf).next_batch();
        if !matches!(agrees, Ok(Some(batch)) if batch.header.last_offset() == last.last_offset) {
            return Ok(trusted);
        }
        trusted.position = last.position.into();
    }
    segment.trim(Kind::OffsetIndex, offset_bytes.len(), offsets.bytes().len())?;
    segment.trim(Kind::TimeIndex, time_bytes.len(), times.bytes().len())?;
    segment.trim(Kind::TxnIndex, aborted_bytes.len(), aborted.len().saturating_mul(txn_index::ENTRY_BYTES))?;
    trusted.noted = Noted::after(trusted.position, times.last());
    trusted.indexes = Indexes::loaded(offsets, times, aborted);
    trusted.kept = true;
    Ok(trusted)
}

/// Applies a segment's batches from `from` on to the producers, by their headers.
fn replay(segment: &Segment, from: Offset, producers: &mut ProducerStates, buf: &mut [u8]) -> Result<(), LogError> {
    let position = segment.find(from, segment.size())?.map_or(segment.size(), |batch| batch.position);
    Ok(replay_range(&*segment.file()?, position, segment.size(), from, producers, buf)?)
}

pub(super) fn replay_range(
    file: &dyn DiskFile,
    position: u64,
    end: u64,
    from: Offset,
    producers: &mut ProducerStates,
    buf: &mut [u8],
) -> io::Result<()> {
    let mut walk = Walk::new(file, position, end, buf);
    while let Some(batch) = walk.next_batch().map_err(io::Error::from)? {
        if batch.header.last_offset() >= from {
            apply(file, &batch, producers)?;
        }
    }
    Ok(())
}

/// Applies one batch; the aborted transaction that it ends, if it does.
fn apply(file: &dyn DiskFile, batch: &Found, producers: &mut ProducerStates) -> io::Result<Option<AbortedTxn>> {
    /// Control batches hold one small record.
    const CONTROL_BYTES_MAX: u64 = 4096;
    let marker = if batch.header.is_control() && batch.size <= CONTROL_BYTES_MAX {
        let bytes = scan::read_batch(file, batch)?;
        marker_of(&batch.header, bytes.get(HEADER_BYTES..).unwrap_or_default())
    } else {
        None
    };
    Ok(producers.apply(&batch.header, marker.as_ref()).as_ref().and_then(AbortedTxn::of))
}

/// `None` if there is no file or it can't be read: the epochs then come from the batches.
fn load_epochs(place: &Place, listing: &[Entry]) -> Result<Option<Epochs>, LogError> {
    if !listing.iter().any(|e| e.name == EPOCHS_FILE) {
        return Ok(None);
    }
    let path = place.dir.join(EPOCHS_FILE);
    let text = place.disk.read(&path)?;
    match Epochs::decode(&String::from_utf8_lossy(&text)) {
        Ok(epochs) => Ok(Some(epochs)),
        Err(error) => {
            tracing::warn!(file = %path.display(), %error, "making the leader epochs anew");
            Ok(None)
        }
    }
}
