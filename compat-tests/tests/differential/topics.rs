//! CreateTopics and DeleteTopics, right and wrong.

use anyhow::Result;
use kafka_protocol::messages::create_topics_request::{CreatableReplicaAssignment, CreatableTopic, CreatableTopicConfig};
use kafka_protocol::messages::delete_topics_request::DeleteTopicState;
use kafka_protocol::messages::{BrokerId, CreateTopicsRequest, DeleteTopicsRequest, MetadataRequest};
use kafka_protocol::protocol::Message;
use uuid::Uuid;

use crate::requests::{NOBODY, create_topics, named, new_topic, text, topic_name};
use crate::side::{Side, compare};

/// Creates the same with each version, under names of the version's own.
fn each_version(side: &mut Side, label: &str, make: impl Fn(&str) -> Vec<CreatableTopic>) -> Result<()> {
    for version in CreateTopicsRequest::VERSIONS.min..=CreateTopicsRequest::VERSIONS.max {
        let name = format!("make-{}-{version}", label.replace(' ', "-"));
        let label = format!("{label} ");
        // The names differ with the version only, so the answers may be compared as they are.
        side.step(label, version, &create_topics(make(&name)))?;
    }
    Ok(())
}

fn assigned(partition: i32, brokers: &[i32]) -> CreatableReplicaAssignment {
    let brokers = brokers.iter().map(|id| BrokerId(*id)).collect();
    CreatableReplicaAssignment::default().with_partition_index(partition).with_broker_ids(brokers)
}

#[test]
fn create() {
    compare(|side| {
        each_version(side, "three partitions", |name| vec![new_topic(name, 3, &[])])?;
        each_version(side, "two topics", |name| vec![new_topic(&format!("{name}-a"), 1, &[]), new_topic(&format!("{name}-b"), 2, &[])])?;
        each_version(side, "defaults", |name| vec![new_topic(name, -1, &[]).with_replication_factor(-1)])?;
        each_version(side, "assigned", |name| {
            let assignments = vec![assigned(0, &[1]), assigned(1, &[1])];
            vec![new_topic(name, -1, &[]).with_replication_factor(-1).with_assignments(assignments)]
        })?;
        each_version(side, "configs", |name| {
            vec![new_topic(name, 1, &[("retention.ms", "86400000"), ("cleanup.policy", "compact,delete"), ("max.message.bytes", "2000")])]
        })?;
        for version in CreateTopicsRequest::VERSIONS.min..=CreateTopicsRequest::VERSIONS.max {
            let ask = create_topics(vec![new_topic("make-not", 2, &[])]).with_validate_only(true);
            side.step("only validated", version, &ask)?;
        }
        let ask = MetadataRequest::default().with_topics(Some(vec![named("make-not")])).with_allow_auto_topic_creation(false);
        side.step("what was only validated isn't there", 9, &ask)?;
        side.wait_for_partitions("make-assigned-7", 2)?;
        side.wait_for_partitions("make-configs-7", 1)?;
        let ask = MetadataRequest::default().with_topics(Some(vec![named("make-assigned-7"), named("make-configs-7")]));
        side.step("what was made", 9, &ask)?;
        Ok(())
    });
}

#[test]
fn create_what_is_there() {
    compare(|side| {
        side.topic("make.there", 1, &[])?;
        for version in CreateTopicsRequest::VERSIONS.min..=CreateTopicsRequest::VERSIONS.max {
            side.step("the name is taken", version, &create_topics(vec![new_topic("make.there", 1, &[])]))?;
            let ask = create_topics(vec![new_topic("make.there", 1, &[])]).with_validate_only(true);
            side.step("the name is taken, only validated", version, &ask)?;
            side.step("a name that differs in . and _", version, &create_topics(vec![new_topic("make_there", 1, &[])]))?;
            let twice = vec![new_topic("make-twice", 1, &[]), new_topic("make-twice", 2, &[])];
            side.step("one name twice", version, &create_topics(twice))?;
            side.step("nothing", version, &create_topics(Vec::new()))?;
        }
        Ok(())
    });
}

#[test]
fn create_wrongly() {
    compare(|side| {
        for name in ["", ".", "..", "a b", "a/b", "größe", "a\0b"] {
            side.step(format!("the name {name:?}"), 7, &create_topics(vec![new_topic(name, 1, &[])]))?;
        }
        side.step("a name of 250 bytes", 7, &create_topics(vec![new_topic(&"n".repeat(250), 1, &[])]))?;
        side.step("a name of 249 bytes", 7, &create_topics(vec![new_topic(&"n".repeat(249), 1, &[])]))?;
        for partitions in [0, -2, i32::MIN] {
            side.step(format!("{partitions} partitions"), 7, &create_topics(vec![new_topic("make-count", partitions, &[])]))?;
        }
        for replicas in [0, 2, -2, i16::MAX] {
            let topic = new_topic("make-replicas", 1, &[]).with_replication_factor(replicas);
            side.step(format!("{replicas} replicas"), 7, &create_topics(vec![topic]))?;
        }
        let with_assignments = |partitions, replicas, assignments| {
            let topic = new_topic("make-assigned-wrongly", partitions, &[]);
            create_topics(vec![topic.with_replication_factor(replicas).with_assignments(assignments)])
        };
        side.step("assignments and a count", 7, &with_assignments(1, -1, vec![assigned(0, &[1])]))?;
        side.step("assignments and a factor", 7, &with_assignments(-1, 1, vec![assigned(0, &[1])]))?;
        side.step("a broker that isn't there", 7, &with_assignments(-1, -1, vec![assigned(0, &[7])]))?;
        side.step("a broker twice", 7, &with_assignments(-1, -1, vec![assigned(0, &[1, 1])]))?;
        side.step("no brokers", 7, &with_assignments(-1, -1, vec![assigned(0, &[])]))?;
        side.step("a partition left out", 7, &with_assignments(-1, -1, vec![assigned(0, &[1]), assigned(2, &[1])]))?;
        side.step("a partition twice", 7, &with_assignments(-1, -1, vec![assigned(0, &[1]), assigned(0, &[1])]))?;
        side.step("a negative partition", 7, &with_assignments(-1, -1, vec![assigned(-1, &[1])]))?;
        Ok(())
    });
}

#[test]
fn create_with_wrong_configs() {
    compare(|side| {
        let wrong: &[(&str, &str)] = &[
            ("no.such.config", "1"),
            ("retention.ms", "soon"),
            ("retention.ms", "-2"),
            ("retention.ms", ""),
            ("segment.bytes", "0"),
            ("segment.bytes", "99999999999"),
            ("cleanup.policy", "keep"),
            ("cleanup.policy", "delete,delete"),
            ("cleanup.policy", ""),
            ("compression.type", "rar"),
            ("compression.gzip.level", "10"),
            ("message.timestamp.type", "NoTime"),
            ("min.cleanable.dirty.ratio", "1.5"),
            ("min.insync.replicas", "0"),
            ("unclean.leader.election.enable", "maybe"),
            ("max.message.bytes", "-1"),
            ("preallocate", "TRUE"),
            (" retention.ms", "1000"),
            ("retention.ms", " 1000 "),
            ("leader.replication.throttled.replicas", "nonsense"),
        ];
        for (nth, (key, value)) in wrong.iter().enumerate() {
            let ask = create_topics(vec![new_topic(&format!("make-config-{nth}"), 1, &[(key, value)])]);
            side.step_with(format!("{key}={value:?}"), 7, &ask, |answer| {
                let configs = answer.topics.iter_mut().filter_map(|topic| topic.configs.as_mut()).flatten();
                for config in configs.filter(|config| &*config.name == *key) {
                    // Kafka shows a value as it was written, we as it is understood.
                    config.value = Some(text("a value"));
                }
            })?;
        }
        let null = CreatableTopicConfig::default().with_name(text("retention.ms")).with_value(None);
        side.step("a null", 7, &create_topics(vec![new_topic("make-config-null", 1, &[]).with_configs(vec![null])]))?;
        let twice = new_topic("make-config-twice", 1, &[("retention.ms", "1000"), ("retention.ms", "2000")]);
        side.step("a key twice", 7, &create_topics(vec![twice]))?;
        let mixed = vec![new_topic("make-config-good", 1, &[]), new_topic("make-config-bad", 1, &[("segment.ms", "0")])];
        side.step("one of two is wrong", 7, &create_topics(mixed))?;
        Ok(())
    });
}

#[test]
fn delete_by_name() {
    compare(|side| {
        for version in 1..=5 {
            let name = format!("del-{version}");
            side.topic(&name, 2, &[])?;
            let ask = |names: &[&str]| {
                DeleteTopicsRequest::default().with_topic_names(names.iter().map(|name| topic_name(name)).collect()).with_timeout_ms(30_000)
            };
            side.step("nothing", version, &ask(&[]))?;
            side.step("one that isn't there", version, &ask(&["del-nowhere"]))?;
            side.step("one of two is there", version, &ask(&[&name, "del-nowhere"]))?;
            side.wait_until_gone(&name)?;
            side.step("again", version, &ask(&[&name]))?;
            side.step("names that can't be", version, &ask(&["", "a b"]))?;
            side.topic(&name, 1, &[])?;
            side.step("one name twice", version, &ask(&[&name, &name]))?;
        }
        Ok(())
    });
}

#[test]
fn delete_by_name_or_id() {
    compare(|side| {
        let by_name = |name: &str| DeleteTopicState::default().with_name(Some(topic_name(name)));
        let by_id = |id: Uuid| DeleteTopicState::default().with_name(None).with_topic_id(id);
        let ask = |topics: Vec<DeleteTopicState>| DeleteTopicsRequest::default().with_topics(topics).with_timeout_ms(30_000);
        side.topic("del6-name", 1, &[])?;
        let id = side.topic("del6-id", 1, &[])?;
        let twice = side.topic("del6-twice", 1, &[])?;
        side.step("by name", 6, &ask(vec![by_name("del6-name"), by_name("del6-nowhere")]))?;
        side.step("by id", 6, &ask(vec![by_id(id), by_id(NOBODY)]))?;
        side.wait_until_gone("del6-id")?;
        side.step("by the id of one that's gone", 6, &ask(vec![by_id(id)]))?;
        side.step("by name and id", 6, &ask(vec![by_id(twice).with_name(Some(topic_name("del6-twice")))]))?;
        side.step("by neither", 6, &ask(vec![by_id(Uuid::nil())]))?;
        side.step("by name, and by id", 6, &ask(vec![by_id(twice), by_name("del6-twice")]))?;
        side.step("by its id twice", 6, &ask(vec![by_id(twice), by_id(twice)]))?;
        Ok(())
    });
}

/// A topic of the same name is another topic: it has another id, and is empty.
#[test]
fn make_again() {
    compare(|side| {
        let first = side.topic("del-again", 1, &[])?;
        let ask = DeleteTopicsRequest::default().with_topic_names(vec![topic_name("del-again")]).with_timeout_ms(30_000);
        side.ask(5, &ask)?;
        side.wait_until_gone("del-again")?;
        let second = side.topic("del-again", 2, &[])?;
        side.note("another id", format!("{}", first != second));
        side.step("its offsets", 5, &crate::requests::list_offsets("del-again", &[(0, -1), (1, -1)]))?;
        Ok(())
    });
}
