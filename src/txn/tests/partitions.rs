//! Partitions join transactions; transactions are looked at, time out and are forgotten.

use super::{super::*, ctx::*};
use crate::types::Millis;

const ABORTABLE: ErrorCode = ErrorCode::TransactionAbortable;

#[test]
fn the_first_partition_begins_the_transaction() {
    let mut ctx = Ctx::new(TransactionVersion::V2);
    assert_eq!(ctx.add(producer(100, 0), &[0]), ErrorCode::InvalidProducerIdMapping, "nobody has initialized it");
    let p = ctx.init(None).unwrap();
    assert_eq!(ctx.verify(p, &[0]), Ok(vec![ABORTABLE]));
    ctx.now = Millis(2_000);
    assert_eq!(ctx.add(p, &[0]), ErrorCode::None);
    ctx.now = Millis(3_000);
    assert_eq!(ctx.add(p, &[1, 0]), ErrorCode::None);
    let before = ctx.metadata();
    assert_eq!((before.state, before.started_at, before.updated_at), (State::Ongoing, Millis(2_000), Millis(3_000)));
    ctx.now = Millis(4_000);
    assert_eq!(ctx.add(p, &[1]), ErrorCode::None);
    assert_eq!(ctx.metadata(), before, "what is known is not written again");
    assert_eq!(ctx.verify(p, &[0, 2, 1]), Ok(vec![ErrorCode::None, ABORTABLE, ErrorCode::None]));
    assert_eq!(ctx.verify(producer(100, 1), &[0]), Err(ErrorCode::ProducerFenced));
    assert_eq!(ctx.verify(producer(1, 0), &[0]), Err(ErrorCode::InvalidProducerIdMapping));
}

#[test]
fn nothing_joins_a_transaction_that_is_ending() {
    let mut ctx = Ctx::new(TransactionVersion::V0);
    let p = ctx.init(None).unwrap();
    ctx.add(p, &[0]);
    ctx.end_v1(p, true).unwrap();
    assert_eq!(ctx.add(p, &[0]), ErrorCode::ConcurrentTransactions);
    assert_eq!(ctx.verify(p, &[0]), Err(ErrorCode::ConcurrentTransactions));
    ctx.complete();
    assert_eq!(ctx.verify(p, &[0]), Ok(vec![ABORTABLE]));
    ctx.now = Millis(9_000);
    assert_eq!(ctx.add(p, &[1]), ErrorCode::None);
    assert_eq!((ctx.metadata().started_at, ctx.metadata().partitions.len()), (Millis(9_000), 1));
}

#[test]
fn a_transaction_that_is_open_too_long_is_aborted_and_its_producer_fenced() {
    for version in [TransactionVersion::V0, TransactionVersion::V2] {
        let mut ctx = Ctx::new(version);
        let p = ctx.init(None).unwrap();
        ctx.time_out().unwrap();
        assert_eq!(ctx.state(), State::Empty, "it has no transaction");
        ctx.add(p, &[0]);
        ctx.now = ctx.now.plus(60_000);
        ctx.time_out().unwrap();
        assert!(ctx.transactions.overdue(ctx.now).is_empty());
        assert_eq!(ctx.state(), State::Ongoing, "it has a millisecond left");
        ctx.now = ctx.now.plus(1);
        assert_eq!(ctx.transactions.overdue(ctx.now), ["tx".into()]);
        ctx.time_out().unwrap();
        assert_eq!(ctx.state(), State::PrepareAbort);
        assert_eq!(ctx.complete().producer, producer(100, 1), "{version:?}");
        assert_eq!(ctx.add(p, &[0]), ErrorCode::ProducerFenced);
        let refused = if version == TransactionVersion::V2 { ErrorCode::InvalidTxnState } else { ErrorCode::ProducerFenced };
        assert_eq!(ctx.end_v2(p, true), Err(refused));
        assert_eq!(ctx.end_v1(p, true), Err(ErrorCode::ProducerFenced));
    }
}

#[test]
fn what_is_not_used_is_forgotten_unless_a_transaction_is_open() {
    let week = 7 * 24 * 3_600_000;
    let mut ctx = Ctx::new(TransactionVersion::V2);
    let p = ctx.init(None).unwrap();
    ctx.now = ctx.now.plus(week - 1);
    assert_eq!(ctx.expire(), 0);
    ctx.now = ctx.now.plus(1);
    ctx.add(p, &[0]);
    ctx.now = ctx.now.plus(2 * week);
    assert_eq!(ctx.expire(), 0);
    ctx.end_v2(p, false).unwrap();
    ctx.now = ctx.now.plus(2 * week);
    assert_eq!(ctx.expire(), 0);
    ctx.complete();
    ctx.now = ctx.now.plus(week);
    assert_eq!(ctx.expire(), 1);
    assert!(ctx.transactions.is_empty());
    assert_eq!(ctx.transactions.describe("tx"), Err(ErrorCode::TransactionalIdNotFound));
    assert_eq!(ctx.add(producer(100, 1), &[0]), ErrorCode::InvalidProducerIdMapping);
}

#[test]
fn tools_see_what_there_is() {
    let mut ctx = Ctx::new(TransactionVersion::V2);
    let p = ctx.init(None).unwrap();
    ctx.add(p, &[3]);
    ctx.init_with(InitProducerId { id: "other".into(), timeout_ms: 5, expected: None }).unwrap();
    let described = ctx.transactions.describe("tx").unwrap();
    assert_eq!((described.producer, described.state, described.timeout_ms), (p, State::Ongoing, 60_000));
    assert_eq!((described.started_at, described.partitions), (Millis(1_000), [partition(3)].into()));
    assert_eq!(ctx.transactions.describe(""), Err(ErrorCode::InvalidRequest));

    let list = |filter: Filter<'_>| {
        let mut ids: Vec<_> = ctx.transactions.list(Millis(11_000), &filter).into_iter().map(|listed| listed.id.to_string()).collect();
        ids.sort();
        ids
    };
    assert_eq!(list(Filter::default()), ["other", "tx"]);
    assert_eq!(list(Filter { states: vec![State::Ongoing], ..Filter::default() }), ["tx"]);
    assert_eq!(list(Filter { producer_ids: vec![ProducerId(101)], ..Filter::default() }), ["other"]);
    assert!(list(Filter { no_known_state: true, ..Filter::default() }).is_empty());
    // One that never had a transaction counts as very old, as in Kafka.
    assert_eq!(list(Filter { longer_than_ms: Some(10_000), ..Filter::default() }), ["other"]);
    assert_eq!(list(Filter { longer_than_ms: Some(9_999), ..Filter::default() }), ["other", "tx"]);
    assert_eq!(list(Filter { id_fits: Some(&|id| id.starts_with('t')), ..Filter::default() }), ["tx"]);
}

#[test]
fn states_have_kafkas_numbers_and_names() {
    for (number, state) in (0..).zip(State::ALL) {
        assert_eq!((state.id(), State::from_id(number), State::from_name(state.name())), (number, Some(state), Some(state)));
    }
    assert_eq!((State::from_id(8), State::from_id(-1), State::from_name("empty")), (None, None, None));
}
