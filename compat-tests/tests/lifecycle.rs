//! The binary as its operators meet it: started with nothing, started twice, stopped, killed, asked for its health, and given a bad
//! configuration.
#![allow(clippy::disallowed_methods, reason = "it waits for programs")]

use std::io::{BufRead, BufReader};
use std::net::TcpListener;
use std::path::Path;
use std::process::{Child, Command, Output, Stdio};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail, ensure};
use compat_tests::corpus::Record;
use compat_tests::driver::{Client, Codec};
use compat_tests::process::{Leash, run, run_any};
use compat_tests::{Broker, http, kcat, tools};
use kafka_protocol::messages::{DeleteTopicsRequest, MetadataRequest};
use kafka_protocol::protocol::StrBytes;
use rustix::process::{Pid, Signal, kill_process};
use tempfile::TempDir;
use uuid::Uuid;

const WAIT: Duration = Duration::from_secs(30);
const DEFAULT_PORTS: [u16; 2] = [9092, 9308];

#[test]
fn with_no_configuration_it_says_where_it_is_and_what_to_try() -> Result<()> {
    let directory = TempDir::with_prefix("highwater-bare-")?;
    wait_for_the_default_ports()?;
    let mut broker = Bare::start(directory.path())?;
    let said = broker.lines(5)?;
    let expected = format!(
        "highwater {}\n  kafka  127.0.0.1:9092\n  http   127.0.0.1:9308\n  data   ./highwater-data\n  \
         try    echo hello | kcat -b 127.0.0.1:9092 -t greetings -P",
        env!("CARGO_PKG_VERSION")
    );
    ensure!(said == expected, "it said\n{said}");
    let tried = said.lines().last().and_then(|line| line.trim().strip_prefix("try")).context("the last line")?;
    run(Command::new("sh").args(["-c", tried.trim()]), &[], WAIT).context("what it says to try")?;
    ensure!(values("127.0.0.1:9092", "greetings")? == ["hello"]);
    ensure!(http::get(([127, 0, 0, 1], 9308).into(), "/readyz")?.status == 200);
    ensure!(directory.path().join("highwater-data/greetings-0").is_dir(), "the data isn't where it says");
    let status = broker.interrupt()?;
    ensure!(status.success(), "Ctrl-C ended it with {status}");
    Ok(())
}

#[test]
fn a_second_process_on_the_same_data_is_refused_and_the_first_goes_on() -> Result<()> {
    let broker = Broker::start()?;
    produce(&broker, "t", &["one"])?;
    let second = serve(&[&format!("log.dirs={}", broker.data().display())])?;
    ensure!(!second.status.success(), "it started");
    let said = complaint(&second);
    ensure!(said.contains("in use by another process"), "it said\n{said}");
    ensure!(said.contains(&broker.data().display().to_string()), "it doesn't say which directory:\n{said}");
    produce(&broker, "t", &["two"])?;
    ensure!(values(&broker.bootstrap(), "t")? == ["one", "two"]);
    Ok(())
}

#[test]
fn a_clean_stop_keeps_topics_and_records() -> Result<()> {
    let mut broker = Broker::start()?;
    Client::Java.create(&broker.bootstrap(), "kept", 3)?;
    produce(&broker, "kept", &["one", "two", "three"])?;
    produce(&broker, "made-on-first-use", &["four"])?;
    let before = topics(&broker)?;
    ensure!(before.len() == 2, "{before:?}");
    for way in ["SIGTERM", "kill -9"] {
        if way == "SIGTERM" {
            let status = broker.stop()?;
            ensure!(status.success(), "SIGTERM ended it with {status}");
        } else {
            broker.kill()?;
        }
        broker.restart()?;
        let after = topics(&broker)?;
        ensure!(after == before, "after {way}: {after:?}, not {before:?}");
        let mut kept = values(&broker.bootstrap(), "kept")?;
        kept.sort();
        ensure!(kept == ["one", "three", "two"], "after {way}: {kept:?}");
        ensure!(values(&broker.bootstrap(), "made-on-first-use")? == ["four"], "after {way}");
    }
    Ok(())
}

#[test]
fn a_deleted_topic_stays_deleted_when_it_is_killed_right_after() -> Result<()> {
    let mut broker = Broker::start()?;
    Client::Java.create(&broker.bootstrap(), "goes", 4)?;
    produce(&broker, "goes", &["old"; 40])?;
    produce(&broker, "stays", &["stays"])?;
    let id = id_of(&broker, "goes")?.context("there before")?;
    delete(&broker, "goes")?;
    broker.kill()?;
    broker.restart()?;
    ensure!(id_of(&broker, "goes")?.is_none(), "it came back");
    ensure!(values(&broker.bootstrap(), "stays")? == ["stays"]);
    produce(&broker, "goes", &["new"])?;
    ensure!(id_of(&broker, "goes")?.is_some_and(|new| new != id), "the new topic has the old one's id");
    ensure!(values(&broker.bootstrap(), "goes")? == ["new"], "the old records are in the new topic");
    broker.kill()?;
    broker.restart()?;
    ensure!(values(&broker.bootstrap(), "goes")? == ["new"], "after another kill");
    Ok(())
}

/// Whoever reads what an offline command says may have seen enough: that is no crash.
#[test]
fn verify_ends_as_it_should_where_nobody_reads() -> Result<()> {
    let mut broker = Broker::start()?;
    produce(&broker, "t", &["one"])?;
    broker.stop()?;
    let full = std::fs::OpenOptions::new().write(true).open("/dev/full")?;
    let status = Command::new(tools::highwater()?).arg("verify").arg(broker.data()).stdout(full).status()?;
    ensure!(status.success(), "verify ended with {status}");
    Ok(())
}

#[test]
fn its_health_and_its_metrics_are_answered_over_http() -> Result<()> {
    let broker = Broker::start()?;
    produce(&broker, "counted", &["a", "b", "c"])?;
    let address = broker.http().context("it said no HTTP address")?;
    for path in ["/healthz", "/readyz"] {
        let answer = http::get(address, path)?;
        ensure!(answer.status == 200, "{path}: {answer:?}");
    }
    ensure!(http::get(address, "/nowhere")?.status == 404);
    let metrics = http::get(address, "/metrics")?;
    ensure!(metrics.status == 200 && metrics.head.contains("content-type: text/plain"), "{}", metrics.head);
    for line in metrics.body.lines().filter(|line| !line.is_empty() && !line.starts_with('#')) {
        let value = line.rsplit_once(' ').and_then(|(_, value)| value.parse::<f64>().ok());
        ensure!(value.is_some(), "no sample: {line}");
    }
    ensure!(
        metrics.body.contains("highwater_topic_received_records_total{topic=\"counted\"} 3\n"),
        "records aren't counted:\n{}",
        metrics.body.lines().filter(|line| line.contains("counted")).collect::<Vec<_>>().join("\n")
    );
    ensure!(metrics.body.contains("highwater_partition_log_end_offset{topic=\"counted\",partition=\"0\"} 3\n"), "no log end");
    Ok(())
}

#[test]
fn a_bad_value_is_a_clear_error_before_anything_is_opened() -> Result<()> {
    let bad = [
        ("num.partitions", "0"),
        ("log.segment.bytes", "much"),
        ("listeners", "nonsense"),
        ("auto.create.topics.enable", "perhaps"),
        ("log.index.interval.bytes", "-1"),
    ];
    for (key, value) in bad {
        let directory = TempDir::with_prefix("highwater-bad-")?;
        let data = directory.path().join("data");
        let ended = serve(&[&format!("log.dirs={}", data.display()), &format!("{key}={value}")])?;
        ensure!(!ended.status.success(), "{key}={value}: it started");
        let said = complaint(&ended);
        ensure!(said.contains(key) && said.contains(value), "{key}={value}: it said\n{said}");
        ensure!(!said.contains("panicked"), "{key}={value}: it said\n{said}");
        ensure!(!data.exists(), "{key}={value}: it made its data directory");
    }
    let ended = serve(&["num.partitions"])?;
    ensure!(!ended.status.success() && complaint(&ended).contains("KEY=VALUE"), "{}", complaint(&ended));
    Ok(())
}

#[test]
fn an_unknown_key_is_a_warning_that_names_the_nearest() -> Result<()> {
    let broker = Broker::start_with(&[("num.partition", "3")])?;
    let log = broker.log()?;
    let warned = log.lines().any(|line| line.contains("num.partition;") && line.contains("num.partitions") && line.contains("WARN"));
    ensure!(warned, "its log:\n{log}");
    Ok(())
}

/// The binary with no arguments at all in a directory of its own.
struct Bare {
    child: Child,
    lines: std::sync::mpsc::Receiver<String>,
    _leash: Leash,
}

impl Bare {
    fn start(directory: &Path) -> Result<Self> {
        let mut child = Command::new(tools::highwater()?.canonicalize()?)
            .current_dir(directory)
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(Stdio::inherit())
            .spawn()?;
        let stdout = child.stdout.take().context("stdout is piped")?;
        let (sender, lines) = std::sync::mpsc::channel();
        std::thread::spawn(move || BufReader::new(stdout).lines().map_while(Result::ok).try_for_each(|line| sender.send(line)));
        let leash = Leash::tie(&child, None)?;
        Ok(Self { child, lines, _leash: leash })
    }

    fn lines(&self, count: usize) -> Result<String> {
        let lines: Result<Vec<String>, _> = (0..count).map(|_| self.lines.recv_timeout(WAIT)).collect();
        Ok(lines.context("it said too little")?.join("\n"))
    }

    fn interrupt(&mut self) -> Result<std::process::ExitStatus> {
        kill_process(Pid::from_child(&self.child), Signal::INT)?;
        let deadline = Instant::now() + WAIT;
        while Instant::now() < deadline {
            if let Some(status) = self.child.try_wait()? {
                return Ok(status);
            }
            std::thread::sleep(Duration::from_millis(5));
        }
        bail!("still running {WAIT:?} after SIGINT")
    }
}

impl Drop for Bare {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// Another broker of this machine may have them for a while; for good, this test can't be.
fn wait_for_the_default_ports() -> Result<()> {
    let deadline = Instant::now() + 2 * WAIT;
    while Instant::now() < deadline {
        if DEFAULT_PORTS.iter().all(|port| TcpListener::bind(("127.0.0.1", *port)).is_ok()) {
            return Ok(());
        }
        std::thread::sleep(Duration::from_millis(50));
    }
    bail!("something else of this machine listens on one of {DEFAULT_PORTS:?}")
}

/// Runs the binary where it is expected to end by itself.
fn serve(options: &[&str]) -> Result<Output> {
    let mut command = Command::new(tools::highwater()?);
    command.arg("serve");
    for option in ["listeners=PLAINTEXT://127.0.0.1:0", "http.listeners=127.0.0.1:0"].iter().chain(options) {
        command.args(["-o", option]);
    }
    run_any(&mut command, &[], WAIT)
}

fn complaint(output: &Output) -> String {
    String::from_utf8_lossy(&output.stderr).into_owned()
}

fn produce(broker: &Broker, topic: &str, values: &[&str]) -> Result<()> {
    let record =
        |value: &&str| Record { partition: None, timestamp: None, key: None, value: Some(value.as_bytes().to_vec()), headers: vec![] };
    kcat::produce(&broker.bootstrap(), topic, Codec::None, &values.iter().map(record).collect::<Vec<_>>())
}

fn values(bootstrap: &str, topic: &str) -> Result<Vec<String>> {
    let read = kcat::consume(bootstrap, topic)?;
    read.into_iter().map(|record| Ok(String::from_utf8(record.value.context("a value")?)?)).collect()
}

/// Name, id and number of partitions of each topic.
fn topics(broker: &Broker) -> Result<Vec<(String, Uuid, usize)>> {
    let answer = broker.connect()?.ask(12, &MetadataRequest::default().with_topics(None))?;
    let name = |name: Option<kafka_protocol::messages::TopicName>| name.map(|name| name.0.to_string()).unwrap_or_default();
    let mut topics: Vec<_> = answer.topics.into_iter().map(|topic| (name(topic.name), topic.topic_id, topic.partitions.len())).collect();
    topics.sort();
    Ok(topics)
}

fn id_of(broker: &Broker, topic: &str) -> Result<Option<Uuid>> {
    Ok(topics(broker)?.into_iter().find(|(name, ..)| name == topic).map(|(_, id, _)| id))
}

fn delete(broker: &Broker, topic: &str) -> Result<()> {
    let name = StrBytes::from_string(topic.to_owned()).into();
    let answer = broker.connect()?.ask(5, &DeleteTopicsRequest::default().with_topic_names(vec![name]).with_timeout_ms(10_000))?;
    let errors: Vec<i16> = answer.responses.iter().map(|response| response.error_code).collect();
    ensure!(errors == [0], "the deletion was answered {errors:?}");
    Ok(())
}
