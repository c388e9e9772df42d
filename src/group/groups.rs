//! The groups of one shard: decisions on one of them by name, and the two functions that change anything.

use super::{
    Classic, Decision, Generation, GroupId, Left, Note, Now, Record, Settings, Volatile,
    classic::{
        command::{Identity, Join, Joined, Leave, Sync, Synced},
        draft::Draft,
    },
    offsets::Offsets,
    pending::Pending,
    story::Story,
};
use crate::types::{ErrorCode, Millis, ProducerId};
use std::collections::{BTreeSet, HashMap, hash_map::Entry};

/// A group: who is in it, by the protocol that it uses, and what it committed.
#[derive(Clone, PartialEq, Debug, Default)]
pub struct Group {
    protocol: Protocol,
    pub(super) offsets: Offsets,
    pub(super) pending: Pending,
    story: Story,
    /// A record tells of its members: it has to be deleted by one.
    stored: bool,
}

/// Which protocol a group's members speak. There is one so far.
#[derive(Clone, PartialEq, Debug)]
enum Protocol {
    Classic(Box<Classic>),
}

impl Default for Protocol {
    fn default() -> Self {
        Self::Classic(Box::default())
    }
}

impl Group {
    pub fn classic(&self) -> &Classic {
        let Protocol::Classic(classic) = &self.protocol;
        classic
    }

    fn classic_mut(&mut self) -> &mut Classic {
        let Protocol::Classic(classic) = &mut self.protocol;
        classic
    }

    /// Its last rebalances, since this coordinator has it.
    pub fn story(&self) -> &Story {
        &self.story
    }

    pub(super) fn offsets(&self) -> &Offsets {
        &self.offsets
    }

    pub(super) fn pending(&self) -> &Pending {
        &self.pending
    }

    /// Whether a record tells of it, which a tombstone must follow when it goes.
    pub(super) fn is_stored(&self) -> bool {
        self.stored
    }

    /// Nothing would be lost without it.
    pub(super) fn is_nothing(&self) -> bool {
        !self.stored && self.offsets.is_empty() && self.pending.is_empty() && self.classic().is_vacant()
    }
}

/// The groups of one partition of `__consumer_offsets`.
#[derive(Clone, Debug, Default)]
pub struct Groups {
    settings: Settings,
    pub(super) groups: HashMap<GroupId, Group>,
    /// The groups that wait for a producer's marker.
    pub(super) in_transactions: HashMap<ProducerId, BTreeSet<GroupId>>,
}

impl Groups {
    pub fn new(settings: Settings) -> Self {
        Self { settings, ..Self::default() }
    }

    pub fn settings(&self) -> &Settings {
        &self.settings
    }

    pub fn get(&self, group: &str) -> Option<&Group> {
        self.groups.get(group)
    }

    /// All groups, in no order.
    pub fn iter(&self) -> impl Iterator<Item = (&GroupId, &Group)> {
        self.groups.iter()
    }

    pub fn len(&self) -> usize {
        self.groups.len()
    }

    pub fn is_empty(&self) -> bool {
        self.groups.is_empty()
    }

    fn draft(&self, now: Now, group: &GroupId) -> Draft<'_> {
        Draft::of(&self.settings, now, group.clone(), self.get(group).map(Group::classic))
    }

    /// JoinGroup. Every answer, to this and to other members, is among the replies.
    pub fn decide_join(&self, now: Now, join: &Join) -> Decision<()> {
        let session = self.settings.group_min_session_timeout_ms..=self.settings.group_max_session_timeout_ms;
        let refusal = if !session.contains(&join.session_timeout_ms) {
            Some(ErrorCode::InvalidSessionTimeout)
        } else if !join.member_id.is_empty() && self.get(&join.group).is_none() {
            Some(ErrorCode::UnknownMemberId)
        } else {
            None
        };
        if let Some(error) = refusal {
            let joined = Joined::error(error, join.member_id.clone());
            return Decision { replies: vec![(join.ticket, super::Reply::Join(joined))], ..Decision::only(()) };
        }
        let mut draft = self.draft(now, &join.group);
        draft.join(join);
        draft.finish(())
    }

    /// SyncGroup; the same.
    pub fn decide_sync(&self, now: Now, sync: &Sync) -> Decision<()> {
        if self.get(&sync.from.group).is_none() {
            let synced = Synced::error(ErrorCode::UnknownMemberId);
            return Decision { replies: vec![(sync.ticket, super::Reply::Sync(synced))], ..Decision::only(()) };
        }
        let mut draft = self.draft(now, &sync.from.group);
        draft.sync(sync);
        draft.finish(())
    }

    /// The records of a leader's SyncGroup could not be written.
    pub fn decide_assignment_not_stored(&self, now: Now, group: &GroupId, generation: Generation, error: ErrorCode) -> Decision<()> {
        let mut draft = self.draft(now, group);
        draft.assignment_not_stored(generation, error);
        draft.finish(())
    }

    /// Heartbeat.
    pub fn decide_heartbeat(&self, now: Now, from: &Identity) -> Decision<ErrorCode> {
        let Some(group) = self.get(&from.group) else { return Decision::only(ErrorCode::UnknownMemberId) };
        let (error, alive) = group.classic().check_heartbeat(from);
        let member = group.classic().member(&from.member_id).filter(|_| alive);
        let volatile = member.map(|member| Volatile::Alive {
            group: from.group.clone(),
            member: from.member_id.clone(),
            deadline: now.steady.plus(member.session_timeout_ms.into()),
        });
        Decision { volatile, ..Decision::only(error) }
    }

    /// LeaveGroup: the answer for each member.
    pub fn decide_leave(&self, now: Now, leave: &Leave) -> Decision<Vec<Left>> {
        if self.get(&leave.group).is_none() {
            let gone = |member: &super::LeaveMember| Left {
                member_id: member.member_id.clone(),
                instance_id: member.instance_id.clone(),
                error: ErrorCode::UnknownMemberId,
            };
            return Decision::only(leave.members.iter().map(gone).collect());
        }
        let mut draft = self.draft(now, &leave.group);
        let left = draft.leave(leave);
        draft.finish(left)
    }

    /// Does what is due in a group.
    pub fn decide_tick(&self, now: Now, group: &GroupId) -> Decision<()> {
        if self.next_deadline(group).is_none_or(|deadline| deadline > now.steady) {
            return Decision::only(());
        }
        let mut draft = self.draft(now, group);
        draft.tick();
        draft.finish(())
    }

    /// After loading, once for each group: its members' sessions begin.
    pub fn decide_loaded(&self, now: Now, group: &GroupId) -> Decision<()> {
        let mut draft = self.draft(now, group);
        draft.loaded();
        draft.finish(())
    }

    /// When a group is to be ticked, if nothing else happens.
    pub fn next_deadline(&self, group: &str) -> Option<Millis> {
        self.get(group)?.classic().next_deadline()
    }

    /// Applies a record that is in the log: right after it was appended, or when it is loaded.
    pub fn apply(&mut self, record: &Record) {
        let mut entry = match self.groups.entry(record.group().clone()) {
            Entry::Occupied(entry) => entry,
            Entry::Vacant(entry) => entry.insert_entry(Group::default()),
        };
        let group = entry.get_mut();
        match record {
            Record::Offset { partition, value, .. } => group.apply_offset(partition, value.as_ref()),
            Record::Group { value, .. } => {
                group.protocol = Protocol::Classic(Box::new(value.as_ref().map(Classic::from_metadata).unwrap_or_default()));
                group.stored = value.is_some();
            }
        }
        if group.is_nothing() {
            entry.remove();
        }
    }

    /// Remembers what happened to a group, after all else of the decision is applied.
    pub fn tell(&mut self, now: Now, note: &Note) {
        if let Some(group) = self.groups.get_mut(note.group()) {
            group.story.tell(now.wall, note);
        }
    }

    /// Applies a change of what is only in memory, after the records that go with it.
    pub fn apply_volatile(&mut self, change: Volatile) {
        match change {
            Volatile::Alive { group, member, deadline } => {
                if let Some(group) = self.groups.get_mut(&group) {
                    group.classic_mut().alive(&member, deadline);
                }
            }
            Volatile::Classic(id, classic) => {
                let group = self.groups.entry(id.clone()).or_default();
                group.protocol = Protocol::Classic(classic);
                if group.is_nothing() {
                    self.groups.remove(&id);
                }
            }
        }
    }
}
