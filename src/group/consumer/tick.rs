//! What a consumer group's timers do.

use super::{
    Consumer, ConsumerMember, MemberState, Timers,
    draft::{ConsumerDraft, Surroundings},
    pace::Why,
};
use crate::{
    group::{Decision, GroupId, MemberId, Reply, Volatile, classic::Cause},
    types::{ErrorCode, Millis},
};

/// Why a member is taken out.
fn expired(timers: &Timers, member: &ConsumerMember, now: Millis) -> Option<Cause> {
    let due = |at: Option<Millis>| at.is_some_and(|at| at <= now);
    let who = || member.who();
    if due(timers.session) {
        Some(Cause::SessionExpired { who: who() })
    } else if timers.revocation.is_some_and(|(at, epoch)| at <= now && epoch == member.epoch) {
        Some(Cause::RevocationTimeout { who: who() })
    } else if due(timers.join) {
        Some(Cause::JoinTimeout { who: who() })
    } else if due(timers.sync) {
        Some(Cause::SyncTimeout { members: vec![who()] })
    } else {
        None
    }
}

impl Consumer {
    pub(in crate::group) fn decide_tick(&self, around: Surroundings<'_>, group: &GroupId) -> Decision<()> {
        let now = around.now.steady;
        let due = |at: Option<Millis>| at.is_some_and(|at| at <= now);
        let is_due = |timers: &Timers| due(timers.next());
        let members = || {
            self.memory.timers.iter().filter(|(_, timers)| is_due(timers)).filter_map(|(id, timers)| Some((id, timers, self.member(id)?)))
        };
        let gone: Vec<(MemberId, Cause)> =
            members().filter_map(|(id, timers, member)| Some((id.clone(), expired(timers, member, now)?))).collect();
        if !gone.is_empty() || due(self.memory.assign_at) || due(self.memory.resolve_at) {
            let mut draft = ConsumerDraft::of(around, group.clone(), self.clone());
            draft.tick(gone);
            return draft.finish(());
        }
        let is_up = |timers: &Timers| timers.held.is_some_and(|held| held.until <= now);
        let behind: Vec<MemberId> =
            members().filter(|(_, timers, member)| is_up(timers) && self.is_behind(member)).map(|(id, ..)| id.clone()).collect();
        if !behind.is_empty() {
            let mut draft = ConsumerDraft::of(around, group.clone(), self.clone());
            behind.iter().for_each(|id| draft.bring_up(id));
            // The others whose time is up have theirs in the next look, which is due at once.
            return draft.finish(());
        }
        // Nothing but heartbeats that were held back for their time: the group isn't copied.
        let mut decision = Decision::only(());
        let mut changed = Vec::new();
        for (id, timers, member) in members() {
            let mut timers = *timers;
            if let Some(held) = timers.held.take_if(|held| held.until <= now) {
                let answer = self.heartbeaten(&around, member, held.whole, Why::TimeUp);
                timers.told_ms = answer.heartbeat_interval_ms;
                decision.replies.push((held.ticket, Reply::Heartbeat(answer)));
                timers.session = Some(around.after(around.session_timeout_ms()));
            }
            if let Some(held) = timers.beats.held.take_if(|held| held.until <= now) {
                decision.replies.push((held.ticket, Reply::Alive(ErrorCode::None)));
            }
            // A member that did let go has no deadline for it.
            timers.revocation.take_if(|(at, _)| *at <= now);
            changed.push((id.clone(), timers));
        }
        changed.retain(|(id, timers)| self.memory.timers.get(id) != Some(timers));
        decision.volatile = Some(Volatile::Timers { group: group.clone(), changed });
        decision
    }

    /// After loading: every member has its whole session from now on.
    pub(in crate::group) fn decide_loaded(&self, around: &Surroundings<'_>, group: &GroupId) -> Decision<()> {
        let begin = |member: &ConsumerMember| {
            let own_ms = member.classic().map(|classic| i64::from(classic.session_timeout_ms));
            let revokes = member.state == MemberState::UnrevokedPartitions && member.classic().is_none();
            let revocation = revokes.then(|| (around.after(member.metadata.rebalance_timeout_ms.into()), member.epoch));
            let session = Some(around.after(own_ms.unwrap_or(around.session_timeout_ms())));
            (member.id.clone(), Timers { session, revocation, ..Timers::default() })
        };
        let volatile = Volatile::Timers { group: group.clone(), changed: self.members().map(begin).collect() };
        Decision { volatile: Some(volatile), ..Decision::only(()) }
    }
}

impl ConsumerDraft<'_> {
    fn tick(&mut self, gone: Vec<(MemberId, Cause)>) {
        let now = self.around.now.steady;
        if self.group.memory.resolve_at.is_some_and(|at| at <= now) {
            self.check_topics();
        }
        let (ids, causes): (Vec<_>, Vec<_>) = gone.into_iter().unzip();
        match causes.into_iter().next() {
            Some(cause) => self.fence(&ids, cause),
            None => self.settle(),
        }
    }
}
