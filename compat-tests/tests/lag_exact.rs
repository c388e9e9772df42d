//! The lag against a client that reads every record: random workloads on the real binary (plain, compressed by a real client, replayed old data,
//! committed and aborted transactions, compaction, records deleted), and what kcat sees of them by each isolation level.
#![allow(clippy::disallowed_methods, reason = "it waits for programs of others, by their clock")]

use std::collections::BTreeMap;
use std::process::Command;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use compat_tests::Broker;
use compat_tests::api::{group_until, partition};
use compat_tests::batch::{Batch, Record};
use compat_tests::clock::ms_ago;
use compat_tests::corpus;
use compat_tests::driver::{Client as Library, Codec};
use compat_tests::process::run;
use compat_tests::seat::{Seat, commit_alone};
use compat_tests::steady::{create, produce};
use compat_tests::transactional::{Producer, again};
use compat_tests::wire::Client;
use kafka_protocol::messages::delete_records_request::{DeleteRecordsPartition, DeleteRecordsTopic};
use kafka_protocol::messages::fetch_request::{FetchPartition, FetchTopic};
use kafka_protocol::messages::list_offsets_request::{ListOffsetsPartition, ListOffsetsTopic};
use kafka_protocol::messages::{BrokerId, DeleteRecordsRequest, FetchRequest, ListOffsetsRequest, TopicName};
use kafka_protocol::protocol::StrBytes;

const TOPIC: &str = "t";
const STEPS: usize = 30;
/// The client id by which the broker knows what its member fetches.
const COMMITTED_READER: &str = "reads-committed";
const TRANSACTIONAL: i16 = 1 << 4;

/// The same ones each time for a seed.
struct Random(u64);

impl Random {
    fn below(&mut self, bound: u64) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0 % bound
    }
}

/// A transactional producer, which may leave its transaction open from step to step.
struct Writer {
    producer: Producer,
    sequence: i32,
    is_open: bool,
}

struct World {
    broker: Broker,
    client: Client,
    random: Random,
    writers: Vec<Writer>,
    /// Where each group has committed.
    committed: BTreeMap<&'static str, i64>,
    seat: Seat,
    fetcher: Client,
}

fn topic() -> TopicName {
    TopicName(StrBytes::from_static_str(TOPIC))
}

impl World {
    fn start(seed: u64, compacted: bool) -> Result<Self> {
        let options = [("group.initial.rebalance.delay.ms", "0"), ("log.cleaner.backoff.ms", "100"), ("offsets.topic.num.partitions", "2")];
        let broker = Broker::start_with(&options)?;
        let mut client = broker.connect()?;
        // Segments of half a second, so that there's something to compact.
        let compact = [("cleanup.policy", "compact"), ("min.cleanable.dirty.ratio", "0.01"), ("segment.ms", "500")];
        ensure!(create(&mut client, TOPIC, 1, if compacted { &compact } else { &[] })? == 0);
        let writer = |nth: usize| -> Result<Writer> {
            let producer = Producer::init(broker.kafka(), &format!("writer-{nth}"))?;
            Ok(Writer { producer, sequence: 0, is_open: false })
        };
        let writers = (0..2).map(writer).collect::<Result<Vec<_>>>()?;
        let seat = Seat::take(broker.kafka(), "of committed", COMMITTED_READER, &[(TOPIC.to_owned(), 1)])?;
        seat.wait_for(1)?;
        let fetcher = Client::connect_as(broker.kafka(), COMMITTED_READER)?;
        Ok(Self { broker, client, random: Random(seed | 1), writers, committed: BTreeMap::new(), seat, fetcher })
    }

    fn records(&mut self) -> Vec<(i64, String)> {
        let count = 1 + self.random.below(6);
        let mut record = || {
            // Of now, replayed from long ago, or of 1970.
            let age = match self.random.below(4) {
                0 => Duration::from_secs(86_400 * self.random.below(400)),
                1 => Duration::MAX,
                _ => Duration::from_secs(self.random.below(600)),
            };
            (ms_ago(age), format!("key-{}", self.random.below(5)))
        };
        (0..count).map(|_| record()).collect()
    }

    fn batch(&mut self) -> Batch {
        let records = self.records();
        let base = records[0].0;
        let record = |(at, key): &(i64, String)| Record {
            timestamp_delta: at - base,
            key: Some(key.clone().into_bytes()),
            value: Some(b"v".to_vec()),
            ..Record::default()
        };
        let newest = records.iter().map(|(at, _)| *at).max().unwrap_or(base);
        Batch::of(base, &records.iter().map(record).collect::<Vec<_>>()).with(|header| header.max_timestamp = newest)
    }

    fn step(&mut self) -> Result<()> {
        match self.random.below(12) {
            0..=2 => {
                let batch = self.batch();
                self.send(&produce(TOPIC, 0, batch.encode()))
            }
            3 => {
                let codecs = [Codec::Gzip, Codec::Snappy, Codec::Lz4, Codec::Zstd];
                let codec = codecs[self.random.below(4) as usize];
                let records: Vec<_> = self.records().into_iter().map(|(at, key)| corpus_record(at, &key)).collect();
                Library::Python.produce(&self.broker.bootstrap(), TOPIC, codec, &records)
            }
            4..=6 => self.write_in_transaction(),
            7..=9 => self.end_a_transaction(),
            10 => self.delete_some(),
            // Compaction has its time.
            _ => {
                std::thread::sleep(Duration::from_millis(200));
                Ok(())
            }
        }
    }

    fn send(&mut self, request: &kafka_protocol::messages::ProduceRequest) -> Result<()> {
        again(|| {
            let answer = self.client.ask(9, request)?;
            let partition = answer.responses.first().and_then(|topic| topic.partition_responses.first());
            Ok((partition.context("no partition is answered")?.error_code, ()))
        })
    }

    fn write_in_transaction(&mut self) -> Result<()> {
        let nth = self.random.below(2) as usize;
        let batch = self.batch();
        let writer = &mut self.writers[nth];
        let (id, epoch) = writer.producer.producer;
        writer.producer.add(TOPIC, &[0])?;
        let count = batch.header.record_count;
        let batch = batch.from_producer(id, epoch, writer.sequence).with(|header| header.attributes |= TRANSACTIONAL);
        (writer.sequence, writer.is_open) = (writer.sequence + count, true);
        let request = produce(TOPIC, 0, batch.encode()).with_transactional_id(Some(writer.producer.id.clone()));
        self.send(&request)
    }

    fn end_a_transaction(&mut self) -> Result<()> {
        let commit = self.random.below(2) == 0;
        let Some(writer) = self.writers.iter_mut().find(|writer| writer.is_open) else { return Ok(()) };
        writer.is_open = false;
        writer.producer.end(1, commit)
    }

    fn delete_some(&mut self) -> Result<()> {
        let (start, end) = (self.bound(-2, 0)?, self.bound(-1, 1)?);
        let to = (start + self.random.below(6) as i64).min(end);
        let partition = DeleteRecordsPartition::default().with_partition_index(0).with_offset(to);
        let topic = DeleteRecordsTopic::default().with_name(topic()).with_partitions(vec![partition]);
        let answer = self.client.ask(2, &DeleteRecordsRequest::default().with_topics(vec![topic]).with_timeout_ms(10_000))?;
        let code = answer.topics[0].partitions[0].error_code;
        // A compacted topic's records are not deleted on request.
        ensure!(code == 0 || code == 44, "DeleteRecords was answered {code}");
        Ok(())
    }

    /// ListOffsets: −1 is the end, by isolation level, −2 the start.
    fn bound(&mut self, of: i64, isolation: i8) -> Result<i64> {
        let partition = ListOffsetsPartition::default().with_partition_index(0).with_timestamp(of);
        let topic = ListOffsetsTopic::default().with_name(topic()).with_partitions(vec![partition]);
        let asked = ListOffsetsRequest::default().with_replica_id(BrokerId(-1)).with_isolation_level(isolation).with_topics(vec![topic]);
        Ok(self.client.ask(6, &asked)?.topics[0].partitions[0].offset)
    }

    /// Offsets and timestamps of all that a client sees.
    fn read_all(&self, isolation: &str) -> Result<Vec<(i64, i64)>> {
        let level = format!("isolation.level={isolation}");
        let mut kcat = Command::new("kcat");
        kcat.args(["-b", &self.broker.bootstrap(), "-t", TOPIC, "-C", "-e", "-q", "-o", "beginning", "-X", &level, "-f", "%o %T\n"]);
        let output = run(&mut kcat, &[], Duration::from_secs(30))?;
        let pair = |line: &str| -> Result<(i64, i64)> {
            let (offset, at) = line.split_once(' ').context("two numbers")?;
            Ok((offset.parse()?, at.parse()?))
        };
        String::from_utf8(output.stdout)?.lines().map(pair).collect()
    }

    fn commit_somewhere(&mut self) -> Result<()> {
        let (start, end) = (self.bound(-2, 0)?, self.bound(-1, 0)?);
        for name in ["of all", "of committed"] {
            let before = self.committed.get(name).copied().unwrap_or(0);
            let to = match self.random.below(5) {
                0 => end,
                1 => start + self.random.below((end - start + 1).unsigned_abs()) as i64,
                _ => (before + self.random.below(6) as i64).min(end),
            };
            self.committed.insert(name, to);
            if name == "of all" {
                commit_alone(&mut self.client, name, &[(TOPIC, 0, to)])?;
            } else {
                self.seat.commit(TOPIC, 0, to)?;
                self.fetch_committed(to.max(start))?;
            }
        }
        Ok(())
    }

    /// By this the broker knows that the group reads committed records.
    fn fetch_committed(&mut self, from: i64) -> Result<()> {
        let partition = FetchPartition::default().with_partition(0).with_fetch_offset(from).with_partition_max_bytes(1 << 20);
        let topics = vec![FetchTopic::default().with_topic(topic()).with_partitions(vec![partition])];
        let request = FetchRequest::default()
            .with_replica_id(BrokerId(-1))
            .with_max_bytes(1 << 20)
            .with_isolation_level(1)
            .with_session_epoch(-1)
            .with_topics(topics);
        self.fetcher.ask(11, &request)?;
        Ok(())
    }

    /// Whether a group's lag is zero, after having found that it is what reading every record gives.
    fn check(&mut self, name: &str, level: i8) -> Result<bool> {
        let deadline = Instant::now() + Duration::from_secs(30);
        let committed = self.committed[name];
        loop {
            let before = (self.bound(-2, level)?, self.bound(-1, level)?);
            let told = group_until(&self.broker, name, "nothing is owed", |g| {
                g["pending_partitions"] == 0 && g["partitions"] == 1 && partition(g, 0)["read_committed"] == (level == 1)
            })?;
            let seen = self.read_all(if level == 1 { "read_committed" } else { "read_uncommitted" })?;
            let (start, end) = (self.bound(-2, level)?, self.bound(-1, level)?);
            let first = seen.into_iter().find(|(offset, _)| *offset >= committed.max(start));
            let at = partition(&told, 0);
            let lag = first.map_or(0, |(offset, _)| end - offset);
            let oldest = first.map(|(_, at)| at);
            if before == (start, end) && at["lag"] == lag && at["first_unconsumed"].as_i64() == first.map(|(offset, _)| offset) {
                ensure!(at["oldest_unconsumed_ms"].as_i64() == oldest, "{name}: {told}, not {oldest:?}");
                match (oldest, at["event_lag_seconds"].as_f64()) {
                    (None, _) => ensure!(at["lag"] == 0 && at["lag_seconds"] == 0.0, "{name}: {told}"),
                    (Some(oldest), Some(seconds)) => {
                        let now_ms = told["now_ms"].as_i64().context("a time")?;
                        let exact = (now_ms - oldest).max(0) as f64 / 1_000.0;
                        ensure!((seconds - exact).abs() < 0.001, "{name}: {seconds}, not {exact}");
                        ensure!(at["lag_seconds"].as_f64().is_some_and(|seconds| (0.0..120.0).contains(&seconds)), "{name}: {told}");
                    }
                    (Some(_), None) => anyhow::bail!("{name}: no time behind: {told}"),
                }
                return Ok(lag == 0);
            }
            // Compaction may take a record between two looks; when it rests, they agree.
            ensure!(
                Instant::now() < deadline,
                "{name}, committed {committed}: {told}\nbut a client sees {first:?} first of {start} to {end}"
            );
            std::thread::sleep(Duration::from_millis(100));
        }
    }
}

fn corpus_record(at: i64, key: &str) -> corpus::Record {
    corpus::Record {
        partition: Some(0),
        timestamp: Some(at),
        key: Some(key.as_bytes().to_vec()),
        value: Some(b"v".to_vec()),
        headers: Vec::new(),
    }
}

fn is_what_reading_every_record_gives(seed: u64, compacted: bool) -> Result<()> {
    let mut world = World::start(seed, compacted)?;
    for step in 0..STEPS {
        world.step().with_context(|| format!("step {step} of seed {seed}"))?;
        if step % 5 == 4 {
            world.commit_somewhere()?;
            for (name, level) in [("of all", 0), ("of committed", 1)] {
                world.check(name, level).with_context(|| format!("step {step} of seed {seed}"))?;
            }
        }
    }
    // All transactions end, and all is read: it is zero, whatever lies at the end.
    while world.writers.iter().any(|writer| writer.is_open) {
        world.end_a_transaction()?;
    }
    for (name, level) in [("of all", 0), ("of committed", 1)] {
        let last =
            world.read_all(if level == 1 { "read_committed" } else { "read_uncommitted" })?.last().map_or(0, |(offset, _)| offset + 1);
        world.committed.insert(name, last);
        if level == 1 {
            world.seat.commit(TOPIC, 0, last)?;
            let start = world.bound(-2, 0)?;
            world.fetch_committed(last.max(start))?;
        } else {
            commit_alone(&mut world.client, name, &[(TOPIC, 0, last)])?;
        }
        ensure!(world.check(name, level)?, "{name} has consumed everything that is visible");
    }
    Ok(())
}

#[test]
fn the_lag_is_what_a_client_computes_that_reads_every_record() -> Result<()> {
    is_what_reading_every_record_gives(seed_or(11), false)
}

#[test]
fn and_so_it_is_where_records_are_compacted_away() -> Result<()> {
    is_what_reading_every_record_gives(seed_or(29), true)
}

fn seed_or(seed: u64) -> u64 {
    std::env::var("LAG_SEED").ok().and_then(|text| text.parse().ok()).unwrap_or(seed)
}
