//! What groups keep: the records of `__consumer_offsets` in their meaning. Their bytes are `coordinator::records`' business.

use super::{Committed, Generation, GroupId, InstanceId, MemberId};
use crate::types::{Millis, TopicPartition};
use bytes::Bytes;
use std::sync::Arc;

/// One record. `None` is a tombstone.
#[derive(Clone, PartialEq, Debug)]
pub enum Record {
    /// An offset that was committed, or forgotten.
    Offset { group: GroupId, partition: TopicPartition, value: Option<Committed> },
    /// A classic group as it became stable or empty, or was deleted.
    Group { group: GroupId, value: Option<GroupMetadata> },
}

impl Record {
    pub fn group(&self) -> &GroupId {
        match self {
            Self::Offset { group, .. } | Self::Group { group, .. } => group,
        }
    }
}

/// `GroupMetadataValue`: a classic group in a generation.
#[derive(Clone, PartialEq, Debug)]
pub struct GroupMetadata {
    /// Empty for a group that never had members.
    pub protocol_type: Arc<str>,
    pub generation: Generation,
    pub protocol: Option<Arc<str>>,
    pub leader: Option<MemberId>,
    /// When the group came into its state; `None` in records of old.
    pub state_since: Option<Millis>,
    pub members: Vec<MemberMetadata>,
}

/// A member of a [`GroupMetadata`].
#[derive(Clone, PartialEq, Debug)]
pub struct MemberMetadata {
    pub member_id: MemberId,
    pub instance_id: Option<InstanceId>,
    pub client_id: Arc<str>,
    pub client_host: Arc<str>,
    /// −1 in records of old: the session timeout.
    pub rebalance_timeout_ms: i32,
    pub session_timeout_ms: i32,
    /// The metadata that goes with the group's protocol.
    pub subscription: Bytes,
    pub assignment: Bytes,
}
