//! A group of the consumer protocol (KIP-848): the coordinator assigns, and each member is led to its assignment by its heartbeats.
//!
//! ```text
//! a member joins, leaves, changes │ group epoch     raised: what is assigned has to be thought over
//! the assignor has run            │ target epoch    = group epoch: what each member shall own in the end
//! each member, one after another  │ member epoch    = target epoch: it has let go what it must, and gets what others let go
//! ```
//!
//! [`Consumer`] is the state. All of it but [`Timers`] lies in records and is changed by [`Consumer::apply`] alone. Members that speak the
//! classic protocol may be among the members while a group migrates from one protocol to the other.

mod assignor;
mod classic;
pub mod command;
mod draft;
mod heartbeat;
mod leave;
mod migrate;
mod offsets;
mod pace;
pub(super) mod planted;
mod reconcile;
mod regex;
mod state;
mod target;
mod tick;

pub use command::{Heartbeat, Heartbeaten};
pub(super) use draft::{ConsumerDraft, Surroundings};
pub(super) use heartbeat::decide_heartbeat;
pub use state::{Consumer, Memory};

use super::{ClassicMemberMetadata, ConsumerMemberMetadata, CurrentAssignment, Epoch, MemberId, Ticket, Who, beats::Beats};
use crate::types::{Millis, PartitionIndex, TopicId};
use std::{
    collections::{BTreeMap, BTreeSet},
    fmt,
    sync::Arc,
};

/// Partitions by topic. No set in it is empty.
pub type Partitions = BTreeMap<TopicId, BTreeSet<PartitionIndex>>;
/// Partitions that a member owns, each with the epoch at which it got it. No map in it is empty.
pub type Owned = BTreeMap<TopicId, BTreeMap<PartitionIndex, Epoch>>;

/// `MemberState`: how far a member is on its way to its target assignment.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum MemberState {
    /// It has all that it shall own.
    #[default]
    Stable,
    /// It was told to let go of partitions, and has not said yet that it did.
    UnrevokedPartitions,
    /// It waits for partitions that others own.
    UnreleasedPartitions,
    /// A newer coordinator's.
    Unknown,
}

impl MemberState {
    /// The number in records.
    pub fn code(self) -> i8 {
        match self {
            Self::Stable => 0,
            Self::UnrevokedPartitions => 1,
            Self::UnreleasedPartitions => 2,
            Self::Unknown => 127,
        }
    }

    pub fn from_code(code: i8) -> Self {
        match code {
            0 => Self::Stable,
            1 => Self::UnrevokedPartitions,
            2 => Self::UnreleasedPartitions,
            _ => Self::Unknown,
        }
    }
}

/// `ConsumerGroupState`, but for Dead: a group that is gone isn't there.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum ConsumerState {
    #[default]
    Empty,
    /// The group has changed, and its target assignment not yet.
    Assigning,
    /// Members are on their way to the target assignment.
    Reconciling,
    Stable,
}

impl ConsumerState {
    /// Kafka's name of it.
    pub fn name(self) -> &'static str {
        match self {
            Self::Empty => "Empty",
            Self::Assigning => "Assigning",
            Self::Reconciling => "Reconciling",
            Self::Stable => "Stable",
        }
    }
}

impl fmt::Display for ConsumerState {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

/// A server-side assignor (`group.consumer.assignors`).
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub enum Assignor {
    Uniform,
    Range,
}

impl Assignor {
    pub const ALL: [Self; 2] = [Self::Uniform, Self::Range];

    pub fn name(self) -> &'static str {
        match self {
            Self::Uniform => "uniform",
            Self::Range => "range",
        }
    }

    pub fn from_name(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|assignor| assignor.name() == name)
    }
}

/// The assignors that members may ask for. The first is the one of members that ask for none.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Assignors {
    pub default: Assignor,
    pub other: Option<Assignor>,
}

impl Default for Assignors {
    fn default() -> Self {
        Self { default: Assignor::Uniform, other: Some(Assignor::Range) }
    }
}

impl Assignors {
    pub fn iter(&self) -> impl Iterator<Item = Assignor> {
        std::iter::once(self.default).chain(self.other)
    }
}

/// `group.consumer.migration.policy`: whether groups with members may change their protocol.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum MigrationPolicy {
    #[default]
    Bidirectional,
    Upgrade,
    Downgrade,
    Disabled,
}

impl MigrationPolicy {
    pub const ALL: [Self; 4] = [Self::Bidirectional, Self::Upgrade, Self::Downgrade, Self::Disabled];

    pub fn name(self) -> &'static str {
        match self {
            Self::Bidirectional => "bidirectional",
            Self::Upgrade => "upgrade",
            Self::Downgrade => "downgrade",
            Self::Disabled => "disabled",
        }
    }

    pub(super) fn upgrades(self) -> bool {
        matches!(self, Self::Bidirectional | Self::Upgrade)
    }

    pub(super) fn downgrades(self) -> bool {
        matches!(self, Self::Bidirectional | Self::Downgrade)
    }
}

/// A member.
#[derive(Clone, PartialEq, Debug)]
pub struct ConsumerMember {
    pub id: MemberId,
    pub metadata: ConsumerMemberMetadata,
    pub epoch: Epoch,
    /// The last epoch before: an answer that was lost may have raised it.
    pub previous_epoch: Epoch,
    pub state: MemberState,
    pub assigned: Owned,
    /// What it was told to let go of.
    pub pending_revocation: Owned,
}

impl ConsumerMember {
    /// One that has just come.
    pub(super) fn new(id: MemberId) -> Self {
        Self {
            id,
            metadata: ConsumerMemberMetadata {
                instance_id: None,
                rack_id: None,
                client_id: "".into(),
                client_host: "".into(),
                subscribed_topic_names: BTreeSet::new(),
                subscribed_topic_regex: None,
                rebalance_timeout_ms: -1,
                server_assignor: None,
                classic: None,
            },
            epoch: Epoch(0),
            previous_epoch: Epoch(-1),
            state: MemberState::Stable,
            assigned: Owned::new(),
            pending_revocation: Owned::new(),
        }
    }

    pub fn who(&self) -> Who {
        let ConsumerMemberMetadata { instance_id, client_id, client_host, .. } = &self.metadata;
        Who { member: self.id.clone(), instance: instance_id.clone(), client_id: client_id.clone(), host: client_host.clone() }
    }

    /// `None` for one that speaks the consumer protocol.
    pub fn classic(&self) -> Option<&ClassicMemberMetadata> {
        self.metadata.classic.as_ref()
    }

    /// Its regular expression, if it subscribes by one.
    pub fn regex(&self) -> Option<&Arc<str>> {
        self.metadata.subscribed_topic_regex.as_ref()
    }

    /// Whether more than its epoch is another.
    pub(super) fn differs_in_partitions(&self, from: &Self) -> bool {
        self.state != from.state || self.assigned != from.assigned || self.pending_revocation != from.pending_revocation
    }

    pub(super) fn is_reconciled_to(&self, target: Epoch) -> bool {
        self.state == MemberState::Stable && self.epoch == target
    }

    /// All that it may still read: what it has, and what it was told to let go of and has not yet.
    pub(in crate::group) fn holds(&self) -> Partitions {
        let mut held = draft::partitions_of(&self.assigned);
        for (topic, partitions) in draft::partitions_of(&self.pending_revocation) {
            held.entry(topic).or_default().extend(partitions);
        }
        held
    }

    /// What is kept of it besides its metadata.
    pub(super) fn current(&self) -> CurrentAssignment {
        CurrentAssignment {
            member_epoch: self.epoch,
            previous_member_epoch: self.previous_epoch,
            state: self.state,
            assigned: self.assigned.clone(),
            pending_revocation: self.pending_revocation.clone(),
        }
    }
}

/// A heartbeat whose answer is held back.
#[derive(Clone, Copy, PartialEq, Debug)]
pub(super) struct Held {
    pub ticket: Ticket,
    pub until: Millis,
    /// It is told all that it owns, and not only what is new.
    pub whole: bool,
}

/// What is only in memory of a member: every deadline it has, by the steady clock, and its heartbeat that waits.
#[derive(Clone, Copy, PartialEq, Debug, Default)]
pub struct Timers {
    /// When it is taken for dead.
    pub(super) session: Option<Millis>,
    /// When it must have let go of what it was told to, and the epoch it would still be in.
    pub(super) revocation: Option<(Millis, Epoch)>,
    /// Of a classic member: when it must have joined again.
    pub(super) join: Option<Millis>,
    /// Of a classic member: when it must have asked for its assignment.
    pub(super) sync: Option<Millis>,
    pub(super) held: Option<Held>,
    /// The interval that it was told last; 0 if none was.
    pub(super) told_ms: i32,
    /// Its heartbeats may be held back.
    pub(super) holds: bool,
    /// Of a classic member: its heartbeats.
    pub(super) beats: Beats,
}

impl Timers {
    fn next(&self) -> Option<Millis> {
        let revocation = self.revocation.map(|(at, _)| at);
        let held = self.held.map(|held| held.until);
        let beat = self.beats.held.map(|held| held.until);
        [self.session, revocation, self.join, self.sync, held, beat].into_iter().flatten().min()
    }
}
