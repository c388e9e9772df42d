//! `kill -9` again and again, each time while something that the round is for was seen in the data directory: batches that come in, a new
//! segment, a compaction's files, the directory of a deleted topic. What was acknowledged is there, once and in order; a compacted topic
//! has each key's last value; what was said to be deleted is gone.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail, ensure};
use bytes::Bytes;
use compat_tests::Broker;
use compat_tests::batch::{Batch, Record};
use compat_tests::steady::{self, Steady, Told};
use compat_tests::wire::Client;

use crate::{WAIT, verify};

/// Kills in one run, of all brokers together; `HIGHWATER_KILLS` says another number.
const KILLS: u32 = 200;
/// Brokers beside each other: while one starts or is read, another is killed.
const BROKERS: u32 = 4;
const PRODUCERS: i32 = 2;
/// Partitions that the first broker has besides, so that its restarts have something to open.
const IDLE_PARTITIONS: i32 = 1_000;
/// So that segments of 1 MB (Kafka's least) roll after some 90 records.
const RECORD_BYTES: usize = 12_000;
const KEYS: u64 = 40;
const UPDATES: u64 = 50;

/// What a round waits for before it kills.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Aim {
    /// So many more records are acknowledged.
    Produce(usize),
    Roll,
    Compaction,
    Deletion,
}

impl Aim {
    fn of(round: u32) -> Self {
        match round % 4 {
            0 => Self::Produce(1 + round as usize * 7 % 40),
            1 => Self::Roll,
            2 => Self::Compaction,
            _ => Self::Deletion,
        }
    }

    /// Names in the data directory (or one of its partitions) that are there while it happens.
    fn signs(self, data: &Path) -> BTreeSet<String> {
        let (place, ends): (PathBuf, &[&str]) = match self {
            Self::Produce(_) => return BTreeSet::new(),
            Self::Roll => (data.join("busy-0"), &[".log"]),
            Self::Compaction => (data.join("compacted-0"), &[".cleaned", ".swap"]),
            Self::Deletion => (data.to_path_buf(), &["-delete"]),
        };
        // A name may go while the directory is read.
        let names = std::fs::read_dir(place).into_iter().flatten().flatten().map(|entry| entry.file_name().to_string_lossy().into_owned());
        names.filter(|name| ends.iter().any(|end| name.ends_with(end))).collect()
    }
}

#[derive(Default)]
struct Outcome {
    kills: u32,
    records: usize,
    deleted: usize,
    updates: u64,
    restarts: Vec<Duration>,
}

#[test]
fn nothing_acknowledged_is_lost_by_kills() -> Result<()> {
    let kills = std::env::var("HIGHWATER_KILLS").map_or(Ok(KILLS), |text| text.parse()).context("HIGHWATER_KILLS")?;
    let begun = Instant::now();
    let outcomes = thread::scope(|scope| -> Result<Vec<Outcome>> {
        let share = |broker| kills / BROKERS + u32::from(broker < kills % BROKERS);
        let all: Vec<_> = (0..BROKERS).map(|broker| scope.spawn(move || one_broker(broker, share(broker)))).collect();
        let ended = all.into_iter().zip(0..);
        ended.map(|(one, i)| one.join().expect("a broker's thread").with_context(|| format!("broker {i}"))).collect()
    })?;
    for (i, one) in outcomes.iter().enumerate() {
        let median = one.restarts.get(one.restarts.len() / 2).copied().unwrap_or_default();
        println!(
            "broker {i}: {} kills, {} records and {} updates acknowledged, {} topics deleted; restarts: median {median:?}, longest {:?}",
            one.kills,
            one.records,
            one.updates,
            one.deleted,
            one.restarts.last().copied().unwrap_or_default()
        );
    }
    let done: u32 = outcomes.iter().map(|one| one.kills).sum();
    println!("{done} kills in {:?}; broker 0 has {IDLE_PARTITIONS} partitions besides", begun.elapsed());
    ensure!(done == kills, "{done} kills of {kills}");
    Ok(())
}

/// All of one broker's rounds.
fn one_broker(number: u32, rounds: u32) -> Result<Outcome> {
    let options =
        [("log.segment.bytes", "1048576"), ("log.segment.delete.delay.ms", "50"), ("log.cleaner.backoff.ms", "0"), ("num.partitions", "4")];
    let mut broker = Broker::start_with(&options)?;
    let idle = if number == 0 { IDLE_PARTITIONS } else { 1 };
    ensure!(steady::create(&mut broker.connect()?, "idle", idle, &[])? == 0);
    ensure!(steady::create(&mut broker.connect()?, "busy", PRODUCERS, &[])? == 0);
    let mut work = Work {
        producers: (0..PRODUCERS).map(|i| Steady::new(broker.kafka(), "busy", i)).collect::<Result<_>>()?,
        fleeting: Fleeting::default(),
        compacted: Compacted::create(&broker)?,
    };
    let mut outcome = Outcome::default();
    for round in 0..rounds {
        // Brokers don't do the same at the same time.
        let aim = Aim::of(round + number);
        one_round(&mut broker, round, aim, &mut work, &mut outcome).with_context(|| format!("round {round}, {aim:?}"))?;
    }
    work.producers.iter().try_for_each(Steady::verify).context("in the end")?;
    work.compacted.was_compacted(&broker)?;
    ensure!(broker.stop()?.success());
    let said = verify(broker.data())?;
    ensure!(said.contains("stopped cleanly; 0 wrong"), "{said}");
    outcome.restarts.sort();
    outcome.records = work.producers.iter().map(Steady::count).sum();
    outcome.deleted = work.fleeting.deleted.len();
    outcome.updates = work.compacted.next;
    ensure!(outcome.records > 0 && (rounds < 4 || outcome.deleted > 0), "nothing happened");
    Ok(outcome)
}

fn one_round(broker: &mut Broker, round: u32, aim: Aim, work: &mut Work, outcome: &mut Outcome) -> Result<()> {
    // Not always in the first moment of what is aimed at.
    let after = Duration::from_micros(u64::from(round) * 1_370 % 12_000);
    kill_during(broker, aim, after, work)?;
    outcome.kills += 1;
    if round.is_multiple_of(10) {
        let said = verify(broker.data())?;
        ensure!(said.contains("not stopped cleanly; 0 wrong"), "{said}");
    }
    let restarted = Instant::now();
    broker.restart()?;
    outcome.restarts.push(restarted.elapsed());
    work.fleeting.check(broker)?;
    work.compacted.check(broker)?;
    if round % 10 == 9 {
        work.producers.iter().try_for_each(Steady::verify)?;
    }
    Ok(())
}

/// What goes on while the broker lives.
struct Work {
    producers: Vec<Steady>,
    fleeting: Fleeting,
    compacted: Compacted,
}

/// Everything at once until the broker is killed.
fn kill_during(broker: &mut Broker, aim: Aim, after: Duration, work: &mut Work) -> Result<()> {
    let (address, before) = (broker.kafka(), aim.signs(broker.data()));
    let (acknowledged, killed) = (AtomicUsize::new(0), AtomicBool::new(false));
    let (acknowledged, killed) = (&acknowledged, &killed);
    thread::scope(|scope| {
        let mut threads = Vec::new();
        for producer in &mut work.producers {
            threads.push(scope.spawn(move || until_killed(producer, acknowledged)));
        }
        let fleeting = &mut work.fleeting;
        threads.push(scope.spawn(move || ended_by_kill(fleeting.come_and_go(address), killed)));
        let compacted = &mut work.compacted;
        threads.push(scope.spawn(move || ended_by_kill(compacted.update(address), killed)));
        let seen = wait_for(aim, broker.data(), &before, acknowledged);
        thread::sleep(after);
        killed.store(true, Ordering::SeqCst);
        broker.kill()?;
        for one in threads {
            one.join().expect("a client's thread")?;
        }
        seen
    })
}

fn wait_for(aim: Aim, data: &Path, before: &BTreeSet<String>, acknowledged: &AtomicUsize) -> Result<()> {
    let deadline = Instant::now() + WAIT;
    loop {
        let seen = match aim {
            Aim::Produce(records) => acknowledged.load(Ordering::Relaxed) >= records,
            _ => !aim.signs(data).is_subset(before),
        };
        if seen {
            return Ok(());
        }
        ensure!(Instant::now() < deadline, "not seen in {WAIT:?}");
        thread::sleep(Duration::from_micros(500));
    }
}

/// A client may fail because its broker was killed, and for no other reason.
fn ended_by_kill(result: Result<()>, killed: &AtomicBool) -> Result<()> {
    if killed.load(Ordering::SeqCst) && result.as_ref().is_err_and(|error| error.downcast_ref::<Wrong>().is_none()) {
        Ok(())
    } else {
        result
    }
}

/// What is wrong even when the broker was killed: an answer came.
#[derive(Debug)]
struct Wrong(String);

impl std::fmt::Display for Wrong {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(&self.0)
    }
}

impl std::error::Error for Wrong {}

fn until_killed(producer: &mut Steady, acknowledged: &AtomicUsize) -> Result<()> {
    loop {
        match producer.send(RECORD_BYTES)? {
            Told::Acknowledged(_) => acknowledged.fetch_add(1, Ordering::Relaxed),
            Told::Refused(code) => bail!("a record was answered {code}"),
            Told::Nothing => return Ok(()),
        };
    }
}

/// Topics that come and go.
#[derive(Default)]
struct Fleeting {
    next: u32,
    /// What was said to be deleted.
    deleted: Vec<String>,
    /// What was said to be there, and not yet asked to go.
    there: Vec<String>,
}

impl Fleeting {
    /// Makes topics, writes to each, and deletes the one before, until its connection ends.
    fn come_and_go(&mut self, address: std::net::SocketAddr) -> Result<()> {
        let mut client = Client::connect(address)?;
        loop {
            self.next += 1;
            let topic = format!("fleeting-{}", self.next);
            let code = steady::create(&mut client, &topic, 2, &[])?;
            ensure!(code == 0, Wrong(format!("{topic} isn't made: {code}")));
            self.there.push(topic.clone());
            let batch = Batch::of_values(1, &[topic.as_bytes()]).encode();
            client.ask(9, &steady::produce(&topic, 1, batch))?;
            if self.there.len() > 1 {
                // Once asked it may be gone, whether that's answered or not.
                let old = self.there.remove(0);
                let code = steady::delete(&mut client, &old)?;
                ensure!(code == 0, Wrong(format!("{old} isn't deleted: {code}")));
                self.deleted.push(old);
            }
        }
    }

    fn check(&self, broker: &Broker) -> Result<()> {
        let topics: BTreeSet<_> = steady::topics(&mut broker.connect()?)?.into_iter().collect();
        for gone in &self.deleted {
            ensure!(!topics.contains(gone), "{gone} came back");
        }
        for there in self.there.iter().map(String::as_str).chain(["idle", "busy", "compacted"]) {
            ensure!(topics.contains(there), "{there} is lost");
        }
        Ok(())
    }
}

type Latest = BTreeMap<Bytes, Bytes>;

/// A compacted topic, and what it has to hold.
struct Compacted {
    /// The number of the next update.
    next: u64,
    acknowledged: Latest,
    /// What was sent when the broker was killed: all of it is there, or nothing.
    pending: Latest,
}

impl Compacted {
    fn create(broker: &Broker) -> Result<Self> {
        let configs = [("cleanup.policy", "compact"), ("min.cleanable.dirty.ratio", "0.01")];
        ensure!(steady::create(&mut broker.connect()?, "compacted", 1, &configs)? == 0);
        Ok(Self { next: 0, acknowledged: Latest::new(), pending: Latest::new() })
    }

    /// Sends updates until its connection ends.
    fn update(&mut self, address: std::net::SocketAddr) -> Result<()> {
        let mut client = Client::connect(address)?;
        loop {
            let records: Vec<_> = (self.next..self.next + UPDATES).map(update).collect();
            self.next += UPDATES;
            let pairs = records.iter().filter_map(|record| Some((record.key.clone()?.into(), record.value.clone()?.into())));
            self.pending.extend(pairs);
            let answer = client.ask(9, &steady::produce("compacted", 0, Batch::of(1, &records).encode()))?;
            let code = answer.responses.first().and_then(|topic| topic.partition_responses.first()).context("an answer")?.error_code;
            ensure!(code == 0, Wrong(format!("an update was answered {code}")));
            self.acknowledged.append(&mut self.pending);
        }
    }

    fn check(&mut self, broker: &Broker) -> Result<()> {
        let (mut latest, mut last) = (Latest::new(), -1);
        for record in steady::read_kept(&mut broker.connect()?, "compacted", 0)? {
            ensure!(record.offset > last, "offset {} comes after {last}", record.offset);
            last = record.offset;
            latest.insert(record.key.context("a key")?, record.value.context("a value")?);
        }
        let mut with_pending = self.acknowledged.clone();
        with_pending.append(&mut self.pending);
        ensure!(latest == self.acknowledged || latest == with_pending, "a key has another value: {}", differences(&latest, &with_pending));
        self.acknowledged = latest;
        Ok(())
    }

    fn was_compacted(&self, broker: &Broker) -> Result<()> {
        let records = steady::read_kept(&mut broker.connect()?, "compacted", 0)?;
        let end = records.last().context("no update is there")?.offset + 1;
        ensure!(
            end < 3_000 || i64::try_from(records.len())? < end / 2,
            "{} of {end} updates are there: nothing was compacted",
            records.len()
        );
        Ok(())
    }
}

fn update(number: u64) -> Record {
    let value = format!("{number} {}", "x".repeat(2_000)).into_bytes();
    Record { key: Some(format!("key-{}", number * 7 % KEYS).into_bytes()), value: Some(value), ..Record::default() }
}

fn differences(seen: &Latest, due: &Latest) -> String {
    let text = |value: Option<&Bytes>| value.map(|value| String::from_utf8_lossy(value).chars().take(12).collect::<String>());
    let keys: BTreeSet<_> = seen.keys().chain(due.keys()).collect();
    let wrong = keys.into_iter().filter(|key| seen.get(*key) != due.get(*key)).take(5);
    wrong.map(|key| format!("{}: {:?}, not {:?}\n", String::from_utf8_lossy(key), text(seen.get(key)), text(due.get(key)))).collect()
}
