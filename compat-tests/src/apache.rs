//! A running Apache Kafka of the Maven jars: one node, broker and controller in one (KRaft). The oracle of the differential tests, and
//! what the clients' programs are checked against.

use std::fmt::Write as _;
use std::fs::File;
use std::net::{Ipv4Addr, SocketAddr, TcpListener};
use std::path::{Path, PathBuf};
use std::process::{Child, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};
use base64::Engine;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use kafka_protocol::messages::MetadataRequest;
use rustix::process::{Pid, Signal, kill_process};
use tempfile::TempDir;

use crate::process::{Leash, run, tail};
use crate::tools;
use crate::wire::Client;

const WAIT: Duration = Duration::from_secs(90);

/// A broker with its own data directory, which ends with this value.
pub struct ApacheKafka {
    child: Child,
    _leash: Leash,
    temp: TempDir,
    kafka: SocketAddr,
}

impl ApacheKafka {
    /// Formats an empty directory and starts a broker on free ports.
    ///
    /// # Errors
    /// If it doesn't answer Metadata within [`WAIT`].
    pub fn start() -> Result<Self> {
        Self::start_with(&[])
    }

    /// [`ApacheKafka::start`] with lines of the test's own in `server.properties`.
    ///
    /// # Errors
    /// As [`ApacheKafka::start`].
    pub fn start_with(options: &[(&str, &str)]) -> Result<Self> {
        let temp = TempDir::with_prefix("kafka-test-").context("make a directory")?;
        let (kafka, controller) = (free_port()?, free_port()?);
        let properties = temp.path().join("server.properties");
        std::fs::write(&properties, server_properties(temp.path(), kafka, controller, options))?;
        let cluster_id = cluster_id();
        run(
            tools::java("kafka.tools.StorageTool")?
                // Eligible leader replicas make a dynamic config of min.insync.replicas, which no administrator asked for.
                .args(["format", "-t", &cluster_id, "--feature", "eligible.leader.replicas.version=0", "-c"])
                .arg(&properties),
            &[],
            WAIT,
        )
        .context("format Kafka's directory")?;
        let log = File::create(log_path(temp.path()))?;
        let child = tools::kafka_jvm("kafka.Kafka")?
            .arg(&properties)
            .current_dir(temp.path())
            .stdin(Stdio::null())
            .stdout(log.try_clone()?)
            .stderr(log)
            .spawn()
            .context("start Apache Kafka")?;
        let mut started = Self { _leash: Leash::tie(&child, Some(temp.path()))?, child, temp, kafka };
        started.wait_until_ready()?;
        Ok(started)
    }

    /// What clients are told: `HOST:PORT`.
    pub fn bootstrap(&self) -> String {
        self.kafka.to_string()
    }

    /// Where it speaks Kafka.
    pub fn kafka(&self) -> SocketAddr {
        self.kafka
    }

    /// The directory of its partitions.
    pub fn data(&self) -> PathBuf {
        data_path(self.temp.path())
    }

    /// Its process id.
    pub fn pid(&self) -> u32 {
        self.child.id()
    }

    /// All that it wrote so far.
    pub fn log(&self) -> String {
        String::from_utf8_lossy(&std::fs::read(log_path(self.temp.path())).unwrap_or_default()).into_owned()
    }

    /// A connection that says what the test wants said.
    ///
    /// # Errors
    /// If it doesn't accept one.
    pub fn connect(&self) -> Result<Client> {
        Client::connect(self.kafka)
    }

    /// Stops it cleanly and hands over its directory, which goes when the value does: the partitions are in `data` below it.
    ///
    /// # Errors
    /// If it is still there after [`WAIT`].
    pub fn stop(mut self) -> Result<(PathBuf, TempDir)> {
        kill_process(Pid::from_child(&self.child), Signal::TERM).context("send SIGTERM")?;
        let deadline = Instant::now() + WAIT;
        while self.child.try_wait()?.is_none() {
            if Instant::now() > deadline {
                bail!("Apache Kafka is still running {WAIT:?} after SIGTERM");
            }
            thread::sleep(Duration::from_millis(50));
        }
        let kept = TempDir::with_prefix("kafka-test-kept-")?;
        let data = data_path(kept.path());
        std::fs::rename(self.data(), &data)?;
        Ok((data, kept))
    }

    fn wait_until_ready(&mut self) -> Result<()> {
        let deadline = Instant::now() + WAIT;
        loop {
            if self.answers_metadata().unwrap_or(false) {
                return Ok(());
            }
            if let Some(status) = self.child.try_wait()? {
                bail!("Apache Kafka ended with {status}\n{}", tail(self.log().as_bytes()));
            }
            if Instant::now() > deadline {
                bail!("Apache Kafka isn't ready after {WAIT:?}\n{}", tail(self.log().as_bytes()));
            }
            thread::sleep(Duration::from_millis(100));
        }
    }

    fn answers_metadata(&self) -> Result<bool> {
        let answer = self.connect()?.ask(9, &MetadataRequest::default().with_topics(Some(Vec::new())))?;
        Ok(!answer.brokers.is_empty())
    }
}

impl Drop for ApacheKafka {
    fn drop(&mut self) {
        if thread::panicking() {
            eprintln!("--- Apache Kafka's log ends with\n{}\n---", tail(self.log().as_bytes()));
        }
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// A random one. As in `Uuid.randomUuid` of Kafka's, none that begins with a dash: the tools take that for an option.
fn cluster_id() -> String {
    let mut random = std::iter::repeat_with(|| URL_SAFE_NO_PAD.encode(uuid::Uuid::new_v4().into_bytes()));
    random.find(|id| !id.starts_with('-')).unwrap_or_default()
}

fn log_path(directory: &Path) -> PathBuf {
    directory.join("kafka.log")
}

fn data_path(directory: &Path) -> PathBuf {
    directory.join("data")
}

/// A port that was free a moment ago: Kafka can't tell the port that it got for 0 to its clients.
fn free_port() -> Result<SocketAddr> {
    Ok(TcpListener::bind((Ipv4Addr::LOCALHOST, 0))?.local_addr()?)
}

fn server_properties(directory: &Path, kafka: SocketAddr, controller: SocketAddr, options: &[(&str, &str)]) -> String {
    let data = data_path(directory).display().to_string();
    let mut all = vec![
        ("process.roles", "broker,controller".to_owned()),
        ("node.id", "1".to_owned()),
        ("controller.quorum.voters", format!("1@{controller}")),
        ("controller.listener.names", "CONTROLLER".to_owned()),
        ("listeners", format!("PLAINTEXT://{kafka},CONTROLLER://{controller}")),
        ("advertised.listeners", format!("PLAINTEXT://{kafka}")),
        ("log.dirs", data),
        ("offsets.topic.replication.factor", "1".to_owned()),
        ("transaction.state.log.replication.factor", "1".to_owned()),
        ("transaction.state.log.min.isr", "1".to_owned()),
        ("share.coordinator.state.topic.replication.factor", "1".to_owned()),
        ("share.coordinator.state.topic.min.isr", "1".to_owned()),
        ("group.initial.rebalance.delay.ms", "0".to_owned()),
    ];
    all.extend(options.iter().map(|(key, value)| (*key, (*value).to_owned())));
    let mut text = String::new();
    for (key, value) in all {
        let _ = writeln!(text, "{key}={value}");
    }
    text
}
