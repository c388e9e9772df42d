//! Consumer groups (KIP-848), one file a family; [`Kip`] is the shell that they use.

mod classic;
mod errors;
mod heartbeats;
mod holding;
mod offsets;
mod reconciling;
mod regex;
mod sim;
mod statics;

use super::ctx::*;
use crate::{
    group::{consumer::*, *},
    types::*,
};
use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
};

/// Topics by name: how many partitions each has.
#[derive(Debug, Clone, Default)]
pub struct Cluster(pub BTreeMap<String, (u128, i32)>);

impl Cluster {
    pub fn of(topics: &[(&str, i32)]) -> Self {
        Self(topics.iter().map(|(name, partitions)| ((*name).to_owned(), (id_of(name).0.as_u128(), *partitions))).collect())
    }

    fn topic(name: &str, (id, partitions): (u128, i32)) -> Topic {
        Topic { name: TopicName::new(name).unwrap(), id: TopicId(uuid::Uuid::from_u128(id)), partitions }
    }
}

/// The id of a topic of tests.
pub fn id_of(name: &str) -> TopicId {
    TopicId(uuid::Uuid::from_u128(name.bytes().fold(1, |id, byte| id * 256 + u128::from(byte))))
}

impl Topics for Cluster {
    fn by_name(&self, name: &str) -> Option<Topic> {
        self.0.get(name).map(|topic| Self::topic(name, *topic))
    }

    fn by_id(&self, id: TopicId) -> Option<Topic> {
        self.0.iter().find(|(_, (there, _))| *there == id.0.as_u128()).map(|(name, topic)| Self::topic(name, *topic))
    }

    fn each_name(&self, look: &mut dyn FnMut(&TopicName)) {
        self.0.keys().for_each(|name| look(&TopicName::new(name).unwrap()));
    }
}

/// A joining member's heartbeat, subscribed to the topic `t`.
pub fn joining(id: &str) -> Heartbeat {
    Heartbeat {
        group: group(),
        member_id: id.into(),
        fresh_id: "".into(),
        member_epoch: Epoch::JOIN,
        instance_id: None,
        rack_id: None,
        rebalance_timeout_ms: 60_000,
        subscribed_topic_names: Some(BTreeSet::from(["t".into()])),
        subscribed_topic_regex: None,
        server_assignor: None,
        owned: Some(Partitions::new()),
        client_id: id.into(),
        client_host: "/127.0.0.1".into(),
        requires_member_id: true,
        ticket: Ticket(0),
        hold_ms: 0,
    }
}

/// A heartbeat with nothing in it but who and where.
pub fn beat(id: &str, epoch: i32) -> Heartbeat {
    Heartbeat { member_epoch: Epoch(epoch), rebalance_timeout_ms: -1, subscribed_topic_names: None, owned: None, ..joining(id) }
}

pub fn static_joining(id: &str, instance: &str) -> Heartbeat {
    Heartbeat { instance_id: Some(instance.into()), ..joining(id) }
}

pub fn of_t(partitions: impl IntoIterator<Item = i32>) -> Partitions {
    let set: BTreeSet<_> = partitions.into_iter().map(PartitionIndex).collect();
    if set.is_empty() { Partitions::new() } else { Partitions::from([(id_of("t"), set)]) }
}

/// The indexes, whatever the topic.
pub fn indexes(partitions: &Partitions) -> Vec<i32> {
    partitions.values().flatten().map(|partition| partition.0).collect()
}

/// A [`Ctx`] whose members speak the consumer protocol.
pub struct Kip(pub Ctx);

impl std::ops::Deref for Kip {
    type Target = Ctx;
    fn deref(&self) -> &Ctx {
        &self.0
    }
}

impl std::ops::DerefMut for Kip {
    fn deref_mut(&mut self) -> &mut Ctx {
        &mut self.0
    }
}

impl Kip {
    /// With a topic `t` of this many partitions, and no interval between assignments.
    pub fn new(partitions: i32) -> Self {
        Self::with(partitions, Settings { group_consumer_assignment_interval_ms: 0, ..Settings::default() })
    }

    pub fn with(partitions: i32, settings: Settings) -> Self {
        let mut kip = Self(Ctx::new(Settings { group_initial_rebalance_delay_ms: 0, ..settings }));
        kip.learn(&[("t", partitions)]);
        kip
    }

    pub fn learn(&mut self, topics: &[(&str, i32)]) {
        let cluster = Arc::new(Cluster::of(topics));
        self.groups.learn(cluster.clone());
        self.follower.learn(cluster);
    }

    pub fn send(&mut self, mut heartbeat: Heartbeat) -> Ticket {
        heartbeat.ticket = self.ticket();
        heartbeat.fresh_id = format!("made-{}", heartbeat.ticket.0).into();
        let decision = self.groups.decide_consumer_heartbeat(self.now, &heartbeat);
        self.apply(decision);
        heartbeat.ticket
    }

    #[track_caller]
    pub fn answer(&self, ticket: Ticket) -> Heartbeaten {
        match self.answers.get(&ticket) {
            Some(Reply::Heartbeat(answer)) => answer.clone(),
            other => panic!("{ticket:?}: {other:?}"),
        }
    }

    #[track_caller]
    pub fn heartbeat_now(&mut self, heartbeat: Heartbeat) -> Heartbeaten {
        let ticket = self.send(heartbeat);
        self.answer(ticket)
    }

    /// A heartbeat that must go well: the epoch, and the partitions if it tells of them.
    #[track_caller]
    pub fn ok(&mut self, heartbeat: Heartbeat) -> (i32, Option<Vec<i32>>) {
        let answer = self.heartbeat_now(heartbeat);
        assert_eq!(answer.error, ErrorCode::None, "{answer:?}");
        (answer.member_epoch.0, answer.assignment.as_ref().map(indexes))
    }

    #[track_caller]
    pub fn refused(&mut self, heartbeat: Heartbeat) -> ErrorCode {
        let answer = self.heartbeat_now(heartbeat);
        assert!(answer.error.is_error(), "{answer:?}");
        answer.error
    }

    #[track_caller]
    pub fn consumer(&self) -> &Consumer {
        self.groups.get("g").unwrap().consumer().unwrap()
    }

    pub fn member(&self, id: &str) -> &ConsumerMember {
        self.consumer().member(id).unwrap()
    }

    /// What is read back from the log is what there is.
    #[track_caller]
    pub fn check_replay(&self) {
        let stored = |groups: &Groups| groups.get("g").and_then(Group::consumer).map(Consumer::stored);
        let mut replayed = self.replayed();
        replayed.learn(Arc::new(NoTopics));
        assert_eq!(stored(&replayed), stored(&self.groups));
    }
}
