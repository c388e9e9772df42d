//! What topics get where they override nothing, and how their overrides lie over that.

use super::{
    InvalidTopicConfig, Layers, TopicConfig, dynamic,
    key::Value,
    topic_keys::{TOPIC_KEYS, build, find},
};
use std::collections::BTreeMap;

/// What topics get where they override nothing: each topic config's value as the server's keys give it.
#[derive(Clone, PartialEq, Debug)]
pub struct TopicDefaults {
    values: BTreeMap<&'static str, Value>,
    /// The server keys that they're made from.
    server: BTreeMap<&'static str, (String, Value)>,
}

impl Default for TopicDefaults {
    fn default() -> Self {
        Self::from_server(BTreeMap::new())
    }
}

impl TopicDefaults {
    /// From the server keys that are set; those that are not take the table's defaults. Each value has been checked.
    pub(super) fn from_server(server: BTreeMap<&'static str, (String, Value)>) -> Self {
        let mut values = BTreeMap::new();
        for topic in TOPIC_KEYS {
            // A synonym of another unit that is set counts after one before it in the list, but before any default.
            let from_set = topic.synonyms.iter().find_map(|(name, unit)| Some(unit.convert(server.get(name)?.1.clone())));
            if let Some(value) = from_set.or_else(|| topic.key.check(topic.key.default?).ok()) {
                values.insert(topic.key.name, value);
            }
        }
        Self { values, server }
    }

    /// The same with layers over the server's keys.
    pub fn with_layers(&self, layers: Layers<'_>) -> Self {
        let mut server = self.server.clone();
        dynamic::lay_over(&mut server, layers);
        Self::from_server(server)
    }

    /// The value that a topic without an override has.
    pub fn get(&self, topic_key: &str) -> Option<&Value> {
        self.values.get(topic_key)
    }

    /// Checks a topic's overrides one by one and together, and resolves them over the defaults.
    pub fn resolve(&self, overrides: &BTreeMap<String, String>) -> Result<TopicConfig, InvalidTopicConfig> {
        for name in overrides.keys() {
            if find(name).is_none() {
                return Err(InvalidTopicConfig::Unknown(name.chars().take(256).collect()));
            }
        }
        let mut values = self.values.clone();
        for topic in TOPIC_KEYS {
            if let Some(text) = overrides.get(topic.key.name) {
                values.insert(topic.key.name, topic.key.check(text)?);
            }
        }
        if matches!(values.get("remote.storage.enable"), Some(Value::Boolean(true))) {
            return Err(InvalidTopicConfig::RemoteStorage);
        }
        let config = build(&values);
        if config.min_compaction_lag_ms > config.max_compaction_lag_ms {
            return Err(InvalidTopicConfig::CompactionLags { min: config.min_compaction_lag_ms, max: config.max_compaction_lag_ms });
        }
        Ok(config)
    }

    /// For overrides that were checked when they were stored: those that this version no longer takes fall back to the default.
    pub fn resolve_stored(&self, overrides: &BTreeMap<String, String>) -> TopicConfig {
        let kept = |(name, text): (&String, &String)| {
            let fine = find(name).is_some_and(|topic| topic.key.check(text).is_ok());
            fine.then(|| (name.clone(), text.clone()))
        };
        let kept: BTreeMap<String, String> = overrides.iter().filter_map(kept).collect();
        self.resolve(&kept).unwrap_or_else(|_| build(&self.values))
    }
}
