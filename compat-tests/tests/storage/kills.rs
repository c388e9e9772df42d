//! `kill -9` at any moment, again and again: while batches come in, segments roll, topics are made and deleted. What was acknowledged is
//! there, once and in order; what was said to be deleted is gone.

use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use compat_tests::Broker;
use compat_tests::steady::{self, Steady, Told};

use crate::verify;

/// So many kills in one run, unless [`RUN`] is over before.
const ROUNDS: u32 = 200;
const RUN: Duration = Duration::from_secs(50);
const PRODUCERS: i32 = 3;
/// Partitions that are there besides, so that a restart has something to open.
const IDLE_PARTITIONS: i32 = 1_000;
/// So that segments of 1 MB (Kafka's least) roll about once a round.
const RECORD_BYTES: usize = 12_000;

/// Topics that come and go.
#[derive(Default)]
struct Fleeting {
    next: u32,
    /// What was said to be deleted.
    deleted: Vec<String>,
    /// What was said to be there, and not yet asked to go.
    there: Vec<String>,
}

#[test]
fn nothing_acknowledged_is_lost_by_kills() -> Result<()> {
    let mut broker =
        Broker::start_with(&[("log.segment.bytes", "1048576"), ("log.segment.delete.delay.ms", "50"), ("num.partitions", "4")])?;
    ensure!(steady::create(&mut broker.connect()?, "idle", IDLE_PARTITIONS, &[])? == 0);
    ensure!(steady::create(&mut broker.connect()?, "busy", PRODUCERS, &[])? == 0);
    let mut producers = (0..PRODUCERS).map(|i| Steady::new(broker.kafka(), "busy", i)).collect::<Result<Vec<_>>>()?;
    let mut fleeting = Fleeting::default();
    let (begun, mut rounds, mut restarts) = (Instant::now(), 0, Vec::new());
    while rounds < ROUNDS && begun.elapsed() < RUN {
        rounds += 1;
        // Between 15 and 115 ms, in no order; now and then long enough for slow disks to have topics come and go.
        let alive = Duration::from_millis(15 + u64::from(rounds) * 37 % 101 + if rounds % 8 == 0 { 500 } else { 0 });
        round(&mut broker, alive, &mut producers, &mut fleeting).with_context(|| format!("round {rounds}"))?;
        if rounds % 25 == 1 {
            let said = verify(broker.data())?;
            ensure!(said.contains("not stopped cleanly; 0 wrong"), "round {rounds}: {said}");
        }
        let restarted = Instant::now();
        broker.restart().with_context(|| format!("round {rounds}"))?;
        restarts.push(restarted.elapsed());
        check_topics(&broker, &fleeting).with_context(|| format!("round {rounds}"))?;
        if rounds % 20 == 0 {
            producers.iter().try_for_each(Steady::verify).with_context(|| format!("round {rounds}"))?;
        }
    }
    producers.iter().try_for_each(Steady::verify).context("in the end")?;
    restarts.sort();
    let (median, longest) = (restarts.get(restarts.len() / 2).copied().unwrap_or_default(), restarts.last().copied().unwrap_or_default());
    let records: usize = producers.iter().map(Steady::count).sum();
    println!(
        "{rounds} kills, {records} records acknowledged, {} topics deleted; a restart with {IDLE_PARTITIONS} partitions: median {median:?}, longest {longest:?}",
        fleeting.deleted.len()
    );
    ensure!(records > 0 && !fleeting.deleted.is_empty(), "nothing happened");
    ensure!(broker.stop()?.success());
    let said = verify(broker.data())?;
    ensure!(said.contains("stopped cleanly; 0 wrong"), "{said}");
    Ok(())
}

/// Everything at once until the broker is killed after `alive`.
fn round(broker: &mut Broker, alive: Duration, producers: &mut [Steady], fleeting: &mut Fleeting) -> Result<()> {
    let address = broker.kafka();
    thread::scope(|scope| {
        let sending: Vec<_> = producers.iter_mut().map(|producer| scope.spawn(move || until_killed(producer))).collect();
        let coming_and_going = scope.spawn(move || {
            // Its connection's end is the kill.
            let Ok(mut client) = compat_tests::wire::Client::connect(address) else { return };
            while come_and_go(&mut client, fleeting).is_ok() {}
        });
        thread::sleep(alive);
        broker.kill()?;
        for sending in sending {
            sending.join().expect("a producer's thread")?;
        }
        coming_and_going.join().expect("the topics' thread");
        Ok(())
    })
}

fn until_killed(producer: &mut Steady) -> Result<()> {
    loop {
        match producer.send(RECORD_BYTES)? {
            Told::Acknowledged(_) => {}
            Told::Refused(code) => anyhow::bail!("a record was answered {code}"),
            Told::Nothing => return Ok(()),
        }
    }
}

/// Makes a topic, writes to it, and deletes the one before.
fn come_and_go(client: &mut compat_tests::wire::Client, fleeting: &mut Fleeting) -> Result<()> {
    fleeting.next += 1;
    let topic = format!("fleeting-{}", fleeting.next);
    ensure!(steady::create(client, &topic, 2, &[])? == 0, "{topic} isn't made");
    fleeting.there.push(topic.clone());
    let batch = compat_tests::batch::Batch::of_values(1, &[topic.as_bytes()]).encode();
    client.ask(9, &steady::produce(&topic, 1, batch))?;
    if fleeting.there.len() > 1 {
        // Once asked it may be gone, whether that's answered or not.
        let old = fleeting.there.remove(0);
        ensure!(steady::delete(client, &old)? == 0, "{old} isn't deleted");
        fleeting.deleted.push(old);
    }
    Ok(())
}

fn check_topics(broker: &Broker, fleeting: &Fleeting) -> Result<()> {
    let topics = steady::topics(&mut broker.connect()?)?;
    for gone in &fleeting.deleted {
        ensure!(!topics.contains(gone), "{gone} came back");
    }
    for there in &fleeting.there {
        ensure!(topics.contains(there), "{there} is lost");
    }
    ensure!(topics.iter().any(|topic| topic == "idle") && topics.iter().any(|topic| topic == "busy"), "{topics:?}");
    Ok(())
}
