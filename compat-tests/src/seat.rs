//! A member of a classic group by hand: it keeps its seat (joins again when the group rebalances, sends heartbeats, and assigns in ranges
//! when it leads), and otherwise does only what the test says. It reads nothing by itself and commits what it is told, so that a test
//! knows how far behind its group is.

use std::net::SocketAddr;
use std::sync::mpsc::{self, Receiver, RecvTimeoutError, Sender};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail, ensure};
use bytes::{Buf, BufMut, Bytes, BytesMut};
use kafka_protocol::messages::consumer_protocol_assignment::TopicPartition;
use kafka_protocol::messages::join_group_request::JoinGroupRequestProtocol;
use kafka_protocol::messages::join_group_response::JoinGroupResponseMember;
use kafka_protocol::messages::leave_group_request::MemberIdentity;
use kafka_protocol::messages::offset_commit_request::{OffsetCommitRequestPartition, OffsetCommitRequestTopic};
use kafka_protocol::messages::sync_group_request::SyncGroupRequestAssignment;
use kafka_protocol::messages::{
    ConsumerProtocolAssignment, ConsumerProtocolSubscription, FindCoordinatorRequest, GroupId, HeartbeatRequest, JoinGroupRequest,
    LeaveGroupRequest, OffsetCommitRequest, SyncGroupRequest, TopicName,
};
use kafka_protocol::protocol::{Decodable, Encodable, StrBytes};

use crate::wire::Client;

/// The longest that a test waits for a member's partitions.
const WAIT: Duration = Duration::from_secs(30);
const HEARTBEAT: Duration = Duration::from_millis(300);
const SESSION_TIMEOUT_MS: i32 = 6_000;
const REBALANCE_TIMEOUT_MS: i32 = 10_000;
/// Kafka's `Errors`.
const NONE: i16 = 0;
const COORDINATOR_LOAD_IN_PROGRESS: i16 = 14;
const COORDINATOR_NOT_AVAILABLE: i16 = 15;
/// Of Apache Kafka, which names a coordinator before that knows.
const NOT_COORDINATOR: i16 = 16;
const REBALANCE_IN_PROGRESS: i16 = 27;
const MEMBER_ID_REQUIRED: i16 = 79;
/// The version of both formats of the consumer's embedded protocol.
const EMBEDDED_VERSION: i16 = 1;

enum Command {
    Commit { offsets: Vec<(String, i32, i64)>, done: Sender<Result<i16>> },
    Leave,
}

/// A topic and how many partitions it has.
pub type Subscription = (String, i32);

/// A member that is there; it leaves with this value.
pub struct Seat {
    commands: Sender<Command>,
    shared: Arc<Mutex<Shared>>,
    thread: Option<JoinHandle<()>>,
}

/// What the member has come to.
#[derive(Default)]
struct Shared {
    owns: Option<Vec<(String, i32)>>,
    failed: Option<String>,
}

impl Seat {
    /// Takes a seat; its client id is `name`.
    ///
    /// # Errors
    /// If the broker doesn't accept a connection.
    pub fn take(address: SocketAddr, group: &str, name: &str, topics: &[Subscription]) -> Result<Self> {
        let (commands, received) = mpsc::channel();
        let shared = Arc::new(Mutex::new(Shared::default()));
        let theirs = Arc::clone(&shared);
        let sitting = Sitting {
            client: Client::connect_as(address, name)?,
            group: group.to_owned(),
            topics: topics.to_vec(),
            member: String::new(),
            generation: -1,
            shared: Arc::clone(&shared),
        };
        let thread = thread::spawn(move || {
            if let Err(error) = sitting.sit(&received) {
                lock(&theirs).failed = Some(format!("{error:#}"));
            }
        });
        Ok(Self { commands, shared, thread: Some(thread) })
    }

    /// Its partitions, once it has `count` of them.
    ///
    /// # Errors
    /// If it doesn't get as many.
    pub fn wait_for(&self, count: usize) -> Result<Vec<(String, i32)>> {
        let deadline = Instant::now() + WAIT;
        loop {
            self.check()?;
            let owns = lock(&self.shared).owns.clone();
            match owns {
                Some(owns) if owns.len() == count => return Ok(owns),
                owns if Instant::now() > deadline => bail!("the member owns {owns:?}, not {count} partitions"),
                _ => thread::sleep(Duration::from_millis(5)),
            }
        }
    }

    /// Whether a partition is its own now.
    pub fn owns(&self, topic: &str, partition: i32) -> bool {
        lock(&self.shared).owns.iter().flatten().any(|(name, number)| name == topic && *number == partition)
    }

    /// Commits, as a member of the present generation.
    ///
    /// # Errors
    /// If the broker refuses it.
    pub fn commit(&self, topic: &str, partition: i32, offset: i64) -> Result<()> {
        self.commit_all(&[(topic.to_owned(), partition, offset)])
    }

    /// [`Seat::commit`] of several partitions in one request.
    ///
    /// # Errors
    /// If the broker refuses any of it.
    pub fn commit_all(&self, offsets: &[(String, i32, i64)]) -> Result<()> {
        let deadline = Instant::now() + WAIT;
        loop {
            let (done, answer) = mpsc::channel();
            self.commands
                .send(Command::Commit { offsets: offsets.to_vec(), done })
                .or_else(|_| self.check().and_then(|()| bail!("the member has ended")))?;
            let answer = answer.recv_timeout(WAIT);
            self.check()?;
            match answer.context("the member doesn't answer")?? {
                NONE => return Ok(()),
                // The member joins again, and then it can.
                REBALANCE_IN_PROGRESS if Instant::now() < deadline => {}
                code => bail!("the commit of {offsets:?} was answered {code}"),
            }
        }
    }

    /// LeaveGroup.
    ///
    /// # Errors
    /// If anything went wrong since it took its seat.
    pub fn leave(mut self) -> Result<()> {
        let _ = self.commands.send(Command::Leave);
        let thread = self.thread.take().context("left once")?;
        thread.join().map_err(|_| anyhow::anyhow!("the member panicked"))?;
        self.check()
    }

    fn check(&self) -> Result<()> {
        match &lock(&self.shared).failed {
            Some(error) => bail!("the member has failed: {error}"),
            None => Ok(()),
        }
    }
}

impl Drop for Seat {
    fn drop(&mut self) {
        let _ = self.commands.send(Command::Leave);
    }
}

struct Sitting {
    client: Client,
    group: String,
    topics: Vec<Subscription>,
    member: String,
    generation: i32,
    shared: Arc<Mutex<Shared>>,
}

impl Sitting {
    fn sit(mut self, commands: &Receiver<Command>) -> Result<()> {
        coordinated(&mut self.client, &self.group)?;
        loop {
            self.join()?;
            loop {
                match commands.recv_timeout(HEARTBEAT) {
                    Ok(Command::Commit { offsets, done }) => {
                        let answer = self.commit(&offsets);
                        let rejoin = matches!(answer, Ok(REBALANCE_IN_PROGRESS));
                        if rejoin {
                            self.join()?;
                        }
                        let _ = done.send(answer);
                    }
                    Ok(Command::Leave) | Err(RecvTimeoutError::Disconnected) => return self.leave(),
                    Err(RecvTimeoutError::Timeout) => {
                        if self.heartbeat()? == REBALANCE_IN_PROGRESS {
                            break;
                        }
                    }
                }
            }
        }
    }

    fn join(&mut self) -> Result<()> {
        let deadline = Instant::now() + WAIT;
        while !self.join_once()? {
            ensure!(Instant::now() < deadline, "{} can't be joined", self.group);
            thread::sleep(Duration::from_millis(20));
        }
        Ok(())
    }

    /// Whether it has a seat and an assignment now.
    fn join_once(&mut self) -> Result<bool> {
        let joined = self.client.ask(5, &self.join_request()?)?;
        match joined.error_code {
            NONE => {}
            MEMBER_ID_REQUIRED => {
                self.member = joined.member_id.to_string();
                return Ok(false);
            }
            COORDINATOR_LOAD_IN_PROGRESS | COORDINATOR_NOT_AVAILABLE | NOT_COORDINATOR | REBALANCE_IN_PROGRESS => return Ok(false),
            code => bail!("JoinGroup of {} was answered {code}", self.group),
        }
        self.member = joined.member_id.to_string();
        self.generation = joined.generation_id;
        let assignments = if joined.leader == joined.member_id { self.assign(&joined.members)? } else { Vec::new() };
        let request = SyncGroupRequest::default()
            .with_group_id(self.id())
            .with_generation_id(self.generation)
            .with_member_id(text(&self.member))
            .with_assignments(assignments);
        let synced = self.client.ask(3, &request)?;
        if synced.error_code == REBALANCE_IN_PROGRESS {
            return Ok(false);
        }
        ensure!(synced.error_code == NONE, "SyncGroup of {} was answered {}", self.group, synced.error_code);
        let mut bytes = synced.assignment;
        let version = bytes.try_get_i16().context("an assignment without a version")?;
        let assignment = ConsumerProtocolAssignment::decode(&mut bytes, version)?;
        let of = |topic: TopicPartition| topic.partitions.into_iter().map(move |partition| (topic.topic.to_string(), partition));
        lock(&self.shared).owns = Some(assignment.assigned_partitions.into_iter().flat_map(of).collect());
        Ok(true)
    }

    fn join_request(&self) -> Result<JoinGroupRequest> {
        let topics = self.topics.iter().map(|(topic, _)| text(topic)).collect();
        let metadata = embedded(&ConsumerProtocolSubscription::default().with_topics(topics))?;
        let protocol = JoinGroupRequestProtocol::default().with_name(text("range")).with_metadata(metadata);
        Ok(JoinGroupRequest::default()
            .with_group_id(self.id())
            .with_session_timeout_ms(SESSION_TIMEOUT_MS)
            .with_rebalance_timeout_ms(REBALANCE_TIMEOUT_MS)
            .with_member_id(text(&self.member))
            .with_protocol_type(text("consumer"))
            .with_protocols(vec![protocol]))
    }

    /// Each topic's partitions in ranges, to the members in the order of their ids.
    fn assign(&self, members: &[JoinGroupResponseMember]) -> Result<Vec<SyncGroupRequestAssignment>> {
        let mut ids: Vec<StrBytes> = members.iter().map(|member| member.member_id.clone()).collect();
        ids.sort();
        let count = i32::try_from(ids.len())?;
        let share = |(topic, partitions): &Subscription, nth: i32| {
            let owned = (0..*partitions).filter(|partition| partition * count / partitions == nth).collect();
            TopicPartition::default().with_topic(TopicName(text(topic))).with_partitions(owned)
        };
        let assignment = |(nth, id): (i32, StrBytes)| -> Result<SyncGroupRequestAssignment> {
            let topics = self.topics.iter().map(|topic| share(topic, nth)).collect();
            let assignment = embedded(&ConsumerProtocolAssignment::default().with_assigned_partitions(topics))?;
            Ok(SyncGroupRequestAssignment::default().with_member_id(id).with_assignment(assignment))
        };
        (0..count).zip(ids).map(assignment).collect()
    }

    fn commit(&mut self, offsets: &[(String, i32, i64)]) -> Result<i16> {
        let offsets: Vec<_> = offsets.iter().map(|(topic, partition, offset)| (topic.as_str(), *partition, *offset)).collect();
        let request = commit(&self.group, &offsets).with_generation_id_or_member_epoch(self.generation).with_member_id(text(&self.member));
        committed(&self.client.ask(7, &request)?)
    }

    fn heartbeat(&mut self) -> Result<i16> {
        let request =
            HeartbeatRequest::default().with_group_id(self.id()).with_generation_id(self.generation).with_member_id(text(&self.member));
        let code = self.client.ask(3, &request)?.error_code;
        ensure!(code == NONE || code == REBALANCE_IN_PROGRESS, "a heartbeat in {} was answered {code}", self.group);
        Ok(code)
    }

    fn leave(&mut self) -> Result<()> {
        let member = MemberIdentity::default().with_member_id(text(&self.member));
        let answer = self.client.ask(3, &LeaveGroupRequest::default().with_group_id(self.id()).with_members(vec![member]))?;
        ensure!(answer.error_code == NONE, "LeaveGroup of {} was answered {}", self.group, answer.error_code);
        Ok(())
    }

    fn id(&self) -> GroupId {
        GroupId(text(&self.group))
    }
}

/// Commits without a member: as a tool, or a consumer that assigns its partitions itself.
///
/// # Errors
/// If the broker refuses it.
pub fn commit_alone(client: &mut Client, group: &str, offsets: &[(&str, i32, i64)]) -> Result<()> {
    coordinated(client, group)?;
    commit_once_loaded(client, group, offsets)
}

/// [`commit_alone`] of a partition for each of many groups.
///
/// # Errors
/// If the broker refuses any of it.
pub fn commit_many<'a>(client: &mut Client, all: impl IntoIterator<Item = (String, &'a str, i32, i64)>) -> Result<()> {
    for (nth, (group, topic, partition, offset)) in all.into_iter().enumerate() {
        if nth == 0 {
            coordinated(client, &group)?;
        }
        commit_once_loaded(client, &group, &[(topic, partition, offset)])?;
    }
    Ok(())
}

fn commit_once_loaded(client: &mut Client, group: &str, offsets: &[(&str, i32, i64)]) -> Result<()> {
    let deadline = Instant::now() + WAIT;
    loop {
        let request = commit(group, offsets).with_generation_id_or_member_epoch(-1);
        match committed(&client.ask(7, &request)?)? {
            NONE => return Ok(()),
            COORDINATOR_LOAD_IN_PROGRESS | COORDINATOR_NOT_AVAILABLE | NOT_COORDINATOR if Instant::now() < deadline => {
                thread::sleep(Duration::from_millis(20))
            }
            code => bail!("the commit of {group} was answered {code}"),
        }
    }
}

/// Waits until the group has a coordinator: the first group of all has to wait for its topic.
fn coordinated(client: &mut Client, group: &str) -> Result<()> {
    let deadline = Instant::now() + WAIT;
    loop {
        let found = client.ask(4, &FindCoordinatorRequest::default().with_coordinator_keys(vec![text(group)]))?;
        match found.coordinators.first().context("no coordinator is answered")?.error_code {
            NONE => return Ok(()),
            COORDINATOR_NOT_AVAILABLE if Instant::now() < deadline => thread::sleep(Duration::from_millis(20)),
            code => bail!("FindCoordinator of {group} was answered {code}"),
        }
    }
}

fn lock(shared: &Mutex<Shared>) -> MutexGuard<'_, Shared> {
    shared.lock().unwrap_or_else(PoisonError::into_inner)
}

fn commit(group: &str, offsets: &[(&str, i32, i64)]) -> OffsetCommitRequest {
    let topics = offsets.iter().map(|(topic, partition, offset)| {
        let partition = OffsetCommitRequestPartition::default().with_partition_index(*partition).with_committed_offset(*offset);
        OffsetCommitRequestTopic::default().with_name(TopicName(text(topic))).with_partitions(vec![partition])
    });
    OffsetCommitRequest::default().with_group_id(GroupId(text(group))).with_topics(topics.collect())
}

/// The first error of an answer.
fn committed(answer: &kafka_protocol::messages::OffsetCommitResponse) -> Result<i16> {
    let mut codes = answer.topics.iter().flat_map(|topic| &topic.partitions).map(|partition| partition.error_code).peekable();
    codes.peek().context("no partition is answered")?;
    Ok(codes.find(|code| *code != NONE).unwrap_or(NONE))
}

fn embedded(message: &impl Encodable) -> Result<Bytes> {
    let mut bytes = BytesMut::new();
    bytes.put_i16(EMBEDDED_VERSION);
    message.encode(&mut bytes, EMBEDDED_VERSION)?;
    Ok(bytes.freeze())
}

fn text(text: &str) -> StrBytes {
    StrBytes::from_string(text.to_owned())
}
