//! Who may commit and fetch offsets of a consumer group, by the epoch that it says it is in.

use super::{
    Consumer, ConsumerMember, Owned,
    planted::{self, Mistake},
};
use crate::{
    group::{Commit, Epoch, Topics},
    types::{ErrorCode, TopicPartition},
};

/// The epoch is none that the member may be in.
fn stale(member: &ConsumerMember) -> ErrorCode {
    if member.classic().is_some() { ErrorCode::IllegalGeneration } else { ErrorCode::StaleMemberEpoch }
}

impl Consumer {
    /// Whether a commit is taken (`ConsumerGroup.validateOffsetCommit`). A member that has not heard of its newest epoch may commit what it
    /// had before, and has still, or has still to let go (KIP-1251).
    pub(in crate::group) fn check_commit(&self, topics: &dyn Topics, commit: &Commit, transactional: bool) -> Result<(), ErrorCode> {
        let epoch = Epoch(commit.from.generation.0);
        if epoch < Epoch(0) && self.members.is_empty() || planted::is(Mistake::BelievesCommits) {
            // An administrator, or a consumer that assigns partitions to itself.
            return Ok(());
        }
        if transactional && epoch == Epoch(-1) && commit.from.member_id.is_empty() && commit.from.instance_id.is_none() {
            // A producer that says nothing of the consumer it commits for.
            return Ok(());
        }
        let member = self.members.get(&commit.from.member_id).ok_or(ErrorCode::UnknownMemberId)?;
        if !transactional && member.classic().is_none() && !commit.tells_missing_group {
            return Err(ErrorCode::UnsupportedVersion);
        }
        if epoch == member.epoch {
            return Ok(());
        }
        if epoch > member.epoch {
            return Err(stale(member));
        }
        let all_since = commit.partitions.iter().all(|asked| {
            let since = |of: &Owned| since(of, topics, &asked.partition);
            since(&member.assigned).or_else(|| since(&member.pending_revocation)).is_some_and(|since| epoch >= since)
        });
        if all_since { Ok(()) } else { Err(stale(member)) }
    }

    /// Whether a fetch of offsets is answered (`ConsumerGroup.validateOffsetFetch`).
    pub(in crate::group) fn check_fetch(&self, member_id: Option<&str>, epoch: Epoch) -> Result<(), ErrorCode> {
        if member_id.is_none() && epoch < Epoch(0) {
            return Ok(());
        }
        let member = member_id.and_then(|id| self.members.get(id)).ok_or(ErrorCode::UnknownMemberId)?;
        if epoch == member.epoch { Ok(()) } else { Err(stale(member)) }
    }
}

fn since(of: &Owned, topics: &dyn Topics, partition: &TopicPartition) -> Option<Epoch> {
    let topic = topics.by_name(partition.topic.as_str())?;
    of.get(&topic.id)?.get(&partition.partition).copied()
}
