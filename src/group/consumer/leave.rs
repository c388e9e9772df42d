//! Members that leave, for good or for a while, and members that are taken out.

use super::{
    ConsumerMember, Heartbeat, Heartbeaten,
    draft::{ConsumerDraft, Refusal},
    migrate::Downgraded,
};
use crate::{
    group::{ConsumerRecord, Epoch, MemberId, TargetMetadata, classic::Cause},
    types::{ErrorCode, Millis},
};

impl ConsumerDraft<'_> {
    pub(super) fn leave(&mut self, heartbeat: &Heartbeat) -> Result<(), Refusal> {
        let member = match &heartbeat.instance_id {
            None => self.group.known(&self.id, &heartbeat.member_id)?,
            Some(instance) => self.group.known_static(&heartbeat.member_id, instance)?,
        };
        let member = member.clone();
        if heartbeat.member_epoch == Epoch::STATIC_LEAVE {
            self.leave_for_a_while(&member);
        } else {
            let cause = Cause::Left { members: vec![(member.who(), None)] };
            self.fence(std::slice::from_ref(&member.id), cause);
        }
        let answer = Heartbeaten {
            error: ErrorCode::None,
            error_message: None,
            member_id: Some(member.id.clone()),
            member_epoch: heartbeat.member_epoch,
            heartbeat_interval_ms: 0,
            assignment: None,
        };
        self.reply(heartbeat.ticket, answer);
        Ok(())
    }

    /// A static member keeps what it has until it comes back or its session ends. What it was to let go of is free.
    fn leave_for_a_while(&mut self, member: &ConsumerMember) {
        self.answer_held(&member.id);
        let mut away = ConsumerMember { epoch: Epoch::STATIC_LEAVE, ..member.clone() };
        away.pending_revocation.clear();
        away.assigned.values_mut().flat_map(|partitions| partitions.values_mut()).for_each(|since| *since = Epoch(0));
        self.timers(&member.id).revocation = None;
        self.keep_alive(&member.id);
        self.put(ConsumerRecord::Current(member.id.clone(), Some(away.current())));
        self.settle();
    }

    /// Takes members out (`consumerGroupFenceMembers`). If only classic ones are left the group may become a classic one.
    pub(super) fn fence(&mut self, ids: &[MemberId], cause: Cause) {
        if ids.is_empty() {
            return;
        }
        if self.may_downgrade_without(ids) {
            self.cause.get_or_insert(cause);
            ids.iter().for_each(|id| self.remove(id, ErrorCode::UnknownMemberId));
            return self.downgrade(Downgraded::Rebalances);
        }
        ids.iter().for_each(|id| self.remove(id, ErrorCode::UnknownMemberId));
        self.settle_regexes();
        self.bump(cause);
        if self.group.members.is_empty() {
            let metadata = TargetMetadata { assignment_epoch: self.group.epoch, assignment_timestamp: Millis(0) };
            self.put(ConsumerRecord::TargetMetadata(Some(metadata)));
        }
        self.settle();
    }

    /// Takes a member's records out. A heartbeat of it that is held back is answered.
    pub(super) fn remove(&mut self, id: &MemberId, told: ErrorCode) {
        if let Some(held) = self.timers(id).held.take() {
            self.reply(held.ticket, Heartbeaten::error(told, format!("Member {id} is not a member of group {}.", self.id)));
        }
        self.group.memory.timers.remove(id);
        self.put(ConsumerRecord::Current(id.clone(), None));
        self.put(ConsumerRecord::Target(id.clone(), None));
        self.put(ConsumerRecord::Member(id.clone(), None));
    }
}
