//! An application of Kafka Streams that runs while the test does things to it and to its broker: `programs/Streams.java`, whose head says
//! what it is told and what it tells. It doesn't know what the topologies make of their input: that is the test's.

use std::fs::File;
use std::io::{BufRead, BufReader};
use std::path::PathBuf;
use std::process::{Child, ChildStdin, Command, Stdio};
use std::sync::mpsc::{self, Receiver, RecvTimeoutError};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail, ensure};
use rustix::process::{Pid, Signal, kill_process};
use tempfile::TempDir;

use crate::process::{Leash, run, tail};
use crate::tools;

/// The longest that an application may take for anything a test waits for.
const WAIT: Duration = Duration::from_secs(90);

/// What an application is, before it runs: it can be started again and again over the same state.
pub struct Application {
    id: String,
    topologies: String,
    options: Vec<(String, String)>,
    temp: TempDir,
}

impl Application {
    /// `topologies` as `Streams.java` names them; `options` are settings of Kafka Streams.
    ///
    /// # Errors
    /// If there is no directory for its state.
    pub fn new(id: &str, topologies: &str, options: &[(&str, &str)]) -> Result<Self> {
        let temp = TempDir::with_prefix("streams-test-").context("make a directory")?;
        let mut all = vec![("state.dir".to_owned(), temp.path().join("state").display().to_string())];
        all.extend(options.iter().map(|(key, value)| ((*key).to_owned(), (*value).to_owned())));
        Ok(Self { id: id.to_owned(), topologies: topologies.to_owned(), options: all, temp })
    }

    /// Starts it, as one instance: another one is another value with the same id.
    ///
    /// # Errors
    /// If the program can't be started.
    pub fn start(&self, bootstrap: &str) -> Result<Instance> {
        let mut command = program()?;
        command.args(["run", bootstrap, &self.id, &self.topologies]);
        command.args(self.options.iter().map(|(key, value)| format!("{key}={value}")));
        let log = self.temp.path().join("log");
        let stderr = File::options().create(true).append(true).open(&log).context("open the application's log")?;
        let mut child =
            command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(stderr).spawn().context("start an application of Kafka Streams")?;
        let leash = Leash::tie(&child, None)?;
        let stdin = child.stdin.take();
        let stdout = child.stdout.take().context("stdout is piped")?;
        let (sender, said) = mpsc::channel();
        thread::spawn(move || {
            for line in BufReader::new(stdout).lines().map_while(Result::ok) {
                let _ = sender.send(line);
            }
        });
        Ok(Instance { child, _leash: leash, stdin, said, log })
    }

    /// Its internal topics, one a line: name, partitions, and the configs that are the topic's own.
    ///
    /// # Errors
    /// If they can't be described.
    pub fn topics(&self, bootstrap: &str) -> Result<Vec<String>> {
        let output = run(program()?.args(["topics", bootstrap, &self.id]), &[], WAIT)?;
        Ok(String::from_utf8_lossy(&output.stdout).lines().map(str::to_owned).collect())
    }
}

/// A running instance of an application; it is killed with this value.
pub struct Instance {
    child: Child,
    _leash: Leash,
    stdin: Option<ChildStdin>,
    said: Receiver<String>,
    log: PathBuf,
}

impl Instance {
    /// Waits until it has its tasks and their state.
    ///
    /// # Errors
    /// If it doesn't come to that, or fails.
    pub fn wait_until_running(&self) -> Result<()> {
        self.wait_for("state RUNNING")
    }

    /// Waits until it has said `line`.
    ///
    /// # Errors
    /// If it says first that it failed, ends, or takes too long.
    pub fn wait_for(&self, line: &str) -> Result<()> {
        let deadline = Instant::now() + WAIT;
        loop {
            match self.said.recv_timeout(deadline.saturating_duration_since(Instant::now())) {
                Ok(said) if said == line => return Ok(()),
                Ok(said) if said.starts_with("error ") => bail!("waiting for {line:?}: {said}\n{}", self.tail()),
                Ok(_) => {}
                Err(RecvTimeoutError::Timeout) => bail!("no {line:?} after {WAIT:?}\n{}", self.tail()),
                Err(RecvTimeoutError::Disconnected) => bail!("it ended before {line:?}\n{}", self.tail()),
            }
        }
    }

    /// Waits until one of its threads has failed; with what it said of that.
    ///
    /// # Errors
    /// If none does.
    pub fn wait_for_error(&self) -> Result<String> {
        let deadline = Instant::now() + WAIT;
        loop {
            let said = self.said.recv_timeout(deadline.saturating_duration_since(Instant::now())).context("no error")?;
            if let Some(error) = said.strip_prefix("error ") {
                return Ok(error.to_owned());
            }
        }
    }

    /// That none of its threads has failed so far.
    ///
    /// # Errors
    /// If one has.
    pub fn check(&self) -> Result<()> {
        match self.said.try_iter().find(|said| said.starts_with("error ")) {
            None => Ok(()),
            Some(error) => bail!("{error}\n{}", self.tail()),
        }
    }

    /// Closes it, and waits until it has ended.
    ///
    /// # Errors
    /// If one of its threads has failed, or it doesn't end well.
    pub fn close(mut self) -> Result<()> {
        self.stdin = None;
        self.wait_for("closed")?;
        let status = self.child.wait().context("wait for the end")?;
        ensure!(status.success(), "the application ended with {status}\n{}", self.tail());
        Ok(())
    }

    /// Stops its process where it is (`kill -STOP`): its group and its transaction go on without it.
    ///
    /// # Errors
    /// If it has ended.
    pub fn pause(&self) -> Result<()> {
        Ok(kill_process(Pid::from_child(&self.child), Signal::STOP)?)
    }

    /// Lets it go on, with what it was about to do.
    ///
    /// # Errors
    /// If it has ended.
    pub fn resume(&self) -> Result<()> {
        Ok(kill_process(Pid::from_child(&self.child), Signal::CONT)?)
    }

    /// `kill -9`, and waits for its end.
    ///
    /// # Errors
    /// If one of its threads had failed before, or it can't be killed.
    pub fn kill(mut self) -> Result<()> {
        self.check()?;
        self.child.kill().context("kill the application")?;
        self.child.wait().context("wait for the application's end")?;
        Ok(())
    }

    /// The end of what it wrote to stderr.
    pub fn tail(&self) -> String {
        tail(&std::fs::read(&self.log).unwrap_or_default())
    }
}

impl Drop for Instance {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// Kafka's tool that puts an application back to the start of its input.
///
/// # Errors
/// If it fails.
pub fn reset(bootstrap: &str, args: &[&str]) -> Result<String> {
    let mut command = tools::java("org.apache.kafka.tools.StreamsResetter")?;
    let output = run(command.args(["--bootstrap-server", bootstrap]).args(args), &[], WAIT)?;
    Ok(String::from_utf8_lossy(&output.stdout).into_owned())
}

fn program() -> Result<Command> {
    tools::java("Streams")
}
