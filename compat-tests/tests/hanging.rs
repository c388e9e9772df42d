//! Transactions that hang: open in a partition, and no coordinator knows of them, so that nobody ends them (KIP-664). A producer of the flow of
//! old makes one where `transaction.partition.verification.enable` is off. Apache Kafka's tool finds them and ends them, here as there, and they
//! show as what holds readers back: in metrics, JSON and on the command line.
#![allow(clippy::disallowed_methods, reason = "it waits for programs of others, by their clock")]

use std::net::SocketAddr;
use std::process::Command;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail, ensure};
use compat_tests::driver::Client;
use compat_tests::member::{Member, Strategy};
use compat_tests::process::run;
use compat_tests::programs::{Copier, LineProducer};
use compat_tests::transactional::Producer;
use compat_tests::{ApacheKafka, Broker, http, steady, tools};
use serde_json::Value;

const WAIT: Duration = Duration::from_secs(60);
const UNVERIFIED: (&str, &str) = ("transaction.partition.verification.enable", "false");

fn text(command: &mut Command) -> Result<String> {
    Ok(String::from_utf8_lossy(&run(command, b"", WAIT)?.stdout).into_owned())
}

/// `kafka-transactions`.
fn transactions(bootstrap: &str, args: &[&str]) -> Result<String> {
    text(tools::java("org.apache.kafka.tools.TransactionsCommand")?.args(["--bootstrap-server", bootstrap]).args(args))
}

fn kcat(bootstrap: &str, topic: &str, partition: &str, line: &str) -> Result<()> {
    run(LineProducer::Kcat.command(bootstrap, topic)?.args(["-p", partition]), line.as_bytes(), WAIT)?;
    Ok(())
}

/// The committed records of a topic as `PARTITION TAB VALUE`, in order.
fn committed(bootstrap: &str, topic: &str) -> Result<Vec<String>> {
    let mut lines: Vec<String> = text(&mut Copier::Java.read(bootstrap, topic)?)?.lines().map(str::to_owned).collect();
    lines.sort_unstable();
    Ok(lines)
}

/// What find-hanging says, without the two columns of times.
fn found(bootstrap: &str) -> Result<Vec<Vec<String>>> {
    let said = transactions(bootstrap, &["find-hanging", "--broker-id", "1", "--max-transaction-timeout", "0"])?;
    let mut rows: Vec<Vec<String>> =
        said.lines().skip(1).map(|line| line.split_whitespace().take(6).map(str::to_owned).collect()).collect();
    rows.sort();
    Ok(rows)
}

/// The same of either broker: one transaction of a producer whose coordinator says that nothing is open, one of a producer that no
/// coordinator has ever seen, and one that is open as it should be.
fn hanging_ones_are_found_and_ended(address: SocketAddr) -> Result<()> {
    let bootstrap = address.to_string();
    Client::Java.create(&bootstrap, "t", 3)?;
    let mut known = Producer::init(address, "known")?;
    let mut stray = Producer::stray(address, "stray")?;
    let mut open = Producer::init(address, "open")?;
    ensure!(known.produce("t", 0, 0)? == 0, "it is believed");
    ensure!(stray.produce("t", 1, 0)? == 0, "it is believed");
    open.write("t", &[2])?;
    for partition in ["0", "1", "2"] {
        kcat(&bootstrap, "t", partition, "k\tafter\n")?;
    }
    ensure!(committed(&bootstrap, "t")?.is_empty(), "readers of committed records wait");

    // TOPIC, PARTITION, PRODUCER ID, PRODUCER EPOCH, COORDINATOR EPOCH, START OFFSET.
    let row = |partition: &str, producer: &Producer| -> Vec<String> {
        let (id, epoch) = producer.producer;
        ["t", partition, &id.to_string(), &epoch.to_string(), "-1", "0"].map(str::to_owned).to_vec()
    };
    let hanging = found(&bootstrap)?;
    ensure!(hanging == [row("0", &known), row("1", &stray)], "{hanging:?}");
    let listed = transactions(&bootstrap, &["list"])?;
    let state = |id: &str| listed.lines().find(|line| line.starts_with(id)).unwrap_or_default().to_owned();
    ensure!(state("known").contains("Empty") && state("open").contains("Ongoing") && state("stray").is_empty(), "{listed}");
    let described = transactions(&bootstrap, &["describe", "--transactional-id", "known"])?;
    ensure!(described.contains("Empty") && !described.contains("t-0"), "{described}");

    transactions(&bootstrap, &["abort", "--topic", "t", "--partition", "0", "--start-offset", "0"])?;
    let (id, epoch) = stray.producer;
    let (id, epoch) = (id.to_string(), epoch.to_string());
    let of_producer = ["--producer-id", &id, "--producer-epoch", &epoch, "--coordinator-epoch", "-1"];
    transactions(&bootstrap, &[&["abort", "--topic", "t", "--partition", "1"][..], &of_producer].concat())?;
    ensure!(found(&bootstrap)?.is_empty(), "they have ended");
    ensure!(committed(&bootstrap, "t")? == ["0\tafter", "1\tafter"], "the aborted records are skipped, and the open one holds its readers");
    Ok(())
}

#[test]
fn hanging_ones_are_found_and_ended_here() -> Result<()> {
    let broker = Broker::start_with(&[UNVERIFIED])?;
    hanging_ones_are_found_and_ended(broker.kafka())
}

#[test]
fn hanging_ones_are_found_and_ended_in_apache_kafka() -> Result<()> {
    let kafka = ApacheKafka::start_with(&[UNVERIFIED])?;
    hanging_ones_are_found_and_ended(kafka.kafka())
}

/// With the key as it is by default nothing comes to hang.
#[test]
fn what_was_not_added_is_refused() -> Result<()> {
    let broker = Broker::start()?;
    ensure!(steady::create(&mut broker.connect()?, "t", 1, &[])? == 0);
    for mut producer in [Producer::init(broker.kafka(), "known")?, Producer::stray(broker.kafka(), "stray")?] {
        ensure!(producer.produce("t", 0, 0).is_err(), "it isn't believed");
    }
    Ok(())
}

/// Who deletes `__transaction_state` leaves what was open to hang; the broker says so, and goes on with new transactions: also where partitions
/// have seen a higher coordinator epoch than that of the topic that is made anew.
#[test]
fn a_deleted_state_topic_leaves_nothing_that_cannot_be_ended() -> Result<()> {
    let mut broker = Broker::start()?;
    let (bootstrap, address) = (broker.bootstrap(), broker.kafka());
    ensure!(steady::create(&mut broker.connect()?, "t", 2, &[])? == 0);
    for _ in 0..3 {
        let mut producer = Producer::init(address, "left")?;
        producer.write("t", &[0, 1])?;
        producer.end(3, true)?;
        // Another start is another leader epoch, which is the coordinator's.
        ensure!(broker.stop()?.success(), "no clean stop");
        broker.restart()?;
    }
    let mut left = Producer::init(address, "left")?;
    left.write("t", &[0])?;
    ensure!(steady::delete(&mut broker.connect()?, "__transaction_state")? == 0);
    // Whoever looks for a coordinator has the topic made anew.
    Producer::init(address, "other")?;
    ensure!(left.add("t", &[1]).is_err() && left.end(3, true).is_err(), "nobody knows it any more");

    let hanging = found(&bootstrap)?;
    ensure!(hanging.len() == 1 && hanging[0][..3] == ["t", "0", &left.producer.0.to_string()], "{hanging:?}");
    let metrics = metrics(&broker)?;
    let info = "highwater_partition_open_transaction_info{topic=\"t\",partition=\"0\",";
    ensure!(metrics.lines().any(|line| line.starts_with(info) && line.contains("ended_by=\"nobody\"")), "{metrics}");
    let mut next = Producer::init(address, "left")?;
    ensure!(next.producer.0 != left.producer.0, "another producer");
    next.write("t", &[0, 1])?;
    next.end(3, true)?;
    transactions(&bootstrap, &["abort", "--topic", "t", "--partition", "0", "--start-offset", &hanging[0][5]])?;
    ensure!(found(&bootstrap)?.is_empty(), "it has ended");
    // Three times before and once after, in both partitions.
    ensure!(committed(&bootstrap, "t")?.len() == 8, "{:?}", committed(&bootstrap, "t")?);
    Ok(())
}

fn json(broker: &Broker, path: &str) -> Result<Value> {
    let answer = http::get(broker.http().context("HTTP is on")?, path)?;
    ensure!(answer.status == 200, "{path}: {} {}", answer.status, answer.body);
    Ok(serde_json::from_str(&answer.body)?)
}

fn metrics(broker: &Broker) -> Result<String> {
    Ok(http::get(broker.http().context("HTTP is on")?, "/metrics")?.body)
}

/// Asks until the answer is so.
fn until(what: &str, ask: impl Fn() -> Result<Value>, is_so: impl Fn(&Value) -> bool) -> Result<Value> {
    let deadline = Instant::now() + WAIT;
    loop {
        let last = ask();
        match &last {
            Ok(value) if is_so(value) => return last,
            _ if Instant::now() > deadline => bail!("not in time: {what}; last {last:?}"),
            _ => std::thread::sleep(Duration::from_millis(50)),
        }
    }
}

fn cli(broker: &Broker, args: &[&str]) -> Result<String> {
    let url = format!("http://{}", broker.http().context("HTTP is on")?);
    text(Command::new(tools::highwater()?).args(args).args(["--url", &url]))
}

/// A topic with a record before a transaction and one behind it, which a member of group `billing` reads, by librdkafka's default those that
/// are committed; `hold` opens the transaction and tells the producer id and its record's offset.
fn held_back(broker: &Broker, hold: impl FnOnce() -> Result<(i64, i64)>) -> Result<(Member, i64)> {
    let bootstrap = broker.bootstrap();
    let member = Member::start(Client::Python, &bootstrap, "payments", "billing", Strategy::Range, None)?;
    kcat(&bootstrap, "payments", "0", "k\tbefore\n")?;
    let (producer, offset) = hold()?;
    ensure!(offset == 1, "the transaction begins at {offset}");
    kcat(&bootstrap, "payments", "0", "k\tafter\n")?;
    Ok((member, producer))
}

/// The group's partition, once its readers are known to wait for a transaction that has a name.
fn waiting(broker: &Broker) -> Result<Value> {
    let ask = || json(broker, "/api/groups/billing");
    until("the group is held back", ask, |group| {
        let partition = &group["partitions_list"][0];
        group["held_back_partitions"] == 1 && group["lag"] == 0 && partition["held_back"] == 2 && partition["committed"] == 1
    })
}

/// The transaction has ended with an abort: what came behind it is read, and nothing is left.
fn caught_up(broker: &Broker, member: &Member) -> Result<()> {
    member.wait_until("it has read both", |seen| seen.records.len() == 2)?;
    let ask = || json(broker, "/api/groups/billing");
    let group = until("the group has caught up", ask, |group| {
        let partition = &group["partitions_list"][0];
        // Behind the last record is the marker: it is no lag.
        partition["committed"] == 3 && partition["end"] == 4 && group["lag"] == 0
    })?;
    let partition = &group["partitions_list"][0];
    ensure!(group["held_back_partitions"] == 0 && partition["held_back"] == 0 && partition["open_transaction"].is_null(), "{group}");
    let metrics = metrics(broker)?;
    let lag = r#"kafka_consumergroup_lag{consumergroup="billing",topic="payments",partition="0"} 0"#;
    ensure!(metrics.lines().any(|line| line == lag), "{metrics}");
    ensure!(!metrics.contains("highwater_partition_open_transaction_info{"), "{metrics}");
    ensure!(json(broker, "/api/overview")?["held_back_partitions"] == 0);
    Ok(())
}

fn info(producer: i64, id: &str, ended_by: &str) -> String {
    format!(
        r#"highwater_partition_open_transaction_info{{topic="payments",partition="0",producer_id="{producer}",transactional_id="{id}",ended_by="{ended_by}"}} 1"#
    )
}

fn age(broker: &Broker) -> Result<f64> {
    let metrics = metrics(broker)?;
    let series = r#"highwater_partition_open_transaction_age_seconds{topic="payments",partition="0"} "#;
    Ok(metrics.lines().find_map(|line| line.strip_prefix(series)).context("no age")?.parse()?)
}

#[test]
fn a_hanging_one_shows_as_what_holds_readers_back() -> Result<()> {
    let broker = Broker::start_with(&[UNVERIFIED, ("group.initial.rebalance.delay.ms", "0"), ("offsets.topic.num.partitions", "4")])?;
    Client::Java.create(&broker.bootstrap(), "payments", 1)?;
    let (member, producer) = held_back(&broker, || {
        let mut producer = Producer::init(broker.kafka(), "lost")?;
        let offset = producer.produce("payments", 0, 0)?;
        Ok((producer.producer.0, offset))
    })?;
    let group = waiting(&broker)?;
    let open = &group["partitions_list"][0]["open_transaction"];
    ensure!(open["producer_id"] == producer && open["ended_by"] == "nobody" && open["transactional_id"].is_null(), "{group}");
    ensure!(open["first_offset"] == 1 && open["age_seconds"].as_f64().is_some_and(|age| age >= 0.0), "{group}");
    let exposed = metrics(&broker)?;
    ensure!(exposed.lines().any(|line| line == info(producer, "", "nobody")), "{exposed}");
    ensure!(age(&broker)? >= 0.0);
    for (path, place) in [("/api/topics/payments", "/partitions_list/0"), ("/api/overview", "/held_back/0")] {
        let answer = json(&broker, path)?;
        let open = answer.pointer(place).map(|of| &of["open_transaction"]).with_context(|| answer.to_string())?;
        ensure!(open["ended_by"] == "nobody" && open["producer_id"] == producer, "{answer}");
    }
    let said = cli(&broker, &["lag"])?;
    ensure!(said.contains("billing waits for open transactions on 1 of its partitions"), "{said}");
    let said = cli(&broker, &["lag", "billing"])?;
    let abort = "no coordinator knows of: kafka-transactions abort --topic payments --partition 0 --start-offset 1";
    ensure!(said.contains(&format!("payments-0 stops at 1, 2 below its high watermark: producer {producer} has")), "{said}");
    ensure!(said.contains(abort), "{said}");

    transactions(&broker.bootstrap(), &["abort", "--topic", "payments", "--partition", "0", "--start-offset", "1"])?;
    caught_up(&broker, &member)?;
    member.close()?;
    Ok(())
}

/// A client's process is gone in the middle of a transaction: its coordinator knows of it and ends it, but not soon.
fn a_long_one_shows_with_its_transactional_id(client: Copier) -> Result<()> {
    let broker = Broker::start_with(&[("group.initial.rebalance.delay.ms", "0"), ("offsets.topic.num.partitions", "4")])?;
    let bootstrap = broker.bootstrap();
    Client::Java.create(&bootstrap, "payments", 1)?;
    let (member, _) = held_back(&broker, || Ok((-1, text(&mut client.hang(&bootstrap, "payments", "left")?)?.trim().parse()?)))?;
    let group = waiting(&broker)?;
    let open = &group["partitions_list"][0]["open_transaction"];
    ensure!(open["ended_by"] == "coordinator" && open["transactional_id"] == "left" && open["first_offset"] == 1, "{group}");
    ensure!(open["age_seconds"].as_f64().is_some_and(|age| age >= 10.0) && age(&broker)? >= 10.0, "{group}");
    let producer = open["producer_id"].as_i64().context("a producer id")?;
    let exposed = metrics(&broker)?;
    ensure!(exposed.lines().any(|line| line == info(producer, "left", "coordinator")), "{exposed}");
    let said = cli(&broker, &["lag", "billing"])?;
    ensure!(said.contains(&format!("producer {producer} (left) has a transaction open for")) && !said.contains("abort"), "{said}");
    let overview = json(&broker, "/api/overview")?;
    ensure!(overview["held_back"][0]["open_transaction"]["transactional_id"] == "left", "{overview}");

    // The producer starts again, and what it left is aborted.
    Producer::init(broker.kafka(), "left")?;
    caught_up(&broker, &member)?;
    member.close()?;
    Ok(())
}

#[test]
fn a_long_one_of_kafka_clients_shows_with_its_transactional_id() -> Result<()> {
    a_long_one_shows_with_its_transactional_id(Copier::Java)
}

#[test]
fn a_long_one_of_librdkafka_shows_with_its_transactional_id() -> Result<()> {
    a_long_one_shows_with_its_transactional_id(Copier::Python)
}
