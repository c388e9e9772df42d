//! Transactions: what a transactional id's producer is and where its transaction stands, decided and applied. Never sees a socket, a clock,
//! a file or randomness.
//!
//! [`Transactions`] is one shard: the transactional ids of one partition of `__transaction_state`. Its methods are of three kinds, as those
//! of `group::Groups`:
//!
//! - `decide_*`: from the state and a command to a [`Decision`]: records to append, what to remember, markers to write. They take `&self`.
//! - [`Transactions::apply`] and [`Transactions::apply_volatile`]: the only ones that change anything.
//! - queries: [`Transactions::verify`], [`Transactions::describe`], [`Transactions::list`].
//!
//! The way of a transaction: `Empty` → `Ongoing` with the first partition → `PrepareCommit` or `PrepareAbort`, which is the decision that
//! nothing takes back → markers into every partition → `CompleteCommit` or `CompleteAbort`. Markers are written when the record of the
//! decision is committed, never before, and the completion when all of them are. After a crash in between they are all written again.
//!
//! Behaviour is that of Apache Kafka 4.4's `TransactionCoordinator` and `TransactionMetadata`. Kafka's pending states are not needed: a record is
//! applied in the moment in which it is appended, and what follows from it is appended after it.

mod command;
mod end;
mod init;
mod record;
mod state;
#[cfg(test)]
mod tests;
mod transactions;

pub use command::{AddPartitions, Described, EndTxn, Ending, Filter, InitProducerId, Listed, VerifyPartitions};
pub use record::{Metadata, Record};
pub use state::{State, TransactionVersion};
pub use transactions::{Transaction, Transactions};

use crate::types::{ErrorCode, ProducerEpoch, ProducerId};
use std::sync::Arc;

/// A transactional producer's name, given by its user (`transactional.id`).
pub type TransactionalId = Arc<str>;

/// The settings that decisions depend on, named as the broker's keys.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Settings {
    pub transaction_max_timeout_ms: i32,
    pub transactional_id_expiration_ms: i64,
    /// The cluster's level of the feature: what transactions that the coordinator itself ends go by.
    pub transaction_version: TransactionVersion,
}

impl Default for Settings {
    fn default() -> Self {
        Self {
            transaction_max_timeout_ms: 15 * 60_000,
            transactional_id_expiration_ms: 7 * 24 * 3_600_000,
            transaction_version: TransactionVersion::V2,
        }
    }
}

/// Where new producer ids come from: ids that nobody has had. An error is what the producer hears.
pub type FreshIds<'a> = &'a dyn Fn() -> Result<ProducerId, ErrorCode>;

/// A change of what is only in memory.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Volatile {
    pub id: TransactionalId,
    /// The epoch before the current one: a producer that comes with it has missed the answer which gave it the current one. Kafka's records
    /// have no place for it, so that it is forgotten in a restart.
    pub last_epoch: ProducerEpoch,
}

/// What a command comes to.
#[derive(Clone, Debug)]
#[must_use = "a decision changes nothing until it is applied"]
pub struct Decision<R> {
    /// The answer, to be given once the records are committed.
    pub reply: R,
    /// To be appended as one batch, then applied in order.
    pub records: Vec<Record>,
    /// To be applied after the records.
    pub volatile: Vec<Volatile>,
    /// Markers to write once the records are committed.
    pub endings: Vec<Ending>,
}

impl<R> Decision<R> {
    /// An answer that changes nothing.
    pub fn only(reply: R) -> Self {
        Self { reply, records: Vec::new(), volatile: Vec::new(), endings: Vec::new() }
    }
}
