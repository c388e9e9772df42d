//! All partitions of this broker in their data directories (`LogManager`): opened, made, deleted, checkpointed and closed.
//!
//! Holds no metadata: which partitions there are, the caller says. Starts no tasks: the caller calls [`Logs::tick`], about once a second, on
//! a thread that may block.

use super::{
    AppendError, LogError,
    checkpoints::decode_metadata,
    descriptors::OpenFiles,
    dirs::{Checkpoints, DataDir},
    epochs::Epochs,
    files::{self, DirKind, EPOCHS_FILE, METADATA_FILE},
    io::Disk,
    moves::Moves,
    partition::PartitionLog,
    recover::{self, Opening},
    segment::optional,
};
use crate::{
    config::TopicConfig,
    types::{LeaderEpoch, Millis, Offset, PartitionIndex, TopicId, TopicPartition},
};
use indexmap::IndexMap;
use parking_lot::{Mutex, RwLock};
use std::{
    collections::{BTreeSet, HashMap},
    path::PathBuf,
    sync::{
        Arc,
        atomic::{AtomicI64, AtomicUsize, Ordering},
    },
    thread,
};

/// What the logs need of the server's config.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct LogSettings {
    /// `log.dirs`, at least one.
    pub dirs: Vec<PathBuf>,
    /// `producer.id.expiration.ms`
    pub producer_id_expiration_ms: i64,
    /// `producer.id.expiration.check.interval.ms`
    pub producer_id_expiration_check_interval_ms: i64,
    /// `log.flush.offset.checkpoint.interval.ms`
    pub checkpoint_interval_ms: i64,
    /// `log.retention.check.interval.ms`
    pub retention_check_interval_ms: i64,
    /// `log.initial.task.delay.ms`: how long after the start retention is looked at first.
    pub initial_task_delay_ms: i64,
    /// `num.recovery.threads.per.data.dir`, for all directories together.
    pub recovery_threads: usize,
    /// `log.dir.min.free.bytes`: appends leave so much room in each directory; 0 is off.
    pub min_free_bytes: u64,
    /// So many segment files are open at once.
    pub open_files_max: usize,
}

impl Default for LogSettings {
    /// Kafka's defaults, and no directory.
    fn default() -> Self {
        Self {
            dirs: Vec::new(),
            producer_id_expiration_ms: 86_400_000,
            producer_id_expiration_check_interval_ms: 600_000,
            checkpoint_interval_ms: 60_000,
            retention_check_interval_ms: 300_000,
            initial_task_delay_ms: 30_000,
            recovery_threads: 2,
            min_free_bytes: 0,
            open_files_max: usize::MAX,
        }
    }
}

/// One partition as the metadata has it.
#[derive(Clone, Debug)]
pub struct PartitionSpec {
    pub topic: TopicPartition,
    pub topic_id: TopicId,
    pub config: Arc<TopicConfig>,
    /// What appends carry from now on.
    pub leader_epoch: LeaderEpoch,
}

/// A partition's directory that is there.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct FoundPartition {
    pub dir: PathBuf,
    pub topic: TopicPartition,
    /// From `partition.metadata`; `None` if that's missing or torn.
    pub topic_id: Option<TopicId>,
    /// From `leader-epoch-checkpoint`; [`LeaderEpoch::NONE`] if there's none.
    pub newest_epoch: LeaderEpoch,
}

/// A partition and the data directory that it's in.
pub(super) struct Held {
    pub log: Arc<PartitionLog>,
    pub dir: usize,
}

/// All partitions. All methods may be called from any thread; those that return a `Result` and [`Logs::tick`] block on I/O.
pub struct Logs {
    pub(super) disk: Arc<dyn Disk>,
    pub(super) settings: LogSettings,
    pub(super) dirs: Vec<DataDir>,
    /// In the order in which they came, so that a simulation does the same again.
    pub(super) partitions: RwLock<IndexMap<(TopicId, PartitionIndex), Held>>,
    /// One creation at a time, so that each sees how loaded the directories are.
    pub(super) creating: Mutex<()>,
    /// Partitions that could not be made, to be tried again.
    pub(super) unmade: Mutex<Vec<PartitionSpec>>,
    chores: Mutex<Chores>,
    /// One writes checkpoints at a time: none may replace a later one.
    pub(super) checkpointing: Mutex<()>,
    pub(super) moves: Moves,
    /// What of the settings changes while the broker runs.
    producer_id_expiration_ms: AtomicI64,
    recovery_threads: AtomicUsize,
}

/// What is done now and then.
#[derive(Default)]
struct Chores {
    /// Directories to remove, and when.
    deletions: Vec<(Millis, PathBuf)>,
    checkpointed: Option<Millis>,
    expired: Option<Millis>,
    /// When retention is looked at next.
    retention_due: Option<Millis>,
    /// Partitions at rest whose recovery point is to be brought to their end, a few at a tick.
    resting: Vec<Arc<PartitionLog>>,
    /// When arrival times are written next, and whose are still to be.
    arrivals_due: Option<Millis>,
    arriving: Vec<Arc<PartitionLog>>,
}

/// So many partitions at rest are synced in one tick.
const RESTS_PER_TICK: usize = 16;
/// Arrival times of all partitions are written once in so long: a crash of the process loses those since then.
const ARRIVALS_INTERVAL_MS: i64 = 10_000;
/// So many files of them are written in one tick.
const ARRIVALS_PER_TICK: usize = 64;
/// From this many partitions on, a sync of the whole file system is cheaper than some for each.
const CLOSED_AT_ONCE_MIN: usize = if cfg!(test) { 2 } else { 32 };

impl Logs {
    /// Makes and locks the data directories.
    pub fn lock(disk: Arc<dyn Disk>, settings: LogSettings) -> Result<Self, LogError> {
        if settings.dirs.is_empty() {
            return Err(LogError::NoDirectory);
        }
        let files = Arc::new(OpenFiles::new(settings.open_files_max));
        let dirs = settings.dirs.iter().map(|dir| DataDir::lock(&disk, dir, &files)).collect::<Result<_, _>>()?;
        let producer_id_expiration_ms = AtomicI64::new(settings.producer_id_expiration_ms);
        let recovery_threads = AtomicUsize::new(settings.recovery_threads);
        Ok(Self {
            disk,
            settings,
            dirs,
            partitions: RwLock::default(),
            creating: Mutex::default(),
            unmade: Mutex::default(),
            chores: Mutex::default(),
            checkpointing: Mutex::default(),
            moves: Moves::default(),
            producer_id_expiration_ms,
            recovery_threads,
        })
    }

    /// Goes by these from now on: `producer.id.expiration.ms` and `num.recovery.threads.per.data.dir`.
    pub fn go_by(&self, producer_id_expiration_ms: i64, recovery_threads: usize) {
        self.producer_id_expiration_ms.store(producer_id_expiration_ms, Ordering::Relaxed);
        self.recovery_threads.store(recovery_threads, Ordering::Relaxed);
    }

    /// Whether the last process stopped cleanly, or there was none: every directory has the mark or holds no partitions.
    pub fn was_clean(&self) -> bool {
        let is_partition = |name: &str| matches!(files::parse_dir(name), DirKind::Partition(_));
        let holds_any = |dir: &DataDir| self.disk.list(&dir.path).map_or(true, |all| all.iter().any(|e| e.is_dir && is_partition(&e.name)));
        self.dirs.iter().all(|dir| dir.clean || !holds_any(dir))
    }

    /// The partitions' directories that are there. Ends deletions that were cut short.
    pub fn found(&self) -> Result<Vec<FoundPartition>, LogError> {
        self.finish_moves()?;
        let mut found = Vec::new();
        for dir in &self.dirs {
            for entry in self.disk.list(&dir.path)?.into_iter().filter(|e| e.is_dir) {
                let path = dir.path.join(&entry.name);
                match files::parse_dir(&entry.name) {
                    DirKind::Partition(_) if !self.holds_a_log(&path)? => {
                        tracing::warn!(dir = %path.display(), "not a partition, in spite of its name: it has no log; left alone");
                    }
                    DirKind::Partition(topic) => {
                        let newest_epoch = self.newest_epoch(&path)?;
                        found.push(FoundPartition { topic_id: self.topic_id(&path)?, newest_epoch, dir: path, topic });
                    }
                    DirKind::Deleted => self.remove_dir(&path),
                    DirKind::Future(_) | DirKind::Stray | DirKind::Other => {}
                }
            }
        }
        Ok(found)
    }

    /// A directory that is a partition's has its metadata or a segment.
    fn holds_a_log(&self, dir: &std::path::Path) -> Result<bool, LogError> {
        let is_one = |name: &str| name == METADATA_FILE || name.ends_with(".log");
        Ok(self.disk.list(dir)?.iter().any(|entry| is_one(&entry.name)))
    }

    fn topic_id(&self, dir: &std::path::Path) -> Result<Option<TopicId>, LogError> {
        let text = optional(self.disk.read(&dir.join(METADATA_FILE)))?;
        Ok(text.and_then(|text| decode_metadata(&String::from_utf8_lossy(&text))))
    }

    fn newest_epoch(&self, dir: &std::path::Path) -> Result<LeaderEpoch, LogError> {
        let text = optional(self.disk.read(&dir.join(EPOCHS_FILE)))?;
        let epochs = text.and_then(|text| Epochs::decode(&String::from_utf8_lossy(&text)).ok());
        Ok(epochs.and_then(|epochs| epochs.latest()).map_or(LeaderEpoch::NONE, |last| last.epoch))
    }

    pub(super) fn remove_dir(&self, path: &std::path::Path) {
        if let Err(error) = self.disk.remove_dir_all(path) {
            tracing::warn!(dir = %path.display(), %error, "can't remove the directory of a deleted partition now");
        }
    }

    /// Opens the partitions that have a directory, several at a time, and makes one for those that don't. A directory of another topic id is
    /// moved aside as `-stray`.
    pub fn open_all(&self, specs: Vec<PartitionSpec>, now: Millis) -> Result<(), LogError> {
        let mut there: HashMap<TopicPartition, usize> = HashMap::new();
        let mut load = vec![0_usize; self.dirs.len()];
        for (i, dir) in self.dirs.iter().enumerate() {
            dir.remove_clean_mark()?;
            for entry in self.disk.list(&dir.path)?.into_iter().filter(|e| e.is_dir) {
                let DirKind::Partition(topic) = files::parse_dir(&entry.name) else { continue };
                load.iter_mut().skip(i).take(1).for_each(|n| *n = n.saturating_add(1));
                if there.insert(topic.clone(), i).is_some() {
                    let what = format!("partition {topic} is in another data directory too; remove one of the two");
                    return Err(LogError::Unreadable { path: dir.path.join(&entry.name), what });
                }
            }
        }
        let mut placed = Vec::with_capacity(specs.len());
        for spec in specs {
            let dir = there.get(&spec.topic).copied();
            let dir = dir.unwrap_or_else(|| least_loaded(&mut load));
            placed.push((spec, dir));
        }
        let next = AtomicUsize::new(0);
        let work = || -> Result<(), LogError> {
            while let Some((spec, dir)) = placed.get(next.fetch_add(1, Ordering::Relaxed)) {
                let log = self.open_one(spec, *dir, there.contains_key(&spec.topic), now)?;
                self.hold(log, *dir);
            }
            Ok(())
        };
        self.examine_dirs();
        let threads = self.recovery_threads.load(Ordering::Relaxed).clamp(1, placed.len().max(1));
        thread::scope(|scope| {
            let others: Vec<_> = (1..threads).map(|_| scope.spawn(work)).collect();
            let mine = work();
            let theirs = others.into_iter().map(|t| t.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic)));
            theirs.fold(mine, |all, one| all.and(one))
        })?;
        self.resume_moves()
    }

    pub(super) fn open_one(&self, spec: &PartitionSpec, dir: usize, there: bool, now: Millis) -> Result<PartitionLog, LogError> {
        let data_dir = self.dirs.get(dir).ok_or(LogError::NoDirectory)?;
        let path = data_dir.path.join(spec.topic.to_string());
        let topic_id = if there { self.topic_id(&path)? } else { None };
        let is_another = topic_id.is_some_and(|id| id != spec.topic_id);
        if is_another {
            self.set_aside(&path, &spec.topic)?;
        }
        let there = there && !is_another;
        if !there {
            data_dir.forget(&spec.topic)?;
        }
        let (recovery_point, log_start) = data_dir.checkpointed(&spec.topic);
        let opening = Opening {
            disk: &self.disk,
            dir: path,
            spec,
            has_metadata: there && topic_id.is_some(),
            clean: data_dir.clean,
            recovery_point,
            lower_recovery_point: &|to| data_dir.lower_recovery_point(&spec.topic, to),
            log_start,
            now,
            producer_id_expiration_ms: self.producer_id_expiration_ms.load(Ordering::Relaxed),
            health: &data_dir.health,
        };
        let log = if there { recover::open(&opening) } else { recover::create(&opening) }?;
        log.lead(spec.leader_epoch);
        log.compaction.set_cleaned(data_dir.cleaned(&spec.topic));
        Ok(log)
    }

    pub(super) fn hold(&self, log: PartitionLog, dir: usize) -> Arc<PartitionLog> {
        let log = Arc::new(log);
        self.dirs.iter().skip(dir).take(1).for_each(|dir| {
            dir.load.fetch_add(1, Ordering::Relaxed);
        });
        self.partitions.write().insert((log.topic_id(), log.partition()), Held { log: Arc::clone(&log), dir });
        log
    }

    /// So many files at most may be held open for one answer: others want some, too.
    pub fn files_an_answer_may_hold(&self) -> usize {
        (self.settings.open_files_max / 16).max(4)
    }

    /// The partition, if this broker has it.
    pub fn get(&self, topic: TopicId, partition: PartitionIndex) -> Option<Arc<PartitionLog>> {
        self.partitions.read().get(&(topic, partition)).map(|held| Arc::clone(&held.log))
    }

    /// All partitions, in no order.
    pub fn partitions(&self) -> Vec<Arc<PartitionLog>> {
        self.partitions.read().values().map(|held| Arc::clone(&held.log)).collect()
    }

    /// All partitions of the topic obey another config from now on.
    pub fn configure(&self, topic: TopicId, config: &Arc<TopicConfig>) {
        for (_, held) in self.partitions.read().iter().filter(|((id, _), _)| *id == topic) {
            held.log.configure(Arc::clone(config));
        }
        self.unmade.lock().iter_mut().filter(|spec| spec.topic_id == topic).for_each(|spec| spec.config = Arc::clone(config));
    }

    /// Takes a topic's partitions out of service, wakes who waits for them, and renames their directories, durably; the files go after
    /// `file.delete.delay.ms`. How many partitions there were.
    pub fn delete_topic(&self, topic: TopicId, now: Millis) -> Result<usize, LogError> {
        let gone: Vec<Held> = {
            // One that could not be made may be tried again just now: it must not come after this.
            let _none_is_made = self.creating.lock();
            self.unmade.lock().retain(|spec| spec.topic_id != topic);
            let mut partitions = self.partitions.write();
            let keys: Vec<_> = partitions.keys().filter(|(id, _)| *id == topic).copied().collect();
            keys.iter().filter_map(|key| partitions.swap_remove(key)).collect()
        };
        self.cancel_moves_of(topic);
        gone.iter().for_each(|held| held.log.mark_deleted());
        gone.iter().filter_map(|held| self.dirs.get(held.dir)).for_each(|dir| {
            dir.load.fetch_sub(1, Ordering::Relaxed);
        });
        for held in &gone {
            let due = now.plus(held.log.config().file_delete_delay_ms);
            self.delete_dir(&held.log.place().dir, held.log.topic(), due)?;
        }
        // By where the log is: it may have moved when it was taken off the list.
        let parents: BTreeSet<_> = gone.iter().filter_map(|held| Some(held.log.place().dir.parent()?.to_owned())).collect();
        parents.iter().try_for_each(|dir| self.disk.sync_dir(dir))?;
        Ok(gone.len())
    }

    /// Deletes a directory that was found but belongs to a deleted topic.
    pub fn delete_found(&self, found: &FoundPartition, now: Millis) -> Result<(), LogError> {
        self.delete_dir(&found.dir, &found.topic, now)?;
        found.dir.parent().map_or(Ok(()), |parent| Ok(self.disk.sync_dir(parent)?))
    }

    fn delete_dir(&self, dir: &std::path::Path, topic: &TopicPartition, due: Millis) -> Result<(), LogError> {
        let to = dir.with_file_name(files::marked_dir(topic, uuid::Uuid::new_v4().as_u128(), "-delete"));
        self.disk.rename(dir, &to)?;
        self.remove_later(to, due);
        Ok(())
    }

    pub(super) fn remove_later(&self, dir: PathBuf, due: Millis) {
        self.chores.lock().deletions.push((due, dir));
    }

    /// Moves a directory aside that no metadata knows. Its records stay, for an operator to look at.
    pub fn move_stray(&self, found: &FoundPartition) -> Result<(), LogError> {
        self.set_aside(&found.dir, &found.topic)
    }

    pub(super) fn set_aside(&self, dir: &std::path::Path, topic: &TopicPartition) -> Result<(), LogError> {
        let to = dir.with_file_name(files::marked_dir(topic, uuid::Uuid::new_v4().as_u128(), "-stray"));
        tracing::warn!(from = %dir.display(), to = %to.display(), "moving aside a partition that the metadata doesn't know");
        self.disk.rename(dir, &to)?;
        dir.parent().map_or(Ok(()), |parent| Ok(self.disk.sync_dir(parent)?))
    }

    /// What is due: directories of deleted partitions and files of removed segments go; what was rolled, or is older than `flush.ms`, becomes durable; at their intervals
    /// retention is looked at, partitions at rest become durable, checkpoints are written and idle producers forgotten.
    pub fn tick(&self, now: Millis) {
        let mut chores = self.chores.lock();
        let (due, later) = std::mem::take(&mut chores.deletions).into_iter().partition(|(due, _)| *due <= now);
        chores.deletions = later;
        let due: Vec<(Millis, PathBuf)> = due;
        due.iter().for_each(|(_, path)| self.remove_dir(path));
        self.examine_dirs();
        self.make_unmade(now);

        let partitions = self.partitions();
        let mut moved = false;
        for log in &partitions {
            moved |= sync_what_is_due(log, now) | log.compaction.take_moved();
            log.empty_trash(now);
        }
        if chores.retention_due.is_none_or(|due| due <= now) {
            let delay = if chores.retention_due.is_some() {
                self.settings.retention_check_interval_ms
            } else {
                self.settings.initial_task_delay_ms
            };
            if chores.retention_due.replace(now.plus(delay)).is_some() {
                self.retain(now);
            }
        }
        let since = |at: Option<Millis>| at.map_or(0, |at| now.0.saturating_sub(at.0));
        let is_time = since(chores.checkpointed) >= self.settings.checkpoint_interval_ms;
        chores.checkpointed = if is_time { Some(now) } else { chores.checkpointed.or(Some(now)) };
        if is_time {
            chores.resting = partitions.iter().filter(|log| log.syncing.is_quiet(log.watermarks().log_end)).cloned().collect();
        }
        for _ in 0..RESTS_PER_TICK {
            let Some(log) = chores.resting.pop() else { break };
            // A failure has taken the partition out of service and was logged then.
            let _ = log.rest();
            log.close_idle_files();
            moved |= chores.resting.is_empty();
        }
        if is_time || moved {
            self.write_checkpoints().unwrap_or_else(|error| tracing::error!(%error, "can't write the logs' checkpoints"));
        }
        chores.save_arrivals(&partitions, now);
        if since(chores.expired) >= self.settings.producer_id_expiration_check_interval_ms {
            chores.expired = Some(now);
            let ttl_ms = self.producer_id_expiration_ms.load(Ordering::Relaxed);
            partitions.iter().for_each(|log| log.expire_producers(now, ttl_ms));
        }
        chores.expired = chores.expired.or(Some(now));
    }

    /// Writes where all partitions stand. Only what changed is written.
    pub fn write_checkpoints(&self) -> Result<(), LogError> {
        let _one_at_a_time = self.checkpointing.lock();
        let mut all: Vec<Checkpoints> = self.dirs.iter().map(|_| Checkpoints::default()).collect();
        for held in self.partitions.read().values() {
            let Some(into) = all.get_mut(held.dir) else { continue };
            let (topic, marks) = (held.log.topic(), held.log.watermarks());
            into.recovery_points.insert(topic.clone(), held.log.recovery_point());
            into.high_watermarks.insert(topic.clone(), marks.high_watermark);
            if let Some(start) = held.log.log_start_to_checkpoint() {
                into.log_starts.insert(topic.clone(), start);
            }
            if let Some(cleaned) = held.log.compaction.cleaned() {
                into.cleaned.insert(topic.clone(), cleaned);
            }
        }
        self.dirs.iter().zip(all).try_for_each(|(dir, checkpoints)| dir.write_checkpoints(checkpoints))
    }

    /// Syncs everything, and marks the directories as cleanly left unless a partition of theirs could not be closed. No partition takes a write
    /// after it.
    pub fn close(&self, now: Millis) -> Result<(), LogError> {
        let held: Vec<_> = self.partitions.read().values().map(|held| (Arc::clone(&held.log), held.dir)).collect();
        self.close_at_once(&held);
        let next = AtomicUsize::new(0);
        let failed: Mutex<Vec<(usize, AppendError)>> = Mutex::default();
        let work = || {
            while let Some((log, dir)) = held.get(next.fetch_add(1, Ordering::Relaxed)) {
                log.save_arrivals(now);
                if let Err(error) = log.close() {
                    failed.lock().push((*dir, error));
                }
            }
        };
        let threads = self.recovery_threads.load(Ordering::Relaxed).clamp(1, held.len().max(1));
        thread::scope(|scope| (0..threads).for_each(|_| drop(scope.spawn(work))));
        self.write_checkpoints()?;
        let failed = failed.into_inner();
        for (i, dir) in self.dirs.iter().enumerate() {
            match failed.iter().find(|(dir, _)| *dir == i) {
                None => dir.write_clean_mark()?,
                Some((_, error)) => tracing::warn!(dir = %dir.path.display(), %error, "the next start checks this directory"),
            }
        }
        Ok(())
    }
}

impl Logs {
    /// Closes many partitions with one sync of each file system; those that remain are closed one by one, as are few.
    fn close_at_once(&self, held: &[(Arc<PartitionLog>, usize)]) {
        if held.len() < CLOSED_AT_ONCE_MIN {
            return;
        }
        for (i, dir) in self.dirs.iter().enumerate() {
            let here = held.iter().filter(|(_, dir)| *dir == i).map(|(log, _)| log);
            let written: Vec<_> = here.filter(|log| log.close_unsynced().unwrap_or(false)).collect();
            match self.disk.sync_all(&dir.path) {
                Ok(true) => written.into_iter().for_each(|log| log.note_closed()),
                Ok(false) => {}
                Err(error) => written.into_iter().for_each(|log| log.fail(&error)),
            }
        }
    }
}

impl Chores {
    /// Writes the arrival times that are due, a few at a time.
    fn save_arrivals(&mut self, all: &[Arc<PartitionLog>], now: Millis) {
        // A clock set back must not put it off.
        let is_due = |due: Millis| due <= now || due > now.plus(ARRIVALS_INTERVAL_MS);
        if self.arriving.is_empty() && self.arrivals_due.is_none_or(is_due) {
            self.arrivals_due = Some(now.plus(ARRIVALS_INTERVAL_MS));
            self.arriving = all.to_vec();
        }
        let mut written = 0_usize;
        while written < ARRIVALS_PER_TICK
            && let Some(log) = self.arriving.pop()
        {
            written = written.saturating_add(usize::from(log.save_arrivals(now)));
        }
    }
}

/// Whether segments that were rolled are durable now.
fn sync_what_is_due(log: &PartitionLog, now: Millis) -> bool {
    if log.offline_reason().is_some() {
        return false;
    }
    let (synced, log_end) = (log.synced(), log.watermarks().log_end);
    if synced >= log_end && !log.has_rolled() {
        log.syncing.note_time(now);
        return false;
    }
    let tidy = log.syncing.tidy();
    let waited = now.0.saturating_sub(log.syncing.at().0);
    // A failure takes the partition out of service, and is logged there.
    if synced < log_end && waited >= log.config().flush_ms {
        log.syncing.note_time(now);
        let _ = log.sync();
    }
    if log.has_rolled() {
        let _ = log.sync_closed();
    }
    log.syncing.tidy() > tidy
}

pub(super) fn least_loaded(load: &mut [usize]) -> usize {
    let least = load.iter().enumerate().min_by_key(|(_, n)| **n).map_or(0, |(i, _)| i);
    load.iter_mut().skip(least).take(1).for_each(|n| *n = n.saturating_add(1));
    least
}

impl PartitionLog {
    /// All batches below are durable.
    pub fn synced(&self) -> Offset {
        self.syncing.synced()
    }

    /// Where checking begins after a crash: at or below what is durable.
    pub fn recovery_point(&self) -> Offset {
        self.syncing.recovery_point()
    }

    fn has_rolled(&self) -> bool {
        self.segments.load().last().is_some_and(|active| active.base() > self.syncing.tidy())
    }

    /// Closes what wasn't used since the last call and has nothing left to write.
    fn close_idle_files(&self) {
        let writer = self.writer.lock();
        let segments = self.segments.load();
        let closed = if writer.dirty { segments.len().saturating_sub(1) } else { segments.len() };
        let durable = segments.iter().filter(|segment| segment.base() < self.syncing.tidy()).count();
        let idle = if writer.dirty { closed.min(durable) } else { closed };
        segments.iter().take(idle).for_each(|segment| segment.rest());
    }

    fn expire_producers(&self, now: Millis, ttl_ms: i64) {
        let mut writer = self.writer.lock();
        writer.verifications.expire(now, ttl_ms);
        if !writer.producers.is_empty() {
            writer.producers.expire(now, ttl_ms);
        }
    }
}
