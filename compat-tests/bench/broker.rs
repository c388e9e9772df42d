//! Starts one broker, highwater or Apache Kafka, pinned to a core, in a directory of its own, and stops it. Both get the same
//! settings; all else is each one's default.

use std::fs::{self, File};
use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail, ensure};

use crate::process;

/// Which broker, and where its program is.
#[derive(Clone)]
pub enum Kind {
    Highwater { binary: PathBuf },
    ApacheKafka { jars: PathBuf },
}

impl Kind {
    pub fn name(&self) -> &'static str {
        match self {
            Kind::Highwater { .. } => "highwater",
            Kind::ApacheKafka { .. } => "Apache Kafka",
        }
    }
}

/// A running broker. Killed when dropped.
pub struct Broker {
    pub kind: Kind,
    pub bootstrap: String,
    pub data: PathBuf,
    /// Time from the start of the process to the first answered Metadata.
    pub start: Duration,
    child: Child,
}

/// Settings that both brokers get: deleted topics leave the disk at once, so that a round finds the page cache that the last one left.
const SAME: &[(&str, &str)] = &[("log.segment.delete.delay.ms", "500")];

/// What `kafka-server-start.sh` and `kafka-run-class.sh` give the JVM.
const JVM: &[&str] = &[
    "-Xmx1G",
    "-Xms1G",
    "-server",
    "-XX:+UseG1GC",
    "-XX:MaxGCPauseMillis=20",
    "-XX:InitiatingHeapOccupancyPercent=35",
    "-XX:+ExplicitGCInvokesConcurrent",
    "-Djava.awt.headless=true",
];

const START_MAX: Duration = Duration::from_secs(60);
const STOP_MAX: Duration = Duration::from_secs(30);

impl Broker {
    /// Starts a broker on `core` with an empty directory below `scratch` and waits until it answers Metadata.
    pub fn start(kind: &Kind, scratch: &Path, core: usize) -> Result<Broker> {
        let data = scratch.join(kind.name().replace(' ', "-").to_lowercase());
        if data.exists() {
            fs::remove_dir_all(&data)?;
        }
        fs::create_dir_all(&data)?;
        let port = free_port()?;
        let bootstrap = format!("127.0.0.1:{port}");
        let mut command = Command::new("taskset");
        command.args(["-c", &core.to_string()]);
        match kind {
            Kind::Highwater { binary } => highwater(&mut command, binary, &data, &bootstrap),
            Kind::ApacheKafka { jars } => apache_kafka(&mut command, jars, &data, &bootstrap)?,
        }
        let log = File::create(scratch.join(format!("{}.log", kind.name().replace(' ', "-").to_lowercase())))?;
        command.stdin(Stdio::null()).stdout(log.try_clone()?).stderr(log);
        let begun = Instant::now();
        let child = command.spawn().context("start a broker: is taskset there?")?;
        let mut broker = Broker { kind: kind.clone(), bootstrap, data, start: Duration::ZERO, child };
        broker.wait_for_metadata(begun)?;
        broker.start = begun.elapsed();
        Ok(broker)
    }

    fn wait_for_metadata(&mut self, begun: Instant) -> Result<()> {
        while begun.elapsed() < START_MAX {
            if let Some(status) = self.child.try_wait()? {
                bail!("{} ended with {status} before it answered", self.kind.name());
            }
            if metadata(&self.bootstrap).is_ok() {
                return Ok(());
            }
            std::thread::sleep(Duration::from_millis(1));
        }
        bail!("{} answers no Metadata after {START_MAX:?}", self.kind.name())
    }

    /// `taskset` replaces itself by the broker, so that the child is the broker.
    pub fn pid(&self) -> u32 {
        self.child.id()
    }

    pub fn cpu_seconds(&self) -> Result<f64> {
        process::cpu_seconds(self.pid())
    }

    pub fn resident_mb(&self) -> Result<f64> {
        process::resident_mb(self.pid())
    }

    /// The directory of partition 0 of `topic`.
    pub fn partition(&self, topic: &str) -> PathBuf {
        self.data.join(format!("{topic}-0"))
    }

    /// Waits until no file of a deleted topic is left, at most a few seconds: a broker that keeps them longer still works.
    pub fn wait_for_deletions(&self) -> Result<()> {
        let begun = Instant::now();
        while begun.elapsed() < Duration::from_secs(5) {
            let left = fs::read_dir(&self.data)?.filter_map(Result::ok).any(|entry| entry.file_name().to_string_lossy().contains("bench-"));
            if !left {
                return Ok(());
            }
            std::thread::sleep(Duration::from_millis(20));
        }
        eprintln!("bench: {} still has files of deleted topics", self.kind.name());
        Ok(())
    }

    /// Asks the broker to stop and waits for it.
    pub fn stop(mut self) -> Result<()> {
        let asked = Command::new("kill").arg(self.pid().to_string()).status()?;
        ensure!(asked.success(), "kill failed");
        let begun = Instant::now();
        while begun.elapsed() < STOP_MAX {
            if self.child.try_wait()?.is_some() {
                return Ok(());
            }
            std::thread::sleep(Duration::from_millis(10));
        }
        bail!("{} doesn't stop", self.kind.name())
    }
}

impl Drop for Broker {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

fn highwater(command: &mut Command, binary: &Path, data: &Path, bootstrap: &str) {
    command.arg(binary).arg("serve");
    for (key, value) in [("listeners", format!("PLAINTEXT://{bootstrap}")), ("http.listeners", "127.0.0.1:0".to_owned())] {
        command.args(["-o", &format!("{key}={value}")]);
    }
    command.args(["-o", &format!("log.dirs={}", data.display())]);
    for (key, value) in SAME {
        command.args(["-o", &format!("{key}={value}")]);
    }
}

fn apache_kafka(command: &mut Command, jars: &Path, data: &Path, bootstrap: &str) -> Result<()> {
    let controller = format!("127.0.0.1:{}", free_port()?);
    let mut properties = format!(
        "process.roles=broker,controller\nnode.id=1\ncontroller.quorum.voters=1@{controller}\n\
         listeners=PLAINTEXT://{bootstrap},CONTROLLER://{controller}\nadvertised.listeners=PLAINTEXT://{bootstrap}\n\
         controller.listener.names=CONTROLLER\ninter.broker.listener.name=PLAINTEXT\nlog.dirs={}\n\
         offsets.topic.replication.factor=1\ntransaction.state.log.replication.factor=1\ntransaction.state.log.min.isr=1\n",
        data.display()
    );
    for (key, value) in SAME {
        properties.push_str(&format!("{key}={value}\n"));
    }
    let file = data.with_extension("properties");
    fs::write(&file, properties)?;
    let classpath = format!("{}/*", jars.display());
    let formatted = Command::new("java")
        .args(["-cp", &classpath, "kafka.tools.StorageTool", "format", "-t", "MkU3OEVBNTcwNTJENDM2Qk", "-c"])
        .arg(&file)
        .output()
        .context("run java")?;
    ensure!(formatted.status.success(), "format: {}", String::from_utf8_lossy(&formatted.stderr));
    command.arg("java").args(JVM).args(["-cp", &classpath, "kafka.Kafka"]).arg(&file);
    Ok(())
}

fn free_port() -> Result<u16> {
    Ok(TcpListener::bind("127.0.0.1:0")?.local_addr()?.port())
}

/// Asks for Metadata (version 1, no topics) and holds the answer to naming at least one broker.
fn metadata(address: &str) -> Result<()> {
    let mut stream = TcpStream::connect(address)?;
    stream.set_read_timeout(Some(Duration::from_secs(5)))?;
    let mut request = vec![0, 3, 0, 1, 0, 0, 0, 7, 0, 5];
    request.extend_from_slice(b"bench");
    request.extend_from_slice(&[0, 0, 0, 0]);
    stream.write_all(&u32::try_from(request.len())?.to_be_bytes())?;
    stream.write_all(&request)?;
    let mut length = [0_u8; 4];
    stream.read_exact(&mut length)?;
    let mut answer = vec![0_u8; usize::try_from(u32::from_be_bytes(length))?];
    stream.read_exact(&mut answer)?;
    ensure!(answer.get(..8).is_some_and(|head| head[..4] == [0, 0, 0, 7] && head[4..] != [0, 0, 0, 0]), "no broker in the answer");
    Ok(())
}
