//! What the runtime needs of a state machine that lives in the partitions of an internal topic: groups, transactions.

use super::records::{Read, TooLong};
use crate::{
    codec::Malformed,
    group::{Now, Ticket},
    types::{Millis, ProducerId},
};
use std::{fmt, sync::Arc};

/// What a machine calls the things that it keeps: a group's or a transactional id's name.
pub type Key = Arc<str>;

/// A shard's state: decided on by its own methods, which the runtime never looks into, and changed by `apply` and `apply_volatile` only.
pub trait Machine: Sized + Send + 'static {
    type Settings: Clone + Send + Sync;
    type Record: Clone + Send;
    /// A change of what is only in memory.
    type Volatile: Send;
    /// An answer to a request that was parked.
    type Reply: Send;
    /// Something that happened, for logs and for people.
    type Note: Send;
    /// What is to be done elsewhere once the records are committed.
    type Effect: Send;

    /// What its things are in the plural.
    const PLURAL: &'static str;
    /// An answer that writes nothing waits for what was written before it: it may rest on that.
    const ANSWERS_WAIT: bool;

    fn new(settings: Self::Settings) -> Self;
    /// A record's key and value as the topic has them.
    fn encode(&self, record: &Self::Record) -> Result<(Vec<u8>, Option<Vec<u8>>), TooLong>;
    fn decode(key: &[u8], value: Option<&[u8]>) -> Result<Read<Self::Record>, Malformed>;

    fn keys(&self) -> Vec<Key>;
    /// Applies a record that is in the log: right after it was appended, or when it is loaded.
    fn apply(&mut self, record: &Self::Record);
    /// Applies all records of a decision, right after they were appended.
    fn apply_all(&mut self, records: &[Self::Record]) {
        records.iter().for_each(|record| self.apply(record));
    }
    /// Applies a record that was written in a producer's transaction.
    fn apply_pending(&mut self, producer: ProducerId, record: &Self::Record);
    /// A marker has ended a producer's transaction in the topic's partition.
    fn end_transaction(&mut self, producer: ProducerId, commit: bool);
    /// The answer is whose deadline may have changed.
    fn apply_volatile(&mut self, change: Self::Volatile) -> Option<Key>;
    fn tell(&mut self, now: Now, note: &Self::Note);

    /// What is due once a key is loaded.
    fn decide_loaded(&self, now: Now, key: &Key) -> Steps<Self>;
    fn decide_tick(&self, now: Now, key: &Key) -> Steps<Self>;
    /// When a key is to be ticked, by the clock that never jumps.
    fn next_deadline(&self, key: &str) -> Option<Millis>;
}

/// What a decision of a machine comes to, in the order in which it is done.
#[must_use = "a decision changes nothing until it is enacted"]
pub struct Steps<M: Machine, R = ()> {
    /// The answer, to be given once the records are committed.
    pub reply: R,
    /// To be appended as one batch, then applied in order.
    pub records: Vec<M::Record>,
    pub volatile: Vec<M::Volatile>,
    pub notes: Vec<M::Note>,
    /// Answers to requests that wait, to be given once the records are committed.
    pub replies: Vec<(Ticket, M::Reply)>,
    pub effects: Vec<M::Effect>,
    /// All else holds even if the records can't be written: a restart finds out by itself what they say.
    pub records_may_fail: bool,
}

impl<M: Machine, R> Steps<M, R> {
    /// An answer, and records that say it all.
    pub fn write(reply: R, records: Vec<M::Record>) -> Self {
        Self { reply, records, volatile: Vec::new(), notes: Vec::new(), replies: Vec::new(), effects: Vec::new(), records_may_fail: false }
    }
}

impl<M: Machine, R: fmt::Debug> fmt::Debug for Steps<M, R> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Steps {{ {:?}, {} records }}", self.reply, self.records.len())
    }
}
