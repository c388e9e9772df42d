//! A group as those see it who watch how far behind it is: whoever its members are, and whichever protocol they speak.

use super::{Groups, InstanceId, Kind, MemberId, groups::Protocol, subscription::Assignment};
use crate::types::{PartitionIndex, TopicName};
use bytes::Bytes;
use std::{collections::BTreeSet, sync::Arc};

/// A group.
#[derive(Clone, PartialEq, Debug)]
pub struct Watched {
    pub kind: Kind,
    /// Kafka's name of it.
    pub state: &'static str,
    pub protocol_type: Arc<str>,
    /// The assignor that is in use, once one is.
    pub protocol: Arc<str>,
    /// The generation, or the group epoch.
    pub generation: i32,
    pub leader: Option<MemberId>,
    pub members: Vec<WatchedMember>,
    /// The topics that its members read; `None` if that can't be told.
    pub subscribed: Option<Arc<BTreeSet<TopicName>>>,
}

#[derive(Clone, PartialEq, Debug)]
pub struct WatchedMember {
    pub member_id: MemberId,
    pub instance_id: Option<InstanceId>,
    pub client_id: Arc<str>,
    pub client_host: Arc<str>,
    given: Given,
}

/// What a member owns, as its protocol keeps it.
#[derive(Clone, PartialEq, Debug)]
enum Given {
    Bytes(Bytes),
    Partitions(Vec<(TopicName, Vec<PartitionIndex>)>),
}

impl WatchedMember {
    /// What it owns; nothing where its assignment can't be read.
    pub fn owned(&self) -> Vec<(TopicName, Vec<PartitionIndex>)> {
        match &self.given {
            Given::Bytes(bytes) => Assignment::read(bytes).unwrap_or_default().partitions,
            Given::Partitions(partitions) => partitions.clone(),
        }
    }
}

impl Groups {
    /// The members whose heartbeats are held back: they hear at once what is new.
    pub fn hearing(&self, group: &str) -> BTreeSet<MemberId> {
        match self.get(group).map(super::Group::protocol) {
            None => BTreeSet::new(),
            Some(Protocol::Classic(classic)) => {
                classic.members().filter(|member| member.beats.held.is_some()).map(|member| member.id.clone()).collect()
            }
            Some(Protocol::Consumer(consumer)) => consumer.hearing().cloned().collect(),
        }
    }

    /// `None` if it isn't there.
    pub fn watch(&self, group: &str) -> Option<Watched> {
        Some(match self.get(group)?.protocol() {
            Protocol::Classic(classic) => Watched {
                kind: Kind::Classic,
                state: classic.state().name(),
                protocol_type: classic.protocol_type().cloned().unwrap_or_else(|| "".into()),
                protocol: classic.protocol().cloned().unwrap_or_else(|| "".into()),
                generation: classic.generation().0,
                leader: classic.leader().cloned(),
                members: classic
                    .members()
                    .map(|member| WatchedMember {
                        member_id: member.id.clone(),
                        instance_id: member.instance_id.clone(),
                        client_id: member.client_id.clone(),
                        client_host: member.client_host.clone(),
                        given: Given::Bytes(member.assignment.clone()),
                    })
                    .collect(),
                subscribed: classic.subscribed.clone(),
            },
            Protocol::Consumer(consumer) => {
                let names = consumer.subscribed().into_iter().filter_map(|name| TopicName::new(name).ok());
                let owned = |held: super::consumer::Partitions| {
                    let there = held.into_iter().filter_map(|(id, held)| Some((self.topics().by_id(id)?.name, held)));
                    there.map(|(name, held)| (name, held.into_iter().collect())).collect()
                };
                Watched {
                    kind: Kind::Consumer,
                    state: consumer.state().name(),
                    protocol_type: super::subscription::CONSUMER_PROTOCOL_TYPE.into(),
                    protocol: consumer.assignor(&self.settings().group_consumer_assignors).name().into(),
                    generation: consumer.epoch().0,
                    leader: None,
                    members: consumer
                        .members()
                        .map(|member| WatchedMember {
                            member_id: member.id.clone(),
                            instance_id: member.metadata.instance_id.clone(),
                            client_id: member.metadata.client_id.clone(),
                            client_host: member.metadata.client_host.clone(),
                            given: Given::Partitions(owned(member.holds())),
                        })
                        .collect(),
                    subscribed: Some(Arc::new(names.collect())),
                }
            }
        })
    }
}
