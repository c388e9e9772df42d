//! Offsets committed in transactions: when they count, what stays in spite of them, and who may commit them.

use super::ctx::*;
use crate::{group::*, types::*};
use proptest::prelude::*;

const A: ProducerId = ProducerId(1);
const B: ProducerId = ProducerId(2);
const DAY_MS: i64 = 24 * 3_600_000;

impl Ctx {
    fn in_transaction(&mut self, producer: ProducerId, from: Identity, topic: &str, offset: i64) -> Result<Vec<ErrorCode>, ErrorCode> {
        let one =
            CommitPartition { partition: partition(topic, 0), offset: Offset(offset), leader_epoch: LeaderEpoch(3), metadata: "".into() };
        let commit = Commit { from, retention_ms: -1, tells_missing_group: false, partitions: vec![one] };
        let Decision { records, reply, .. } = self.groups.decide_commit_in_transaction(self.now, &commit);
        for record in &records {
            self.groups.apply_pending(producer, record);
            self.follower.apply_pending(producer, record);
        }
        reply
    }

    fn pend(&mut self, producer: ProducerId, topic: &str, offset: i64) {
        assert_eq!(self.in_transaction(producer, self.admin(), topic, offset), Ok(vec![ErrorCode::None]));
    }

    fn end(&mut self, producer: ProducerId, commit: bool) {
        self.groups.end_transaction(producer, commit);
        self.follower.end_transaction(producer, commit);
    }

    fn unstable(&self, topic: &str) -> bool {
        self.groups.is_unstable("g", topic, PartitionIndex(0))
    }
}

#[test]
fn an_offset_counts_from_its_commit_marker_on() {
    let mut ctx = Ctx::undelayed();
    ctx.pend(A, "t", 7);
    assert_eq!((ctx.committed("t"), ctx.unstable("t"), ctx.unstable("u")), (None, true, false));
    ctx.end(A, true);
    assert_eq!((ctx.committed("t"), ctx.unstable("t")), (Some(7), false));
    ctx.pend(A, "t", 9);
    ctx.end(A, false);
    assert_eq!((ctx.committed("t"), ctx.unstable("t")), (Some(7), false));
    assert!(!ctx.groups.has_pending(A));
}

#[test]
fn a_group_that_has_only_an_aborted_offset_is_gone() {
    let mut ctx = Ctx::undelayed();
    ctx.pend(A, "t", 7);
    assert_eq!(ctx.groups.len(), 1);
    ctx.end(A, false);
    assert_eq!(ctx.groups.len(), 0);
}

#[test]
fn what_was_committed_later_stays_when_an_older_marker_comes() {
    let mut ctx = Ctx::undelayed();
    ctx.pend(A, "t", 7);
    assert_eq!(ctx.commit_from(ctx.admin(), "t", 8), Ok(vec![ErrorCode::None]));
    assert!(ctx.unstable("t"), "until the marker comes nobody knows");
    ctx.end(A, true);
    assert_eq!((ctx.committed("t"), ctx.unstable("t")), (Some(8), false));
    ctx.pend(A, "t", 10);
    ctx.pend(B, "t", 11);
    ctx.end(B, true);
    assert_eq!((ctx.committed("t"), ctx.unstable("t")), (Some(11), true));
    ctx.end(A, true);
    assert_eq!(ctx.committed("t"), Some(11));
    ctx.pend(A, "t", 20);
    ctx.pend(B, "t", 21);
    ctx.end(B, false);
    ctx.end(A, true);
    assert_eq!(ctx.committed("t"), Some(20), "an aborted one was never there");
    ctx.pend(A, "t", 30);
    ctx.pend(B, "t", 31);
    ctx.pend(A, "t", 32);
    ctx.end(A, true);
    ctx.end(B, true);
    assert_eq!(ctx.committed("t"), Some(32), "it was committed again in the transaction");
}

#[test]
fn a_forgotten_offset_takes_what_is_pending_along() {
    let mut ctx = Ctx::undelayed();
    ctx.pend(A, "t", 7);
    ctx.pend(A, "u", 7);
    let gone = ctx.groups.decide_delete_offsets(&group(), &[partition("t", 0)]);
    assert_eq!(gone.records.len(), 1);
    assert_eq!(ctx.apply(gone), Ok(vec![ErrorCode::None]));
    assert_eq!((ctx.unstable("t"), ctx.unstable("u")), (false, true));
    ctx.end(A, true);
    assert_eq!((ctx.committed("t"), ctx.committed("u")), (None, Some(7)));
    ctx.pend(A, "t", 8);
    let deleted = ctx.groups.decide_topic_deleted(&TopicName::new("t").unwrap(), Millis(i64::MAX));
    ctx.apply(deleted);
    ctx.pend(A, "v", 1);
    let deleted = ctx.groups.decide_delete_group(&group());
    assert_eq!(ctx.apply(deleted), ErrorCode::None);
    ctx.end(A, true);
    assert_eq!(ctx.groups.len(), 0);
}

#[test]
fn an_offset_that_may_change_does_not_expire_nor_does_its_group() {
    let mut ctx = Ctx::undelayed();
    ctx.pend(A, "t", 7);
    ctx.end(A, true);
    ctx.pend(A, "t", 8);
    ctx.now.wall = ctx.now.wall.plus(30 * DAY_MS);
    assert_eq!(ctx.groups.decide_expire(ctx.now).reply, 0);
    ctx.end(A, false);
    let expired = ctx.groups.decide_expire(ctx.now);
    assert_eq!(ctx.apply(expired), 1);
    assert_eq!(ctx.groups.len(), 0);
}

#[test]
fn members_are_fenced_in_transactions_too() {
    let mut ctx = Ctx::undelayed();
    let a = ctx.stable(&[join("a")]).remove(0);
    let from = ctx.identity(&a);
    assert_eq!(ctx.in_transaction(A, from.clone(), "t", 7), Ok(vec![ErrorCode::None]));
    let other = Identity { generation: Generation(9), ..from.clone() };
    assert_eq!(ctx.in_transaction(A, other, "t", 8), Err(ErrorCode::IllegalGeneration));
    let stranger = Identity { member_id: "x".into(), ..from };
    assert_eq!(ctx.in_transaction(A, stranger, "t", 8), Err(ErrorCode::UnknownMemberId));
    let nobody = ctx.admin();
    assert_eq!(ctx.in_transaction(A, nobody, "t", 9), Ok(vec![ErrorCode::None]), "a client that doesn't say who it is is believed");
    let gone = Identity { group: "gone".into(), generation: Generation(3), ..ctx.admin() };
    assert_eq!(ctx.in_transaction(A, gone, "t", 8), Err(ErrorCode::IllegalGeneration));
    ctx.end(A, true);
    assert_eq!(ctx.committed("t"), Some(9));
}

/// What happens to one partition of the group, as the log has it.
#[derive(Clone, Debug)]
enum Event {
    Commit,
    Pend(i64),
    End(i64, bool),
    Forget,
}

fn any_event() -> impl Strategy<Value = Event> {
    prop_oneof![
        2 => Just(Event::Commit),
        4 => (1..4_i64).prop_map(Event::Pend),
        3 => (1..4_i64, any::<bool>()).prop_map(|(producer, commit)| Event::End(producer, commit)),
        1 => Just(Event::Forget),
    ]
}

proptest! {
    /// The committed offset is that of the last record in the log that is outside of transactions or in a committed one.
    #[test]
    fn the_last_record_that_counts_is_the_offset(events in prop::collection::vec(any_event(), 1..30)) {
        let mut ctx = Ctx::undelayed();
        // Of every record: its place and value, and whose transaction it waits for.
        let mut committed: Option<(i64, i64)> = None;
        let mut pending: Vec<(i64, i64)> = Vec::new();
        for (at, event) in (0..).zip(&events) {
            match event {
                Event::Commit => {
                    ctx.commit_from(ctx.admin(), "t", 100 + at).unwrap();
                    committed = Some((at, 100 + at));
                }
                Event::Pend(producer) => {
                    ctx.pend(ProducerId(*producer), "t", 100 + at);
                    pending.push((*producer, at));
                }
                Event::End(producer, commit) => {
                    ctx.end(ProducerId(*producer), *commit);
                    let last = pending.iter().filter(|(of, _)| of == producer).map(|(_, at)| *at).max();
                    pending.retain(|(of, _)| of != producer);
                    if let Some(at) = last.filter(|at| *commit && committed.is_none_or(|(before, _)| before < *at)) {
                        committed = Some((at, 100 + at));
                    }
                }
                Event::Forget => {
                    let gone = ctx.groups.decide_delete_offsets(&group(), &[partition("t", 0)]);
                    if ctx.apply(gone).is_ok() {
                        (committed, pending) = (None, Vec::new());
                    }
                }
            }
            prop_assert_eq!(ctx.committed("t"), committed.map(|(_, value)| value), "after {:?}", &events[..=at as usize]);
            prop_assert_eq!(ctx.unstable("t"), !pending.is_empty());
            prop_assert_eq!(ctx.groups.is_empty(), committed.is_none() && pending.is_empty());
        }
    }
}
