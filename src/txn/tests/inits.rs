//! InitProducerId: new producers, successors, returns, and what they fence.

use super::{super::*, ctx::*};
use crate::types::Millis;

#[test]
fn each_producer_is_fenced_by_its_successor() {
    let mut ctx = Ctx::new(TransactionVersion::V2);
    assert_eq!(ctx.init(None), Ok(producer(100, 0)));
    assert_eq!((ctx.state(), ctx.metadata().started_at), (State::Empty, Millis::NONE));
    assert_eq!(ctx.init(None), Ok(producer(100, 1)));
    assert_eq!(ctx.add(producer(100, 0), &[0]), ErrorCode::ProducerFenced);
    assert_eq!(ctx.add(producer(99, 1), &[0]), ErrorCode::InvalidProducerIdMapping);
    assert_eq!(ctx.add(producer(100, 1), &[0]), ErrorCode::None);
}

#[test]
fn what_cannot_be_is_refused() {
    let mut ctx = Ctx::new(TransactionVersion::V2);
    let asked = |id: &str, timeout_ms| InitProducerId { id: id.into(), timeout_ms, expected: None };
    assert_eq!(ctx.init_with(asked("", 1)), Err(ErrorCode::InvalidRequest));
    for timeout_ms in [0, -1, i32::MIN, 15 * 60_000 + 1, i32::MAX] {
        assert_eq!(ctx.init_with(asked("tx", timeout_ms)), Err(ErrorCode::InvalidTransactionTimeout), "{timeout_ms}");
    }
    assert!(ctx.init_with(asked("tx", 15 * 60_000)).is_ok());
    ctx.out_of_ids = true;
    assert_eq!(ctx.init_with(asked("another", 1)), Err(ErrorCode::CoordinatorNotAvailable));
    assert!(ctx.transactions.get("another").is_none());
}

/// KIP-360.
#[test]
fn a_producer_that_returns_gets_the_next_epoch_and_may_ask_twice() {
    let mut ctx = Ctx::new(TransactionVersion::V2);
    // One whose id was forgotten meanwhile begins anew.
    assert_eq!(ctx.init(Some(producer(7, 3))), Ok(producer(100, 0)));
    assert_eq!(ctx.init(Some(producer(100, 0))), Ok(producer(100, 1)));
    assert_eq!(ctx.init(Some(producer(100, 0))), Ok(producer(100, 1)), "the answer was lost");
    assert_eq!(ctx.init(Some(producer(100, 1))), Ok(producer(100, 2)));
    assert_eq!(ctx.init(Some(producer(100, 0))), Err(ErrorCode::ProducerFenced));
    assert_eq!(ctx.init(Some(producer(7, 2))), Err(ErrorCode::ProducerFenced));
    // A successor takes that away.
    assert_eq!(ctx.init(None), Ok(producer(100, 3)));
    assert_eq!(ctx.init(Some(producer(100, 2))), Err(ErrorCode::ProducerFenced));
}

#[test]
fn what_was_asked_twice_is_forgotten_in_a_restart() {
    let mut ctx = Ctx::new(TransactionVersion::V2);
    ctx.init(None).unwrap();
    assert_eq!(ctx.init(Some(producer(100, 0))), Ok(producer(100, 1)));
    ctx.restart();
    assert_eq!(ctx.init(Some(producer(100, 0))), Err(ErrorCode::ProducerFenced));
    assert_eq!(ctx.init(Some(producer(100, 1))), Ok(producer(100, 2)));
}

#[test]
fn an_open_transaction_is_aborted_first() {
    for (version, marker_epoch) in [(TransactionVersion::V0, 1), (TransactionVersion::V2, 1)] {
        let mut ctx = Ctx::new(version);
        let first = ctx.init(None).unwrap();
        ctx.add(first, &[0, 1]);
        assert_eq!(ctx.init(None), Err(ErrorCode::ConcurrentTransactions));
        assert_eq!(ctx.state(), State::PrepareAbort);
        assert_eq!(ctx.init(None), Err(ErrorCode::ConcurrentTransactions), "until the markers are there");
        assert_eq!(ctx.end_v1(first, true), Err(ErrorCode::ProducerFenced));
        assert_eq!(ctx.add(first, &[2]), ErrorCode::ConcurrentTransactions);
        let ending = ctx.complete();
        assert_eq!((ending.producer, ending.commit, ending.partitions.len()), (producer(100, marker_epoch), false, 2));
        assert_eq!(ctx.add(first, &[2]), ErrorCode::ProducerFenced);
        assert_eq!(ctx.init(None), Ok(producer(100, marker_epoch + 1)));
    }
}

#[test]
fn a_producer_of_old_does_not_end_the_transaction_of_its_successor() {
    let mut ctx = Ctx::new(TransactionVersion::V2);
    ctx.init(None).unwrap();
    let second = ctx.init(None).unwrap();
    ctx.add(second, &[0]);
    assert_eq!(ctx.init(Some(producer(100, 0))), Err(ErrorCode::ProducerFenced));
    assert_eq!(ctx.state(), State::Ongoing);
    assert_eq!(ctx.init(Some(second)), Err(ErrorCode::ConcurrentTransactions), "its own, it does");
    assert_eq!(ctx.state(), State::PrepareAbort);
}

#[test]
fn after_the_last_epoch_comes_another_id() {
    let mut ctx = Ctx::at_epoch(TransactionVersion::V2, i16::MAX - 1);
    ctx.out_of_ids = true;
    assert_eq!(ctx.init(None), Err(ErrorCode::CoordinatorNotAvailable));
    ctx.out_of_ids = false;
    let last = producer(100, i16::MAX - 1);
    assert_eq!(ctx.init(Some(last)), Ok(producer(101, 0)));
    assert_eq!(ctx.init(Some(last)), Ok(producer(101, 0)), "the answer was lost");
    assert_eq!(ctx.init(None), Ok(producer(101, 1)));
    assert_eq!(ctx.init(Some(last)), Err(ErrorCode::ProducerFenced));
}

#[test]
fn an_epoch_is_always_left_for_fencing() {
    for version in [TransactionVersion::V0, TransactionVersion::V2] {
        let mut ctx = Ctx::at_epoch(version, i16::MAX - 1);
        let last = producer(100, i16::MAX - 1);
        assert_eq!(ctx.add(last, &[0]), ErrorCode::None);
        assert_eq!(ctx.init(None), Err(ErrorCode::ConcurrentTransactions));
        assert_eq!(ctx.complete().producer, producer(100, i16::MAX));
        let next = ctx.init(None).unwrap();
        assert_eq!((next.id > last.id, next.epoch.0 <= 1), (true, true), "{version:?}: {next:?}");
        assert_eq!(ctx.add(last, &[0]), ErrorCode::InvalidProducerIdMapping);
    }
}
