//! Compaction beside Apache Kafka's on the same input, how fast it is, what that takes, and what it does to producers: by default 10,000,000
//! updates of 100,000 keys, 1 GB.
//!
//! `compat-tests/bench/run --compaction [UPDATES [KEYS]]`. The log is written with the cleaner off, to both brokers. Then ours is started again
//! with it on, some times with the same log, while single records are produced to another topic: figures are the least of the rounds. The last
//! value of each key must be what was written, and Apache Kafka's. Figures go to stdout; one above its limit ends it with 1.
#![allow(clippy::disallowed_methods, reason = "a bench reads the clock")]

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;
use std::process::Command;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use bytes::Bytes;
use compat_tests::batch::{Batch, Record};
use compat_tests::wire::Client;
use compat_tests::{ApacheKafka, Broker, http, kcat};
use kafka_protocol::messages::create_topics_request::{CreatableTopic, CreatableTopicConfig};
use kafka_protocol::messages::produce_request::{PartitionProduceData, TopicProduceData};
use kafka_protocol::messages::{CreateTopicsRequest, ProduceRequest, TopicName};
use kafka_protocol::protocol::StrBytes;

const TOPIC: &str = "compacted";
const BESIDE: &str = "beside";
const SEGMENT_BYTES: u64 = 64 << 20;
const BATCH: u64 = 5_000;
const THEN: i64 = 1_700_000_000_000;
/// Clock ticks a second in /proc: 100 on every Linux that there is.
const TICKS: f64 = 100.0;
const QUIET: Duration = Duration::from_secs(5);
const ROUNDS: usize = 3;
/// How long Apache Kafka may take to compact its log.
const WAIT: Duration = Duration::from_secs(600);

/// `log.cleaner.dedupe.buffer.size`, by default.
const DEDUPE_MB: f64 = 128.0;
const MB_A_CPU_SECOND_MIN: f64 = 100.0;
const LATENCY_RISE_MAX: f64 = 1.5;

/// One compaction of the whole log.
struct Round {
    cpu_s: f64,
    wall_s: f64,
    /// Beyond what the broker had resident when it had started.
    grown_mb: f64,
    /// Milliseconds, sorted.
    quiet: Vec<f64>,
    busy: Vec<f64>,
}

fn main() -> Result<()> {
    let mut words = std::env::args().skip(1);
    let mut number = |default: u64| words.next().map_or(Ok(default), |word| word.parse::<u64>().context(word));
    let (updates, keys) = (number(10_000_000)?, number(100_000)?);
    let mut broker = Broker::start_with(&[("log.cleaner.enable", "false")])?;
    let kafka = ApacheKafka::start_with(&[("log.cleaner.backoff.ms", "1000"), ("log.retention.ms", "-1")])?;
    let mut clients = [broker.connect()?, kafka.connect()?];
    let segment_bytes = SEGMENT_BYTES.to_string();
    for client in &mut clients {
        make(client, TOPIC, &[("cleanup.policy", "compact"), ("segment.bytes", &segment_bytes), ("min.cleanable.dirty.ratio", "0.01")])?;
    }
    make(&mut clients[0], BESIDE, &[])?;
    let expected = write(&mut clients, updates, keys)?;
    ensure!(broker.stop()?.success());
    let before = size(broker.data())?;
    let whole = broker.data().with_extension("whole");
    copy(broker.data(), &whole)?;
    eprintln!("bench: {updates} updates of {keys} keys written to both, {before} bytes here");
    let their_size = wait_until_compacted(&kafka, before)?;
    let theirs = read(&kafka.bootstrap())?;
    drop(kafka);
    ensure!(theirs == expected, "the last values of Apache Kafka are not what was written");
    let mut rounds = Vec::new();
    let mut after = 0;
    for i in 0..ROUNDS {
        if i > 0 {
            fs::remove_dir_all(broker.data())?;
            copy(&whole, broker.data())?;
        }
        rounds.push(round(&mut broker)?);
        let ours = read(&broker.bootstrap())?;
        ensure!(ours == expected && ours == theirs, "the last values are wrong");
        after = size(broker.data())?;
        ensure!(broker.stop()?.success());
    }
    println!("last values of {} keys: those that were written, and Apache Kafka's", expected.len());
    println!(
        "log: {:.0} MB before, {:.0} MB after; Apache Kafka's {:.0} MB after",
        before as f64 / 1e6,
        after as f64 / 1e6,
        their_size as f64 / 1e6
    );
    std::process::exit(if report(&rounds, before as f64 / 1e6) { 0 } else { 1 })
}

/// Prints the figures, the least of the rounds each; whether all are within their limits.
fn report(rounds: &[Round], mb: f64) -> bool {
    let least = |of: &dyn Fn(&Round) -> f64| rounds.iter().map(of).fold(f64::INFINITY, f64::min);
    let (cpu_s, wall_s, grown_mb) = (least(&|r| r.cpu_s), least(&|r| r.wall_s), least(&|r| r.grown_mb));
    let speed = mb / cpu_s;
    println!(
        "cleaning: {cpu_s:.2} CPU s of one thread, {speed:.0} MB of log a CPU s (at least {MB_A_CPU_SECOND_MIN:.0}); {wall_s:.1} s by the clock"
    );
    println!("memory: {grown_mb:.0} MB more at the peak with it ({DEDUPE_MB:.0} at most)");
    let mut passed = speed >= MB_A_CPU_SECOND_MIN && grown_mb <= DEDUPE_MB;
    for (name, share) in [("p50", 0.5), ("p99", 0.99)] {
        let (quiet, busy) = (least(&|r| at(&r.quiet, share)), least(&|r| at(&r.busy, share)));
        let rise = busy / quiet;
        println!("produce {name}: {quiet:.3} ms without, {busy:.3} ms beside it: {rise:.2} times ({LATENCY_RISE_MAX} at most)");
        passed &= rise <= LATENCY_RISE_MAX;
    }
    passed
}

/// Starts the broker without the cleaner and with it.
fn round(broker: &mut Broker) -> Result<Round> {
    broker.restart_with(&[("log.cleaner.enable", "false")])?;
    let quiet = latencies(&mut broker.connect()?, &mut |passed| Ok(passed > QUIET))?;
    let (resident, _) = memory(broker.pid())?;
    ensure!(broker.stop()?.success());
    broker.restart_with(&[("log.cleaner.enable", "true"), ("log.cleaner.backoff.ms", "50")])?;
    let begun = Instant::now();
    let address = broker.http().context("HTTP is on")?;
    let has_compacted = || Ok::<_, anyhow::Error>(metric(&http::get(address, "/metrics")?.body, "highwater_compactions_total")? > 0.0);
    let busy = latencies(&mut broker.connect()?, &mut |_| has_compacted())?;
    let wall_s = begun.elapsed().as_secs_f64();
    let cpu_s = thread_cpu_seconds(broker.pid(), "log-cleaner-0")?;
    let (_, peak) = memory(broker.pid())?;
    eprintln!(
        "bench: round: {cpu_s:.2} CPU s, {wall_s:.1} s, {peak:.0} MB at the peak after {resident:.0}; p50 {:.3} and {:.3} ms, p99 {:.3} and {:.3} ms",
        at(&quiet, 0.5),
        at(&busy, 0.5),
        at(&quiet, 0.99),
        at(&busy, 0.99)
    );
    Ok(Round { cpu_s, wall_s, grown_mb: peak - resident, quiet, busy })
}

/// Waits until Apache Kafka's log is small and stays so; its size.
fn wait_until_compacted(kafka: &ApacheKafka, before: u64) -> Result<u64> {
    let begun = Instant::now();
    let mut last = 0;
    loop {
        std::thread::sleep(Duration::from_secs(5));
        let now = size(&kafka.data())?;
        if now < (before / 2).max(SEGMENT_BYTES * 2) && now == last {
            return Ok(now);
        }
        ensure!(begun.elapsed() < WAIT, "Apache Kafka has still {now} bytes");
        last = now;
    }
}

fn copy(from: &Path, to: &Path) -> Result<()> {
    ensure!(Command::new("cp").arg("-a").arg(from).arg(to).status()?.success(), "can't copy {}", from.display());
    Ok(())
}

fn make(client: &mut Client, topic: &str, configs: &[(&str, &str)]) -> Result<()> {
    let text = |text: &str| StrBytes::from_string(text.to_owned());
    let config = |(name, value): &(&str, &str)| CreatableTopicConfig::default().with_name(text(name)).with_value(Some(text(value)));
    let topic = CreatableTopic::default().with_name(TopicName(text(topic))).with_num_partitions(1).with_replication_factor(1);
    let topics = vec![topic.with_configs(configs.iter().map(config).collect())];
    let answer = client.ask(7, &CreateTopicsRequest::default().with_topics(topics).with_timeout_ms(30_000))?;
    ensure!(answer.topics.iter().all(|topic| topic.error_code == 0), "{answer:?}");
    Ok(())
}

/// Apache Kafka says that it made a topic before it has it.
fn send_first(client: &mut Client, topic: &str, batch: Bytes) -> Result<()> {
    let begun = Instant::now();
    loop {
        match send(client, topic, batch.clone()) {
            Err(_) if begun.elapsed() < Duration::from_secs(10) => std::thread::sleep(Duration::from_millis(50)),
            sent => return sent,
        }
    }
}

fn send(client: &mut Client, topic: &str, batch: Bytes) -> Result<()> {
    let data = PartitionProduceData::default().with_index(0).with_records(Some(batch));
    let topic = TopicProduceData::default().with_name(TopicName(StrBytes::from_string(topic.to_owned()))).with_partition_data(vec![data]);
    let answer = client.ask(9, &ProduceRequest::default().with_acks(-1).with_timeout_ms(30_000).with_topic_data(vec![topic]))?;
    ensure!(answer.responses.iter().flat_map(|topic| &topic.partition_responses).all(|partition| partition.error_code == 0), "{answer:?}");
    Ok(())
}

/// Writes the same to all; the number of the last update of each key.
fn write(clients: &mut [Client], updates: u64, keys: u64) -> Result<BTreeMap<Vec<u8>, u64>> {
    let mut latest = BTreeMap::new();
    let mut seed = 1_u64;
    for first in (0..updates).step_by(usize::try_from(BATCH)?) {
        let mut records = Vec::new();
        for number in first..updates.min(first + BATCH) {
            seed = seed.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            let key = format!("key-{:08}", (seed >> 33) % keys).into_bytes();
            latest.insert(key.clone(), number);
            records.push(Record {
                key: Some(key),
                value: Some(format!("{number:010} {}", "x".repeat(65)).into_bytes()),
                ..Record::default()
            });
        }
        let batch = Batch::of(THEN, &records).encode();
        clients.iter_mut().try_for_each(|client| send_first(client, TOPIC, batch.clone()))?;
    }
    Ok(latest)
}

/// Milliseconds that single records took, sorted, until `is_over` says so.
fn latencies(client: &mut Client, is_over: &mut dyn FnMut(Duration) -> Result<bool>) -> Result<Vec<f64>> {
    let record = Batch::of(THEN, &[Record { key: Some(b"k".to_vec()), value: Some(vec![b'x'; 100]), ..Record::default() }]).encode();
    let (begun, mut looked, mut all) = (Instant::now(), Instant::now(), Vec::new());
    loop {
        let sent = Instant::now();
        send(client, BESIDE, record.clone())?;
        all.push(sent.elapsed().as_secs_f64() * 1e3);
        if looked.elapsed() > Duration::from_millis(50) {
            if is_over(begun.elapsed())? {
                break;
            }
            looked = Instant::now();
        }
    }
    all.sort_by(f64::total_cmp);
    Ok(all)
}

fn at(sorted: &[f64], share: f64) -> f64 {
    let last = sorted.len().saturating_sub(1);
    sorted.get(((last as f64) * share) as usize).copied().unwrap_or(f64::NAN)
}

fn metric(text: &str, name: &str) -> Result<f64> {
    let line = text.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(' '));
    line.with_context(|| format!("no {name}"))?.parse().context("a number")
}

fn size(data: &Path) -> Result<u64> {
    let mut size = 0;
    for entry in fs::read_dir(data.join(format!("{TOPIC}-0")))? {
        let entry = entry?;
        if entry.path().extension().is_some_and(|suffix| suffix == "log") {
            // It may go meanwhile.
            size += entry.metadata().map_or(0, |metadata| metadata.len());
        }
    }
    Ok(size)
}

/// Resident memory in MB: now, and at its peak.
fn memory(pid: u32) -> Result<(f64, f64)> {
    let status = fs::read_to_string(format!("/proc/{pid}/status"))?;
    let field = |name: &str| -> Result<f64> {
        let line = status.lines().find_map(|line| line.strip_prefix(name)).with_context(|| name.to_owned())?;
        Ok(line.trim().trim_end_matches(" kB").parse::<f64>()? / 1024.0)
    };
    Ok((field("VmRSS:")?, field("VmHWM:")?))
}

fn thread_cpu_seconds(pid: u32, name: &str) -> Result<f64> {
    for task in fs::read_dir(format!("/proc/{pid}/task"))? {
        let task = task?.path();
        if fs::read_to_string(task.join("comm"))?.trim() == name {
            let stat = fs::read_to_string(task.join("stat"))?;
            let fields: Vec<&str> = stat.rsplit_once(')').context("a comm")?.1.split_whitespace().collect();
            let ticks = |at: usize| -> Result<f64> { Ok(fields.get(at).context("utime and stime")?.parse()?) };
            return Ok((ticks(11)? + ticks(12)?) / TICKS);
        }
    }
    anyhow::bail!("no thread {name}")
}

/// The number in the last value of each key.
fn read(bootstrap: &str) -> Result<BTreeMap<Vec<u8>, u64>> {
    let mut seen = BTreeMap::new();
    for record in kcat::consume(bootstrap, TOPIC)? {
        let value = record.value.context("a value")?;
        let number: u64 = std::str::from_utf8(value.get(..10).context("a number")?)?.parse()?;
        seen.insert(record.key.context("a key")?, number);
    }
    Ok(seen)
}
