//! DescribeConfigs (key 32), versions 1 to 4.
//!
//! - Topics, groups and this broker: every key of the tables, or those asked for, with its source, its synonyms if asked, and from version 3 on
//!   its type and, if asked, its documentation. Version 4 is flexible.
//! - A broker by its id; the empty name means what all brokers share by dynamic configuration, which is nothing yet. Another broker is
//!   INVALID_REQUEST. Of a broker's loggers and of client metrics there are none to tell; other kinds are INVALID_REQUEST.
//! - No key is sensitive yet. A resource that stands twice is INVALID_REQUEST the second time (Kafka answers it again): else a small
//!   request could ask for an answer of any size.

use super::{
    Api, Body, Context, FrameMax, Request,
    convert::{first_error, text},
};
use crate::{
    cluster::Image,
    codec::shape::{BOOL, I8, Kind, Shape, TEXT, always, since},
    config::{
        ServerConfig,
        describe::{Described, Synonym},
    },
    net::{Answer, Refusal},
    types::{BrokerId, ErrorCode, TopicName},
};
use kafka_protocol::messages::{
    DescribeConfigsRequest, DescribeConfigsResponse,
    describe_configs_request::DescribeConfigsResource,
    describe_configs_response::{DescribeConfigsResourceResult, DescribeConfigsResult, DescribeConfigsSynonym},
};
use std::{collections::HashSet, sync::Arc};

pub const API: Api = Api {
    key: 32,
    name: "DescribeConfigs",
    versions: 1..=4,
    advertised_min: 1,
    flexible_since: 4,
    frame_max: FrameMax::Control,
    body: Body::Shaped(Shape(&[
        always(Kind::Structs(&[always(I8), always(TEXT), always(Kind::Array(&TEXT))])),
        always(BOOL),
        since(3, BOOL),
    ])),
    run,
    note: "topics, groups and the broker, with synonyms, types and documentation",
};

/// `ConfigResource.Type`.
const TOPIC: i8 = 2;
const BROKER: i8 = 4;
const BROKER_LOGGER: i8 = 8;
const CLIENT_METRICS: i8 = 16;
const GROUP: i8 = 32;

fn run(context: &Arc<Context>, request: Request) -> Result<Answer, Refusal> {
    let asked: DescribeConfigsRequest = request.decode()?;
    let response = answer(&context.image(), &context.config, request.version(), &asked);
    let error = first_error(response.results.iter().map(|result| result.error_code));
    request.ready(&response, error)
}

fn answer(image: &Image, config: &ServerConfig, version: i16, asked: &DescribeConfigsRequest) -> DescribeConfigsResponse {
    let entry = |described: Described| {
        let synonyms = if asked.include_synonyms { described.synonyms } else { Vec::new() };
        let entry = DescribeConfigsResourceResult::default()
            .with_name(text(described.key.name))
            .with_value(described.value.map(text))
            .with_read_only(described.read_only)
            .with_config_source(described.source.wire())
            .with_synonyms(synonyms.into_iter().map(synonym).collect());
        if version < 3 {
            return entry;
        }
        let documentation = asked.include_documentation.then(|| text(described.key.doc));
        entry.with_config_type(described.key.kind.wire()).with_documentation(documentation)
    };
    let mut seen = HashSet::new();
    let one = |resource: &DescribeConfigsResource| {
        let result = DescribeConfigsResult::default()
            .with_resource_type(resource.resource_type)
            .with_resource_name(resource.resource_name.clone())
            .with_error_message(Some(text("")));
        let again = !seen.insert((resource.resource_type, resource.resource_name.clone()));
        let described =
            if again { Err((ErrorCode::InvalidRequest, "Duplicate resource.".to_owned())) } else { describe(image, config, resource) };
        match described {
            Ok(all) => {
                let wanted = |described: &Described| match &resource.configuration_keys {
                    Some(keys) if !keys.is_empty() => keys.iter().any(|key| &**key == described.key.name),
                    _ => true,
                };
                result.with_configs(all.into_iter().filter(wanted).map(entry).collect())
            }
            Err((code, why)) => result.with_error_code(code.code()).with_error_message(Some(text(why))),
        }
    };
    // A name of a few bytes is answered with kilobytes: once, however often it is asked for.
    let mut seen = HashSet::new();
    let distinct = asked.resources.iter().filter(|resource| seen.insert((resource.resource_type, &resource.resource_name)));
    DescribeConfigsResponse::default().with_results(distinct.map(one).collect())
}

fn synonym(of: Synonym) -> DescribeConfigsSynonym {
    DescribeConfigsSynonym::default().with_name(text(of.name)).with_value(of.value.map(text)).with_source(of.source.wire())
}

fn describe(image: &Image, config: &ServerConfig, resource: &DescribeConfigsResource) -> Result<Vec<Described>, (ErrorCode, String)> {
    let name = resource.resource_name.as_str();
    let invalid = |why: String| Err((ErrorCode::InvalidRequest, why));
    match resource.resource_type {
        TOPIC => {
            let name = TopicName::new(name).map_err(|e| (ErrorCode::InvalidTopicException, e.to_string()))?;
            let unknown = || (ErrorCode::UnknownTopicOrPartition, "This server does not host this topic-partition.".to_owned());
            let topic = image.topic(name.as_str()).ok_or_else(unknown)?;
            Ok(config.describe_topic(&topic.overrides, image.layers()))
        }
        BROKER if name.is_empty() => Ok(config.describe_all_brokers(image.layers())),
        BROKER if broker_id(name)? == config.node_id => Ok(config.describe_broker(image.layers())),
        BROKER => invalid(format!("Unexpected broker id, expected {} or empty string, but received {}", config.node_id, shown(name))),
        BROKER_LOGGER if name.is_empty() => invalid("Broker id must not be empty".to_owned()),
        BROKER_LOGGER if broker_id(name)? == config.node_id => Ok(Vec::new()),
        BROKER_LOGGER => invalid(format!("Unexpected broker id, expected {} but received {}", config.node_id, shown(name))),
        CLIENT_METRICS if name.is_empty() => invalid("Client metrics subscription name must not be empty".to_owned()),
        CLIENT_METRICS => Ok(Vec::new()),
        GROUP if name.is_empty() => invalid("Group name must not be empty".to_owned()),
        // A group that isn't there has configs all the same: they wait for it.
        GROUP => Ok(config.describe_group(image.group_overrides(name))),
        other => invalid(format!("Unsupported resource type: {other}")),
    }
}

fn broker_id(name: &str) -> Result<BrokerId, (ErrorCode, String)> {
    let not_a_number = |_| (ErrorCode::InvalidRequest, format!("Broker id must be an integer, but it is: {}", shown(name)));
    name.parse().map(BrokerId).map_err(not_a_number)
}

/// A peer's text in a message: not more of it than helps.
fn shown(name: &str) -> String {
    name.chars().take(64).collect()
}

#[cfg(test)]
mod tests {
    use super::{super::admin_tests::*, *};
    use crate::config::{keys::KEYS, topic_keys::TOPIC_KEYS};

    fn ask(version: i16, kind: i8, name: &str, keys: Option<&[&str]>) -> DescribeConfigsResult {
        let cluster = cluster(&[]);
        create_topic(&cluster, "t", 1);
        cluster.alter_topic_config("t", &[("segment.ms".to_owned(), Some("5000".to_owned()))], false).unwrap();
        let resource = DescribeConfigsResource::default()
            .with_resource_type(kind)
            .with_resource_name(text(name))
            .with_configuration_keys(keys.map(|keys| keys.iter().map(|key| text(*key)).collect()));
        let asked = DescribeConfigsRequest::default()
            .with_resources(vec![resource])
            .with_include_synonyms(true)
            .with_include_documentation(version >= 3);
        let mut response = answer(&cluster.image(), &config(&["log.roll.ms=9000"]), version, &asked);
        survives(&response, version);
        response.results.remove(0)
    }

    #[test]
    fn every_key_is_told_in_every_version() {
        for version in API.versions.clone() {
            assert_eq!(ask(version, TOPIC, "t", None).configs.len(), TOPIC_KEYS.len());
            assert_eq!(ask(version, BROKER, "1", Some(&[])).configs.len(), KEYS.len());
            let told = ask(version, TOPIC, "t", Some(&["segment.ms", "nothing"]));
            assert_eq!((told.error_code, told.configs.len()), (0, 1));
            let segment_ms = &told.configs[0];
            assert_eq!((segment_ms.value.as_deref(), segment_ms.config_source, segment_ms.read_only), (Some("5000"), 1, false));
            let chain: Vec<(&str, i8)> = segment_ms.synonyms.iter().map(|synonym| (&*synonym.name, synonym.source)).collect();
            assert_eq!(chain, [("segment.ms", 1), ("log.roll.ms", 4), ("log.roll.hours", 5)]);
            let documented = segment_ms.documentation.as_ref().is_some_and(|doc| doc.starts_with("A segment older"));
            assert_eq!((segment_ms.config_type, documented), if version >= 3 { (5, true) } else { (0, false) });
        }
    }

    #[test]
    fn a_group_has_configs_whether_it_is_there_or_not() {
        let told = ask(4, GROUP, "g", None);
        let all: Vec<_> = told.configs.iter().map(|one| (&*one.name, one.value.as_deref(), one.config_source)).collect();
        assert_eq!(
            all,
            [
                ("consumer.session.timeout.ms", Some("45000"), 5),
                ("consumer.heartbeat.interval.ms", Some("5000"), 5),
                ("consumer.assignment.interval.ms", Some("1000"), 5),
            ]
        );
    }

    #[test]
    fn a_resource_is_answered_once() {
        let cluster = cluster(&[]);
        let broker =
            DescribeConfigsResource::default().with_resource_type(BROKER).with_resource_name(text("1")).with_configuration_keys(None);
        let asked = DescribeConfigsRequest::default().with_resources(vec![broker.clone(), broker]);
        let response = answer(&cluster.image(), &config(&[]), 4, &asked);
        let told: Vec<(i16, usize)> = response.results.iter().map(|result| (result.error_code, result.configs.len())).collect();
        assert_eq!(told, [(0, KEYS.len())], "a client keeps one answer for a name");
    }

    #[test]
    fn what_there_is_not_is_refused_as_in_kafka() {
        let code = |kind: i8, name: &str| ask(4, kind, name, None).error_code;
        assert_eq!(code(TOPIC, "no"), ErrorCode::UnknownTopicOrPartition.code());
        assert_eq!(code(TOPIC, "no way"), ErrorCode::InvalidTopicException.code());
        assert_eq!(code(BROKER, "2"), ErrorCode::InvalidRequest.code());
        assert_eq!(code(BROKER, "one"), ErrorCode::InvalidRequest.code());
        assert_eq!(code(BROKER_LOGGER, ""), ErrorCode::InvalidRequest.code());
        assert_eq!(code(GROUP, ""), ErrorCode::InvalidRequest.code());
        assert_eq!(code(3, "x"), ErrorCode::InvalidRequest.code());
        for (kind, name) in [(BROKER, ""), (BROKER_LOGGER, "1"), (CLIENT_METRICS, "m")] {
            let told = ask(4, kind, name, None);
            assert_eq!((told.error_code, told.configs.len()), (0, 0));
        }
    }
}
