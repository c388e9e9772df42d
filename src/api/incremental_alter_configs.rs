//! IncrementalAlterConfigs (key 44), versions 0 and 1.
//!
//! - Sets, unsets, appends to and subtracts from the configs of topics, groups and brokers (KIP-339, KIP-226); what isn't named stays. A topic's changes are made all or
//!   none, and durably before the answer; they're in effect then.
//! - A resource or a config that stands twice is INVALID_REQUEST, so is a broker's config that can't change while it runs.
//! - Version 1 is flexible.

use super::{
    Api, Body, Context, FrameMax, Request,
    convert::{first_error, on_disk_thread},
    resources::{self, Resource},
};
use crate::{
    cluster::{Cluster, ConfigChange, ConfigOp},
    codec::shape::{BOOL, I8, Kind, Shape, TEXT, always},
    net::{Answer, Refusal},
    types::BrokerId,
};
use kafka_protocol::messages::{
    IncrementalAlterConfigsRequest, IncrementalAlterConfigsResponse,
    incremental_alter_configs_request::{AlterConfigsResource, AlterableConfig},
    incremental_alter_configs_response::AlterConfigsResourceResponse,
};
use std::sync::Arc;

pub const API: Api = Api {
    key: 44,
    name: "IncrementalAlterConfigs",
    versions: 0..=1,
    advertised_min: 0,
    flexible_since: 1,
    frame_max: FrameMax::Control,
    body: Body::Shaped(Shape(&[
        always(Kind::Structs(&[always(I8), always(TEXT), always(Kind::Structs(&[always(TEXT), always(I8), always(TEXT)]))])),
        always(BOOL),
    ])),
    run,
    note: "topics, groups and brokers; what is set is in effect at once",
};

/// `AlterConfigOp.OpType`.
const SET: i8 = 0;
const DELETE: i8 = 1;
const APPEND: i8 = 2;
const SUBTRACT: i8 = 3;

fn run(context: &Arc<Context>, request: Request) -> Result<Answer, Refusal> {
    let asked: IncrementalAlterConfigsRequest = request.decode()?;
    on_disk_thread(context, request, move |context, _| {
        let response = answer(&context.cluster, context.config.node_id, &asked);
        let error = first_error(response.responses.iter().map(|one| one.error_code));
        (response, error)
    })
}

fn answer(cluster: &Cluster, node_id: BrokerId, asked: &IncrementalAlterConfigsRequest) -> IncrementalAlterConfigsResponse {
    let all = asked.resources.iter().map(resource).collect();
    let outcomes = resources::alter(cluster, node_id, all, asked.validate_only);
    let one = |(resource, (code, message)): (&AlterConfigsResource, resources::Outcome)| {
        AlterConfigsResourceResponse::default()
            .with_resource_type(resource.resource_type)
            .with_resource_name(resource.resource_name.clone())
            .with_error_code(code)
            .with_error_message(message)
    };
    IncrementalAlterConfigsResponse::default().with_responses(asked.resources.iter().zip(outcomes).map(one).collect())
}

fn resource(resource: &AlterConfigsResource) -> Resource<'_> {
    let is_null = |config: &&AlterableConfig| config.value.is_none() && config.config_operation != DELETE;
    Resource {
        kind: resource.resource_type,
        name: &resource.resource_name,
        keys: resource.configs.iter().map(|config| &*config.name).collect(),
        nulls: resource.configs.iter().filter(is_null).map(|config| &*config.name).collect(),
        change: resource.configs.iter().map(operation).collect::<Result<_, _>>().map(ConfigChange::Incremental),
    }
}

fn operation(config: &AlterableConfig) -> Result<(String, ConfigOp), i8> {
    let value = config.value.as_ref().map(|value| value.to_string()).unwrap_or_default();
    let op = match config.config_operation {
        SET => ConfigOp::Set(value),
        DELETE => ConfigOp::Delete,
        APPEND => ConfigOp::Append(value),
        SUBTRACT => ConfigOp::Subtract(value),
        other => return Err(other),
    };
    Ok((config.name.to_string(), op))
}

#[cfg(test)]
mod tests {
    use super::{
        super::{
            admin_tests::*,
            convert::text,
            resources::{BROKER, TOPIC},
        },
        *,
    };
    use crate::types::ErrorCode;

    fn config(name: &str, op: i8, value: Option<&str>) -> AlterableConfig {
        AlterableConfig::default().with_name(text(name)).with_config_operation(op).with_value(value.map(text))
    }

    fn of(kind: i8, name: &str, configs: Vec<AlterableConfig>) -> AlterConfigsResource {
        AlterConfigsResource::default().with_resource_type(kind).with_resource_name(text(name)).with_configs(configs)
    }

    fn ask(cluster: &Cluster, resources: Vec<AlterConfigsResource>, validate_only: bool) -> Vec<(i16, String)> {
        let asked = IncrementalAlterConfigsRequest::default().with_resources(resources).with_validate_only(validate_only);
        let response = answer(cluster, BrokerId(1), &asked);
        API.versions.clone().for_each(|version| survives(&response, version));
        let told = |one: AlterConfigsResourceResponse| (one.error_code, one.error_message.map(|m| m.to_string()).unwrap_or_default());
        response.responses.into_iter().map(told).collect()
    }

    fn overrides(cluster: &Cluster, topic: &str) -> Vec<(String, String)> {
        cluster.image().topic(topic).unwrap().overrides.clone().into_iter().collect()
    }

    #[test]
    fn each_resource_is_changed_or_refused_for_itself() {
        let cluster = cluster(&[]);
        ["t", "u"].iter().for_each(|name| _ = create_topic(&cluster, name, 1));
        let set = |value| vec![config("segment.ms", SET, Some(value)), config("cleanup.policy", APPEND, Some("compact"))];
        let all = vec![of(TOPIC, "t", set("5")), of(TOPIC, "u", set("0")), of(TOPIC, "nowhere", set("5"))];
        let expected = [
            (0, String::new()),
            (ErrorCode::InvalidConfig.code(), "Invalid value 0 for configuration segment.ms: Value must be at least 1".to_owned()),
            (ErrorCode::UnknownTopicOrPartition.code(), "The topic 'nowhere' does not exist.".to_owned()),
        ];
        assert_eq!(ask(&cluster, all.clone(), true), expected);
        assert_eq!(overrides(&cluster, "t"), []);
        assert_eq!(ask(&cluster, all, false), expected);
        let set = [("cleanup.policy", "delete,compact"), ("segment.ms", "5")].map(|(key, value)| (key.to_owned(), value.to_owned()));
        assert_eq!(overrides(&cluster, "t"), set);
        assert_eq!(overrides(&cluster, "u"), []);
        let unset = of(TOPIC, "t", vec![config("segment.ms", DELETE, None), config("cleanup.policy", SUBTRACT, Some("delete"))]);
        assert_eq!(ask(&cluster, vec![unset], false), [(0, String::new())]);
        assert_eq!(overrides(&cluster, "t"), [("cleanup.policy".to_owned(), "compact".to_owned())]);
    }

    #[test]
    fn what_cannot_be_asked_for_is_an_invalid_request() {
        let cluster = cluster(&[]);
        create_topic(&cluster, "t", 1);
        let one = |resource| ask(&cluster, vec![resource], false).remove(0);
        let set = || config("segment.ms", SET, Some("5"));
        let refused = |why: &str| (ErrorCode::InvalidRequest.code(), why.to_owned());
        assert_eq!(one(of(TOPIC, "t", vec![set(), set()])), refused("Error due to duplicate config keys"));
        assert_eq!(one(of(TOPIC, "t", vec![config("a", SET, None)])), refused("Null value not supported for : a"));
        assert_eq!(one(of(TOPIC, "t", vec![config("segment.ms", 9, Some("5"))])), refused("Unknown operations type 9"));
        assert_eq!(one(of(TOPIC, "", vec![set()])), refused("Default topic resources are not allowed."));
        assert_eq!(one(of(3, "t", vec![set()])), refused("Unknown resource type 3"));
        assert_eq!(one(of(BROKER, "x", vec![set()])), refused("Node id must be an integer, but it is: x"));
        assert_eq!(one(of(BROKER, "7", vec![])), refused("Unexpected broker id, expected 1, but received 7"));
        let retention = config("log.retention.ms", SET, Some("5"));
        assert_eq!(one(of(BROKER, "1", vec![retention])), (0, String::new()));
        let port = config("listeners", SET, Some("PLAINTEXT://:1"));
        assert_eq!(one(of(BROKER, "", vec![port])), refused("Cannot update these configs dynamically: [listeners]"));
        assert_eq!(one(of(BROKER, "", vec![])), (0, String::new()));
        let twice = ask(&cluster, vec![of(TOPIC, "t", vec![set()]), of(TOPIC, "t", vec![])], false);
        assert_eq!(twice, [refused("Each resource must appear at most once."), refused("Each resource must appear at most once.")]);
        assert_eq!(overrides(&cluster, "t"), []);
    }
}
