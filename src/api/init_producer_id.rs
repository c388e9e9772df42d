//! InitProducerId (key 22), versions 0 to 5.
//!
//! - For idempotent producers: an id that no producer has had, at epoch 0. A producer that comes back with its old id and epoch
//!   (version 3, KIP-360) gets a new id, as in Kafka when it has no transactional id.
//! - With a transactional id: COORDINATOR_NOT_AVAILABLE, since transactions have no coordinator yet; an empty one is INVALID_REQUEST.
//! - Only one of producer id and epoch given is INVALID_REQUEST. Version 2 is flexible, 4 and 5 brought errors for transactions only.

use super::{Api, Body, Context, FrameMax, Request, convert::on_disk_thread};
use crate::{
    cluster::{AdminError, Cluster},
    codec::shape::{I16, I32, I64, Shape, TEXT, always, since},
    net::{Answer, Refusal},
    types::{ErrorCode, ProducerEpoch, ProducerId},
};
use kafka_protocol::messages::{self, InitProducerIdRequest, InitProducerIdResponse};
use std::sync::Arc;

pub const API: Api = Api {
    key: 22,
    name: "InitProducerId",
    versions: 0..=5,
    advertised_min: 0,
    flexible_since: 2,
    frame_max: FrameMax::Control,
    body: Body::Shaped(Shape(&[always(TEXT), always(I32), since(3, I64), since(3, I16)])),
    run,
    note: "for idempotent producers; no transactions yet",
};

fn run(context: &Arc<Context>, request: Request) -> Result<Answer, Refusal> {
    let asked: InitProducerIdRequest = request.decode()?;
    on_disk_thread(context, request, move |context, _| {
        let given = producer_id(&context.cluster, &asked);
        (answer(given), given.err().unwrap_or(ErrorCode::None))
    })
}

fn producer_id(cluster: &Cluster, asked: &InitProducerIdRequest) -> Result<ProducerId, ErrorCode> {
    if (asked.producer_id.0 == ProducerId::NONE.0) != (asked.producer_epoch == ProducerEpoch::NONE.0) {
        return Err(ErrorCode::InvalidRequest);
    }
    match &asked.transactional_id {
        Some(id) if id.is_empty() => Err(ErrorCode::InvalidRequest),
        Some(_) => Err(ErrorCode::CoordinatorNotAvailable),
        None => cluster.next_producer_id().map_err(|error| {
            if let AdminError::Storage(why) = &error {
                tracing::error!(error = why, "cannot give out a producer id");
            }
            // Clients of Kafka try again after this one, and give up after the log's storage error.
            ErrorCode::CoordinatorNotAvailable
        }),
    }
}

fn answer(given: Result<ProducerId, ErrorCode>) -> InitProducerIdResponse {
    let response = InitProducerIdResponse::default();
    match given {
        Ok(id) => response.with_producer_id(messages::ProducerId(id.0)).with_producer_epoch(0),
        Err(code) => response
            .with_error_code(code.code())
            .with_producer_id(messages::ProducerId(ProducerId::NONE.0))
            .with_producer_epoch(ProducerEpoch::NONE.0),
    }
}

#[cfg(test)]
mod tests {
    use super::{
        super::{admin_tests::*, convert::text},
        *,
    };

    fn asked() -> InitProducerIdRequest {
        InitProducerIdRequest::default().with_transactional_id(None)
    }

    #[test]
    fn each_producer_gets_its_own_id() {
        let cluster = cluster(&[]);
        for version in API.versions.clone() {
            let id = producer_id(&cluster, &asked()).unwrap();
            assert_eq!(id, ProducerId(i64::from(version)));
            let response = answer(Ok(id));
            survives(&response, version);
            assert_eq!((response.producer_id.0, response.producer_epoch), (id.0, 0));
        }
        let returning = asked().with_producer_id(messages::ProducerId(3)).with_producer_epoch(1);
        assert_eq!(producer_id(&cluster, &returning), Ok(ProducerId(6)));
    }

    #[test]
    fn what_cannot_be_is_refused() {
        let cluster = cluster(&[]);
        let named = |id: &str| asked().with_transactional_id(Some(messages::TransactionalId(text(id))));
        assert_eq!(producer_id(&cluster, &named("tx")), Err(ErrorCode::CoordinatorNotAvailable));
        assert_eq!(producer_id(&cluster, &named("")), Err(ErrorCode::InvalidRequest));
        assert_eq!(producer_id(&cluster, &asked().with_producer_epoch(0)), Err(ErrorCode::InvalidRequest));
        let response = answer(Err(ErrorCode::InvalidRequest));
        API.versions.clone().for_each(|version| survives(&response, version));
        assert_eq!((response.producer_id.0, response.producer_epoch), (-1, -1));
    }
}
