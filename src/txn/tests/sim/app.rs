//! A simulated application: reads its input from where its group stands, copies it in transactions, and commits how far it came in them. It
//! knows what a client library knows; whatever it can't know it asks again, gives up, or dies of.

use super::{
    broker::{Answer, Ask, Request},
    partition::Value,
};
use crate::{sim::Random, txn::TransactionVersion, types::*};
use std::collections::BTreeMap;

/// Input records of each application.
pub const INPUTS: i64 = 14;
const PER_TRANSACTION_MAX: i64 = 4;

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Phase {
    Init,
    Fetch,
    Add,
    Produce(usize),
    AddOffsets,
    CommitOffset,
    End {
        commit: bool,
    },
    /// Everything is copied.
    Idle,
}

/// How a transaction ended, as far as its client was told.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Fate {
    Unknown,
    Committed,
    Aborted,
}

/// One transaction, by one instance of an application.
#[derive(Clone, Debug)]
pub struct Attempt {
    pub values: Vec<(usize, Value)>,
    pub fate: Fate,
}

pub struct App {
    me: usize,
    places: Places,
    pub slot: usize,
    pub version: TransactionVersion,
    pub alive: bool,
    pub paused_until: i64,
    phase: Phase,
    producer: ProducerIdAndEpoch,
    /// The epoch is to be bumped before the next transaction (KIP-360).
    bump: bool,
    sequences: BTreeMap<usize, i32>,
    position: i64,
    batches: Vec<(usize, Vec<Value>)>,
    attempt: Option<u32>,
    /// The request that it waits for, and until when.
    waiting: Option<(u64, i64)>,
    /// When it asks again.
    pub at: i64,
    tries: u32,
    /// The request that made it the producer.
    pub made_by: u64,
    /// What it died of, if that was an answer.
    pub died_of: Option<ErrorCode>,
}

impl App {
    pub fn new(me: usize, places: Places, slot: usize, version: TransactionVersion, now: i64) -> Self {
        Self {
            me,
            places,
            slot,
            version,
            alive: true,
            paused_until: 0,
            phase: Phase::Init,
            producer: ProducerIdAndEpoch::NONE,
            bump: false,
            sequences: BTreeMap::new(),
            position: 0,
            batches: Vec::new(),
            attempt: None,
            waiting: None,
            at: now,
            tries: 0,
            made_by: 0,
            died_of: None,
        }
    }

    pub fn is_idle(&self) -> bool {
        self.phase == Phase::Idle
    }

    fn is_new_flow(&self) -> bool {
        self.version.bumps_epochs()
    }

    /// What it sends now, if it does not wait.
    pub fn ask(&mut self, now: i64, id: u64, chance: &mut Random, attempts: &mut Vec<Attempt>, faults: bool) -> Option<Request> {
        if !self.alive || now < self.paused_until || now < self.at || self.phase == Phase::Idle {
            return None;
        }
        if let Some((_, until)) = self.waiting {
            if now < until {
                return None;
            }
            self.give_up_sometimes(chance, faults);
        }
        if self.phase == Phase::Add && self.batches.is_empty() {
            self.begin(chance, attempts, faults);
        }
        let ask = match self.phase {
            Phase::Init => Ask::Init { expected: self.bump.then_some(self.producer) },
            Phase::Fetch => Ask::FetchOffset,
            Phase::Add => Ask::Add { partitions: self.batches.iter().map(|(partition, _)| *partition).collect() },
            Phase::Produce(batch) => {
                let (partition, payload) = self.batches[batch].clone();
                Ask::Produce { partition, sequence: self.sequences.get(&partition).copied().unwrap_or(0), payload }
            }
            Phase::AddOffsets => Ask::Add { partitions: vec![self.places.offsets] },
            Phase::CommitOffset => Ask::CommitOffset { offset: self.position + self.count() },
            Phase::End { commit } => Ask::End { commit },
            Phase::Idle => return None,
        };
        self.waiting = Some((id, now + 300));
        self.tries += 1;
        Some(Request { id, client: self.me, slot: self.slot, version: self.version, producer: self.producer, ask })
    }

    fn count(&self) -> i64 {
        self.batches.iter().map(|(_, values)| values.len() as i64).sum::<i64>() - i64::from(self.extra())
    }

    /// Copies into the topic that may be deleted are beside the point.
    fn extra(&self) -> u8 {
        self.batches.iter().map(|(_, values)| values.iter().filter(|value| value.index < 0).count() as u8).sum()
    }

    /// Takes the next input for a transaction, or rests if there is none.
    fn begin(&mut self, chance: &mut Random, attempts: &mut Vec<Attempt>, faults: bool) {
        let left = INPUTS - self.position;
        if left <= 0 {
            self.phase = Phase::Idle;
            return;
        }
        let id = attempts.len() as u32;
        let count = chance.between(1, left.min(PER_TRANSACTION_MAX));
        let mut values = Vec::new();
        for index in self.position..self.position + count {
            let partition = ((index as usize).wrapping_mul(7) + self.slot) % self.places.partitions;
            values.push((partition, Value { slot: self.slot, index, attempt: id }));
        }
        let mut batches: BTreeMap<usize, Vec<Value>> = BTreeMap::new();
        values.iter().for_each(|(partition, value)| batches.entry(*partition).or_default().push(*value));
        if faults && chance.one_in(6) {
            batches.insert(self.places.scrap, vec![Value { slot: self.slot, index: -1, attempt: id }]);
        }
        self.batches = batches.into_iter().collect();
        self.attempt = Some(id);
        attempts.push(Attempt { values, fate: Fate::Unknown });
        self.phase = if self.is_new_flow() { Phase::Produce(0) } else { Phase::Add };
    }

    /// A batch whose answer does not come is given up: the transaction is aborted, and what came of the batch is not known.
    fn give_up_sometimes(&mut self, chance: &mut Random, faults: bool) {
        if matches!(self.phase, Phase::Produce(_)) && faults && chance.one_in(5) {
            self.abort(true);
        }
    }

    fn abort(&mut self, unresolved: bool) {
        self.bump |= unresolved && !self.is_new_flow();
        self.phase = Phase::End { commit: false };
    }

    /// An instance whose first request is refused has nothing to lose.
    fn die_of(&mut self, error: ErrorCode) {
        self.alive = false;
        self.died_of = (self.phase != Phase::Init).then_some(error);
    }

    /// An answer has come.
    pub fn hear(
        &mut self,
        now: i64,
        request: u64,
        answer: Result<Answer, ErrorCode>,
        chance: &mut Random,
        attempts: &mut [Attempt],
        faults: bool,
    ) {
        if !self.alive || self.waiting.is_none_or(|(id, _)| id != request) {
            return;
        }
        self.waiting = None;
        self.at = now + chance.between(0, 10);
        match answer {
            Ok(answer) if self.phase == Phase::Init => {
                self.made_by = request;
                self.done(answer, chance, attempts, faults);
            }
            Ok(answer) => self.done(answer, chance, attempts, faults),
            Err(error) => self.failed(error, chance),
        }
    }

    fn done(&mut self, answer: Answer, chance: &mut Random, attempts: &mut [Attempt], faults: bool) {
        self.tries = 0;
        match (self.phase, answer) {
            (Phase::Init, Answer::Producer(producer)) => {
                (self.producer, self.bump) = (producer, false);
                self.sequences.clear();
                self.phase = Phase::Fetch;
            }
            (Phase::Fetch, Answer::Offset(offset)) => {
                (self.position, self.batches) = (offset, Vec::new());
                self.phase = Phase::Add;
            }
            (Phase::Add, _) => self.phase = Phase::Produce(0),
            (Phase::Produce(batch), _) => {
                let (partition, values) = &self.batches[batch];
                *self.sequences.entry(*partition).or_default() += values.len() as i32;
                let next = batch + 1;
                let offsets = if self.is_new_flow() { Phase::CommitOffset } else { Phase::AddOffsets };
                self.phase = if next < self.batches.len() { Phase::Produce(next) } else { offsets };
                if faults && chance.one_in(25) {
                    self.abort(false);
                }
            }
            (Phase::AddOffsets, _) => self.phase = Phase::CommitOffset,
            (Phase::CommitOffset, _) => self.phase = Phase::End { commit: !(faults && chance.one_in(8)) },
            (Phase::End { commit }, Answer::Producer(producer)) => self.ended(commit, producer, attempts),
            (phase, answer) => panic!("{answer:?} in {phase:?}"),
        }
    }

    fn ended(&mut self, commit: bool, producer: ProducerIdAndEpoch, attempts: &mut [Attempt]) {
        if let Some(attempt) = self.attempt.take() {
            attempts[attempt as usize].fate = if commit { Fate::Committed } else { Fate::Aborted };
        }
        if producer != self.producer {
            self.producer = producer;
            self.sequences.clear();
        }
        if commit {
            self.position += self.count();
        }
        self.batches.clear();
        self.phase = match (self.bump, commit) {
            (true, _) => Phase::Init,
            (false, true) => Phase::Add,
            (false, false) => Phase::Fetch,
        };
    }

    fn failed(&mut self, error: ErrorCode, chance: &mut Random) {
        match (self.phase, error) {
            (
                _,
                ErrorCode::ConcurrentTransactions
                | ErrorCode::CoordinatorLoadInProgress
                | ErrorCode::CoordinatorNotAvailable
                | ErrorCode::NotCoordinator
                | ErrorCode::UnstableOffsetCommit,
            ) => self.at += chance.between(5, 50),
            // In the flow of old an abort of nothing: the coordinator never heard of the transaction.
            (Phase::End { commit: false }, ErrorCode::InvalidTxnState) if !self.is_new_flow() && self.tries <= 1 => {
                (self.bump, self.phase) = (true, Phase::Init);
                (self.attempt, self.batches) = (None, Vec::new());
            }
            (
                Phase::Produce(_) | Phase::CommitOffset,
                ErrorCode::TransactionAbortable | ErrorCode::InvalidTxnState | ErrorCode::UnknownTopicOrPartition,
            ) => {
                self.abort(true);
            }
            (Phase::Produce(_), ErrorCode::OutOfOrderSequenceNumber) => self.abort(true),
            _ => self.die_of(error),
        }
    }
}

/// Where things lie.
#[derive(Clone, Copy)]
pub struct Places {
    pub partitions: usize,
    pub scrap: usize,
    pub offsets: usize,
}
