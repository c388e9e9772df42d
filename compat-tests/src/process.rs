//! Programs that end: in time, or killed; and never left behind.

use std::io::{Read, Write};
use std::path::Path;
use std::process::{Child, Command, Output, Stdio};
use std::sync::mpsc;
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};

/// Runs `command` with `input` on its stdin.
///
/// # Errors
/// If it can't start, takes longer than `timeout` (it is killed then), or says that it failed: with the end of what it wrote to stderr.
pub fn run(command: &mut Command, input: &[u8], timeout: Duration) -> Result<Output> {
    let output = run_any(command, input, timeout)?;
    if !output.status.success() {
        bail!("{} ended with {}\n{}", name(command), output.status, tail(&output.stderr));
    }
    Ok(output)
}

/// [`run`], whatever the exit code.
///
/// # Errors
/// If it can't start or takes longer than `timeout`.
pub fn run_any(command: &mut Command, input: &[u8], timeout: Duration) -> Result<Output> {
    let deadline = Instant::now() + timeout;
    let mut child = command
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .with_context(|| format!("start {}", name(command)))?;
    let (stdin, stdout, stderr) = (child.stdin.take(), child.stdout.take(), child.stderr.take());
    let (sender, done) = mpsc::channel();
    let read = |from: Option<Box<dyn Read + Send>>, which: usize| {
        let sender = sender.clone();
        thread::spawn(move || {
            let mut bytes = Vec::new();
            if let Some(mut from) = from {
                let _ = from.read_to_end(&mut bytes);
            }
            let _ = sender.send((which, bytes));
        });
    };
    read(stdout.map(|pipe| Box::new(pipe) as _), 0);
    read(stderr.map(|pipe| Box::new(pipe) as _), 1);
    let input = input.to_vec();
    thread::spawn(move || stdin.map(|mut pipe| pipe.write_all(&input)));
    let mut outputs = [Vec::new(), Vec::new()];
    for _ in 0..outputs.len() {
        match done.recv_timeout(deadline.saturating_duration_since(Instant::now())) {
            Ok((which, bytes)) => outputs[which] = bytes,
            Err(_) => {
                let _ = child.kill();
                let _ = child.wait();
                bail!("{} took longer than {timeout:?}\n{}", name(command), tail(&outputs[1]));
            }
        }
    }
    let status = child.wait().context("wait for the end")?;
    let [stdout, stderr] = outputs;
    Ok(Output { status, stdout, stderr })
}

/// The last lines of a program's output.
pub fn tail(bytes: &[u8]) -> String {
    let text = String::from_utf8_lossy(bytes);
    let lines: Vec<&str> = text.lines().collect();
    let last = lines.iter().skip(lines.len().saturating_sub(40));
    last.map(|line| line.chars().take(400).collect::<String>()).collect::<Vec<_>>().join("\n")
}

fn name(command: &Command) -> String {
    let mut words = vec![command.get_program().to_string_lossy().into_owned()];
    words.extend(command.get_args().map(|arg| arg.to_string_lossy().chars().take(80).collect()));
    words.join(" ")
}

/// Ends a process and removes its directory if this process ends without having done so, however it ends: a small shell waits for the
/// end of a pipe that only this process holds. (Statics of a test program are never dropped, and a killed one drops nothing.)
pub struct Leash(Child);

impl Leash {
    /// # Errors
    /// If the shell can't be started.
    pub fn tie(child: &Child, directory: Option<&Path>) -> Result<Self> {
        let script = r#"read -r _; kill -9 "$0" 2>/dev/null; if [ -n "$1" ]; then sleep 1; rm -rf "$1"; fi"#;
        let shell = Command::new("sh")
            .args(["-c", script, &child.id().to_string()])
            .arg(directory.unwrap_or(Path::new("")))
            .stdin(Stdio::piped())
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn()
            .context("start the shell that watches over a broker")?;
        Ok(Self(shell))
    }
}

impl Drop for Leash {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}
