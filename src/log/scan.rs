//! Walks the batches of a log file forward, from one batch's start: headers only, or checking every byte.
//!
//! Reads through a buffer of the caller's; a batch of any size is checked in that memory. Never writes.

use super::io::DiskFile;
use crate::record::{
    BatchHeader, HEADER_BYTES,
    header::{CRC_COVERS_FROM, MAGIC},
};
use std::io;

/// A batch in a file.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Found {
    pub header: BatchHeader,
    pub position: u64,
    pub size: u64,
}

impl Found {
    /// Where the next batch begins.
    pub fn end(&self) -> u64 {
        self.position.saturating_add(self.size)
    }
}

/// Why a walk ended before the end.
#[derive(Debug, thiserror::Error)]
pub enum WalkError {
    #[error(transparent)]
    Io(#[from] io::Error),
    #[error("{what} at byte {position}")]
    Bad { position: u64, what: Bad },
}

/// What is wrong with a batch.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum Bad {
    #[error("a batch that is cut short")]
    Torn,
    #[error("bytes that are no batch")]
    Header,
    #[error("a batch of the old magic {0}")]
    OldMagic(i8),
    #[error("a batch with a wrong CRC")]
    Crc,
    #[error("a batch whose offsets are out of order")]
    Offsets,
}

impl From<WalkError> for io::Error {
    fn from(error: WalkError) -> Self {
        match error {
            WalkError::Io(e) => e,
            bad @ WalkError::Bad { .. } => Self::new(io::ErrorKind::InvalidData, bad),
        }
    }
}

/// A walk over `position..end` of a file.
pub struct Walk<'a> {
    file: &'a dyn DiskFile,
    buf: &'a mut [u8],
    /// The file's bytes from here on are in `buf`.
    held_from: u64,
    held: usize,
    position: u64,
    end: u64,
}

impl<'a> Walk<'a> {
    /// `position` is a batch's start, `end` a batch's end or the file's. `buf` holds at least a header.
    pub fn new(file: &'a dyn DiskFile, position: u64, end: u64, buf: &'a mut [u8]) -> Self {
        Self { file, buf, held_from: 0, held: 0, position, end }
    }

    /// The next batch, by its header alone; `None` at the end.
    pub fn next_batch(&mut self) -> Result<Option<Found>, WalkError> {
        let position = self.position;
        let bad = |what| Err(WalkError::Bad { position, what });
        let left = self.end.saturating_sub(position);
        if left == 0 {
            return Ok(None);
        }
        if left < HEADER_BYTES as u64 {
            return bad(Bad::Torn);
        }
        let Some(header) = BatchHeader::parse(self.hold(position, HEADER_BYTES)?) else { return bad(Bad::Torn) };
        if (0..MAGIC).contains(&header.magic) && header.batch_length > 0 {
            return bad(Bad::OldMagic(header.magic));
        }
        let size = header.size().filter(|_| header.magic == MAGIC && header.last_offset_delta >= 0 && header.base_offset.0 >= 0);
        let Some(size) = size else { return bad(Bad::Header) };
        let size = size as u64;
        if size > left {
            return bad(Bad::Torn);
        }
        self.position = position.saturating_add(size);
        Ok(Some(Found { header, position, size }))
    }

    /// Whether the bytes of a batch that this walk has just found are what its CRC says.
    pub fn crc_matches(&mut self, batch: &Found) -> io::Result<bool> {
        let mut at = batch.position.saturating_add(CRC_COVERS_FROM as u64);
        let mut crc = 0;
        while at < batch.end() {
            let want = usize::try_from(batch.end().saturating_sub(at)).unwrap_or(usize::MAX);
            let bytes = self.hold(at, 1)?;
            let bytes = bytes.get(..want.min(bytes.len())).unwrap_or(bytes);
            if bytes.is_empty() {
                return Ok(false);
            }
            at = at.saturating_add(bytes.len() as u64);
            crc = crc32c::crc32c_append(crc, bytes);
        }
        Ok(crc == batch.header.crc)
    }

    /// What is held of the file from `position` on, at least `least` bytes unless the file ends before.
    fn hold(&mut self, position: u64, least: usize) -> io::Result<&[u8]> {
        let skip = position.checked_sub(self.held_from).and_then(|skip| usize::try_from(skip).ok()).filter(|skip| *skip <= self.held);
        let skip = match skip.filter(|skip| self.held.saturating_sub(*skip) >= least) {
            Some(skip) => skip,
            None => {
                (self.held_from, self.held) = (position, 0);
                while self.held < least {
                    let room = self.buf.get_mut(self.held..).unwrap_or_default();
                    let n = self.file.read_at(room, position.saturating_add(self.held as u64))?;
                    if n == 0 {
                        break;
                    }
                    self.held = self.held.saturating_add(n);
                }
                0
            }
        };
        Ok(self.buf.get(skip..self.held).unwrap_or_default())
    }
}

/// Whether a message of Kafka's magic 0 or 1 lies here, by its CRC-32: a batch that's torn behind its length looks like one otherwise.
pub fn is_old_message(file: &dyn DiskFile, position: u64, end: u64) -> io::Result<bool> {
    /// Offset and size; the size counts what follows.
    const BEFORE_CRC: u64 = 12;
    let body = position.saturating_add(BEFORE_CRC).saturating_add(4);
    let mut head = [0; 16];
    if body > end {
        return Ok(false);
    }
    super::io::read_exact_at(file, &mut head, position)?;
    let [_, _, _, _, _, _, _, _, s0, s1, s2, s3, c0, c1, c2, c3] = head;
    let size = u64::try_from(i32::from_be_bytes([s0, s1, s2, s3])).unwrap_or(0);
    let message_end = position.saturating_add(BEFORE_CRC).saturating_add(size);
    if message_end <= body || message_end > end {
        return Ok(false);
    }
    let (mut crc, mut at, mut buf) = (flate2::Crc::new(), body, [0; 4096]);
    while at < message_end {
        let want = usize::try_from(message_end.saturating_sub(at)).unwrap_or(usize::MAX).min(buf.len());
        let bytes = buf.get_mut(..want).unwrap_or_default();
        super::io::read_exact_at(file, bytes, at)?;
        crc.update(bytes);
        at = at.saturating_add(want as u64);
    }
    Ok(crc.sum() == u32::from_be_bytes([c0, c1, c2, c3]))
}

/// The bytes of one batch.
pub fn read_batch(file: &dyn DiskFile, batch: &Found) -> io::Result<Vec<u8>> {
    let size = usize::try_from(batch.size).map_err(|_| io::ErrorKind::InvalidData)?;
    let mut bytes = vec![0; size];
    super::io::read_exact_at(file, &mut bytes, batch.position)?;
    Ok(bytes)
}
