//! A program that is fed its input bit by bit, in step with what the test does to the broker meanwhile.

use std::io::{BufRead, BufReader, Read, Write};
use std::process::{Child, ChildStdin, Command, Stdio};
use std::sync::mpsc::{self, Receiver, Sender};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail, ensure};

/// Slices of a window, one after each pause: the program is always in the middle of something.
const SLICES: usize = 25;

/// A running program and the thread that feeds it. Killed when dropped.
pub struct Fed {
    child: Child,
    windows: Sender<()>,
    feeder: Option<JoinHandle<Result<()>>>,
    output: Receiver<String>,
    errors: Option<JoinHandle<String>>,
}

impl Fed {
    /// Starts `command`. Its `lines` are dealt out in equal parts to `windows` calls of [`Fed::open_window`]; a window's lines are
    /// spread over the time `pace`.
    ///
    /// # Errors
    /// If the program can't be started.
    pub fn start(mut command: Command, lines: Vec<Vec<u8>>, windows: usize, pace: Duration) -> Result<Self> {
        let mut child = command
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .with_context(|| format!("start {}", command.get_program().to_string_lossy()))?;
        let stdin = child.stdin.take().context("stdin is piped")?;
        let stdout = child.stdout.take().context("stdout is piped")?;
        let mut stderr = child.stderr.take().context("stderr is piped")?;
        let (open, opened) = mpsc::channel();
        let (sender, output) = mpsc::channel();
        thread::spawn(move || {
            for line in BufReader::new(stdout).lines().map_while(Result::ok) {
                let _ = sender.send(line);
            }
        });
        let errors = thread::spawn(move || {
            let mut bytes = Vec::new();
            let _ = stderr.read_to_end(&mut bytes);
            crate::process::tail(&bytes)
        });
        let feeder = thread::spawn(move || feed(stdin, &lines, windows, pace, &opened));
        Ok(Self { child, windows: open, feeder: Some(feeder), output, errors: Some(errors) })
    }

    /// Lets the next part of the lines go.
    ///
    /// # Errors
    /// If the program doesn't take them any more.
    pub fn open_window(&self) -> Result<()> {
        self.windows.send(()).context("the program has stopped reading")
    }

    /// Waits for the end after the last window was opened; the lines that the program printed.
    ///
    /// # Errors
    /// If it fails, or takes longer than `timeout`: with what it wrote to stderr.
    pub fn finish(mut self, timeout: Duration) -> Result<Vec<String>> {
        let deadline = Instant::now() + timeout;
        let mut printed = Vec::new();
        let ended = loop {
            match self.output.recv_timeout(deadline.saturating_duration_since(Instant::now())) {
                Ok(line) => printed.push(line),
                Err(mpsc::RecvTimeoutError::Disconnected) => break true,
                Err(mpsc::RecvTimeoutError::Timeout) => break false,
            }
        };
        if !ended {
            let _ = self.child.kill();
        }
        let status = self.child.wait().context("wait for the end")?;
        let errors = self.errors.take().and_then(|errors| errors.join().ok()).unwrap_or_default();
        if !ended {
            bail!("not done after {timeout:?}\n{errors}");
        }
        ensure!(status.success(), "ended with {status}\n{errors}");
        let fed = self.feeder.take().and_then(|feeder| feeder.join().ok()).context("the feeder panicked")?;
        fed.context("the program ended before it had read everything")?;
        Ok(printed)
    }
}

impl Drop for Fed {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

fn feed(mut to: ChildStdin, lines: &[Vec<u8>], windows: usize, pace: Duration, opened: &Receiver<()>) -> Result<()> {
    for window in lines.chunks(lines.len().div_ceil(windows.max(1)).max(1)) {
        if opened.recv().is_err() {
            return Ok(()); // The test has ended.
        }
        for slice in window.chunks(window.len().div_ceil(SLICES)) {
            to.write_all(&slice.concat())?;
            to.flush()?;
            thread::sleep(pace / u32::try_from(SLICES)?);
        }
    }
    Ok(())
}
