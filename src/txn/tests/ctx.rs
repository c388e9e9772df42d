//! A shard with one transactional id that speaks the protocol's words, and holds replay against what lives.

use super::super::*;
use crate::types::{Millis, PartitionIndex, ProducerIdAndEpoch, TopicName, TopicPartition};
use std::cell::Cell;

pub type Answer = Result<ProducerIdAndEpoch, ErrorCode>;

pub struct Ctx {
    pub transactions: Transactions,
    pub now: Millis,
    next_id: Cell<i64>,
    /// No producer id can be had.
    pub out_of_ids: bool,
    records: Vec<Record>,
    /// What is ending, until it is completed.
    pub endings: Vec<Ending>,
}

pub fn producer(id: i64, epoch: i16) -> ProducerIdAndEpoch {
    ProducerIdAndEpoch::new(id, epoch)
}

pub fn partition(index: i32) -> TopicPartition {
    TopicPartition { topic: TopicName::new("t").unwrap(), partition: PartitionIndex(index) }
}

impl Ctx {
    pub fn new(transaction_version: TransactionVersion) -> Self {
        let settings = Settings { transaction_version, ..Settings::default() };
        let (transactions, now) = (Transactions::new(settings), Millis(1_000));
        Self { transactions, now, next_id: Cell::new(100), out_of_ids: false, records: Vec::new(), endings: Vec::new() }
    }

    /// With the first producer at this epoch.
    pub fn at_epoch(version: TransactionVersion, epoch: i16) -> Self {
        let mut ctx = Self::new(version);
        assert_eq!(ctx.init(None), Ok(producer(100, 0)));
        let mut value = ctx.metadata();
        value.producer.epoch = ProducerEpoch(epoch);
        ctx.take(Decision { records: vec![Record { id: "tx".into(), value: Some(value) }], ..Decision::only(()) });
        ctx
    }

    fn take<R>(&mut self, decision: Decision<R>) -> R {
        let Decision { reply, records, volatile, endings } = decision;
        records.iter().for_each(|record| self.transactions.apply(record));
        volatile.iter().for_each(|change| self.transactions.apply_volatile(change));
        self.endings.extend(endings);
        self.records.extend(records);
        self.check_replay();
        reply
    }

    /// What the records say is what lives, but for what they have no place for.
    fn check_replay(&self) {
        let mut replayed = Transactions::new(*self.transactions.settings());
        self.records.iter().for_each(|record| replayed.apply(record));
        let said = |of: &Transactions| of.get("tx").map(|transaction| transaction.metadata().clone());
        assert_eq!(said(&replayed), said(&self.transactions));
    }

    /// Only what the records say is left.
    pub fn restart(&mut self) {
        let mut replayed = Transactions::new(*self.transactions.settings());
        self.records.iter().for_each(|record| replayed.apply(record));
        self.transactions = replayed;
    }

    fn with_ids<R>(&self, decide: impl FnOnce(FreshIds<'_>) -> R) -> R {
        decide(&|| {
            if self.out_of_ids {
                Err(ErrorCode::CoordinatorNotAvailable)
            } else {
                Ok(ProducerId(self.next_id.replace(self.next_id.get() + 1)))
            }
        })
    }

    pub fn init(&mut self, expected: Option<ProducerIdAndEpoch>) -> Answer {
        self.init_with(InitProducerId { id: "tx".into(), timeout_ms: 60_000, expected })
    }

    pub fn init_with(&mut self, init: InitProducerId) -> Answer {
        let decision = self.with_ids(|fresh| self.transactions.decide_init(self.now, &init, fresh));
        self.take(decision)
    }

    pub fn add(&mut self, producer: ProducerIdAndEpoch, partitions: &[i32]) -> ErrorCode {
        let partitions = partitions.iter().map(|index| partition(*index)).collect();
        let client_version = TransactionVersion::V0;
        let add = AddPartitions { id: "tx".into(), producer, partitions, client_version };
        let decision = self.transactions.decide_add_partitions(self.now, &add);
        self.take(decision)
    }

    pub fn verify(&self, producer: ProducerIdAndEpoch, partitions: &[i32]) -> Result<Vec<ErrorCode>, ErrorCode> {
        let partitions = partitions.iter().map(|index| partition(*index)).collect();
        self.transactions.verify(&VerifyPartitions { id: "tx".into(), producer, partitions })
    }

    fn end(&mut self, producer: ProducerIdAndEpoch, commit: bool, client_version: TransactionVersion) -> Answer {
        let end = EndTxn { id: "tx".into(), producer, commit, client_version };
        let decision = self.with_ids(|fresh| self.transactions.decide_end(self.now, &end, fresh));
        self.take(decision)
    }

    /// EndTxn of the flow of old.
    pub fn end_v1(&mut self, producer: ProducerIdAndEpoch, commit: bool) -> Answer {
        self.end(producer, commit, TransactionVersion::V0)
    }

    /// EndTxn of KIP-890.
    pub fn end_v2(&mut self, producer: ProducerIdAndEpoch, commit: bool) -> Answer {
        self.end(producer, commit, TransactionVersion::V2)
    }

    pub fn time_out(&mut self) -> Result<(), ErrorCode> {
        let decision = self.with_ids(|fresh| self.transactions.decide_timeout(self.now, &"tx".into(), fresh))?;
        self.take(decision);
        Ok(())
    }

    /// The markers are written.
    pub fn complete(&mut self) -> Ending {
        let ending = self.endings.remove(0);
        let decision = self.transactions.decide_complete(self.now, &ending);
        self.take(decision);
        ending
    }

    pub fn expire(&mut self) -> usize {
        let decision = self.transactions.decide_expire(self.now);
        self.take(decision)
    }

    pub fn metadata(&self) -> Metadata {
        self.transactions.get("tx").unwrap().metadata().clone()
    }

    pub fn state(&self) -> State {
        self.metadata().state
    }
}
