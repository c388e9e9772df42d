//! Members that only take room: thousands in one group, megabytes of metadata, joins that never go on. Groups beside are served meanwhile.

use anyhow::{Context, Result, ensure};
use bytes::{Buf, Bytes};
use compat_tests::heartbeats;
use compat_tests::seat::Seat;
use compat_tests::wire::Client;
use kafka_protocol::messages::join_group_request::JoinGroupRequestProtocol;
use kafka_protocol::messages::{
    ApiVersionsRequest, ConsumerGroupDescribeRequest, ConsumerGroupHeartbeatResponse, DescribeGroupsRequest, GroupId, JoinGroupRequest,
    JoinGroupResponse,
};
use kafka_protocol::protocol::{Decodable, StrBytes};

use crate::{requests::TOPIC, victim::Victim};

const MEMBERS: usize = 5_000;
/// JoinGroups that one connection has under way.
const PIPELINED: usize = 20;
/// Kafka's `Errors`.
const NONE: i16 = 0;
const GROUP_MAX_SIZE_REACHED: i16 = 81;
/// A version in which a member needs no id to join, and nothing is flexible.
const JOIN_VERSION: i16 = 3;

fn text(text: &str) -> StrBytes {
    StrBytes::from_string(text.to_owned())
}

fn join(group: &str, metadata: Bytes) -> JoinGroupRequest {
    JoinGroupRequest::default()
        .with_group_id(GroupId(text(group)))
        .with_session_timeout_ms(6_000)
        .with_rebalance_timeout_ms(6_000)
        .with_protocol_type(text("consumer"))
        .with_protocols(vec![JoinGroupRequestProtocol::default().with_name(text("range")).with_metadata(metadata)])
}

/// The answer to a JoinGroup, whichever it is of those under way.
fn joined(client: &mut Client) -> Result<JoinGroupResponse> {
    let mut frame = client.receive_frame()?.context("the broker closed the connection")?;
    frame.advance(4);
    JoinGroupResponse::decode(&mut frame, JOIN_VERSION)
}

/// A group beside that goes on all the time.
struct Beside(Seat);

impl Beside {
    fn new(victim: &Victim) -> Result<Self> {
        let seat = Seat::take(victim.address(), "beside", "beside", &[(TOPIC.to_owned(), 2)])?;
        seat.wait_for(2)?;
        Ok(Self(seat))
    }

    fn goes_on(&self, offset: usize) -> Result<()> {
        self.0.commit(TOPIC, 0, i64::try_from(offset)?)
    }
}

#[test]
fn thousands_that_join_and_never_sync() -> Result<()> {
    let mut victim = Victim::start();
    let beside = Beside::new(&victim)?;
    victim.grown_at_most(u64::MAX, "the start").map_err(anyhow::Error::msg)?;
    let mut clients = Vec::new();
    for nth in 0..MEMBERS / PIPELINED {
        let mut client = Client::connect(victim.address())?;
        for _ in 0..PIPELINED {
            client.send(JOIN_VERSION, &join("crowd", Bytes::from_static(b"\0\0\0\0\0\x01\0\x01t\xff\xff\xff\xff")))?;
        }
        clients.push(client);
        beside.goes_on(nth)?;
    }
    victim.serves_others("thousands of joins");
    let mut in_it = 0;
    for client in &mut clients {
        for _ in 0..PIPELINED {
            in_it += usize::from(joined(client)?.error_code == NONE);
        }
        beside.goes_on(in_it)?;
    }
    // Whoever came too late for the first generation is in the next.
    ensure!(in_it == MEMBERS, "{in_it} members have joined");
    let describe = DescribeGroupsRequest::default().with_groups(vec![GroupId(text("crowd"))]);
    let mut client = Client::connect(victim.address())?;
    for looks in 0.. {
        let described = client.ask(5, &describe)?;
        let members = described.groups.first().map_or(0, |group| group.members.len());
        if members == 0 {
            break;
        }
        ensure!(looks < 1_000, "{members} members are still there");
        beside.goes_on(looks)?;
        std::thread::sleep(std::time::Duration::from_millis(50));
    }
    victim.grown_at_most(150, "thousands of members").map_err(anyhow::Error::msg)?;
    beside.0.leave()?;
    victim.ends_well();
    Ok(())
}

#[test]
fn thousands_in_a_consumer_group() -> Result<()> {
    const BATCH: usize = 100;
    // However slow the machine is, the first is still there when the last has come.
    let patient = "600000";
    let mut victim =
        Victim::start_with(&[("group.consumer.session.timeout.ms", patient), ("group.consumer.max.session.timeout.ms", patient)]);
    let beside = Beside::new(&victim)?;
    let mut client = Client::connect(victim.address())?;
    let mut in_it = 0;
    for batch in 0..MEMBERS / BATCH {
        for nth in 0..BATCH {
            client.send(1, &heartbeats::join("consumers", &format!("member-{batch}-{nth}"), &[TOPIC]))?;
        }
        // Nothing of them is held back with another request behind it.
        client.send(0, &ApiVersionsRequest::default())?;
        for _ in 0..BATCH {
            let mut frame = client.receive_frame()?.context("the broker closed the connection")?;
            // The correlation id, and no tagged fields.
            frame.advance(5);
            in_it += usize::from(ConsumerGroupHeartbeatResponse::decode(&mut frame, 1)?.error_code == NONE);
        }
        client.receive_frame()?;
        beside.goes_on(in_it)?;
    }
    ensure!(in_it == MEMBERS, "{in_it} members have joined");
    let described = client.ask(1, &ConsumerGroupDescribeRequest::default().with_group_ids(vec![GroupId(text("consumers"))]))?;
    ensure!(described.groups.first().is_some_and(|group| group.members.len() == MEMBERS), "they are not in the group");
    victim.serves_others("thousands of members");
    victim.grown_at_most(150, "thousands of members").map_err(anyhow::Error::msg)?;
    beside.0.leave()?;
    victim.ends_well();
    Ok(())
}

#[test]
fn metadata_of_megabytes() -> Result<()> {
    const JOINS: usize = 40;
    let mut victim = Victim::start();
    if victim.is_apaches() {
        // It takes all that its heap holds.
        return Ok(());
    }
    let beside = Beside::new(&victim)?;
    victim.grown_at_most(u64::MAX, "the start").map_err(anyhow::Error::msg)?;
    let metadata = Bytes::from(vec![0xff; 4 << 20]);
    let mut waiting = Vec::new();
    let mut refused = 0;
    for nth in 0..JOINS {
        let mut client = Client::connect(victim.address())?;
        client.send(JOIN_VERSION, &join("large", metadata.clone()))?;
        beside.goes_on(nth)?;
        waiting.push(client);
    }
    for client in &mut waiting {
        let code = joined(client)?.error_code;
        ensure!(code == NONE || code == GROUP_MAX_SIZE_REACHED, "a join was answered {code}");
        refused += usize::from(code == GROUP_MAX_SIZE_REACHED);
        beside.goes_on(refused)?;
    }
    ensure!(refused == JOINS - 3, "{refused} of {JOINS} joins were refused");
    victim.serves_others("megabytes of metadata");
    victim.grown_at_most(100, "megabytes of metadata").map_err(anyhow::Error::msg)?;
    beside.0.leave()?;
    victim.ends_well();
    Ok(())
}
