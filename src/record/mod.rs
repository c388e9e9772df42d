//! Record batches of magic 2, as they lie on disk and on the wire: read in place, never re-encoded on the way through.
//!
//! The log and the handlers see a batch through [`BatchHeader`], 61 bytes; records are decoded only where an answer needs them.

pub mod builder;
pub mod compression;
pub mod control;
pub mod header;
pub mod records;
pub mod rewrite;
pub mod varint;

pub use builder::BatchBuilder;
pub use control::{ControlRecordType, EndTxnMarker};
pub use header::{BatchHeader, Compression, HEADER_BYTES, TimestampType};
pub use records::{BatchRecords, Record, RecordsError};
pub use rewrite::Rewrite;

#[cfg(test)]
mod tests;
