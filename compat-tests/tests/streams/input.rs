//! The input of the applications, and what they have to make of it: the topologies of `Streams.java` once more, over a list instead of a
//! stream. No outcome depends on the order in which partitions are read.

use std::collections::{BTreeMap, BTreeSet};
use std::time::{SystemTime, UNIX_EPOCH};

use anyhow::{Context, Result, ensure};
use compat_tests::batch::{Batch, Record};
use compat_tests::kcat;
use compat_tests::steady::produce;
use compat_tests::wire::Client;

/// What [`lines_and_pairs`] is for.
pub const TOPICS: [&str; 3] = ["lines", "left", "right"];
/// Of every topic of the applications.
pub const PARTITIONS: usize = 2;
/// `Streams.WINDOW`.
const WINDOW_MS: i64 = 10_000;
/// `Streams.APART`.
const APART_MS: i64 = 5_000;
/// Records of `left` come this far apart, and as many of `right`.
const STEP_MS: i64 = 100;
/// A record may be older than the one before it by about this.
const JITTER_MS: u64 = 2_000;
/// The input is of the last hour, so that no retention takes it.
const AGE_MS: i64 = 15 * 60 * 1_000;
const WORDS: u64 = 23;
const WORDS_PER_LINE: usize = 4;
const KEYS: u64 = 11;

/// One record of the input.
#[derive(Clone, Debug)]
pub struct Given {
    pub topic: &'static str,
    pub timestamp: i64,
    pub value: String,
}

/// A little generator of numbers: the input is the same in each run, its time aside.
pub struct Numbers(u64);

impl Numbers {
    pub fn new(seed: u64) -> Self {
        Self(seed)
    }

    /// Less than `bound`.
    pub fn below(&mut self, bound: u64) -> u64 {
        self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (self.0 >> 33) % bound
    }
}

/// The start of the input's time: a window's start.
pub fn epoch_ms() -> Result<i64> {
    let now = i64::try_from(SystemTime::now().duration_since(UNIX_EPOCH)?.as_millis())?;
    Ok((now - AGE_MS) / WINDOW_MS * WINDOW_MS)
}

/// As many `rounds` of a line, a left and a right record.
pub fn lines_and_pairs(rounds: usize) -> Result<Vec<Given>> {
    let (epoch, mut numbers) = (epoch_ms()?, Numbers::new(7));
    let mut given = Vec::new();
    for (round, at) in (0..rounds).zip((epoch..).step_by(usize::try_from(STEP_MS)?)) {
        let mut timestamp = || at + i64::try_from(numbers.below(JITTER_MS)).unwrap_or(0);
        let times = [timestamp(), timestamp(), timestamp()];
        // Some words are more common than others.
        let words: Vec<String> = (0..WORDS_PER_LINE).map(|_| format!("w{}", numbers.below(WORDS) * numbers.below(WORDS) / WORDS)).collect();
        let mut side = |side: &str| format!("k{}:{side}{round}", numbers.below(KEYS));
        let values = [words.join(" "), side("l"), side("r")];
        given.extend(TOPICS.into_iter().zip(times).zip(values).map(|((topic, timestamp), value)| Given { topic, timestamp, value }));
    }
    Ok(given)
}

/// Writes records without keys, each round to the next partition.
///
/// # Errors
/// If one isn't acknowledged.
pub fn write(client: &mut Client, given: &[Given]) -> Result<()> {
    let mut batches: BTreeMap<(&str, usize), Vec<&Given>> = BTreeMap::new();
    for (number, record) in given.iter().enumerate() {
        batches.entry((record.topic, number / TOPICS.len() % PARTITIONS)).or_default().push(record);
    }
    for ((topic, partition), records) in batches {
        let base = records.first().map_or(0, |record| record.timestamp);
        let delta = |given: &Given| Record { timestamp_delta: given.timestamp - base, ..Record::value(given.value.as_bytes()) };
        let batch = Batch::of(base, &records.into_iter().map(delta).collect::<Vec<_>>());
        let answer = client.ask(9, &produce(topic, i32::try_from(partition)?, batch.encode()))?;
        let told = answer.responses.first().and_then(|topic| topic.partition_responses.first()).context("no partition is answered")?;
        ensure!(told.error_code == 0, "Produce to {topic}-{partition} was answered {}", told.error_code);
    }
    Ok(())
}

/// How often each word was there.
pub fn counts(given: &[Given]) -> BTreeMap<String, usize> {
    let mut counts = BTreeMap::new();
    for word in words(given) {
        *counts.entry(word.1.to_owned()).or_default() += 1;
    }
    counts
}

/// How often each word was there in each window: WORD@START.
pub fn windowed(given: &[Given]) -> BTreeMap<String, usize> {
    let mut counts = BTreeMap::new();
    for (timestamp, word) in words(given) {
        *counts.entry(format!("{word}@{}", window(timestamp))).or_default() += 1;
    }
    counts
}

/// The start of the window that a time is in.
pub fn window(timestamp: i64) -> i64 {
    timestamp / WINDOW_MS * WINDOW_MS
}

fn words(given: &[Given]) -> impl Iterator<Item = (i64, &str)> {
    let lines = given.iter().filter(|record| record.topic == "lines");
    lines.flat_map(|line| line.value.split(' ').map(|word| (line.timestamp, word)))
}

/// The pairs: KEY:LEFT+RIGHT.
pub fn joined(given: &[Given]) -> BTreeSet<String> {
    let side = |side: &'static str| {
        given.iter().filter(move |record| record.topic == side).filter_map(|r| Some((r.timestamp, r.value.split_once(':')?)))
    };
    side("left")
        .flat_map(|(then, (key, left))| {
            side("right")
                .filter(move |(at, (other, _))| *other == key && (at - then).abs() <= APART_MS)
                .map(move |(_, (_, right))| format!("{key}:{left}+{right}"))
        })
        .collect()
}

/// All committed records of an output, as (key, value), in the order of each partition.
///
/// # Errors
/// If kcat fails.
pub fn output(bootstrap: &str, topic: &str) -> Result<Vec<(String, String)>> {
    let text = |bytes: Option<Vec<u8>>| bytes.map_or_else(|| "null".to_owned(), |bytes| String::from_utf8_lossy(&bytes).into_owned());
    let records = kcat::consume(bootstrap, topic)?;
    Ok(records.into_iter().map(|record| (text(record.key), text(record.value))).collect())
}
