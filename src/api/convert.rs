//! Between our types and the codec crate's, and the way onto a thread that may block: what the administrative APIs share.

use super::{Context, Request};
use crate::{
    cluster::{AdminError, Image, PartitionState},
    codec::reply::EncodeError,
    net::{Answer, Refusal},
    types::{BrokerId, ErrorCode},
};
use kafka_protocol::{
    messages::{self, TopicName},
    protocol::{Encodable, StrBytes},
};
use std::{io, sync::Arc};

/// All operations that a client without an authorizer may do to a topic, as Kafka's bits (`AclEntry.supportedOperations`).
pub(super) const TOPIC_OPERATIONS: i32 = 0b1101_1111_1000;
/// The same for the cluster.
pub(super) const CLUSTER_OPERATIONS: i32 = 0b1_1111_1010_0000;

pub(super) fn text(text: impl Into<String>) -> StrBytes {
    StrBytes::from_string(text.into())
}

pub(super) fn topic_name(name: &crate::types::TopicName) -> TopicName {
    TopicName(text(name.as_str()))
}

pub(super) fn broker(id: BrokerId) -> messages::BrokerId {
    messages::BrokerId(id.0)
}

pub(super) fn brokers(ids: &[BrokerId]) -> Vec<messages::BrokerId> {
    ids.iter().copied().map(broker).collect()
}

/// What an error is on the wire: its code and its message.
pub(super) fn refused(error: &AdminError) -> (i16, Option<StrBytes>) {
    (ErrorCode::from(error).code(), Some(text(error.to_string())))
}

/// The first error of an answer's parts, for metrics.
pub(super) fn first_error(codes: impl IntoIterator<Item = i16>) -> ErrorCode {
    codes.into_iter().find(|code| *code != 0).and_then(ErrorCode::from_code).unwrap_or(ErrorCode::None)
}

/// A partition's replicas as a client on this listener sees them.
pub(super) struct Seen {
    /// `None`: the leader is down, or doesn't have the listener.
    pub leader: Option<BrokerId>,
    /// Why there is no leader (Kafka's `getPartitionMetadata`).
    pub error: ErrorCode,
    pub offline: Vec<BrokerId>,
}

impl Seen {
    pub fn on(image: &Image, listener: &str, state: &PartitionState) -> Self {
        let reachable = |id: &BrokerId| image.brokers.get(id).is_some_and(|broker| broker.endpoints.contains_key(listener));
        let error = match image.brokers.get(&state.leader) {
            None => ErrorCode::LeaderNotAvailable,
            Some(_) if !reachable(&state.leader) => ErrorCode::ListenerNotFound,
            Some(_) => ErrorCode::None,
        };
        let leader = Some(state.leader).filter(|_| error == ErrorCode::None);
        Self { leader, error, offline: state.replicas.iter().filter(|id| !reachable(id)).copied().collect() }
    }
}

/// Answers with what `work` comes to, on a thread that may block: changes of the metadata wait for the disk.
pub(super) fn on_disk_thread<T: Encodable + Send + 'static>(
    context: &Arc<Context>,
    request: Request,
    work: impl FnOnce(&Context, &Request) -> (T, ErrorCode) + Send + 'static,
) -> Result<Answer, Refusal> {
    let context = context.clone();
    Ok(Answer::Acting(Box::pin(async move {
        let worker_request = request.clone();
        let done = tokio::task::spawn_blocking(move || work(&context, &worker_request)).await;
        let (response, error) = done.map_err(|e| EncodeError::from(&io::Error::other(e)))?;
        request.reply(&response, error)
    })))
}
