//! Apache Kafka's command line tools in one JVM that stays (`programs/Tools.java`): for tests that say a lot to them. A tool writes its answer
//! to people; [`Said::lines`] is what of it two brokers can be compared by.

use std::io::{BufRead, BufReader, Write};
use std::process::{Child, ChildStdin, Stdio};
use std::sync::mpsc::{self, Receiver};
use std::thread;

use anyhow::{Context, Result};

use crate::driver::WAIT;
use crate::programs;

/// The JVM. It ends with this value.
pub struct Toolbox {
    child: Child,
    stdin: ChildStdin,
    lines: Receiver<String>,
}

/// What a tool answered.
#[derive(Clone, Debug)]
pub struct Said {
    pub exit: i64,
    pub stdout: String,
    pub stderr: String,
}

impl Toolbox {
    /// # Errors
    /// If the JVM can't be started.
    pub fn open() -> Result<Self> {
        let mut child = programs::toolbox()?.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().context("start the tools' JVM")?;
        let stdin = child.stdin.take().context("stdin is piped")?;
        let stdout = child.stdout.take().context("stdout is piped")?;
        let (sender, lines) = mpsc::channel();
        thread::spawn(move || {
            for line in BufReader::new(stdout).lines().map_while(Result::ok) {
                let _ = sender.send(line);
            }
        });
        Ok(Self { child, stdin, lines })
    }

    /// Runs a tool of Apache Kafka, by the name of its class.
    ///
    /// # Errors
    /// If it doesn't end.
    pub fn run(&mut self, class: &str, bootstrap: &str, args: &[&str]) -> Result<Said> {
        self.run_as(class, &[&["--bootstrap-server", bootstrap], args].concat())
    }

    /// [`Toolbox::run`] for a tool that wants to be told elsewhere in its arguments where the broker is.
    ///
    /// # Errors
    /// As [`Toolbox::run`].
    pub fn run_as(&mut self, class: &str, args: &[&str]) -> Result<Said> {
        let class = format!("org.apache.kafka.tools.{class}");
        let command: Vec<&str> = [class.as_str()].iter().chain(args).copied().collect();
        writeln!(self.stdin, "{}", serde_json::to_string(&command)?)?;
        let line = self.lines.recv_timeout(WAIT).with_context(|| format!("{command:?} doesn't end"))?;
        let said: serde_json::Value = serde_json::from_str(&line)?;
        let text = |name: &str| said[name].as_str().unwrap_or_default().to_owned();
        Ok(Said { exit: said["exit"].as_i64().context("no exit code")?, stdout: text("stdout"), stderr: text("stderr") })
    }
}

impl Drop for Toolbox {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

impl Said {
    /// Its exit code and lines, without what is chance: the width of columns, ports, random ids, stack traces, the order of hash tables. The
    /// usage that follows a mistake is left out, too.
    pub fn lines(&self) -> String {
        let of = |name: &str, text: &str| {
            let lines = text.lines().take_while(|line| !line.starts_with("Option  "));
            let kept = lines.filter(|line| !line.trim_start().starts_with("at ") && !line.trim_start().starts_with("... "));
            let mut words: Vec<String> = kept.map(in_words).filter(|line| !line.is_empty()).collect();
            words.sort();
            words.into_iter().map(|line| format!("{name}: {line}\n")).collect::<String>()
        };
        format!("exit {}\n{}{}", self.exit, of("stdout", &self.stdout), of("stderr", &self.stderr))
    }
}

fn in_words(line: &str) -> String {
    line.split_whitespace().map(without_chance).collect::<Vec<_>>().join(" ")
}

/// A word with its random ids and ports taken out.
fn without_chance(word: &str) -> String {
    const UUID: usize = 36;
    let is_uuid = |text: &str| {
        text.len() == UUID
            && text
                .bytes()
                .enumerate()
                .all(|(at, byte)| if matches!(at, 8 | 13 | 18 | 23) { byte == b'-' } else { byte.is_ascii_hexdigit() })
    };
    let start = (0..word.len()).find(|start| word.get(*start..start + UUID).is_some_and(is_uuid));
    let mut word = match start {
        Some(start) => format!("{}UUID{}", &word[..start], &word[start + UUID..]),
        None => word.to_owned(),
    };
    if let Some(at) = word.find("127.0.0.1:") {
        let port = at + "127.0.0.1:".len();
        let end = word[port..].find(|c: char| !c.is_ascii_digit()).map_or(word.len(), |length| port + length);
        word.replace_range(port..end, "PORT");
    }
    word
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_chance_is_taken_out() {
        assert_eq!(without_chance("seat-01234567-89ab-cdef-0123-456789abcdef,x"), "seat-UUID,x");
        assert_eq!(without_chance("(127.0.0.1:4711)"), "(127.0.0.1:PORT)");
        assert_eq!(without_chance("/127.0.0.1"), "/127.0.0.1");
        let said = Said { exit: 1, stdout: "b   c\n\na\n\tat x.y\n".to_owned(), stderr: "no\nOption    Description\nmore".to_owned() };
        assert_eq!(said.lines(), "exit 1\nstdout: a\nstdout: b c\nstderr: no\n");
    }
}
