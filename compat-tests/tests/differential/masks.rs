//! What may differ between Apache Kafka's answers and ours, and why. Everything that isn't taken out here has to be equal.

use kafka_protocol::messages::fetch_response::FetchableTopicResponse;
use kafka_protocol::messages::{
    AlterConfigsResponse, AlterPartitionReassignmentsResponse, AlterReplicaLogDirsResponse, ApiKey, ApiVersionsResponse,
    ConsumerGroupDescribeResponse, ConsumerGroupHeartbeatResponse, CreatePartitionsResponse, CreateTopicsResponse, DeleteGroupsResponse,
    DeleteRecordsResponse, DeleteTopicsResponse, DescribeClusterResponse, DescribeConfigsResponse, DescribeGroupsResponse,
    DescribeLogDirsResponse, DescribeTopicPartitionsResponse, ElectLeadersResponse, FetchResponse, FindCoordinatorResponse,
    HeartbeatResponse, IncrementalAlterConfigsResponse, InitProducerIdResponse, JoinGroupResponse, LeaveGroupResponse,
    ListConfigResourcesResponse, ListGroupsResponse, ListOffsetsResponse, ListPartitionReassignmentsResponse, MetadataResponse,
    OffsetCommitResponse, OffsetDeleteResponse, OffsetFetchResponse, OffsetForLeaderEpochResponse, ProduceResponse, ProducerId,
    SyncGroupResponse,
};
use kafka_protocol::protocol::StrBytes;
use uuid::Uuid;

use crate::requests::UNKNOWN_TOPIC_OR_PARTITION;

/// An answer without what may differ.
pub trait Masked {
    fn mask(&mut self);
}

/// Which port a test's broker got is chance.
const PORT: i32 = 9092;

/// Ids are random: only whether there is one counts.
fn mask_id(id: &mut Uuid) {
    if !id.is_nil() {
        *id = Uuid::max();
    }
}

/// The words of a message for people are our own, except where a tool looks into them (`tests/clients.rs` shows that). Whether there is one
/// counts, and an empty one says as little as none.
pub fn mask_message(message: &mut Option<StrBytes>) {
    *message = message.take().filter(|words| !words.is_empty()).map(|_| StrBytes::from_static_str("words"));
}

impl Masked for ApiVersionsResponse {
    fn mask(&mut self) {
        // We advertise what works: transactions and other APIs come with later issues.
        self.api_keys.retain(|api| OURS.iter().any(|(key, _)| *key as i16 == api.api_key));
        self.api_keys.sort_by_key(|api| api.api_key);
        for api in &mut self.api_keys {
            // The codec knows the versions of Kafka 4.1.
            let newest = OURS.iter().find(|(key, _)| *key as i16 == api.api_key).map_or(i16::MAX, |(_, newest)| *newest);
            api.max_version = api.max_version.min(newest);
        }
        // Features are those of a quorum of Kafka's controllers (metadata.version, group.version …); clients need none of them yet.
        self.supported_features.clear();
        self.finalized_features.clear();
        self.finalized_features_epoch = -1;
    }
}

/// The APIs that these tests cover, and the newest version that the codec has.
const OURS: &[(ApiKey, i16)] = &[
    (ApiKey::Produce, 13),
    (ApiKey::Fetch, 18),
    (ApiKey::ListOffsets, 10),
    (ApiKey::Metadata, 13),
    (ApiKey::OffsetCommit, 9),
    (ApiKey::OffsetFetch, 9),
    (ApiKey::FindCoordinator, 6),
    (ApiKey::JoinGroup, 9),
    (ApiKey::Heartbeat, 4),
    (ApiKey::LeaveGroup, 5),
    (ApiKey::SyncGroup, 5),
    (ApiKey::DescribeGroups, 6),
    (ApiKey::ListGroups, 5),
    (ApiKey::ApiVersions, 4),
    (ApiKey::CreateTopics, 7),
    (ApiKey::DeleteTopics, 6),
    (ApiKey::InitProducerId, 5),
    (ApiKey::OffsetForLeaderEpoch, 4),
    (ApiKey::AddPartitionsToTxn, 5),
    (ApiKey::AddOffsetsToTxn, 4),
    (ApiKey::EndTxn, 5),
    (ApiKey::WriteTxnMarkers, 1),
    (ApiKey::TxnOffsetCommit, 5),
    (ApiKey::DescribeProducers, 0),
    (ApiKey::DescribeTransactions, 0),
    (ApiKey::ListTransactions, 2),
    (ApiKey::DescribeConfigs, 4),
    (ApiKey::CreatePartitions, 3),
    (ApiKey::DeleteRecords, 2),
    (ApiKey::AlterConfigs, 2),
    (ApiKey::AlterReplicaLogDirs, 2),
    (ApiKey::ElectLeaders, 2),
    (ApiKey::AlterPartitionReassignments, 1),
    (ApiKey::ListPartitionReassignments, 0),
    (ApiKey::UpdateFeatures, 2),
    (ApiKey::IncrementalAlterConfigs, 1),
    (ApiKey::DescribeLogDirs, 4),
    (ApiKey::DescribeCluster, 2),
    (ApiKey::DescribeTopicPartitions, 0),
    (ApiKey::DeleteGroups, 2),
    (ApiKey::OffsetDelete, 0),
    (ApiKey::ConsumerGroupHeartbeat, 1),
    (ApiKey::ConsumerGroupDescribe, 1),
    (ApiKey::ListConfigResources, 1),
];

/// A member's id ends in a random one: only what goes before it counts.
fn mask_member(id: &mut StrBytes) {
    const RANDOM: usize = 36;
    if let Some(named) = id.len().checked_sub(RANDOM).and_then(|end| id.get(..end)) {
        *id = StrBytes::from_string(format!("{named}id"));
    }
}

impl Masked for FindCoordinatorResponse {
    fn mask(&mut self) {
        // Kafka's words for "no error" are NONE.
        self.error_message = None;
        if self.port > 0 {
            self.port = PORT;
        }
        for coordinator in &mut self.coordinators {
            mask_message(&mut coordinator.error_message);
            if coordinator.port > 0 {
                coordinator.port = PORT;
            }
        }
    }
}

impl Masked for JoinGroupResponse {
    fn mask(&mut self) {
        mask_member(&mut self.member_id);
        mask_member(&mut self.leader);
        for member in &mut self.members {
            mask_member(&mut member.member_id);
        }
    }
}

impl Masked for SyncGroupResponse {
    fn mask(&mut self) {}
}

impl Masked for HeartbeatResponse {
    fn mask(&mut self) {}
}

impl Masked for LeaveGroupResponse {
    fn mask(&mut self) {
        for member in &mut self.members {
            mask_member(&mut member.member_id);
        }
    }
}

impl Masked for OffsetCommitResponse {
    fn mask(&mut self) {
        for topic in &mut self.topics {
            topic.partitions.sort_by_key(|partition| partition.partition_index);
        }
        // Kafka answers for unknown topics first.
        self.topics.sort_by(|a, b| a.name.cmp(&b.name));
    }
}

impl Masked for OffsetFetchResponse {
    fn mask(&mut self) {
        // Kafka's order is that of hash tables.
        for topic in &mut self.topics {
            topic.partitions.sort_by_key(|partition| partition.partition_index);
        }
        self.topics.sort_by(|a, b| a.name.cmp(&b.name));
        for group in &mut self.groups {
            for topic in &mut group.topics {
                topic.partitions.sort_by_key(|partition| partition.partition_index);
            }
            group.topics.sort_by(|a, b| a.name.cmp(&b.name));
        }
        self.groups.sort_by(|a, b| a.group_id.cmp(&b.group_id));
    }
}

impl Masked for OffsetDeleteResponse {
    fn mask(&mut self) {
        for topic in &mut self.topics {
            topic.partitions.sort_by_key(|partition| partition.partition_index);
        }
    }
}

impl Masked for DescribeGroupsResponse {
    fn mask(&mut self) {
        for group in &mut self.groups {
            mask_message(&mut group.error_message);
            for member in &mut group.members {
                mask_member(&mut member.member_id);
            }
        }
    }
}

impl Masked for ListGroupsResponse {
    fn mask(&mut self) {
        self.groups.sort_by(|a, b| a.group_id.cmp(&b.group_id));
    }
}

impl Masked for DeleteGroupsResponse {
    fn mask(&mut self) {
        // Kafka's order is that of its partitions.
        self.results.sort_by(|a, b| a.group_id.cmp(&b.group_id));
    }
}

/// The interval of heartbeats that both have by default.
const HEARTBEAT_INTERVAL_MS: i32 = 5_000;

impl Masked for ConsumerGroupHeartbeatResponse {
    fn mask(&mut self) {
        mask_message(&mut self.error_message);
        // An id that the coordinator made is random: a UUID in base64.
        const MADE: usize = 22;
        self.member_id = self.member_id.take().map(|id| if id.len() == MADE { StrBytes::from_static_str("id") } else { id });
        // While a group changes ours asks for heartbeats sooner.
        if (1..HEARTBEAT_INTERVAL_MS).contains(&self.heartbeat_interval_ms) {
            self.heartbeat_interval_ms = HEARTBEAT_INTERVAL_MS;
        }
        for topic in self.assignment.iter_mut().flat_map(|assignment| &mut assignment.topic_partitions) {
            mask_id(&mut topic.topic_id);
            topic.partitions.sort_unstable();
        }
        // Kafka's order is that of a hash table.
        self.assignment.iter_mut().for_each(|assignment| assignment.topic_partitions.sort_by(|a, b| a.partitions.cmp(&b.partitions)));
    }
}

impl Masked for ConsumerGroupDescribeResponse {
    fn mask(&mut self) {
        // Kafka has those first that it can answer at once.
        self.groups.sort_by(|a, b| a.group_id.cmp(&b.group_id));
        for group in &mut self.groups {
            mask_message(&mut group.error_message);
            for member in &mut group.members {
                const MADE: usize = 22;
                if member.member_id.len() == MADE {
                    member.member_id = StrBytes::from_static_str("id");
                }
                mask_member(&mut member.member_id);
                member.subscribed_topic_names.sort();
                for assignment in [&mut member.assignment, &mut member.target_assignment] {
                    for topic in &mut assignment.topic_partitions {
                        mask_id(&mut topic.topic_id);
                        topic.partitions.sort_unstable();
                    }
                    assignment.topic_partitions.sort_by(|a, b| a.topic_name.cmp(&b.topic_name));
                }
            }
            // Kafka's order is that of a hash table.
            group.members.sort_by(|a, b| a.member_id.cmp(&b.member_id));
        }
    }
}

impl Masked for ListConfigResourcesResponse {
    fn mask(&mut self) {
        // Kafka's order is that of hash tables.
        self.config_resources.sort_by(|a, b| (a.resource_type, &a.resource_name).cmp(&(b.resource_type, &b.resource_name)));
    }
}

impl Masked for MetadataResponse {
    fn mask(&mut self) {
        for broker in &mut self.brokers {
            broker.port = PORT;
        }
        // A cluster's id is random.
        self.cluster_id = self.cluster_id.take().map(|_| StrBytes::from_static_str("id"));
        for topic in &mut self.topics {
            mask_id(&mut topic.topic_id);
            // Kafka's order is that of a hash table.
            topic.partitions.sort_by_key(|partition| partition.partition_index);
        }
        self.topics.sort_by(|a, b| (&a.name, a.topic_id, a.error_code).cmp(&(&b.name, b.topic_id, b.error_code)));
    }
}

impl Masked for DescribeClusterResponse {
    fn mask(&mut self) {
        for broker in &mut self.brokers {
            broker.port = PORT;
        }
        if !self.cluster_id.is_empty() {
            self.cluster_id = StrBytes::from_static_str("id");
        }
        mask_message(&mut self.error_message);
    }
}

impl Masked for DescribeTopicPartitionsResponse {
    fn mask(&mut self) {
        for topic in &mut self.topics {
            mask_id(&mut topic.topic_id);
        }
    }
}

impl Masked for CreateTopicsResponse {
    fn mask(&mut self) {
        for topic in &mut self.topics {
            mask_id(&mut topic.topic_id);
            mask_message(&mut topic.error_message);
            for configs in topic.configs.iter_mut() {
                configs.retain(|config| !is_kafkas_alone(&config.name));
                configs.sort_by(|a, b| a.name.cmp(&b.name));
            }
        }
        // Kafka's order is that of hash tables.
        self.topics.sort_by(|a, b| (&a.name, a.error_code).cmp(&(&b.name, b.error_code)));
    }
}

/// Configs of what we don't have. Of topics: tiered storage, dead letter queues of share groups. Of groups: those that share, those of streams, and in
/// which thread an assignment is computed.
fn is_kafkas_alone(config: &str) -> bool {
    ["remote.", "local.retention.", "errors.deadletterqueue.", "share.", "streams.", "consumer.assignor.offload"]
        .iter()
        .any(|prefix| config.starts_with(prefix))
}

impl Masked for DeleteTopicsResponse {
    fn mask(&mut self) {
        for topic in &mut self.responses {
            mask_id(&mut topic.topic_id);
            mask_message(&mut topic.error_message);
        }
        // Kafka's order is shuffled on purpose.
        self.responses.sort_by(|a, b| (&a.name, a.topic_id, a.error_code).cmp(&(&b.name, b.topic_id, b.error_code)));
    }
}

impl Masked for CreatePartitionsResponse {
    fn mask(&mut self) {
        for topic in &mut self.results {
            mask_message(&mut topic.error_message);
            // Kafka has no words for an unknown topic; we have.
            if topic.error_code == UNKNOWN_TOPIC_OR_PARTITION {
                topic.error_message = None;
            }
        }
        // Kafka's order is that of a hash table.
        self.results.sort_by(|a, b| (&a.name, a.error_code).cmp(&(&b.name, b.error_code)));
    }
}

impl Masked for DescribeConfigsResponse {
    fn mask(&mut self) {
        for resource in &mut self.results {
            mask_message(&mut resource.error_message);
            // Kafka has no words for an unknown topic; we have.
            if resource.error_code == UNKNOWN_TOPIC_OR_PARTITION {
                resource.error_message = None;
            }
            resource.configs.retain(|config| !is_kafkas_alone(&config.name));
            // Kafka's order is that of a hash table.
            resource.configs.sort_by(|a, b| a.name.cmp(&b.name));
            for config in &mut resource.configs {
                mask_message(&mut config.documentation);
                // Kafka wants a node id to be set; ours has a default.
                if &*config.name == "node.id" {
                    config.synonyms.clear();
                }
                // Kafka changes these while it runs; ours refuses to, and says so.
                if config.name.starts_with("max.connections") {
                    config.read_only = true;
                }
            }
        }
    }
}

impl Masked for DeleteRecordsResponse {
    fn mask(&mut self) {
        // Kafka's orders are those of hash tables.
        for topic in &mut self.topics {
            topic.partitions.sort_by_key(|partition| partition.partition_index);
        }
        self.topics.sort_by(|a, b| a.name.cmp(&b.name));
    }
}

impl Masked for AlterReplicaLogDirsResponse {
    fn mask(&mut self) {
        // Kafka's order is that of hash tables.
        self.results.iter_mut().for_each(|topic| topic.partitions.sort_by_key(|partition| partition.partition_index));
        self.results.sort_by(|a, b| a.topic_name.cmp(&b.topic_name));
    }
}

impl Masked for AlterPartitionReassignmentsResponse {
    fn mask(&mut self) {
        self.responses.iter_mut().for_each(|topic| topic.partitions.iter_mut().for_each(|one| mask_message(&mut one.error_message)));
    }
}

impl Masked for ListPartitionReassignmentsResponse {
    fn mask(&mut self) {}
}

impl Masked for ElectLeadersResponse {
    fn mask(&mut self) {
        for topic in &mut self.replica_election_results {
            topic.partition_result.iter_mut().for_each(|one| mask_message(&mut one.error_message));
            // Kafka's orders are those of hash tables, where all are asked for; what stands twice stays together.
            topic.partition_result.sort_by_key(|one| (one.partition_id, one.error_code));
        }
        self.replica_election_results.sort_by(|a, b| (&a.topic, a.partition_result.len()).cmp(&(&b.topic, b.partition_result.len())));
    }
}

impl Masked for AlterConfigsResponse {
    fn mask(&mut self) {
        self.responses.iter_mut().for_each(|resource| mask_message(&mut resource.error_message));
    }
}

impl Masked for IncrementalAlterConfigsResponse {
    fn mask(&mut self) {
        self.responses.iter_mut().for_each(|resource| mask_message(&mut resource.error_message));
    }
}

impl Masked for DescribeLogDirsResponse {
    fn mask(&mut self) {
        for dir in &mut self.results {
            // Where the test put it, and what else is on that disk.
            assert!(dir.log_dir.starts_with('/'), "{}", dir.log_dir);
            dir.log_dir = StrBytes::from_static_str("dir");
            (dir.total_bytes, dir.usable_bytes) = (dir.total_bytes.min(1), dir.usable_bytes.min(1));
            // Kafka's orders are those of hash tables.
            dir.topics.iter_mut().for_each(|topic| topic.partitions.sort_by_key(|partition| partition.partition_index));
            dir.topics.sort_by(|a, b| a.name.cmp(&b.name));
        }
    }
}

impl Masked for InitProducerIdResponse {
    fn mask(&mut self) {
        // How many ids were given before, by whom, is chance.
        if self.producer_id.0 >= 0 {
            self.producer_id = ProducerId(1_000);
        }
    }
}

impl Masked for ProduceResponse {
    fn mask(&mut self) {
        for topic in &mut self.responses {
            mask_id(&mut topic.topic_id);
            for partition in &mut topic.partition_responses {
                // Kafka has words for few errors; we have for all.
                partition.error_message = None;
                for record in &mut partition.record_errors {
                    mask_message(&mut record.batch_index_error_message);
                }
                // The time of the append, where the topic has LogAppendTime.
                if partition.log_append_time_ms > 0 {
                    partition.log_append_time_ms = 1;
                }
            }
            topic.partition_responses.sort_by_key(|partition| (partition.index, partition.error_code));
        }
        // Kafka groups what it has by topic, and so leaves out a topic without partitions.
        self.responses.retain(|topic| !topic.partition_responses.is_empty());
        for node in &mut self.node_endpoints {
            node.port = PORT;
        }
    }
}

impl Masked for FetchResponse {
    fn mask(&mut self) {
        // A session's id is random.
        if self.session_id != 0 {
            self.session_id = 1;
        }
        for topic in &mut self.responses {
            mask_id(&mut topic.topic_id);
            for partition in &mut topic.partitions {
                // With an error there is nothing that could be aborted: Kafka has null for some errors and an empty array for others.
                if partition.error_code != 0 {
                    partition.aborted_transactions = None;
                }
            }
            // Kafka has those that it doesn't know last, or first. (What the limits leave of each shows in which order it read them.)
            topic.partitions.sort_by_key(|partition| (partition.partition_index, partition.error_code));
        }
        let errors = |topic: &FetchableTopicResponse| topic.partitions.iter().map(|partition| partition.error_code).collect::<Vec<_>>();
        self.responses.sort_by_key(|topic| (topic.topic.clone(), errors(topic)));
        for node in &mut self.node_endpoints {
            node.port = PORT;
        }
    }
}

impl Masked for ListOffsetsResponse {
    fn mask(&mut self) {
        for topic in &mut self.topics {
            // Kafka's order is that of a hash table.
            topic.partitions.sort_by_key(|partition| (partition.partition_index, partition.error_code));
            // A partition that was asked for twice is refused once.
            topic.partitions.dedup();
        }
        // Kafka groups what it has by topic, and so leaves out a topic without partitions.
        self.topics.retain(|topic| !topic.partitions.is_empty());
    }
}

impl Masked for OffsetForLeaderEpochResponse {
    fn mask(&mut self) {
        for topic in &mut self.topics {
            topic.partitions.sort_by_key(|partition| partition.partition);
        }
    }
}
