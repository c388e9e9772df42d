//! What clients may do to topics' configs (`ConfigurationControlManager`): from an image and changes to records and a reply. Changes nothing.
//!
//! Checks, their order and their texts are Kafka's: the operations, then the topic's name, then all of its configs together, and only then
//! whether there is such a topic.

use super::{
    admin::{AdminError, Decision},
    image::{Image, Topic},
    record::Record,
};
use crate::{
    config::{
        InvalidTopicConfig, TopicDefaults,
        key::{Key, Kind},
        topic_keys,
    },
    types::TopicName,
};
use std::{collections::BTreeMap, sync::Arc};

/// What is done to one config (`AlterConfigOp.OpType`).
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum ConfigOp {
    Set(String),
    Delete,
    /// Adds items, separated by commas, to a list that lacks them.
    Append(String),
    /// Takes items, separated by commas, out of a list.
    Subtract(String),
}

/// How a resource's configs change.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum ConfigChange {
    /// Those that are named, in their order; the others stay.
    Incremental(Vec<(String, ConfigOp)>),
    /// These are all from now on.
    Replace(Vec<(String, String)>),
}

/// A topic whose configs change; all or none of them.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct TopicChange {
    pub name: String,
    pub change: ConfigChange,
}

impl ConfigChange {
    /// The configs as they will be. `find` knows the keys of the resource.
    pub(super) fn on(
        &self,
        current: BTreeMap<String, String>,
        find: impl Fn(&str) -> Option<&'static Key>,
    ) -> Result<BTreeMap<String, String>, InvalidTopicConfig> {
        let ops = match self {
            Self::Replace(all) => return Ok(all.iter().cloned().collect()),
            Self::Incremental(ops) => ops,
        };
        let mut configs = current;
        for (key, op) in ops {
            let value = match op {
                ConfigOp::Set(value) => Some(value.clone()),
                ConfigOp::Delete => None,
                ConfigOp::Append(items) => {
                    let mut list = parts(&configs, key, &find, "APPEND")?;
                    for item in items.split(',') {
                        if !list.iter().any(|one| one == item) {
                            list.push(item.to_owned());
                        }
                    }
                    Some(list.join(","))
                }
                ConfigOp::Subtract(items) => {
                    let mut list = parts(&configs, key, &find, "SUBTRACT")?;
                    list.retain(|one| items.split(',').all(|item| item != one));
                    Some(list.join(","))
                }
            };
            match value {
                Some(value) => configs.insert(key.clone(), value),
                None => configs.remove(key),
            };
        }
        Ok(configs)
    }
}

/// The items of a list as it is set, or else by the table's default, whatever the broker's own is: so does Kafka's controller.
fn parts(
    configs: &BTreeMap<String, String>,
    key: &str,
    find: impl Fn(&str) -> Option<&'static Key>,
    op: &'static str,
) -> Result<Vec<String>, InvalidTopicConfig> {
    let not_a_list = || InvalidTopicConfig::NotAList { op, key: key.chars().take(256).collect() };
    let known = find(key).filter(|key| key.kind == Kind::List).ok_or_else(not_a_list)?;
    let text = configs.get(key).map_or(known.default.unwrap_or_default(), String::as_str);
    Ok(text.split(',').filter(|item| !item.is_empty()).map(str::to_owned).collect())
}

impl Image {
    /// Changes the configs of some topics, each of which is named once. Those that are refused don't hinder the others.
    pub fn decide_alter_topics(&self, defaults: &TopicDefaults, changes: &[TopicChange]) -> Decision<Vec<Result<Arc<Topic>, AdminError>>> {
        let defaults = self.topic_defaults(defaults);
        let mut records = Vec::new();
        let mut decide = |change: &TopicChange| {
            let (topic, is_new) = self.altered(defaults, change)?;
            if is_new {
                records.push(Record::Overrides { id: topic.id, overrides: topic.overrides.clone() });
            }
            Ok(topic)
        };
        let reply = changes.iter().map(&mut decide).collect();
        Decision { records, reply }
    }

    /// The topic as it will be, and whether that is news.
    fn altered(&self, defaults: &TopicDefaults, change: &TopicChange) -> Result<(Arc<Topic>, bool), AdminError> {
        let topic = self.topic(&change.name);
        let current = topic.map(|topic| topic.overrides.clone()).unwrap_or_default();
        let overrides = change.change.on(current, |name| topic_keys::find(name).map(|topic| &topic.key))?;
        if change.name.is_empty() {
            return Err(AdminError::Request("Default topic resources are not allowed.".to_owned()));
        }
        TopicName::new(&change.name)?;
        let config = Arc::new(defaults.resolve(&overrides)?);
        let topic = topic.ok_or(AdminError::UnknownTopic)?;
        let is_new = topic.overrides != overrides;
        Ok((Arc::new(Topic { overrides, config, ..Topic::clone(topic) }), is_new))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{
        cluster::{Cluster, NewTopic, disk::MemoryDisk},
        config::ServerConfig,
    };

    fn cluster() -> Cluster {
        let cluster = Cluster::open(Arc::new(MemoryDisk::default()), &ServerConfig::default()).unwrap();
        cluster.register([]);
        cluster.create_topics(&[NewTopic::with_defaults("t"), NewTopic::with_defaults("u")], false).remove(0).unwrap();
        cluster
    }

    fn ops(all: &[(&str, ConfigOp)]) -> ConfigChange {
        ConfigChange::Incremental(all.iter().map(|(key, op)| ((*key).to_owned(), op.clone())).collect())
    }

    fn alter(cluster: &Cluster, name: &str, change: ConfigChange) -> Result<Vec<(String, String)>, String> {
        let change = TopicChange { name: name.to_owned(), change };
        let topic = cluster.alter_topics(&[change], false).remove(0).map_err(|e| e.to_string())?;
        assert_eq!(cluster.image().topic(name).unwrap().overrides, topic.overrides);
        Ok(topic.overrides.clone().into_iter().collect())
    }

    fn pairs(all: &[(&str, &str)]) -> Result<Vec<(String, String)>, String> {
        Ok(all.iter().map(|(key, value)| ((*key).to_owned(), (*value).to_owned())).collect())
    }

    #[test]
    fn lists_grow_and_shrink_from_what_is_set_or_the_default() {
        let cluster = cluster();
        let append = |items: &str| ops(&[("cleanup.policy", ConfigOp::Append(items.to_owned()))]);
        let subtract = |items: &str| ops(&[("cleanup.policy", ConfigOp::Subtract(items.to_owned()))]);
        assert_eq!(alter(&cluster, "t", append("compact")), pairs(&[("cleanup.policy", "delete,compact")]));
        assert_eq!(alter(&cluster, "t", append("compact,delete")), pairs(&[("cleanup.policy", "delete,compact")]));
        assert_eq!(alter(&cluster, "t", subtract("delete")), pairs(&[("cleanup.policy", "compact")]));
        assert!(cluster.image().topic("t").unwrap().config.cleanup_compact);
        let wrong = ops(&[("retention.ms", ConfigOp::Append("1".to_owned()))]);
        assert_eq!(alter(&cluster, "t", wrong).unwrap_err(), "Can't APPEND to key retention.ms because its type is not LIST.");
        let wrong = ops(&[("no.such", ConfigOp::Subtract("1".to_owned()))]);
        assert_eq!(alter(&cluster, "t", wrong).unwrap_err(), "Can't SUBTRACT to key no.such because its type is not LIST.");
    }

    #[test]
    fn others_stay_unless_all_are_replaced() {
        let cluster = cluster();
        let set = |key: &'static str, value: &str| (key, ConfigOp::Set(value.to_owned()));
        assert_eq!(alter(&cluster, "t", ops(&[set("retention.ms", "1"), set("segment.ms", "2")])).unwrap().len(), 2);
        let changed = ops(&[("segment.ms", ConfigOp::Delete), set("flush.ms", "3")]);
        assert_eq!(alter(&cluster, "t", changed), pairs(&[("flush.ms", "3"), ("retention.ms", "1")]));
        let all = ConfigChange::Replace(vec![("segment.ms".to_owned(), "9".to_owned())]);
        assert_eq!(alter(&cluster, "t", all), pairs(&[("segment.ms", "9")]));
        assert_eq!(cluster.image().topic("t").unwrap().config.segment_ms, 9);
        assert_eq!(alter(&cluster, "t", ConfigChange::Replace(Vec::new())), pairs(&[]));
    }

    #[test]
    fn what_is_wrong_is_said_before_whether_the_topic_is_there() {
        let cluster = cluster();
        let set = |key: &str, value: &str| ops(&[(key, ConfigOp::Set(value.to_owned()))]);
        let why = |name, change| alter(&cluster, name, change).unwrap_err();
        assert_eq!(why("t", set("segment.size", "1")), "Unknown topic config name: segment.size");
        assert_eq!(why("nowhere", set("segment.ms", "0")), "Invalid value 0 for configuration segment.ms: Value must be at least 1");
        assert_eq!(why("nowhere", set("segment.ms", "1")), "This server does not host this topic-partition.");
        assert_eq!(why("", set("segment.ms", "1")), "Default topic resources are not allowed.");
        assert!(why("a b", set("segment.ms", "1")).starts_with("Topic name is invalid"));
        assert_eq!(cluster.image().topic("t").unwrap().overrides.len(), 0);
    }

    #[test]
    fn one_that_is_refused_does_not_hinder_another_and_a_trial_changes_nothing() {
        let cluster = cluster();
        let change = |name: &str, value: &str| TopicChange {
            name: name.to_owned(),
            change: ops(&[("segment.ms", ConfigOp::Set(value.to_owned()))]),
        };
        let both = [change("t", "0"), change("u", "5")];
        assert!(cluster.alter_topics(&both, true)[1].is_ok());
        assert_eq!(cluster.image().topic("u").unwrap().overrides.len(), 0);
        assert_eq!(cluster.alter_topics(&both, false).iter().map(Result::is_ok).collect::<Vec<_>>(), [false, true]);
        assert_eq!(cluster.image().topic("u").unwrap().overrides["segment.ms"], "5");
    }
}
