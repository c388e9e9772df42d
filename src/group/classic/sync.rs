//! SyncGroup and Heartbeat.

use super::{
    Classic, State, Synced,
    command::{Identity, Sync},
    draft::Draft,
};
use crate::types::ErrorCode;
use std::sync::Arc;

impl Classic {
    pub(in crate::group) fn check_sync(&self, sync: &Sync) -> Result<(), ErrorCode> {
        self.check_member(&sync.from.member_id, sync.from.instance_id.as_ref())?;
        if sync.from.generation != self.generation {
            return Err(ErrorCode::IllegalGeneration);
        }
        let differs = |theirs: &Option<Arc<str>>, ours: &Option<Arc<str>>| theirs.is_some() && ours.is_some() && theirs != ours;
        if differs(&sync.protocol_type, &self.protocol_type) || differs(&sync.protocol, &self.protocol) {
            return Err(ErrorCode::InconsistentGroupProtocol);
        }
        Ok(())
    }

    /// What a heartbeat is answered with, and whether the member counts as alive.
    pub(in crate::group) fn check_heartbeat(&self, from: &Identity) -> (ErrorCode, bool) {
        if let Err(error) = self.check_member(&from.member_id, from.instance_id.as_ref()) {
            return (error, false);
        }
        if from.generation != self.generation {
            return (ErrorCode::IllegalGeneration, false);
        }
        match self.state {
            State::Empty => (ErrorCode::UnknownMemberId, false),
            State::PreparingRebalance => (ErrorCode::RebalanceInProgress, true),
            // Members may send heartbeats as soon as they have joined.
            State::CompletingRebalance | State::Stable => (ErrorCode::None, true),
        }
    }
}

impl Draft<'_> {
    pub fn sync(&mut self, sync: &Sync) {
        let id = &sync.from.member_id;
        if let Err(error) = self.group.check_sync(sync) {
            return self.reply_sync(sync.ticket, Synced::error(error));
        }
        match self.group.state {
            State::Empty => self.reply_sync(sync.ticket, Synced::error(ErrorCode::UnknownMemberId)),
            State::PreparingRebalance => self.reply_sync(sync.ticket, Synced::error(ErrorCode::RebalanceInProgress)),
            State::CompletingRebalance => {
                self.await_sync(id, sync.ticket);
                self.note_sync(id);
                if self.group.is_leader(id) {
                    // Whom the leader forgot has nothing to do.
                    self.assign(|member| sync.assignments.get(member).cloned().unwrap_or_default());
                }
            }
            State::Stable => {
                self.note_sync(id);
                let synced = Synced {
                    error: ErrorCode::None,
                    protocol_type: self.group.protocol_type.clone(),
                    protocol: self.group.protocol.clone(),
                    assignment: self.group.member(id).map(|member| member.assignment.clone()).unwrap_or_default(),
                };
                self.reply_sync(sync.ticket, synced);
            }
        }
    }

    fn note_sync(&mut self, id: &Arc<str>) {
        self.group.pending_syncs.remove(id);
        if self.group.pending_syncs.is_empty() {
            self.group.sync_ends = None;
        }
    }
}
