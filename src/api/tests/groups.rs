//! The group APIs in every version: their shapes, and a group's life through the dispatch on real logs.

use super::{shape_holds, text, topic};
use crate::{
    api::{
        self, Api, Context, context::Parts, delete_groups, describe_groups, dispatch, find_coordinator, heartbeat, join_group, leave_group,
        list_groups, offset_commit, offset_delete, offset_fetch, sync_group,
    },
    cluster::{Change, Cluster, NewTopic, Publisher},
    codec::Segment,
    config::{HostPort, ServerConfig, Sources},
    coordinator::{CoordinatorSettings, GroupCoordinator},
    group,
    log::{LogSettings, Logs, PartitionSpec, io::RealDisk},
    net::{Answer, ConnectionInfo, ListenerInfo},
    telemetry::Registry,
    types::{Clock, ErrorCode, Millis, TopicPartition},
};
use bytes::{Buf, BufMut, Bytes, BytesMut};
use kafka_protocol::{
    messages::{self, GroupId, RequestHeader},
    protocol::{Decodable, Encodable, HeaderVersion, Request, StrBytes},
};
use std::sync::Arc;
use tokio::sync::watch;

pub(super) fn gid(name: &str) -> GroupId {
    GroupId(text(name))
}

fn some(when: bool, value: &str) -> Option<StrBytes> {
    when.then(|| text(value))
}

#[test]
fn find_coordinator_shape() {
    shape_holds(&find_coordinator::API, |v| {
        let request = messages::FindCoordinatorRequest::default().with_key_type(i8::from(v >= 1));
        if v >= 4 { request.with_coordinator_keys(vec![text("a"), text("b")]) } else { request.with_key(text("a")) }
    });
}

fn join(v: i16, member: &str, instance: Option<&str>) -> messages::JoinGroupRequest {
    use messages::join_group_request::JoinGroupRequestProtocol as Protocol;
    let protocol = |name| Protocol::default().with_name(text(name)).with_metadata(Bytes::from_static(b"\0\0\0\0\0\0\0\0\0\0"));
    messages::JoinGroupRequest::default()
        .with_group_id(gid("g"))
        .with_session_timeout_ms(10_000)
        .with_rebalance_timeout_ms(if v >= 1 { 20_000 } else { -1 })
        .with_member_id(text(member))
        .with_group_instance_id(instance.filter(|_| v >= 5).map(text))
        .with_protocol_type(text("consumer"))
        .with_protocols(vec![protocol("range"), protocol("sticky")])
        .with_reason(some(v >= 8, "why"))
}

#[test]
fn join_group_shape() {
    shape_holds(&join_group::API, |v| join(v, "m", Some("i")));
}

fn sync(v: i16, member: &str, generation: i32) -> messages::SyncGroupRequest {
    use messages::sync_group_request::SyncGroupRequestAssignment as Assignment;
    let assignment = Assignment::default().with_member_id(text(member)).with_assignment(Bytes::from_static(b"all"));
    messages::SyncGroupRequest::default()
        .with_group_id(gid("g"))
        .with_generation_id(generation)
        .with_member_id(text(member))
        .with_protocol_type(some(v >= 5, "consumer"))
        .with_protocol_name(some(v >= 5, "range"))
        .with_assignments(vec![assignment])
}

#[test]
fn sync_group_shape() {
    shape_holds(&sync_group::API, |v| sync(v, "m", 3).with_group_instance_id(some(v >= 3, "i")));
}

#[test]
fn heartbeat_and_leave_group_shapes() {
    use messages::leave_group_request::MemberIdentity;
    shape_holds(&heartbeat::API, |v| {
        let request = messages::HeartbeatRequest::default().with_group_id(gid("g")).with_generation_id(4).with_member_id(text("m"));
        request.with_group_instance_id(some(v >= 3, "i"))
    });
    shape_holds(&leave_group::API, |v| {
        let request = messages::LeaveGroupRequest::default().with_group_id(gid("g"));
        if v < 3 {
            return request.with_member_id(text("m"));
        }
        let member = MemberIdentity::default().with_member_id(text("m")).with_group_instance_id(Some(text("i")));
        request.with_members(vec![member.with_reason(some(v >= 5, "why")), MemberIdentity::default()])
    });
}

pub(super) fn commit(v: i16, member: &str, generation: i32) -> messages::OffsetCommitRequest {
    use messages::offset_commit_request::{OffsetCommitRequestPartition as Partition, OffsetCommitRequestTopic as Topic};
    let partition = |index| {
        let epoch = if v >= 6 { 2 } else { -1 };
        Partition::default().with_partition_index(index).with_committed_offset(42).with_committed_leader_epoch(epoch)
    };
    let partitions = vec![partition(0).with_committed_metadata(Some(text("mine"))), partition(9)];
    let topics = vec![Topic::default().with_name(topic("t")).with_partitions(partitions)];
    messages::OffsetCommitRequest::default()
        .with_group_id(gid("g"))
        .with_generation_id_or_member_epoch(generation)
        .with_member_id(text(member))
        .with_retention_time_ms(-1)
        .with_topics(topics)
}

#[test]
fn offset_shapes() {
    use messages::{
        offset_delete_request::{OffsetDeleteRequestPartition, OffsetDeleteRequestTopic},
        offset_fetch_request::{OffsetFetchRequestGroup, OffsetFetchRequestTopic, OffsetFetchRequestTopics},
    };
    shape_holds(&offset_commit::API, |v| commit(v, "m", 3).with_group_instance_id(some(v >= 7, "i")));
    shape_holds(&offset_fetch::API, |v| {
        let request = messages::OffsetFetchRequest::default().with_require_stable(v >= 7);
        if v < 8 {
            let of = OffsetFetchRequestTopic::default().with_name(topic("t")).with_partition_indexes(vec![0, 1]);
            return request.with_group_id(gid("g")).with_topics(Some(vec![of]));
        }
        let of = OffsetFetchRequestTopics::default().with_name(topic("t")).with_partition_indexes(vec![0, 1]);
        let group = OffsetFetchRequestGroup::default().with_group_id(gid("g")).with_topics(Some(vec![of]));
        let group = group.with_member_id(some(v >= 9, "m")).with_member_epoch(if v >= 9 { 3 } else { -1 });
        request.with_groups(vec![group, OffsetFetchRequestGroup::default().with_topics(None)])
    });
    shape_holds(&offset_delete::API, |_| {
        let partitions = vec![OffsetDeleteRequestPartition::default().with_partition_index(3)];
        let topics = vec![OffsetDeleteRequestTopic::default().with_name(topic("t")).with_partitions(partitions)];
        messages::OffsetDeleteRequest::default().with_group_id(gid("g")).with_topics(topics)
    });
}

#[test]
fn tools_shapes() {
    shape_holds(&describe_groups::API, |v| {
        let groups = vec![gid("a"), gid("b")];
        messages::DescribeGroupsRequest::default().with_groups(groups).with_include_authorized_operations(v >= 3)
    });
    shape_holds(&list_groups::API, |v| {
        let filter = |when: bool, name| if when { vec![text(name)] } else { Vec::new() };
        let request = messages::ListGroupsRequest::default().with_states_filter(filter(v >= 4, "Stable"));
        request.with_types_filter(filter(v >= 5, "classic"))
    });
    shape_holds(&delete_groups::API, |_| messages::DeleteGroupsRequest::default().with_groups_names(vec![gid("a"), gid("b")]));
}

struct Standing;

impl Clock for Standing {
    fn now(&self) -> Millis {
        Millis(1_700_000_000_000)
    }
}

struct ToLogs(Arc<Logs>);

impl Publisher for ToLogs {
    fn publish(&self, change: &Change) -> Result<(), String> {
        let Change::Created { topic, first } = change else { return Ok(()) };
        for (partition, state) in topic.indexed().filter(|(partition, _)| partition >= first) {
            let spec = PartitionSpec {
                topic: TopicPartition { topic: topic.name.clone(), partition },
                topic_id: topic.id,
                config: topic.config.clone(),
                leader_epoch: state.leader_epoch,
            };
            self.0.create(spec, Standing.now()).map_err(|e| e.to_string())?;
        }
        Ok(())
    }
}

/// The APIs on logs in a directory, without sockets.
pub(super) struct Served {
    pub context: Arc<Context>,
    connection: Arc<ConnectionInfo>,
    stop: watch::Sender<bool>,
    _timers: tokio::task::JoinSet<()>,
    _dir: tempfile::TempDir,
}

impl Served {
    pub fn new() -> Self {
        let dir = tempfile::tempdir().unwrap();
        let flags = vec![format!("log.dirs={}", dir.path().display())];
        let config = Arc::new(ServerConfig::load(&Sources { flags, ..Sources::default() }).unwrap().config);
        let disk = Arc::new(RealDisk);
        let settings = LogSettings { dirs: config.log_dirs.clone(), ..LogSettings::default() };
        let logs = Arc::new(Logs::lock(disk.clone(), settings).unwrap());
        let cluster = Arc::new(Cluster::open(disk, &config).unwrap());
        cluster.publish_to(Arc::new(ToLogs(logs.clone())));
        cluster.register([("PLAINTEXT".to_owned(), HostPort { host: "here".to_owned(), port: 9092 })]);
        cluster.create_topics(&[NewTopic::with_defaults("t")], false).remove(0).unwrap();
        let settings = CoordinatorSettings {
            groups: group::Settings {
                group_initial_rebalance_delay_ms: 0,
                group_consumer_assignment_interval_ms: 0,
                ..group::Settings::default()
            },
            offsets_topic_num_partitions: 3,
            offsets_topic_replication_factor: 3,
            offsets_topic_segment_bytes: 1 << 20,
            offsets_retention_check_interval_ms: 600_000,
            load_threads: 2,
            group_defaults: config.group_consumer.defaults.clone(),
        };
        let clock: Arc<dyn Clock> = Arc::new(Standing);
        let groups = Arc::new(GroupCoordinator::new(settings, logs.clone(), clock.clone()));
        let (stop, stopping) = watch::channel(false);
        let mut timers = tokio::task::JoinSet::new();
        groups.learn(&|| cluster.image());
        let (timed, until) = (groups.clone(), stopping.clone());
        timers.spawn(async move { timed.run_timers(until).await });
        let (transactions, markers) = crate::broker::transactions::build(&config.transactions, 2, &cluster, &logs, &groups, &clock);
        let parts = Parts { config, cluster, logs, clock, groups, transactions, markers };
        let context = Context::new(parts, &Registry::new().unwrap(), stopping);
        let listener = ListenerInfo { name: "PLAINTEXT".into(), advertised_host: "here".into(), advertised_port: 9092 };
        let connection = ConnectionInfo::new("10.1.2.3:4567".parse().unwrap(), Arc::new(listener));
        Self { context: Arc::new(context), connection: Arc::new(connection), stop, _timers: timers, _dir: dir }
    }

    /// Asks as a client does, from the bytes of the request to those of the answer.
    pub async fn ask<R: Request>(&self, api: &Api, version: i16, request: &R) -> R::Response {
        let reply = match self.send(api, version, request) {
            Answer::Ready(reply) => reply,
            Answer::Later(later) | Answer::Acting(later) | Answer::Parked(later) => {
                later.await.unwrap_or_else(|e| panic!("{} {version}: {e}", api.name))
            }
            Answer::Held(later, hold) => {
                // As if another request came at once.
                hold.interrupt();
                later.await.unwrap_or_else(|e| panic!("{} {version}: {e}", api.name))
            }
        };
        read::<R>(api, version, reply)
    }

    /// The answer as the connection gets it.
    pub fn send<R: Request>(&self, api: &Api, version: i16, request: &R) -> Answer {
        let mut frame = BytesMut::new();
        let header = RequestHeader::default().with_request_api_key(R::KEY).with_request_api_version(version);
        header.with_correlation_id(5).with_client_id(Some(text("c"))).encode(&mut frame, R::header_version(version)).unwrap();
        request.encode(&mut frame, version).unwrap_or_else(|e| panic!("{} {version}: {e}", api.name));
        let (place, answer) = dispatch(&self.context, &self.connection, frame.freeze());
        assert_eq!(api::at(place).map(|found| found.key), Some(api.key));
        answer.unwrap_or_else(|e| panic!("{} {version}: {e}", api.name))
    }

    /// One member that leads a stable group; its id and generation.
    async fn member(&self, v: i16) -> (StrBytes, i32) {
        let mut joined = self.ask(&join_group::API, v, &join(v, "", None)).await;
        if v >= 4 {
            assert_eq!(joined.error_code, ErrorCode::MemberIdRequired.code());
            joined = self.ask(&join_group::API, v, &join(v, &joined.member_id, None)).await;
        }
        assert_eq!((joined.error_code, joined.members.len()), (0, 1));
        assert_eq!(joined.protocol_name.as_deref(), Some("range"));
        assert_eq!(joined.protocol_type.is_some(), v >= 7);
        (joined.member_id, joined.generation_id)
    }
}

pub(super) fn read<R: Request>(api: &Api, version: i16, reply: crate::codec::Reply) -> R::Response {
    let mut wire = BytesMut::new();
    for segment in reply.segments {
        let Segment::Bytes(bytes) = segment else { panic!("a file") };
        wire.put(bytes);
    }
    let mut body = wire.freeze().slice(8..);
    if R::Response::header_version(version) >= 1 {
        assert_eq!(body.get_u8(), 0);
    }
    let response = R::Response::decode(&mut body, version).unwrap_or_else(|e| panic!("{} {version}: {e}", api.name));
    assert!(body.is_empty(), "{} {version}", api.name);
    response
}

#[tokio::test]
async fn coordinators_are_found_in_every_version_and_the_topic_is_made() {
    let served = Served::new();
    let image = served.context.image();
    assert!(image.topic("__consumer_offsets").is_none());
    let early = served.ask(&heartbeat::API, 4, &messages::HeartbeatRequest::default().with_group_id(gid("g"))).await;
    assert_eq!(early.error_code, ErrorCode::NotCoordinator.code());
    for v in 0..=6 {
        let request = messages::FindCoordinatorRequest::default();
        let request = if v >= 4 { request.with_coordinator_keys(vec![text("g"), text("h")]) } else { request.with_key(text("g")) };
        let found = served.ask(&find_coordinator::API, v, &request).await;
        if v >= 4 {
            let keys: Vec<_> = found.coordinators.iter().map(|c| (c.key.as_str(), c.node_id.0, c.host.as_str(), c.port)).collect();
            assert_eq!(keys, [("g", 1, "here", 9092), ("h", 1, "here", 9092)]);
        } else {
            assert_eq!((found.error_code, found.node_id.0, found.host.as_str(), found.port), (0, 1, "here", 9092));
        }
        for (kind, error) in [(1, ErrorCode::None), (2, ErrorCode::InvalidRequest)].into_iter().filter(|_| v >= 1) {
            let found = served.ask(&find_coordinator::API, v, &request.clone().with_key_type(kind)).await;
            let code = found.coordinators.first().map_or(found.error_code, |c| c.error_code);
            assert_eq!(code, error.code(), "of key type {kind}");
        }
    }
    let image = served.context.image();
    let offsets = image.topic("__consumer_offsets").unwrap();
    assert_eq!((offsets.partitions.len(), offsets.config.cleanup_compact), (3, true));
    assert_eq!(offsets.partitions[0].replicas.len(), 1, "as many as there are brokers");
}

#[tokio::test]
async fn a_group_lives_and_ends_in_every_version() {
    let served = Served::new();
    served.ask(&find_coordinator::API, 0, &messages::FindCoordinatorRequest::default().with_key(text("g"))).await;
    for v in 0..=9 {
        let (member, generation) = served.member(v).await;
        let sync_version = v.min(5);
        let synced = served.ask(&sync_group::API, sync_version, &sync(sync_version, &member, generation)).await;
        assert_eq!((synced.error_code, &synced.assignment[..]), (0, &b"all"[..]));
        assert_eq!(synced.protocol_name.is_some(), sync_version >= 5);

        let request = messages::HeartbeatRequest::default().with_group_id(gid("g")).with_member_id(member.clone());
        let beat = |generation| request.clone().with_generation_id(generation);
        assert_eq!(served.ask(&heartbeat::API, v.min(4), &beat(generation)).await.error_code, 0);
        let wrong = served.ask(&heartbeat::API, v.min(4), &beat(generation + 1)).await;
        assert_eq!(wrong.error_code, ErrorCode::IllegalGeneration.code());

        let commit_version = v.max(2);
        let committed = served.ask(&offset_commit::API, commit_version, &commit(commit_version, &member, generation)).await;
        let errors: Vec<_> = committed.topics[0].partitions.iter().map(|p| (p.partition_index, p.error_code)).collect();
        assert_eq!(errors, [(0, 0), (9, ErrorCode::UnknownTopicOrPartition.code())]);
        offsets_are_fetched(&served, v.max(1), commit_version >= 6).await;
        described(&served, v, &member).await;
        delete(&served, v, ErrorCode::NonEmptyGroup).await;

        let leave = messages::LeaveGroupRequest::default().with_group_id(gid("g"));
        let leave = if v < 3 {
            leave.with_member_id(member)
        } else {
            leave.with_members(vec![messages::leave_group_request::MemberIdentity::default().with_member_id(member)])
        };
        let left = served.ask(&leave_group::API, v.min(5), &leave).await;
        assert_eq!((left.error_code, left.members.first().map_or(0, |m| m.error_code)), (0, 0));
        delete(&served, v, ErrorCode::None).await;
        delete(&served, v, ErrorCode::GroupIdNotFound).await;
    }
}

async fn offsets_are_fetched(served: &Served, v: i16, with_epoch: bool) {
    use messages::offset_fetch_request::{OffsetFetchRequestGroup, OffsetFetchRequestTopic, OffsetFetchRequestTopics};
    let request = messages::OffsetFetchRequest::default();
    let expected = [(0, 42, if v >= 5 && with_epoch { 2 } else { -1 }, "mine".to_owned()), (1, -1, -1, String::new())];
    for all in [false, true] {
        let offsets: Vec<_> = if v >= 8 {
            let topics = vec![OffsetFetchRequestTopics::default().with_name(topic("t")).with_partition_indexes(vec![0, 1])];
            let group = OffsetFetchRequestGroup::default().with_group_id(gid("g")).with_topics((!all).then_some(topics));
            let answer = served.ask(&offset_fetch::API, v, &request.clone().with_groups(vec![group])).await;
            assert_eq!((answer.groups[0].error_code, answer.groups[0].group_id.as_str()), (0, "g"));
            let partitions = &answer.groups[0].topics[0].partitions;
            let row = |p: &messages::offset_fetch_response::OffsetFetchResponsePartitions| {
                (p.partition_index, p.committed_offset, p.committed_leader_epoch, p.metadata.as_deref().unwrap_or("?").to_owned())
            };
            partitions.iter().map(row).collect()
        } else if all && v < 2 {
            continue;
        } else {
            let topics = vec![OffsetFetchRequestTopic::default().with_name(topic("t")).with_partition_indexes(vec![0, 1])];
            let request = request.clone().with_group_id(gid("g")).with_topics((!all).then_some(topics));
            let answer = served.ask(&offset_fetch::API, v, &request).await;
            assert_eq!(answer.error_code, 0);
            let row = |p: &messages::offset_fetch_response::OffsetFetchResponsePartition| {
                (p.partition_index, p.committed_offset, p.committed_leader_epoch, p.metadata.as_deref().unwrap_or("?").to_owned())
            };
            answer.topics[0].partitions.iter().map(row).collect()
        };
        assert_eq!(offsets, expected[..if all { 1 } else { 2 }], "version {v}");
    }
}

async fn described(served: &Served, v: i16, member: &StrBytes) {
    let request = messages::DescribeGroupsRequest::default().with_groups(vec![gid("g"), gid("nowhere")]);
    let version = v.min(6);
    let described = served.ask(&describe_groups::API, version, &request.with_include_authorized_operations(version >= 3)).await;
    let (g, nowhere) = (&described.groups[0], &described.groups[1]);
    assert_eq!((g.error_code, &*g.group_state, &*g.protocol_type, &*g.protocol_data), (0, "Stable", "consumer", "range"));
    let found = &g.members[0];
    assert_eq!((&found.member_id, &*found.client_id, &*found.client_host), (member, "c", "/10.1.2.3"));
    assert_eq!(&found.member_assignment[..], b"all");
    assert_eq!(g.authorized_operations, if version >= 3 { 3_400 } else { i32::MIN });
    let missing = if version >= 6 { ErrorCode::GroupIdNotFound } else { ErrorCode::None };
    assert_eq!((nowhere.error_code, &*nowhere.group_state), (missing.code(), "Dead"));

    let version = v.min(5);
    let list = async |states: &[&str], types: &[&str]| {
        let filter = |names: &[&str], since| names.iter().filter(|_| version >= since).map(|name| text(name)).collect();
        let request = messages::ListGroupsRequest::default().with_states_filter(filter(states, 4)).with_types_filter(filter(types, 5));
        let listed = served.ask(&list_groups::API, version, &request).await;
        listed.groups.iter().map(|g| (g.group_id.to_string(), g.group_state.to_string(), g.group_type.to_string())).collect::<Vec<_>>()
    };
    let state = if version >= 4 { "Stable" } else { "" };
    let kind = if version >= 5 { "classic" } else { "" };
    let all = [("g".to_owned(), state.to_owned(), kind.to_owned())];
    assert_eq!(list(&[], &[]).await, all);
    assert_eq!(list(&["stable"], &["classic"]).await, all);
    assert_eq!(list(&["Empty"], &[]).await.len(), usize::from(version < 4));
    assert_eq!(list(&[], &["share"]).await.len(), usize::from(version < 5));
}

async fn delete(served: &Served, v: i16, expected: ErrorCode) {
    let request = messages::DeleteGroupsRequest::default().with_groups_names(vec![gid("g")]);
    let deleted = served.ask(&delete_groups::API, v.min(2), &request).await;
    assert_eq!((deleted.results[0].group_id.as_str(), deleted.results[0].error_code), ("g", expected.code()));
}

#[tokio::test]
async fn offsets_are_deleted_and_groups_need_names() {
    use messages::offset_delete_request::{OffsetDeleteRequestPartition, OffsetDeleteRequestTopic};
    let served = Served::new();
    served.ask(&find_coordinator::API, 0, &messages::FindCoordinatorRequest::default().with_key(text("g"))).await;
    served.ask(&offset_commit::API, 9, &commit(9, "", -1)).await;
    let partition = |index| OffsetDeleteRequestPartition::default().with_partition_index(index);
    let topics = vec![OffsetDeleteRequestTopic::default().with_name(topic("t")).with_partitions(vec![partition(0), partition(9)])];
    let request = messages::OffsetDeleteRequest::default().with_topics(topics);
    let deleted = served.ask(&offset_delete::API, 0, &request.clone().with_group_id(gid("g"))).await;
    // What isn't there comes first, as from Kafka.
    let errors: Vec<_> = deleted.topics[0].partitions.iter().map(|p| (p.partition_index, p.error_code)).collect();
    assert_eq!((deleted.error_code, errors), (0, vec![(9, ErrorCode::UnknownTopicOrPartition.code()), (0, 0)]));
    let nowhere = served.ask(&offset_delete::API, 0, &request.clone().with_group_id(gid("g"))).await;
    assert_eq!(nowhere.error_code, ErrorCode::GroupIdNotFound.code());
    let nameless = served.ask(&offset_delete::API, 0, &request).await;
    assert_eq!(nameless.error_code, ErrorCode::InvalidGroupId.code());
    let nameless = served.ask(&join_group::API, 9, &join(9, "", None).with_group_id(gid(""))).await;
    assert_eq!((nameless.error_code, nameless.generation_id), (ErrorCode::InvalidGroupId.code(), -1));
}

#[tokio::test]
async fn a_broker_that_stops_sends_waiting_members_away() {
    let served = Served::new();
    served.ask(&find_coordinator::API, 0, &messages::FindCoordinatorRequest::default().with_key(text("g"))).await;
    let (member, generation) = served.member(3).await;
    served.ask(&sync_group::API, 5, &sync(5, &member, generation)).await;
    let second = join(3, "", None);
    let waiting = served.ask(&join_group::API, 3, &second);
    let stop = async {
        tokio::task::yield_now().await;
        served.stop.send(true).unwrap();
    };
    let (answer, ()) = tokio::join!(waiting, stop);
    assert_eq!(answer.error_code, ErrorCode::NotCoordinator.code());
}

#[tokio::test]
async fn what_a_client_calls_itself_takes_little_memory() {
    let served = Served::new();
    let long = "a".repeat(4 << 20);
    let request =
        messages::ApiVersionsRequest::default().with_client_software_name(text("librdkafka")).with_client_software_version(text(&long));
    assert_eq!(served.ask(&api::api_versions::API, 3, &request).await.error_code, 0);
    let software = served.connection.software.get().unwrap();
    assert_eq!(&*software.name, "librdkafka");
    assert!(software.version.len() < 1_000, "{} bytes are kept", software.version.len());
}
