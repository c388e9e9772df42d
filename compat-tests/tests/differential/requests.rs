//! Requests in few words: what a script doesn't say is what a plain client would send. Only building, no sending.

use bytes::Bytes;
use kafka_protocol::messages::create_topics_request::{CreatableTopic, CreatableTopicConfig};
use kafka_protocol::messages::fetch_request::{FetchPartition, FetchTopic};
use kafka_protocol::messages::list_offsets_request::{ListOffsetsPartition, ListOffsetsTopic};
use kafka_protocol::messages::metadata_request::MetadataRequestTopic;
use kafka_protocol::messages::produce_request::{PartitionProduceData, TopicProduceData};
use kafka_protocol::messages::{BrokerId, CreateTopicsRequest, FetchRequest, ListOffsetsRequest, ProduceRequest, TopicName};
use kafka_protocol::protocol::StrBytes;
use uuid::Uuid;

/// Kafka's `Errors.UNKNOWN_TOPIC_OR_PARTITION`.
pub const UNKNOWN_TOPIC_OR_PARTITION: i16 = 3;
/// Kafka's `Errors.UNKNOWN_TOPIC_ID`.
pub const UNKNOWN_TOPIC_ID: i16 = 100;
/// An id that no topic has.
pub const NOBODY: Uuid = Uuid::from_u128(0x0123_4567_89ab_cdef_0123_4567_89ab_cdef);
/// A time that no clock gives; the timestamp of the batches of these scripts.
pub const THEN: i64 = 1_600_000_000_000;

pub fn text(text: &str) -> StrBytes {
    StrBytes::from_string(text.to_owned())
}

pub fn topic_name(name: &str) -> TopicName {
    TopicName(text(name))
}

/// A topic by its name, in Metadata.
pub fn named(name: &str) -> MetadataRequestTopic {
    MetadataRequestTopic::default().with_name(Some(topic_name(name)))
}

pub fn new_topic(name: &str, partitions: i32, configs: &[(&str, &str)]) -> CreatableTopic {
    let config = |(name, value): &(&str, &str)| CreatableTopicConfig::default().with_name(text(name)).with_value(Some(text(value)));
    CreatableTopic::default()
        .with_name(topic_name(name))
        .with_num_partitions(partitions)
        .with_replication_factor(1)
        .with_configs(configs.iter().map(config).collect())
}

pub fn create_topics(topics: Vec<CreatableTopic>) -> CreateTopicsRequest {
    CreateTopicsRequest::default().with_topics(topics).with_timeout_ms(30_000)
}

/// A topic as each version names it: Produce and Fetch by id from version 13 on.
#[derive(Clone)]
pub struct Topic {
    pub name: String,
    pub id: Uuid,
}

impl Topic {
    pub fn new(name: &str, id: Uuid) -> Self {
        Self { name: name.to_owned(), id }
    }
}

/// Produce with acks=all to one partition.
pub fn produce(version: i16, topic: &Topic, partition: i32, records: Bytes) -> ProduceRequest {
    produce_all(version, topic, vec![(partition, Some(records))])
}

/// Produce with acks=all to some partitions of a topic.
pub fn produce_all(version: i16, topic: &Topic, partitions: Vec<(i32, Option<Bytes>)>) -> ProduceRequest {
    let data = |(index, records)| PartitionProduceData::default().with_index(index).with_records(records);
    let topic_data = TopicProduceData::default().with_partition_data(partitions.into_iter().map(data).collect());
    let topic_data = if version >= 13 { topic_data.with_topic_id(topic.id) } else { topic_data.with_name(topic_name(&topic.name)) };
    ProduceRequest::default().with_acks(-1).with_timeout_ms(30_000).with_topic_data(vec![topic_data])
}

/// One partition of a Fetch, up to 1 MiB.
pub fn from(partition: i32, offset: i64) -> FetchPartition {
    FetchPartition::default().with_partition(partition).with_fetch_offset(offset).with_partition_max_bytes(1 << 20)
}

/// Partitions of one topic, for Fetch.
pub fn fetch_topic(version: i16, topic: &Topic, partitions: Vec<FetchPartition>) -> FetchTopic {
    let asked = FetchTopic::default().with_partitions(partitions);
    if version >= 13 { asked.with_topic_id(topic.id) } else { asked.with_topic(topic_name(&topic.name)) }
}

/// A Fetch that answers at once, without a session.
pub fn fetch(version: i16, topics: Vec<FetchTopic>) -> FetchRequest {
    let request =
        FetchRequest::default().with_max_bytes(50 << 20).with_topics(topics).with_session_epoch(if version >= 7 { -1 } else { 0 });
    // The default of the version that names a replica; from 15 on it is a tagged field that consumers leave out.
    if version >= 15 { request } else { request.with_replica_id(BrokerId(-1)) }
}

/// ListOffsets of some partitions of a topic: partition and timestamp.
pub fn list_offsets(topic: &str, partitions: &[(i32, i64)]) -> ListOffsetsRequest {
    let asked = |(index, timestamp): &(i32, i64)| {
        ListOffsetsPartition::default().with_partition_index(*index).with_timestamp(*timestamp).with_current_leader_epoch(-1)
    };
    let topic = ListOffsetsTopic::default().with_name(topic_name(topic)).with_partitions(partitions.iter().map(asked).collect());
    ListOffsetsRequest::default().with_replica_id(BrokerId(-1)).with_topics(vec![topic])
}
