//! DescribeLogDirs and AlterReplicaLogDirs.

use anyhow::Result;
use compat_tests::batch::Batch;
use kafka_protocol::messages::alter_replica_log_dirs_request::{AlterReplicaLogDir, AlterReplicaLogDirTopic};
use kafka_protocol::messages::describe_log_dirs_request::DescribableLogDirTopic;
use kafka_protocol::messages::{AlterReplicaLogDirsRequest, DescribeLogDirsRequest, DescribeLogDirsResponse};
use kafka_protocol::protocol::Message;

use crate::requests::{THEN, Topic, text, topic_name};
use crate::side::compare;

fn ask(topics: Option<&[(&str, &[i32])]>) -> DescribeLogDirsRequest {
    let topic = |(name, partitions): &(&str, &[i32])| {
        DescribableLogDirTopic::default().with_topic(topic_name(name)).with_partitions(partitions.to_vec())
    };
    DescribeLogDirsRequest::default().with_topics(topics.map(|topics| topics.iter().map(topic).collect()))
}

/// Leaves out what other scripts have made.
fn only_ours(answer: &mut DescribeLogDirsResponse) {
    answer.results.iter_mut().for_each(|dir| dir.topics.retain(|topic| topic.name.starts_with("dirs-")));
}

#[test]
fn sizes_of_partitions() {
    compare(|side| {
        let topic = Topic::new("dirs-a", side.topic("dirs-a", 3, &[])?);
        side.topic("dirs-b", 1, &[])?;
        for partition in [0, 0, 2] {
            side.append(&topic, partition, &Batch::of_values(THEN, &[b"first", b"second"]))?;
        }
        for version in DescribeLogDirsRequest::VERSIONS.min..=DescribeLogDirsRequest::VERSIONS.max {
            side.step_with("all", version, &ask(None), only_ours)?;
            side.step("none", version, &ask(Some(&[])))?;
            side.step("some", version, &ask(Some(&[("dirs-a", &[0, 2]), ("dirs-b", &[0])])))?;
            side.step("a topic without partitions", version, &ask(Some(&[("dirs-a", &[]), ("dirs-b", &[0])])))?;
            side.step("what isn't there", version, &ask(Some(&[("dirs-a", &[1, 9, -1]), ("dirs-nowhere", &[0]), ("a b", &[0])])))?;
            side.step("one twice", version, &ask(Some(&[("dirs-a", &[0, 0])])))?;
        }
        Result::Ok(())
    });
}

/// AlterReplicaLogDirs with one data directory: where all is already, and what can't be.
#[test]
fn moves_that_are_none() {
    compare(|side| {
        let topic = Topic::new("moved-a", side.topic("moved-a", 2, &[])?);
        side.append(&topic, 0, &Batch::of_values(THEN, &[b"first"]))?;
        let described = side.ask(4, &ask(None))?;
        let here = described.results.first().map(|dir| dir.log_dir.to_string()).unwrap_or_default();
        for version in AlterReplicaLogDirsRequest::VERSIONS.min..=AlterReplicaLogDirsRequest::VERSIONS.max {
            side.step("to where it is", version, &alter(&[(&here, &[("moved-a", &[0, 1])])]))?;
            side.step("what isn't there", version, &alter(&[(&here, &[("moved-a", &[2, -1]), ("moved-nowhere", &[0]), ("a b", &[0])])]))?;
            side.step("to no data directory", version, &alter(&[("/nowhere/at/all", &[("moved-a", &[0])])]))?;
            side.step("what isn't there to no data directory", version, &alter(&[("/nowhere/at/all", &[("moved-nowhere", &[0])])]))?;
            side.step("to a relative path", version, &alter(&[("data", &[("moved-a", &[0])])]))?;
            side.step("nothing", version, &alter(&[]))?;
            side.step("no topics", version, &alter(&[(&here, &[])]))?;
            side.step("no partitions", version, &alter(&[(&here, &[("moved-a", &[])])]))?;
        }
        side.step_with("all are where they were", 4, &ask(Some(&[("moved-a", &[0, 1])])), only_ours).map(drop)
    });
}

/// Partitions by topic.
type Topics<'a> = &'a [(&'a str, &'a [i32])];

fn alter(dirs: &[(&str, Topics<'_>)]) -> AlterReplicaLogDirsRequest {
    let topic = |(name, partitions): &(&str, &[i32])| {
        AlterReplicaLogDirTopic::default().with_name(topic_name(name)).with_partitions(partitions.to_vec())
    };
    let dir = |(path, topics): &(&str, Topics<'_>)| {
        AlterReplicaLogDir::default().with_path(text(path)).with_topics(topics.iter().map(topic).collect())
    };
    AlterReplicaLogDirsRequest::default().with_dirs(dirs.iter().map(dir).collect())
}
