//! Consumer groups: what members and offsets a group has, decided and applied. Never sees a socket, a clock, a file or randomness.
//!
//! [`Groups`] is one shard: the groups of one partition of `__consumer_offsets`. Its methods are of three kinds:
//!
//! - `decide_*`: from the state and a command to a [`Decision`]: records to append, the change of what is only in memory, and replies.
//!   They take `&self`; a decision that is dropped (its records could not be written) has changed nothing.
//! - [`Groups::apply`] and [`Groups::apply_volatile`]: the only ones that change anything. `apply` is the same for a record that was just
//!   decided and for one that is read back after a restart.
//! - queries: [`Groups::describe`], [`Groups::list`], [`Groups::fetch_offsets`] …
//!
//! What a group is lies in records (members with their assignment in a generation, committed offsets). Who waits for whom in a rebalance
//! and every deadline is only in memory: after a restart members go on in the last generation that became stable.
//!
//! Behaviour is that of Apache Kafka's `GroupMetadataManager`, `ClassicGroup` and `OffsetMetadataManager`.

mod beats;
pub mod classic;
pub mod consumer;
mod describe;
mod groups;
mod offsets;
mod pending;
mod record;
mod story;
mod subscription;
#[cfg(test)]
mod tests;
mod topics;
mod watched;

pub use classic::{
    Cause, Classic, Joined, LeaveMember, Left, Member, Note, State, Synced, Who,
    command::{Identity, Join, JoinedMember, Leave, Protocol, Sync},
};
pub use consumer::{Assignor, Assignors, ConsumerState, MigrationPolicy};
pub use describe::{ConsumerDescribed, ConsumerDescribedMember, Described, DescribedMember, DescribedTopic, Kind, Listed};
pub use groups::{Group, Groups};
pub use offsets::{Commit, CommitPartition, Committed};
pub use record::{
    ClassicMemberMetadata, ConsumerGroupMetadata, ConsumerMemberMetadata, ConsumerRecord, CurrentAssignment, GroupMetadata, MemberMetadata,
    Record, ResolvedRegex, TargetMetadata,
};
pub use story::{End, JoinPhase, Rebalance, Story, UNOWNED_MAX, names};
pub use topics::{NoTopics, Topic, Topics};
pub use watched::{Watched, WatchedMember};

use crate::types::{ErrorCode, Millis};
use beats::Beats;
use std::sync::Arc;

/// A group's name (`group.id`).
pub type GroupId = Arc<str>;
/// A member's name, given by the coordinator.
pub type MemberId = Arc<str>;
/// A static member's name, given by its user (`group.instance.id`, KIP-345).
pub type InstanceId = Arc<str>;

/// What the members of one group may say of themselves together: subscriptions and protocols. Far more than any that becomes stable needs,
/// since that has to fit into a record; so a group of members that only take room is full (GROUP_MAX_SIZE_REACHED).
const METADATA_BYTES_MAX: usize = 16 << 20;

/// The generation of a classic group: raised by every rebalance; −1 for none.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Default)]
pub struct Generation(pub i32);

impl Generation {
    /// What requests carry that belong to no member.
    pub const NONE: Self = Self(-1);
}

/// The epoch of a consumer group, of its target assignment or of a member: raised by every change of what is assigned.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Default)]
pub struct Epoch(pub i32);

impl Epoch {
    /// What a member sends that joins.
    pub const JOIN: Self = Self(0);
    /// What a member sends that leaves.
    pub const LEAVE: Self = Self(-1);
    /// What a static member sends that leaves and means to come back; also its epoch until it does.
    pub const STATIC_LEAVE: Self = Self(-2);

    pub(crate) fn next(self) -> Self {
        Self(self.0.saturating_add(1))
    }
}

/// The time of a decision.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Now {
    /// The wall clock: what records carry, and what offsets' age is measured by.
    pub wall: Millis,
    /// A clock that never jumps: what deadlines are measured by.
    pub steady: Millis,
}

/// What a parked request is called by: the shell gives one to each request that may have to wait.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct Ticket(pub u64);

/// An answer to a parked request.
#[derive(Clone, PartialEq, Debug)]
pub enum Reply {
    Join(Joined),
    Sync(Synced),
    Heartbeat(consumer::Heartbeaten),
    /// To a classic member's heartbeat.
    Alive(ErrorCode),
}

/// The settings that decisions depend on, named as the broker's keys.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Settings {
    pub group_min_session_timeout_ms: i32,
    pub group_max_session_timeout_ms: i32,
    pub group_initial_rebalance_delay_ms: i32,
    pub group_max_size: usize,
    /// Ours: the longest that the answer to a classic member's heartbeat is held back; 0 is not at all.
    pub group_classic_heartbeat_hold_max_ms: i32,
    /// In UTF-16 units, as Java counts them.
    pub offset_metadata_max_bytes: usize,
    pub offsets_retention_ms: i64,
    pub group_consumer_session_timeout_ms: i32,
    pub group_consumer_heartbeat_interval_ms: i32,
    pub group_consumer_max_size: usize,
    pub group_consumer_assignors: Assignors,
    pub group_consumer_migration_policy: MigrationPolicy,
    /// The target assignment is computed no more often than this (KIP-1263).
    pub group_consumer_assignment_interval_ms: i32,
    /// Ours: how soon a member is to come back that waits for partitions which others have.
    pub group_consumer_rebalance_heartbeat_interval_ms: i32,
}

/// A group's own settings (configs of the resource GROUP); the broker's where there is none.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct GroupSettings {
    pub consumer_session_timeout_ms: Option<i32>,
    pub consumer_heartbeat_interval_ms: Option<i32>,
    pub consumer_assignment_interval_ms: Option<i32>,
}

impl Default for Settings {
    fn default() -> Self {
        Self {
            group_min_session_timeout_ms: 6_000,
            group_max_session_timeout_ms: 1_800_000,
            group_initial_rebalance_delay_ms: 3_000,
            group_max_size: usize::MAX,
            group_classic_heartbeat_hold_max_ms: 8_000,
            offset_metadata_max_bytes: 4_096,
            offsets_retention_ms: 7 * 24 * 3_600_000,
            group_consumer_session_timeout_ms: 45_000,
            group_consumer_heartbeat_interval_ms: 5_000,
            group_consumer_max_size: usize::MAX,
            group_consumer_assignors: Assignors::default(),
            group_consumer_migration_policy: MigrationPolicy::Bidirectional,
            group_consumer_assignment_interval_ms: 1_000,
            group_consumer_rebalance_heartbeat_interval_ms: 500,
        }
    }
}

/// A change of what is only in memory.
#[derive(Clone, Debug)]
pub enum Volatile {
    /// The group's classic state is this one now.
    Classic(GroupId, Box<Classic>),
    /// A member was heard of: its session lasts until then. `beats` where it was its heartbeat.
    Alive { group: GroupId, member: MemberId, deadline: Millis, beats: Option<Beats> },
    /// Heartbeats of a classic group's members that were held back are answered.
    Beats { group: GroupId, changed: Vec<(MemberId, Beats)> },
    /// What is only in memory of a consumer group is this now.
    Consumer(GroupId, Box<consumer::Memory>),
    /// The same for some of its members.
    Timers { group: GroupId, changed: Vec<(MemberId, consumer::Timers)> },
}

impl Volatile {
    /// The group whose next deadline may have come nearer. A classic heartbeat that isn't held back only moves it away, which can wait until
    /// the deadline of before comes.
    pub fn rearms(&self) -> Option<&GroupId> {
        match self {
            Self::Classic(group, _) | Self::Consumer(group, _) | Self::Timers { group, .. } => Some(group),
            Self::Alive { group, beats, .. } => beats.and_then(|beats| beats.held).map(|_| group),
            Self::Beats { .. } => None,
        }
    }
}

/// What a command comes to.
#[derive(Clone, Debug)]
#[must_use = "a decision changes nothing until it is applied"]
pub struct Decision<R> {
    /// The answer to the command, to be given once the records are committed.
    pub reply: R,
    /// To be appended as one batch, then applied in order.
    pub records: Vec<Record>,
    /// To be applied after the records.
    pub volatile: Option<Volatile>,
    /// Answers to requests that wait, to be given once the records are committed.
    pub replies: Vec<(Ticket, Reply)>,
    /// What happened: for logs, and for the group's story.
    pub notes: Vec<Note>,
    /// The change in memory holds even if the records can't be written: they say only that a group has no members, which a restart finds
    /// out by itself.
    pub records_may_fail: bool,
}

impl<R> Decision<R> {
    /// An answer that changes nothing.
    pub fn only(reply: R) -> Self {
        Self { reply, records: Vec::new(), volatile: None, replies: Vec::new(), notes: Vec::new(), records_may_fail: false }
    }

    /// The same decision with another answer.
    pub fn with_reply<S>(self, reply: S) -> Decision<S> {
        let Self { records, volatile, replies, notes, records_may_fail, .. } = self;
        Decision { reply, records, volatile, replies, notes, records_may_fail }
    }
}
