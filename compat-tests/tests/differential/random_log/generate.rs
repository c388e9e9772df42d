//! From a seed to a sequence of requests. Most are such as a client would send, so that there is something for the others to be wrong
//! about. It is pure: what the brokers answer changes nothing in it.
//!
//! Left out, because Kafka answers by its clock: configs that let retention or compaction take records (values of `retention.*` are larger than
//! what a run can write, and a topic is compacted only where its segments don't roll).

use compat_tests::driver::Codec;

use super::plan::{At, Epoch, Flaw, Id, Item, Of, Place, Read, Sequence, Session, Step, Who, Written};
use crate::alter::{APPEND, DELETE, SET, SUBTRACT};
use crate::chance::Chance;
use crate::requests::THEN;

/// Topics of a sequence; the first is never deleted, so that offsets can be committed for it (Kafka removes those of a deleted topic later).
pub const TOPICS: usize = 3;
/// Producers of a sequence, of which those from `TRANSACTIONAL_FROM` on have a transactional id.
pub const PRODUCERS: usize = 4;
pub const TRANSACTIONAL_FROM: usize = 2;
/// Some time after 2200, when nobody runs this.
pub const FAR: i64 = 7_500_000_000_000;

/// More than lies between any two times of a sequence.
pub const NEVER_ROLLED: (&str, &str) = ("segment.ms", "10000000000000");

/// The producer says that its broker has set the times.
const STAMPED: Flaw = Flaw::Bits(1 << 3);
const TRANSACTIONAL: Flaw = Flaw::Bits(1 << 4);

/// What the sequence so far has most likely done.
struct State {
    chance: Chance,
    partitions: [i32; TOPICS],
    /// Its segments are rolled by time, so it never becomes a compacted one.
    rolls: [bool; TOPICS],
    /// The broker may have compressed some of it anew, so that sizes differ.
    recompressed: [bool; TOPICS],
    /// Whether each session has partitions with a last fetched epoch.
    sessions: Vec<bool>,
    open: [bool; PRODUCERS],
}

/// The sequence of a seed.
pub fn sequence(seed: u64) -> Vec<Step> {
    let mut state = State {
        chance: Chance::new(seed),
        partitions: [0; TOPICS],
        rolls: [false; TOPICS],
        recompressed: [false; TOPICS],
        sessions: Vec::new(),
        open: [false; PRODUCERS],
    };
    let topics = 1 + state.chance.below(TOPICS);
    let mut steps: Vec<Step> = (0..topics).map(|topic| state.create(topic, false)).collect();
    for slot in 0..PRODUCERS {
        if !state.chance.one_in(4) {
            steps.push(state.init(slot));
        }
    }
    let length = 15 + state.chance.below(45);
    for _ in 0..length {
        let step = state.step();
        steps.push(step);
    }
    steps
}

impl State {
    fn step(&mut self) -> Step {
        match self.chance.below(100) {
            0..=29 => self.produce(),
            30..=47 => self.fetch(),
            48..=53 => self.list_offsets(),
            54..=55 => self.epochs(),
            56..=59 => self.delete_records(),
            60..=61 => Step::Producers { of: self.partitions(2) },
            62..=64 => {
                let slot = self.chance.below(PRODUCERS);
                self.init(slot)
            }
            65..=70 => self.add_partitions(),
            71..=72 => self.add_offsets(),
            73..=75 => self.commit_offsets(),
            76 => Step::CommittedOffsets { version: self.chance.version(1, 9), stable: self.chance.one_in(2) },
            77..=84 => self.end(),
            85..=86 => Step::Transactions { slots: self.chance.some(1, 3, |chance| chance.below(PRODUCERS + 1)) },
            87 => self.list_transactions(),
            88 => self.log_dirs(),
            89 => self.describe_partitions(),
            90 => self.configs(),
            91..=92 => self.metadata(),
            93..=95 => self.alter(),
            96..=97 => self.widen(),
            98 => self.delete(),
            _ => {
                let topic = self.chance.below(TOPICS);
                let dry = self.chance.one_in(4);
                self.create(topic, dry)
            }
        }
    }

    fn create(&mut self, topic: usize, dry: bool) -> Step {
        let version = self.chance.version(2, 7);
        let partitions = self.chance.between(1, 3);
        let mut configs = Vec::new();
        let rolls = self.chance.one_in(4);
        if rolls {
            // Not less than a run may take: a segment of records without times is rolled by its age.
            let by_index = self.chance.one_in(2);
            configs.extend(by_index.then(|| ("segment.index.bytes", self.chance.one_of(&["24", "100"]))));
            configs.push(("segment.ms", self.chance.one_of(&["60000", "100000000"])));
        } else {
            configs.push(NEVER_ROLLED);
            configs.extend(self.chance.one_in(4).then(|| ("cleanup.policy", self.chance.one_of(&["compact", "compact,delete", "delete"]))));
        }
        let recompressed = self.chance.one_in(8);
        if recompressed {
            configs.push(("compression.type", self.chance.one_of(&["gzip", "snappy", "lz4", "zstd", "uncompressed"])));
        } else {
            configs.extend(self.chance.one_in(16).then_some(("compression.type", "producer")));
        }
        let small: &[(&str, &[&str])] = &[
            ("message.timestamp.type", &["LogAppendTime", "CreateTime"]),
            ("message.timestamp.before.max.ms", &["3600000", "100000000000000"]),
            ("message.timestamp.after.max.ms", &["3600000", "100000000000000"]),
            ("max.message.bytes", &["150", "300", "2000"]),
            ("index.interval.bytes", &["0", "1", "100"]),
            ("segment.bytes", &["1048576"]),
            ("min.insync.replicas", &["2", "1"]),
            ("retention.bytes", &["1000000000000"]),
            ("flush.messages", &["1"]),
            ("preallocate", &["true"]),
        ];
        for (key, values) in small {
            configs.extend(self.chance.one_in(9).then(|| (*key, self.chance.one_of(values))));
        }
        if !dry && self.partitions[topic] == 0 {
            (self.partitions[topic], self.rolls[topic]) = (partitions, rolls);
        }
        self.recompressed[topic] |= recompressed;
        Step::Create { topic, version, partitions, configs, dry }
    }

    fn delete(&mut self) -> Step {
        let topic = 1 + self.chance.below(TOPICS - 1);
        let at = self.chance.mostly(At::Slot(topic), 4, &[At::Nowhere, At::Impossible]);
        let version = self.chance.version(1, 6);
        if at == At::Slot(topic) {
            self.partitions[topic] = 0;
        }
        Step::Delete { topic: at, version, by_id: version >= 6 && self.chance.one_in(2) }
    }

    fn widen(&mut self) -> Step {
        let topic = self.topic();
        let now = if let At::Slot(slot) = topic { self.partitions[slot] } else { 1 };
        let usual = (now + 1).min(5);
        let count = self.chance.mostly(usual, 4, &[0, -1, now, now - 1]);
        let dry = self.chance.one_in(5);
        if let At::Slot(slot) = topic
            && !dry
            && now > 0
        {
            self.partitions[slot] = now.max(count);
        }
        Step::Widen { topic, version: self.chance.version(0, 3), count, dry }
    }

    fn alter(&mut self) -> Step {
        let topic = self.topic();
        let (rolls, dry) = (if let At::Slot(slot) = topic { self.rolls[slot] } else { true }, self.chance.one_in(8));
        let mut recompressed = false;
        let changes = self.chance.some(1, 3, |chance| {
            let all: &[(&str, &[&str])] = &[
                ("message.timestamp.type", &["LogAppendTime", "CreateTime"]),
                ("message.timestamp.before.max.ms", &["3600000", "100000000000000", "-1"]),
                ("message.timestamp.after.max.ms", &["3600000", "100000000000000"]),
                ("max.message.bytes", &["150", "300", "2000", "-5", "x"]),
                ("index.interval.bytes", &["0", "1", "100"]),
                ("min.insync.replicas", &["2", "1", "0"]),
                ("retention.bytes", &["1000000000000", "-1"]),
                ("retention.ms", &["10000000000000", "-1"]),
                ("compression.type", &["gzip", "snappy", "lz4", "zstd", "uncompressed", "producer"]),
                ("compression.gzip.level", &["1", "9", "0"]),
                ("no.such.config", &["1"]),
                ("cleanup.policy", &["compact", "delete", "compact,delete"]),
            ];
            let (key, values) = chance.one_of(&all[..all.len() - usize::from(rolls)]);
            recompressed |= key == "compression.type";
            let operation = if key == "cleanup.policy" {
                chance.one_of(&[SET, SET, DELETE, APPEND, SUBTRACT])
            } else {
                chance.one_of(&[SET, SET, SET, DELETE, DELETE, SET, SET, APPEND])
            };
            let value = (operation != DELETE).then(|| chance.one_of(values));
            (key, operation, value)
        });
        if let At::Slot(slot) = topic {
            self.recompressed[slot] |= recompressed;
        }
        Step::Alter { topic, version: self.chance.version(0, 1), changes, dry }
    }

    /// One that is there, most likely.
    fn topic(&mut self) -> At {
        let there: Vec<usize> = (0..TOPICS).filter(|slot| self.partitions[*slot] > 0).collect();
        let usual = At::Slot(self.chance.one_of(&there));
        self.chance.mostly(usual, 16, &[At::Slot(0), At::Slot(1), At::Slot(2), At::Nowhere, At::Nowhere, At::Impossible])
    }

    fn partition(&mut self, topic: At) -> i32 {
        let count = if let At::Slot(slot) = topic { self.partitions[slot] } else { 1 };
        let usual = self.chance.between(0, (count - 1).max(0));
        self.chance.mostly(usual, 25, &[count, -1, 9])
    }

    /// Some partitions of up to `topics_max` topics, each topic and partition once.
    fn of<T>(&mut self, topics_max: usize, mut make: impl FnMut(&mut Self, At, i32) -> T) -> Of<T> {
        let count = 1 + self.chance.below(topics_max);
        let mut all: Of<T> = Vec::new();
        for _ in 0..count {
            let topic = self.topic();
            if all.iter().any(|(known, _)| *known == topic) {
                continue;
            }
            let mut partitions = vec![self.partition(topic)];
            while self.chance.one_in(3) {
                let more = self.partition(topic);
                if !partitions.contains(&more) {
                    partitions.push(more);
                }
            }
            let made = partitions.into_iter().map(|partition| make(self, topic, partition)).collect();
            all.push((topic, made));
        }
        all
    }

    fn partitions(&mut self, topics_max: usize) -> Of<i32> {
        self.of(topics_max, |_, _, partition| partition)
    }

    fn who(&mut self, slot: usize) -> Who {
        let id = self.chance.mostly(Id::Own, 25, &[Id::None, Id::Nobody, Id::Of(0), Id::Of(1), Id::Of(2), Id::Of(3)]);
        let epoch = self.chance.mostly(Epoch::Own(0), 12, &[Epoch::Own(-1), Epoch::Own(1), Epoch::Own(1), Epoch::Own(4), Epoch::Of(-1)]);
        Who { slot, id, epoch }
    }

    /// Outside of a transaction nobody is a transactional producer of an epoch to come: the markers of that one would be refused, which Kafka's
    /// coordinator waits for for ever. (Here the transaction ends.)
    fn writer(&mut self, slot: usize, transactional: bool) -> Who {
        let who = self.who(slot);
        let is_of_transactions = |slot: usize| !transactional && slot >= TRANSACTIONAL_FROM;
        match who {
            Who { id: Id::Of(of), .. } if is_of_transactions(of) => Who { id: Id::Nobody, ..who },
            Who { epoch: Epoch::Own(1..), .. } if is_of_transactions(slot) => Who { epoch: Epoch::Own(0), ..who },
            _ => who,
        }
    }

    fn produce(&mut self) -> Step {
        let version = self.chance.version(3, 13);
        let acks = self.chance.mostly(-1, 4, &[1, 1, 1, 0, 0, 2, -2]);
        let by = (!self.chance.one_in(3)).then(|| {
            let open: Vec<usize> = (TRANSACTIONAL_FROM..PRODUCERS).filter(|slot| self.open[*slot]).collect();
            if !open.is_empty() && !self.chance.one_in(3) { self.chance.one_of(&open) } else { self.chance.below(PRODUCERS) }
        });
        let transactional = by.filter(|slot| *slot >= TRANSACTIONAL_FROM && !self.chance.one_in(12));
        if let Some(slot) = transactional.filter(|_| version >= 12) {
            self.open[slot] = true;
        }
        let named = transactional.filter(|_| !self.chance.one_in(25)).or((self.chance.one_in(60)).then_some(TRANSACTIONAL_FROM));
        let to = self.of(2, |state, topic, partition| state.written(topic, partition, by, transactional.is_some()));
        Step::Produce { version, acks, transactional: named, to }
    }

    fn written(&mut self, topic: At, partition: i32, by: Option<usize>, transactional: bool) -> Written {
        let chance = &mut self.chance;
        let base_timestamp = chance.mostly(THEN, 3, &[THEN + 5, THEN + 50_000, THEN - 100_000, 0, 1, FAR]);
        let items: Vec<Item> = chance.some(1, 4, |chance| Item {
            timestamp_delta: i64::from(chance.mostly(0, 2, &[1, 7, -3, 2_000, 90_000])),
            key: (!chance.one_in(4)).then(|| u8::try_from(chance.below(4)).unwrap_or(0)),
            value_bytes: (!chance.one_in(8)).then(|| chance.one_of(&[0, 1, 5, 20, 60, 200])),
            headers: chance.mostly(0, 5, &[1, 2]),
        });
        let codec = chance.mostly(Codec::None, 3, &[Codec::Gzip, Codec::Snappy, Codec::Lz4, Codec::Zstd]);
        let mut flaw = self.flaw(codec);
        let by = by.map(|slot| (self.writer(slot, transactional), self.sequence()));
        // A transactional batch of no producer is taken by Kafka, although nothing could end its transaction; here it is refused.
        if by.is_none() && flaw == TRANSACTIONAL {
            flaw = Flaw::None;
        }
        let mut items = items;
        // Kafka finds a time before 1970 in batches that it compresses anew with an unknown server error; here it is taken, as Kafka does
        // elsewhere. And it gives all records the greatest time if the producer says that the broker has stamped them; here each keeps its own,
        // as in Kafka elsewhere.
        if matches!(topic, At::Slot(slot) if self.recompressed[slot]) {
            items.iter_mut().for_each(|item| item.timestamp_delta = item.timestamp_delta.abs());
            flaw = if matches!(flaw, Flaw::NoTimestamps | STAMPED) { Flaw::None } else { flaw };
        }
        Written { partition, items, codec, base_timestamp, flaw, by, transactional }
    }

    fn sequence(&mut self) -> Sequence {
        self.chance.mostly(
            Sequence::Next(0),
            4,
            &[
                Sequence::Again(0),
                Sequence::Again(0),
                Sequence::Again(1),
                Sequence::Again(3),
                Sequence::Again(5),
                Sequence::Next(1),
                Sequence::Next(-1),
                Sequence::Of(0),
                Sequence::Of(i32::MAX),
                Sequence::Of(-1),
            ],
        )
    }

    /// In compressed batches only such as the header shows: the records in them aren't looked at unless something depends on them.
    fn flaw(&mut self, codec: Codec) -> Flaw {
        let any = [
            Flaw::Crc,
            Flaw::Magic(0),
            Flaw::Magic(1),
            Flaw::Magic(3),
            Flaw::Bits(1 << 5),
            STAMPED,
            TRANSACTIONAL,
            Flaw::Bits(1 << 9),
            Flaw::LastOffset(1),
            Flaw::LastOffset(-1),
            Flaw::Length(0),
            Flaw::Length(-1),
            Flaw::BaseOffset(77),
            Flaw::BaseOffset(-5),
            Flaw::LeaderEpoch(6),
            Flaw::CutTo(70),
            Flaw::CutTo(40),
            Flaw::CutTo(10),
            Flaw::BytesAfter,
            Flaw::Twice,
            Flaw::Empty,
            // From here on the records have to be read.
            Flaw::Count(1),
            Flaw::Count(-1),
            Flaw::CountAndLastOffset(1),
            Flaw::CountAndLastOffset(-1),
            Flaw::MaxTimestamp(1_000),
            Flaw::MaxTimestamp(-1),
            Flaw::NoTimestamps,
        ];
        let shown = if codec == Codec::None { any.len() } else { any.len() - 7 };
        self.chance.mostly(Flaw::None, 12, &any[..shown])
    }

    fn fetch(&mut self) -> Step {
        let session = match self.chance.below(10) {
            0..=4 => Session::None,
            5 => Session::New,
            _ if self.sessions.is_empty() => Session::New,
            6..=8 => {
                let more = self.chance.mostly(0, 10, &[1, -1, 5]);
                Session::Next(self.chance.below(self.sessions.len()), more)
            }
            _ => match self.chance.below(6) {
                0 => Session::End(self.chance.below(self.sessions.len())),
                1 => Session::Nobody(self.chance.one_of(&[0, 1, -1])),
                2 => Session::Instead(self.chance.below(self.sessions.len())),
                _ => Session::Next(self.chance.below(self.sessions.len()), 0),
            },
        };
        // An answer of before version 12 can't say that the log was cut: Kafka refuses a request whose session asks for that.
        let of = if let Session::Next(slot, _) | Session::End(slot) = session { Some(slot) } else { None };
        let least = match session {
            Session::None => 4,
            _ if of.is_some_and(|slot| self.sessions[slot]) => 12,
            _ => 7,
        };
        let version = self.chance.version(least, 18);
        let sizes = [0, 1, 70, 75, 100, 150, 200, 300, 700];
        let isolation = i8::from(self.chance.one_in(2));
        let mut bytes_max = self.chance.mostly(50 << 20, 5, &sizes);
        let empty = matches!(session, Session::Next(..)) && self.chance.one_in(2);
        let mut from = if empty { Vec::new() } else { self.of(3, |state, _, partition| state.read(version, partition, &sizes)) };
        if self.recompressed.iter().any(|it| *it) {
            bytes_max = 50 << 20;
            from.iter_mut().flat_map(|(_, reads)| reads).for_each(|read| read.bytes_max = 1 << 20);
        }
        let has_epochs = from.iter().flat_map(|(_, reads)| reads).any(|read| read.last_epoch != -1);
        if matches!(session, Session::New | Session::Instead(_)) {
            self.sessions.push(has_epochs);
        } else if let Some(asked) = of.and_then(|slot| self.sessions.get_mut(slot)) {
            *asked |= has_epochs;
        }
        // Of a topic without an id Kafka finds an unknown server error, unless it is alone.
        if version >= 13 {
            from.retain(|(topic, _)| *topic != At::Impossible);
        }
        let forget = matches!(session, Session::Next(..)) && self.chance.one_in(4);
        let forget = if forget { self.partitions(1) } else { Vec::new() };
        Step::Fetch { version, session, isolation, bytes_max, from, forget }
    }

    fn read(&mut self, version: i16, partition: i32, sizes: &[i32]) -> Read {
        let from = match self.chance.below(6) {
            0..=2 => Place::Of(0),
            3 => Place::Of(self.chance.between(0, 12).into()),
            4 => Place::End(self.chance.between(0, 3).into()),
            _ => Place::Of(self.chance.one_of(&[-1, 1, 3, 1_000, i64::MAX])),
        };
        let leader_epoch = if version >= 9 { self.chance.mostly(-1, 6, &[0, 0, 1, -2]) } else { -1 };
        let last_epoch = if version >= 12 { self.chance.mostly(-1, 8, &[0, 0, 1, -2]) } else { -1 };
        Read { partition, from, bytes_max: self.chance.mostly(1 << 20, 5, sizes), leader_epoch, last_epoch }
    }

    fn list_offsets(&mut self) -> Step {
        let version = self.chance.version(1, 10);
        let of = self.of(2, |state, _, partition| {
            let by_time = [THEN - 100_000, THEN - 3, THEN, THEN + 1, THEN + 7, THEN + 50_000, THEN + 90_001, 0, FAR, FAR + 1];
            let special = [-1, -2, -3, -4, -5, -1, -2, -3];
            let at = if state.chance.one_in(2) { state.chance.one_of(&by_time) } else { state.chance.one_of(&special) };
            let epoch = if version >= 4 { state.chance.mostly(-1, 6, &[0, 0, 1, -2]) } else { -1 };
            (partition, at, epoch)
        });
        Step::ListOffsets { version, isolation: if version >= 2 { i8::from(self.chance.one_in(2)) } else { 0 }, of }
    }

    fn epochs(&mut self) -> Step {
        let of = self
            .of(2, |state, _, partition| (partition, state.chance.mostly(-1, 4, &[0, 1, -2]), state.chance.mostly(0, 3, &[1, -1, -2, 9])));
        Step::Epochs { version: self.chance.version(2, 4), of }
    }

    fn delete_records(&mut self) -> Step {
        let below = self.of(2, |state, _, partition| {
            let place = match state.chance.below(4) {
                0 | 1 => Place::Of(state.chance.between(0, 8).into()),
                2 => Place::End(state.chance.between(-1, 2).into()),
                _ => Place::Of(state.chance.one_of(&[-1, -2, 1_000])),
            };
            (partition, place)
        });
        Step::DeleteRecords { version: self.chance.version(0, 2), below }
    }

    fn init(&mut self, slot: usize) -> Step {
        let version = self.chance.version(0, 5);
        let keep = (version >= 3 && self.chance.one_in(3)).then(|| self.who(slot));
        self.open[slot] = false;
        Step::Init { version, slot, keep, timeout_ms: self.chance.mostly(60_000, 15, &[0, -1, 900_001]) }
    }

    fn transactional(&mut self) -> usize {
        TRANSACTIONAL_FROM + self.chance.below(PRODUCERS - TRANSACTIONAL_FROM)
    }

    fn add_partitions(&mut self) -> Step {
        let version = self.chance.version(0, 5);
        let most = if version >= 4 { 2 } else { 1 };
        let first = self.transactional();
        let slots = [first, if first == TRANSACTIONAL_FROM { PRODUCERS - 1 } else { TRANSACTIONAL_FROM }];
        let count = 1 + self.chance.below(most);
        let mut transactions = Vec::new();
        for slot in &slots[..count] {
            let verify = version >= 4 && self.chance.one_in(4);
            self.open[*slot] |= !verify;
            let (who, of) = (self.who(*slot), self.partitions(2));
            transactions.push((who, verify, of));
        }
        Step::AddPartitions { version, transactions }
    }

    fn add_offsets(&mut self) -> Step {
        let slot = self.transactional();
        self.open[slot] = true;
        Step::AddOffsets { version: self.chance.version(0, 4), who: self.who(slot) }
    }

    fn commit_offsets(&mut self) -> Step {
        let (version, slot) = (self.chance.version(0, 5), self.transactional());
        let who = self.who(slot);
        let member = (version >= 3 && self.chance.one_in(6)).then(|| self.chance.one_of(&[(1, ""), (-1, "me"), (1, "me")]));
        let first = At::Slot(0);
        let topic = self.chance.mostly(first, 10, &[At::Nowhere, At::Impossible]);
        let partitions = self.chance.some(1, 2, |chance| (chance.between(0, 2), i64::from(chance.between(0, 50))));
        Step::CommitOffsets { version, who, member, of: vec![(topic, partitions)] }
    }

    fn end(&mut self) -> Step {
        let open: Vec<usize> = (TRANSACTIONAL_FROM..PRODUCERS).filter(|slot| self.open[*slot]).collect();
        let slot = if !open.is_empty() && !self.chance.one_in(5) { self.chance.one_of(&open) } else { self.transactional() };
        self.open[slot] = false;
        Step::End { version: self.chance.version(0, 5), who: self.who(slot), commit: self.chance.one_in(2) }
    }

    fn list_transactions(&mut self) -> Step {
        let version = self.chance.version(0, 2);
        let states = ["Ongoing", "Empty", "CompleteAbort", "CompleteCommit", "nonsense"];
        let states = if self.chance.one_in(2) { Vec::new() } else { self.chance.some(1, 2, |chance| chance.one_of(&states)) };
        let producer = self.chance.one_in(4).then(|| self.chance.below(PRODUCERS));
        let pattern = (version >= 2 && self.chance.one_in(2)).then(|| self.chance.one_of(&[".*-x2", ".*-x[0-9]+", "rl", ".*nobody"]));
        Step::ListTransactions { version, states, producer, pattern }
    }

    fn log_dirs(&mut self) -> Step {
        let of = (!self.chance.one_in(4)).then(|| self.partitions(3));
        Step::LogDirs { version: self.chance.version(1, 4), of }
    }

    fn describe_partitions(&mut self) -> Step {
        let of = (0..3).map(|_| self.topic()).collect();
        let cursor = self.chance.one_in(3).then(|| (self.topic(), self.chance.between(0, 2)));
        Step::Partitions { of, limit: self.chance.mostly(2_000, 3, &[1, 2, 3, 4]), cursor }
    }

    fn configs(&mut self) -> Step {
        let version = self.chance.version(1, 4);
        let of = vec![self.topic()];
        let keys = ["cleanup.policy", "compression.type", "max.message.bytes", "message.timestamp.type", "min.insync.replicas", "none"];
        let keys = self.chance.one_in(2).then(|| self.chance.some(1, 3, |chance| chance.one_of(&keys)));
        Step::Configs { version, of, keys, synonyms: self.chance.one_in(2) }
    }

    fn metadata(&mut self) -> Step {
        let version = self.chance.version(4, 13);
        let by_id = version >= 12 && self.chance.one_in(2);
        let mut of: Vec<At> = (0..=self.chance.below(3)).map(|_| self.topic()).collect();
        // Kafka finds a topic without name and id with an unknown server error (`metadata.rs`).
        of.retain(|at| !by_id || *at != At::Impossible);
        Step::Metadata { version, of, by_id }
    }
}
