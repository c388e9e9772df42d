//! The cluster's metadata at one moment: brokers, topics and their partitions, configs and producer ids. Immutable once shown; readers
//! take it without a lock.
//!
//! [`Image::apply`] is the only thing that changes it, live and after a restart. Knows no file and no clock.

use super::{features::Levels, record::Record};
use crate::{
    config::{HostPort, Layers, Overrides, TopicConfig, TopicDefaults},
    types::{BrokerId, LeaderEpoch, PartitionIndex, TopicId, TopicName},
};
use std::{
    collections::{BTreeMap, HashMap},
    sync::Arc,
};

/// A partition's leadership (Kafka's `PartitionRegistration`).
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct PartitionState {
    /// −1 while there is none.
    pub leader: BrokerId,
    pub leader_epoch: LeaderEpoch,
    /// Raised by one with every change of this partition.
    pub partition_epoch: i32,
    pub replicas: Vec<BrokerId>,
    pub isr: Vec<BrokerId>,
}

impl PartitionState {
    /// A new partition: the first replica leads, all are in sync.
    pub fn new(replicas: Vec<BrokerId>, leader_epoch: LeaderEpoch) -> Self {
        let leader = replicas.first().copied().unwrap_or(BrokerId(-1));
        Self { leader, leader_epoch, partition_epoch: 0, isr: replicas.clone(), replicas }
    }
}

/// A topic. Partitions go by their index.
#[derive(Clone, PartialEq, Debug)]
pub struct Topic {
    pub id: TopicId,
    pub name: TopicName,
    pub partitions: Vec<PartitionState>,
    /// The configs that were set on the topic, as they were given.
    pub overrides: BTreeMap<String, String>,
    /// The overrides over the broker's defaults.
    pub config: Arc<TopicConfig>,
}

impl Topic {
    /// The state of a partition; `None` if the topic has no such one.
    pub fn partition(&self, index: PartitionIndex) -> Option<&PartitionState> {
        self.partitions.get(usize::try_from(index.0).ok()?)
    }

    /// The partitions with their indexes.
    pub fn indexed(&self) -> impl Iterator<Item = (PartitionIndex, &PartitionState)> {
        (0..).map(PartitionIndex).zip(&self.partitions)
    }
}

/// A live broker and where clients reach it, by listener name.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Broker {
    pub rack: Option<String>,
    pub endpoints: BTreeMap<String, HostPort>,
}

/// The metadata. Cloning is cheap: the topics are shared until one changes.
#[derive(Clone, PartialEq, Debug)]
pub struct Image {
    /// 22 characters of base64, Kafka's form.
    pub cluster_id: String,
    /// This broker.
    pub node_id: BrokerId,
    /// The brokers that are up, this one among them. Not kept in the journal: a broker registers when it starts.
    pub brokers: BTreeMap<BrokerId, Broker>,
    topics_by_name: Arc<BTreeMap<TopicName, Arc<Topic>>>,
    topics_by_id: Arc<HashMap<TopicId, Arc<Topic>>>,
    /// Deleted topics whose directories may still be there.
    pub deleting: BTreeMap<TopicId, TopicName>,
    /// The first producer id that has not been given out.
    pub next_producer_id: i64,
    /// The features' levels.
    pub features: Levels,
    /// The configs that were set on groups, as they were given; none is empty.
    pub(super) groups: Arc<BTreeMap<String, BTreeMap<String, String>>>,
    /// The configs that were set on brokers while they ran, `None` for all of them, as they were given; none is empty.
    pub(super) broker_configs: Arc<BTreeMap<Option<BrokerId>, Overrides>>,
    /// What topics get by those, where it isn't what the broker was started with.
    topic_defaults: Option<Arc<TopicDefaults>>,
}

impl Image {
    /// No topics yet.
    pub fn new(cluster_id: String, node_id: BrokerId) -> Self {
        Self {
            cluster_id,
            node_id,
            brokers: BTreeMap::from([(node_id, Broker::default())]),
            topics_by_name: Arc::default(),
            topics_by_id: Arc::default(),
            deleting: BTreeMap::new(),
            next_producer_id: 0,
            features: Levels::default(),
            groups: Arc::default(),
            broker_configs: Arc::default(),
            topic_defaults: None,
        }
    }

    pub fn topic(&self, name: &str) -> Option<&Arc<Topic>> {
        self.topics_by_name.get(name)
    }

    pub fn topic_by_id(&self, id: TopicId) -> Option<&Arc<Topic>> {
        self.topics_by_id.get(&id)
    }

    /// Every topic, by name.
    pub fn topics(&self) -> impl ExactSizeIterator<Item = &Arc<Topic>> {
        self.topics_by_name.values()
    }

    /// Every topic from this name on, by name.
    pub fn topics_from(&self, name: &str) -> impl Iterator<Item = &Arc<Topic>> {
        let from = (std::ops::Bound::Included(name), std::ops::Bound::Unbounded);
        self.topics_by_name.range::<str, _>(from).map(|(_, topic)| topic)
    }

    /// The broker to send administrative requests to: all are equal, so this one.
    pub fn controller_id(&self) -> BrokerId {
        self.node_id
    }

    /// Puts one record into effect. Total: a record about a topic that isn't there changes nothing.
    pub fn apply(&mut self, defaults: &TopicDefaults, record: &Record) {
        let dynamic = self.topic_defaults.clone();
        let started_with = defaults;
        let defaults = dynamic.as_deref().unwrap_or(defaults);
        match record {
            Record::Cluster { cluster_id } => self.cluster_id.clone_from(cluster_id),
            Record::Topic { id, name, overrides, partitions } => {
                let config = Arc::new(defaults.resolve_stored(overrides));
                let overrides = overrides.clone();
                self.deleting.remove(id);
                self.put(Topic { id: *id, name: name.clone(), partitions: partitions.clone(), overrides, config });
            }
            Record::Partitions { id, partitions } => self.change(*id, |topic| topic.partitions.extend_from_slice(partitions)),
            Record::Overrides { id, overrides } => self.change(*id, |topic| {
                topic.config = Arc::new(defaults.resolve_stored(overrides));
                topic.overrides.clone_from(overrides);
            }),
            Record::Deleted { id, name } => {
                self.remove(*id);
                self.deleting.insert(*id, name.clone());
            }
            Record::Forgotten { id } => {
                self.deleting.remove(id);
            }
            Record::ProducerIds { next } => self.next_producer_id = *next,
            Record::Features { levels } => self.features.clone_from(levels),
            Record::LeaderReturned { broker } => self.leader_returned(*broker),
            Record::LeaderEpochSet { id, partition, leader_epoch } => self.change(*id, |topic| {
                let state = usize::try_from(partition.0).ok().and_then(|index| topic.partitions.get_mut(index));
                if let Some(state) = state {
                    state.leader_epoch = *leader_epoch;
                    state.partition_epoch = state.partition_epoch.wrapping_add(1);
                }
            }),
            Record::GroupConfigs { group, overrides } if overrides.is_empty() => {
                Arc::make_mut(&mut self.groups).remove(group);
            }
            Record::GroupConfigs { group, overrides } => {
                Arc::make_mut(&mut self.groups).insert(group.clone(), overrides.clone());
            }
            Record::BrokerConfigs { broker, overrides } => self.set_broker_configs(started_with, *broker, overrides),
        }
    }

    fn set_broker_configs(&mut self, started_with: &TopicDefaults, broker: Option<BrokerId>, overrides: &Overrides) {
        let configs = Arc::make_mut(&mut self.broker_configs);
        if overrides.is_empty() {
            configs.remove(&broker);
        } else {
            configs.insert(broker, overrides.clone());
        }
        let layers = self.layers();
        let is_as_started = layers.own.is_none() && layers.all_brokers.is_none();
        self.topic_defaults = (!is_as_started).then(|| Arc::new(started_with.with_layers(self.layers())));
        let defaults = self.topic_defaults.clone();
        let defaults = defaults.as_deref().unwrap_or(started_with);
        let ids: Vec<TopicId> = self.topics().map(|topic| topic.id).collect();
        for id in ids {
            self.change(id, |topic| topic.config = Arc::new(defaults.resolve_stored(&topic.overrides)));
        }
    }

    /// What was set on this broker while it ran, and on all of them.
    pub fn layers(&self) -> Layers<'_> {
        Layers { all_brokers: self.broker_configs.get(&None), own: self.broker_configs.get(&Some(self.node_id)) }
    }

    /// What topics get where they override nothing; `started_with` is what the broker was started with.
    pub fn topic_defaults<'a>(&'a self, started_with: &'a TopicDefaults) -> &'a TopicDefaults {
        self.topic_defaults.as_deref().unwrap_or(started_with)
    }

    fn leader_returned(&mut self, broker: BrokerId) {
        let led: Vec<Arc<Topic>> =
            self.topics().filter(|topic| topic.partitions.iter().any(|state| state.leader == broker)).cloned().collect();
        for topic in led {
            self.change(topic.id, |topic| {
                for state in topic.partitions.iter_mut().filter(|state| state.leader == broker) {
                    state.leader_epoch = LeaderEpoch(state.leader_epoch.0.saturating_add(1));
                    state.partition_epoch = state.partition_epoch.wrapping_add(1);
                }
            });
        }
    }

    fn put(&mut self, topic: Topic) {
        self.remove(topic.id);
        let topic = Arc::new(topic);
        if let Some(replaced) = Arc::make_mut(&mut self.topics_by_name).insert(topic.name.clone(), topic.clone()) {
            Arc::make_mut(&mut self.topics_by_id).remove(&replaced.id);
        }
        Arc::make_mut(&mut self.topics_by_id).insert(topic.id, topic);
    }

    fn remove(&mut self, id: TopicId) {
        if self.topics_by_id.contains_key(&id)
            && let Some(topic) = Arc::make_mut(&mut self.topics_by_id).remove(&id)
        {
            Arc::make_mut(&mut self.topics_by_name).remove(&topic.name);
        }
    }

    fn change(&mut self, id: TopicId, change: impl FnOnce(&mut Topic)) {
        if let Some(topic) = self.topics_by_id.get(&id) {
            let mut changed = Topic::clone(topic);
            change(&mut changed);
            self.put(changed);
        }
    }

    /// The fewest records that build this image: a snapshot.
    pub fn to_records(&self) -> Vec<Record> {
        let mut records = vec![Record::Cluster { cluster_id: self.cluster_id.clone() }];
        records.extend(self.topics().map(|topic| Record::Topic {
            id: topic.id,
            name: topic.name.clone(),
            overrides: topic.overrides.clone(),
            partitions: topic.partitions.clone(),
        }));
        records.extend(self.deleting.iter().map(|(id, name)| Record::Deleted { id: *id, name: name.clone() }));
        records.push(Record::ProducerIds { next: self.next_producer_id });
        if self.features != Levels::default() {
            records.push(Record::Features { levels: self.features.clone() });
        }
        let configs =
            |(group, overrides): (&String, &BTreeMap<_, _>)| Record::GroupConfigs { group: group.clone(), overrides: overrides.clone() };
        records.extend(self.groups.iter().map(configs));
        let of_broker =
            |(broker, overrides): (&Option<BrokerId>, &Overrides)| Record::BrokerConfigs { broker: *broker, overrides: overrides.clone() };
        records.extend(self.broker_configs.iter().map(of_broker));
        records
    }
}

#[cfg(test)]
mod tests {
    use super::{super::record::tests::any_record, *};
    use proptest::{collection::vec, prelude::*};

    fn replay<'a>(records: impl IntoIterator<Item = &'a Record>) -> Image {
        let mut image = Image::new(String::new(), BrokerId(1));
        records.into_iter().for_each(|record| image.apply(&TopicDefaults::default(), record));
        image
    }

    proptest! {
        #[test]
        fn a_snapshot_and_the_tail_make_the_same_image(records in vec(any_record(), 0..40), at in any::<prop::sample::Index>()) {
            let at = at.index(records.len() + 1);
            let snapshot = replay(&records[..at]).to_records();
            prop_assert_eq!(replay(snapshot.iter().chain(&records[at..])), replay(&records));
        }

        #[test]
        fn the_two_indexes_agree(records in vec(any_record(), 0..40)) {
            let image = replay(&records);
            prop_assert_eq!(image.topics_by_id.len(), image.topics().len());
            for topic in image.topics() {
                prop_assert!(Arc::ptr_eq(image.topic_by_id(topic.id).unwrap(), topic));
                prop_assert!(Arc::ptr_eq(image.topic(topic.name.as_str()).unwrap(), topic));
                prop_assert!(!image.deleting.contains_key(&topic.id));
            }
        }

        #[test]
        fn an_image_that_was_shown_does_not_change(records in vec(any_record(), 1..20)) {
            let mut image = replay(&records[..1]);
            let (shown, copy) = (image.clone(), replay(&records[..1]));
            records.iter().for_each(|record| image.apply(&TopicDefaults::default(), record));
            prop_assert_eq!(shown, copy);
        }
    }

    #[test]
    fn a_leader_that_comes_back_raises_only_its_own_epochs() {
        let id = TopicId(uuid::Uuid::from_u128(1));
        let led_by = |broker: i32| PartitionState::new(vec![BrokerId(broker)], LeaderEpoch(4));
        let name = TopicName::new("t").unwrap();
        let topic = Record::Topic { id, name, overrides: BTreeMap::new(), partitions: vec![led_by(1), led_by(2)] };
        let image = replay(&[topic, Record::LeaderReturned { broker: BrokerId(1) }]);
        let epochs: Vec<(i32, i32)> =
            image.topic("t").unwrap().partitions.iter().map(|state| (state.leader_epoch.0, state.partition_epoch)).collect();
        assert_eq!(epochs, [(5, 1), (4, 0)]);
    }
}
