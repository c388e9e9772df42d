//! From frames to requests and from answers to frames.
//!
//! Everything here is checked before memory is taken for it: a length against the bytes that are left, an array against what its
//! elements need at the least, the whole against [`shape`]. It never reads a socket, a clock or a file.

pub mod fetch;
pub mod header;
pub mod produce;
pub mod reader;
pub mod reply;
pub mod shape;

pub use header::RequestHeader;
pub use reader::{Malformed, Reader};
pub use reply::{Reply, Segment};
