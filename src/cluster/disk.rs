//! A disk in memory for this module's tests: it can fail at any operation, half-way through a write, and can lose what wasn't synced.

use crate::log::io::{Disk, DiskFile, DiskLock, Entry, OpenMode};
use std::{
    collections::BTreeMap,
    io,
    os::fd::BorrowedFd,
    path::{Path, PathBuf},
    sync::{Arc, Mutex, MutexGuard},
};

type Content = Arc<Mutex<Vec<u8>>>;

#[derive(Default)]
struct State {
    /// What processes see.
    files: BTreeMap<PathBuf, Content>,
    /// What survives a power loss: names as of the last sync of their directory, contents as of the last sync of the file.
    durable_names: BTreeMap<PathBuf, Content>,
    durable: Vec<(Content, Vec<u8>)>,
    /// Mutations left before everything fails; `None` for never.
    left: Option<usize>,
}

impl State {
    fn durable_of(&self, content: &Content) -> Vec<u8> {
        self.durable.iter().rev().find(|(of, _)| Arc::ptr_eq(of, content)).map(|(_, bytes)| bytes.clone()).unwrap_or_default()
    }

    /// Counts one mutation; false once the disk has failed, and `Some(true)` for the one that fails half-way.
    fn spend(&mut self) -> Result<(), bool> {
        match &mut self.left {
            None => Ok(()),
            Some(0) => Err(false),
            Some(1) => {
                self.left = Some(0);
                Err(true)
            }
            Some(left) => {
                *left -= 1;
                Ok(())
            }
        }
    }
}

fn failed() -> io::Error {
    io::Error::other("the disk failed")
}

#[derive(Clone, Default)]
pub struct MemoryDisk(Arc<Mutex<State>>);

struct MemoryFile {
    disk: MemoryDisk,
    content: Content,
}

struct NoLock;
impl DiskLock for NoLock {}

impl MemoryDisk {
    /// Fails from the `n`th mutation on; that one is done half-way if it is a write.
    pub fn fail_after(&self, n: usize) {
        self.state().left = Some(n);
    }

    pub fn has_failed(&self) -> bool {
        self.state().left == Some(0)
    }

    /// The disk as a process that starts anew finds it.
    pub fn after_kill(&self) -> Self {
        let state = self.state();
        let copy = |content: &Content| Arc::new(Mutex::new(content.lock().unwrap().clone()));
        Self::with(state.files.iter().map(|(path, content)| (path.clone(), copy(content))).collect())
    }

    /// The disk as it is after a power loss that took all that was not synced.
    pub fn after_power_loss(&self) -> Self {
        let state = self.state();
        let copy = |content: &Content| Arc::new(Mutex::new(state.durable_of(content)));
        Self::with(state.durable_names.iter().map(|(path, content)| (path.clone(), copy(content))).collect())
    }

    fn with(files: BTreeMap<PathBuf, Content>) -> Self {
        let durable = files.values().map(|content| (content.clone(), content.lock().unwrap().clone())).collect();
        Self(Arc::new(Mutex::new(State { durable_names: files.clone(), files, durable, left: None })))
    }

    pub fn overwrite(&self, path: &Path, change: impl FnOnce(&mut Vec<u8>)) {
        let state = self.state();
        change(&mut state.files.get(path).unwrap().lock().unwrap());
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.0.lock().unwrap()
    }

    fn mutate<T>(&self, change: impl FnOnce(&mut State) -> io::Result<T>) -> io::Result<T> {
        let mut state = self.state();
        state.spend().map_err(|_| failed())?;
        change(&mut state)
    }
}

impl Disk for MemoryDisk {
    fn open(&self, path: &Path, mode: OpenMode) -> io::Result<Arc<dyn DiskFile>> {
        let mut state = self.state();
        if mode == OpenMode::Create && !state.files.contains_key(path) {
            state.spend().map_err(|_| failed())?;
            state.files.insert(path.to_owned(), Content::default());
        }
        let content = state.files.get(path).cloned().ok_or(io::ErrorKind::NotFound)?;
        Ok(Arc::new(MemoryFile { disk: self.clone(), content }))
    }

    fn read(&self, path: &Path) -> io::Result<Vec<u8>> {
        Ok(self.state().files.get(path).ok_or(io::ErrorKind::NotFound)?.lock().unwrap().clone())
    }

    fn list(&self, dir: &Path) -> io::Result<Vec<Entry>> {
        let name = |path: &PathBuf| path.file_name().unwrap().to_str().unwrap().to_owned();
        let in_dir = |path: &&PathBuf| path.parent() == Some(dir);
        Ok(self.state().files.keys().filter(in_dir).map(|path| Entry { name: name(path), is_dir: false }).collect())
    }

    fn exists(&self, path: &Path) -> bool {
        self.state().files.contains_key(path)
    }

    fn create_dir_all(&self, _: &Path) -> io::Result<()> {
        self.mutate(|_| Ok(()))
    }

    fn rename(&self, from: &Path, to: &Path) -> io::Result<()> {
        self.mutate(|state| {
            let content = state.files.remove(from).ok_or(io::ErrorKind::NotFound)?;
            state.files.insert(to.to_owned(), content);
            Ok(())
        })
    }

    fn remove_file(&self, path: &Path) -> io::Result<()> {
        self.mutate(|state| state.files.remove(path).map(drop).ok_or(io::ErrorKind::NotFound.into()))
    }

    fn remove_dir_all(&self, dir: &Path) -> io::Result<()> {
        self.mutate(|state| {
            state.files.retain(|path, _| !path.starts_with(dir));
            Ok(())
        })
    }

    fn sync_dir(&self, dir: &Path) -> io::Result<()> {
        self.mutate(|state| {
            state.durable_names.retain(|path, _| path.parent() != Some(dir));
            let here = state.files.iter().filter(|(path, _)| path.parent() == Some(dir));
            let here: Vec<_> = here.map(|(path, content)| (path.clone(), content.clone())).collect();
            state.durable_names.extend(here);
            Ok(())
        })
    }

    fn total_bytes(&self, _: &Path) -> io::Result<u64> {
        Ok(u64::MAX)
    }

    fn free_bytes(&self, _: &Path) -> io::Result<u64> {
        Ok(u64::MAX)
    }

    fn lock(&self, _: &Path) -> io::Result<Box<dyn DiskLock>> {
        Ok(Box::new(NoLock))
    }
}

impl DiskFile for MemoryFile {
    fn read_at(&self, buf: &mut [u8], position: u64) -> io::Result<usize> {
        let content = self.content.lock().unwrap();
        let rest = content.get(position as usize..).unwrap_or_default();
        let n = rest.len().min(buf.len());
        buf[..n].copy_from_slice(&rest[..n]);
        Ok(n)
    }

    fn write_at(&self, parts: &[io::IoSlice<'_>], position: u64) -> io::Result<()> {
        let bytes: Vec<u8> = parts.iter().flat_map(|part| part.iter().copied()).collect();
        let spent = self.disk.state().spend();
        let written = match spent {
            Ok(()) => &bytes[..],
            Err(true) => &bytes[..bytes.len() / 2],
            Err(false) => return Err(failed()),
        };
        let mut content = self.content.lock().unwrap();
        let end = position as usize + written.len();
        if content.len() < end {
            content.resize(end, 0);
        }
        content[position as usize..end].copy_from_slice(written);
        spent.map_err(|_| failed())
    }

    fn len(&self) -> io::Result<u64> {
        Ok(self.content.lock().unwrap().len() as u64)
    }

    fn set_len(&self, len: u64) -> io::Result<()> {
        self.disk.mutate(|_| {
            self.content.lock().unwrap().resize(len as usize, 0);
            Ok(())
        })
    }

    fn allocate(&self, _: u64) -> io::Result<()> {
        Ok(())
    }

    fn sync(&self) -> io::Result<()> {
        self.disk.mutate(|state| {
            let bytes = self.content.lock().unwrap().clone();
            state.durable.push((self.content.clone(), bytes));
            Ok(())
        })
    }

    fn fd(&self) -> Option<BorrowedFd<'_>> {
        None
    }
}
