//! Compaction of logs whose `cleanup.policy` has `compact` (`LogCleaner`): the latest record of each key stays, offsets never change.
//!
//! `choose` (which logs are dirty enough, which segments are merged), `offset_map` (the newest offset of each key, in bounded memory),
//! `transactions` and `filter` (what stays of each batch) are pure. `clean` reads and writes, `swap` puts the new segment in the
//! place of the old ones so that a crash at any step leaves the old or the new log, `run` picks the next log. Memory is bounded: the map by
//! `log.cleaner.dedupe.buffer.size`, files by `log.cleaner.io.buffer.size` and the largest batch.
//!
//! Never touches the active segment, anything at or beyond the last stable offset, leader epochs or producers' state. Nothing here reads a
//! clock or starts a thread.

pub mod choose;
pub mod filter;
pub mod offset_map;
pub mod transactions;

mod clean;
mod finish;
mod reader;
mod run;
mod swap;

#[cfg(test)]
mod tests;

pub(super) use finish::finish_replacements;
pub use run::{Compactor, Stats};

use super::{AppendError, scan::WalkError};
use crate::types::{Millis, Offset};
use filter::FilterError;
use parking_lot::Mutex;
use std::{
    io,
    path::PathBuf,
    sync::atomic::{AtomicBool, AtomicI64, Ordering},
};

/// What compaction needs of the server's config.
#[derive(Clone, PartialEq, Debug)]
pub struct CompactSettings {
    /// `log.cleaner.threads`, which share the buffers.
    pub threads: usize,
    /// `log.cleaner.dedupe.buffer.size`
    pub dedupe_buffer_bytes: usize,
    /// `log.cleaner.io.buffer.load.factor`
    pub load_factor: f64,
    /// `log.cleaner.io.buffer.size`
    pub io_buffer_bytes: usize,
    /// `log.cleaner.io.max.bytes.per.second`
    pub io_bytes_per_second: f64,
}

impl Default for CompactSettings {
    /// Kafka's defaults.
    fn default() -> Self {
        Self { threads: 1, dedupe_buffer_bytes: 128 << 20, load_factor: 0.9, io_buffer_bytes: 512 << 10, io_bytes_per_second: f64::MAX }
    }
}

/// Where the compaction of one partition stands.
pub(super) struct Compaction {
    /// Where the last one ended; −1 if there was none.
    cleaned: AtomicI64,
    /// That is to be written down.
    cleaned_moved: AtomicBool,
    /// Not to be cleaned before this time.
    blocked_until: AtomicI64,
    /// Files of segments that were replaced, and when they go.
    deletions: Mutex<Vec<(Millis, PathBuf)>>,
}

impl Default for Compaction {
    fn default() -> Self {
        Self {
            cleaned: AtomicI64::new(-1),
            cleaned_moved: AtomicBool::new(false),
            blocked_until: AtomicI64::new(i64::MIN),
            deletions: Mutex::default(),
        }
    }
}

impl Compaction {
    /// Everything below was cleaned once.
    pub fn cleaned(&self) -> Option<Offset> {
        Some(Offset(self.cleaned.load(Ordering::Acquire))).filter(|offset| *offset >= Offset(0))
    }

    /// As the checkpoint says.
    pub fn set_cleaned(&self, offset: Option<Offset>) {
        self.cleaned.store(offset.map_or(-1, |o| o.0), Ordering::Release);
    }

    /// Whether the checkpoint is to be written; says so once.
    pub fn take_moved(&self) -> bool {
        self.cleaned_moved.swap(false, Ordering::AcqRel)
    }

    /// The files of replaced segments go with their directory.
    pub fn forget_deletions(&self) {
        self.deletions.lock().clear();
    }

    /// It can't be cleaned, by what it holds; not until the broker is restarted.
    pub fn is_uncleanable(&self) -> bool {
        self.blocked_until.load(Ordering::Relaxed) == i64::MAX
    }
}

/// What a cleaning did.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Cleaned {
    /// The dirty range that was cleaned.
    pub from: Offset,
    pub to: Offset,
    /// Where the range ended that could have been: below it if the map was full.
    pub upper: Offset,
    pub bytes_read: u64,
    pub bytes_written: u64,
    pub records_read: u64,
    pub records_kept: u64,
    pub segments_before: u64,
    pub segments_after: u64,
    /// What the map took.
    pub map_bytes: u64,
}

/// Why a cleaning ended early. What was swapped before stays; the log is whole.
#[derive(Debug, thiserror::Error)]
pub enum CleanError {
    #[error("the cleaner is stopping")]
    Stopped,
    #[error("the log's segments changed meanwhile, or it is gone or out of service")]
    Changed,
    #[error("the log can't be cleaned: {0}")]
    Uncleanable(String),
    #[error("clean the log")]
    Io(#[from] io::Error),
}

impl From<WalkError> for CleanError {
    fn from(error: WalkError) -> Self {
        match error {
            WalkError::Io(error) => Self::Io(error),
            bad @ WalkError::Bad { .. } => Self::Uncleanable(bad.to_string()),
        }
    }
}

impl From<FilterError> for CleanError {
    fn from(error: FilterError) -> Self {
        Self::Uncleanable(error.to_string())
    }
}

impl From<AppendError> for CleanError {
    fn from(error: AppendError) -> Self {
        match error {
            AppendError::Io(error) => Self::Io(error),
            _ => Self::Changed,
        }
    }
}

/// Called after each stretch of so many bytes; false ends the cleaning. It may pause first.
pub type Pace<'a> = &'a (dyn Fn(u64) -> bool + Sync);
