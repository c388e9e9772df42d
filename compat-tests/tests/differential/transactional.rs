//! A transactional producer of a script: its requests in every version, right ones and others. Only building, and the waiting that Apache
//! Kafka needs: for its coordinator, and for markers, which it writes after it has answered.

use anyhow::{Context, Result};
use compat_tests::batch::Batch;
use kafka_protocol::messages::add_partitions_to_txn_request::{AddPartitionsToTxnTopic, AddPartitionsToTxnTransaction};
use kafka_protocol::messages::txn_offset_commit_request::{TxnOffsetCommitRequestPartition, TxnOffsetCommitRequestTopic};
use kafka_protocol::messages::{
    AddOffsetsToTxnRequest, AddPartitionsToTxnRequest, DescribeTransactionsRequest, EndTxnRequest, FindCoordinatorRequest,
    InitProducerIdRequest, ProduceRequest, ProducerId, TransactionalId, TxnOffsetCommitRequest,
};

use crate::groups::gid;
use crate::requests::{THEN, Topic, produce, text, topic_name};
use crate::side::Side;

/// Kafka's `Errors` after which a producer asks again: the coordinator loads, isn't there or is elsewhere; the last transaction is ending.
const RETRIABLE: [i16; 4] = [14, 15, 16, 51];
/// Attribute of a batch: it is in a transaction.
const TRANSACTIONAL: i16 = 1 << 4;

pub fn tid(id: &str) -> TransactionalId {
    TransactionalId(text(id))
}

/// A producer id and epoch with its transactional id.
#[derive(Clone)]
pub struct Producer {
    pub id: String,
    pub producer: i64,
    pub epoch: i16,
}

impl Producer {
    /// The first of its transactional id. Waits for the coordinator.
    pub fn new(side: &mut Side, id: &str) -> Result<Self> {
        side.wait_for("there is a coordinator", |side| {
            let find = FindCoordinatorRequest::default().with_key_type(1).with_coordinator_keys(vec![text(id)]);
            Ok(side.ask(4, &find)?.coordinators.iter().all(|found| found.error_code == 0))
        })?;
        let init = init(4, id);
        side.wait_for("the coordinator has loaded", |side| Ok(!RETRIABLE.contains(&side.ask(4, &init)?.error_code)))?;
        let answer = side.ask(4, &init)?;
        Ok(Self { id: id.to_owned(), producer: answer.producer_id.0, epoch: answer.producer_epoch })
    }

    /// With another epoch.
    pub fn at(&self, epoch: i16) -> Self {
        Self { epoch, ..self.clone() }
    }

    /// With another producer id.
    pub fn of(&self, producer: i64) -> Self {
        Self { producer, ..self.clone() }
    }

    /// With another transactional id.
    pub fn named(&self, id: &str) -> Self {
        Self { id: id.to_owned(), ..self.clone() }
    }

    pub fn add(&self, version: i16, topics: &[(&str, &[i32])]) -> AddPartitionsToTxnRequest {
        let topic = |(name, partitions): &(&str, &[i32])| {
            AddPartitionsToTxnTopic::default().with_name(topic_name(name)).with_partitions(partitions.to_vec())
        };
        let topics = topics.iter().map(topic).collect();
        if version >= 4 {
            return AddPartitionsToTxnRequest::default().with_transactions(vec![self.batched(topics, false)]);
        }
        AddPartitionsToTxnRequest::default()
            .with_v3_and_below_transactional_id(tid(&self.id))
            .with_v3_and_below_producer_id(ProducerId(self.producer))
            .with_v3_and_below_producer_epoch(self.epoch)
            .with_v3_and_below_topics(topics)
    }

    /// One of the transactions that a broker asks about.
    pub fn batched(&self, topics: Vec<AddPartitionsToTxnTopic>, verify_only: bool) -> AddPartitionsToTxnTransaction {
        AddPartitionsToTxnTransaction::default()
            .with_transactional_id(tid(&self.id))
            .with_producer_id(ProducerId(self.producer))
            .with_producer_epoch(self.epoch)
            .with_verify_only(verify_only)
            .with_topics(topics)
    }

    pub fn add_offsets(&self, group: &str) -> AddOffsetsToTxnRequest {
        AddOffsetsToTxnRequest::default()
            .with_transactional_id(tid(&self.id))
            .with_producer_id(ProducerId(self.producer))
            .with_producer_epoch(self.epoch)
            .with_group_id(gid(group))
    }

    pub fn commit_offsets(&self, version: i16, group: &str, topic: &str, offset: i64) -> TxnOffsetCommitRequest {
        let partition = |index| {
            TxnOffsetCommitRequestPartition::default()
                .with_partition_index(index)
                .with_committed_offset(offset)
                .with_committed_leader_epoch(if version >= 2 { 0 } else { -1 })
                .with_committed_metadata(Some(text("m")))
        };
        let topic = TxnOffsetCommitRequestTopic::default().with_name(topic_name(topic)).with_partitions(vec![partition(0), partition(1)]);
        TxnOffsetCommitRequest::default()
            .with_transactional_id(tid(&self.id))
            .with_group_id(gid(group))
            .with_producer_id(ProducerId(self.producer))
            .with_producer_epoch(self.epoch)
            .with_generation_id(-1)
            .with_topics(vec![topic])
    }

    pub fn produce(&self, version: i16, topic: &Topic, partition: i32, sequence: i32) -> ProduceRequest {
        produce(version, topic, partition, self.batch(sequence).encode()).with_transactional_id(Some(tid(&self.id)))
    }

    /// One record in a transaction.
    pub fn batch(&self, sequence: i32) -> Batch {
        let batch = Batch::of_values(THEN, &[b"in a transaction"]).from_producer(self.producer, self.epoch, sequence);
        batch.with(|header| header.attributes |= TRANSACTIONAL)
    }

    pub fn end(&self, commit: bool) -> EndTxnRequest {
        EndTxnRequest::default()
            .with_transactional_id(tid(&self.id))
            .with_producer_id(ProducerId(self.producer))
            .with_producer_epoch(self.epoch)
            .with_committed(commit)
    }

    /// Its transaction has begun, without a step.
    pub fn begin(&self, side: &mut Side, topic: &str) -> Result<()> {
        let add = self.add(3, &[(topic, &[0])]);
        side.wait_for("a partition is added", |side| {
            let answer = side.ask(3, &add)?;
            let codes = answer.results_by_topic_v3_and_below.iter().flat_map(|topic| &topic.results_by_partition);
            Ok(codes.into_iter().all(|partition| partition.partition_error_code == 0))
        })
    }

    /// Ends its transaction as a step, and waits for the markers; from version 5 on its epoch is the next.
    pub fn end_step(&mut self, side: &mut Side, version: i16, commit: bool) -> Result<()> {
        let answer = side.answer(&format!("end, commit {commit}"), version, &self.end(commit))?;
        if version >= 5 && answer.error_code == 0 {
            (self.producer, self.epoch) = (answer.producer_id.0, answer.producer_epoch);
        }
        self.settle(side)
    }

    /// Waits until no markers are being written.
    pub fn settle(&self, side: &mut Side) -> Result<()> {
        let describe = DescribeTransactionsRequest::default().with_transactional_ids(vec![tid(&self.id)]);
        side.wait_for("its markers are written", |side| {
            let answer = side.ask(0, &describe)?;
            let state = answer.transaction_states.first().context("no transaction is described")?;
            Ok(!state.transaction_state.starts_with("Prepare") && !RETRIABLE.contains(&state.error_code))
        })
    }
}

/// InitProducerId of a transactional id.
pub fn init(version: i16, id: &str) -> InitProducerIdRequest {
    let ask = InitProducerIdRequest::default().with_transactional_id(Some(tid(id))).with_transaction_timeout_ms(60_000);
    if version >= 3 { ask.with_producer_id(ProducerId(-1)).with_producer_epoch(-1) } else { ask }
}
