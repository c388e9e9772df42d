//! InitProducerId (key 22), versions 0 to 5.
//!
//! - For idempotent producers: an id that no producer has had, at epoch 0. A producer that comes back with its old id and epoch
//!   (version 3, KIP-360) gets a new id, as in Kafka when it has no transactional id.
//! - With a transactional id: the id's producer with its epoch bumped, whoever was there before is fenced, and its open transaction aborted
//!   (CONCURRENT_TRANSACTIONS until that is done). One that says who it was (version 3) is refused if another has come since.
//! - Only one of producer id and epoch given is INVALID_REQUEST, as is an empty transactional id. Version 2 is flexible; PRODUCER_FENCED came
//!   with 4: before it, the error is INVALID_PRODUCER_EPOCH.

use super::{
    Api, Body, Context, FrameMax, Request,
    coordinated::when_committed_on_disk_thread,
    transactional::{epoch_error, producer, transactional_id},
};
use crate::{
    cluster::{AdminError, Cluster},
    codec::shape::{I16, I32, I64, Shape, TEXT, always, since},
    coordinator::Outcome,
    net::{Answer, Refusal},
    txn::InitProducerId,
    types::{ErrorCode, ProducerEpoch, ProducerId, ProducerIdAndEpoch},
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
    note: "idempotent and transactional producers",
};

fn run(context: &Arc<Context>, request: Request) -> Result<Answer, Refusal> {
    let asked: InitProducerIdRequest = request.decode()?;
    let version = request.version();
    when_committed_on_disk_thread(
        context,
        request,
        move |context| init(context, &asked),
        move |_, reply| {
            let given = reply.and_then(|given| given).map_err(|error| epoch_error(error, version, 4));
            (answer(given), given.err().unwrap_or(ErrorCode::None))
        },
    )
}

type Given = Result<ProducerIdAndEpoch, ErrorCode>;

fn init(context: &Context, asked: &InitProducerIdRequest) -> Result<Outcome<Given>, ErrorCode> {
    let at_once = |given| Ok(Outcome { reply: given, committing: None });
    let expected = producer(asked.producer_id, asked.producer_epoch);
    let is_none = (expected.id == ProducerId::NONE, expected.epoch == ProducerEpoch::NONE);
    let Some(id) = &asked.transactional_id else { return at_once(of_nobody(&context.cluster, asked)) };
    if is_none.0 != is_none.1 {
        return at_once(Err(ErrorCode::InvalidRequest));
    }
    let init =
        InitProducerId { id: transactional_id(id), timeout_ms: asked.transaction_timeout_ms, expected: (!is_none.0).then_some(expected) };
    if init.id.is_empty() {
        return at_once(Err(ErrorCode::InvalidRequest));
    }
    context.transactions.init_producer_id(&init, &|| fresh(&context.cluster))
}

/// For a producer without a transactional id.
fn of_nobody(cluster: &Cluster, asked: &InitProducerIdRequest) -> Given {
    if (asked.producer_id.0 == ProducerId::NONE.0) != (asked.producer_epoch == ProducerEpoch::NONE.0) {
        return Err(ErrorCode::InvalidRequest);
    }
    fresh(cluster).map(|id| ProducerIdAndEpoch { id, epoch: ProducerEpoch(0) })
}

/// A producer id that nobody has had. Blocks on the disk for one in a thousand.
pub(super) fn fresh(cluster: &Cluster) -> Result<ProducerId, ErrorCode> {
    cluster.next_producer_id().map_err(|error| {
        if let AdminError::Storage(why) = &error {
            tracing::error!(error = why, "cannot give out a producer id");
        }
        // Clients of Kafka try again after this one, and give up after the log's storage error.
        ErrorCode::CoordinatorNotAvailable
    })
}

fn answer(given: Given) -> InitProducerIdResponse {
    let (producer, error) = match given {
        Ok(producer) => (producer, ErrorCode::None),
        Err(error) => (ProducerIdAndEpoch::NONE, error),
    };
    InitProducerIdResponse::default()
        .with_error_code(error.code())
        .with_producer_id(messages::ProducerId(producer.id.0))
        .with_producer_epoch(producer.epoch.0)
}

#[cfg(test)]
mod tests {
    use super::{super::admin_tests::*, *};

    fn asked() -> InitProducerIdRequest {
        InitProducerIdRequest::default().with_transactional_id(None)
    }

    #[test]
    fn each_producer_gets_its_own_id() {
        let cluster = cluster(&[]);
        for version in API.versions.clone() {
            let given = of_nobody(&cluster, &asked()).unwrap();
            assert_eq!(given, ProducerIdAndEpoch::new(version.into(), 0));
            let response = answer(Ok(given));
            survives(&response, version);
            assert_eq!((response.producer_id.0, response.producer_epoch), (given.id.0, 0));
        }
        let returning = asked().with_producer_id(messages::ProducerId(3)).with_producer_epoch(1);
        assert_eq!(of_nobody(&cluster, &returning), Ok(ProducerIdAndEpoch::new(6, 0)));
    }

    #[test]
    fn what_cannot_be_is_refused() {
        let cluster = cluster(&[]);
        assert_eq!(of_nobody(&cluster, &asked().with_producer_epoch(0)), Err(ErrorCode::InvalidRequest));
        let response = answer(Err(ErrorCode::InvalidRequest));
        API.versions.clone().for_each(|version| survives(&response, version));
        assert_eq!((response.producer_id.0, response.producer_epoch), (-1, -1));
    }
}
