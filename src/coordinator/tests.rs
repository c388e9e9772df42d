//! The coordinator on real logs: what is loaded again after a crash, who is told to wait, and who hears of a failed write.

mod transactions;

use super::{records::encode, *};
use crate::{
    cluster::{Change, Cluster, Publisher},
    config::{ServerConfig, Sources},
    group::{Commit, CommitPartition, Generation, Identity, Join, Leave, LeaveMember, Protocol, Reply, Sync, Ticket},
    log::{LogSettings, Logs, PartitionSpec, Proof, io::RealDisk, validate::Origin},
    record::{BatchBuilder, EndTxnMarker, builder::end_txn_batch},
    types::*,
};
use bytes::Bytes;
use std::{path::Path, sync::Arc};

struct Standing;

impl Clock for Standing {
    fn now(&self) -> Millis {
        Millis(1_700_000_000_000)
    }
}

struct ToLogs(Arc<Logs>);

fn specs(topic: &crate::cluster::Topic) -> Vec<PartitionSpec> {
    let spec = |(partition, state): (PartitionIndex, &crate::cluster::PartitionState)| PartitionSpec {
        topic: TopicPartition { topic: topic.name.clone(), partition },
        topic_id: topic.id,
        config: topic.config.clone(),
        leader_epoch: state.leader_epoch,
    };
    topic.indexed().map(spec).collect()
}

impl Publisher for ToLogs {
    fn publish(&self, change: &Change) -> Result<(), String> {
        match change {
            Change::Created { topic, .. } => {
                specs(topic).into_iter().try_for_each(|spec| self.0.create(spec, Standing.now()).map(drop).map_err(|e| e.to_string()))
            }
            Change::Deleted { topic } => self.0.delete_topic(topic.id, Standing.now()).map(drop).map_err(|e| e.to_string()),
            Change::Configured { .. } => Ok(()),
        }
    }
}

struct Broker {
    cluster: Cluster,
    logs: Arc<Logs>,
    groups: Arc<GroupCoordinator>,
}

impl Broker {
    /// Opens what is in the directory; groups are there but not loaded.
    fn open(dir: &Path) -> Self {
        let flags = vec![format!("log.dirs={}", dir.display())];
        let config = ServerConfig::load(&Sources { flags, ..Sources::default() }).unwrap().config;
        let disk = Arc::new(RealDisk);
        let logs = Arc::new(Logs::lock(disk.clone(), LogSettings { dirs: config.log_dirs.clone(), ..LogSettings::default() }).unwrap());
        let cluster = Cluster::open(disk, &config).unwrap();
        let image = cluster.image();
        logs.open_all(image.topics().flat_map(|topic| specs(topic)).collect(), Standing.now()).unwrap();
        cluster.publish_to(Arc::new(ToLogs(logs.clone())));
        let settings = CoordinatorSettings {
            groups: group::Settings { group_initial_rebalance_delay_ms: 0, ..group::Settings::default() },
            offsets_topic_num_partitions: 4,
            offsets_topic_replication_factor: 1,
            offsets_topic_segment_bytes: 1 << 20,
            offsets_retention_check_interval_ms: 600_000,
            load_threads: 2,
            group_defaults: config.group_consumer.defaults.clone(),
        };
        let groups = Arc::new(GroupCoordinator::new(settings, logs.clone(), Arc::new(Standing)));
        groups.open(&image);
        Self { cluster, logs, groups }
    }

    fn started(dir: &Path) -> Self {
        let broker = Self::open(dir);
        broker.groups.load();
        broker.groups.ensure_topic(&broker.cluster).unwrap();
        broker
    }

    fn commit(&self, group: &str, from: &str, generation: i32, offset: i64) -> Result<Vec<ErrorCode>, ErrorCode> {
        let asked = CommitPartition {
            partition: TopicPartition { topic: TopicName::new("t").unwrap(), partition: PartitionIndex(0) },
            offset: Offset(offset),
            leader_epoch: LeaderEpoch(1),
            metadata: "m".into(),
        };
        let commit =
            Commit { from: identity(group, from, generation), retention_ms: -1, tells_missing_group: true, partitions: vec![asked] };
        let outcome = self.groups.decide(group, |groups, now| groups.decide_commit(now, &commit))?;
        assert!(outcome.committing.is_none(), "one broker's records are committed at once");
        outcome.reply
    }

    fn committed(&self, group: &str) -> Result<Option<i64>, ErrorCode> {
        self.groups.query(group, |groups| groups.committed(group, "t", PartitionIndex(0)).map(|c| c.offset.0))
    }

    fn heartbeat(&self, group: &str, member: &str, generation: i32) -> Result<ErrorCode, ErrorCode> {
        let from = identity(group, member, generation);
        self.groups.decide(group, |groups, now| groups.decide_heartbeat(now, &from)).map(|outcome| outcome.reply)
    }

    /// A stable group with one static member.
    async fn member(&self, group: &str, id: &str) -> Generation {
        let waiting =
            self.groups.decide_later(group, |groups, now, ticket| groups.decide_join(now, &join(group, id, ticket)), |_, _, _| None);
        let Reply::Join(joined) = waiting.unwrap().0.await.unwrap().reply else { panic!("no join") };
        assert_eq!(joined.error, ErrorCode::None);
        let sync = |ticket| Sync {
            from: identity(group, id, joined.generation.0),
            protocol_type: None,
            protocol: None,
            assignments: [(id.into(), Bytes::from_static(b"all"))].into(),
            ticket,
        };
        let waiting = self.groups.decide_later(group, |groups, now, ticket| groups.decide_sync(now, &sync(ticket)), |_, _, _| None);
        let Reply::Sync(synced) = waiting.unwrap().0.await.unwrap().reply else { panic!("no sync") };
        assert_eq!((synced.error, &synced.assignment[..]), (ErrorCode::None, &b"all"[..]));
        joined.generation
    }

    fn log_of(&self, group: &str) -> Arc<crate::log::PartitionLog> {
        let image = self.cluster.image();
        let topic = image.topic(OFFSETS_TOPIC).unwrap();
        let index = i32::try_from(partition_of(group, topic.partitions.len())).unwrap();
        self.logs.get(topic.id, PartitionIndex(index)).unwrap()
    }
}

fn identity(group: &str, member: &str, generation: i32) -> Identity {
    Identity { group: group.into(), member_id: member.into(), instance_id: None, generation: Generation(generation) }
}

fn join(group: &str, id: &str, ticket: Ticket) -> Join {
    Join {
        group: group.into(),
        member_id: "".into(),
        instance_id: None,
        client_id: "c".into(),
        client_host: "/h".into(),
        session_timeout_ms: 10_000,
        rebalance_timeout_ms: 10_000,
        protocol_type: "consumer".into(),
        protocols: Arc::new([Protocol { name: "range".into(), metadata: Bytes::new() }]),
        reason: None,
        requires_known_member_id: false,
        supports_skipping_assignment: true,
        fresh_id: id.into(),
        ticket,
    }
}

/// Runs with the timers on.
async fn with_timers<R>(broker: &Broker, work: impl Future<Output = R>) -> R {
    let (_stop, stopping) = tokio::sync::watch::channel(false);
    tokio::select! {
        done = work => done,
        () = broker.groups.run_timers(stopping) => unreachable!(),
    }
}

#[test]
fn groups_belong_to_the_partitions_that_java_says() {
    // "g".hashCode() is 103, "hello".hashCode() 99162322, and this one's Integer.MIN_VALUE.
    assert_eq!(partition_of("g", 50), 3);
    assert_eq!(partition_of("hello", 50), 22);
    assert_eq!(partition_of("polygenelubricants", 50), 0);
    assert_eq!(partition_of("", 50), 0);
    // A character beyond the first plane counts as two.
    assert_eq!(partition_of("\u{1F600}", 1_000_000_007), 0xd83d * 31 + 0xde00);
    assert_eq!(partition_of("g", 0), 0);
}

#[tokio::test]
async fn after_a_crash_members_and_offsets_are_there() {
    let dir = tempfile::tempdir().unwrap();
    let generation = {
        let broker = Broker::started(dir.path());
        let generation = with_timers(&broker, broker.member("g", "a")).await;
        assert_eq!(broker.commit("g", "a", generation.0, 7), Ok(vec![ErrorCode::None]));
        assert_eq!(broker.commit("simple", "", -1, 9), Ok(vec![ErrorCode::None]));
        generation
        // Dropped without a clean stop.
    };
    let broker = Broker::open(dir.path());
    assert_eq!(broker.committed("g"), Err(ErrorCode::CoordinatorLoadInProgress));
    assert_eq!(broker.groups.query_all(|_| ()), Err(ErrorCode::CoordinatorLoadInProgress));
    broker.groups.load();
    assert_eq!((broker.committed("g"), broker.committed("simple")), (Ok(Some(7)), Ok(Some(9))));
    assert_eq!(broker.heartbeat("g", "a", generation.0), Ok(ErrorCode::None), "no rebalance");
    let described = broker.groups.query("g", |groups| groups.describe("g")).unwrap().unwrap();
    assert_eq!((described.state.name(), &described.members[0].assignment[..]), ("Stable", &b"all"[..]));
}

#[test]
fn without_the_topic_there_is_no_coordinator_and_a_new_one_is_made_after_it_was_deleted() {
    let dir = tempfile::tempdir().unwrap();
    let broker = Broker::open(dir.path());
    assert_eq!(broker.commit("g", "", -1, 1), Err(ErrorCode::NotCoordinator));
    assert!(!broker.groups.is_open(&broker.cluster.image()));
    broker.groups.ensure_topic(&broker.cluster).unwrap();
    broker.groups.ensure_topic(&broker.cluster).unwrap();
    assert_eq!(broker.commit("g", "", -1, 1), Ok(vec![ErrorCode::None]));
    let id = broker.cluster.image().topic(OFFSETS_TOPIC).unwrap().id;
    broker.cluster.delete_topics(&[id]);
    assert!(!broker.groups.is_open(&broker.cluster.image()));
    broker.groups.ensure_topic(&broker.cluster).unwrap();
    assert_eq!(broker.committed("g"), Ok(None));
    assert_eq!(broker.commit("g", "", -1, 2), Ok(vec![ErrorCode::None]));
}

#[test]
fn what_is_in_transactions_counts_once_they_are_committed() {
    let dir = tempfile::tempdir().unwrap();
    let broker = Broker::started(dir.path());
    broker.commit("g", "", -1, 1).unwrap();
    let log = broker.log_of("g");
    let record = |offset: i64| group::Record::Offset {
        group: "g".into(),
        partition: TopicPartition { topic: TopicName::new("t").unwrap(), partition: PartitionIndex(0) },
        value: Some(group::Committed {
            offset: Offset(offset),
            leader_epoch: LeaderEpoch::NONE,
            metadata: "".into(),
            committed_at: Standing.now(),
            expires_at: None,
        }),
    };
    let append = |batch: Bytes| log.append(Standing.now(), batch, Origin::CoordinatorInTransaction(Proof::Unchecked)).unwrap();
    let transactional = |producer: i64, offset: i64| {
        let (key, value) = encode(&record(offset)).unwrap();
        let batch = BatchBuilder::default().producer(ProducerId(producer), ProducerEpoch(0), 0).transactional();
        append(batch.record(Standing.now(), Some(&key), value.as_deref()).build().unwrap());
    };
    let end = |producer: i64, commit: bool| {
        let marker = EndTxnMarker { commit, coordinator_epoch: 0 };
        append(end_txn_batch(ProducerId(producer), ProducerEpoch(0), marker, Standing.now()));
    };
    let loaded = || {
        let mut groups = group::Groups::new(group::Settings::default());
        let loaded = load::load(&log, &mut groups).unwrap();
        (loaded.records, loaded.ignored, groups.committed("g", "t", PartitionIndex(0)).map(|c| c.offset.0))
    };
    transactional(5, 20);
    assert_eq!(loaded(), (2, 0, Some(1)));
    end(5, true);
    assert_eq!(loaded(), (2, 0, Some(20)));
    transactional(6, 30);
    end(6, false);
    assert_eq!(loaded(), (3, 0, Some(20)));
    // A kind of a newer Kafka's.
    let foreign = BatchBuilder::default().record(Standing.now(), Some(&[0, 99]), Some(&[0, 0])).record(Standing.now(), Some(&[]), None);
    append(foreign.build().unwrap());
    assert_eq!(loaded(), (3, 2, Some(20)));
}

#[tokio::test]
async fn when_the_log_takes_no_writes_members_are_sent_away_and_nothing_changes() {
    let dir = tempfile::tempdir().unwrap();
    let broker = Broker::started(dir.path());
    let generation = with_timers(&broker, broker.member("g", "a")).await;
    broker.commit("g", "a", generation.0, 7).unwrap();
    let id = broker.cluster.image().topic(OFFSETS_TOPIC).unwrap().id;
    // Behind the coordinator's back.
    broker.logs.delete_topic(id, Standing.now()).unwrap();
    assert!(broker.commit("g", "a", generation.0, 8).is_err());
    assert_eq!(broker.committed("g"), Ok(Some(7)));
    // The last member may leave all the same.
    let leave = Leave { group: "g".into(), members: vec![LeaveMember { member_id: "a".into(), instance_id: None, reason: None }] };
    let left = broker.groups.decide("g", |groups, now| groups.decide_leave(now, &leave)).unwrap();
    assert_eq!(left.reply[0].error, ErrorCode::None);
    assert_eq!(broker.heartbeat("g", "a", generation.0), Ok(ErrorCode::UnknownMemberId));
}

#[test]
fn offsets_of_a_deleted_topic_are_gone_after_a_restart() {
    let dir = tempfile::tempdir().unwrap();
    let broker = Broker::started(dir.path());
    for group in ["a", "b", "c"] {
        broker.commit(group, "", -1, 1).unwrap();
    }
    broker.groups.topic_deleted(&TopicName::new("t").unwrap());
    assert_eq!(broker.committed("b"), Ok(None));
    drop(broker);
    let broker = Broker::started(dir.path());
    let mut left = 0;
    broker.groups.query_all(|groups| left += groups.len()).unwrap();
    assert_eq!(left, 0);
}

/// The topic is deleted while the groups are still being loaded, or the broker is killed before the offsets are forgotten.
#[test]
fn offsets_that_a_deletion_has_left_are_swept() {
    let t = TopicName::new("t").unwrap();
    for killed in [false, true] {
        let dir = tempfile::tempdir().unwrap();
        let broker = Broker::started(dir.path());
        broker.commit("a", "", -1, 1).unwrap();
        drop(broker);
        let broker = Broker::open(dir.path());
        if !killed {
            broker.groups.topic_deleted(&t);
        }
        broker.groups.sweep(|_| true);
        broker.groups.load();
        assert_eq!(broker.committed("a"), Ok(Some(1)));
        broker.groups.sweep(|_| !killed);
        assert_eq!(broker.committed("a"), Ok(None), "killed: {killed}");
        drop(broker);
        assert_eq!(Broker::started(dir.path()).committed("a"), Ok(None), "killed: {killed}");
    }
}
