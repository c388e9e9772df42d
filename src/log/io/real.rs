//! The operating system's files.

use super::{Disk, DiskFile, DiskLock, Entry, OpenMode, SyncAll, name_path};
use crate::types::Millis;
use rustix::fs::{FallocateFlags, FlockOperation};
use std::{
    fs::{self, File, OpenOptions},
    io,
    os::{
        fd::{AsFd, BorrowedFd},
        unix::fs::FileExt,
    },
    path::Path,
    sync::Arc,
    time::UNIX_EPOCH,
};

/// Files as the operating system has them.
#[derive(Clone, Copy, Debug, Default)]
pub struct RealDisk;

struct RealFile(File);

struct RealLock(#[expect(dead_code, reason = "the lock lives as long as the descriptor is open")] File);

impl DiskLock for RealLock {}

impl Disk for RealDisk {
    fn open(&self, path: &Path, mode: OpenMode) -> io::Result<Arc<dyn DiskFile>> {
        let mut options = OpenOptions::new();
        options.read(true).write(mode != OpenMode::Read).create(mode == OpenMode::Create);
        let file = options.open(path).map_err(|e| name_path(path, e))?;
        Ok(Arc::new(RealFile(file)))
    }

    fn read(&self, path: &Path) -> io::Result<Vec<u8>> {
        fs::read(path).map_err(|e| name_path(path, e))
    }

    fn list(&self, dir: &Path) -> io::Result<Vec<Entry>> {
        let read = || {
            let mut entries = Vec::new();
            for entry in fs::read_dir(dir)? {
                let entry = entry?;
                if let Ok(name) = entry.file_name().into_string() {
                    // A link to a directory is one: operators put partitions elsewhere that way.
                    entries.push(Entry { name, is_dir: fs::metadata(entry.path()).is_ok_and(|m| m.is_dir()) });
                }
            }
            entries.sort();
            Ok(entries)
        };
        read().map_err(|e| name_path(dir, e))
    }

    fn exists(&self, path: &Path) -> bool {
        path.exists()
    }

    fn create_dir_all(&self, dir: &Path) -> io::Result<()> {
        fs::create_dir_all(dir).map_err(|e| name_path(dir, e))
    }

    fn rename(&self, from: &Path, to: &Path) -> io::Result<()> {
        fs::rename(from, to).map_err(|e| name_path(from, e))
    }

    fn remove_file(&self, path: &Path) -> io::Result<()> {
        fs::remove_file(path).map_err(|e| name_path(path, e))
    }

    fn remove_dir_all(&self, dir: &Path) -> io::Result<()> {
        fs::remove_dir_all(dir).map_err(|e| name_path(dir, e))
    }

    fn sync_dir(&self, dir: &Path) -> io::Result<()> {
        let dir = if dir.as_os_str().is_empty() { Path::new(".") } else { dir };
        File::open(dir).and_then(|d| d.sync_all()).map_err(|e| name_path(dir, e))
    }

    fn sync_all(&self, dir: &Path) -> io::Result<bool> {
        let synced = || {
            let dir = File::open(dir)?;
            rustix::fs::syncfs(&dir)?;
            Ok(true)
        };
        synced().map_err(|e| name_path(dir, e))
    }

    fn open_sync_all(&self, dir: &Path) -> io::Result<SyncAll> {
        let file = File::open(dir).map_err(|e| name_path(dir, e))?;
        Ok(Arc::new(move || Ok(rustix::fs::syncfs(&file).map(|()| true)?)))
    }

    fn free_bytes(&self, dir: &Path) -> io::Result<u64> {
        let stat = rustix::fs::statvfs(dir).map_err(|e| name_path(dir, e.into()))?;
        Ok(stat.f_bavail.saturating_mul(stat.f_frsize))
    }

    fn total_bytes(&self, dir: &Path) -> io::Result<u64> {
        let stat = rustix::fs::statvfs(dir).map_err(|e| name_path(dir, e.into()))?;
        Ok(stat.f_blocks.saturating_mul(stat.f_frsize))
    }

    fn lock(&self, path: &Path) -> io::Result<Box<dyn DiskLock>> {
        let file = OpenOptions::new().read(true).write(true).create(true).truncate(false).open(path).map_err(|e| name_path(path, e))?;
        rustix::fs::flock(&file, FlockOperation::NonBlockingLockExclusive).map_err(|e| name_path(path, e.into()))?;
        Ok(Box::new(RealLock(file)))
    }
}

impl DiskFile for RealFile {
    fn read_at(&self, buf: &mut [u8], position: u64) -> io::Result<usize> {
        loop {
            match self.0.read_at(buf, position) {
                Err(e) if e.kind() == io::ErrorKind::Interrupted => {}
                done => return done,
            }
        }
    }

    fn write_at(&self, parts: &[io::IoSlice<'_>], mut position: u64) -> io::Result<()> {
        let bytes = parts.iter().map(|part| part.len()).sum::<usize>();
        let done = match rustix::io::pwritev(&self.0, parts, position) {
            Ok(n) if n == bytes => return Ok(()),
            Ok(n) => n,
            Err(rustix::io::Errno::INTR) => 0,
            Err(e) => return Err(e.into()),
        };
        // Rare: the disk is nearly full or a signal came.
        let mut parts = parts.to_vec();
        let mut rest = &mut parts[..];
        position = position.saturating_add(done as u64);
        io::IoSlice::advance_slices(&mut rest, done);
        while !rest.is_empty() {
            match rustix::io::pwritev(&self.0, rest, position) {
                Ok(0) => return Err(io::ErrorKind::WriteZero.into()),
                Ok(n) => {
                    position = position.saturating_add(n as u64);
                    io::IoSlice::advance_slices(&mut rest, n);
                }
                Err(rustix::io::Errno::INTR) => {}
                Err(e) => return Err(e.into()),
            }
        }
        Ok(())
    }

    fn len(&self) -> io::Result<u64> {
        Ok(self.0.metadata()?.len())
    }

    fn modified(&self) -> io::Result<Option<Millis>> {
        let since = self.0.metadata()?.modified()?.duration_since(UNIX_EPOCH).unwrap_or_default();
        Ok(i64::try_from(since.as_millis()).ok().map(Millis))
    }

    fn set_len(&self, len: u64) -> io::Result<()> {
        self.0.set_len(len)
    }

    fn allocate(&self, len: u64) -> io::Result<()> {
        rustix::fs::fallocate(&self.0, FallocateFlags::KEEP_SIZE, 0, len).map_err(Into::into)
    }

    fn sync(&self) -> io::Result<()> {
        self.0.sync_data()
    }

    fn fd(&self) -> Option<BorrowedFd<'_>> {
        Some(self.0.as_fd())
    }
}
