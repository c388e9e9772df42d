//! What members of classic groups ask for, as commands.

use crate::{
    group::{Generation, GroupId, InstanceId, MemberId, Ticket},
    types::ErrorCode,
};
use bytes::Bytes;
use std::{collections::BTreeMap, sync::Arc};

/// A protocol (an assignor) that a member supports, and what it tells the leader under it.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Protocol {
    pub name: Arc<str>,
    pub metadata: Bytes,
}

/// What a member's protocols take of memory, about.
pub(in crate::group) fn metadata_bytes(protocols: &[Protocol]) -> usize {
    const OVERHEAD_BYTES: usize = 64;
    let each = |protocol: &Protocol| protocol.name.len().saturating_add(protocol.metadata.len()).saturating_add(OVERHEAD_BYTES);
    protocols.iter().map(each).fold(0, usize::saturating_add)
}

/// JoinGroup.
#[derive(Clone, Debug)]
pub struct Join {
    pub group: GroupId,
    /// Empty for one that has none yet.
    pub member_id: MemberId,
    pub instance_id: Option<InstanceId>,
    pub client_id: Arc<str>,
    pub client_host: Arc<str>,
    pub session_timeout_ms: i32,
    pub rebalance_timeout_ms: i32,
    pub protocol_type: Arc<str>,
    /// By preference; names are distinct.
    pub protocols: Arc<[Protocol]>,
    /// What the client says why it joins (KIP-800).
    pub reason: Option<Arc<str>>,
    /// Version 4 and later: a new member must come back with the id that it is given (KIP-394).
    pub requires_known_member_id: bool,
    /// Version 9 and later (KIP-814).
    pub supports_skipping_assignment: bool,
    /// The id that it gets if it is new.
    pub fresh_id: MemberId,
    pub ticket: Ticket,
}

/// Who a request says that it is from.
#[derive(Clone, Debug)]
pub struct Identity {
    pub group: GroupId,
    pub member_id: MemberId,
    pub instance_id: Option<InstanceId>,
    pub generation: Generation,
}

/// SyncGroup.
#[derive(Clone, Debug)]
pub struct Sync {
    pub from: Identity,
    pub protocol_type: Option<Arc<str>>,
    pub protocol: Option<Arc<str>>,
    /// What the leader gives to each; empty from others.
    pub assignments: BTreeMap<MemberId, Bytes>,
    pub ticket: Ticket,
}

/// LeaveGroup.
#[derive(Clone, Debug)]
pub struct Leave {
    pub group: GroupId,
    pub members: Vec<LeaveMember>,
}

/// One who leaves, or is removed by its instance id.
#[derive(Clone, PartialEq, Debug)]
pub struct LeaveMember {
    /// Empty where an administrator names the instance alone.
    pub member_id: MemberId,
    pub instance_id: Option<InstanceId>,
    pub reason: Option<Arc<str>>,
}

/// What became of one who leaves.
#[derive(Clone, PartialEq, Debug)]
pub struct Left {
    pub member_id: MemberId,
    pub instance_id: Option<InstanceId>,
    pub error: ErrorCode,
}

/// The answer to a JoinGroup.
#[derive(Clone, PartialEq, Debug)]
pub struct Joined {
    pub error: ErrorCode,
    pub generation: Generation,
    pub protocol_type: Option<Arc<str>>,
    pub protocol: Option<Arc<str>>,
    /// Empty where there is none.
    pub leader: MemberId,
    pub skip_assignment: bool,
    pub member_id: MemberId,
    /// For the leader: all members, with what they told under the protocol that was chosen.
    pub members: Vec<JoinedMember>,
}

/// A member as the leader sees it.
#[derive(Clone, PartialEq, Debug)]
pub struct JoinedMember {
    pub member_id: MemberId,
    pub instance_id: Option<InstanceId>,
    pub metadata: Bytes,
}

impl Joined {
    pub fn error(error: ErrorCode, member_id: MemberId) -> Self {
        Self {
            error,
            generation: Generation::NONE,
            protocol_type: None,
            protocol: None,
            leader: "".into(),
            skip_assignment: false,
            member_id,
            members: Vec::new(),
        }
    }
}

/// The answer to a SyncGroup.
#[derive(Clone, PartialEq, Debug)]
pub struct Synced {
    pub error: ErrorCode,
    pub protocol_type: Option<Arc<str>>,
    pub protocol: Option<Arc<str>>,
    pub assignment: Bytes,
}

impl Synced {
    pub fn error(error: ErrorCode) -> Self {
        Self { error, protocol_type: None, protocol: None, assignment: Bytes::new() }
    }
}
