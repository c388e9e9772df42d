//! A thousand groups of ten members: what their heartbeats cost the broker by both protocols, and what a redeploy of all groups costs under
//! KIP-848's, where heartbeats are held back for news and come more often while a group changes.

use std::cmp::Reverse;
use std::collections::{BinaryHeap, VecDeque};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use bytes::{Buf, Bytes};
use compat_tests::Broker;
use kafka_protocol::messages::consumer_group_heartbeat_request::TopicPartitions as Owned;
use kafka_protocol::messages::consumer_group_heartbeat_response::TopicPartitions as Assigned;
use kafka_protocol::messages::join_group_request::JoinGroupRequestProtocol;
use kafka_protocol::messages::sync_group_request::SyncGroupRequestAssignment;
use kafka_protocol::messages::{
    ApiVersionsRequest, ConsumerGroupHeartbeatRequest, ConsumerGroupHeartbeatResponse, HeartbeatRequest, JoinGroupRequest, SyncGroupRequest,
};
use kafka_protocol::protocol::{Decodable, StrBytes};

use crate::crowd::Crowd;
use crate::process::{cpu_seconds, resident_mb};
use crate::{PARTITIONS, TOPIC, group_id, started, text, topic_name};

const GROUPS: usize = 1_000;
const MEMBERS: usize = 10;
const SHARE: usize = PARTITIONS as usize / MEMBERS;
const EVERY: Duration = Duration::from_secs(3);
const MEASURED: Duration = Duration::from_secs(15);
/// Rounds after which classic members' heartbeats may be held.
const LEARNED: u32 = 2;
/// Members are told of a shorter interval for so long after their group has changed; see `group::consumer::pace`.
const LIVELY: Duration = Duration::from_secs(60);
const PATIENCE: Duration = Duration::from_secs(120);
const LEAVE: i32 = -1;

/// What a span of time cost the broker.
struct Meter<'a> {
    broker: &'a Broker,
    cpu: f64,
    begun: Instant,
}

impl<'a> Meter<'a> {
    fn start(broker: &'a Broker) -> Result<Self> {
        Ok(Self { broker, cpu: cpu_seconds(broker.pid())?, begun: Instant::now() })
    }

    fn stop(&self, heartbeats: usize) -> Result<String> {
        let (used, wall) = (cpu_seconds(self.broker.pid())? - self.cpu, self.begun.elapsed().as_secs_f64());
        let each = used * 1e6 / heartbeats.max(1) as f64;
        Ok(format!("{:.1} % of a core for {wall:.1} s; {heartbeats} heartbeats, {each:.1} µs of CPU each", used * 100.0 / wall))
    }
}

fn settings() -> [(&'static str, &'static str); 3] {
    [
        ("group.initial.rebalance.delay.ms", "3000"),
        ("group.consumer.heartbeat.interval.ms", "3000"),
        ("group.consumer.min.heartbeat.interval.ms", "3000"),
    ]
}

/// Of members whose client has no name, and of such as are held: the same heartbeats.
pub fn classic() -> Result<()> {
    classic_of(None)?;
    classic_of(Some("librdkafka"))
}

fn classic_of(software: Option<&str>) -> Result<()> {
    let broker = started(&settings())?;
    let (mut crowd, frames) = classic_members(&broker, software)?;
    let slot = EVERY / u32::try_from(frames.len())?;
    let (begun, mut meter, mut sent, mut answers, mut before) = (Instant::now(), Meter::start(&broker)?, 0, 0, 0);
    for round in 0..LEARNED + u32::try_from(MEASURED.as_secs() / EVERY.as_secs())? {
        if round == LEARNED {
            (meter, before) = (Meter::start(&broker)?, answers);
        }
        for (nth, frame) in frames.iter().enumerate() {
            let due = EVERY * round + slot * u32::try_from(nth)?;
            while begun.elapsed() < due {
                for nth in crowd.answered()? {
                    let answer = crowd.client(nth).receive_frame()?.context("an answer")?;
                    ensure!(answer[9..11] == [0, 0], "a heartbeat was answered {answer:?}");
                    answers += 1;
                }
            }
            crowd.client(nth).send_frame(frame)?;
            sent += 1;
        }
    }
    let measured = meter.stop(answers - before)?;
    let waiting = sent - answers;
    ensure!((waiting > frames.len() / 2) == software.is_some(), "{waiting} answers are held back");
    println!(
        "heartbeats, classic: {GROUPS} groups of {MEMBERS}, one each in 3 s, {waiting} answers held back: {measured} (10 % are allowed)"
    );
    Ok(())
}

fn classic_members(broker: &Broker, software: Option<&str>) -> Result<(Crowd, Vec<Bytes>)> {
    const JOIN: i16 = 3; // the last that joins without being given an id first
    const SYNC: i16 = 2;
    let mut clients = (0..GROUPS * MEMBERS).map(|_| broker.connect()).collect::<Result<Vec<_>>>()?;
    if let Some(name) = software {
        let named = ApiVersionsRequest::default().with_client_software_name(text(name)).with_client_software_version(text("2.0.0"));
        clients.iter_mut().try_for_each(|client| client.ask(3, &named).map(drop))?;
    }
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
        client.send(SYNC, &sync)?;
        joined.push((answer.generation_id, answer.member_id));
    }
    let (mut crowd, mut frames) = (Crowd::new()?, Vec::new());
    for (nth, (mut client, (generation, member))) in clients.into_iter().zip(joined).enumerate() {
        let answer = client.receive::<SyncGroupRequest>(SYNC)?.context("an answer")?;
        ensure!(answer.error_code == 0, "member {nth} was answered {answer:?}");
        let beat = HeartbeatRequest::default().with_group_id(group_id(nth / MEMBERS)).with_generation_id(generation).with_member_id(member);
        frames.push(client.encode(4, &beat)?.freeze());
        crowd.add(client)?;
    }
    Ok((crowd, frames))
}

pub fn consumer() -> Result<()> {
    let broker = started(&settings())?;
    let mut members = Members::connect(&broker)?;
    let formed = members.measured(&broker, |members| {
        (0..members.seats.len()).try_for_each(|nth| members.join(nth))?;
        members.run_until_settled()
    })?;
    println!("heartbeats, KIP-848: {GROUPS} groups of {MEMBERS} form on {PARTITIONS} partitions: {formed}");
    members.run(LIVELY + EVERY)?;
    let quiet = members.measured(&broker, |members| members.run(MEASURED))?;
    println!("heartbeats, KIP-848: {GROUPS} groups of {MEMBERS}, one each in 3 s: {quiet} (10 % are allowed)");
    println!("heartbeats, KIP-848: {:.0} MB resident with all of them", resident_mb(broker.pid())?);
    let unowned = members.unowned_seconds;
    let redeployed = members.measured(&broker, Members::redeploy)?;
    let each = (members.unowned_seconds - unowned) / GROUPS as f64;
    println!("heartbeats, KIP-848: every member is restarted, one of each group at a time: {redeployed}");
    println!("heartbeats, KIP-848: meanwhile a group's partitions had no owner for {each:.1} partition-seconds in all");
    let lively = members.measured(&broker, |members| members.run(MEASURED))?;
    println!("heartbeats, KIP-848: the minute after that: {lively}");
    Ok(())
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Asked {
    Heartbeat,
    Leave,
}

/// A member as clients are: it says at once what it owns when that changes, and else comes when it was told to.
struct Seat {
    group: usize,
    member: StrBytes,
    epoch: i32,
    owned: Vec<Assigned>,
    asked: VecDeque<Asked>,
    sent: Instant,
}

struct Members {
    crowd: Crowd,
    seats: Vec<Seat>,
    /// Who is to send a heartbeat, and when. Who waits for an answer has no place here.
    due: BinaryHeap<Reverse<(Instant, usize)>>,
    heartbeats: usize,
    /// Partitions that have owners, in all groups.
    owned: usize,
    /// Members that have their share.
    served: usize,
    /// For how long partitions had no owner, all taken together, up to `counted`.
    unowned_seconds: f64,
    counted: Instant,
}

const VERSION: i16 = 1;

fn count(owned: &[Assigned]) -> usize {
    owned.iter().map(|topic| topic.partitions.len()).sum()
}

impl Members {
    fn connect(broker: &Broker) -> Result<Self> {
        let (mut crowd, mut seats) = (Crowd::new()?, Vec::new());
        for nth in 0..GROUPS * MEMBERS {
            crowd.add(broker.connect()?)?;
            let (group, member, owned) = (nth / MEMBERS, text(&format!("member-{nth}")), Vec::new());
            seats.push(Seat { group, member, epoch: 0, owned, asked: VecDeque::new(), sent: Instant::now() });
        }
        let (due, counted) = (BinaryHeap::new(), Instant::now());
        Ok(Self { crowd, seats, due, heartbeats: 0, owned: 0, served: 0, unowned_seconds: 0.0, counted })
    }

    fn measured(&mut self, broker: &Broker, work: impl FnOnce(&mut Self) -> Result<()>) -> Result<String> {
        let (meter, before) = (Meter::start(broker)?, self.heartbeats);
        work(self)?;
        meter.stop(self.heartbeats - before)
    }

    fn run_until_settled(&mut self) -> Result<()> {
        let begun = Instant::now();
        while self.served < self.seats.len() {
            ensure!(begun.elapsed() < PATIENCE, "{} members have their share after {PATIENCE:?}", self.served);
            self.turn()?;
        }
        Ok(())
    }

    fn run(&mut self, span: Duration) -> Result<()> {
        let begun = Instant::now();
        while begun.elapsed() < span {
            self.turn()?;
        }
        Ok(())
    }

    /// One member of each group leaves and comes back as another, spread over some seconds; and so on until all have.
    fn redeploy(&mut self) -> Result<()> {
        for member in 0..MEMBERS {
            for group in 0..GROUPS {
                self.leave(group * MEMBERS + member)?;
                self.run(EVERY / u32::try_from(GROUPS)?)?;
            }
            self.run_until_settled()?;
        }
        Ok(())
    }

    /// Sends what is due, and takes what is answered.
    fn turn(&mut self) -> Result<()> {
        while let Some(Reverse((due, nth))) = self.due.peek().copied()
            && due <= Instant::now()
        {
            self.due.pop();
            // One that left meanwhile comes again when that is answered.
            if self.seats[nth].asked.is_empty() {
                self.beat(nth, None)?;
            }
        }
        for nth in self.crowd.answered()? {
            self.take(nth)?;
        }
        Ok(())
    }

    fn send(&mut self, nth: usize, asked: Asked, request: ConsumerGroupHeartbeatRequest) -> Result<()> {
        let seat = &mut self.seats[nth];
        let request = request.with_group_id(group_id(seat.group)).with_member_id(seat.member.clone()).with_member_epoch(seat.epoch);
        seat.asked.push_back(asked);
        seat.sent = Instant::now();
        self.crowd.client(nth).send(VERSION, &request)
    }

    fn join(&mut self, nth: usize) -> Result<()> {
        let request = ConsumerGroupHeartbeatRequest::default()
            .with_rebalance_timeout_ms(60_000)
            .with_subscribed_topic_names(Some(vec![topic_name(TOPIC)]))
            .with_topic_partitions(Some(Vec::new()));
        self.seats[nth].epoch = 0;
        self.send(nth, Asked::Heartbeat, request)
    }

    fn beat(&mut self, nth: usize, owned: Option<Vec<Owned>>) -> Result<()> {
        let request = ConsumerGroupHeartbeatRequest::default().with_rebalance_timeout_ms(-1).with_subscribed_topic_names(None);
        self.send(nth, Asked::Heartbeat, request.with_topic_partitions(owned))
    }

    fn leave(&mut self, nth: usize) -> Result<()> {
        self.own(nth, Vec::new());
        self.seats[nth].epoch = LEAVE;
        let request = ConsumerGroupHeartbeatRequest::default().with_rebalance_timeout_ms(-1).with_subscribed_topic_names(None);
        self.send(nth, Asked::Leave, request.with_topic_partitions(None))
    }

    fn own(&mut self, nth: usize, owned: Vec<Assigned>) {
        let missing = (GROUPS * PARTITIONS as usize).saturating_sub(self.owned);
        self.unowned_seconds += missing as f64 * self.counted.elapsed().as_secs_f64();
        self.counted = Instant::now();
        let (before, after) = (count(&self.seats[nth].owned), count(&owned));
        self.owned = self.owned - before + after;
        self.served = self.served - usize::from(before == SHARE) + usize::from(after == SHARE);
        self.seats[nth].owned = owned;
    }

    fn take(&mut self, nth: usize) -> Result<()> {
        let mut frame = self.crowd.client(nth).receive_frame()?.context("the broker closed a connection")?;
        // A correlation id, which may be an earlier request's, and no tagged fields.
        frame.advance(5);
        let answer = ConsumerGroupHeartbeatResponse::decode(&mut frame, VERSION)?;
        ensure!(answer.error_code == 0, "member {nth} was answered {answer:?}");
        self.heartbeats += 1;
        let asked = self.seats[nth].asked.pop_front().context("an answer that nobody asked for")?;
        if asked == Asked::Leave {
            let again = format!("{}+", &*self.seats[nth].member);
            self.seats[nth].member = text(&again);
            return self.join(nth);
        }
        if self.seats[nth].epoch == LEAVE {
            return Ok(());
        }
        self.seats[nth].epoch = answer.member_epoch;
        if let Some(assignment) = answer.assignment.filter(|assignment| assignment.topic_partitions != self.seats[nth].owned) {
            let topic = |topic: &Assigned| Owned::default().with_topic_id(topic.topic_id).with_partitions(topic.partitions.clone());
            let said = assignment.topic_partitions.iter().map(topic).collect();
            self.own(nth, assignment.topic_partitions);
            return self.beat(nth, Some(said));
        }
        let interval = Duration::from_millis(u64::try_from(answer.heartbeat_interval_ms)?);
        self.due.push(Reverse((self.seats[nth].sent + interval, nth)));
        Ok(())
    }
}
