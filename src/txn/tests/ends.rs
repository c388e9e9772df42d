//! EndTxn of both flows: decisions, retries, and what comes at the wrong time.

use super::{super::*, ctx::*};

const V2: TransactionVersion = TransactionVersion::V2;

#[test]
fn in_the_flow_of_old_the_epoch_stays_and_state_tells_a_retry() {
    let mut ctx = Ctx::new(TransactionVersion::V0);
    let p = ctx.init(None).unwrap();
    assert_eq!(ctx.end_v1(p, true), Err(ErrorCode::InvalidTxnState), "there is no transaction");
    assert_eq!(ctx.end_v1(p, false), Err(ErrorCode::InvalidTxnState));
    for commit in [true, false] {
        ctx.add(p, &[0]);
        assert_eq!(ctx.end_v1(producer(100, 1), commit), Err(ErrorCode::ProducerFenced));
        assert_eq!(ctx.end_v1(producer(9, 0), commit), Err(ErrorCode::InvalidProducerIdMapping));
        assert_eq!(ctx.end_v1(p, commit), Ok(p));
        assert_eq!(ctx.end_v1(p, commit), Err(ErrorCode::ConcurrentTransactions));
        assert_eq!(ctx.end_v1(p, !commit), Err(ErrorCode::ConcurrentTransactions));
        let ending = ctx.complete();
        assert_eq!((ending.producer, ending.commit), (p, commit));
        assert_eq!(ctx.state(), if commit { State::CompleteCommit } else { State::CompleteAbort });
        assert!(ctx.metadata().partitions.is_empty());
        assert_eq!(ctx.end_v1(p, commit), Ok(p), "the answer was lost");
        assert_eq!(ctx.end_v1(p, !commit), Err(ErrorCode::InvalidTxnState));
    }
}

#[test]
fn in_the_new_flow_each_end_bumps_the_epoch() {
    let mut ctx = Ctx::new(V2);
    let mut p = ctx.init(None).unwrap();
    for commit in [true, false, true] {
        ctx.add(p, &[0]);
        let next = producer(100, p.epoch.0 + 1);
        assert_eq!(ctx.end_v2(p, commit), Ok(next));
        assert_eq!(ctx.end_v2(p, commit), Err(ErrorCode::ConcurrentTransactions));
        assert_eq!(ctx.end_v2(p, !commit), Err(ErrorCode::ConcurrentTransactions));
        assert_eq!(ctx.add(next, &[0]), ErrorCode::ConcurrentTransactions);
        assert_eq!(ctx.complete().producer, next, "markers fence what comes late");
        assert_eq!(ctx.end_v2(p, commit), Ok(next), "the answer was lost");
        assert_eq!(ctx.end_v2(p, !commit), Err(ErrorCode::InvalidTxnState));
        assert_eq!(ctx.add(p, &[0]), ErrorCode::ProducerFenced);
        p = next;
    }
    ctx.add(p, &[0]);
    assert_eq!(ctx.end_v2(producer(100, p.epoch.0 - 1), true), Err(ErrorCode::ProducerFenced), "no retry: the next one is open");
    assert_eq!(ctx.end_v2(producer(100, p.epoch.0 + 1), true), Err(ErrorCode::ProducerFenced));
}

#[test]
fn in_the_new_flow_nothing_may_be_aborted_but_not_committed() {
    let mut ctx = Ctx::new(V2);
    let mut p = ctx.init(None).unwrap();
    // Empty, then after an abort, then after a commit.
    for round in 0..3 {
        assert_eq!(ctx.end_v2(p, true), Err(ErrorCode::InvalidTxnState), "round {round}");
        let next = producer(100, p.epoch.0 + 1);
        assert_eq!(ctx.end_v2(p, false), Ok(next), "round {round}");
        let ending = ctx.complete();
        assert_eq!((ending.producer, ending.partitions.len(), ctx.state()), (next, 0, State::CompleteAbort));
        p = next;
        if round == 1 {
            ctx.add(p, &[0]);
            p = ctx.end_v2(p, true).unwrap();
            ctx.complete();
        }
    }
}

#[test]
fn the_last_epoch_of_the_new_flow_leads_to_another_id() {
    let mut ctx = Ctx::at_epoch(V2, i16::MAX - 1);
    let last = producer(100, i16::MAX - 1);
    ctx.add(last, &[0]);
    ctx.out_of_ids = true;
    assert_eq!(ctx.end_v2(last, true), Err(ErrorCode::CoordinatorNotAvailable));
    ctx.out_of_ids = false;
    assert_eq!(ctx.state(), State::Ongoing);
    assert_eq!(ctx.end_v2(last, true), Ok(producer(101, 0)));
    // A restart keeps which id is next.
    ctx.restart();
    assert_eq!(ctx.end_v2(last, true), Err(ErrorCode::ConcurrentTransactions));
    // Found by the simulation: it was told its next id, and may come with that at once.
    assert_eq!(ctx.add(producer(101, 0), &[0]), ErrorCode::ConcurrentTransactions);
    assert_eq!(ctx.end_v2(producer(101, 0), false), Err(ErrorCode::ConcurrentTransactions));
    assert_eq!(ctx.init(Some(producer(101, 0))), Err(ErrorCode::ConcurrentTransactions));
    assert_eq!(ctx.complete().producer, producer(100, i16::MAX));
    assert_eq!(ctx.metadata().producer, producer(101, 0));
    assert_eq!(ctx.end_v2(last, true), Ok(producer(101, 0)), "the answer was lost");
    assert_eq!(ctx.end_v2(last, false), Err(ErrorCode::InvalidTxnState));
    assert_eq!(ctx.add(producer(101, 0), &[0]), ErrorCode::None);
    assert_eq!(ctx.end_v2(last, true), Err(ErrorCode::InvalidProducerIdMapping));
}

#[test]
fn a_transaction_of_one_flow_may_end_in_the_other() {
    let mut ctx = Ctx::new(V2);
    let p = ctx.init(None).unwrap();
    ctx.add(p, &[0]);
    assert_eq!(ctx.end_v1(p, true), Ok(p));
    ctx.complete();
    ctx.add(p, &[0]);
    assert_eq!(ctx.end_v2(p, true), Ok(producer(100, 1)));
    ctx.complete();
    ctx.add(producer(100, 1), &[0]);
    assert_eq!(ctx.end_v1(producer(100, 1), false), Ok(producer(100, 1)));
}

/// Found by the simulation: a producer that was fenced was taken for one that has lost an answer, and given its successor's epoch.
#[test]
fn a_fenced_producer_of_the_new_flow_does_not_become_its_successor_of_the_old() {
    let mut ctx = Ctx::new(V2);
    let fenced = ctx.init(None).unwrap();
    let successor = ctx.init(None).unwrap();
    ctx.add(successor, &[0]);
    ctx.end_v1(successor, false).unwrap();
    ctx.complete();
    assert_eq!(ctx.end_v2(fenced, false), Err(ErrorCode::ProducerFenced));
    assert_eq!(ctx.end_v2(successor, false), Ok(producer(100, 2)));
}

#[test]
fn completions_count_once_and_only_for_their_own_transaction() {
    let mut ctx = Ctx::new(V2);
    let p = ctx.init(None).unwrap();
    ctx.add(p, &[0]);
    let next = ctx.end_v2(p, true).unwrap();
    let ending = ctx.complete();
    ctx.endings.push(ending.clone());
    ctx.complete();
    assert_eq!(ctx.state(), State::CompleteCommit);
    ctx.add(next, &[0]);
    ctx.endings.push(ending.clone());
    ctx.complete();
    assert_eq!(ctx.state(), State::Ongoing);
    ctx.end_v2(next, true).unwrap();
    ctx.endings.insert(0, ending);
    ctx.complete();
    assert_eq!(ctx.state(), State::PrepareCommit, "the markers of another one are there");
}
