//! A broker's configs that change while it runs (`DynamicBrokerConfig`, KIP-226): which may, how they lie over what it was started with, and what
//! it goes by then. Pure.
//!
//! Two layers lie over the file, the environment and the flags: what was set on all brokers, and over it what was set on this one. A key that is
//! set takes the place of its other names (`log.retention.hours`) in the layers below.

use super::{
    ConfigError, LogCleanerConfig, ServerConfig, TopicDefaults,
    describe::family,
    dynamic_keys,
    key::{InvalidValue, Key, Value},
    keys,
    server::{Values, check_across_keys},
};
use std::collections::BTreeMap;

/// Configs as they were given, by key.
pub type Overrides = BTreeMap<String, String>;

/// What was set on brokers while they ran.
#[derive(Clone, Copy, Default)]
pub struct Layers<'a> {
    pub all_brokers: Option<&'a Overrides>,
    pub own: Option<&'a Overrides>,
}

impl<'a> Layers<'a> {
    /// The stronger last.
    pub(super) fn ascending(self) -> impl Iterator<Item = &'a Overrides> {
        [self.all_brokers, self.own].into_iter().flatten()
    }
}

/// What a broker goes by, of the configs that can change.
#[derive(Clone, PartialEq, Debug)]
pub struct Dynamic {
    pub log_cleaner: LogCleanerConfig,
    pub topic_defaults: TopicDefaults,
    pub producer_id_expiration_ms: i64,
    pub num_recovery_threads_per_data_dir: usize,
    pub transaction_partition_verification_enable: bool,
    /// How many bytes a second moves between data directories copy; `None` is no bound.
    pub moves_bytes_per_second: Option<i64>,
}

/// Why configs were not set (INVALID_REQUEST); the texts are Kafka's.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum InvalidDynamic {
    #[error("Cannot update these configs dynamically: [{0}]")]
    NotDynamic(String),
    #[error(transparent)]
    Value(#[from] InvalidValue),
    #[error("{0}")]
    Together(String),
}

/// The key of this name, if it can change while a broker runs.
pub fn find(name: &str) -> Option<&'static Key> {
    keys::find(name).or_else(|| dynamic_keys::find(name)).filter(|key| key.dynamic)
}

/// Puts layers over values: a key that is set takes the place of all of its names.
pub(super) fn lay_over(set: &mut BTreeMap<&'static str, (String, Value)>, layers: Layers<'_>) {
    for (name, text) in layers.ascending().flatten() {
        // What was stored by a version that took more falls back to what is below.
        let Some((key, value)) = find(name).and_then(|key| Some((key, key.check(text).ok()?))) else { continue };
        family(key.name).iter().for_each(|name| _ = set.remove(name));
        set.insert(key.name, (text.clone(), value));
    }
}

impl ServerConfig {
    /// What the broker goes by with these layers over what it was started with.
    pub fn with_layers(&self, layers: Layers<'_>) -> Result<Dynamic, ConfigError> {
        let given = |(name, text): (&&'static str, &String)| {
            let value = keys::find(name)?.check(text).ok()?;
            Some((*name, (text.clone(), value)))
        };
        let mut set = self.set.iter().filter_map(given).collect();
        lay_over(&mut set, layers);
        let values = Values(&set);
        check_across_keys(&values)?;
        let log_cleaner = LogCleanerConfig::of(&values);
        let (producer_id_expiration_ms, recovery) =
            (values.number("producer.id.expiration.ms"), values.size("num.recovery.threads.per.data.dir"));
        let transaction_partition_verification_enable = values.flag("transaction.partition.verification.enable");
        let moves_bytes_per_second = values.integer(dynamic_keys::MOVES);
        let topic_defaults = TopicDefaults::from_server(set);
        topic_defaults.resolve(&BTreeMap::new()).map_err(|error| ConfigError::Check(error.to_string()))?;
        Ok(Dynamic {
            log_cleaner,
            topic_defaults,
            producer_id_expiration_ms,
            num_recovery_threads_per_data_dir: recovery,
            transaction_partition_verification_enable,
            moves_bytes_per_second,
        })
    }

    /// Whether `new`, one of the layers as it will be, can be put in the place of what is set now.
    pub fn check_layers(&self, new: &Overrides, now: Layers<'_>, then: Layers<'_>) -> Result<(), InvalidDynamic> {
        let refused: Vec<_> = new.keys().filter(|name| find(name).is_none()).map(|name| shown(name)).collect();
        if !refused.is_empty() {
            return Err(InvalidDynamic::NotDynamic(refused.join(", ")));
        }
        new.iter().filter_map(|(name, text)| Some(find(name)?.check(text))).try_for_each(|checked| checked.map(drop))?;
        let together = |error: ConfigError| InvalidDynamic::Together(error.to_string());
        let (now, then) = (self.with_layers(now).map_err(together)?, self.with_layers(then).map_err(together)?);
        check_cleaner_threads(now.log_cleaner.threads, then.log_cleaner.threads)
            .and_then(|()| check_recovery_threads(now.num_recovery_threads_per_data_dir, then.num_recovery_threads_per_data_dir))
            .map_err(InvalidDynamic::Together)
    }
}

/// `LogCleaner.validateReconfiguration`
fn check_cleaner_threads(current: usize, wanted: usize) -> Result<(), String> {
    if wanted == current {
        Ok(())
    } else if wanted < 1 {
        Err("Log cleaner threads should be at least 1".to_owned())
    } else if wanted < current / 2 {
        Err(format!("Log cleaner threads cannot be reduced to less than half the current value {current}"))
    } else if wanted > current.saturating_mul(2) {
        Err(format!("Log cleaner threads cannot be increased to more than double the current value {current}"))
    } else {
        Ok(())
    }
}

/// `DynamicThreadPool.validateReconfiguration`
fn check_recovery_threads(current: usize, wanted: usize) -> Result<(), String> {
    let refuse = |why: &str| {
        Err(format!(
            "Dynamic thread count update validation failed for num.recovery.threads.per.data.dir={wanted}, value should {why} the current value {current}"
        ))
    };
    if wanted < current / 2 {
        refuse("be at least half")
    } else if wanted > current.saturating_mul(2) {
        refuse("not be greater than double")
    } else {
        Ok(())
    }
}

/// A peer's text in a message: not more of it than helps.
fn shown(name: &str) -> String {
    name.chars().take(256).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::Sources;

    fn config(flags: &[&str]) -> ServerConfig {
        let flags = flags.iter().map(|flag| (*flag).to_owned()).collect();
        ServerConfig::load(&Sources { flags, ..Sources::default() }).unwrap().config
    }

    fn set(all: &[(&str, &str)]) -> Overrides {
        all.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned())).collect()
    }

    fn check(config: &ServerConfig, now: &Overrides, new: &Overrides) -> Result<(), String> {
        let (now, then) = (Layers { own: Some(now), ..Layers::default() }, Layers { own: Some(new), ..Layers::default() });
        config.check_layers(new, now, then).map_err(|error| error.to_string())
    }

    #[test]
    fn a_brokers_own_lies_over_all_brokers_and_both_over_the_file() {
        let config = config(&["log.retention.hours=1", "log.cleaner.threads=3", "log.segment.bytes=2000000"]);
        let (all, own) = (set(&[("log.retention.ms", "7"), ("log.cleaner.threads", "4")]), set(&[("log.cleaner.threads", "5")]));
        let of = |layers| {
            let dynamic = config.with_layers(layers).unwrap();
            let topic = dynamic.topic_defaults.resolve(&BTreeMap::new()).unwrap();
            (dynamic.log_cleaner.threads, topic.retention_ms, topic.segment_bytes)
        };
        assert_eq!(of(Layers::default()), (3, 3_600_000, 2_000_000));
        assert_eq!(of(Layers { all_brokers: Some(&all), own: None }), (4, 7, 2_000_000));
        assert_eq!(of(Layers { all_brokers: Some(&all), own: Some(&own) }), (5, 7, 2_000_000));
        let stale = set(&[("log.retention.ms", "soon"), ("node.id", "9"), ("no.such", "1")]);
        assert_eq!(of(Layers { all_brokers: Some(&stale), own: None }), (3, 3_600_000, 2_000_000));
    }

    #[test]
    fn moves_have_no_bound_until_one_is_set() {
        let (config, moves) = (config(&[]), |config: &ServerConfig, layers| config.with_layers(layers).unwrap().moves_bytes_per_second);
        assert_eq!(moves(&config, Layers::default()), None);
        let all = set(&[("replica.alter.log.dirs.io.max.bytes.per.second", "77")]);
        assert_eq!(moves(&config, Layers { all_brokers: Some(&all), own: None }), Some(77));
    }

    #[test]
    fn what_cannot_be_is_refused_as_in_kafka() {
        let (config, none) = (config(&["log.cleaner.threads=4"]), Overrides::new());
        let why = |name: &str, value: &str| check(&config, &none, &set(&[(name, value)])).unwrap_err();
        assert_eq!(why("node.id", "2"), "Cannot update these configs dynamically: [node.id]");
        assert_eq!(why("max.connections", "2"), "Cannot update these configs dynamically: [max.connections]");
        assert_eq!(why("log.retention.ms", "x"), "Invalid value x for configuration log.retention.ms: Not a number of type LONG");
        assert_eq!(why("log.retention.ms", "0"), "log.retention.ms must be unlimited (-1) or, greater than or equal to 1");
        assert_eq!(why("log.cleaner.threads", "0"), "Log cleaner threads should be at least 1");
        assert_eq!(why("log.cleaner.threads", "1"), "Log cleaner threads cannot be reduced to less than half the current value 4");
        assert_eq!(why("log.cleaner.threads", "9"), "Log cleaner threads cannot be increased to more than double the current value 4");
        assert!(why("num.recovery.threads.per.data.dir", "5").ends_with("should not be greater than double the current value 2"));
        let (now, then) = (set(&[("num.recovery.threads.per.data.dir", "4")]), set(&[("num.recovery.threads.per.data.dir", "1")]));
        assert!(check(&config, &now, &then).unwrap_err().ends_with("should be at least half the current value 4"));
        assert_eq!(check(&config, &none, &set(&[("leader.replication.throttled.rate", "0"), ("producer.id.expiration.ms", "1")])), Ok(()));
        assert_eq!(check(&config, &none, &set(&[("log.cleaner.threads", "8"), ("log.cleaner.backoff.ms", "1")])), Ok(()));
        assert_eq!(check(&config, &set(&[("log.cleaner.threads", "8")]), &none), Ok(()));
    }
}
