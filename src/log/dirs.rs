//! One data directory (one of `log.dirs`): its lock, its checkpoints and the mark of a clean stop.

use super::{
    LogError,
    checkpoints::{clean_mark, decode_offsets, encode_offsets},
    descriptors::OpenFiles,
    files::{CLEAN_FILE, CLEANED_FILE, HIGH_WATERMARKS_FILE, LOCK_FILE, LOG_STARTS_FILE, PROBE_FILE, RECOVERY_POINTS_FILE},
    health::DirHealth,
    io::{Disk, DiskLock, is_out_of_room, write_atomically},
    segment::{optional, remove_if_there},
};
use crate::types::{Offset, TopicPartition};
use parking_lot::Mutex;
use std::{
    collections::HashMap,
    io,
    path::{Path, PathBuf},
    sync::{Arc, atomic::AtomicUsize},
};

/// A data directory that this process holds.
pub(super) struct DataDir {
    pub path: PathBuf,
    disk: Arc<dyn Disk>,
    /// The last stop was a clean one.
    pub clean: bool,
    /// How many partitions are in it.
    pub load: AtomicUsize,
    pub health: Arc<DirHealth>,
    /// What the files hold.
    checkpoints: Mutex<Checkpoints>,
    _lock: Box<dyn DiskLock>,
}

type Offsets = HashMap<TopicPartition, Offset>;

/// Where the partitions of a directory stand.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub(super) struct Checkpoints {
    /// Everything below is durable.
    pub recovery_points: Offsets,
    /// Only those that no segment's name tells.
    pub log_starts: Offsets,
    pub high_watermarks: Offsets,
    /// Where compaction last ended.
    pub cleaned: Offsets,
}

impl DataDir {
    /// Makes and locks a directory, and reads what the last process left of it.
    pub fn lock(disk: &Arc<dyn Disk>, path: &Path, files: &Arc<OpenFiles>) -> Result<Self, LogError> {
        let missing: Vec<_> = path.ancestors().take_while(|dir| !dir.as_os_str().is_empty() && !disk.exists(dir)).collect();
        disk.create_dir_all(path)?;
        // Whatever is made durable in a directory is lost with it, if its own name isn't.
        missing.into_iter().filter_map(Path::parent).try_for_each(|parent| disk.sync_dir(parent))?;
        let lock = disk.lock(&path.join(LOCK_FILE)).map_err(|e| match e.kind() {
            io::ErrorKind::WouldBlock => LogError::Locked(path.to_owned()),
            _ => e.into(),
        })?;
        let clean = disk.exists(&path.join(CLEAN_FILE));
        if !clean {
            // A killed process may have left names that a power loss would take back, after this one has gone by them.
            disk.sync_dir(path)?;
        }
        let read = |name| -> Result<Offsets, LogError> {
            let file = path.join(name);
            let Some(bytes) = optional(disk.read(&file))? else { return Ok(Offsets::new()) };
            Ok(decode_offsets(&String::from_utf8_lossy(&bytes)).unwrap_or_else(|error| {
                tracing::warn!(file = %file.display(), %error, "leaving out a checkpoint that can't be read");
                Offsets::new()
            }))
        };
        let checkpoints = Checkpoints {
            recovery_points: read(RECOVERY_POINTS_FILE)?,
            log_starts: read(LOG_STARTS_FILE)?,
            high_watermarks: read(HIGH_WATERMARKS_FILE)?,
            cleaned: read(CLEANED_FILE)?,
        };
        let mut health = DirHealth::new(path);
        health.files = Arc::clone(files);
        let health = Arc::new(health);
        let (path, disk) = (path.to_owned(), Arc::clone(disk));
        let _ = health.rounds.sync_all.set(disk.open_sync_all(&path)?);
        Ok(Self { path, disk, clean, health, load: AtomicUsize::new(0), checkpoints: Mutex::new(checkpoints), _lock: lock })
    }

    /// The partition's recovery point and log start.
    pub fn checkpointed(&self, topic: &TopicPartition) -> (Option<Offset>, Option<Offset>) {
        let checkpoints = self.checkpoints.lock();
        (checkpoints.recovery_points.get(topic).copied(), checkpoints.log_starts.get(topic).copied())
    }

    /// Looks how much room there is for appends beside the last `min_free_bytes`; and, if a partition's I/O has failed, whether the directory
    /// still takes a write. True if it has failed just now.
    pub fn examine(&self, min_free_bytes: u64) -> bool {
        match self.disk.free_bytes(&self.path) {
            Ok(free) => self.health.measured(free, min_free_bytes),
            Err(error) => {
                tracing::debug!(dir = %self.path.display(), %error, "can't tell how much room there is");
                self.health.note_suspect();
            }
        }
        if !self.health.take_suspect() || self.health.failure().is_some() {
            return false;
        }
        let probe = self.path.join(PROBE_FILE);
        let tried = write_atomically(&*self.disk, &probe, b"highwater\n").and_then(|()| self.disk.remove_file(&probe));
        tried.is_err_and(|error| !is_out_of_room(&error) && self.health.note_failed(&error))
    }

    /// Where the partition's last compaction ended.
    pub fn cleaned(&self, topic: &TopicPartition) -> Option<Offset> {
        self.checkpoints.lock().cleaned.get(topic).copied()
    }

    /// From now on a crash is one.
    pub fn remove_clean_mark(&self) -> Result<(), LogError> {
        if self.clean {
            remove_if_there(&*self.disk, &self.path.join(CLEAN_FILE))?;
            self.disk.sync_dir(&self.path)?;
        }
        Ok(())
    }

    /// The next start reads no data here.
    pub fn write_clean_mark(&self) -> Result<(), LogError> {
        Ok(write_atomically(&*self.disk, &self.path.join(CLEAN_FILE), clean_mark().as_bytes())?)
    }

    /// Replaces the files whose contents change.
    pub fn write_checkpoints(&self, new: Checkpoints) -> Result<(), LogError> {
        self.replace(&mut self.checkpoints.lock(), new)
    }

    /// Replaces the log starts, durably, if they changed.
    pub fn write_log_starts(&self, log_starts: Offsets) -> Result<(), LogError> {
        let mut checkpoints = self.checkpoints.lock();
        let new = Checkpoints { log_starts, ..checkpoints.clone() };
        self.replace(&mut checkpoints, new)
    }

    fn replace(&self, old: &mut Checkpoints, new: Checkpoints) -> Result<(), LogError> {
        let files = [
            (RECOVERY_POINTS_FILE, &old.recovery_points, &new.recovery_points),
            (LOG_STARTS_FILE, &old.log_starts, &new.log_starts),
            (HIGH_WATERMARKS_FILE, &old.high_watermarks, &new.high_watermarks),
            (CLEANED_FILE, &old.cleaned, &new.cleaned),
        ];
        for (name, old, new) in files {
            if old != new {
                let mut sorted: Vec<_> = new.iter().map(|(topic, offset)| (topic, *offset)).collect();
                sorted.sort_unstable();
                write_atomically(&*self.disk, &self.path.join(name), encode_offsets(sorted.into_iter()).as_bytes())?;
            }
        }
        *old = new;
        Ok(())
    }

    /// Speaks of a partition that is about to be here, durably: where checking begins after a crash, where its log starts, and where it was
    /// cleaned up to.
    pub fn expect(
        &self,
        topic: &TopicPartition,
        recovery_point: Offset,
        log_start: Option<Offset>,
        cleaned: Option<Offset>,
    ) -> Result<(), LogError> {
        let mut checkpoints = self.checkpoints.lock();
        let mut new = checkpoints.clone();
        new.recovery_points.insert(topic.clone(), recovery_point);
        for (map, offset) in [(&mut new.log_starts, log_start), (&mut new.cleaned, cleaned)] {
            map.remove(topic);
            map.extend(offset.map(|offset| (topic.clone(), offset)));
        }
        self.replace(&mut checkpoints, new)
    }

    /// Less of a partition is durable than was thought.
    pub fn lower_recovery_point(&self, topic: &TopicPartition, to: Offset) -> Result<(), LogError> {
        let mut checkpoints = self.checkpoints.lock();
        let mut new = checkpoints.clone();
        new.recovery_points.insert(topic.clone(), to);
        self.replace(&mut checkpoints, new)
    }

    /// Forgets a partition that's no longer here, durably, if the files speak of it: a new one of its name must not inherit them.
    pub fn forget(&self, topic: &TopicPartition) -> Result<(), LogError> {
        let mut checkpoints = self.checkpoints.lock();
        let old = &*checkpoints;
        if ![&old.recovery_points, &old.log_starts, &old.high_watermarks, &old.cleaned].iter().any(|map| map.contains_key(topic)) {
            return Ok(());
        }
        let mut new = old.clone();
        let maps = [&mut new.recovery_points, &mut new.log_starts, &mut new.high_watermarks, &mut new.cleaned];
        maps.into_iter().for_each(|map| {
            map.remove(topic);
        });
        self.replace(&mut checkpoints, new)
    }
}
