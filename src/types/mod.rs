//! The field's integers and names as types, and Kafka's error codes.
//!
//! Nothing here does I/O, reads a clock or allocates behind the caller's back. Every other module may use it; it uses none.

mod error_code;
mod topic;

pub use error_code::ErrorCode;
pub use topic::{BadTopicName, TopicId, TopicName, TopicPartition};

use std::fmt;

/// Declares newtypes over integers: each is ordered, hashable, prints as its number and is built with `Name(value)`.
macro_rules! integers {
    ($($(#[$doc:meta])* $name:ident($int:ty);)*) => {$(
        $(#[$doc])*
        #[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
        pub struct $name(pub $int);

        impl fmt::Display for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                self.0.fmt(f)
            }
        }

        impl fmt::Debug for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                write!(f, concat!(stringify!($name), "({})"), self.0)
            }
        }
    )*};
}

integers! {
    /// A record's place in its partition, from 0; also the end of a range (the next offset to be given out).
    Offset(i64);
    /// The term of a partition's leader, raised by one at each election; −1 where it is not known.
    LeaderEpoch(i32);
    /// What names an idempotent or transactional producer; −1 for a producer that is neither.
    ProducerId(i64);
    /// Raised when a producer starts anew, so that its predecessor is fenced; −1 for none.
    ProducerEpoch(i16);
    /// A broker of the cluster (`node.id`).
    BrokerId(i32);
    /// A partition's index within its topic, from 0.
    PartitionIndex(i32);
    /// Milliseconds since 1970-01-01 UTC, or a span of milliseconds; −1 is "none" in timestamps.
    Millis(i64);
}

impl Offset {
    /// The offset `count` records on. Saturates: an offset never wraps.
    pub fn plus(self, count: i64) -> Self {
        Self(self.0.saturating_add(count))
    }
}

impl LeaderEpoch {
    /// "Not known": a client that sends it asks for no check.
    pub const NONE: Self = Self(-1);
}

impl ProducerId {
    /// The producer id of batches that are not idempotent (Kafka's `RecordBatch.NO_PRODUCER_ID`).
    pub const NONE: Self = Self(-1);
}

impl ProducerEpoch {
    /// The epoch that goes with [`ProducerId::NONE`].
    pub const NONE: Self = Self(-1);
}

/// A producer in one of its lives: its id, and the epoch that fences the lives before.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct ProducerIdAndEpoch {
    pub id: ProducerId,
    pub epoch: ProducerEpoch,
}

impl ProducerIdAndEpoch {
    /// What answers carry that give no producer.
    pub const NONE: Self = Self { id: ProducerId::NONE, epoch: ProducerEpoch::NONE };

    pub fn new(id: i64, epoch: i16) -> Self {
        Self { id: ProducerId(id), epoch: ProducerEpoch(epoch) }
    }
}

impl Millis {
    /// "No timestamp" (Kafka's `RecordBatch.NO_TIMESTAMP`).
    pub const NONE: Self = Self(-1);

    /// This time and `span_ms` more, saturating.
    pub fn plus(self, span_ms: i64) -> Self {
        Self(self.0.saturating_add(span_ms))
    }
}

/// Where the time comes from. The broker reads the system's; tests and simulations set their own.
pub trait Clock: Send + Sync {
    /// The wall clock, for timestamps and ages.
    fn now(&self) -> Millis;
}
