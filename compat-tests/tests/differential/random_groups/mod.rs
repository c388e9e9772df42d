//! Random scripts for groups: members of both protocols that come, go, lie and wait for each other, said to Apache Kafka and to highwater
//! step by step. After each step all that was answered, and every group as both DescribeGroups tell it, is the same, but for what is
//! written at the place where it is let through.
//!
//! `SIM_SEED=n cargo test -p compat-tests --test differential random_groups` runs one seed (`SIM_TRACE=1` prints what Apache Kafka answers),
//! `SIM_SEEDS=n` that many, from `SIM_FROM` on. A seed that fails is shrunk: requests are left out for as long as the answers still differ.

mod compare;
mod known;
mod plain;
mod play;
mod script;
mod writer;

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, PoisonError};

use anyhow::Result;
use kafka_protocol::messages::FindCoordinatorRequest;
use uuid::Uuid;

use crate::consumer_groups::heard_of;
use crate::groups::coordinated;
use crate::random_groups::compare::{Difference, Outcome, run};
use crate::random_groups::play::Play;
use crate::random_groups::script::{At, PARTITIONS, Step, TOPICS, What};
use crate::requests::text;
use crate::side::{Side, brokers};

/// How many seeds a run of all tests has.
const SEEDS: u64 = 50;
/// How often a script is said whose members' places among each other, which are chance, were not the same on both sides.
const TRIES: usize = 4;

/// How often a difference has to come again, once its script is short, before it counts.
const CONFIRMATIONS: usize = 2;

/// Topics by name, with the ids of one side.
type Topics = Vec<(String, Uuid)>;
/// What is said to highwater instead of a step, for the tests of the test.
type Planted = fn(&mut Step);

fn number(name: &str) -> Option<u64> {
    std::env::var(name).ok().and_then(|text| text.parse().ok())
}

/// Topics that both have, by name and by each one's ids; groups have a coordinator by then.
fn topics() -> Result<(Topics, Topics)> {
    static MADE: Mutex<Option<(Topics, Topics)>> = Mutex::new(None);
    let mut made = MADE.lock().unwrap_or_else(PoisonError::into_inner);
    if let Some(made) = &*made {
        return Ok(made.clone());
    }
    let (kafka, ours) = brokers()?;
    let (mut kafka, mut ours) = (Side::new(kafka)?, Side::new(ours)?);
    let (mut theirs, mut mine) = (Topics::new(), Topics::new());
    // So many that they are in all partitions of the offsets topic.
    for nth in 0..20 {
        coordinated(&mut kafka, &format!("rg-{nth}"))?;
        coordinated(&mut ours, &format!("rg-{nth}"))?;
    }
    for side in [&mut kafka, &mut ours] {
        side.wait_for("transactions have a coordinator", |side| {
            Ok(side.ask(1, &FindCoordinatorRequest::default().with_key(text("rg")).with_key_type(1))?.error_code == 0)
        })?;
    }
    for nth in 0..TOPICS {
        let name = format!("rg-topic-{nth}");
        theirs.push((name.clone(), kafka.topic(&name, PARTITIONS, &[])?));
        mine.push((name.clone(), ours.topic(&name, PARTITIONS, &[])?));
        for side in [&mut kafka, &mut ours] {
            heard_of(side, "rg-scout", &name, PARTITIONS as usize)?;
        }
    }
    Ok(made.insert((theirs, mine)).clone())
}

/// Says a script to both, in groups of its own.
fn say(script: &[Step], planted: Option<Planted>, patience: compare::Patience) -> Result<Outcome> {
    static RUNS: AtomicU64 = AtomicU64::new(0);
    let (kafka, ours) = brokers()?;
    let (theirs, mine) = topics()?;
    // All share the group without a name: one at a time.
    static ALONE: Mutex<()> = Mutex::new(());
    let _alone = ALONE.lock().unwrap_or_else(PoisonError::into_inner);
    let mut outcome = Outcome::Parted("never said");
    for _ in 0..TRIES {
        let prefix = format!("rg-{}", RUNS.fetch_add(1, Ordering::Relaxed));
        let (mut theirs, mut ours) = (Play::new(kafka, prefix.clone(), theirs.clone())?, Play::new(ours, prefix, mine.clone())?);
        theirs.begin()?;
        ours.begin()?;
        outcome = run(script, planted, patience, &mut theirs, &mut ours)?;
        if !matches!(outcome, Outcome::Parted(_)) {
            break;
        }
    }
    Ok(outcome)
}

/// Leaves out what the difference doesn't need.
fn shrink(script: Vec<Step>, found: Difference, planted: Option<Planted>) -> Result<(Vec<Step>, Difference)> {
    let (mut script, mut found) = (script[..=found.at].to_vec(), found);
    let mut size = script.len() / 2;
    while size > 0 {
        let mut from = 0;
        while from < script.len() {
            let mut less = script.clone();
            less.drain(from..(from + size).min(script.len()));
            match say(&less, planted, compare::Patience::Short)? {
                Outcome::Differs(new) if new.kind == found.kind => {
                    less.truncate(new.at + 1);
                    (script, found) = (less, new);
                }
                _ => from += size,
            }
        }
        size /= 2;
    }
    Ok((script, found))
}

fn report(seed: u64, script: &[Step], found: &Difference) -> String {
    let steps: Vec<String> = script.iter().map(|step| format!("  {step:?}")).collect();
    format!("SIM_SEED={seed}: the answers differ (- Apache Kafka, + highwater)\n{}\n{}", steps.join("\n"), found.told)
}

/// Runs one seed.
fn seed(seed: u64, planted: Option<Planted>) -> Result<Became> {
    let script = writer::script_of(seed);
    Ok(match say(&script, planted, compare::Patience::Long)? {
        Outcome::Same => Became::Same,
        Outcome::Parted(why) => Became::Parted(why),
        Outcome::Differs(found) => {
            let (script, found) = shrink(script, found, planted)?;
            let told = report(seed, &script, &found);
            // Apache Kafka assigns beside its requests: what differs once, and not again, told of that.
            for _ in 0..CONFIRMATIONS {
                if !matches!(say(&script, planted, compare::Patience::Long)?, Outcome::Differs(again) if again.kind == found.kind) {
                    eprintln!("not every time: {told}\n");
                    return Ok(Became::Parted("a difference that isn't there every time"));
                }
            }
            Became::Differing(script, told)
        }
    })
}

enum Became {
    Same,
    /// Not all of it was said, and why.
    Parted(&'static str),
    Differing(Vec<Step>, String),
}

#[test]
fn random_groups_are_answered_alike() {
    let seeds = match number("SIM_SEED") {
        Some(seed) => seed..seed + 1,
        None => {
            let first = number("SIM_FROM").unwrap_or(0);
            first..first + number("SIM_SEEDS").unwrap_or(SEEDS)
        }
    };
    let count = seeds.end - seeds.start;
    topics().unwrap_or_else(|error| panic!("{error:#}"));
    let (mut failed, mut whole, mut parted) = (Vec::new(), 0, BTreeMap::<_, u64>::new());
    for nth in seeds {
        match seed(nth, None) {
            Ok(Became::Same) => whole += 1,
            Ok(Became::Parted(why)) => *parted.entry(why).or_default() += 1,
            Ok(Became::Differing(_, told)) => {
                eprintln!("{told}\n");
                failed.push(nth);
            }
            Err(error) => panic!("SIM_SEED={nth}: {error:#}"),
        }
    }
    eprintln!("{count} seeds, {whole} said to their end without a difference; by chance not to their end: {parted:?}");
    assert!(failed.is_empty(), "seeds {failed:?} differ");
    assert!(whole * 2 >= count, "only {whole} of {count} scripts were said to their end");
}

/// A difference is found wherever it is made, and what is left of its script is little.
#[test]
fn planted_differences_are_found() {
    let plants: [(&str, Planted); 2] = [
        ("an offset", |step| {
            if let What::Commit { offsets, .. } = &mut step.what {
                offsets.iter_mut().for_each(|(_, _, offset, _)| *offset = offset.wrapping_add(1).max(0));
            }
        }),
        ("a generation", |step| {
            if let What::Heartbeat { at: At::Mine(more), .. } = &mut step.what {
                *more += 1;
            }
        }),
    ];
    for (what, plant) in plants {
        let found = (0..40).find_map(|nth| match seed(nth, Some(plant)) {
            Ok(Became::Differing(script, told)) => Some((script, told)),
            Ok(Became::Same | Became::Parted(_)) => None,
            Err(error) => panic!("{what}: {error:#}"),
        });
        let (script, told) = found.unwrap_or_else(|| panic!("{what} was not found"));
        assert!(script.len() <= 6, "{what}: {told}");
    }
}
