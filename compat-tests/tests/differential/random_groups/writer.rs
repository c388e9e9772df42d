//! Random scripts for groups. Pure: a seed gives the same script for ever.
//!
//! A member mostly does what a client would: it joins, says what it has, commits, leaves; now and then it says something that is wrong in
//! one way. What is a matter of time, such as short timeouts, no script has.

use crate::chance::Chance;
use crate::random_groups::script::{
    At, Beat, Brings, Id, Join, MEMBERS_MAX, Meta, NAMELESS, NOBODYS, Named, Offset, Owns, Step, Sync, What,
};

/// What a member of the script is like.
#[derive(Clone, Debug)]
struct Member {
    consumer: bool,
    instance: Option<u8>,
    version: i16,
    kind: &'static str,
    protocols: Vec<(&'static str, Meta)>,
    joined: bool,
}

struct Writer {
    chance: Chance,
    /// All subscribe to the first topic alone: then nothing of who gets what is chance.
    one_topic: bool,
    /// The one that members may ask for: where as many ask for one as for another, Kafka assigns by one and tells of the other, as its hash
    /// tables have them.
    assignor: &'static str,
    groups: u8,
    members: Vec<Member>,
    steps: Vec<Step>,
}

/// Where two protocols have as many votes Kafka takes the one that its hash table has first, highwater the first by name. Of single letters
/// that is the same.
const PROTOCOLS: [&str; 4] = ["a", "b", "c", "d"];

/// The script of a seed.
pub fn script_of(seed: u64) -> Vec<Step> {
    let mut chance = Chance::new(seed);
    let style = chance.below(100);
    let groups = if chance.one_in(4) { 2 } else { 1 };
    let count = 1 + chance.below(MEMBERS_MAX.into());
    let one_topic = !chance.one_in(3);
    let assignor = if chance.one_in(2) { "range" } else { "uniform" };
    let mut writer = Writer { chance, one_topic, assignor, groups, members: Vec::new(), steps: Vec::new() };
    for _ in 0..count {
        let consumer = match style {
            0..40 => false,
            40..75 => true,
            _ => writer.chance.one_in(2),
        };
        let member = writer.someone(consumer);
        writer.members.push(member);
    }
    let length = 8 + writer.chance.below(30);
    while writer.steps.len() < length {
        writer.go_on();
    }
    writer.steps
}

impl Writer {
    fn someone(&mut self, consumer: bool) -> Member {
        let connect = self.chance.one_in(12);
        let meta = self.meta();
        // Each name once: one that is there twice is nobody's choice with Kafka, which counts it twice.
        let mut protocols: Vec<(&'static str, Meta)> = PROTOCOLS.iter().map(|name| (*name, meta)).collect();
        protocols.rotate_left(self.chance.below(4));
        protocols.truncate(2 + self.chance.below(3));
        Member {
            consumer,
            instance: if self.chance.one_in(3) { Some(self.chance.below(3) as u8) } else { None },
            version: self.chance.below(10) as i16,
            kind: if connect { "connect" } else { "consumer" },
            protocols,
            joined: false,
        }
    }

    fn meta(&mut self) -> Meta {
        if self.chance.one_in(12) {
            return Meta::Garbage(self.chance.below(3) as u8);
        }
        Meta::Topics { version: self.chance.below(4) as i16, mask: self.mask(), owned: self.chance.one_in(3) }
    }

    /// Mostly all topics, or the first; sometimes one that isn't there.
    fn mask(&mut self) -> u8 {
        if self.one_topic {
            return 1;
        }
        match self.chance.below(8) {
            0..3 => 0b111,
            3..5 => 0b001,
            5 => 0b011,
            6 => 0b1001,
            // Never none: with one who subscribes to nothing Kafka's group epoch stays as it is, ours is raised.
            _ => 1 + self.chance.below(15) as u8,
        }
    }

    fn push(&mut self, member: usize, what: What) {
        let group = match self.chance.below(60) {
            0 => NOBODYS,
            1 => NAMELESS,
            2 => self.chance.below(self.groups.into()) as u8,
            _ => self.home(member),
        };
        self.steps.push(Step { member: member as u8, group, what });
    }

    fn home(&self, member: usize) -> u8 {
        member as u8 % self.groups
    }

    fn go_on(&mut self) {
        let member = self.chance.below(self.members.len());
        match self.chance.below(100) {
            0..52 if self.members[member].consumer => self.live_as_consumer(member),
            0..52 => self.live_as_classic(member),
            52..60 => self.commit(member),
            60..67 => self.fetch(member),
            67..73 => self.lie(member),
            73..80 => self.leave(member),
            80..84 => self.look(member),
            84..86 => self.delete(member),
            86..88 => self.change(member),
            88..90 => {
                self.members[member].joined = false;
                self.push(member, What::Forget);
            }
            90..94 => self.settle(member),
            _ => self.odd(member),
        }
    }

    fn join_of(&self, member: usize) -> Join {
        let is = &self.members[member];
        Join {
            version: is.version,
            id: Id::Mine,
            instance: is.instance.filter(|_| is.version >= 5),
            kind: is.kind,
            protocols: is.protocols.clone(),
            session_ms: 60_000,
            rebalance_ms: 120_000,
        }
    }

    fn sync_of(&mut self, member: usize) -> Sync {
        let is = &self.members[member];
        let version = is.version.min(5);
        let brings = match is.kind {
            "consumer" => Brings::All,
            _ => Brings::Garbage,
        };
        let instance = is.instance.filter(|_| version >= 5);
        Sync { version, id: Id::Mine, at: At::Mine(0), instance, kind: Named::Told, protocol: Named::Told, brings }
    }

    fn join(&mut self, member: usize) {
        let join = self.join_of(member);
        let twice = join.version >= 4 && join.instance.is_none() && !self.members[member].joined;
        self.members[member].joined = true;
        self.push(member, What::Join(join.clone()));
        if twice {
            self.push(member, What::Join(join));
        }
    }

    fn live_as_classic(&mut self, member: usize) {
        if self.members[member].joined {
            match self.chance.below(10) {
                0..3 => self.join(member),
                3..6 => {
                    let sync = self.sync_of(member);
                    self.push(member, What::Sync(sync));
                }
                _ => self.heartbeat(member),
            }
            return;
        }
        self.join(member);
        if !self.chance.one_in(4) {
            self.settle(member);
        }
    }

    fn heartbeat(&mut self, member: usize) {
        let version = self.chance.below(5) as i16;
        let instance = self.members[member].instance.filter(|_| version >= 3);
        self.push(member, What::Heartbeat { version, id: Id::Mine, at: At::Mine(0), instance });
    }

    /// All members of a group come to rest, or most of them.
    fn settle(&mut self, member: usize) {
        let home = self.home(member);
        let all: Vec<usize> = (0..self.members.len()).filter(|other| self.home(*other) == home).collect();
        let classic: Vec<usize> =
            all.iter().copied().filter(|other| !self.members[*other].consumer && self.members[*other].joined).collect();
        let rounds = if classic.len() < all.len() { 2 } else { 1 };
        for _ in 0..rounds {
            for other in &all {
                if self.members[*other].consumer && self.members[*other].joined {
                    let beat = self.beat_of(*other);
                    self.push(*other, What::Beat(Beat { owns: Owns::Given, ..beat }));
                }
            }
            for other in &classic {
                if *other != member && !self.chance.one_in(12) {
                    self.join(*other);
                }
            }
            for other in &classic {
                if !self.chance.one_in(12) {
                    let sync = self.sync_of(*other);
                    self.push(*other, What::Sync(sync));
                }
            }
        }
    }

    fn beat_of(&mut self, member: usize) -> Beat {
        let is = &self.members[member];
        let version = is.version % 2;
        let (instance, first) = (is.instance, is.protocols.first().map(|(_, meta)| *meta));
        let names = match first {
            Some(Meta::Topics { mask, .. }) => mask,
            _ => 1,
        };
        let owns = if self.chance.one_in(3) { Owns::Silent } else { Owns::Given };
        Beat {
            version,
            id: Id::Mine,
            at: At::Mine(0),
            instance,
            names: self.chance.one_in(5).then_some(names),
            assignor: None,
            owns,
            rebalance_ms: -1,
            rack: None,
        }
    }

    fn live_as_consumer(&mut self, member: usize) {
        let mut beat = self.beat_of(member);
        if !self.members[member].joined {
            self.members[member].joined = true;
            beat.names = beat.names.or_else(|| Some(self.mask()));
            beat.assignor = if self.chance.one_in(4) { Some(self.assignor) } else { None };
        } else if self.chance.one_in(6) {
            match self.chance.below(6) {
                0 => beat.owns = Owns::Before,
                1 => beat.owns = Owns::Nothing,
                2 => beat.names = Some(self.mask()),
                3 => beat.assignor = Some(self.assignor),
                4 => beat.rack = Some(self.chance.one_of(&["here", "there"])),
                _ => beat.rebalance_ms = 90_000,
            }
        }
        self.push(member, What::Beat(beat));
    }

    fn offsets(&mut self) -> Vec<Offset> {
        let mut found = Vec::new();
        for _ in 0..1 + self.chance.below(4) {
            let metadata = match self.chance.below(8) {
                0 => None,
                1 => Some(4_097),
                2 => Some(4_096),
                _ => Some(self.chance.below(4)),
            };
            let offset = if self.chance.one_in(10) { self.chance.one_of(&[-1, -2, i64::MAX]) } else { self.chance.below(100) as i64 };
            found.push((self.chance.below(4) as u8, self.chance.below(6) as i32 - i32::from(self.chance.one_in(9)), offset, metadata));
        }
        found
    }

    /// Who commits: mostly a member, as itself.
    fn credentials(&mut self, member: usize) -> (bool, Id, At, Option<u8>) {
        let is = &self.members[member];
        let (consumer, instance) = (is.consumer, is.instance);
        match self.chance.below(12) {
            0 => (consumer, Id::Empty, At::Exactly(-1), None),
            1 => (consumer, Id::Mine, At::Mine(1), instance),
            2 => (consumer, Id::Mine, At::Mine(-1), None),
            3 => (consumer, Id::Old, At::Mine(0), instance),
            4 => (
                consumer,
                self.chance.one_of(&[Id::Stranger, Id::Empty, Id::Other]),
                self.chance.one_of(&[At::Mine(0), At::Exactly(-1)]),
                None,
            ),
            5 => (consumer, Id::Mine, At::Mine(0), Some(2)),
            _ => (consumer, Id::Mine, At::Mine(0), instance),
        }
    }

    fn commit(&mut self, member: usize) {
        let version = 2 + self.chance.below(8) as i16;
        let (consumer, id, at, instance) = self.credentials(member);
        let offsets = self.offsets();
        self.push(member, What::Commit { version, consumer, id, at, instance: instance.filter(|_| version >= 7), offsets });
    }

    fn topics(&mut self) -> Vec<(u8, Vec<i32>)> {
        let count = self.chance.below(4);
        (0..count).map(|_| (self.chance.below(4) as u8, (0..self.chance.below(4)).map(|_| self.chance.below(6) as i32).collect())).collect()
    }

    fn groups(&mut self, member: usize) -> Vec<u8> {
        match self.chance.below(6) {
            0 => vec![self.home(member), NOBODYS],
            1 => vec![0, 1, NAMELESS],
            2 => vec![self.home(member), self.home(member)],
            _ => vec![self.home(member)],
        }
    }

    fn fetch(&mut self, member: usize) {
        let version = 1 + self.chance.below(9) as i16;
        let all = version >= 2 && self.chance.one_in(2);
        let topics = (!all).then(|| self.topics());
        let groups = self.groups(member);
        let (consumer, id, at, _) = self.credentials(member);
        let member_said = (version >= 9 && self.chance.one_in(2)).then_some((id, at));
        let stable = version >= 7 && self.chance.one_in(2);
        self.push(member, What::Fetch { version, groups, topics, stable, consumer, member: member_said });
    }

    fn look(&mut self, member: usize) {
        let groups = self.groups(member);
        let what = match self.chance.below(5) {
            0 => What::Describe { version: self.chance.below(7) as i16, groups },
            1 => What::ConsumerDescribe { version: self.chance.below(2) as i16, groups },
            2 => What::Find { version: self.chance.below(7) as i16, kind: self.chance.one_of(&[0, 0, 0, 1, 2, -1]), groups },
            _ => {
                let version = self.chance.below(6) as i16;
                let states =
                    ["Stable", "empty", "PreparingRebalance", "CompletingRebalance", "Assigning", "RECONCILING", "Dead", "nonsense", ""];
                let types = ["classic", "Consumer", "share", "streams", "nonsense"];
                let states = (0..self.chance.below(3)).map(|_| self.chance.one_of(&states)).collect();
                let types = (0..self.chance.below(3)).map(|_| self.chance.one_of(&types)).collect();
                What::List {
                    version,
                    states: if version >= 4 { states } else { Vec::new() },
                    types: if version >= 5 { types } else { Vec::new() },
                }
            }
        };
        self.push(member, what);
    }

    fn leave(&mut self, member: usize) {
        if self.members[member].consumer {
            let at = if self.members[member].instance.is_some() && self.chance.one_in(2) { -2 } else { -1 };
            let beat = Beat { at: At::Exactly(at), owns: Owns::Silent, names: None, ..self.beat_of(member) };
            self.members[member].joined = false;
            return self.push(member, What::Beat(beat));
        }
        let version = self.chance.below(6) as i16;
        let mut who = vec![(Id::Mine, self.members[member].instance.filter(|_| version >= 3))];
        if version >= 3 {
            for _ in 0..self.chance.below(3) {
                let id = self.some_id();
                let instance = if self.chance.one_in(2) { Some(self.chance.below(3) as u8) } else { None };
                who.push((id, instance));
            }
            if self.chance.one_in(8) {
                who.remove(0);
            }
        }
        self.members[member].joined = false;
        self.push(member, What::Leave { version, who });
        if self.chance.one_in(2) {
            self.push(member, What::Forget);
        }
    }

    fn some_id(&mut self) -> Id {
        match self.chance.below(8) {
            0 => Id::Empty,
            1 => Id::Stranger,
            2 => Id::Old,
            3 => Id::Other,
            4 | 5 => Id::Of(self.chance.below(MEMBERS_MAX.into()) as u8),
            _ => Id::Mine,
        }
    }

    fn delete(&mut self, member: usize) {
        if self.chance.one_in(2) {
            let topics = self.topics();
            return self.push(member, What::OffsetDelete { topics });
        }
        let groups = self.groups(member);
        let version = self.chance.below(3) as i16;
        self.push(member, What::Delete { version, groups });
    }

    /// A member is another from now on.
    fn change(&mut self, member: usize) {
        let consumer = if self.chance.one_in(4) { !self.members[member].consumer } else { self.members[member].consumer };
        let old = self.members[member].clone();
        let new = self.someone(consumer);
        self.members[member] = Member { joined: old.joined && consumer == old.consumer, instance: old.instance, ..new };
        if self.chance.one_in(3) {
            self.members[member].instance = None;
        }
    }

    /// A request that is wrong in one way.
    fn lie(&mut self, member: usize) {
        let consumer = self.members[member].consumer;
        let (id, at) = match self.chance.below(6) {
            0 => (Id::Mine, At::Mine(1)),
            1 => (Id::Mine, At::Mine(-1)),
            2 => (Id::Old, At::Mine(0)),
            3 => (Id::Mine, At::Exactly(self.chance.one_of(&[-3, -1, 0, i32::MAX, i32::MIN]))),
            _ => (self.some_id(), At::Mine(0)),
        };
        let instance = if self.chance.one_in(3) { Some(self.chance.below(3) as u8) } else { self.members[member].instance };
        match self.chance.below(3) {
            _ if consumer => {
                let beat = self.beat_of(member);
                self.push(member, What::Beat(Beat { id, at, instance, ..beat }));
            }
            0 => {
                let version = self.chance.below(5) as i16;
                self.push(member, What::Heartbeat { version, id, at, instance: instance.filter(|_| version >= 3) });
            }
            1 => {
                let sync = self.sync_of(member);
                let instance = instance.filter(|_| sync.version >= 3);
                self.push(member, What::Sync(Sync { id, at, instance, ..sync }));
            }
            _ => {
                let join = self.join_of(member);
                let instance = instance.filter(|_| join.version >= 5);
                self.push(member, What::Join(Join { id, instance, ..join }));
            }
        }
    }

    /// What few clients say.
    fn odd(&mut self, member: usize) {
        if self.members[member].consumer {
            let mut beat = self.beat_of(member);
            match self.chance.below(7) {
                0 => beat.assignor = Some(self.chance.one_of(&["nonsense", ""])),
                1 => beat.rack = Some(""),
                2 => beat.owns = Owns::Lie,
                // No short ones: what they do is a matter of time.
                3 => beat.rebalance_ms = self.chance.one_of(&[-1, 300_000, i32::MAX]),
                4 => beat.at = At::Exactly(0),
                5 => beat.names = Some(0),
                _ => beat.instance = Some(3),
            }
            return self.push(member, What::Beat(beat));
        }
        if self.chance.one_in(2) {
            let mut sync = self.sync_of(member);
            match self.chance.below(4) {
                0 => sync.kind = self.chance.one_of(&[Named::Wrong, Named::None]),
                1 => sync.protocol = self.chance.one_of(&[Named::Wrong, Named::None]),
                _ => sync.brings = self.chance.one_of(&[Brings::NotAll, Brings::Nothing, Brings::Garbage]),
            }
            return self.push(member, What::Sync(sync));
        }
        let mut join = self.join_of(member);
        match self.chance.below(6) {
            0 => join.session_ms = self.chance.one_of(&[-1, 0, 5_999, 1_800_001]),
            1 => join.kind = self.chance.one_of(&["", "connect", "consumer"]),
            2 => join.protocols.clear(),
            3 => join.protocols = vec![("alien", Meta::Garbage(1))],
            4 => join.protocols.reverse(),
            _ => join.protocols.iter_mut().for_each(|(_, meta)| *meta = Meta::Topics { version: 1, mask: 0b1, owned: true }),
        }
        self.push(member, What::Join(join));
    }
}
