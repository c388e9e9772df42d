//! What people see of the broker through Prometheus: a real one scrapes the real binary under a workload that has something for every
//! panel, each query of each dashboard returns data, and promtool finds nothing wrong with the exposition, the rules and their tests.
#![allow(clippy::disallowed_methods, reason = "it waits for programs")]

use std::collections::BTreeMap;
use std::fs;
use std::path::PathBuf;
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail, ensure};
use compat_tests::batch::Batch;
use compat_tests::prometheus::{Prometheus, check_metrics, promtool};
use compat_tests::seat::{Seat, commit_alone};
use compat_tests::steady::{create, produce, read};
use compat_tests::transactional::Producer;
use compat_tests::wire::Client;
use compat_tests::{Broker, http, tools};
use serde_json::Value;

/// Scrapes are a second apart: a rate needs two, and some panels need a rate that is not 0.
const WAIT: Duration = Duration::from_secs(90);
const EVERY: Duration = Duration::from_millis(250);

fn grafana(file: &str) -> PathBuf {
    tools::home().join("../grafana").join(file)
}

/// What Grafana puts in the place of its variables, where all is chosen.
fn expanded(expr: &str) -> String {
    let variables =
        [("$__rate_interval", "15s"), ("$__range", "5m"), ("$instance", ".*"), ("$group", ".*"), ("$topic", ".*"), ("$slo", "0")];
    variables.iter().fold(expr.to_owned(), |expr, (variable, value)| expr.replace(variable, value))
}

/// The queries of all dashboards, by the panel that has them.
fn queries() -> Result<BTreeMap<String, String>> {
    let mut found = BTreeMap::new();
    for entry in fs::read_dir(grafana("dashboards"))? {
        let path = entry?.path();
        let dashboard: Value = serde_json::from_str(&fs::read_to_string(&path)?)?;
        let file = path.file_stem().unwrap_or_default().to_string_lossy().into_owned();
        for panel in dashboard["panels"].as_array().context("no panels")? {
            let title = panel["title"].as_str().context("a panel without a title")?;
            for target in panel["targets"].as_array().into_iter().flatten() {
                let (name, expr) = (target["refId"].as_str().unwrap_or("?"), target["expr"].as_str().context("a target without a query")?);
                found.insert(format!("{file}: {title} ({name})"), expanded(expr));
            }
        }
    }
    Ok(found)
}

/// The broker's traffic while it is watched: a hot partition, a group that lags on one partition, one that keeps up, one that nobody reads
/// in, old records that retention is about to take, and requests that are refused.
struct Traffic {
    client: Client,
    reader: Seat,
    sent: i64,
}

const TOPIC: &str = "orders";
const PARTITIONS: i32 = 4;
const HOT: i32 = 2;

impl Traffic {
    fn start(broker: &Broker) -> Result<Self> {
        let mut client = broker.connect()?;
        ensure!(create(&mut client, TOPIC, PARTITIONS, &[("retention.ms", "3600000")])? == 0);
        ensure!(create(&mut client, "profiles", 1, &[("cleanup.policy", "compact")])? == 0);
        let reader = Seat::take(broker.kafka(), "billing", "billing-worker", &[(TOPIC.to_owned(), PARTITIONS)])?;
        reader.wait_for(PARTITIONS as usize)?;
        let mut traffic = Self { client, reader, sent: 0 };
        traffic.go_on(broker)?;
        for partition in 0..PARTITIONS {
            traffic.reader.commit(TOPIC, partition, 1)?;
        }
        commit_alone(&mut traffic.client, "nightly", &[(TOPIC, 0, 0)])?;
        // It has nothing left to read.
        commit_alone(&mut traffic.client, "done", &[("profiles", 0, 0)])?;
        // A transaction that nobody ends for now.
        Producer::init(broker.kafka(), "left")?.write(TOPIC, &[0])?;
        Ok(traffic)
    }

    fn go_on(&mut self, broker: &Broker) -> Result<()> {
        let now = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH)?.as_millis();
        for partition in 0..PARTITIONS {
            for _ in 0..if partition == HOT { 10 } else { 1 } {
                let batch = Batch::of_values(i64::try_from(now)?, &[b"an order"]);
                let answer = self.client.ask(9, &produce(TOPIC, partition, batch.encode()))?;
                ensure!(answer.responses.iter().all(|topic| topic.partition_responses.iter().all(|partition| partition.error_code == 0)));
            }
        }
        read(&mut self.client, TOPIC, HOT)?;
        self.sent += 1;
        // Partition 0 stays where it is: it is stuck.
        self.reader.commit(TOPIC, 1, self.sent)?;
        // Is refused: it is there.
        ensure!(create(&mut self.client, TOPIC, 1, &[])? != 0);
        let mut stranger = Client::connect(broker.kafka())?;
        stranger.send_bytes(b"\xff\xff\xff\xffno frame")?;
        Ok(())
    }
}

fn has_data(prometheus: &Prometheus, expr: &str) -> Result<bool> {
    Ok(prometheus.query(expr)?.iter().any(|sample| !sample.value.is_nan()))
}

#[test]
fn every_query_of_every_panel_returns_data() -> Result<()> {
    let broker = Broker::start_with(&[("group.initial.rebalance.delay.ms", "0"), ("log.cleaner.backoff.ms", "200")])?;
    let prometheus = Prometheus::start(broker.http().context("HTTP is on")?, Some(&grafana("prometheus/alerts.yml")))?;
    let mut traffic = Traffic::start(&broker)?;
    let mut missing = queries()?;
    ensure!(missing.len() > 60, "only {} queries were found", missing.len());
    let deadline = Instant::now() + WAIT;
    while !missing.is_empty() {
        traffic.go_on(&broker)?;
        let mut still = BTreeMap::new();
        for (panel, expr) in missing {
            if !has_data(&prometheus, &expr).with_context(|| panel.clone())? {
                still.insert(panel, expr);
            }
        }
        missing = still;
        if Instant::now() > deadline {
            bail!("no data after {WAIT:?} for\n{missing:#?}");
        }
        thread::sleep(EVERY);
    }
    let rules = prometheus.ask("/api/v1/rules")?;
    let rules = rules["groups"].as_array().into_iter().flatten().flat_map(|group| group["rules"].as_array().into_iter().flatten());
    for rule in rules {
        ensure!(rule["health"] != "err", "{}: {}", rule["name"], rule["lastError"]);
    }
    Ok(())
}

#[test]
fn promtool_finds_nothing_wrong_with_the_exposition() -> Result<()> {
    let broker = Broker::start_with(&[("group.initial.rebalance.delay.ms", "0")])?;
    let _traffic = Traffic::start(&broker)?;
    let answer = http::get(broker.http().context("HTTP is on")?, "/metrics")?;
    ensure!(answer.status == 200);
    check_metrics(&answer.body)?;
    let planted = format!("{}# TYPE bad_ms counter\nbad_ms 1\n", answer.body);
    ensure!(check_metrics(&planted).is_err(), "promtool finds nothing wrong with a counter without a help and _total");
    Ok(())
}

#[test]
fn alerts_fire_when_they_should_and_only_then() -> Result<()> {
    let folder = grafana("prometheus");
    promtool(&folder, &["check", "rules", "alerts.yml"])?;
    promtool(&folder, &["check", "config", "prometheus.yml"])?;
    promtool(&folder, &["test", "rules", "alerts_test.yml"])?;
    Ok(())
}
