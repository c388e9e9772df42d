//! What DescribeConfigs says of each key: its value, where that comes from, and what it would be without (Kafka's `ConfigHelper`).
//!
//! Knows no wire format; `api::describe_configs` puts it into one.

use super::{Layers, Overrides, ServerConfig, dynamic, dynamic_keys, group_keys, key::Key, keys, topic_keys};
use std::collections::BTreeMap;

/// Where a value comes from (`DescribeConfigsResponse.ConfigSource`).
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Source {
    /// A topic's override (`DYNAMIC_TOPIC_CONFIG`).
    Topic,
    /// A group's override (`DYNAMIC_GROUP_CONFIG`).
    Group,
    /// Set on this broker while it ran (`DYNAMIC_BROKER_CONFIG`).
    DynamicBroker,
    /// Set on all brokers while they ran (`DYNAMIC_DEFAULT_BROKER_CONFIG`).
    DynamicDefaultBroker,
    /// The file, the environment or a flag (`STATIC_BROKER_CONFIG`).
    StaticBroker,
    /// The table (`DEFAULT_CONFIG`).
    Default,
}

impl Source {
    /// The number on the wire.
    pub fn wire(self) -> i8 {
        match self {
            Self::Topic => 1,
            Self::DynamicBroker => 2,
            Self::DynamicDefaultBroker => 3,
            Self::Group => 8,
            Self::StaticBroker => 4,
            Self::Default => 5,
        }
    }
}

/// A name under which the value is or would be set, the strongest first.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Synonym {
    pub name: &'static str,
    pub value: Option<String>,
    pub source: Source,
}

/// One key of a broker or a topic.
#[derive(Clone, PartialEq, Debug)]
pub struct Described {
    pub key: Key,
    /// `None` is null.
    pub value: Option<String>,
    pub source: Source,
    pub read_only: bool,
    pub synonyms: Vec<Synonym>,
}

impl ServerConfig {
    /// Every key of this broker, with these layers over what it was started with.
    pub fn describe_broker(&self, layers: Layers<'_>) -> Vec<Described> {
        let mut set = BTreeMap::new();
        dynamic::lay_over(&mut set, layers);
        let describe = |key: &Key| {
            let synonyms = self.synonyms(key.name, layers);
            let value = set.get(key.name).map(|(_, value)| value.text()).or_else(|| self.value_text(key.name));
            Described { key: *key, value, source: source_of(&synonyms), read_only: !key.dynamic, synonyms }
        };
        // Those that have no place in a file are there once they are set.
        let is_set = |key: &&Key| layers.ascending().any(|layer| layer.contains_key(key.name));
        keys::KEYS.iter().chain(dynamic_keys::KEYS.iter().filter(is_set)).map(describe).collect()
    }

    /// What was set on all brokers.
    pub fn describe_all_brokers(&self, layers: Layers<'_>) -> Vec<Described> {
        let set = layers.all_brokers.into_iter().flatten();
        let describe = |(name, text): (&String, &String)| {
            let key = *dynamic::find(name)?;
            let mut synonyms = self.synonyms(key.name, layers);
            synonyms.retain(|synonym| synonym.source == Source::DynamicDefaultBroker);
            Some(Described { key, value: Some(text.clone()), source: source_of(&synonyms), read_only: !key.dynamic, synonyms })
        };
        set.filter_map(describe).collect()
    }

    /// Every config of a topic with these overrides, on a broker with these layers.
    pub fn describe_topic(&self, overrides: &Overrides, layers: Layers<'_>) -> Vec<Described> {
        let defaults = self.topic_defaults.with_layers(layers);
        let describe = |topic: &topic_keys::TopicKey| {
            let key = topic.key;
            let overridden = overrides.get(key.name).and_then(|text| key.check(text).ok()).map(|value| value.text());
            let default = || defaults.get(key.name).map(|value| value.text());
            let mut synonyms = topic.synonyms.first().map_or_else(Vec::new, |(name, _)| self.synonyms(name, layers));
            if let Some(value) = &overridden {
                synonyms.insert(0, Synonym { name: key.name, value: Some(value.clone()), source: Source::Topic });
            }
            let source = source_of(&synonyms);
            Described { key, value: overridden.or_else(default), source, read_only: false, synonyms }
        };
        topic_keys::TOPIC_KEYS.iter().map(describe).collect()
    }

    /// Every config of a group with these overrides.
    pub fn describe_group(&self, overrides: Option<&BTreeMap<String, String>>) -> Vec<Described> {
        let describe = |group: &group_keys::GroupKey| {
            let key = group.key;
            let overridden = overrides.and_then(|all| all.get(key.name)).and_then(|text| key.check(text).ok()).map(|value| value.text());
            let own = overridden.iter().map(|value| Synonym { name: key.name, value: Some(value.clone()), source: Source::Group });
            let synonyms: Vec<_> = own.chain(self.synonyms(group.default, Layers::default())).collect();
            let default = || self.group_consumer.defaults.get(key.name).map(|value| value.to_string());
            Described { key, value: overridden.or_else(default), source: source_of(&synonyms), read_only: false, synonyms }
        };
        group_keys::GROUP_KEYS.iter().map(describe).collect()
    }

    /// Kafka's chain: the names for one setting that are set, then those that have a default; and nothing before the name asked for, as
    /// `ConfigHelper.configSynonyms` drops it. (So with `log.retention.hours` alone the chain of `retention.ms` is empty, as in Kafka.)
    fn synonyms(&self, name: &'static str, layers: Layers<'_>) -> Vec<Synonym> {
        let family = family(name);
        let dynamic = [(layers.own, Source::DynamicBroker), (layers.all_brokers, Source::DynamicDefaultBroker)];
        let dynamic = dynamic.iter().flat_map(|(layer, source)| {
            family.iter().filter_map(move |name| {
                let value = Some(layer.as_ref()?.get(*name)?.clone());
                Some(Synonym { name, value, source: *source })
            })
        });
        let set = family.iter().filter_map(|name| {
            let value = Some(self.set.get(name)?.clone());
            Some(Synonym { name, value, source: Source::StaticBroker })
        });
        let defaults = family.iter().filter_map(|name| {
            let value = Some(keys::find(name)?.default?.to_owned());
            Some(Synonym { name, value, source: Source::Default })
        });
        dynamic.chain(set).chain(defaults).skip_while(|synonym| synonym.name != name).collect()
    }
}

fn source_of(synonyms: &[Synonym]) -> Source {
    synonyms.first().map_or(Source::Default, |strongest| strongest.source)
}

/// The names for one setting in several units, the strongest first (`DynamicBrokerConfig.brokerConfigSynonyms`).
pub(super) fn family(name: &'static str) -> Vec<&'static str> {
    let in_family = |topic: &&topic_keys::TopicKey| topic.synonyms.iter().any(|(synonym, _)| *synonym == name);
    match topic_keys::TOPIC_KEYS.iter().find(in_family) {
        Some(topic) if name != "log.flush.scheduler.interval.ms" => topic.synonyms.iter().map(|(synonym, _)| *synonym).collect(),
        _ => vec![name],
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::Sources;

    fn config(flags: &[&str]) -> ServerConfig {
        let flags = flags.iter().map(|flag| (*flag).to_owned()).collect();
        ServerConfig::load(&Sources { flags, ..Sources::default() }).unwrap().config
    }

    fn topic(config: &ServerConfig, overrides: &[(&str, &str)], name: &str) -> Described {
        let overrides = overrides.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned())).collect();
        config.describe_topic(&overrides, Layers::default()).into_iter().find(|described| described.key.name == name).unwrap()
    }

    fn chain(described: &Described) -> Vec<(&str, &str, Source)> {
        described.synonyms.iter().map(|synonym| (synonym.name, synonym.value.as_deref().unwrap(), synonym.source)).collect()
    }

    #[test]
    fn a_topics_chain_runs_from_its_override_to_the_default() {
        let config = config(&["log.segment.bytes=2000000", "log.retention.ms=9"]);
        let described = topic(&config, &[("segment.bytes", " 3000000")], "segment.bytes");
        assert_eq!((described.value.as_deref(), described.source, described.read_only), (Some("3000000"), Source::Topic, false));
        let expected = [
            ("segment.bytes", "3000000", Source::Topic),
            ("log.segment.bytes", "2000000", Source::StaticBroker),
            ("log.segment.bytes", "1073741824", Source::Default),
        ];
        assert_eq!(chain(&described), expected);
        let described = topic(&config, &[], "retention.ms");
        assert_eq!((described.value.as_deref(), described.source), (Some("9"), Source::StaticBroker));
        assert_eq!(chain(&described), [("log.retention.ms", "9", Source::StaticBroker), ("log.retention.hours", "168", Source::Default)]);
    }

    #[test]
    fn a_key_that_has_only_a_weaker_synonym_shows_no_chain_as_in_kafka() {
        let described = topic(&config(&["log.retention.hours=1"]), &[], "retention.ms");
        assert_eq!((described.value.as_deref(), described.source), (Some("3600000"), Source::Default));
        assert_eq!(chain(&described), []);
    }

    #[test]
    fn a_broker_describes_every_key() {
        let config = config(&["num.partitions=3"]);
        let all = config.describe_broker(Layers::default());
        assert_eq!(all.len(), keys::KEYS.len());
        let of = |name: &str| all.iter().find(|described| described.key.name == name).unwrap();
        assert_eq!((of("num.partitions").value.as_deref(), of("num.partitions").source), (Some("3"), Source::StaticBroker));
        assert!(of("num.partitions").read_only && !of("log.segment.bytes").read_only);
        assert_eq!((of("log.dirs").value.as_deref(), of("log.dirs").source), (None, Source::Default));
        assert_eq!(of("broker.id").value.as_deref(), Some("1"));
        assert_eq!(chain(of("log.roll.hours")), [("log.roll.hours", "168", Source::Default)]);
    }

    #[test]
    fn what_was_set_while_it_ran_comes_first() {
        let config = config(&["log.retention.ms=9"]);
        let set = |value: &str| Overrides::from([("log.retention.ms".to_owned(), value.to_owned())]);
        let (all, own) = (set("5"), set("4"));
        let layers = Layers { all_brokers: Some(&all), own: Some(&own) };
        let described = config.describe_broker(layers).into_iter().find(|described| described.key.name == "log.retention.ms").unwrap();
        assert_eq!((described.value.as_deref(), described.source), (Some("4"), Source::DynamicBroker));
        let expected = [
            ("log.retention.ms", "4", Source::DynamicBroker),
            ("log.retention.ms", "5", Source::DynamicDefaultBroker),
            ("log.retention.ms", "9", Source::StaticBroker),
            ("log.retention.hours", "168", Source::Default),
        ];
        assert_eq!(chain(&described), expected);
        let of_topic = config.describe_topic(&Overrides::new(), layers).into_iter().find(|d| d.key.name == "retention.ms").unwrap();
        assert_eq!((of_topic.value.as_deref(), of_topic.source), (Some("4"), Source::DynamicBroker));
        let throttle = Overrides::from([("leader.replication.throttled.rate".to_owned(), "7".to_owned())]);
        let all_keys = config.describe_broker(Layers { all_brokers: None, own: Some(&throttle) });
        assert_eq!(all_keys.len(), keys::KEYS.len() + 1);
        assert_eq!(chain(all_keys.last().unwrap()), [("leader.replication.throttled.rate", "7", Source::DynamicBroker)]);
        let of_all = config.describe_all_brokers(layers);
        assert_eq!(of_all.iter().map(|d| (d.key.name, d.value.as_deref())).collect::<Vec<_>>(), [("log.retention.ms", Some("5"))]);
        assert_eq!(chain(&of_all[0]), [("log.retention.ms", "5", Source::DynamicDefaultBroker)]);
    }
}
