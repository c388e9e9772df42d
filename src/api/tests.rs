//! The table against the codec crate: each API's requests, in every version, have the shape that its entry declares, and decode.

use super::*;
use crate::codec::{fetch::FetchRequest, produce::ProduceRequest};
use bytes::BytesMut;
use kafka_protocol::{
    messages::{self, BrokerId, TopicName},
    protocol::{Decodable, Encodable, Message, StrBytes},
};
use std::fmt::Debug;

mod consumer_groups;
mod groups;
mod transactions;

fn encode<T: Encodable>(request: &T, version: i16) -> Bytes {
    let mut bytes = BytesMut::new();
    request.encode(&mut bytes, version).unwrap_or_else(|e| panic!("version {version}: {e}"));
    bytes.freeze()
}

/// Requests with every array filled pass their shape to the last byte in every version served, and no cut of them does.
#[track_caller]
fn shape_holds<T: Message + Encodable + Decodable + PartialEq + Debug>(api: &Api, make: impl Fn(i16) -> T) {
    let Body::Shaped(shape) = &api.body else { panic!("{} is decoded by hand", api.name) };
    assert!(T::VERSIONS.min <= *api.versions.start() && *api.versions.end() <= T::VERSIONS.max, "{}: the codec's range", api.name);
    for version in api.versions.clone() {
        let request = make(version);
        let body = encode(&request, version);
        let flexible = api.is_flexible(version);
        assert_eq!(shape.check(&body, version, flexible), Ok(()), "{} {version}: {request:?}", api.name);
        assert_eq!(T::decode(&mut body.clone(), version).unwrap(), request);
        for cut in 0..body.len() {
            assert!(shape.check(&body.slice(..cut), version, flexible).is_err(), "{} {version} cut at {cut}", api.name);
        }
    }
}

fn text(s: &str) -> StrBytes {
    StrBytes::from_string(s.to_owned())
}

fn topic(s: &str) -> TopicName {
    TopicName(text(s))
}

#[test]
fn the_table_is_sorted_and_found_by_key() {
    assert!(APIS.is_sorted_by_key(|api| api.key));
    for (place, api) in APIS.iter().enumerate() {
        assert_eq!(place_of(api.key), Some(place));
        assert!(api.advertised_min <= *api.versions.start() && !api.versions.is_empty());
    }
    assert_eq!(place_of(-1), None);
    assert_eq!(place_of(i16::MAX), None);
}

#[test]
fn api_versions() {
    shape_holds(&api_versions::API, |v| {
        let request = messages::ApiVersionsRequest::default();
        if v >= 3 { request.with_client_software_name(text("me")).with_client_software_version(text("1.0")) } else { request }
    });
}

#[test]
fn list_offsets() {
    use messages::list_offsets_request::{ListOffsetsPartition, ListOffsetsTopic};
    shape_holds(&list_offsets::API, |v| {
        let partition = |i: i32| {
            let epoch = if v >= 4 { 9 } else { -1 };
            ListOffsetsPartition::default().with_partition_index(i).with_current_leader_epoch(epoch).with_timestamp(-1)
        };
        let topics =
            ["a", "bc"].map(|name| ListOffsetsTopic::default().with_name(topic(name)).with_partitions(vec![partition(0), partition(1)]));
        messages::ListOffsetsRequest::default()
            .with_replica_id(BrokerId(-1))
            .with_isolation_level(i8::from(v >= 2))
            .with_topics(topics.into())
            .with_timeout_ms(if v >= 10 { 7 } else { 0 })
    });
}

#[test]
fn offset_for_leader_epoch() {
    use messages::offset_for_leader_epoch_request::{OffsetForLeaderPartition, OffsetForLeaderTopic};
    shape_holds(&offset_for_leader_epoch::API, |v| {
        let partition = OffsetForLeaderPartition::default().with_partition(3).with_current_leader_epoch(4).with_leader_epoch(2);
        let topics = vec![OffsetForLeaderTopic::default().with_topic(topic("t")).with_partitions(vec![partition])];
        messages::OffsetForLeaderEpochRequest::default().with_replica_id(BrokerId(if v >= 3 { -1 } else { -2 })).with_topics(topics)
    });
}

#[test]
fn metadata() {
    use messages::metadata_request::MetadataRequestTopic;
    shape_holds(&metadata::API, |v| {
        let id = uuid::Uuid::from_u128(if v >= 10 { 3 } else { 0 });
        let named = |name: &str| MetadataRequestTopic::default().with_name(Some(topic(name))).with_topic_id(id);
        messages::MetadataRequest::default()
            .with_topics(Some(vec![named("a"), named("bc")]))
            .with_allow_auto_topic_creation(v < 4)
            .with_include_cluster_authorized_operations((8..=10).contains(&v))
            .with_include_topic_authorized_operations(v >= 8)
    });
}

#[test]
fn create_topics() {
    use messages::create_topics_request::{CreatableReplicaAssignment, CreatableTopic, CreatableTopicConfig};
    shape_holds(&create_topics::API, |_| {
        let assigned = CreatableReplicaAssignment::default().with_partition_index(1).with_broker_ids(vec![BrokerId(1), BrokerId(2)]);
        let config = |value| CreatableTopicConfig::default().with_name(text("k")).with_value(value);
        let of = CreatableTopic::default()
            .with_name(topic("t"))
            .with_num_partitions(3)
            .with_replication_factor(-1)
            .with_assignments(vec![assigned])
            .with_configs(vec![config(Some(text("v"))), config(None)]);
        messages::CreateTopicsRequest::default().with_topics(vec![of.clone(), of]).with_timeout_ms(9).with_validate_only(true)
    });
}

#[test]
fn delete_topics() {
    use messages::delete_topics_request::DeleteTopicState;
    shape_holds(&delete_topics::API, |v| {
        let request = messages::DeleteTopicsRequest::default().with_timeout_ms(7);
        let id = uuid::Uuid::from_u128(8);
        let named = DeleteTopicState::default().with_name(Some(topic("a")));
        let by_id = DeleteTopicState::default().with_name(None).with_topic_id(id);
        if v >= 6 { request.with_topics(vec![named, by_id]) } else { request.with_topic_names(vec![topic("a"), topic("b")]) }
    });
}

#[test]
fn init_producer_id() {
    shape_holds(&init_producer_id::API, |v| {
        let (id, epoch) = if v >= 3 { (5, 6) } else { (-1, -1) };
        messages::InitProducerIdRequest::default()
            .with_transactional_id((v > 0).then(|| messages::TransactionalId(text("tx"))))
            .with_transaction_timeout_ms(60_000)
            .with_producer_id(messages::ProducerId(id))
            .with_producer_epoch(epoch)
    });
}

#[test]
fn describe_configs() {
    use messages::describe_configs_request::DescribeConfigsResource;
    shape_holds(&describe_configs::API, |v| {
        let of =
            |keys| DescribeConfigsResource::default().with_resource_type(2).with_resource_name(text("t")).with_configuration_keys(keys);
        messages::DescribeConfigsRequest::default()
            .with_resources(vec![of(None), of(Some(vec![text("a"), text("b")]))])
            .with_include_synonyms(true)
            .with_include_documentation(v >= 3)
    });
}

#[test]
fn delete_records() {
    use messages::delete_records_request::{DeleteRecordsPartition, DeleteRecordsTopic};
    shape_holds(&delete_records::API, |_| {
        let partitions = [0, 3].map(|index| DeleteRecordsPartition::default().with_partition_index(index).with_offset(1 << 40));
        let topics = ["a", "bc"].map(|name| DeleteRecordsTopic::default().with_name(topic(name)).with_partitions(partitions.to_vec()));
        messages::DeleteRecordsRequest::default().with_topics(topics.into()).with_timeout_ms(9)
    });
}

#[test]
fn alter_replica_log_dirs() {
    use messages::alter_replica_log_dirs_request::{AlterReplicaLogDir, AlterReplicaLogDirTopic};
    shape_holds(&alter_replica_log_dirs::API, |_| {
        let topics = ["a", "bc"].map(|name| AlterReplicaLogDirTopic::default().with_name(topic(name)).with_partitions(vec![0, 3]));
        let dirs = ["/a", "/b"].map(|path| AlterReplicaLogDir::default().with_path(text(path)).with_topics(topics.to_vec()));
        messages::AlterReplicaLogDirsRequest::default().with_dirs(dirs.into())
    });
}

#[test]
fn alter_configs() {
    use messages::alter_configs_request::{AlterConfigsResource, AlterableConfig};
    shape_holds(&alter_configs::API, |_| {
        let configs = [None, Some(text("v"))].map(|value| AlterableConfig::default().with_name(text("k")).with_value(value));
        let of = |name| AlterConfigsResource::default().with_resource_type(2).with_resource_name(text(name)).with_configs(configs.to_vec());
        messages::AlterConfigsRequest::default().with_resources(["a", "bc"].map(of).into()).with_validate_only(true)
    });
}

#[test]
fn incremental_alter_configs() {
    use messages::incremental_alter_configs_request::{AlterConfigsResource, AlterableConfig};
    shape_holds(&incremental_alter_configs::API, |_| {
        let config = |value| AlterableConfig::default().with_name(text("k")).with_config_operation(1).with_value(value);
        let configs = [None, Some(text("v"))].map(config);
        let of = |name| AlterConfigsResource::default().with_resource_type(2).with_resource_name(text(name)).with_configs(configs.to_vec());
        messages::IncrementalAlterConfigsRequest::default().with_resources(["a", "bc"].map(of).into()).with_validate_only(true)
    });
}

#[test]
fn describe_log_dirs() {
    use messages::describe_log_dirs_request::DescribableLogDirTopic;
    let topics = ["a", "bc"].map(|name| DescribableLogDirTopic::default().with_topic(topic(name)).with_partitions(vec![0, 3]));
    for topics in [None, Some(topics.to_vec())] {
        shape_holds(&describe_log_dirs::API, |_| messages::DescribeLogDirsRequest::default().with_topics(topics.clone()));
    }
}

#[test]
fn create_partitions() {
    use messages::create_partitions_request::{CreatePartitionsAssignment, CreatePartitionsTopic};
    shape_holds(&create_partitions::API, |_| {
        let assigned = CreatePartitionsAssignment::default().with_broker_ids(vec![BrokerId(1)]);
        let of = |assignments| CreatePartitionsTopic::default().with_name(topic("t")).with_count(4).with_assignments(assignments);
        messages::CreatePartitionsRequest::default()
            .with_topics(vec![of(None), of(Some(vec![assigned.clone(), assigned]))])
            .with_timeout_ms(5)
            .with_validate_only(true)
    });
}

#[test]
fn alter_partition_reassignments() {
    use messages::alter_partition_reassignments_request::{ReassignablePartition, ReassignableTopic};
    shape_holds(&alter_partition_reassignments::API, |v| {
        let partitions = [None, Some(vec![BrokerId(1), BrokerId(2)])]
            .map(|replicas| ReassignablePartition::default().with_partition_index(3).with_replicas(replicas));
        let topics = ["a", "bc"].map(|name| ReassignableTopic::default().with_name(topic(name)).with_partitions(partitions.to_vec()));
        let request = messages::AlterPartitionReassignmentsRequest::default().with_timeout_ms(9).with_topics(topics.into());
        request.with_allow_replication_factor_change(v < 1)
    });
}

#[test]
fn list_partition_reassignments() {
    use messages::list_partition_reassignments_request::ListPartitionReassignmentsTopics;
    let topics =
        ["a", "bc"].map(|name| ListPartitionReassignmentsTopics::default().with_name(topic(name)).with_partition_indexes(vec![0, 3]));
    for topics in [None, Some(topics.to_vec())] {
        shape_holds(&list_partition_reassignments::API, |_| {
            messages::ListPartitionReassignmentsRequest::default().with_timeout_ms(9).with_topics(topics.clone())
        });
    }
}

#[test]
fn elect_leaders() {
    use messages::elect_leaders_request::TopicPartitions;
    let topics = ["a", "bc"].map(|name| TopicPartitions::default().with_topic(topic(name)).with_partitions(vec![0, 3]));
    for topics in [None, Some(topics.to_vec())] {
        shape_holds(&elect_leaders::API, |v| {
            let request = messages::ElectLeadersRequest::default().with_topic_partitions(topics.clone()).with_timeout_ms(9);
            request.with_election_type(i8::from(v >= 1))
        });
    }
}

#[test]
fn update_features() {
    use messages::update_features_request::FeatureUpdateKey;
    shape_holds(&update_features::API, |v| {
        let of = |name| {
            let update = FeatureUpdateKey::default().with_feature(text(name)).with_max_version_level(2);
            update.with_allow_downgrade(v == 0).with_upgrade_type(if v >= 1 { 3 } else { 1 })
        };
        let request = messages::UpdateFeaturesRequest::default().with_timeout_ms(9).with_feature_updates(["a", "bc"].map(of).into());
        request.with_validate_only(v >= 1)
    });
}

#[test]
fn describe_cluster() {
    shape_holds(&describe_cluster::API, |v| {
        messages::DescribeClusterRequest::default()
            .with_include_cluster_authorized_operations(true)
            .with_endpoint_type(if v >= 1 { 2 } else { 1 })
            .with_include_fenced_brokers(v >= 2)
    });
}

#[test]
fn list_config_resources() {
    shape_holds(&list_config_resources::API, |v| {
        messages::ListConfigResourcesRequest::default().with_resource_types(if v >= 1 { vec![2, 32] } else { vec![] })
    });
}

#[test]
fn describe_topic_partitions() {
    use messages::describe_topic_partitions_request::{Cursor, TopicRequest};
    for cursor in [None, Some(Cursor::default().with_topic_name(topic("b")).with_partition_index(2))] {
        shape_holds(&describe_topic_partitions::API, |_| {
            let topics = ["a", "bc"].map(|name| TopicRequest::default().with_name(topic(name)));
            messages::DescribeTopicPartitionsRequest::default()
                .with_topics(topics.into())
                .with_response_partition_limit(10)
                .with_cursor(cursor.clone())
        });
    }
}

#[test]
fn produce_reads_what_the_codec_crate_writes() {
    use messages::produce_request::{PartitionProduceData, TopicProduceData};
    for version in produce::API.versions.clone() {
        let id = uuid::Uuid::from_u128(77);
        let data = |index: i32, records: Option<Bytes>| PartitionProduceData::default().with_index(index).with_records(records);
        let of = TopicProduceData::default().with_partition_data(vec![data(0, Some(Bytes::from_static(b"xyz"))), data(4, None)]);
        let of = if version >= 13 { of.with_topic_id(id) } else { of.with_name(topic("orders")) };
        let request = messages::ProduceRequest::default().with_acks(-1).with_timeout_ms(99).with_topic_data(vec![of]);
        let read = ProduceRequest::decode(encode(&request, version), version).unwrap();
        assert_eq!((read.transactional_id, read.acks, read.timeout_ms, read.topics.len()), (None, -1, 99, 1));
        let of = &read.topics[0];
        assert_eq!(of.name, if version >= 13 { "" } else { "orders" });
        assert_eq!(of.id.0, if version >= 13 { id } else { uuid::Uuid::nil() });
        assert_eq!(
            of.partitions.iter().map(|p| (p.index.0, p.records.as_deref())).collect::<Vec<_>>(),
            [(0, Some(&b"xyz"[..])), (4, None)]
        );
    }
}

#[test]
fn fetch_reads_what_the_codec_crate_writes() {
    use messages::fetch_request::{FetchPartition, FetchTopic, ForgottenTopic, ReplicaState};
    for version in fetch::API.versions.clone() {
        let id = uuid::Uuid::from_u128(5);
        let mut partition = FetchPartition::default().with_partition(2).with_fetch_offset(1 << 40).with_partition_max_bytes(1 << 20);
        partition.current_leader_epoch = if version >= 9 { 6 } else { -1 };
        partition.last_fetched_epoch = if version >= 12 { 5 } else { -1 };
        partition.log_start_offset = if version >= 5 { 3 } else { -1 };
        let mut of = FetchTopic::default().with_partitions(vec![partition.clone(), partition.with_partition(7)]);
        let mut gone = ForgottenTopic::default().with_partitions(vec![1, 2]);
        if version >= 13 {
            (of.topic_id, gone.topic_id) = (id, id);
        } else {
            (of.topic, gone.topic) = (topic("orders"), topic("gone"));
        }
        let mut request =
            messages::FetchRequest::default().with_max_wait_ms(500).with_min_bytes(1).with_max_bytes(50 << 20).with_topics(vec![of]);
        request.isolation_level = 1;
        if version >= 7 {
            (request.session_id, request.session_epoch, request.forgotten_topics_data) = (11, 12, vec![gone]);
        }
        if version >= 11 {
            request.rack_id = text("rack");
        }
        if version >= 15 {
            request.replica_state = ReplicaState::default().with_replica_id(BrokerId(8)).with_replica_epoch(1);
        } else {
            request.replica_id = BrokerId(8);
        }
        let read = FetchRequest::decode(encode(&request, version), version).unwrap();
        assert_eq!((read.replica_id.0, read.max_wait_ms, read.min_bytes, read.max_bytes, read.isolation_level), (8, 500, 1, 50 << 20, 1));
        assert_eq!((read.session_id, read.session_epoch), if version >= 7 { (11, 12) } else { (0, -1) });
        let p = read.topics[0].partitions[1];
        assert_eq!((p.index.0, p.fetch_offset.0, p.max_bytes), (7, 1 << 40, 1 << 20));
        assert_eq!(p.current_leader_epoch.0, if version >= 9 { 6 } else { -1 });
        assert_eq!(p.last_fetched_epoch.0, if version >= 12 { 5 } else { -1 });
        assert_eq!(read.forgotten.first().map(|f| f.partitions.len()), (version >= 7).then_some(2));
    }
}

#[test]
fn fetch_answers_are_what_the_codec_crate_reads() {
    use crate::{
        codec::{Segment, fetch::*, reply::ReplyHeader},
        log::io::{Disk, OpenMode, RealDisk},
        types::{self, ErrorCode, LeaderEpoch, Offset, PartitionIndex, ProducerId, TopicId},
    };
    let dir = tempfile::tempdir().unwrap();
    let file = RealDisk.open(&dir.path().join("f"), OpenMode::Create).unwrap();
    let content: Vec<u8> = (0..100_000u32).map(|i| i as u8).collect();
    file.write_at(&[std::io::IoSlice::new(&content)], 0).unwrap();
    let range = |position: u64, len: usize| Some(FileRange { file: file.clone(), position, len });
    for version in super::fetch::API.versions.clone() {
        let part = |index: i32, records| PartitionAnswer {
            high_watermark: Offset(9),
            last_stable: Offset(8),
            log_start: Offset(1),
            records,
            ..PartitionAnswer::error(PartitionIndex(index), ErrorCode::None)
        };
        let mut told = PartitionAnswer::error(PartitionIndex(4), ErrorCode::FencedLeaderEpoch);
        told.current_leader = Some((types::BrokerId(1), LeaderEpoch(3)));
        told.diverging = Some((LeaderEpoch(2), Offset(55)));
        told.aborted = Some(vec![AbortedTransaction { producer_id: ProducerId(6), first_offset: Offset(7) }]);
        let partitions = vec![part(0, range(3, 90_000)), part(1, range(5, 10)), told, part(5, None), part(6, range(9, 50_000))];
        let answer = FetchAnswer {
            error: ErrorCode::None,
            session_id: 21,
            topics: vec![TopicAnswer { name: Bytes::from_static(b"orders"), id: TopicId(uuid::Uuid::from_u128(4)), partitions }],
            endpoints: vec![Endpoint { id: types::BrokerId(1), host: "h".into(), port: 9092 }],
        };
        let reply = encode(ReplyHeader { correlation_id: 3, tagged: version >= 12 }, &answer, version).unwrap();
        assert_eq!(reply.error, ErrorCode::FencedLeaderEpoch);
        assert_eq!(reply.segments.iter().filter(|s| matches!(s, Segment::File { .. })).count(), 2);
        let mut wire = Vec::new();
        for segment in &reply.segments {
            match segment {
                Segment::Bytes(bytes) => wire.extend_from_slice(bytes),
                Segment::File { position, len, .. } => wire.extend_from_slice(&content[*position as usize..][..*len]),
            }
        }
        assert_eq!(wire[..4], (wire.len() as i32 - 4).to_be_bytes());
        let mut body = Bytes::from(wire).slice(if version >= 12 { 9 } else { 8 }..);
        let read = messages::FetchResponse::decode(&mut body, version).unwrap();
        assert!(body.is_empty(), "version {version}");
        assert_eq!(read.session_id, if version >= 7 { 21 } else { 0 });
        let parts = &read.responses[0].partitions;
        assert_eq!(parts[0].records.as_deref(), Some(&content[3..90_003]));
        assert_eq!(parts[1].records.as_deref(), Some(&content[5..15]));
        assert_eq!(parts[3].records.as_deref(), Some(&[][..]), "empty, not null");
        assert_eq!(parts[4].records.as_deref(), Some(&content[9..50_009]));
        assert_eq!(
            (parts[2].error_code, parts[2].aborted_transactions.as_ref().map(Vec::len)),
            (ErrorCode::FencedLeaderEpoch.code(), Some(1))
        );
        if version >= 12 {
            assert_eq!((parts[2].diverging_epoch.epoch, parts[2].diverging_epoch.end_offset), (2, 55));
            assert_eq!((parts[2].current_leader.leader_id.0, parts[2].current_leader.leader_epoch), (1, 3));
        }
        assert_eq!(read.node_endpoints.len(), usize::from(version >= 16));
    }
}
