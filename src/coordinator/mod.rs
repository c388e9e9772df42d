//! Runs state machines on the log: load, decide, append, apply, and hold answers back until their records are committed.
//!
//! A shard is one partition of an internal topic: its state is loaded from it when the broker starts (until then it answers
//! COORDINATOR_LOAD_IN_PROGRESS), and everything that is decided is appended to it before it is so. What to decide is the business of `group` and
//! `txn`; this module never looks at a member or an offset.
//!
//! - [`GroupCoordinator`], [`TransactionCoordinator`]: what handlers call.
//! - `machine`: what the runtime needs of a state machine. `shards`: all shards of one topic. `shard`: one partition: the state, who waits,
//!   and the way of a decision. `outcome`: answers and the commits that they wait for.
//! - `load`: from a partition's batches to records. `records`: from records to bytes and back.
//! - `timers`: the one clock for all deadlines. `topics`: the cluster's topics, as groups see them.

mod groups;
mod load;
mod log_markers;
mod machine;
mod outcome;
pub mod records;
mod shard;
mod shards;
#[cfg(test)]
mod tests;
mod timers;
mod topics;
mod transactions;

pub use groups::{GroupCoordinator, Held};
pub use log_markers::LogMarkers;
pub use outcome::{Committing, Outcome, Waiting};
pub use shards::partition_of;
pub use transactions::{Marker, MarkerOutcome, MarkerWriter, TRANSACTION_TOPIC, TransactionCoordinator, TransactionSettings};

use crate::{config::GroupDefaults, group, types::Millis};

/// Where groups are kept.
pub const OFFSETS_TOPIC: &str = "__consumer_offsets";

/// The settings of the coordinator, named as the broker's keys.
#[derive(Clone, Debug)]
pub struct CoordinatorSettings {
    pub groups: group::Settings,
    /// What groups get where their own configs say nothing.
    pub group_defaults: GroupDefaults,
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
