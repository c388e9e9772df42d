//! The groups of one shard: decisions on one of them by name, and the two functions that change anything.

use super::{
    Classic, ConsumerRecord, Decision, Generation, GroupId, GroupSettings, Left, NoTopics, Note, Now, Record, Reply, Settings, State,
    Ticket, Topics, Volatile,
    classic::{
        command::{Identity, Join, Joined, Leave, Sync, Synced},
        draft::Draft,
    },
    consumer::{self, Consumer, ConsumerDraft, Heartbeat, Surroundings},
    offsets::Offsets,
    pending::Pending,
    story::Story,
};
use crate::types::{ErrorCode, Millis, ProducerId, TopicName};
use std::{
    collections::{BTreeSet, HashMap},
    sync::Arc,
};

/// A group: who is in it, by the protocol that it uses, and what it committed.
#[derive(Clone, PartialEq, Debug, Default)]
pub struct Group {
    protocol: Protocol,
    pub(super) offsets: Offsets,
    pub(super) pending: Pending,
    story: Story,
    /// A record tells of its members: it has to be deleted by one.
    stored: bool,
}

/// Which protocol a group's members speak. Classic members may be in a consumer group, but not the other way round.
#[derive(Clone, PartialEq, Debug)]
pub(super) enum Protocol {
    Classic(Box<Classic>),
    Consumer(Box<Consumer>),
}

impl Default for Protocol {
    fn default() -> Self {
        Self::Classic(Box::default())
    }
}

impl Group {
    /// `None` for a consumer group.
    pub fn classic(&self) -> Option<&Classic> {
        match &self.protocol {
            Protocol::Classic(classic) => Some(classic),
            Protocol::Consumer(_) => None,
        }
    }

    /// `None` for a classic group.
    pub fn consumer(&self) -> Option<&Consumer> {
        match &self.protocol {
            Protocol::Classic(_) => None,
            Protocol::Consumer(consumer) => Some(consumer),
        }
    }

    /// Whether a change of topics may mean something for it that no member will tell.
    pub fn cares_for_topics(&self) -> bool {
        self.classic().is_none_or(Classic::is_unled)
    }

    pub(super) fn protocol(&self) -> &Protocol {
        &self.protocol
    }

    /// Its last rebalances, since this coordinator has it.
    pub fn story(&self) -> &Story {
        &self.story
    }

    pub(super) fn offsets(&self) -> &Offsets {
        &self.offsets
    }

    pub(super) fn pending(&self) -> &Pending {
        &self.pending
    }

    /// Whether a record tells of it, which a tombstone must follow when it goes.
    pub(super) fn is_stored(&self) -> bool {
        self.stored
    }

    /// Nobody is in it.
    pub(super) fn is_empty(&self) -> bool {
        match &self.protocol {
            Protocol::Classic(classic) => classic.state() == State::Empty,
            Protocol::Consumer(consumer) => consumer.members().len() == 0,
        }
    }

    /// Nobody is in it or about to come.
    pub(super) fn is_vacant(&self) -> bool {
        self.classic().map_or_else(|| self.is_empty(), Classic::is_vacant)
    }

    /// Whether offsets of a topic are in use.
    pub(super) fn is_subscribed(&self, topic: &TopicName) -> bool {
        match &self.protocol {
            Protocol::Classic(classic) => classic.is_subscribed(topic),
            Protocol::Consumer(consumer) => consumer.is_subscribed(topic),
        }
    }

    /// What takes it out of the log, but for its offsets.
    pub(super) fn tombstones(&self, id: &GroupId) -> Vec<Record> {
        match &self.protocol {
            Protocol::Classic(_) => vec![Record::Group { group: id.clone(), value: None }],
            Protocol::Consumer(consumer) => consumer.tombstones(id),
        }
    }

    /// Nothing would be lost without it.
    pub(super) fn is_nothing(&self) -> bool {
        !self.stored && self.offsets.is_empty() && self.pending.is_empty() && self.classic().is_some_and(Classic::is_vacant)
    }

    fn apply(&mut self, record: &Record) {
        match record {
            Record::Offset { partition, value, .. } => self.apply_offset(partition, value.as_ref()),
            Record::Group { value, .. } => {
                self.protocol = Protocol::Classic(Box::new(value.as_ref().map(Classic::from_metadata).unwrap_or_default()));
                self.stored = value.is_some();
            }
            Record::Consumer { record: ConsumerRecord::Group(None), .. } => {
                if self.consumer().is_some() {
                    (self.protocol, self.stored) = (Protocol::default(), false);
                }
            }
            Record::Consumer { record, .. } => match &mut self.protocol {
                Protocol::Consumer(consumer) => consumer.apply(record),
                // A tombstone of a group that is gone says nothing.
                Protocol::Classic(_) if record.is_tombstone() => {}
                Protocol::Classic(_) => {
                    let mut consumer = Box::<Consumer>::default();
                    consumer.apply(record);
                    (self.protocol, self.stored) = (Protocol::Consumer(consumer), true);
                }
            },
        }
    }
}

/// The groups of one partition of `__consumer_offsets`.
#[derive(Clone, Debug)]
pub struct Groups {
    settings: Settings,
    pub(super) groups: HashMap<GroupId, Group>,
    /// The groups that wait for a producer's marker.
    pub(super) in_transactions: HashMap<ProducerId, BTreeSet<GroupId>>,
    /// Of groups that have settings of their own.
    overrides: HashMap<GroupId, GroupSettings>,
    topics: Arc<dyn Topics>,
    /// Raised by each [`Groups::learn`].
    topics_version: u64,
}

impl Default for Groups {
    fn default() -> Self {
        Self::new(Settings::default())
    }
}

impl Groups {
    pub fn new(settings: Settings) -> Self {
        Self {
            settings,
            groups: HashMap::new(),
            in_transactions: HashMap::new(),
            overrides: HashMap::new(),
            topics: Arc::new(NoTopics),
            topics_version: 1,
        }
    }

    /// The topics are these from now on. What it means for a group is decided with its next heartbeat, or by
    /// [`Groups::decide_topics_changed`].
    pub fn learn(&mut self, topics: Arc<dyn Topics>) {
        self.topics = topics;
        self.topics_version = self.topics_version.saturating_add(1);
    }

    pub fn topics(&self) -> &dyn Topics {
        &*self.topics
    }

    /// A group has these settings of its own from now on.
    pub fn configure(&mut self, group: GroupId, settings: GroupSettings) {
        if settings == GroupSettings::default() {
            self.overrides.remove(&group);
        } else {
            self.overrides.insert(group, settings);
        }
    }

    /// These groups have settings of their own from now on, and no others.
    pub fn configure_all(&mut self, settings: HashMap<GroupId, GroupSettings>) {
        self.overrides = settings;
    }

    /// The settings of a group of its own.
    pub fn settings_of(&self, group: &str) -> GroupSettings {
        self.overrides.get(group).copied().unwrap_or_default()
    }

    pub fn settings(&self) -> &Settings {
        &self.settings
    }

    pub fn get(&self, group: &str) -> Option<&Group> {
        self.groups.get(group)
    }

    /// All groups, in no order.
    pub fn iter(&self) -> impl Iterator<Item = (&GroupId, &Group)> {
        self.groups.iter()
    }

    pub fn len(&self) -> usize {
        self.groups.len()
    }

    pub fn is_empty(&self) -> bool {
        self.groups.is_empty()
    }

    fn draft(&self, now: Now, group: &GroupId) -> Draft<'_> {
        Draft::of(&self.settings, &*self.topics, now, group.clone(), self.get(group).and_then(Group::classic))
    }

    fn surroundings(&self, now: Now, group: &GroupId) -> Surroundings<'_> {
        Surroundings {
            settings: &self.settings,
            own: self.settings_of(group),
            topics: &*self.topics,
            topics_version: self.topics_version,
            now,
        }
    }

    fn consumer_draft(&self, now: Now, group: &GroupId, consumer: &Consumer) -> ConsumerDraft<'_> {
        ConsumerDraft::of(self.surroundings(now, group), group.clone(), consumer.clone())
    }

    /// JoinGroup. Every answer, to this and to other members, is among the replies.
    pub fn decide_join(&self, now: Now, join: &Join) -> Decision<()> {
        let session = self.settings.group_min_session_timeout_ms..=self.settings.group_max_session_timeout_ms;
        let group = self.get(&join.group);
        let refusal = if !session.contains(&join.session_timeout_ms) {
            Some(ErrorCode::InvalidSessionTimeout)
        } else if !join.member_id.is_empty() && group.is_none() {
            Some(ErrorCode::UnknownMemberId)
        } else {
            None
        };
        if let Some(error) = refusal {
            let joined = Joined::error(error, join.member_id.clone());
            return Decision { replies: vec![(join.ticket, Reply::Join(joined))], ..Decision::only(()) };
        }
        let mut draft = self.draft(now, &join.group);
        match group.and_then(Group::consumer) {
            Some(consumer) if consumer.members().len() > 0 => {
                let mut draft = self.consumer_draft(now, &join.group, consumer);
                draft.classic_join(join);
                return draft.finish(());
            }
            // A group without members may change its protocol at any time.
            Some(consumer) => draft.records = consumer.tombstones(&join.group),
            None => {}
        }
        draft.join(join);
        draft.finish(())
    }

    /// SyncGroup; the same.
    pub fn decide_sync(&self, now: Now, sync: &Sync) -> Decision<()> {
        let Some(group) = self.get(&sync.from.group) else {
            let synced = Synced::error(ErrorCode::UnknownMemberId);
            return Decision { replies: vec![(sync.ticket, Reply::Sync(synced))], ..Decision::only(()) };
        };
        match group.protocol() {
            Protocol::Classic(_) => {
                let mut draft = self.draft(now, &sync.from.group);
                draft.sync(sync);
                draft.finish(())
            }
            Protocol::Consumer(consumer) => consumer.decide_sync(&self.surroundings(now, &sync.from.group), sync),
        }
    }

    /// The records of a leader's SyncGroup could not be written.
    pub fn decide_assignment_not_stored(&self, now: Now, group: &GroupId, generation: Generation, error: ErrorCode) -> Decision<()> {
        if self.get(group).and_then(Group::consumer).is_some() {
            return Decision::only(());
        }
        let mut draft = self.draft(now, group);
        draft.assignment_not_stored(generation, error);
        draft.finish(())
    }

    /// Heartbeat.
    pub fn decide_heartbeat(&self, now: Now, from: &Identity) -> Decision<ErrorCode> {
        let decision = self.heartbeat(now, from, None);
        let error = decision.reply.unwrap_or_default();
        decision.with_reply(error)
    }

    /// Heartbeat of one whose answer may be held back. Every answer, to this and to an earlier one, is among the replies; one that is held back
    /// comes with a later decision on the group, as in [`Groups::decide_consumer_heartbeat`].
    pub fn decide_held_heartbeat(&self, now: Now, from: &Identity, ticket: Ticket) -> Decision<()> {
        let mut decision = self.heartbeat(now, from, Some(ticket));
        decision.replies.extend(decision.reply.map(|error| (ticket, Reply::Alive(error))));
        decision.with_reply(())
    }

    fn heartbeat(&self, now: Now, from: &Identity, ticket: Option<Ticket>) -> Decision<Option<ErrorCode>> {
        match self.get(&from.group).map(Group::protocol) {
            None => Decision::only(Some(ErrorCode::UnknownMemberId)),
            Some(Protocol::Classic(classic)) => classic.decide_heartbeat(&self.settings, now, from, ticket),
            Some(Protocol::Consumer(consumer)) => consumer.decide_classic_heartbeat(&self.surroundings(now, &from.group), from, ticket),
        }
    }

    /// LeaveGroup: the answer for each member.
    pub fn decide_leave(&self, now: Now, leave: &Leave) -> Decision<Vec<Left>> {
        let Some(group) = self.get(&leave.group) else {
            let gone = |member: &super::LeaveMember| Left {
                member_id: member.member_id.clone(),
                instance_id: member.instance_id.clone(),
                error: ErrorCode::UnknownMemberId,
            };
            return Decision::only(leave.members.iter().map(gone).collect());
        };
        if let Some(consumer) = group.consumer() {
            let mut draft = self.consumer_draft(now, &leave.group, consumer);
            let left = draft.classic_leave(leave);
            return draft.finish(left);
        }
        let mut draft = self.draft(now, &leave.group);
        let left = draft.leave(leave);
        draft.finish(left)
    }

    /// ConsumerGroupHeartbeat. Every answer, to this and to other members, is among the replies; one that is held back comes with a later
    /// decision on the group: when there is news for the member, with [`Groups::decide_release`], or when its time is up.
    pub fn decide_consumer_heartbeat(&self, now: Now, heartbeat: &Heartbeat) -> Decision<()> {
        let around = self.surroundings(now, &heartbeat.group);
        consumer::decide_heartbeat(around, self.get(&heartbeat.group).map(Group::protocol), heartbeat)
    }

    /// Answers a heartbeat that is held back: another request waits behind it on its connection, or the connection is `gone`.
    pub fn decide_release(&self, now: Now, group: &GroupId, ticket: Ticket, gone: bool) -> Decision<()> {
        match self.get(group).map(Group::protocol) {
            None => Decision::only(()),
            Some(Protocol::Classic(classic)) => classic.decide_release(now, group, ticket, gone),
            Some(Protocol::Consumer(consumer)) => consumer.decide_release(self.surroundings(now, group), group, ticket, gone),
        }
    }

    /// After [`Groups::learn`], for each group that [`Group::cares_for_topics`]: members whose heartbeats are held back hear of it at once.
    pub fn decide_topics_changed(&self, now: Now, group: &GroupId) -> Decision<()> {
        if self.get(group).and_then(Group::classic).is_some_and(Classic::is_unled) {
            let mut draft = self.draft(now, group);
            draft.topics_changed();
            return draft.finish(());
        }
        let Some(consumer) = self.get(group).and_then(Group::consumer) else { return Decision::only(()) };
        if consumer.memory.topics_seen == self.topics_version || consumer.members().len() == 0 {
            return Decision::only(());
        }
        let mut draft = self.consumer_draft(now, group, consumer);
        draft.check_topics();
        draft.settle();
        draft.finish(())
    }

    /// Does what is due in a group.
    pub fn decide_tick(&self, now: Now, group: &GroupId) -> Decision<()> {
        if self.next_deadline(group).is_none_or(|deadline| deadline > now.steady) {
            return Decision::only(());
        }
        if let Some(consumer) = self.get(group).and_then(Group::consumer) {
            return consumer.decide_tick(self.surroundings(now, group), group);
        }
        match self.get(group).and_then(Group::classic) {
            Some(classic) if classic.due(now.steady).is_empty() => classic.decide_time_up(now, group),
            _ => {
                let mut draft = self.draft(now, group);
                draft.tick();
                // Heartbeats that were held back for their time have their answers in the next look, which is due at once.
                draft.finish(())
            }
        }
    }

    /// After loading, once for each group: its members' sessions begin.
    pub fn decide_loaded(&self, now: Now, group: &GroupId) -> Decision<()> {
        if let Some(consumer) = self.get(group).and_then(Group::consumer) {
            return consumer.decide_loaded(&self.surroundings(now, group), group);
        }
        let mut draft = self.draft(now, group);
        draft.loaded();
        draft.finish(())
    }

    /// When a group is to be ticked, if nothing else happens.
    pub fn next_deadline(&self, group: &str) -> Option<Millis> {
        match self.get(group)?.protocol() {
            Protocol::Classic(classic) => classic.next_deadline(),
            Protocol::Consumer(consumer) => consumer.next_deadline(),
        }
    }

    /// Applies a record that is in the log: when it is loaded.
    pub fn apply(&mut self, record: &Record) {
        self.apply_all(std::slice::from_ref(record));
    }

    /// Applies the records of a decision that were just appended. A group that they only change from one protocol to the other keeps its
    /// story.
    pub fn apply_all(&mut self, records: &[Record]) {
        let mut emptied = Vec::new();
        for record in records {
            let group = self.groups.entry(record.group().clone()).or_default();
            group.apply(record);
            if group.is_nothing() {
                emptied.push(record.group());
            }
        }
        for id in emptied {
            if self.groups.get(id).is_some_and(Group::is_nothing) {
                self.groups.remove(id);
            }
        }
    }

    /// Remembers what happened to a group, after all else of the decision is applied.
    pub fn tell(&mut self, now: Now, note: &Note) {
        if let Some(group) = self.groups.get_mut(note.group()) {
            group.story.tell(now.wall, note);
        }
    }

    /// Applies a change of what is only in memory, after the records that go with it.
    pub fn apply_volatile(&mut self, change: Volatile) {
        match change {
            Volatile::Alive { group, member, deadline, beats } => {
                if let Some(Protocol::Classic(classic)) = self.groups.get_mut(&group).map(|group| &mut group.protocol) {
                    classic.alive(&member, deadline, beats);
                }
            }
            Volatile::Beats { group, changed } => {
                if let Some(Protocol::Classic(classic)) = self.groups.get_mut(&group).map(|group| &mut group.protocol) {
                    changed.into_iter().for_each(|(member, beats)| classic.beat(&member, beats));
                }
            }
            Volatile::Classic(id, classic) => {
                let group = self.groups.entry(id.clone()).or_default();
                group.protocol = Protocol::Classic(classic);
                if group.is_nothing() {
                    self.groups.remove(&id);
                }
            }
            Volatile::Consumer(id, memory) => {
                if let Some(Protocol::Consumer(consumer)) = self.groups.get_mut(&id).map(|group| &mut group.protocol) {
                    consumer.memory = *memory;
                }
            }
            Volatile::Timers { group, changed } => {
                if let Some(Protocol::Consumer(consumer)) = self.groups.get_mut(&group).map(|group| &mut group.protocol) {
                    let there = changed.into_iter().filter(|(id, _)| consumer.member(id).is_some()).collect::<Vec<_>>();
                    consumer.memory.timers.extend(there);
                }
            }
        }
    }
}
