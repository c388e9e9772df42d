//! Partitions that move between data directories while they are used (AlterReplicaLogDirs): asked for by Kafka's admin client and by plain
//! requests, seen by its kafka-log-dirs, with producers and consumers at work, given up, and cut short by `kill -9`.
#![allow(clippy::disallowed_methods, reason = "it waits for programs")]

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail, ensure};
use compat_tests::batch::{Batch, Record};
use compat_tests::process::run;
use compat_tests::steady::{self, Steady, Told};
use compat_tests::wire::Client;
use compat_tests::{Broker, console, dump_log, kcat, programs, tools};
use kafka_protocol::messages::alter_replica_log_dirs_request::{AlterReplicaLogDir, AlterReplicaLogDirTopic};
use kafka_protocol::messages::{AlterReplicaLogDirsRequest, DescribeLogDirsRequest, TopicName};
use kafka_protocol::protocol::StrBytes;
use tempfile::TempDir;

const WAIT: Duration = Duration::from_secs(60);
const UNKNOWN_TOPIC_OR_PARTITION: i16 = 3;
const LOG_DIR_NOT_FOUND: i16 = 57;
const RECORD_BYTES: usize = 20_000;

/// Copies on their way, and how far each is behind.
type Lags = Vec<(String, i64)>;

/// A broker with two data directories.
struct TwoDirs {
    broker: Broker,
    temp: TempDir,
}

impl TwoDirs {
    fn start(options: &[(&str, &str)]) -> Result<Self> {
        let temp = TempDir::with_prefix("highwater-moves-")?;
        let both = ["a", "b"].map(|name| temp.path().join(name).display().to_string()).join(",");
        let all: Vec<_> =
            [("log.dirs", &*both), ("log.segment.delete.delay.ms", "50")].into_iter().chain(options.iter().copied()).collect();
        Ok(Self { broker: Broker::start_with(&all)?, temp })
    }

    fn dir(&self, name: &str) -> PathBuf {
        self.temp.path().join(name)
    }

    /// The directory that holds the partition, by its name: one does, and no more.
    fn where_is(&self, partition: &str) -> Result<&'static str> {
        let there: Vec<_> = ["a", "b"].into_iter().filter(|name| self.dir(name).join(partition).exists()).collect();
        ensure!(there.len() == 1, "{partition} is in {there:?}");
        Ok(there[0])
    }

    fn other(&self, partition: &str) -> Result<&'static str> {
        Ok(if self.where_is(partition)? == "a" { "b" } else { "a" })
    }

    /// Asks for moves to a directory; the error code of each.
    fn ask(&self, to: &Path, topic: &str, partitions: &[i32]) -> Result<Vec<i16>> {
        let text = |text: &str| StrBytes::from_string(text.to_owned());
        let topic = AlterReplicaLogDirTopic::default().with_name(TopicName(text(topic))).with_partitions(partitions.to_vec());
        let dir = AlterReplicaLogDir::default().with_path(text(&to.display().to_string())).with_topics(vec![topic]);
        let answer = self.broker.connect()?.ask(2, &AlterReplicaLogDirsRequest::default().with_dirs(vec![dir]))?;
        Ok(answer.results.iter().flat_map(|topic| topic.partitions.iter().map(|one| one.error_code)).collect())
    }

    /// The partitions in a directory, and those on their way to it with how far they are behind.
    fn described(&self, name: &str) -> Result<(Vec<String>, Lags)> {
        let answer = self.broker.connect()?.ask(4, &DescribeLogDirsRequest::default().with_topics(None))?;
        let path = self.dir(name).display().to_string();
        let dir = answer.results.into_iter().find(|dir| *dir.log_dir == *path).context("the directory isn't described")?;
        let (mut current, mut future) = (Vec::new(), Vec::new());
        for topic in &dir.topics {
            for one in &topic.partitions {
                let partition = format!("{}-{}", topic.name.as_str(), one.partition_index);
                if one.is_future_key { future.push((partition, one.offset_lag)) } else { current.push(partition) }
            }
        }
        Ok((current, future))
    }

    fn wait_until_in(&self, name: &str, partition: &str) -> Result<()> {
        let begun = Instant::now();
        loop {
            let (current, future) = self.described(name)?;
            if current.iter().any(|one| one == partition) && future.is_empty() {
                break;
            }
            ensure!(begun.elapsed() < WAIT, "{partition} never comes to {name}: {:?}", self.described(name)?);
            thread::sleep(Duration::from_millis(5));
        }
        ensure!(self.where_is(partition)? == name, "{partition} isn't where it is said to be");
        Ok(())
    }

    /// What is wrong in either directory once the broker has stopped.
    fn verify(&self) -> Result<()> {
        for name in ["a", "b"] {
            let output = run(std::process::Command::new(tools::highwater()?).arg("verify").arg(self.dir(name)), &[], WAIT)?;
            let said = String::from_utf8_lossy(&output.stdout).into_owned();
            ensure!(said.contains(" 0 wrong"), "{name}: {said}");
        }
        Ok(())
    }
}

/// Sends until it is told to end or the broker goes away.
fn produce(producer: &mut Steady, ends: &AtomicBool) -> Result<()> {
    while !ends.load(Ordering::Relaxed) {
        match producer.send(RECORD_BYTES)? {
            // At most 20 MB a second: what is verified later is read often.
            Told::Acknowledged(_) => thread::sleep(Duration::from_millis(1)),
            Told::Refused(code) => bail!("a record was answered {code}"),
            Told::Nothing => return Ok(()),
        }
    }
    Ok(())
}

/// Reads from the start to the end, over and over; what is read never shrinks.
fn consume(address: std::net::SocketAddr, ends: &AtomicBool) -> Result<()> {
    let mut most = 0;
    while !ends.load(Ordering::Relaxed) {
        let read = steady::read(&mut Client::connect(address)?, "plain", 0)?.len();
        ensure!(read >= most, "{read} records where {most} were read before");
        most = read;
    }
    Ok(())
}

#[test]
fn kafkas_admin_client_moves_a_partition_that_is_used() -> Result<()> {
    let mut two = TwoDirs::start(&[("log.segment.bytes", "1048576")])?;
    ensure!(steady::create(&mut two.broker.connect()?, "plain", 2, &[])? == 0);
    let mut producer = Steady::new(two.broker.kafka(), "plain", 0)?;
    for _ in 0..400 {
        ensure!(matches!(producer.send(RECORD_BYTES)?, Told::Acknowledged(_)));
    }
    let (bootstrap, to) = (two.broker.bootstrap(), two.other("plain-0")?);
    let path = two.dir(to).display().to_string();
    let (ends, address) = (AtomicBool::new(false), two.broker.kafka());
    thread::scope(|scope| -> Result<()> {
        let sending = scope.spawn(|| produce(&mut producer, &ends));
        let reading = scope.spawn(|| consume(address, &ends));
        let done = (|| -> Result<()> {
            let said = run(&mut programs::log_dirs(&["move", &bootstrap, "1", &path, "plain", "0"])?, &[], WAIT)?;
            ensure!(said.stdout == b"plain-0 NONE\n", "{}", String::from_utf8_lossy(&said.stdout));
            two.wait_until_in(to, "plain-0")?;
            let said = run(&mut programs::log_dirs(&["where", &bootstrap, "1", "plain", "0"])?, &[], WAIT)?;
            let expected = format!("plain-0 CURRENT {path} FUTURE null -1\n");
            ensure!(String::from_utf8_lossy(&said.stdout) == expected, "{}", String::from_utf8_lossy(&said.stdout));
            // And back and forth, by plain requests, under the producer's hands.
            for _ in 0..4 {
                let to = two.other("plain-0")?;
                ensure!(two.ask(&two.dir(to), "plain", &[0])? == [0]);
                two.wait_until_in(to, "plain-0")?;
            }
            Ok(())
        })();
        ends.store(true, Ordering::Relaxed);
        sending.join().expect("the producer's thread").context("the producer")?;
        reading.join().expect("the consumer's thread").context("the consumer")?;
        done
    })?;
    producer.verify()?;
    let said = console::tool("LogDirsCommand", &bootstrap, &["--describe", "--topic-list", "plain"])?;
    ensure!(said.contains("\"partition\":\"plain-0\"") && said.contains(&path) && !said.contains("\"isFuture\":true"), "{said}");
    ensure!(two.ask(Path::new("/nowhere"), "plain", &[0, 1])? == [LOG_DIR_NOT_FOUND; 2]);
    ensure!(two.ask(&two.dir("a"), "plain", &[7])? == [UNKNOWN_TOPIC_OR_PARTITION]);
    ensure!(two.ask(&two.dir("a"), "not-there", &[0])? == [UNKNOWN_TOPIC_OR_PARTITION]);
    ensure!(two.broker.stop()?.success());
    two.verify()?;
    dump_log::check(&two.dir(two.where_is("plain-0")?), &["plain"])?;
    two.broker.restart()?;
    producer.verify().context("after a clean stop")?;
    for name in ["a", "b"] {
        let left: Vec<_> =
            fs::read_dir(two.dir(name))?.map(|entry| Ok(entry?.file_name().to_string_lossy().into_owned())).collect::<Result<_>>()?;
        ensure!(!left.iter().any(|one| one.ends_with("-future") || one.ends_with("-delete")), "{left:?}");
    }
    Ok(())
}

#[test]
fn a_kill_at_any_moment_of_a_move_leaves_one_good_log() -> Result<()> {
    let mut two = TwoDirs::start(&[("log.segment.bytes", "1048576"), ("log.cleaner.backoff.ms", "20")])?;
    ensure!(steady::create(&mut two.broker.connect()?, "plain", 1, &[])? == 0);
    let compacts = [("cleanup.policy", "compact"), ("min.cleanable.dirty.ratio", "0.01")];
    ensure!(steady::create(&mut two.broker.connect()?, "compacted", 1, &compacts)? == 0);
    let mut producer = Steady::new(two.broker.kafka(), "plain", 0)?;
    for _ in 0..500 {
        ensure!(matches!(producer.send(RECORD_BYTES)?, Told::Acknowledged(_)));
    }
    let (mut latest, mut number) = (BTreeMap::new(), 0_u64);
    for round in 0..12_u64 {
        update(&two, &mut latest, &mut number)?;
        let ends = AtomicBool::new(false);
        let asked: Vec<_> =
            ["plain", "compacted"].into_iter().map(|topic| Ok((topic, two.other(&format!("{topic}-0"))?))).collect::<Result<_>>()?;
        thread::scope(|scope| -> Result<()> {
            let sending = scope.spawn(|| produce(&mut producer, &ends));
            for (topic, to) in &asked {
                ensure!(two.ask(&two.dir(to), topic, &[0])? == [0]);
            }
            thread::sleep(Duration::from_millis(round * 29 % 120));
            two.broker.kill()?;
            ends.store(true, Ordering::Relaxed);
            sending.join().expect("the producer's thread")
        })
        .with_context(|| format!("round {round}"))?;
        two.verify().with_context(|| format!("round {round}"))?;
        two.broker.restart().with_context(|| format!("round {round}"))?;
        for (topic, to) in &asked {
            // What was asked for is done in the end, by the process that comes after.
            two.wait_until_in(to, &format!("{topic}-0")).with_context(|| format!("round {round}"))?;
        }
        producer.verify().with_context(|| format!("round {round}"))?;
        ensure!(read_latest(&two)? == latest, "round {round}: a key has another value");
    }
    ensure!(two.broker.stop()?.success());
    two.verify()?;
    dump_log::check(&two.dir(two.where_is("plain-0")?), &["plain"])?;
    dump_log::check_compacted(&two.dir(two.where_is("compacted-0")?), &["compacted"])?;
    Ok(())
}

type Latest = BTreeMap<Vec<u8>, Vec<u8>>;

/// Some values of a few keys, more than a segment of them.
fn update(two: &TwoDirs, latest: &mut Latest, number: &mut u64) -> Result<()> {
    let mut client = two.broker.connect()?;
    for _ in 0..30 {
        let record = |i: u64| {
            let value = format!("{i} {}", "x".repeat(1_000)).into_bytes();
            Record { key: Some(format!("key-{}", i * 7 % 31).into_bytes()), value: Some(value), ..Record::default() }
        };
        let records: Vec<_> = (*number..*number + 50).map(record).collect();
        *number += 50;
        let answer = client.ask(9, &steady::produce("compacted", 0, Batch::of(1, &records).encode()))?;
        let code = answer.responses.first().and_then(|topic| topic.partition_responses.first()).context("an answer")?.error_code;
        ensure!(code == 0, "an update was answered {code}");
        for record in records {
            latest.insert(record.key.unwrap_or_default(), record.value.unwrap_or_default());
        }
    }
    Ok(())
}

fn read_latest(two: &TwoDirs) -> Result<Latest> {
    let (mut latest, mut last) = (Latest::new(), -1);
    for record in kcat::consume(&two.broker.bootstrap(), "compacted")? {
        ensure!(record.offset > last, "offset {} comes after {last}", record.offset);
        last = record.offset;
        latest.insert(record.key.unwrap_or_default(), record.value.unwrap_or_default());
    }
    Ok(latest)
}
