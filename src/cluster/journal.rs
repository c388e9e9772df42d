//! The metadata journal and its snapshot: two plain files in `metadata.log.dir`, on the Disk trait.
//!
//! ```text
//! highwater-metadata.journal    "HWMJ" version u32 | frame frame …      a frame is one change: all of its records or none
//! highwater-metadata.snapshot   "HWMS" version u32 | one frame          replaced atomically
//! frame                         "HWFR" length u32 | CRC-32C u32 | sequence u64, count u32, records
//! ```
//!
//! Length and CRC cover what follows them. Sequences rise by one; the snapshot's frame carries that of the last change in it, so that a
//! crash between writing it and emptying the journal replays nothing twice. A frame that is cut off at the end is a change that was
//! never acknowledged, and is cut; anything broken before the end is an error, never skipped. What a record means is not known here.

use super::record::{BadRecord, Record};
use crate::log::io::{Disk, DiskFile, OpenMode, read_exact_at, write_atomically};
use std::{
    io,
    path::{Path, PathBuf},
    sync::Arc,
};

pub const JOURNAL: &str = "highwater-metadata.journal";
const SNAPSHOT: &str = "highwater-metadata.snapshot";
const JOURNAL_MAGIC: [u8; 4] = *b"HWMJ";
const SNAPSHOT_MAGIC: [u8; 4] = *b"HWMS";
const FRAME_MAGIC: [u8; 4] = *b"HWFR";
const VERSION: u32 = 1;
const FILE_HEADER_BYTES: usize = 8;
const FRAME_HEADER_BYTES: usize = 12;
/// A frame's sequence and count.
const FRAME_LEAST_BYTES: usize = 12;
/// A journal is not emptied before it has this many bytes, and twice those of the snapshot.
const JOURNAL_BYTES_BEFORE_SNAPSHOT: u64 = 1 << 20;

/// Why the journal can't be read, or written.
#[derive(Debug, thiserror::Error)]
pub enum JournalError {
    #[error("{}: not a file of this kind", .0.display())]
    Foreign(PathBuf),
    #[error("{}: format version {version} is not known: it was written by a newer highwater", path.display())]
    Version { path: PathBuf, version: u32 },
    #[error("{}: broken at byte {position}, with sound changes after it; restore it from a copy", path.display())]
    Broken { path: PathBuf, position: u64 },
    #[error("{}: change {found} follows change {last}; some are missing", path.display())]
    Gap { path: PathBuf, last: u64, found: u64 },
    #[error("{}: change {sequence}: {error}", path.display())]
    Record { path: PathBuf, sequence: u64, error: BadRecord },
    #[error("the metadata journal takes no changes until the broker is restarted, since an earlier one failed: {0}")]
    Poisoned(String),
    #[error("write the metadata journal: {0}")]
    Io(#[from] io::Error),
}

/// What was read when the journal was opened.
#[derive(Debug, Default)]
pub struct Replay {
    /// The records of the snapshot and of every later change, in order.
    pub records: Vec<Record>,
    /// Bytes of an unfinished change that were cut off the end.
    pub cut_bytes: u64,
}

/// The open journal. One owner; calls block.
pub struct Journal {
    disk: Arc<dyn Disk>,
    dir: PathBuf,
    file: Arc<dyn DiskFile>,
    /// Where the next frame goes.
    end: u64,
    sequence: u64,
    snapshot_bytes: u64,
    poisoned: Option<String>,
}

/// Takes in the changes of a journal file's bytes after `sequence`; where the last whole one ends.
fn take_frames(path: &Path, bytes: &[u8], sequence: &mut u64, records: &mut Vec<Record>) -> Result<usize, JournalError> {
    check_file_header(path, bytes, JOURNAL_MAGIC)?;
    let mut position = FILE_HEADER_BYTES;
    while let Some(rest) = bytes.get(position..).filter(|rest| !rest.is_empty()) {
        let Some(frame) = Frame::read(rest) else {
            if find_frame(rest.get(1..).unwrap_or_default()) {
                return Err(JournalError::Broken { path: path.to_owned(), position: position as u64 });
            }
            break;
        };
        position = position.saturating_add(frame.bytes);
        // Of changes that the snapshot has, the file was not yet emptied when the broker stopped.
        if frame.sequence <= *sequence {
            continue;
        }
        if frame.sequence != sequence.saturating_add(1) {
            return Err(JournalError::Gap { path: path.to_owned(), last: *sequence, found: frame.sequence });
        }
        frame.decode(path, records)?;
        *sequence = frame.sequence;
    }
    Ok(position)
}

impl Journal {
    /// Whether a directory has a journal or its snapshot.
    pub fn is_in(disk: &dyn Disk, dir: &Path) -> bool {
        [JOURNAL, SNAPSHOT].iter().any(|file| disk.exists(&dir.join(file)))
    }

    /// Opens or creates the journal in `dir`, which must exist.
    pub fn open(disk: Arc<dyn Disk>, dir: &Path) -> Result<(Self, Replay), JournalError> {
        let mut replay = Replay::default();
        let mut sequence = 0;
        let mut snapshot_bytes = 0;
        let snapshot = dir.join(SNAPSHOT);
        if disk.exists(&snapshot) {
            let bytes = disk.read(&snapshot)?;
            snapshot_bytes = bytes.len() as u64;
            sequence = read_snapshot(&snapshot, &bytes, &mut replay.records)?;
        }
        let path = dir.join(JOURNAL);
        let file = disk.open(&path, OpenMode::Create)?;
        let mut journal = Self { disk, dir: dir.to_owned(), file, end: 0, sequence, snapshot_bytes, poisoned: None };
        journal.replay(&path, &mut replay)?;
        Ok((journal, replay))
    }

    fn replay(&mut self, path: &Path, replay: &mut Replay) -> Result<(), JournalError> {
        let len = self.file.len()?;
        let mut bytes = vec![0; usize::try_from(len).map_err(|_| JournalError::Foreign(path.to_owned()))?];
        read_exact_at(&*self.file, &mut bytes, 0)?;
        // A crash while the file was made leaves a part of its header, or zeros.
        let header = file_header(JOURNAL_MAGIC);
        let unfinished = bytes.len() < header.len() && header.starts_with(&bytes);
        if unfinished || (bytes.len() <= header.len() && bytes.iter().all(|byte| *byte == 0)) {
            return Ok(self.start_file()?);
        }
        self.end = take_frames(path, &bytes, &mut self.sequence, &mut replay.records)? as u64;
        replay.cut_bytes = len.saturating_sub(self.end);
        if replay.cut_bytes > 0 {
            self.file.set_len(self.end)?;
            self.file.sync()?;
        }
        Ok(())
    }

    /// Reads the journal in `dir` as [`Journal::open`] does, and changes nothing; `None` if there is none.
    pub fn check(disk: &dyn Disk, dir: &Path) -> Result<Option<Replay>, JournalError> {
        let (snapshot, path) = (dir.join(SNAPSHOT), dir.join(JOURNAL));
        if !disk.exists(&snapshot) && !disk.exists(&path) {
            return Ok(None);
        }
        let (mut replay, mut sequence) = (Replay::default(), 0);
        if disk.exists(&snapshot) {
            sequence = read_snapshot(&snapshot, &disk.read(&snapshot)?, &mut replay.records)?;
        }
        let bytes = if disk.exists(&path) { disk.read(&path)? } else { Vec::new() };
        if bytes.len() <= FILE_HEADER_BYTES && (file_header(JOURNAL_MAGIC).starts_with(&bytes) || bytes.iter().all(|byte| *byte == 0)) {
            return Ok(Some(replay));
        }
        let end = take_frames(&path, &bytes, &mut sequence, &mut replay.records)?;
        replay.cut_bytes = bytes.len().saturating_sub(end) as u64;
        Ok(Some(replay))
    }

    fn start_file(&mut self) -> io::Result<()> {
        self.file.set_len(0)?;
        self.file.write_at(&[io::IoSlice::new(&file_header(JOURNAL_MAGIC))], 0)?;
        self.file.sync()?;
        self.disk.sync_dir(&self.dir)?;
        self.end = FILE_HEADER_BYTES as u64;
        Ok(())
    }

    /// Adds one change, durably. After a failure it is not there, or the journal takes no more (whether it is there will show at the next
    /// start).
    pub fn append(&mut self, records: &[Record]) -> Result<(), JournalError> {
        if let Some(why) = &self.poisoned {
            return Err(JournalError::Poisoned(why.clone()));
        }
        let frame = encode_frame(self.sequence.saturating_add(1), records);
        if let Err(error) = self.file.write_at(&[io::IoSlice::new(&frame)], self.end) {
            // Most likely the disk is full: take back what was written of it, so that the next change finds a sound end.
            if let Err(worse) = self.file.set_len(self.end).and_then(|()| self.file.sync()) {
                self.poisoned = Some(worse.to_string());
            }
            return Err(error.into());
        }
        if let Err(error) = self.file.sync() {
            self.poisoned = Some(error.to_string());
            return Err(error.into());
        }
        self.end = self.end.saturating_add(frame.len() as u64);
        self.sequence = self.sequence.saturating_add(1);
        Ok(())
    }

    /// Whether it has grown enough for a snapshot to pay.
    pub fn wants_snapshot(&self) -> bool {
        self.poisoned.is_none() && self.end > JOURNAL_BYTES_BEFORE_SNAPSHOT.max(self.snapshot_bytes.saturating_mul(2))
    }

    /// Replaces all changes so far by the records that build their outcome.
    pub fn snapshot(&mut self, records: &[Record]) -> Result<(), JournalError> {
        if let Some(why) = &self.poisoned {
            return Err(JournalError::Poisoned(why.clone()));
        }
        let mut bytes = file_header(SNAPSHOT_MAGIC).to_vec();
        bytes.extend_from_slice(&encode_frame(self.sequence, records));
        write_atomically(&*self.disk, &self.dir.join(SNAPSHOT), &bytes)?;
        self.snapshot_bytes = bytes.len() as u64;
        let emptied = self.file.set_len(FILE_HEADER_BYTES as u64).and_then(|()| self.file.sync());
        if let Err(error) = emptied {
            self.poisoned = Some(error.to_string());
            return Err(error.into());
        }
        self.end = FILE_HEADER_BYTES as u64;
        Ok(())
    }
}

fn file_header(magic: [u8; 4]) -> [u8; FILE_HEADER_BYTES] {
    let [a, b, c, d] = magic;
    let [e, f, g, h] = VERSION.to_be_bytes();
    [a, b, c, d, e, f, g, h]
}

fn check_file_header(path: &Path, bytes: &[u8], magic: [u8; 4]) -> Result<(), JournalError> {
    let foreign = || JournalError::Foreign(path.to_owned());
    let rest = bytes.strip_prefix(&magic).ok_or_else(foreign)?;
    let version = u32::from_be_bytes(*rest.first_chunk().ok_or_else(foreign)?);
    if version == VERSION { Ok(()) } else { Err(JournalError::Version { path: path.to_owned(), version }) }
}

/// A snapshot is written in one piece and renamed: one that is not whole is damage.
fn read_snapshot(path: &Path, bytes: &[u8], records: &mut Vec<Record>) -> Result<u64, JournalError> {
    check_file_header(path, bytes, SNAPSHOT_MAGIC)?;
    let rest = bytes.get(FILE_HEADER_BYTES..).unwrap_or_default();
    let whole = Frame::read(rest).filter(|frame| frame.bytes == rest.len());
    let frame = whole.ok_or_else(|| JournalError::Broken { path: path.to_owned(), position: FILE_HEADER_BYTES as u64 })?;
    frame.decode(path, records)?;
    Ok(frame.sequence)
}

fn encode_frame(sequence: u64, records: &[Record]) -> Vec<u8> {
    let mut frame = vec![0; FRAME_HEADER_BYTES];
    frame.extend_from_slice(&sequence.to_be_bytes());
    frame.extend_from_slice(&u32::try_from(records.len()).unwrap_or(u32::MAX).to_be_bytes());
    records.iter().for_each(|record| record.encode(&mut frame));
    let covered = frame.get(FRAME_HEADER_BYTES..).unwrap_or_default();
    let (len, crc) = (u32::try_from(covered.len()).unwrap_or(u32::MAX), crc32c::crc32c(covered));
    let header = FRAME_MAGIC.into_iter().chain(len.to_be_bytes()).chain(crc.to_be_bytes());
    frame.iter_mut().zip(header).for_each(|(to, from)| *to = from);
    frame
}

/// A frame that is whole and whose CRC is right.
struct Frame<'a> {
    sequence: u64,
    count: u32,
    records: &'a [u8],
    /// Of all of it.
    bytes: usize,
}

impl<'a> Frame<'a> {
    fn read(from: &'a [u8]) -> Option<Self> {
        let rest = from.strip_prefix(&FRAME_MAGIC)?;
        let (len, rest) = rest.split_first_chunk().map(|(len, rest)| (u32::from_be_bytes(*len), rest))?;
        let (crc, rest) = rest.split_first_chunk().map(|(crc, rest)| (u32::from_be_bytes(*crc), rest))?;
        let len = usize::try_from(len).ok().filter(|len| *len >= FRAME_LEAST_BYTES)?;
        let covered = rest.get(..len)?;
        if crc32c::crc32c(covered) != crc {
            return None;
        }
        let (sequence, rest) = covered.split_first_chunk()?;
        let (count, records) = rest.split_first_chunk()?;
        let (sequence, count) = (u64::from_be_bytes(*sequence), u32::from_be_bytes(*count));
        Some(Self { sequence, count, records, bytes: FRAME_HEADER_BYTES.checked_add(len)? })
    }

    fn decode(&self, path: &Path, records: &mut Vec<Record>) -> Result<(), JournalError> {
        let sequence = self.sequence;
        let bad = |error| JournalError::Record { path: path.to_owned(), sequence, error };
        let mut rest = self.records;
        for _ in 0..self.count {
            records.push(Record::decode(&mut rest).map_err(bad)?);
        }
        if rest.is_empty() { Ok(()) } else { Err(bad(BadRecord::Truncated)) }
    }
}

/// Whether a whole frame begins anywhere in these bytes.
fn find_frame(bytes: &[u8]) -> bool {
    bytes.windows(FRAME_MAGIC.len()).enumerate().any(|(at, window)| {
        let here = || bytes.get(at..).and_then(Frame::read);
        window == FRAME_MAGIC && here().is_some()
    })
}

#[cfg(test)]
#[path = "journal_tests.rs"]
mod tests;
