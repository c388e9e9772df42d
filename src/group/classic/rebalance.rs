//! How a group moves from state to state, and what its timers do.

use super::{Cause, InitialDelay, JoinTimer, Joined, Member, Note, State, Synced, Timer, draft::Draft};
use crate::{
    group::{Generation, MemberId, Ticket, story::WHO_MAX},
    types::ErrorCode,
};
use bytes::Bytes;
use std::sync::Arc;

impl Draft<'_> {
    /// A member came or changed: a rebalance begins, or the one under way may be complete.
    pub fn rebalance_or_complete_join(&mut self, cause: Cause) {
        match self.group.state {
            State::PreparingRebalance => self.maybe_complete_join(),
            State::Empty | State::CompletingRebalance | State::Stable => self.prepare(cause),
        }
    }

    /// PreparingRebalance begins: members are told with their next heartbeat.
    pub fn prepare(&mut self, cause: Cause) {
        if self.group.state == State::CompletingRebalance {
            self.reset_assignments(ErrorCode::RebalanceInProgress);
        }
        self.group.pending_syncs.clear();
        self.group.sync_ends = None;
        let first = self.group.state == State::Empty;
        let members = self.group.members.len();
        let (group, generation) = (self.id.clone(), self.group.generation);
        self.notes.push(Note::Preparing { group, generation, members, deserted: members == 0, cause });
        self.transition(State::PreparingRebalance);
        if first {
            // The group is new: others may be about to come.
            let delay_ms = self.settings.group_initial_rebalance_delay_ms.max(0);
            let remaining_ms = self.group.rebalance_timeout_ms().saturating_sub(delay_ms).max(0);
            let initial = Some(InitialDelay { delay_ms, remaining_ms, member_added: false });
            self.group.join_timer = Some(JoinTimer { ends: self.now.steady.plus(delay_ms.into()), initial });
        } else if self.group.all_joined() {
            self.complete_join_phase();
        } else {
            self.wait_for_joins();
        }
    }

    fn wait_for_joins(&mut self) {
        let ends = self.now.steady.plus(self.group.rebalance_timeout_ms().into());
        self.group.join_timer = Some(JoinTimer { ends, initial: None });
    }

    /// Ends the wait if all are there; the first rebalance waits for its time.
    pub fn maybe_complete_join(&mut self) {
        let first = self.group.join_timer.is_some_and(|timer| timer.initial.is_some());
        if self.group.state == State::PreparingRebalance && !first && self.group.all_joined() {
            self.complete_join_phase();
        }
    }

    /// The next generation begins with those who are there. Dynamic members that are not are out; static ones keep their place.
    fn complete_join_phase(&mut self) {
        self.group.join_timer = None;
        let absent: Vec<MemberId> =
            self.group.members().filter(|m| m.awaiting_join.is_none() && m.instance_id.is_none()).map(|m| m.id.clone()).collect();
        let removed = absent.iter().take(WHO_MAX).map(|id| self.who(id)).collect();
        absent.iter().for_each(|id| self.remove(id));
        let last = self.group.members().max_by_key(|m| m.awaiting_join).map(Member::who);
        if !self.elect_joined_leader() && !self.group.members.is_empty() {
            // Only static members are left, and none came back yet. Sessions remove those who never will.
            self.notes.push(Note::NobodyJoined { group: self.id.clone() });
            self.wait_for_joins();
            return;
        }
        let generation = Generation(self.group.generation.0.checked_add(1).unwrap_or(0));
        self.group.generation = generation;
        self.group.unled = false;
        self.group.pending_syncs.clear();
        self.group.protocol = self.group.select_protocol();
        self.group.subscribed = self.group.compute_subscribed();
        if self.group.members.is_empty() {
            self.transition(State::Empty);
            self.notes.push(Note::Empty { group: self.id.clone(), generation });
            self.records_may_fail = true;
            self.store();
            return;
        }
        self.transition(State::CompletingRebalance);
        for id in self.member_ids() {
            let joined = self.group.joined(&id);
            self.complete_join(&id, joined);
            self.keep_alive(&id);
            self.edit(&id, |member| member.is_new = false);
            self.group.pending_syncs.insert(id);
        }
        self.group.sync_ends = Some(self.now.steady.plus(self.group.rebalance_timeout_ms().into()));
        let members = self.group.members.len();
        self.notes.push(Note::Generation { group: self.id.clone(), generation, members, removed, last });
    }

    /// A leader that did not come back is replaced by one who did; whether there is a leader who did.
    fn elect_joined_leader(&mut self) -> bool {
        let joined = |id: &MemberId| self.group.member(id).is_some_and(|m| m.awaiting_join.is_some());
        let Some(leader) = &self.group.leader else { return false };
        if joined(leader) {
            return true;
        }
        let Some(next) = self.group.members.keys().find(|id| joined(id)).cloned() else { return false };
        self.group.leader = Some(next);
        true
    }

    /// The leader's assignment holds: whoever waits for it gets it.
    pub fn assign(&mut self, mut assignment_of: impl FnMut(&MemberId) -> Bytes) {
        for id in self.member_ids() {
            let assignment = assignment_of(&id);
            self.edit(&id, |member| member.assignment = assignment.clone());
            self.propagate(&id, assignment);
        }
        self.transition(State::Stable);
        let (group, generation, members) = (self.id.clone(), self.group.generation, self.group.members.len());
        self.notes.push(Note::Stable { group, generation, members });
        self.store();
    }

    fn propagate(&mut self, id: &MemberId, assignment: Bytes) {
        let synced = Synced {
            error: ErrorCode::None,
            protocol_type: self.group.protocol_type.clone(),
            protocol: self.group.protocol.clone(),
            assignment,
        };
        // It sent no heartbeats while it waited.
        if self.complete_sync(id, synced) {
            self.keep_alive(id);
        }
    }

    fn reset_assignments(&mut self, error: ErrorCode) {
        for id in self.member_ids() {
            self.edit(&id, |member| member.assignment = Bytes::new());
            if self.complete_sync(&id, Synced::error(error)) {
                self.keep_alive(&id);
            }
        }
    }

    /// The assignment of this generation could not be written: members hear the error and join again.
    pub fn assignment_not_stored(&mut self, generation: Generation, error: ErrorCode) {
        if self.group.state == State::CompletingRebalance && self.group.generation == generation {
            self.reset_assignments(error);
            self.prepare(Cause::NotStored(error));
        }
    }

    /// Does what is due.
    pub fn tick(&mut self) {
        for timer in self.group.due(self.now.steady) {
            match timer {
                Timer::PendingJoin(id) => {
                    self.remove(&id);
                    self.complete_join_if_all_joined();
                }
                Timer::Session(id) => self.session_expired(&id),
                Timer::Join => self.join_time_is_up(),
                Timer::Sync => self.sync_time_is_up(),
            }
        }
    }

    fn session_expired(&mut self, id: &MemberId) {
        // A timer before this one may have removed it, or answered it, which begins its session anew.
        let steady = self.now.steady;
        if self.group.member(id).and_then(|m| m.session_deadline()).is_none_or(|ends| ends > steady) {
            return;
        }
        let who = self.who(id);
        self.remove(id);
        match self.group.state {
            State::Stable | State::CompletingRebalance => self.prepare(Cause::SessionExpired { who }),
            State::PreparingRebalance | State::Empty => self.complete_join_if_all_joined(),
        }
    }

    /// Unlike [`Draft::maybe_complete_join`] also in the first rebalance: its last member may be gone.
    fn complete_join_if_all_joined(&mut self) {
        if self.group.state == State::PreparingRebalance && self.group.all_joined() {
            self.complete_join_phase();
        }
    }

    fn join_time_is_up(&mut self) {
        let steady = self.now.steady;
        match self.group.join_timer.filter(|timer| timer.ends <= steady) {
            Some(JoinTimer { initial: Some(delay), .. }) if delay.member_added && delay.remaining_ms != 0 => {
                let next = InitialDelay {
                    delay_ms: self.settings.group_initial_rebalance_delay_ms.min(delay.remaining_ms),
                    remaining_ms: delay.remaining_ms.saturating_sub(delay.delay_ms).max(0),
                    member_added: false,
                };
                self.group.join_timer = Some(JoinTimer { ends: steady.plus(next.delay_ms.into()), initial: Some(next) });
            }
            Some(_) => self.complete_join_phase(),
            None => {}
        }
    }

    fn sync_time_is_up(&mut self) {
        let steady = self.now.steady;
        if self.group.sync_ends.is_none_or(|ends| ends > steady) {
            return;
        }
        self.group.sync_ends = None;
        let members: Vec<MemberId> = std::mem::take(&mut self.group.pending_syncs).into_iter().collect();
        let under_way = matches!(self.group.state, State::CompletingRebalance | State::Stable);
        if under_way && !members.is_empty() {
            let late = members.iter().take(WHO_MAX).map(|id| self.who(id)).collect();
            members.iter().for_each(|id| self.remove(id));
            self.prepare(Cause::SyncTimeout { members: late });
        }
    }

    /// After loading: sessions begin, and a group that is too large now rebalances, so that its last members are turned away. So does one that
    /// became a classic one and had not rebalanced yet: its record names no leader.
    pub fn loaded(&mut self) {
        self.group.begin_sessions(self.now.steady);
        let is_led = self.group.leader.is_some();
        if !is_led {
            self.group.leader = self.group.members.keys().next().cloned();
        }
        let leader = self.group.leader().and_then(|id| self.group.member(id));
        self.group.unled = leader.is_some_and(|leader| leader.instance_id.is_some());
        if self.group.members.len() > self.settings.group_max_size {
            self.prepare(Cause::OverCapacity);
        } else if !is_led && !self.group.members.is_empty() {
            self.prepare(Cause::Downgraded);
        } else {
            self.topics_changed();
        }
    }

    /// What a member is told that may not join.
    pub fn refuse_join(&mut self, ticket: Ticket, error: ErrorCode, member_id: &Arc<str>) {
        self.reply_join(ticket, Joined::error(error, member_id.clone()));
    }
}
