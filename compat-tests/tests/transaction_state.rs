//! `__transaction_state` between the brokers: what Apache Kafka wrote goes on here, and what is written here Apache Kafka's own tool reads.
#![allow(clippy::disallowed_methods, reason = "it waits for brokers, which write markers by their own clock")]

use std::net::SocketAddr;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use compat_tests::process::run;
use compat_tests::transactional::{Producer, again};
use compat_tests::wire::Client;
use compat_tests::{ApacheKafka, Broker, steady, tools};
use kafka_protocol::messages::describe_transactions_response::TransactionState;
use kafka_protocol::messages::{DescribeTransactionsRequest, TransactionalId};
use kafka_protocol::protocol::StrBytes;

const WAIT: Duration = Duration::from_secs(60);
const TOPIC: &str = "t";

fn describe(address: SocketAddr, id: &str) -> Result<TransactionState> {
    let mut client = Client::connect(address)?;
    let request =
        DescribeTransactionsRequest::default().with_transactional_ids(vec![TransactionalId(StrBytes::from_string(id.to_owned()))]);
    again(|| {
        let mut state = client.ask(0, &request)?.transaction_states.into_iter().next().context("no transaction is described")?;
        // Apache Kafka has them in the order of a hash.
        state.topics.iter_mut().for_each(|topic| topic.partitions.sort_unstable());
        Ok((state.error_code, state))
    })
}

/// Waits until a transaction is in this state: Apache Kafka writes markers after it has answered.
fn until(address: SocketAddr, id: &str, state: &str) -> Result<TransactionState> {
    let deadline = Instant::now() + WAIT;
    loop {
        let described = describe(address, id)?;
        if described.transaction_state.as_str() == state {
            return Ok(described);
        }
        ensure!(Instant::now() < deadline, "{id} is {}, not {state}", described.transaction_state.as_str());
        std::thread::sleep(Duration::from_millis(50));
    }
}

#[test]
fn what_apache_kafka_wrote_goes_on() -> Result<()> {
    let kafka = ApacheKafka::start()?;
    let address = kafka.kafka();
    ensure!(steady::create(&mut kafka.connect()?, TOPIC, 3, &[])? == 0);
    let mut open = Producer::init(address, "open")?;
    open.write(TOPIC, &[0, 2])?;
    let mut done = Producer::init(address, "done")?;
    done.write(TOPIC, &[1])?;
    done.end(5, true)?;
    let mut aborted = Producer::init(address, "aborted")?;
    aborted.write(TOPIC, &[1])?;
    aborted.end(3, false)?;
    let before =
        [until(address, "open", "Ongoing")?, until(address, "done", "CompleteCommit")?, until(address, "aborted", "CompleteAbort")?];
    let (data, _kept) = kafka.stop()?;

    let broker = Broker::start_on(&data, &[])?;
    let address = broker.kafka();
    for (id, before) in ["open", "done", "aborted"].iter().zip(&before) {
        ensure!(describe(address, id)? == *before, "{id} was {before:?} and is {:?}", describe(address, id)?);
    }
    open.client = broker.connect()?;
    open.end(3, true)?;
    let described = until(address, "open", "CompleteCommit")?;
    ensure!(described.topics.is_empty(), "{described:?}");
    let fenced = Producer::init(address, "done")?;
    ensure!(fenced.producer == (before[1].producer_id.0, before[1].producer_epoch + 1), "{:?} after {:?}", fenced.producer, before[1]);
    Ok(())
}

#[test]
fn apache_kafkas_tool_reads_what_is_written_here() -> Result<()> {
    let mut broker = Broker::start()?;
    let address = broker.kafka();
    ensure!(steady::create(&mut broker.connect()?, TOPIC, 3, &[])? == 0);
    Producer::init(address, "open")?.write(TOPIC, &[0, 2])?;
    let mut done = Producer::init(address, "done")?;
    done.write(TOPIC, &[1])?;
    done.end(5, true)?;
    let (open, done) = (until(address, "open", "Ongoing")?, until(address, "done", "CompleteCommit")?);
    ensure!(broker.stop()?.success(), "no clean stop");
    let mut logs = Vec::new();
    for entry in std::fs::read_dir(broker.data())? {
        let path = entry?.path();
        let is_state = path.file_name().is_some_and(|name| name.to_string_lossy().starts_with("__transaction_state-"));
        // A partition that nothing was written to has no segment yet.
        let segment = path.join("00000000000000000000.log");
        if is_state && segment.exists() {
            logs.push(segment.display().to_string());
        }
    }
    let mut command = tools::java("org.apache.kafka.tools.DumpLogSegments")?;
    command.args(["--transaction-log-decoder", "--files", &logs.join(",")]);
    let output = run(&mut command, &[], WAIT)?;
    let said = String::from_utf8_lossy(&output.stdout).into_owned();
    for (id, state) in [("open", &open), ("done", &done)] {
        let fields = [
            format!("\"transactionalId\":\"{id}\""),
            format!("\"producerId\":{},", state.producer_id.0),
            format!("\"producerEpoch\":{},", state.producer_epoch),
            format!("\"transactionTimeoutMs\":{},", state.transaction_timeout_ms),
            format!("\"transactionStatus\":\"{}\"", state.transaction_state.as_str()),
        ];
        let found = said.lines().any(|line| fields.iter().all(|field| line.contains(field.as_str())));
        ensure!(found, "no line has {fields:?} in\n{said}");
    }
    Ok(())
}
