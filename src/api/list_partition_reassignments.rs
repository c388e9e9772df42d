//! ListPartitionReassignments (key 46), version 0.
//!
//! - Tells which partitions are on their way to other replicas (KIP-455), of all topics or of those asked for: there never is one, as this broker
//!   is the only one. (A move between data directories is told by DescribeLogDirs.) What isn't there is left out, as in Kafka.

use super::{Api, Body, Context, FrameMax, Request};
use crate::{
    codec::shape::{I32, Kind, Shape, TEXT, always},
    net::{Answer, Refusal},
    types::ErrorCode,
};
use kafka_protocol::messages::{ListPartitionReassignmentsRequest, ListPartitionReassignmentsResponse};
use std::sync::Arc;

pub const API: Api = Api {
    key: 46,
    name: "ListPartitionReassignments",
    versions: 0..=0,
    advertised_min: 0,
    flexible_since: 0,
    frame_max: FrameMax::Control,
    body: Body::Shaped(Shape(&[always(I32), always(Kind::Structs(&[always(TEXT), always(Kind::Array(&I32))]))])),
    run,
    note: "none is ever under way: there is one broker",
};

fn run(_: &Arc<Context>, request: Request) -> Result<Answer, Refusal> {
    let _: ListPartitionReassignmentsRequest = request.decode()?;
    request.ready(&ListPartitionReassignmentsResponse::default().with_error_message(None), ErrorCode::None)
}
