//! CreateTopics (key 19), versions 2 to 7.
//!
//! - All or nothing by topic, not by request. A topic that is answered without an error can be used at once: its partitions are open.
//! - −1 partitions or replicas are the broker's defaults; manual assignments must name this broker. More than 10,000 partitions in a
//!   request are POLICY_VIOLATION.
//! - A name that stands twice is INVALID_REQUEST, once; so is Kafka's own metadata topic.
//! - Version 5 is flexible and answers with the partitions and configs of each topic, 7 with its id.
//! - Gaps: the time limit is not looked at (a creation takes a sync of the disk), there are no quotas for changes (KIP-599).

use super::{
    Api, Body, Context, FrameMax, Request,
    convert::{first_error, on_disk_thread, refused, text},
};
use crate::{
    cluster::{AdminError, Cluster, NewTopic, Topic},
    codec::shape::{BOOL, I16, I32, Kind, Shape, TEXT, always},
    config::{Layers, ServerConfig, describe::Described},
    net::{Answer, Refusal},
    types::{BrokerId, ErrorCode},
};
use kafka_protocol::messages::{
    CreateTopicsRequest, CreateTopicsResponse, TopicName,
    create_topics_request::CreatableTopic,
    create_topics_response::{CreatableTopicConfigs, CreatableTopicResult},
};
use std::{collections::HashMap, sync::Arc};

pub const API: Api = Api {
    key: 19,
    name: "CreateTopics",
    versions: 2..=7,
    advertised_min: 2,
    flexible_since: 5,
    frame_max: FrameMax::Control,
    body: Body::Shaped(Shape(&[
        always(Kind::Structs(&[
            always(TEXT),
            always(I32),
            always(I16),
            always(Kind::Structs(&[always(I32), always(Kind::Array(&I32))])),
            always(Kind::Structs(&[always(TEXT), always(TEXT)])),
        ])),
        always(I32),
        always(BOOL),
    ])),
    run,
    note: "a created topic is usable at once; one replica",
};

/// Kafka's own topic of metadata, which no client may create.
const KAFKAS_METADATA: &str = "__cluster_metadata";

fn run(context: &Arc<Context>, request: Request) -> Result<Answer, Refusal> {
    let asked: CreateTopicsRequest = request.decode()?;
    on_disk_thread(context, request, move |context, request| {
        let response = answer(&context.cluster, &context.config, request.version(), &asked);
        let error = first_error(response.topics.iter().map(|topic| topic.error_code));
        (response, error)
    })
}

fn answer(cluster: &Cluster, config: &ServerConfig, version: i16, asked: &CreateTopicsRequest) -> CreateTopicsResponse {
    let mut times: HashMap<&str, usize> = HashMap::new();
    asked.topics.iter().for_each(|topic| *times.entry(&topic.name).or_default() += 1);
    let (mut create, mut results) = (Vec::new(), Vec::new());
    let mut refused_ones = Vec::new();
    for topic in &asked.topics {
        let why = match times.get_mut(topic.name.as_str()) {
            Some(1) if topic.name.as_str() == KAFKAS_METADATA => "Creation of internal topic __cluster_metadata is prohibited.",
            Some(1) => {
                create.push(topic);
                continue;
            }
            // Told once, not as often as it stands there.
            Some(0) | None => continue,
            Some(times) => {
                *times = 0;
                "Duplicate topic name."
            }
        };
        refused_ones.push(failed(&topic.name, &AdminError::Request(why.to_owned())));
    }
    let commands: Vec<NewTopic> = create.iter().map(|topic| command(topic)).collect();
    let replies = cluster.create_topics(&commands, asked.validate_only);
    let image = cluster.image();
    for (topic, reply) in create.iter().zip(replies) {
        results.push(match reply {
            Ok(created) => succeeded(config, image.layers(), version, &created),
            Err(error) => failed(&topic.name, &error),
        });
    }
    results.append(&mut refused_ones);
    CreateTopicsResponse::default().with_topics(results)
}

fn command(topic: &CreatableTopic) -> NewTopic {
    let brokers = |ids: &[kafka_protocol::messages::BrokerId]| ids.iter().map(|id| BrokerId(id.0)).collect();
    NewTopic {
        name: topic.name.to_string(),
        partitions: topic.num_partitions,
        replication_factor: topic.replication_factor,
        assignments: topic.assignments.iter().map(|one| (one.partition_index, brokers(&one.broker_ids))).collect(),
        configs: topic.configs.iter().map(|one| (one.name.to_string(), one.value.as_ref().map(|value| value.to_string()))).collect(),
    }
}

fn succeeded(config: &ServerConfig, layers: Layers<'_>, version: i16, topic: &Topic) -> CreatableTopicResult {
    let result =
        CreatableTopicResult::default().with_name(TopicName(text(topic.name.as_str()))).with_topic_id(topic.id.0).with_error_message(None);
    if version < 5 {
        return result;
    }
    let replicas = topic.partitions.first().map_or(0, |state| state.replicas.len());
    let entry = |described: Described| {
        // What was set is told as it was given, as Kafka does here (and only here).
        let value = topic.overrides.get(described.key.name).cloned().or(described.value);
        CreatableTopicConfigs::default()
            .with_name(text(described.key.name))
            .with_value(value.map(text))
            .with_read_only(described.read_only)
            .with_config_source(described.source.wire())
    };
    let mut configs: Vec<CreatableTopicConfigs> = config.describe_topic(&topic.overrides, layers).into_iter().map(entry).collect();
    configs.sort_by(|a, b| a.name.cmp(&b.name));
    result
        .with_num_partitions(i32::try_from(topic.partitions.len()).unwrap_or(i32::MAX))
        .with_replication_factor(i16::try_from(replicas).unwrap_or(i16::MAX))
        .with_configs(Some(configs))
}

fn failed(name: &TopicName, error: &AdminError) -> CreatableTopicResult {
    if let AdminError::Storage(why) = error {
        tracing::error!(topic = name.as_str(), error = why, "cannot create a topic");
    }
    let (code, message) = refused(error);
    debug_assert!(code != ErrorCode::None.code());
    CreatableTopicResult::default().with_name(name.clone()).with_error_code(code).with_error_message(message)
}

#[cfg(test)]
mod tests {
    use super::{super::admin_tests::*, *};
    use kafka_protocol::messages::create_topics_request::{CreatableReplicaAssignment, CreatableTopicConfig};

    fn topic(name: &str) -> CreatableTopic {
        CreatableTopic::default().with_name(TopicName(text(name))).with_num_partitions(-1).with_replication_factor(-1)
    }

    fn ask(cluster: &Cluster, version: i16, topics: Vec<CreatableTopic>, validate_only: bool) -> Vec<CreatableTopicResult> {
        let asked = CreateTopicsRequest::default().with_topics(topics).with_validate_only(validate_only);
        let response = answer(cluster, &config(&[]), version, &asked);
        survives(&response, version);
        response.topics
    }

    fn codes(results: &[CreatableTopicResult]) -> Vec<(&str, i16)> {
        results.iter().map(|result| (result.name.as_str(), result.error_code)).collect()
    }

    #[test]
    fn a_topic_is_created_in_every_version() {
        for version in API.versions.clone() {
            let cluster = cluster(&[]);
            let configs = vec![CreatableTopicConfig::default().with_name(text("retention.ms")).with_value(Some(text("9")))];
            let results = ask(&cluster, version, vec![topic("t").with_num_partitions(4).with_configs(configs)], false);
            assert_eq!(codes(&results), [("t", 0)]);
            let created = cluster.image().topic("t").unwrap().clone();
            assert_eq!((created.partitions.len(), created.config.retention_ms, results[0].topic_id), (4, 9, created.id.0));
            if version >= 5 {
                assert_eq!((results[0].num_partitions, results[0].replication_factor), (4, 1));
                let configs = results[0].configs.as_ref().unwrap();
                assert_eq!(configs.len(), crate::config::topic_keys::TOPIC_KEYS.len());
                let retention = configs.iter().find(|config| &*config.name == "retention.ms").unwrap();
                assert_eq!((retention.value.as_deref(), retention.config_source, retention.read_only), (Some("9"), 1, false));
            }
        }
    }

    #[test]
    fn those_that_are_refused_do_not_hinder_the_others() {
        let cluster = cluster(&[]);
        create_topic(&cluster, "there", 1);
        let assigned = CreatableReplicaAssignment::default().with_broker_ids(vec![kafka_protocol::messages::BrokerId(7)]);
        let unknown = CreatableTopicConfig::default().with_name(text("no.such")).with_value(Some(text("1")));
        let topics = vec![
            topic("twice"),
            topic("there"),
            topic("fine"),
            topic("twice"),
            topic("__cluster_metadata"),
            topic("three").with_replication_factor(3),
            topic("zero").with_num_partitions(0),
            topic("elsewhere").with_assignments(vec![assigned]),
            topic("odd").with_configs(vec![unknown]),
            topic(""),
        ];
        for validate_only in [true, false] {
            let results = ask(&cluster, 7, topics.clone(), validate_only);
            let code = |error: ErrorCode| error.code();
            let expected = [
                ("there", code(ErrorCode::TopicAlreadyExists)),
                ("fine", 0),
                ("three", code(ErrorCode::InvalidReplicationFactor)),
                ("zero", code(ErrorCode::InvalidPartitions)),
                ("elsewhere", code(ErrorCode::InvalidReplicaAssignment)),
                ("odd", code(ErrorCode::InvalidConfig)),
                ("", code(ErrorCode::InvalidTopicException)),
                ("twice", code(ErrorCode::InvalidRequest)),
                ("__cluster_metadata", code(ErrorCode::InvalidRequest)),
            ];
            assert_eq!(codes(&results), expected);
            assert_eq!(results[5].error_message.as_deref(), Some("Unknown topic config name: no.such"));
            assert_eq!(cluster.image().topic("fine").is_some(), !validate_only);
        }
    }
}
