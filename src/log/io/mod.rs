//! The Disk trait: every file operation of the broker goes through it, so that a simulated disk can lose, tear and refuse them.
//!
//! Calls block. Positional reads and writes share a file without a lock or a cursor.

mod atomic;
mod memory;
mod real;
#[cfg(test)]
pub mod sim;

pub use atomic::write_atomically;
pub use memory::MemoryFile;
pub use real::RealDisk;

use crate::types::Millis;
use std::{
    io,
    os::fd::BorrowedFd,
    path::{Path, PathBuf},
    sync::Arc,
};

/// How a file is opened.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum OpenMode {
    /// For reading; it must exist.
    Read,
    /// For reading and writing; it must exist.
    Write,
    /// For reading and writing; made if it isn't there, kept as it is if it is.
    Create,
}

/// What a directory holds.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub struct Entry {
    pub name: String,
    pub is_dir: bool,
}

/// Makes a whole file system durable; false if that can't be done in one go, and nothing was.
pub type SyncAll = Arc<dyn Fn() -> io::Result<bool> + Send + Sync>;

/// A file system. Names that are not UTF-8 are left out of listings: the broker makes none.
pub trait Disk: Send + Sync {
    fn open(&self, path: &Path, mode: OpenMode) -> io::Result<Arc<dyn DiskFile>>;
    /// The whole of a small file.
    fn read(&self, path: &Path) -> io::Result<Vec<u8>>;
    /// The entries of a directory, sorted by name.
    fn list(&self, dir: &Path) -> io::Result<Vec<Entry>>;
    fn exists(&self, path: &Path) -> bool;
    fn create_dir_all(&self, dir: &Path) -> io::Result<()>;
    /// Replaces `to` if it is there; durable once the directory is synced.
    fn rename(&self, from: &Path, to: &Path) -> io::Result<()>;
    fn remove_file(&self, path: &Path) -> io::Result<()>;
    fn remove_dir_all(&self, dir: &Path) -> io::Result<()>;
    /// Makes creations, renames and removals in `dir` durable.
    fn sync_dir(&self, dir: &Path) -> io::Result<()>;
    /// Makes everything durable that was written on the file system of `dir`, in one go; false if this disk can't, and nothing was done.
    fn sync_all(&self, dir: &Path) -> io::Result<bool> {
        let _ = dir;
        Ok(false)
    }
    /// [`Disk::sync_all`] of `dir` for many calls: it fails if any write of the file system has failed since the call before, or since this
    /// was made.
    fn open_sync_all(&self, dir: &Path) -> io::Result<SyncAll> {
        let _ = dir;
        Ok(Arc::new(|| Ok(false)))
    }
    /// Bytes that this process may still write on the file system of `dir`.
    fn free_bytes(&self, dir: &Path) -> io::Result<u64>;
    /// The size of the file system of `dir`, in bytes.
    fn total_bytes(&self, dir: &Path) -> io::Result<u64>;
    /// An exclusive lock on a file (made if need be), held until the value drops or the process ends; `WouldBlock` if another holds it.
    fn lock(&self, path: &Path) -> io::Result<Box<dyn DiskLock>>;
}

/// One open file.
pub trait DiskFile: Send + Sync {
    /// Reads up to `buf.len()` bytes from `position`; 0 only at the end of the file.
    fn read_at(&self, buf: &mut [u8], position: u64) -> io::Result<usize>;
    /// Writes all parts one after the other from `position`, or fails (having written any part of them).
    fn write_at(&self, parts: &[io::IoSlice<'_>], position: u64) -> io::Result<()>;
    fn len(&self) -> io::Result<u64>;
    fn is_empty(&self) -> io::Result<bool> {
        Ok(self.len()? == 0)
    }
    /// When it was last written to, if the disk knows.
    fn modified(&self) -> io::Result<Option<Millis>> {
        Ok(None)
    }
    /// Cuts or extends (with zeros) to `len`.
    fn set_len(&self, len: u64) -> io::Result<()>;
    /// Reserves room, so that later writes up to `len` find it.
    fn allocate(&self, len: u64) -> io::Result<()>;
    /// Makes the contents durable (fdatasync).
    fn sync(&self) -> io::Result<()>;
    /// For `sendfile`; `None` on a disk that has no descriptors.
    fn fd(&self) -> Option<BorrowedFd<'_>>;
}

/// Held while a data directory is in use.
pub trait DiskLock: Send + Sync {}

/// Reads exactly `buf.len()` bytes; `UnexpectedEof` if the file ends before.
pub fn read_exact_at(file: &dyn DiskFile, mut buf: &mut [u8], mut position: u64) -> io::Result<()> {
    while !buf.is_empty() {
        let n = file.read_at(buf, position)?;
        if n == 0 {
            return Err(io::ErrorKind::UnexpectedEof.into());
        }
        let rest = buf;
        buf = rest.get_mut(n..).unwrap_or_default();
        position = position.saturating_add(n as u64);
    }
    Ok(())
}

/// Puts the path in front of an I/O error's text: an operator must know which file it was.
pub fn name_path(path: &Path, error: io::Error) -> io::Error {
    io::Error::new(error.kind(), PathError { path: path.to_owned(), error })
}

/// Whether a call was refused for lack of something that comes back: room on the disk, of a quota, or descriptors. Nothing is wrong with
/// the disk then, and the call may be tried again.
pub fn is_out_of_room(error: &io::Error) -> bool {
    matches!(error.kind(), io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded) || is_out_of_descriptors(error)
}

/// Whether a call was refused because too many files are open.
pub fn is_out_of_descriptors(error: &io::Error) -> bool {
    // Paths may have been put before it more than once.
    let mut error = error;
    while let Some(inner) = error.get_ref().and_then(|inner| inner.downcast_ref::<PathError>()) {
        error = &inner.error;
    }
    let descriptors = [rustix::io::Errno::MFILE, rustix::io::Errno::NFILE].map(rustix::io::Errno::raw_os_error);
    error.raw_os_error().is_some_and(|code| descriptors.contains(&code))
}

#[derive(Debug, thiserror::Error)]
#[error("{}: {error}", path.display())]
struct PathError {
    path: PathBuf,
    error: io::Error,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_missing_is_known_however_often_a_path_was_named() {
        let errno = |code: rustix::io::Errno| io::Error::from_raw_os_error(code.raw_os_error());
        for (error, descriptors, room) in [
            (rustix::io::Errno::MFILE, true, true),
            (rustix::io::Errno::NFILE, true, true),
            (rustix::io::Errno::NOSPC, false, true),
            (rustix::io::Errno::DQUOT, false, true),
            (rustix::io::Errno::IO, false, false),
        ] {
            let mut named = errno(error);
            for times in 0..4 {
                assert_eq!((is_out_of_descriptors(&named), is_out_of_room(&named)), (descriptors, room), "{named}, {times} paths");
                named = name_path(Path::new("x"), named);
            }
        }
    }
}
