//! Many partitions in one broker. How fast they open and what they cost is for `compat-tests/bench/run --partitions`; here they're right.

use anyhow::{Context, Result, ensure};
use bytes::Bytes;
use compat_tests::batch::{Batch, Record};
use compat_tests::steady::{self, Steady, Told};
use compat_tests::wire::Client;
use compat_tests::{Broker, kcat};
use kafka_protocol::messages::produce_request::{PartitionProduceData, TopicProduceData};
use kafka_protocol::messages::{ProduceRequest, TopicName};
use kafka_protocol::protocol::StrBytes;

use crate::verify;

const PARTITIONS: i32 = 800;
const THEN: i64 = 1_700_000_000_000;
/// Every so manieth has records.
const EVERY: i32 = 40;
/// Descriptors besides those of partitions in use: sockets, the runtime's, standard streams.
const FILES_BESIDES: usize = 100;

#[test]
fn many_partitions_open_right_after_any_end_and_hold_few_files() -> Result<()> {
    let mut broker = Broker::start()?;
    ensure!(steady::create(&mut broker.connect()?, "many", PARTITIONS, &[])? == 0);
    let mut producers =
        (0..PARTITIONS).step_by(EVERY as usize).map(|i| Steady::new(broker.kafka(), "many", i)).collect::<Result<Vec<_>>>()?;
    for end in ["a clean stop", "kill -9", "kill -9", "a clean stop"] {
        for producer in &mut producers {
            ensure!(matches!(producer.send(500)?, Told::Acknowledged(_)));
        }
        let files = open_files(broker.pid())?;
        ensure!(files < producers.len() + FILES_BESIDES, "{files} files are open");
        if end == "kill -9" {
            broker.kill()?;
        } else {
            ensure!(broker.stop()?.success());
        }
        let said = verify(broker.data())?;
        ensure!(said.contains(&format!("{PARTITIONS} partitions, ")) && said.contains(" 0 wrong"), "{said}");
        broker.restart()?;
        let files = open_files(broker.pid())?;
        ensure!(files < FILES_BESIDES, "{files} files are open after {end}");
        producers.iter().try_for_each(Steady::verify).with_context(|| format!("after {end}"))?;
        let empty = steady::read(&mut broker.connect()?, "many", PARTITIONS - 1)?;
        ensure!(empty.is_empty(), "{} records in a partition that got none", empty.len());
        // The connection went with the process.
        for producer in &mut producers {
            let _ = producer.send(500)?;
        }
    }
    Ok(())
}

/// Half of what `ulimit -n` allows is for segments, and there are far more partitions than that, each with records of its own in two segments.
#[test]
fn more_partitions_in_use_than_files_may_be_open_are_all_served() -> Result<()> {
    const OPEN_FILES_MAX: u32 = 128;
    const BUSY: i32 = 400;
    let mut broker = Broker::start_with_few_files(OPEN_FILES_MAX, &[])?;
    ensure!(steady::create(&mut broker.connect()?, "busy", BUSY, &[("segment.bytes", "1048576")])? == 0);
    let (mut few, mut acknowledged) = (broker.connect()?, 0_usize);
    // Large batches are sent from their files, small ones are copied.
    for (round, bytes) in [600_000, 100, 600_000, 100].into_iter().enumerate() {
        for partition in 0..BUSY {
            let value = format!("{round} {partition} {}", "x".repeat(if partition % 8 == 0 { bytes } else { 100 }));
            let record = Record { key: None, value: Some(value.into_bytes()), ..Record::default() };
            let code = produce(&mut few, "busy", partition, Batch::of(THEN, &[record]).encode())?;
            ensure!(code == 0, "partition {partition} refused with {code}");
            acknowledged += 1;
        }
        let files = open_files(broker.pid())?;
        ensure!(files <= OPEN_FILES_MAX as usize, "{files} files are open");
    }
    // One consumer of all partitions: an answer may name hundreds.
    for end in ["as it runs", "after a clean stop", "after kill -9"] {
        match end {
            "after a clean stop" => ensure!(broker.stop()?.success()),
            "after kill -9" => broker.kill()?,
            _ => {}
        }
        if end != "as it runs" {
            broker.restart()?;
        }
        let seen = kcat::consume(&broker.bootstrap(), "busy")?;
        ensure!(seen.len() == acknowledged, "{} records of {acknowledged} {end}", seen.len());
        for partition in 0..BUSY {
            let rounds = seen.iter().filter(|record| record.partition == partition).filter_map(|record| record.value.as_ref()?.first());
            ensure!(rounds.copied().collect::<Vec<_>>() == b"0123", "partition {partition} {end}");
        }
    }
    let log = broker.log()?;
    ensure!(!log.contains("Too many open files"), "{log}");
    Ok(())
}

fn produce(client: &mut Client, topic: &'static str, partition: i32, batch: Bytes) -> Result<i16> {
    let data = PartitionProduceData::default().with_index(partition).with_records(Some(batch));
    let topic = TopicProduceData::default().with_name(TopicName(StrBytes::from_static_str(topic))).with_partition_data(vec![data]);
    let request = ProduceRequest::default().with_acks(-1).with_timeout_ms(30_000).with_topic_data(vec![topic]);
    let answer = client.ask(9, &request)?;
    let partition = answer.responses.first().and_then(|topic| topic.partition_responses.first()).context("an answer")?;
    Ok(partition.error_code)
}

fn open_files(pid: u32) -> Result<usize> {
    Ok(std::fs::read_dir(format!("/proc/{pid}/fd")).context("count open files")?.count())
}
