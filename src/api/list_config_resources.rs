//! ListConfigResources (key 74), versions 0 and 1.
//!
//! - What has configs, by type (KIP-1142): topics, this broker, and the groups that were given configs. Version 0 knows client metrics only
//!   (KIP-714), of which there are none; version 1 takes the types, and none means all of them. A type that isn't one is
//!   UNSUPPORTED_VERSION, as in Kafka.

use super::{
    Api, Body, Context, FrameMax, Request,
    convert::text,
    resources::{BROKER, BROKER_LOGGER, CLIENT_METRICS, GROUP, TOPIC},
};
use crate::{
    cluster::Image,
    codec::shape::{I8, Kind, Shape, since},
    net::{Answer, Refusal},
    types::ErrorCode,
};
use kafka_protocol::messages::{ListConfigResourcesRequest, ListConfigResourcesResponse, list_config_resources_response::ConfigResource};
use std::sync::Arc;

pub const API: Api = Api {
    key: 74,
    name: "ListConfigResources",
    versions: 0..=1,
    advertised_min: 0,
    flexible_since: 0,
    frame_max: FrameMax::Control,
    body: Body::Shaped(Shape(&[since(1, Kind::Array(&I8))])),
    run,
    note: "topics, the broker, and groups that have configs",
};

fn run(context: &Arc<Context>, request: Request) -> Result<Answer, Refusal> {
    let asked: ListConfigResourcesRequest = request.decode()?;
    match list(&context.image(), request.version(), &asked.resource_types) {
        Ok(resources) => request.ready(&ListConfigResourcesResponse::default().with_config_resources(resources), ErrorCode::None),
        Err(error) => request.ready(&ListConfigResourcesResponse::default().with_error_code(error.code()), error),
    }
}

fn list(image: &Image, version: i16, types: &[i8]) -> Result<Vec<ConfigResource>, ErrorCode> {
    const ALL: [i8; 5] = [GROUP, CLIENT_METRICS, BROKER_LOGGER, BROKER, TOPIC];
    if version == 0 {
        return Ok(Vec::new());
    }
    if types.iter().any(|kind| !ALL.contains(kind)) {
        return Err(ErrorCode::UnsupportedVersion);
    }
    let mut resources = Vec::new();
    let mut add =
        |kind: i8, name: String| resources.push(ConfigResource::default().with_resource_type(kind).with_resource_name(text(name)));
    // Each type once, however often it is asked for.
    for kind in ALL.into_iter().filter(|kind| types.is_empty() || types.contains(kind)) {
        match kind {
            TOPIC => image.topics().for_each(|topic| add(kind, topic.name.to_string())),
            BROKER | BROKER_LOGGER => image.brokers.keys().for_each(|id| add(kind, id.to_string())),
            GROUP => image.groups_with_configs().for_each(|(group, _)| add(kind, group.to_owned())),
            _ => {}
        }
    }
    Ok(resources)
}

#[cfg(test)]
mod tests {
    use super::{super::admin_tests::*, *};
    use crate::cluster::{ConfigChange, GroupChange};

    #[test]
    fn each_type_is_listed_once() {
        let cluster = cluster(&[]);
        create_topic(&cluster, "t", 1);
        let change = ConfigChange::Replace(vec![("consumer.session.timeout.ms".to_owned(), "50000".to_owned())]);
        cluster.alter_groups(&[GroupChange { group: "g".to_owned(), change }], false).remove(0).unwrap();
        let listed = |types: &[i8]| {
            let all = list(&cluster.image(), 1, types).unwrap();
            let response = ListConfigResourcesResponse::default().with_config_resources(all.clone());
            survives(&response, 1);
            all.into_iter().map(|one| (one.resource_type, one.resource_name.to_string())).collect::<Vec<_>>()
        };
        let of = |kind: i8, name: &str| (kind, name.to_owned());
        assert_eq!(listed(&[TOPIC, TOPIC]), [of(TOPIC, "t")]);
        assert_eq!(listed(&[GROUP]), [of(GROUP, "g")]);
        assert_eq!(listed(&[]), [of(GROUP, "g"), of(BROKER_LOGGER, "1"), of(BROKER, "1"), of(TOPIC, "t")]);
        assert_eq!(list(&cluster.image(), 1, &[1]), Err(ErrorCode::UnsupportedVersion));
        assert_eq!(list(&cluster.image(), 0, &[]), Ok(Vec::new()));
    }
}
