//! The table of APIs, and the dispatch that reads it. One file an API: from the wire to a command and back, without state.
//!
//! Dispatch, ApiVersions, metric labels and README's table all come from [`APIS`]. A handler gets a [`Request`] whose body has the
//! shape that its [`Api`] declares, so the codec crate decodes it in bounded memory.

pub mod add_offsets_to_txn;
pub mod add_partitions_to_txn;
pub mod alter_configs;
pub mod alter_partition_reassignments;
pub mod alter_replica_log_dirs;
pub mod api_versions;
pub mod consumer_group_describe;
pub mod consumer_group_heartbeat;
pub mod context;
mod convert;
mod coordinated;
pub mod create_partitions;
pub mod create_topics;
pub mod delete_groups;
pub mod delete_records;
pub mod delete_topics;
pub mod describe_cluster;
pub mod describe_configs;
pub mod describe_groups;
pub mod describe_log_dirs;
pub mod describe_producers;
pub mod describe_topic_partitions;
pub mod describe_transactions;
pub mod elect_leaders;
pub mod end_txn;
pub mod fetch;
pub mod fetch_session;
pub mod find_coordinator;
pub mod heartbeat;
pub mod incremental_alter_configs;
pub mod init_producer_id;
pub mod join_group;
pub mod leave_group;
pub mod list_config_resources;
pub mod list_groups;
pub mod list_offsets;
pub mod list_partition_reassignments;
pub mod list_transactions;
pub mod metadata;
pub mod offset_commit;
pub mod offset_delete;
pub mod offset_fetch;
pub mod offset_for_leader_epoch;
pub mod produce;
pub mod request;
mod resources;
pub mod sync_group;
mod transactional;
pub mod txn_offset_commit;
pub mod update_features;
pub mod write_txn_markers;

use crate::{
    codec::{Malformed, RequestHeader, header::Prelude, shape::Shape},
    net::{Answer, ConnectionInfo, Refusal},
};
use bytes::Bytes;
pub use context::Context;
pub use request::Request;
use std::{
    fmt::Write,
    ops::RangeInclusive,
    sync::{Arc, LazyLock},
};

/// How long a frame of an API may be.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum FrameMax {
    /// It carries records: `socket.request.max.bytes`.
    Records,
    /// It carries names, numbers and settings.
    Control,
}

/// The longest frame that carries no records: 100,000 partitions of a Fetch fit.
const CONTROL_FRAME_BYTES_MAX: usize = 8 << 20;

/// How a request's body is checked before it is decoded.
#[derive(Debug, Clone, Copy)]
pub enum Body {
    /// Walked by its shape, then decoded by the codec crate.
    Shaped(Shape),
    /// Decoded by hand with [`crate::codec::Reader`], which checks as it goes.
    ByHand,
}

type Handler = fn(&Arc<Context>, Request) -> Result<Answer, Refusal>;

/// One API.
#[derive(Debug)]
pub struct Api {
    pub key: i16,
    /// Kafka's name of it.
    pub name: &'static str,
    /// What is served, from and to.
    pub versions: RangeInclusive<i16>,
    /// What ApiVersions says is the lowest: lower than what is served for Produce alone (KAFKA-18659).
    pub advertised_min: i16,
    /// The first flexible version (KIP-482).
    pub flexible_since: i16,
    pub frame_max: FrameMax,
    pub body: Body,
    pub run: Handler,
    /// For README: what a user should know.
    pub note: &'static str,
}

/// Every API that is served, by key. Nothing is advertised that isn't here.
pub static APIS: &[&Api] = &[
    &produce::API,
    &fetch::API,
    &list_offsets::API,
    &metadata::API,
    &offset_commit::API,
    &offset_fetch::API,
    &find_coordinator::API,
    &join_group::API,
    &heartbeat::API,
    &leave_group::API,
    &sync_group::API,
    &describe_groups::API,
    &list_groups::API,
    &api_versions::API,
    &create_topics::API,
    &delete_topics::API,
    &delete_records::API,
    &init_producer_id::API,
    &offset_for_leader_epoch::API,
    &add_partitions_to_txn::API,
    &add_offsets_to_txn::API,
    &end_txn::API,
    &write_txn_markers::API,
    &txn_offset_commit::API,
    &describe_configs::API,
    &alter_configs::API,
    &alter_replica_log_dirs::API,
    &describe_log_dirs::API,
    &create_partitions::API,
    &delete_groups::API,
    &elect_leaders::API,
    &incremental_alter_configs::API,
    &alter_partition_reassignments::API,
    &list_partition_reassignments::API,
    &offset_delete::API,
    &update_features::API,
    &describe_cluster::API,
    &describe_producers::API,
    &describe_transactions::API,
    &list_transactions::API,
    &consumer_group_heartbeat::API,
    &consumer_group_describe::API,
    &list_config_resources::API,
    &describe_topic_partitions::API,
];

/// Places in [`APIS`] by API key.
static BY_KEY: LazyLock<Vec<Option<usize>>> = LazyLock::new(|| {
    let mut places = vec![None; 128];
    for (place, api) in APIS.iter().enumerate() {
        if let Some(slot) = usize::try_from(api.key).ok().and_then(|key| places.get_mut(key)) {
            *slot = Some(place);
        }
    }
    places
});

/// The place in the table of an API key.
pub fn place_of(key: i16) -> Option<usize> {
    BY_KEY.get(usize::try_from(key).ok()?).copied().flatten()
}

/// An API by its place.
pub fn at(place: usize) -> Option<&'static Api> {
    APIS.get(place).copied()
}

impl Api {
    pub fn is_flexible(&self, version: i16) -> bool {
        version >= self.flexible_since
    }

    /// The longest frame of this API.
    pub fn frame_bytes_max(&self, socket_request_max_bytes: usize) -> usize {
        match self.frame_max {
            FrameMax::Records => socket_request_max_bytes,
            FrameMax::Control => socket_request_max_bytes.min(CONTROL_FRAME_BYTES_MAX),
        }
    }
}

/// The longest frame of an API that isn't served: it is refused anyway, once its header is known.
pub const UNKNOWN_FRAME_BYTES_MAX: usize = 1 << 20;

/// Handles one frame: finds its API, checks its version and its shape, and runs its handler.
///
/// A version that isn't served closes the connection, as in Kafka, but for ApiVersions, which is answered so that clients find
/// out what is (KIP-511).
pub fn dispatch(context: &Arc<Context>, connection: &Arc<ConnectionInfo>, frame: Bytes) -> (usize, Result<Answer, Refusal>) {
    let Some(prelude) = Prelude::peek(&frame) else { return (0, Err(Malformed::Truncated.into())) };
    let Some((place, api)) = place_of(prelude.api_key).and_then(|place| Some((place, at(place)?))) else {
        return (0, Err(Refusal::UnknownApi(prelude.api_key)));
    };
    (place, run(context, connection, api, prelude, frame))
}

fn run(
    context: &Arc<Context>,
    connection: &Arc<ConnectionInfo>,
    api: &'static Api,
    prelude: Prelude,
    frame: Bytes,
) -> Result<Answer, Refusal> {
    let version = prelude.api_version;
    if !api.versions.contains(&version) {
        if api.key == api_versions::API.key {
            return Ok(Answer::Ready(api_versions::unsupported(prelude.correlation_id)?));
        }
        let (min, max) = (*api.versions.start(), *api.versions.end());
        return Err(Refusal::UnsupportedVersion { api: api.name, version, min, max });
    }
    let flexible = api.is_flexible(version);
    let (header, body) = RequestHeader::decode(frame, prelude, flexible)?;
    if let Body::Shaped(shape) = &api.body {
        shape.check(&body, version, flexible)?;
    }
    (api.run)(context, Request { api, header, body, connection: connection.clone() })
}

/// README's table of APIs.
pub fn readme_table() -> String {
    let mut table = String::from("| key | API | versions | notes |\n| --- | --- | --- | --- |\n");
    for api in APIS {
        let _ = writeln!(table, "| {} | {} | {}–{} | {} |", api.key, api.name, api.versions.start(), api.versions.end(), api.note);
    }
    table
}

#[cfg(test)]
mod admin_tests;
#[cfg(test)]
mod tests;
