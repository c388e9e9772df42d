//! The partitions' logs: append-only segments in Apache Kafka's own file formats.
//!
//! [`Logs`] are all partitions of this broker in their data directories, [`PartitionLog`] is one. `arrivals`, `model`, `index`, `checkpoints`, `files`,
//! `epochs`, `producer_state`, `retention`, `throttle`, `txn_index`, `validate` and `verification` are pure; the rest moves bytes through [`io::Disk`]. Nothing here reads a clock,
//! knows the wire protocol or starts a task.

pub mod error;
pub mod io;

pub mod arrivals;
pub mod checkpoints;
pub mod compact;
pub mod epochs;
pub mod files;
pub mod index;
pub mod inspect;
pub mod model;
pub mod producer_state;
pub mod retention;
pub mod txn_index;
pub mod validate;
pub mod verification;
pub mod watch;

mod creation;
mod descriptors;
mod dir_info;
mod dirs;
mod health;
mod logs;
mod look;
mod moves;
mod partition;
mod read;
mod recover;
mod relocate;
mod resume;
mod rounds;
mod scan;
mod segment;
mod sync;
mod throttle;
mod transactions;
mod trim;
mod truncate;

#[cfg(test)]
mod model_tests;
#[cfg(test)]
mod room_tests;
#[cfg(test)]
mod tests;
#[cfg(test)]
mod transaction_tests;
#[cfg(test)]
mod truncate_tests;

pub use compact::{CleanError, Cleaned, CompactSettings, Compactor};
pub use dir_info::{DirInfo, FutureInfo};
pub use error::{AppendError, DeleteRecordsError, LogError, MoveError, ReadError, RecordError, TruncateError};
pub use health::DirStatus;
pub use logs::{FoundPartition, LogSettings, Logs, PartitionSpec};
pub use look::{Look, OldestOpen, Outlook, Visible};
pub use model::Watermarks;
pub use partition::{Appended, PartitionLog, Stats};
pub use read::{Isolation, ReadSlice, TimedOffset};
pub use rounds::{SyncRun, SyncWait};
pub use throttle::Throttle;
pub use transactions::OpenTransaction;
pub use txn_index::AbortedTxn;
pub use validate::{Origin, split_one_batch};
pub use verification::Proof;
pub use watch::{Registration, Waiter, Watch};
