//! What a copy in another data directory is still good for when its move goes on after a start.
//!
//! The copy may have more than its source (a power loss has taken what the source had not made durable), or other records in the same place, or
//! segments that retention has taken or compaction has replaced since. It is opened as the log that it is, compared with its source, and
//! truncated to what both have (as `ReplicaAlterLogDirsThread` truncates a future log), and the copying goes on from there.

use super::{
    LogError, MoveError, PartitionSpec, TruncateError,
    checkpoints::decode_metadata,
    files::{self, Kind, METADATA_FILE, Stage},
    health::DirHealth,
    io::{Disk, read_exact_at},
    partition::PartitionLog,
    recover::{self, Opening},
    relocate::Pace,
    segment::{Segment, optional},
};
use crate::types::{Millis, Offset};
use std::{io, path::Path, sync::Arc};

/// What is compared at once.
const CHUNK_BYTES: usize = 1 << 20;

/// The segments of a log whose beginning is in `dir`, and how much of each, in the log's order: the copies hold that and no more, not durably. `pace` is
/// called as copying calls it. None if there is nothing that can be used.
pub(super) fn copied(
    log: &PartitionLog,
    dir: &Path,
    health: &Arc<DirHealth>,
    now: Millis,
    pace: Pace<'_>,
) -> Result<Vec<(Arc<Segment>, u64)>, MoveError> {
    match what_both_have(log, dir, health, now, pace) {
        Err(MoveError::Io(error)) if error.kind() == io::ErrorKind::InvalidData => {
            tracing::warn!(dir = %dir.display(), %error, "a copy that was begun before can't be read; it is made anew");
            Ok(Vec::new())
        }
        done => done,
    }
}

fn what_both_have(
    log: &PartitionLog,
    dir: &Path,
    health: &Arc<DirHealth>,
    now: Millis,
    pace: Pace<'_>,
) -> Result<Vec<(Arc<Segment>, u64)>, MoveError> {
    let disk = Arc::clone(&log.place().disk);
    let Some(future) = open(log, &disk, dir, health, now)? else { return Ok(Vec::new()) };
    let source = log.segments.load_full();
    let Some(common) = common_end(&future, &source, pace)? else { return Ok(Vec::new()) };
    // No checkpoint speaks of a copy.
    match future.truncate_to(common, now, &|_, _, _| Ok(())) {
        Ok(_) => {}
        Err(TruncateError::Io(error) | TruncateError::Log(LogError::Io(error))) => return Err(error.into()),
        Err(_) => return Ok(Vec::new()),
    }
    let mut kept = Vec::new();
    for copy in future.segments.load().iter().filter(|copy| copy.size() > 0) {
        kept.extend(source.iter().find(|segment| segment.base() == copy.base()).map(|segment| (Arc::clone(segment), copy.size())));
    }
    let bytes = kept.iter().map(|(_, bytes)| bytes).sum::<u64>();
    tracing::info!(partition = %log.topic(), dir = %dir.display(), %common, bytes, "going on with a copy that was begun before");
    Ok(kept)
}

/// The copy as a log of its own; `None` if it isn't one of this topic.
fn open(
    log: &PartitionLog,
    disk: &Arc<dyn Disk>,
    dir: &Path,
    health: &Arc<DirHealth>,
    now: Millis,
) -> Result<Option<PartitionLog>, MoveError> {
    let metadata = optional(disk.read(&dir.join(METADATA_FILE)))?;
    let topic_id = metadata.and_then(|text| decode_metadata(&String::from_utf8_lossy(&text)));
    let named = disk.list(dir)?.into_iter().filter_map(|entry| files::parse(&entry.name));
    let newest = named.filter(|(_, kind, stage)| (*kind, *stage) == (Kind::Log, Stage::Live)).map(|(base, ..)| base).max();
    let (Some(newest), true) = (newest, topic_id == Some(log.topic_id())) else { return Ok(None) };
    let spec =
        PartitionSpec { topic: log.topic().clone(), topic_id: log.topic_id(), config: log.config(), leader_epoch: log.latest_epoch() };
    let opening = Opening {
        disk,
        dir: dir.to_owned(),
        spec: &spec,
        has_metadata: true,
        clean: false,
        // The comparison finds what is wrong before it.
        recovery_point: Some(newest),
        lower_recovery_point: &|_| Ok(()),
        log_start: None,
        now,
        producer_id_expiration_ms: i64::MAX,
        health,
    };
    match recover::open(&opening) {
        Ok(future) => Ok(Some(future)),
        Err(LogError::Io(error)) => Err(error.into()),
        Err(error) => {
            tracing::warn!(dir = %dir.display(), %error, "a copy that was begun before can't be read; it is made anew");
            Ok(None)
        }
    }
}

/// Up to which offset the copy has the source's bytes; `None` if that's none of them.
fn common_end(future: &PartitionLog, source: &[Arc<Segment>], pace: Pace<'_>) -> Result<Option<Offset>, MoveError> {
    let first = source.first().map_or(Offset(0), |segment| segment.base());
    let copies = future.segments.load_full();
    let mut copies = copies.iter().skip_while(|copy| copy.base() < first).filter(|copy| copy.size() > 0);
    let mut common = None;
    for segment in source {
        let Some(copy) = copies.next().filter(|copy| copy.base() == segment.base()) else { break };
        let same = same_bytes(copy, segment, pace)?;
        let Some(end) = copy.offset_after(0, same)? else { break };
        common = Some(end);
        if same < copy.size() || same < segment.size() {
            break;
        }
    }
    Ok(common)
}

/// How many bytes two segments begin with alike.
fn same_bytes(copy: &Segment, segment: &Segment, pace: Pace<'_>) -> Result<u64, MoveError> {
    let (size, files) = (copy.size().min(segment.size()), [copy.file()?, segment.file()?]);
    let mut bufs = [vec![0; CHUNK_BYTES], vec![0; CHUNK_BYTES]];
    let mut at = 0_u64;
    while at < size {
        let want = usize::try_from(size.saturating_sub(at)).unwrap_or(CHUNK_BYTES).min(CHUNK_BYTES);
        let [ours, theirs] = &mut bufs;
        let (ours, theirs) = (ours.get_mut(..want).unwrap_or_default(), theirs.get_mut(..want).unwrap_or_default());
        for (file, buf) in files.iter().zip([&mut *ours, &mut *theirs]) {
            read_exact_at(&**file, buf, at)?;
        }
        if let Some(differs) = ours.iter().zip(&*theirs).position(|(a, b)| a != b) {
            return Ok(at.saturating_add(differs as u64));
        }
        at = at.saturating_add(want as u64);
        if !pace(want as u64) {
            return Err(MoveError::GivenUp("the broker stops, or the move was cancelled".into()));
        }
    }
    Ok(at)
}
