//! Which transactional batches belong to a transaction that its coordinator knows of (KIP-890; `VerificationStateEntry`, `VerificationGuard`).
//!
//! The first batch of a transaction on a partition is held until the coordinator has said that the partition is in the transaction. Between
//! its word and the append the transaction may end and another begin: the guard that was made before the question, and goes with the
//! first append or with a marker, tells that apart. Without it a late batch would open a transaction that nobody ever ends.
//!
//! Pure, and only in memory: after a restart the coordinator is asked again.

use crate::types::{Millis, ProducerEpoch, ProducerId};
use std::collections::BTreeMap;

/// One question that was asked of the coordinator: never made twice for a partition.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Guard(u64);

/// Why a batch may open a transaction on a partition.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Proof {
    /// It may not.
    Missing,
    /// The coordinator was asked with this guard, and has the partition in the transaction.
    Guarded(Guard),
    /// `transaction.partition.verification.enable` is off: the client is believed.
    Unchecked,
}

/// What is known of a producer whose transaction is being verified.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Verification {
    guard: Guard,
    /// The lowest sequence that came: a later one must not be written before it, or the retry of the first is out of order for ever.
    pub lowest_sequence: i32,
    epoch: ProducerEpoch,
    /// The client adds partitions by producing to them and bumps its epoch with each transaction (`transaction.version` 2).
    pub bumps_epoch: bool,
    began: Millis,
}

/// The verifications of one partition that are under way.
#[derive(Debug, Default)]
pub struct Verifications {
    by_producer: BTreeMap<ProducerId, Verification>,
    made: u64,
}

impl Verifications {
    /// Begins one, or goes on with the producer's; `sequence` is the batch's that waits for it.
    pub fn begin(&mut self, now: Millis, producer: ProducerId, epoch: ProducerEpoch, sequence: i32, bumps_epoch: bool) -> Guard {
        let Self { by_producer, made } = self;
        let mut fresh = || {
            *made = made.wrapping_add(1);
            Verification { guard: Guard(*made), lowest_sequence: sequence, epoch, bumps_epoch, began: now }
        };
        let verification = by_producer.entry(producer).or_insert_with(&mut fresh);
        if epoch > verification.epoch {
            // Another question: its producer may be of another flow than the one that it has fenced.
            *verification = fresh();
        } else if epoch == verification.epoch {
            verification.lowest_sequence = verification.lowest_sequence.min(sequence);
        }
        verification.guard
    }

    pub fn of(&self, producer: ProducerId) -> Option<&Verification> {
        self.by_producer.get(&producer)
    }

    /// A transactional batch was appended: the next one is in an open transaction, or after a marker has to be verified anew. But the marker
    /// that ends a transaction carries the epoch of the next one where epochs are bumped: a question of that epoch isn't about the old one.
    pub fn appended(&mut self, producer: ProducerId, epoch: ProducerEpoch, is_marker: bool) {
        let of_next = |v: &Verification| is_marker && v.bumps_epoch && v.epoch == epoch;
        if !self.of(producer).is_some_and(of_next) {
            self.by_producer.remove(&producer);
        }
    }

    /// Forgets those that came to nothing.
    pub fn expire(&mut self, now: Millis, ttl_ms: i64) {
        self.by_producer.retain(|_, v| now.0.saturating_sub(v.began.0) < ttl_ms);
    }
}

impl Proof {
    /// Whether a batch that opens a transaction may be written.
    pub fn holds(self, verification: Option<&Verification>) -> bool {
        match self {
            Self::Unchecked => true,
            Self::Missing => false,
            Self::Guarded(guard) => verification.is_some_and(|v| v.guard == guard),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const P: ProducerId = ProducerId(7);
    const NOW: Millis = Millis(1_000);

    fn epoch(epoch: i16) -> ProducerEpoch {
        ProducerEpoch(epoch)
    }

    #[test]
    fn a_guard_holds_until_the_first_append_and_is_never_made_again() {
        let mut all = Verifications::default();
        let first = all.begin(NOW, P, epoch(0), 0, false);
        assert_eq!(all.begin(NOW, P, epoch(0), 3, false), first, "the same question");
        assert!(Proof::Guarded(first).holds(all.of(P)));
        assert!(!Proof::Missing.holds(all.of(P)));
        all.appended(P, epoch(0), false);
        assert!(!Proof::Guarded(first).holds(all.of(P)));
        let second = all.begin(NOW, P, epoch(0), 0, false);
        assert!(second != first && !Proof::Guarded(first).holds(all.of(P)), "a stale answer opens no transaction");
    }

    #[test]
    fn a_marker_ends_the_question_of_its_epoch_unless_that_is_the_next_transactions() {
        for (bumps, asked, marker, left) in [(false, 0, 0, false), (false, 1, 1, false), (true, 1, 1, true), (true, 0, 1, false)] {
            let mut all = Verifications::default();
            let guard = all.begin(NOW, P, epoch(asked), 0, bumps);
            all.appended(P, epoch(marker), true);
            assert_eq!(Proof::Guarded(guard).holds(all.of(P)), left, "bumps {bumps}, asked in {asked}, marker of {marker}");
        }
    }

    /// Found by `txn::tests::sim`: a successor of the flow of old was taken for one that bumps its epochs, and its late batch written.
    #[test]
    fn a_successor_may_be_of_another_flow() {
        let mut all = Verifications::default();
        let fenced = all.begin(NOW, P, epoch(0), 0, true);
        let guard = all.begin(NOW, P, epoch(1), 0, false);
        assert!(!Proof::Guarded(fenced).holds(all.of(P)) && Proof::Guarded(guard).holds(all.of(P)));
        all.appended(P, epoch(1), true);
        assert!(!Proof::Guarded(guard).holds(all.of(P)));
    }

    #[test]
    fn the_lowest_sequence_of_the_newest_epoch_counts() {
        let mut all = Verifications::default();
        for (e, sequence, lowest) in [(0, 5, 5), (0, 7, 5), (0, 3, 3), (1, 9, 9), (0, 1, 9), (1, 0, 0)] {
            all.begin(NOW, P, epoch(e), sequence, true);
            assert_eq!(all.of(P).map(|v| v.lowest_sequence), Some(lowest), "epoch {e}, sequence {sequence}");
        }
    }

    #[test]
    fn what_came_to_nothing_is_forgotten() {
        let mut all = Verifications::default();
        all.begin(NOW, P, epoch(0), 0, false);
        all.expire(Millis(1_999), 1_000);
        assert!(all.of(P).is_some());
        all.expire(Millis(2_000), 1_000);
        assert!(all.of(P).is_none());
    }
}
