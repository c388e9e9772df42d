//! One of the two brokers while a random script is said to it: what each member was told, and which of their requests wait for others.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::net::SocketAddr;

use anyhow::{Context, Result};
use bytes::{Buf, BufMut, Bytes, BytesMut};
use compat_tests::heartbeats::{Owned, given, owning};
use compat_tests::wire::Client;
use kafka_protocol::messages::join_group_request::JoinGroupRequestProtocol;
use kafka_protocol::messages::sync_group_request::SyncGroupRequestAssignment;
use kafka_protocol::messages::{
    ApiVersionsRequest, ConsumerGroupDescribeRequest, ConsumerGroupHeartbeatRequest, ConsumerGroupHeartbeatResponse, DeleteGroupsRequest,
    DescribeGroupsRequest, JoinGroupRequest, JoinGroupResponse, SyncGroupRequest, SyncGroupResponse,
};
use kafka_protocol::protocol::{Request, StrBytes};
use rustix::event::{PollFd, PollFlags, poll};
use uuid::Uuid;

use crate::groups::gid;
use crate::masks::Masked;
use crate::random_groups::plain;
use crate::random_groups::script::{
    At, Beat, Brings, Id, Join, MEMBERS_MAX, Meta, NAMELESS, NOBODYS, Named, Owns, PARTITIONS, Step, Sync, What,
};
use crate::requests::{NOBODY, text, topic_name};

/// What a member was told.
#[derive(Default)]
pub struct Member {
    /// Its id in the classic protocol, the one before, and how many it had.
    pub id: StrBytes,
    pub old_id: StrBytes,
    pub generation: i32,
    kind: StrBytes,
    protocol: StrBytes,
    /// The members that it assigns to, if it leads, with what they said.
    leads: Vec<(StrBytes, Bytes)>,
    /// Its id in the new protocol: which life of it it is, and what the coordinator called it if it did.
    pub life: u32,
    pub epoch: i32,
    names: Option<u8>,
    given: Owned,
    before: Owned,
}

/// A request whose answer waits for others.
struct Parked {
    client: Client,
    group: u8,
    of: ParkedOf,
}

enum ParkedOf {
    Join { version: i16, own: bool },
    Sync { version: i16 },
}

/// What is said of an answer.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Said {
    pub label: String,
    pub whole: String,
    /// The same without who leads and whom it leads; with the leader.
    pub led: Option<(String, String)>,
}

/// A script's way to one broker.
pub struct Play {
    address: SocketAddr,
    control: Client,
    idle: Vec<Client>,
    /// What the names of its groups begin with.
    prefix: String,
    pub topics: Vec<(String, Uuid)>,
    pub members: Vec<Member>,
    parked: BTreeMap<u8, Parked>,
    /// Which id is which member's how many-th: ids are chance.
    symbols: HashMap<String, String>,
    /// The name that each id joined with in a group. (Under another name it begins anew with Kafka, but not with us. No client does that.)
    called: HashMap<(u8, String), Option<u8>>,
}

impl Play {
    pub fn new(address: SocketAddr, prefix: String, topics: Vec<(String, Uuid)>) -> Result<Self> {
        let member = |_| Member { generation: -1, ..Member::default() };
        Ok(Self {
            address,
            control: Client::connect(address)?,
            idle: Vec::new(),
            prefix,
            topics,
            members: (0..MEMBERS_MAX).map(member).collect(),
            parked: BTreeMap::new(),
            symbols: HashMap::new(),
            called: HashMap::new(),
        })
    }

    /// Forgets what former scripts have committed to the group without a name, which all share.
    pub fn begin(&mut self) -> Result<()> {
        self.control.ask(2, &DeleteGroupsRequest::default().with_groups_names(vec![gid("")])).map(|_| ())
    }

    pub fn group(&self, number: u8) -> String {
        match number {
            NAMELESS => String::new(),
            NOBODYS => format!("{}-nobodys", self.prefix),
            _ => format!("{}-{number}", self.prefix),
        }
    }

    /// The name of a topic by number.
    pub fn topic(&self, number: u8) -> &str {
        self.topics.get(usize::from(number)).map_or("nowhere", |(name, _)| name)
    }

    /// An id of which only the member it is of counts.
    pub fn symbol(&self, id: &StrBytes) -> StrBytes {
        match self.symbols.get(&**id) {
            Some(symbol) => text(symbol),
            None if Self::is_made(id) => text("somebody"),
            None => id.clone(),
        }
    }

    /// Whether an id was made by the coordinator, so that its place among others is chance.
    pub fn is_made(id: &str) -> bool {
        id.contains("compat-tests-") || id.starts_with("i-") || id.len() == 22
    }

    pub fn id(&self, member: u8, consumer: bool, id: Id) -> StrBytes {
        let Some(is) = self.members.get(usize::from(member)) else { return text("") };
        let mine = |of: &Member, number: u8, consumer| if consumer { text(&format!("member-{number}-{}", of.life)) } else { of.id.clone() };
        match id {
            Id::Mine => mine(is, member, consumer),
            Id::Other => mine(is, member, !consumer),
            Id::Old if consumer => text(&format!("member-{member}-{}", is.life.wrapping_sub(1))),
            Id::Old => is.old_id.clone(),
            Id::Empty => text(""),
            Id::Stranger => text("a-stranger"),
            Id::Of(other) => self.members.get(usize::from(other)).map_or_else(|| text(""), |of| mine(of, other, consumer)),
        }
    }

    pub fn at(&self, member: u8, consumer: bool, at: At) -> i32 {
        let is = &self.members[usize::from(member)];
        match at {
            At::Mine(more) => (if consumer { is.epoch } else { is.generation }).wrapping_add(more),
            At::Exactly(at) => at,
        }
    }

    /// Says a step; the answer, unless it may wait for others.
    pub fn say(&mut self, step: &Step) -> Result<Option<Said>> {
        match &step.what {
            What::Join(join) => self.say_join(step, join).map(|()| None),
            What::Sync(sync) => self.say_sync(step, sync).map(|()| None),
            What::Beat(beat) => self.say_beat(step, beat).map(Some),
            What::Forget => {
                let is = &mut self.members[usize::from(step.member)];
                is.old_id = std::mem::take(&mut is.id);
                (is.generation, is.epoch, is.life) = (-1, 0, is.life + 1);
                (is.given, is.before, is.leads) = Default::default();
                Ok(None)
            }
            _ => plain::say(self, step).map(Some),
        }
    }

    /// Asks by the script's connection.
    pub fn answer<R: Request>(&mut self, version: i16, request: &R) -> Result<Option<R::Response>> {
        let answer = self.control.ask_or_closed(version, request)?;
        if answer.is_none() {
            self.control = Client::connect(self.address)?;
        }
        Ok(answer)
    }

    /// A connection for a request that may wait. One on which a former request of the member waits is given up, as a client does.
    fn take_client(&mut self, member: u8) -> Result<Client> {
        self.parked.remove(&member);
        match self.idle.pop() {
            Some(client) => Ok(client),
            None => Client::connect(self.address),
        }
    }

    fn say_join(&mut self, step: &Step, join: &Join) -> Result<()> {
        let protocol = |(name, meta): &(&str, Meta)| {
            JoinGroupRequestProtocol::default().with_name(text(name)).with_metadata(self.subscription(step.member, *meta))
        };
        let request = JoinGroupRequest::default()
            .with_group_id(gid(&self.group(step.group)))
            .with_session_timeout_ms(join.session_ms)
            .with_rebalance_timeout_ms(if join.version >= 1 { join.rebalance_ms } else { -1 })
            .with_member_id(self.id(step.member, false, join.id))
            .with_group_instance_id(join.instance.map(instance))
            .with_protocol_type(text(join.kind))
            .with_protocols(join.protocols.iter().map(protocol).collect());
        let mut client = self.take_client(step.member)?;
        client.send(join.version, &request)?;
        let own = matches!(join.id, Id::Mine | Id::Empty);
        self.members[usize::from(step.member)].kind = text(join.kind);
        self.parked.insert(step.member, Parked { client, group: step.group, of: ParkedOf::Join { version: join.version, own } });
        Ok(())
    }

    fn say_sync(&mut self, step: &Step, sync: &Sync) -> Result<()> {
        let is = &self.members[usize::from(step.member)];
        let named = |named, told: &StrBytes| match named {
            Named::Told => Some(told.clone()),
            Named::Wrong => Some(text("wrong")),
            Named::None => None,
        };
        let request = SyncGroupRequest::default()
            .with_group_id(gid(&self.group(step.group)))
            .with_generation_id(self.at(step.member, false, sync.at))
            .with_member_id(self.id(step.member, false, sync.id))
            .with_group_instance_id(sync.instance.map(instance))
            .with_protocol_type(named(sync.kind, &is.kind).filter(|_| sync.version >= 5))
            .with_protocol_name(named(sync.protocol, &is.protocol).filter(|_| sync.version >= 5))
            .with_assignments(self.assignments(is, sync.brings));
        let mut client = self.take_client(step.member)?;
        client.send(sync.version, &request)?;
        self.parked.insert(step.member, Parked { client, group: step.group, of: ParkedOf::Sync { version: sync.version } });
        Ok(())
    }

    /// What a leader brings: the first topics' partitions in turn to the members by their symbols.
    fn assignments(&self, leader: &Member, brings: Brings) -> Vec<SyncGroupRequestAssignment> {
        // Those of whom nobody heard since they joined are told apart by what they said.
        let mut members: Vec<_> = leader.leads.iter().map(|(id, said)| (self.symbol(id), said, id)).collect();
        members.sort();
        let count = members.len();
        let assigned = |(nth, (symbol, _, id)): (usize, &(StrBytes, &Bytes, &StrBytes))| {
            let partitions: Vec<i32> = (0..PARTITIONS).filter(|partition| *partition as usize % count == nth).collect();
            let bytes = match brings {
                Brings::Garbage => Bytes::from(format!("for {}", &**symbol)),
                Brings::All | Brings::NotAll | Brings::Nothing => {
                    let mut bytes = BytesMut::new();
                    bytes.put_i16(0);
                    put_partitions(&mut bytes, &[(self.topic(0), partitions)]);
                    bytes.put_i32(-1);
                    bytes.freeze()
                }
            };
            SyncGroupRequestAssignment::default().with_member_id((*id).clone()).with_assignment(bytes)
        };
        let mut all: Vec<_> = members.iter().enumerate().map(assigned).collect();
        match brings {
            Brings::Nothing => all.clear(),
            Brings::NotAll if !all.is_empty() => drop(all.remove(0)),
            Brings::All if !all.is_empty() => {
                all.push(
                    SyncGroupRequestAssignment::default().with_member_id(text("a-stranger")).with_assignment(Bytes::from_static(b"x")),
                );
            }
            _ => {}
        }
        all
    }

    fn subscription(&self, member: u8, meta: Meta) -> Bytes {
        let (version, mask, owned) = match meta {
            Meta::Garbage(which) => {
                let kinds: [&'static [u8]; 3] = [b"", b"\0\0\0\x7f\xff\xff", b"garbage"];
                return Bytes::from_static(kinds[usize::from(which) % 3]);
            }
            Meta::Topics { version, mask, owned } => (version, mask, owned),
        };
        let mut bytes = BytesMut::new();
        bytes.put_i16(version);
        let topics: Vec<u8> = (0..4).filter(|topic| mask & (1 << topic) != 0).collect();
        bytes.put_i32(topics.len() as i32);
        topics.iter().for_each(|topic| put_text(&mut bytes, self.topic(*topic)));
        bytes.put_i32(-1);
        let is = &self.members[usize::from(member)];
        if version >= 1 {
            let owned = if owned && is.generation >= 0 { vec![(self.topic(0), vec![i32::from(member) % PARTITIONS])] } else { Vec::new() };
            put_partitions(&mut bytes, &owned);
        }
        if version >= 2 {
            bytes.put_i32(-1);
        }
        if version >= 3 {
            bytes.put_i16(-1);
        }
        bytes.freeze()
    }

    fn say_beat(&mut self, step: &Step, beat: &Beat) -> Result<Said> {
        let (id, epoch) = (self.id(step.member, true, beat.id), self.at(step.member, true, beat.at));
        // A client that joins says all.
        let joins = epoch == 0 && beat.at == At::Mine(0);
        let name = match joins && !id.is_empty() {
            true => *self.called.entry((step.group, id.to_string())).or_insert(beat.instance),
            false => beat.instance,
        };
        let is = &self.members[usize::from(step.member)];
        let known = is.names.unwrap_or(1).max(1);
        let names = if joins { Some(beat.names.filter(|names| *names != 0).unwrap_or(known)) } else { beat.names };
        let named = |mask: u8| (0..4).filter(|topic| mask & (1 << topic) != 0).map(|topic| topic_name(self.topic(topic))).collect();
        let owned = match beat.owns {
            _ if joins => Some(Vec::new()),
            Owns::Silent => None,
            Owns::Given => owning(&is.given),
            Owns::Before => owning(&is.before),
            Owns::Nothing => Some(Vec::new()),
            Owns::Lie => owning(&[(NOBODY, vec![0]), (self.topics[0].1, vec![0, 77])]),
        };
        let request = ConsumerGroupHeartbeatRequest::default()
            .with_group_id(gid(&self.group(step.group)))
            .with_member_id(id)
            .with_member_epoch(epoch)
            .with_instance_id(name.map(instance))
            .with_rack_id(beat.rack.map(text))
            .with_rebalance_timeout_ms(if joins && beat.rebalance_ms == -1 { 120_000 } else { beat.rebalance_ms })
            .with_subscribed_topic_names(names.map(named))
            .with_server_assignor(beat.assignor.map(text))
            .with_topic_partitions(owned);
        let answer = self.control.ask_with_another_behind(beat.version, &request)?.context("the connection is closed")?;
        let said = self.said_beat(&answer);
        if beat.id == Id::Mine {
            let is = &mut self.members[usize::from(step.member)];
            is.names = beat.names.or(is.names).or(Some(1));
            match answer.error_code {
                0 => {
                    is.epoch = answer.member_epoch.max(0);
                    if let Some(new) = given(&answer) {
                        is.before = std::mem::replace(&mut is.given, new);
                    }
                    if answer.member_epoch <= 0 {
                        (is.given, is.before) = Default::default();
                    }
                }
                // UNKNOWN_MEMBER_ID, FENCED_MEMBER_EPOCH: it gives up all that it has.
                25 | 110 if beat.at == At::Mine(0) => (is.epoch, is.given, is.before) = Default::default(),
                _ => {}
            }
        }
        Ok(said)
    }

    fn said_beat(&self, answer: &ConsumerGroupHeartbeatResponse) -> Said {
        let mut shown = answer.clone();
        let assigned = shown.assignment.take().map(|assignment| {
            let named = |topic: &kafka_protocol::messages::consumer_group_heartbeat_response::TopicPartitions| {
                let mut partitions = topic.partitions.clone();
                partitions.sort_unstable();
                (self.name_of(topic.topic_id), partitions)
            };
            assignment.topic_partitions.iter().map(named).collect::<BTreeSet<_>>()
        });
        shown.member_id = shown.member_id.map(|id| self.symbol(&id));
        shown.mask();
        Said { label: "heartbeat".into(), whole: format!("{shown:#?}\nassigned {assigned:?}"), led: None }
    }

    pub fn name_of(&self, id: Uuid) -> String {
        self.topics.iter().find(|(_, known)| *known == id).map_or_else(|| id.to_string(), |(name, _)| name.clone())
    }

    /// After this the broker has answered what it will answer of the requests that were sent before, and the answers are here. Both are
    /// brokers of one thread for the network (see `brokers`): a request that was sent before another that has been answered was read at the
    /// latest in the same round of that thread; so the second of these is read, and decided, after it; and when the third has been answered,
    /// the answers from before have left. Groups as they are then.
    pub fn come_to_rest(&mut self, groups: u8) -> Result<Rest> {
        self.control.ask(0, &ApiVersionsRequest::default())?;
        let all: Vec<_> = (0..groups).map(|group| gid(&self.group(group))).collect();
        let classic = self.control.ask(6, &DescribeGroupsRequest::default().with_groups(all.clone()))?;
        let consumer = self.control.ask(1, &ConsumerGroupDescribeRequest::default().with_group_ids(all))?;
        self.control.ask(0, &ApiVersionsRequest::default())?;
        Ok(Rest { classic, consumer })
    }

    /// Reads the answers that are there, by member.
    pub fn collect(&mut self) -> Result<Vec<(u8, Said)>> {
        let mut there = Vec::new();
        for (member, parked) in &self.parked {
            let mut fds = [PollFd::new(&parked.client, PollFlags::IN)];
            let now = rustix::event::Timespec { tv_sec: 0, tv_nsec: 0 };
            if poll(&mut fds, Some(&now)).context("poll")? > 0 {
                there.push(*member);
            }
        }
        let mut said = Vec::new();
        for member in there {
            let Some(mut parked) = self.parked.remove(&member) else { continue };
            match parked.of {
                ParkedOf::Join { version, own } => {
                    let answer = parked.client.receive::<JoinGroupRequest>(version)?.context("the connection is closed")?;
                    self.told_join(member, own, &answer);
                    said.push((member, parked.group, Told::Join(answer)));
                }
                ParkedOf::Sync { version } => {
                    let answer = parked.client.receive::<SyncGroupRequest>(version)?.context("the connection is closed")?;
                    said.push((member, parked.group, Told::Sync(answer)));
                }
            }
            self.idle.push(parked.client);
        }
        // Only now are all the ids known that an answer to a leader has.
        Ok(said.into_iter().map(|(member, group, told)| (member, self.said(member, group, told))).collect())
    }

    fn told_join(&mut self, member: u8, own: bool, answer: &JoinGroupResponse) {
        const MEMBER_ID_REQUIRED: i16 = 79;
        const UNKNOWN_MEMBER_ID: i16 = 25;
        let is = &mut self.members[usize::from(member)];
        match answer.error_code {
            0 | MEMBER_ID_REQUIRED => {
                if own && is.id != answer.member_id {
                    is.old_id = std::mem::replace(&mut is.id, answer.member_id.clone());
                    let nth = self.symbols.values().filter(|symbol| symbol.starts_with(&format!("m{member}."))).count();
                    self.symbols.entry(answer.member_id.to_string()).or_insert_with(|| format!("m{member}.{nth}"));
                }
                if answer.error_code == 0 && is.id == answer.member_id {
                    is.generation = answer.generation_id;
                    is.protocol = answer.protocol_name.clone().unwrap_or_default();
                    is.leads = answer.members.iter().map(|member| (member.member_id.clone(), member.metadata.clone())).collect();
                }
            }
            UNKNOWN_MEMBER_ID if own => {
                is.old_id = std::mem::take(&mut is.id);
                is.generation = -1;
            }
            _ => {}
        }
    }

    fn said(&self, member: u8, group: u8, told: Told) -> Said {
        match told {
            Told::Sync(mut answer) => {
                answer.assignment = in_order(&answer.assignment);
                Said { label: format!("{member}'s sync in {group}"), whole: format!("{answer:#?}"), led: None }
            }
            Told::Join(mut answer) => {
                answer.member_id = self.symbol(&answer.member_id);
                answer.leader = self.symbol(&answer.leader);
                answer.members.iter_mut().for_each(|member| member.member_id = self.symbol(&member.member_id));
                // Kafka's order is that of a hash table.
                answer.members.sort_by_key(|member| format!("{member:?}"));
                answer.mask();
                let whole = format!("{answer:#?}");
                let leader = answer.leader.to_string();
                answer.members.clear();
                answer.leader = text("");
                Said { label: format!("{member}'s join in {group}"), whole, led: Some((format!("{answer:#?}"), leader)) }
            }
        }
    }

    /// Nobody waits for the answer to a member's request any more.
    pub fn give_up(&mut self, member: u8) {
        self.parked.remove(&member);
    }

    pub fn waiting(&self) -> Vec<u8> {
        self.parked.keys().copied().collect()
    }
}

enum Told {
    Join(JoinGroupResponse),
    Sync(SyncGroupResponse),
}

/// Groups between two steps.
pub struct Rest {
    pub classic: kafka_protocol::messages::DescribeGroupsResponse,
    pub consumer: kafka_protocol::messages::ConsumerGroupDescribeResponse,
}

pub fn instance(number: u8) -> StrBytes {
    text(&format!("i-{number}"))
}

/// An assignment of consumers with its topics by name: Kafka has them by their ids, which are chance. Anything else is as it is.
fn in_order(assignment: &Bytes) -> Bytes {
    let mut rest = assignment.clone();
    let mut read = || -> Option<(i16, Vec<(Bytes, Bytes)>)> {
        let version = rest.try_get_i16().ok()?;
        let mut topics = Vec::new();
        for _ in 0..rest.try_get_i32().ok()? {
            let length = usize::try_from(rest.try_get_i16().ok()?).ok().filter(|length| *length <= rest.len())?;
            let name = rest.split_to(length);
            let bytes = 4 + 4 * usize::try_from(rest.clone().try_get_i32().ok()?).ok()?;
            topics.push((name, (bytes <= rest.len()).then(|| rest.split_to(bytes))?));
        }
        Some((version, topics))
    };
    let Some((version, mut topics)) = read() else { return assignment.clone() };
    topics.sort();
    let mut ordered = BytesMut::new();
    ordered.put_i16(version);
    ordered.put_i32(topics.len() as i32);
    for (name, partitions) in topics {
        ordered.put_i16(name.len() as i16);
        ordered.put_slice(&name);
        ordered.put_slice(&partitions);
    }
    ordered.put_slice(&rest);
    ordered.freeze()
}

fn put_text(bytes: &mut BytesMut, text: &str) {
    bytes.put_i16(text.len() as i16);
    bytes.put_slice(text.as_bytes());
}

fn put_partitions(bytes: &mut BytesMut, topics: &[(&str, Vec<i32>)]) {
    bytes.put_i32(topics.len() as i32);
    for (name, partitions) in topics {
        put_text(bytes, name);
        bytes.put_i32(partitions.len() as i32);
        partitions.iter().for_each(|partition| bytes.put_i32(*partition));
    }
}
