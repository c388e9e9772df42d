//! What tools ask of groups: ListGroups and DescribeGroups.

use super::{
    Epoch, Groups, InstanceId, Member, MemberId, State,
    consumer::{ConsumerMember, ConsumerState},
    groups::Protocol,
    subscription::CONSUMER_PROTOCOL_TYPE,
};
use crate::types::{PartitionIndex, TopicId, TopicName};
use bytes::Bytes;
use std::sync::Arc;

/// What a group's protocol is (ListGroups' type).
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Kind {
    Classic,
    Consumer,
}

impl Kind {
    /// Kafka's name of it.
    pub fn name(self) -> &'static str {
        match self {
            Self::Classic => "classic",
            Self::Consumer => "consumer",
        }
    }
}

/// A group in a list.
#[derive(Clone, PartialEq, Debug)]
pub struct Listed {
    pub group: Arc<str>,
    pub protocol_type: Arc<str>,
    /// Kafka's name of it.
    pub state: &'static str,
    pub kind: Kind,
}

/// A group with its members.
#[derive(Clone, PartialEq, Debug)]
pub struct Described {
    pub state: State,
    pub protocol_type: Arc<str>,
    /// The protocol, once the group is stable.
    pub protocol: Arc<str>,
    pub members: Vec<DescribedMember>,
}

#[derive(Clone, PartialEq, Debug)]
pub struct DescribedMember {
    pub member_id: MemberId,
    pub instance_id: Option<InstanceId>,
    pub client_id: Arc<str>,
    pub client_host: Arc<str>,
    /// Empty unless the group is stable.
    pub metadata: Bytes,
    pub assignment: Bytes,
}

/// A consumer group with its members (ConsumerGroupDescribe).
#[derive(Clone, PartialEq, Debug)]
pub struct ConsumerDescribed {
    pub state: ConsumerState,
    pub epoch: Epoch,
    pub assignment_epoch: Epoch,
    pub assignor: &'static str,
    pub members: Vec<ConsumerDescribedMember>,
}

#[derive(Clone, PartialEq, Debug)]
pub struct ConsumerDescribedMember {
    pub member_id: MemberId,
    pub instance_id: Option<InstanceId>,
    pub rack_id: Option<Arc<str>>,
    pub member_epoch: Epoch,
    pub client_id: Arc<str>,
    pub client_host: Arc<str>,
    pub subscribed_topic_names: Vec<Arc<str>>,
    pub subscribed_topic_regex: Option<Arc<str>>,
    /// What it was told to let go of is in it until it has.
    pub assignment: Vec<DescribedTopic>,
    pub target_assignment: Vec<DescribedTopic>,
    /// Version 1 and later: which protocol it speaks.
    pub kind: Kind,
}

/// Partitions of a topic that is there.
#[derive(Clone, PartialEq, Debug)]
pub struct DescribedTopic {
    pub id: TopicId,
    pub name: TopicName,
    pub partitions: Vec<PartitionIndex>,
}

impl Groups {
    /// DescribeGroups; `None` if it isn't there, or is no classic group.
    pub fn describe(&self, group: &str) -> Option<Described> {
        let classic = self.get(group)?.classic()?;
        let stable = classic.state() == State::Stable;
        let protocol = classic.protocol().filter(|_| stable).cloned().unwrap_or_else(|| "".into());
        let describe = |member: &Member| DescribedMember {
            member_id: member.id.clone(),
            instance_id: member.instance_id.clone(),
            client_id: member.client_id.clone(),
            client_host: member.client_host.clone(),
            metadata: if stable { member.metadata(&protocol).cloned().unwrap_or_default() } else { Bytes::new() },
            assignment: member.assignment.clone(),
        };
        let members = classic.members().map(describe).collect();
        Some(Described {
            state: classic.state(),
            protocol_type: classic.protocol_type().cloned().unwrap_or_else(|| "".into()),
            protocol,
            members,
        })
    }

    /// ConsumerGroupDescribe; `None` if it isn't there, or is no consumer group.
    pub fn describe_consumer(&self, group: &str) -> Option<ConsumerDescribed> {
        let consumer = self.get(group)?.consumer()?;
        let topics = |partitions: &mut dyn Iterator<Item = (TopicId, Vec<PartitionIndex>)>| {
            let there = partitions.filter_map(|(id, partitions)| Some((self.topics().by_id(id)?, partitions)));
            there.map(|(topic, partitions)| DescribedTopic { id: topic.id, name: topic.name, partitions }).collect()
        };
        let describe = |member: &ConsumerMember| ConsumerDescribedMember {
            member_id: member.id.clone(),
            instance_id: member.metadata.instance_id.clone(),
            rack_id: member.metadata.rack_id.clone(),
            member_epoch: member.epoch,
            client_id: member.metadata.client_id.clone(),
            client_host: member.metadata.client_host.clone(),
            subscribed_topic_names: member.metadata.subscribed_topic_names.iter().cloned().collect(),
            subscribed_topic_regex: member.metadata.subscribed_topic_regex.clone(),
            assignment: topics(&mut member.holds().into_iter().map(|(id, held)| (id, held.into_iter().collect()))),
            target_assignment: topics(
                &mut consumer.target(&member.id).into_iter().flatten().map(|(id, set)| (*id, set.iter().copied().collect())),
            ),
            kind: if member.classic().is_some() { Kind::Classic } else { Kind::Consumer },
        };
        Some(ConsumerDescribed {
            state: consumer.state(),
            epoch: consumer.epoch(),
            assignment_epoch: consumer.assignment_epoch(),
            assignor: consumer.assignor(&self.settings().group_consumer_assignors).name(),
            members: consumer.members().map(describe).collect(),
        })
    }

    pub fn list(&self) -> impl Iterator<Item = Listed> {
        self.iter().map(|(id, group)| {
            let (kind, state, protocol_type) = match group.protocol() {
                Protocol::Classic(classic) => (Kind::Classic, classic.state().name(), classic.protocol_type().cloned()),
                Protocol::Consumer(consumer) => (Kind::Consumer, consumer.state().name(), Some(CONSUMER_PROTOCOL_TYPE.into())),
            };
            Listed { group: id.clone(), protocol_type: protocol_type.unwrap_or_else(|| "".into()), state, kind }
        })
    }
}
