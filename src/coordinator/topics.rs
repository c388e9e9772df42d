//! The cluster's topics as groups see them: an image of the metadata behind `group`'s own trait.

use super::partition_of;
use crate::{
    cluster::{self, Image},
    config::GroupDefaults,
    group::{GroupId, GroupSettings, Groups, Topic, Topics},
    types::{TopicId, TopicName},
};
use std::{
    collections::{BTreeMap, HashMap},
    sync::Arc,
};

/// An image. It stays as it is, however long a group looks at it.
#[derive(Debug)]
struct ImageTopics(Arc<Image>);

fn as_seen(topic: &Arc<cluster::Topic>) -> Topic {
    Topic { name: topic.name.clone(), id: topic.id, partitions: i32::try_from(topic.partitions.len()).unwrap_or(i32::MAX) }
}

impl Topics for ImageTopics {
    fn by_name(&self, name: &str) -> Option<Topic> {
        self.0.topic(name).map(as_seen)
    }

    fn by_id(&self, id: TopicId) -> Option<Topic> {
        self.0.topic_by_id(id).map(as_seen)
    }

    fn each_name(&self, look: &mut dyn FnMut(&TopicName)) {
        self.0.topics().for_each(|topic| look(&topic.name));
    }
}

/// What a shard of groups is to know of the metadata.
pub(super) struct Known {
    topics: Arc<dyn Topics>,
    /// Of its groups that have settings of their own.
    settings: HashMap<GroupId, GroupSettings>,
}

impl Known {
    /// Of the shard `index` of `count`.
    pub fn of(image: &Arc<Image>, defaults: &GroupDefaults, index: usize, count: usize) -> Self {
        let of_shard = |(group, _): &(&str, &_)| partition_of(group, count) == index;
        let settings = |(group, overrides)| (GroupId::from(group), settings_of(defaults, overrides));
        Self {
            topics: Arc::new(ImageTopics(image.clone())),
            settings: image.groups_with_configs().filter(of_shard).map(settings).collect(),
        }
    }

    pub fn tell(self, groups: &mut Groups) {
        groups.learn(self.topics);
        groups.configure_all(self.settings);
    }
}

/// A group's own settings, from its configs as they were given.
fn settings_of(defaults: &GroupDefaults, overrides: &BTreeMap<String, String>) -> GroupSettings {
    let config = defaults.resolve_stored(overrides);
    GroupSettings {
        consumer_session_timeout_ms: Some(config.session_timeout_ms),
        consumer_heartbeat_interval_ms: Some(config.heartbeat_interval_ms),
        consumer_assignment_interval_ms: Some(config.assignment_interval_ms),
    }
}
