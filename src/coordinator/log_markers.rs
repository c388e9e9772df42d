//! Writes the markers that end transactions: into the logs of partitions, and where a partition is one of the offsets topic into its groups.

use super::{Committing, GroupCoordinator, Marker, MarkerOutcome, MarkerWriter, OFFSETS_TOPIC};
use crate::{
    cluster::{Cluster, Image, Topic},
    log::{AppendError, Logs},
    record::EndTxnMarker,
    types::{Clock, ErrorCode, PartitionIndex, TopicPartition},
};
use std::sync::Arc;

/// All partitions of this broker, as those see them who end transactions.
pub struct LogMarkers {
    pub cluster: Arc<Cluster>,
    pub logs: Arc<Logs>,
    pub groups: Arc<GroupCoordinator>,
    pub clock: Arc<dyn Clock>,
}

impl LogMarkers {
    /// WriteTxnMarkers: the marker's batch may still have to be committed.
    pub fn write_to(&self, marker: &Marker, topic: &str, partition: i32) -> Result<Option<Committing>, ErrorCode> {
        let image = self.cluster.image();
        let index = PartitionIndex(partition);
        let Some(topic) = image.topic(topic).filter(|topic| topic.partition(index).is_some()) else {
            return Err(ErrorCode::UnknownTopicOrPartition);
        };
        self.append(&image, marker, topic, index).map_err(|error| match &error {
            // A coordinator tries again after this one, and finds out where the partition is then.
            AppendError::Offline(_) | AppendError::NoRoom(_) | AppendError::Io(_) => ErrorCode::NotLeaderOrFollower,
            error => error.into(),
        })
    }

    fn append(&self, image: &Image, marker: &Marker, topic: &Topic, index: PartitionIndex) -> Result<Option<Committing>, AppendError> {
        let offline = |why: &str| AppendError::Offline(why.to_owned());
        if topic.partition(index).is_none_or(|state| state.leader != image.node_id) {
            return Err(offline("another broker leads it"));
        }
        let Marker { producer, commit, coordinator_epoch, version } = *marker;
        let record = EndTxnMarker { commit, coordinator_epoch };
        if topic.name.as_str() == OFFSETS_TOPIC {
            return self.groups.end_transaction(index, producer, record, version.0);
        }
        let log = self.logs.get(topic.id, index).ok_or_else(|| offline("its directory is not there"))?;
        let appended = log.end_transaction(self.clock.now(), producer.id, producer.epoch, record, version.0)?;
        Ok(Committing::of(&log, &appended))
    }
}

impl MarkerWriter for LogMarkers {
    fn write(&self, marker: &Marker, partition: &TopicPartition) -> MarkerOutcome {
        let image = self.cluster.image();
        let Some(topic) = image.topic(partition.topic.as_str()).filter(|topic| topic.partition(partition.partition).is_some()) else {
            return MarkerOutcome::Gone;
        };
        let mut appended = self.append(&image, marker, topic, partition.partition);
        if let Err(AppendError::FencedCoordinator { current, .. }) = appended {
            // One broker has no other coordinator: the higher epoch came by hand (WriteTxnMarkers), or the state topic was made again. The
            // transaction must end all the same, or readers of committed data would wait for ever.
            let marker = Marker { coordinator_epoch: current, ..*marker };
            appended = self.append(&image, &marker, topic, partition.partition);
        }
        match appended {
            Ok(committing) => MarkerOutcome::Written(committing),
            Err(error @ AppendError::FencedProducer { .. }) => {
                // Its producer has gone on, so that this marker was there before; it is written again after a crash.
                tracing::info!(%partition, %error, "a transaction had ended before its marker came again");
                MarkerOutcome::Written(None)
            }
            Err(error) => MarkerOutcome::Later((&error).into()),
        }
    }
}
