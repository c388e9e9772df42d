//! LeaveGroup: members that leave, and static ones that are removed by name.

use super::{Cause, LeaveMember, Left, State, command::Leave, draft::Draft};
use crate::{
    group::{MemberId, story::WHO_MAX},
    types::ErrorCode,
};

impl Draft<'_> {
    pub fn leave(&mut self, leave: &Leave) -> Vec<Left> {
        let mut members = Vec::new();
        let mut answers = Vec::with_capacity(leave.members.len());
        for member in &leave.members {
            let found = self.leaving(member);
            if let Ok(id) = &found {
                if members.len() < WHO_MAX {
                    members.push((self.who(id), member.reason.clone()));
                }
                self.remove(id);
            }
            answers.push(Left {
                member_id: member.member_id.clone(),
                instance_id: member.instance_id.clone(),
                error: found.err().unwrap_or_default(),
            });
        }
        if !members.is_empty() {
            match self.group.state {
                State::Stable | State::CompletingRebalance => self.prepare(Cause::Left { members }),
                State::PreparingRebalance => self.maybe_complete_join(),
                State::Empty => {}
            }
        }
        answers
    }

    fn leaving(&self, member: &LeaveMember) -> Result<MemberId, ErrorCode> {
        if member.member_id.is_empty() {
            let holder = member.instance_id.as_ref().and_then(|instance_id| self.group.statics.get(instance_id));
            return holder.cloned().ok_or(ErrorCode::UnknownMemberId);
        }
        if self.group.pending_joins.contains_key(&member.member_id) {
            return Ok(member.member_id.clone());
        }
        self.group.check_member(&member.member_id, member.instance_id.as_ref())?;
        Ok(member.member_id.clone())
    }
}
