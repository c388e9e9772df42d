//! An administrator's everyday tools of Apache Kafka, run against it and against highwater with two data directories each: what they say and how
//! they end is the same, but for numbers that are chance and the names of directories. Of what there is nothing of here they say so.
#![allow(clippy::disallowed_methods, reason = "it waits for programs")]

use std::fmt::Write as _;
use std::net::SocketAddr;
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail, ensure};
use compat_tests::toolbox::{Said, Toolbox};
use compat_tests::wire::Client;
use compat_tests::{ApacheKafka, Broker, steady};
use kafka_protocol::messages::DescribeLogDirsRequest;
use tempfile::{NamedTempFile, TempDir};

const WAIT: Duration = Duration::from_secs(60);
const REASSIGN: &str = "reassign.ReassignPartitionsCommand";
const ELECT: &str = "LeaderElectionCommand";
/// 4 MB move for minutes at it: no tool takes that long to look.
const SLOW: &str = "10000";

/// One of the brokers, and what its tools said.
struct Side {
    address: SocketAddr,
    bootstrap: String,
    dirs: String,
    toolbox: Toolbox,
    said: Vec<(String, String)>,
}

/// Whether the numbers of an answer count.
#[derive(Clone, Copy, PartialEq)]
enum Numbers {
    Count,
    AreChance,
}

impl Side {
    fn new(address: SocketAddr, dirs: &TempDir) -> Result<Self> {
        let dirs = dirs.path().display().to_string();
        Ok(Self { address, bootstrap: address.to_string(), dirs, toolbox: Toolbox::open()?, said: Vec::new() })
    }

    /// Runs a tool and notes what it said.
    fn tool(&mut self, class: &str, args: &[&str]) -> Result<Said> {
        let said = self.toolbox.run(class, &self.bootstrap, args)?;
        self.note(format!("{class} {}", args.join(" ")), &said, Numbers::Count, "");
        Ok(said)
    }

    /// [`Side::tool`] for one that measures.
    fn measure(&mut self, class: &str, args: &[&str]) -> Result<()> {
        let said = self.toolbox.run(class, &self.bootstrap, args)?;
        self.note(format!("{class} {}", args.join(" ")), &said, Numbers::AreChance, "");
        Ok(())
    }

    /// [`Side::tool`] where only the lines of stdout that have a word are about the test.
    fn tool_about(&mut self, class: &str, args: &[&str], word: &str) -> Result<()> {
        let said = self.toolbox.run(class, &self.bootstrap, args)?;
        self.note(format!("{class} {}", args.join(" ")), &said, Numbers::AreChance, word);
        Ok(())
    }

    fn note(&mut self, label: String, said: &Said, numbers: Numbers, word: &str) {
        let mut said = said.clone();
        said.stdout = said.stdout.lines().filter(|line| line.contains(word)).map(|line| format!("{line}\n")).collect();
        let mut lines = said.lines().replace(&self.dirs, "DIRS");
        if numbers == Numbers::AreChance {
            lines = without_numbers(&lines);
        }
        self.said.push((label.replace(&self.dirs, "DIRS"), lines));
    }

    /// A file with a plan that says where partition 0 of the topic goes.
    fn plan(&self, topic: &str, replicas: &str, dir: Option<&str>) -> Result<NamedTempFile> {
        let dir = dir.map_or_else(String::new, |dir| format!(r#","log_dirs":["{}"]"#, dir.replace("DIRS", &self.dirs)));
        let file = NamedTempFile::new_in(&self.dirs)?;
        let plan = format!(r#"{{"version":1,"partitions":[{{"topic":"{topic}","partition":0,"replicas":{replicas}{dir}}}]}}"#);
        std::fs::write(file.path(), plan)?;
        Ok(file)
    }

    /// A tool that is given a file; its name is left out of what is noted.
    fn tool_with(&mut self, class: &str, option: &str, file: &NamedTempFile, args: &[&str]) -> Result<Said> {
        let path = file.path().to_str().context("a path")?;
        let said = self.toolbox.run(class, &self.bootstrap, &[&[option, path], args].concat())?;
        let given = std::fs::read_to_string(file.path())?;
        self.note(format!("{class} {} of {given}", args.join(" ")), &said, Numbers::Count, "");
        Ok(said)
    }

    /// Looks until partition 0 of the topic is in this directory and nowhere on its way.
    fn wait_until_in(&self, dir: &str, topic: &str) -> Result<()> {
        let begun = Instant::now();
        let path = format!("{}/{dir}", self.dirs);
        loop {
            let answer = Client::connect(self.address)?.ask(4, &DescribeLogDirsRequest::default().with_topics(None))?;
            let found: Vec<_> = answer
                .results
                .iter()
                .flat_map(|result| {
                    let of = result.topics.iter().filter(|one| &**one.name == topic).flat_map(|one| &one.partitions);
                    of.filter(|one| one.partition_index == 0).map(|one| (result.log_dir.to_string(), one.is_future_key))
                })
                .collect();
            if found == [(path.clone(), false)] {
                return Ok(());
            }
            ensure!(begun.elapsed() < WAIT, "{topic}-0 never comes to {path}: {found:?}");
            thread::sleep(Duration::from_millis(20));
        }
    }

    /// Looks until partition 0 of the topic has a leader that says so itself.
    fn wait_for_leader(&self, topic: &str) -> Result<()> {
        self.wait_for_partition(topic, 0)
    }

    fn wait_for_partition(&self, topic: &str, partition: i32) -> Result<()> {
        let begun = Instant::now();
        let mut client = Client::connect(self.address)?;
        while steady::read(&mut client, topic, partition).is_err() {
            ensure!(begun.elapsed() < WAIT, "{topic}-{partition} never has a leader");
            thread::sleep(Duration::from_millis(20));
        }
        Ok(())
    }

    /// Sets a config of the broker, and looks until it says that it has it: Apache Kafka's controller answers before.
    fn configure(&mut self, config: &str) -> Result<()> {
        let of_broker = ["--entity-type", "brokers", "--entity-name", "1"];
        self.tool("ConfigCommand", &[&["--alter", "--add-config", config], &of_broker[..]].concat())?;
        self.wait_for_configs(config, true)
    }

    fn wait_for_configs(&mut self, word: &str, is_there: bool) -> Result<()> {
        let begun = Instant::now();
        let described = ["--describe", "--entity-type", "brokers", "--entity-name", "1"];
        while self.toolbox.run("ConfigCommand", &self.bootstrap, &described)?.stdout.contains(word) != is_there {
            ensure!(begun.elapsed() < WAIT, "{word} never is there: {is_there}");
        }
        Ok(())
    }
}

/// Each number is N.
fn without_numbers(text: &str) -> String {
    let mut kept = String::new();
    let mut in_number = false;
    for c in text.chars() {
        let is_part = c.is_ascii_digit() || (in_number && c == '.');
        if is_part && !in_number {
            kept.push('N');
        } else if !is_part {
            kept.push(c);
        }
        in_number = is_part;
    }
    kept
}

/// Runs the script against both at the same time, and fails with all that differs.
fn compare(script: impl Fn(&mut Side) -> Result<()> + Sync) -> Result<()> {
    let dirs = [TempDir::with_prefix("admin-tools-")?, TempDir::with_prefix("admin-tools-")?];
    let both = |dir: &TempDir| format!("{0}/a,{0}/b", dir.path().display());
    let of_kafka = both(&dirs[0]);
    let options = [("log.dirs", of_kafka.as_str()), ("node.id", "1"), ("log.retention.ms", "-1"), ("offsets.topic.num.partitions", "1")];
    let kafka = ApacheKafka::start_with(&options)?;
    let of_ours = both(&dirs[1]);
    let options = [("log.dirs", of_ours.as_str()), ("group.initial.rebalance.delay.ms", "0"), ("offsets.topic.num.partitions", "1")];
    let ours = Broker::start_with(&options)?;
    let run = |name: &'static str, address, dirs| {
        let mut side = Side::new(address, dirs)?;
        script(&mut side).with_context(|| format!("{name}, after {:?}", side.said.last()))?;
        Ok::<_, anyhow::Error>(side.said)
    };
    let (theirs, ours) = thread::scope(|scope| {
        let theirs = scope.spawn(|| run("Apache Kafka", kafka.kafka(), &dirs[0]));
        let ours = run("highwater", ours.kafka(), &dirs[1]);
        (theirs.join().expect("the thread of Apache Kafka's script"), ours)
    });
    let (theirs, ours) = (theirs?, ours?);
    let mut differences = String::new();
    for ((label, expected), (our_label, said)) in theirs.iter().zip(&ours) {
        ensure!(label == our_label, "the scripts part: {label:?} and {our_label:?}");
        if expected != said {
            let _ = writeln!(differences, "=== {label}\n--- Apache Kafka\n{expected}--- highwater\n{said}");
        }
    }
    ensure!(theirs.len() == ours.len(), "{} answers of Apache Kafka, {} of highwater", theirs.len(), ours.len());
    if differences.is_empty() { Ok(()) } else { bail!("{differences}") }
}

#[test]
fn partitions_are_reassigned_and_leaders_elected() -> Result<()> {
    compare(|side| {
        ensure!(steady::create(&mut Client::connect(side.address)?, "moved", 1, &[])? == 0);
        let filled = ["--topic", "moved", "--num-records", "400", "--record-size", "10000", "--throughput", "-1"];
        // Without its lines of progress.
        side.tool_about("ProducerPerformance", &filled, "50th")?;
        let to_a = side.plan("moved", "[1]", Some("DIRS/a"))?;
        let path = to_a.path().to_str().context("a path")?.to_owned();
        side.toolbox.run(REASSIGN, &side.bootstrap, &["--reassignment-json-file", &path, "--execute"])?;
        side.wait_until_in("a", "moved")?;

        let topics = NamedTempFile::new()?;
        std::fs::write(topics.path(), r#"{"topics":[{"topic":"moved"}],"version":1}"#)?;
        for brokers in ["1", "1,2", "2"] {
            side.tool_with(REASSIGN, "--topics-to-move-json-file", &topics, &["--broker-list", brokers, "--generate"])?;
        }
        side.tool(REASSIGN, &["--list"])?;
        let plan = "--reassignment-json-file";
        side.tool_with(REASSIGN, plan, &to_a, &["--execute"])?;
        side.tool_with(REASSIGN, plan, &to_a, &["--verify"])?;
        for (replicas, dir) in
            [("[1]", None), ("[1]", Some("any")), ("[1,2]", None), ("[2]", None), ("[]", None), ("[1]", Some("/nowhere"))]
        {
            let file = side.plan("moved", replicas, dir)?;
            // The tool would ask brokers that aren't there about the rest, for minutes.
            let all_are_there = replicas == "[1]";
            let steps = [&["--execute"][..], &["--execute", "--disallow-replication-factor-change"], &["--cancel"], &["--verify"]];
            for what in steps.iter().take(if all_are_there { 4 } else { 2 }) {
                side.tool_with(REASSIGN, plan, &file, what)?;
            }
        }
        let nowhere = side.plan("not-there", "[1]", None)?;
        side.tool_with(REASSIGN, plan, &nowhere, &["--execute"])?;
        side.tool_with(REASSIGN, plan, &nowhere, &["--verify"])?;

        // A move that is held back is under way until it is let go.
        let key = "replica.alter.log.dirs.io.max.bytes.per.second";
        side.configure(&format!("{key}={SLOW}"))?;
        let to_b = side.plan("moved", "[1]", Some("DIRS/b"))?;
        let throttled = ["--execute", "--throttle", "1000000", "--replica-alter-log-dirs-throttle", SLOW];
        side.tool_with(REASSIGN, plan, &to_b, &throttled)?;
        side.wait_for_configs("leader.replication.throttled.rate=1000000", true)?;
        side.tool("ConfigCommand", &["--describe", "--entity-type", "brokers", "--entity-name", "1"])?;
        side.tool("ConfigCommand", &["--describe", "--entity-type", "topics", "--entity-name", "moved"])?;
        for verify in [&["--verify", "--preserve-throttles"][..], &["--verify"]] {
            let said = side.tool_with(REASSIGN, plan, &to_b, verify)?;
            ensure!(said.stdout.contains("still in progress"), "{said:?}");
        }
        side.tool_with(REASSIGN, plan, &to_b, &["--cancel", "--preserve-throttles"])?;
        side.wait_until_in("a", "moved")?;
        side.tool_with(REASSIGN, plan, &to_b, &["--execute", "--replica-alter-log-dirs-throttle", SLOW])?;
        let fast = "100000000";
        side.tool_with(REASSIGN, plan, &to_b, &["--execute", "--additional", "--replica-alter-log-dirs-throttle", fast])?;
        side.wait_until_in("b", "moved")?;
        side.tool_with(REASSIGN, plan, &to_b, &["--verify"])?;
        side.wait_for_configs("throttled", false)?;
        side.tool("ConfigCommand", &["--describe", "--entity-type", "brokers", "--entity-name", "1"])?;
        side.tool("ConfigCommand", &["--describe", "--entity-type", "topics", "--entity-name", "moved"])?;
        for refused in ["leader.replication.throttled.rate=-1", "follower.replication.throttled.rate=soon"] {
            side.tool("ConfigCommand", &["--alter", "--entity-type", "brokers", "--entity-default", "--add-config", refused])?;
        }

        elect(side)
    })
}

/// There is one broker, which leads.
fn elect(side: &mut Side) -> Result<()> {
    let elected = NamedTempFile::new()?;
    std::fs::write(elected.path(), r#"{"partitions":[{"topic":"moved","partition":0},{"topic":"moved","partition":7}]}"#)?;
    for kind in ["preferred", "unclean"] {
        side.tool(ELECT, &["--election-type", kind, "--all-topic-partitions"])?;
        side.tool(ELECT, &["--election-type", kind, "--topic", "moved", "--partition", "0"])?;
        side.tool(ELECT, &["--election-type", kind, "--topic", "not-there", "--partition", "0"])?;
        side.tool_with(ELECT, "--path-to-json-file", &elected, &["--election-type", kind])?;
    }
    side.tool(ELECT, &["--election-type", "lucky", "--all-topic-partitions"]).map(drop)
}

#[test]
fn what_an_administrator_does_every_day() -> Result<()> {
    compare(|side| {
        side.tool("TopicCommand", &["--create", "--topic", "daily", "--partitions", "1"])?;
        side.wait_for_leader("daily")?;
        let filled = ["--topic", "daily", "--num-records", "50", "--record-size", "100", "--throughput", "-1"];
        // Without its lines of progress.
        side.tool_about("ProducerPerformance", &filled, "50th")?;
        side.measure("VerifiableProducer", &["--topic", "daily", "--max-messages", "3"])?;
        side.measure("ConsumerPerformance", &["--topic", "daily", "--num-records", "53", "--group", "measured"])?;
        side.measure(
            "VerifiableConsumer",
            &["--topic", "daily", "--group-id", "verified", "--max-messages", "53", "--reset-policy", "earliest"],
        )?;
        side.measure("EndToEndLatency", &["--topic", "daily", "--num-records", "5", "--producer-acks", "all", "--record-size", "50"])?;
        let said = side.toolbox.run("TopicCommand", &side.bootstrap, &["--describe", "--topic", "daily"])?;
        let id = said.stdout.split_once("TopicId: ").and_then(|(_, rest)| rest.split_whitespace().next()).unwrap_or_default();
        ensure!(id.len() == 22, "{said:?}");
        let said = Said { stdout: said.stdout.replace(id, "ID"), ..said };
        side.note("describe the topic".to_owned(), &said, Numbers::Count, "");
        side.tool("TopicCommand", &["--list"])?;
        side.tool("TopicCommand", &["--alter", "--topic", "daily", "--partitions", "2"])?;
        side.tool("TopicCommand", &["--alter", "--topic", "daily", "--partitions", "1"])?;
        side.wait_for_partition("daily", 1)?;
        for which in [&["--topic", "daily"][..], &["--topic-partitions", "daily:0-1", "--time", "earliest"], &["--topic", "not-there"]] {
            side.tool("GetOffsetShell", which)?;
        }
        let deleted = NamedTempFile::new()?;
        std::fs::write(deleted.path(), r#"{"partitions":[{"topic":"daily","partition":0,"offset":10}],"version":1}"#)?;
        side.tool_with("DeleteRecordsCommand", "--offset-json-file", &deleted, &[])?;
        side.tool("GetOffsetShell", &["--topic-partitions", "daily:0", "--time", "-2"])?;
        side.tool_about("LogDirsCommand", &["--describe", "--topic-list", "daily", "--broker-list", "7"], "Received")?;
        for kind in [&[][..], &["--consumer"], &["--share"], &["--streams"], &["--group-type", "classic"]] {
            let groups = ["measured", "verified"];
            let said = side.toolbox.run("GroupsCommand", &side.bootstrap, &[&["--list"], kind].concat())?;
            let stdout = said.stdout.lines().filter(|line| groups.iter().any(|group| line.starts_with(group)));
            let said = Said { stdout: stdout.map(|line| format!("{line}\n")).collect(), ..said };
            side.note(format!("the groups of {kind:?}"), &said, Numbers::Count, "");
        }
        side.tool("TransactionsCommand", &["list"])?;
        side.tool("TransactionsCommand", &["find-hanging", "--broker-id", "1"])?;
        side.tool_about("TransactionsCommand", &["describe-producers", "--topic", "daily", "--partition", "0"], "")?;
        for feature in ["group.version", "transaction.version"] {
            side.tool_about("FeatureCommand", &["describe"], feature)?;
        }
        side.tool_about("BrokerApiVersionsCommand", &[], "127.0.0.1")?;
        side.tool("ClientMetricsCommand", &["--list"])?;
        side.tool("consumer.group.ShareGroupCommand", &["--list"])?;
        side.tool("streams.StreamsGroupCommand", &["--list"])?;
        for args in [&["cluster-id"][..], &["list-endpoints"]] {
            let said = side.toolbox.run_as("ClusterTool", &[args, &["--bootstrap-server", &side.bootstrap]].concat())?;
            let mut said = Said { stdout: said.stdout.replace(&side.address.port().to_string(), "PORT"), ..said };
            if args == ["cluster-id"] {
                // It is random.
                said.stdout = said.stdout.split_once(": ").map_or(said.stdout.clone(), |(words, id)| format!("{words} {}", id.len()));
            }
            side.note(format!("{args:?}"), &said, Numbers::Count, "");
        }
        side.tool("TopicCommand", &["--delete", "--topic", "daily"])?;
        side.tool("TopicCommand", &["--delete", "--topic", "not-there"]).map(drop)
    })
}

/// Each of these is answered in the tool's own words for what a broker hasn't got.
#[test]
fn what_there_is_nothing_of_is_said() -> Result<()> {
    let broker = Broker::start()?;
    let mut toolbox = Toolbox::open()?;
    for (class, args, exit, words) in [
        ("MetadataQuorumCommand", &["describe", "--status"][..], 1, "does not support DESCRIBE_QUORUM"),
        ("AclCommand", &["--list"], 1, "does not support DESCRIBE_ACLS"),
        ("ConfigCommand", &["--describe", "--entity-type", "users"], 1, "does not support DESCRIBE_CLIENT_QUOTAS"),
        ("ClientMetricsCommand", &["--alter", "--name", "m", "--interval", "1000"], 1, "Resources of type 16 have no configs here"),
    ] {
        let said = toolbox.run(class, &broker.bootstrap(), args)?;
        ensure!(said.exit == exit && format!("{}{}", said.stdout, said.stderr).contains(words), "{class} {args:?}: {said:?}");
    }
    Ok(())
}
