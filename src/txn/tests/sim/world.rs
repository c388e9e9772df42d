//! The simulated world: time, the network between applications and the broker, and what goes wrong.

use super::{
    Bug,
    app::{App, Attempt, Places},
    broker::{Broker, Disk, Request, SHARDS, Settings, Then},
    history::Checker,
};
use crate::{sim::Random, txn::TransactionVersion, types::*};
use std::{
    cmp::Reverse,
    collections::{BTreeMap, BinaryHeap},
};

const CHAOS_MS: i64 = 25_000;
const CALM_MS: i64 = 90_000;
/// `transaction.abort.timed.out.transaction.cleanup.interval.ms`.
const TIMEOUTS_EVERY_MS: i64 = 1_000;

#[derive(Debug)]
enum Event {
    /// An application may go on.
    App(usize),
    Arrives(Request),
    Answered {
        client: usize,
        request: u64,
        answer: Result<super::broker::Answer, ErrorCode>,
    },
    /// Something of a life of the broker goes on.
    Step(u32, Then),
    Synced(u32, Disk, usize),
    Load(u32, usize),
    Start,
    TimeOuts,
    Read,
    Chaos,
    Supervise,
}

pub struct World {
    pub broker: Broker,
    apps: Vec<App>,
    pub attempts: Vec<Attempt>,
    chance: Random,
    events: BinaryHeap<Reverse<(i64, u64)>>,
    what: BTreeMap<u64, Event>,
    next: u64,
    now: i64,
    chaos_until: i64,
    /// The newest request of each application that has arrived: in the flow of old, nothing but batches may come after it.
    arrived: BTreeMap<usize, u64>,
    places: Places,
    pub checker: Checker,
    trace: Option<Vec<String>>,
}

impl World {
    pub fn new(seed: u64, bug: Option<Bug>) -> Self {
        let mut chance = Random::new(seed);
        let slots = 1 + chance.below(3) as usize;
        let partitions = 1 + chance.below(3) as usize;
        let version =
            [TransactionVersion::V2, TransactionVersion::V2, TransactionVersion::V0, TransactionVersion::V1][chance.below(4) as usize];
        let syncs = chance.one_in(2) || bug.is_some_and(Bug::needs_power_loss);
        let mut broker = Broker::new(Settings { slots, partitions, version, syncs, bug });
        if chance.one_in(3) {
            (0..slots).for_each(|slot| broker.seed_epoch(slot, i16::MAX - 2 - chance.below(9) as i16));
        }
        (0..SHARDS).for_each(|shard| broker.load(shard));
        let places = Places { partitions, scrap: broker.scrap(), offsets: broker.offsets() };
        let now = broker.now.0;
        let mut world = Self {
            broker,
            apps: Vec::new(),
            attempts: Vec::new(),
            chance,
            events: BinaryHeap::new(),
            what: BTreeMap::new(),
            next: 0,
            now,
            chaos_until: now + CHAOS_MS,
            arrived: BTreeMap::new(),
            places,
            checker: Checker::new(slots, partitions),
            trace: std::env::var("SIM_TRACE").is_ok().then(Vec::new),
        };
        (0..slots).for_each(|slot| world.launch(slot));
        for event in [Event::TimeOuts, Event::Read, Event::Chaos, Event::Supervise] {
            world.at(now + 100, event);
        }
        world
    }

    fn at(&mut self, time: i64, event: Event) {
        self.next += 1;
        self.events.push(Reverse((time, self.next)));
        self.what.insert(self.next, event);
    }

    fn soon(&mut self, from: i64, to: i64, event: Event) {
        let time = self.now + self.chance.between(from, to);
        self.at(time, event);
    }

    fn faults(&self) -> bool {
        self.now < self.chaos_until
    }

    /// An instance of an application starts, whatever others of it do.
    fn launch(&mut self, slot: usize) {
        let new_flow = self.broker.settings.version.bumps_epochs() && !self.chance.one_in(3);
        let version = if new_flow { TransactionVersion::V2 } else { TransactionVersion::V0 };
        self.apps.push(App::new(self.apps.len(), self.places, slot, version, self.now));
        self.soon(0, 50, Event::App(self.apps.len() - 1));
    }

    /// Until everything is copied and quiet, or can't be.
    pub fn run(&mut self) -> Result<(), String> {
        let deadline = self.chaos_until + CALM_MS;
        while let Some(Reverse((time, id))) = self.events.pop() {
            if time > deadline {
                return Err(format!("not everything is copied and at rest:\n{}", self.broker.describe()));
            }
            self.now = time;
            self.broker.now = Millis(time);
            let Some(event) = self.what.remove(&id) else { continue };
            if let Some(trace) = &mut self.trace {
                trace.push(format!("{time} {event:?}"));
            }
            self.handle(event)?;
            self.follow();
            if !self.faults() && self.is_finished() {
                return self.checker.finish(&self.broker, &self.attempts);
            }
        }
        Err("nothing is left to happen".to_owned())
    }

    pub fn dump(&self) {
        self.trace.iter().flatten().for_each(|line| println!("{line}"));
    }

    fn is_finished(&self) -> bool {
        let copied = (0..self.broker.settings.slots).all(|slot| self.apps.iter().any(|app| app.slot == slot && app.alive && app.is_idle()));
        copied && self.broker.is_quiet()
    }

    /// What the broker has made possible.
    fn follow(&mut self) {
        let life = self.broker.life;
        for then in std::mem::take(&mut self.broker.ready) {
            match then {
                Then::Reply { client, request, answer } => {
                    if !(self.faults() && self.chance.one_in(12)) {
                        self.soon(0, 15, Event::Answered { client, request, answer });
                    }
                }
                step => {
                    let slow = self.faults() && self.chance.one_in(10);
                    self.soon(0, if slow { 1_500 } else { 5 }, Event::Step(life, step));
                }
            }
        }
        let syncs: Vec<_> = self.broker.syncing.iter().map(|(disk, until, _)| (*disk, *until)).collect();
        for (disk, until) in syncs {
            if self.broker.asked(disk, until) {
                self.soon(1, 20, Event::Synced(life, disk, until));
            }
        }
    }

    fn handle(&mut self, event: Event) -> Result<(), String> {
        match event {
            Event::App(app) => self.go_on(app),
            Event::Arrives(request) => self.arrives(request),
            Event::Answered { client, request, answer } => {
                let faults = self.faults();
                self.apps[client].hear(self.now, request, answer, &mut self.chance, &mut self.attempts, faults);
                self.check_death(client)?;
                let at = self.apps[client].at;
                self.at(at.max(self.now), Event::App(client));
            }
            Event::Step(life, step) => {
                if life == self.broker.life && self.broker.up {
                    self.broker.step(step, &mut self.chance);
                }
            }
            Event::Synced(life, disk, until) => {
                if life == self.broker.life && self.broker.up {
                    self.broker.sync_done(disk, until);
                }
            }
            Event::Load(life, shard) => {
                if life == self.broker.life {
                    self.broker.load(shard);
                }
            }
            Event::Start => {
                self.broker.up = true;
                let life = self.broker.life;
                (0..SHARDS).for_each(|shard| self.soon(0, 400, Event::Load(life, shard)));
            }
            Event::TimeOuts => {
                if self.broker.up {
                    self.broker.time_out();
                }
                self.at(self.now + TIMEOUTS_EVERY_MS, Event::TimeOuts);
            }
            Event::Read => {
                self.checker.read(&self.broker)?;
                self.soon(50, 400, Event::Read);
            }
            Event::Chaos => self.chaos()?,
            Event::Supervise => self.supervise(),
        }
        Ok(())
    }

    /// Nobody dies of being fenced whom nothing has fenced.
    fn check_death(&mut self, client: usize) -> Result<(), String> {
        let app = &mut self.apps[client];
        let Some(error) = app.died_of.take() else { return Ok(()) };
        let (then, now) = (self.broker.granted.get(&app.made_by), self.broker.fences[app.slot]);
        if then == Some(&now) {
            return Err(format!("instance {client} of application {} died of {error}, and nothing has fenced it", app.slot));
        }
        Ok(())
    }

    fn go_on(&mut self, app: usize) {
        let (faults, id) = (self.faults(), self.next + 1_000_000);
        let asked = self.apps[app].ask(self.now, id, &mut self.chance, &mut self.attempts, faults);
        let Some(request) = asked else { return };
        // Its answer may not come: then it asks again.
        self.at(self.now + 301, Event::App(app));
        let lost = faults && self.chance.one_in(12);
        if !lost {
            self.soon(0, 15, Event::Arrives(request.clone()));
        }
        // A copy that was stuck somewhere.
        if faults && self.chance.one_in(8) {
            self.soon(0, 4_000, Event::Arrives(request));
        }
    }

    fn arrives(&mut self, request: Request) {
        if !self.broker.up {
            return;
        }
        // The flow of old can't tell a late request of its epoch from the next transaction's (KIP-890 is about that); sequences tell batches.
        let newest = self.arrived.get(&request.client).copied().unwrap_or(0);
        if !request.version.bumps_epochs() && request.id < newest && !matches!(request.ask, super::broker::Ask::Produce { .. }) {
            return;
        }
        self.arrived.insert(request.client, newest.max(request.id));
        self.broker.handle(request);
    }

    fn chaos(&mut self) -> Result<(), String> {
        if !self.faults() {
            return Ok(());
        }
        match self.chance.below(10) {
            0..=3 if self.broker.up => {
                let always = self.broker.settings.bug.is_some_and(Bug::needs_power_loss);
                let power = self.broker.settings.syncs && (always || self.chance.one_in(2));
                // That bug is to be found by what it does.
                if self.broker.settings.bug != Some(Bug::RestartsForgetTheNextId) {
                    self.broker.check_replay()?;
                }
                self.broker.crash(power, &mut self.chance);
                self.checker.crashed(power);
                self.soon(10, 1_500, Event::Start);
            }
            4 | 5 => {
                let app = self.chance.below(self.apps.len() as u64) as usize;
                self.apps[app].alive = false;
            }
            6 => {
                let app = self.chance.below(self.apps.len() as u64) as usize;
                let pause = [500, 3_000, 12_000][self.chance.below(3) as usize];
                self.apps[app].paused_until = self.now + pause;
                self.at(self.now + pause, Event::App(app));
            }
            7 => {
                let slot = self.chance.below(self.broker.settings.slots as u64) as usize;
                self.launch(slot);
            }
            8 if self.chance.one_in(3) => {
                let scrap = self.broker.scrap();
                self.broker.partitions[scrap].is_gone = true;
            }
            _ => {}
        }
        self.soon(200, 1_800, Event::Chaos);
        Ok(())
    }

    /// An application without a living instance gets one.
    fn supervise(&mut self) {
        for slot in 0..self.broker.settings.slots {
            if !self.apps.iter().any(|app| app.slot == slot && app.alive) {
                self.launch(slot);
            }
        }
        self.soon(200, 1_000, Event::Supervise);
    }
}
