//! Heartbeat (key 12), versions 0 to 4.
//!
//! - A member lives; it hears of rebalances by REBALANCE_IN_PROGRESS. Version 3 has static members, 4 is flexible.
//! - While its group is being loaded it is told that all is well, as in Kafka: its session begins when that is done.

use super::{
    Api, Body, Context, FrameMax, Request,
    coordinated::{check_group, identity, when_committed},
};
use crate::{
    codec::shape::{I32, Shape, TEXT, always, since},
    net::{Answer, Refusal},
    types::ErrorCode,
};
use kafka_protocol::messages::{HeartbeatRequest, HeartbeatResponse};
use std::sync::Arc;

pub const API: Api = Api {
    key: 12,
    name: "Heartbeat",
    versions: 0..=4,
    advertised_min: 0,
    flexible_since: 4,
    frame_max: FrameMax::Control,
    body: Body::Shaped(Shape(&[always(TEXT), always(I32), always(TEXT), since(3, TEXT)])),
    run,
    note: "",
};

fn run(context: &Arc<Context>, request: Request) -> Result<Answer, Refusal> {
    let asked: HeartbeatRequest = request.decode()?;
    let from = identity(&asked.group_id, &asked.member_id, asked.group_instance_id.as_ref(), asked.generation_id);
    let outcome = check_group(&asked.group_id)
        .and_then(|()| context.groups.decide(&asked.group_id, |groups, now| groups.decide_heartbeat(now, &from)));
    when_committed(request, outcome, |_, reply| {
        let error = match reply {
            Ok(error) => error,
            Err(ErrorCode::CoordinatorLoadInProgress) => ErrorCode::None,
            Err(error) => error,
        };
        (HeartbeatResponse::default().with_error_code(error.code()), error)
    })
}
