//! The console in a real Chromium, against the real binary with groups to show: `clients/browser/console.mjs` has what is looked at.
//! Screenshots lie in `.tools/shots`. README's pictures are made by `pictures.rs`.
#![allow(clippy::disallowed_methods, reason = "it waits for programs")]

use std::fs;
use std::process::Command;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use anyhow::{Context, Result, ensure};
use compat_tests::batch::{Batch, Record};
use compat_tests::member::{Member, Strategy};
use compat_tests::process::run;
use compat_tests::seat::{Seat, commit_alone, commit_many};
use compat_tests::steady::{create, produce};
use compat_tests::transactional::Producer;
use compat_tests::wire::Client;
use compat_tests::{Broker, driver, tools};

/// What a browser takes on a busy machine; each step of it has a limit of its own.
const WAIT: Duration = Duration::from_secs(240);
const PACE: Duration = Duration::from_millis(100);
const TOPIC: &str = "orders";
const PARTITIONS: i32 = 6;
const HOT: i32 = 2;

fn hostile() -> String {
    format!("\"><img src=x onerror=hacked=1>\n\u{202e}'`{{}}{}", "x".repeat(960))
}

/// What the producer sends, by turns: JSON, text and bytes, with headers that are none too kind.
fn record(nth: usize) -> Record {
    let value = match nth % 3 {
        0 => format!("{{\"order\":{nth},\"total\":12.50,\"items\":[\"<b>one</b>\"]}}").into_bytes(),
        1 => b"plain <script>hacked=1</script>".to_vec(),
        _ => vec![0, 255, 16, 222, 173],
    };
    let headers = vec![("trace".to_owned(), Some(b"4bf92f".to_vec())), ("<i>\n".to_owned(), None)];
    Record { key: Some(format!("customer-{}", nth % 7).into_bytes()), value: Some(value), headers, ..Record::default() }
}

fn send(client: &mut Client, nth: usize) -> Result<()> {
    let now = i64::try_from(SystemTime::now().duration_since(UNIX_EPOCH)?.as_millis())?;
    for partition in 0..PARTITIONS {
        let count = if partition == HOT { 10 } else { 1 };
        let batch = Batch::of(now, &(0..count).map(|more| record(nth + more)).collect::<Vec<_>>());
        let answer = client.ask(9, &produce(TOPIC, partition, batch.encode()))?;
        ensure!(answer.responses.iter().all(|topic| topic.partition_responses.iter().all(|partition| partition.error_code == 0)));
    }
    Ok(())
}

#[test]
fn the_console_shows_what_is_behind() -> Result<()> {
    let options = [("group.initial.rebalance.delay.ms", "0")];
    // A transaction may hang, and one does.
    let unverified = [options[0], ("transaction.partition.verification.enable", "false")];
    let (broker, bare, crowded) = (Broker::start_with(&unverified)?, Broker::start_with(&options)?, Broker::start_with(&options)?);
    crowd(&crowded)?;
    let mut client = broker.connect()?;
    ensure!(create(&mut client, TOPIC, PARTITIONS, &[("retention.ms", "604800000")])? == 0);
    ensure!(create(&mut client, "profiles", 1, &[("cleanup.policy", "compact")])? == 0);
    let topics = [(TOPIC.to_owned(), PARTITIONS)];
    let first = Seat::take(broker.kafka(), "billing", "billing-worker-1", &topics)?;
    first.wait_for(6)?;
    let second = Seat::take(broker.kafka(), "billing", "billing-worker-2", &topics)?;
    second.wait_for(3)?;
    first.wait_for(3)?;
    let keeps_up = Seat::take(broker.kafka(), "search-indexer", "indexer", &topics)?;
    keeps_up.wait_for(6)?;
    send(&mut client, 0)?;
    commit_alone(&mut client, "nightly-report", &[(TOPIC, 0, 0)])?;
    for name in [&hostile(), ".", ".."] {
        commit_alone(&mut client, name, &[(TOPIC, 1, 0)])?;
    }
    commit_alone(&mut client, "reset-topic", &[(TOPIC, 1, 1_000_000_000)])?;
    // A batch that says gzip and is none behind its first bytes, between two that can be read.
    ensure!(create(&mut client, "garbled", 1, &[])? == 0);
    let good = Batch::of(0, &[record(1)]);
    let mut garbled = Batch::of(0, &[record(1), record(2)]).with(|header| header.attributes = 1);
    garbled.records = bytes::Bytes::from_static(&[0x1f, 0x8b, 8, 0, 0, 0, 0, 0, 0, 0xff, 0xde, 0xad, 0xbe, 0xef]);
    for batch in [&good, &garbled, &good] {
        let answer = client.ask(9, &produce("garbled", 0, batch.encode()))?;
        ensure!(answer.responses[0].partition_responses[0].error_code == 0);
    }
    // Two transactions hold a group back: one that no coordinator knows of, and one that is only long.
    ensure!(create(&mut client, "payments", 2, &[])? == 0);
    let _payers = Member::start(driver::Client::Python, &broker.bootstrap(), "payments", "payers", Strategy::Range, None)?;
    Producer::init(broker.kafka(), "lost")?.produce("payments", 0, 0)?;
    Producer::init(broker.kafka(), &hostile())?.write("payments", &[1])?;

    let stop = Arc::new(AtomicBool::new(false));
    let stopping = Arc::clone(&stop);
    // Partition 0 is stuck for billing; the rest of it is read too slowly; the other group keeps up.
    let traffic = thread::spawn(move || -> Result<()> {
        for nth in 1.. {
            if stopping.load(Ordering::Relaxed) {
                break;
            }
            send(&mut client, nth * 10)?;
            let (sent, slow) = (i64::try_from(nth)? + 1, i64::try_from(nth)? / 3);
            for partition in 0..PARTITIONS {
                let end = if partition == HOT { sent * 10 } else { sent };
                keeps_up.commit(TOPIC, partition, end)?;
                if let Some(seat) = (first.owns(TOPIC, partition) && partition > 0).then_some(&first) {
                    seat.commit(TOPIC, partition, slow)?;
                } else if second.owns(TOPIC, partition) && partition > 0 {
                    second.commit(TOPIC, partition, slow)?;
                }
            }
            thread::sleep(PACE);
        }
        Ok(())
    });
    let looked = look(&broker, &bare, &crowded);
    stop.store(true, Ordering::Relaxed);
    traffic.join().map_err(|_| anyhow::anyhow!("the traffic panicked"))??;
    looked
}

/// So many groups, each a little less behind than the one before.
const CROWD: i64 = 5_000;

fn crowd(broker: &Broker) -> Result<()> {
    let mut client = broker.connect()?;
    ensure!(create(&mut client, TOPIC, 1, &[])? == 0);
    let batch = Batch::of(0, &(0..CROWD as usize).map(record).collect::<Vec<_>>());
    client.ask(9, &produce(TOPIC, 0, batch.encode()))?;
    commit_many(&mut client, (0..CROWD).map(|nth| (format!("group-{nth:04}"), TOPIC, 0, nth)))
}

fn look(broker: &Broker, bare: &Broker, crowded: &Broker) -> Result<()> {
    let shots = tools::home().join(".tools/shots");
    fs::create_dir_all(&shots)?;
    let base = |broker: &Broker| -> Result<String> { Ok(format!("http://{}", broker.http().context("HTTP is on")?)) };
    let mut command = Command::new("node");
    command.env("NODE_PATH", tools::installed("browser/node_modules")?).arg(tools::home().join("clients/browser/console.mjs"));
    command.args([&base(broker)?, &base(bare)?, &base(crowded)?, "billing", TOPIC, &hostile()]).arg(&shots);
    let output = run(&mut command, &[], WAIT)?;
    let facts = String::from_utf8_lossy(&output.stdout).lines().filter(|line| line.starts_with("ok: ")).count();
    ensure!(facts > 80, "only {facts} facts were found to be so");
    Ok(())
}
