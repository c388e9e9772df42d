//! AddOffsetsToTxn (key 25), versions 0 to 4; 3 is flexible.
//!
//! - Adds a group's partition of `__consumer_offsets` to the transaction, before TxnOffsetCommit writes to it. Not needed from version 5 of
//!   that on, which does it by itself.
//! - PRODUCER_FENCED came with version 2: before it, the error is INVALID_PRODUCER_EPOCH.

use super::{
    Api, Body, Context, FrameMax, Request,
    coordinated::when_committed,
    transactional::{epoch_error, producer, transactional_id},
};
use crate::{
    codec::shape::{I16, I64, Shape, TEXT, always},
    net::{Answer, Refusal},
    txn::{AddPartitions, TransactionVersion},
    types::ErrorCode,
};
use kafka_protocol::messages::{AddOffsetsToTxnRequest, AddOffsetsToTxnResponse};
use std::sync::Arc;

pub const API: Api = Api {
    key: 25,
    name: "AddOffsetsToTxn",
    versions: 0..=4,
    advertised_min: 0,
    flexible_since: 3,
    frame_max: FrameMax::Control,
    body: Body::Shaped(Shape(&[always(TEXT), always(I64), always(I16), always(TEXT)])),
    run,
    note: "",
};

fn run(context: &Arc<Context>, request: Request) -> Result<Answer, Refusal> {
    let asked: AddOffsetsToTxnRequest = request.decode()?;
    let outcome = context.groups.partition_of(&asked.group_id).and_then(|partition| {
        context.transactions.add_partitions(&AddPartitions {
            id: transactional_id(&asked.transactional_id),
            producer: producer(asked.producer_id, asked.producer_epoch),
            partitions: vec![partition],
            client_version: TransactionVersion::V0,
        })
    });
    when_committed(request, outcome, |request, reply: Result<ErrorCode, ErrorCode>| {
        let error = epoch_error(reply.unwrap_or_else(|error| error), request.version(), 2);
        (AddOffsetsToTxnResponse::default().with_error_code(error.code()), error)
    })
}
