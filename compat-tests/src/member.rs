//! A client that reads in a group while the test does other things to it: the `member` command of the programs in `clients/`.
//!
//! `member BOOTSTRAP TOPIC GROUP STRATEGY INSTANCE` joins GROUP (with INSTANCE as `group.instance.id` unless it is `-`, and a session
//! timeout of 6 s), reads TOPIC from the start where nothing is committed, commits every record it has read before the next poll, and writes
//! an event a line: `{"owns":[0,1]}` when its partitions have changed, `{"record":[partition, offset]}`, `{"error":"…"}` for what its
//! client gets over by itself. It leaves when stdin ends, as its client does when it is closed, and writes `{"closed":true}`.

use std::collections::{BTreeMap, BTreeSet};
use std::io::{BufRead, BufReader};
use std::process::{Child, ChildStdin, Command, Stdio};
use std::sync::{Arc, Condvar, Mutex, MutexGuard};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};
use rustix::process::{Pid, Signal, kill_process};

use crate::driver::Client;

/// The longest that a group may take for anything a test waits for.
const WAIT: Duration = Duration::from_secs(60);

/// How a member's partitions are chosen.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Strategy {
    /// Eager: all give up everything, then get theirs.
    Range,
    /// Only what moves is given up (KIP-429).
    CooperativeSticky,
    /// The broker chooses, and moves one partition at a time (KIP-848). Of the clients here only kafka-clients and librdkafka speak it.
    Consumer,
}

impl Strategy {
    /// As the programs are told.
    fn name(self) -> &'static str {
        match self {
            Self::Range => "range",
            Self::CooperativeSticky => "cooperative-sticky",
            Self::Consumer => "consumer",
        }
    }
}

/// What a member has told of itself.
#[derive(Clone, Debug, Default)]
pub struct Seen {
    pub owns: BTreeSet<i32>,
    /// Every change of `owns`, the first included.
    pub changes: Vec<BTreeSet<i32>>,
    /// When each of them was told.
    pub changed_at: Vec<Instant>,
    /// How often each record came.
    pub records: BTreeMap<(i32, i64), usize>,
    /// Every record and every change, in the order in which they were told.
    pub told: Vec<(Instant, Told)>,
    pub errors: Vec<String>,
    pub closed: bool,
    /// When it was.
    pub closed_at: Option<Instant>,
}

/// An event of a member.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Told {
    Record(i32, i64),
    Owns(BTreeSet<i32>),
}

#[derive(Default)]
struct Shared {
    seen: Mutex<Seen>,
    changed: Condvar,
}

/// A running member; it is killed with this value.
pub struct Member {
    name: String,
    child: Child,
    stdin: Option<ChildStdin>,
    shared: Arc<Shared>,
}

impl Member {
    /// # Errors
    /// If the program can't be started.
    pub fn start(client: Client, bootstrap: &str, topic: &str, group: &str, strategy: Strategy, instance: Option<&str>) -> Result<Self> {
        Self::of(client, client.command()?, &[bootstrap, topic, group, strategy.name(), instance.unwrap_or("-")])
    }

    /// A dynamic one of confluent-kafka-python that sends its heartbeats in another interval, with the default session timeout.
    ///
    /// # Errors
    /// As [`Self::start`].
    pub fn start_beating(bootstrap: &str, topic: &str, group: &str, strategy: Strategy, heartbeat_ms: i64) -> Result<Self> {
        let mut command = Client::Python.command()?;
        command.env("MEMBER_HEARTBEAT_MS", heartbeat_ms.to_string());
        Self::of(Client::Python, command, &[bootstrap, topic, group, strategy.name(), "-"])
    }

    fn of(client: Client, mut command: Command, words: &[&str]) -> Result<Self> {
        let mut child = command
            .arg("member")
            .args(words)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::inherit())
            .spawn()
            .with_context(|| format!("start a member of {}", client.name()))?;
        let stdin = child.stdin.take();
        let stdout = child.stdout.take().context("stdout is piped")?;
        let shared = Arc::new(Shared::default());
        let theirs = Arc::clone(&shared);
        thread::spawn(move || {
            for line in BufReader::new(stdout).lines().map_while(Result::ok) {
                note(&theirs, &line);
            }
        });
        let instance = words.last().filter(|word| **word != "-").unwrap_or(&"dynamic");
        Ok(Self { name: format!("{} ({instance})", client.name()), child, stdin, shared })
    }

    /// What it has told so far.
    pub fn seen(&self) -> Seen {
        lock(&self.shared).clone()
    }

    /// Waits until what it has told is so.
    ///
    /// # Errors
    /// If it isn't so in time.
    pub fn wait_until(&self, what: &str, is_so: impl Fn(&Seen) -> bool) -> Result<()> {
        wait_for_all(&[self], what, |seen| is_so(&seen[0]))
    }

    /// Ends its stdin, and waits until it has left and ended.
    ///
    /// # Errors
    /// If it doesn't end well.
    pub fn close(mut self) -> Result<Seen> {
        self.stdin = None;
        self.wait_until("it is closed", |seen| seen.closed)?;
        let deadline = Instant::now() + WAIT;
        while Instant::now() < deadline {
            match self.child.try_wait()? {
                Some(status) if status.success() => return Ok(self.seen()),
                Some(status) => bail!("{} ended with {status}", self.name),
                None => thread::sleep(Duration::from_millis(5)),
            }
        }
        bail!("{} is closed, but its process goes on", self.name)
    }

    /// Stops its process where it is, as one that hangs does (`kill -STOP`).
    ///
    /// # Errors
    /// If it has ended.
    pub fn pause(&self) -> Result<()> {
        let pid = i32::try_from(self.child.id()).ok().and_then(Pid::from_raw).context("a process id")?;
        Ok(kill_process(pid, Signal::STOP)?)
    }

    /// `kill -9`.
    ///
    /// # Errors
    /// If it can't be killed.
    pub fn kill(mut self) -> Result<Seen> {
        self.child.kill()?;
        self.child.wait()?;
        Ok(self.seen())
    }
}

impl Drop for Member {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// Waits until what these members have told is so of all of them together.
///
/// # Errors
/// If it isn't so in time; with what they told last.
pub fn wait_for_all(members: &[&Member], what: &str, is_so: impl Fn(&[Seen]) -> bool) -> Result<()> {
    let deadline = Instant::now() + WAIT;
    loop {
        let seen: Vec<Seen> = members.iter().map(|member| member.seen()).collect();
        if is_so(&seen) {
            return Ok(());
        }
        if Instant::now() > deadline {
            let told = members.iter().zip(&seen).map(|(member, seen)| {
                let (records, errors) = (seen.records.len(), &seen.errors);
                format!("{}: owns {:?} after {} changes, {records} records, errors {errors:?}", member.name, seen.owns, seen.changes.len())
            });
            bail!("after {WAIT:?} it is not so that {what}\n{}", told.collect::<Vec<_>>().join("\n"));
        }
        // Any of them may change; the first one's news wakes at once, the others' within this time.
        if let Some(first) = members.first() {
            let guard = lock(&first.shared);
            let _ = first.shared.changed.wait_timeout(guard, Duration::from_millis(20));
        }
    }
}

/// Waits until the members own all of `partitions` among them, each one's by one alone, and shared evenly.
///
/// # Errors
/// If they don't in time.
pub fn wait_for_even_shares(members: &[&Member], partitions: i32) -> Result<()> {
    wait_for_all(members, &format!("{} members share {partitions} partitions", members.len()), |seen| {
        let all: Vec<i32> = seen.iter().flat_map(|seen| seen.owns.iter().copied()).collect();
        let distinct: BTreeSet<i32> = all.iter().copied().collect();
        let sizes: Vec<usize> = seen.iter().map(|seen| seen.owns.len()).collect();
        let even = sizes.iter().max().zip(sizes.iter().min()).is_some_and(|(max, min)| max - min <= 1);
        all.len() == distinct.len() && distinct.iter().copied().eq(0..partitions) && even
    })
}

/// That no partition had two readers at once: whoever reads on, beyond what another has read meanwhile, has told in between that the partition
/// was taken from it. Within one generation a partition is one member's, so a record is read twice only across a change.
///
/// # Errors
/// If there were two.
pub fn ensure_one_reader(all: &[Seen]) -> Result<()> {
    for (nth, seen) in all.iter().enumerate() {
        // The last record of each partition, as long as the partition is not given up.
        let mut held: BTreeMap<i32, (Instant, i64)> = BTreeMap::new();
        for (at, told) in &seen.told {
            match told {
                Told::Owns(owns) => held.retain(|partition, _| owns.contains(partition)),
                Told::Record(partition, offset) => {
                    if let Some((since, _)) = held.insert(*partition, (*at, *offset)) {
                        let others = all.iter().enumerate().filter(|(other, _)| *other != nth).flat_map(|(_, other)| &other.told);
                        let between = others.filter(|(then, _)| since < *then && then < at);
                        let read = between.filter_map(|(_, told)| match told {
                            Told::Record(p, theirs) if p == partition => Some(*theirs),
                            _ => None,
                        });
                        // Words may arrive a little late: an older record says nothing.
                        if let Some(theirs) = read.filter(|theirs| theirs < offset).max() {
                            bail!("partition {partition} had two readers: one read {theirs} while another read up to {offset}");
                        }
                    }
                }
            }
        }
    }
    Ok(())
}

fn lock(shared: &Shared) -> MutexGuard<'_, Seen> {
    shared.seen.lock().unwrap_or_else(std::sync::PoisonError::into_inner)
}

fn note(shared: &Shared, line: &str) {
    let Ok(event) = serde_json::from_str::<serde_json::Value>(line) else {
        eprintln!("{line}");
        return;
    };
    let mut seen = lock(shared);
    if let Some(owns) = event["owns"].as_array() {
        seen.owns = owns.iter().filter_map(|p| i32::try_from(p.as_i64()?).ok()).collect();
        let (owns, now) = (seen.owns.clone(), Instant::now());
        seen.changes.push(owns.clone());
        seen.changed_at.push(now);
        seen.told.push((now, Told::Owns(owns)));
    }
    if let (Some(partition), Some(offset)) = (event["record"][0].as_i64(), event["record"][1].as_i64()) {
        let partition = i32::try_from(partition).unwrap_or(-1);
        *seen.records.entry((partition, offset)).or_default() += 1;
        seen.told.push((Instant::now(), Told::Record(partition, offset)));
    }
    if let Some(error) = event["error"].as_str() {
        seen.errors.push(error.to_owned());
    }
    if event["closed"].as_bool() == Some(true) {
        (seen.closed, seen.closed_at) = (true, Some(Instant::now()));
    }
    drop(seen);
    shared.changed.notify_all();
}

#[cfg(test)]
mod tests {
    use super::*;

    fn seen(start: Instant, told: &[(u64, Told)]) -> Seen {
        let told = told.iter().map(|(ms, told)| (start + Duration::from_millis(*ms), told.clone())).collect();
        Seen { told, ..Seen::default() }
    }

    #[test]
    fn two_readers_are_noticed_and_a_change_of_owner_is_none() {
        let start = Instant::now();
        let owns = |partitions: &[i32]| Told::Owns(partitions.iter().copied().collect());
        let stubborn = seen(start, &[(0, owns(&[1])), (10, Told::Record(1, 0)), (30, Told::Record(1, 2))]);
        let other = seen(start, &[(15, owns(&[1])), (20, Told::Record(1, 1))]);
        assert!(ensure_one_reader(&[stubborn, other.clone()]).is_err());
        let polite = seen(start, &[(0, owns(&[1])), (10, Told::Record(1, 0)), (12, owns(&[])), (25, owns(&[1])), (30, Told::Record(1, 2))]);
        ensure_one_reader(&[polite, other]).unwrap();
    }
}
