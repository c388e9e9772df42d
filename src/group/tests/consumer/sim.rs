//! Seeded simulation of one group of both protocols under faults: members join, leave, crash, pause, lose answers, come back as static
//! ones and change their subscriptions; the group migrates back and forth with them; topics grow and appear; writes fail; the broker is
//! killed at any point.
//!
//! Members act as clients do: they stop reading what they are told to let go of and then say so, and they drop everything when they are
//! fenced. Checked at every step: no partition is read by two members, replay equals live, an acknowledged commit is there, whoever is no
//! member commits nothing, no classic member's heartbeat is held back that would hear something, or for longer than it may be. At the end: a group that is left alone is stable within its timeouts, with all who are alive, each partition
//! read by one, and every request that the broker still knew answered. `SIM_SEED=n` runs one seed and prints it, `SIM_SEEDS=n` that many.

use super::*;
use crate::{
    group::{classic::State, consumer::planted, subscription},
    sim::{self, Random, for_each_seed},
};
use std::collections::HashMap;

const REQUEST_TIMEOUT_MS: i64 = 30_000;
const HOLD_MS_MAX: i64 = 8_000;
const CHAOS_MS: i64 = 300_000;
/// Longer than a new classic member's join, the rebalance and the session after it.
const CALM_MS: i64 = 900_000;
/// Longer than sessions and rebalances.
const CALM_MIN_MS: i64 = 60_000;
const SEEDS: u64 = 2_000;

type Reads = BTreeSet<(TopicId, PartitionIndex)>;

#[derive(Debug, Clone)]
enum Phase {
    Out,
    Waiting(Ticket, i64),
    In,
}

#[derive(Debug, Clone)]
struct Client {
    name: String,
    instance: Option<Arc<str>>,
    classic: bool,
    up: bool,
    member_id: MemberId,
    /// Its member epoch, or generation.
    epoch: i32,
    phase: Phase,
    /// What it reads.
    reads: Reads,
    /// What it was told to let go of, and will when it acts next.
    revoking: Reads,
    /// Its next heartbeat says all, for it may not have heard an answer.
    full: bool,
    /// What it reads has changed, and it has not said so.
    unsaid: bool,
    both_topics: bool,
    /// Of a classic leader: the topics that it has assigned.
    leads: Option<BTreeMap<&'static str, i32>>,
    by_regex: bool,
    /// Of a classic member: its heartbeats may be held back.
    holds: bool,
    beat: Option<Beat>,
    /// As a static leader that comes back it can be told that it leads.
    skips: bool,
    /// When it acts next.
    at: i64,
}

/// A classic member's heartbeat under way.
#[derive(Debug, Clone)]
struct Beat {
    ticket: Ticket,
    sent: i64,
    from: Identity,
}

struct World {
    random: Random,
    kip: Kip,
    clients: Vec<Client>,
    topics: BTreeMap<&'static str, i32>,
    acknowledged: BTreeMap<(TopicId, PartitionIndex), i64>,
    open: BTreeSet<Ticket>,
    ids: u64,
    trace: Vec<String>,
    /// One seed was asked for: it is printed.
    loud: bool,
}

fn flat(partitions: &Partitions) -> Reads {
    partitions.iter().flat_map(|(topic, set)| set.iter().map(move |partition| (*topic, *partition))).collect()
}

fn deep(reads: &Reads) -> Partitions {
    let mut partitions = Partitions::new();
    for (topic, partition) in reads {
        partitions.entry(*topic).or_default().insert(*partition);
    }
    partitions
}

impl World {
    fn new(seed: u64) -> Self {
        let mut random = Random::new(seed);
        let interval = [0, 1_000][random.below(2) as usize];
        let settings = Settings {
            group_consumer_assignment_interval_ms: interval,
            group_consumer_session_timeout_ms: 20_000,
            group_consumer_migration_policy: MigrationPolicy::ALL[random.below(4) as usize],
            ..Settings::default()
        };
        // Most groups may migrate.
        let settings = if random.one_in(4) {
            settings
        } else {
            Settings { group_consumer_migration_policy: MigrationPolicy::Bidirectional, ..settings }
        };
        let classics = [0, 1, 1, 2][random.below(4) as usize];
        let count = 1 + random.below(6);
        let clients = (0..count)
            .map(|i| Client {
                name: format!("c{i}"),
                // Two may have the same name.
                instance: random.one_in(3).then(|| format!("i{}", random.below(count)).into()),
                classic: classics == 2 || classics == 1 && random.one_in(2),
                up: true,
                member_id: "".into(),
                epoch: 0,
                phase: Phase::Out,
                reads: Reads::new(),
                revoking: Reads::new(),
                full: false,
                unsaid: false,
                both_topics: random.one_in(4),
                leads: None,
                by_regex: random.one_in(5),
                holds: random.one_in(2),
                beat: None,
                skips: random.one_in(2),
                at: 1_000_000 + random.below(5_000) as i64,
            })
            .collect();
        let topics = BTreeMap::from([("t", 1 + random.below(8) as i32)]);
        let mut world = Self {
            random,
            kip: Kip::with(1, settings),
            clients,
            topics,
            acknowledged: BTreeMap::new(),
            open: BTreeSet::new(),
            ids: 0,
            trace: Vec::new(),
            loud: sim::seed().is_some(),
        };
        world.learn();
        world
    }

    fn learn(&mut self) {
        let topics: Vec<_> = self.topics.iter().map(|(name, partitions)| (*name, *partitions)).collect();
        self.kip.learn(&topics);
    }

    fn now(&self) -> i64 {
        self.kip.now.steady.0
    }

    fn log(&mut self, line: impl FnOnce() -> String) {
        let line = format!("{} {}", self.now(), line());
        if self.loud {
            eprintln!("{line}");
        }
        self.trace.push(line);
    }

    fn run(&mut self) {
        let chaos_ends = self.now() + CHAOS_MS;
        while self.now() < chaos_ends {
            self.step(true);
        }
        let (calm_begins, calm_ends) = (self.now() + CALM_MIN_MS, self.now() + CALM_MS);
        while self.now() < calm_begins || self.now() < calm_ends && !self.is_settled() {
            self.step(false);
        }
        self.check_quiet();
    }

    fn step(&mut self, faults: bool) {
        let clients = self.clients.iter().filter(|c| c.up).map(|c| c.at).min();
        let timer = self.kip.groups.next_deadline("g").map(|deadline| deadline.0);
        let next = clients.into_iter().chain(timer).min().unwrap_or(self.now() + 1_000).max(self.now());
        let ms = next - self.now();
        self.kip.now = Now { wall: self.kip.now.wall.plus(ms), steady: self.kip.now.steady.plus(ms) };
        self.kip.tick();
        for i in 0..self.clients.len() {
            self.receive(i, faults);
            if self.clients[i].up && self.clients[i].at <= self.now() {
                self.act(i, faults);
                self.receive(i, faults);
                self.check_reads();
            }
        }
        if faults && self.random.one_in(8) {
            self.fault();
        }
        let answers = &self.kip.0.answers;
        self.open.retain(|ticket| !answers.contains_key(ticket));
        self.check();
        self.check_beats();
    }

    fn fault(&mut self) {
        let i = self.random.below(self.clients.len() as u64) as usize;
        let kind = self.random.below(10);
        let pause = self.random.below(60_000) as i64;
        let name = self.clients[i].name.clone();
        self.log(|| format!("fault {kind} of {name}"));
        let now = self.now();
        match kind {
            // It crashes, and may be started again by a later fault.
            0 => {
                self.let_go(i, true);
                self.clients[i] = self.stopped(i);
            }
            1 | 2 if !self.clients[i].up => (self.clients[i].up, self.clients[i].at) = (true, now),
            3 => self.clients[i].at = now + pause,
            4 => {
                self.clients[i].both_topics ^= true;
                self.clients[i].full = true;
            }
            5 | 6 => self.leave(i),
            // Started again, it speaks the other protocol.
            7 if !self.clients[i].up => {
                self.clients[i].classic ^= true;
                (self.clients[i].up, self.clients[i].at) = (true, now);
            }
            8 if self.random.one_in(4) => {
                let topic = if self.random.one_in(2) { "t" } else { "u" };
                let partitions = self.topics.entry(topic).or_insert(0);
                *partitions = (*partitions + 1).min(10);
                self.learn();
                let decision = self.kip.groups.decide_topics_changed(self.kip.now, &group());
                self.kip.apply(decision);
            }
            9 if self.random.one_in(4) => {
                self.kip.restart();
                self.learn();
                self.open.clear();
                self.clients.iter_mut().for_each(|client| client.beat = None);
            }
            _ => {}
        }
    }

    fn stopped(&self, i: usize) -> Client {
        let client = self.clients[i].clone();
        let (reads, revoking) = (Reads::new(), Reads::new());
        Client {
            up: false,
            member_id: "".into(),
            epoch: 0,
            phase: Phase::Out,
            reads,
            revoking,
            full: false,
            unsaid: false,
            leads: None,
            beat: None,
            ..client
        }
    }

    /// It closes: it stops reading, says so, and is gone.
    fn leave(&mut self, i: usize) {
        self.let_go(i, false);
        let client = self.clients[i].clone();
        self.clients[i] = self.stopped(i);
        if !client.up || client.member_id.is_empty() || matches!(client.phase, Phase::Out) {
            return;
        }
        if client.classic {
            // Static ones of this protocol go without a word.
            if client.instance.is_none() {
                self.kip.leave(&[(&client.member_id, None)]);
            }
            return;
        }
        if let Phase::Waiting(ticket, _) = client.phase {
            self.kip.release(ticket, false);
        }
        let for_good = client.instance.is_none() || self.random.one_in(4);
        let leave = beat(&client.member_id, if for_good { -1 } else { -2 });
        let ticket = self.kip.send(Heartbeat { instance_id: client.instance, ..leave });
        let answer = self.kip.answer(ticket);
        self.log(|| format!("{} leaves: {answer:?}", client.name));
    }

    fn names(&self, i: usize) -> Vec<&'static str> {
        if self.clients[i].both_topics { vec!["t", "u"] } else { vec!["t"] }
    }

    fn act(&mut self, i: usize, faults: bool) {
        let now = self.now();
        let client = &mut self.clients[i];
        client.at = now + 3_000;
        // What it was told to let go of it reads no more; then it may say so.
        let revoking = std::mem::take(&mut client.revoking);
        client.reads.retain(|partition| !revoking.contains(partition));
        client.unsaid |= !revoking.is_empty();
        let late = matches!(client.phase, Phase::Waiting(_, since) if now - since > REQUEST_TIMEOUT_MS);
        client.full |= late;
        match (client.classic, client.phase.clone()) {
            (_, Phase::Waiting(..)) if !late => {}
            (false, Phase::Out | Phase::Waiting(..) | Phase::In) => self.heartbeat(i, faults),
            (true, Phase::Out | Phase::Waiting(..)) => self.join(i),
            (true, Phase::In) if !revoking.is_empty() => self.join(i),
            // It subscribes to something else, or it leads and there is something else to assign.
            (true, Phase::In) if self.clients[i].full => self.join(i),
            (true, Phase::In) if self.clients[i].leads.as_ref().is_some_and(|topics| *topics != self.topics) => self.join(i),
            (true, Phase::In) => self.classic_heartbeat(i),
        }
    }

    /// Commits something that it reads.
    fn commit(&mut self, i: usize) {
        self.let_go(i, false);
        let client = &self.clients[i];
        let Some((topic, index)) = client.reads.iter().next().copied() else { return };
        let Some(topic_name) = self.kip.groups.topics().by_id(topic).map(|topic| topic.name) else { return };
        let offset = self.acknowledged.get(&(topic, index)).copied().unwrap_or(0) + 1;
        let asked = CommitPartition {
            partition: TopicPartition { topic: topic_name, partition: index },
            offset: Offset(offset),
            leader_epoch: LeaderEpoch(0),
            metadata: "".into(),
        };
        let (member_id, instance_id) = (client.member_id.clone(), client.instance.clone());
        let from = Identity { group: group(), member_id, instance_id, generation: Generation(client.epoch) };
        let commit = Commit { from, retention_ms: -1, tells_missing_group: true, partitions: vec![asked] };
        let decision = self.kip.groups.decide_commit(self.kip.now, &commit);
        if self.kip.apply(decision) == Ok(vec![ErrorCode::None]) {
            assert!(self.is_member(i), "{} is no member, and commits", self.clients[i].name);
            self.acknowledged.insert((topic, index), offset);
        }
    }

    fn heartbeat(&mut self, i: usize, faults: bool) {
        if matches!(self.clients[i].phase, Phase::In) && self.random.one_in(3) {
            self.commit(i);
        }
        let names: BTreeSet<Arc<str>> = self.names(i).into_iter().map(Into::into).collect();
        let joins = matches!(self.clients[i].phase, Phase::Out) || self.clients[i].epoch == 0;
        if joins && self.clients[i].member_id.is_empty() {
            self.ids += 1;
            self.clients[i].member_id = format!("{}-{}", self.clients[i].name, self.ids).into();
        }
        let client = &mut self.clients[i];
        let whole = joins || client.full;
        let says_owned = whole || client.unsaid;
        (client.full, client.unsaid) = (false, false);
        let heartbeat = Heartbeat {
            instance_id: client.instance.clone(),
            rebalance_timeout_ms: if whole { 15_000 } else { -1 },
            subscribed_topic_names: whole.then(|| if client.by_regex { BTreeSet::new() } else { names.clone() }),
            subscribed_topic_regex: whole
                .then(|| if client.by_regex { names.iter().map(|n| &**n).collect::<Vec<_>>().join("|").into() } else { "".into() }),
            owned: says_owned.then(|| deep(&client.reads)),
            client_id: client.name.as_str().into(),
            hold_ms: if self.random.one_in(2) { 5_000 } else { 0 },
            ..beat(&client.member_id, if joins { 0 } else { client.epoch })
        };
        // The records can't be written: the client hears that, and tries again.
        if faults && self.random.one_in(40) {
            (self.clients[i].full, self.clients[i].phase) = (true, if joins { Phase::Out } else { Phase::In });
            return;
        }
        self.log(|| {
            format!("{} epoch {} owned {:?}", heartbeat.member_id, heartbeat.member_epoch.0, heartbeat.owned.as_ref().map(indexes))
        });
        let ticket = self.kip.send(heartbeat);
        self.open.insert(ticket);
        self.clients[i].phase = Phase::Waiting(ticket, self.now());
    }

    fn join(&mut self, i: usize) {
        self.let_go(i, false);
        let names = self.names(i);
        let client = &self.clients[i];
        let mut owned: BTreeMap<TopicName, Vec<PartitionIndex>> = BTreeMap::new();
        for (topic, partition) in &client.reads {
            if let Some(topic) = self.kip.groups.topics().by_id(*topic) {
                owned.entry(topic.name).or_default().push(*partition);
            }
        }
        let request = Join {
            member_id: client.member_id.clone(),
            instance_id: client.instance.clone(),
            requires_known_member_id: true,
            supports_skipping_assignment: client.skips,
            protocols: Arc::new([Protocol { name: "cooperative-sticky".into(), metadata: classic::subscription_of(&names, &owned) }]),
            rebalance_timeout_ms: 15_000,
            ..join(&client.name)
        };
        self.log(|| format!("{} joins, has {owned:?}", request.client_id));
        let ticket = self.kip.send_join(request);
        self.clients[i].full = false;
        self.open.insert(ticket);
        self.clients[i].phase = Phase::Waiting(ticket, self.now());
    }

    fn identity(&self, i: usize) -> Identity {
        let client = &self.clients[i];
        let (member_id, instance_id) = (client.member_id.clone(), client.instance.clone());
        Identity { group: group(), member_id, instance_id, generation: Generation(client.epoch) }
    }

    fn classic_heartbeat(&mut self, i: usize) {
        if self.random.one_in(3) {
            self.commit(i);
        }
        let from = self.identity(i);
        let name = self.clients[i].name.clone();
        if self.clients[i].holds {
            let ticket = self.kip.send_beat(&from);
            self.log(|| format!("{name} heartbeat {ticket:?}"));
            let beat = Beat { ticket, sent: self.now(), from };
            let earlier = self.clients[i].beat.replace(beat);
            assert!(earlier.is_none_or(|earlier| !self.kip.waits(earlier.ticket)), "the one before is answered");
            return;
        }
        let error = self.kip.heartbeat_from(&from);
        self.log(|| format!("{name} heartbeat {error}"));
        self.on_beaten(i, error);
    }

    fn on_beaten(&mut self, i: usize, error: ErrorCode) {
        match error {
            ErrorCode::RebalanceInProgress => self.join(i),
            error => self.on_error(i, error),
        }
    }

    /// Another request comes on the connection of a heartbeat that is held, or that ends.
    fn let_go(&mut self, i: usize, gone: bool) {
        if let Some(beat) = self.clients[i].beat.take().filter(|beat| self.kip.waits(beat.ticket)) {
            self.kip.release(beat.ticket, gone);
        }
    }

    fn receive_beat(&mut self, i: usize, faults: bool) {
        let answered = |beat: &mut Beat| !self.kip.waits(beat.ticket);
        let Some(beat) = self.clients[i].beat.take_if(answered) else { return };
        let error = self.kip.beaten(beat.ticket);
        let name = self.clients[i].name.clone();
        self.log(|| format!("{name} hears {error} of {:?}", beat.ticket));
        let lost = !self.clients[i].up || faults && self.random.one_in(10);
        let from = self.identity(i);
        let outdated = (&from.member_id, from.generation) != (&beat.from.member_id, beat.from.generation);
        if !lost && !outdated && matches!(self.clients[i].phase, Phase::In) {
            self.on_beaten(i, error);
        }
    }

    /// A heartbeat is held back only while there is nothing to say, and not for long.
    fn check_beats(&self) {
        for beat in self.clients.iter().filter_map(|client| client.beat.as_ref()).filter(|beat| self.kip.waits(beat.ticket)) {
            let told = self.kip.groups.decide_heartbeat(self.kip.now, &beat.from).reply;
            let state = self.kip.groups.get("g").and_then(Group::classic).map_or(State::Stable, Classic::state);
            let may_wait = [(ErrorCode::None, State::Stable), (ErrorCode::RebalanceInProgress, State::PreparingRebalance)];
            assert!(may_wait.contains(&(told, state)), "{beat:?} is held");
            assert!(self.now() - beat.sent <= HOLD_MS_MAX, "{beat:?} is never answered");
        }
    }

    /// What clients do when they hear an error.
    fn on_error(&mut self, i: usize, error: ErrorCode) {
        let now = self.now();
        let client = &mut self.clients[i];
        client.at = now + 100;
        match error {
            ErrorCode::None => return client.at = now + 3_000,
            ErrorCode::RebalanceInProgress => {}
            // What it read it reads no more.
            ErrorCode::FencedMemberEpoch | ErrorCode::GroupIdNotFound | ErrorCode::IllegalGeneration => {
                (client.reads, client.revoking) = (Reads::new(), Reads::new());
            }
            ErrorCode::UnknownMemberId => {
                (client.reads, client.revoking) = (Reads::new(), Reads::new());
                if client.classic {
                    client.member_id = "".into();
                }
            }
            ErrorCode::UnreleasedInstanceId | ErrorCode::InconsistentGroupProtocol => client.at = now + 5_000,
            // One whose name another has taken ends.
            ErrorCode::FencedInstanceId => {
                self.clients[i] = self.stopped(i);
                return;
            }
            other => panic!("{} hears {other}", client.name),
        }
        client.epoch = 0;
        client.phase = Phase::Out;
    }

    fn receive(&mut self, i: usize, faults: bool) {
        self.receive_beat(i, faults);
        let Phase::Waiting(ticket, _) = self.clients[i].phase else { return };
        let Some(answer) = self.kip.answers.get(&ticket).cloned() else { return };
        if !self.clients[i].up {
            return;
        }
        if faults && self.random.one_in(10) {
            // The answer is lost with its connection.
            let client = &mut self.clients[i];
            client.full = true;
            client.phase = if client.epoch == 0 || client.classic { Phase::Out } else { Phase::In };
            return;
        }
        let name = self.clients[i].name.clone();
        self.log(|| format!("{name} hears {answer:?}"));
        match answer {
            Reply::Heartbeat(answer) => self.on_heartbeaten(i, &answer),
            Reply::Join(joined) => self.on_joined(i, &joined),
            Reply::Sync(synced) => self.on_synced(i, &synced),
            Reply::Alive(_) => unreachable!("it is no heartbeat's"),
        }
    }

    fn on_heartbeaten(&mut self, i: usize, answer: &Heartbeaten) {
        if answer.error.is_error() {
            return self.on_error(i, answer.error);
        }
        let (now, soon) = (self.now(), self.random.below(300) as i64);
        let client = &mut self.clients[i];
        (client.phase, client.epoch) = (Phase::In, answer.member_epoch.0);
        client.at = now + i64::from(answer.heartbeat_interval_ms);
        if let Some(assignment) = &answer.assignment {
            client.take(flat(assignment));
            client.at = client.at.min(now + soon);
        }
    }

    fn on_joined(&mut self, i: usize, joined: &Joined) {
        match joined.error {
            ErrorCode::None => {}
            ErrorCode::MemberIdRequired => {
                self.clients[i].member_id = joined.member_id.clone();
                return self.join(i);
            }
            error => return self.on_error(i, error),
        }
        (self.clients[i].member_id, self.clients[i].epoch) = (joined.member_id.clone(), joined.generation.0);
        let leads = joined.leader == joined.member_id && !joined.skip_assignment;
        self.clients[i].leads = (joined.leader == joined.member_id).then(|| self.topics.clone());
        let assignments = if leads { classic::assign(&joined.members, self.kip.groups.topics()) } else { BTreeMap::new() };
        let from = self.identity(i);
        let ticket = self.kip.send_sync(Sync { from, protocol_type: None, protocol: None, assignments, ticket: Ticket(0) });
        self.open.insert(ticket);
        self.clients[i].phase = Phase::Waiting(ticket, self.now());
    }

    fn on_synced(&mut self, i: usize, synced: &Synced) {
        if synced.error.is_error() {
            return self.on_error(i, synced.error);
        }
        let assignment = subscription::Assignment::read(&synced.assignment).unwrap();
        let by_id = |(name, partitions): &(TopicName, Vec<PartitionIndex>)| {
            let topic = self.kip.groups.topics().by_name(name.as_str()).unwrap().id;
            partitions.iter().map(move |partition| (topic, *partition)).collect::<Vec<_>>()
        };
        let assigned: Reads = assignment.partitions.iter().flat_map(by_id).collect();
        let (now, soon) = (self.now(), self.random.below(300) as i64);
        let client = &mut self.clients[i];
        client.phase = Phase::In;
        client.take(assigned);
        client.at = now + if client.revoking.is_empty() { 3_000 } else { soon };
    }

    fn is_member(&self, i: usize) -> bool {
        let (client, group) = (&self.clients[i], self.kip.groups.get("g"));
        let Some(group) = group else { return false };
        match (group.classic(), group.consumer()) {
            // A static member that did not join the generation has its old one.
            (Some(classic), _) => classic.member(&client.member_id).is_some() && classic.generation().0 == client.epoch,
            (_, Some(consumer)) => consumer.member(&client.member_id).is_some_and(|member| member.epoch != Epoch::STATIC_LEAVE),
            (None, None) => false,
        }
    }

    /// No partition is read by two members.
    fn check_reads(&self) {
        let mut readers: HashMap<(TopicId, PartitionIndex), &str> = HashMap::new();
        for (_, client) in self.clients.iter().enumerate().filter(|(i, client)| client.up && self.is_member(*i)) {
            for partition in &client.reads {
                let other = readers.insert(*partition, &client.name);
                assert_eq!(other, None, "{partition:?} is read by {} too", client.name);
            }
        }
    }

    /// What holds at every moment.
    fn check(&self) {
        let stored = |groups: &Groups| groups.get("g").and_then(Group::consumer).map(Consumer::stored);
        assert_eq!(stored(&self.kip.follower), stored(&self.kip.groups), "replay equals live");
        for ((topic, partition), offset) in &self.acknowledged {
            let name = self.kip.groups.topics().by_id(*topic).unwrap().name;
            let committed = |groups: &Groups| groups.committed("g", name.as_str(), *partition).map(|c| c.offset.0);
            assert_eq!((committed(&self.kip.groups), committed(&self.kip.follower)), (Some(*offset), Some(*offset)));
        }
    }

    /// Nothing more needs to be waited for.
    fn is_settled(&self) -> bool {
        let stable = self.kip.groups.get("g").is_none_or(|group| match (group.classic(), group.consumer()) {
            (Some(classic), _) => classic.state() == State::Stable,
            (_, Some(consumer)) => consumer.state() == ConsumerState::Stable,
            (None, None) => false,
        });
        let inside = |(i, client): (usize, &Client)| !client.up || self.is_member(i) && client.revoking.is_empty() && !client.unsaid;
        stable && self.clients.iter().enumerate().all(inside)
    }

    /// What holds when nothing happened for long.
    fn check_quiet(&self) {
        self.check_reads();
        let (whole, follower) = (self.kip.replayed(), &self.kip.follower);
        let stored = |groups: &Groups| groups.get("g").and_then(Group::consumer).map(Consumer::stored);
        assert_eq!(stored(&whole), stored(follower));
        let waiting: Vec<_> = self.open.iter().filter(|ticket| self.kip.waits(**ticket)).collect();
        let held = self.clients.iter().filter(|c| c.up && matches!(c.phase, Phase::Waiting(..))).count();
        assert!(waiting.len() <= held, "{waiting:?} were never answered");
        // Whoever may not come in, for its name is another's or the policy forbids it, is not of the group.
        let (inside, outside): (Vec<_>, Vec<_>) =
            self.clients.iter().enumerate().filter(|(_, c)| c.up).partition(|(i, c)| self.is_member(*i) && !matches!(c.phase, Phase::Out));
        for (_, client) in &outside {
            let twin = inside.iter().any(|(_, other)| other.instance == client.instance && client.instance.is_some());
            let policy = self.kip.groups.settings().group_consumer_migration_policy != MigrationPolicy::Bidirectional;
            assert!(twin || policy && inside.iter().any(|(_, other)| other.classic != client.classic), "{client:#?} can't come in");
        }
        let Some(group) = self.kip.groups.get("g").filter(|_| !inside.is_empty()) else { return };
        match (group.classic(), group.consumer()) {
            (Some(classic), _) => assert_eq!((classic.state(), classic.members().len()), (State::Stable, inside.len())),
            (_, Some(consumer)) => assert_eq!((consumer.state(), consumer.members().len()), (ConsumerState::Stable, inside.len())),
            (None, None) => unreachable!(),
        }
        let wanted = |topic: &str| topic == "t" || inside.iter().any(|(_, client)| client.both_topics);
        let all = self.topics.iter().filter(|(topic, _)| wanted(topic));
        let all: Reads = all.flat_map(|(topic, count)| (0..*count).map(|index| (id_of(topic), PartitionIndex(index)))).collect();
        let read: Reads = inside.iter().flat_map(|(_, client)| client.reads.iter().copied()).collect();
        assert_eq!(read, all, "each partition is read");
    }
}

impl Client {
    /// It shall read these: what it has to let go it lets go when it acts next, and only then it reads what is new.
    fn take(&mut self, assigned: Reads) {
        self.revoking = self.reads.difference(&assigned).copied().collect();
        self.unsaid |= self.reads != assigned;
        self.reads.extend(assigned);
    }
}

#[track_caller]
fn run_seed(seed: u64) -> Vec<String> {
    let mut world = World::new(seed);
    world.run();
    world.trace
}

#[test]
fn both_protocols_keep_their_promises_under_faults() {
    for_each_seed(SEEDS, |seed| drop(run_seed(seed)));
}

#[test]
fn a_seed_of_both_protocols_runs_the_same_every_time() {
    assert_eq!(run_seed(7), run_seed(7));
}

/// The test of the test: each mistake that is planted is found by some seed.
#[test]
fn planted_mistakes_are_found() {
    let hook = std::panic::take_hook();
    std::panic::set_hook(Box::new(|_| ()));
    let found = planted::Mistake::ALL.map(|mistake| {
        let fails = |seed: &u64| {
            planted::plant(Some(mistake));
            let failed = std::panic::catch_unwind(|| World::new(*seed).run()).is_err();
            planted::plant(None);
            failed
        };
        (mistake, (0..1_000).find(fails))
    });
    std::panic::set_hook(hook);
    for (mistake, seed) in found {
        assert!(seed.is_some(), "{mistake:?} was not found");
    }
}
