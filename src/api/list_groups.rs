//! ListGroups (key 16), versions 0 to 5.
//!
//! - The groups that this broker coordinates. Version 3 is flexible, 4 filters by state (KIP-518), 5 by type (KIP-848): names in any case,
//!   one that doesn't exist fits nothing.

use super::{Api, Body, Context, FrameMax, Request, convert::text, coordinated::wire};
use crate::{
    codec::shape::{Kind, Shape, TEXT, since},
    net::{Answer, Refusal},
    types::ErrorCode,
};
use kafka_protocol::{
    messages::{GroupId, ListGroupsRequest, ListGroupsResponse, list_groups_response::ListedGroup},
    protocol::StrBytes,
};
use std::sync::Arc;

pub const API: Api = Api {
    key: 16,
    name: "ListGroups",
    versions: 0..=5,
    advertised_min: 0,
    flexible_since: 3,
    frame_max: FrameMax::Control,
    body: Body::Shaped(Shape(&[since(4, Kind::Array(&TEXT)), since(5, Kind::Array(&TEXT))])),
    run,
    note: "by state and type",
};

fn run(context: &Arc<Context>, request: Request) -> Result<Answer, Refusal> {
    let asked: ListGroupsRequest = request.decode()?;
    let version = request.version();
    let fits = |filter: &[StrBytes], name: &str| filter.is_empty() || filter.iter().any(|wanted| wanted.eq_ignore_ascii_case(name));
    let mut listed = Vec::new();
    let looked = context.groups.query_all(|groups| {
        let wanted = groups.list().filter(|group| fits(&asked.states_filter, group.state) && fits(&asked.types_filter, group.kind.name()));
        listed.extend(wanted.map(|group| {
            ListedGroup::default()
                .with_group_id(GroupId(wire(&group.group)))
                .with_protocol_type(wire(&group.protocol_type))
                .with_group_state(text(if version >= 4 { group.state } else { "" }))
                .with_group_type(text(if version >= 5 { group.kind.name() } else { "" }))
        }));
    });
    match looked {
        Ok(()) => request.ready(&ListGroupsResponse::default().with_groups(listed), ErrorCode::None),
        Err(error) => request.ready(&ListGroupsResponse::default().with_error_code(error.code()), error),
    }
}
