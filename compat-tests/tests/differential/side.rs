//! One of the two brokers while a script runs, what it answered so far, and the comparison. It decides nothing about which fields count:
//! that is `masks`.

use std::fmt::Debug;
use std::net::SocketAddr;
use std::sync::{Mutex, OnceLock, PoisonError};
use std::thread;
use std::time::Duration;

use anyhow::{Context, Result, bail, ensure};
use bytes::Bytes;
use compat_tests::batch::Batch;
use compat_tests::toolbox::{Said, Toolbox};
use compat_tests::wire::Client;
use compat_tests::{ApacheKafka, Broker, Target};
use kafka_protocol::messages::metadata_response::MetadataResponsePartition;
use kafka_protocol::messages::{MetadataRequest, MetadataResponse};
use kafka_protocol::protocol::Request;
use uuid::Uuid;

use crate::masks::Masked;
use crate::requests::{self, Topic};

/// Settings of both: whatever isn't Kafka's default would show in the answers.
const OPTIONS: &[(&str, &str)] = &[
    ("node.id", "1"),
    ("log.retention.ms", "-1"),
    ("group.initial.rebalance.delay.ms", "0"),
    // Assignments are computed at once, so that a script hears of them with its next heartbeat.
    ("group.consumer.assignment.interval.ms", "0"),
    ("group.consumer.assignor.offload.enable", "false"),
    // Requests are read and decided in the order in which they come: the random scripts look when all that came before is done.
    ("num.network.threads", "1"),
    ("num.io.threads", "1"),
    ("group.coordinator.append.linger.ms", "0"),
];

/// How often, at most, and how long apart a topic is looked for that Apache Kafka has said to have made: it answers before it knows it.
const LOOKS: u32 = 600;
const BETWEEN_LOOKS: Duration = Duration::from_millis(20);

/// All scripts' tools: a JVM for each would take longer than what they are asked. (It is never dropped, but ends with this process.)
static TOOLBOX: Mutex<Option<Toolbox>> = Mutex::new(None);

/// A script's way to one broker.
pub struct Side {
    address: SocketAddr,
    client: Client,
    steps: Vec<(String, String)>,
}

impl Side {
    /// A side with a connection and nothing noted.
    ///
    /// # Errors
    /// If the broker doesn't accept it.
    pub fn new(address: SocketAddr) -> Result<Self> {
        Ok(Self { address, client: Client::connect(address)?, steps: Vec::new() })
    }

    /// Asks, and notes the answer, or that the broker closed the connection.
    ///
    /// # Errors
    /// If there is neither, or the answer can't be read.
    pub fn step<R>(&mut self, label: impl Into<String>, version: i16, request: &R) -> Result<Option<R::Response>>
    where
        R: Request,
        R::Response: Masked + Clone + Debug,
    {
        self.step_with(label, version, request, |_| {})
    }

    /// [`Side::step`] where the script too takes something out of the answer that isn't about it, such as other scripts' topics.
    ///
    /// # Errors
    /// As [`Side::step`].
    pub fn step_with<R>(
        &mut self,
        label: impl Into<String>,
        version: i16,
        request: &R,
        edit: impl FnOnce(&mut R::Response),
    ) -> Result<Option<R::Response>>
    where
        R: Request,
        R::Response: Masked + Clone + Debug,
    {
        let label = format!("v{version} {}", label.into());
        let answer = self.client.ask_or_closed(version, request).with_context(|| label.clone())?;
        match &answer {
            Some(answer) => {
                let mut shown = answer.clone();
                edit(&mut shown);
                shown.mask();
                self.note(label, format!("{shown:#?}"));
            }
            None => {
                self.note(label, "the connection is closed");
                self.reconnect()?;
            }
        }
        Ok(answer)
    }

    /// [`Side::step`] where the script needs the answer.
    ///
    /// # Errors
    /// If the broker closed the connection.
    pub fn answer<R>(&mut self, label: &str, version: i16, request: &R) -> Result<R::Response>
    where
        R: Request,
        R::Response: Masked + Clone + Debug,
    {
        self.step(label, version, request)?.with_context(|| format!("{label}: the connection is closed"))
    }

    /// [`Side::step`] for a heartbeat of a consumer group: highwater holds its answer back until there is news or another request comes on
    /// the connection, so there is one.
    ///
    /// # Errors
    /// As [`Side::step`].
    pub fn beat<R>(&mut self, label: impl Into<String>, version: i16, request: &R) -> Result<R::Response>
    where
        R: Request,
        R::Response: Masked + Clone + Debug,
    {
        let label = format!("v{version} {}", label.into());
        let answer = self.client.ask_with_another_behind(version, request).with_context(|| label.clone())?;
        let answer = answer.with_context(|| format!("{label}: the connection is closed"))?;
        let mut shown = answer.clone();
        shown.mask();
        self.note(label, format!("{shown:#?}"));
        Ok(answer)
    }

    /// [`Side::beat`] without noting.
    ///
    /// # Errors
    /// If there is no answer.
    pub fn quiet_beat<R: Request>(&mut self, version: i16, request: &R) -> Result<R::Response> {
        self.client.ask_with_another_behind(version, request)?.context("the connection is closed")
    }

    /// Runs a tool of Apache Kafka against the broker and notes what it said; its stdout.
    ///
    /// # Errors
    /// If it doesn't end.
    pub fn tool(&mut self, class: &str, args: &[&str]) -> Result<String> {
        let said = self.unnoted_tool(class, args)?;
        self.note(args.join(" "), said.lines());
        Ok(said.stdout)
    }

    /// [`Side::tool`] where only the lines of stdout that name something are about the script.
    ///
    /// # Errors
    /// As [`Side::tool`].
    pub fn tool_about(&mut self, class: &str, args: &[&str], name: &str) -> Result<()> {
        let mut said = self.unnoted_tool(class, args)?;
        said.stdout = said.stdout.lines().filter(|line| line.contains(name)).map(|line| format!("{line}\n")).collect();
        self.note(args.join(" "), said.lines());
        Ok(())
    }

    /// [`Side::tool`] without noting.
    ///
    /// # Errors
    /// As [`Side::tool`].
    pub fn unnoted_tool(&mut self, class: &str, args: &[&str]) -> Result<Said> {
        let mut toolbox = TOOLBOX.lock().unwrap_or_else(PoisonError::into_inner);
        if toolbox.is_none() {
            *toolbox = Some(Toolbox::open()?);
        }
        toolbox.as_mut().context("it is open")?.run(class, &self.address.to_string(), args)
    }

    /// The script's connection.
    pub fn client(&mut self) -> &mut Client {
        &mut self.client
    }

    /// Where the broker speaks Kafka.
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// Asks without noting: for what prepares a step.
    ///
    /// # Errors
    /// If there is no answer.
    pub fn ask<R: Request>(&mut self, version: i16, request: &R) -> Result<R::Response> {
        self.client.ask(version, request)
    }

    /// Notes something that the script found out.
    pub fn note(&mut self, label: impl Into<String>, found: impl Into<String>) {
        self.steps.push((label.into(), found.into()));
    }

    /// Sends any bytes as a frame, and notes the answer's length in bytes or the end of the connection. Returns the answer.
    ///
    /// # Errors
    /// If there is neither.
    pub fn frame(&mut self, frame: &[u8]) -> Result<Option<Bytes>> {
        let mut client = Client::connect(self.address)?;
        client.send_frame(frame)?;
        client.receive_frame()
    }

    /// A frame that has to close the connection, or not, as Kafka does.
    ///
    /// # Errors
    /// If nothing happens.
    pub fn frame_step(&mut self, label: &str, frame: &[u8]) -> Result<()> {
        let found = match self.frame(frame)? {
            Some(_) => "an answer",
            None => "the connection is closed",
        };
        self.note(label, found);
        Ok(())
    }

    /// A connection of the script's own.
    ///
    /// # Errors
    /// If the broker doesn't accept it.
    pub fn connect(&self) -> Result<Client> {
        Client::connect(self.address)
    }

    /// Takes what was noted so far: label and answer of each step.
    pub fn take_steps(&mut self) -> Vec<(String, String)> {
        std::mem::take(&mut self.steps)
    }

    /// Another connection in place of the script's.
    ///
    /// # Errors
    /// If the broker doesn't accept it.
    pub fn reconnect(&mut self) -> Result<()> {
        self.client = self.connect()?;
        Ok(())
    }

    /// Makes a topic and waits until Metadata has its leaders. Its id.
    ///
    /// # Errors
    /// If the broker refuses.
    pub fn topic(&mut self, name: &str, partitions: i32, configs: &[(&str, &str)]) -> Result<Uuid> {
        let answer = self.ask(7, &requests::create_topics(vec![requests::new_topic(name, partitions, configs)]))?;
        let made = answer.topics.first().context("no answer for the topic")?;
        ensure!(made.error_code == 0, "make {name}: error {} {:?}", made.error_code, made.error_message);
        self.wait_for_partitions(name, usize::try_from(partitions)?)
    }

    /// Waits until Metadata has leaders for `count` partitions, and these say so themselves: Kafka tells clients of them first. The topic's id.
    ///
    /// # Errors
    /// If that takes too long.
    pub fn wait_for_partitions(&mut self, name: &str, count: usize) -> Result<Uuid> {
        let id = self.wait_until(name, |answer| {
            let topic = answer.topics.first()?;
            let leads = |partition: &MetadataResponsePartition| partition.error_code == 0;
            (topic.error_code == 0 && topic.partitions.len() == count && topic.partitions.iter().all(leads)).then_some(topic.topic_id)
        })?;
        let latest: Vec<(i32, i64)> = (0..i32::try_from(count)?).map(|partition| (partition, -1)).collect();
        for _ in 0..LOOKS {
            let answer = self.ask(5, &requests::list_offsets(name, &latest))?;
            if answer.topics.iter().flat_map(|topic| &topic.partitions).all(|partition| partition.error_code == 0) {
                return Ok(id);
            }
            thread::sleep(BETWEEN_LOOKS);
        }
        bail!("{name}: its leaders never lead")
    }

    /// Produces to prepare a step: in version 9, with acks=all.
    ///
    /// # Errors
    /// If the broker refuses.
    pub fn append(&mut self, topic: &Topic, partition: i32, batch: &Batch) -> Result<()> {
        let answer = self.ask(9, &requests::produce(9, topic, partition, batch.encode()))?;
        let refused = answer.responses.iter().flat_map(|topic| &topic.partition_responses).find(|partition| partition.error_code != 0);
        ensure!(refused.is_none(), "produce to {}: {refused:?}", topic.name);
        Ok(())
    }

    /// Waits until Metadata doesn't know the topic.
    ///
    /// # Errors
    /// If that takes too long.
    pub fn wait_until_gone(&mut self, name: &str) -> Result<()> {
        self.wait_until(name, |answer| (answer.topics.first()?.error_code == requests::UNKNOWN_TOPIC_OR_PARTITION).then_some(()))
    }

    /// Looks until something is so.
    ///
    /// # Errors
    /// If that takes too long.
    pub fn wait_for(&mut self, what: &str, mut is_so: impl FnMut(&mut Self) -> Result<bool>) -> Result<()> {
        for _ in 0..LOOKS {
            if is_so(self)? {
                return Ok(());
            }
            thread::sleep(BETWEEN_LOOKS);
        }
        bail!("it never is so that {what}")
    }

    fn wait_until<T>(&mut self, name: &str, found: impl Fn(&MetadataResponse) -> Option<T>) -> Result<T> {
        let request = MetadataRequest::default().with_allow_auto_topic_creation(false).with_topics(Some(vec![requests::named(name)]));
        for _ in 0..LOOKS {
            if let Some(found) = found(&self.ask(12, &request)?) {
                return Ok(found);
            }
            thread::sleep(BETWEEN_LOOKS);
        }
        bail!("{name}: Metadata never says what it should, but {:?}", self.ask(12, &request)?)
    }
}

/// Runs `script` against both and fails with every step whose answers differ.
pub fn compare(script: impl Fn(&mut Side) -> Result<()>) {
    let outcome = brokers().and_then(|(kafka, ours)| {
        let theirs = transcript("Apache Kafka", kafka, &script)?;
        let ours = transcript("highwater", ours, &script)?;
        Ok(differences(&theirs, &ours))
    });
    match outcome {
        Err(error) => panic!("{error:#}"),
        Ok(differences) if differences.is_empty() => {}
        Ok(differences) => panic!("{} answers differ (- Apache Kafka, + highwater):\n{}", differences.len(), differences.join("\n")),
    }
}

fn transcript(name: &'static str, address: SocketAddr, script: impl Fn(&mut Side) -> Result<()>) -> Result<Vec<(String, String)>> {
    let mut side = Side::new(address)?;
    script(&mut side).with_context(|| {
        let after = side.steps.last().map_or("the start", |(label, _)| label.as_str());
        format!("{name}, after {after:?}")
    })?;
    Ok(side.steps)
}

/// Both brokers, started by the first script, for all of them. (They are never dropped, but end with this process.)
pub fn brokers() -> Result<(SocketAddr, SocketAddr)> {
    static STARTED: OnceLock<Result<(ApacheKafka, Target)>> = OnceLock::new();
    match STARTED.get_or_init(start) {
        Ok((kafka, ours)) => Ok((kafka.kafka(), ours.address())),
        Err(error) => bail!("{error:#}"),
    }
}

fn start() -> Result<(ApacheKafka, Target)> {
    let ours = match std::env::var("COMPAT_BROKER").as_deref() {
        Ok("apache") => Target::Apache(ApacheKafka::start_with(OPTIONS)?.into()),
        _ => Target::Highwater(Box::new(Broker::start_with_one_thread(OPTIONS)?)),
    };
    Ok((ApacheKafka::start_with(OPTIONS)?, ours))
}

/// The steps whose answers differ, and how.
pub fn differences(theirs: &[(String, String)], ours: &[(String, String)]) -> Vec<String> {
    let mut found = Vec::new();
    for ((label, expected), (our_label, answer)) in theirs.iter().zip(ours) {
        if label != our_label {
            found.push(format!("the scripts part: {label:?} and {our_label:?}"));
            return found;
        }
        if expected != answer {
            found.push(format!("=== {label}\n{}", line_difference(expected, answer)));
        }
    }
    if theirs.len() != ours.len() {
        found.push(format!("{} steps with Apache Kafka, {} with highwater", theirs.len(), ours.len()));
    }
    found
}

/// The lines that only one has, each after the nearest line above that says what it is in.
pub fn line_difference(theirs: &str, ours: &str) -> String {
    let (a, b): (Vec<&str>, Vec<&str>) = (theirs.lines().collect(), ours.lines().collect());
    // common[i][j]: the length of the longest common subsequence of a[i..] and b[j..].
    let mut common = vec![vec![0_usize; b.len() + 1]; a.len() + 1];
    for i in (0..a.len()).rev() {
        for j in (0..b.len()).rev() {
            common[i][j] = if a[i] == b[j] { common[i + 1][j + 1] + 1 } else { common[i + 1][j].max(common[i][j + 1]) };
        }
    }
    let (mut i, mut j, mut lines) = (0, 0, Vec::new());
    let mut context = None;
    while i < a.len() || j < b.len() {
        if i < a.len() && j < b.len() && a[i] == b[j] {
            context = Some(a[i]);
            (i, j) = (i + 1, j + 1);
            continue;
        }
        lines.extend(context.take().map(|line| format!("  {line}")));
        if j == b.len() || (i < a.len() && common[i + 1][j] >= common[i][j + 1]) {
            lines.push(format!("- {}", a[i]));
            i += 1;
        } else {
            lines.push(format!("+ {}", b[j]));
            j += 1;
        }
    }
    lines.truncate(60);
    lines.join("\n")
}
