//! A group changes its protocol while it has members: a classic group becomes a consumer group when the first member of the new protocol
//! joins, and a classic one again when the last is gone.

use super::{
    Consumer, ConsumerMember, MemberState,
    classic::{by_id, by_name},
    draft::{ConsumerDraft, Refusal, Surroundings, partitions_of},
    planted::{self, Mistake},
};
use crate::{
    group::{
        Classic, ClassicMemberMetadata, ConsumerGroupMetadata, ConsumerMemberMetadata, ConsumerRecord, Epoch, Generation, GroupId, Member,
        MemberId, Record, Reply, State, TargetMetadata, Topics,
        classic::{
            command::{Joined, Synced},
            draft::Draft,
        },
        subscription::{self, Assignment, CONSUMER_PROTOCOL_TYPE, Subscription},
    },
    types::{ErrorCode, Millis, PartitionIndex, TopicId, TopicName},
};
use std::collections::BTreeSet;

fn refused(group: &GroupId, why: &str) -> Refusal {
    (ErrorCode::GroupIdNotFound, format!("Cannot upgrade classic group {group} to consumer group because {why}."))
}

/// How a group goes on that has become a classic one.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Downgraded<'a> {
    Rebalances,
    /// Everybody has what it shall have, and this one is told that it leads.
    Led(&'a MemberId),
}

impl<'a> ConsumerDraft<'a> {
    /// The consumer group that a classic group with members becomes (`convertToConsumerGroup`). Whoever waits is told to join again.
    pub(super) fn upgrade(around: Surroundings<'a>, id: &GroupId, classic: &Classic) -> Result<Self, Refusal> {
        let settings = around.settings;
        if !settings.group_consumer_migration_policy.upgrades() {
            return Err(refused(id, "online upgrade is disabled"));
        }
        if !classic.uses_consumer_protocol() {
            return Err(refused(id, "the group does not use the consumer embedded protocol"));
        }
        if classic.members().len() > settings.group_consumer_max_size {
            return Err(refused(id, "the group size exceeds the consumer group maximum size"));
        }
        let epoch = Epoch(classic.generation().0.max(0));
        let said: Vec<Said<'_>> = classic.members().map(|member| Said::by(id, member, classic)).collect::<Result<_, _>>()?;
        let members = converted(&said, epoch, around.topics);

        let mut draft = Self::of(around, id.clone(), Consumer::new(around.topics_version));
        for member in classic.members() {
            if let Some(ticket) = member.awaiting_join {
                let joined = Joined::error(ErrorCode::RebalanceInProgress, member.id.clone());
                draft.replies.push((ticket, Reply::Join(joined)));
            }
            if let Some(ticket) = member.awaiting_sync {
                draft.replies.push((ticket, Reply::Sync(Synced::error(ErrorCode::RebalanceInProgress))));
            }
        }
        draft.records.push(Record::Group { group: id.clone(), value: None });
        for member in &members {
            draft.put(ConsumerRecord::Member(member.id.clone(), Some(member.metadata.clone())));
        }
        let metadata_hash = draft.group.hash_of_topics(around.topics);
        draft.put(ConsumerRecord::Group(Some(ConsumerGroupMetadata { epoch, metadata_hash })));
        for member in &members {
            draft.put(ConsumerRecord::Target(member.id.clone(), Some(super::draft::partitions_of(&member.assigned))));
        }
        let metadata = TargetMetadata { assignment_epoch: epoch, assignment_timestamp: Millis(0) };
        draft.put(ConsumerRecord::TargetMetadata(Some(metadata)));
        for member in &members {
            draft.put(ConsumerRecord::Current(member.id.clone(), Some(member.current())));
            draft.keep_alive(&member.id);
            draft.timers(&member.id).beats = classic.member(&member.id).map(|member| member.beats).unwrap_or_default();
        }
        draft.was = draft.group.clone();
        draft.upgraded = true;
        Ok(draft)
    }

    /// Whether the group becomes a classic one when these are gone (`validateOnlineDowngradeWithFencedMembers`).
    pub(super) fn may_downgrade_without(&self, gone: &[MemberId]) -> bool {
        let classic = |id: &&MemberId| self.group.member(id).is_some_and(|member| member.classic().is_some());
        let classics = self.group.classics.saturating_sub(gone.iter().filter(classic).count());
        let left = self.group.members.len().saturating_sub(gone.len());
        classics == left && left > 0 && self.may_downgrade(left)
    }

    /// The same when one of the consumer protocol is replaced by a classic one.
    pub(super) fn may_downgrade_but(&self, replaced: &MemberId) -> bool {
        let all = self.group.members.len();
        self.group.members.contains_key(replaced) && self.group.classics.saturating_add(1) == all && self.may_downgrade(all)
    }

    fn may_downgrade(&self, members: usize) -> bool {
        let settings = self.around.settings;
        settings.group_consumer_migration_policy.downgrades() && members <= settings.group_max_size
    }

    /// The group is a classic one from now on, with the members that it has (`convertToClassicGroup`). Unless it rebalances, one of them has to
    /// be told that it leads: the leader is who sees that there is more to assign. Where nobody knows that, as in Kafka, partitions that are
    /// added later are read by nobody.
    pub(super) fn downgrade(&mut self, after: Downgraded<'_>) {
        let mut classic = self.group.to_classic(self.around.topics, self.around.now.wall);
        // A record without a leader says that the rebalance is still to come, also to a broker that loads it after a crash.
        classic.leader = match after {
            Downgraded::Led(leader) => Some(leader.clone()),
            Downgraded::Rebalances => None,
        };
        self.records.extend(self.group.tombstones(&self.id));
        let mut draft = Draft::of(self.around.settings, self.around.topics, self.around.now, self.id.clone(), Some(&classic));
        draft.store();
        draft.loaded();
        draft.group.unled = false;
        draft.tell_moved();
        self.records.append(&mut draft.records);
        self.replies.append(&mut draft.replies);
        self.notes.append(&mut draft.notes);
        self.downgraded = Some(Box::new(draft.group));
    }
}

/// What a classic member said and was given.
struct Said<'a> {
    member: &'a Member,
    subscription: Subscription,
    assignment: Assignment,
}

impl<'a> Said<'a> {
    fn by(group: &GroupId, member: &'a Member, classic: &Classic) -> Result<Self, Refusal> {
        let malformed = || refused(group, "the embedded consumer protocol is malformed");
        let protocol = classic.protocol().and_then(|name| member.metadata(name)).or_else(|| member.protocols.first().map(|p| &p.metadata));
        let subscription = protocol.and_then(|bytes| Subscription::read(bytes)).ok_or_else(malformed)?;
        let assignment = Assignment::read(&member.assignment).ok_or_else(malformed)?;
        if assignment.user_data {
            let why = "an unsupported custom assignor is in use. Please refer to the documentation or switch to a default assignor before \
                       re-attempting the upgrade";
            return Err(refused(group, why));
        }
        Ok(Self { member, subscription, assignment })
    }
}

/// The members of a classic group as members of a consumer group. In the midst of a rebalance a cooperative member has what it said when it
/// joined, and perhaps no assignment.
fn converted(said: &[Said<'_>], epoch: Epoch, topics: &dyn Topics) -> Vec<ConsumerMember> {
    let mut members: Vec<ConsumerMember> = said.iter().map(|said| bare(said, epoch)).collect();
    // A leader that gave a partition to two, or members that both claim it: the first has it.
    let mut taken = BTreeSet::<(TopicId, PartitionIndex)>::new();
    let mut take = |partitions: &[(TopicName, Vec<PartitionIndex>)], member: &mut ConsumerMember| {
        for (topic, partitions) in by_id(partitions, topics) {
            for partition in partitions.into_iter().filter(|partition| taken.insert((topic, *partition))) {
                member.assigned.entry(topic).or_default().insert(partition, epoch);
            }
        }
    };
    for (said, member) in said.iter().zip(&mut members) {
        take(&said.assignment.partitions, member);
    }
    if !planted::is(Mistake::ForgetsOnUpgrade) {
        for (said, member) in said.iter().zip(&mut members) {
            take(&said.subscription.owned, member);
        }
    }
    members
}

fn bare(said: &Said<'_>, epoch: Epoch) -> ConsumerMember {
    let Said { member, subscription, .. } = said;
    ConsumerMember {
        metadata: ConsumerMemberMetadata {
            instance_id: member.instance_id.clone(),
            rack_id: subscription.rack_id.clone().filter(|rack| !rack.is_empty()),
            client_id: member.client_id.clone(),
            client_host: member.client_host.clone(),
            subscribed_topic_names: subscription.topics.iter().map(|topic| topic.as_str().into()).collect(),
            subscribed_topic_regex: None,
            rebalance_timeout_ms: member.rebalance_timeout_ms,
            server_assignor: None,
            classic: Some(ClassicMemberMetadata { session_timeout_ms: member.session_timeout_ms, protocols: member.protocols.clone() }),
        },
        epoch,
        previous_epoch: epoch,
        state: MemberState::Stable,
        ..ConsumerMember::new(member.id.clone())
    }
}

impl Consumer {
    /// Whether each member has what it is to have.
    pub(super) fn has_its_targets(&self) -> bool {
        self.members().all(|member| {
            let assigned = partitions_of(&member.assigned);
            self.targets.get(&member.id).map_or(assigned.is_empty(), |target| **target == assigned)
        })
    }

    /// A stable classic group of the same members, each with what is assigned to it. Where that isn't its target, a rebalance has to follow.
    fn to_classic(&self, topics: &dyn Topics, now: Millis) -> Classic {
        let mut classic = Classic {
            state: State::Stable,
            state_since: Some(now),
            generation: Generation(self.epoch.0),
            protocol_type: Some(CONSUMER_PROTOCOL_TYPE.into()),
            ..Classic::default()
        };
        for member in self.members() {
            let Some(of_classic) = member.classic() else { continue };
            classic.insert(Member {
                id: member.id.clone(),
                instance_id: member.metadata.instance_id.clone(),
                client_id: member.metadata.client_id.clone(),
                client_host: member.metadata.client_host.clone(),
                rebalance_timeout_ms: member.metadata.rebalance_timeout_ms,
                session_timeout_ms: of_classic.session_timeout_ms,
                protocols: of_classic.protocols.clone(),
                assignment: bytes::Bytes::new(),
                awaiting_join: None,
                awaiting_sync: None,
                is_new: false,
                session_ends: Millis(i64::MAX),
                beats: self.memory.timers.get(&member.id).map(|timers| timers.beats).unwrap_or_default(),
            });
        }
        classic.leader = classic.members.keys().next().cloned();
        classic.protocol = classic.select_protocol();
        classic.subscribed = classic.compute_subscribed();
        let protocol = classic.protocol.clone().unwrap_or_else(|| "".into());
        for member in classic.members.values_mut() {
            let assigned = self.members.get(&member.id).map(|member| by_name(&partitions_of(&member.assigned), topics)).unwrap_or_default();
            let version = member.metadata(&protocol).map_or(0, |metadata| subscription::version(metadata));
            let assignment = Assignment { partitions: assigned, user_data: false }.write(version);
            std::sync::Arc::make_mut(member).assignment = assignment;
        }
        classic
    }
}
