//! A group of the classic protocol: its members, its generation, and who waits for whom.
//!
//! ```text
//! Empty ──join──► PreparingRebalance ──all joined, or time is up──► CompletingRebalance ──leader's sync──► Stable
//!   ▲                 ▲      │ ▲                                          │                                  │
//!   └──no one is left─┼──────┘ └───────join, leave, session expired ──────┴──────────────────────────────────┘
//! ```
//!
//! [`Classic`] is the state, with getters; `rebalance` moves it from one state to the next, and `join`, `sync` and `leave` are the
//! requests. All work on a [`draft::Draft`]: a copy of the group that becomes the group when the decision is applied.

pub mod command;
pub(super) mod draft;
mod hold;
mod join;
mod leading;
mod leave;
mod owners;
mod rebalance;
mod sync;

pub use command::{Joined, LeaveMember, Left, Synced};

use super::{
    Generation, GroupId, GroupMetadata, InstanceId, METADATA_BYTES_MAX, MemberId, MemberMetadata, Settings, Ticket,
    beats::Beats,
    subscription::{self, CONSUMER_PROTOCOL_TYPE},
};
use crate::types::{ErrorCode, Millis, TopicName, TopicPartition};
use bytes::Bytes;
use command::{Join, JoinedMember, Protocol, metadata_bytes};
use indexmap::IndexMap;
use std::{
    collections::{BTreeMap, BTreeSet},
    fmt,
    sync::Arc,
};

/// `ClassicGroupState`, but for Dead: a group that is gone isn't there.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum State {
    /// No members; perhaps offsets.
    #[default]
    Empty,
    /// Waits for members to join the next generation.
    PreparingRebalance,
    /// Waits for the leader's assignment.
    CompletingRebalance,
    Stable,
}

impl State {
    /// Kafka's name of it.
    pub fn name(self) -> &'static str {
        match self {
            Self::Empty => "Empty",
            Self::PreparingRebalance => "PreparingRebalance",
            Self::CompletingRebalance => "CompletingRebalance",
            Self::Stable => "Stable",
        }
    }
}

impl fmt::Display for State {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

/// A member, as people know it.
#[derive(Clone, PartialEq, Debug)]
pub struct Who {
    pub member: MemberId,
    pub instance: Option<InstanceId>,
    pub client_id: Arc<str>,
    pub host: Arc<str>,
}

/// Why a group rebalances.
#[derive(Clone, PartialEq, Debug)]
pub enum Cause {
    Joined {
        who: Who,
        reason: Option<Arc<str>>,
    },
    /// A member joined again with other protocols or other metadata.
    MetadataChanged {
        who: Who,
        reason: Option<Arc<str>>,
    },
    /// Leaders ask for a rebalance by joining again.
    LeaderRejoined {
        who: Who,
        reason: Option<Arc<str>>,
    },
    /// A static member came back, and the protocol or the leader's work under way doesn't go with it.
    StaticMemberReplaced {
        who: Who,
    },
    /// Each with its reason.
    Left {
        members: Vec<(Who, Option<Arc<str>>)>,
    },
    SessionExpired {
        who: Who,
    },
    /// Members that joined did not ask for their assignment in time.
    SyncTimeout {
        members: Vec<Who>,
    },
    /// The assignment could not be written.
    NotStored(ErrorCode),
    /// `group.max.size` is less than the members that were loaded.
    OverCapacity,
    /// Of a consumer group: a member did not let go of its partitions for its rebalance timeout.
    RevocationTimeout {
        who: Who,
    },
    /// Of a consumer group: a classic member did not join again for its rebalance timeout.
    JoinTimeout {
        who: Who,
    },
    /// Topics that the group subscribes to came, went or got partitions.
    TopicsChanged,
    /// The last member of the consumer protocol is gone: the group is a classic one from now on.
    Downgraded,
}

/// What happened to a group: for logs, and for its story.
#[derive(Clone, PartialEq, Debug)]
pub enum Note {
    Preparing {
        group: GroupId,
        generation: Generation,
        members: usize,
        /// No member is left to hand anything to.
        deserted: bool,
        cause: Cause,
    },
    /// All who joined in time are in this generation; the others are removed. `last` is who came last.
    Generation {
        group: GroupId,
        generation: Generation,
        members: usize,
        removed: Vec<Who>,
        last: Option<Who>,
    },
    Stable {
        group: GroupId,
        generation: Generation,
        members: usize,
    },
    Empty {
        group: GroupId,
        generation: Generation,
    },
    /// A second process joined with a static member's name: the first is fenced.
    Fenced {
        group: GroupId,
        instance: InstanceId,
        old: Who,
        new: Who,
    },
    /// Time is up and nobody has joined again.
    NobodyJoined {
        group: GroupId,
    },
    /// Of a consumer group: a member has let go of what others wait for.
    LetGo {
        group: GroupId,
        who: Who,
    },
    /// These partitions have no owner from now on, and those have one.
    Moved {
        group: GroupId,
        lost: Vec<TopicPartition>,
        gained: Vec<TopicPartition>,
    },
}

impl Note {
    /// A story's rebalance has ended only when all partitions are where they belong: this comes before its end.
    pub(super) fn tell_among(self, notes: &mut Vec<Self>) {
        let ends = |note: &Self| matches!(note, Self::Stable { .. } | Self::Empty { .. });
        let at = notes.iter().position(ends).unwrap_or(notes.len());
        notes.insert(at, self);
    }

    pub fn group(&self) -> &GroupId {
        match self {
            Self::Preparing { group, .. }
            | Self::Generation { group, .. }
            | Self::Stable { group, .. }
            | Self::Empty { group, .. }
            | Self::Fenced { group, .. }
            | Self::NobodyJoined { group }
            | Self::LetGo { group, .. }
            | Self::Moved { group, .. } => group,
        }
    }
}

/// A member.
#[derive(Clone, PartialEq, Debug)]
pub struct Member {
    pub id: MemberId,
    pub instance_id: Option<InstanceId>,
    pub client_id: Arc<str>,
    pub client_host: Arc<str>,
    pub rebalance_timeout_ms: i32,
    pub session_timeout_ms: i32,
    pub protocols: Arc<[Protocol]>,
    pub assignment: Bytes,
    pub(super) awaiting_join: Option<Ticket>,
    pub(super) awaiting_sync: Option<Ticket>,
    /// It has not got an answer to its first JoinGroup, so it cannot send heartbeats.
    pub(super) is_new: bool,
    pub(super) session_ends: Millis,
    pub(super) beats: Beats,
}

impl Member {
    pub fn who(&self) -> Who {
        let Self { id, instance_id, client_id, client_host, .. } = self;
        Who { member: id.clone(), instance: instance_id.clone(), client_id: client_id.clone(), host: client_host.clone() }
    }

    /// When it is taken for dead. `None` while it waits for us: it sends no heartbeats then.
    pub(super) fn session_deadline(&self) -> Option<Millis> {
        let waits = self.awaiting_join.is_some() || self.awaiting_sync.is_some();
        (self.is_new || !waits).then_some(self.session_ends)
    }

    /// What it told under a protocol.
    pub fn metadata(&self, protocol: &str) -> Option<&Bytes> {
        self.protocols.iter().find(|p| &*p.name == protocol).map(|p| &p.metadata)
    }
}

/// The wait for members to join.
#[derive(Clone, Copy, PartialEq, Debug)]
pub(super) struct JoinTimer {
    pub ends: Millis,
    /// The first rebalance of a group waits `group.initial.rebalance.delay.ms`, and longer while members come.
    pub initial: Option<InitialDelay>,
}

#[derive(Clone, Copy, PartialEq, Debug)]
pub(super) struct InitialDelay {
    pub delay_ms: i32,
    pub remaining_ms: i32,
    pub member_added: bool,
}

/// A timer of a group. Each has its deadline in the state; [`Classic::due`] says which have run out.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) enum Timer {
    /// A member that was given an id did not come back with it.
    PendingJoin(MemberId),
    /// A member was not heard of for its session timeout.
    Session(MemberId),
    /// The members that should join again had their time.
    Join,
    /// The members that joined had their time to ask for their assignment.
    Sync,
}

/// A classic group. Copies are cheap: members are shared until they change.
#[derive(Clone, PartialEq, Debug, Default)]
pub struct Classic {
    pub(super) state: State,
    /// `None` for a group that was never more than offsets, or whose records are too old to say.
    pub(super) state_since: Option<Millis>,
    pub(super) generation: Generation,
    pub(super) protocol_type: Option<Arc<str>>,
    pub(super) protocol: Option<Arc<str>>,
    pub(super) leader: Option<MemberId>,
    /// The leader may not know that it leads; see [`Classic::is_unled`]. Only in memory.
    pub(super) unled: bool,
    pub(super) members: IndexMap<MemberId, Arc<Member>>,
    pub(super) statics: BTreeMap<InstanceId, MemberId>,
    /// How many members support each protocol.
    pub(super) supported: BTreeMap<Arc<str>, usize>,
    /// Members that were given an id (KIP-394), and until when they may come back with it.
    pub(super) pending_joins: BTreeMap<MemberId, Millis>,
    /// Members of this generation that have not asked for their assignment.
    pub(super) pending_syncs: BTreeSet<MemberId>,
    pub(super) join_timer: Option<JoinTimer>,
    pub(super) sync_ends: Option<Millis>,
    /// The topics that its consumers read; `None` if it's not known.
    pub(super) subscribed: Option<Arc<BTreeSet<TopicName>>>,
}

impl Classic {
    pub fn state(&self) -> State {
        self.state
    }

    pub fn generation(&self) -> Generation {
        self.generation
    }

    pub fn protocol_type(&self) -> Option<&Arc<str>> {
        self.protocol_type.as_ref()
    }

    pub fn protocol(&self) -> Option<&Arc<str>> {
        self.protocol.as_ref()
    }

    pub fn leader(&self) -> Option<&MemberId> {
        self.leader.as_ref()
    }

    /// In the order in which they came.
    pub fn members(&self) -> impl ExactSizeIterator<Item = &Member> {
        self.members.values().map(|member| &**member)
    }

    pub fn member(&self, id: &str) -> Option<&Member> {
        self.members.get(id).map(|member| &**member)
    }

    pub(super) fn is_leader(&self, id: &str) -> bool {
        self.leader.as_deref() == Some(id)
    }

    /// Nothing but what a coordinator that was just started would have.
    pub(super) fn is_vacant(&self) -> bool {
        self.state == State::Empty && self.members.is_empty() && self.pending_joins.is_empty()
    }

    pub(super) fn uses_consumer_protocol(&self) -> bool {
        self.protocol_type.as_deref() == Some(CONSUMER_PROTOCOL_TYPE)
    }

    /// Whether offsets of a topic are in use. A group of consumers whose subscriptions can't be read is taken to read all.
    pub(super) fn is_subscribed(&self, topic: &TopicName) -> bool {
        self.subscribed.as_ref().map_or_else(|| self.uses_consumer_protocol(), |topics| topics.contains(topic))
    }

    pub(super) fn awaiting_join(&self) -> usize {
        self.members().filter(|member| member.awaiting_join.is_some()).count()
    }

    pub(super) fn all_joined(&self) -> bool {
        self.pending_joins.is_empty() && self.members().all(|member| member.awaiting_join.is_some())
    }

    /// The longest that a member asks to be waited for.
    pub(super) fn rebalance_timeout_ms(&self) -> i32 {
        self.members().map(|member| member.rebalance_timeout_ms).max().unwrap_or(0).max(0)
    }

    /// Whether one who supports these could be a member.
    pub(super) fn supports(&self, protocol_type: &str, protocols: &[Protocol]) -> bool {
        if self.state == State::Empty {
            return !protocol_type.is_empty() && !protocols.is_empty();
        }
        let by_all = |p: &Protocol| self.supported.get(&p.name).copied().unwrap_or(0) == self.members.len();
        self.protocol_type.as_deref() == Some(protocol_type) && protocols.iter().any(by_all)
    }

    /// The protocol that all support and most prefer. Ties go to the first by name.
    pub(super) fn select_protocol(&self) -> Option<Arc<str>> {
        let is_candidate = |p: &&Protocol| self.supported.get(&p.name).copied() == Some(self.members.len());
        let mut votes: BTreeMap<&Arc<str>, usize> = BTreeMap::new();
        for member in self.members() {
            if let Some(choice) = member.protocols.iter().find(is_candidate) {
                let count = votes.entry(&choice.name).or_default();
                *count = count.saturating_add(1);
            }
        }
        votes.into_iter().rev().max_by_key(|(_, count)| *count).map(|(name, _)| name.clone())
    }

    /// Whether a member is who it says that it is.
    pub(super) fn check_member(&self, member_id: &str, instance_id: Option<&InstanceId>) -> Result<(), ErrorCode> {
        if let Some(instance_id) = instance_id {
            match self.statics.get(instance_id) {
                None => return Err(ErrorCode::UnknownMemberId),
                Some(holder) if &**holder != member_id => return Err(ErrorCode::FencedInstanceId),
                Some(_) => {}
            }
        }
        if self.members.contains_key(member_id) { Ok(()) } else { Err(ErrorCode::UnknownMemberId) }
    }

    /// Whether a commit is taken from one who says this of itself (`ClassicGroup.validateOffsetCommit`).
    pub(super) fn check_commit(
        &self,
        member_id: &str,
        instance_id: Option<&InstanceId>,
        generation: Generation,
        transactional: bool,
    ) -> Result<(), ErrorCode> {
        if generation.0 < 0 && self.state == State::Empty {
            // An administrator, or a consumer that assigns partitions to itself.
            return Ok(());
        }
        if generation.0 >= 0 || !member_id.is_empty() || instance_id.is_some() {
            self.check_member(member_id, instance_id)?;
            if generation != self.generation {
                return Err(ErrorCode::IllegalGeneration);
            }
        } else if !transactional && self.state != State::Empty {
            return Err(ErrorCode::UnknownMemberId);
        }
        if !transactional && self.state == State::CompletingRebalance {
            // It has joined the new generation, so it should not commit what it read in the old one.
            return Err(ErrorCode::RebalanceInProgress);
        }
        Ok(())
    }

    /// All members, as the leader is told of them.
    pub(super) fn members_for_leader(&self) -> Vec<JoinedMember> {
        let protocol = self.protocol.as_deref().unwrap_or_default();
        let joined = |member: &Member| JoinedMember {
            member_id: member.id.clone(),
            instance_id: member.instance_id.clone(),
            metadata: member.metadata(protocol).cloned().unwrap_or_default(),
        };
        self.members().map(joined).collect()
    }

    /// The generation as it is, to a member of it.
    pub(in crate::group) fn joined(&self, member_id: &MemberId) -> Joined {
        let leads = self.is_leader(member_id);
        Joined {
            error: ErrorCode::None,
            generation: self.generation,
            protocol_type: self.protocol_type.clone(),
            protocol: self.protocol.clone(),
            leader: self.leader.clone().unwrap_or_else(|| "".into()),
            skip_assignment: false,
            member_id: member_id.clone(),
            members: if leads { self.members_for_leader() } else { Vec::new() },
        }
    }

    pub(super) fn compute_subscribed(&self) -> Option<Arc<BTreeSet<TopicName>>> {
        if !self.uses_consumer_protocol() {
            return None;
        }
        if self.members.is_empty() {
            return Some(Arc::default());
        }
        let protocol = self.protocol.as_deref()?;
        let metadata = self.members().map(|member| member.metadata(protocol).map_or(&[][..], |bytes| bytes));
        subscription::all_topics(metadata).map(Arc::new)
    }

    /// When something has to be done next, if nothing happens until then.
    pub fn next_deadline(&self) -> Option<Millis> {
        let sessions = self.members().filter_map(Member::session_deadline);
        let pending = self.pending_joins.values().copied();
        let join = self.join_timer.map(|timer| timer.ends);
        let held = self.members().filter_map(|member| member.beats.held).map(|held| held.until);
        sessions.chain(held).chain(pending).chain(join).chain(self.sync_ends).min()
    }

    /// The timers that have run out.
    pub(super) fn due(&self, steady: Millis) -> Vec<Timer> {
        let is_due = |deadline: &Millis| *deadline <= steady;
        let pending = self.pending_joins.iter().filter(|(_, ends)| is_due(ends)).map(|(id, _)| Timer::PendingJoin(id.clone()));
        let expired = self.members().filter(|m| m.session_deadline().is_some_and(|ends| is_due(&ends)));
        let join = self.join_timer.filter(|timer| is_due(&timer.ends)).map(|_| Timer::Join);
        let sync = self.sync_ends.filter(is_due).map(|_| Timer::Sync);
        pending.chain(expired.map(|m| Timer::Session(m.id.clone()))).chain(join).chain(sync).collect()
    }

    /// What is kept of the group as it is.
    pub fn to_metadata(&self) -> GroupMetadata {
        let protocol = self.protocol.as_deref().unwrap_or_default();
        let member = |member: &Member| MemberMetadata {
            member_id: member.id.clone(),
            instance_id: member.instance_id.clone(),
            client_id: member.client_id.clone(),
            client_host: member.client_host.clone(),
            rebalance_timeout_ms: member.rebalance_timeout_ms,
            session_timeout_ms: member.session_timeout_ms,
            subscription: member.metadata(protocol).cloned().unwrap_or_default(),
            assignment: member.assignment.clone(),
        };
        GroupMetadata {
            protocol_type: self.protocol_type.clone().unwrap_or_else(|| "".into()),
            generation: self.generation,
            protocol: self.protocol.clone(),
            leader: self.leader.clone(),
            state_since: self.state_since,
            members: self.members().map(member).collect(),
        }
    }

    /// The group that a record tells of. Sessions begin when [`Classic::begin_sessions`] is called.
    pub fn from_metadata(metadata: &GroupMetadata) -> Self {
        let mut group = Self {
            state: if metadata.members.is_empty() { State::Empty } else { State::Stable },
            state_since: metadata.state_since,
            generation: metadata.generation,
            protocol_type: Some(metadata.protocol_type.clone()).filter(|text| !text.is_empty()),
            protocol: metadata.protocol.clone(),
            leader: metadata.leader.clone(),
            ..Self::default()
        };
        let protocol_name: Arc<str> = metadata.protocol.clone().unwrap_or_else(|| "".into());
        for member in &metadata.members {
            let rebalance_timeout_ms =
                if member.rebalance_timeout_ms == -1 { member.session_timeout_ms } else { member.rebalance_timeout_ms };
            group.insert(Member {
                id: member.member_id.clone(),
                instance_id: member.instance_id.clone(),
                client_id: member.client_id.clone(),
                client_host: member.client_host.clone(),
                rebalance_timeout_ms,
                session_timeout_ms: member.session_timeout_ms,
                protocols: Arc::new([Protocol { name: protocol_name.clone(), metadata: member.subscription.clone() }]),
                assignment: member.assignment.clone(),
                awaiting_join: None,
                awaiting_sync: None,
                is_new: false,
                session_ends: Millis(i64::MAX),
                beats: Beats::default(),
            });
        }
        group.subscribed = group.compute_subscribed();
        group
    }

    /// After loading: every member has its whole session from now on.
    pub(super) fn begin_sessions(&mut self, steady: Millis) {
        for member in self.members.values_mut() {
            let member = Arc::make_mut(member);
            member.session_ends = steady.plus(member.session_timeout_ms.into());
        }
    }

    /// Heard of a member.
    pub(super) fn alive(&mut self, member: &str, deadline: Millis, beats: Option<Beats>) {
        if let Some(member) = self.members.get_mut(member) {
            let member = Arc::make_mut(member);
            member.session_ends = deadline;
            member.beats = beats.unwrap_or(member.beats);
        }
    }

    /// Its heartbeat that is held back is answered.
    pub(super) fn forget_held(&mut self, member: &str) {
        if let Some(member) = self.members.get_mut(member) {
            Arc::make_mut(member).beats.held = None;
        }
    }

    pub(super) fn beat(&mut self, member: &str, beats: Beats) {
        if let Some(member) = self.members.get_mut(member) {
            Arc::make_mut(member).beats = beats;
        }
    }

    pub(super) fn insert(&mut self, member: Member) {
        if let Some(instance_id) = &member.instance_id {
            self.statics.insert(instance_id.clone(), member.id.clone());
        }
        self.count_protocols(&member, true);
        self.members.insert(member.id.clone(), Arc::new(member));
    }

    pub(super) fn count_protocols(&mut self, member: &Member, more: bool) {
        for protocol in &*member.protocols {
            let count = self.supported.entry(protocol.name.clone()).or_default();
            *count = if more { count.saturating_add(1) } else { count.saturating_sub(1) };
            if *count == 0 {
                self.supported.remove(&protocol.name);
            }
        }
    }

    /// Whether a member's metadata fits beside that of the others.
    pub(super) fn has_room_for_metadata(&self, join: &Join) -> bool {
        let stays =
            |member: &&Arc<Member>| member.id != join.member_id && (join.instance_id.is_none() || member.instance_id != join.instance_id);
        let others = self.members.values().filter(stays).map(|member| metadata_bytes(&member.protocols));
        others.chain([metadata_bytes(&join.protocols)]).fold(0, usize::saturating_add) <= METADATA_BYTES_MAX
    }

    /// Whether a member may be added, or come back, under `group.max.size` (`acceptJoiningMember`).
    pub(super) fn has_room_for(&self, member_id: &str, settings: &Settings) -> bool {
        let max = settings.group_max_size;
        match self.state {
            State::Empty => true,
            // Counting those who wait lets the last ones to come back be turned away after the limit was lowered.
            State::PreparingRebalance => self.member(member_id).is_some_and(|m| m.awaiting_join.is_some()) || self.awaiting_join() < max,
            State::CompletingRebalance | State::Stable => self.members.contains_key(member_id) || self.members.len() < max,
        }
    }
}
