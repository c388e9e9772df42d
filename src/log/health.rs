//! How one data directory fares: whether there is room left, and whether it still works. Shared by its partitions; never touches a disk.
//!
//! The look at the file system is the caller's, now and then ([`DirHealth::measured`]); between two looks appends count down what is left, so
//! that the guard holds at any rate of writes. Each state is said once when it begins and once when it ends.

use super::{AppendError, descriptors::OpenFiles, rounds::Rounds};
use std::{
    fmt, io,
    path::{Path, PathBuf},
    sync::{
        Arc, OnceLock,
        atomic::{AtomicBool, AtomicI64, Ordering},
    },
};

/// Room that comes back must exceed the bound by this part of it, so that the guard doesn't flap.
const HYSTERESIS_DIVISOR: u64 = 16;

/// What can be said of a data directory.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum DirStatus {
    /// Takes reads and writes.
    Online,
    /// Takes no appends until there's more room; reads and removals go on.
    LowOnSpace,
    /// Its I/O failed: no writes until the broker is restarted. Says why.
    Failed(String),
}

/// The state of one directory. All methods may be called from any thread and none blocks.
pub(super) struct DirHealth {
    path: PathBuf,
    /// Bytes that may be appended until the next look.
    room: AtomicI64,
    /// The guard refuses appends.
    low: AtomicBool,
    /// The operating system refused a write for lack of room, and none has succeeded since.
    full: AtomicBool,
    /// A partition's I/O failed, and nobody has looked yet whether it's the whole directory.
    suspect: AtomicBool,
    failed: OnceLock<String>,
    pub rounds: Rounds,
    /// Of all directories together.
    pub files: Arc<OpenFiles>,
}

impl DirHealth {
    pub fn new(path: &Path) -> Self {
        Self {
            path: path.to_owned(),
            room: AtomicI64::new(i64::MAX),
            low: AtomicBool::new(false),
            full: AtomicBool::new(false),
            suspect: AtomicBool::new(false),
            failed: OnceLock::new(),
            rounds: Rounds::default(),
            files: Arc::default(),
        }
    }

    pub fn status(&self) -> DirStatus {
        match self.failed.get() {
            Some(why) => DirStatus::Failed(why.clone()),
            None if self.low.load(Ordering::Relaxed) || self.full.load(Ordering::Relaxed) => DirStatus::LowOnSpace,
            None => DirStatus::Online,
        }
    }

    /// Refuses an append if the guard is up. One atomic load else.
    pub fn check_room(&self) -> Result<(), AppendError> {
        if self.low.load(Ordering::Relaxed) {
            return Err(AppendError::NoRoom(self.path.clone()));
        }
        Ok(())
    }

    /// Counts an append that succeeded.
    pub fn spend(&self, bytes: u64) {
        let bytes = i64::try_from(bytes).unwrap_or(i64::MAX);
        // `i64::MAX` stands for no bound, and is far from being used up.
        if self.room.fetch_sub(bytes, Ordering::Relaxed) < bytes && !self.low.swap(true, Ordering::Relaxed) {
            self.say_low(0);
        }
        if self.full.load(Ordering::Relaxed) && self.full.swap(false, Ordering::Relaxed) {
            tracing::info!(dir = %self.path.display(), "there is room again: appends succeed");
        }
    }

    /// What a look at the file system found: `free` bytes, of which the last `min` are not for appends (0: all are).
    pub fn measured(&self, free: u64, min: u64) {
        let room = if min == 0 { i64::MAX } else { i64::try_from(free.saturating_sub(min)).unwrap_or(i64::MAX) };
        self.room.store(room, Ordering::Relaxed);
        let was_low = self.low.load(Ordering::Relaxed);
        let enough = min.saturating_add(if was_low { min / HYSTERESIS_DIVISOR } else { 0 });
        let is_low = min > 0 && free < enough;
        if is_low && !was_low && !self.low.swap(true, Ordering::Relaxed) {
            self.say_low(free);
        }
        if !is_low && was_low && self.low.swap(false, Ordering::Relaxed) {
            tracing::info!(dir = %self.path.display(), free_bytes = free, "there is room again: appends are taken");
        }
    }

    fn say_low(&self, free: u64) {
        tracing::error!(
            dir = %self.path.display(), free_bytes = free,
            "appends to this data directory are refused: less than log.dir.min.free.bytes are free (make room, or set it lower; 0 is off); producers retry, reads go on"
        );
    }

    /// A write was refused for lack of room.
    pub fn note_full(&self, error: &io::Error) {
        if !self.full.swap(true, Ordering::Relaxed) {
            tracing::error!(dir = %self.path.display(), %error, "no room for an append; producers retry, reads go on");
        }
    }

    /// A partition's I/O failed otherwise.
    pub fn note_suspect(&self) {
        self.suspect.store(true, Ordering::Relaxed);
    }

    /// Whether a partition's I/O has failed since the last call.
    pub fn take_suspect(&self) -> bool {
        self.suspect.swap(false, Ordering::Relaxed)
    }

    /// The directory itself doesn't work. True if that's news.
    pub fn note_failed(&self, why: &dyn fmt::Display) -> bool {
        let is_new = self.failed.set(why.to_string()).is_ok();
        if is_new {
            tracing::error!(dir = %self.path.display(), %why, "this data directory failed: its partitions take no writes until the broker is restarted");
        }
        is_new
    }

    pub fn failure(&self) -> Option<&str> {
        self.failed.get().map(String::as_str)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MIN: u64 = 1_600;

    #[test]
    fn the_guard_goes_up_below_the_bound_and_down_some_way_above_it() {
        let health = DirHealth::new(Path::new("/d"));
        assert!(health.check_room().is_ok(), "before the first look");
        health.measured(MIN, MIN);
        assert!(health.check_room().is_ok());
        health.measured(MIN - 1, MIN);
        assert!(matches!(health.check_room(), Err(AppendError::NoRoom(dir)) if dir == Path::new("/d")));
        assert_eq!(health.status(), DirStatus::LowOnSpace);
        health.measured(MIN + 99, MIN);
        assert!(health.check_room().is_err(), "it would flap");
        health.measured(MIN + 100, MIN);
        assert!(health.check_room().is_ok());
        assert_eq!(health.status(), DirStatus::Online);
    }

    #[test]
    fn appends_between_two_looks_use_up_what_was_found() {
        let health = DirHealth::new(Path::new("/d"));
        health.measured(MIN + 1_000, MIN);
        health.spend(600);
        assert!(health.check_room().is_ok());
        health.spend(400);
        assert!(health.check_room().is_ok(), "exactly the last byte");
        health.spend(1);
        assert!(health.check_room().is_err());
        health.measured(MIN + 1_000, MIN);
        assert!(health.check_room().is_ok());
    }

    #[test]
    fn zero_is_off() {
        let health = DirHealth::new(Path::new("/d"));
        health.measured(0, 0);
        health.spend(1 << 60);
        assert!(health.check_room().is_ok());
    }

    #[test]
    fn a_refused_write_shows_until_one_succeeds_and_stops_nobody_from_trying() {
        let health = DirHealth::new(Path::new("/d"));
        health.note_full(&io::ErrorKind::StorageFull.into());
        assert_eq!(health.status(), DirStatus::LowOnSpace);
        assert!(health.check_room().is_ok());
        health.spend(1);
        assert_eq!(health.status(), DirStatus::Online);
    }

    #[test]
    fn a_failure_is_final_and_the_first_one_is_told() {
        let health = DirHealth::new(Path::new("/d"));
        health.note_suspect();
        assert!(health.take_suspect() && !health.take_suspect());
        assert!(health.note_failed(&"EIO") && !health.note_failed(&"EROFS"));
        assert_eq!(health.status(), DirStatus::Failed("EIO".to_owned()));
    }
}
