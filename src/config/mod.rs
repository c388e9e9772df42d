//! Configuration: one table of keys, from which parsing, defaults, DescribeConfigs and README's table come.
//!
//! [`ServerConfig::load`] takes what the broker was started with ([`Sources`]) and gives typed, checked settings. Nothing here opens a
//! file, reads the environment or binds a socket.

pub mod describe;
pub mod dynamic;
mod dynamic_keys;
pub mod group_keys;
pub mod key;
pub mod keys;
mod listeners;
mod log_keys;
mod not_used;
pub mod properties;
mod server;
mod sources;
pub mod topic;
mod topic_defaults;
pub mod topic_keys;
pub mod transaction_keys;

pub use dynamic::{Dynamic, InvalidDynamic, Layers, Overrides};
pub use group_keys::{GroupConfig, GroupDefaults, InvalidGroupConfig};
pub use listeners::{HostPort, Listener};
pub use server::{LagMetricsConfig, Loaded, LogCleanerConfig, ServerConfig, TransactionConfig};
pub use sources::{ConfigError, Origin, Sources};
pub use topic::{CompressionType, TopicConfig};
pub use topic_defaults::TopicDefaults;
pub use topic_keys::InvalidTopicConfig;

/// README's tables of server keys, of topic configs and of group configs.
pub fn readme_tables() -> String {
    format!(
        "{}\nWhat is set while the broker runs, and only so (`kafka-configs`, `kafka-reassign-partitions --throttle`):\n\n{}\nWhat a topic can have of its own, over the server key that it defaults to:\n\n{}\nWhat a consumer group can have of its own:\n\n{}",
        keys::markdown(),
        dynamic_keys::markdown(),
        topic_keys::markdown(),
        group_keys::markdown()
    )
}
