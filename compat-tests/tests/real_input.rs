//! Real input through two producers of different clients at once, with the broker left alone and with it killed every second.
//! Whatever happened meanwhile, what is read back is what was sent; and Apache Kafka's own tool accepts the files.
#![allow(clippy::disallowed_methods, reason = "the broker is killed by the clock")]

use std::thread;
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use compat_tests::Broker;
use compat_tests::driver::Client;
use compat_tests::dump_log::{self, Dumped};
use compat_tests::feed::Fed;
use compat_tests::md5sums::{self, Packages};
use compat_tests::programs::LineProducer;

const TOPIC: &str = "md5sums";
const PARTITIONS: i32 = 12;
const KILLS: usize = 12;
const BETWEEN_KILLS: Duration = Duration::from_secs(1);
const WAIT: Duration = Duration::from_secs(90);

#[test]
fn two_clients_at_once_lose_nothing_and_keep_the_order_of_each_key() -> Result<()> {
    let mut broker = Broker::start()?;
    Client::Java.create(&broker.bootstrap(), TOPIC, PARTITIONS)?;
    let packages = md5sums::packages()?;
    let producers = start(&broker, &packages, &[LineProducer::Kcat, LineProducer::Java], 1, Duration::ZERO)?;
    open_window(&producers)?;
    finish(producers)?;
    check(&mut broker, &packages)?;
    Ok(())
}

#[test]
fn nothing_is_lost_twice_or_out_of_order_when_the_broker_is_killed_every_second() -> Result<()> {
    // Segments that roll meanwhile leave more to recover, and more to go wrong.
    let mut broker = Broker::start_with(&[("log.roll.ms", "2000")])?;
    Client::Java.create(&broker.bootstrap(), TOPIC, PARTITIONS)?;
    let packages = md5sums::packages()?;
    let producers = start(&broker, &packages, &[LineProducer::Python, LineProducer::Java], KILLS + 1, BETWEEN_KILLS)?;
    for kill in 0..KILLS {
        open_window(&producers)?;
        thread::sleep(BETWEEN_KILLS);
        broker.kill()?;
        broker.restart().with_context(|| format!("restart after kill {kill}"))?;
    }
    open_window(&producers)?;
    finish(producers)?;
    let dumped = check(&mut broker, &packages)?;
    let segments = dumped.files.get("log").copied().unwrap_or_default();
    ensure!(segments > 2 * usize::try_from(PARTITIONS)?, "{segments} segments in all");
    Ok(())
}

/// Starts a producer of each kind with its share of the packages, none of which is split.
fn start(broker: &Broker, packages: &Packages, kinds: &[LineProducer], windows: usize, pace: Duration) -> Result<Vec<(Fed, usize)>> {
    let shares = md5sums::deal(packages, kinds.len());
    let one = |(kind, share): (&LineProducer, &Packages)| {
        let command = kind.command(&broker.bootstrap(), TOPIC)?;
        Ok((Fed::start(command, md5sums::as_input(share), windows, pace)?, md5sums::count(share)))
    };
    kinds.iter().zip(&shares).map(one).collect()
}

fn open_window(producers: &[(Fed, usize)]) -> Result<()> {
    producers.iter().try_for_each(|(producer, _)| producer.open_window())
}

/// Every producer ends well and was told that all its records are kept (kcat says so by its exit code alone).
fn finish(producers: Vec<(Fed, usize)>) -> Result<()> {
    for (producer, records) in producers {
        let printed = producer.finish(WAIT)?;
        if let Some(acknowledged) = printed.last() {
            ensure!(acknowledged.parse() == Ok(records), "{acknowledged} of {records} acknowledged");
        }
    }
    Ok(())
}

/// Holds what can be read, before and after a clean stop, to what was sent, and the files to Apache Kafka's tool.
fn check(broker: &mut Broker, packages: &Packages) -> Result<Dumped> {
    md5sums::compare(packages, &md5sums::read_back(&broker.bootstrap(), TOPIC)?).context("before the stop")?;
    let status = broker.stop()?;
    ensure!(status.success(), "the stop ended with {status}");
    let dumped = dump_log::check(broker.data(), &[TOPIC])?;
    let records: usize = dumped.records.values().sum();
    ensure!(records == md5sums::count(packages), "the tool shows {records} of {} records", md5sums::count(packages));
    ensure!(dumped.records.len() == usize::try_from(PARTITIONS)?, "{} directories have records", dumped.records.len());
    ensure!(dumped.producer_entries > 0, "no producer in a snapshot");
    broker.restart().context("start after the clean stop")?;
    md5sums::compare(packages, &md5sums::read_back(&broker.bootstrap(), TOPIC)?).context("after the stop")?;
    Ok(dumped)
}
