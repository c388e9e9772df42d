//! Members of a consumer group that speak the classic protocol, while the group migrates (`classicGroupJoinToConsumerGroup` and so on).
//! They join and sync each for itself, as often as it takes to come to their target assignment; REBALANCE_IN_PROGRESS says when.

use super::{
    Consumer, ConsumerMember, MemberState, Partitions, Timers,
    draft::{ConsumerDraft, Refusal, Surroundings, partitions_of},
    migrate::Downgraded,
    planted::{self, Mistake},
};
use crate::{
    group::{
        ClassicMemberMetadata, ConsumerMemberMetadata, Decision, Generation, GroupId, MemberId, MigrationPolicy, Now, Reply, State, Ticket,
        Topics, Volatile,
        beats::{self, Bounds},
        classic::{
            Cause,
            command::{Identity, Join, Joined, Leave, LeaveMember, Left, Sync, Synced},
        },
        subscription::{self, Assignment, CONSUMER_PROTOCOL_TYPE, Subscription},
    },
    types::{ErrorCode, PartitionIndex, TopicName},
};
use std::sync::Arc;

/// The partitions of topics that are there, by id.
pub(super) fn by_id(partitions: &[(TopicName, Vec<PartitionIndex>)], topics: &dyn Topics) -> Partitions {
    let mut found = Partitions::new();
    for (name, partitions) in partitions {
        if let Some(topic) = topics.by_name(name.as_str()).filter(|_| !partitions.is_empty()) {
            found.entry(topic.id).or_default().extend(partitions);
        }
    }
    found
}

/// The same the other way round.
pub(super) fn by_name(partitions: &Partitions, topics: &dyn Topics) -> Vec<(TopicName, Vec<PartitionIndex>)> {
    let named = partitions.iter().filter_map(|(id, partitions)| Some((topics.by_id(*id)?.name, partitions.iter().copied().collect())));
    named.collect()
}

impl ConsumerDraft<'_> {
    /// JoinGroup. It is answered at once.
    pub(in crate::group) fn classic_join(&mut self, join: &Join) {
        let before = (self.group.clone(), self.records.len(), self.replies.len());
        let joined = self.try_classic_join(join).unwrap_or_else(|error| {
            // Nothing of it holds.
            self.group = before.0;
            self.records.truncate(before.1);
            self.replies.truncate(before.2);
            self.cause = None;
            // Unlike a classic group's: no id (`handleOperationException`).
            Joined::error(error, "".into())
        });
        self.replies.push((join.ticket, Reply::Join(joined)));
    }

    fn try_classic_join(&mut self, join: &Join) -> Result<Joined, ErrorCode> {
        if self.around.settings.group_consumer_migration_policy == MigrationPolicy::Disabled {
            return Err(ErrorCode::InconsistentGroupProtocol);
        }
        let new = join.member_id.is_empty();
        let id = if new { &join.fresh_id } else { &join.member_id };
        self.check_room(id, join.instance_id.as_ref()).map_err(|(error, _)| error)?;
        let supported = |name: &Arc<str>| self.group.by_protocol.get(name).copied().unwrap_or(0) == self.group.classics;
        if &*join.protocol_type != CONSUMER_PROTOCOL_TYPE || !join.protocols.iter().any(|protocol| supported(&protocol.name)) {
            return Err(ErrorCode::InconsistentGroupProtocol);
        }
        let protocol = join.protocols.first().ok_or(ErrorCode::InconsistentGroupProtocol)?;
        if new && join.instance_id.is_none() && join.requires_known_member_id {
            return Ok(Joined::error(ErrorCode::MemberIdRequired, id.clone()));
        }
        // Who it is comes before what it says, as with Kafka.
        let downgrades = self.admit(join, id)?;
        let subscription = Subscription::read(&protocol.metadata).ok_or(ErrorCode::InconsistentGroupProtocol)?;
        // It was taken out and doesn't know. One that was just given its id has nothing yet.
        if !new && !self.group.members.contains_key(id) && !subscription.owned.is_empty() {
            return Err(ErrorCode::UnknownMemberId);
        }

        let old = self.group.members.get(id).cloned();
        let known = old.as_ref().map_or_else(|| ConsumerMember::new(id.clone()).metadata, |member| member.metadata.clone());
        let owned = by_id(&subscription.owned, self.around.topics);
        let new = metadata(join, &subscription, &known);
        self.check_metadata(id, &new).map_err(|(error, _)| error)?;
        let changed = self.subscribe(id, &known, new, old.is_none());
        if downgrades {
            let rebalances = self.group.target.assignment_epoch < self.group.epoch;
            if !rebalances {
                self.reconcile(id, changed, Some(&owned)).map_err(|(error, _)| error)?;
            }
            // Kafka gives the newcomer its target at once, also what another member has not let go of.
            return if rebalances || !self.group.has_its_targets() || !join.supports_skipping_assignment {
                let joined = self.classic_joined(id, protocol.name.clone());
                self.downgrade(Downgraded::Rebalances);
                joined
            } else {
                self.downgrade(Downgraded::Led(id));
                let joined = self.downgraded.as_ref().map(|group| group.joined(id)).ok_or(ErrorCode::UnknownServerError)?;
                Ok(Joined { skip_assignment: true, ..joined })
            };
        }
        self.settle_one(id, changed, Some(&owned)).map_err(|(error, _)| error)?;
        self.keep_alive(id);
        let sync_ends = self.around.after(join.rebalance_timeout_ms.into());
        let timers = self.timers(id);
        (timers.join, timers.sync, timers.revocation) = (None, Some(sync_ends), None);
        timers.beats.joins();
        self.classic_joined(id, protocol.name.clone())
    }

    /// Whether it is who it says; a static member takes its former self's place. Whether that was the last of the consumer protocol, so that
    /// the group becomes a classic one.
    fn admit(&mut self, join: &Join, id: &MemberId) -> Result<bool, ErrorCode> {
        let Some(instance) = &join.instance_id else { return Ok(false) };
        let Some(old) = self.group.static_member(instance).cloned() else {
            return if join.member_id.is_empty() { Ok(false) } else { Err(ErrorCode::UnknownMemberId) };
        };
        let downgrades = old.classic().is_none() && self.may_downgrade_but(&old.id);
        if join.member_id.is_empty() {
            self.replace(&old, id);
        } else {
            self.group.known_static(id, instance).map_err(|(error, _)| error)?;
        }
        Ok(downgrades)
    }

    fn classic_joined(&self, id: &MemberId, protocol: Arc<str>) -> Result<Joined, ErrorCode> {
        let member = self.group.member(id).ok_or(ErrorCode::UnknownMemberId)?;
        Ok(Joined {
            generation: Generation(member.epoch.0),
            protocol_type: Some(CONSUMER_PROTOCOL_TYPE.into()),
            protocol: Some(protocol),
            ..Joined::error(ErrorCode::None, id.clone())
        })
    }

    /// LeaveGroup: what becomes of each.
    pub(in crate::group) fn classic_leave(&mut self, leave: &Leave) -> Vec<Left> {
        let mut ids: Vec<MemberId> = Vec::new();
        let mut members = Vec::new();
        let mut answers = Vec::with_capacity(leave.members.len());
        for member in &leave.members {
            let found = self.classic_leaving(member);
            if let Ok(found) = &found
                && !ids.contains(&found.id)
            {
                ids.push(found.id.clone());
                if members.len() < crate::group::story::WHO_MAX {
                    members.push((found.who(), member.reason.clone()));
                }
            }
            let error = found.err().map_or(ErrorCode::None, |(error, _)| error);
            answers.push(Left { member_id: member.member_id.clone(), instance_id: member.instance_id.clone(), error });
        }
        self.fence(&ids, Cause::Left { members });
        answers
    }

    fn classic_leaving(&self, member: &LeaveMember) -> Result<Arc<ConsumerMember>, Refusal> {
        match &member.instance_id {
            None => self.group.known(&self.id, &member.member_id).cloned(),
            Some(instance) if member.member_id.is_empty() => {
                let unknown = || (ErrorCode::UnknownMemberId, format!("Instance id {instance} is unknown."));
                self.group.static_member(instance).cloned().ok_or_else(unknown)
            }
            Some(instance) => self.group.known_static(&member.member_id, instance).cloned(),
        }
    }
}

impl ConsumerDraft<'_> {
    /// Answers the heartbeats of classic members that are held back and would hear something by now, as they would; and those of members that
    /// are gone.
    pub(super) fn release_classics(&mut self) {
        let waits = |(id, timers): (&MemberId, &Timers)| {
            let instance_id = self.was.member(id).and_then(|member| member.metadata.instance_id.as_ref());
            timers.beats.held.map(|held| (held, held.identity(&self.id, id, instance_id)))
        };
        let all: Vec<_> = self.was.memory.timers.iter().filter_map(waits).collect();
        for (held, from) in all {
            let error = match &self.downgraded {
                Some(classic) => classic.check_heartbeat(&from).0,
                None => self.group.told(&from),
            };
            let stays = self.downgraded.as_ref().is_none_or(|classic| classic.state() == State::Stable);
            if error == ErrorCode::None && stays || planted::is(Mistake::HoldsOn) {
                continue;
            }
            if let Some(classic) = &mut self.downgraded {
                classic.forget_held(&from.member_id);
            } else if let Some(timeout_ms) = self.group.member(&from.member_id).map(|member| member.metadata.rebalance_timeout_ms) {
                let ends = self.around.after(timeout_ms.into());
                let timers = self.timers(&from.member_id);
                timers.beats.held = None;
                if error == ErrorCode::RebalanceInProgress {
                    timers.join.get_or_insert(ends);
                }
            }
            self.replies.push((held.ticket, Reply::Alive(error)));
        }
    }
}

/// A member's metadata by its JoinGroup.
fn metadata(join: &Join, subscription: &Subscription, known: &ConsumerMemberMetadata) -> ConsumerMemberMetadata {
    ConsumerMemberMetadata {
        instance_id: join.instance_id.clone().or_else(|| known.instance_id.clone()),
        rack_id: subscription.rack_id.clone().filter(|rack| !rack.is_empty()).or_else(|| known.rack_id.clone()),
        client_id: join.client_id.clone(),
        client_host: join.client_host.clone(),
        subscribed_topic_names: subscription.topics.iter().map(|topic| topic.as_str().into()).collect(),
        subscribed_topic_regex: None,
        rebalance_timeout_ms: join.rebalance_timeout_ms,
        server_assignor: known.server_assignor.clone(),
        classic: Some(ClassicMemberMetadata { session_timeout_ms: join.session_timeout_ms, protocols: join.protocols.clone() }),
    }
}

impl Consumer {
    /// A classic member, if it is one.
    fn classic_member(&self, from: &Identity) -> Result<(&ConsumerMember, &ClassicMemberMetadata), ErrorCode> {
        let found = match &from.instance_id {
            None => self.known(&from.group, &from.member_id),
            Some(instance) => self.known_static(&from.member_id, instance),
        };
        let member = found.map_err(|(error, _)| error)?;
        let classic = member.classic().ok_or(ErrorCode::UnknownMemberId)?;
        if member.epoch.0 != from.generation.0 {
            return Err(ErrorCode::IllegalGeneration);
        }
        Ok((member, classic))
    }

    /// SyncGroup: a member hears what it has by now.
    pub(in crate::group) fn decide_sync(&self, around: &Surroundings<'_>, sync: &Sync) -> Decision<()> {
        let answered = |synced: Synced| Decision { replies: vec![(sync.ticket, Reply::Sync(synced))], ..Decision::only(()) };
        let (member, classic) = match self.classic_member(&sync.from) {
            Ok(found) => found,
            Err(error) => return answered(Synced::error(error)),
        };
        let Some(protocol) = classic.protocols.first() else { return answered(Synced::error(ErrorCode::UnknownMemberId)) };
        let other_type = sync.protocol_type.as_ref().is_some_and(|name| &**name != CONSUMER_PROTOCOL_TYPE);
        if other_type || sync.protocol.as_ref().is_some_and(|name| *name != protocol.name) {
            return answered(Synced::error(ErrorCode::InconsistentGroupProtocol));
        }
        let mut timers = self.memory.timers.get(&member.id).copied().unwrap_or_default();
        let late = self.target.assignment_epoch > member.epoch && member.state != MemberState::UnrevokedPartitions;
        let synced = if late {
            timers.join.get_or_insert(around.after(member.metadata.rebalance_timeout_ms.into()));
            Synced::error(ErrorCode::RebalanceInProgress)
        } else {
            timers.sync = None;
            timers.session = Some(around.after(classic.session_timeout_ms.into()));
            let partitions = by_name(&partitions_of(&member.assigned), around.topics);
            Synced {
                error: ErrorCode::None,
                protocol_type: sync.protocol_type.clone(),
                protocol: sync.protocol.clone(),
                assignment: Assignment { partitions, user_data: false }.write(subscription::version(&protocol.metadata)),
            }
        };
        let volatile = Volatile::Timers { group: sync.from.group.clone(), changed: vec![(member.id.clone(), timers)] };
        Decision { volatile: Some(volatile), ..answered(synced) }
    }

    /// Heartbeat of a classic member: the answer, or none if that is held back for one who has a ticket.
    pub(in crate::group) fn decide_classic_heartbeat(
        &self,
        around: &Surroundings<'_>,
        from: &Identity,
        ticket: Option<Ticket>,
    ) -> Decision<Option<ErrorCode>> {
        let (member, classic) = match self.classic_member(from) {
            Ok(found) => found,
            Err(error) => return Decision::only(Some(error)),
        };
        let mut timers = self.memory.timers.get(&member.id).copied().unwrap_or_default();
        let session_timeout_ms = classic.session_timeout_ms.into();
        timers.session = Some(around.after(session_timeout_ms));
        let error = if self.must_rejoin(member) { ErrorCode::RebalanceInProgress } else { ErrorCode::None };
        if error.is_error() {
            timers.join.get_or_insert(around.after(member.metadata.rebalance_timeout_ms.into()));
        }
        let bounds = Bounds { session_timeout_ms, max_ms: around.settings.group_classic_heartbeat_hold_max_ms.into() };
        let protocol = classic.protocols.first().map(|protocol| &*protocol.name);
        let holds = !error.is_error() && timers.sync.is_none() && beats::may_hold(self.members.len(), protocol);
        let earlier = timers.beats.heard(around.now.steady, ticket.filter(|_| holds), from, bounds);
        Decision {
            volatile: Some(Volatile::Timers { group: from.group.clone(), changed: vec![(member.id.clone(), timers)] }),
            replies: earlier.map(|held| (held.ticket, Reply::Alive(error))).into_iter().collect(),
            ..Decision::only(timers.beats.held.is_none().then_some(error))
        }
    }

    /// What a classic member's heartbeat would be answered now.
    fn told(&self, from: &Identity) -> ErrorCode {
        match self.classic_member(from) {
            Ok((member, _)) if self.must_rejoin(member) => ErrorCode::RebalanceInProgress,
            Ok(_) => ErrorCode::None,
            Err(error) => error,
        }
    }

    fn must_rejoin(&self, member: &ConsumerMember) -> bool {
        member.epoch < self.target.assignment_epoch
            || member.state == MemberState::UnrevokedPartitions
            || member.state == MemberState::UnreleasedPartitions && !self.waits_for_others(member)
    }

    /// Answers a classic member's heartbeat that is held back, with nothing new.
    pub(super) fn release_classic(&self, now: Now, group: &GroupId, ticket: Ticket, gone: bool) -> Option<Decision<()>> {
        let is_it = |timers: &Timers| timers.beats.held.is_some_and(|held| held.ticket == ticket);
        let (id, timers) = self.memory.timers.iter().find(|(_, timers)| is_it(timers))?;
        let mut timers = *timers;
        timers.beats.release(now.steady, gone);
        Some(Decision {
            volatile: Some(Volatile::Timers { group: group.clone(), changed: vec![(id.clone(), timers)] }),
            replies: vec![(ticket, Reply::Alive(ErrorCode::None))],
            ..Decision::only(())
        })
    }

    /// Whether others still have all that a member shall have and has not.
    fn waits_for_others(&self, member: &ConsumerMember) -> bool {
        let Some(target) = self.targets.get(&member.id) else { return false };
        let all = target.iter().flat_map(|(topic, partitions)| partitions.iter().map(move |partition| (topic, partition)));
        let has = |topic, partition| member.assigned.get(topic).is_some_and(|mine| mine.contains_key(partition));
        let mut missing = all.filter(|(topic, partition)| !has(topic, partition));
        missing.any(|(topic, partition)| self.owners.contains_key(&(*topic, *partition)))
    }
}
