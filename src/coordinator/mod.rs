//! Runs the groups on the log: load, decide, append, apply, and hold answers back until their records are committed.
//!
//! A shard is one partition of `__consumer_offsets`: its groups are loaded from it when the broker starts (until then they answer
//! COORDINATOR_LOAD_IN_PROGRESS), and everything that is decided of them is appended to it before it is so. What to decide is `group`'s
//! business; this module never looks at a member or an offset.
//!
//! - [`GroupCoordinator`]: all shards; what handlers call.
//! - `shard`: one partition: the state, who waits, and the way of a decision.
//! - `load`: from a partition's batches to records. `records`: from records to bytes and back.
//! - `timers`: the one clock for all deadlines.

mod groups;
mod load;
pub mod records;
mod shard;
#[cfg(test)]
mod tests;
mod timers;

pub use groups::{GroupCoordinator, partition_of};
pub use shard::{Committing, Outcome, Waiting};

use crate::{group, types::Millis};

/// Where groups are kept.
pub const OFFSETS_TOPIC: &str = "__consumer_offsets";

/// The settings of the coordinator, named as the broker's keys.
#[derive(Clone, Debug)]
pub struct CoordinatorSettings {
    pub groups: group::Settings,
    pub offsets_topic_num_partitions: i32,
    pub offsets_topic_replication_factor: i16,
    pub offsets_topic_segment_bytes: i64,
    pub offsets_retention_check_interval_ms: i64,
    pub load_threads: usize,
}

/// How long from one time to another, never negative.
fn millis_until(from: Millis, to: Millis) -> u64 {
    u64::try_from(to.0.saturating_sub(from.0)).unwrap_or(0)
}
