//! What tools ask of groups: ListGroups and DescribeGroups.

use super::{Groups, InstanceId, Member, MemberId, State};
use bytes::Bytes;
use std::sync::Arc;

/// A group in a list.
#[derive(Clone, PartialEq, Debug)]
pub struct Listed {
    pub group: Arc<str>,
    pub protocol_type: Arc<str>,
    pub state: State,
}

/// A group with its members.
#[derive(Clone, PartialEq, Debug)]
pub struct Described {
    pub state: State,
    pub protocol_type: Arc<str>,
    /// The protocol, once the group is stable.
    pub protocol: Arc<str>,
    pub members: Vec<DescribedMember>,
}

#[derive(Clone, PartialEq, Debug)]
pub struct DescribedMember {
    pub member_id: MemberId,
    pub instance_id: Option<InstanceId>,
    pub client_id: Arc<str>,
    pub client_host: Arc<str>,
    /// Empty unless the group is stable.
    pub metadata: Bytes,
    pub assignment: Bytes,
}

impl Groups {
    /// `None` if it isn't there.
    pub fn describe(&self, group: &str) -> Option<Described> {
        let classic = self.get(group)?.classic();
        let stable = classic.state() == State::Stable;
        let protocol = classic.protocol().filter(|_| stable).cloned().unwrap_or_else(|| "".into());
        let describe = |member: &Member| DescribedMember {
            member_id: member.id.clone(),
            instance_id: member.instance_id.clone(),
            client_id: member.client_id.clone(),
            client_host: member.client_host.clone(),
            metadata: if stable { member.metadata(&protocol).cloned().unwrap_or_default() } else { Bytes::new() },
            assignment: member.assignment.clone(),
        };
        let members = classic.members().map(describe).collect();
        Some(Described {
            state: classic.state(),
            protocol_type: classic.protocol_type().cloned().unwrap_or_else(|| "".into()),
            protocol,
            members,
        })
    }

    pub fn list(&self) -> impl Iterator<Item = Listed> {
        self.iter().map(|(id, group)| Listed {
            group: id.clone(),
            protocol_type: group.classic().protocol_type().cloned().unwrap_or_else(|| "".into()),
            state: group.classic().state(),
        })
    }
}
