//! A disk in memory that loses what was not synced. For tests.
//!
//! Fault model:
//! - *Process crash* ([`SimDisk::process_crash`]): every completed call stays, locks go.
//! - *Power loss* ([`SimDisk::power_loss`]): what was synced stays. Of the writes to a file since its last sync any may be there, in any
//!   combination, and one may be there in part; bytes between read as zeros. Of the creations, renames and removals in a
//!   directory since its last sync a prefix is there; a file whose directory entry isn't durable is gone, synced or not.
//! - *Failure* ([`SimDisk::fail_after`]): a changing call fails, a write perhaps after having written a part.
//! - *No room* ([`SimDisk::set_room`]): a write that would make the files larger than the disk fails, having written what there was room for.
//! - *A broken directory* ([`SimDisk::break_below`]): every changing call below it fails.
//!
//! The same seed and the same calls give the same outcome.

use crate::sim::Random;

use super::{Disk, DiskFile, DiskLock, Entry, OpenMode, SyncAll, name_path};
use parking_lot::Mutex;
use std::{
    collections::{BTreeMap, BTreeSet},
    io,
    os::fd::BorrowedFd,
    path::{Path, PathBuf},
    sync::Arc,
};

/// See the module. Clones share the disk.
#[derive(Clone, Default)]
pub struct SimDisk {
    state: Arc<Mutex<State>>,
}

/// `None` is a directory.
type Names = BTreeMap<PathBuf, Option<usize>>;

#[derive(Clone, Default)]
struct State {
    names: Names,
    /// The names that survive a power loss, and what is to be done to them, oldest first.
    durable_names: Names,
    pending: Vec<NameChange>,
    files: Vec<Contents>,
    locks: BTreeSet<PathBuf>,
    random: Random,
    /// Changing calls until one fails.
    fail_after: Option<u64>,
    /// Bytes that the files may still grow by; `None` is no bound.
    room: Option<u64>,
    broken: Option<PathBuf>,
    syncs: u64,
}

#[derive(Clone, Default)]
struct Contents {
    live: Vec<u8>,
    durable: Vec<u8>,
    /// Since the last sync, oldest first.
    pending: Vec<Change>,
}

#[derive(Clone)]
enum Change {
    Write(u64, Vec<u8>),
    SetLen(u64),
}

#[derive(Clone)]
enum NameChange {
    Create(PathBuf, Option<usize>),
    Rename(PathBuf, PathBuf),
    Remove(PathBuf),
}

impl NameChange {
    fn is_in(&self, dir: &Path) -> bool {
        match self {
            Self::Create(path, _) | Self::Remove(path) => path.parent() == Some(dir),
            Self::Rename(from, to) => from.parent() == Some(dir) || to.parent() == Some(dir),
        }
    }

    fn is_below(&self, dir: &Path) -> bool {
        let (Self::Create(path, _) | Self::Remove(path) | Self::Rename(path, _)) = self;
        path != dir && path.starts_with(dir)
    }

    fn move_below(&mut self, from: &Path, to: &Path) {
        let moved = |path: &mut PathBuf| {
            if let Ok(rest) = path.strip_prefix(from)
                && !rest.as_os_str().is_empty()
            {
                *path = to.join(rest);
            }
        };
        match self {
            Self::Create(path, _) | Self::Remove(path) => moved(path),
            Self::Rename(a, b) => [a, b].into_iter().for_each(moved),
        }
    }

    fn apply(&self, names: &mut Names) {
        // Paths are ordered by their components, so that all below one follow it.
        let below = |names: &Names, root: &Path| {
            let from_root = names.range(root.to_owned()..).map(|(path, _)| path);
            from_root.take_while(|path| path.starts_with(root)).cloned().collect::<Vec<_>>()
        };
        let remove_below = |names: &mut Names, root: &Path| {
            below(names, root).iter().for_each(|path| _ = names.remove(path));
        };
        match self {
            Self::Create(path, node) => {
                names.insert(path.clone(), *node);
            }
            Self::Rename(from, to) => {
                if names.contains_key(from) {
                    remove_below(names, to);
                }
                for path in below(names, from) {
                    let moved = path.strip_prefix(from).map(|rest| if rest.as_os_str().is_empty() { to.clone() } else { to.join(rest) });
                    if let (Ok(moved), Some(node)) = (moved, names.remove(&path)) {
                        names.insert(moved, node);
                    }
                }
            }
            Self::Remove(path) => remove_below(names, path),
        }
    }
}

impl Change {
    fn apply(&self, contents: &mut Vec<u8>) {
        match self {
            Self::SetLen(len) => contents.resize(*len as usize, 0),
            Self::Write(position, bytes) => {
                let (from, to) = (*position as usize, *position as usize + bytes.len());
                if contents.len() < to {
                    contents.resize(to, 0);
                }
                contents[from..to].copy_from_slice(bytes);
            }
        }
    }
}

impl SimDisk {
    pub fn new(seed: u64) -> Self {
        let state = State { random: Random::new(seed), ..State::default() };
        Self { state: Arc::new(Mutex::new(state)) }
    }

    /// The disk as the next process finds it after this one was killed. Open files go on in a world of their own.
    pub fn process_crash(&self) -> Self {
        let mut state = self.state.lock().clone();
        state.locks.clear();
        state.fail_after = None;
        state.drop_nameless();
        Self { state: Arc::new(Mutex::new(state)) }
    }

    /// The disk after a power loss.
    pub fn power_loss(&self) -> Self {
        let mut state = self.state.lock().clone();
        state.locks.clear();
        state.fail_after = None;
        let kept = state.random.below(state.pending.len() as u64 + 1) as usize;
        let mut names = std::mem::take(&mut state.durable_names);
        state.pending.drain(..).take(kept).for_each(|change| change.apply(&mut names));
        let reachable = |names: &Names, path: &Path| {
            path.ancestors().skip(1).all(|a| a.as_os_str().is_empty() || names.contains_key(a) || a == Path::new("/"))
        };
        let all = names.clone();
        names.retain(|path, _| reachable(&all, path));
        for contents in &mut state.files {
            contents.lose(&mut state.random);
        }
        (state.names, state.durable_names) = (names.clone(), names);
        state.drop_nameless();
        Self { state: Arc::new(Mutex::new(state)) }
    }

    /// Of the changing calls from now on (writes, syncs, creations, renames, removals) the one after `calls` others fails, once.
    pub fn fail_after(&self, calls: u64) {
        self.state.lock().fail_after = Some(calls);
    }

    /// From now on all files together may grow by so many bytes; what shrinks or is removed gives its room back. `None` is no bound.
    pub fn set_room(&self, bytes: Option<u64>) {
        self.state.lock().room = bytes;
    }

    /// From now on every changing call below `dir` fails.
    pub fn break_below(&self, dir: &Path) {
        self.state.lock().broken = Some(dir.to_owned());
    }

    /// Whether a failure that was asked for is still to come.
    pub fn is_armed(&self) -> bool {
        self.state.lock().fail_after.is_some()
    }

    /// How many syncs of files there were.
    pub fn syncs(&self) -> u64 {
        self.state.lock().syncs
    }

    /// Changes a file's bytes behind everyone's back, durably.
    pub fn corrupt(&self, path: &Path, edit: impl FnOnce(&mut Vec<u8>)) {
        let mut state = self.state.lock();
        if let Some(Some(id)) = state.names.get(path).copied() {
            let contents = &mut state.files[id];
            edit(&mut contents.live);
            contents.durable = contents.live.clone();
            contents.pending.clear();
        }
    }
}

impl Contents {
    fn change(&mut self, change: Change) {
        change.apply(&mut self.live);
        self.pending.push(change);
    }

    fn sync(&mut self) {
        if !self.pending.is_empty() {
            self.durable.clone_from(&self.live);
            self.pending.clear();
        }
    }

    /// Each pending change is there or not; often a prefix of them is, as most disks have it. One write may be torn.
    fn lose(&mut self, random: &mut Random) {
        let pending = std::mem::take(&mut self.pending);
        let prefix = (!random.one_in(4)).then(|| random.below(pending.len() as u64 + 1) as usize);
        for (i, change) in pending.into_iter().enumerate() {
            let kept = prefix.map_or_else(|| random.one_in(2), |n| i < n);
            match change {
                Change::Write(position, mut bytes) if kept || prefix == Some(i) => {
                    if !kept || random.one_in(8) {
                        bytes.truncate(random.below(bytes.len() as u64 + 1) as usize);
                    }
                    Change::Write(position, bytes).apply(&mut self.durable);
                }
                change if kept => change.apply(&mut self.durable),
                _ => {}
            }
        }
        self.live = self.durable.clone();
    }
}

impl State {
    /// The next process finds no file that has no name, nor will have one.
    fn drop_nameless(&mut self) {
        let created = |change: &NameChange| if let NameChange::Create(_, node) = change { *node } else { None };
        let pending = self.pending.iter().filter_map(created);
        let named: BTreeSet<usize> = self.names.values().chain(self.durable_names.values()).copied().flatten().chain(pending).collect();
        let nameless = self.files.iter_mut().enumerate().filter(|(id, _)| !named.contains(id));
        nameless.for_each(|(_, contents)| *contents = Contents::default());
    }

    fn change_names(&mut self, change: NameChange) {
        change.apply(&mut self.names);
        // What is still to be done inside of a directory goes with it: another one may get its name.
        match &change {
            NameChange::Rename(from, to) => self.pending.iter_mut().for_each(|earlier| earlier.move_below(from, to)),
            NameChange::Remove(path) => self.pending.retain(|earlier| !earlier.is_below(path)),
            NameChange::Create(..) => {}
        }
        self.pending.push(change);
    }

    /// Counts a changing call; the error if this is the one to fail.
    fn count(&mut self) -> io::Result<()> {
        match self.fail_after {
            Some(0) => {
                self.fail_after = None;
                Err(io::Error::other("simulated failure"))
            }
            Some(n) => {
                self.fail_after = Some(n - 1);
                Ok(())
            }
            None => Ok(()),
        }
    }

    /// The error if `path` lies in a broken directory.
    fn check_broken(&self, path: &Path) -> io::Result<()> {
        match &self.broken {
            Some(dir) if path.starts_with(dir) => Err(io::Error::other("simulated failure of the directory")),
            _ => Ok(()),
        }
    }

    /// The same for an open file.
    fn check_broken_file(&self, id: usize) -> io::Result<()> {
        let Some(_) = &self.broken else { return Ok(()) };
        self.names.iter().filter(|(_, node)| **node == Some(id)).try_for_each(|(path, _)| self.check_broken(path))
    }

    /// Takes room for a file that grows to `len`, or gives back; how long it may be.
    fn take_room(&mut self, id: usize, len: u64) -> u64 {
        let old = self.files[id].live.len() as u64;
        let Some(room) = &mut self.room else { return len };
        let new = len.min(old + *room);
        *room = *room + old - new;
        new
    }

    fn not_found(path: &Path) -> io::Error {
        name_path(path, io::ErrorKind::NotFound.into())
    }
}

impl Disk for SimDisk {
    fn open(&self, path: &Path, mode: OpenMode) -> io::Result<Arc<dyn DiskFile>> {
        let mut state = self.state.lock();
        let id = match state.names.get(path).copied() {
            Some(Some(id)) => id,
            Some(None) => return Err(name_path(path, io::ErrorKind::IsADirectory.into())),
            None if mode == OpenMode::Create && path.parent().is_some_and(|dir| state.names.get(dir) == Some(&None)) => {
                state.check_broken(path)?;
                state.count()?;
                let id = state.files.len();
                state.files.push(Contents::default());
                state.change_names(NameChange::Create(path.to_owned(), Some(id)));
                id
            }
            None => return Err(State::not_found(path)),
        };
        Ok(Arc::new(SimFile { state: Arc::clone(&self.state), id }))
    }

    fn read(&self, path: &Path) -> io::Result<Vec<u8>> {
        let state = self.state.lock();
        let id = state.names.get(path).copied().flatten().ok_or_else(|| State::not_found(path))?;
        Ok(state.files[id].live.clone())
    }

    fn list(&self, dir: &Path) -> io::Result<Vec<Entry>> {
        let state = self.state.lock();
        if state.names.get(dir) != Some(&None) {
            return Err(State::not_found(dir));
        }
        let below = state.names.range(dir.to_owned()..).skip(1).take_while(|(path, _)| path.starts_with(dir));
        let inside = below.filter(|(path, _)| path.parent() == Some(dir));
        let entry =
            |(path, node): (&PathBuf, &Option<usize>)| Some(Entry { name: path.file_name()?.to_str()?.to_owned(), is_dir: node.is_none() });
        Ok(inside.filter_map(entry).collect())
    }

    fn exists(&self, path: &Path) -> bool {
        self.state.lock().names.contains_key(path)
    }

    fn create_dir_all(&self, dir: &Path) -> io::Result<()> {
        let mut state = self.state.lock();
        let mut missing: Vec<_> = dir.ancestors().filter(|d| !d.as_os_str().is_empty() && *d != Path::new("/")).collect();
        missing.retain(|d| !state.names.contains_key(*d));
        for dir in missing.into_iter().rev() {
            state.count()?;
            state.change_names(NameChange::Create(dir.to_owned(), None));
        }
        Ok(())
    }

    fn rename(&self, from: &Path, to: &Path) -> io::Result<()> {
        let mut state = self.state.lock();
        if !state.names.contains_key(from) {
            return Err(State::not_found(from));
        }
        state.count()?;
        state.change_names(NameChange::Rename(from.to_owned(), to.to_owned()));
        Ok(())
    }

    fn remove_file(&self, path: &Path) -> io::Result<()> {
        let mut state = self.state.lock();
        let Some(id) = state.names.get(path).copied().flatten() else { return Err(State::not_found(path)) };
        state.check_broken(path)?;
        state.count()?;
        state.take_room(id, 0);
        state.change_names(NameChange::Remove(path.to_owned()));
        Ok(())
    }

    fn remove_dir_all(&self, dir: &Path) -> io::Result<()> {
        let mut state = self.state.lock();
        if !state.names.contains_key(dir) {
            return Err(State::not_found(dir));
        }
        state.count()?;
        state.change_names(NameChange::Remove(dir.to_owned()));
        Ok(())
    }

    fn sync_dir(&self, dir: &Path) -> io::Result<()> {
        let mut state = self.state.lock();
        state.count()?;
        let mut names = std::mem::take(&mut state.durable_names);
        state.pending.retain(|change| {
            let done = change.is_in(dir);
            if done {
                change.apply(&mut names);
            }
            !done
        });
        state.durable_names = names;
        Ok(())
    }

    fn sync_all(&self, _dir: &Path) -> io::Result<bool> {
        let mut state = self.state.lock();
        state.count()?;
        if state.random.one_in(2) {
            return Ok(false);
        }
        state.files.iter_mut().for_each(Contents::sync);
        state.pending.clear();
        state.durable_names = state.names.clone();
        Ok(true)
    }

    fn open_sync_all(&self, dir: &Path) -> io::Result<SyncAll> {
        let (disk, dir) = (self.clone(), dir.to_owned());
        Ok(Arc::new(move || disk.sync_all(&dir)))
    }

    fn free_bytes(&self, _dir: &Path) -> io::Result<u64> {
        Ok(self.state.lock().room.unwrap_or(1 << 40))
    }

    fn total_bytes(&self, _dir: &Path) -> io::Result<u64> {
        Ok(1 << 40)
    }

    fn lock(&self, path: &Path) -> io::Result<Box<dyn DiskLock>> {
        drop(self.open(path, OpenMode::Create)?);
        if !self.state.lock().locks.insert(path.to_owned()) {
            return Err(name_path(path, io::ErrorKind::WouldBlock.into()));
        }
        Ok(Box::new(SimLock { state: Arc::clone(&self.state), path: path.to_owned() }))
    }
}

struct SimLock {
    state: Arc<Mutex<State>>,
    path: PathBuf,
}

impl DiskLock for SimLock {}

impl Drop for SimLock {
    fn drop(&mut self) {
        self.state.lock().locks.remove(&self.path);
    }
}

struct SimFile {
    state: Arc<Mutex<State>>,
    id: usize,
}

impl DiskFile for SimFile {
    fn read_at(&self, buf: &mut [u8], position: u64) -> io::Result<usize> {
        let state = self.state.lock();
        let from = state.files[self.id].live.get(position as usize..).unwrap_or_default();
        let n = from.len().min(buf.len());
        buf[..n].copy_from_slice(&from[..n]);
        Ok(n)
    }

    fn write_at(&self, parts: &[io::IoSlice<'_>], position: u64) -> io::Result<()> {
        let mut bytes = parts.iter().flat_map(|part| part.iter().copied()).collect::<Vec<_>>();
        let mut state = self.state.lock();
        state.check_broken_file(self.id)?;
        let mut failed = state.count();
        if failed.is_err() {
            bytes.truncate(state.random.below(bytes.len() as u64 + 1) as usize);
        }
        let end = (position + bytes.len() as u64).max(state.files[self.id].live.len() as u64);
        let fits = state.take_room(self.id, end);
        if fits < end {
            failed = Err(io::ErrorKind::StorageFull.into());
            bytes.truncate(fits.saturating_sub(position) as usize);
        }
        state.files[self.id].change(Change::Write(position, bytes));
        failed
    }

    fn len(&self) -> io::Result<u64> {
        Ok(self.state.lock().files[self.id].live.len() as u64)
    }

    fn set_len(&self, len: u64) -> io::Result<()> {
        let mut state = self.state.lock();
        state.check_broken_file(self.id)?;
        state.count()?;
        state.take_room(self.id, len);
        state.files[self.id].change(Change::SetLen(len));
        Ok(())
    }

    fn allocate(&self, _len: u64) -> io::Result<()> {
        Ok(())
    }

    fn sync(&self) -> io::Result<()> {
        let mut state = self.state.lock();
        state.check_broken_file(self.id)?;
        state.count()?;
        state.syncs += 1;
        state.files[self.id].sync();
        Ok(())
    }

    fn fd(&self) -> Option<BorrowedFd<'_>> {
        None
    }
}

mod tests {
    use super::*;

    fn write(disk: &SimDisk, path: &str, bytes: &[u8], position: u64) -> Arc<dyn DiskFile> {
        let file = disk.open(Path::new(path), OpenMode::Create).unwrap();
        file.write_at(&[io::IoSlice::new(bytes)], position).unwrap();
        file
    }

    #[test]
    fn a_power_loss_keeps_what_was_synced_and_nothing_that_was_never_written() {
        let mut seen = BTreeSet::new();
        for seed in 0..200 {
            let disk = SimDisk::new(seed);
            disk.create_dir_all(Path::new("/d")).unwrap();
            disk.sync_dir(Path::new("/")).unwrap();
            write(&disk, "/d/a", b"durable", 0).sync().unwrap();
            disk.sync_dir(Path::new("/d")).unwrap();
            write(&disk, "/d/a", b"+maybe", 7);
            write(&disk, "/d/new", b"x", 0).sync().unwrap();
            let disk = disk.power_loss();
            let bytes = disk.read(Path::new("/d/a")).unwrap();
            assert!(bytes.starts_with(b"durable") && b"durable+maybe".starts_with(&bytes), "{bytes:?}");
            seen.insert((bytes.len(), disk.exists(Path::new("/d/new"))));
        }
        assert!(seen.contains(&(7, false)) && seen.contains(&(13, true)) && seen.contains(&(10, true)), "{seen:?}");
    }

    #[test]
    fn a_failing_write_may_have_written_a_part_and_locks_exclude() {
        let disk = SimDisk::new(3);
        disk.create_dir_all(Path::new("/d")).unwrap();
        let file = write(&disk, "/d/a", b"12", 0);
        disk.fail_after(1);
        file.sync().unwrap();
        assert!(file.write_at(&[io::IoSlice::new(b"3456")], 2).is_err());
        assert!(b"123456".starts_with(&disk.read(Path::new("/d/a")).unwrap()));
        assert!(!disk.is_armed());
        let lock = disk.lock(Path::new("/d/.lock")).unwrap();
        assert_eq!(disk.lock(Path::new("/d/.lock")).err().unwrap().kind(), io::ErrorKind::WouldBlock);
        drop(lock);
        assert!(disk.lock(Path::new("/d/.lock")).is_ok());
    }
}
