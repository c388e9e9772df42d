//! Transactions with real clients: a topic is copied exactly once while the broker is killed again and again, by both flows; and Apache
//! Kafka's tools find a transaction that was left behind, and end it.

use std::{
    process::{Command, Output, Stdio},
    sync::mpsc,
    thread,
    time::Duration,
};

use anyhow::{Context, Result, bail, ensure};
use compat_tests::{
    broker::Broker,
    driver::Client,
    http,
    process::{run, run_any, tail},
    programs::{Copier, LineProducer},
    tools,
};
use kafka_protocol::{
    messages::{
        BrokerId, ListOffsetsRequest, TopicName,
        list_offsets_request::{ListOffsetsPartition, ListOffsetsTopic},
    },
    protocol::StrBytes,
};

/// The broker is killed once in each of so many portions of so many records.
const PORTIONS: usize = 8;
const PORTION: usize = 250;
const RECORDS: usize = PORTIONS * PORTION;
/// When so many offsets came to the copy: after some transactions of a portion, before most.
const KILL_AFTER: i64 = 50;
const LOOK_EVERY: Duration = Duration::from_millis(5);
const PARTITIONS: i32 = 3;
const COPIED_IN: Duration = Duration::from_secs(300);
const TOOL: Duration = Duration::from_secs(60);

fn text(output: &Output) -> String {
    String::from_utf8_lossy(&output.stdout).into_owned()
}

/// A tool of Apache Kafka's.
fn tool(class: &str, broker: &Broker, args: &[&str]) -> Result<String> {
    let mut command = tools::java(&format!("org.apache.kafka.tools.{class}"))?;
    run(command.args(["--bootstrap-server", &broker.bootstrap()]).args(args), b"", TOOL).map(|output| text(&output))
}

/// Where a topic's partitions end, added up: it only grows.
fn ends(broker: &Broker, topic: &str) -> Result<i64> {
    let partition = |index| ListOffsetsPartition::default().with_partition_index(index).with_timestamp(-1);
    let name = TopicName(StrBytes::from_string(topic.to_owned()));
    let of = ListOffsetsTopic::default().with_name(name).with_partitions((0..PARTITIONS).map(partition).collect());
    let answer = broker.connect()?.ask(5, &ListOffsetsRequest::default().with_replica_id(BrokerId(-1)).with_topics(vec![of]))?;
    Ok(answer.topics.iter().flat_map(|topic| &topic.partitions).map(|partition| partition.offset).sum())
}

/// Requests of an API since the broker's start.
fn requests(broker: &Broker, api: &str) -> Result<u64> {
    let metrics = http::get(broker.http().context("HTTP is on")?, "/metrics")?.body;
    let series = format!("highwater_requests_total{{api=\"{api}\",");
    let counted = metrics.lines().filter_map(|line| line.strip_prefix(&series)?.split_once(' ')?.1.parse::<u64>().ok());
    Ok(counted.sum())
}

/// Feeds the copier in portions, and kills the broker in the middle of each, by what has arrived in the copy: as often as there are portions,
/// however fast either is. The copier's output, and how often a partition was added to a transaction by a request of its own.
fn run_among_kills(broker: &mut Broker, mut command: Command) -> Result<(Output, u64)> {
    let (sender, ended) = mpsc::channel();
    command.stdin(Stdio::null());
    thread::spawn(move || sender.send(run_any(&mut command, b"", COPIED_IN)));
    let mut added = 0;
    for portion in 0..PORTIONS {
        let before = ends(broker, "copy")?;
        let lines: String = (portion * PORTION..(portion + 1) * PORTION).map(|i| format!("k{i}\tv{i}\n")).collect();
        run(&mut LineProducer::Kcat.command(&broker.bootstrap(), "original")?, lines.as_bytes(), TOOL)?;
        while ends(broker, "copy")? < before + KILL_AFTER {
            match ended.recv_timeout(LOOK_EVERY) {
                Err(mpsc::RecvTimeoutError::Timeout) => {}
                Ok(output) => bail!("it ended before it was fed: {:?}", output.map(|output| tail(&output.stderr))),
                Err(gone) => return Err(gone).context("the copier's thread"),
            }
        }
        added += requests(broker, "AddPartitionsToTxn")?;
        broker.kill()?;
        broker.restart()?;
    }
    let output = ended.recv().context("the copier's thread")??;
    Ok((output, added + requests(broker, "AddPartitionsToTxn")?))
}

fn committed(bootstrap: &str, topic: &str) -> Result<Vec<String>> {
    let output = run(&mut Copier::Java.read(bootstrap, topic)?, b"", TOOL)?;
    let mut lines: Vec<String> = text(&output).lines().map(str::to_owned).collect();
    lines.sort_unstable();
    Ok(lines)
}

fn copies_exactly_once(copier: Copier, transaction_version: i16) -> Result<()> {
    let mut broker = Broker::start_with(&[("offsets.topic.num.partitions", "3"), ("transaction.state.log.num.partitions", "3")])?;
    let bootstrap = broker.bootstrap();
    if transaction_version < 2 {
        tool("FeatureCommand", &broker, &["downgrade", "--feature", &format!("transaction.version={transaction_version}")])?;
    }
    let described = tool("FeatureCommand", &broker, &["describe"])?;
    let level = described.lines().find(|line| line.contains("transaction.version")).unwrap_or_default();
    ensure!(level.contains(&format!("FinalizedVersionLevel: {transaction_version}")), "{described}");
    for topic in ["original", "copy"] {
        Client::Java.create(&bootstrap, topic, PARTITIONS)?;
    }
    let copy = copier.copy(&bootstrap, "original", "copy", "copiers", RECORDS)?;
    let (output, added) = run_among_kills(&mut broker, copy)?;
    ensure!(output.status.success(), "{copier:?}: {}\n{}", output.status, tail(&output.stderr));
    let is_new = transaction_version >= 2 && copier.speaks_version_2();
    ensure!(is_new == (added == 0), "{copier:?} of version {transaction_version}: {added} times AddPartitionsToTxn");
    let (original, copy) = (committed(&bootstrap, "original")?, committed(&bootstrap, "copy")?);
    ensure!(original.len() == RECORDS, "{} records of {RECORDS} in the original", original.len());
    ensure!(
        original == copy,
        "{copier:?} of version {transaction_version}: {} of {} records\n{}",
        copy.len(),
        original.len(),
        tail(&output.stderr)
    );
    Ok(())
}

#[test]
fn java_copies_exactly_once_while_the_broker_is_killed() -> Result<()> {
    copies_exactly_once(Copier::Java, 2)
}

#[test]
fn java_copies_exactly_once_by_the_flow_of_old() -> Result<()> {
    copies_exactly_once(Copier::Java, 1)
}

#[test]
fn java_copies_exactly_once_with_the_feature_off() -> Result<()> {
    copies_exactly_once(Copier::Java, 0)
}

#[test]
fn librdkafka_copies_exactly_once_while_the_broker_is_killed() -> Result<()> {
    copies_exactly_once(Copier::Python, 2)
}

#[test]
fn librdkafka_copies_exactly_once_by_the_flow_of_old() -> Result<()> {
    copies_exactly_once(Copier::Python, 1)
}

#[test]
fn librdkafka_copies_exactly_once_with_the_feature_off() -> Result<()> {
    copies_exactly_once(Copier::Python, 0)
}

#[test]
fn franz_copies_exactly_once_while_the_broker_is_killed() -> Result<()> {
    copies_exactly_once(Copier::Franz, 2)
}

#[test]
fn franz_copies_exactly_once_by_the_flow_of_old() -> Result<()> {
    copies_exactly_once(Copier::Franz, 1)
}

#[test]
fn franz_copies_exactly_once_with_the_feature_off() -> Result<()> {
    copies_exactly_once(Copier::Franz, 0)
}

#[test]
fn aiokafka_copies_exactly_once_while_the_broker_is_killed() -> Result<()> {
    copies_exactly_once(Copier::Aio, 2)
}

#[test]
fn kafkas_tools_find_a_transaction_that_was_left_and_end_it() -> Result<()> {
    let broker = Broker::start()?;
    let bootstrap = broker.bootstrap();
    Client::Java.create(&bootstrap, "t", 1)?;
    run(&mut LineProducer::Kcat.command(&bootstrap, "t")?, b"k\tbefore\n", TOOL)?;
    let left = text(&run(&mut Copier::Java.hang(&bootstrap, "t", "left")?, b"", TOOL)?);
    let offset = left.trim();
    ensure!(offset == "1", "the transaction begins at {offset}");
    run(&mut LineProducer::Kcat.command(&bootstrap, "t")?, b"k\tafter\n", TOOL)?;
    ensure!(committed(&bootstrap, "t")? == ["0\tbefore"], "readers of committed records wait");

    let transactions = |args: &[&str]| tool("TransactionsCommand", &broker, args);
    let listed = transactions(&["list"])?;
    ensure!(listed.lines().any(|line| line.starts_with("left") && line.contains("Ongoing")), "{listed}");
    let described = transactions(&["describe", "--transactional-id", "left"])?;
    ensure!(described.contains("Ongoing") && described.contains("t-0"), "{described}");
    let producers = transactions(&["describe-producers", "--topic", "t", "--partition", "0"])?;
    ensure!(producers.lines().nth(1).is_some_and(|line| line.trim_end().ends_with(offset)), "{producers}");
    // Its coordinator knows of it, so that it ends by itself: nothing hangs.
    let hanging = transactions(&["find-hanging", "--broker-id", "1", "--max-transaction-timeout", "0"])?;
    ensure!(!hanging.lines().skip(1).any(|line| line.starts_with("t ")), "{hanging}");
    transactions(&["abort", "--topic", "t", "--partition", "0", "--start-offset", offset])?;
    ensure!(committed(&bootstrap, "t")? == ["0\tafter", "0\tbefore"], "the aborted record is skipped");
    Ok(())
}
