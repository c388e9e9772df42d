//! What clients may do to topics: from an image and a command to records and a reply. Changes nothing, draws no ids, reads no clock.
//!
//! Checks, their order and their texts follow Kafka's `ReplicationControlManager` and `ConfigurationControlManager`.

use super::{
    image::{Image, PartitionState, Topic},
    record::Record,
};
use crate::{
    config::{GroupDefaults, InvalidGroupConfig, InvalidTopicConfig, TopicDefaults},
    types::{BadTopicName, BrokerId, ErrorCode, LeaderEpoch, ProducerId, TopicId, TopicName},
};
use std::{
    cell::OnceCell,
    collections::{BTreeMap, HashMap, HashSet},
    sync::Arc,
};

/// One request may create this many partitions (`QuorumController.MAX_RECORDS_PER_USER_OP`).
pub const PARTITIONS_PER_REQUEST_MAX: usize = 10_000;
/// Producer ids are given out to brokers in blocks of this many (`ProducerIdsBlock.PRODUCER_ID_BLOCK_SIZE`).
pub const PRODUCER_ID_BLOCK: i64 = 1000;
/// The highest producer id that is taken for one that was given out: clients can make ids up.
pub const PRODUCER_ID_SEEN_MAX: i64 = 1 << 62;

/// What a decision comes to: records to journal and apply, and the answer to give once they are.
#[derive(Clone, PartialEq, Debug)]
pub struct Decision<R> {
    pub records: Vec<Record>,
    pub reply: R,
}

/// What new topics get where the request leaves it open.
#[derive(Clone, Debug)]
pub struct Settings {
    pub num_partitions: i32,
    pub default_replication_factor: i16,
    pub topic_defaults: Arc<TopicDefaults>,
    pub group_defaults: GroupDefaults,
}

/// A topic to create.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct NewTopic {
    pub name: String,
    /// −1 for `num.partitions`.
    pub partitions: i32,
    /// −1 for `default.replication.factor`.
    pub replication_factor: i16,
    /// The replicas of each partition by its index; empty lets the broker choose.
    pub assignments: Vec<(i32, Vec<BrokerId>)>,
    pub configs: Vec<(String, Option<String>)>,
}

impl NewTopic {
    /// All as the broker's defaults have it: what auto-creation asks for.
    pub fn with_defaults(name: &str) -> Self {
        Self { name: name.to_owned(), partitions: -1, replication_factor: -1, assignments: Vec::new(), configs: Vec::new() }
    }
}

/// Partitions to add to a topic.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct MorePartitions {
    pub name: String,
    /// How many it is to have in all.
    pub count: i32,
    /// The replicas of each new partition; `None` lets the broker choose.
    pub assignments: Option<Vec<Vec<BrokerId>>>,
}

/// Why a change of the metadata is refused.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum AdminError {
    #[error("Topic name is invalid: {0}")]
    BadName(#[from] BadTopicName),
    #[error("Topic '{name}' collides with existing topic: {existing}")]
    NameCollides { name: String, existing: TopicName },
    #[error("Topic '{0}' already exists.")]
    Exists(TopicName),
    #[error("This server does not host this topic-partition.")]
    UnknownTopic,
    #[error("This server does not host this topic ID.")]
    UnknownTopicId,
    #[error("{0}")]
    Partitions(String),
    #[error("{0}")]
    ReplicationFactor(String),
    #[error("{0}")]
    Assignment(String),
    #[error("{0}")]
    Request(String),
    #[error("Null value not supported for topic configs: {0}")]
    NullConfigs(String),
    #[error(transparent)]
    Config(#[from] InvalidTopicConfig),
    #[error(transparent)]
    GroupConfig(#[from] InvalidGroupConfig),
    #[error("Excessively large number of partitions per request.")]
    TooManyPartitions,
    /// The journal or a partition's directory could not be written.
    #[error("{0}")]
    Storage(String),
}

impl From<&AdminError> for ErrorCode {
    fn from(error: &AdminError) -> Self {
        match error {
            AdminError::BadName(_) | AdminError::NameCollides { .. } => Self::InvalidTopicException,
            AdminError::Exists(_) => Self::TopicAlreadyExists,
            AdminError::UnknownTopic => Self::UnknownTopicOrPartition,
            AdminError::UnknownTopicId => Self::UnknownTopicId,
            AdminError::Partitions(_) => Self::InvalidPartitions,
            AdminError::ReplicationFactor(_) => Self::InvalidReplicationFactor,
            AdminError::Assignment(_) => Self::InvalidReplicaAssignment,
            AdminError::Request(_) => Self::InvalidRequest,
            AdminError::NullConfigs(_) | AdminError::Config(_) | AdminError::GroupConfig(_) => Self::InvalidConfig,
            AdminError::TooManyPartitions => Self::PolicyViolation,
            AdminError::Storage(_) => Self::KafkaStorageError,
        }
    }
}

/// Topics whose names differ only in `.` and `_` share a metric's name in Kafka, which therefore refuses them. The names that can collide,
/// by what they come to; made when the first is asked for.
struct Collisions<'a> {
    image: &'a Image,
    by_unified: OnceCell<HashMap<String, &'a TopicName>>,
}

impl Collisions<'_> {
    fn with(&self, name: &str) -> Option<&TopicName> {
        let can = |name: &str| name.contains(['.', '_']);
        let unified = |name: &str| name.replace('.', "_");
        if !can(name) {
            return None;
        }
        let names = || self.image.topics().map(|topic| &topic.name).filter(|name| can(name.as_str()));
        let by_unified = self.by_unified.get_or_init(|| names().map(|name| (unified(name.as_str()), name)).collect());
        by_unified.get(&unified(name)).copied()
    }
}

impl Image {
    /// Creates topics, each with the id at its place. Those that are refused don't hinder the others.
    pub fn decide_create_topics(
        &self,
        settings: &Settings,
        topics: &[NewTopic],
        ids: &[TopicId],
    ) -> Decision<Vec<Result<Arc<Topic>, AdminError>>> {
        let mut room = PARTITIONS_PER_REQUEST_MAX;
        let mut names = HashSet::new();
        let collisions = Collisions { image: self, by_unified: OnceCell::new() };
        let mut create = |(new, id): (&NewTopic, &TopicId)| {
            let topic = self.new_topic(settings, &collisions, new, *id)?;
            if !names.insert(topic.name.clone()) {
                return Err(AdminError::Request("Duplicate topic name.".to_owned()));
            }
            room = room.checked_sub(topic.partitions.len()).ok_or(AdminError::TooManyPartitions)?;
            Ok(Arc::new(topic))
        };
        let reply: Vec<Result<Arc<Topic>, AdminError>> = topics.iter().zip(ids).map(&mut create).collect();
        let record = |topic: &Arc<Topic>| Record::Topic {
            id: topic.id,
            name: topic.name.clone(),
            overrides: topic.overrides.clone(),
            partitions: topic.partitions.clone(),
        };
        Decision { records: reply.iter().flatten().map(record).collect(), reply }
    }

    fn new_topic(&self, settings: &Settings, collisions: &Collisions<'_>, new: &NewTopic, id: TopicId) -> Result<Topic, AdminError> {
        let name = TopicName::new(&new.name)?;
        if self.topic(&new.name).is_some() {
            return Err(AdminError::Exists(name));
        }
        if let Some(existing) = collisions.with(&new.name) {
            return Err(AdminError::NameCollides { name: new.name.clone(), existing: existing.clone() });
        }
        let nulls: Vec<&str> = new.configs.iter().filter(|(_, value)| value.is_none()).map(|(key, _)| key.as_str()).collect();
        if !nulls.is_empty() {
            return Err(AdminError::NullConfigs(nulls.join(",")));
        }
        let overrides: BTreeMap<String, String> =
            new.configs.iter().filter_map(|(key, value)| Some((key.clone(), value.clone()?))).collect();
        let config = Arc::new(self.topic_defaults(&settings.topic_defaults).resolve(&overrides)?);
        let partitions = if new.assignments.is_empty() { self.placed(settings, new)? } else { self.assigned(new)? };
        Ok(Topic { id, name, partitions, overrides, config })
    }

    /// Partitions where the broker chooses.
    fn placed(&self, settings: &Settings, new: &NewTopic) -> Result<Vec<PartitionState>, AdminError> {
        if new.replication_factor < -1 || new.replication_factor == 0 {
            let why = "Replication factor must be larger than 0, or -1 to use the default value.";
            return Err(AdminError::ReplicationFactor(why.to_owned()));
        }
        if new.partitions < -1 || new.partitions == 0 {
            return Err(AdminError::Partitions("Number of partitions was set to an invalid non-positive value.".to_owned()));
        }
        let partitions = if new.partitions == -1 { settings.num_partitions } else { new.partitions };
        let replicas = if new.replication_factor == -1 { settings.default_replication_factor } else { new.replication_factor };
        let count = usize::try_from(partitions).unwrap_or_default();
        if count > PARTITIONS_PER_REQUEST_MAX {
            return Err(AdminError::TooManyPartitions);
        }
        self.place(count, replicas)
    }

    fn place(&self, count: usize, replicas: i16) -> Result<Vec<PartitionState>, AdminError> {
        let registered = self.brokers.len();
        let wanted = usize::try_from(replicas).unwrap_or_default();
        if wanted > registered {
            return Err(AdminError::ReplicationFactor(format!(
                "Unable to replicate the partition {replicas} time(s): The target replication factor of {replicas} cannot be reached \
                 because only {registered} broker(s) are registered."
            )));
        }
        let place = |index: usize| {
            let brokers = self.brokers.keys().cycle().skip(index % registered.max(1)).take(wanted);
            PartitionState::new(brokers.copied().collect(), LeaderEpoch(0))
        };
        Ok((0..count).map(place).collect())
    }

    /// Partitions as the request assigns them.
    fn assigned(&self, new: &NewTopic) -> Result<Vec<PartitionState>, AdminError> {
        let request = |why: &str| Err(AdminError::Request(why.to_owned()));
        if new.replication_factor != -1 {
            return request("A manual partition assignment was specified, but replication factor was not set to -1.");
        }
        if new.partitions != -1 {
            return request("A manual partition assignment was specified, but numPartitions was not set to -1.");
        }
        let mut by_index = BTreeMap::new();
        let mut replication_factor = None;
        for (index, replicas) in &new.assignments {
            if by_index.contains_key(index) {
                return Err(AdminError::Assignment(format!("Found multiple manual partition assignments for partition {index}")));
            }
            self.check_assignment(replicas, replication_factor)?;
            replication_factor = Some(replicas.len());
            by_index.insert(*index, PartitionState::new(replicas.clone(), LeaderEpoch(0)));
        }
        if !(0..).zip(by_index.keys()).all(|(expected, index)| expected == *index) {
            return Err(AdminError::Assignment("partitions should be a consecutive 0-based integer sequence".to_owned()));
        }
        Ok(by_index.into_values().collect())
    }

    /// `validateManualPartitionAssignment`.
    pub(super) fn check_assignment(&self, replicas: &[BrokerId], replication_factor: Option<usize>) -> Result<(), AdminError> {
        let refuse = |why: String| Err(AdminError::Assignment(why));
        if replicas.is_empty() {
            return refuse("The manual partition assignment includes an empty replica list.".to_owned());
        }
        let mut seen = HashSet::new();
        let mut sorted = replicas.to_vec();
        sorted.sort_unstable();
        for broker in sorted {
            if !self.brokers.contains_key(&broker) {
                return refuse(format!("The manual partition assignment includes broker {broker}, but no such broker is registered."));
            }
            if !seen.insert(broker) {
                return refuse(format!("The manual partition assignment includes the broker {broker} more than once."));
            }
        }
        match replication_factor {
            Some(others) if others != replicas.len() => refuse(format!(
                "The manual partition assignment includes a partition with {} replica(s), but this is not consistent with previous \
                 partitions, which have {others} replica(s).",
                replicas.len()
            )),
            _ => Ok(()),
        }
    }

    /// Deletes topics by id.
    pub fn decide_delete_topics(&self, ids: &[TopicId]) -> Decision<Vec<Result<Arc<Topic>, AdminError>>> {
        let reply: Vec<_> = ids.iter().map(|id| self.topic_by_id(*id).cloned().ok_or(AdminError::UnknownTopicId)).collect();
        let record = |topic: &Arc<Topic>| Record::Deleted { id: topic.id, name: topic.name.clone() };
        Decision { records: reply.iter().flatten().map(record).collect(), reply }
    }

    /// Adds partitions. The reply is what each topic had before.
    pub fn decide_create_partitions(&self, topics: &[MorePartitions]) -> Decision<Vec<Result<Arc<Topic>, AdminError>>> {
        let mut records = Vec::new();
        let mut room = PARTITIONS_PER_REQUEST_MAX;
        let mut decide = |more: &MorePartitions| {
            let topic = self.topic(&more.name).ok_or(AdminError::UnknownTopic)?;
            let added = self.more_partitions(topic, more, room)?;
            room = room.saturating_sub(added.len());
            records.push(Record::Partitions { id: topic.id, partitions: added });
            Ok(topic.clone())
        };
        let reply = topics.iter().map(&mut decide).collect();
        Decision { records, reply }
    }

    fn more_partitions(&self, topic: &Topic, more: &MorePartitions, room: usize) -> Result<Vec<PartitionState>, AdminError> {
        let has = topic.partitions.len();
        let count = usize::try_from(more.count).unwrap_or_default();
        if count == has {
            return Err(AdminError::Partitions(format!("Topic already has {has} partition(s).")));
        }
        if count < has {
            return Err(AdminError::Partitions(format!(
                "The topic {} currently has {has} partition(s); {} would not be an increase.",
                topic.name, more.count
            )));
        }
        let additional = count.saturating_sub(has);
        if additional > room {
            return Err(AdminError::TooManyPartitions);
        }
        let replicas = topic.partitions.first().map_or(1, |state| state.replicas.len());
        let Some(assignments) = &more.assignments else { return self.place(additional, i16::try_from(replicas).unwrap_or(i16::MAX)) };
        if assignments.len() != additional {
            return Err(AdminError::Assignment(format!(
                "Attempted to add {additional} additional partition(s), but only {} assignment(s) were specified.",
                assignments.len()
            )));
        }
        let assigned = |brokers: &Vec<BrokerId>| {
            self.check_assignment(brokers, Some(replicas))?;
            Ok(PartitionState::new(brokers.clone(), LeaderEpoch(0)))
        };
        assignments.iter().map(assigned).collect()
    }

    /// Gives out the next block of producer ids, never to be given out again; `None` when there are no more.
    pub fn decide_producer_ids(&self) -> Decision<Option<std::ops::Range<i64>>> {
        let next = self.next_producer_id.checked_add(PRODUCER_ID_BLOCK);
        let reply = next.map(|next| self.next_producer_id..next);
        Decision { records: next.map(|next| Record::ProducerIds { next }).into_iter().collect(), reply }
    }

    /// The logs know of a producer with the id `highest`: ids are given out from above it on. A directory that was adopted, or a journal
    /// that is older than the logs, would give ids out a second time, and a new producer's batches would pass for an old one's.
    ///
    /// One above [`PRODUCER_ID_SEEN_MAX`] is not believed: that would leave no ids to give out.
    pub fn decide_producer_seen(&self, highest: ProducerId) -> Decision<()> {
        let next = highest.0.saturating_add(1);
        if highest.0 > PRODUCER_ID_SEEN_MAX {
            return Decision { records: Vec::new(), reply: () };
        }
        let records = if next > self.next_producer_id { vec![Record::ProducerIds { next }] } else { Vec::new() };
        Decision { records, reply: () }
    }

    /// This broker has come back; after a crash its partitions enter a new leader epoch, so that nothing appended before is mistaken for
    /// what comes after.
    pub fn decide_broker_started(&self, unclean: bool) -> Decision<()> {
        let leads = self.topics().any(|topic| topic.partitions.iter().any(|state| state.leader == self.node_id));
        let records = if unclean && leads { vec![Record::LeaderReturned { broker: self.node_id }] } else { Vec::new() };
        Decision { records, reply: () }
    }

    /// The directories of these deleted topics are gone.
    pub fn decide_forget(&self, ids: &[TopicId]) -> Decision<()> {
        let known = ids.iter().filter(|id| self.deleting.contains_key(id));
        Decision { records: known.map(|id| Record::Forgotten { id: *id }).collect(), reply: () }
    }
}
