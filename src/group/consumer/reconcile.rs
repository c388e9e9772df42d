//! The next step of a member towards its target assignment (`CurrentAssignmentBuilder`): first it lets go, then it gets what is free.

use super::{
    ConsumerMember, MemberState, Owned, Partitions,
    planted::{self, Mistake},
};
use crate::{
    group::Epoch,
    types::{PartitionIndex, TopicId},
};
use std::collections::BTreeSet;

/// The member's state is a newer coordinator's: it has to begin anew.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Unknown;

/// What a member's next step depends on.
pub(super) struct Step<'a> {
    pub target_epoch: Epoch,
    pub target: &'a Partitions,
    /// Whether the member subscribes to a topic.
    pub subscribes: &'a dyn Fn(TopicId) -> bool,
    /// It, or what its expression stands for, has just changed: what it no longer subscribes to goes at once.
    pub subscription_changed: bool,
    /// Whether nobody has a partition, not even to let it go.
    pub is_free: &'a dyn Fn(TopicId, PartitionIndex) -> bool,
    /// What the member says that it owns; `None` if it doesn't say.
    pub owned: Option<&'a Partitions>,
}

fn previous(member: &ConsumerMember, next: Epoch) -> Epoch {
    if next == member.epoch { member.previous_epoch } else { member.epoch }
}

impl Step<'_> {
    pub fn next(&self, member: &ConsumerMember) -> Result<ConsumerMember, Unknown> {
        Ok(match member.state {
            MemberState::Stable if member.epoch != self.target_epoch => self.advance(member, member.epoch),
            MemberState::UnrevokedPartitions if !self.still_owns(&member.pending_revocation) => self.advance(member, member.epoch),
            MemberState::Stable | MemberState::UnrevokedPartitions if self.subscription_changed => self.drop_unsubscribed(member),
            MemberState::Stable | MemberState::UnrevokedPartitions => member.clone(),
            MemberState::UnreleasedPartitions => self.advance(member, member.epoch),
            MemberState::Unknown if self.owned.is_some_and(Partitions::is_empty) => self.advance(member, self.target_epoch),
            MemberState::Unknown => return Err(Unknown),
        })
    }

    fn still_owns(&self, partitions: &Owned) -> bool {
        let Some(owned) = self.owned else { return !planted::is(Mistake::TakesSilenceForRelease) };
        let both = |(topic, mine): (&TopicId, &BTreeSet<PartitionIndex>)| {
            partitions.get(topic).is_some_and(|revoked| mine.iter().any(|partition| revoked.contains_key(partition)))
        };
        owned.iter().any(both)
    }

    /// What the member no longer subscribes to moves to what it has to let go.
    fn drop_unsubscribed(&self, member: &ConsumerMember) -> ConsumerMember {
        let (kept, gone): (Owned, Owned) = member
            .assigned
            .iter()
            .map(|(topic, partitions)| (*topic, partitions.clone()))
            .partition(|(topic, _)| (self.subscribes)(*topic));
        if gone.is_empty() {
            return member.clone();
        }
        let mut pending_revocation = member.pending_revocation.clone();
        for (topic, partitions) in gone {
            pending_revocation.entry(topic).or_default().extend(partitions);
        }
        let mut next = ConsumerMember { assigned: kept, ..member.clone() };
        if self.still_owns(&pending_revocation) {
            (next.state, next.pending_revocation) = (MemberState::UnrevokedPartitions, pending_revocation);
        }
        next
    }

    fn advance(&self, member: &ConsumerMember, epoch: Epoch) -> ConsumerMember {
        let mut assigned = Owned::new();
        let mut to_revoke = Owned::new();
        for (topic, partitions) in &member.assigned {
            let target = self.target.get(topic).filter(|_| (self.subscribes)(*topic));
            for (partition, since) in partitions {
                let stays = target.is_some_and(|target| target.contains(partition));
                let to = if stays { &mut assigned } else { &mut to_revoke };
                to.entry(*topic).or_default().insert(*partition, *since);
            }
        }
        if self.still_owns(&to_revoke) && !to_revoke.is_empty() {
            return ConsumerMember {
                epoch,
                previous_epoch: previous(member, epoch),
                state: MemberState::UnrevokedPartitions,
                assigned,
                pending_revocation: to_revoke,
                ..member.clone()
            };
        }
        let mut unreleased = false;
        for (topic, partitions) in self.target.iter().filter(|(topic, _)| (self.subscribes)(**topic)) {
            let mine = |of: &Owned, partition: PartitionIndex| of.get(topic).is_some_and(|partitions| partitions.contains_key(&partition));
            for partition in partitions.iter().copied() {
                if mine(&assigned, partition) {
                    continue;
                }
                if (self.is_free)(*topic, partition) || mine(&member.pending_revocation, partition) {
                    assigned.entry(*topic).or_default().insert(partition, self.target_epoch);
                } else {
                    unreleased = true;
                }
            }
        }
        ConsumerMember {
            epoch: self.target_epoch,
            previous_epoch: previous(member, self.target_epoch),
            state: if unreleased { MemberState::UnreleasedPartitions } else { MemberState::Stable },
            assigned,
            pending_revocation: Owned::new(),
            ..member.clone()
        }
    }
}
