//! Transactions with real clients: a topic is copied exactly once while the broker is killed again and again, by both flows; and Apache
//! Kafka's tools find a transaction that was left behind, and end it.

use std::{
    process::{Command, Output, Stdio},
    sync::mpsc,
    thread,
    time::Duration,
};

use anyhow::{Context, Result, ensure};
use compat_tests::{
    broker::Broker,
    driver::Client,
    process::{run, run_any, tail},
    programs::{Copier, LineProducer},
    tools,
};

const RECORDS: usize = 2_000;
const PARTITIONS: i32 = 3;
const COPIED_IN: Duration = Duration::from_secs(180);
const TOOL: Duration = Duration::from_secs(60);
/// Between two kills: long enough for some transactions, short enough for several kills.
const KILL_EVERY: Duration = Duration::from_millis(1_500);
/// As many kills are enough; what is left is copied in peace.
const KILLS_MAX: usize = 8;

fn text(output: &Output) -> String {
    String::from_utf8_lossy(&output.stdout).into_owned()
}

/// A tool of Apache Kafka's.
fn tool(class: &str, broker: &Broker, args: &[&str]) -> Result<String> {
    let mut command = tools::java(&format!("org.apache.kafka.tools.{class}"))?;
    run(command.args(["--bootstrap-server", &broker.bootstrap()]).args(args), b"", TOOL).map(|output| text(&output))
}

/// Kills the broker and starts it again while `command` runs. How often.
fn run_among_kills(broker: &mut Broker, mut command: Command) -> Result<(Output, usize)> {
    let (sender, ended) = mpsc::channel();
    command.stdin(Stdio::null());
    thread::spawn(move || sender.send(run_any(&mut command, b"", COPIED_IN)));
    let mut kills = 0;
    loop {
        match ended.recv_timeout(KILL_EVERY) {
            Ok(output) => return output.map(|output| (output, kills)),
            Err(mpsc::RecvTimeoutError::Timeout) if kills < KILLS_MAX => {
                broker.kill()?;
                broker.restart()?;
                kills += 1;
            }
            Err(mpsc::RecvTimeoutError::Timeout) => {}
            Err(gone) => return Err(gone).context("the copier's thread"),
        }
    }
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
    let lines: String = (0..RECORDS).map(|i| format!("k{i}\tv{i}\n")).collect();
    run(&mut LineProducer::Kcat.command(&bootstrap, "original")?, lines.as_bytes(), TOOL)?;
    let (output, kills) = run_among_kills(&mut broker, copier.copy(&bootstrap, "original", "copy", "copiers")?)?;
    ensure!(output.status.success(), "{copier:?}: {}\n{}", output.status, tail(&output.stderr));
    ensure!(kills >= 2, "the copy was over before the broker was killed twice");
    let (original, copy) = (committed(&bootstrap, "original")?, committed(&bootstrap, "copy")?);
    ensure!(original.len() == RECORDS, "{} records of {RECORDS} in the original", original.len());
    ensure!(
        original == copy,
        "{copier:?} of version {transaction_version}: {} of {} records after {kills} kills",
        copy.len(),
        original.len()
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
fn librdkafka_copies_exactly_once_while_the_broker_is_killed() -> Result<()> {
    copies_exactly_once(Copier::Python, 2)
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
