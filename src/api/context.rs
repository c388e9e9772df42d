//! What handlers work with: the cluster's image, the logs, the settings, the clock. And the service that connections call.

use super::{APIS, UNKNOWN_FRAME_BYTES_MAX, at, dispatch, place_of};
use crate::{
    cluster::{Cluster, Image, Topic},
    codec::header::{Prelude, client_id_text, peek_client_id},
    config::ServerConfig,
    coordinator::{GroupCoordinator, LogMarkers, TransactionCoordinator},
    lag::Sampler,
    log::{Logs, PartitionLog},
    net::{Answer, Answered, ConnectionInfo, Refusal, Service},
    telemetry::{CloseReason, Events, FrameFault, RateLimited, Registry, RejectReason},
    types::{Clock, ErrorCode, LeaderEpoch, Millis, PartitionIndex, TopicId},
};
use bytes::Bytes;
use parking_lot::Mutex;
use std::{
    net::SocketAddr,
    sync::{Arc, atomic::AtomicBool},
};
use tokio::sync::watch;

use super::fetch_session::FetchSessions;

/// One for the whole broker.
pub struct Context {
    pub config: Arc<ServerConfig>,
    pub cluster: Arc<Cluster>,
    pub logs: Arc<Logs>,
    pub clock: Arc<dyn Clock>,
    pub groups: Arc<GroupCoordinator>,
    pub transactions: Arc<TransactionCoordinator>,
    pub markers: Arc<LogMarkers>,
    pub sessions: Mutex<FetchSessions>,
    pub events: Events,
    /// How far behind the groups are; Fetch notes who fetches what.
    pub lag: Sampler,
    /// Set when the broker stops: what waits answers with what it has.
    pub stopping: watch::Receiver<bool>,
    /// `transaction.partition.verification.enable`
    pub verifies_transactions: AtomicBool,
    refusals: RateLimited,
}

/// What a context is made of.
pub struct Parts {
    pub config: Arc<ServerConfig>,
    pub cluster: Arc<Cluster>,
    pub logs: Arc<Logs>,
    pub clock: Arc<dyn Clock>,
    pub groups: Arc<GroupCoordinator>,
    pub transactions: Arc<TransactionCoordinator>,
    pub markers: Arc<LogMarkers>,
}

/// Log lines a second for refused connections: a scanner must not fill the disk.
const REFUSAL_LINES_PER_SECOND: u32 = 10;

impl Context {
    pub fn new(parts: Parts, registry: &Registry, stopping: watch::Receiver<bool>) -> Self {
        let Parts { config, cluster, logs, clock, groups, transactions, markers } = parts;
        let sessions = Mutex::new(FetchSessions::new(config.max_incremental_fetch_session_cache_slots));
        let events = Events::new(registry, APIS.iter().map(|api| api.name));
        let refusals = RateLimited::per_second(REFUSAL_LINES_PER_SECOND);
        let lag = Sampler::default();
        let verifies_transactions = AtomicBool::new(config.transaction_partition_verification_enable);
        Self {
            verifies_transactions,
            config,
            cluster,
            logs,
            clock,
            groups,
            transactions,
            markers,
            sessions,
            events,
            lag,
            stopping,
            refusals,
        }
    }

    pub fn now(&self) -> Millis {
        self.clock.now()
    }

    pub fn image(&self) -> Arc<Image> {
        self.cluster.image()
    }

    /// The log of a partition that this broker leads. By id where one is given, else by name.
    pub fn leader_log(&self, name: &str, id: TopicId, index: PartitionIndex) -> Result<Arc<PartitionLog>, ErrorCode> {
        let image = self.image();
        let topic = find(&image, name, id)?;
        self.led(topic, index).map(|(log, _)| log)
    }

    /// The same, held against the leader epoch that the client believes in (−1: no check): an older one is fenced (KIP-320).
    pub fn leader_at_epoch(
        &self,
        name: &str,
        id: TopicId,
        index: PartitionIndex,
        believed: LeaderEpoch,
    ) -> Result<(Arc<PartitionLog>, LeaderEpoch), ErrorCode> {
        let image = self.image();
        let topic = find(&image, name, id)?;
        let (log, current) = self.led(topic, index)?;
        check_epoch(believed, current)?;
        Ok((log, current))
    }

    /// A partition of a topic that has been found, if it is led from here.
    pub fn led(&self, topic: &Topic, index: PartitionIndex) -> Result<(Arc<PartitionLog>, LeaderEpoch), ErrorCode> {
        let at = usize::try_from(index.0).map_err(|_| ErrorCode::UnknownTopicOrPartition)?;
        let state = topic.partitions.get(at).ok_or(ErrorCode::UnknownTopicOrPartition)?;
        if state.leader != self.config.node_id {
            return Err(ErrorCode::NotLeaderOrFollower);
        }
        let log = self.logs.get(topic.id, index).ok_or(ErrorCode::KafkaStorageError)?;
        Ok((log, state.leader_epoch))
    }
}

/// A topic by its id where one is given, else by its name.
pub fn find<'a>(image: &'a Image, name: &str, id: TopicId) -> Result<&'a Arc<Topic>, ErrorCode> {
    if id.is_zero() {
        image.topic(name).ok_or(ErrorCode::UnknownTopicOrPartition)
    } else {
        image.topic_by_id(id).ok_or(ErrorCode::UnknownTopicId)
    }
}

/// What a client believes the leader epoch to be against what it is.
pub fn check_epoch(believed: LeaderEpoch, current: LeaderEpoch) -> Result<(), ErrorCode> {
    match believed.cmp(&current) {
        _ if believed == LeaderEpoch::NONE => Ok(()),
        std::cmp::Ordering::Less => Err(ErrorCode::FencedLeaderEpoch),
        std::cmp::Ordering::Equal => Ok(()),
        std::cmp::Ordering::Greater => Err(ErrorCode::UnknownLeaderEpoch),
    }
}

impl Service for ContextService {
    fn frame_bytes_max(&self, prelude: Option<Prelude>) -> usize {
        let max = self.0.config.socket_request_max_bytes;
        let Some(prelude) = prelude else { return max };
        place_of(prelude.api_key).and_then(at).map_or(UNKNOWN_FRAME_BYTES_MAX, |api| api.frame_bytes_max(max))
    }

    fn handle(&self, connection: &Arc<ConnectionInfo>, frame: Bytes) -> (usize, Result<Answer, Refusal>) {
        dispatch(&self.0, connection, frame)
    }

    fn sent(&self, answered: &Answered) {
        let Answered { api, error, times, request_bytes, response_bytes } = *answered;
        self.0.events.received(request_bytes);
        self.0.events.sent(response_bytes);
        self.0.events.request_bytes(api, request_bytes, response_bytes);
        self.0.events.request_done(api, error, times);
    }

    fn refused(&self, connection: &ConnectionInfo, frame: &[u8], refusal: &Refusal) {
        if let Some(fault) = fault(refusal) {
            self.0.events.frame_rejected(fault);
        }
        let Some(suppressed) = self.0.refusals.admit("refused", self.0.now()) else { return };
        let prelude = Prelude::peek(frame);
        let api = prelude
            .map_or_else(|| "-".to_owned(), |p| place_of(p.api_key).and_then(at).map_or(p.api_key.to_string(), |a| a.name.to_owned()));
        tracing::warn!(
            peer = %connection.peer,
            client_id = client_id_text(peek_client_id(frame)),
            api,
            version = prelude.map_or(-1, |p| p.api_version),
            suppressed,
            "closed a connection: {refusal}"
        );
    }

    fn opened(&self) {
        self.0.events.connection_opened();
    }

    fn closed(&self, reason: CloseReason) {
        self.0.events.connection_closed(reason);
    }

    fn turned_away(&self, peer: SocketAddr, reason: RejectReason) {
        self.0.events.connection_rejected(reason);
        if let Some(suppressed) = self.0.refusals.admit("turned away", self.0.now()) {
            tracing::warn!(%peer, suppressed, "refused a connection: {} is reached", reason.name().replace('_', "."));
        }
    }
}

/// The broker as connections see it.
pub struct ContextService(pub Arc<Context>);

fn fault(refusal: &Refusal) -> Option<FrameFault> {
    Some(match refusal {
        Refusal::Malformed(_) => FrameFault::Malformed,
        Refusal::FrameLength { len, .. } if *len < 0 => FrameFault::NegativeLength,
        Refusal::FrameLength { len, max } if *len > i64::try_from(*max).unwrap_or(i64::MAX) => FrameFault::TooLarge,
        Refusal::FrameLength { .. } => FrameFault::BadHeader,
        Refusal::UnknownApi(_) => FrameFault::UnknownApi,
        Refusal::UnsupportedVersion { .. } => FrameFault::UnknownVersion,
        Refusal::Unacknowledged(_) | Refusal::Encode(_) | Refusal::OutOfMemory(_) | Refusal::Slow { .. } => return None,
    })
}
