//! The broker's configuration, typed and checked: what every other module takes its settings from.
//!
//! Built once from [`Sources`]; reads and opens nothing.

use super::{
    group_keys::GroupDefaults,
    key::Value,
    keys,
    listeners::{self, HostPort, Listener, ListenerKeys},
    sources::{ConfigError, Sources, gather},
    topic_defaults::TopicDefaults,
};
use crate::types::BrokerId;
use std::{collections::BTreeMap, path::PathBuf};

/// Every setting in its type. Field names follow the keys; units end the name.
#[derive(Clone, Debug)]
pub struct ServerConfig {
    pub node_id: BrokerId,
    pub rack: Option<String>,
    pub listeners: Vec<Listener>,
    /// Empty: HTTP is off.
    pub http_listeners: Vec<HostPort>,
    pub log_dirs: Vec<PathBuf>,
    pub metadata_log_dir: PathBuf,
    pub max_connections: usize,
    pub max_connections_per_ip: usize,
    /// `None`: connections may idle for ever.
    pub connections_max_idle_ms: Option<u64>,
    pub socket_request_max_bytes: usize,
    /// `None`: no bound.
    pub queued_max_request_bytes: Option<usize>,
    pub fetch_max_bytes: usize,
    pub max_incremental_fetch_session_cache_slots: usize,
    pub max_request_partition_size_limit: usize,
    pub num_partitions: i32,
    pub default_replication_factor: i16,
    pub auto_create_topics_enable: bool,
    pub delete_topic_enable: bool,
    pub producer_id_expiration_ms: i64,
    pub num_recovery_threads_per_data_dir: usize,
    pub log_flush_offset_checkpoint_interval_ms: i64,
    pub group_min_session_timeout_ms: i32,
    pub group_max_session_timeout_ms: i32,
    pub group_initial_rebalance_delay_ms: i32,
    pub group_max_size: usize,
    pub group_classic_heartbeat_hold_max_ms: i32,
    pub group_consumer: GroupConsumerConfig,
    pub offset_metadata_max_bytes: usize,
    pub offsets_retention_minutes: i64,
    pub offsets_retention_check_interval_ms: i64,
    pub offsets_topic_num_partitions: i32,
    pub offsets_topic_replication_factor: i16,
    pub offsets_topic_segment_bytes: i64,
    pub lag_metrics: LagMetricsConfig,
    /// 0: appends may use up the disk.
    pub log_dir_min_free_bytes: u64,
    pub log_cleaner: LogCleanerConfig,
    pub transactions: TransactionConfig,
    pub transaction_partition_verification_enable: bool,
    pub log_retention_check_interval_ms: i64,
    pub log_initial_task_delay_ms: i64,
    /// What topics get where they override nothing.
    pub topic_defaults: TopicDefaults,
    /// The keys that were set: their text as it was given, for DescribeConfigs.
    pub set: BTreeMap<&'static str, String>,
}

/// The `log.cleaner` keys that are not topics' defaults.
#[derive(Clone, PartialEq, Debug)]
pub struct LogCleanerConfig {
    pub enable: bool,
    pub threads: usize,
    pub dedupe_buffer_bytes: usize,
    pub io_buffer_load_factor: f64,
    pub io_buffer_bytes: usize,
    pub io_max_bytes_per_second: f64,
    pub backoff_ms: u64,
}

impl LogCleanerConfig {
    pub(super) fn of(values: &Values<'_>) -> Self {
        Self {
            enable: values.flag("log.cleaner.enable"),
            threads: values.size("log.cleaner.threads"),
            dedupe_buffer_bytes: values.size("log.cleaner.dedupe.buffer.size"),
            io_buffer_load_factor: values.double("log.cleaner.io.buffer.load.factor"),
            io_buffer_bytes: values.size("log.cleaner.io.buffer.size"),
            io_max_bytes_per_second: values.double("log.cleaner.io.max.bytes.per.second"),
            backoff_ms: u64::try_from(values.number("log.cleaner.backoff.ms")).unwrap_or_default(),
        }
    }
}

/// The `lag.metrics` keys. The patterns are regular expressions that compile.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct LagMetricsConfig {
    pub max_series: usize,
    pub group_include: String,
    pub group_exclude: String,
    pub topic_include: String,
    pub topic_exclude: String,
    pub kafka_lag_exporter: bool,
}

impl LagMetricsConfig {
    fn of(values: &Values<'_>) -> Result<Self, ConfigError> {
        let pattern = |name: &str| {
            let text = values.text(name).unwrap_or_default();
            match regex::Regex::new(&text) {
                Ok(_) => Ok(text),
                Err(error) => Err(check(format!("{name} is no regular expression: {error}"))),
            }
        };
        Ok(Self {
            max_series: values.size("lag.metrics.max.series"),
            group_include: pattern("lag.metrics.group.include")?,
            group_exclude: pattern("lag.metrics.group.exclude")?,
            topic_include: pattern("lag.metrics.topic.include")?,
            topic_exclude: pattern("lag.metrics.topic.exclude")?,
            kafka_lag_exporter: values.text("lag.metrics.compat").is_some_and(|names| !names.is_empty()),
        })
    }
}

/// The `group.consumer` keys: of groups that speak KIP-848's protocol.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct GroupConsumerConfig {
    /// `group.coordinator.rebalance.protocols` names `consumer`.
    pub enabled: bool,
    pub max_size: usize,
    /// The names of the assignors; the first is the default.
    pub assignors: Vec<String>,
    pub migration_policy: String,
    /// What groups get where they override nothing.
    pub defaults: GroupDefaults,
}

impl GroupConsumerConfig {
    fn of(values: &Values<'_>) -> Result<Self, ConfigError> {
        let assignors = match values.get("group.consumer.assignors") {
            Some(Value::List(names)) if !names.is_empty() => names,
            _ => return Err(check("group.consumer.assignors must name an assignor")),
        };
        let defaults = GroupDefaults::from_server(|name| values.int(name));
        defaults.check().map_err(check)?;
        let protocols = values.get("group.coordinator.rebalance.protocols");
        Ok(Self {
            enabled: matches!(protocols, Some(Value::List(names)) if names.iter().any(|name| name == "consumer")),
            max_size: values.size("group.consumer.max.size"),
            assignors,
            migration_policy: values.text("group.consumer.migration.policy").unwrap_or_default().to_lowercase(),
            defaults,
        })
    }
}

/// The keys of the transaction coordinator.
#[derive(Clone, PartialEq, Debug)]
pub struct TransactionConfig {
    pub max_timeout_ms: i32,
    pub id_expiration_ms: i64,
    pub abort_timed_out_interval_ms: i64,
    pub remove_expired_interval_ms: i64,
    pub state_log_num_partitions: i32,
    pub state_log_replication_factor: i16,
    pub state_log_min_isr: i32,
    pub state_log_segment_bytes: i64,
    pub add_partitions_retry_backoff_ms: i64,
    pub add_partitions_retry_backoff_max_ms: i64,
}

impl TransactionConfig {
    fn of(values: &Values<'_>) -> Self {
        Self {
            max_timeout_ms: values.int("transaction.max.timeout.ms"),
            id_expiration_ms: values.number("transactional.id.expiration.ms"),
            abort_timed_out_interval_ms: values.number("transaction.abort.timed.out.transaction.cleanup.interval.ms"),
            remove_expired_interval_ms: values.number("transaction.remove.expired.transaction.cleanup.interval.ms"),
            state_log_num_partitions: values.int("transaction.state.log.num.partitions"),
            state_log_replication_factor: i16::try_from(values.number("transaction.state.log.replication.factor")).unwrap_or(i16::MAX),
            state_log_min_isr: values.int("transaction.state.log.min.isr"),
            state_log_segment_bytes: values.number("transaction.state.log.segment.bytes"),
            add_partitions_retry_backoff_ms: values.number("add.partitions.to.txn.retry.backoff.ms"),
            add_partitions_retry_backoff_max_ms: values.number("add.partitions.to.txn.retry.backoff.max.ms"),
        }
    }
}

/// A configuration and what its operator should be told of it (unknown keys).
#[derive(Clone, Debug)]
pub struct Loaded {
    pub config: ServerConfig,
    pub warnings: Vec<String>,
}

impl Default for ServerConfig {
    /// With nothing set.
    fn default() -> Self {
        // The table's defaults are valid: `the_defaults_are_valid` tests it.
        Self::build(&BTreeMap::new(), "localhost").unwrap_or_else(|error| unreachable!("{error}"))
    }
}

impl ServerConfig {
    /// Reads flags over environment over file over the table's defaults, and checks them one by one and together.
    pub fn load(sources: &Sources) -> Result<Loaded, ConfigError> {
        let gathered = gather(sources)?;
        let config = Self::build(&gathered.set, &sources.host_name)?;
        Ok(Loaded { config, warnings: gathered.warnings })
    }

    fn build(set: &BTreeMap<&'static str, (String, Value)>, host_name: &str) -> Result<Self, ConfigError> {
        let values = Values(set);
        check_across_keys(&values)?;
        let log_dirs = paths(values.text("log.dirs").or_else(|| values.text("log.dir")).unwrap_or_default());
        let first =
            log_dirs.first().cloned().ok_or_else(|| check("At least one log directory must be defined via log.dirs or log.dir."))?;
        let protocols = values.text("listener.security.protocol.map").unwrap_or_default();
        let topic_defaults = TopicDefaults::from_server(set.clone());
        topic_defaults.resolve(&BTreeMap::new()).map_err(|error| check(error.to_string()))?;
        Ok(Self {
            node_id: BrokerId(node_id(&values)?),
            rack: values.text("broker.rack").filter(|rack| !rack.is_empty()),
            listeners: listeners::parse(&ListenerKeys {
                listeners: &values.text("listeners").unwrap_or_default(),
                advertised: values.text("advertised.listeners").as_deref().filter(|text| !text.is_empty()),
                protocols: &protocols,
                controllers: &values.text("controller.listener.names").unwrap_or_default(),
                host_name,
            })?,
            http_listeners: listeners::parse_http(&values.text("http.listeners").unwrap_or_default())?,
            metadata_log_dir: values.text("metadata.log.dir").filter(|dir| !dir.is_empty()).map_or(first, PathBuf::from),
            log_dirs,
            max_connections: values.size("max.connections"),
            max_connections_per_ip: values.size("max.connections.per.ip"),
            connections_max_idle_ms: u64::try_from(values.number("connections.max.idle.ms")).ok(),
            socket_request_max_bytes: values.size("socket.request.max.bytes"),
            queued_max_request_bytes: Some(values.size("queued.max.request.bytes")).filter(|bytes| *bytes > 0),
            fetch_max_bytes: values.size("fetch.max.bytes"),
            max_incremental_fetch_session_cache_slots: values.size("max.incremental.fetch.session.cache.slots"),
            max_request_partition_size_limit: values.size("max.request.partition.size.limit"),
            num_partitions: i32::try_from(values.number("num.partitions")).unwrap_or(1),
            default_replication_factor: i16::try_from(values.number("default.replication.factor")).unwrap_or(i16::MAX),
            auto_create_topics_enable: values.flag("auto.create.topics.enable"),
            delete_topic_enable: values.flag("delete.topic.enable"),
            producer_id_expiration_ms: values.number("producer.id.expiration.ms"),
            num_recovery_threads_per_data_dir: values.size("num.recovery.threads.per.data.dir"),
            log_flush_offset_checkpoint_interval_ms: values.number("log.flush.offset.checkpoint.interval.ms"),
            group_min_session_timeout_ms: values.int("group.min.session.timeout.ms"),
            group_max_session_timeout_ms: values.int("group.max.session.timeout.ms"),
            group_initial_rebalance_delay_ms: values.int("group.initial.rebalance.delay.ms"),
            group_max_size: values.size("group.max.size"),
            group_classic_heartbeat_hold_max_ms: values.int("group.classic.heartbeat.hold.max.ms"),
            group_consumer: GroupConsumerConfig::of(&values)?,
            offset_metadata_max_bytes: values.size("offset.metadata.max.bytes"),
            offsets_retention_minutes: values.number("offsets.retention.minutes"),
            offsets_retention_check_interval_ms: values.number("offsets.retention.check.interval.ms"),
            offsets_topic_num_partitions: values.int("offsets.topic.num.partitions"),
            offsets_topic_replication_factor: i16::try_from(values.number("offsets.topic.replication.factor")).unwrap_or(i16::MAX),
            offsets_topic_segment_bytes: values.number("offsets.topic.segment.bytes"),
            lag_metrics: LagMetricsConfig::of(&values)?,
            log_dir_min_free_bytes: u64::try_from(values.number("log.dir.min.free.bytes")).unwrap_or(0),
            log_cleaner: LogCleanerConfig::of(&values),
            transactions: TransactionConfig::of(&values),
            transaction_partition_verification_enable: values.flag("transaction.partition.verification.enable"),
            log_retention_check_interval_ms: values.number("log.retention.check.interval.ms"),
            log_initial_task_delay_ms: values.number("log.initial.task.delay.ms"),
            topic_defaults,
            set: set.iter().map(|(name, (text, _))| (*name, text.clone())).collect(),
        })
    }

    /// A key's value as DescribeConfigs shows it: parsed and printed again; `None` where it is null.
    pub fn value_text(&self, name: &str) -> Option<String> {
        // The two names of a broker's id are one value.
        if name == "node.id" || name == "broker.id" {
            return Some(self.node_id.to_string());
        }
        let key = keys::find(name)?;
        let text = self.set.get(name).map(String::as_str).or(key.default)?;
        Some(key.check(text).map_or_else(|_| text.to_owned(), |value| value.text()))
    }
}

fn check(text: impl Into<String>) -> ConfigError {
    ConfigError::Check(text.into())
}

fn paths(list: String) -> Vec<PathBuf> {
    list.split(',').map(str::trim).filter(|dir| !dir.is_empty()).map(PathBuf::from).collect()
}

/// The values that are set over the table's defaults.
pub(super) struct Values<'a>(pub &'a BTreeMap<&'static str, (String, Value)>);

impl Values<'_> {
    fn get(&self, name: &str) -> Option<Value> {
        if let Some((_, value)) = self.0.get(name) {
            return Some(value.clone());
        }
        let key = keys::find(name)?;
        key.check(key.default?).ok()
    }

    fn text(&self, name: &str) -> Option<String> {
        self.get(name).map(|value| value.text())
    }

    pub(super) fn integer(&self, name: &str) -> Option<i64> {
        match self.get(name) {
            Some(Value::Integer(n)) => Some(n),
            _ => None,
        }
    }

    /// Of a key that has a default.
    pub(super) fn number(&self, name: &str) -> i64 {
        self.integer(name).unwrap_or_default()
    }

    /// Of a key of type int, which has a default.
    fn int(&self, name: &str) -> i32 {
        i32::try_from(self.number(name)).unwrap_or_default()
    }

    /// A number that is a count or bytes; negative is 0.
    pub(super) fn size(&self, name: &str) -> usize {
        usize::try_from(self.number(name)).unwrap_or_default()
    }

    /// Of a key that has a default.
    fn double(&self, name: &str) -> f64 {
        match self.get(name) {
            Some(Value::Double(d)) => d,
            _ => f64::NAN,
        }
    }

    pub(super) fn flag(&self, name: &str) -> bool {
        self.get(name) == Some(Value::Boolean(true))
    }
}

fn node_id(values: &Values<'_>) -> Result<i32, ConfigError> {
    let both_set = values.0.contains_key("node.id") && values.0.contains_key("broker.id");
    if both_set && values.integer("node.id") != values.integer("broker.id") {
        return Err(check("You must set `node.id` to the same value as `broker.id`."));
    }
    let id = if values.0.contains_key("node.id") { None } else { values.integer("broker.id") };
    let id = id.unwrap_or_else(|| values.number("node.id"));
    i32::try_from(id).map_err(|_| check("node.id does not fit"))
}

/// `KafkaConfig.validateValues`.
pub(super) fn check_across_keys(values: &Values<'_>) -> Result<(), ConfigError> {
    if values.integer("log.roll.ms").is_some_and(|ms| ms < 1) {
        return Err(check("log.roll.ms must be greater than or equal to 1"));
    }
    if values.integer("log.roll.jitter.ms").is_some_and(|ms| ms < 0) {
        return Err(check("log.roll.jitter.ms must be greater than or equal to 0"));
    }
    for key in ["log.retention.ms", "log.retention.minutes", "log.retention.hours"] {
        if values.integer(key).is_some_and(|time| time == 0 || time < -1) {
            return Err(check(format!("{key} must be unlimited (-1) or, greater than or equal to 1")));
        }
    }
    let queued = values.number("queued.max.request.bytes");
    if queued > 0 && queued < values.number("socket.request.max.bytes") {
        return Err(check("queued.max.request.bytes must be larger or equal to socket.request.max.bytes"));
    }
    let threads = values.number("log.cleaner.threads").max(1);
    if values.number("log.cleaner.dedupe.buffer.size").checked_div(threads).is_none_or(|bytes| bytes <= 1 << 20) {
        return Err(check("log.cleaner.dedupe.buffer.size must be at least 1MB per cleaner thread."));
    }
    if !(values.double("log.cleaner.io.buffer.load.factor") > 0.0 && values.double("log.cleaner.io.buffer.load.factor") <= 1.0) {
        return Err(check("log.cleaner.io.buffer.load.factor must be above 0 and at most 1"));
    }
    if values.number("max.connections.per.ip") == 0 {
        return Err(check("max.connections.per.ip can be set to zero only if max.connections.per.ip.overrides property is set."));
    }
    if values.number("group.min.session.timeout.ms") > values.number("group.max.session.timeout.ms") {
        return Err(check("group.max.session.timeout.ms must be greater than or equal to group.min.session.timeout.ms"));
    }
    if values.number("default.replication.factor") < 1 {
        return Err(check("default.replication.factor must be greater than or equal to 1"));
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn load(flags: &[&str]) -> Result<ServerConfig, String> {
        let flags = flags.iter().map(|flag| (*flag).to_owned()).collect();
        let sources = Sources { flags, host_name: "box".to_owned(), ..Sources::default() };
        ServerConfig::load(&sources).map(|loaded| loaded.config).map_err(|error| error.to_string())
    }

    #[test]
    fn the_defaults_are_valid() {
        for key in keys::KEYS.iter() {
            if let Some(default) = key.default {
                assert_eq!(key.check(default).map(|value| value.text()), Ok(default.to_owned()), "{}", key.name);
            }
        }
        let config = load(&[]).unwrap();
        assert_eq!(config.listeners.len(), 1);
        assert_eq!(config.listeners[0].advertised.to_string(), "127.0.0.1:9092");
        assert_eq!(config.http_listeners[0].to_string(), "127.0.0.1:9308");
        assert_eq!(config.log_dirs, [PathBuf::from("./highwater-data")]);
        assert_eq!(config.metadata_log_dir, PathBuf::from("./highwater-data"));
        assert_eq!(config.node_id, BrokerId(1));
        assert_eq!(config.connections_max_idle_ms, Some(600_000));
        assert_eq!(config.queued_max_request_bytes, None);
        assert_eq!((config.fetch_max_bytes, config.socket_request_max_bytes), (57_671_680, 104_857_600));
        assert_eq!((config.num_partitions, config.default_replication_factor), (1, 1));
        let cleaner = &config.log_cleaner;
        assert!(cleaner.enable && cleaner.threads == 1 && cleaner.dedupe_buffer_bytes == 128 << 20);
        assert!(cleaner.io_buffer_load_factor == 0.9 && cleaner.io_max_bytes_per_second == f64::MAX && cleaner.backoff_ms == 15_000);
        assert!(config.auto_create_topics_enable && config.delete_topic_enable);
        assert_eq!(config.topic_defaults, TopicDefaults::default());
    }

    #[test]
    fn names_in_the_table_are_unique() {
        let mut names: Vec<&str> = keys::KEYS.iter().map(|key| key.name).collect();
        names.sort_unstable();
        assert!(names.windows(2).all(|pair| pair[0] != pair[1]));
    }

    #[test]
    fn every_way_to_say_where_the_data_lies() {
        assert_eq!(load(&["log.dir=/a"]).unwrap().log_dirs, [PathBuf::from("/a")]);
        let config = load(&["log.dir=/a", "log.dirs= /b , /c", "metadata.log.dir=/m"]).unwrap();
        assert_eq!(config.log_dirs, [PathBuf::from("/b"), PathBuf::from("/c")]);
        assert_eq!(config.metadata_log_dir, PathBuf::from("/m"));
        assert!(load(&["log.dirs="]).unwrap_err().contains("At least one log directory"));
    }

    #[test]
    fn checks_across_keys_are_kafkas() {
        let why = |flags: &[&str]| load(flags).unwrap_err();
        assert!(why(&["log.roll.ms=0"]).contains("log.roll.ms must be greater than or equal to 1"));
        assert!(why(&["log.roll.jitter.ms=-1"]).contains("log.roll.jitter.ms must be greater"));
        assert!(why(&["log.retention.hours=0"]).contains("log.retention.hours must be unlimited (-1)"));
        assert!(why(&["queued.max.request.bytes=10"]).contains("must be larger or equal to socket.request.max.bytes"));
        assert!(why(&["max.connections.per.ip=0"]).contains("can be set to zero only if"));
        assert!(why(&["group.min.session.timeout.ms=9", "group.max.session.timeout.ms=8"]).contains("must be greater than or equal"));
        assert!(why(&["group.consumer.heartbeat.interval.ms=4000"]).contains("greater than or equal to group.consumer.min.heartbeat"));
        assert!(why(&["group.consumer.max.session.timeout.ms=9"]).contains("greater than or equal to group.consumer.min.session"));
        assert!(why(&["group.consumer.assignors="]).contains("must name an assignor"));
        assert!(why(&["node.id=1", "broker.id=2"]).contains("You must set `node.id`"));
        assert!(why(&["log.cleaner.min.compaction.lag.ms=9", "log.cleaner.max.compaction.lag.ms=8"]).contains("conflict topic config"));
        assert!(why(&["log.cleaner.threads=128"]).contains("at least 1MB per cleaner thread"));
        assert!(why(&["log.cleaner.io.buffer.load.factor=1.5"]).contains("at most 1"));
        assert_eq!(load(&["broker.id=7"]).unwrap().node_id, BrokerId(7));
        assert_eq!(load(&["connections.max.idle.ms=-1"]).unwrap().connections_max_idle_ms, None);
        assert_eq!(load(&["queued.max.request.bytes=209715200"]).unwrap().queued_max_request_bytes, Some(209_715_200));
    }

    /// What stands in the server.properties that Apache Kafka 4 is shipped with starts this broker, too.
    #[test]
    fn kafkas_own_example_is_understood() {
        let text = "process.roles=broker,controller\nnode.id=1\ncontroller.quorum.bootstrap.servers=localhost:9093\n\
            listeners=PLAINTEXT://:9092,CONTROLLER://:9093\ninter.broker.listener.name=PLAINTEXT\n\
            advertised.listeners=PLAINTEXT://localhost:9092,CONTROLLER://localhost:9093\ncontroller.listener.names=CONTROLLER\n\
            listener.security.protocol.map=CONTROLLER:PLAINTEXT,PLAINTEXT:PLAINTEXT,SSL:SSL\nnum.network.threads=3\nnum.io.threads=8\n\
            socket.send.buffer.bytes=102400\nsocket.request.max.bytes=104857600\nlog.dirs=/tmp/kraft-combined-logs\nnum.partitions=1\n\
            num.recovery.threads.per.data.dir=2\noffsets.topic.replication.factor=1\nshare.coordinator.state.topic.min.isr=1\n\
            transaction.state.log.min.isr=1\nlog.retention.hours=168\nlog.segment.bytes=1073741824\n\
            log.retention.check.interval.ms=300000\n";
        let sources = Sources { file: Some(("server.properties".to_owned(), text.to_owned())), ..Sources::default() };
        let loaded = ServerConfig::load(&sources).unwrap();
        let all: Vec<String> =
            loaded.config.listeners.iter().map(|listener| format!("{} {}", listener.bind, listener.advertised)).collect();
        assert_eq!(all, [":9092 localhost:9092"]);
        assert!(loaded.warnings.iter().all(|warning| warning.ends_with("is not used by highwater")), "{:?}", loaded.warnings);
        assert_eq!(loaded.warnings.len(), 7);
    }

    #[test]
    fn patterns_of_metrics_are_checked_at_once() {
        let config = load(&["lag.metrics.group.exclude=^console-consumer-", "lag.metrics.compat=kafka-lag-exporter"]).unwrap().lag_metrics;
        assert!(config.kafka_lag_exporter && config.group_exclude == "^console-consumer-" && config.group_include == ".*");
        assert!(!load(&[]).unwrap().lag_metrics.kafka_lag_exporter);
        assert!(load(&["lag.metrics.topic.include=("]).unwrap_err().contains("lag.metrics.topic.include is no regular expression"));
        assert!(load(&["lag.metrics.compat=burrow"]).is_err());
    }

    #[test]
    fn server_keys_are_the_topics_defaults() {
        let config = load(&["log.retention.hours=1", "message.max.bytes=5000", "log.flush.scheduler.interval.ms=7"]).unwrap();
        let topic = config.topic_defaults.resolve(&BTreeMap::new()).unwrap();
        assert_eq!((topic.retention_ms, topic.max_message_bytes, topic.flush_ms), (3_600_000, 5000, 7));
    }

    #[test]
    fn the_readme_tables_have_a_row_for_each_key() {
        let tables = keys::markdown() + &super::super::topic_keys::markdown();
        for key in keys::KEYS.iter() {
            assert!(tables.contains(&format!("| `{}` |", key.name)), "{}", key.name);
        }
        assert!(tables.contains("| `log.roll.hours` | int | `168` | [1,...] | `segment.ms` | log.roll.ms in hours. |"));
        assert!(tables.contains("| `segment.ms` | long | of `log.roll.ms` | [1,...] | A segment older"));
    }
}
