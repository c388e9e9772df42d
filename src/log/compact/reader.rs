//! Reads a segment batch by batch through one buffer, which grows only for a batch that is larger than it. Every batch is checked by its
//! CRC: what is broken must not get a new one.

use super::super::{
    io::DiskFile,
    scan::{Bad, Found, WalkError},
};
use crate::record::{
    BatchHeader, HEADER_BYTES,
    header::{MAGIC, batch_crc},
};
use std::io;

/// No batch is larger: a request isn't, by far.
const BATCH_BYTES_MAX: u64 = 256 << 20;

/// Whole batches of `position..end` of a file.
pub struct Batches<'a> {
    file: &'a dyn DiskFile,
    buf: &'a mut Vec<u8>,
    /// What `buf` holds of the file: from here, so many bytes.
    held_from: u64,
    held: usize,
    position: u64,
    end: u64,
    buffer_bytes: usize,
}

impl<'a> Batches<'a> {
    /// `position` is a batch's start, `end` a batch's end.
    pub fn new(file: &'a dyn DiskFile, position: u64, end: u64, buf: &'a mut Vec<u8>, buffer_bytes: usize) -> Self {
        Self { file, buf, held_from: 0, held: 0, position, end, buffer_bytes: buffer_bytes.max(HEADER_BYTES) }
    }

    /// The next batch and its bytes; `None` at the end.
    pub fn next_batch(&mut self) -> Result<Option<(Found, &[u8])>, WalkError> {
        let position = self.position;
        let bad = |what| Err(WalkError::Bad { position, what });
        let left = self.end.saturating_sub(position);
        if left == 0 {
            return Ok(None);
        }
        let Some(header) = BatchHeader::parse(self.hold(HEADER_BYTES)?) else { return bad(Bad::Torn) };
        let size = header.size().filter(|_| header.magic == MAGIC && header.last_offset_delta >= 0 && header.base_offset.0 >= 0);
        let Some(size) = size else { return bad(Bad::Header) };
        if size as u64 > left.min(BATCH_BYTES_MAX) {
            return bad(Bad::Torn);
        }
        let Some(batch) = self.hold(size)?.get(..size) else { return bad(Bad::Torn) };
        if batch_crc(batch) != header.crc {
            return bad(Bad::Crc);
        }
        self.position = position.saturating_add(size as u64);
        let skip = usize::try_from(position.saturating_sub(self.held_from)).unwrap_or(usize::MAX);
        let batch = self.buf.get(skip..).and_then(|rest| rest.get(..size)).unwrap_or_default();
        Ok(Some((Found { header, position, size: size as u64 }, batch)))
    }

    /// What is held of the file from the position on: at least `least` bytes unless the range ends before.
    fn hold(&mut self, least: usize) -> io::Result<&[u8]> {
        let skip = self.position.checked_sub(self.held_from).and_then(|skip| usize::try_from(skip).ok()).filter(|skip| *skip <= self.held);
        let skip = match skip {
            Some(skip) if self.held.saturating_sub(skip) >= least => skip,
            skip => {
                let kept = skip.map_or(0..0, |skip| skip..self.held);
                self.held = kept.len();
                self.buf.copy_within(kept, 0);
                self.held_from = self.position;
                self.buf.resize(least.max(self.buffer_bytes), 0);
                self.fill(least)?;
                0
            }
        };
        Ok(self.buf.get(skip..self.held).unwrap_or_default())
    }

    fn fill(&mut self, least: usize) -> io::Result<()> {
        while self.held < least {
            let at = self.held_from.saturating_add(self.held as u64);
            let left = usize::try_from(self.end.saturating_sub(at)).unwrap_or(usize::MAX);
            let room = self.buf.get_mut(self.held..).unwrap_or_default();
            let room_len = room.len().min(left);
            let n = self.file.read_at(room.get_mut(..room_len).unwrap_or_default(), at)?;
            if n == 0 {
                break;
            }
            self.held = self.held.saturating_add(n);
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{
        log::io::{Disk, OpenMode, sim::SimDisk},
        record::BatchBuilder,
        types::{Millis, Offset},
    };
    use std::path::Path;

    fn file(bytes: &[u8]) -> std::sync::Arc<dyn DiskFile> {
        let disk = SimDisk::new(1);
        let file = disk.open(Path::new("/f"), OpenMode::Create);
        let file = file.or_else(|_| {
            disk.create_dir_all(Path::new("/d"))?;
            disk.open(Path::new("/d/f"), OpenMode::Create)
        });
        let file = file.unwrap();
        file.write_at(&[io::IoSlice::new(bytes)], 0).unwrap();
        file
    }

    fn batch(offset: i64, value: usize) -> Vec<u8> {
        BatchBuilder::default().base_offset(Offset(offset)).record(Millis(1), None, Some(&vec![7; value])).build().unwrap().to_vec()
    }

    proptest::proptest! {
        #[test]
        fn every_batch_comes_whole_whatever_the_buffer(sizes in proptest::collection::vec(0usize..900, 0..20), buffer in 0usize..1_000, from in 0usize..5) {
            let all: Vec<_> = sizes.iter().enumerate().map(|(i, size)| batch(i as i64, *size)).collect();
            let from = from.min(all.len());
            let bytes = all.concat();
            let start = all[..from].iter().map(Vec::len).sum::<usize>() as u64;
            let file = file(&bytes);
            let mut buf = Vec::new();
            let mut batches = Batches::new(&*file, start, bytes.len() as u64, &mut buf, buffer);
            let mut at = start;
            for expected in &all[from..] {
                let (found, bytes) = batches.next_batch().unwrap().unwrap();
                proptest::prop_assert_eq!(bytes, &expected[..]);
                proptest::prop_assert_eq!((found.position, found.size), (at, expected.len() as u64));
                at += expected.len() as u64;
            }
            proptest::prop_assert!(batches.next_batch().unwrap().is_none());
            proptest::prop_assert!(buf.len() <= buffer.max(1_000));
        }
    }

    #[test]
    fn what_is_broken_is_told() {
        let good = batch(0, 50);
        let check = |bytes: &[u8]| {
            let (file, mut buf) = (file(bytes), Vec::new());
            let mut batches = Batches::new(&*file, 0, bytes.len() as u64, &mut buf, 64);
            match batches.next_batch() {
                Err(WalkError::Bad { what, .. }) => what,
                _ => panic!("taken"),
            }
        };
        let mut turned = good.clone();
        turned[90] ^= 1;
        assert_eq!(check(&turned), Bad::Crc);
        assert_eq!(check(&good[..good.len() - 1]), Bad::Torn);
        assert_eq!(check(&good[..30]), Bad::Torn);
        let mut negative = good.clone();
        negative[8] = 0xff;
        assert_eq!(check(&negative), Bad::Header);
    }
}
