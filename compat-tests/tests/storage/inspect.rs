//! `highwater dump-log` and `highwater verify` on directories that real runs left, Apache Kafka's and ours: line for line what Apache Kafka's
//! own tool prints, nothing wrong where nothing is, and a planted fault found where it is.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result, bail, ensure};
use compat_tests::process::{run, run_any};
use compat_tests::steady::{self, Steady};
use compat_tests::{ApacheKafka, Broker, dump_log, programs, tools};

use crate::{WAIT, files, verify, verify_any};

const SUFFIXES: &[&str] = &[".log", ".index", ".timeindex", ".txnindex", ".snapshot"];
const KAFKA_OPTIONS: &[(&str, &str)] =
    &[("log.segment.bytes", "1048576"), ("log.retention.ms", "-1"), ("transaction.state.log.num.partitions", "2")];

#[test]
fn a_directory_of_apache_kafka_is_sound_and_dumped_as_its_own_tool_does() -> Result<()> {
    let kafka = ApacheKafka::start_with(KAFKA_OPTIONS)?;
    run(&mut programs::kafka_directory("write", &kafka.bootstrap())?, &[], WAIT * 2).context("write by Apache Kafka")?;
    let (data, _directory) = kafka.stop()?;
    let said = verify(&data)?;
    ensure!(said.contains("stopped cleanly; 0 wrong"), "{said}");
    let lines = same_lines(&all_files(&data)?)?;
    ensure!(lines > 2_000, "{lines} lines are too few to show anything");
    Ok(())
}

#[test]
fn our_directory_is_sound_and_dumped_as_apache_kafka_does() -> Result<()> {
    let mut broker = Broker::start_with(&[("log.segment.bytes", "1048576"), ("log.retention.ms", "-1")])?;
    ensure!(steady::create(&mut broker.connect()?, "t", 1, &[("index.interval.bytes", "1000")])? == 0);
    let mut producer = Steady::new(broker.kafka(), "t", 0)?;
    (0..120).try_for_each(|_| producer.send(30_000).map(drop))?;
    broker.kill()?;
    let said = verify(broker.data())?;
    ensure!(said.contains("not stopped cleanly; 0 wrong"), "{said}");
    broker.restart()?;
    let (code, said) = verify_any(broker.data())?;
    ensure!(code == Some(1) && said.contains("in use by another process"), "a directory in use: {code:?}\n{said}");
    // The connection ended with the process.
    (0..3).try_for_each(|_| producer.send(30_000).map(drop))?;
    ensure!(broker.stop()?.success());
    let said = verify(broker.data())?;
    ensure!(said.contains("stopped cleanly; 0 wrong, 0 notes"), "{said}");
    let lines = same_lines(&all_files(broker.data())?)?;
    ensure!(lines > 350, "{lines} lines are too few to show anything");
    faults_are_found(broker.data())
}

/// Plants faults one after the other, each gone again before the next.
fn faults_are_found(data: &Path) -> Result<()> {
    let partition = data.join("t-0");
    for (directory, suffix, at, what) in [
        (data, "highwater-metadata.journal", 40, "highwater-metadata.journal"),
        (&partition, ".log", 200, "its CRC is wrong"),
        (&partition, ".index", 7, "no batch begins there"),
        (&partition, ".timeindex", 7, "largest timestamp is"),
        (&partition, ".snapshot", 8, "CRC"),
        (&partition, "leader-epoch-checkpoint", 4, "was written in epoch"),
    ] {
        let path = files(directory, suffix)?.remove(0);
        let whole = fs::read(&path)?;
        let mut changed = whole.clone();
        *changed.get_mut(at).with_context(|| format!("{} is short", path.display()))? ^= 1;
        fs::write(&path, &changed)?;
        let (code, said) = verify_any(data)?;
        let blamed = |line: &str| line.starts_with("wrong: ") && line.contains(&*path.to_string_lossy()) && line.contains(what);
        let line = said.lines().find(|line| blamed(line));
        ensure!(code == Some(1) && line.is_some(), "{}: exit {code:?}, it said\n{said}", path.display());
        if SUFFIXES.contains(&suffix) {
            let dumped = run_any(Command::new(tools::highwater()?).arg("dump-log").arg(&path), &[], WAIT)?;
            let said = String::from_utf8_lossy(&dumped.stderr).into_owned();
            ensure!(dumped.status.code() == Some(1) && said.contains(what), "dump-log of {}: it said\n{said}", path.display());
        }
        fs::write(&path, &whole)?;
    }
    verify(data).map(drop)
}

fn all_files(data: &Path) -> Result<Vec<PathBuf>> {
    let mut all = Vec::new();
    for partition in fs::read_dir(data)? {
        let partition = partition?.path();
        // Kafka's own topics hold records that its tool prints in their own ways.
        if !partition.is_dir() || partition.file_name().is_some_and(|name| name.to_string_lossy().starts_with("__")) {
            continue;
        }
        for suffix in SUFFIXES {
            all.extend(files(&partition, suffix).unwrap_or_default());
        }
    }
    all.sort();
    Ok(all)
}

/// Compares what both tools print; how many lines that is.
fn same_lines(all: &[PathBuf]) -> Result<usize> {
    let output = run(Command::new(tools::highwater()?).args(["dump-log", "--print-data-log"]).args(all), &[], WAIT).context("dump-log")?;
    let (ours, theirs) = (String::from_utf8_lossy(&output.stdout).into_owned(), dump_log::print(all)?);
    // It says of an index without entries that it's empty.
    let theirs: Vec<&str> = theirs.lines().filter(|line| !line.ends_with(" is empty.")).collect();
    let ours: Vec<&str> = ours.lines().collect();
    // Values that aren't text: Java and Rust don't agree on how many bytes one replacement character stands for.
    let text = |line: &str| line.trim_end().replace(char::REPLACEMENT_CHARACTER, "");
    let differing = theirs.iter().zip(&ours).position(|(theirs, ours)| text(theirs) != text(ours));
    if let Some(at) = differing {
        bail!("line {at} differs:\n  Kafka: {}\n  here:  {}", theirs[at], ours[at]);
    }
    ensure!(theirs.len() == ours.len(), "{} lines here, {} of Apache Kafka's tool", ours.len(), theirs.len());
    Ok(ours.len())
}
