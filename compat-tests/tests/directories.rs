//! Data directories that are lost, swapped, taken over or full of other things: nothing acknowledged is passed off as something else.

use std::{fs, net::SocketAddr, path::Path, time::Duration};

use anyhow::{Context, Result, ensure};
use compat_tests::batch::Batch;
use compat_tests::driver::Client;
use compat_tests::process::run_any;
use compat_tests::{Broker, tools};
use kafka_protocol::messages::produce_request::{PartitionProduceData, TopicProduceData};
use kafka_protocol::messages::{FetchRequest, InitProducerIdRequest, ProduceRequest, TopicName, fetch_request};
use kafka_protocol::protocol::StrBytes;
use tempfile::TempDir;

const STORAGE_ERROR: i16 = 56;

#[test]
fn a_directory_that_is_lost_is_not_replaced_by_an_empty_one() -> Result<()> {
    let temp = TempDir::with_prefix("highwater-dirs-")?;
    let (a, b, away) = (temp.path().join("a"), temp.path().join("b"), temp.path().join("away"));
    let both = format!("{},{}", a.display(), b.display());
    let mut broker = Broker::start_with(&[("log.dirs", &both)])?;
    Client::Java.create(&broker.bootstrap(), "t", 4)?;
    let offsets: Vec<i64> = (0..4).map(|partition| append(&broker, "t", partition, None)).collect::<Result<_>>()?;
    ensure!(offsets == [0; 4]);
    ensure!(broker.stop()?.success());
    fs::rename(&b, &away)?;
    broker.restart()?;
    ensure!(broker.log()?.contains("stays offline"), "it doesn't say what is missing");
    let answers: Vec<i16> = (0..4).map(|partition| produce(&broker, "t", partition, None).map(|(code, _)| code)).collect::<Result<_>>()?;
    ensure!(answers.iter().filter(|code| **code == STORAGE_ERROR).count() == 2, "{answers:?}");
    ensure!(answers.iter().filter(|code| **code == 0).count() == 2, "{answers:?}");
    ensure!(broker.stop()?.success());
    fs::remove_dir_all(&b)?;
    fs::rename(&away, &b)?;
    broker.restart()?;
    let offsets: Vec<i64> = (0..4).map(|partition| append(&broker, "t", partition, None)).collect::<Result<_>>()?;
    ensure!(offsets.iter().sum::<i64>() == 6, "what was lost and what went on: {offsets:?}");
    Ok(())
}

#[test]
fn the_metadata_is_looked_for_where_it_is() -> Result<()> {
    let temp = TempDir::with_prefix("highwater-dirs-")?;
    let (a, b) = (temp.path().join("a").display().to_string(), temp.path().join("b").display().to_string());
    let mut broker = Broker::start_with(&[("log.dirs", &format!("{a},{b}"))])?;
    Client::Java.create(&broker.bootstrap(), "t", 2)?;
    ensure!(broker.stop()?.success());
    let mut command = std::process::Command::new(tools::highwater()?);
    command.args(["serve", "-o", "listeners=PLAINTEXT://127.0.0.1:0", "-o", "http.listeners=", "-o", &format!("log.dirs={b},{a}")]);
    let refused = run_any(&mut command, &[], Duration::from_secs(30))?;
    let said = String::from_utf8_lossy(&refused.stderr).into_owned();
    ensure!(!refused.status.success() && said.contains("set metadata.log.dir to that directory"), "it said\n{said}");
    broker.restart_with(&[("log.dirs", &format!("{b},{a}")), ("metadata.log.dir", &a)])?;
    ensure!(append(&broker, "t", 1, None)? == 0);
    Ok(())
}

#[test]
fn producer_ids_of_a_directory_that_is_taken_over_are_not_given_out_again() -> Result<()> {
    let mut broker = Broker::start()?;
    Client::Java.create(&broker.bootstrap(), "t", 1)?;
    let old = producer_id(&broker)?;
    ensure!(append(&broker, "t", 0, Some(old))? == 0);
    for way in ["a clean stop", "a kill"] {
        if way == "a kill" {
            broker.kill()?
        } else {
            _ = broker.stop()?
        }
        for file in ["highwater-metadata.journal", "highwater-metadata.snapshot"] {
            let _ = fs::remove_file(broker.data().join(file));
        }
        broker.restart()?;
        let new = producer_id(&broker)?;
        ensure!(new > old, "after {way}: {new} after {old}");
        let offset = append(&broker, "t", 0, Some(new))?;
        ensure!(offset > 0, "after {way}: acknowledged as the old producer's batch");
    }
    Ok(())
}

#[test]
fn a_directory_that_only_looks_like_a_partition_is_left_alone() -> Result<()> {
    let mut broker = Broker::start()?;
    Client::Java.create(&broker.bootstrap(), "t", 1)?;
    ensure!(broker.stop()?.success());
    let notes = broker.data().join("backup-2024");
    fs::create_dir(&notes)?;
    fs::write(notes.join("notes.txt"), "mine")?;
    broker.restart()?;
    ensure!(broker.log()?.contains("it has no log; left alone"));
    ensure!(entries(&notes)? == ["notes.txt"], "it was written into");
    ensure!(produce(&broker, "backup", 2024, None)?.0 == 3, "it became a topic");
    Ok(())
}

#[test]
fn a_reader_that_never_reads_does_not_spoil_a_clean_stop() -> Result<()> {
    let mut broker = Broker::start()?;
    Client::Java.create(&broker.bootstrap(), "t", 1)?;
    for _ in 0..20 {
        append_bytes(&broker, "t", 900_000)?;
    }
    let mut reader = broker.connect()?;
    let partition = fetch_request::FetchPartition::default().with_partition_max_bytes(50 << 20);
    let topic = fetch_request::FetchTopic::default().with_topic(name("t")).with_partitions(vec![partition]);
    reader.send(11, &FetchRequest::default().with_max_bytes(50 << 20).with_topics(vec![topic]))?;
    // Another client's answer comes after the reader's was begun.
    append_bytes(&broker, "t", 10)?;
    let status = broker.stop()?;
    ensure!(status.success(), "it ended with {status}: {}", broker.log()?);
    broker.restart()?;
    ensure!(!broker.log()?.contains("checking"), "the stop was not clean");
    drop(reader);
    Ok(())
}

fn entries(dir: &Path) -> Result<Vec<String>> {
    fs::read_dir(dir)?.map(|entry| Ok(entry?.file_name().to_string_lossy().into_owned())).collect()
}

fn name(topic: &str) -> TopicName {
    TopicName(StrBytes::from_string(topic.to_owned()))
}

fn producer_id(broker: &Broker) -> Result<i64> {
    let answer =
        broker.connect()?.ask(4, &InitProducerIdRequest::default().with_transactional_id(None).with_transaction_timeout_ms(60_000))?;
    ensure!(answer.error_code == 0, "InitProducerId was answered {}", answer.error_code);
    Ok(answer.producer_id.0)
}

/// A batch of one record; the error code and the base offset.
fn produce(broker: &Broker, topic: &str, partition: i32, producer: Option<i64>) -> Result<(i16, i64)> {
    let batch = Batch::of_values(now_ms(), &[b"v"]);
    let batch = producer.into_iter().fold(batch, |batch, id| batch.from_producer(id, 0, 0));
    send(broker.kafka(), topic, partition, &batch)
}

/// The state of producers whose batches are old is forgotten: these are of today.
fn now_ms() -> i64 {
    std::time::UNIX_EPOCH.elapsed().map_or(0, |since| i64::try_from(since.as_millis()).unwrap_or(i64::MAX))
}

fn append(broker: &Broker, topic: &str, partition: i32, producer: Option<i64>) -> Result<i64> {
    let (code, offset) = produce(broker, topic, partition, producer)?;
    ensure!(code == 0, "{topic}-{partition} was answered {code}");
    Ok(offset)
}

fn append_bytes(broker: &Broker, topic: &str, bytes: usize) -> Result<()> {
    let (code, _) = send(broker.kafka(), topic, 0, &Batch::of_values(now_ms(), &[&vec![b'x'; bytes]]))?;
    ensure!(code == 0, "{bytes} bytes were answered {code}");
    Ok(())
}

fn send(address: SocketAddr, topic: &str, partition: i32, batch: &Batch) -> Result<(i16, i64)> {
    let data = PartitionProduceData::default().with_index(partition).with_records(Some(batch.encode()));
    let topic = TopicProduceData::default().with_name(name(topic)).with_partition_data(vec![data]);
    let request = ProduceRequest::default().with_acks(-1).with_timeout_ms(10_000).with_topic_data(vec![topic]);
    let answer = compat_tests::wire::Client::connect(address)?.ask(9, &request)?;
    let partition = answer.responses.first().and_then(|topic| topic.partition_responses.first()).context("an answer")?;
    Ok((partition.error_code, partition.base_offset))
}
