//! How many segment files are open at once: bounded, however many segments are in use. The one that wasn't used for longest closes for the next
//! (second chance: what was used since it was last looked at is passed over), and opens again when it's needed.
//!
//! Using an open file costs what its own lock costs; the list of all is looked at only when a file is opened. A file that is being sent stays open
//! until that has ended, so the bound is one of the segments', not of all descriptors. What was written before a file closed is synced through
//! the next descriptor of it: Linux reports a failed write that nobody has seen yet to who opens the file next.

use super::io::{DiskFile, is_out_of_descriptors};
use parking_lot::{Mutex, MutexGuard};
use std::{
    collections::VecDeque,
    io,
    sync::{
        Arc, Weak,
        atomic::{AtomicBool, Ordering},
    },
};

type File = Option<Arc<dyn DiskFile>>;

/// All open segment files.
pub(super) struct OpenFiles {
    max: usize,
    ring: Mutex<Ring>,
}

#[derive(Default)]
struct Ring {
    /// Those that were opened, in the order in which they're looked at. Some have closed since.
    slots: VecDeque<Weak<Slot>>,
    /// So many entries begin a look for those that have.
    purged_at: usize,
}

struct Slot {
    file: Mutex<File>,
    /// Since the ring last came by.
    used: AtomicBool,
    /// In the ring.
    listed: AtomicBool,
    /// It can't be opened by its name again.
    pinned: AtomicBool,
    /// It was opened once, so that what it holds is the segment's.
    made: AtomicBool,
}

/// The file of one segment, open or not.
pub(super) struct SegmentFile {
    slot: Arc<Slot>,
    files: Arc<OpenFiles>,
}

/// Entries that are kept without a look.
const PURGED_AT_MIN: usize = 1024;

impl Default for OpenFiles {
    /// Without a bound.
    fn default() -> Self {
        Self::new(usize::MAX)
    }
}

impl OpenFiles {
    pub fn new(max: usize) -> Self {
        Self { max: max.max(1), ring: Mutex::default() }
    }

    fn list(&self, slot: &Arc<Slot>) {
        if slot.listed.swap(true, Ordering::AcqRel) {
            return;
        }
        let mut ring = self.ring.lock();
        ring.slots.push_back(Arc::downgrade(slot));
        if ring.slots.len() > ring.purged_at.max(PURGED_AT_MIN) {
            ring.slots.retain(|slot| slot.upgrade().is_some_and(|slot| slot.is_worth_listing()));
            ring.purged_at = ring.slots.len().saturating_mul(2);
        }
        let over = ring.slots.len().saturating_sub(self.max);
        ring.close(over, false);
    }

    /// Closes half of the files: the process is out of descriptors.
    fn close_half(&self) {
        let mut ring = self.ring.lock();
        let half = ring.slots.len().div_ceil(2);
        ring.close(half, true);
    }
}

impl Ring {
    /// Takes `count` off the list, and closes them; `whatever` was used since.
    fn close(&mut self, count: usize, whatever: bool) {
        let mut left = count;
        // Twice around each had its second chance.
        for _ in 0..self.slots.len().saturating_mul(2) {
            if left == 0 {
                return;
            }
            let Some(slot) = self.slots.pop_front().and_then(|slot| slot.upgrade()) else {
                left = left.saturating_sub(1);
                continue;
            };
            let spared = slot.used.swap(false, Ordering::Relaxed) && !whatever;
            if !spared && slot.try_close() {
                left = left.saturating_sub(1);
            } else {
                self.slots.push_back(Arc::downgrade(&slot));
            }
        }
    }
}

impl Slot {
    /// False if somebody is at it, or it has to stay open.
    fn try_close(&self) -> bool {
        let Some(mut file) = self.file.try_lock() else { return false };
        if self.pinned.load(Ordering::Acquire) && file.is_some() {
            return false;
        }
        *file = None;
        self.listed.store(false, Ordering::Release);
        true
    }

    /// False, and unlisted, if it has closed.
    fn is_worth_listing(&self) -> bool {
        let Some(file) = self.file.try_lock() else { return true };
        if file.is_none() {
            self.listed.store(false, Ordering::Release);
        }
        file.is_some()
    }
}

impl SegmentFile {
    pub fn new(files: &Arc<OpenFiles>) -> Self {
        let slot = Slot {
            file: Mutex::new(None),
            used: AtomicBool::new(true),
            listed: AtomicBool::new(false),
            pinned: AtomicBool::new(false),
            made: AtomicBool::new(false),
        };
        Self { slot: Arc::new(slot), files: Arc::clone(files) }
    }

    /// The open file; `open` opens it, and is told whether that's for the first time.
    pub fn get(&self, open: impl Fn(bool) -> io::Result<Arc<dyn DiskFile>>) -> io::Result<Arc<dyn DiskFile>> {
        let slot = &*self.slot;
        let mut file = slot.file.lock();
        if !slot.used.load(Ordering::Relaxed) {
            slot.used.store(true, Ordering::Relaxed);
        }
        if let Some(file) = &*file {
            return Ok(Arc::clone(file));
        }
        let is_first = !slot.made.load(Ordering::Relaxed);
        let opened = match open(is_first) {
            Err(error) if is_out_of_descriptors(&error) => {
                self.files.close_half();
                open(is_first)?
            }
            opened => opened?,
        };
        slot.made.store(true, Ordering::Relaxed);
        *file = Some(Arc::clone(&opened));
        drop(file);
        self.files.list(&self.slot);
        Ok(opened)
    }

    /// As long as this is held nobody opens it.
    pub fn hold(&self) -> MutexGuard<'_, File> {
        self.slot.file.lock()
    }

    pub fn close(&self) {
        *self.slot.file.lock() = None;
    }

    /// Whether it must stay open, since its name is about to be another file's. Pinned, then opened.
    pub fn pin(&self, pinned: bool) {
        self.slot.pinned.store(pinned, Ordering::Release);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::log::io::{Disk, OpenMode, sim::SimDisk};
    use std::{cell::Cell, path::Path};

    struct World {
        disk: SimDisk,
        files: Arc<OpenFiles>,
        opened: Cell<usize>,
    }

    impl World {
        fn new(max: usize) -> Self {
            let disk = SimDisk::new(1);
            disk.create_dir_all(Path::new("/d")).unwrap();
            Self { disk, files: Arc::new(OpenFiles::new(max)), opened: Cell::new(0) }
        }

        fn get(&self, file: &SegmentFile) {
            let open = |_| {
                self.opened.set(self.opened.get() + 1);
                self.disk.open(Path::new("/d/f"), OpenMode::Create)
            };
            file.get(open).unwrap();
        }

        fn many(&self, count: usize) -> Vec<SegmentFile> {
            (0..count).map(|_| SegmentFile::new(&self.files)).collect()
        }
    }

    fn open_in(files: &[SegmentFile]) -> usize {
        files.iter().filter(|file| file.hold().is_some()).count()
    }

    #[test]
    fn no_more_than_the_bound_are_open_and_what_is_in_use_stays() {
        let world = World::new(10);
        let files = world.many(100);
        for file in &files {
            world.get(file);
            world.get(&files[0]);
            assert!(open_in(&files) <= 10);
        }
        assert_eq!(open_in(&files), 10);
        assert!(files[0].hold().is_some(), "it was used all the time");
        assert!(world.opened.get() < 110, "{} opened", world.opened.get());
    }

    #[test]
    fn a_pinned_file_is_not_closed_for_another() {
        let world = World::new(3);
        let files = world.many(20);
        files[1].pin(true);
        files.iter().for_each(|file| world.get(file));
        assert!(files[1].hold().is_some());
        assert_eq!(open_in(&files), 3);
        files[1].pin(false);
        files.iter().take(1).chain(&files[2..6]).for_each(|file| world.get(file));
        assert!(files[1].hold().is_none());
    }

    #[test]
    fn without_descriptors_half_are_closed_and_it_is_tried_again() {
        let world = World::new(usize::MAX);
        let files = world.many(40);
        files.iter().for_each(|file| world.get(file));
        let refuse_once = Cell::new(true);
        let last = SegmentFile::new(&world.files);
        let open = |is_first: bool| {
            assert!(is_first);
            match refuse_once.replace(false) {
                true => Err(rustix::io::Errno::MFILE.into()),
                false => world.disk.open(Path::new("/d/f"), OpenMode::Create),
            }
        };
        last.get(open).unwrap();
        assert_eq!(open_in(&files), 20);
        last.close();
        last.get(|is_first: bool| {
            assert!(!is_first);
            world.disk.open(Path::new("/d/f"), OpenMode::Create)
        })
        .unwrap();
    }

    #[test]
    fn what_is_gone_leaves_the_list() {
        let world = World::new(usize::MAX);
        for _ in 0..5_000 {
            let files = world.many(1);
            files.iter().for_each(|file| world.get(file));
            drop(files);
        }
        assert!(world.files.ring.lock().slots.len() <= PURGED_AT_MIN + 1);
    }
}
