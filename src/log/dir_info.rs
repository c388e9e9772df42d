//! The data directories as their operator asks for them (`DescribeLogDirs`), and the look at each tick whether they have room and still work.

use super::{dirs::DataDir, health::DirStatus, logs::Logs, partition::PartitionLog};
use crate::types::TopicPartition;
use std::{
    path::PathBuf,
    sync::{Arc, atomic::Ordering},
};

/// One of `log.dirs`.
#[derive(Clone)]
pub struct DirInfo {
    pub path: PathBuf,
    pub status: DirStatus,
    /// The size of its file system; `None` if that can't be asked.
    pub total_bytes: Option<u64>,
    /// What this process may still write there; `None` if that can't be asked.
    pub usable_bytes: Option<u64>,
    /// What is in it; [`PartitionLog::size_bytes`] says how much each takes.
    pub partitions: Vec<Arc<PartitionLog>>,
    /// Copies of partitions that are on their way here.
    pub futures: Vec<FutureInfo>,
}

/// A copy that is to take its partition's place.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct FutureInfo {
    pub topic: TopicPartition,
    pub size_bytes: u64,
    /// How many offsets it is behind.
    pub offset_lag: i64,
}

impl Logs {
    /// All data directories, in the order of `log.dirs`. Blocks on I/O.
    pub fn dirs(&self) -> Vec<DirInfo> {
        let mut infos: Vec<DirInfo> = self.dirs.iter().map(|dir| self.info(dir)).collect();
        for held in self.partitions.read().values() {
            infos.iter_mut().skip(held.dir).take(1).for_each(|info| info.partitions.push(Arc::clone(&held.log)));
        }
        for (to, future) in self.futures() {
            infos.iter_mut().skip(to).take(1).for_each(|info| info.futures.push(future.clone()));
        }
        infos
    }

    fn info(&self, dir: &DataDir) -> DirInfo {
        DirInfo {
            path: dir.path.clone(),
            status: dir.health.status(),
            total_bytes: self.disk.total_bytes(&dir.path).ok(),
            usable_bytes: self.disk.free_bytes(&dir.path).ok(),
            partitions: Vec::new(),
            futures: Vec::new(),
        }
    }

    /// Looks at each directory. The partitions of one that doesn't work take no more writes.
    pub(super) fn examine_dirs(&self) {
        for (i, dir) in self.dirs.iter().enumerate() {
            if !dir.examine(self.settings.min_free_bytes) {
                continue;
            }
            let why = std::io::Error::other(dir.health.failure().unwrap_or_default().to_owned());
            let held: Vec<_> = self.partitions.read().values().filter(|held| held.dir == i).map(|held| Arc::clone(&held.log)).collect();
            held.iter().for_each(|log| log.fail(&why));
        }
    }

    /// How loaded each directory is, for the choice of one for a new partition: those without room count as fuller than any other, and
    /// those that failed as fuller still.
    pub(super) fn loads(&self) -> Vec<usize> {
        const NO_ROOM: usize = usize::MAX / 4;
        let load = |dir: &DataDir| {
            let more = match dir.health.status() {
                DirStatus::Online => 0,
                DirStatus::LowOnSpace => NO_ROOM,
                DirStatus::Failed(_) => NO_ROOM.saturating_mul(2),
            };
            dir.load.load(Ordering::Relaxed).saturating_add(more)
        };
        self.dirs.iter().map(load).collect()
    }
}
