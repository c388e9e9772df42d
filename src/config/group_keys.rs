//! The keys of consumer groups (KIP-848): the server's, and THE table of configs that a group can have of its own.
//!
//! Names, ranges and the bounds that the server's keys set to a group's are Apache Kafka's (`GroupCoordinatorConfig`, `GroupConfig`).

use super::key::{
    Importance::Medium,
    InvalidValue, Key,
    Kind::{Int, List, String as Text},
    Valid::{AtLeast, OneOf, OneOfAnyCase},
    Value, markdown_table,
};
use std::collections::BTreeMap;

const INT_MAX: Option<&str> = Some("2147483647");
const ASSIGNORS: &[&str] = &["uniform", "range"];
/// The protocols that Kafka names; "streams" and "share" have no coordinator here.
const PROTOCOLS: &[&str] = &["consumer", "classic", "share", "streams"];
const MIGRATION_POLICIES: &[&str] = &["disabled", "downgrade", "upgrade", "bidirectional"];

/// The server's keys, in README's order.
pub(super) const SERVER_KEYS: &[Key] = &[
    Key::new(
        "group.consumer.session.timeout.ms",
        Int,
        Some("45000"),
        AtLeast(1),
        Medium,
        "How long a member of a consumer group (KIP-848) may be silent before it counts as gone.",
    ),
    Key::new(
        "group.consumer.min.session.timeout.ms",
        Int,
        Some("45000"),
        AtLeast(1),
        Medium,
        "The shortest consumer.session.timeout.ms that a group may be given.",
    ),
    Key::new(
        "group.consumer.max.session.timeout.ms",
        Int,
        Some("60000"),
        AtLeast(1),
        Medium,
        "The longest consumer.session.timeout.ms that a group may be given.",
    ),
    Key::new(
        "group.consumer.heartbeat.interval.ms",
        Int,
        Some("5000"),
        AtLeast(1),
        Medium,
        "How often a member of a consumer group is told to send heartbeats. The answer to one is held back until there is news or \
         another request comes on its connection, but never this long.",
    ),
    Key::new(
        "group.consumer.min.heartbeat.interval.ms",
        Int,
        Some("5000"),
        AtLeast(1),
        Medium,
        "The shortest consumer.heartbeat.interval.ms that a group may be given.",
    ),
    Key::new(
        "group.consumer.max.heartbeat.interval.ms",
        Int,
        Some("15000"),
        AtLeast(1),
        Medium,
        "The longest consumer.heartbeat.interval.ms that a group may be given.",
    ),
    Key::new(
        "group.consumer.max.size",
        Int,
        INT_MAX,
        AtLeast(1),
        Medium,
        "The most members that a consumer group takes; group.max.size is for classic groups.",
    ),
    Key::new(
        "group.consumer.assignment.interval.ms",
        Int,
        Some("1000"),
        AtLeast(0),
        Medium,
        "How long after a consumer group's assignment was computed the next one is, at the least (KIP-1263). Partitions that would have no owner \
         meanwhile don't wait for it.",
    ),
    Key::new(
        "group.consumer.min.assignment.interval.ms",
        Int,
        Some("0"),
        AtLeast(0),
        Medium,
        "The shortest consumer.assignment.interval.ms that a group may be given.",
    ),
    Key::new(
        "group.consumer.max.assignment.interval.ms",
        Int,
        Some("15000"),
        AtLeast(0),
        Medium,
        "The longest consumer.assignment.interval.ms that a group may be given.",
    ),
    Key::new(
        "group.consumer.assignors",
        List,
        Some("uniform,range"),
        OneOf(ASSIGNORS),
        Medium,
        "The assignors that members of consumer groups may ask for; the first is for those that ask for none.",
    ),
    Key::new(
        "group.consumer.migration.policy",
        Text,
        Some("bidirectional"),
        OneOfAnyCase(MIGRATION_POLICIES),
        Medium,
        "Whether a group with members may change from the classic protocol to KIP-848's (upgrade), back (downgrade), both or neither.",
    ),
    Key::new(
        "group.coordinator.rebalance.protocols",
        List,
        Some("classic,consumer,streams"),
        OneOf(PROTOCOLS),
        Medium,
        "The protocols of groups; without consumer, KIP-848's is refused. streams and share mean nothing here.",
    ),
];

/// A config that a group can have of its own, with the server's keys that it defaults to and is bounded by.
#[derive(Clone, Copy, Debug)]
pub struct GroupKey {
    pub key: Key,
    pub default: &'static str,
    pub min: &'static str,
    pub max: &'static str,
}

/// Every config that a group can have.
pub static GROUP_KEYS: &[GroupKey] = &[
    GroupKey {
        key: Key::new(
            "consumer.session.timeout.ms",
            Int,
            Some("45000"),
            AtLeast(1),
            Medium,
            "How long a member of the group may be silent before it counts as gone.",
        ),
        default: "group.consumer.session.timeout.ms",
        min: "group.consumer.min.session.timeout.ms",
        max: "group.consumer.max.session.timeout.ms",
    },
    GroupKey {
        key: Key::new(
            "consumer.heartbeat.interval.ms",
            Int,
            Some("5000"),
            AtLeast(1),
            Medium,
            "How often members of the group are told to send heartbeats.",
        ),
        default: "group.consumer.heartbeat.interval.ms",
        min: "group.consumer.min.heartbeat.interval.ms",
        max: "group.consumer.max.heartbeat.interval.ms",
    },
    GroupKey {
        key: Key::new(
            "consumer.assignment.interval.ms",
            Int,
            Some("1000"),
            AtLeast(0),
            Medium,
            "How long after the group's assignment was computed the next one is, at the least.",
        ),
        default: "group.consumer.assignment.interval.ms",
        min: "group.consumer.min.assignment.interval.ms",
        max: "group.consumer.max.assignment.interval.ms",
    },
];

/// The key of this name.
pub fn find(name: &str) -> Option<&'static GroupKey> {
    GROUP_KEYS.iter().find(|group| group.key.name == name)
}

/// Why a group's configs are refused (INVALID_CONFIG); the texts are Kafka's.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum InvalidGroupConfig {
    #[error("Unknown group config name: {0}")]
    Unknown(String),
    #[error(transparent)]
    Value(#[from] InvalidValue),
    #[error("{key} must be greater than or equal to {bound}")]
    BelowMin { key: &'static str, bound: &'static str },
    #[error("{key} must be less than or equal to {bound}")]
    AboveMax { key: &'static str, bound: &'static str },
    #[error("consumer.session.timeout.ms must be greater than consumer.heartbeat.interval.ms")]
    SessionTooShort,
}

/// A group's configs, resolved.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct GroupConfig {
    pub session_timeout_ms: i32,
    pub heartbeat_interval_ms: i32,
    pub assignment_interval_ms: i32,
}

/// What groups get where they override nothing, and within which bounds they may.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct GroupDefaults {
    /// Default, least and most of each group config.
    values: BTreeMap<&'static str, [i32; 3]>,
}

impl GroupDefaults {
    pub(super) fn from_server(int: impl Fn(&str) -> i32) -> Self {
        let row = |group: &GroupKey| (group.key.name, [int(group.default), int(group.min), int(group.max)]);
        Self { values: GROUP_KEYS.iter().map(row).collect() }
    }

    /// The value of a group that doesn't override it.
    pub fn get(&self, name: &str) -> Option<i32> {
        self.values.get(name).map(|[default, ..]| *default)
    }

    /// Whether the server's keys make sense together: what is wrong, if not.
    pub(super) fn check(&self) -> Result<(), String> {
        for group in GROUP_KEYS {
            let Some([default, min, max]) = self.values.get(group.key.name) else { continue };
            if max < min {
                return Err(format!("{} must be greater than or equal to {}", group.max, group.min));
            }
            if default < min {
                return Err(format!("{} must be greater than or equal to {}", group.default, group.min));
            }
            if default > max {
                return Err(format!("{} must be less than or equal to {}", group.default, group.max));
            }
        }
        let defaults = self.resolve_stored(&BTreeMap::new());
        if defaults.heartbeat_interval_ms >= defaults.session_timeout_ms {
            return Err("group.consumer.heartbeat.interval.ms must be less than group.consumer.session.timeout.ms".to_owned());
        }
        Ok(())
    }

    /// Checks a group's overrides one by one and together, and resolves them.
    pub fn resolve(&self, overrides: &BTreeMap<String, String>) -> Result<GroupConfig, InvalidGroupConfig> {
        for (name, text) in overrides {
            let Some(group) = find(name) else { return Err(InvalidGroupConfig::Unknown(name.chars().take(256).collect())) };
            let (Value::Integer(value), Some([_, min, max])) = (group.key.check(text)?, self.values.get(group.key.name)) else { continue };
            if value < i64::from(*min) {
                return Err(InvalidGroupConfig::BelowMin { key: group.key.name, bound: group.min });
            }
            if value > i64::from(*max) {
                return Err(InvalidGroupConfig::AboveMax { key: group.key.name, bound: group.max });
            }
        }
        let config = self.resolve_stored(overrides);
        if config.session_timeout_ms <= config.heartbeat_interval_ms {
            return Err(InvalidGroupConfig::SessionTooShort);
        }
        Ok(config)
    }

    /// For overrides that were checked when they were stored: those that the server's bounds no longer allow are moved to the next that they do.
    pub fn resolve_stored(&self, overrides: &BTreeMap<String, String>) -> GroupConfig {
        let value = |name: &str| {
            let [default, min, max] = self.values.get(name).copied().unwrap_or([1; 3]);
            let overridden = overrides.get(name).and_then(|text| text.trim().parse::<i32>().ok());
            overridden.map_or(default, |value| value.min(max).max(min))
        };
        GroupConfig {
            session_timeout_ms: value("consumer.session.timeout.ms"),
            heartbeat_interval_ms: value("consumer.heartbeat.interval.ms"),
            assignment_interval_ms: value("consumer.assignment.interval.ms"),
        }
    }
}

/// README's table of group configs.
pub fn markdown() -> String {
    let row = |group: &GroupKey| {
        let bounds = format!("from `{}` to `{}`", group.min, group.max);
        vec![format!("`{}`", group.key.name), format!("of `{}`", group.default), bounds, group.key.doc.to_owned()]
    };
    markdown_table(&["config", "default", "valid", "what it does"], GROUP_KEYS.iter().map(row))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn defaults() -> GroupDefaults {
        GroupDefaults::from_server(|name| SERVER_KEYS.iter().find(|key| key.name == name).unwrap().default.unwrap().parse().unwrap())
    }

    fn resolve(overrides: &[(&str, &str)]) -> Result<GroupConfig, String> {
        let overrides = overrides.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned())).collect();
        defaults().resolve(&overrides).map_err(|error| error.to_string())
    }

    #[test]
    fn a_groups_configs_lie_within_the_servers_bounds() {
        assert_eq!(defaults().check(), Ok(()));
        assert_eq!(
            resolve(&[]),
            Ok(GroupConfig { session_timeout_ms: 45_000, heartbeat_interval_ms: 5_000, assignment_interval_ms: 1_000 })
        );
        let own = resolve(&[
            ("consumer.session.timeout.ms", "50000"),
            ("consumer.heartbeat.interval.ms", "15000"),
            ("consumer.assignment.interval.ms", "0"),
        ]);
        assert_eq!(own, Ok(GroupConfig { session_timeout_ms: 50_000, heartbeat_interval_ms: 15_000, assignment_interval_ms: 0 }));
        let why = |name, value| resolve(&[(name, value)]).unwrap_err();
        assert_eq!(
            why("consumer.session.timeout.ms", "0"),
            "Invalid value 0 for configuration consumer.session.timeout.ms: Value must be at least 1"
        );
        let below = "consumer.session.timeout.ms must be greater than or equal to group.consumer.min.session.timeout.ms";
        assert_eq!(why("consumer.session.timeout.ms", "44999"), below);
        let above = "consumer.heartbeat.interval.ms must be less than or equal to group.consumer.max.heartbeat.interval.ms";
        assert_eq!(why("consumer.heartbeat.interval.ms", "15001"), above);
        assert_eq!(why("retention.ms", "1"), "Unknown group config name: retention.ms");
    }

    #[test]
    fn stored_configs_that_are_out_of_bounds_now_are_moved_into_them() {
        let overrides = BTreeMap::from([("consumer.session.timeout.ms".to_owned(), "90000".to_owned())]);
        assert_eq!(defaults().resolve_stored(&overrides).session_timeout_ms, 60_000);
    }
}
