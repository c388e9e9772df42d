//! A file's bytes in memory, for who reads them as if they still were in the file.

use super::DiskFile;
use std::{io, os::fd::BorrowedFd};

/// Bytes that were read from a file. Never changes.
pub struct MemoryFile(pub Vec<u8>);

impl DiskFile for MemoryFile {
    fn read_at(&self, buf: &mut [u8], position: u64) -> io::Result<usize> {
        let rest = usize::try_from(position).ok().and_then(|from| self.0.get(from..)).unwrap_or_default();
        let n = rest.len().min(buf.len());
        buf.iter_mut().zip(rest).for_each(|(to, from)| *to = *from);
        Ok(n)
    }

    fn write_at(&self, _: &[io::IoSlice<'_>], _: u64) -> io::Result<()> {
        Err(io::ErrorKind::Unsupported.into())
    }

    fn len(&self) -> io::Result<u64> {
        Ok(self.0.len() as u64)
    }

    fn set_len(&self, _: u64) -> io::Result<()> {
        Err(io::ErrorKind::Unsupported.into())
    }

    fn allocate(&self, _: u64) -> io::Result<()> {
        Err(io::ErrorKind::Unsupported.into())
    }

    fn sync(&self) -> io::Result<()> {
        Ok(())
    }

    fn fd(&self) -> Option<BorrowedFd<'_>> {
        None
    }
}
