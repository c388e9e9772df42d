//! The partitions' logs: append-only segments in Apache Kafka's own file formats.

pub mod error;
pub mod io;

pub mod epochs;
pub mod producer_state;
pub mod txn_index;
pub mod validate;

pub use error::{AppendError, ReadError, RecordError};
