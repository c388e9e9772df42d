//! Figures of the data directory: what many partitions cost (`--partitions`), and what group commit gives (`--commit`). Prints them and
//! asserts nothing; the tests hold the broker to what it answers.

use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use compat_tests::Broker;
use compat_tests::steady::{self, Steady, Told};

use crate::process::{cpu_seconds, resident_mb};

const TOPICS: i32 = 10;
const PARTITIONS_PER_TOPIC: i32 = 1_000;
/// Partitions that get a record between two starts.
const BUSY: i32 = 100;
const STARTS: usize = 5;

/// 10,000 partitions: starts after a clean stop and after `kill -9`, memory and open files.
pub fn partitions() -> Result<()> {
    let mut broker = Broker::start()?;
    settle();
    let empty_mb = resident_mb(broker.pid())?;
    let begun = Instant::now();
    for topic in 0..TOPICS {
        let code = steady::create(&mut broker.connect()?, &format!("t{topic}"), PARTITIONS_PER_TOPIC, &[])?;
        ensure!(code == 0, "topic {topic} was answered {code}");
    }
    let count = TOPICS * PARTITIONS_PER_TOPIC;
    println!("{count} partitions made in {:.2} s", begun.elapsed().as_secs_f64());
    for end in ["a clean stop", "kill -9"] {
        let mut starts = Vec::new();
        for _ in 0..STARTS {
            for partition in 0..BUSY {
                let told = Steady::new(broker.kafka(), "t0", partition)?.send(1_000)?;
                ensure!(matches!(told, Told::Acknowledged(_)), "{told:?}");
            }
            if end == "kill -9" {
                broker.kill()?;
            } else {
                ensure!(broker.stop()?.success(), "no clean stop");
            }
            let begun = Instant::now();
            broker.restart()?;
            starts.push(begun.elapsed().as_secs_f64());
        }
        settle();
        println!(
            "started after {end}: least {:.2} s, longest {:.2} s; {:.2} s of CPU; {:.1} KB a partition; {} open files",
            starts.iter().copied().fold(f64::INFINITY, f64::min),
            starts.iter().copied().fold(0.0, f64::max),
            cpu_seconds(broker.pid())?,
            (resident_mb(broker.pid())? - empty_mb) * 1e6 / 1024.0 / f64::from(count),
            std::fs::read_dir(format!("/proc/{}/fd", broker.pid()))?.count(),
        );
    }
    Ok(())
}

/// 1,000 partitions and one whose active segment has a tail of 1 GB that no recovery point covers, killed.
fn tail() -> Result<()> {
    const RECORDS: usize = 1_040;
    let mut broker = Broker::start()?;
    ensure!(steady::create(&mut broker.connect()?, "idle", PARTITIONS_PER_TOPIC, &[])? == 0);
    ensure!(steady::create(&mut broker.connect()?, "big", 1, &[])? == 0);
    let mut producer = Steady::new(broker.kafka(), "big", 0)?;
    for _ in 0..RECORDS {
        let told = producer.send(1_000_000)?;
        ensure!(matches!(told, Told::Acknowledged(_)), "{told:?}");
    }
    for _ in 0..STARTS {
        broker.kill()?;
        let begun = Instant::now();
        broker.restart()?;
        let (took, cpu) = (begun.elapsed().as_secs_f64(), cpu_seconds(broker.pid())?);
        println!("started after kill -9 with {PARTITIONS_PER_TOPIC} partitions and a tail of 1.04 GB: {took:.2} s, {cpu:.2} s of CPU");
    }
    Ok(())
}

/// Acknowledgements a second with `flush.messages=1`, one producer a partition, each with one batch in flight.
pub fn commit() -> Result<()> {
    const RUN: Duration = Duration::from_secs(5);
    let broker = Broker::start()?;
    for producers in [1, 4, 16, 64] {
        let topic = format!("commit-{producers}");
        ensure!(steady::create(&mut broker.connect()?, &topic, producers, &[("flush.messages", "1")])? == 0);
        let steady = (0..producers).map(|i| Steady::new(broker.kafka(), &topic, i)).collect::<Result<Vec<_>>>()?;
        let mut latencies: Vec<Duration> = thread::scope(|scope| {
            let threads: Vec<_> = steady.into_iter().map(|producer| scope.spawn(move || send_for(producer, RUN))).collect();
            let joined = threads.into_iter().map(|t| t.join().map_err(|_| anyhow::anyhow!("a producer panicked"))?);
            joined.collect::<Result<Vec<_>>>().map(|all| all.concat())
        })?;
        latencies.sort();
        let at = |part: usize| latencies.get(latencies.len() * part / 100).copied().unwrap_or_default();
        println!(
            "{producers:3} partitions and producers: {:6.0} acknowledgements a second, median {:.1} ms, p99 {:.1} ms",
            latencies.len() as f64 / RUN.as_secs_f64(),
            at(50).as_secs_f64() * 1e3,
            at(99).as_secs_f64() * 1e3
        );
    }
    Ok(())
}

fn send_for(mut producer: Steady, run: Duration) -> Result<Vec<Duration>> {
    let (begun, mut latencies) = (Instant::now(), Vec::new());
    while begun.elapsed() < run {
        let sent = Instant::now();
        let told = producer.send(1_000)?;
        ensure!(matches!(told, Told::Acknowledged(_)), "{told:?}");
        latencies.push(sent.elapsed());
    }
    Ok(latencies)
}

/// Memory that was freed goes back to the system in a while.
fn settle() {
    thread::sleep(Duration::from_secs(2));
}

/// Runs what `words` name, if it's one of these.
pub fn run(words: &[String]) -> Option<Result<()>> {
    let asked = |name: &str| words.iter().any(|word| word == name);
    match (asked("--partitions"), asked("--commit")) {
        (true, _) => Some(partitions().and_then(|()| tail()).context("many partitions")),
        (_, true) => Some(commit().context("group commit")),
        _ if asked("--lag") => Some(crate::lag::run().context("the lag")),
        _ => None,
    }
}
