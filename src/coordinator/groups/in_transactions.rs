//! Offsets that are committed in producers' transactions, and the markers that end them in partitions of the offsets topic.

use super::{
    super::{
        OFFSETS_TOPIC,
        outcome::{Committing, Outcome},
        records,
        shard::{Shard, error_of},
        shards,
    },
    GroupCoordinator,
};
use crate::{
    group::{Decision, Groups, Now, Record},
    log::{AppendError, PartitionLog, Proof, validate::Origin},
    record::{BatchBuilder, EndTxnMarker},
    types::{ErrorCode, PartitionIndex, ProducerIdAndEpoch, TopicName, TopicPartition},
};
use std::sync::Arc;

impl GroupCoordinator {
    /// The partition of the offsets topic that a group's records lie in, whether the topic is there yet or not.
    pub fn partition_of(&self, group: &str) -> Result<TopicPartition, ErrorCode> {
        let planned = usize::try_from(self.settings.offsets_topic_num_partitions).unwrap_or(0);
        let count = Some(self.shards.count()).filter(|count| *count > 0).unwrap_or(planned);
        let index = i32::try_from(shards::partition_of(group, count)).unwrap_or(0);
        let topic = TopicName::new(OFFSETS_TOPIC).map_err(|_| ErrorCode::UnknownServerError)?;
        Ok(TopicPartition { topic, partition: PartitionIndex(index) })
    }

    /// The log of that partition.
    pub fn log_of(&self, group: &str) -> Result<Arc<PartitionLog>, ErrorCode> {
        Ok(self.shards.of(group)?.log().clone())
    }

    /// Decides on a group and writes what comes of it in a producer's transaction: it counts when the transaction's marker says so. `proof`
    /// shows that the partition is in the transaction.
    pub fn decide_in_transaction<R>(
        &self,
        group: &str,
        producer: ProducerIdAndEpoch,
        proof: Proof,
        decide: impl FnOnce(&Groups, Now) -> Decision<R>,
    ) -> Result<Outcome<R>, ErrorCode> {
        let now = self.shards.now();
        self.shards.of(group)?.with_log(|groups, log| {
            let Decision { reply, records, .. } = decide(groups, now);
            if records.is_empty() {
                return Ok(Outcome { reply, committing: None });
            }
            let mut builder = BatchBuilder::default().producer(producer.id, producer.epoch, -1).transactional();
            for record in &records {
                let (key, value) = records::encode(record).map_err(|_| ErrorCode::InvalidRequest)?;
                builder.append(now.wall, Some(&key), value.as_deref(), &[]);
            }
            let batch = builder.build().map_err(|_| ErrorCode::UnknownServerError)?;
            let appended = log.append(now.wall, batch, Origin::CoordinatorInTransaction(proof)).map_err(|error| refused(&error))?;
            records.iter().for_each(|record: &Record| groups.apply_pending(producer.id, record));
            Ok(Outcome { reply, committing: Committing::of(log, &appended) })
        })?
    }

    /// Writes the marker that ends a producer's transaction into a partition of the offsets topic; the offsets that were committed in it
    /// count from then on, or are dropped.
    pub fn end_transaction(
        &self,
        partition: PartitionIndex,
        producer: ProducerIdAndEpoch,
        marker: EndTxnMarker,
        transaction_version: i16,
    ) -> Result<Option<Committing>, AppendError> {
        let not_here = |error: ErrorCode| AppendError::Offline(format!("its groups have no coordinator here: {error}"));
        let now = self.shards.now();
        let shard: Arc<Shard<Groups>> = self.shards.at(partition).ok_or_else(|| not_here(ErrorCode::NotCoordinator))?;
        let ended = shard.with_log(|groups, log| {
            let appended = log.end_transaction(now.wall, producer.id, producer.epoch, marker, transaction_version)?;
            groups.end_transaction(producer.id, marker.commit);
            Ok(Committing::of(log, &appended))
        });
        ended.map_err(not_here)?
    }
}

/// What a client hears of a write in its transaction that was refused: the epoch and the transaction's state are its own.
fn refused(error: &AppendError) -> ErrorCode {
    match error {
        AppendError::FencedProducer { .. } | AppendError::InvalidTxnState(_) => error.into(),
        _ => error_of(error),
    }
}
