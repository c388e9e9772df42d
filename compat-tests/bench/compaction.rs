//! How fast a log is compacted, what that takes, and what it does to producers: by default 10,000,000 updates of 100,000 keys, 1 GB.
//!
//! `cargo run -p compat-tests --bin bench-compaction [-- UPDATES KEYS]` with a released broker (or `HIGHWATER_BIN`). The log is written with the
//! cleaner off; then the broker is started again with it on, while single records are produced to another topic. Figures go to stdout; the
//! last value of each key is checked.
#![allow(clippy::disallowed_methods, reason = "a bench reads the clock")]

use std::collections::BTreeMap;
use std::fs;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use bytes::Bytes;
use compat_tests::batch::{Batch, Record};
use compat_tests::wire::Client;
use compat_tests::{Broker, http, kcat};
use kafka_protocol::messages::create_topics_request::{CreatableTopic, CreatableTopicConfig};
use kafka_protocol::messages::produce_request::{PartitionProduceData, TopicProduceData};
use kafka_protocol::messages::{CreateTopicsRequest, ProduceRequest, TopicName};
use kafka_protocol::protocol::StrBytes;

const TOPIC: &str = "compacted";
const BESIDE: &str = "beside";
const BATCH: u64 = 5_000;
const THEN: i64 = 1_700_000_000_000;
/// Clock ticks a second in /proc: 100 on every Linux that there is.
const TICKS: f64 = 100.0;
const QUIET: Duration = Duration::from_secs(5);

fn main() -> Result<()> {
    let mut words = std::env::args().skip(1);
    let mut number = |default: u64| words.next().map_or(Ok(default), |word| word.parse::<u64>().context(word));
    let (updates, keys) = (number(10_000_000)?, number(100_000)?);
    let mut broker = Broker::start_with(&[("log.cleaner.enable", "false"), ("log.retention.ms", "-1")])?;
    let mut client = broker.connect()?;
    make(&mut client, TOPIC, &[("cleanup.policy", "compact"), ("segment.bytes", "67108864"), ("min.cleanable.dirty.ratio", "0.01")])?;
    make(&mut client, BESIDE, &[])?;
    let expected = write(&mut client, updates, keys)?;
    let before = size(&broker)?;
    eprintln!("bench: {updates} updates of {keys} keys written, {before} bytes");
    ensure!(broker.stop()?.success());
    broker.restart()?;
    let quiet = latencies(&mut broker.connect()?, &mut |passed| Ok(passed > QUIET))?;
    let (resident_before, _) = memory(broker.pid())?;
    ensure!(broker.stop()?.success());
    broker.restart_with(&[("log.cleaner.enable", "true"), ("log.cleaner.backoff.ms", "50")])?;
    let begun = Instant::now();
    let address = broker.http().context("HTTP is on")?;
    let has_compacted = || Ok::<_, anyhow::Error>(metric(&http::get(address, "/metrics")?.body, "highwater_compactions_total")? > 0.0);
    let busy = latencies(&mut broker.connect()?, &mut |_| has_compacted())?;
    let wall = begun.elapsed().as_secs_f64();
    let cpu = thread_cpu_seconds(broker.pid(), "log-cleaner-0")?;
    let metrics = http::get(address, "/metrics")?.body;
    let (read, written) =
        (metric(&metrics, "highwater_compaction_read_bytes_total")?, metric(&metrics, "highwater_compaction_written_bytes_total")?);
    let (_, peak) = memory(broker.pid())?;
    check(&broker, &expected)?;
    let mb = before as f64 / 1e6;
    println!(
        "log: {mb:.0} MB before, {:.0} MB after; {:.0} MB read, {:.0} MB written",
        size(&broker)? as f64 / 1e6,
        read / 1e6,
        written / 1e6
    );
    println!("cleaning: {cpu:.2} CPU s of one thread, {:.0} MB of log a CPU s; {wall:.1} s by the clock", mb / cpu);
    println!("memory: {resident_before:.0} MB resident without, {peak:.0} MB at the peak with it");
    for (what, all) in [("without", &quiet), ("beside it", &busy)] {
        println!(
            "produce {what}: {} records, p50 {:.3} ms, p99 {:.3} ms, max {:.1} ms",
            all.len(),
            at(all, 0.5),
            at(all, 0.99),
            at(all, 1.0)
        );
    }
    ensure!(broker.stop()?.success());
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

fn send(client: &mut Client, topic: &str, batch: Bytes) -> Result<()> {
    let data = PartitionProduceData::default().with_index(0).with_records(Some(batch));
    let topic = TopicProduceData::default().with_name(TopicName(StrBytes::from_string(topic.to_owned()))).with_partition_data(vec![data]);
    let answer = client.ask(9, &ProduceRequest::default().with_acks(-1).with_timeout_ms(30_000).with_topic_data(vec![topic]))?;
    ensure!(answer.responses.iter().flat_map(|topic| &topic.partition_responses).all(|partition| partition.error_code == 0), "{answer:?}");
    Ok(())
}

/// The number of the last update of each key.
fn write(client: &mut Client, updates: u64, keys: u64) -> Result<BTreeMap<Vec<u8>, u64>> {
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
        send(client, TOPIC, Batch::of(THEN, &records).encode())?;
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

fn size(broker: &Broker) -> Result<u64> {
    let mut size = 0;
    for entry in fs::read_dir(broker.data().join(format!("{TOPIC}-0")))? {
        let entry = entry?;
        if entry.path().extension().is_some_and(|suffix| suffix == "log") {
            size += entry.metadata()?.len();
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

fn check(broker: &Broker, expected: &BTreeMap<Vec<u8>, u64>) -> Result<()> {
    let mut seen = BTreeMap::new();
    for record in kcat::consume(&broker.bootstrap(), TOPIC)? {
        let value = record.value.context("a value")?;
        let number: u64 = std::str::from_utf8(value.get(..10).context("a number")?)?.parse()?;
        seen.insert(record.key.context("a key")?, number);
    }
    ensure!(seen == *expected, "the last values are wrong");
    Ok(())
}
