//! Seeded simulation of one group under faults: members join, leave, crash, pause, change their subscriptions, come back as static ones
//! and lose answers; the broker is killed at any point.
//!
//! Checked at every step: no two members own a partition in one generation, replay equals live, an acknowledged commit is there. At the
//! end: no heartbeat is held back that would hear something, or for longer than it may be; and a group that is left alone becomes stable within its timeouts, with all who are alive and nobody else, and every request that
//! the broker still knew has been answered. `SIM_SEED=n cargo test --lib group::tests::sim` runs one seed.

use super::ctx::*;
use crate::{
    group::{classic::*, *},
    sim::{self, Random, for_each_seed},
    types::*,
};
use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
};

const PARTITIONS: u8 = 12;
const REQUEST_TIMEOUT_MS: i64 = 40_000;
const HEARTBEAT_MS: i64 = 3_000;
const HOLD_MS_MAX: i64 = 8_000;
const CHAOS_MS: i64 = 600_000;
/// Longer than a new member's join, the rebalance and the session after it.
const CALM_MS: i64 = 900_000;

#[derive(Debug)]
enum Phase {
    Out,
    Joining(Ticket, i64),
    Syncing(Ticket, i64),
    In,
}

#[derive(Debug)]
struct Client {
    name: String,
    instance: Option<Arc<str>>,
    knows_ids: bool,
    up: bool,
    member_id: MemberId,
    generation: Generation,
    phase: Phase,
    flavour: u8,
    /// Its heartbeats may be held back.
    holds: bool,
    /// It counts its interval from the answer.
    waits: bool,
    beat: Option<Beat>,
    /// When it acts next.
    at: i64,
}

/// A heartbeat under way.
#[derive(Debug, Clone)]
struct Beat {
    ticket: Ticket,
    sent: i64,
    from: Identity,
}

struct World {
    random: Random,
    ctx: Ctx,
    clients: Vec<Client>,
    /// Who was given a partition in a generation: a member, or an instance, which a new member may take over.
    owners: BTreeMap<(i32, u8), String>,
    acknowledged: Option<i64>,
    open: BTreeSet<Ticket>,
    trace: Vec<String>,
}

impl World {
    fn new(seed: u64) -> Self {
        let mut random = Random::new(seed);
        let delay = [0, 3_000][random.below(2) as usize];
        let ctx = Ctx::new(Settings { group_initial_rebalance_delay_ms: delay, ..Settings::default() });
        let count = 1 + random.below(6);
        let clients = (0..count)
            .map(|i| Client {
                name: format!("c{i}"),
                // Two may have the same name: one of them is fenced.
                instance: random.one_in(2).then(|| format!("i{}", random.below(count)).into()),
                knows_ids: random.one_in(2),
                up: true,
                member_id: "".into(),
                generation: Generation::NONE,
                phase: Phase::Out,
                flavour: 0,
                holds: random.one_in(2),
                waits: random.one_in(3),
                beat: None,
                at: 1_000_000 + random.below(5_000) as i64,
            })
            .collect();
        let (owners, open, trace) = (BTreeMap::new(), BTreeSet::new(), Vec::new());
        Self { random, ctx, clients, owners, acknowledged: None, open, trace }
    }

    fn now(&self) -> i64 {
        self.ctx.now.steady.0
    }

    fn run(&mut self) {
        let chaos_ends = self.now() + CHAOS_MS;
        while self.now() < chaos_ends {
            self.step(true);
        }
        let calm_ends = self.now() + CALM_MS;
        while self.now() < calm_ends {
            self.step(false);
        }
        self.check_quiet();
    }

    fn step(&mut self, faults: bool) {
        let clients = self.clients.iter().filter(|c| c.up).map(|c| c.at).min();
        let timer = self.ctx.groups.next_deadline("g").map(|deadline| deadline.0);
        let next = clients.into_iter().chain(timer).min().unwrap_or(self.now() + 1_000).max(self.now());
        let ms = next - self.now();
        self.ctx.now = Now { wall: self.ctx.now.wall.plus(ms), steady: self.ctx.now.steady.plus(ms) };
        self.ctx.tick();
        for i in 0..self.clients.len() {
            self.receive(i, faults);
            if self.clients[i].up && self.clients[i].at <= self.now() {
                self.act(i);
                self.receive(i, faults);
            }
        }
        if faults && self.random.one_in(8) {
            self.fault();
        }
        self.open.retain(|ticket| self.ctx.waits(*ticket));
        self.check();
    }

    fn fault(&mut self) {
        let i = self.random.below(self.clients.len() as u64) as usize;
        let kind = self.random.below(7);
        let (now, pause) = (self.now(), self.random.below(90_000) as i64);
        if matches!(kind, 0 | 5) {
            self.let_go(i, kind == 0);
        }
        self.trace.push(format!("{now} fault {kind} of {}", self.clients[i].name));
        let client = &mut self.clients[i];
        match kind {
            // It crashes, and may be started again by a later fault.
            0 => {
                *client = Client {
                    name: client.name.clone(),
                    instance: client.instance.clone(),
                    up: false,
                    member_id: "".into(),
                    generation: Generation::NONE,
                    phase: Phase::Out,
                    beat: None,
                    ..*client
                }
            }
            1 | 2 => {
                client.up = true;
                client.at = now;
            }
            3 => client.at = now + pause,
            4 => client.flavour = client.flavour.wrapping_add(1),
            5 if client.instance.is_none() && !client.member_id.is_empty() => {
                let id = client.member_id.clone();
                client.up = false;
                (client.member_id, client.phase) = ("".into(), Phase::Out);
                self.ctx.leave(&[(&id, None)]);
            }
            6 if self.random.one_in(4) => {
                self.ctx.restart();
                self.open.clear();
                self.clients.iter_mut().for_each(|client| client.beat = None);
            }
            _ => {}
        }
    }

    fn act(&mut self, i: usize) {
        let now = self.now();
        self.clients[i].at = now + HEARTBEAT_MS;
        match self.clients[i].phase {
            Phase::Out => self.join(i),
            // The answer did not come in time: the client gives up its connection and begins anew.
            Phase::Joining(_, since) | Phase::Syncing(_, since) if now - since > REQUEST_TIMEOUT_MS => self.join(i),
            // While it waits for an answer its heartbeats go on, but for a new member's.
            Phase::Joining(..) => {}
            Phase::Syncing(..) | Phase::In => self.heartbeat(i),
        }
    }

    fn join(&mut self, i: usize) {
        self.let_go(i, false);
        let client = &self.clients[i];
        let request = Join {
            member_id: client.member_id.clone(),
            instance_id: client.instance.clone(),
            requires_known_member_id: client.knows_ids,
            supports_skipping_assignment: client.knows_ids,
            protocols: protocols(if client.flavour.is_multiple_of(2) { &["range"] } else { &["range", "sticky"] }),
            rebalance_timeout_ms: 30_000,
            ..join(&client.name)
        };
        let ticket = self.ctx.send_join(request);
        self.open.insert(ticket);
        self.clients[i].phase = Phase::Joining(ticket, self.now());
    }

    fn identity(&self, i: usize) -> Identity {
        let client = &self.clients[i];
        Identity {
            group: group(),
            member_id: client.member_id.clone(),
            instance_id: client.instance.clone(),
            generation: client.generation,
        }
    }

    fn heartbeat(&mut self, i: usize) {
        let from = self.identity(i);
        if matches!(self.clients[i].phase, Phase::In) && self.random.one_in(3) {
            self.let_go(i, false);
            let offset = self.acknowledged.unwrap_or(0) + 1;
            if self.ctx.commit_from(from.clone(), "t", offset) == Ok(vec![ErrorCode::None]) {
                self.acknowledged = Some(offset);
            }
        }
        if self.clients[i].holds {
            let ticket = self.ctx.send_beat(&from);
            self.trace.push(format!("{} {} heartbeat {ticket:?}", self.now(), self.clients[i].name));
            let beat = Beat { ticket, sent: self.now(), from };
            let earlier = self.clients[i].beat.replace(beat);
            assert!(earlier.is_none_or(|earlier| !self.ctx.waits(earlier.ticket)), "the one before is answered");
            return;
        }
        let error = self.ctx.heartbeat_from(&from);
        self.trace.push(format!("{} {} heartbeat {error}", self.now(), self.clients[i].name));
        self.on_error(i, error);
    }

    /// Another request comes on the connection of a heartbeat that is held, or that ends.
    fn let_go(&mut self, i: usize, gone: bool) {
        if let Some(beat) = self.clients[i].beat.take().filter(|beat| self.ctx.waits(beat.ticket)) {
            self.ctx.release(beat.ticket, gone);
        }
    }

    fn receive_beat(&mut self, i: usize, faults: bool) {
        let answered = |beat: &mut Beat| !self.ctx.waits(beat.ticket);
        let Some(beat) = self.clients[i].beat.take_if(answered) else { return };
        let error = self.ctx.beaten(beat.ticket);
        self.trace.push(format!("{} {} hears {error} of {:?}", self.now(), self.clients[i].name, beat.ticket));
        let lost = !self.clients[i].up || faults && self.random.one_in(10);
        let from = self.identity(i);
        let outdated = (&from.member_id, from.generation) != (&beat.from.member_id, beat.from.generation);
        if lost || outdated || !matches!(self.clients[i].phase, Phase::In | Phase::Syncing(..)) {
            return;
        }
        if error == ErrorCode::None && self.clients[i].waits {
            self.clients[i].at = self.now() + HEARTBEAT_MS;
        }
        self.on_error(i, error);
    }

    /// What clients do when they hear an error.
    fn on_error(&mut self, i: usize, error: ErrorCode) {
        let client = &mut self.clients[i];
        match error {
            ErrorCode::None => return,
            ErrorCode::RebalanceInProgress => {}
            ErrorCode::IllegalGeneration => client.generation = Generation::NONE,
            // One whose name another has taken ends.
            ErrorCode::FencedInstanceId => {
                client.up = false;
                client.member_id = "".into();
            }
            ErrorCode::UnknownMemberId => client.member_id = "".into(),
            other => panic!("{} hears {other}", client.name),
        }
        client.phase = Phase::Out;
        client.at = self.ctx.now.steady.0 + 100;
    }

    fn receive(&mut self, i: usize, faults: bool) {
        self.receive_beat(i, faults);
        let ticket = match self.clients[i].phase {
            Phase::Joining(ticket, _) | Phase::Syncing(ticket, _) => ticket,
            Phase::Out | Phase::In => return,
        };
        let Some(answer) = self.ctx.answers.get(&ticket).cloned() else { return };
        if !self.clients[i].up || faults && self.random.one_in(10) {
            // The answer is lost with its connection.
            if self.clients[i].up {
                self.clients[i].phase = Phase::Out;
            }
            return;
        }
        self.trace.push(format!("{} {} hears {answer:?}", self.now(), self.clients[i].name));
        match answer {
            Reply::Join(joined) => self.on_joined(i, &joined),
            Reply::Sync(synced) => self.on_synced(i, &synced),
            Reply::Heartbeat(_) | Reply::Alive(_) => unreachable!("a classic member"),
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
        self.clients[i].member_id = joined.member_id.clone();
        self.clients[i].generation = joined.generation;
        let mut assignments: BTreeMap<MemberId, Vec<u8>> = BTreeMap::new();
        if joined.leader == joined.member_id && !joined.skip_assignment {
            for partition in 0..PARTITIONS {
                let owner = &joined.members[usize::from(partition) % joined.members.len()];
                assignments.entry(owner.member_id.clone()).or_default().push(partition);
            }
        }
        // Each assignment says in its first byte which generation it is for.
        let generation = joined.generation.0.to_le_bytes()[0];
        let assignments = assignments.into_iter().map(|(id, partitions)| (id, [&[generation], &*partitions].concat().into())).collect();
        let from = self.identity(i);
        let ticket = self.ctx.send_sync(Sync { from, protocol_type: None, protocol: None, assignments, ticket: Ticket(0) });
        self.open.insert(ticket);
        self.clients[i].phase = Phase::Syncing(ticket, self.now());
    }

    fn on_synced(&mut self, i: usize, synced: &Synced) {
        if synced.error.is_error() {
            return self.on_error(i, synced.error);
        }
        let client = &mut self.clients[i];
        client.phase = Phase::In;
        let who = client.instance.as_deref().map_or_else(|| client.member_id.to_string(), str::to_owned);
        let Some((generation, partitions)) = synced.assignment.split_first() else { return };
        assert_eq!(*generation, client.generation.0.to_le_bytes()[0], "an assignment of another generation");
        for partition in partitions {
            let owner = self.owners.entry((client.generation.0, *partition)).or_insert_with(|| who.clone());
            assert_eq!(*owner, who, "partition {partition} in generation {:?}", client.generation);
        }
    }

    /// What holds at every moment.
    fn check(&self) {
        let replayed = &self.ctx.follower;
        let stored = |groups: &Groups| groups.get("g").map(|g| g.classic().unwrap().to_metadata());
        if matches!(self.ctx.state(), State::Stable) {
            assert_eq!(stored(replayed), stored(&self.ctx.groups), "replay equals live");
        }
        let offset = |groups: &Groups| groups.committed("g", "t", PartitionIndex(0)).map(|c| c.offset.0);
        assert_eq!((offset(replayed), offset(&self.ctx.groups)), (self.acknowledged, self.acknowledged));
        for beat in self.clients.iter().filter_map(|client| client.beat.as_ref()).filter(|beat| self.ctx.waits(beat.ticket)) {
            let now_told = self.ctx.groups.decide_heartbeat(self.ctx.now, &beat.from).reply;
            let may_wait = [(ErrorCode::None, State::Stable), (ErrorCode::RebalanceInProgress, State::PreparingRebalance)];
            assert!(may_wait.contains(&(now_told, self.ctx.state())), "{beat:?} is held");
            assert!(self.now() - beat.sent <= HOLD_MS_MAX, "{beat:?} is never answered");
        }
    }

    /// What holds when nothing happened for long.
    fn check_quiet(&self) {
        let whole = self.ctx.replayed();
        assert_eq!(whole.get("g"), self.ctx.follower.get("g"));
        let alive: Vec<&Client> = self.clients.iter().filter(|c| c.up).collect();
        let waiting: Vec<_> = self.open.iter().filter(|ticket| self.ctx.waits(**ticket)).collect();
        assert!(waiting.is_empty(), "{waiting:?} were never answered");
        let expected = if alive.is_empty() { State::Empty } else { State::Stable };
        assert_eq!(self.ctx.state(), expected, "{:#?}", self.clients);
        let mut members = self.ctx.member_ids();
        members.sort();
        let mut ids: Vec<_> = alive.iter().map(|c| c.member_id.to_string()).collect();
        ids.sort();
        assert_eq!(members, ids);
        for client in alive {
            assert!(matches!(client.phase, Phase::In), "{client:?}");
            assert_eq!(client.generation, self.ctx.classic().generation());
        }
        if expected == State::Stable {
            let assigned: usize = self.ctx.classic().members().map(|m| m.assignment.len().saturating_sub(1)).sum();
            assert_eq!(assigned, usize::from(PARTITIONS));
        }
    }
}

#[track_caller]
fn run_seed(seed: u64) -> Vec<String> {
    let mut world = World::new(seed);
    world.run();
    world.trace
}

#[test]
fn groups_keep_their_promises_under_faults() {
    for_each_seed(2_000, |seed| {
        let trace = run_seed(seed);
        if sim::seed().is_some() {
            trace.iter().for_each(|line| eprintln!("{line}"));
        }
    });
}

#[test]
fn a_seed_runs_the_same_every_time() {
    assert_eq!(run_seed(7), run_seed(7));
}
