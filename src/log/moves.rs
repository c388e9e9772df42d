//! Partitions on their way to another data directory: which are asked for, and their way through it (AlterReplicaLogDirs, KIP-113).
//!
//! A request makes the `-future` directory and puts the move on the list; who calls [`Logs::run_moves`] does the work, on a thread that may block. A
//! directory of that name that a start finds goes on where it was asked to. Of two directories of one partition the one that holds
//! [`MOVED_FILE`] counts: the other had lost its place when the process ended. Locks, in the order in which they're taken: the log's
//! `reshaping`, `checkpointing`, the list's or the log's others.

use super::{
    LogError, MoveError,
    dir_info::FutureInfo,
    files::{self, DirKind, MOVED_FILE},
    health::DirStatus,
    logs::Logs,
    partition::PartitionLog,
    relocate::{Copy, Pace},
    segment::{Segment, remove_if_there},
};
use crate::types::{Millis, Offset, PartitionIndex, TopicId, TopicPartition};
use indexmap::IndexMap;
use parking_lot::Mutex;
use std::{
    collections::BTreeMap,
    io,
    path::{Path, PathBuf},
    sync::{
        Arc, OnceLock,
        atomic::{AtomicBool, AtomicU64, Ordering},
    },
};

type Key = (TopicId, PartitionIndex);

/// The list of moves.
#[derive(Default)]
pub(super) struct Moves {
    list: Mutex<IndexMap<Key, Arc<Move>>>,
    /// Called when one was put on it.
    wake: OnceLock<Box<dyn Fn() + Send + Sync>>,
}

struct Move {
    log: Arc<PartitionLog>,
    /// The place of the directory that it goes to.
    to: usize,
    future: PathBuf,
    cancelled: AtomicBool,
    running: AtomicBool,
    copied_bytes: AtomicU64,
    /// The segment that was copied last, and how much of it.
    reached: Mutex<Option<(Arc<Segment>, u64)>>,
}

impl Move {
    fn key(&self) -> Key {
        (self.log.topic_id(), self.log.partition())
    }

    fn info(&self) -> FutureInfo {
        let reached = self.reached.lock().clone();
        let offset_of =
            |(segment, bytes): (Arc<Segment>, u64)| segment.offset_after(0, bytes).ok().flatten().unwrap_or_else(|| segment.base());
        let reached = reached.map_or(Offset(0), offset_of);
        let offset_lag = self.log.watermarks().log_end.0.saturating_sub(reached.0).max(0);
        FutureInfo { topic: self.log.topic().clone(), size_bytes: self.copied_bytes.load(Ordering::Relaxed), offset_lag }
    }
}

impl Logs {
    /// From now on `wake` is called when there is work for [`Logs::run_moves`]. The first call counts.
    pub fn wake_for_moves(&self, wake: Box<dyn Fn() + Send + Sync>) {
        let _ = self.moves.wake.set(wake);
        self.wake_mover();
    }

    fn wake_mover(&self) {
        if let Some(wake) = self.moves.wake.get() {
            wake();
        }
    }

    /// Whether a partition of this name could be moved to `to`; the place of that directory.
    pub fn check_move(&self, topic: &TopicPartition, to: &Path) -> Result<usize, MoveError> {
        if files::future_dir(topic, 0).is_none() {
            return Err(MoveError::NameTooLong);
        }
        let is_it = |path: &Path| path == to || std::path::absolute(path).is_ok_and(|path| path == to);
        let found = self.dirs.iter().enumerate().find(|(_, dir)| is_it(&dir.path));
        let (place, dir) = found.ok_or_else(|| MoveError::NoDirectory(to.to_owned()))?;
        match dir.health.status() {
            DirStatus::Failed(_) => Err(MoveError::DirectoryOffline(to.to_owned())),
            DirStatus::Online | DirStatus::LowOnSpace => Ok(place),
        }
    }

    /// Asks for a partition to be moved to the data directory `to`. A move of it to another one is given up. When this returns the move is
    /// durably begun; [`Logs::run_moves`] does it. Blocks on I/O.
    pub fn move_to(&self, log: &Arc<PartitionLog>, to: &Path) -> Result<(), MoveError> {
        let to = self.check_move(log.topic(), to)?;
        log.check_writable().map_err(|error| MoveError::Offline(error.to_string()))?;
        // No move comes to its end meanwhile.
        let _no_checkpoint = self.checkpointing.lock();
        let key = (log.topic_id(), log.partition());
        let now_in = self.partitions.read().get(&key).map(|held| held.dir).ok_or(MoveError::NoPartition)?;
        let old = self.moves.list.lock().get(&key).cloned();
        if let Some(old) = old {
            if old.to == to {
                return Ok(());
            }
            self.cancel(&old);
        }
        if now_in == to {
            return Ok(());
        }
        let name = files::future_dir(log.topic(), uuid::Uuid::new_v4().as_u128()).ok_or(MoveError::NameTooLong)?;
        let dir = self.dirs.get(to).ok_or(MoveError::NoPartition)?;
        let future = dir.path.join(name);
        self.disk.create_dir_all(&future)?;
        self.disk.sync_dir(&dir.path)?;
        tracing::info!(partition = %log.topic(), to = %dir.path.display(), "moving a partition to another data directory");
        self.enlist(log, to, future);
        Ok(())
    }

    fn enlist(&self, log: &Arc<PartitionLog>, to: usize, future: PathBuf) {
        let new = Move {
            log: Arc::clone(log),
            to,
            future,
            cancelled: AtomicBool::new(false),
            running: AtomicBool::new(false),
            copied_bytes: AtomicU64::new(0),
            reached: Mutex::new(None),
        };
        self.moves.list.lock().insert(new.key(), Arc::new(new));
        self.wake_mover();
    }

    /// Takes a move off the list. Its directory goes now, or by the hand of who is at it.
    fn cancel(&self, old: &Arc<Move>) {
        old.cancelled.store(true, Ordering::Release);
        let mut list = self.moves.list.lock();
        if list.get(&old.key()).is_some_and(|there| Arc::ptr_eq(there, old)) {
            list.shift_remove(&old.key());
        }
        if !old.running.load(Ordering::Acquire) {
            self.remove_dir(&old.future);
        }
        // Who is at it may be pausing for long.
        self.wake_mover();
        tracing::info!(partition = %old.log.topic(), "a move to another data directory is cancelled");
    }

    pub(super) fn cancel_moves_of(&self, topic: TopicId) {
        let all: Vec<_> = self.moves.list.lock().iter().filter(|((id, _), _)| *id == topic).map(|(_, one)| Arc::clone(one)).collect();
        all.iter().for_each(|one| self.cancel(one));
    }

    /// The copies that are being made, and the place of the directory of each.
    pub(super) fn futures(&self) -> Vec<(usize, FutureInfo)> {
        let all: Vec<_> = self.moves.list.lock().values().cloned().collect();
        all.iter().map(|one| (one.to, one.info())).collect()
    }

    /// Does the moves that are asked for and that no other thread is at, until there are none or `pace` says to end. What came of each.
    pub fn run_moves(&self, now: Millis, pace: Pace<'_>) -> Vec<(Arc<PartitionLog>, Result<(), MoveError>)> {
        let mut done = Vec::new();
        while let Some(next) = self.next_move() {
            let result = self.run_move(&next, now, pace);
            let stopped = result.is_err() && !next.cancelled.load(Ordering::Acquire) && !pace(0);
            let mut list = self.moves.list.lock();
            if list.get(&next.key()).is_some_and(|there| Arc::ptr_eq(there, &next)) {
                list.shift_remove(&next.key());
            }
            drop(list);
            match &result {
                Ok(()) => {}
                // The next start takes it up again.
                Err(_) if stopped => return done,
                Err(error) => {
                    self.remove_dir(&next.future);
                    if !next.cancelled.load(Ordering::Acquire) {
                        tracing::error!(partition = %next.log.topic(), %error, "a move to another data directory is given up; the partition stays where it is");
                    }
                }
            }
            done.push((Arc::clone(&next.log), result));
        }
        done
    }

    fn next_move(&self) -> Option<Arc<Move>> {
        let list = self.moves.list.lock();
        list.values().find(|one| !one.running.swap(true, Ordering::AcqRel)).cloned()
    }

    fn run_move(&self, one: &Move, now: Millis, pace: Pace<'_>) -> Result<(), MoveError> {
        let (log, to) = (&*one.log, self.dirs.get(one.to).ok_or(MoveError::NoPartition)?);
        let goes_on = |bytes| !one.cancelled.load(Ordering::Acquire) && !log.is_deleted() && log.offline_reason().is_none() && pace(bytes);
        let progress = |bytes, segment: &Arc<Segment>, reached| {
            one.copied_bytes.fetch_add(bytes, Ordering::Relaxed);
            *one.reached.lock() = Some((Arc::clone(segment), reached));
        };
        let mut copy = Copy::begin(log, &one.future, &to.health, now, &goes_on, &progress)?;
        copy.catch_up()?;
        let alone = log.reshaping.lock();
        // A compaction may have ended just now.
        copy.catch_up()?;
        let no_checkpoint = self.checkpointing.lock();
        if !goes_on(0) {
            return Err(MoveError::GivenUp("the broker stops, or the move was cancelled".into()));
        }
        let speaks = to.expect(log.topic(), copy.active_base(), log.log_start_to_checkpoint(), log.compaction.cleaned());
        speaks.map_err(|error| MoveError::GivenUp(error.to_string()))?;
        let old = log.place().dir.clone();
        let aside = old.with_file_name(files::marked_dir(log.topic(), uuid::Uuid::new_v4().as_u128(), "-delete"));
        let new = to.path.join(log.topic().to_string());
        copy.take_over(&new, &aside)?;
        self.note_moved(one);
        self.leave(&old, &new).unwrap_or_else(|error| {
            tracing::warn!(partition = %log.topic(), %error, "what a move has left behind goes at the next start");
        });
        drop((no_checkpoint, alone));
        self.remove_later(aside, now.plus(log.config().file_delete_delay_ms));
        self.write_checkpoints().unwrap_or_else(|error| tracing::error!(%error, "can't write the logs' checkpoints"));
        tracing::info!(partition = %log.topic(), from = %old.display(), to = %new.display(), "moved a partition");
        Ok(())
    }

    fn note_moved(&self, one: &Move) {
        let mut partitions = self.partitions.write();
        // Deleted meanwhile, it counts where it was.
        let Some(held) = partitions.get_mut(&one.key()) else { return };
        for (dir, is_new) in [(held.dir, false), (one.to, true)] {
            self.dirs.iter().skip(dir).take(1).for_each(|dir| {
                _ = if is_new { dir.load.fetch_add(1, Ordering::Relaxed) } else { dir.load.fetch_sub(1, Ordering::Relaxed) };
            });
        }
        held.dir = one.to;
    }

    /// The old directory has lost its name, durably: the new one needs no sign any more.
    fn leave(&self, old: &Path, new: &Path) -> io::Result<()> {
        if self.disk.exists(old) {
            return Err(io::Error::other(format!("{} is still there", old.display())));
        }
        old.parent().map_or(Ok(()), |parent| self.disk.sync_dir(parent))?;
        remove_if_there(&*self.disk, &new.join(MOVED_FILE))?;
        self.disk.sync_dir(new)
    }

    /// Ends the moves that a crash cut short behind their point of no return.
    pub(super) fn finish_moves(&self) -> Result<(), LogError> {
        let mut places: BTreeMap<TopicPartition, Vec<PathBuf>> = BTreeMap::new();
        for dir in &self.dirs {
            for entry in self.disk.list(&dir.path)?.into_iter().filter(|entry| entry.is_dir) {
                if let DirKind::Partition(topic) = files::parse_dir(&entry.name) {
                    places.entry(topic).or_default().push(dir.path.join(entry.name));
                }
            }
        }
        for (topic, paths) in places {
            let moved: Vec<_> = paths.iter().filter(|path| self.disk.exists(&path.join(MOVED_FILE))).collect();
            let [new] = moved[..] else { continue };
            for old in paths.iter().filter(|path| *path != new) {
                tracing::info!(partition = %topic, from = %old.display(), to = %new.display(), "a move had been cut short; ending it");
                let aside = old.with_file_name(files::marked_dir(&topic, uuid::Uuid::new_v4().as_u128(), "-delete"));
                self.disk.rename(old, &aside)?;
                old.parent().map_or(Ok(()), |parent| self.disk.sync_dir(parent))?;
                self.remove_dir(&aside);
            }
            remove_if_there(&*self.disk, &new.join(MOVED_FILE))?;
            self.disk.sync_dir(new)?;
        }
        Ok(())
    }

    /// Takes up moves that the last process had begun.
    pub(super) fn resume_moves(&self) -> Result<(), LogError> {
        for (i, dir) in self.dirs.iter().enumerate() {
            for entry in self.disk.list(&dir.path)?.into_iter().filter(|entry| entry.is_dir) {
                let DirKind::Future(topic) = files::parse_dir(&entry.name) else { continue };
                let path = dir.path.join(&entry.name);
                let partitions = self.partitions.read();
                let held = partitions.values().find(|held| *held.log.topic() == topic && held.dir != i);
                match held.map(|held| Arc::clone(&held.log)) {
                    Some(log) if !self.moves.list.lock().contains_key(&(log.topic_id(), log.partition())) => {
                        tracing::info!(partition = %topic, to = %dir.path.display(), "going on with a move to another data directory");
                        drop(partitions);
                        self.enlist(&log, i, path);
                    }
                    _ => self.remove_dir(&path),
                }
            }
        }
        Ok(())
    }
}
