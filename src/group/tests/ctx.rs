//! A shell around [`Groups`] for tests: it keeps the records, the answers and the time, and speaks of members by name.

use crate::{
    group::{classic::*, *},
    types::*,
};
use bytes::Bytes;
use std::{
    collections::{BTreeMap, HashMap},
    sync::Arc,
};

/// Speaks for one group, `g`, unless told otherwise.
pub struct Ctx {
    pub groups: Groups,
    /// What one has who only reads the records.
    pub follower: Groups,
    pub now: Now,
    pub log: Vec<Record>,
    pub answers: HashMap<Ticket, Reply>,
    pub notes: Vec<Note>,
    tickets: u64,
    ids: u64,
}

pub fn group() -> GroupId {
    "g".into()
}

/// A JoinGroup with the usual things in it.
pub fn join(name: &str) -> Join {
    Join {
        group: group(),
        member_id: "".into(),
        instance_id: None,
        client_id: name.into(),
        client_host: "/127.0.0.1".into(),
        session_timeout_ms: 10_000,
        rebalance_timeout_ms: 60_000,
        protocol_type: "consumer".into(),
        protocols: protocols(&["range"]),
        reason: None,
        requires_known_member_id: false,
        supports_skipping_assignment: true,
        fresh_id: "".into(),
        ticket: Ticket(0),
    }
}

pub fn static_join(instance: &str) -> Join {
    Join { instance_id: Some(instance.into()), ..join(instance) }
}

/// Subscriptions (version 0) to the topic `t`.
pub fn protocols(names: &[&str]) -> Arc<[Protocol]> {
    names.iter().map(|name| Protocol { name: (*name).into(), metadata: subscription(&["t"]) }).collect()
}

pub fn subscription(topics: &[&str]) -> Bytes {
    let mut bytes = vec![0, 0];
    bytes.extend((topics.len() as i32).to_be_bytes());
    for topic in topics {
        bytes.extend((topic.len() as i16).to_be_bytes());
        bytes.extend(topic.as_bytes());
    }
    bytes.extend((-1_i32).to_be_bytes());
    bytes.into()
}

pub fn partition(topic: &str, index: i32) -> TopicPartition {
    TopicPartition { topic: TopicName::new(topic).unwrap(), partition: PartitionIndex(index) }
}

impl Ctx {
    pub fn new(settings: Settings) -> Self {
        let now = Now { wall: Millis(1_700_000_000_000), steady: Millis(1_000_000) };
        let (log, answers, notes) = (Vec::new(), HashMap::new(), Vec::new());
        Self { groups: Groups::new(settings), follower: Groups::new(settings), now, log, answers, notes, tickets: 0, ids: 0 }
    }

    /// With Kafka's defaults, but without the first rebalance's delay.
    pub fn undelayed() -> Self {
        Self::new(Settings { group_initial_rebalance_delay_ms: 0, ..Settings::default() })
    }

    /// Writes and applies a decision, as the broker does.
    pub fn apply<R>(&mut self, decision: Decision<R>) -> R {
        self.groups.apply_all(&decision.records);
        self.follower.apply_all(&decision.records);
        self.log.extend(decision.records);
        if let Some(change) = decision.volatile {
            self.groups.apply_volatile(change);
        }
        for (ticket, reply) in decision.replies {
            assert_eq!(self.answers.insert(ticket, reply), None, "{ticket:?} is answered twice");
        }
        decision.notes.iter().for_each(|note| self.groups.tell(self.now, note));
        self.notes.extend(decision.notes);
        decision.reply
    }

    pub fn ticket(&mut self) -> Ticket {
        self.tickets += 1;
        Ticket(self.tickets)
    }

    pub fn send_join(&mut self, mut join: Join) -> Ticket {
        join.ticket = self.ticket();
        self.ids += 1;
        let name = join.instance_id.as_deref().unwrap_or(&join.client_id);
        join.fresh_id = format!("{name}-{}", self.ids).into();
        let decision = self.groups.decide_join(self.now, &join);
        self.apply(decision);
        join.ticket
    }

    pub fn send_sync(&mut self, mut sync: Sync) -> Ticket {
        sync.ticket = self.ticket();
        let decision = self.groups.decide_sync(self.now, &sync);
        self.apply(decision);
        sync.ticket
    }

    #[track_caller]
    pub fn joined(&self, ticket: Ticket) -> Joined {
        match self.answers.get(&ticket) {
            Some(Reply::Join(joined)) => joined.clone(),
            other => panic!("{ticket:?}: {other:?}"),
        }
    }

    #[track_caller]
    pub fn synced(&self, ticket: Ticket) -> Synced {
        match self.answers.get(&ticket) {
            Some(Reply::Sync(synced)) => synced.clone(),
            other => panic!("{ticket:?}: {other:?}"),
        }
    }

    pub fn waits(&self, ticket: Ticket) -> bool {
        !self.answers.contains_key(&ticket)
    }

    /// Joins, and lets the timers run that are due at once.
    #[track_caller]
    pub fn join_now(&mut self, join: Join) -> Joined {
        let ticket = self.send_join(join);
        self.sleep(0);
        self.joined(ticket)
    }

    pub fn identity(&self, joined: &Joined) -> Identity {
        Identity { group: group(), member_id: joined.member_id.clone(), instance_id: None, generation: joined.generation }
    }

    /// SyncGroup of a member; `assignments` by member id.
    pub fn sync(&mut self, joined: &Joined, assignments: &[(&str, &str)]) -> Ticket {
        let assignments: BTreeMap<MemberId, Bytes> =
            assignments.iter().map(|(id, bytes)| ((*id).into(), Bytes::copy_from_slice(bytes.as_bytes()))).collect();
        let from = self.identity(joined);
        self.send_sync(Sync { from, protocol_type: None, protocol: None, assignments, ticket: Ticket(0) })
    }

    /// A stable group of these members, all dynamic if without an instance id; the first one leads. Each is assigned its own name.
    pub fn stable(&mut self, joins: &[Join]) -> Vec<Joined> {
        let tickets: Vec<_> = joins.iter().map(|join| self.send_join(join.clone())).collect();
        self.sleep(0);
        self.sync_all(&tickets)
    }

    /// All whose JoinGroup has been answered ask for their assignment, the leader last.
    pub fn sync_all(&mut self, tickets: &[Ticket]) -> Vec<Joined> {
        let joined: Vec<_> = tickets.iter().map(|ticket| self.joined(*ticket)).collect();
        let ids: Vec<_> = joined.iter().map(|j| (&*j.member_id, &*j.member_id)).collect();
        let (leaders, followers): (Vec<_>, Vec<_>) = joined.iter().partition(|j| j.leader == j.member_id);
        for follower in followers {
            self.sync(follower, &[]);
        }
        for leader in leaders {
            self.sync(leader, &ids);
        }
        assert_eq!(self.state(), State::Stable);
        joined
    }

    pub fn heartbeat(&mut self, joined: &Joined) -> ErrorCode {
        let from = self.identity(joined);
        self.heartbeat_from(&from)
    }

    pub fn heartbeat_from(&mut self, from: &Identity) -> ErrorCode {
        let decision = self.groups.decide_heartbeat(self.now, from);
        self.apply(decision)
    }

    /// A heartbeat of one who may be held.
    pub fn send_beat(&mut self, from: &Identity) -> Ticket {
        let ticket = self.ticket();
        let decision = self.groups.decide_held_heartbeat(self.now, from, ticket);
        self.apply(decision);
        ticket
    }

    #[track_caller]
    pub fn beaten(&self, ticket: Ticket) -> ErrorCode {
        match self.answers.get(&ticket) {
            Some(Reply::Alive(error)) => *error,
            other => panic!("{ticket:?}: {other:?}"),
        }
    }

    /// Another request waits behind one that is held, or its connection is gone.
    pub fn release(&mut self, ticket: Ticket, gone: bool) {
        let decision = self.groups.decide_release(self.now, &group(), ticket, gone);
        self.apply(decision);
    }

    pub fn leave(&mut self, members: &[(&str, Option<&str>)]) -> Vec<ErrorCode> {
        let members = members
            .iter()
            .map(|(id, instance)| LeaveMember { member_id: (*id).into(), instance_id: instance.map(Into::into), reason: None })
            .collect();
        let decision = self.groups.decide_leave(self.now, &Leave { group: group(), members });
        self.apply(decision).into_iter().map(|left| left.error).collect()
    }

    pub fn commit_from(&mut self, from: Identity, topic: &str, offset: i64) -> Result<Vec<ErrorCode>, ErrorCode> {
        let asked =
            CommitPartition { partition: partition(topic, 0), offset: Offset(offset), leader_epoch: LeaderEpoch(3), metadata: "".into() };
        let commit = Commit { from, retention_ms: -1, tells_missing_group: false, partitions: vec![asked] };
        let decision = self.groups.decide_commit(self.now, &commit);
        self.apply(decision)
    }

    /// As an administrator commits.
    pub fn admin(&self) -> Identity {
        Identity { group: group(), member_id: "".into(), instance_id: None, generation: Generation::NONE }
    }

    pub fn committed(&self, topic: &str) -> Option<i64> {
        self.groups.committed("g", topic, PartitionIndex(0)).map(|c| c.offset.0)
    }

    pub fn state(&self) -> State {
        self.groups.get("g").map_or(State::Empty, |g| g.classic().unwrap().state())
    }

    pub fn classic(&self) -> &Classic {
        self.groups.get("g").unwrap().classic().unwrap()
    }

    pub fn member_ids(&self) -> Vec<String> {
        self.groups.get("g").map(|g| g.classic().unwrap().members().map(|m| m.id.to_string()).collect()).unwrap_or_default()
    }

    pub fn tick(&mut self) {
        let decision = self.groups.decide_tick(self.now, &group());
        self.apply(decision);
    }

    /// Time goes on, and timers run in their order.
    pub fn sleep(&mut self, ms: i64) {
        let until = self.now.steady.plus(ms);
        while let Some(deadline) = self.groups.next_deadline("g").filter(|deadline| *deadline <= until) {
            self.advance_to(deadline);
            self.tick();
        }
        self.advance_to(until);
    }

    fn advance_to(&mut self, steady: Millis) {
        let ms = (steady.0 - self.now.steady.0).max(0);
        self.now = Now { wall: self.now.wall.plus(ms), steady: self.now.steady.plus(ms) };
    }

    /// The broker is killed and started again: only records are left.
    pub fn restart(&mut self) {
        self.groups = self.replayed();
        let ids: Vec<GroupId> = self.groups.iter().map(|(id, _)| id.clone()).collect();
        for id in ids {
            let decision = self.groups.decide_loaded(self.now, &id);
            self.apply(decision);
        }
    }

    pub fn replayed(&self) -> Groups {
        let mut groups = Groups::new(*self.groups.settings());
        self.log.iter().for_each(|record| groups.apply(record));
        groups
    }
}
