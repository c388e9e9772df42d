//! DescribeLogDirs.

use anyhow::Result;
use compat_tests::batch::Batch;
use kafka_protocol::messages::describe_log_dirs_request::DescribableLogDirTopic;
use kafka_protocol::messages::{DescribeLogDirsRequest, DescribeLogDirsResponse};
use kafka_protocol::protocol::Message;

use crate::requests::{THEN, Topic, topic_name};
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
