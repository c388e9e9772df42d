//! A disk that is really full: a small tmpfs. Where the machine doesn't allow mounts the tests say so and pass.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use compat_tests::process::run;
use compat_tests::programs::LineProducer;
use compat_tests::steady::{self, KAFKA_STORAGE_ERROR, Steady, Told};
use compat_tests::{Broker, http};
use tempfile::TempDir;

use crate::verify;

const DISK_MB: u64 = 32;
const RECORD_BYTES: usize = 20_000;
/// Refusals after which the disk is taken for full.
const REFUSALS: usize = 20;
const WAIT: Duration = Duration::from_secs(30);
/// For the start of a JVM too.
const CLIENTS_WAIT: Duration = Duration::from_secs(120);

/// A tmpfs that goes with the value.
struct SmallDisk {
    directory: TempDir,
}

impl SmallDisk {
    /// `None`, with a printed reason, where mounting isn't allowed.
    fn mount() -> Result<Option<Self>> {
        let directory = TempDir::with_prefix("highwater-full-")?;
        let size = format!("size={DISK_MB}m");
        let mounted = Command::new("mount").args(["-t", "tmpfs", "-o", &size, "tmpfs"]).arg(directory.path()).output();
        let reason = match mounted {
            Ok(output) if output.status.success() => return Ok(Some(Self { directory })),
            Ok(output) => String::from_utf8_lossy(&output.stderr).trim().to_owned(),
            Err(error) => error.to_string(),
        };
        eprintln!("SKIPPED: no tmpfs can be mounted here: {reason}");
        Ok(None)
    }

    fn path(&self) -> &Path {
        self.directory.path()
    }

    /// Takes room away until it is removed.
    fn ballast(&self, megabytes: usize, name: &str) -> Result<PathBuf> {
        let path = self.path().join(format!("ballast-{name}"));
        fs::write(&path, vec![1; megabytes << 20]).context("write ballast")?;
        Ok(path)
    }
}

impl Drop for SmallDisk {
    fn drop(&mut self) {
        let _ = Command::new("umount").arg("-l").arg(self.path()).status();
    }
}

/// Sends until so many attempts in a row were refused.
fn fill(producer: &mut Steady) -> Result<()> {
    let mut refused = 0;
    while refused < REFUSALS {
        match producer.send(RECORD_BYTES)? {
            Told::Acknowledged(_) => refused = 0,
            Told::Refused(KAFKA_STORAGE_ERROR) => refused += 1,
            told => anyhow::bail!("{told:?}"),
        }
    }
    Ok(())
}

/// Goes on sending the record that was refused until it is taken, and some more.
fn go_on(producer: &mut Steady, records: usize) -> Result<()> {
    let deadline = Instant::now() + WAIT;
    let until = producer.count() + records;
    while producer.count() < until {
        if let Told::Refused(code) = producer.send(RECORD_BYTES)? {
            ensure!(code == KAFKA_STORAGE_ERROR, "it was answered {code}");
            ensure!(Instant::now() < deadline, "still refused {WAIT:?} after there was room");
            thread::sleep(Duration::from_millis(10));
        }
    }
    Ok(())
}

#[test]
fn a_full_disk_loses_nothing_and_the_producer_goes_on() -> Result<()> {
    let Some(disk) = SmallDisk::mount()? else { return Ok(()) };
    let data = disk.path().join("data");
    let ballast = disk.ballast(16, "a")?;
    let options = [("log.dir.min.free.bytes", "0"), ("log.segment.bytes", "1048576")];
    let mut broker = Broker::start_on(&data, &options)?;
    for topic in ["flushed", "plain"] {
        let configs: &[_] = if topic == "flushed" { &[("flush.messages", "1")] } else { &[] };
        ensure!(steady::create(&mut broker.connect()?, topic, 1, configs)? == 0);
    }
    let mut producers = [Steady::new(broker.kafka(), "flushed", 0)?, Steady::new(broker.kafka(), "plain", 0)?];
    for producer in &mut producers {
        (0..50).try_for_each(|_| producer.send(RECORD_BYTES).map(drop))?;
    }
    for producer in &mut producers {
        fill(producer)?;
    }
    let full: Vec<usize> = producers.iter().map(Steady::count).collect();
    ensure!(full.iter().sum::<usize>() * RECORD_BYTES > 10 << 20, "{full:?} records filled it");
    producers.iter().try_for_each(Steady::verify).context("while it is full")?;
    fs::remove_file(ballast)?;
    for producer in &mut producers {
        go_on(producer, 100)?;
    }
    producers.iter().try_for_each(Steady::verify).context("after room came back")?;
    broker.kill()?;
    let said = verify(&data)?;
    ensure!(said.contains("not stopped cleanly; 0 wrong"), "{said}");
    broker.restart()?;
    producers.iter().try_for_each(Steady::verify).context("after kill -9")?;
    for producer in &mut producers {
        go_on(producer, 10)?;
    }
    ensure!(broker.stop()?.success());
    let said = verify(&data)?;
    ensure!(said.contains("stopped cleanly; 0 wrong, 0 notes"), "{said}");
    broker.restart()?;
    producers.iter().try_for_each(Steady::verify).context("after a clean stop")?;
    let log = broker.log()?;
    ensure!(log.lines().filter(|line| line.contains("no room for an append")).count() <= 10, "it says it again and again:\n{log}");
    Ok(())
}

#[test]
fn a_disk_that_was_full_when_the_broker_was_killed_is_whole() -> Result<()> {
    let Some(disk) = SmallDisk::mount()? else { return Ok(()) };
    let data = disk.path().join("data");
    let ballast = disk.ballast(20, "a")?;
    let mut broker = Broker::start_on(&data, &[("log.dir.min.free.bytes", "0"), ("log.segment.bytes", "1048576")])?;
    ensure!(steady::create(&mut broker.connect()?, "t", 1, &[])? == 0);
    let mut producer = Steady::new(broker.kafka(), "t", 0)?;
    fill(&mut producer)?;
    broker.kill()?;
    let said = verify(&data)?;
    ensure!(said.contains(" 0 wrong"), "{said}");
    fs::remove_file(ballast)?;
    broker.restart()?;
    producer.verify()?;
    go_on(&mut producer, 50)?;
    producer.verify()
}

#[test]
fn the_guard_leaves_room_and_deleting_a_topic_ends_it() -> Result<()> {
    const MIN_FREE: u64 = 8 << 20;
    let Some(disk) = SmallDisk::mount()? else { return Ok(()) };
    let data = disk.path().join("data");
    let min_free = MIN_FREE.to_string();
    let options = [("log.dir.min.free.bytes", &*min_free), ("log.segment.bytes", "1048576"), ("log.segment.delete.delay.ms", "0")];
    let broker = Broker::start_on(&data, &options)?;
    for topic in ["kept", "goes"] {
        ensure!(steady::create(&mut broker.connect()?, topic, 1, &[])? == 0);
    }
    let (mut kept, mut goes) = (Steady::new(broker.kafka(), "kept", 0)?, Steady::new(broker.kafka(), "goes", 0)?);
    (0..50).try_for_each(|_| kept.send(RECORD_BYTES).map(drop))?;
    fill(&mut goes)?;
    ensure!(kept.send(RECORD_BYTES)? == Told::Refused(KAFKA_STORAGE_ERROR), "the other partition of the directory is refused too");
    let free = free_bytes(disk.path())?;
    ensure!(free > MIN_FREE / 2, "{free} bytes are free, of {MIN_FREE} that should be");
    kept.verify().context("while it is low on space")?;
    ensure!(steady::delete(&mut broker.connect()?, "goes")? == 0, "there is room to delete");
    go_on(&mut kept, 20)?;
    kept.verify()?;
    let log = broker.log()?;
    let said = |what: &str| log.lines().filter(|line| line.contains(what)).count();
    ensure!(said("less than log.dir.min.free.bytes are free") == 1 && said("there is room again") == 1, "its log:\n{log}");
    Ok(())
}

/// kafka-clients and librdkafka, each with more to send than the disk takes: they are refused until there is room, and go on by themselves.
#[test]
fn real_producers_outlive_a_full_disk() -> Result<()> {
    /// 14 MB of each: more than is free at first, even of one, and less than is free in the end.
    const LINES: usize = 1_400;
    const PRODUCERS: [(&str, LineProducer); 2] = [("java", LineProducer::Java), ("librdkafka", LineProducer::Python)];
    let Some(disk) = SmallDisk::mount()? else { return Ok(()) };
    let data = disk.path().join("data");
    let ballast = [disk.ballast(22, "a")?, disk.ballast(4, "b")?];
    let mut broker = Broker::start_on(&data, &[("log.dir.min.free.bytes", "0"), ("log.segment.bytes", "1048576")])?;
    for (topic, _) in PRODUCERS {
        ensure!(steady::create(&mut broker.connect()?, topic, 1, &[])? == 0);
    }
    let line = |topic: &str, number: usize| format!("{number}\t{topic} {number} {}\n", "x".repeat(10_000));
    let bootstrap = broker.bootstrap();
    thread::scope(|scope| -> Result<()> {
        let sending: Vec<_> = PRODUCERS
            .into_iter()
            .map(|(topic, producer)| {
                let input: String = (0..LINES).map(|number| line(topic, number)).collect();
                let bootstrap = &bootstrap;
                scope.spawn(move || run(&mut producer.command(bootstrap, topic)?, input.as_bytes(), CLIENTS_WAIT))
            })
            .collect();
        let topics = PRODUCERS.map(|(topic, _)| topic);
        let full = while_full(&broker, topics, LINES).context("the first time");
        fs::remove_file(&ballast[1])?;
        let full = full.and_then(|()| while_full(&broker, topics, LINES).context("the second time"));
        fs::remove_file(&ballast[0])?;
        for (sending, (topic, _)) in sending.into_iter().zip(PRODUCERS) {
            let output = sending.join().expect("a producer's thread").context(topic)?;
            let said = String::from_utf8_lossy(&output.stdout).trim().to_owned();
            ensure!(said == LINES.to_string(), "{topic}: {said} records were acknowledged");
        }
        full
    })?;
    let check = |broker: &Broker| -> Result<()> {
        for (topic, _) in PRODUCERS {
            let values = steady::read(&mut broker.connect()?, topic, 0)?;
            ensure!(values.len() == LINES, "{topic}: {} records", values.len());
            in_order(topic, &values)?;
        }
        Ok(())
    };
    check(&broker).context("when all was sent")?;
    broker.kill()?;
    let said = verify(&data)?;
    ensure!(said.contains(" 0 wrong"), "{said}");
    broker.restart()?;
    check(&broker).context("after kill -9")
}

/// Waits until both producers are refused, and looks at what is there.
fn while_full(broker: &Broker, topics: [&str; 2], lines: usize) -> Result<()> {
    let deadline = Instant::now() + CLIENTS_WAIT;
    let (mut taken, mut refused_before) = ([0; 2], 0);
    loop {
        // Before the records are counted: what is refused after that isn't counted yet.
        let (ids, refused) = (requests(broker, "InitProducerId", "NONE")?, requests(broker, "Produce", "KAFKA_STORAGE_ERROR")?);
        let mut now = [0; 2];
        for (now, topic) in now.iter_mut().zip(topics) {
            let values = steady::read(&mut broker.connect()?, topic, 0)?;
            ensure!(values.len() < lines, "{topic}: everything was taken");
            in_order(topic, &values).context("while it is full")?;
            *now = values.len();
        }
        if now != taken || ids < 2 {
            (taken, refused_before) = (now, refused);
        } else if refused >= refused_before + REFUSALS {
            println!("full with {now:?} records, {refused} refusals");
            return Ok(());
        }
        ensure!(Instant::now() < deadline, "never full for both: {now:?} records, {ids} producers, {refused} refusals");
        thread::sleep(Duration::from_millis(100));
    }
}

/// How many requests of an API were answered so.
fn requests(broker: &Broker, api: &str, error: &str) -> Result<usize> {
    let metrics = http::get(broker.http().context("HTTP is on")?, "/metrics")?.body;
    let name = format!("highwater_requests_total{{api=\"{api}\",error=\"{error}\"}} ");
    metrics.lines().find_map(|line| line.strip_prefix(&name)).map_or(Ok(0), |count| Ok(count.parse()?))
}

/// Values and offsets count from 0.
fn in_order(topic: &str, values: &[(i64, bytes::Bytes)]) -> Result<()> {
    for (number, (offset, value)) in values.iter().enumerate() {
        let due = format!("{topic} {number} ");
        ensure!(*offset == i64::try_from(number)? && value.starts_with(due.as_bytes()), "{topic}: offset {offset} isn't record {number}");
    }
    Ok(())
}

fn free_bytes(directory: &Path) -> Result<u64> {
    let output = Command::new("df").args(["-B1", "--output=avail"]).arg(directory).output()?;
    let said = String::from_utf8(output.stdout)?;
    Ok(said.lines().nth(1).context("df says nothing")?.trim().parse()?)
}
