//! What members of consumer groups ask for, as commands: ConsumerGroupHeartbeat and its answer.

use super::Partitions;
use crate::{
    group::{Epoch, GroupId, InstanceId, MemberId, Ticket},
    types::ErrorCode,
};
use std::{collections::BTreeSet, sync::Arc};

/// ConsumerGroupHeartbeat: a member joins ([`Epoch::JOIN`]), leaves ([`Epoch::LEAVE`], [`Epoch::STATIC_LEAVE`]), or says that it is alive
/// and what it owns. `None` is "as before".
#[derive(Clone, Debug)]
pub struct Heartbeat {
    pub group: GroupId,
    /// Empty in a version 0 join: the member gets `fresh_id`.
    pub member_id: MemberId,
    pub fresh_id: MemberId,
    pub member_epoch: Epoch,
    pub instance_id: Option<InstanceId>,
    pub rack_id: Option<Arc<str>>,
    /// −1 is "as before".
    pub rebalance_timeout_ms: i32,
    pub subscribed_topic_names: Option<BTreeSet<Arc<str>>>,
    /// Version 1 and later; empty takes the subscription back.
    pub subscribed_topic_regex: Option<Arc<str>>,
    pub server_assignor: Option<Arc<str>>,
    pub owned: Option<Partitions>,
    pub client_id: Arc<str>,
    pub client_host: Arc<str>,
    /// Version 1 and later: the member makes its own id.
    pub requires_member_id: bool,
    pub ticket: Ticket,
    /// How long the answer may be held back while there is nothing new for the member; 0 or less is not at all.
    pub hold_ms: i64,
}

/// The answer to a ConsumerGroupHeartbeat.
#[derive(Clone, PartialEq, Debug)]
pub struct Heartbeaten {
    pub error: ErrorCode,
    pub error_message: Option<Arc<str>>,
    pub member_id: Option<MemberId>,
    pub member_epoch: Epoch,
    pub heartbeat_interval_ms: i32,
    /// All that it owns; `None` is "as before".
    pub assignment: Option<Partitions>,
}

impl Heartbeaten {
    pub fn error(error: ErrorCode, message: impl Into<Arc<str>>) -> Self {
        Self {
            error,
            error_message: Some(message.into()),
            member_id: None,
            member_epoch: Epoch(0),
            heartbeat_interval_ms: 0,
            assignment: None,
        }
    }
}
