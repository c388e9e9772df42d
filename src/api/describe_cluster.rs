//! DescribeCluster (key 60), versions 0 to 2.
//!
//! - The cluster's id and its brokers with their addresses on the listener that was asked on; all brokers are equal, so the controller
//!   is the one that answers, which takes administrative requests.
//! - Version 1 asks for brokers or for controllers: there are no controllers of their own, so those are MISMATCHED_ENDPOINT_TYPE, as a
//!   Kafka broker answers. Version 2 can list fenced brokers, of which there are none.

use super::{
    Api, Body, Context, FrameMax, Request,
    convert::{CLUSTER_OPERATIONS, broker, text},
};
use crate::{
    cluster::{Broker, Image},
    codec::shape::{BOOL, I8, Shape, always, since},
    net::{Answer, Refusal},
    types::{BrokerId, ErrorCode},
};
use kafka_protocol::messages::{self, DescribeClusterRequest, DescribeClusterResponse, describe_cluster_response::DescribeClusterBroker};
use std::sync::Arc;

pub const API: Api = Api {
    key: 60,
    name: "DescribeCluster",
    versions: 0..=2,
    advertised_min: 0,
    flexible_since: 0,
    frame_max: FrameMax::Control,
    body: Body::Shaped(Shape(&[always(BOOL), since(1, I8), since(2, BOOL)])),
    run,
    note: "brokers only: there are no separate controllers",
};

/// `EndpointType.BROKER` and `CONTROLLER`.
const BROKERS: i8 = 1;
const CONTROLLERS: i8 = 2;

fn run(context: &Arc<Context>, request: Request) -> Result<Answer, Refusal> {
    let asked: DescribeClusterRequest = request.decode()?;
    let response = answer(&context.image(), &request.connection.listener.name, &asked);
    let error = ErrorCode::from_code(response.error_code).unwrap_or_default();
    request.ready(&response, error)
}

fn answer(image: &Image, listener: &str, asked: &DescribeClusterRequest) -> DescribeClusterResponse {
    let refuse = |code: ErrorCode, why: String| {
        let refused = DescribeClusterResponse::default().with_error_code(code.code()).with_error_message(Some(text(why)));
        refused.with_controller_id(messages::BrokerId(-1))
    };
    match asked.endpoint_type {
        BROKERS => {}
        CONTROLLERS => {
            let why = "The request was sent to an endpoint of type BROKER, but we wanted an endpoint of type CONTROLLER";
            return refuse(ErrorCode::MismatchedEndpointType, why.to_owned());
        }
        other => return refuse(ErrorCode::UnsupportedEndpointType, format!("Unsupported endpoint type {other}")),
    }
    let one = |(id, of): (&BrokerId, &Broker)| {
        let at = of.endpoints.get(listener)?;
        Some(
            DescribeClusterBroker::default()
                .with_broker_id(broker(*id))
                .with_host(text(&*at.host))
                .with_port(i32::from(at.port))
                .with_rack(of.rack.clone().map(text)),
        )
    };
    let response = DescribeClusterResponse::default()
        .with_cluster_id(text(&*image.cluster_id))
        .with_controller_id(broker(image.controller_id()))
        .with_brokers(image.brokers.iter().filter_map(one).collect());
    if asked.include_cluster_authorized_operations { response.with_cluster_authorized_operations(CLUSTER_OPERATIONS) } else { response }
}

#[cfg(test)]
mod tests {
    use super::{super::admin_tests::*, *};

    #[test]
    fn the_brokers_are_told_in_every_version() {
        let cluster = cluster(&["broker.rack=r1"]);
        for version in API.versions.clone() {
            let asked = DescribeClusterRequest::default().with_include_cluster_authorized_operations(true);
            let response = answer(&cluster.image(), "PLAINTEXT", &asked);
            survives(&response, version);
            let broker = &response.brokers[0];
            assert_eq!((broker.broker_id.0, broker.host.as_str(), broker.port, broker.rack.as_deref()), (1, "broker", 9092, Some("r1")));
            assert_eq!((response.controller_id.0, &*response.cluster_id), (1, cluster.image().cluster_id.as_str()));
            assert_eq!((response.error_code, response.cluster_authorized_operations), (0, 8096));
        }
    }

    #[test]
    fn there_are_no_controllers() {
        let cluster = cluster(&[]);
        let code = |endpoint_type: i8| {
            let response = answer(&cluster.image(), "PLAINTEXT", &DescribeClusterRequest::default().with_endpoint_type(endpoint_type));
            survives(&response, 1);
            response.error_code
        };
        assert_eq!((code(2), code(9)), (ErrorCode::MismatchedEndpointType.code(), ErrorCode::UnsupportedEndpointType.code()));
        assert_eq!(code(1), 0);
    }
}
