//! What groups cost: acknowledged commits a second, heartbeats of 10,000 members by both protocols, and the loading of committed offsets.
//!
//! `cargo run -p compat-tests --bin bench-groups [-- commits|classic|consumer|load]…` with a released broker (or `HIGHWATER_BIN`). The broker is
//! pinned to one core, this to another. Figures go to stdout, each with what is asked of it; nothing is asserted but that answers are no errors.
#![allow(clippy::disallowed_methods, reason = "a bench reads the clock")]

mod crowd;
mod heartbeats;
mod process;

use std::process::Command;
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use compat_tests::Broker;
use kafka_protocol::messages::create_topics_request::CreatableTopic;
use kafka_protocol::messages::offset_commit_request::{OffsetCommitRequestPartition, OffsetCommitRequestTopic};
use kafka_protocol::messages::{CreateTopicsRequest, FindCoordinatorRequest, GroupId, ListGroupsRequest, OffsetCommitRequest, TopicName};
use kafka_protocol::protocol::StrBytes;

use crate::crowd::Crowd;
use crate::process::cpu_seconds;

const TOPIC: &str = "bench";
const PARTITIONS: i32 = 100;
const COMMITTERS: usize = 100;
const COMMIT_TIME: Duration = Duration::from_secs(10);
const OFFSETS: usize = 200_000;

fn main() -> Result<()> {
    let words: Vec<String> = std::env::args().skip(1).collect();
    let wanted = |what: &str| words.is_empty() || words.iter().any(|word| word == what);
    pin(std::process::id(), 1)?;
    if wanted("commits") {
        commits()?;
    }
    if wanted("classic") {
        heartbeats::classic()?;
    }
    if wanted("consumer") {
        heartbeats::consumer()?;
    }
    if wanted("load") {
        load()?;
    }
    Ok(())
}

fn started(settings: &[(&str, &str)]) -> Result<Broker> {
    let broker = Broker::start_with(settings)?;
    pin(broker.pid(), 0)?;
    let mut client = broker.connect()?;
    let topic = CreatableTopic::default().with_name(topic_name(TOPIC)).with_num_partitions(PARTITIONS).with_replication_factor(-1);
    let made = client.ask(5, &CreateTopicsRequest::default().with_topics(vec![topic]).with_timeout_ms(30_000))?;
    ensure!(made.topics.iter().all(|topic| topic.error_code == 0), "the topic: {made:?}");
    client.ask(3, &FindCoordinatorRequest::default().with_key(text("any")))?;
    Ok(broker)
}

fn pin(pid: u32, core: usize) -> Result<()> {
    let status = Command::new("taskset").args(["-acp", &core.to_string(), &pid.to_string()]).output().context("taskset")?.status;
    ensure!(status.success(), "taskset ended with {status}");
    Ok(())
}

fn text(text: &str) -> StrBytes {
    StrBytes::from_string(text.to_owned())
}

fn group_id(nth: usize) -> GroupId {
    GroupId(text(&format!("group-{nth}")))
}

fn topic_name(name: &str) -> TopicName {
    TopicName(text(name))
}

fn commit(group: usize, partitions: std::ops::Range<i32>) -> OffsetCommitRequest {
    let partition = |index| OffsetCommitRequestPartition::default().with_partition_index(index).with_committed_offset(i64::from(index) + 7);
    let topic = OffsetCommitRequestTopic::default().with_name(topic_name(TOPIC)).with_partitions(partitions.map(partition).collect());
    OffsetCommitRequest::default()
        .with_group_id(group_id(group))
        .with_generation_id_or_member_epoch(-1)
        .with_retention_time_ms(-1)
        .with_topics(vec![topic])
}

/// Clients that each wait for the answer before they commit again, as an application does that commits after each record.
fn commits() -> Result<()> {
    let broker = started(&[])?;
    let (mut crowd, mut frames) = (Crowd::new()?, Vec::new());
    for nth in 0..COMMITTERS {
        let mut client = broker.connect()?;
        let index = i32::try_from(nth)? % PARTITIONS;
        let answer = client.ask(8, &commit(nth, index..index + 1))?;
        ensure!(answer.topics[0].partitions[0].error_code == 0, "{answer:?}");
        frames.push(client.encode(8, &commit(nth, index..index + 1))?);
        crowd.add(client)?;
    }
    let (before, begun, mut done) = (cpu_seconds(broker.pid())?, Instant::now(), 0_u64);
    for (nth, frame) in frames.iter().enumerate() {
        crowd.client(nth).send_frame(frame)?;
    }
    while begun.elapsed() < COMMIT_TIME {
        for nth in crowd.answered()? {
            let answer = crowd.client(nth).receive_frame()?.context("an answer")?;
            // The error of the one partition lies before the tagged fields of partition, topic and answer.
            ensure!(answer[answer.len() - 5..answer.len() - 3] == [0, 0], "a commit failed");
            done += 1;
            crowd.client(nth).send_frame(&frames[nth])?;
        }
    }
    let (wall, used) = (begun.elapsed().as_secs_f64(), cpu_seconds(broker.pid())? - before);
    println!(
        "commits: {:.0} a second from {COMMITTERS} clients (50,000 are asked for); {:.1} µs of CPU each, {:.0} % of a core",
        done as f64 / wall,
        used * 1e6 / done as f64,
        used * 100.0 / wall
    );
    Ok(())
}

fn load() -> Result<()> {
    let mut broker = started(&[])?;
    let mut client = broker.connect()?;
    for group in 0..OFFSETS / PARTITIONS as usize {
        let answer = client.ask(8, &commit(group, 0..PARTITIONS))?;
        ensure!(answer.topics[0].partitions.iter().all(|partition| partition.error_code == 0), "{answer:?}");
    }
    let mut least = f64::MAX;
    for _ in 0..3 {
        ensure!(broker.stop()?.success());
        broker.restart()?;
        let ready = Instant::now();
        let mut client = broker.connect()?;
        const LOAD_IN_PROGRESS: i16 = 14;
        while client.ask(4, &ListGroupsRequest::default())?.error_code == LOAD_IN_PROGRESS {
            thread::sleep(Duration::from_millis(1));
        }
        least = least.min(ready.elapsed().as_secs_f64());
    }
    println!("load: {OFFSETS} committed offsets {least:.3} s after the broker is ready, the least of 3 (1 s is allowed)");
    Ok(())
}
