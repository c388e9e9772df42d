//! A transactional producer by hand: its way to its coordinator, and a transaction.

use std::net::SocketAddr;
use std::thread;
use std::time::{Duration, Instant, UNIX_EPOCH};

use anyhow::{Context, Result, bail, ensure};
use kafka_protocol::messages::add_partitions_to_txn_request::AddPartitionsToTxnTopic;
use kafka_protocol::messages::{
    AddPartitionsToTxnRequest, EndTxnRequest, FindCoordinatorRequest, InitProducerIdRequest, ProduceRequest, ProducerId, TopicName,
    TransactionalId,
};
use kafka_protocol::protocol::StrBytes;

use crate::batch::Batch;
use crate::steady;
use crate::wire::Client;

/// Errors after which clients try again: loading, not available, not the coordinator, the last transaction's markers are being written.
const RETRIABLE: [i16; 4] = [14, 15, 16, 51];
const WAIT: Duration = Duration::from_secs(60);
const BETWEEN: Duration = Duration::from_millis(1);
/// A batch's attribute: it is in a transaction.
const TRANSACTIONAL: i16 = 1 << 4;

/// Asks again while the answer is an error of those. `ask` gives the error code and the rest of the answer.
///
/// # Errors
/// If `ask` fails, another error is answered, or it goes on for a minute.
pub fn again<R>(mut ask: impl FnMut() -> Result<(i16, R)>) -> Result<R> {
    let deadline = Instant::now() + WAIT;
    loop {
        match ask()? {
            (0, answer) => return Ok(answer),
            (code, _) if RETRIABLE.contains(&code) && Instant::now() < deadline => thread::sleep(BETWEEN),
            (code, _) => bail!("answered {code}"),
        }
    }
}

/// Finds the coordinator (the broker that `client` is connected to), and gets the producer id and epoch of `id`.
///
/// # Errors
/// As [`again`].
fn init(client: &mut Client, id: &TransactionalId, timeout_ms: i32) -> Result<(i64, i16)> {
    let find = FindCoordinatorRequest::default().with_key(id.0.clone()).with_key_type(1);
    again(|| Ok((client.ask(2, &find)?.error_code, ())))?;
    let init = InitProducerIdRequest::default()
        .with_transactional_id(Some(id.clone()))
        .with_transaction_timeout_ms(timeout_ms)
        .with_producer_id(ProducerId(-1))
        .with_producer_epoch(-1);
    again(|| {
        let answer = client.ask(4, &init)?;
        Ok((answer.error_code, (answer.producer_id.0, answer.producer_epoch)))
    })
}

/// A transactional producer.
pub struct Producer {
    pub client: Client,
    pub id: TransactionalId,
    /// Its producer id and epoch.
    pub producer: (i64, i16),
}

impl Producer {
    /// One with a transactional id, whose transactions may be open for ten minutes.
    ///
    /// # Errors
    /// As [`again`].
    pub fn init(address: SocketAddr, id: &str) -> Result<Self> {
        let id = TransactionalId(StrBytes::from_string(id.to_owned()));
        let mut this = Self { client: Client::connect(address)?, id, producer: (-1, -1) };
        this.producer = init(&mut this.client, &this.id, 600_000)?;
        Ok(this)
    }

    /// One that no coordinator knows: it has a producer id of the idempotent ones, and says that it had this transactional id.
    ///
    /// # Errors
    /// As [`again`].
    pub fn stray(address: SocketAddr, id: &str) -> Result<Self> {
        let id = TransactionalId(StrBytes::from_string(id.to_owned()));
        let mut client = Client::connect(address)?;
        let init = InitProducerIdRequest::default().with_transactional_id(None).with_transaction_timeout_ms(60_000);
        let producer = again(|| {
            let answer = client.ask(4, &init)?;
            Ok((answer.error_code, (answer.producer_id.0, answer.producer_epoch)))
        })?;
        Ok(Self { client, id, producer })
    }

    /// AddPartitionsToTxn of the flow of old.
    ///
    /// # Errors
    /// As [`again`].
    pub fn add(&mut self, topic: &str, partitions: &[i32]) -> Result<()> {
        let (id, epoch) = self.producer;
        let topic = AddPartitionsToTxnTopic::default()
            .with_name(TopicName(StrBytes::from_string(topic.to_owned())))
            .with_partitions(partitions.to_vec());
        let add = AddPartitionsToTxnRequest::default()
            .with_v3_and_below_transactional_id(self.id.clone())
            .with_v3_and_below_producer_id(ProducerId(id))
            .with_v3_and_below_producer_epoch(epoch)
            .with_v3_and_below_topics(vec![topic]);
        again(|| {
            let answer = self.client.ask(3, &add)?;
            let result = answer.results_by_topic_v3_and_below.first().and_then(|topic| topic.results_by_partition.first());
            Ok((result.context("no partition is answered")?.partition_error_code, ()))
        })
    }

    /// A batch of one record in a transaction, as the request that has it alone.
    pub fn batch(&self, topic: &str, partition: i32, sequence: i32) -> ProduceRequest {
        let (id, epoch) = self.producer;
        let now = UNIX_EPOCH.elapsed().map_or(0, |since| i64::try_from(since.as_millis()).unwrap_or(i64::MAX));
        let batch = Batch::of_values(now, &[b"v"]).from_producer(id, epoch, sequence).with(|header| header.attributes |= TRANSACTIONAL);
        steady::produce(topic, partition, batch.encode()).with_transactional_id(Some(self.id.clone()))
    }

    /// Produces one record in the flow of old, whether the partition was added or not. Its offset.
    ///
    /// # Errors
    /// As [`again`].
    pub fn produce(&mut self, topic: &str, partition: i32, sequence: i32) -> Result<i64> {
        let produce = self.batch(topic, partition, sequence);
        again(|| {
            let answer = self.client.ask(9, &produce)?;
            let partition = answer.responses.first().and_then(|topic| topic.partition_responses.first());
            let partition = partition.context("no partition is answered")?;
            Ok((partition.error_code, partition.base_offset))
        })
    }

    /// One record in each partition, in a transaction that is open after it.
    ///
    /// # Errors
    /// As [`again`].
    pub fn write(&mut self, topic: &str, partitions: &[i32]) -> Result<()> {
        self.add(topic, partitions)?;
        for partition in partitions {
            self.produce(topic, *partition, 0)?;
        }
        Ok(())
    }

    /// EndTxn. From version 5 on the next epoch is in the answer.
    ///
    /// # Errors
    /// As [`again`].
    pub fn end(&mut self, version: i16, commit: bool) -> Result<()> {
        let (id, epoch) = self.producer;
        let end = EndTxnRequest::default()
            .with_transactional_id(self.id.clone())
            .with_producer_id(ProducerId(id))
            .with_producer_epoch(epoch)
            .with_committed(commit);
        let next = again(|| {
            let answer = self.client.ask(version, &end)?;
            Ok((answer.error_code, (answer.producer_id.0, answer.producer_epoch)))
        })?;
        if version >= 5 {
            ensure!(next.0 >= 0, "no producer to go on as");
            self.producer = next;
        }
        Ok(())
    }
}
