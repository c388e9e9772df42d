//! Picks the next log to clean and cleans it (`LogCleaner.cleanFilthiestLog`). The caller has the thread and the clock.

use super::{
    super::{logs::Logs, partition::PartitionLog, throttle::Throttle},
    CleanError, Cleaned, CompactSettings, Pace,
    choose::{self, Dirt},
    clean::{self, Cleaning},
    swap,
};
use crate::types::Millis;
use arc_swap::ArcSwap;
use parking_lot::Mutex;
use std::{
    cell::Cell,
    io,
    sync::{
        Arc,
        atomic::{AtomicI64, AtomicU64, Ordering},
    },
};

/// A log whose disk failed is tried again after this.
const RETRY_MS: i64 = 60_000;

/// What all cleaner threads share.
pub struct Compactor {
    settings: ArcSwap<CompactSettings>,
    throttle: Mutex<Throttle>,
    stats: Stats,
}

/// For metrics.
#[derive(Debug, Default)]
pub struct Stats {
    pub bytes_read: AtomicU64,
    pub bytes_written: AtomicU64,
    pub cleanings: AtomicU64,
    /// The dirty share of the dirtiest log at the last look, in millionths.
    pub max_dirty_ppm: AtomicU64,
    /// When the last look was; 0 if there was none.
    pub last_run_ms: AtomicI64,
    /// Logs that can't be cleaned, by what they hold.
    pub uncleanable: AtomicU64,
}

impl Compactor {
    pub fn new(settings: CompactSettings) -> Self {
        let throttle = Mutex::new(Throttle::new(settings.io_bytes_per_second));
        Self { settings: ArcSwap::from_pointee(settings), throttle, stats: Stats::default() }
    }

    /// Goes by other settings from the next cleaning on, and by another throttle at once.
    pub fn configure(&self, settings: CompactSettings) {
        let mut throttle = self.throttle.lock();
        if self.settings.load().io_bytes_per_second != settings.io_bytes_per_second {
            *throttle = Throttle::new(settings.io_bytes_per_second);
        }
        self.settings.store(Arc::new(settings));
    }

    pub fn stats(&self) -> &Stats {
        &self.stats
    }

    /// Notes bytes read or written until `now`: how long to pause, in milliseconds.
    pub fn pause_ms(&self, bytes: u64, now: Millis) -> u64 {
        self.throttle.lock().pause_ms(bytes, now)
    }
}

/// A log and what could be cleaned of it.
struct Candidate {
    log: Arc<PartitionLog>,
    dirt: Dirt,
}

impl Logs {
    /// Cleans the dirtiest log that is dirty enough, and removes files whose time has come. What was cleaned of which partition; `None` if
    /// there's nothing to clean now. Of several threads each takes another log.
    pub fn compact_next(&self, compactor: &Compactor, now: Millis, pace: Pace<'_>) -> Option<(Arc<PartitionLog>, Cleaned)> {
        let all = self.partitions();
        all.iter().for_each(|log| swap::delete_due(log, now));
        let uncleanable = all.iter().filter(|log| log.compaction.is_uncleanable()).count();
        compactor.stats.uncleanable.store(uncleanable as u64, Ordering::Relaxed);
        compactor.stats.last_run_ms.store(now.0, Ordering::Relaxed);
        let mut candidates: Vec<_> = all.into_iter().filter_map(|log| candidate(log, now)).collect();
        candidates.sort_by_key(|candidate| std::cmp::Reverse(candidate.dirt.ratio_ppm()));
        let max_dirty = candidates.first().map_or(0, |dirtiest| dirtiest.dirt.ratio_ppm());
        compactor.stats.max_dirty_ppm.store(max_dirty, Ordering::Relaxed);
        for Candidate { log, dirt } in candidates {
            if !dirt.is_due(&log.config()) {
                continue;
            }
            let settings = compactor.settings.load_full();
            let Some(done) = log.compact_if_idle(&settings, now, pace) else { continue };
            match done {
                Ok(cleaned) => {
                    compactor.stats.bytes_read.fetch_add(cleaned.bytes_read, Ordering::Relaxed);
                    compactor.stats.bytes_written.fetch_add(cleaned.bytes_written, Ordering::Relaxed);
                    compactor.stats.cleanings.fetch_add(1, Ordering::Relaxed);
                    return Some((log, cleaned));
                }
                Err(CleanError::Stopped) => return None,
                Err(_) => {}
            }
        }
        None
    }
}

fn candidate(log: Arc<PartitionLog>, now: Millis) -> Option<Candidate> {
    let config = log.config();
    let is_blocked = log.compaction.blocked_until.load(Ordering::Relaxed) > now.0;
    if !config.cleanup_compact || is_blocked || log.is_deleted() || log.offline_reason().is_some() || log.segment_count() < 2 {
        return None;
    }
    match log.dirt(now) {
        Ok(dirt) => Some(Candidate { dirt, log }),
        Err(error) => {
            log.note_clean_error(&CleanError::Io(error), now);
            None
        }
    }
}

impl PartitionLog {
    /// How dirty the log is.
    pub fn dirt(&self, now: Millis) -> io::Result<Dirt> {
        let config = self.config();
        // The marks first: what lies below them is in the segments.
        let marks = self.watermarks();
        let segments = self.segments.load_full();
        let facts = clean::facts(self, &segments, &config)?;
        Ok(choose::dirt(&facts, self.compaction.cleaned(), &marks, &config, now))
    }

    /// Cleans what can be cleaned of the log, dirty enough or not; waits for nothing but a cleaning of the same log.
    pub fn compact(&self, settings: &CompactSettings, now: Millis, pace: Pace<'_>) -> Result<Cleaned, CleanError> {
        let _alone = self.reshaping.lock();
        self.compact_alone(settings, now, pace)
    }

    /// `None` if another thread is at it.
    fn compact_if_idle(&self, settings: &CompactSettings, now: Millis, pace: Pace<'_>) -> Option<Result<Cleaned, CleanError>> {
        let _alone = self.reshaping.try_lock()?;
        Some(self.compact_alone(settings, now, pace))
    }

    fn compact_alone(&self, settings: &CompactSettings, now: Millis, pace: Pace<'_>) -> Result<Cleaned, CleanError> {
        self.check_writable().map_err(CleanError::from)?;
        let config = self.config();
        let dirt = self.dirt(now)?;
        if dirt.was_reset && !config.cleanup_delete {
            tracing::warn!(partition = %self.topic, first_dirty = %dirt.first_dirty, "the last cleaning's end is no offset of the log; cleaning all");
        }
        let cleaning = Cleaning { log: self, config: &config, settings, dirt, now, pace, untold: Cell::new(0) };
        let cleaned = cleaning.run().inspect_err(|error| self.note_clean_error(error, now))?;
        self.compaction.set_cleaned(Some(cleaned.to));
        self.compaction.cleaned_moved.store(true, Ordering::Release);
        let Cleaned { from, to, bytes_read, bytes_written, records_read, records_kept, segments_before, segments_after, .. } = cleaned;
        tracing::info!(
            partition = %self.topic, %from, %to, bytes_read, bytes_written, records_read, records_kept, segments_before, segments_after,
            "compacted a log"
        );
        Ok(cleaned)
    }

    fn note_clean_error(&self, error: &CleanError, now: Millis) {
        let until = match error {
            CleanError::Stopped | CleanError::Changed => return,
            CleanError::Uncleanable(why) => {
                tracing::error!(partition = %self.topic, %why, "not compacting a log any more that can't be read; it is as it was");
                i64::MAX
            }
            CleanError::Io(error) => {
                tracing::warn!(partition = %self.topic, %error, "a cleaning failed; it is tried again later");
                now.plus(RETRY_MS).0
            }
        };
        self.compaction.blocked_until.store(until, Ordering::Relaxed);
    }
}
