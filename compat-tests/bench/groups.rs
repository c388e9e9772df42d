//! What groups cost: acknowledged commits a second, heartbeats of 10,000 members by both protocols, and the loading of committed offsets.
//!
//! `cargo run -p compat-tests --bin bench-groups [-- commits|heartbeats|load]…` with a released broker (or `HIGHWATER_BIN`). The broker is
//! pinned to one core, this to another. Figures go to stdout, each with what is asked of it; nothing is asserted but that answers are no errors.
#![allow(clippy::disallowed_methods, reason = "a bench reads the clock")]

use std::process::Command;
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use bytes::Bytes;
use compat_tests::Broker;
use compat_tests::wire::Client;
use kafka_protocol::messages::create_topics_request::CreatableTopic;
use kafka_protocol::messages::join_group_request::JoinGroupRequestProtocol;
use kafka_protocol::messages::offset_commit_request::{OffsetCommitRequestPartition, OffsetCommitRequestTopic};
use kafka_protocol::messages::sync_group_request::SyncGroupRequestAssignment;
use kafka_protocol::messages::{
    ConsumerGroupHeartbeatRequest, CreateTopicsRequest, FindCoordinatorRequest, GroupId, HeartbeatRequest, JoinGroupRequest,
    ListGroupsRequest, OffsetCommitRequest, SyncGroupRequest, TopicName,
};
use kafka_protocol::protocol::StrBytes;

const TOPIC: &str = "bench";
const PARTITIONS: i32 = 100;
/// Clock ticks a second in /proc: 100 on every Linux that there is.
const TICKS: f64 = 100.0;
const COMMITTERS: usize = 100;
const COMMIT_THREADS: usize = 4;
const COMMIT_TIME: Duration = Duration::from_secs(10);
const GROUPS: usize = 1_000;
const MEMBERS: usize = 10;
const HEARTBEAT_EVERY: Duration = Duration::from_secs(3);
const HEARTBEAT_ROUNDS: usize = 5;
const OFFSETS: usize = 200_000;

fn main() -> Result<()> {
    let words: Vec<String> = std::env::args().skip(1).collect();
    let wanted = |what: &str| words.is_empty() || words.iter().any(|word| word == what);
    pin(std::process::id(), 1)?;
    if wanted("commits") {
        commits()?;
    }
    if wanted("heartbeats") {
        heartbeats("classic", classic_members)?;
        heartbeats("KIP-848", consumer_members)?;
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

/// Seconds of CPU that the broker took so far.
fn cpu(broker: &Broker) -> Result<f64> {
    let stat = std::fs::read_to_string(format!("/proc/{}/stat", broker.pid()))?;
    let (_, fields) = stat.rsplit_once(')').context("a stat line without a name")?;
    let ticks: u64 = fields.split_whitespace().skip(11).take(2).filter_map(|field| field.parse::<u64>().ok()).sum();
    Ok(ticks as f64 / TICKS)
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
    let address = broker.kafka();
    let (before, begun) = (cpu(&broker)?, Instant::now());
    let work = |thread: usize| -> Result<u64> {
        let mut clients = Vec::new();
        for nth in (thread..COMMITTERS).step_by(COMMIT_THREADS) {
            let mut client = Client::connect(address)?;
            let index = i32::try_from(nth)? % PARTITIONS;
            let answer = client.ask(8, &commit(nth, index..index + 1))?;
            ensure!(answer.topics[0].partitions[0].error_code == 0, "{answer:?}");
            let frame = client.encode(8, &commit(nth, index..index + 1))?;
            clients.push((client, frame));
        }
        let mut done = 0;
        while begun.elapsed() < COMMIT_TIME {
            for (client, frame) in &mut clients {
                client.send_frame(frame)?;
            }
            for (client, _) in &mut clients {
                let answer = client.receive_frame()?.context("an answer")?;
                // The error of the one partition lies before the tagged fields of partition, topic and answer.
                ensure!(answer[answer.len() - 5..answer.len() - 3] == [0, 0], "a commit failed");
                done += 1;
            }
        }
        Ok(done)
    };
    let done: u64 = thread::scope(|scope| {
        let threads: Vec<_> = (0..COMMIT_THREADS).map(|nth| scope.spawn(move || work(nth))).collect();
        threads.into_iter().map(|thread| thread.join().unwrap_or_else(|_| Err(anyhow::anyhow!("a thread panicked")))).sum::<Result<u64>>()
    })?;
    let (wall, used) = (begun.elapsed().as_secs_f64(), cpu(&broker)? - before);
    println!(
        "commits: {:.0} a second from {COMMITTERS} clients (50,000 are asked for); {:.1} µs of CPU each, {:.0} % of a core",
        done as f64 / wall,
        used * 1e6 / done as f64,
        used * 100.0 / wall
    );
    Ok(())
}

/// A member's connection and its next heartbeat.
struct Beating {
    client: Client,
    frame: Bytes,
}

type MakeMembers = fn(&Broker) -> Result<Vec<Beating>>;

fn heartbeats(protocol: &str, members: MakeMembers) -> Result<()> {
    let broker = started(&[
        ("group.initial.rebalance.delay.ms", "3000"),
        ("group.consumer.heartbeat.interval.ms", "3000"),
        ("group.consumer.min.heartbeat.interval.ms", "3000"),
    ])?;
    let mut members = members(&broker)?;
    let slot = HEARTBEAT_EVERY / u32::try_from(members.len())?;
    let mut measured = None;
    let begun = Instant::now();
    for round in 0..=HEARTBEAT_ROUNDS {
        if round == 1 {
            measured = Some((cpu(&broker)?, Instant::now()));
        }
        for (nth, member) in members.iter_mut().enumerate() {
            let due = HEARTBEAT_EVERY * u32::try_from(round)? + slot * u32::try_from(nth)?;
            // In small bursts: this thread can't sleep for a third of a millisecond.
            if let Some(early) = due.checked_sub(begun.elapsed()).filter(|early| early.as_millis() > 1) {
                thread::sleep(early);
            }
            if round > 0 {
                // The answer to the last one: it may have been held back for most of the time since.
                let answer = member.client.receive_frame()?.context("an answer")?;
                let error = i16::from_be_bytes([answer[9], answer[10]]);
                ensure!(error == 0, "a heartbeat was answered {error}");
            }
            member.client.send_frame(&member.frame)?;
        }
    }
    let (before, since) = measured.context("no rounds")?;
    let (wall, used) = (since.elapsed().as_secs_f64(), cpu(&broker)? - before);
    println!(
        "heartbeats, {protocol}: {GROUPS} groups of {MEMBERS} members, one each in 3 s: {:.1} % of a core (10 are allowed); {:.1} µs of CPU each",
        used * 100.0 / wall,
        used * 1e6 / (members.len() * HEARTBEAT_ROUNDS) as f64
    );
    Ok(())
}

fn classic_members(broker: &Broker) -> Result<Vec<Beating>> {
    const JOIN: i16 = 3; // the last that joins without being given an id first
    let mut clients = (0..GROUPS * MEMBERS).map(|_| broker.connect()).collect::<Result<Vec<_>>>()?;
    let protocol = JoinGroupRequestProtocol::default().with_name(text("range")).with_metadata(Bytes::from_static(&[0; 10]));
    for (nth, client) in clients.iter_mut().enumerate() {
        let join = JoinGroupRequest::default()
            .with_group_id(group_id(nth / MEMBERS))
            .with_session_timeout_ms(60_000)
            .with_rebalance_timeout_ms(60_000)
            .with_protocol_type(text("consumer"))
            .with_protocols(vec![protocol.clone()]);
        client.send(JOIN, &join)?;
    }
    let mut joined = Vec::new();
    for (nth, client) in clients.iter_mut().enumerate() {
        let answer = client.receive::<JoinGroupRequest>(JOIN)?.context("an answer")?;
        ensure!(answer.error_code == 0, "member {nth} was answered {answer:?}");
        let assigned = |member: &StrBytes| SyncGroupRequestAssignment::default().with_member_id(member.clone());
        let sync = SyncGroupRequest::default()
            .with_group_id(group_id(nth / MEMBERS))
            .with_generation_id(answer.generation_id)
            .with_member_id(answer.member_id.clone())
            .with_assignments(answer.members.iter().map(|member| assigned(&member.member_id)).collect());
        client.send(2, &sync)?;
        joined.push((answer.generation_id, answer.member_id));
    }
    let mut members = Vec::new();
    for (nth, (mut client, (generation, member))) in clients.into_iter().zip(joined).enumerate() {
        let answer = client.receive::<SyncGroupRequest>(2)?.context("an answer")?;
        ensure!(answer.error_code == 0, "member {nth} was answered {answer:?}");
        let beat = HeartbeatRequest::default().with_group_id(group_id(nth / MEMBERS)).with_generation_id(generation).with_member_id(member);
        let frame = client.encode(4, &beat)?.freeze();
        members.push(Beating { client, frame });
    }
    Ok(members)
}

/// All read one topic's hundred partitions; who waits for some gets them when the others have let go.
fn consumer_members(broker: &Broker) -> Result<Vec<Beating>> {
    let mut members = Vec::new();
    for nth in 0..GROUPS * MEMBERS {
        let mut client = broker.connect()?;
        let beat = ConsumerGroupHeartbeatRequest::default()
            .with_group_id(group_id(nth / MEMBERS))
            .with_member_id(text(&format!("member-{nth}")))
            .with_rebalance_timeout_ms(-1)
            .with_subscribed_topic_names(None)
            .with_topic_partitions(None);
        // A topic that isn't there: what is measured is heartbeats without news.
        let join = beat
            .clone()
            .with_rebalance_timeout_ms(60_000)
            .with_subscribed_topic_names(Some(vec![topic_name("nowhere")]))
            .with_topic_partitions(Some(Vec::new()));
        let answer = client.ask(1, &join)?;
        ensure!(answer.error_code == 0, "{answer:?}");
        members.push((client, beat));
    }
    // The last one's join has raised the epoch: all hear of it now.
    let mut beating = Vec::new();
    for (mut client, beat) in members {
        let full = beat
            .clone()
            .with_rebalance_timeout_ms(60_000)
            .with_subscribed_topic_names(Some(vec![topic_name("nowhere")]))
            .with_topic_partitions(Some(Vec::new()));
        let answer = client.ask(1, &full)?;
        ensure!(answer.error_code == 0, "{answer:?}");
        let frame = client.encode(1, &beat.with_member_epoch(answer.member_epoch))?.freeze();
        beating.push(Beating { client, frame });
    }
    Ok(beating)
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
