//! DescribeTopicPartitions (key 75), version 0 (KIP-966).
//!
//! - Topics by name, or all, in the order of their names, at most `response_partition_limit` (and `max.request.partition.size.limit`)
//!   partitions; what is left is read on from the cursor in the answer.
//! - A topic that isn't there is UNKNOWN_TOPIC_OR_PARTITION, or INVALID_TOPIC_EXCEPTION for a name that can't be. Nothing is created.
//! - A cursor at a topic that isn't asked for, or at a negative partition, is INVALID_REQUEST for every topic asked for.
//! - The sets of eligible leaders are empty: the one replica is always in sync.

use super::{
    Api, Body, Context, FrameMax, Request,
    convert::{Seen, TOPIC_OPERATIONS, broker, brokers, first_error, text},
};
use crate::{
    cluster::{Image, Topic},
    codec::shape::{I32, Kind, Shape, TEXT, always},
    net::{Answer, Refusal},
    types::ErrorCode,
};
use kafka_protocol::messages::{
    self, DescribeTopicPartitionsRequest, DescribeTopicPartitionsResponse, TopicName,
    describe_topic_partitions_response::{Cursor, DescribeTopicPartitionsResponsePartition, DescribeTopicPartitionsResponseTopic},
};
use std::{collections::BTreeSet, sync::Arc};

pub const API: Api = Api {
    key: 75,
    name: "DescribeTopicPartitions",
    versions: 0..=0,
    advertised_min: 0,
    flexible_since: 0,
    frame_max: FrameMax::Control,
    body: Body::Shaped(Shape(&[always(Kind::Structs(&[always(TEXT)])), always(I32), always(Kind::Maybe(&[always(TEXT), always(I32)]))])),
    run,
    note: "large topics are read in parts, by cursor",
};

fn run(context: &Arc<Context>, request: Request) -> Result<Answer, Refusal> {
    let asked: DescribeTopicPartitionsRequest = request.decode()?;
    let limit = context.config.max_request_partition_size_limit;
    let response = answer(&context.image(), &request.connection.listener.name, limit, &asked);
    let error = first_error(response.topics.iter().map(|topic| topic.error_code));
    request.ready(&response, error)
}

fn answer(image: &Image, listener: &str, limit: usize, asked: &DescribeTopicPartitionsRequest) -> DescribeTopicPartitionsResponse {
    let (from_topic, from_partition) = match &asked.cursor {
        Some(cursor) => (cursor.topic_name.as_str(), cursor.partition_index),
        None => ("", 0),
    };
    let all = asked.topics.is_empty();
    let names: BTreeSet<&str> = if all {
        image.topics_from(from_topic).map(|topic| topic.name.as_str()).collect()
    } else {
        asked.topics.iter().map(|topic| topic.name.as_str()).filter(|name| *name >= from_topic).collect()
    };
    let Ok(from_partition) = usize::try_from(from_partition) else { return invalid(asked) };
    if asked.cursor.is_some() && !all && !names.contains(from_topic) {
        return invalid(asked);
    }
    let mut room = usize::try_from(asked.response_partition_limit).unwrap_or_default().min(limit).max(1);
    let mut response = DescribeTopicPartitionsResponse::default().with_next_cursor(None);
    for name in names {
        if room == 0 {
            response.next_cursor = Some(cursor(name, 0));
            break;
        }
        let Some(topic) = image.topic(name) else {
            response.topics.push(absent(name));
            continue;
        };
        let first = if name == from_topic { from_partition } else { 0 };
        let part = topic_part(image, listener, topic, first, room);
        room = room.saturating_sub(part.partitions.len());
        let end = first.saturating_add(part.partitions.len());
        response.topics.push(part);
        if end < topic.partitions.len() {
            response.next_cursor = Some(cursor(name, end));
            break;
        }
    }
    response
}

fn cursor(name: &str, partition: usize) -> Cursor {
    Cursor::default().with_topic_name(TopicName(text(name))).with_partition_index(i32::try_from(partition).unwrap_or(i32::MAX))
}

fn topic_part(image: &Image, listener: &str, topic: &Topic, first: usize, most: usize) -> DescribeTopicPartitionsResponseTopic {
    let one = |(index, state): (crate::types::PartitionIndex, &crate::cluster::PartitionState)| {
        let seen = Seen::on(image, listener, state);
        DescribeTopicPartitionsResponsePartition::default()
            .with_partition_index(index.0)
            .with_leader_id(seen.leader.map_or(messages::BrokerId(-1), broker))
            .with_leader_epoch(state.leader_epoch.0)
            .with_replica_nodes(brokers(&state.replicas))
            .with_isr_nodes(brokers(&state.isr))
            .with_eligible_leader_replicas(Some(Vec::new()))
            .with_last_known_elr(Some(Vec::new()))
            .with_offline_replicas(brokers(&seen.offline))
    };
    DescribeTopicPartitionsResponseTopic::default()
        .with_name(Some(TopicName(text(topic.name.as_str()))))
        .with_topic_id(topic.id.0)
        .with_is_internal(topic.name.is_internal())
        .with_partitions(topic.indexed().skip(first).take(most).map(one).collect())
        .with_topic_authorized_operations(TOPIC_OPERATIONS)
}

fn absent(name: &str) -> DescribeTopicPartitionsResponseTopic {
    let legal = crate::types::TopicName::new(name);
    let code = if legal.is_ok() { ErrorCode::UnknownTopicOrPartition } else { ErrorCode::InvalidTopicException };
    DescribeTopicPartitionsResponseTopic::default()
        .with_name(Some(TopicName(text(name))))
        .with_is_internal(legal.is_ok_and(|name| name.is_internal()))
        .with_error_code(code.code())
        .with_topic_authorized_operations(TOPIC_OPERATIONS)
}

/// The whole request refused.
fn invalid(asked: &DescribeTopicPartitionsRequest) -> DescribeTopicPartitionsResponse {
    let one = |name: &TopicName| {
        DescribeTopicPartitionsResponseTopic::default().with_name(Some(name.clone())).with_error_code(ErrorCode::InvalidRequest.code())
    };
    let topics = asked.topics.iter().map(|topic| one(&topic.name)).collect();
    DescribeTopicPartitionsResponse::default().with_topics(topics).with_next_cursor(None)
}

#[cfg(test)]
mod tests {
    use super::{super::admin_tests::*, *};
    use kafka_protocol::messages::describe_topic_partitions_request::{self as request, TopicRequest};

    /// Topics by name with their errors and partitions, and the cursor.
    type Told = (Vec<(String, i16, Vec<i32>)>, Option<(String, i32)>);

    fn ask(image: &Image, names: &[&str], limit: i32, from: Option<(&str, i32)>) -> Told {
        let topics = names.iter().map(|name| TopicRequest::default().with_name(TopicName(text(*name)))).collect();
        let at = |(name, partition): (&str, i32)| {
            request::Cursor::default().with_topic_name(TopicName(text(name))).with_partition_index(partition)
        };
        let asked =
            DescribeTopicPartitionsRequest::default().with_topics(topics).with_response_partition_limit(limit).with_cursor(from.map(at));
        let response = answer(image, "PLAINTEXT", 2000, &asked);
        survives(&response, 0);
        let told = |topic: &DescribeTopicPartitionsResponseTopic| {
            let indexes = topic.partitions.iter().map(|partition| partition.partition_index).collect();
            (topic.name.as_ref().unwrap().to_string(), topic.error_code, indexes)
        };
        (response.topics.iter().map(told).collect(), response.next_cursor.map(|next| (next.topic_name.to_string(), next.partition_index)))
    }

    #[test]
    fn all_topics_are_read_in_parts() {
        let cluster = cluster(&[]);
        [("a", 2), ("b", 3), ("c", 1)].iter().for_each(|(name, partitions)| _ = create_topic(&cluster, name, *partitions));
        let image = cluster.image();
        for limit in 1..8 {
            let (mut read, mut from) = (Vec::new(), None::<(String, i32)>);
            loop {
                let (topics, next) = ask(&image, &[], limit, from.as_ref().map(|(name, partition)| (name.as_str(), *partition)));
                assert!(topics.iter().map(|(_, _, indexes)| indexes.len()).sum::<usize>() <= limit as usize);
                read.extend(topics.into_iter().flat_map(|(name, _, indexes)| indexes.into_iter().map(move |index| (name.clone(), index))));
                match next {
                    Some(next) => from = Some(next),
                    None => break,
                }
            }
            let expected = [("a", 0), ("a", 1), ("b", 0), ("b", 1), ("b", 2), ("c", 0)].map(|(name, index)| (name.to_owned(), index));
            assert_eq!(read, expected, "limit {limit}");
        }
    }

    #[test]
    fn named_topics_are_told_with_their_errors() {
        let cluster = cluster(&[]);
        create_topic(&cluster, "b", 2);
        let (topics, next) = ask(&cluster.image(), &["b", "b", "a b", "z"], 10, None);
        let expected = [
            ("a b".to_owned(), ErrorCode::InvalidTopicException.code(), vec![]),
            ("b".to_owned(), 0, vec![0, 1]),
            ("z".to_owned(), ErrorCode::UnknownTopicOrPartition.code(), vec![]),
        ];
        assert_eq!((topics, next), (expected.to_vec(), None));
        assert_eq!(ask(&cluster.image(), &["b"], 0, None), (vec![("b".to_owned(), 0, vec![0])], Some(("b".to_owned(), 1))));
        assert_eq!(ask(&cluster.image(), &["b"], 9, Some(("b", 1))).0, [("b".to_owned(), 0, vec![1])]);
        assert_eq!(ask(&cluster.image(), &["b"], 9, Some(("b", 99))).0, [("b".to_owned(), 0, vec![])]);
        let invalid = vec![("b".to_owned(), ErrorCode::InvalidRequest.code(), vec![])];
        assert_eq!(ask(&cluster.image(), &["b"], 9, Some(("a", 0))).0, invalid);
        assert_eq!(ask(&cluster.image(), &["b"], 9, Some(("b", -1))).0, invalid);
    }
}
