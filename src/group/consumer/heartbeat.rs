//! ConsumerGroupHeartbeat: who joins, who is who it says, what is new for it, and when its answer is held back
//! (`GroupMetadataManager.consumerGroupHeartbeat`).

use super::{
    Consumer, ConsumerMember, Heartbeat, Heartbeaten, Held, MemberState, Owned, Partitions, Timers,
    draft::{ConsumerDraft, Refusal, Surroundings},
    pace::{self, Why},
    regex,
};
use crate::{
    group::{
        Assignors, ConsumerMemberMetadata, ConsumerRecord, Decision, Epoch, InstanceId, METADATA_BYTES_MAX, MemberId, Reply, Volatile,
        classic::Cause, groups::Protocol,
    },
    types::ErrorCode,
};
use std::sync::Arc;

pub(in crate::group) fn decide_heartbeat(around: Surroundings<'_>, protocol: Option<&Protocol>, heartbeat: &Heartbeat) -> Decision<()> {
    let consumer = match protocol {
        Some(Protocol::Consumer(consumer)) => Some(&**consumer),
        Some(Protocol::Classic(_)) | None => None,
    };
    if let Some(decision) = consumer.and_then(|consumer| consumer.without_news(&around, heartbeat)) {
        return decision;
    }
    let decided = heartbeat.check(&around.settings.group_consumer_assignors).and_then(|()| {
        let mut draft = ConsumerDraft::for_heartbeat(around, protocol, heartbeat)?;
        draft.heartbeat(heartbeat)?;
        Ok(draft.finish(()))
    });
    decided.unwrap_or_else(|(error, message)| {
        let answer = Heartbeaten::error(error, message);
        Decision { replies: vec![(heartbeat.ticket, Reply::Heartbeat(answer))], ..Decision::only(()) }
    })
}

impl Heartbeat {
    /// What can be said without looking at the group (`throwIfConsumerGroupHeartbeatRequestIsInvalid`).
    fn check(&self, assignors: &Assignors) -> Result<(), Refusal> {
        let invalid = |told: &str| Err((ErrorCode::InvalidRequest, told.to_owned()));
        let empty = |text: &Option<Arc<str>>| text.as_ref().is_some_and(|text| is_blank(text));
        if (self.requires_member_id || self.member_epoch > Epoch::JOIN || self.member_epoch == Epoch::LEAVE) && is_blank(&self.member_id) {
            return invalid("MemberId can't be empty.");
        }
        if is_blank(&self.group) {
            return invalid("GroupId can't be empty.");
        }
        if empty(&self.instance_id) {
            return invalid("InstanceId can't be empty.");
        }
        if empty(&self.rack_id) {
            return invalid("RackId can't be empty.");
        }
        if self.member_epoch == Epoch::JOIN {
            if self.rebalance_timeout_ms == -1 {
                return invalid("RebalanceTimeoutMs must be provided in first request.");
            }
            if self.owned.as_ref().is_none_or(|owned| !owned.is_empty()) {
                return invalid("TopicPartitions must be empty when (re-)joining.");
            }
            if self.subscribed_topic_names.is_none() && self.subscribed_topic_regex.is_none() {
                return invalid("Either SubscribedTopicNames or SubscribedTopicRegex must be non-null when (re-)joining.");
            }
        } else if self.member_epoch == Epoch::STATIC_LEAVE && self.instance_id.is_none() {
            return invalid("InstanceId can't be null.");
        } else if self.member_epoch < Epoch::STATIC_LEAVE {
            return invalid("MemberEpoch is invalid.");
        }
        match &self.server_assignor {
            Some(name) if !assignors.iter().any(|assignor| assignor.name() == &**name) => {
                let supported = assignors.iter().map(super::Assignor::name).collect::<Vec<_>>().join(", ");
                let told = format!("ServerAssignor {name} is not supported. Supported assignors: {supported}.");
                Err((ErrorCode::UnsupportedAssignor, told))
            }
            _ => Ok(()),
        }
    }

    /// It says all that there is to say, as after a lost connection: it wants to hear all, too.
    fn is_full(&self) -> bool {
        let subscribes = self.subscribed_topic_names.is_some() || self.subscribed_topic_regex.is_some();
        self.rebalance_timeout_ms != -1 && subscribes && self.owned.is_some()
    }

    /// A member's metadata with what this says.
    fn update(&self, metadata: &ConsumerMemberMetadata) -> ConsumerMemberMetadata {
        let or = |new: &Option<Arc<str>>, old: &Option<Arc<str>>| new.clone().or_else(|| old.clone());
        ConsumerMemberMetadata {
            instance_id: or(&self.instance_id, &metadata.instance_id),
            rack_id: or(&self.rack_id, &metadata.rack_id),
            client_id: self.client_id.clone(),
            client_host: self.client_host.clone(),
            subscribed_topic_names: self.subscribed_topic_names.clone().unwrap_or_else(|| metadata.subscribed_topic_names.clone()),
            subscribed_topic_regex: or(&self.subscribed_topic_regex, &metadata.subscribed_topic_regex).filter(|regex| !regex.is_empty()),
            rebalance_timeout_ms: if self.rebalance_timeout_ms == -1 { metadata.rebalance_timeout_ms } else { self.rebalance_timeout_ms },
            server_assignor: or(&self.server_assignor, &metadata.server_assignor),
            classic: None,
        }
    }

    /// Whether it says nothing that isn't known.
    fn repeats(&self, metadata: &ConsumerMemberMetadata) -> bool {
        let same = |new: &Option<Arc<str>>, old: &Option<Arc<str>>| new.is_none() || new == old;
        same(&self.instance_id, &metadata.instance_id)
            && same(&self.rack_id, &metadata.rack_id)
            && self.client_id == metadata.client_id
            && self.client_host == metadata.client_host
            && self.subscribed_topic_names.as_ref().is_none_or(|names| *names == metadata.subscribed_topic_names)
            && self
                .subscribed_topic_regex
                .as_deref()
                .is_none_or(|regex| regex == metadata.subscribed_topic_regex.as_deref().unwrap_or_default())
            && (self.rebalance_timeout_ms == -1 || self.rebalance_timeout_ms == metadata.rebalance_timeout_ms)
            && same(&self.server_assignor, &metadata.server_assignor)
            && metadata.classic.is_none()
    }
}

fn is_blank(text: &str) -> bool {
    text.trim().is_empty()
}

fn is_subset(owned: Option<&Partitions>, of: &Owned) -> bool {
    let within = |(topic, partitions): (&crate::types::TopicId, &std::collections::BTreeSet<_>)| {
        of.get(topic).is_some_and(|mine| partitions.iter().all(|partition| mine.contains_key(partition)))
    };
    owned.is_some_and(|owned| owned.iter().all(within))
}

/// Whether a member may go on with the epoch that it sends: its own, or the one before if the answer with the new one was lost.
fn check_epoch(member: &ConsumerMember, received: Epoch, owned: Option<&Partitions>) -> Result<(), Refusal> {
    let fenced = |than: &str| {
        let (Epoch(received), Epoch(known)) = (received, member.epoch);
        let told = format!(
            "The consumer group member has a {than} member epoch ({received}) than the one known by the group coordinator ({known}). The \
             member must abandon all its partitions and rejoin."
        );
        Err((ErrorCode::FencedMemberEpoch, told))
    };
    if received == Epoch::JOIN {
        Ok(())
    } else if received > member.epoch {
        fenced("greater")
    } else if received < member.epoch && (received != member.previous_epoch || !is_subset(owned, &member.assigned)) {
        fenced("smaller")
    } else {
        Ok(())
    }
}

fn fenced_by(member: &ConsumerMember, received: &MemberId, instance: &InstanceId) -> Result<(), Refusal> {
    if member.id == *received {
        return Ok(());
    }
    let told = format!("Static member {received} with instance id {instance} was fenced by member {}.", member.id);
    Err((ErrorCode::FencedInstanceId, told))
}

impl Consumer {
    pub(super) fn known(&self, group: &str, id: &str) -> Result<&Arc<ConsumerMember>, Refusal> {
        self.members.get(id).ok_or_else(|| (ErrorCode::UnknownMemberId, format!("Member {id} is not a member of group {group}.")))
    }

    pub(super) fn known_static(&self, id: &MemberId, instance: &InstanceId) -> Result<&Arc<ConsumerMember>, Refusal> {
        let unknown = || (ErrorCode::UnknownMemberId, format!("Instance id {instance} is unknown."));
        let member = self.static_member(instance).ok_or_else(unknown)?;
        fenced_by(member, id, instance).map(|()| member)
    }

    /// The decision on a heartbeat that says and hears nothing new, as nearly all do: the group isn't copied, nothing is written. `None`
    /// if it may be otherwise.
    fn without_news(&self, around: &Surroundings<'_>, heartbeat: &Heartbeat) -> Option<Decision<()>> {
        let member = self.members.get(&heartbeat.member_id)?;
        let waits = self.memory.assign_at.is_some_and(|at| at > around.now.steady);
        let settled = (self.epoch == self.target.assignment_epoch || waits)
            && self.memory.topics_seen == around.topics_version
            && self.memory.resolve_at.is_none_or(|at| at > around.now.steady);
        let same = heartbeat.member_epoch > Epoch::JOIN && heartbeat.member_epoch == member.epoch && heartbeat.repeats(&member.metadata);
        // An instance id that another member has, or none has.
        let fenced = heartbeat.instance_id.as_ref().is_some_and(|instance| self.statics.get(instance) != Some(&member.id));
        if !settled || !same || fenced {
            return None;
        }
        let mut timers = self.memory.timers.get(&member.id).copied().unwrap_or_default();
        let may_hold = !heartbeat.is_full() && member.state != MemberState::UnrevokedPartitions;
        let hold_ms = if may_hold { pace::hold_ms(timers.told_ms, heartbeat.hold_ms) } else { 0 };
        // A new epoch alone can wait until the answer leaves: in a group that changes, members would hear of nothing else.
        let stays = member.is_reconciled_to(self.target.assignment_epoch)
            || self.step(member, around.topics, false, heartbeat.owned.as_ref()).is_ok_and(|next| {
                next == **member || hold_ms > 0 && member.epoch < self.target.assignment_epoch && !next.differs_in_partitions(member)
            });
        if !stays {
            return None;
        }
        let mut replies = Vec::new();
        // Nobody reads the answer to an earlier one any more, but it may hold up a connection.
        if let Some(held) = timers.held.take() {
            replies.push((held.ticket, Reply::Heartbeat(self.heartbeaten(around, member, held.whole, Why::News))));
        }
        timers.holds = heartbeat.hold_ms > 0;
        timers.session = Some(around.after(hold_ms.saturating_add(around.session_timeout_ms())));
        if hold_ms > 0 {
            timers.held = Some(Held { ticket: heartbeat.ticket, until: around.after(hold_ms), whole: false });
        } else {
            let answer = self.heartbeaten(around, member, heartbeat.is_full(), Why::News);
            timers.told_ms = answer.heartbeat_interval_ms;
            replies.push((heartbeat.ticket, Reply::Heartbeat(answer)));
        }
        let volatile = Volatile::Timers { group: heartbeat.group.clone(), changed: vec![(member.id.clone(), timers)] };
        Some(Decision { volatile: Some(volatile), replies, ..Decision::only(()) })
    }

    /// Answers a heartbeat that is held back, with nothing new but perhaps an epoch.
    pub(in crate::group) fn decide_release(
        &self,
        around: Surroundings<'_>,
        group: &crate::group::GroupId,
        ticket: crate::group::Ticket,
        gone: bool,
    ) -> Decision<()> {
        if let Some(decision) = self.release_classic(around.now, group, ticket, gone) {
            return decision;
        }
        let is_it = |timers: &Timers| timers.held.is_some_and(|held| held.ticket == ticket);
        let found = self.memory.timers.iter().find(|(_, timers)| is_it(timers));
        let Some((id, member, timers)) = found.and_then(|(id, timers)| Some((id, self.members.get(id)?, timers))) else {
            return Decision::only(());
        };
        if self.is_behind(member) {
            let mut draft = ConsumerDraft::of(around, group.clone(), self.clone());
            draft.bring_up(id);
            return draft.finish(());
        }
        let session = Some(around.after(around.session_timeout_ms()));
        let whole = timers.held.is_some_and(|held| held.whole);
        let answer = self.heartbeaten(&around, member, whole, Why::Interrupted);
        let timers = Timers { held: None, session, told_ms: answer.heartbeat_interval_ms, ..*timers };
        Decision {
            volatile: Some(Volatile::Timers { group: group.clone(), changed: vec![(id.clone(), timers)] }),
            replies: vec![(ticket, Reply::Heartbeat(answer))],
            ..Decision::only(())
        }
    }
}

impl<'a> ConsumerDraft<'a> {
    /// The group that a heartbeat is for: a joining member may make it, or make a consumer group of a classic one
    /// (`getOrMaybeCreateConsumerGroup`).
    fn for_heartbeat(around: Surroundings<'a>, protocol: Option<&Protocol>, heartbeat: &Heartbeat) -> Result<Self, Refusal> {
        let id = &heartbeat.group;
        let joins = heartbeat.member_epoch == Epoch::JOIN;
        let new = || Self::of(around, id.clone(), Consumer::new(around.topics_version));
        match protocol {
            Some(Protocol::Consumer(consumer)) => Ok(Self::of(around, id.clone(), Consumer::clone(consumer))),
            None if joins => Ok(new()),
            None if heartbeat.member_epoch < Epoch::JOIN => Err((ErrorCode::GroupIdNotFound, format!("Group {id} not found."))),
            None => Err((ErrorCode::GroupIdNotFound, format!("Consumer group {id} not found."))),
            Some(Protocol::Classic(classic)) if joins && classic.members().len() == 0 => {
                let mut draft = new();
                draft.records.push(crate::group::Record::Group { group: id.clone(), value: None });
                Ok(draft)
            }
            Some(Protocol::Classic(classic)) if joins => Self::upgrade(around, id, classic),
            Some(Protocol::Classic(_)) => Err((ErrorCode::GroupIdNotFound, format!("Group {id} is not a consumer group."))),
        }
    }

    fn heartbeat(&mut self, heartbeat: &Heartbeat) -> Result<(), Refusal> {
        if heartbeat.member_epoch < Epoch::JOIN {
            return self.leave(heartbeat);
        }
        let joins = heartbeat.member_epoch == Epoch::JOIN;
        self.check_room(&heartbeat.member_id, heartbeat.instance_id.as_ref())?;
        if let Some(pattern) = heartbeat.subscribed_topic_regex.as_ref().filter(|pattern| !pattern.is_empty())
            && !self.group.by_regex.contains_key(pattern)
        {
            regex::check(pattern)?;
        }
        let id = if heartbeat.member_id.is_empty() { &heartbeat.fresh_id } else { &heartbeat.member_id };
        match &heartbeat.instance_id {
            None if !joins => check_epoch(self.group.known(&self.id, id)?, heartbeat.member_epoch, heartbeat.owned.as_ref())?,
            None => {}
            Some(instance) if !joins => {
                let member = self.group.known_static(id, instance)?;
                check_epoch(member, heartbeat.member_epoch, heartbeat.owned.as_ref())?;
            }
            Some(instance) => {
                if let Some(old) = self.group.static_member(instance).cloned() {
                    if old.classic().is_none() && old.epoch != Epoch::STATIC_LEAVE {
                        let told = format!(
                            "Static member {id} with instance id {instance} cannot join the group because the instance id is owned by {} member.",
                            old.id
                        );
                        return Err((ErrorCode::UnreleasedInstanceId, told));
                    }
                    self.replace(&old, id);
                }
            }
        }
        let old = self.group.members.get(id).cloned();
        let known = old.as_ref().map_or_else(|| ConsumerMember::new(id.clone()).metadata, |member| member.metadata.clone());
        let new = heartbeat.update(&known);
        self.check_metadata(id, &new)?;
        // With whoever makes it a consumer group an assignment begins, also where that is a static member that stood in the classic one, and
        // has nothing from there (Kafka bumps the epoch since the classic group had no hash of its topics).
        let changed = self.subscribe(id, &known, new, old.is_none() || self.upgraded);
        self.settle_one(id, changed, heartbeat.owned.as_ref())?;
        self.keep_alive(id);
        self.timers(id).holds = heartbeat.hold_ms > 0;
        self.timers(id).join = None;
        self.timers(id).sync = None;
        let whole = joins || heartbeat.is_full();
        let held = self.timers(id).held.take();
        if joins && held.is_none() && heartbeat.hold_ms > 0 && self.waits_for_its_first(id) {
            // Answered with the first partitions that others let go, or soon without.
            let until = self.around.after(pace::JOIN_HOLD_MS.min(heartbeat.hold_ms));
            self.timers(id).held = Some(Held { ticket: heartbeat.ticket, until, whole });
            return Ok(());
        }
        // A member that says that it let go has nothing more to hear but an epoch: it is here already when others let go, too.
        let hold_ms =
            if whole || held.is_some() || self.has_news(id) { 0 } else { pace::hold_ms(self.timers(id).told_ms, heartbeat.hold_ms) };
        if hold_ms > 0 {
            let until = self.around.after(hold_ms);
            self.timers(id).held = Some(Held { ticket: heartbeat.ticket, until, whole });
            return Ok(());
        }
        if let Some(answer) = self.answer(id, whole) {
            if let Some(held) = held {
                self.reply(held.ticket, answer.clone());
            }
            self.reply(heartbeat.ticket, answer);
        }
        Ok(())
    }

    /// Takes a member on whose heartbeat was held back, and answers it.
    pub(super) fn bring_up(&mut self, id: &MemberId) {
        // A member in a state of a newer coordinator's hears of it with its next heartbeat.
        let _ = self.reconcile(id, false, None);
        self.answer_held(id);
        self.settle();
    }

    /// By this decision it has other partitions, or such as it must let go.
    fn has_news(&self, id: &MemberId) -> bool {
        let Some(member) = self.group.member(id) else { return true };
        let changed = self.was.member(id).is_none_or(|was| was.assigned != member.assigned);
        changed || member.state == MemberState::UnrevokedPartitions || member.classic().is_some()
    }

    /// It shall have partitions, or may, and has none yet.
    pub(super) fn waits_for_its_first(&self, id: &MemberId) -> bool {
        let undecided = self.group.memory.assign_at.is_some();
        let shall_have = self.group.targets.get(id).map_or(undecided, |target| !target.is_empty());
        shall_have && self.group.member(id).is_some_and(|member| member.assigned.is_empty())
    }

    /// `throwIfConsumerGroupIsFull`.
    pub(super) fn check_room(&self, id: &MemberId, instance: Option<&InstanceId>) -> Result<(), Refusal> {
        let max = self.around.settings.group_consumer_max_size;
        let comes_back = instance.is_some_and(|instance| self.group.statics.contains_key(instance)) || self.group.members.contains_key(id);
        if comes_back || self.group.members.len() < max {
            return Ok(());
        }
        Err((ErrorCode::GroupMaxSizeReached, format!("The consumer group has reached its maximum capacity of {max} members.")))
    }

    /// Whether a member's metadata fits beside that of the others.
    pub(super) fn check_metadata(&self, id: &MemberId, new: &ConsumerMemberMetadata) -> Result<(), Refusal> {
        let old = self.group.member(id).map_or(0, |member| member.metadata.bytes());
        if self.group.metadata_bytes.saturating_sub(old).saturating_add(new.bytes()) <= METADATA_BYTES_MAX {
            return Ok(());
        }
        Err((ErrorCode::GroupMaxSizeReached, format!("The members' metadata of the group is larger than {METADATA_BYTES_MAX} bytes.")))
    }

    /// A member's metadata is this now, and what it means for the group; whether its subscription has changed.
    pub(super) fn subscribe(&mut self, id: &MemberId, old: &ConsumerMemberMetadata, new: ConsumerMemberMetadata, is_new: bool) -> bool {
        let offered = self.around.settings.group_consumer_assignors;
        let assignor = self.group.assignor(&offered);
        let names_changed = old.subscribed_topic_names != new.subscribed_topic_names;
        let regex_changed = old.subscribed_topic_regex != new.subscribed_topic_regex;
        if is_new || *old != new {
            self.put(ConsumerRecord::Member(id.clone(), Some(new)));
        }
        if regex_changed {
            self.settle_regexes();
        }
        let who = self.group.member(id).map(ConsumerMember::who);
        let changed = names_changed || regex_changed;
        match who {
            Some(who) if is_new => self.bump(Cause::Joined { who, reason: None }),
            Some(who) if changed || assignor != self.group.assignor(&offered) => self.bump(Cause::MetadataChanged { who, reason: None }),
            _ => {}
        }
        if self.group.memory.topics_seen != self.around.topics_version || self.group.memory.resolve_at.is_some() {
            self.check_topics();
        }
        changed
    }

    /// Takes a member on, and then the others who have news by that.
    pub(super) fn settle_one(&mut self, id: &MemberId, subscription_changed: bool, owned: Option<&Partitions>) -> Result<(), Refusal> {
        self.assign_if_due();
        // It is answered by itself.
        let held = self.timers(id).held.take();
        self.reconcile(id, subscription_changed, owned)?;
        self.settle();
        self.timers(id).held = held;
        Ok(())
    }

    /// A static member came back under another id: it has what its former self had.
    pub(super) fn replace(&mut self, old: &ConsumerMember, id: &MemberId) {
        let target = self.group.target(&old.id).cloned().unwrap_or_default();
        let new = ConsumerMember { id: id.clone(), epoch: Epoch(0), previous_epoch: Epoch(0), ..old.clone() };
        self.remove(&old.id, ErrorCode::FencedInstanceId);
        self.put(ConsumerRecord::Member(id.clone(), Some(new.metadata.clone())));
        self.put(ConsumerRecord::Target(id.clone(), Some(target)));
        self.put(ConsumerRecord::Current(id.clone(), Some(new.current())));
    }
}
