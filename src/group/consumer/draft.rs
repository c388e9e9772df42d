//! A decision on one consumer group in the making: a copy of the group to which each record is applied as it is made, and what comes of it.

use super::{
    Consumer, ConsumerMember, Heartbeaten, MemberState, Partitions, Timers,
    pace::Why,
    planted::{self, Mistake},
    reconcile::Step,
};
use crate::{
    group::{
        Classic, ConsumerGroupMetadata, ConsumerRecord, Decision, Epoch, GroupId, GroupSettings, MemberId, Note, Now, Record, Reply,
        Settings, Ticket, Topics, Volatile, classic::Cause,
    },
    types::{ErrorCode, Millis, TopicPartition},
};
use std::{collections::BTreeSet, sync::Arc};

/// What a decision on a group depends on, besides the group.
#[derive(Clone, Copy)]
pub(in crate::group) struct Surroundings<'a> {
    pub settings: &'a Settings,
    pub own: GroupSettings,
    pub topics: &'a dyn Topics,
    pub topics_version: u64,
    pub now: Now,
}

impl Surroundings<'_> {
    pub fn session_timeout_ms(&self) -> i64 {
        if planted::is(Mistake::WaitsForEver) {
            return i64::MAX;
        }
        self.own.consumer_session_timeout_ms.unwrap_or(self.settings.group_consumer_session_timeout_ms).into()
    }

    pub fn heartbeat_interval_ms(&self) -> i32 {
        self.own.consumer_heartbeat_interval_ms.unwrap_or(self.settings.group_consumer_heartbeat_interval_ms)
    }

    pub fn assignment_interval_ms(&self) -> i64 {
        self.own.consumer_assignment_interval_ms.unwrap_or(self.settings.group_consumer_assignment_interval_ms).into()
    }

    /// `ms` from now, by the clock of deadlines.
    pub fn after(&self, ms: i64) -> Millis {
        self.now.steady.plus(ms)
    }
}

/// Why a request is refused, in words too.
pub(super) type Refusal = (ErrorCode, String);

/// The copy and the outcome so far.
pub(in crate::group) struct ConsumerDraft<'a> {
    pub(super) around: Surroundings<'a>,
    pub(super) id: GroupId,
    pub(super) was: Consumer,
    pub(super) group: Consumer,
    pub(super) records: Vec<Record>,
    pub(super) replies: Vec<(Ticket, Reply)>,
    pub(super) notes: Vec<Note>,
    pub(super) cause: Option<Cause>,
    /// The group was a classic one until now.
    pub(super) upgraded: bool,
    /// The group is a classic one from now on.
    pub(super) downgraded: Option<Box<Classic>>,
}

impl<'a> ConsumerDraft<'a> {
    pub fn of(around: Surroundings<'a>, id: GroupId, group: Consumer) -> Self {
        let was = group.clone();
        let (records, replies, notes) = (Vec::new(), Vec::new(), Vec::new());
        Self { around, id, was, group, records, replies, notes, cause: None, upgraded: false, downgraded: None }
    }

    pub fn finish<R>(mut self, reply: R) -> Decision<R> {
        self.release_classics();
        self.tell();
        let volatile = match self.downgraded {
            Some(classic) => Volatile::Classic(self.id, classic),
            None => Volatile::Consumer(self.id, Box::new(self.group.memory)),
        };
        Decision {
            reply,
            records: self.records,
            volatile: Some(volatile),
            replies: self.replies,
            notes: self.notes,
            records_may_fail: false,
        }
    }

    /// Writes a record.
    pub fn put(&mut self, record: ConsumerRecord) {
        self.group.apply(&record);
        self.records.push(Record::Consumer { group: self.id.clone(), record });
    }

    pub fn reply(&mut self, ticket: Ticket, answer: Heartbeaten) {
        self.replies.push((ticket, Reply::Heartbeat(answer)));
    }

    pub fn timers(&mut self, id: &MemberId) -> &mut Timers {
        self.group.memory.timers.entry(id.clone()).or_default()
    }

    /// Its session begins anew.
    pub fn keep_alive(&mut self, id: &MemberId) {
        let own_ms = self.group.member(id).and_then(ConsumerMember::classic).map(|classic| i64::from(classic.session_timeout_ms));
        let ends = self.around.after(own_ms.unwrap_or(self.around.session_timeout_ms()));
        self.timers(id).session = Some(ends);
    }

    /// The group changes: its epoch is raised.
    pub fn bump(&mut self, cause: Cause) {
        let metadata_hash = self.group.hash_of_topics(self.around.topics);
        self.put(ConsumerRecord::Group(Some(ConsumerGroupMetadata { epoch: self.group.epoch.next(), metadata_hash })));
        self.cause.get_or_insert(cause);
    }

    /// Raises the epoch if the topics have changed that the group subscribes to.
    pub fn check_topics(&mut self) {
        self.refresh_regexes();
        if self.group.hash_of_topics(self.around.topics) != self.group.metadata_hash {
            self.bump(Cause::TopicsChanged);
        }
        self.group.memory.topics_seen = self.around.topics_version;
    }

    /// What follows from all that was changed: a new target assignment, and the answers of those who have news by it.
    pub fn settle(&mut self) {
        if self.downgraded.is_none() {
            self.assign_if_due();
            self.release();
        }
    }

    /// Takes a member one step on; whether it changed.
    pub fn reconcile(&mut self, id: &MemberId, subscription_changed: bool, owned: Option<&Partitions>) -> Result<bool, Refusal> {
        let Some(member) = self.group.members.get(id).cloned() else { return Ok(false) };
        let target_epoch = self.group.target.assignment_epoch;
        if !subscription_changed && member.is_reconciled_to(target_epoch) {
            return Ok(false);
        }
        let next = self.group.step(&member, self.around.topics, subscription_changed, owned).map_err(|super::reconcile::Unknown| {
            let told = "The consumer group member is in a unknown state. The member must abandon all its partitions and rejoin.";
            (ErrorCode::FencedMemberEpoch, told.to_owned())
        })?;
        if next == *member {
            return Ok(false);
        }
        let revocation = (next.state == MemberState::UnrevokedPartitions && next.classic().is_none())
            .then(|| (self.around.after(next.metadata.rebalance_timeout_ms.into()), next.epoch));
        self.timers(id).revocation = revocation;
        self.put(ConsumerRecord::Current(id.clone(), Some(next.current())));
        Ok(true)
    }

    /// Answers the heartbeats that are held back of members that have news: other partitions, or such as they must let go. A new epoch alone
    /// is none: in a large group it would be everybody's with each change, and their next heartbeat brings it.
    fn release(&mut self) {
        let held = |(id, timers): (&MemberId, &Timers)| timers.held.map(|held| (id.clone(), held));
        let held: Vec<_> = self.group.memory.timers.iter().filter_map(held).collect();
        for (id, held) in held {
            let Some(member) = self.group.members.get(&id).cloned() else { continue };
            let news = match self.group.step(&member, self.around.topics, false, None) {
                Ok(next) => next.differs_in_partitions(&member),
                Err(_) => false,
            };
            // A member that has just come has no epoch to go on with until it is answered.
            if (news || held.whole) && self.reconcile(&id, false, None) == Ok(true) && !(held.whole && self.waits_for_its_first(&id)) {
                self.answer_held(&id);
            }
        }
    }

    /// Answers a member's heartbeat that is held back, if there is one, with what is new since.
    pub fn answer_held(&mut self, id: &MemberId) {
        let Some(held) = self.timers(id).held.take() else { return };
        let Some(answer) = self.answer(id, held.whole) else { return };
        self.reply(held.ticket, answer);
        self.keep_alive(id);
    }

    /// What a member hears; its assignment if that is asked for or new.
    pub fn answer(&mut self, id: &MemberId, whole: bool) -> Option<Heartbeaten> {
        let member = self.group.member(id)?;
        let changed = self.was.member(id).is_none_or(|was| was.assigned != member.assigned);
        let answer = self.group.heartbeaten(&self.around, member, whole || changed, Why::News);
        self.timers(id).told_ms = answer.heartbeat_interval_ms;
        Some(answer)
    }
}

impl Consumer {
    /// The step that a member would take now.
    pub(super) fn step(
        &self,
        member: &ConsumerMember,
        topics: &dyn Topics,
        subscription_changed: bool,
        owned: Option<&Partitions>,
    ) -> Result<ConsumerMember, super::reconcile::Unknown> {
        let nothing = Arc::default();
        let step = Step {
            target_epoch: self.target.assignment_epoch,
            target: self.targets.get(&member.id).unwrap_or(&nothing),
            subscribes: &|topic| topics.by_id(topic).is_some_and(|topic| self.subscribes(member, topic.name.as_str())),
            subscription_changed,
            is_free: &|topic, partition| planted::is(Mistake::GrantsWhatOthersHave) || !self.owners.contains_key(&(topic, partition)),
            owned,
        };
        step.next(member)
    }

    pub(super) fn heartbeaten(&self, around: &Surroundings<'_>, member: &ConsumerMember, with_assignment: bool, why: Why) -> Heartbeaten {
        Heartbeaten {
            error: ErrorCode::None,
            error_message: None,
            member_id: Some(member.id.clone()),
            member_epoch: member.epoch,
            heartbeat_interval_ms: self.interval_ms(around, member, why),
            assignment: with_assignment.then(|| partitions_of(&member.assigned)),
        }
    }

    /// What takes all of the group out of the log.
    pub(in crate::group) fn tombstones(&self, group: &GroupId) -> Vec<Record> {
        let current = self.members.keys().map(|id| ConsumerRecord::Current(id.clone(), None));
        let targets = self.targets.keys().map(|id| ConsumerRecord::Target(id.clone(), None));
        let members = self.members.keys().map(|id| ConsumerRecord::Member(id.clone(), None));
        let regexes = self.regexes.keys().map(|regex| ConsumerRecord::Regex(regex.clone(), None));
        let records = current.chain(targets).chain([ConsumerRecord::TargetMetadata(None)]).chain(members).chain(regexes);
        let all = records.chain([ConsumerRecord::NoPartitionMetadata, ConsumerRecord::Group(None)]);
        all.map(|record| Record::Consumer { group: group.clone(), record }).collect()
    }
}

/// The same without epochs.
pub(super) fn partitions_of(owned: &super::Owned) -> Partitions {
    owned.iter().map(|(topic, partitions)| (*topic, partitions.keys().copied().collect())).collect()
}

impl ConsumerDraft<'_> {
    /// Tells of the partitions that changed hands.
    fn tell_moved(&mut self) {
        let touched = |record: &'_ Record| match record {
            Record::Consumer { record: ConsumerRecord::Current(id, _), .. } => Some(id.clone()),
            _ => None,
        };
        let touched: BTreeSet<MemberId> = self.records.iter().filter_map(touched).collect();
        let of = |group: &Consumer, other: &Consumer| -> BTreeSet<TopicPartition> {
            let same = |id: &MemberId, member| other.members.get(id).is_some_and(|there| Arc::ptr_eq(there, member));
            let changed = touched.iter().filter_map(|id| Some((id, group.members.get(id)?))).filter(|(id, member)| !same(id, member));
            // Whoever is away for a while reads nothing.
            let there = changed.map(|(_, member)| member).filter(|member| member.epoch >= Epoch(0));
            let each =
                there.flat_map(|member| &member.assigned).filter_map(|(id, owned)| Some((self.around.topics.by_id(*id)?.name, owned)));
            each.flat_map(|(topic, owned)| {
                owned.keys().map(move |partition| TopicPartition { topic: topic.clone(), partition: *partition })
            })
            .collect()
        };
        let (before, after) = (of(&self.was, &self.group), of(&self.group, &self.was));
        let lost: Vec<_> = before.difference(&after).cloned().collect();
        let gained: Vec<_> = after.difference(&before).cloned().collect();
        if !lost.is_empty() || !gained.is_empty() {
            Note::Moved { group: self.id.clone(), lost, gained }.tell_among(&mut self.notes);
        }
    }

    /// Tells who has let go of what others wait for.
    fn tell_let_go(&mut self) {
        let touched = |record: &Record| match record {
            Record::Consumer { record: ConsumerRecord::Current(id, Some(_)), .. } => Some(id.clone()),
            _ => None,
        };
        let touched: BTreeSet<MemberId> = self.records.iter().filter_map(touched).collect();
        let revokes =
            |group: &Consumer, id: &MemberId| group.member(id).is_some_and(|member| member.state == MemberState::UnrevokedPartitions);
        for id in touched.iter().filter(|id| revokes(&self.was, id) && !revokes(&self.group, id)) {
            if let Some(who) = self.group.member(id).map(ConsumerMember::who) {
                Note::LetGo { group: self.id.clone(), who }.tell_among(&mut self.notes);
            }
        }
    }

    /// Tells the group's story: what this decision has changed.
    fn tell(&mut self) {
        let generation = |epoch: Epoch| crate::group::Generation(epoch.0);
        let members = self.group.members.len();
        if let Some(cause) = self.cause.take() {
            let (from, before) = (generation(self.was.epoch), self.was.members.len());
            let (group, deserted) = (self.id.clone(), members == 0);
            self.notes.insert(0, Note::Preparing { group, generation: from, members: before, deserted, cause });
        }
        self.tell_moved();
        if self.downgraded.is_some() {
            return;
        }
        let target = self.group.target.assignment_epoch;
        if target > self.was.target.assignment_epoch && members > 0 {
            let (group, generation) = (self.id.clone(), generation(target));
            self.notes.push(Note::Generation { group, generation, members, removed: Vec::new(), last: None });
        }
        let (was, is) = ((self.was.state(), self.was.epoch), (self.group.state(), self.group.epoch));
        self.tell_let_go();
        if was != is {
            let (group, generation) = (self.id.clone(), generation(self.group.epoch));
            match is.0 {
                super::ConsumerState::Stable => self.notes.push(Note::Stable { group, generation, members }),
                super::ConsumerState::Empty => self.notes.push(Note::Empty { group, generation }),
                super::ConsumerState::Assigning | super::ConsumerState::Reconciling => {}
            }
        }
    }
}
