//! The states of a transaction and the versions of its protocol, by Kafka's numbers and names (`TransactionState`, `TransactionVersion`).

use std::fmt;

/// Where a transactional id stands. `Dead` and `PrepareEpochFence` are states that Kafka passes through in memory and never writes; here
/// nothing is ever in them, but tools may ask for them by name.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Default)]
pub enum State {
    /// It has a producer id, and no transaction since it got that.
    #[default]
    Empty,
    /// Partitions were added: a transaction is open.
    Ongoing,
    /// It is decided that the transaction commits; markers are being written.
    PrepareCommit,
    /// It is decided that the transaction aborts; markers are being written.
    PrepareAbort,
    /// All markers of a committed transaction are written.
    CompleteCommit,
    /// All markers of an aborted transaction are written.
    CompleteAbort,
    Dead,
    PrepareEpochFence,
}

impl State {
    /// Every state, by its number.
    pub const ALL: [Self; 8] = [
        Self::Empty,
        Self::Ongoing,
        Self::PrepareCommit,
        Self::PrepareAbort,
        Self::CompleteCommit,
        Self::CompleteAbort,
        Self::Dead,
        Self::PrepareEpochFence,
    ];

    /// The number in `__transaction_state`.
    pub fn id(self) -> i8 {
        self as i8
    }

    pub fn from_id(id: i8) -> Option<Self> {
        usize::try_from(id).ok().and_then(|at| Self::ALL.get(at)).copied()
    }

    /// Kafka's name, as DescribeTransactions and ListTransactions have it.
    pub fn name(self) -> &'static str {
        match self {
            Self::Empty => "Empty",
            Self::Ongoing => "Ongoing",
            Self::PrepareCommit => "PrepareCommit",
            Self::PrepareAbort => "PrepareAbort",
            Self::CompleteCommit => "CompleteCommit",
            Self::CompleteAbort => "CompleteAbort",
            Self::Dead => "Dead",
            Self::PrepareEpochFence => "PrepareEpochFence",
        }
    }

    pub fn from_name(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|state| state.name() == name)
    }

    /// Whether markers are being written: `Some(true)` for a commit, `Some(false)` for an abort.
    pub fn ending(self) -> Option<bool> {
        match self {
            Self::PrepareCommit => Some(true),
            Self::PrepareAbort => Some(false),
            _ => None,
        }
    }

    /// No transaction is open or ending: the next one may begin, and the id may expire.
    pub fn is_at_rest(self) -> bool {
        matches!(self, Self::Empty | Self::CompleteCommit | Self::CompleteAbort)
    }
}

impl fmt::Display for State {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

/// A level of the feature `transaction.version`: of the cluster, or of what a client's request shows that it speaks.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Default)]
pub struct TransactionVersion(pub i16);

impl TransactionVersion {
    /// The flow of old: partitions are added by AddPartitionsToTxn, and a transaction's end leaves the epoch as it is.
    pub const V0: Self = Self(0);
    /// The same, with records that have room for what version 2 keeps.
    pub const V1: Self = Self(1);
    /// KIP-890: each end of a transaction bumps the epoch, so that nothing of it can come late.
    pub const V2: Self = Self(2);

    pub fn bumps_epochs(self) -> bool {
        self >= Self::V2
    }
}
