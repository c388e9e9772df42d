//! Making partitions' logs. Nothing here decides which there are to be.

use super::{
    LogError, PartitionSpec,
    logs::{Logs, least_loaded},
    partition::PartitionLog,
};
use crate::types::{Millis, TopicPartition};
use std::sync::Arc;

impl Logs {
    /// Makes a partition in the data directory that has the fewest. Its directory becomes durable with its first sync. One that fails is tried
    /// again with each [`Logs::tick`], as long as its topic is there.
    pub fn create(&self, spec: PartitionSpec, now: Millis) -> Result<Arc<PartitionLog>, LogError> {
        let _one_at_a_time = self.creating.lock();
        self.make(&spec, now).inspect_err(|error| {
            if !matches!(error, LogError::Exists(_)) {
                self.unmade.lock().push(spec.clone());
            }
        })
    }

    /// Tries again what could not be made.
    pub(super) fn make_unmade(&self, now: Millis) {
        if self.unmade.lock().is_empty() {
            return;
        }
        let _one_at_a_time = self.creating.lock();
        let unmade = std::mem::take(&mut *self.unmade.lock());
        for spec in unmade {
            match self.make(&spec, now) {
                Ok(_) => tracing::info!(partition = %spec.topic, "made a partition that could not be made before"),
                Err(LogError::Exists(_)) => {}
                Err(error) => {
                    tracing::debug!(partition = %spec.topic, %error, "still can't make a partition");
                    self.unmade.lock().push(spec);
                }
            }
        }
    }

    fn make(&self, spec: &PartitionSpec, now: Millis) -> Result<Arc<PartitionLog>, LogError> {
        if self.partitions.read().contains_key(&(spec.topic_id, spec.topic.partition)) {
            return Err(LogError::Exists(spec.topic.clone()));
        }
        let dir = least_loaded(&mut self.loads());
        for data_dir in &self.dirs {
            let path = data_dir.path.join(spec.topic.to_string());
            if self.disk.exists(&path) {
                self.set_aside(&path, &spec.topic)?;
            }
        }
        let log = self.open_one(spec, dir, false, now).inspect_err(|_| self.remove_unfinished(dir, &spec.topic))?;
        Ok(self.hold(log, dir))
    }

    /// What a creation that failed has left: found at the next start it would be taken for a partition.
    fn remove_unfinished(&self, dir: usize, topic: &TopicPartition) {
        let path = self.dirs.get(dir).map(|dir| dir.path.join(topic.to_string()));
        if let Some(path) = path.filter(|path| self.disk.exists(path)) {
            self.remove_dir(&path);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::{LogSettings, io::sim::SimDisk};
    use super::*;
    use crate::{config::TopicConfig, types::*};

    #[test]
    fn what_could_not_be_made_is_made_when_it_can_be() {
        let disk = SimDisk::new(1);
        let settings = LogSettings { dirs: vec!["/d".into()], ..LogSettings::default() };
        let logs = Logs::lock(Arc::new(disk.clone()), settings).unwrap();
        logs.open_all(Vec::new(), Millis(0)).unwrap();
        let id = |topic| TopicId(uuid::Uuid::from_u128(topic));
        let spec = |topic, partition| PartitionSpec {
            topic: TopicPartition { topic: TopicName::new(&format!("t{topic}")).unwrap(), partition: PartitionIndex(partition) },
            topic_id: id(topic),
            config: Arc::new(TopicConfig::default()),
            leader_epoch: LeaderEpoch(0),
        };
        logs.create(spec(1, 0), Millis(0)).unwrap();
        disk.set_room(Some(0));
        for (topic, partition) in [(1, 1), (1, 2), (2, 0)] {
            assert!(logs.create(spec(topic, partition), Millis(0)).is_err());
        }
        assert!(matches!(logs.create(spec(1, 0), Millis(0)), Err(LogError::Exists(_))));
        assert_eq!(logs.delete_topic(id(2), Millis(0)).unwrap(), 0, "nobody waits for it any more");
        logs.tick(Millis(1_000));
        assert_eq!(logs.partitions().len(), 1);
        disk.set_room(None);
        logs.tick(Millis(2_000));
        assert_eq!(logs.partitions().len(), 3);
        assert!(logs.get(id(1), PartitionIndex(2)).is_some() && logs.get(id(2), PartitionIndex(0)).is_none());
        assert!(logs.unmade.lock().is_empty());
    }
}
