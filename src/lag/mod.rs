//! How far behind every consumer group is: in records, in time, and against retention. The definitions are here and in [`partition`]; they
//! see no log, no clock and no lock.
//!
//! - [`partition`]: one group's reading of one partition: what is known, what became of it, and the numbers that follow.
//! - [`group`]: a group: its partitions, members, owners, rebalances, and the last hour. [`topic`]: what is produced, and how evenly.
//! - [`rate`], [`filter`], [`fetches`]: rates from counts, which groups are exported, who fetches what.
//! - [`state`]: all of it, taken in from what a sweep sees. [`sampler`] is the shell: it sweeps coordinator and logs, and does the look-ups
//!   that are owed, a bounded amount at a time. Nobody who asks waits for a look-up.
//! - [`families`]: the state as Prometheus families.
//!
//! The first unconsumed record of a group is the first visible one at or after its committed offset: markers that end transactions are
//! skipped, aborted records too where the group reads committed, and a compacted-away offset means the next survivor. `records behind`
//! counts offsets from it to the high watermark (the last stable offset where the group reads committed), and is 0 exactly when there is
//! none. `time behind` is how long that record has been here; its own timestamp serves where its arrival isn't known.

pub mod families;
pub mod fetches;
pub mod filter;
pub mod group;
pub mod partition;
pub mod rate;
pub mod sampler;
pub mod state;
pub mod topic;

#[cfg(test)]
mod tests;

pub use fetches::Fetches;
pub use group::GroupLag;
pub use partition::{Behind, Reading};
pub use sampler::Sampler;
pub use state::State;
