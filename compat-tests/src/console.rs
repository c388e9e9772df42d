//! Apache Kafka's own command line tools, from its Maven jars: kafka-topics, kafka-consumer-groups, the console producer and the
//! console consumer. The consumer is given a partition and an offset, so that it needs no group. Text only, and one partition.

use std::process::Command;

use anyhow::{Context, Result, bail, ensure};

use crate::corpus::{Headers, Received, Record};
use crate::driver::{Codec, WAIT};
use crate::process::run;
use crate::tools;

/// How a null is written, both ways.
const NULL: &str = "<null>";

/// `kafka-topics` with `args`; what it printed.
///
/// # Errors
/// If it fails, with what it said.
pub fn topics(bootstrap: &str, args: &[&str]) -> Result<String> {
    tool("TopicCommand", bootstrap, args)
}

/// A tool of Apache Kafka, by the name of its class, with `args`; what it printed.
///
/// # Errors
/// If it fails, with what it said.
pub fn tool(class: &str, bootstrap: &str, args: &[&str]) -> Result<String> {
    let mut command = tools::java(&format!("org.apache.kafka.tools.{class}"))?;
    let output = run(command.args(["--bootstrap-server", bootstrap]).args(args), &[], WAIT)?;
    Ok(String::from_utf8_lossy(&output.stdout).into_owned())
}

/// `kafka-consumer-groups` with `args`; what it printed.
///
/// # Errors
/// If it fails, with what it said.
pub fn consumer_groups(bootstrap: &str, args: &[&str]) -> Result<String> {
    let mut command = tools::java("org.apache.kafka.tools.consumer.group.ConsumerGroupCommand")?;
    let output = run(command.args(["--bootstrap-server", bootstrap]).args(args), &[], WAIT)?;
    Ok(String::from_utf8_lossy(&output.stdout).into_owned())
}

/// What is in `__consumer_offsets`, as Apache Kafka's own classes read it: a JSON object a record. `formatter` is one of
/// `OffsetsMessageFormatter` and `GroupMetadataMessageFormatter`.
///
/// # Errors
/// If the console consumer fails.
pub fn offsets_topic(bootstrap: &str, formatter: &str, partition: usize) -> Result<Vec<String>> {
    let mut command = tools::java("org.apache.kafka.tools.consumer.ConsoleConsumer")?;
    command.args(["--bootstrap-server", bootstrap, "--topic", "__consumer_offsets", "--offset", "earliest", "--timeout-ms", "3000"]);
    command.args(["--partition", &partition.to_string(), "--formatter", &format!("org.apache.kafka.tools.consumer.{formatter}")]);
    let output = run(&mut command, &[], WAIT)?;
    Ok(String::from_utf8(output.stdout)?.lines().filter(|line| line.starts_with('{')).map(str::to_owned).collect())
}

/// All records of `__consumer_offsets`, as Apache Kafka's generated classes read them, with what they are: see `programs/OffsetsTopic.java`.
///
/// # Errors
/// If one of them is not, byte for byte, what those classes would write.
pub fn offsets_records(bootstrap: &str) -> Result<Vec<serde_json::Value>> {
    let output = run(&mut crate::programs::offsets_topic(bootstrap)?, &[], WAIT)?;
    String::from_utf8(output.stdout)?.lines().map(|line| Ok(serde_json::from_str(line)?)).collect()
}

/// Records that are lines of text.
pub fn lines() -> Vec<Record> {
    let header = |name: &str, value: &str| (name.to_owned(), Some(value.as_bytes().to_vec()));
    let sets: [Headers; 4] = [
        vec![header("h", "1")],
        vec![header("twice", "a"), header("between", ""), header("twice", "b")],
        vec![("none".to_owned(), None), header("Größe", "ñ")],
        vec![header("h", "x")],
    ];
    let mut records = Vec::new();
    for key in [None, Some(""), Some("schlüssel"), Some("k")] {
        for value in [None, Some(""), Some("a value, with: everything <but tabs>")] {
            records.push(Record {
                partition: Some(0),
                timestamp: None,
                key: key.map(|key| key.as_bytes().to_vec()),
                value: value.map(|value| value.as_bytes().to_vec()),
                headers: sets[records.len() % sets.len()].clone(),
            });
        }
    }
    records.extend((0..500).map(|nth| Record {
        partition: Some(0),
        timestamp: None,
        key: Some(format!("key-{}", nth % 7).into_bytes()),
        value: Some(format!("line {nth}, and again and again and again").into_bytes()),
        headers: sets[0].clone(),
    }));
    records
}

/// Sends `records`, whose partition is that of a topic with one.
///
/// # Errors
/// If the producer says so, on its stderr: its exit code doesn't.
pub fn produce(bootstrap: &str, topic: &str, codec: Codec, records: &[Record]) -> Result<()> {
    let mut input = String::new();
    for record in records {
        let headers: Vec<String> =
            record.headers.iter().map(|(name, value)| Ok(format!("{name}:{}", text(value)?))).collect::<Result<_>>()?;
        input.push_str(&format!("{}\t{}\t{}\n", headers.join(","), text(&record.key)?, text(&record.value)?));
    }
    let mut command = tools::java("org.apache.kafka.tools.ConsoleProducer")?;
    command.args(["--bootstrap-server", bootstrap, "--topic", topic, "--compression-codec", codec.name()]);
    properties(&mut command, "--reader-property", &["parse.key=true", "parse.headers=true", &format!("null.marker={NULL}")]);
    let output = run(&mut command, input.as_bytes(), WAIT)?;
    let said = String::from_utf8_lossy(&output.stderr);
    ensure!(!said.contains("ERROR") && !said.contains("Exception"), "the console producer said\n{said}");
    Ok(())
}

/// Reads the first `count` records of partition 0.
///
/// # Errors
/// If there aren't as many, or one isn't of the form of [`lines`].
pub fn consume(bootstrap: &str, topic: &str, count: usize) -> Result<Vec<Received>> {
    let mut command = tools::java("org.apache.kafka.tools.consumer.ConsoleConsumer")?;
    command.args(["--bootstrap-server", bootstrap, "--topic", topic, "--partition", "0", "--offset", "earliest"]);
    command.args(["--timeout-ms", "30000", "--max-messages", &count.to_string()]);
    let printed = ["timestamp", "partition", "offset", "headers", "key", "value"].map(|what| format!("print.{what}=true"));
    properties(&mut command, "--formatter-property", &printed.each_ref().map(String::as_str));
    properties(&mut command, "--formatter-property", &[&format!("null.literal={NULL}")]);
    let output = run(&mut command, &[], WAIT)?;
    let lines = String::from_utf8(output.stdout)?;
    lines.lines().map(|line| received(line).with_context(|| line.to_owned())).collect()
}

fn properties(command: &mut Command, flag: &str, all: &[&str]) {
    for property in all {
        command.args([flag, property]);
    }
}

fn text(field: &Option<Vec<u8>>) -> Result<String> {
    Ok(match field {
        None => NULL.to_owned(),
        Some(bytes) => String::from_utf8(bytes.clone())?,
    })
}

/// Six fields between tabs: `CreateTime:1500000000000`, `Partition:0`, `Offset:3`, `name:value,name:value`, key, value.
fn received(line: &str) -> Result<Received> {
    let fields: Vec<&str> = line.split('\t').collect();
    let [timestamp, partition, offset, headers, key, value] = fields[..] else { bail!("{} fields", fields.len()) };
    let number = |field: &str, name: &str| -> Result<i64> { Ok(field.strip_prefix(name).context(name.to_owned())?.parse()?) };
    let field = |text: &str| if text == NULL { None } else { Some(text.as_bytes().to_vec()) };
    let header = |header: &str| -> Result<_> {
        let (name, value) = header.split_once(':').context("a header without a colon")?;
        Ok((name.to_owned(), field(value)))
    };
    Ok(Received {
        partition: i32::try_from(number(partition, "Partition:")?)?,
        offset: number(offset, "Offset:")?,
        timestamp: number(timestamp, "CreateTime:")?,
        key: field(key),
        value: field(value),
        headers: headers.split(',').map(header).collect::<Result<_>>()?,
    })
}
