//! Figures of the lag (`--lag`): what a scrape of 2,000 groups of 50 partitions takes, and what it costs those who produce meanwhile. Prints
//! them and asserts nothing about speed.

use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use compat_tests::steady::{self, Steady, Told};
use compat_tests::{Broker, http};
use kafka_protocol::messages::{
    FindCoordinatorRequest, GroupId, OffsetCommitRequest, TopicName,
    offset_commit_request::{OffsetCommitRequestPartition, OffsetCommitRequestTopic},
};
use kafka_protocol::protocol::StrBytes;

use crate::process::{cpu_seconds, resident_mb};

const GROUPS: usize = 2_000;
const PARTITIONS: i32 = 50;
const RECORDS: usize = 20;
const SCRAPES: usize = 15;
const RUN: Duration = Duration::from_secs(10);
/// Prometheus asks every 15 s by default; this is more often than anybody does.
const SCRAPE_INTERVAL: Duration = Duration::from_secs(1);

pub fn run() -> Result<()> {
    let broker = Broker::start()?;
    ensure!(steady::create(&mut broker.connect()?, "orders", PARTITIONS, &[])? == 0);
    for partition in 0..PARTITIONS {
        let mut producer = Steady::new(broker.kafka(), "orders", partition)?;
        for _ in 0..RECORDS {
            ensure!(matches!(producer.send(100)?, Told::Acknowledged(_)));
        }
    }
    let before_mb = resident_mb(broker.pid())?;
    commit(&broker, 10)?;
    let begun = Instant::now();
    while pending(&broker)? > 0 {
        thread::sleep(Duration::from_millis(100));
    }
    println!("{GROUPS} groups of {PARTITIONS} partitions: looked up {:.2} s after the last commit", begun.elapsed().as_secs_f64());
    let cpu = cpu_seconds(broker.pid())?;
    thread::sleep(RUN);
    let idle = (cpu_seconds(broker.pid())? - cpu) / RUN.as_secs_f64() * 100.0;
    println!("idle: {idle:.1} % of a core; {:.1} MB for the groups", resident_mb(broker.pid())? - before_mb);
    let (mut took, cpu) = (Vec::new(), cpu_seconds(broker.pid())?);
    let mut text = String::new();
    for _ in 0..SCRAPES {
        let begun = Instant::now();
        text = scrape(&broker)?;
        took.push(begun.elapsed());
        thread::sleep(Duration::from_millis(300));
    }
    let cpu_ms = (cpu_seconds(broker.pid())? - cpu) / SCRAPES as f64 * 1e3;
    took.sort_unstable();
    let series = text.lines().filter(|line| !line.starts_with('#')).count();
    let ms = |at: usize| took[at].as_secs_f64() * 1e3;
    println!(
        "/metrics: {series} series, {:.1} MB; least {:.0} ms, middle {:.0} ms, longest {:.0} ms; {cpu_ms:.0} ms of CPU each, with what is done between them",
        text.len() as f64 / 1e6,
        ms(0),
        ms(took.len() / 2),
        ms(took.len() - 1)
    );
    ensure!(text.contains("highwater_lag_dropped_series 0\n"), "series were dropped");
    produce(&broker)
}

/// A commit of every group for every partition, a request each.
fn commit(broker: &Broker, offset: i64) -> Result<()> {
    let mut client = broker.connect()?;
    for group in 0..GROUPS {
        let id = GroupId(StrBytes::from_string(format!("group-{group:04}")));
        if group == 0 {
            // The first one makes the offsets topic.
            let asked = FindCoordinatorRequest::default().with_key(id.0.clone());
            client.ask(3, &asked)?;
        }
        let partition = |index| OffsetCommitRequestPartition::default().with_partition_index(index).with_committed_offset(offset);
        let topic = OffsetCommitRequestTopic::default()
            .with_name(TopicName(StrBytes::from_static_str("orders")))
            .with_partitions((0..PARTITIONS).map(partition).collect());
        let asked = OffsetCommitRequest::default().with_group_id(id).with_generation_id_or_member_epoch(-1).with_topics(vec![topic]);
        let answer = client.ask(8, &asked)?;
        let error = answer.topics.first().and_then(|topic| topic.partitions.first()).context("an answer")?.error_code;
        ensure!(error == 0, "a commit was answered {error}");
    }
    Ok(())
}

fn scrape(broker: &Broker) -> Result<String> {
    let answer = http::get(broker.http().context("HTTP is on")?, "/metrics")?;
    ensure!(answer.status == 200, "answered {}", answer.status);
    Ok(answer.body)
}

fn pending(broker: &Broker) -> Result<u64> {
    let text = scrape(broker)?;
    let line = text.lines().find_map(|line| line.strip_prefix("highwater_lag_pending_partitions ")).context("no count")?;
    Ok(line.parse()?)
}

/// One producer with one request in flight: alone, and beside scrapes, in turn, so that both meet the same machine.
fn produce(broker: &Broker) -> Result<()> {
    let (mut alone, mut beside) = (Vec::new(), Vec::new());
    for round in 0..4 {
        let scraped = round % 2 == 1;
        let latencies: Result<Vec<Duration>> = thread::scope(|scope| {
            let producer = scope.spawn(|| send_for(Steady::new(broker.kafka(), "orders", 0)?, RUN / 2));
            while scraped && !producer.is_finished() {
                scrape(broker)?;
                thread::sleep(SCRAPE_INTERVAL);
            }
            producer.join().map_err(|_| anyhow::anyhow!("the producer panicked"))?
        });
        if scraped { beside.extend(latencies?) } else { alone.extend(latencies?) }
    }
    for (name, mut latencies) in [("alone", alone), ("beside a scrape a second", beside)] {
        latencies.sort_unstable();
        let us = |part: usize| latencies[(latencies.len() - 1) * part / 1000].as_secs_f64() * 1e6;
        println!("produce {name}: {} acknowledged, p50 {:.0} µs, p99 {:.0} µs, p99.9 {:.0} µs", latencies.len(), us(500), us(990), us(999));
    }
    Ok(())
}

fn send_for(mut producer: Steady, run: Duration) -> Result<Vec<Duration>> {
    let (begun, mut latencies) = (Instant::now(), Vec::new());
    while begun.elapsed() < run {
        let sent = Instant::now();
        ensure!(matches!(producer.send(1_000)?, Told::Acknowledged(_)));
        latencies.push(sent.elapsed());
    }
    Ok(latencies)
}
