//! Heartbeats of a classic group's members whose answers are held back: see [`crate::group::beats`].

use super::{Classic, State, draft::Draft};
use crate::{
    group::{
        Decision, GroupId, Identity, Now, Reply, Settings, Ticket, Volatile,
        beats::{self, Bounds, Held},
        consumer::planted::{self, Mistake},
    },
    types::{ErrorCode, Millis},
};

impl Classic {
    /// Heartbeat: the answer, or none if that is held back for one who has a ticket.
    pub(in crate::group) fn decide_heartbeat(
        &self,
        settings: &Settings,
        now: Now,
        from: &Identity,
        ticket: Option<Ticket>,
    ) -> Decision<Option<ErrorCode>> {
        let (error, alive) = self.check_heartbeat(from);
        let Some(member) = self.member(&from.member_id).filter(|_| alive) else { return Decision::only(Some(error)) };
        let mut beats = member.beats;
        let bounds =
            Bounds { session_timeout_ms: member.session_timeout_ms.into(), max_ms: settings.group_classic_heartbeat_hold_max_ms.into() };
        let holds =
            error == ErrorCode::None && self.state == State::Stable && beats::may_hold(self.members.len(), self.protocol.as_deref());
        let earlier = beats.heard(now.steady, ticket.filter(|_| holds), from, bounds);
        let volatile = Volatile::Alive {
            group: from.group.clone(),
            member: from.member_id.clone(),
            deadline: now.steady.plus(member.session_timeout_ms.into()),
            beats: Some(beats),
        };
        Decision {
            volatile: Some(volatile),
            replies: earlier.map(|held| (held.ticket, Reply::Alive(error))).into_iter().collect(),
            ..Decision::only(beats.held.is_none().then_some(error))
        }
    }

    /// Answers one that is held back: another request waits behind it, or its connection is gone.
    pub(in crate::group) fn decide_release(&self, now: Now, group: &GroupId, ticket: Ticket, gone: bool) -> Decision<()> {
        let is_it = |held: Option<Held>| held.is_some_and(|held| held.ticket == ticket);
        let Some(member) = self.members().find(|member| is_it(member.beats.held)) else { return Decision::only(()) };
        let mut beats = member.beats;
        let held = beats.release(now.steady, gone);
        let told = |held: Held| self.check_heartbeat(&held.identity(group, &member.id, member.instance_id.as_ref())).0;
        Decision {
            volatile: Some(Volatile::Beats { group: group.clone(), changed: vec![(member.id.clone(), beats)] }),
            replies: held.map(|held| (ticket, Reply::Alive(told(held)))).into_iter().collect(),
            ..Decision::only(())
        }
    }

    /// Answers those that were held back for their time, and does nothing else: the group isn't copied.
    pub(in crate::group) fn decide_time_up(&self, now: Now, group: &GroupId) -> Decision<()> {
        let mut decision = Decision::only(());
        let mut changed = Vec::new();
        for member in self.members() {
            let mut beats = member.beats;
            if let Some(held) = beats.held.take_if(|held| held.until <= now.steady) {
                let (error, _) = self.check_heartbeat(&held.identity(group, &member.id, member.instance_id.as_ref()));
                decision.replies.push((held.ticket, Reply::Alive(error)));
                changed.push((member.id.clone(), beats));
            }
        }
        decision.volatile = Some(Volatile::Beats { group: group.clone(), changed });
        decision
    }

    /// When the last member is to come that hears of the rebalance with its next heartbeat, if there is one. A member whose interval isn't known
    /// is taken to be like the others, and one that is overdue is not waited for.
    fn all_hear_at(&self, now: Millis) -> Option<Millis> {
        let waiting = || self.members().filter(|member| member.awaiting_join.is_none() && member.beats.held.is_none());
        let usual_ms = self.members().filter_map(|member| member.beats.interval_ms()).max()?;
        waiting().filter_map(|member| member.beats.next(usual_ms)).filter(|at| *at > now).max()
    }
}

impl Draft<'_> {
    /// Answers the heartbeats that are held back and would hear something by now, as they would; and those of members that are gone.
    ///
    /// All hear of a rebalance together, if not all can hear of it at once: members of an eager group stop reading when they hear of it, and the
    /// next generation begins with the last of them. So those that are held are told when the last one is due that is not, because its client has
    /// just committed, or is one that is not held.
    pub fn release(&mut self) {
        let waits =
            |member: &super::Member| member.beats.held.map(|held| (held, held.identity(&self.id, &member.id, member.instance_id.as_ref())));
        let all: Vec<_> = self.was.into_iter().flat_map(Classic::members).filter_map(waits).collect();
        if all.is_empty() {
            return;
        }
        let together = self.group.all_hear_at(self.now.steady);
        for (held, from) in all {
            let (error, _) = self.group.check_heartbeat(&from);
            let waits_on = error == ErrorCode::None && self.group.state == State::Stable;
            if waits_on || planted::is(Mistake::HoldsOn) {
                continue;
            }
            if let Some(at) = together.filter(|_| error == ErrorCode::RebalanceInProgress) {
                self.edit(&from.member_id, |member| {
                    if let Some(held) = &mut member.beats.held {
                        held.until = held.until.min(at);
                    }
                });
                continue;
            }
            self.group.forget_held(&from.member_id);
            self.replies.push((held.ticket, Reply::Alive(error)));
        }
    }
}
