//! Random sequences of requests about logs and transactions: each against Apache Kafka and highwater, step by step, with all fields of all
//! answers compared but for those that `masks` and `execute` name. Method: `generate` makes a sequence from a seed, whose steps are symbolic
//! (`plan`); each side turns them into requests by what its own answers gave (`known`). A sequence that differs is shortened as long as it
//! still does, and printed.
//!
//! `SIM_SEED=n` runs one seed, `SIM_SEEDS=n` so many, from `SIM_FROM=n` on, until `SIM_FAILURES=n` (one) have differed.

mod administer;
mod batches;
mod execute;
mod generate;
mod known;
mod plan;
mod transact;
mod world;

use std::fmt::Write as _;
use std::sync::Mutex;
use std::sync::atomic::{AtomicU64, Ordering};
use std::thread;

use anyhow::Result;

use crate::side::{brokers, differences};
use generate::{PRODUCERS, TOPICS};
use plan::{At, Step};
use world::World;

/// How many seeds a run of all tests takes.
const SEEDS: u64 = 40;
/// Sequences at a time: most of one's time is waiting.
const WORKERS: u64 = 4;
/// A seed whose sequence aborts a transaction that somebody reads then; another shows it too, only later.
const FIRST_WITH_AN_ABORT: u64 = 7;
/// Each run of a sequence has names of its own.
static RUNS: AtomicU64 = AtomicU64::new(0);

#[test]
fn random_sequences() {
    if let Some(seed) = number("SIM_SEED") {
        if let Some(found) = run_seed(seed, false) {
            panic!("{found}");
        }
        return;
    }
    let from = number("SIM_FROM").unwrap_or(0);
    let seeds = from + number("SIM_SEEDS").unwrap_or(SEEDS);
    let (next, failed) = (AtomicU64::new(from), Mutex::new(Vec::new()));
    let failures_max = usize::try_from(number("SIM_FAILURES").unwrap_or(1)).unwrap_or(1);
    let work = || {
        while failed.lock().is_ok_and(|failed| failed.len() < failures_max) {
            let seed = next.fetch_add(1, Ordering::Relaxed);
            if seed >= seeds {
                return;
            }
            if let Some(found) = run_seed(seed, false) {
                eprintln!("{found}");
                failed.lock().unwrap().push(seed);
            }
        }
    };
    thread::scope(|scope| (0..WORKERS).for_each(|_| drop(scope.spawn(work))));
    let failed = failed.into_inner().unwrap();
    assert!(failed.is_empty(), "seeds {failed:?} differ; SIM_SEED=n runs one");
}

/// A broker that leaves aborted transactions out of its answers is found out, by a short sequence.
#[test]
fn a_planted_difference_is_found() {
    let found = (FIRST_WITH_AN_ABORT..FIRST_WITH_AN_ABORT + 100).find_map(|seed| {
        let steps = generate::sequence(seed);
        differ(&steps, true).map(|found| shorten(steps, &found, true))
    });
    let steps = found.expect("no sequence shows it");
    assert!(steps.len() <= 6, "{} steps: {steps:#?}", steps.len());
    assert!(differ(&steps, false).is_none(), "it differs without it too");
}

fn number(name: &str) -> Option<u64> {
    std::env::var(name).ok().and_then(|text| text.parse().ok())
}

/// What differs, with the shortest sequence that shows it.
fn run_seed(seed: u64, is_faulty: bool) -> Option<String> {
    let steps = generate::sequence(seed);
    let first = differ(&steps, is_faulty)?;
    let steps = shorten(steps, &first, is_faulty);
    let mut text = format!("SIM_SEED={seed} differs (- Apache Kafka, + highwater); shortened to\n");
    for step in &steps {
        let _ = writeln!(text, "  {step:?}");
    }
    match differ(&steps, is_faulty) {
        Some(found) => text.push_str(&found),
        None => text.push_str(&format!("which does not differ every time; at first\n{first}")),
    }
    Some(text)
}

/// Leaves steps out as long as it still differs in the same way: first many at once, then one by one.
fn shorten(mut steps: Vec<Step>, found: &str, is_faulty: bool) -> Vec<Step> {
    let kind = kind(found);
    let mut chunk = steps.len() / 2;
    while chunk > 0 {
        let mut at = 0;
        while at < steps.len() {
            let mut fewer = steps.clone();
            fewer.drain(at..(at + chunk).min(steps.len()));
            if differ(&fewer, is_faulty).is_some_and(|found| self::kind(&found) == kind) {
                steps = fewer;
            } else {
                at += chunk;
            }
        }
        chunk /= 2;
    }
    // Then what is in each.
    let mut at = 0;
    while at < steps.len() {
        let simpler = steps[at].simpler().into_iter().find_map(|step| {
            let mut simpler = steps.clone();
            simpler[at] = step;
            differ(&simpler, is_faulty).is_some_and(|found| self::kind(&found) == kind).then_some(simpler)
        });
        match simpler {
            Some(simpler) => steps = simpler,
            None => at += 1,
        }
    }
    steps
}

/// The lines that differ, without the step that they are of. Of their numbers only errors count: others are of the sequence.
fn kind(found: &str) -> Vec<String> {
    let lines = found.lines().filter(|line| line.starts_with(['-', '+']));
    lines.map(|line| if line.contains("error") { line.to_owned() } else { line.replace(|c: char| c.is_ascii_digit(), "") }).collect()
}

/// Runs a sequence against both; what differs first.
fn differ(steps: &[Step], is_faulty: bool) -> Option<String> {
    run(steps, is_faulty).unwrap_or_else(|error| Some(format!("{error:#}")))
}

fn run(steps: &[Step], is_faulty: bool) -> Result<Option<String>> {
    let (kafka, ours) = brokers().unwrap_or_else(|error| panic!("{error:#}"));
    let prefix = format!("rl{}", RUNS.fetch_add(1, Ordering::Relaxed));
    let mut sides = (World::new(kafka, &prefix, false)?, World::new(ours, &prefix, is_faulty)?);
    let found = run_on(&mut sides, steps);
    sides.0.clean_up()?;
    sides.1.clean_up()?;
    found
}

fn run_on((kafka, ours): &mut (World, World), steps: &[Step]) -> Result<Option<String>> {
    for step in steps.iter().chain(&looks()) {
        let (theirs, our) = (kafka.execute(step), ours.execute(step));
        if let Some(found) = differences(&kafka.side.take_steps(), &ours.side.take_steps()).into_iter().next() {
            return Ok(Some(found.replacen(&format!("{step:?}"), &step.name(), 1)));
        }
        match (theirs, our) {
            (Ok(()), Ok(())) => {}
            (theirs, our) => return Ok(Some(format!("=== {step:?}\n- {theirs:?}\n+ {our:?}"))),
        }
    }
    Ok(None)
}

/// What a sequence ends with: all that its topics have, and all that is known of its producers.
fn looks() -> Vec<Step> {
    let partitions = 0..3;
    let offsets = |time, isolation| {
        let of = (0..TOPICS).map(|slot| (At::Slot(slot), partitions.clone().map(|partition| (partition, time, -1)).collect())).collect();
        Step::ListOffsets { version: 9, isolation, of }
    };
    let producers = (0..TOPICS).map(|slot| (At::Slot(slot), partitions.clone().collect())).collect();
    let all = |isolation| {
        let each = (0..TOPICS).flat_map(|topic| (0..3).map(move |partition| (topic, partition)));
        each.map(move |(topic, partition)| Step::ReadAll { topic, partition, isolation })
    };
    let mut looks: Vec<Step> = all(0).chain(all(1)).collect();
    looks.extend([
        offsets(-2, 0),
        offsets(-1, 0),
        offsets(-1, 1),
        offsets(-3, 0),
        Step::Producers { of: producers },
        Step::Transactions { slots: (0..PRODUCERS).collect() },
        Step::CommittedOffsets { version: 8, stable: false },
        Step::CommittedOffsets { version: 8, stable: true },
    ]);
    looks
}
