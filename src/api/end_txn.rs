//! EndTxn (key 26), versions 0 to 5; 3 is flexible.
//!
//! - Commits or aborts a transaction. Answered when that is decided for good; the markers follow, mostly before the answer.
//! - From version 5 on each end bumps the producer's epoch, and the answer says what to go on as (KIP-890): it may be another id when the
//!   epochs of one are used up. Version 4 brought TRANSACTION_ABORTABLE.
//! - PRODUCER_FENCED came with version 2: before it, the error is INVALID_PRODUCER_EPOCH.

use super::{
    Api, Body, Context, FrameMax, Request,
    coordinated::when_committed,
    transactional::{epoch_error, producer, transactional_id},
};
use crate::{
    codec::shape::{BOOL, I16, I64, Shape, TEXT, always},
    net::{Answer, Refusal},
    txn::{EndTxn, TransactionVersion},
    types::{ErrorCode, ProducerIdAndEpoch},
};
use kafka_protocol::messages::{EndTxnRequest, EndTxnResponse, ProducerId};
use std::sync::Arc;

pub const API: Api = Api {
    key: 26,
    name: "EndTxn",
    versions: 0..=5,
    advertised_min: 0,
    flexible_since: 3,
    frame_max: FrameMax::Control,
    body: Body::Shaped(Shape(&[always(TEXT), always(I64), always(I16), always(BOOL)])),
    run,
    note: "both flows",
};

/// The first version whose clients bump their epoch with each transaction.
const BUMPS_SINCE: i16 = 5;

fn run(context: &Arc<Context>, request: Request) -> Result<Answer, Refusal> {
    let asked: EndTxnRequest = request.decode()?;
    let end = EndTxn {
        id: transactional_id(&asked.transactional_id),
        producer: producer(asked.producer_id, asked.producer_epoch),
        commit: asked.committed,
        client_version: if request.version() >= BUMPS_SINCE { TransactionVersion::V2 } else { TransactionVersion::V0 },
    };
    let outcome = context.transactions.end(&end, &|| super::init_producer_id::fresh(&context.cluster));
    when_committed(request, outcome, |request, reply| respond(reply.and_then(|reply| reply), request.version()))
}

fn respond(reply: Result<ProducerIdAndEpoch, ErrorCode>, version: i16) -> (EndTxnResponse, ErrorCode) {
    let (producer, error) = match reply {
        Ok(producer) => (producer, ErrorCode::None),
        Err(error) => (ProducerIdAndEpoch::NONE, epoch_error(error, version, 2)),
    };
    // Before version 5 there's no place for a producer.
    let producer = if version >= BUMPS_SINCE { producer } else { ProducerIdAndEpoch::NONE };
    let response = EndTxnResponse::default().with_error_code(error.code());
    (response.with_producer_id(ProducerId(producer.id.0)).with_producer_epoch(producer.epoch.0), error)
}
