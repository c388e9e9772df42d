//! Transactional ids as the runtime runs them.

use super::super::{
    machine::{Key, Machine, Steps},
    records::{Read, TooLong, transaction},
};
use crate::{
    codec::Malformed,
    group::Now,
    txn::{Decision, Ending, Record, Settings, Transactions, Volatile},
    types::{Millis, ProducerId},
};
use std::convert::Infallible;

impl Machine for Transactions {
    type Settings = Settings;
    type Record = Record;
    type Volatile = Volatile;
    type Reply = Infallible;
    type Note = Infallible;
    type Effect = Ending;

    const PLURAL: &'static str = "transactional ids";
    const ANSWERS_WAIT: bool = true;

    fn new(settings: Settings) -> Self {
        Self::new(settings)
    }

    fn encode(&self, record: &Record) -> Result<(Vec<u8>, Option<Vec<u8>>), TooLong> {
        transaction::encode(record, self.settings().transaction_version)
    }

    fn decode(key: &[u8], value: Option<&[u8]>) -> Result<Read<Record>, Malformed> {
        transaction::decode(key, value)
    }

    fn keys(&self) -> Vec<Key> {
        self.iter().map(|(id, _)| id.clone()).collect()
    }

    fn apply(&mut self, record: &Record) {
        self.apply(record);
    }

    /// Nobody writes to the topic in a transaction.
    fn apply_pending(&mut self, _: ProducerId, _: &Record) {}

    fn end_transaction(&mut self, _: ProducerId, _: bool) {}

    fn apply_volatile(&mut self, change: Volatile) -> Option<Key> {
        self.apply_volatile(&change);
        None
    }

    fn tell(&mut self, _: Now, note: &Infallible) {
        match *note {}
    }

    /// Markers that were being written are written again.
    fn decide_loaded(&self, _: Now, key: &Key) -> Steps<Self> {
        let effects = self.get(key).and_then(|transaction| transaction.metadata().ending(key)).into_iter().collect();
        Steps { effects, ..Steps::write((), Vec::new()) }
    }

    /// Nothing is due by itself: who is overdue is looked for from time to time.
    fn decide_tick(&self, _: Now, _: &Key) -> Steps<Self> {
        Steps::write((), Vec::new())
    }

    fn next_deadline(&self, _: &str) -> Option<Millis> {
        None
    }
}

impl<R> From<Decision<R>> for Steps<Transactions, R> {
    fn from(decision: Decision<R>) -> Self {
        let Decision { reply, records, volatile, endings } = decision;
        Self { volatile, effects: endings, ..Self::write(reply, records) }
    }
}
