//! FindCoordinator (key 10), versions 0 to 6.
//!
//! - Where a group's coordinator is: the leader of its partition of `__consumer_offsets`, and a transactional id's, of
//!   `__transaction_state`. The topics are created when the first one is looked for. Unlike Kafka, which says COORDINATOR_NOT_AVAILABLE while
//!   it creates the topic, the answer waits for it.
//! - Version 1 has key types: 0 groups, 1 transactions, 2 shares (version 6). The last has no coordinator here: INVALID_REQUEST, so
//!   that a client fails with a reason instead of asking for ever. Version 3 is flexible, 4 asks for many keys (KIP-699).

use super::{
    Api, Body, Context, FrameMax, Request,
    convert::{first_error, on_disk_thread, text},
};
use crate::{
    codec::shape::{I8, Kind, Shape, TEXT, since, until},
    net::{Answer, Refusal},
    types::ErrorCode,
};
use kafka_protocol::{
    messages::{self, FindCoordinatorRequest, FindCoordinatorResponse, find_coordinator_response::Coordinator},
    protocol::StrBytes,
};
use std::sync::Arc;

pub const API: Api = Api {
    key: 10,
    name: "FindCoordinator",
    versions: 0..=6,
    advertised_min: 0,
    flexible_since: 3,
    frame_max: FrameMax::Control,
    body: Body::Shaped(Shape(&[until(3, TEXT), since(1, I8), since(4, Kind::Array(&TEXT))])),
    run,
    note: "of groups and transactions",
};

const GROUP: i8 = 0;
const TRANSACTION: i8 = 1;

fn run(context: &Arc<Context>, request: Request) -> Result<Answer, Refusal> {
    let asked: FindCoordinatorRequest = request.decode()?;
    let image = context.image();
    let is_missing = match asked.key_type {
        GROUP => !context.groups.is_open(&image),
        TRANSACTION => !context.transactions.is_open(&image),
        _ => false,
    };
    if is_missing {
        return on_disk_thread(context, request, move |context, request| {
            let made = match asked.key_type {
                GROUP => context.groups.ensure_topic(&context.cluster),
                _ => context.transactions.ensure_topic(&context.cluster),
            };
            respond(context, request, &asked, made)
        });
    }
    let (response, error) = respond(context, &request, &asked, Ok(()));
    request.ready(&response, error)
}

/// Where it is, for clients of the listener that was asked on.
struct Found {
    node_id: messages::BrokerId,
    host: StrBytes,
    port: i32,
}

fn find(context: &Context, request: &Request, key_type: i8) -> Result<Found, (ErrorCode, &'static str)> {
    if !matches!(key_type, GROUP | TRANSACTION) {
        return Err((ErrorCode::InvalidRequest, "This broker has coordinators of consumer groups and transactions only."));
    }
    let image = context.image();
    let node_id = context.config.node_id;
    let endpoint = image.brokers.get(&node_id).and_then(|broker| broker.endpoints.get(&request.connection.listener.name));
    let endpoint = endpoint.ok_or((ErrorCode::CoordinatorNotAvailable, "The coordinator is not available."))?;
    Ok(Found { node_id: messages::BrokerId(node_id.0), host: text(&*endpoint.host), port: endpoint.port.into() })
}

fn respond(
    context: &Context,
    request: &Request,
    asked: &FindCoordinatorRequest,
    made: Result<(), ErrorCode>,
) -> (FindCoordinatorResponse, ErrorCode) {
    let found = made.map_err(|error| (error, "The coordinator is not available.")).and_then(|()| find(context, request, asked.key_type));
    let (found, error, message) = match found {
        Ok(found) => (found, ErrorCode::None, None),
        Err((error, message)) => (Found { node_id: messages::BrokerId(-1), host: text(""), port: -1 }, error, Some(text(message))),
    };
    let response = FindCoordinatorResponse::default();
    let response = if request.version() < 4 {
        let message = message.filter(|_| request.version() >= 1);
        response
            .with_error_code(error.code())
            .with_error_message(message)
            .with_node_id(found.node_id)
            .with_host(found.host)
            .with_port(found.port)
    } else {
        let coordinator = |key: &StrBytes| {
            Coordinator::default()
                .with_key(key.clone())
                .with_error_code(error.code())
                .with_error_message(message.clone())
                .with_node_id(found.node_id)
                .with_host(found.host.clone())
                .with_port(found.port)
        };
        response.with_coordinators(asked.coordinator_keys.iter().map(coordinator).collect())
    };
    (response, first_error([error.code()]))
}
