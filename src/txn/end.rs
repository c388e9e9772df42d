//! The end of a transaction: EndTxn of both flows, and the abort that fences a producer (`endTransaction`, `endTransactionWithTV1`).

use super::{Decision, EndTxn, FreshIds, State, Transaction, TransactionVersion, TransactionalId, Transactions, command::is_exhausted};
use crate::types::{ErrorCode, Millis, ProducerEpoch, ProducerId, ProducerIdAndEpoch};

/// The producer to go on as, or why not.
type Answer = Result<ProducerIdAndEpoch, ErrorCode>;

/// What becomes of an EndTxn.
enum Course {
    /// It was done before; the answer was lost.
    Done,
    /// The transaction ends.
    End,
    /// There is no transaction that could end; its producer gets the next epoch all the same (version 2 aborts so whatever it isn't sure of).
    EndOfNothing,
}

impl Transactions {
    /// EndTxn. Once the record of the decision is committed it is answered, and the markers are written.
    pub fn decide_end(&self, now: Millis, end: &EndTxn, fresh: FreshIds<'_>) -> Decision<Answer> {
        let course = self.known(&end.id).and_then(|transaction| {
            let course = if end.client_version.bumps_epochs() { transaction.course_v2(end) } else { transaction.course_v1(end) };
            course.map(|course| (transaction, course))
        });
        let (transaction, course) = match course {
            Ok(known) => known,
            Err(error) => return Decision::only(Err(error)),
        };
        let began = match course {
            Course::Done => return Decision::only(Ok(transaction.at.producer)),
            Course::End => transaction.at.started_at,
            Course::EndOfNothing => now,
        };
        let ended = if end.client_version.bumps_epochs() {
            transaction.prepare_bumping(now, &end.id, end.commit, end.client_version, began, fresh)
        } else {
            Ok(transaction.prepare(now, &end.id, end.commit, transaction.at.producer, transaction.last_epoch))
        };
        ended.unwrap_or_else(|error| Decision::only(Err(error)))
    }

    /// A transaction is aborted since its time is up: its producer is fenced. Does nothing if the transaction has ended.
    pub fn decide_timeout(&self, now: Millis, id: &TransactionalId, fresh: FreshIds<'_>) -> Result<Decision<()>, ErrorCode> {
        if self.get(id).is_none_or(|transaction| !transaction.is_overdue(now)) {
            return Ok(Decision::only(()));
        }
        self.decide_fence(now, id, fresh)
    }

    /// Aborts the open transaction of a producer with an epoch that it doesn't have.
    pub(super) fn decide_fence(&self, now: Millis, id: &TransactionalId, fresh: FreshIds<'_>) -> Result<Decision<()>, ErrorCode> {
        let transaction = self.known(id)?;
        let (version, producer) = (self.settings().transaction_version, transaction.at.producer);
        let Decision { records, volatile, endings, .. } = if version.bumps_epochs() {
            transaction.prepare_bumping(now, id, false, version, transaction.at.started_at, fresh)?
        } else {
            transaction.prepare(now, id, false, bumped(producer), ProducerEpoch::NONE)
        };
        Ok(Decision { reply: (), records, volatile, endings })
    }
}

impl Transaction {
    /// The flow of old: the epoch stays, so that state and epoch tell a retry.
    fn course_v1(&self, end: &EndTxn) -> Result<Course, ErrorCode> {
        let at = &self.at;
        if at.producer.id != end.producer.id {
            return Err(ErrorCode::InvalidProducerIdMapping);
        }
        if at.producer.epoch != end.producer.epoch {
            return Err(ErrorCode::ProducerFenced);
        }
        self.check_is_not_ending()?;
        match (at.state, end.commit) {
            (State::Ongoing, _) => Ok(Course::End),
            (State::CompleteCommit, true) | (State::CompleteAbort, false) => Ok(Course::Done),
            _ => Err(ErrorCode::InvalidTxnState),
        }
    }

    /// KIP-890: a retry is one epoch behind; the current epoch means the next end.
    fn course_v2(&self, end: &EndTxn) -> Result<Course, ErrorCode> {
        // That first: a producer whose epochs are used up comes with the id that it gets when the markers are written.
        self.check_is_not_ending()?;
        let (at, asked) = (&self.at, end.producer);
        // Only an end that bumped the epoch leaves one behind: after another the current epoch may be a successor's, who has fenced this one.
        let ended_so = at.client_version.bumps_epochs();
        // The epochs of the id were used up by the end that is asked for again, so that the producer has another id by now.
        let used_up = asked.id == at.previous_producer_id && asked.epoch.0 == i16::MAX - 1 && at.producer.epoch == ProducerEpoch(0);
        let retry_with_old_id = ended_so && used_up;
        let retry = retry_with_old_id || (ended_so && at.producer.epoch.0.checked_sub(1) == Some(asked.epoch.0));
        if at.producer.id != asked.id && !retry_with_old_id {
            return Err(ErrorCode::InvalidProducerIdMapping);
        }
        let same_epoch = at.producer.epoch == asked.epoch;
        let is_current = match at.state {
            State::CompleteCommit | State::CompleteAbort => retry || same_epoch,
            _ => same_epoch,
        };
        if !is_current {
            return Err(ErrorCode::ProducerFenced);
        }
        match (at.state, end.commit) {
            (State::Ongoing, _) => Ok(Course::End),
            (State::CompleteCommit, true) | (State::CompleteAbort, false) if retry => Ok(Course::Done),
            (State::CompleteCommit | State::CompleteAbort, false) if !retry => Ok(Course::EndOfNothing),
            (State::Empty, false) => Ok(Course::EndOfNothing),
            _ => Err(ErrorCode::InvalidTxnState),
        }
    }

    /// Ends the transaction with an epoch above that of its records; with the last epoch, the producer goes on with another id.
    fn prepare_bumping(
        &self,
        now: Millis,
        id: &TransactionalId,
        commit: bool,
        version: TransactionVersion,
        began: Millis,
        fresh: FreshIds<'_>,
    ) -> Result<Decision<Answer>, ErrorCode> {
        let producer = self.at.producer;
        let next = if is_exhausted(producer.epoch) { fresh()? } else { ProducerId::NONE };
        let mut decision = self.prepare(now, id, commit, bumped(producer), producer.epoch);
        for metadata in decision.records.iter_mut().filter_map(|record| record.value.as_mut()) {
            metadata.client_version = version;
            metadata.next_producer_id = next;
            metadata.started_at = began;
        }
        decision.endings.iter_mut().for_each(|ending| ending.version = version);
        if next != ProducerId::NONE {
            decision.reply = Ok(ProducerIdAndEpoch { id: next, epoch: ProducerEpoch(0) });
        }
        Ok(decision)
    }

    /// Decides the transaction's end: its markers carry this producer.
    fn prepare(
        &self,
        now: Millis,
        id: &TransactionalId,
        commit: bool,
        producer: ProducerIdAndEpoch,
        last_epoch: ProducerEpoch,
    ) -> Decision<Answer> {
        let mut to = self.at.clone();
        to.state = if commit { State::PrepareCommit } else { State::PrepareAbort };
        to.previous_producer_id = self.at.producer.id;
        to.producer = producer;
        to.updated_at = now;
        to.client_version = TransactionVersion::V0;
        let endings = to.ending(id).into_iter().collect();
        Decision { endings, ..Decision::to(id, to, last_epoch, Ok(producer)) }
    }
}

/// The next epoch; the last one stays, since no epoch is above it.
fn bumped(producer: ProducerIdAndEpoch) -> ProducerIdAndEpoch {
    ProducerIdAndEpoch { id: producer.id, epoch: ProducerEpoch(producer.epoch.0.saturating_add(1)) }
}
