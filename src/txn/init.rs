//! InitProducerId: who becomes the producer of a transactional id, and who is fenced by it (`prepareInitProducerIdTransit`).

use super::{Decision, FreshIds, InitProducerId, Metadata, State, Transaction, TransactionVersion, Transactions, command::is_exhausted};
use crate::types::{ErrorCode, Millis, ProducerEpoch, ProducerId, ProducerIdAndEpoch};
use std::collections::BTreeSet;

/// The producer to go on as, or why not.
type Answer = Result<ProducerIdAndEpoch, ErrorCode>;

impl Transactions {
    /// InitProducerId. An open transaction of the producer before is aborted first: the answer is CONCURRENT_TRANSACTIONS until that is done.
    pub fn decide_init(&self, now: Millis, init: &InitProducerId, fresh: FreshIds<'_>) -> Decision<Answer> {
        let refused = |error| Decision::only(Err(error));
        if init.id.is_empty() {
            return refused(ErrorCode::InvalidRequest);
        }
        if init.timeout_ms <= 0 || init.timeout_ms > self.settings().transaction_max_timeout_ms {
            return refused(ErrorCode::InvalidTransactionTimeout);
        }
        let Some(transaction) = self.get(&init.id) else {
            return match fresh() {
                Ok(id) => Self::renew(now, init, id, None, ProducerEpoch::NONE),
                Err(error) => refused(error),
            };
        };
        let current = transaction.at.producer;
        if let Err(error) = transaction.check_is_not_ending() {
            return refused(error);
        }
        if init.expected.is_some_and(|expected| !transaction.may_be(expected)) {
            return refused(ErrorCode::ProducerFenced);
        }
        match transaction.at.state {
            // Kafka does not look at the epoch here, so that a producer of old aborts the transaction of its successor.
            State::Ongoing if init.expected.is_some_and(|expected| !transaction.has_epoch(expected)) => refused(ErrorCode::ProducerFenced),
            State::Ongoing => match self.decide_fence(now, &init.id, fresh) {
                Ok(fence) => Decision {
                    reply: Err(ErrorCode::ConcurrentTransactions),
                    records: fence.records,
                    volatile: fence.volatile,
                    endings: fence.endings,
                },
                Err(error) => refused(error),
            },
            _ if is_exhausted(current.epoch) && init.expected.is_none_or(|expected| expected.epoch == current.epoch) => match fresh() {
                Ok(id) => {
                    let last_epoch = if init.expected.is_some() { current.epoch } else { ProducerEpoch::NONE };
                    Self::renew(now, init, id, Some(transaction), last_epoch)
                }
                Err(error) => refused(error),
            },
            _ => transaction.next_epoch(now, init).unwrap_or_else(refused),
        }
    }

    /// The transactional id goes on with a producer id that nobody has had.
    fn renew(
        now: Millis,
        init: &InitProducerId,
        id: ProducerId,
        from: Option<&Transaction>,
        last_epoch: ProducerEpoch,
    ) -> Decision<Answer> {
        let producer = ProducerIdAndEpoch { id, epoch: ProducerEpoch(0) };
        let previous = from.map_or(id, |transaction| transaction.at.producer.id);
        let version = from.map_or(TransactionVersion::V0, |transaction| transaction.at.client_version);
        Decision::to(&init.id, empty(now, init, producer, previous, version), last_epoch, Ok(producer))
    }
}

impl Transaction {
    /// Whether the producer of a request can be the current one; its epoch is looked at when the next one is chosen. One whose epochs were
    /// used up may have missed the answer that gave it another id.
    fn may_be(&self, expected: ProducerIdAndEpoch) -> bool {
        expected.id == self.at.producer.id || (expected.id == self.at.previous_producer_id && is_exhausted(expected.epoch))
    }

    fn has_epoch(&self, expected: ProducerIdAndEpoch) -> bool {
        expected.epoch == self.at.producer.epoch || expected.epoch == self.last_epoch
    }

    /// The transactional id goes on with the same producer id and the next epoch.
    fn next_epoch(&self, now: Millis, init: &InitProducerId) -> Result<Decision<Answer>, ErrorCode> {
        let current = self.at.producer;
        let bumped = ProducerEpoch(current.epoch.0.saturating_add(1));
        let (epoch, last_epoch) = match init.expected {
            None => (bumped, ProducerEpoch::NONE),
            Some(expected) if expected.epoch == current.epoch => (bumped, current.epoch),
            // It has missed the answer of its last call.
            Some(expected) if expected.epoch == self.last_epoch => (current.epoch, self.last_epoch),
            Some(_) => return Err(ErrorCode::ProducerFenced),
        };
        let producer = ProducerIdAndEpoch { id: current.id, epoch };
        let metadata = empty(now, init, producer, current.id, self.at.client_version);
        Ok(Decision::to(&init.id, metadata, last_epoch, Ok(producer)))
    }
}

fn empty(now: Millis, init: &InitProducerId, producer: ProducerIdAndEpoch, previous: ProducerId, version: TransactionVersion) -> Metadata {
    Metadata {
        producer,
        previous_producer_id: previous,
        next_producer_id: ProducerId::NONE,
        timeout_ms: init.timeout_ms,
        state: State::Empty,
        partitions: BTreeSet::new(),
        started_at: Millis::NONE,
        updated_at: now,
        client_version: version,
    }
}
