//! A running highwater: the released binary as its users start it. It never reaches into its files or its memory.

use std::collections::BTreeMap;
use std::ffi::OsString;
use std::fs::{File, OpenOptions};
use std::io::{BufRead, BufReader};
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdout, Command, ExitStatus, Stdio};
use std::sync::mpsc::{self, Receiver};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};
use rustix::process::{Pid, Signal, kill_process};
use tempfile::TempDir;

use crate::clock::Clock;
use crate::process::{Leash, tail};
use crate::tools;
use crate::wire::Client;

/// The longest that a start or a clean stop may take. (The design says 0.1 s and 10 s; benches measure that.)
const WAIT: Duration = Duration::from_secs(30);

/// A broker with its own data directory, which ends with this value. If the test fails, the end of its log is printed.
pub struct Broker {
    child: Child,
    leash: Option<Leash>,
    temp: TempDir,
    data: PathBuf,
    options: BTreeMap<String, String>,
    environment: Environment,
    /// How many files it may have open, if that's the test's to say.
    open_files_max: Option<u32>,
    kafka: SocketAddr,
    http: Option<SocketAddr>,
}

type Environment = Vec<(&'static str, OsString)>;

impl Broker {
    /// Starts one with an empty directory, on free ports.
    ///
    /// # Errors
    /// If it doesn't say within [`WAIT`] that it is ready.
    pub fn start() -> Result<Self> {
        Self::start_with(&[])
    }

    /// [`Broker::start`] with settings of the test's own, as `-o KEY=VALUE`.
    ///
    /// # Errors
    /// As [`Broker::start`].
    pub fn start_with(options: &[(&str, &str)]) -> Result<Self> {
        let temp = TempDir::with_prefix("highwater-test-").context("make a directory")?;
        let data = temp.path().join("data");
        Self::start_in(temp, data, options, Vec::new(), None)
    }

    /// [`Broker::start_with`] that may have so many files open, hard limit and soft (`ulimit -n`).
    ///
    /// # Errors
    /// As [`Broker::start`].
    pub fn start_with_few_files(open_files_max: u32, options: &[(&str, &str)]) -> Result<Self> {
        let temp = TempDir::with_prefix("highwater-test-").context("make a directory")?;
        let data = temp.path().join("data");
        Self::start_in(temp, data, options, Vec::new(), Some(open_files_max))
    }

    /// [`Broker::start_with`] with one thread for all connections, so that it reads requests in the order in which they come.
    ///
    /// # Errors
    /// As [`Broker::start`].
    pub fn start_with_one_thread(options: &[(&str, &str)]) -> Result<Self> {
        let temp = TempDir::with_prefix("highwater-test-").context("make a directory")?;
        let data = temp.path().join("data");
        Self::start_in(temp, data, options, vec![("TOKIO_WORKER_THREADS", "1".into())], None)
    }

    /// [`Broker::start_with`] on a data directory that is there already, and stays.
    ///
    /// # Errors
    /// As [`Broker::start`].
    pub fn start_on(data: &Path, options: &[(&str, &str)]) -> Result<Self> {
        let temp = TempDir::with_prefix("highwater-test-").context("make a directory")?;
        Self::start_in(temp, data.to_path_buf(), options, Vec::new(), None)
    }

    /// [`Broker::start_with`], by a clock that the test sets.
    ///
    /// # Errors
    /// As [`Broker::start`].
    pub fn start_by(clock: &Clock, options: &[(&str, &str)]) -> Result<Self> {
        let temp = TempDir::with_prefix("highwater-test-").context("make a directory")?;
        let data = temp.path().join("data");
        Self::start_in(temp, data, options, clock.environment(), None)
    }

    fn start_in(
        temp: TempDir,
        data: PathBuf,
        options: &[(&str, &str)],
        environment: Environment,
        open_files_max: Option<u32>,
    ) -> Result<Self> {
        let mut all: BTreeMap<String, String> = BTreeMap::from([
            ("listeners".into(), "PLAINTEXT://127.0.0.1:0".into()),
            ("http.listeners".into(), "127.0.0.1:0".into()),
            ("log.dirs".into(), data.display().to_string()),
            // What tests write is often old by its timestamps.
            ("log.retention.ms".into(), "-1".into()),
        ]);
        all.extend(options.iter().map(|(key, value)| ((*key).to_owned(), (*value).to_owned())));
        let started = spawn(&all, &environment, temp.path(), open_files_max)?;
        Ok(Self {
            leash: Some(Leash::tie(&started.child, Some(temp.path()))?),
            child: started.child,
            temp,
            data,
            options: all,
            environment,
            open_files_max,
            kafka: started.kafka,
            http: started.http,
        })
    }

    /// What clients are told: `HOST:PORT`.
    pub fn bootstrap(&self) -> String {
        self.kafka.to_string()
    }

    /// Where it speaks Kafka.
    pub fn kafka(&self) -> SocketAddr {
        self.kafka
    }

    /// Where it speaks HTTP, unless that is off.
    pub fn http(&self) -> Option<SocketAddr> {
        self.http
    }

    /// The directory of its partitions.
    pub fn data(&self) -> &Path {
        &self.data
    }

    /// Its process id: another one after each restart.
    pub fn pid(&self) -> u32 {
        self.child.id()
    }

    /// All that it wrote so far, over restarts.
    ///
    /// # Errors
    /// If the file can't be read.
    pub fn log(&self) -> Result<String> {
        Ok(String::from_utf8_lossy(&std::fs::read(log_path(self.temp.path()))?).into_owned())
    }

    /// A connection that says what the test wants said.
    ///
    /// # Errors
    /// If it doesn't accept one.
    pub fn connect(&self) -> Result<Client> {
        Client::connect(self.kafka)
    }

    /// Whether the process is still there.
    ///
    /// # Errors
    /// If the system doesn't say.
    pub fn is_running(&mut self) -> Result<bool> {
        Ok(self.child.try_wait()?.is_none())
    }

    /// `kill -9`, and waits for its end.
    ///
    /// # Errors
    /// If the process can't be ended.
    pub fn kill(&mut self) -> Result<()> {
        self.leash = None;
        self.child.kill().context("kill the broker")?;
        self.child.wait().context("wait for the broker's end")?;
        Ok(())
    }

    /// SIGTERM, and waits for its end.
    ///
    /// # Errors
    /// If it is still there after [`WAIT`].
    pub fn stop(&mut self) -> Result<ExitStatus> {
        let pid = Pid::from_child(&self.child);
        kill_process(pid, Signal::TERM).context("send SIGTERM")?;
        let deadline = Instant::now() + WAIT;
        loop {
            if let Some(status) = self.child.try_wait()? {
                self.leash = None;
                return Ok(status);
            }
            if Instant::now() > deadline {
                bail!("still running {WAIT:?} after SIGTERM\n{}", tail(self.log()?.as_bytes()));
            }
            thread::sleep(Duration::from_millis(5));
        }
    }

    /// Starts it again after [`Broker::kill`] or [`Broker::stop`]: same ports, same directory, same settings.
    ///
    /// # Errors
    /// As [`Broker::start`].
    pub fn restart(&mut self) -> Result<()> {
        self.restart_with(&[])
    }

    /// [`Broker::restart`] with settings added or replaced, for good.
    ///
    /// # Errors
    /// As [`Broker::start`].
    pub fn restart_with(&mut self, options: &[(&str, &str)]) -> Result<()> {
        self.options.insert("listeners".into(), format!("PLAINTEXT://{}", self.kafka));
        if let Some(http) = self.http {
            self.options.insert("http.listeners".into(), http.to_string());
        }
        self.options.extend(options.iter().map(|(key, value)| ((*key).to_owned(), (*value).to_owned())));
        let started = spawn(&self.options, &self.environment, self.temp.path(), self.open_files_max)?;
        self.leash = Some(Leash::tie(&started.child, Some(self.temp.path()))?);
        (self.child, self.kafka, self.http) = (started.child, started.kafka, started.http);
        Ok(())
    }
}

impl Drop for Broker {
    fn drop(&mut self) {
        if thread::panicking() {
            eprintln!("--- the broker's log ends with\n{}\n---", tail(self.log().unwrap_or_default().as_bytes()));
        }
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

struct Started {
    child: Child,
    kafka: SocketAddr,
    http: Option<SocketAddr>,
}

fn log_path(directory: &Path) -> PathBuf {
    directory.join("broker.log")
}

fn spawn(options: &BTreeMap<String, String>, environment: &Environment, directory: &Path, open_files_max: Option<u32>) -> Result<Started> {
    let log: File = OpenOptions::new().create(true).append(true).open(log_path(directory)).context("open the broker's log")?;
    let mut command = match open_files_max {
        None => Command::new(tools::highwater()?),
        Some(max) => {
            // The shell replaces itself by the broker, so that the child is the broker.
            let mut shell = Command::new("sh");
            shell.args(["-c", &format!("ulimit -n {max} && exec \"$0\" \"$@\"")]).arg(tools::highwater()?);
            shell
        }
    };
    command.arg("serve").envs(environment.iter().map(|(name, value)| (name, value)));
    for (key, value) in options {
        command.arg("-o").arg(format!("{key}={value}"));
    }
    let mut child =
        command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(log).current_dir(directory).spawn().context("start highwater")?;
    let lines = child.stdout.take().map(lines_of).context("stdout is piped")?;
    match wait_until_ready(&lines) {
        Ok((kafka, http)) => Ok(Started { child, kafka, http }),
        Err(error) => {
            let _ = child.kill();
            let _ = child.wait();
            let log = std::fs::read(log_path(directory)).unwrap_or_default();
            Err(error.context(format!("start highwater; its log ends with\n{}", tail(&log))))
        }
    }
}

/// Its stdout, line by line, read to the end so that it never blocks on it.
fn lines_of(stdout: ChildStdout) -> Receiver<String> {
    let (sender, lines) = mpsc::channel();
    thread::spawn(move || {
        for line in BufReader::new(stdout).lines() {
            let Ok(line) = line else { return };
            let _ = sender.send(line);
        }
    });
    lines
}

/// It prints one fact a line when it is ready: `  kafka  127.0.0.1:9092`, `  http   …`, `  data   …`, and `  try    …` last.
fn wait_until_ready(lines: &Receiver<String>) -> Result<(SocketAddr, Option<SocketAddr>)> {
    let deadline = Instant::now() + WAIT;
    let (mut kafka, mut http) = (None, None);
    loop {
        let line = lines.recv_timeout(deadline.saturating_duration_since(Instant::now())).context("it never said that it is ready")?;
        match line.trim().split_once(char::is_whitespace).map(|(name, rest)| (name, rest.trim())) {
            Some(("kafka", address)) if kafka.is_none() => kafka = Some(address.parse().with_context(|| line.clone())?),
            Some(("http", address)) => http = Some(address.trim_start_matches("http://").parse().with_context(|| line.clone())?),
            Some(("try", _)) => return Ok((kafka.context("it said no Kafka address")?, http)),
            _ => {}
        }
    }
}
