//! The partitions' logs: append-only segments in Apache Kafka's own file formats.

pub mod error;
pub mod io;

pub use error::{AppendError, ReadError, RecordError};
