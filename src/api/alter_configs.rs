//! AlterConfigs (key 33), versions 0 to 2.
//!
//! - The configs that are named are all that a topic has of its own from then on; clients that want to change one read the others first, and
//!   should rather use IncrementalAlterConfigs. The rest is as there.
//! - Version 2 is flexible; 1 changed only what a throttled client is told.

use super::{
    Api, Body, Context, FrameMax, Request,
    convert::{first_error, on_disk_thread},
    resources::{self, Resource},
};
use crate::{
    cluster::{Cluster, ConfigChange},
    codec::shape::{BOOL, I8, Kind, Shape, TEXT, always},
    net::{Answer, Refusal},
    types::BrokerId,
};
use kafka_protocol::messages::{
    AlterConfigsRequest, AlterConfigsResponse, alter_configs_request::AlterConfigsResource,
    alter_configs_response::AlterConfigsResourceResponse,
};
use std::sync::Arc;

pub const API: Api = Api {
    key: 33,
    name: "AlterConfigs",
    versions: 0..=2,
    advertised_min: 0,
    flexible_since: 2,
    frame_max: FrameMax::Control,
    body: Body::Shaped(Shape(&[
        always(Kind::Structs(&[always(I8), always(TEXT), always(Kind::Structs(&[always(TEXT), always(TEXT)]))])),
        always(BOOL),
    ])),
    run,
    note: "topics, groups and brokers; replaces all that was set",
};

fn run(context: &Arc<Context>, request: Request) -> Result<Answer, Refusal> {
    let asked: AlterConfigsRequest = request.decode()?;
    on_disk_thread(context, request, move |context, _| {
        let response = answer(&context.cluster, context.config.node_id, &asked);
        let error = first_error(response.responses.iter().map(|one| one.error_code));
        (response, error)
    })
}

fn answer(cluster: &Cluster, node_id: BrokerId, asked: &AlterConfigsRequest) -> AlterConfigsResponse {
    let all = asked.resources.iter().map(resource).collect();
    let outcomes = resources::alter(cluster, node_id, all, asked.validate_only);
    let one = |(resource, (code, message)): (&AlterConfigsResource, resources::Outcome)| {
        AlterConfigsResourceResponse::default()
            .with_resource_type(resource.resource_type)
            .with_resource_name(resource.resource_name.clone())
            .with_error_code(code)
            .with_error_message(message)
    };
    AlterConfigsResponse::default().with_responses(asked.resources.iter().zip(outcomes).map(one).collect())
}

fn resource(resource: &AlterConfigsResource) -> Resource<'_> {
    let pairs = resource.configs.iter().filter_map(|config| Some((config.name.to_string(), config.value.as_ref()?.to_string())));
    Resource {
        kind: resource.resource_type,
        name: &resource.resource_name,
        keys: resource.configs.iter().map(|config| &*config.name).collect(),
        nulls: resource.configs.iter().filter(|config| config.value.is_none()).map(|config| &*config.name).collect(),
        change: Ok(ConfigChange::Replace(pairs.collect())),
    }
}

#[cfg(test)]
mod tests {
    use super::{
        super::{admin_tests::*, convert::text, resources::TOPIC},
        *,
    };
    use crate::types::ErrorCode;
    use kafka_protocol::messages::alter_configs_request::AlterableConfig;

    #[test]
    fn what_is_not_named_is_unset() {
        let cluster = cluster(&[]);
        create_topic(&cluster, "t", 1);
        let ask = |configs: &[(&str, Option<&str>)]| {
            let config =
                |(name, value): &(&str, Option<&str>)| AlterableConfig::default().with_name(text(*name)).with_value(value.map(text));
            let topic = AlterConfigsResource::default()
                .with_resource_type(TOPIC)
                .with_resource_name(text("t"))
                .with_configs(configs.iter().map(config).collect());
            let response = answer(&cluster, BrokerId(1), &AlterConfigsRequest::default().with_resources(vec![topic]));
            API.versions.clone().for_each(|version| survives(&response, version));
            response.responses[0].error_code
        };
        let keys = || cluster.image().topic("t").unwrap().overrides.keys().cloned().collect::<Vec<_>>();
        assert_eq!(ask(&[("segment.ms", Some("5")), ("flush.ms", Some("6"))]), 0);
        assert_eq!(keys(), ["flush.ms", "segment.ms"]);
        assert_eq!(ask(&[("retention.ms", Some("7"))]), 0);
        assert_eq!(keys(), ["retention.ms"]);
        assert_eq!(ask(&[("retention.ms", None)]), ErrorCode::InvalidRequest.code());
        assert_eq!(ask(&[("no.such", Some("1"))]), ErrorCode::InvalidConfig.code());
        assert_eq!(keys(), ["retention.ms"]);
        assert_eq!(ask(&[]), 0);
        assert!(keys().is_empty());
    }
}
