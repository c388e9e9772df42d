//! Compacted topics as their users meet them: the last value of each key is Apache Kafka's on the same input, Kafka's own tool accepts the
//! files, real clients read over the gaps, sequences survive, and a kill at any moment loses or changes no key.
#![allow(clippy::disallowed_methods, reason = "it waits for programs")]

use std::collections::{BTreeMap, BTreeSet};
use std::net::SocketAddr;
use std::path::Path;
use std::thread;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use anyhow::{Context, Result, bail, ensure};
use bytes::Bytes;
use compat_tests::batch::{Batch, Record};
use compat_tests::corpus::Received;
use compat_tests::wire::Client;
use compat_tests::{ApacheKafka, Broker, dump_log, http, kcat};
use kafka_protocol::messages::create_topics_request::{CreatableTopic, CreatableTopicConfig};
use kafka_protocol::messages::produce_request::{PartitionProduceData, TopicProduceData};
use kafka_protocol::messages::{CreateTopicsRequest, InitProducerIdRequest, ProduceRequest, TopicName};
use kafka_protocol::protocol::StrBytes;

const TOPIC: &str = "compacted";
const WAIT: Duration = Duration::from_secs(90);
const OUT_OF_ORDER_SEQUENCE_NUMBER: i16 = 45;
const BATCH: usize = 500;

type Latest = BTreeMap<Vec<u8>, Vec<u8>>;

#[test]
fn the_last_value_of_each_key_is_the_one_that_apache_kafka_has() -> Result<()> {
    const UPDATES: u64 = 1_000_000;
    const KEYS: u64 = 5_000;
    let options = [("log.cleaner.backoff.ms", "100"), ("log.retention.ms", "-1")];
    let mut ours = Broker::start_with(&options)?;
    let kafka = ApacheKafka::start_with(&options)?;
    let (mut to_us, mut to_kafka) = (Updates::new(ours.kafka(), 4 << 20)?, Updates::new(kafka.kafka(), 4 << 20)?);
    let (mut expected, mut seed) = (Latest::new(), 1);
    for first in (0..UPDATES).step_by(BATCH) {
        let records = random_updates(&mut seed, first, KEYS);
        let batch = encode(&records);
        ensure!(to_us.send(batch.clone())? == 0 && to_kafka.send(batch)? == 0, "refused");
        apply(&mut expected, &records);
    }
    for data in [ours.data(), &kafka.data()] {
        wait_until_small(data, 14 << 20).with_context(|| format!("{}: never compacted", data.display()))?;
    }
    let (seen, theirs) = (kcat::consume(&ours.bootstrap(), TOPIC)?, kcat::consume(&kafka.bootstrap(), TOPIC)?);
    ensure!(latest(&seen)? == expected, "the last values are not what was written");
    ensure!(latest(&theirs)? == latest(&seen)?, "the last values are not Apache Kafka's");
    ensure!(seen.len() < 200_000, "{} records are left of {UPDATES}", seen.len());
    let last = |all: &[Received]| all.last().map(|r| r.offset);
    ensure!(last(&seen) == last(&theirs) && last(&seen) == Some(i64::try_from(UPDATES)?), "offsets moved: {:?}", last(&seen));
    let metrics = http::get(ours.http().context("HTTP is on")?, "/metrics")?.body;
    ensure!(!metrics.contains("highwater_compactions_total 0\n") && metrics.contains("highwater_compactions_total "), "{metrics}");
    ensure!(ours.stop()?.success());
    dump_log::check_compacted(ours.data(), &[TOPIC])?;
    ours.restart()?;
    ensure!(latest(&kcat::consume(&ours.bootstrap(), TOPIC)?)? == expected, "a restart changed it");
    Ok(())
}

#[test]
fn a_producers_sequences_survive_the_compaction_of_its_records() -> Result<()> {
    let mut broker = Broker::start_with(&[("log.cleaner.backoff.ms", "50")])?;
    let mut updates = Updates::new(broker.kafka(), 1 << 20)?;
    let made = updates.client.ask(
        4,
        &InitProducerIdRequest::default()
            .with_transactional_id(None)
            .with_transaction_timeout_ms(60_000)
            .with_producer_id((-1).into())
            .with_producer_epoch(-1),
    )?;
    ensure!(made.error_code == 0);
    let (id, epoch) = (made.producer_id.0, made.producer_epoch);
    let record = |value: &str| Record { key: Some(b"key".to_vec()), value: Some(value.as_bytes().to_vec()), ..Record::default() };
    let batch = |sequence| Batch::of(now(), &[record("a"), record("b")]).from_producer(id, epoch, sequence).encode();
    ensure!(updates.send(batch(0))? == 0 && updates.send(batch(2))? == 0);
    // Another producer's values of the same key follow, so that no record of the first one is left.
    let filler = Record { value: Some(vec![b'x'; 1_000]), ..record("") };
    for _ in 0..10 {
        ensure!(updates.send(Batch::of(now(), &vec![filler.clone(); 250]).encode())? == 0);
    }
    wait_until_small(broker.data(), 1_200_000)?;
    let left = kcat::consume(&broker.bootstrap(), TOPIC)?;
    ensure!(!left.iter().any(|record| (1..=4).contains(&record.offset)), "its records are there still");
    for how in ["as it runs", "after kill -9", "after kill -9 without snapshots"] {
        if how != "as it runs" {
            broker.kill()?;
            if how.ends_with("snapshots") {
                remove_producer_state(broker.data())?;
            }
            broker.restart()?;
            updates.client = broker.connect()?;
        }
        ensure!(updates.send(batch(7))? == OUT_OF_ORDER_SEQUENCE_NUMBER, "a gap in its sequences was taken {how}");
        ensure!(updates.send(batch(2))? == 0, "its last batch, sent again, was refused {how}");
    }
    ensure!(updates.send(batch(4))? == 0, "its next batch was refused");
    let after = kcat::consume(&broker.bootstrap(), TOPIC)?;
    ensure!(after.len() == left.len() + 2, "a duplicate was appended");
    ensure!(broker.stop()?.success());
    dump_log::check_compacted(broker.data(), &[TOPIC])?;
    Ok(())
}

/// `HIGHWATER_KILLS` says how often.
#[test]
fn a_kill_at_any_moment_of_a_compaction_loses_or_changes_no_key() -> Result<()> {
    let kills: u64 = std::env::var("HIGHWATER_KILLS").ok().and_then(|text| text.parse().ok()).unwrap_or(12);
    let mut broker = Broker::start_with(&[("log.cleaner.backoff.ms", "0"), ("log.segment.delete.delay.ms", "20")])?;
    let mut updates = Updates::new(broker.kafka(), 1 << 20)?;
    // What was acknowledged, and what was sent when the broker was killed, of which all or nothing is there.
    let (mut acknowledged, mut seed, mut first) = (Latest::new(), 99, 0);
    for kill in 0..kills {
        updates.client = broker.connect()?;
        let until = Instant::now() + Duration::from_millis(120 + kill * 37 % 400);
        let killer = {
            let pid = rustix::process::Pid::from_raw(i32::try_from(broker.pid())?).context("a process id")?;
            thread::spawn(move || {
                thread::sleep(until.saturating_duration_since(Instant::now()));
                rustix::process::kill_process(pid, rustix::process::Signal::KILL)
            })
        };
        let pending = loop {
            let records = random_updates(&mut seed, first, 300);
            let Ok(error) = updates.send(encode(&records)) else { break records };
            ensure!(error == 0, "refused with {error}");
            apply(&mut acknowledged, &records);
            first += BATCH as u64;
        };
        killer.join().map_err(|_| anyhow::anyhow!("the killer panicked"))??;
        broker.kill()?;
        broker.restart().with_context(|| format!("after kill {kill}"))?;
        let seen = latest(&kcat::consume(&broker.bootstrap(), TOPIC)?)?;
        let mut with_pending = acknowledged.clone();
        apply(&mut with_pending, &pending);
        if seen == with_pending {
            acknowledged = with_pending;
            first += BATCH as u64;
        } else {
            ensure!(seen == acknowledged, "kill {kill}: {}", differences(&seen, &acknowledged));
        }
    }
    ensure!(broker.stop()?.success());
    dump_log::check_compacted(broker.data(), &[TOPIC])?;
    Ok(())
}

fn differences(seen: &Latest, due: &Latest) -> String {
    let keys: BTreeSet<_> = seen.keys().chain(due.keys()).collect();
    let wrong = keys.into_iter().filter(|key| seen.get(*key) != due.get(*key)).take(5);
    let text = |value: Option<&Vec<u8>>| value.map(|value| String::from_utf8_lossy(value).chars().take(30).collect::<String>());
    wrong.map(|key| format!("{}: {:?}, not {:?}\n", String::from_utf8_lossy(key), text(seen.get(key)), text(due.get(key)))).collect()
}

/// A connection, and the compacted topic that it writes to.
struct Updates {
    client: Client,
}

impl Updates {
    fn new(address: SocketAddr, segment_bytes: usize) -> Result<Self> {
        let mut client = Client::connect(address)?;
        let text = |text: &str| StrBytes::from_string(text.to_owned());
        let config = |name, value: &str| CreatableTopicConfig::default().with_name(text(name)).with_value(Some(text(value)));
        let topic = CreatableTopic::default().with_name(TopicName(text(TOPIC))).with_num_partitions(1).with_replication_factor(1);
        let configs = vec![
            config("cleanup.policy", "compact"),
            config("min.cleanable.dirty.ratio", "0.01"),
            config("segment.bytes", &segment_bytes.to_string()),
        ];
        let request = CreateTopicsRequest::default().with_topics(vec![topic.with_configs(configs)]).with_timeout_ms(30_000);
        let answer = client.ask(7, &request)?;
        ensure!(answer.topics.iter().all(|topic| topic.error_code == 0), "{answer:?}");
        let mut updates = Self { client };
        // Apache Kafka says that it made a topic before it has it.
        let begun = Instant::now();
        let probe = Record { key: Some(b"probe".to_vec()), value: None, ..Record::default() };
        while updates.send(Batch::of(now(), std::slice::from_ref(&probe)).encode())? != 0 {
            ensure!(begun.elapsed() < WAIT, "the topic never comes");
            thread::sleep(Duration::from_millis(50));
        }
        Ok(updates)
    }

    /// Produces a batch with acks=all; the error code.
    fn send(&mut self, batch: Bytes) -> Result<i16> {
        let data = PartitionProduceData::default().with_index(0).with_records(Some(batch));
        let topic = TopicProduceData::default().with_name(TopicName(StrBytes::from_static_str(TOPIC))).with_partition_data(vec![data]);
        let request = ProduceRequest::default().with_acks(-1).with_timeout_ms(30_000).with_topic_data(vec![topic]);
        let answer = self.client.ask(9, &request)?;
        let partition = answer.responses.first().and_then(|topic| topic.partition_responses.first()).context("an answer")?;
        Ok(partition.error_code)
    }
}

fn now() -> i64 {
    SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |since| i64::try_from(since.as_millis()).unwrap_or(0))
}

/// Updates of random keys, one in 20 a tombstone.
fn random_updates(seed: &mut u64, first: u64, keys: u64) -> Vec<Record> {
    let mut random = || {
        *seed = seed.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        *seed >> 33
    };
    let mut update = |number: u64| {
        let key = format!("key-{}", random() % keys).into_bytes();
        let value = (random() % 20 != 0).then(|| format!("value-{number}-{}", "x".repeat(80)).into_bytes());
        Record { key: Some(key), value, ..Record::default() }
    };
    (first..first + BATCH as u64).map(&mut update).collect()
}

fn encode(records: &[Record]) -> Bytes {
    Batch::of(now(), records).encode()
}

fn apply(latest: &mut Latest, records: &[Record]) {
    for record in records {
        let key = record.key.clone().unwrap_or_default();
        match &record.value {
            Some(value) => latest.insert(key, value.clone()),
            None => latest.remove(&key),
        };
    }
}

fn latest(records: &[Received]) -> Result<Latest> {
    let mut latest = Latest::new();
    let mut last = -1;
    for record in records {
        ensure!(record.offset > last, "offset {} comes after {last}", record.offset);
        last = record.offset;
        let key = record.key.clone().context("a record without a key")?;
        match &record.value {
            Some(value) => latest.insert(key, value.clone()),
            None => latest.remove(&key),
        };
    }
    Ok(latest)
}

/// Waits until the topic's segments have so few bytes.
fn wait_until_small(data: &Path, bytes: u64) -> Result<()> {
    let begun = Instant::now();
    loop {
        let mut size = 0;
        for entry in std::fs::read_dir(data.join(format!("{TOPIC}-0")))? {
            let entry = entry?;
            if entry.path().extension().is_some_and(|suffix| suffix == "log") {
                // It may go meanwhile.
                size += entry.metadata().map_or(0, |metadata| metadata.len());
            }
        }
        if size <= bytes {
            return Ok(());
        }
        if begun.elapsed() > WAIT {
            bail!("{size} bytes after {WAIT:?}");
        }
        thread::sleep(Duration::from_millis(50));
    }
}

/// What is known of producers comes from the batches alone then.
fn remove_producer_state(data: &Path) -> Result<()> {
    for entry in std::fs::read_dir(data.join(format!("{TOPIC}-0")))? {
        let path = entry?.path();
        if path.extension().is_some_and(|suffix| suffix == "snapshot") {
            std::fs::remove_file(path)?;
        }
    }
    let points = data.join("recovery-point-offset-checkpoint");
    if points.exists() {
        std::fs::remove_file(points)?;
    }
    Ok(())
}
