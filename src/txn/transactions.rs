//! The transactional ids of one shard: partitions that join a transaction, its completion, expiry, queries, and the functions that change
//! anything. Beginnings are in `init`, ends in `end`.

use super::{
    AddPartitions, Decision, Described, Ending, Filter, Listed, Metadata, Record, Settings, State, TransactionVersion, TransactionalId,
    VerifyPartitions, Volatile,
};
use crate::types::{ErrorCode, Millis, ProducerEpoch, ProducerId, ProducerIdAndEpoch, TopicPartition};
use std::collections::{HashMap, hash_map::Entry};

/// A transactional id.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Transaction {
    pub(super) at: Metadata,
    /// See [`Volatile::last_epoch`].
    pub(super) last_epoch: ProducerEpoch,
}

impl Transaction {
    /// What its last record says.
    pub fn metadata(&self) -> &Metadata {
        &self.at
    }

    /// Whether the transaction should have ended by now.
    pub fn is_overdue(&self, now: Millis) -> bool {
        self.at.state == State::Ongoing && self.at.started_at.plus(self.at.timeout_ms.into()) < now
    }

    /// Whether a request comes from the current producer, by its id and epoch.
    fn check(&self, producer: ProducerIdAndEpoch) -> Result<(), ErrorCode> {
        if self.at.producer.id != producer.id {
            Err(ErrorCode::InvalidProducerIdMapping)
        } else if self.at.producer.epoch != producer.epoch {
            Err(ErrorCode::ProducerFenced)
        } else {
            Ok(())
        }
    }

    /// Whoever asks has to wait while markers are being written.
    pub(super) fn check_is_not_ending(&self) -> Result<(), ErrorCode> {
        self.at.state.ending().map_or(Ok(()), |_| Err(ErrorCode::ConcurrentTransactions))
    }
}

/// The transactional ids of one partition of `__transaction_state`.
#[derive(Clone, Debug, Default)]
pub struct Transactions {
    settings: Settings,
    transactions: HashMap<TransactionalId, Transaction>,
}

impl Transactions {
    pub fn new(settings: Settings) -> Self {
        Self { settings, transactions: HashMap::new() }
    }

    pub fn settings(&self) -> &Settings {
        &self.settings
    }

    /// The cluster's `transaction.version` is this one from now on.
    pub fn set_version(&mut self, version: TransactionVersion) {
        self.settings.transaction_version = version;
    }

    pub fn get(&self, id: &str) -> Option<&Transaction> {
        self.transactions.get(id)
    }

    /// All of them, in no order.
    pub fn iter(&self) -> impl Iterator<Item = (&TransactionalId, &Transaction)> {
        self.transactions.iter()
    }

    pub fn len(&self) -> usize {
        self.transactions.len()
    }

    pub fn is_empty(&self) -> bool {
        self.transactions.is_empty()
    }

    /// A transaction that a request names: one that nobody has initialized has no producer.
    pub(super) fn known(&self, id: &str) -> Result<&Transaction, ErrorCode> {
        if id.is_empty() {
            return Err(ErrorCode::InvalidRequest);
        }
        self.get(id).ok_or(ErrorCode::InvalidProducerIdMapping)
    }

    /// AddPartitionsToTxn and what implies it.
    pub fn decide_add_partitions(&self, now: Millis, add: &AddPartitions) -> Decision<ErrorCode> {
        let transaction = match self.known(&add.id) {
            Ok(transaction) => transaction,
            Err(error) => return Decision::only(error),
        };
        // That first: a producer whose epochs are used up comes with the id that it gets when the markers are written.
        if let Err(error) = transaction.check_is_not_ending().and_then(|()| transaction.check(add.producer)) {
            return Decision::only(error);
        }
        let at = &transaction.at;
        if at.state == State::Ongoing && add.partitions.iter().all(|partition| at.partitions.contains(partition)) {
            return Decision::only(ErrorCode::None);
        }
        let mut to = at.clone();
        to.partitions.extend(add.partitions.iter().cloned());
        to.state = State::Ongoing;
        to.started_at = if at.state == State::Ongoing { at.started_at } else { now };
        to.updated_at = now;
        to.client_version = add.client_version;
        to.previous_producer_id = at.producer.id;
        Decision::to(&add.id, to, transaction.last_epoch, ErrorCode::None)
    }

    /// For each partition whether it is in the open transaction: TRANSACTION_ABORTABLE if it isn't.
    pub fn verify(&self, verify: &VerifyPartitions) -> Result<Vec<ErrorCode>, ErrorCode> {
        let transaction = self.known(&verify.id)?;
        transaction.check(verify.producer)?;
        transaction.check_is_not_ending()?;
        let of = |partition: &TopicPartition| {
            if transaction.at.partitions.contains(partition) { ErrorCode::None } else { ErrorCode::TransactionAbortable }
        };
        Ok(verify.partitions.iter().map(of).collect())
    }

    /// All markers of a transaction are written, or have no place any more. Does nothing if that was known.
    pub fn decide_complete(&self, now: Millis, ending: &Ending) -> Decision<()> {
        let Some(transaction) = self.get(&ending.id) else { return Decision::only(()) };
        let at = &transaction.at;
        if at.state.ending() != Some(ending.commit) || at.producer != ending.producer {
            return Decision::only(());
        }
        let mut to = at.clone();
        to.state = if ending.commit { State::CompleteCommit } else { State::CompleteAbort };
        to.partitions.clear();
        to.updated_at = now;
        to.previous_producer_id = at.producer.id;
        if at.client_version.bumps_epochs() && at.next_producer_id != ProducerId::NONE {
            to.producer = ProducerIdAndEpoch { id: at.next_producer_id, epoch: ProducerEpoch(0) };
        }
        to.next_producer_id = ProducerId::NONE;
        Decision::to(&ending.id, to, transaction.last_epoch, ())
    }

    /// Transactions that should have ended by now (`transaction.timeout.ms`).
    pub fn overdue(&self, now: Millis) -> Vec<TransactionalId> {
        self.iter().filter(|(_, transaction)| transaction.is_overdue(now)).map(|(id, _)| id.clone()).collect()
    }

    /// Forgets ids that were not used for `transactional.id.expiration.ms` and have no transaction. The answer is how many those are.
    pub fn decide_expire(&self, now: Millis) -> Decision<usize> {
        let until = now.plus(self.settings.transactional_id_expiration_ms.saturating_neg());
        let idle = |transaction: &Transaction| transaction.at.state.is_at_rest() && transaction.at.updated_at <= until;
        let expired = self.iter().filter(|(_, transaction)| idle(transaction));
        let records: Vec<_> = expired.map(|(id, _)| Record { id: id.clone(), value: None }).collect();
        Decision { records: records.clone(), ..Decision::only(records.len()) }
    }

    /// DescribeTransactions.
    pub fn describe(&self, id: &str) -> Result<Described, ErrorCode> {
        if id.is_empty() {
            return Err(ErrorCode::InvalidRequest);
        }
        let at = &self.get(id).ok_or(ErrorCode::TransactionalIdNotFound)?.at;
        Ok(Described {
            producer: at.producer,
            state: at.state,
            timeout_ms: at.timeout_ms,
            started_at: at.started_at,
            partitions: at.partitions.clone(),
        })
    }

    /// ListTransactions.
    pub fn list(&self, now: Millis, filter: &Filter<'_>) -> Vec<Listed> {
        let fits = |id: &TransactionalId, at: &Metadata| {
            (filter.producer_ids.is_empty() || filter.producer_ids.contains(&at.producer.id))
                && !filter.no_known_state
                && (filter.states.is_empty() || filter.states.contains(&at.state))
                && filter.longer_than_ms.is_none_or(|span| now.0.saturating_sub(at.started_at.0) > span)
                && filter.id_fits.is_none_or(|fits| fits(id))
        };
        let fitting = self.iter().filter(|(id, transaction)| fits(id, &transaction.at));
        let listed = |(id, transaction): (&TransactionalId, &Transaction)| Listed {
            id: id.clone(),
            producer_id: transaction.at.producer.id,
            state: transaction.at.state,
        };
        fitting.map(listed).collect()
    }

    /// Of these producers and partitions the places of those that are in an open or ending transaction, with its transactional id.
    pub fn holders(&self, wanted: &[(ProducerId, TopicPartition)]) -> Vec<(usize, TransactionalId)> {
        let mut places: HashMap<ProducerId, Vec<usize>> = HashMap::new();
        for (place, (producer, _)) in wanted.iter().enumerate() {
            places.entry(*producer).or_default().push(place);
        }
        let mut found = Vec::new();
        for (id, transaction) in self.iter() {
            let of_producer = places.get(&transaction.at.producer.id).into_iter().flatten();
            let holds = |place: &&usize| wanted.get(**place).is_some_and(|(_, partition)| transaction.at.partitions.contains(partition));
            found.extend(of_producer.filter(holds).map(|place| (*place, id.clone())));
        }
        found
    }

    /// Applies a record that is in the log: right after it was appended, or when it is loaded.
    pub fn apply(&mut self, record: &Record) {
        let Some(metadata) = &record.value else {
            self.transactions.remove(&record.id);
            return;
        };
        let transaction = Transaction { at: metadata.clone(), last_epoch: ProducerEpoch::NONE };
        match self.transactions.entry(record.id.clone()) {
            Entry::Occupied(mut entry) => *entry.get_mut() = transaction,
            Entry::Vacant(entry) => drop(entry.insert(transaction)),
        }
    }

    /// Applies a change of what is only in memory, after the records that go with it.
    pub fn apply_volatile(&mut self, change: &Volatile) {
        if let Some(transaction) = self.transactions.get_mut(&change.id) {
            transaction.last_epoch = change.last_epoch;
        }
    }
}

impl Metadata {
    /// The markers that it waits for, if it does.
    pub fn ending(&self, id: &TransactionalId) -> Option<Ending> {
        let commit = self.state.ending()?;
        let (producer, version, partitions) = (self.producer, self.client_version, self.partitions.clone());
        Some(Ending { id: id.clone(), producer, commit, version, partitions })
    }
}

impl<R> Decision<R> {
    /// The transactional id goes over to this.
    pub(super) fn to(id: &TransactionalId, metadata: Metadata, last_epoch: ProducerEpoch, reply: R) -> Self {
        let volatile = Volatile { id: id.clone(), last_epoch };
        Self {
            reply,
            records: vec![Record { id: id.clone(), value: Some(metadata) }],
            volatile: if last_epoch == ProducerEpoch::NONE { Vec::new() } else { vec![volatile] },
            endings: Vec::new(),
        }
    }
}
