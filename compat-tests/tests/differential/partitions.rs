//! CreatePartitions and DescribeTopicPartitions.

use anyhow::Result;
use kafka_protocol::messages::create_partitions_request::{CreatePartitionsAssignment, CreatePartitionsTopic};
use kafka_protocol::messages::describe_topic_partitions_request::{Cursor, TopicRequest};
use kafka_protocol::messages::{BrokerId, CreatePartitionsRequest, DescribeTopicPartitionsRequest, DescribeTopicPartitionsResponse};
use kafka_protocol::protocol::Message;

use crate::requests::{list_offsets, topic_name};
use crate::side::compare;

fn widen(name: &str, count: i32, assignments: Option<&[&[i32]]>) -> CreatePartitionsTopic {
    let assignment =
        |brokers: &&[i32]| CreatePartitionsAssignment::default().with_broker_ids(brokers.iter().map(|id| BrokerId(*id)).collect());
    let assignments = assignments.map(|all| all.iter().map(assignment).collect());
    CreatePartitionsTopic::default().with_name(topic_name(name)).with_count(count).with_assignments(assignments)
}

#[test]
fn create_partitions() {
    compare(|side| {
        for version in CreatePartitionsRequest::VERSIONS.min..=CreatePartitionsRequest::VERSIONS.max {
            let name = format!("widen-{version}");
            side.topic(&name, 2, &[])?;
            let ask = |topics| CreatePartitionsRequest::default().with_topics(topics).with_timeout_ms(30_000);
            side.step("only validated", version, &ask(vec![widen(&name, 4, None)]).with_validate_only(true))?;
            for count in [2, 1, 0, -1] {
                side.step(format!("to {count}"), version, &ask(vec![widen(&name, count, None)]))?;
            }
            side.step("nothing", version, &ask(Vec::new()))?;
            side.step("of one that isn't there", version, &ask(vec![widen("widen-nowhere", 3, None)]))?;
            side.step("of names that can't be", version, &ask(vec![widen("", 3, None), widen("a b", 3, None)]))?;
            side.step("to a broker that isn't there", version, &ask(vec![widen(&name, 3, Some(&[&[9]]))]))?;
            side.step("fewer assignments", version, &ask(vec![widen(&name, 4, Some(&[&[1]]))]))?;
            side.step("more assignments", version, &ask(vec![widen(&name, 3, Some(&[&[1], &[1]]))]))?;
            side.step("an assignment to nobody", version, &ask(vec![widen(&name, 3, Some(&[&[]]))]))?;
            side.step("an assignment to one twice", version, &ask(vec![widen(&name, 3, Some(&[&[1, 1]]))]))?;
            side.step("one topic twice", version, &ask(vec![widen(&name, 3, None), widen(&name, 4, None)]))?;
            side.step("one of two is there", version, &ask(vec![widen(&name, 3, None), widen("widen-nowhere", 3, None)]))?;
            side.wait_for_partitions(&name, 3)?;
            side.step("assigned", version, &ask(vec![widen(&name, 5, Some(&[&[1], &[1]]))]))?;
            side.wait_for_partitions(&name, 5)?;
            side.step("their offsets", 5, &list_offsets(&name, &[(0, -1), (2, -1), (4, -2), (5, -1)]))?;
        }
        Ok(())
    });
}

fn only(prefix: &'static str) -> impl Fn(&mut DescribeTopicPartitionsResponse) {
    move |answer| answer.topics.retain(|topic| topic.name.as_ref().is_some_and(|name| name.starts_with(prefix)))
}

#[test]
fn describe_topic_partitions() {
    compare(|side| {
        side.topic("parts-b", 3, &[])?;
        side.topic("parts-a", 2, &[])?;
        let ask = |names: &[&str], limit: i32, cursor: Option<(&str, i32)>| {
            let cursor = cursor.map(|(name, at)| Cursor::default().with_topic_name(topic_name(name)).with_partition_index(at));
            let topics = names.iter().map(|name| TopicRequest::default().with_name(topic_name(name))).collect();
            DescribeTopicPartitionsRequest::default().with_topics(topics).with_response_partition_limit(limit).with_cursor(cursor)
        };
        side.step_with("all", 0, &ask(&[], 2_000, None), only("parts-"))?;
        side.step("two", 0, &ask(&["parts-b", "parts-a"], 2_000, None))?;
        side.step("one that isn't there", 0, &ask(&["parts-a", "parts-nowhere"], 2_000, None))?;
        for name in ["a b", ".", "a/b"] {
            side.step(format!("the name {name:?}"), 0, &ask(&["parts-a", name], 2_000, None))?;
        }
        side.step("one twice", 0, &ask(&["parts-a", "parts-a"], 2_000, None))?;
        for limit in [1, 2, 3, 4, 5, 0, -1] {
            side.step(format!("at most {limit}"), 0, &ask(&["parts-b", "parts-a"], limit, None))?;
        }
        side.step("from a cursor", 0, &ask(&["parts-b", "parts-a"], 2_000, Some(("parts-a", 1))))?;
        side.step("from a cursor, at most 2", 0, &ask(&["parts-b", "parts-a"], 2, Some(("parts-a", 1))))?;
        side.step("from a topic of the cursor alone", 0, &ask(&["parts-b", "parts-a"], 2_000, Some(("parts-aa", 0))))?;
        side.step("from beyond a topic's end", 0, &ask(&["parts-b", "parts-a"], 2_000, Some(("parts-a", 9))))?;
        side.step("from beyond all", 0, &ask(&["parts-b", "parts-a"], 2_000, Some(("parts-z", 0))))?;
        side.step("from a negative partition", 0, &ask(&["parts-b", "parts-a"], 2_000, Some(("parts-a", -1))))?;
        Result::Ok(())
    });
}
