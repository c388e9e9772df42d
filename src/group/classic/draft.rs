//! A decision on one group in the making: a copy of the group that may be changed, and what comes of it.

use super::{Classic, Joined, Member, Note, State, Synced, Who, owners};
use crate::{
    group::{Decision, GroupId, MemberId, Now, Record, Reply, Settings, Ticket, Topics, Volatile},
    types::ErrorCode,
};
use std::sync::Arc;

/// The copy and the outcome so far.
pub(in crate::group) struct Draft<'a> {
    pub settings: &'a Settings,
    pub topics: &'a dyn Topics,
    pub now: Now,
    pub id: GroupId,
    pub(super) was: Option<&'a Classic>,
    pub group: Classic,
    pub records: Vec<Record>,
    pub replies: Vec<(Ticket, Reply)>,
    pub notes: Vec<Note>,
    pub records_may_fail: bool,
}

impl<'a> Draft<'a> {
    /// A group that isn't there begins empty.
    pub fn of(settings: &'a Settings, topics: &'a dyn Topics, now: Now, id: GroupId, was: Option<&'a Classic>) -> Self {
        let group = was.cloned().unwrap_or_else(|| Classic { state_since: Some(now.wall), ..Classic::default() });
        Self { settings, topics, now, id, was, group, records: Vec::new(), replies: Vec::new(), notes: Vec::new(), records_may_fail: false }
    }

    pub fn finish<R>(mut self, reply: R) -> Decision<R> {
        self.release();
        self.tell_moved();
        Decision {
            reply,
            records: self.records,
            volatile: Some(Volatile::Classic(self.id, Box::new(self.group))),
            replies: self.replies,
            notes: self.notes,
            records_may_fail: self.records_may_fail,
        }
    }

    /// Tells of the partitions that changed hands.
    pub fn tell_moved(&mut self) {
        if let Some(note) = self.was.and_then(|was| owners::moved(&self.id, was, &self.group)) {
            note.tell_among(&mut self.notes);
        }
    }

    pub fn reply_join(&mut self, ticket: Ticket, joined: Joined) {
        self.replies.push((ticket, Reply::Join(joined)));
    }

    pub fn reply_sync(&mut self, ticket: Ticket, synced: Synced) {
        self.replies.push((ticket, Reply::Sync(synced)));
    }

    /// Changes a member that is there.
    pub fn edit(&mut self, id: &str, change: impl FnOnce(&mut Member)) {
        if let Some(member) = self.group.members.get_mut(id) {
            change(Arc::make_mut(member));
        }
    }

    /// Its session begins anew.
    pub fn keep_alive(&mut self, id: &str) {
        let steady = self.now.steady;
        self.edit(id, |member| member.session_ends = steady.plus(member.session_timeout_ms.into()));
    }

    /// A member as people know it; one that was only given an id has no more than that.
    pub fn who(&self, id: &MemberId) -> Who {
        let nobody = || Who { member: id.clone(), instance: None, client_id: "".into(), host: "".into() };
        self.group.member(id).map_or_else(nobody, Member::who)
    }

    pub fn member_ids(&self) -> Vec<MemberId> {
        self.group.members.keys().cloned().collect()
    }

    pub fn transition(&mut self, to: State) {
        self.group.state = to;
        self.group.state_since = Some(self.now.wall);
    }

    /// Answers a member's JoinGroup, if it waits.
    pub fn complete_join(&mut self, id: &str, joined: Joined) {
        let mut ticket = None;
        self.edit(id, |member| ticket = member.awaiting_join.take());
        if let Some(ticket) = ticket {
            self.reply_join(ticket, joined);
        }
    }

    /// Answers a member's SyncGroup, if it waits; whether it did.
    pub fn complete_sync(&mut self, id: &str, synced: Synced) -> bool {
        let mut ticket = None;
        self.edit(id, |member| ticket = member.awaiting_sync.take());
        ticket.map(|ticket| self.reply_sync(ticket, synced)).is_some()
    }

    /// From now on the JoinGroup with this ticket is the member's. One that it sent before is answered: nobody reads that answer, but it
    /// may hold up a connection.
    pub fn await_join(&mut self, id: &str, ticket: Ticket) {
        self.complete_join(id, Joined::error(ErrorCode::RebalanceInProgress, id.into()));
        self.edit(id, |member| member.awaiting_join = Some(ticket));
    }

    /// The same for SyncGroup.
    pub fn await_sync(&mut self, id: &str, ticket: Ticket) {
        self.complete_sync(id, Synced::error(ErrorCode::RebalanceInProgress));
        self.edit(id, |member| member.awaiting_sync = Some(ticket));
    }

    /// Takes a member (or one that was only given an id) out. What it waits for is answered with UNKNOWN_MEMBER_ID: if it is alive it joins
    /// again. Another member becomes leader where it was.
    pub fn remove(&mut self, id: &str) {
        self.group.pending_joins.remove(id);
        self.group.pending_syncs.remove(id);
        self.complete_join(id, Joined::error(ErrorCode::UnknownMemberId, "".into()));
        self.complete_sync(id, Synced::error(ErrorCode::UnknownMemberId));
        if let Some(member) = self.group.members.shift_remove(id) {
            self.group.count_protocols(&member, false);
            if let Some(instance_id) = &member.instance_id {
                self.group.statics.remove(instance_id);
            }
        }
        if self.group.is_leader(id) {
            self.group.leader = self.group.members.keys().next().cloned();
        }
    }

    /// Writes the group as it is.
    pub fn store(&mut self) {
        self.records.push(Record::Group { group: self.id.clone(), value: Some(self.group.to_metadata()) });
    }
}
