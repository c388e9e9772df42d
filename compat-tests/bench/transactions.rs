//! Transactions of one record each from many producers, on highwater and Apache Kafka in turn: how many a second, and the broker's CPU for
//! each (`--transactions`). Both flows: of old (AddPartitionsToTxn, Produce, EndTxn) and KIP-890's (Produce, EndTxn). Prints, and exits 1
//! if highwater does fewer than 2,000 a second, or fewer than Apache Kafka.

use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use compat_tests::batch::Batch;
use compat_tests::{
    steady,
    transactional::{self, again},
    wire::Client,
};
use kafka_protocol::messages::{EndTxnRequest, ProducerId};

use crate::BROKER_CORE;
use crate::broker::{Broker, Kind};

const PRODUCERS: i32 = 50;
const PARTITIONS: i32 = 10;
const ROUND: Duration = Duration::from_secs(8);
const WARM_UP: Duration = Duration::from_secs(12);
const ROUNDS: usize = 3;
const AT_LEAST_A_SECOND: f64 = 2_000.0;
const TOPIC: &str = "bench-transactions";

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Flow {
    Old,
    New,
}

#[derive(Default, Clone, Copy)]
struct Seen {
    a_second: f64,
    cpu_us: f64,
}

/// Runs if the command line asks for it.
pub fn run(words: &[String]) -> Option<Result<()>> {
    let at = words.iter().position(|word| word == "--transactions")?;
    ensure_words(words, at).map(|(binary, jars, scratch)| compare(&binary, &jars, &scratch))
}

fn ensure_words(words: &[String], at: usize) -> Option<(PathBuf, PathBuf, PathBuf)> {
    (at >= 5).then(|| (PathBuf::from(&words[1]), PathBuf::from(&words[2]), PathBuf::from(&words[4])))
}

fn compare(binary: &Path, jars: &Path, scratch: &Path) -> Result<()> {
    std::fs::create_dir_all(scratch)?;
    let kinds = [Kind::Highwater { binary: binary.to_owned() }, Kind::ApacheKafka { jars: jars.to_owned() }];
    let brokers = kinds.iter().map(|kind| Broker::start(kind, scratch, BROKER_CORE)).collect::<Result<Vec<_>>>()?;
    let mut passed = true;
    for flow in [Flow::Old, Flow::New] {
        let mut best = [Seen::default(); 2];
        for broker in &brokers {
            round(broker, flow, WARM_UP)?;
        }
        for number in 0..ROUNDS {
            for (broker, best) in brokers.iter().zip(&mut best) {
                let seen = round(broker, flow, ROUND).with_context(|| format!("round {number} of {}", broker.kind.name()))?;
                eprintln!(
                    "bench: {:12} {flow:?} flow: {:.0} transactions a second, {:.0} µs of CPU each",
                    broker.kind.name(),
                    seen.a_second,
                    seen.cpu_us
                );
                if seen.a_second > best.a_second {
                    *best = seen;
                }
            }
        }
        let [highwater, kafka] = best;
        let fine = highwater.a_second >= AT_LEAST_A_SECOND && highwater.a_second >= kafka.a_second;
        passed &= fine;
        println!(
            "{flow:?} flow, {PRODUCERS} producers, 1 record each, best of {ROUNDS}: highwater {:.0}/s ({:.0} µs of CPU each), Apache Kafka {:.0}/s ({:.0} µs): {:.2} of Kafka's rate, {:.2} of its CPU: {}",
            highwater.a_second,
            highwater.cpu_us,
            kafka.a_second,
            kafka.cpu_us,
            highwater.a_second / kafka.a_second,
            highwater.cpu_us / kafka.cpu_us,
            if fine { "fine" } else { "TOO FEW" }
        );
    }
    brokers.into_iter().try_for_each(Broker::stop)?;
    std::fs::remove_dir_all(scratch)?;
    ensure!(passed, "a figure is below its limit");
    Ok(())
}

/// Every producer as fast as it can for so long.
fn round(broker: &Broker, flow: Flow, span: Duration) -> Result<Seen> {
    let address: SocketAddr = broker.bootstrap.parse()?;
    let mut client = Client::connect(address)?;
    let code = steady::create(&mut client, TOPIC, PARTITIONS, &[])?;
    ensure!(code == 0 || code == 36, "the topic was answered {code}");
    let stop = AtomicBool::new(false);
    let ready = std::sync::Barrier::new(PRODUCERS as usize + 1);
    thread::scope(|scope| {
        let produce = |index| {
            let (stop, ready) = (&stop, &ready);
            scope.spawn(move || {
                let producer = Producer::new(address, flow, index);
                ready.wait();
                producer?.go_on(stop)
            })
        };
        let producers: Vec<_> = (0..PRODUCERS).map(produce).collect();
        ready.wait();
        let (cpu, begun) = (broker.cpu_seconds()?, Instant::now());
        thread::sleep(span);
        stop.store(true, Ordering::Relaxed);
        let (seconds, cpu) = (begun.elapsed().as_secs_f64(), broker.cpu_seconds()? - cpu);
        let mut done = 0;
        for producer in producers {
            done += producer.join().map_err(|_| anyhow::anyhow!("a producer panicked"))??;
        }
        Ok(Seen { a_second: done as f64 / seconds, cpu_us: cpu * 1e6 / done as f64 })
    })
}

struct Producer {
    inner: transactional::Producer,
    flow: Flow,
    partition: i32,
    sequence: i32,
}

impl Producer {
    fn new(address: SocketAddr, flow: Flow, index: i32) -> Result<Self> {
        let inner = transactional::Producer::init(address, &format!("bench-{flow:?}-{index}"))?;
        Ok(Self { inner, flow, partition: index % PARTITIONS, sequence: 0 })
    }

    /// The transactions that are done when it is told to stop.
    fn go_on(mut self, stop: &AtomicBool) -> Result<u64> {
        let mut done = 0;
        while !stop.load(Ordering::Relaxed) {
            self.transaction()?;
            done += 1;
        }
        Ok(done)
    }

    fn transaction(&mut self) -> Result<()> {
        let (id, epoch) = self.inner.producer;
        if self.flow == Flow::Old {
            self.inner.add(TOPIC, &[self.partition])?;
        }
        let batch = Batch::of_values(1_700_000_000_000, &[&[b'x'; 100]])
            .from_producer(id, epoch, self.sequence)
            .with(|header| header.attributes |= 1 << 4);
        let produce = steady::produce(TOPIC, self.partition, batch.encode()).with_transactional_id(Some(self.inner.id.clone()));
        let version = if self.flow == Flow::Old { 9 } else { 12 };
        again(|| {
            let answer = self.inner.client.ask(version, &produce)?;
            let partition = answer.responses.first().and_then(|topic| topic.partition_responses.first());
            Ok((partition.context("no partition is answered")?.error_code, ()))
        })?;
        self.sequence += 1;
        let end = EndTxnRequest::default()
            .with_transactional_id(self.inner.id.clone())
            .with_producer_id(ProducerId(id))
            .with_producer_epoch(epoch)
            .with_committed(true);
        let version = if self.flow == Flow::Old { 3 } else { 5 };
        let next = again(|| {
            let answer = self.inner.client.ask(version, &end)?;
            Ok((answer.error_code, (answer.producer_id.0, answer.producer_epoch)))
        })?;
        if self.flow == Flow::New {
            self.inner.producer = next;
            self.sequence = 0;
        }
        Ok(())
    }
}
