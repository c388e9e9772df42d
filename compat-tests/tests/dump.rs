//! Directories that Apache Kafka 4.4 wrote open here: every record of every codec, headers, nulls, transactions, in several segments,
//! reads back as Kafka itself showed it, and what is appended then is accepted by Kafka's own tool.
#![allow(clippy::disallowed_methods, reason = "it waits for a process's end")]

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use anyhow::{Context, Result, bail, ensure};
use compat_tests::process::run;
use compat_tests::{ApacheKafka, Broker, dump_log, programs};
use tempfile::TempDir;

const TOPICS: &[&str] = &["codecs", "transactions.committed_and-aborted", "append-time", "recompressed"];
const WAIT: Duration = Duration::from_secs(90);

/// Small segments (1 MB is the least that Kafka 4 allows), and no retention: the records' timestamps are of long ago.
const KAFKA_OPTIONS: &[(&str, &str)] =
    &[("log.segment.bytes", "1048576"), ("log.retention.ms", "-1"), ("transaction.state.log.num.partitions", "2")];
const OUR_OPTIONS: &[(&str, &str)] = &[("node.id", "1"), ("log.segment.bytes", "1048576"), ("log.retention.ms", "-1")];

#[test]
fn a_directory_that_apache_kafka_closed_reads_back_record_for_record() -> Result<()> {
    let kafka = ApacheKafka::start_with(KAFKA_OPTIONS)?;
    let shown = write(&kafka)?;
    let (data, _directory) = kafka.stop()?;
    opens_here(&data, &shown)
}

#[test]
fn a_directory_of_a_killed_apache_kafka_reads_back_record_for_record() -> Result<()> {
    let kafka = ApacheKafka::start_with(KAFKA_OPTIONS)?;
    let shown = write(&kafka)?;
    let copied = TempDir::with_prefix("kafka-killed-")?;
    // Nothing is in flight, so a stopped process has the files of a killed one.
    run(Command::new("kill").args(["-STOP", &kafka.pid().to_string()]), &[], WAIT)?;
    let data = copy(&kafka.data(), copied.path())?;
    drop(kafka);
    opens_here(&data, &shown)
}

/// Fills the topics and tells what Kafka itself shows of them.
fn write(kafka: &ApacheKafka) -> Result<Vec<String>> {
    run(&mut programs::kafka_directory("write", &kafka.bootstrap())?, &[], WAIT).context("write by Apache Kafka")?;
    let shown = read(&kafka.bootstrap()).context("read from Apache Kafka")?;
    ensure!(shown.len() > 1_000, "only {} lines", shown.len());
    Ok(shown)
}

fn read(bootstrap: &str) -> Result<Vec<String>> {
    let output = run(&mut programs::kafka_directory("read", bootstrap)?, &[], WAIT)?;
    Ok(String::from_utf8(output.stdout)?.lines().map(str::to_owned).collect())
}

/// Sparse as they are: Kafka's open indexes are 10 MB of nothing each.
fn copy(data: &Path, to: &Path) -> Result<PathBuf> {
    run(Command::new("cp").args(["-a", "--sparse=always"]).arg(data).arg(to), &[], WAIT)?;
    Ok(to.join(data.file_name().context("a directory with a name")?))
}

fn opens_here(data: &Path, shown_by_kafka: &[String]) -> Result<()> {
    let segments = segments_of(data)?;
    ensure!(segments > 15, "{segments} segments are too few to show anything");
    let mut broker = Broker::start_on(data, OUR_OPTIONS).context("open Apache Kafka's directory")?;
    same(shown_by_kafka, &read(&broker.bootstrap())?).context("as it was opened")?;
    run(&mut programs::kafka_directory("append", &broker.bootstrap())?, &[], WAIT).context("append to Kafka's topics")?;
    let appended = read(&broker.bootstrap())?;
    let (before, after) = (records(shown_by_kafka), records(&appended));
    ensure!(before.is_subset(&after), "{} records went when others were appended", before.difference(&after).count());
    ensure!(after.len() > before.len(), "nothing was appended");
    broker.kill()?;
    broker.restart().context("after kill -9")?;
    same(&appended, &read(&broker.bootstrap())?).context("after kill -9")?;
    let status = broker.stop()?;
    ensure!(status.success(), "the stop ended with {status}");
    dump_log::check(data, TOPICS).context("what was appended to Kafka's files")?;
    Ok(())
}

fn segments_of(data: &Path) -> Result<usize> {
    let mut segments = 0;
    for partition in std::fs::read_dir(data)? {
        let partition = partition?.path();
        if partition.is_dir() && !partition.file_name().is_some_and(|name| name.to_string_lossy().starts_with("__")) {
            for file in std::fs::read_dir(partition)? {
                segments += usize::from(file?.path().extension().is_some_and(|suffix| suffix == "log"));
            }
        }
    }
    Ok(segments)
}

fn records(lines: &[String]) -> BTreeSet<&str> {
    lines.iter().map(String::as_str).filter(|line| line.contains(" record ")).collect()
}

fn same(kafka: &[String], ours: &[String]) -> Result<()> {
    let differing = kafka.iter().zip(ours).filter(|(kafka, ours)| kafka != ours);
    let shown: Vec<String> = differing.take(5).map(|(kafka, ours)| format!("  Kafka: {kafka}\n  here:  {ours}")).collect();
    if !shown.is_empty() || kafka.len() != ours.len() {
        bail!("{} lines here, {} of Kafka; the first that differ:\n{}", ours.len(), kafka.len(), shown.join("\n"));
    }
    Ok(())
}
