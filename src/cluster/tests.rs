//! The metadata as a whole: commands to the shell, on a disk in memory.

use super::{admin::Settings, disk::MemoryDisk, *};
use crate::{
    config::{HostPort, ServerConfig, Sources, TopicDefaults},
    types::{BrokerId, ErrorCode, LeaderEpoch, PartitionIndex, TopicId, TopicName, TopicPartition},
};
use parking_lot::Mutex;
use proptest::{collection::vec, prelude::*};
use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
};

fn config(flags: &[&str]) -> ServerConfig {
    let flags = [&["log.dirs=/a,/b"], flags].concat().iter().map(|flag| (*flag).to_owned()).collect();
    ServerConfig::load(&Sources { flags, ..Sources::default() }).unwrap().config
}

fn open(disk: &MemoryDisk) -> Result<Cluster, ClusterError> {
    Cluster::open(Arc::new(disk.clone()), &config(&[]))
}

fn new() -> Cluster {
    open(&MemoryDisk::default()).unwrap()
}

fn named(name: &str) -> NewTopic {
    NewTopic::with_defaults(name)
}

fn create_one(cluster: &Cluster, topic: NewTopic) -> Result<Arc<Topic>, AdminError> {
    cluster.create_topics(&[topic], false).remove(0)
}

/// The error code and message that a topic is refused with.
fn refused(cluster: &Cluster, topic: NewTopic) -> (ErrorCode, String) {
    let error = create_one(cluster, topic).unwrap_err();
    (ErrorCode::from(&error), error.to_string())
}

#[derive(Clone, Debug)]
enum Command {
    Create(String, i32, Option<i64>),
    Delete(String),
    Partitions(String, i32),
    Config(String, Option<i64>),
    ProducerIds,
    Started(bool),
    Forget,
}

fn any_command() -> impl Strategy<Value = Command> {
    let name = || "[a-d]";
    prop_oneof![
        3 => (name(), 1..4, prop::option::of(0i64..9)).prop_map(|(name, n, retention)| Command::Create(name, n, retention)),
        1 => name().prop_map(Command::Delete),
        1 => (name(), 1..6).prop_map(|(name, n)| Command::Partitions(name, n)),
        1 => (name(), prop::option::of(0i64..9)).prop_map(|(name, retention)| Command::Config(name, retention)),
        1 => Just(Command::ProducerIds),
        1 => any::<bool>().prop_map(Command::Started),
        1 => Just(Command::Forget),
    ]
}

/// False if the disk refused.
fn run(cluster: &Cluster, command: &Command) -> bool {
    let storage = |error: &AdminError| matches!(error, AdminError::Storage(_));
    let fine = |replies: Vec<Result<Arc<Topic>, AdminError>>| !replies.iter().any(|one| one.as_ref().is_err_and(storage));
    let image = cluster.image();
    match command {
        Command::Create(name, partitions, retention) => {
            let configs = retention.iter().map(|ms| ("retention.ms".to_owned(), Some(ms.to_string()))).collect();
            fine(cluster.create_topics(&[NewTopic { partitions: *partitions, configs, ..named(name) }], false))
        }
        Command::Delete(name) => {
            let ids: Vec<TopicId> = image.topic(name).iter().map(|topic| topic.id).collect();
            fine(cluster.delete_topics(&ids))
        }
        Command::Partitions(name, count) => {
            fine(cluster.create_partitions(&[MorePartitions { name: name.clone(), count: *count, assignments: None }], false))
        }
        Command::Config(name, retention) => {
            let change = [("retention.ms".to_owned(), retention.map(|ms| ms.to_string()))];
            fine(vec![cluster.alter_topic_config(name, &change, false)])
        }
        Command::ProducerIds => !cluster.next_producer_id().is_err_and(|error| storage(&error)),
        Command::Started(unclean) => cluster.broker_started(*unclean).is_ok(),
        Command::Forget => cluster.forget(&image.deleting.keys().copied().collect::<Vec<_>>()).is_ok(),
    }
}

proptest! {
    #[test]
    fn a_restart_changes_nothing(commands in vec(any_command(), 0..30)) {
        let disk = MemoryDisk::default();
        let cluster = open(&disk).unwrap();
        commands.iter().for_each(|command| assert!(run(&cluster, command)));
        prop_assert_eq!(open(&disk).unwrap().image(), cluster.image());
        prop_assert_eq!(open(&disk.after_power_loss()).unwrap().image(), cluster.image());
    }

    #[test]
    fn a_crash_anywhere_leaves_the_old_or_the_new(commands in vec(any_command(), 1..12), fail_at in 1usize..30, power_loss: bool) {
        let disk = MemoryDisk::default();
        let cluster = open(&disk).unwrap();
        disk.fail_after(fail_at);
        let mut last = None;
        let before = commands.iter().find_map(|command| {
            let before = cluster.image();
            last = Some(command);
            (!run(&cluster, command)).then_some(before)
        });
        let again = open(&if power_loss { disk.after_power_loss() } else { disk.after_kill() }).unwrap();
        let Some(before) = before else {
            prop_assert_eq!(again.image(), cluster.image());
            return Ok(());
        };
        prop_assert_eq!(&cluster.image(), &before, "what failed was seen");
        if again.image() != before {
            // What the last command would have done is there, as a whole.
            let names = |image: &Image| image.topics().map(|topic| topic.name.clone()).collect::<BTreeSet<_>>();
            let (mut old, mut new) = (names(&before), names(&again.image()));
            match last.unwrap() {
                Command::Create(name, ..) => _ = old.insert(TopicName::new(name).unwrap()),
                Command::Delete(name) => _ = new.insert(TopicName::new(name).unwrap()),
                _ => {}
            }
            prop_assert_eq!(old, new);
        }
    }

    #[test]
    fn deciding_changes_nothing(commands in vec(any_command(), 0..10), name in "[a-d]", count in 0..9) {
        let cluster = new();
        commands.iter().for_each(|command| assert!(run(&cluster, command)));
        let image = cluster.image();
        let copy = Image::clone(&image);
        let settings = Settings { num_partitions: 1, default_replication_factor: 1, topic_defaults: Arc::new(TopicDefaults::default()), group_defaults: ServerConfig::default().group_consumer.defaults };
        let id = TopicId(uuid::Uuid::from_u128(7));
        let retention = ("retention.ms".to_owned(), ConfigOp::Set("1".to_owned()));
        let change = [TopicChange { name: name.clone(), change: ConfigChange::Incremental(vec![retention]) }];
        let more = [MorePartitions { name: name.clone(), count, assignments: None }];
        let decided = || {
            let ids: Vec<TopicId> = image.topics().map(|topic| topic.id).collect();
            (
                image.decide_create_topics(&settings, &[named(&name)], &[id]),
                image.decide_delete_topics(&ids),
                image.decide_create_partitions(&more),
                image.decide_alter_topics(&settings.topic_defaults, &change),
                image.decide_producer_ids(),
                image.decide_broker_started(true),
            )
        };
        prop_assert_eq!(decided(), decided());
        prop_assert_eq!(&*image, &copy);
    }

    #[test]
    fn a_producer_id_is_given_once(restarts in vec(0usize..1100, 1..4)) {
        let disk = MemoryDisk::default();
        let mut seen = BTreeSet::new();
        for ids in restarts {
            let cluster = open(&disk).unwrap();
            for _ in 0..ids {
                prop_assert!(seen.insert(cluster.next_producer_id().unwrap()));
            }
        }
    }
}

#[test]
fn a_topic_is_created_as_the_defaults_have_it() {
    let cluster =
        Cluster::open(Arc::new(MemoryDisk::default()), &config(&["num.partitions=3", "node.id=5", "log.retention.ms=77"])).unwrap();
    let topic = create_one(&cluster, named("orders")).unwrap();
    assert_eq!(cluster.image().topic("orders"), Some(&topic));
    assert_eq!(cluster.image().topic_by_id(topic.id), Some(&topic));
    let expected = PartitionState {
        leader: BrokerId(5),
        leader_epoch: LeaderEpoch(0),
        partition_epoch: 0,
        replicas: vec![BrokerId(5)],
        isr: vec![BrokerId(5)],
    };
    assert_eq!(topic.partitions, vec![expected; 3]);
    assert_eq!((topic.config.retention_ms, topic.overrides.len()), (77, 0));
}

#[test]
fn validating_creates_nothing() {
    let cluster = new();
    let replies = cluster.create_topics(&[named("a"), named("a b")], true);
    assert!(replies[0].is_ok() && replies[1].is_err());
    assert_eq!(cluster.image().topics().len(), 0);
    create_one(&cluster, named("a")).unwrap();
    assert!(cluster.create_partitions(&[MorePartitions { name: "a".to_owned(), count: 2, assignments: None }], true)[0].is_ok());
    assert!(cluster.alter_topic_config("a", &[("retention.ms".to_owned(), Some("5".to_owned()))], true).is_ok());
    let topic = cluster.image().topic("a").unwrap().clone();
    assert_eq!((topic.partitions.len(), topic.overrides.len()), (1, 0));
}

#[test]
fn names_are_refused_as_in_kafka() {
    let cluster = new();
    create_one(&cluster, named("a.b_c")).unwrap();
    assert_eq!(refused(&cluster, named("a.b_c")), (ErrorCode::TopicAlreadyExists, "Topic 'a.b_c' already exists.".to_owned()));
    let collides = "Topic 'a_b.c' collides with existing topic: a.b_c".to_owned();
    assert_eq!(refused(&cluster, named("a_b.c")), (ErrorCode::InvalidTopicException, collides));
    assert_eq!(refused(&cluster, named("..")).0, ErrorCode::InvalidTopicException);
    assert!(create_one(&cluster, named("a-b-c")).is_ok() && create_one(&cluster, named("a_c_b")).is_ok());
    let replies = cluster.create_topics(&[named("twice"), named("twice")], false);
    assert!(replies[0].is_ok());
    assert_eq!(ErrorCode::from(replies[1].as_ref().unwrap_err()), ErrorCode::InvalidRequest);
}

#[test]
fn numbers_are_refused_as_in_kafka() {
    let cluster = new();
    let with = |partitions, replication_factor| NewTopic { partitions, replication_factor, ..named("t") };
    assert_eq!(refused(&cluster, with(0, -1)).0, ErrorCode::InvalidPartitions);
    assert_eq!(refused(&cluster, with(-2, -1)).0, ErrorCode::InvalidPartitions);
    assert_eq!(refused(&cluster, with(10_001, -1)).0, ErrorCode::PolicyViolation);
    assert_eq!(refused(&cluster, with(i32::MAX, 1)).0, ErrorCode::PolicyViolation);
    assert_eq!(refused(&cluster, with(1, 0)).0, ErrorCode::InvalidReplicationFactor);
    let why = "Unable to replicate the partition 3 time(s): The target replication factor of 3 cannot be reached because only 1 broker(s) \
               are registered.";
    assert_eq!(refused(&cluster, with(1, 3)), (ErrorCode::InvalidReplicationFactor, why.to_owned()));
    assert_eq!(create_one(&cluster, with(10_000, 1)).unwrap().partitions.len(), 10_000);
    let two = [NewTopic { partitions: 6_000, ..named("x") }, NewTopic { partitions: 6_000, ..named("y") }];
    let replies = cluster.create_topics(&two, true);
    assert!(replies[0].is_ok() && replies[1] == Err(AdminError::TooManyPartitions));
}

#[test]
fn assignments_are_checked_as_in_kafka() {
    let cluster = new();
    let with = |assignments: &[(i32, &[i32])]| NewTopic {
        assignments: assignments.iter().map(|(index, ids)| (*index, ids.iter().copied().map(BrokerId).collect())).collect(),
        ..named("t")
    };
    let why = |topic| refused(&cluster, topic).1;
    assert!(why(with(&[(0, &[])])).contains("includes an empty replica list"));
    assert!(why(with(&[(0, &[9])])).contains("includes broker 9, but no such broker is registered"));
    assert!(why(with(&[(0, &[1, 1])])).contains("includes the broker 1 more than once"));
    assert!(why(with(&[(0, &[1]), (0, &[1])])).contains("Found multiple manual partition assignments for partition 0"));
    assert!(why(with(&[(0, &[1]), (2, &[1])])).contains("consecutive 0-based integer sequence"));
    assert_eq!(refused(&cluster, NewTopic { partitions: 1, ..with(&[(0, &[1])]) }).0, ErrorCode::InvalidRequest);
    assert_eq!(refused(&cluster, NewTopic { replication_factor: 1, ..with(&[(0, &[1])]) }).0, ErrorCode::InvalidRequest);
    assert_eq!(create_one(&cluster, with(&[(1, &[1]), (0, &[1])])).unwrap().partitions.len(), 2);
}

#[test]
fn configs_are_checked_and_kept_as_given() {
    let cluster = new();
    let with = |name: &str, value: Option<&str>| NewTopic { configs: vec![(name.to_owned(), value.map(str::to_owned))], ..named("t") };
    let invalid = |topic, why: &str| assert_eq!(refused(&cluster, topic), (ErrorCode::InvalidConfig, why.to_owned()));
    invalid(with("retention.ms", None), "Null value not supported for topic configs: retention.ms");
    invalid(with("retention", Some("1")), "Unknown topic config name: retention");
    invalid(with("segment.ms", Some("0")), "Invalid value 0 for configuration segment.ms: Value must be at least 1");
    create_one(&cluster, with("retention.ms", Some(" 7 "))).unwrap();
    let set = |value: Option<&str>| cluster.alter_topic_config("t", &[("retention.ms".to_owned(), value.map(str::to_owned))], false);
    let topic = cluster.image().topic("t").unwrap().clone();
    assert_eq!((topic.config.retention_ms, topic.overrides["retention.ms"].as_str()), (7, " 7 "));
    assert_eq!(ErrorCode::from(&set(Some("x")).unwrap_err()), ErrorCode::InvalidConfig);
    set(None).unwrap();
    assert_eq!(cluster.image().topic("t").unwrap().config.retention_ms, 604_800_000);
}

#[test]
fn partitions_are_added_and_never_taken() {
    let cluster = new();
    create_one(&cluster, NewTopic { partitions: 2, ..named("t") }).unwrap();
    let more = |count: i32, assignments: Option<&[&[i32]]>| {
        let brokers = |ids: &&[i32]| ids.iter().copied().map(BrokerId).collect();
        let assignments = assignments.map(|all| all.iter().map(brokers).collect());
        cluster
            .create_partitions(&[MorePartitions { name: "t".to_owned(), count, assignments }], false)
            .remove(0)
            .map_err(|e| e.to_string())
    };
    assert_eq!(more(2, None), Err("Topic already has 2 partition(s).".to_owned()));
    assert_eq!(more(1, None), Err("The topic t currently has 2 partition(s); 1 would not be an increase.".to_owned()));
    assert!(more(-1, None).unwrap_err().contains("would not be an increase"));
    assert!(more(4, Some(&[&[1]])).unwrap_err().contains("Attempted to add 2 additional partition(s), but only 1"));
    assert!(more(3, Some(&[&[1, 2]])).unwrap_err().contains("no such broker is registered"));
    assert_eq!(more(i32::MAX, None), Err(AdminError::TooManyPartitions.to_string()));
    more(3, Some(&[&[1]])).unwrap();
    more(5, None).unwrap();
    assert_eq!(cluster.image().topic("t").unwrap().partitions.len(), 5);
    let unknown = cluster.create_partitions(&[MorePartitions { name: "u".to_owned(), count: 1, assignments: None }], false).remove(0);
    assert_eq!(unknown, Err(AdminError::UnknownTopic));
}

#[test]
fn an_unclean_start_raises_every_leader_epoch() {
    let disk = MemoryDisk::default();
    let cluster = open(&disk).unwrap();
    create_one(&cluster, NewTopic { partitions: 2, ..named("t") }).unwrap();
    let epochs = |cluster: &Cluster| cluster.image().topic("t").unwrap().partitions.iter().map(|p| p.leader_epoch.0).collect::<Vec<_>>();
    cluster.broker_started(false).unwrap();
    assert_eq!(epochs(&cluster), [0, 0]);
    cluster.broker_started(true).unwrap();
    assert_eq!(epochs(&cluster), [1, 1]);
    assert_eq!(epochs(&open(&disk).unwrap()), [1, 1]);
}

#[test]
fn the_cluster_id_is_that_of_the_directories_and_stays() {
    let disk = MemoryDisk::default();
    let id = open(&disk).unwrap().image().cluster_id.clone();
    assert_eq!(id.len(), 22);
    assert_eq!(open(&disk).unwrap().image().cluster_id, id);
    disk.overwrite("/b/meta.properties".as_ref(), |text| *text = b"version=1\ncluster.id=other\nnode.id=1\n".to_vec());
    assert!(matches!(open(&disk), Err(ClusterError::Meta(_))));
    disk.overwrite("/a/meta.properties".as_ref(), |text| *text = b"version=1\ncluster.id=other\nnode.id=1\n".to_vec());
    assert!(matches!(open(&disk), Err(ClusterError::ClusterId { .. })));
    let node_2 = Cluster::open(Arc::new(disk), &config(&["node.id=2"]));
    assert!(matches!(node_2, Err(ClusterError::Meta(meta::MetaError::NodeId { .. }))));
}

#[test]
fn a_broker_registers_its_endpoints() {
    let cluster = new();
    cluster.register([("PLAINTEXT".to_owned(), HostPort { host: "h".to_owned(), port: 7 })]);
    let image = cluster.image();
    assert_eq!(image.brokers[&BrokerId(1)].endpoints["PLAINTEXT"].to_string(), "h:7");
    assert_eq!(image.controller_id(), BrokerId(1));
}

#[derive(Default)]
struct Recorder {
    told: Mutex<Vec<String>>,
    refuses: Mutex<Option<String>>,
}

impl Publisher for Recorder {
    fn publish(&self, change: &Change) -> Result<(), String> {
        let text = match change {
            Change::Created { topic, first } => format!("created {} {first}..{}", topic.name, topic.partitions.len()),
            Change::Configured { topic } => format!("configured {} {}", topic.name, topic.config.retention_ms),
            Change::Deleted { topic } => format!("deleted {}", topic.name),
        };
        self.told.lock().push(text);
        self.refuses.lock().clone().map_or(Ok(()), Err)
    }
}

#[test]
fn the_publisher_is_told_of_every_change() {
    let cluster = new();
    let recorder = Arc::new(Recorder::default());
    cluster.publish_to(recorder.clone());
    let topic = create_one(&cluster, named("t")).unwrap();
    cluster.create_partitions(&[MorePartitions { name: "t".to_owned(), count: 3, assignments: None }], false).remove(0).unwrap();
    cluster.alter_topic_config("t", &[("retention.ms".to_owned(), Some("9".to_owned()))], false).unwrap();
    cluster.delete_topics(&[topic.id]).remove(0).unwrap();
    assert_eq!(*recorder.told.lock(), ["created t 0..1", "created t 1..3", "configured t 9", "deleted t"]);
    assert!(cluster.image().deleting.is_empty());
    assert_eq!(cluster.delete_topics(&[topic.id]), [Err(AdminError::UnknownTopicId)]);
}

#[test]
fn a_topic_whose_directories_cannot_be_made_is_not_there() {
    let disk = MemoryDisk::default();
    let cluster = open(&disk).unwrap();
    let recorder = Arc::new(Recorder::default());
    cluster.publish_to(recorder.clone());
    *recorder.refuses.lock() = Some("the disk is full".to_owned());
    assert_eq!(create_one(&cluster, named("t")), Err(AdminError::Storage("the disk is full".to_owned())));
    assert!(cluster.image().topic("t").is_none() && open(&disk).unwrap().image().topic("t").is_none());
    assert_eq!(*recorder.told.lock(), ["created t 0..1", "deleted t"]);
    *recorder.refuses.lock() = None;
    let topic = create_one(&cluster, named("t")).unwrap();
    // A deletion stands even if the directories can't be removed: the next start does it.
    *recorder.refuses.lock() = Some("the disk is gone".to_owned());
    cluster.delete_topics(&[topic.id]).remove(0).unwrap();
    assert!(cluster.image().topic("t").is_none() && cluster.image().deleting.contains_key(&topic.id));
}

fn found(name: &str, partition: i32, id: Option<u128>, newest_epoch: Option<i32>) -> FoundPartition {
    FoundPartition {
        topic: TopicPartition { topic: TopicName::new(name).unwrap(), partition: PartitionIndex(partition) },
        topic_id: id.map(|bits| TopicId(uuid::Uuid::from_u128(bits))),
        newest_epoch: newest_epoch.map(LeaderEpoch),
    }
}

fn epochs(cluster: &Cluster, name: &str) -> Vec<i32> {
    cluster.image().topic(name).unwrap().partitions.iter().map(|state| state.leader_epoch.0).collect()
}

#[test]
fn directories_without_a_journal_become_topics_again() {
    let disk = MemoryDisk::default();
    let cluster = open(&disk).unwrap();
    let dirs = [
        found("k", 2, Some(7), Some(4)),
        found("k", 0, Some(7), None),
        found("old", 0, None, Some(0)),
        found("k", 1, Some(8), None),
        found("other", 0, Some(7), None),
        found("__cluster_metadata", 0, Some(1), None),
        found("far", 1_000_000, Some(9), None),
        found("__consumer_offsets", 0, Some(10), None),
    ];
    let verdicts = cluster.adopt(&dirs).unwrap();
    let id = TopicId(uuid::Uuid::from_u128(7));
    assert_eq!((&verdicts[0], &verdicts[1]), (&Verdict::Belongs(id), &Verdict::Belongs(id)));
    assert!(matches!(verdicts[2], Verdict::Belongs(fresh) if !fresh.is_zero()));
    assert_eq!(verdicts[5], Verdict::Kafkas);
    assert!([3, 4, 6].iter().all(|i: &usize| matches!(verdicts[*i], Verdict::Stray(_))), "{verdicts:?}");
    assert_eq!((epochs(&cluster, "k"), epochs(&cluster, "old")), (vec![0, 0, 5], vec![1]));
    let names: Vec<String> = cluster.image().topics().map(|topic| topic.name.to_string()).collect();
    assert_eq!(names, ["__consumer_offsets", "k", "old"]);
    assert!(cluster.image().topic("__consumer_offsets").unwrap().config.cleanup_compact);
    // Their configs are not in the directories: nothing is deleted by the broker's defaults.
    let kept = &cluster.image().topic("k").unwrap().config.clone();
    assert_eq!((kept.retention_ms, kept.retention_bytes), (-1, -1));
    // The next start knows them.
    let again = open(&disk).unwrap();
    let image = again.image();
    assert_eq!(again.adopt(&dirs[..2]).unwrap(), vec![Verdict::Belongs(id); 2]);
    assert_eq!(again.image(), image);
}

#[test]
fn directories_of_known_topics_are_judged_by_their_id() {
    let cluster = new();
    cluster.adopt(&[found("t", 0, Some(1), None), found("gone", 0, Some(2), None)]).unwrap();
    cluster.delete_topics(&[TopicId(uuid::Uuid::from_u128(2))]).remove(0).unwrap();
    let dirs = [
        found("t", 0, Some(1), Some(6)),
        found("t", 1, Some(1), Some(0)),
        found("t", 0, Some(3), None),
        found("gone", 0, Some(2), None),
        found("renamed", 0, Some(1), None),
    ];
    let verdicts = cluster.adopt(&dirs).unwrap();
    let id = TopicId(uuid::Uuid::from_u128(1));
    assert_eq!(verdicts[..2], [Verdict::Belongs(id), Verdict::Belongs(id)]);
    assert_eq!(verdicts[3], Verdict::Remove);
    assert!(matches!((&verdicts[2], &verdicts[4]), (Verdict::Stray(_), Verdict::Stray(_))));
    // The log of partition 0 has seen epoch 6, which the journal hasn't: never back.
    assert_eq!(epochs(&cluster, "t"), [7, 1]);
}

#[test]
fn a_snapshot_is_written_when_the_journal_has_grown() {
    let disk = MemoryDisk::default();
    let cluster = open(&disk).unwrap();
    let replicas: Vec<String> = (0..30_000).map(|partition| format!("{partition}:1")).collect();
    let configs: Vec<(String, Option<String>)> = vec![("leader.replication.throttled.replicas".to_owned(), Some(replicas.join(",")))];
    for i in 0..8 {
        create_one(&cluster, NewTopic { configs: configs.clone(), ..named(&format!("t{i}")) }).unwrap();
    }
    assert!(crate::log::io::Disk::exists(&disk, "/a/highwater-metadata.snapshot".as_ref()));
    assert_eq!(open(&disk).unwrap().image(), cluster.image());
    assert_eq!(open(&disk.after_power_loss()).unwrap().image(), cluster.image());
}

#[test]
fn overrides_are_resolved_over_the_defaults_of_this_start() {
    let disk = MemoryDisk::default();
    create_one(&open(&disk).unwrap(), named("t")).unwrap();
    let again = Cluster::open(Arc::new(disk), &config(&["log.retention.hours=1"])).unwrap();
    assert_eq!(again.image().topic("t").unwrap().config.retention_ms, 3_600_000);
    assert_eq!(again.image().topic("t").unwrap().overrides, BTreeMap::new());
}

#[test]
fn ids_that_the_logs_know_are_not_given_out() {
    let cluster = new();
    assert_eq!(cluster.next_producer_id().unwrap(), crate::types::ProducerId(0));
    cluster.producer_seen(crate::types::ProducerId(5_000)).unwrap();
    cluster.producer_seen(crate::types::ProducerId(3)).unwrap();
    cluster.producer_seen(crate::types::ProducerId(i64::MAX)).unwrap();
    let next: Vec<i64> = (0..1_000).map(|_| cluster.next_producer_id().unwrap().0).collect();
    assert_eq!((next[0], next[999]), (1, 5_001), "the rest of the block that was taken, then from above");
}
