//! Configuration: one table of keys, from which parsing, defaults, DescribeConfigs and README's table come.

pub mod topic;

pub use topic::{CompressionType, TopicConfig};
