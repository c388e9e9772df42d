//! What groups keep: the records of `__consumer_offsets` in their meaning. Their bytes are `coordinator::records`' business.

use super::{
    Committed, Epoch, Generation, GroupId, InstanceId, MemberId,
    classic::command::{Protocol, metadata_bytes},
    consumer::{MemberState, Owned, Partitions},
};
use crate::types::{Millis, TopicPartition};
use bytes::Bytes;
use std::{collections::BTreeSet, sync::Arc};

/// One record. `None` is a tombstone.
#[derive(Clone, PartialEq, Debug)]
pub enum Record {
    /// An offset that was committed, or forgotten.
    Offset { group: GroupId, partition: TopicPartition, value: Option<Committed> },
    /// A classic group as it became stable or empty, or was deleted.
    Group { group: GroupId, value: Option<GroupMetadata> },
    /// Something of a consumer group (KIP-848).
    Consumer { group: GroupId, record: ConsumerRecord },
}

impl Record {
    pub fn group(&self) -> &GroupId {
        match self {
            Self::Offset { group, .. } | Self::Group { group, .. } | Self::Consumer { group, .. } => group,
        }
    }
}

/// A record of a consumer group. `None` is a tombstone.
#[derive(Clone, PartialEq, Debug)]
pub enum ConsumerRecord {
    /// `ConsumerGroupMetadata` (key 3).
    Group(Option<ConsumerGroupMetadata>),
    /// `ConsumerGroupPartitionMetadata` (key 4): of Kafka before 4.1. Only its tombstone is written, when a group is deleted, and a value is
    /// passed over.
    NoPartitionMetadata,
    /// `ConsumerGroupMemberMetadata` (key 5).
    Member(MemberId, Option<ConsumerMemberMetadata>),
    /// `ConsumerGroupTargetAssignmentMetadata` (key 6).
    TargetMetadata(Option<TargetMetadata>),
    /// `ConsumerGroupTargetAssignmentMember` (key 7).
    Target(MemberId, Option<Partitions>),
    /// `ConsumerGroupCurrentMemberAssignment` (key 8).
    Current(MemberId, Option<CurrentAssignment>),
    /// `ConsumerGroupRegularExpression` (key 16).
    Regex(Arc<str>, Option<ResolvedRegex>),
}

impl ConsumerRecord {
    pub fn is_tombstone(&self) -> bool {
        match self {
            Self::Group(value) => value.is_none(),
            Self::NoPartitionMetadata => true,
            Self::Member(_, value) => value.is_none(),
            Self::TargetMetadata(value) => value.is_none(),
            Self::Target(_, value) => value.is_none(),
            Self::Current(_, value) => value.is_none(),
            Self::Regex(_, value) => value.is_none(),
        }
    }
}

/// `ConsumerGroupMetadataValue`.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct ConsumerGroupMetadata {
    pub epoch: Epoch,
    /// Of the topics that the group subscribes to: when it differs they have changed.
    pub metadata_hash: i64,
}

/// `ConsumerGroupMemberMetadataValue`.
#[derive(Clone, PartialEq, Debug)]
pub struct ConsumerMemberMetadata {
    pub instance_id: Option<InstanceId>,
    pub rack_id: Option<Arc<str>>,
    pub client_id: Arc<str>,
    pub client_host: Arc<str>,
    pub subscribed_topic_names: BTreeSet<Arc<str>>,
    /// Never empty.
    pub subscribed_topic_regex: Option<Arc<str>>,
    pub rebalance_timeout_ms: i32,
    pub server_assignor: Option<Arc<str>>,
    /// Of a member that speaks the classic protocol.
    pub classic: Option<ClassicMemberMetadata>,
}

impl ConsumerMemberMetadata {
    /// What it takes of memory, about.
    pub(super) fn bytes(&self) -> usize {
        const OVERHEAD_BYTES: usize = 64;
        let optional = [&self.instance_id, &self.rack_id, &self.subscribed_topic_regex, &self.server_assignor].into_iter().flatten();
        let texts = self.subscribed_topic_names.iter().chain(optional).chain([&self.client_id, &self.client_host]);
        let classic = self.classic.as_ref().map_or(0, |classic| metadata_bytes(&classic.protocols));
        texts.map(|text| text.len().saturating_add(OVERHEAD_BYTES)).fold(classic, usize::saturating_add)
    }
}

/// `ClassicMemberMetadata` of a `ConsumerGroupMemberMetadataValue`.
#[derive(Clone, PartialEq, Debug)]
pub struct ClassicMemberMetadata {
    pub session_timeout_ms: i32,
    pub protocols: Arc<[Protocol]>,
}

/// `ConsumerGroupTargetAssignmentMetadataValue`.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct TargetMetadata {
    pub assignment_epoch: Epoch,
    /// When it was computed (KIP-1263); 0 in records of old, and where the next one need not wait.
    pub assignment_timestamp: Millis,
}

/// `ConsumerGroupCurrentMemberAssignmentValue`.
#[derive(Clone, PartialEq, Debug)]
pub struct CurrentAssignment {
    pub member_epoch: Epoch,
    pub previous_member_epoch: Epoch,
    pub state: MemberState,
    /// With the epoch at which each was assigned (KIP-1251); the member's epoch in records that don't say.
    pub assigned: Owned,
    pub pending_revocation: Owned,
}

/// `ConsumerGroupRegularExpressionValue`.
#[derive(Clone, PartialEq, Debug)]
pub struct ResolvedRegex {
    pub topics: BTreeSet<Arc<str>>,
    /// Of the metadata that it was resolved against.
    pub version: i64,
    pub timestamp: Millis,
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
