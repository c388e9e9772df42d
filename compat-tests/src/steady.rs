//! A producer that goes on whatever happens: idempotent, one batch of one record in flight, the same batch again until it is acknowledged.
//! It keeps what it was told, so that a test can hold the broker to it. It decides nothing: when to send and when to give up is the test's.

use std::net::SocketAddr;
use std::time::{SystemTime, UNIX_EPOCH};

use anyhow::{Context, Result, bail, ensure};
use bytes::{Buf, Bytes};
use kafka_protocol::messages::create_topics_request::{CreatableTopic, CreatableTopicConfig};
use kafka_protocol::messages::fetch_request::{FetchPartition, FetchTopic};
use kafka_protocol::messages::produce_request::{PartitionProduceData, TopicProduceData};
use kafka_protocol::messages::{
    BrokerId, CreateTopicsRequest, DeleteTopicsRequest, FetchRequest, InitProducerIdRequest, MetadataRequest, ProduceRequest, TopicName,
};
use kafka_protocol::protocol::StrBytes;

use crate::batch::{self, Batch};
use crate::wire::Client;

/// Kafka's `Errors.KAFKA_STORAGE_ERROR`.
pub const KAFKA_STORAGE_ERROR: i16 = 56;

/// What became of an attempt.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Told {
    /// The record has this offset.
    Acknowledged(i64),
    /// The answer was this error; the same batch comes next.
    Refused(i16),
    /// The connection ended, or there was none; the same batch comes next.
    Nothing,
}

/// One producer of one partition.
pub struct Steady {
    address: SocketAddr,
    topic: String,
    partition: i32,
    producer_id: i64,
    producer_epoch: i16,
    connection: Option<Client>,
    /// The number that the next record carries, which is also its sequence.
    next: u64,
    /// Offsets by number.
    acknowledged: Vec<i64>,
}

impl Steady {
    /// # Errors
    /// If the broker gives no producer id.
    pub fn new(address: SocketAddr, topic: &str, partition: i32) -> Result<Self> {
        let request = InitProducerIdRequest::default().with_transactional_id(None).with_transaction_timeout_ms(60_000);
        let answer = Client::connect(address)?.ask(4, &request)?;
        ensure!(answer.error_code == 0, "InitProducerId was answered {}", answer.error_code);
        Ok(Self {
            address,
            topic: topic.to_owned(),
            partition,
            producer_id: answer.producer_id.0,
            producer_epoch: answer.producer_epoch,
            connection: None,
            next: 0,
            acknowledged: Vec::new(),
        })
    }

    /// How many records were acknowledged.
    pub fn count(&self) -> usize {
        self.acknowledged.len()
    }

    /// Sends the next record, of `bytes` bytes, or the last one again if it wasn't acknowledged.
    ///
    /// # Errors
    /// If the answer isn't one, or tells an offset twice.
    pub fn send(&mut self, bytes: usize) -> Result<Told> {
        if self.connection.is_none() {
            self.connection = Client::connect(self.address).ok();
        }
        let Some(client) = &mut self.connection else { return Ok(Told::Nothing) };
        let mut value = vec![b'.'; bytes.max(8)];
        value[..8].copy_from_slice(&self.next.to_be_bytes());
        let sequence = i32::try_from(self.next)?;
        // Of today: a producer whose batches are old is forgotten at the next start, as in Kafka, and its retries are taken for new ones.
        let now = SystemTime::now().duration_since(UNIX_EPOCH)?.as_millis();
        let batch = Batch::of_values(i64::try_from(now)?, &[&value]).from_producer(self.producer_id, self.producer_epoch, sequence);
        let Ok(Some(answer)) = client.ask_or_closed(9, &produce(&self.topic, self.partition, batch.encode())) else {
            self.connection = None;
            return Ok(Told::Nothing);
        };
        let partition = answer.responses.first().and_then(|topic| topic.partition_responses.first()).context("no partition is answered")?;
        if partition.error_code != 0 {
            return Ok(Told::Refused(partition.error_code));
        }
        ensure!(
            self.acknowledged.last().is_none_or(|last| *last < partition.base_offset),
            "offset {} is told twice",
            partition.base_offset
        );
        self.acknowledged.push(partition.base_offset);
        self.next += 1;
        Ok(Told::Acknowledged(partition.base_offset))
    }

    /// Holds the partition to what was acknowledged: each record is where it was said to be, once, in order; at most one other, which
    /// was sent last, is behind them.
    ///
    /// # Errors
    /// If it isn't so, with what is missing or too much.
    pub fn verify(&self) -> Result<()> {
        let read = read(&mut Client::connect(self.address)?, &self.topic, self.partition)?;
        let place = format!("{}-{}", self.topic, self.partition);
        for (number, offset) in self.acknowledged.iter().enumerate() {
            let found = read.get(number).map(|(offset, value)| (*offset, number_of(value)));
            ensure!(
                found == Some((*offset, number as u64)),
                "{place}: record {number} was acknowledged at {offset}; there is {found:?} of {} records",
                read.len()
            );
        }
        match read.get(self.acknowledged.len()..) {
            Some([]) => Ok(()),
            Some([(_, value)]) if number_of(value) == self.next => Ok(()),
            more => bail!("{place}: {} records that nobody was told of", more.map_or(0, <[_]>::len)),
        }
    }
}

fn number_of(value: &Bytes) -> u64 {
    value.get(..8).map_or(u64::MAX, |mut head| head.get_u64())
}

/// Produce with acks=all of one batch.
pub fn produce(topic: &str, partition: i32, batch: Bytes) -> ProduceRequest {
    let data = PartitionProduceData::default().with_index(partition).with_records(Some(batch));
    let topic = TopicProduceData::default().with_name(name(topic)).with_partition_data(vec![data]);
    ProduceRequest::default().with_acks(-1).with_timeout_ms(30_000).with_topic_data(vec![topic])
}

/// A record as a partition has it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Kept {
    pub offset: i64,
    pub key: Option<Bytes>,
    pub value: Option<Bytes>,
}

/// The offsets and values of all records of a partition whose batches aren't compressed; a null value is an empty one.
///
/// # Errors
/// As [`read_kept`].
pub fn read(client: &mut Client, topic: &str, partition: i32) -> Result<Vec<(i64, Bytes)>> {
    let records = read_kept(client, topic, partition)?;
    Ok(records.into_iter().map(|record| (record.offset, record.value.unwrap_or_default())).collect())
}

/// All records of a partition whose batches aren't compressed, with their keys.
///
/// # Errors
/// If the broker answers with an error, or with batches that can't be read.
pub fn read_kept(client: &mut Client, topic: &str, partition: i32) -> Result<Vec<Kept>> {
    let (mut from, mut records) = (0, Vec::new());
    loop {
        let asked = FetchPartition::default().with_partition(partition).with_fetch_offset(from).with_partition_max_bytes(8 << 20);
        let topics = vec![FetchTopic::default().with_topic(name(topic)).with_partitions(vec![asked])];
        let request =
            FetchRequest::default().with_replica_id(BrokerId(-1)).with_max_bytes(8 << 20).with_session_epoch(-1).with_topics(topics);
        let answer = client.ask(11, &request)?;
        let partition = answer.responses.first().and_then(|topic| topic.partitions.first()).context("no partition is answered")?;
        ensure!(partition.error_code == 0, "Fetch from {from} of {topic} was answered {}", partition.error_code);
        let batches = batch::read(partition.records.clone().unwrap_or_default())?;
        let Some(last) = batches.last() else { return Ok(records) };
        from = last.header.base_offset + i64::from(last.header.last_offset_delta) + 1;
        for mut batch in batches {
            ensure!(batch.header.attributes & 7 == 0, "a compressed batch");
            for _ in 0..batch.header.record_count {
                records.push(kept(batch.header.base_offset, &mut batch.records)?);
            }
        }
    }
}

/// The next of a batch's records.
fn kept(base_offset: i64, records: &mut Bytes) -> Result<Kept> {
    let length = usize::try_from(varint(records)?)?;
    ensure!((1..=records.len()).contains(&length), "a record that is cut short");
    let mut record = records.split_to(length);
    record.advance(1);
    let _timestamp = varint(&mut record)?;
    let offset = base_offset + varint(&mut record)?;
    Ok(Kept { offset, key: nullable(&mut record)?, value: nullable(&mut record)? })
}

fn nullable(record: &mut Bytes) -> Result<Option<Bytes>> {
    let Ok(length) = usize::try_from(varint(record)?) else { return Ok(None) };
    ensure!(record.len() >= length, "a record that is cut short");
    Ok(Some(record.split_to(length)))
}

fn varint(bytes: &mut Bytes) -> Result<i64> {
    let mut value = 0_u64;
    for shift in (0..63).step_by(7) {
        ensure!(bytes.has_remaining(), "a number that is cut short");
        let byte = bytes.get_u8();
        value |= u64::from(byte & 0x7f) << shift;
        if byte & 0x80 == 0 {
            return Ok((value >> 1).cast_signed() ^ -((value & 1).cast_signed()));
        }
    }
    bail!("a number that is too long")
}

fn name(topic: &str) -> TopicName {
    TopicName(StrBytes::from_string(topic.to_owned()))
}

/// Makes a topic; the answer's error code.
///
/// # Errors
/// If there's no answer.
pub fn create(client: &mut Client, topic: &str, partitions: i32, configs: &[(&str, &str)]) -> Result<i16> {
    let text = |text: &str| StrBytes::from_string(text.to_owned());
    let config = |(key, value): &(&str, &str)| CreatableTopicConfig::default().with_name(text(key)).with_value(Some(text(value)));
    let topic = CreatableTopic::default()
        .with_name(name(topic))
        .with_num_partitions(partitions)
        .with_replication_factor(1)
        .with_configs(configs.iter().map(config).collect());
    let answer = client.ask(5, &CreateTopicsRequest::default().with_topics(vec![topic]).with_timeout_ms(30_000))?;
    Ok(answer.topics.first().context("no topic is answered")?.error_code)
}

/// Deletes a topic; the answer's error code.
///
/// # Errors
/// If there's no answer.
pub fn delete(client: &mut Client, topic: &str) -> Result<i16> {
    let answer = client.ask(5, &DeleteTopicsRequest::default().with_topic_names(vec![name(topic)]).with_timeout_ms(30_000))?;
    Ok(answer.responses.first().context("no topic is answered")?.error_code)
}

/// The names of all topics.
///
/// # Errors
/// If there's no answer.
pub fn topics(client: &mut Client) -> Result<Vec<String>> {
    let answer = client.ask(9, &MetadataRequest::default().with_topics(None))?;
    Ok(answer.topics.into_iter().filter_map(|topic| Some(topic.name?.0.to_string())).collect())
}
