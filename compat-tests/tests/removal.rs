//! What leaves a log by itself or by an operator's hand, with the real binary: retention on the disk, kafka-delete-records, kafka-configs and
//! kafka-log-dirs of the Maven jars, and what a killed broker remembers of it.
#![allow(clippy::disallowed_methods, reason = "it waits for a broker's clockwork")]

use std::path::Path;
use std::process::Command;
use std::thread::sleep;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use anyhow::{Context, Result, bail, ensure};
use compat_tests::batch::{Batch, Record};
use compat_tests::driver::Client;
use compat_tests::process::run;
use compat_tests::{Broker, Target, console, dump_log, tools};
use kafka_protocol::messages::list_offsets_request::{ListOffsetsPartition, ListOffsetsTopic};
use kafka_protocol::messages::produce_request::{PartitionProduceData, TopicProduceData};
use kafka_protocol::messages::{BrokerId, ListOffsetsRequest, ProduceRequest, TopicName};
use kafka_protocol::protocol::StrBytes;

const WAIT: Duration = Duration::from_secs(60);
const EARLIEST: i64 = -2;
const LATEST: i64 = -1;
const HOUR_MS: i64 = 3_600_000;

fn name(topic: &str) -> TopicName {
    TopicName(StrBytes::from_string(topic.to_owned()))
}

fn offset(target: &mut compat_tests::wire::Client, topic: &str, timestamp: i64) -> Result<i64> {
    let partition = ListOffsetsPartition::default().with_timestamp(timestamp).with_current_leader_epoch(-1);
    let asked = ListOffsetsTopic::default().with_name(name(topic)).with_partitions(vec![partition]);
    let answer = target.ask(5, &ListOffsetsRequest::default().with_replica_id(BrokerId(-1)).with_topics(vec![asked]))?;
    let partition = answer.topics.first().and_then(|topic| topic.partitions.first()).context("no answer")?;
    ensure!(partition.error_code == 0, "error {}", partition.error_code);
    Ok(partition.offset)
}

/// One record of 100 kB a batch, so that about ten fill a segment of 1 MiB.
fn produce(client: &mut compat_tests::wire::Client, topic: &str, timestamp: i64, batches: usize) -> Result<()> {
    let records = Batch::of(timestamp, &[Record::value(&[b'x'; 100_000])]).encode();
    for _ in 0..batches {
        let data = PartitionProduceData::default().with_records(Some(records.clone()));
        let topic_data = TopicProduceData::default().with_name(name(topic)).with_partition_data(vec![data]);
        let request = ProduceRequest::default().with_acks(-1).with_timeout_ms(30_000).with_topic_data(vec![topic_data]);
        let answer = client.ask(9, &request)?;
        let error = answer.responses.iter().flat_map(|topic| &topic.partition_responses).find(|partition| partition.error_code != 0);
        ensure!(error.is_none(), "{error:?}");
    }
    Ok(())
}

fn now_ms() -> Result<i64> {
    Ok(i64::try_from(SystemTime::now().duration_since(UNIX_EPOCH)?.as_millis())?)
}

fn until(what: &str, is: impl Fn() -> Result<bool>) -> Result<()> {
    let deadline = Instant::now() + WAIT;
    while !is()? {
        if Instant::now() > deadline {
            bail!("never: {what}");
        }
        sleep(Duration::from_millis(20));
    }
    Ok(())
}

/// The names of a partition's files that end so.
fn files(dir: &Path, end: &str) -> Result<Vec<String>> {
    let names = std::fs::read_dir(dir)?.map(|entry| Ok(entry?.file_name().to_string_lossy().into_owned()));
    let mut names: Vec<String> = names.collect::<Result<_>>()?;
    names.retain(|name| name.ends_with(end));
    names.sort();
    Ok(names)
}

const OPTIONS: &[(&str, &str)] = &[
    ("log.segment.bytes", "1048576"),
    ("log.retention.ms", "86400000"),
    ("log.retention.check.interval.ms", "50"),
    ("log.initial.task.delay.ms", "0"),
    ("log.segment.delete.delay.ms", "0"),
];

#[test]
fn old_records_go_from_the_disk_and_do_not_come_back() -> Result<()> {
    let mut broker = Broker::start_with(OPTIONS)?;
    Client::Java.create(&broker.bootstrap(), "aged", 1)?;
    Client::Java.create(&broker.bootstrap(), "idle", 1)?;
    let dir = broker.data().join("aged-0");
    let client = || broker.connect();
    let now = now_ms()?;
    produce(&mut client()?, "aged", now - 48 * HOUR_MS, 25)?;
    produce(&mut client()?, "aged", now, 12)?;
    until("the old segments go", || Ok(offset(&mut client()?, "aged", EARLIEST)? >= 20))?;
    ensure!(offset(&mut client()?, "aged", LATEST)? == 37);
    until("their files go", || Ok(files(&dir, ".deleted")?.is_empty()))?;
    // Whatever the last of the old ones shares a segment with stays.
    let start = offset(&mut client()?, "aged", EARLIEST)?;
    ensure!((20..=25).contains(&start), "the log starts at {start}");
    ensure!(files(&dir, ".log")?.first() == Some(&format!("{start:020}.log")), "{:?}", files(&dir, ".log")?);

    // A topic that nobody writes to any more becomes empty, and goes on at its offsets.
    produce(&mut client()?, "idle", now - 48 * HOUR_MS, 3)?;
    until("an idle topic becomes empty", || Ok(offset(&mut client()?, "idle", EARLIEST)? == 3))?;
    for way in ["kill -9", "SIGTERM"] {
        if way == "SIGTERM" {
            broker.stop()?;
        } else {
            broker.kill()?;
        }
        broker.restart()?;
        let mut client = broker.connect()?;
        ensure!(offset(&mut client, "aged", EARLIEST)? == start, "after {way}");
        ensure!((offset(&mut client, "idle", EARLIEST)?, offset(&mut client, "idle", LATEST)?) == (3, 3), "after {way}");
    }
    produce(&mut broker.connect()?, "idle", now, 1)?;
    ensure!(offset(&mut broker.connect()?, "idle", LATEST)? == 4);
    verify(&broker)?;
    broker.stop()?;
    dump_log::check(broker.data(), &["aged", "idle"]).map(drop)
}

/// `highwater verify` finds nothing wrong in what a killed broker and one that stopped leave.
fn verify(broker: &Broker) -> Result<()> {
    let copy = tempfile::TempDir::with_prefix("highwater-verified-")?;
    let data = copy.path().join("data");
    run(Command::new("cp").arg("-a").arg(broker.data()).arg(&data), &[], WAIT)?;
    run(Command::new(tools::highwater()?).arg("verify").arg(&data), &[], WAIT).context("highwater verify").map(drop)
}

#[test]
fn a_topics_size_is_bounded() -> Result<()> {
    let broker = Broker::start_with(OPTIONS)?;
    Client::Java.create(&broker.bootstrap(), "sized", 1)?;
    produce(&mut broker.connect()?, "sized", now_ms()?, 45)?;
    let configs = |args: &[&str]| console::tool("ConfigCommand", &broker.bootstrap(), args);
    configs(&["--alter", "--topic", "sized", "--add-config", "retention.bytes=2000000"])?;
    let size = || -> Result<u64> {
        let names = files(&broker.data().join("sized-0"), ".log")?;
        Ok(names.iter().filter_map(|name| std::fs::metadata(broker.data().join("sized-0").join(name)).ok()).map(|file| file.len()).sum())
    };
    // Never less than the bound, and less than a segment more.
    until("it shrinks", || Ok(size()? < 2_000_000 + 1_048_576))?;
    ensure!(size()? >= 2_000_000, "{} bytes are left", size()?);
    Ok(())
}

#[test]
fn deleted_records_stay_deleted_when_the_broker_is_killed_right_after() -> Result<()> {
    let mut broker = Broker::start()?;
    Client::Java.create(&broker.bootstrap(), "purged", 1)?;
    produce(&mut broker.connect()?, "purged", now_ms()?, 5)?;
    let file = broker.data().join("offsets.json");
    for before in [2, 4, -1] {
        std::fs::write(&file, delete_below("purged", before))?;
        let said = console::tool("DeleteRecordsCommand", &broker.bootstrap(), &["--offset-json-file", &file.display().to_string()])?;
        let expected = if before < 0 { 5 } else { before };
        ensure!(said.contains(&format!("partition: purged-0\tlow_watermark: {expected}")), "it said\n{said}");
        broker.kill()?;
        broker.restart()?;
        ensure!(offset(&mut broker.connect()?, "purged", EARLIEST)? == expected);
        verify(&broker)?;
    }
    produce(&mut broker.connect()?, "purged", now_ms()?, 1)?;
    ensure!(offset(&mut broker.connect()?, "purged", LATEST)? == 6);
    Ok(())
}

fn delete_below(topic: &str, offset: i64) -> String {
    format!(r#"{{"partitions": [{{"topic": "{topic}", "partition": 0, "offset": {offset}}}], "version": 1}}"#)
}

/// kafka-configs changes a topic, kafka-log-dirs tells its size, kafka-delete-records refuses what Kafka refuses.
#[test]
fn the_administrators_tools() {
    Target::with(the_administrators_tools_on);
}

fn the_administrators_tools_on(target: &Target) -> Result<()> {
    let bootstrap = target.bootstrap();
    let configs = |args: &[&str]| console::tool("ConfigCommand", &bootstrap, args);
    console::topics(&bootstrap, &["--create", "--topic", "managed", "--partitions", "1", "--config", "flush.ms=9"])?;
    let altered = configs(&["--alter", "--topic", "managed", "--add-config", "retention.ms=1000,cleanup.policy=[compact,delete]"])?;
    ensure!(altered.contains("Completed updating config for topic managed."), "--alter said\n{altered}");
    let described = configs(&["--describe", "--topic", "managed"])?;
    for expected in ["retention.ms=1000", "cleanup.policy=compact,delete", "flush.ms=9"] {
        ensure!(described.contains(expected), "no {expected} in\n{described}");
    }
    configs(&["--alter", "--topic", "managed", "--delete-config", "retention.ms,flush.ms"])?;
    let described = configs(&["--describe", "--topic", "managed"])?;
    ensure!(!described.contains("retention.ms=1000") && !described.contains("flush.ms=9"), "after --delete-config:\n{described}");
    let refused = format!("{:#}", configs(&["--alter", "--topic", "managed", "--add-config", "retention.ms=soon"]).unwrap_err());
    ensure!(refused.contains("Invalid value soon for configuration retention.ms"), "a bad value: {refused}");

    console::topics(&bootstrap, &["--create", "--topic", "managed-size", "--partitions", "2"])?;
    produce(&mut target.connect()?, "managed-size", now_ms()?, 3)?;
    let told = console::tool("LogDirsCommand", &bootstrap, &["--describe", "--topic-list", "managed-size"])?;
    let json: serde_json::Value = serde_json::from_str(told.lines().find(|line| line.starts_with('{')).context("no JSON")?)?;
    let partitions = json["brokers"][0]["logDirs"][0]["partitions"].as_array().context("no partitions")?;
    let size = |of: &str| partitions.iter().find(|one| one["partition"] == of).and_then(|one| one["size"].as_i64());
    ensure!(size("managed-size-1") == Some(0) && size("managed-size-0").is_some_and(|bytes| bytes > 300_000), "{told}");

    let file = std::env::temp_dir().join(format!("offsets-{}.json", std::process::id()));
    std::fs::write(&file, delete_below("managed-size", 9))?;
    let said = console::tool("DeleteRecordsCommand", &bootstrap, &["--offset-json-file", &file.display().to_string()]);
    let said = said.unwrap_or_else(|error| format!("{error:#}"));
    ensure!(said.contains("OffsetOutOfRangeException"), "beyond the high watermark: {said}");
    std::fs::write(&file, delete_below("managed-size", 2))?;
    let said = console::tool("DeleteRecordsCommand", &bootstrap, &["--offset-json-file", &file.display().to_string()])?;
    ensure!(said.contains("partition: managed-size-0\tlow_watermark: 2"), "it said\n{said}");
    std::fs::remove_file(&file)?;
    Ok(())
}
