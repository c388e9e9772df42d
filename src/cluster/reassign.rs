//! Which replicas a partition is to have, and which of them is to lead it (`ReplicationControlManager`): what clients may ask of an image. Pure.
//!
//! Checks, their order and their texts are Kafka's. The brokers that are registered bound what can be asked for: with one of them a partition that
//! passes has what it asks for already, so nothing is ever on its way, and no record comes of any of this.

use super::{
    admin::AdminError,
    image::{Image, PartitionState, Topic},
};
use crate::types::{BrokerId, ErrorCode, PartitionIndex};

/// The replicas that one partition is to have.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Reassignment<'a> {
    pub topic: &'a str,
    pub partition: PartitionIndex,
    /// `None` cancels what is on its way.
    pub replicas: Option<Vec<BrokerId>>,
}

/// Why a partition keeps the replicas that it has.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum ReassignError {
    #[error("Unable to find a topic named {0}.")]
    NoTopic(String),
    #[error("Unable to find partition {0}:{1}.")]
    NoPartition(String, PartitionIndex),
    #[error("No partition reassignment is in progress.")]
    NotInProgress,
    #[error(transparent)]
    Assignment(#[from] AdminError),
    #[error("The replication factor is changed from {from} to {to}")]
    ReplicationFactor { from: usize, to: usize },
    /// More than one broker is needed for that, and the image has no way to note it.
    #[error("Replicas can't be moved from {from:?} to {to:?}.")]
    Unmovable { from: Vec<BrokerId>, to: Vec<BrokerId> },
}

impl From<&ReassignError> for ErrorCode {
    fn from(error: &ReassignError) -> Self {
        match error {
            ReassignError::NoTopic(_) | ReassignError::NoPartition(..) => Self::UnknownTopicOrPartition,
            ReassignError::NotInProgress => Self::NoReassignmentInProgress,
            ReassignError::Assignment(error) => Self::from(error),
            ReassignError::ReplicationFactor { .. } => Self::InvalidReplicationFactor,
            ReassignError::Unmovable { .. } => Self::InvalidReplicaAssignment,
        }
    }
}

/// Who may become a partition's leader (`ElectionType`).
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Election {
    /// The first of its replicas.
    Preferred,
    /// A replica that isn't in sync, where there is no leader.
    Unclean,
}

impl Election {
    pub fn from_wire(kind: i8) -> Option<Self> {
        match kind {
            0 => Some(Self::Preferred),
            1 => Some(Self::Unclean),
            _ => None,
        }
    }
}

/// Why a partition keeps the leader that it has, or none.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum ElectError {
    #[error("No such topic as {0}")]
    NoTopic(String),
    #[error("No such partition as {0}-{1}")]
    NoPartition(String, PartitionIndex),
    #[error("Leader election not needed for topic partition.")]
    NotNeeded,
    #[error("The preferred leader was not available.")]
    PreferredNotAvailable,
    #[error("Eligible topic partition leaders are not available.")]
    NoneEligible,
}

impl From<&ElectError> for ErrorCode {
    fn from(error: &ElectError) -> Self {
        match error {
            ElectError::NoTopic(_) | ElectError::NoPartition(..) => Self::UnknownTopicOrPartition,
            ElectError::NotNeeded => Self::ElectionNotNeeded,
            ElectError::PreferredNotAvailable => Self::PreferredLeaderNotAvailable,
            ElectError::NoneEligible => Self::EligibleLeadersNotAvailable,
        }
    }
}

impl Image {
    /// Whether a partition has the replicas that it is asked to have. `may_resize`: it may be more or fewer of them (KIP-860).
    pub fn check_reassignment(&self, asked: &Reassignment<'_>, may_resize: bool) -> Result<(), ReassignError> {
        let name = || shown(asked.topic);
        let topic = self.topic(asked.topic).ok_or_else(|| ReassignError::NoTopic(name()))?;
        let state = topic.partition(asked.partition).ok_or_else(|| ReassignError::NoPartition(name(), asked.partition))?;
        let to = asked.replicas.as_ref().ok_or(ReassignError::NotInProgress)?;
        self.check_assignment(to, None)?;
        if !may_resize && to.len() != state.replicas.len() {
            return Err(ReassignError::ReplicationFactor { from: state.replicas.len(), to: to.len() });
        }
        if *to == state.replicas { Ok(()) } else { Err(ReassignError::Unmovable { from: state.replicas.clone(), to: to.clone() }) }
    }

    /// Why no leader is elected: there is one that does, or there is no one. `leads` says whether a partition's leader can be used.
    pub fn check_election(
        &self,
        name: &str,
        partition: PartitionIndex,
        election: Election,
        leads: impl FnOnce(&Topic, PartitionIndex) -> bool,
    ) -> ElectError {
        let Some(topic) = self.topic(name) else { return ElectError::NoTopic(shown(name)) };
        let Some(state) = topic.partition(partition) else { return ElectError::NoPartition(shown(name), partition) };
        elect(state, election, leads(topic, partition))
    }
}

fn elect(state: &PartitionState, election: Election, leads: bool) -> ElectError {
    let is_preferred = state.replicas.first() == Some(&state.leader);
    match election {
        Election::Preferred if leads && is_preferred => ElectError::NotNeeded,
        Election::Preferred => ElectError::PreferredNotAvailable,
        Election::Unclean if leads => ElectError::NotNeeded,
        Election::Unclean => ElectError::NoneEligible,
    }
}

/// A peer's text in a message: not more of it than helps.
fn shown(name: &str) -> String {
    name.chars().take(256).collect()
}
