//! CreatePartitions (key 37), versions 0 to 3.
//!
//! - Adds partitions to topics, up to a count in all; fewer is INVALID_PARTITIONS. New partitions can be used at once.
//! - A topic that stands twice is INVALID_REQUEST, once. Manual assignments must name this broker.
//! - Version 2 is flexible; 1 and 3 changed only what a throttled client is told.
//! - Gaps: the time limit is not looked at, there are no quotas for changes (KIP-599).

use super::{
    Api, Body, Context, FrameMax, Request,
    convert::{first_error, on_disk_thread, refused},
};
use crate::{
    cluster::{AdminError, Cluster, MorePartitions},
    codec::shape::{BOOL, I32, Kind, Shape, TEXT, always},
    net::{Answer, Refusal},
    types::BrokerId,
};
use kafka_protocol::messages::{
    CreatePartitionsRequest, CreatePartitionsResponse, TopicName, create_partitions_request::CreatePartitionsTopic,
    create_partitions_response::CreatePartitionsTopicResult,
};
use std::{collections::HashMap, sync::Arc};

pub const API: Api = Api {
    key: 37,
    name: "CreatePartitions",
    versions: 0..=3,
    advertised_min: 0,
    flexible_since: 2,
    frame_max: FrameMax::Control,
    body: Body::Shaped(Shape(&[
        always(Kind::Structs(&[always(TEXT), always(I32), always(Kind::Structs(&[always(Kind::Array(&I32))]))])),
        always(I32),
        always(BOOL),
    ])),
    run,
    note: "new partitions are usable at once",
};

fn run(context: &Arc<Context>, request: Request) -> Result<Answer, Refusal> {
    let asked: CreatePartitionsRequest = request.decode()?;
    on_disk_thread(context, request, move |context, _| {
        let response = answer(&context.cluster, &asked);
        let error = first_error(response.results.iter().map(|topic| topic.error_code));
        (response, error)
    })
}

fn answer(cluster: &Cluster, asked: &CreatePartitionsRequest) -> CreatePartitionsResponse {
    let mut times: HashMap<&str, usize> = HashMap::new();
    asked.topics.iter().for_each(|topic| *times.entry(&topic.name).or_default() += 1);
    let once: Vec<&CreatePartitionsTopic> = asked.topics.iter().filter(|topic| times.get(topic.name.as_str()) == Some(&1)).collect();
    let commands: Vec<MorePartitions> = once.iter().map(|topic| command(topic)).collect();
    let replies = cluster.create_partitions(&commands, asked.validate_only);
    let mut results: Vec<CreatePartitionsTopicResult> =
        once.iter().zip(replies).map(|(topic, reply)| result(&topic.name, reply.err().as_ref())).collect();
    for topic in &asked.topics {
        if times.get_mut(topic.name.as_str()).is_some_and(|times| std::mem::take(times) > 1) {
            results.push(result(&topic.name, Some(&AdminError::Request("Duplicate topic name.".to_owned()))));
        }
    }
    CreatePartitionsResponse::default().with_results(results)
}

fn command(topic: &CreatePartitionsTopic) -> MorePartitions {
    let assignments = topic.assignments.as_ref().map(|all| {
        let brokers = |ids: &[kafka_protocol::messages::BrokerId]| ids.iter().map(|id| BrokerId(id.0)).collect();
        all.iter().map(|one| brokers(&one.broker_ids)).collect()
    });
    MorePartitions { name: topic.name.to_string(), count: topic.count, assignments }
}

fn result(name: &TopicName, error: Option<&AdminError>) -> CreatePartitionsTopicResult {
    let result = CreatePartitionsTopicResult::default().with_name(name.clone());
    let Some(error) = error else { return result.with_error_message(None) };
    if let AdminError::Storage(why) = error {
        tracing::error!(topic = name.as_str(), error = why, "cannot add partitions");
    }
    let (code, message) = refused(error);
    // Kafka has no words for this one here.
    let message = message.filter(|_| *error != AdminError::UnknownTopic);
    result.with_error_code(code).with_error_message(message)
}

#[cfg(test)]
mod tests {
    use super::{
        super::{admin_tests::*, convert::text},
        *,
    };
    use crate::types::ErrorCode;
    use kafka_protocol::messages::create_partitions_request::CreatePartitionsAssignment;

    fn topic(name: &str, count: i32) -> CreatePartitionsTopic {
        CreatePartitionsTopic::default().with_name(TopicName(text(name))).with_count(count).with_assignments(None)
    }

    #[test]
    fn partitions_are_added_in_every_version() {
        for version in API.versions.clone() {
            let cluster = cluster(&[]);
            ["a", "b", "c"].iter().for_each(|name| _ = create_topic(&cluster, name, 2));
            let assigned = |id: i32| {
                let one = CreatePartitionsAssignment::default().with_broker_ids(vec![kafka_protocol::messages::BrokerId(id)]);
                topic("b", 3).with_assignments(Some(vec![one]))
            };
            let topics = vec![topic("a", 5), topic("a2", 1), topic("c", 4), assigned(1), topic("c", 5)];
            let dry = CreatePartitionsRequest::default().with_topics(topics.clone()).with_validate_only(true);
            let expected = [("a", 0), ("a2", ErrorCode::UnknownTopicOrPartition.code()), ("b", 0), ("c", ErrorCode::InvalidRequest.code())];
            for asked in [dry.clone(), dry.with_validate_only(false)] {
                let response = answer(&cluster, &asked);
                survives(&response, version);
                assert_eq!(response.results.iter().map(|one| (one.name.as_str(), one.error_code)).collect::<Vec<_>>(), expected);
            }
            let counts: Vec<usize> = cluster.image().topics().map(|topic| topic.partitions.len()).collect();
            assert_eq!(counts, [5, 3, 2]);
            let refused = answer(&cluster, &CreatePartitionsRequest::default().with_topics(vec![topic("a", 1)]));
            assert_eq!(refused.results[0].error_code, ErrorCode::InvalidPartitions.code());
        }
    }
}
