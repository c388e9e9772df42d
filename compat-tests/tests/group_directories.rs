//! `__consumer_offsets` between the brokers: groups of every kind that Apache Kafka wrote go on here, and what is written here Apache Kafka's own
//! tool reads.
#![allow(clippy::disallowed_methods, reason = "it waits for brokers, which work by their own clock")]

use std::net::SocketAddr;
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use compat_tests::heartbeats::{Owned, STATIC_LEAVE, beat, count, given, heartbeat, join, owning, settled};
use compat_tests::process::run;
use compat_tests::seat::commit_alone;
use compat_tests::wire::Client;
use compat_tests::{ApacheKafka, Broker, steady, tools};
use kafka_protocol::messages::consumer_group_describe_response::DescribedGroup;
use kafka_protocol::messages::join_group_request::JoinGroupRequestProtocol;
use kafka_protocol::messages::offset_commit_request::{OffsetCommitRequestPartition, OffsetCommitRequestTopic};
use kafka_protocol::messages::offset_fetch_request::OffsetFetchRequestGroup;
use kafka_protocol::messages::sync_group_request::SyncGroupRequestAssignment;
use kafka_protocol::messages::{
    ConsumerGroupDescribeRequest, ConsumerGroupHeartbeatRequest, GroupId, HeartbeatRequest, JoinGroupRequest, OffsetCommitRequest,
    OffsetFetchRequest, SyncGroupRequest, TopicName,
};
use kafka_protocol::protocol::StrBytes;

const WAIT: Duration = Duration::from_secs(60);
const TOPIC: &str = "t";
const PARTITIONS: usize = 4;
const CONSUMERS: [&str; 4] = ["stable", "revoking", "away", "by-expression"];

fn text(text: &str) -> StrBytes {
    StrBytes::from_string(text.to_owned())
}

fn group(name: &str) -> GroupId {
    GroupId(text(name))
}

/// What was left, by the members' own knowledge.
struct Left {
    classic: (StrBytes, i32),
    stable: (i32, Owned),
    /// What the one that is to let go keeps, and its epoch.
    revoking: (i32, Owned),
    by_expression: (i32, Owned),
}

/// Groups of every kind, in every state that members can be in when the broker stops.
fn prepare(address: SocketAddr) -> Result<Left> {
    let mut client = Client::connect(address)?;
    ensure!(steady::create(&mut client, TOPIC, i32::try_from(PARTITIONS)?, &[])? == 0);
    for name in ["simple", "classic"].iter().chain(&CONSUMERS) {
        // A group that only commits becomes one of the other kinds as soon as somebody joins.
        commit_alone(&mut client, name, &[(TOPIC, 3, 30), (TOPIC, 0, 5)])?;
    }
    let classic = classic(&mut client)?;
    let stable = settled(&mut client, &join("stable", "a", &[TOPIC]), PARTITIONS)?;
    commit_as(&mut client, "a", stable.0)?;

    let (epoch, owned) = settled(&mut client, &join("revoking", "a", &[TOPIC]), PARTITIONS)?;
    beat(&mut client, &heartbeat("revoking", "a", epoch).with_topic_partitions(owning(&owned)))?;
    beat(&mut client, &join("revoking", "b", &[TOPIC]))?;
    let mut revoking = (epoch, Owned::new());
    for _ in 0..200 {
        let told = beat(&mut client, &heartbeat("revoking", "a", epoch))?;
        if let Some(kept) = given(&told).filter(|kept| count(kept) < PARTITIONS) {
            revoking = (told.member_epoch, kept);
            break;
        }
        // Another of Kafka's threads computes the assignment.
        std::thread::sleep(Duration::from_millis(20));
    }
    ensure!(count(&revoking.1) > 0, "it is never told to let go");

    let one = |asked: ConsumerGroupHeartbeatRequest| asked.with_instance_id(Some(text("one")));
    settled(&mut client, &one(join("away", "a", &[TOPIC])), PARTITIONS)?;
    beat(&mut client, &one(heartbeat("away", "a", STATIC_LEAVE)))?;

    let regex = join("by-expression", "a", &[]).with_subscribed_topic_names(None).with_subscribed_topic_regex(Some(text("t|u")));
    let by_expression = settled(&mut client, &regex, PARTITIONS)?;
    Ok(Left { classic, stable, revoking, by_expression })
}

/// A static member of a classic group; its id and generation.
fn classic(client: &mut Client) -> Result<(StrBytes, i32)> {
    let protocol = JoinGroupRequestProtocol::default()
        .with_name(text("range"))
        .with_metadata(bytes::Bytes::from_static(b"\0\0\0\0\0\x01\0\x01t\xff\xff\xff\xff"));
    let asked = JoinGroupRequest::default()
        .with_group_id(group("classic"))
        .with_session_timeout_ms(300_000)
        .with_rebalance_timeout_ms(300_000)
        .with_group_instance_id(Some(text("one")))
        .with_protocol_type(text("consumer"))
        .with_protocols(vec![protocol]);
    let joined = client.ask(5, &asked)?;
    ensure!(joined.error_code == 0, "{joined:?}");
    let assignment = SyncGroupRequestAssignment::default()
        .with_member_id(joined.member_id.clone())
        .with_assignment(bytes::Bytes::from_static(b"\0\0all"));
    let sync = SyncGroupRequest::default()
        .with_group_id(group("classic"))
        .with_generation_id(joined.generation_id)
        .with_member_id(joined.member_id.clone())
        .with_group_instance_id(Some(text("one")))
        .with_assignments(vec![assignment]);
    let synced = client.ask(3, &sync)?;
    ensure!(synced.error_code == 0, "{synced:?}");
    Ok((joined.member_id, joined.generation_id))
}

/// A member of `stable` commits.
fn commit_as(client: &mut Client, member: &str, epoch: i32) -> Result<()> {
    let partition = OffsetCommitRequestPartition::default().with_committed_offset(7).with_committed_metadata(Some(text("seven")));
    let topic = OffsetCommitRequestTopic::default().with_name(TopicName(text(TOPIC))).with_partitions(vec![partition]);
    let commit = OffsetCommitRequest::default()
        .with_group_id(group("stable"))
        .with_member_id(text(member))
        .with_generation_id_or_member_epoch(epoch)
        .with_topics(vec![topic]);
    let answer = client.ask(9, &commit)?;
    ensure!(answer.topics.iter().flat_map(|topic| &topic.partitions).all(|partition| partition.error_code == 0), "{answer:?}");
    Ok(())
}

/// Every group's offsets: name, partition, offset, metadata.
fn offsets(client: &mut Client) -> Result<Vec<(String, i32, i64, String)>> {
    let names = ["simple", "classic"].iter().chain(&CONSUMERS);
    let groups =
        names.map(|name| OffsetFetchRequestGroup::default().with_group_id(group(name)).with_member_epoch(-1).with_topics(None)).collect();
    let answer = client.ask(9, &OffsetFetchRequest::default().with_groups(groups))?;
    let mut all = Vec::new();
    for group in &answer.groups {
        ensure!(group.error_code == 0, "{group:?}");
        for partition in group.topics.iter().flat_map(|topic| &topic.partitions) {
            let metadata = partition.metadata.as_deref().unwrap_or_default().to_owned();
            all.push((group.group_id.to_string(), partition.partition_index, partition.committed_offset, metadata));
        }
    }
    all.sort();
    Ok(all)
}

/// The consumer groups, with everything in order.
fn described(client: &mut Client) -> Result<Vec<DescribedGroup>> {
    let mut groups = client.ask(1, &ConsumerGroupDescribeRequest::default().with_group_ids(CONSUMERS.map(group).to_vec()))?.groups;
    groups.sort_by(|a, b| a.group_id.cmp(&b.group_id));
    for group in &mut groups {
        ensure!(group.error_code == 0, "{group:?}");
        group.members.sort_by(|a, b| a.member_id.cmp(&b.member_id));
        for member in &mut group.members {
            for assignment in [&mut member.assignment, &mut member.target_assignment] {
                assignment.topic_partitions.iter_mut().for_each(|topic| topic.partitions.sort_unstable());
            }
        }
    }
    Ok(groups)
}

/// Epochs apart, which one change may have raised: topics have another hash here, so that their groups look at them once.
fn without_epochs(groups: &[DescribedGroup]) -> Vec<DescribedGroup> {
    let mut groups = groups.to_vec();
    for group in &mut groups {
        (group.group_epoch, group.assignment_epoch) = (0, 0);
        group.members.iter_mut().filter(|member| member.member_epoch > 0).for_each(|member| member.member_epoch = 0);
        group.group_state = StrBytes::default();
    }
    groups
}

#[test]
fn groups_that_apache_kafka_wrote_go_on() -> Result<()> {
    let kafka = ApacheKafka::start()?;
    let left = prepare(kafka.kafka())?;
    let before = (described(&mut kafka.connect()?)?, offsets(&mut kafka.connect()?)?);
    let (data, _kept) = kafka.stop()?;

    let broker = Broker::start_on(&data, &[])?;
    let mut client = broker.connect()?;
    // Until the groups are loaded.
    commit_alone(&mut client, "another", &[(TOPIC, 0, 1)])?;
    let mut after = described(&mut client);
    for _ in 0..500 {
        if after.is_ok() {
            break;
        }
        std::thread::sleep(Duration::from_millis(10));
        after = described(&mut client);
    }
    let after = after?;
    ensure!(without_epochs(&after) == without_epochs(&before.0), "groups were {:#?} and are {after:#?}", before.0);
    for (was, is) in before.0.iter().zip(&after) {
        let raised = is.group_epoch - was.group_epoch;
        ensure!((0..=1).contains(&raised), "{:?} was in epoch {} and is in {}", was.group_id, was.group_epoch, is.group_epoch);
    }
    ensure!(offsets(&mut client)? == before.1, "offsets were {:?} and are {:?}", before.1, offsets(&mut client)?);
    go_on(&mut client, &left)
}

/// The members go on where they were.
fn go_on(client: &mut Client, left: &Left) -> Result<()> {
    let (member, generation) = &left.classic;
    let sign = HeartbeatRequest::default()
        .with_group_id(group("classic"))
        .with_member_id(member.clone())
        .with_generation_id(*generation)
        .with_group_instance_id(Some(text("one")));
    let answer = client.ask(4, &sign)?;
    ensure!(answer.error_code == 0, "the classic member: {answer:?}");

    for (name, (epoch, owned)) in [("stable", &left.stable), ("by-expression", &left.by_expression)] {
        let answer = beat(client, &heartbeat(name, "a", *epoch).with_topic_partitions(owning(owned)))?;
        ensure!(answer.error_code == 0 && answer.member_epoch >= *epoch, "{name}: {answer:?}");
        ensure!(given(&answer).is_none_or(|given| count(&given) == PARTITIONS), "{name}: {answer:?}");
        if name == "stable" {
            commit_as(client, "a", answer.member_epoch)?;
        }
    }

    let (epoch, kept) = &left.revoking;
    let answer = beat(client, &heartbeat("revoking", "a", *epoch).with_topic_partitions(owning(kept)))?;
    ensure!(answer.error_code == 0, "the one that lets go: {answer:?}");
    let (_, others) = settled(client, &join("revoking", "b", &[TOPIC]), PARTITIONS - count(kept))?;
    let all: std::collections::BTreeSet<i32> = kept.iter().chain(&others).flat_map(|(_, partitions)| partitions.clone()).collect();
    ensure!(all.len() == PARTITIONS, "{kept:?} and {others:?}");

    let back = beat(client, &join("away", "new", &[TOPIC]).with_instance_id(Some(text("one"))))?;
    ensure!(back.error_code == 0 && given(&back).is_some_and(|given| count(&given) == PARTITIONS), "the static one: {back:?}");
    Ok(())
}

#[test]
fn apache_kafkas_tool_reads_groups_that_are_written_here() -> Result<()> {
    let mut broker = Broker::start()?;
    prepare(broker.kafka())?;
    ensure!(broker.stop()?.success(), "no clean stop");
    let mut logs = Vec::new();
    for entry in std::fs::read_dir(broker.data())? {
        let path = entry?.path();
        let is_offsets = path.file_name().is_some_and(|name| name.to_string_lossy().starts_with("__consumer_offsets-"));
        // A partition that nothing was written to has no segment yet.
        let segment = path.join("00000000000000000000.log");
        if is_offsets && segment.exists() {
            logs.push(segment.display().to_string());
        }
    }
    let mut command = tools::java("org.apache.kafka.tools.DumpLogSegments")?;
    command.args(["--offsets-decoder", "--files", &logs.join(",")]);
    let output = run(&mut command, &[], WAIT)?;
    let said = String::from_utf8_lossy(&output.stdout).into_owned();
    // `CoordinatorRecordType`: offsets, a classic group, and every kind of record of a consumer group that is written today.
    for (kind, of) in
        [(1, "simple"), (2, "classic"), (3, "stable"), (5, "revoking"), (6, "revoking"), (7, "away"), (8, "stable"), (16, "by-expression")]
    {
        let words = [format!("\"type\":\"{kind}\""), format!("\"{of}\"")];
        said.lines()
            .find(|line| words.iter().all(|word| line.contains(word.as_str())))
            .with_context(|| format!("no line has {words:?} in\n{said}"))?;
    }
    for trouble in ["Failed", "Error", "Exception", "corrupt"] {
        ensure!(!said.contains(trouble), "it found trouble:\n{said}");
    }
    Ok(())
}
