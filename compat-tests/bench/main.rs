//! highwater and Apache Kafka side by side: CPU seconds of the broker per GB, start time and memory, as ratios.
//!
//! The broker runs pinned to one core, the client (`load.c`, librdkafka) to another. Both brokers live through the whole run and are
//! loaded in turn; figures are the least of the rounds, since memory that the machine hands out for the first time multiplies a
//! round's cost. `--partitions` and `--commit` show figures of highwater's data directory instead (`storage`), `--transactions` compares those
//! (`transactions`). It never asserts anything about a broker's answers: that's what the tests do.
#![allow(clippy::disallowed_methods, reason = "a bench reads the clock")]

mod batches;
mod broker;
mod lag;
mod process;
mod report;
mod storage;
mod transactions;

use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};

use broker::{Broker, Kind};
use report::Figures;

const BROKER_CORE: usize = 0;
const CLIENT_CORE: usize = 1;
const RECORD_BYTES: u64 = 1024;
/// Records of 1 KB that make a batch just below librdkafka's 1,000,000 bytes, and one of 10 KB.
const RECORDS_PER_LARGE_BATCH: u64 = 960;
const RECORDS_PER_SMALL_BATCH: u64 = 10;
/// How long a broker is left alone before its idle memory is read.
const IDLE: Duration = Duration::from_secs(2);

/// How much is done; `--quick` takes less, with more noise.
struct Plan {
    binary: PathBuf,
    jars: PathBuf,
    load: PathBuf,
    scratch: PathBuf,
    rounds: u32,
    warm_up_rounds: u32,
    warm_up_records: u64,
    starts: u32,
    large_records: u64,
    small_records: u64,
    touch_mb: u64,
}

fn main() -> Result<()> {
    if let Some(done) = storage::run(&std::env::args().collect::<Vec<_>>()) {
        return done;
    }
    if let Some(done) = transactions::run(&std::env::args().collect::<Vec<_>>()) {
        return done;
    }
    let plan = plan()?;
    let begun = Instant::now();
    let kinds = [Kind::Highwater { binary: plan.binary.clone() }, Kind::ApacheKafka { jars: plan.jars.clone() }];
    eprintln!("bench: taking {} MB from the machine once, so that nobody pays for that later", plan.touch_mb);
    load(&plan, &["touch", &plan.touch_mb.to_string()])?;
    let mut figures = [Figures::default(), Figures::default()];
    let mut brokers = Vec::new();
    for (kind, figures) in kinds.iter().zip(&mut figures) {
        brokers.push(start(&plan, kind, figures)?);
    }
    for (broker, figures) in brokers.iter().zip(&figures) {
        eprintln!("bench: {} answered after {:.3} s, {:.1} MB idle", broker.kind.name(), figures.start_s, figures.resident_idle_mb);
        warm_up(&plan, broker)?;
    }
    for round in 0..plan.warm_up_rounds + plan.rounds {
        let counted = round >= plan.warm_up_rounds;
        for (broker, figures) in brokers.iter().zip(&mut figures) {
            let seen = self::round(&plan, broker, round).with_context(|| format!("round {round} of {}", broker.kind.name()))?;
            eprintln!("bench: {:9} {:12} {seen}", if counted { "round" } else { "warm-up" }, broker.kind.name());
            if counted {
                figures.keep_least(&seen);
            }
        }
    }
    for (broker, figures) in brokers.into_iter().zip(&mut figures) {
        figures.resident_after_mb = broker.resident_mb()?;
        broker.stop()?;
    }
    eprintln!("bench: took {:.0} s", begun.elapsed().as_secs_f64());
    let [highwater, kafka] = &figures;
    let passed = report::print(highwater, kafka, plan.rounds);
    std::fs::remove_dir_all(&plan.scratch)?;
    std::process::exit(if passed { 0 } else { 1 })
}

/// Starts a broker a few times in empty directories, keeps the shortest start and the last process.
fn start(plan: &Plan, kind: &Kind, figures: &mut Figures) -> Result<Broker> {
    let starts = match kind {
        Kind::Highwater { .. } => plan.starts,
        Kind::ApacheKafka { .. } => plan.starts.min(2),
    };
    figures.start_s = f64::INFINITY;
    for left in (0..starts).rev() {
        let broker = Broker::start(kind, &plan.scratch, BROKER_CORE)?;
        figures.start_s = figures.start_s.min(broker.start.as_secs_f64());
        if left == 0 {
            std::thread::sleep(IDLE);
            figures.resident_idle_mb = broker.resident_mb()?;
            return Ok(broker);
        }
    }
    anyhow::bail!("no start asked for")
}

/// Requests enough for Kafka's JVM to have compiled what it will run: its first 100,000 small batches cost several times the later ones.
fn warm_up(plan: &Plan, broker: &Broker) -> Result<()> {
    let topic = "bench-warm-up";
    load(plan, &["produce", &broker.bootstrap, topic, &plan.warm_up_records.to_string(), "100", "2"])?;
    load(plan, &["consume", &broker.bootstrap, topic, &plan.warm_up_records.to_string()])?;
    load(plan, &["delete", &broker.bootstrap, topic])
}

/// One round: large batches in, out again, small batches in; then its topics go.
fn round(plan: &Plan, broker: &Broker, round: u32) -> Result<Figures> {
    let (large, small) = (format!("bench-large-{round}"), format!("bench-small-{round}"));
    let mut seen = Figures { large_s: produce(plan, broker, &large, plan.large_records, RECORDS_PER_LARGE_BATCH)?, ..Figures::default() };
    seen.consumed_s =
        per_gb(broker, plan.large_records, || load(plan, &["consume", &broker.bootstrap, &large, &plan.large_records.to_string()]))?;
    seen.small_s = produce(plan, broker, &small, plan.small_records, RECORDS_PER_SMALL_BATCH)?;
    seen.large_batch_bytes = batches::count(&broker.partition(&large))?.mean_bytes();
    seen.small_batch_bytes = batches::count(&broker.partition(&small))?.mean_bytes();
    load(plan, &["delete", &broker.bootstrap, &large, &small])?;
    broker.wait_for_deletions()?;
    Ok(seen)
}

/// Produces, and checks in the broker's files that the batches are of the size that's asked for.
fn produce(plan: &Plan, broker: &Broker, topic: &str, records: u64, per_batch: u64) -> Result<f64> {
    let words = [topic, &records.to_string(), &RECORD_BYTES.to_string(), &per_batch.to_string()];
    let seconds = per_gb(broker, records, || load(plan, &[&["produce", &broker.bootstrap], &words[..]].concat()))?;
    let batches = batches::count(&broker.partition(topic))?;
    ensure!(batches.records == records, "{} of {records} records in the files", batches.records);
    let mean = batches.records as f64 / batches.count as f64;
    ensure!(mean > per_batch as f64 * 0.95, "{mean:.1} records a batch, {per_batch} asked for");
    Ok(seconds)
}

/// CPU seconds that the broker takes during `work`, per GB (1,000,000,000 bytes) of record values.
fn per_gb(broker: &Broker, records: u64, work: impl FnOnce() -> Result<()>) -> Result<f64> {
    let before = broker.cpu_seconds()?;
    work()?;
    let seconds = broker.cpu_seconds()? - before;
    ensure!(seconds > 0.0, "process {} did no work: it isn't the broker", broker.pid());
    Ok(seconds / ((records * RECORD_BYTES) as f64 / 1e9))
}

fn load(plan: &Plan, words: &[&str]) -> Result<()> {
    let status = Command::new("taskset").args(["-c", &CLIENT_CORE.to_string()]).arg(&plan.load).args(words).status().context("run load")?;
    ensure!(status.success(), "load {} failed", words.join(" "));
    Ok(())
}

fn plan() -> Result<Plan> {
    let mut words = std::env::args().skip(1);
    let mut take = |what: &str| words.next().with_context(|| format!("no {what}: start this by compat-tests/bench/run"));
    let (binary, jars, load, scratch) = (take("binary")?, take("jars")?, take("load")?, take("scratch")?);
    let mut plan = Plan {
        binary: binary.into(),
        jars: jars.into(),
        load: load.into(),
        scratch: Path::new(&scratch).to_owned(),
        rounds: 5,
        warm_up_rounds: 1,
        warm_up_records: 200_000,
        starts: 5,
        large_records: 1_000_000,
        small_records: 250_000,
        touch_mb: 6_000,
    };
    while let Some(word) = words.next() {
        match word.as_str() {
            "--quick" => {
                (plan.rounds, plan.warm_up_records, plan.touch_mb) = (2, 50_000, 1_000);
                (plan.large_records, plan.small_records) = (300_000, 100_000);
            }
            "--rounds" => plan.rounds = words.next().context("--rounds N")?.parse()?,
            _ => anyhow::bail!("unknown option {word}: --quick, --rounds N"),
        }
    }
    ensure!(plan.rounds > 0, "no rounds");
    std::fs::create_dir_all(&plan.scratch)?;
    Ok(plan)
}
