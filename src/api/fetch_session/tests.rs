//! Sessions through their two steps: what is read and listed, evictions, bounds, and a client that merges answers.

use super::*;
use proptest::prelude::*;
use std::collections::BTreeMap;

const DAY: i64 = 86_400_000;

fn key(name: &str, partition: i32) -> PartitionKey {
    PartitionKey { topic: TopicRef::Name(name.into()), partition: PartitionIndex(partition) }
}

fn ask(offset: i64) -> PartitionAsk {
    PartitionAsk {
        fetch_offset: Offset(offset),
        log_start_offset: Offset(-1),
        max_bytes: 1 << 20,
        current_leader_epoch: LeaderEpoch::NONE,
        last_fetched_epoch: LeaderEpoch::NONE,
    }
}

fn idle(high_watermark: i64) -> PartitionOutcome {
    PartitionOutcome {
        error: ErrorCode::None,
        has_records: false,
        high_watermark: Offset(high_watermark),
        log_start: Offset(0),
        must_tell: false,
    }
}

fn records(high_watermark: i64) -> PartitionOutcome {
    PartitionOutcome { has_records: true, ..idle(high_watermark) }
}

/// A client that speaks in sessions.
struct Client<'a> {
    sessions: &'a mut FetchSessions,
    now: Millis,
    fresh_id: i32,
}

impl Client<'_> {
    fn resolve(
        &mut self,
        id: i32,
        epoch: i32,
        asks: &[(PartitionKey, PartitionAsk)],
        forget: &[PartitionKey],
    ) -> Result<FetchContext, ErrorCode> {
        let request =
            SessionRequest { session_id: id, epoch, by_topic_id: false, privileged: false, partitions: asks.to_vec(), forgotten: forget };
        self.sessions.resolve(self.now, request)
    }

    /// A full fetch of `partitions` that wants a session.
    fn open(&mut self, partitions: &[PartitionKey]) -> Reply {
        let asks: Vec<_> = partitions.iter().map(|p| (p.clone(), ask(0))).collect();
        let context = self.resolve(0, INITIAL_EPOCH, &asks, &[]).unwrap();
        let outcomes = vec![idle(5); partitions.len()];
        self.fresh_id += 1;
        self.sessions.finish(self.now, &context, &outcomes, self.fresh_id)
    }
}

fn client(sessions: &mut FetchSessions) -> Client<'_> {
    Client { sessions, now: Millis(1_000_000), fresh_id: 40 }
}

fn keys_of(context: &FetchContext) -> Vec<PartitionKey> {
    context.partitions.iter().map(|p| p.key.clone()).collect()
}

#[test]
fn a_full_fetch_gets_a_session_and_lists_everything() {
    let mut sessions = FetchSessions::new(10);
    let reply = client(&mut sessions).open(&[key("a", 0), key("a", 1)]);
    assert_eq!(reply, Reply { error: ErrorCode::None, session_id: 41, listed: vec![true, true] });
    assert_eq!((sessions.len(), sessions.partitions()), (1, 2));
}

#[test]
fn an_incremental_fetch_lists_only_what_changed() {
    let mut sessions = FetchSessions::new(10);
    let mut c = client(&mut sessions);
    let id = c.open(&[key("a", 0), key("a", 1), key("a", 2)]).session_id;
    let context = c.resolve(id, 1, &[], &[]).unwrap();
    let failed = PartitionOutcome { error: ErrorCode::NotLeaderOrFollower, ..idle(-1) };
    let reply = c.sessions.finish(c.now, &context, &[idle(5), idle(6), failed], 0);
    assert_eq!(reply.listed, [false, true, true], "a moved high watermark and an error are news");
    let context = c.resolve(id, 2, &[], &[]).unwrap();
    let moved_start = PartitionOutcome { log_start: Offset(3), ..idle(5) };
    let reply = c.sessions.finish(c.now, &context, &[moved_start, idle(6), idle(5)], 0);
    assert_eq!(reply.listed, [true, false, true], "a moved log start is news, and so is an error that went away");
    let context = c.resolve(id, 3, &[], &[]).unwrap();
    let told = PartitionOutcome { must_tell: true, ..moved_start };
    assert_eq!(c.sessions.finish(c.now, &context, &[told, idle(6), idle(5)], 0).listed, [true, false, false]);
}

#[test]
fn partitions_are_added_updated_and_forgotten() {
    let mut sessions = FetchSessions::new(10);
    let mut c = client(&mut sessions);
    let id = c.open(&[key("a", 0), key("a", 1)]).session_id;
    let asks = [(key("a", 1), ask(77)), (key("b", 0), ask(8))];
    let context = c.resolve(id, 1, &asks, &[key("a", 0)]).unwrap();
    assert_eq!(keys_of(&context), [key("a", 1), key("b", 0)]);
    assert_eq!(context.partitions[0].ask.fetch_offset, Offset(77));
    assert_eq!(c.sessions.finish(c.now, &context, &[idle(5), idle(5)], 0).listed, [false, true], "a new partition is listed");
    let context = c.resolve(id, 2, &[], &[key("never", 0)]).unwrap();
    assert_eq!(context.partitions[0].ask.fetch_offset, Offset(77), "what was asked is remembered");
    assert_eq!(sessions.partitions(), 2);
}

#[test]
fn forgetting_all_ends_the_session() {
    let mut sessions = FetchSessions::new(10);
    let mut c = client(&mut sessions);
    let id = c.open(&[key("a", 0)]).session_id;
    let context = c.resolve(id, 1, &[], &[key("a", 0)]).unwrap();
    assert!(context.partitions.is_empty());
    assert_eq!(c.sessions.finish(c.now, &context, &[], 9).session_id, INVALID_SESSION_ID);
    assert_eq!((sessions.len(), sessions.partitions()), (0, 0));
}

#[test]
fn a_partition_that_gave_records_is_read_last_next_time() {
    let mut sessions = FetchSessions::new(10);
    let mut c = client(&mut sessions);
    let id = c.open(&[key("a", 0), key("a", 1), key("a", 2)]).session_id;
    let context = c.resolve(id, 1, &[], &[]).unwrap();
    c.sessions.finish(c.now, &context, &[records(9), idle(5), idle(5)], 0);
    let context = c.resolve(id, 2, &[], &[]).unwrap();
    assert_eq!(keys_of(&context), [key("a", 1), key("a", 2), key("a", 0)]);
    c.sessions.finish(c.now, &context, &[records(9), records(9), idle(9)], 0);
    let context = c.resolve(id, 3, &[], &[]).unwrap();
    assert_eq!(keys_of(&context), [key("a", 0), key("a", 1), key("a", 2)]);
}

#[test]
fn wrong_ids_and_epochs_are_told_apart() {
    let mut sessions = FetchSessions::new(10);
    let mut c = client(&mut sessions);
    let id = c.open(&[key("a", 0)]).session_id;
    assert_eq!(c.resolve(id + 1, 1, &[], &[]).unwrap_err(), ErrorCode::FetchSessionIdNotFound);
    assert_eq!(c.resolve(id, 2, &[], &[]).unwrap_err(), ErrorCode::InvalidFetchSessionEpoch);
    let first = c.resolve(id, 1, &[], &[]).unwrap();
    assert_eq!(c.resolve(id, 1, &[], &[]).unwrap_err(), ErrorCode::InvalidFetchSessionEpoch, "sent twice");
    let _second = c.resolve(id, 2, &[], &[]).unwrap();
    let reply = c.sessions.finish(c.now, &first, &[records(9)], 0);
    let overtaken = Reply { error: ErrorCode::InvalidFetchSessionEpoch, session_id: id, listed: vec![false] };
    assert_eq!(reply, overtaken, "the session moved on while the first was reading");
    let by_id = SessionRequest { session_id: id, epoch: 3, by_topic_id: true, privileged: false, partitions: vec![], forgotten: &[] };
    assert_eq!(c.sessions.resolve(c.now, by_id).unwrap_err(), ErrorCode::FetchSessionTopicIdError);
}

#[test]
fn closing_and_starting_over_end_the_old_session() {
    let mut sessions = FetchSessions::new(10);
    let mut c = client(&mut sessions);
    let id = c.open(&[key("a", 0)]).session_id;
    let context = c.resolve(id, FINAL_EPOCH, &[(key("a", 0), ask(1))], &[]).unwrap();
    assert_eq!(c.sessions.finish(c.now, &context, &[idle(5)], 7).session_id, INVALID_SESSION_ID);
    assert_eq!(c.sessions.len(), 0);
    let id = c.open(&[key("a", 0)]).session_id;
    let context = c.resolve(id, INITIAL_EPOCH, &[(key("a", 0), ask(1))], &[]).unwrap();
    let again = c.sessions.finish(c.now, &context, &[idle(5)], 7).session_id;
    assert_ne!(again, id);
    assert_eq!(c.sessions.len(), 1);
}

#[test]
fn a_partition_named_twice_is_read_once_as_last_asked() {
    let mut sessions = FetchSessions::new(10);
    let mut c = client(&mut sessions);
    let asks = [(key("a", 0), ask(1)), (key("a", 1), ask(2)), (key("a", 0), ask(3))];
    let context = c.resolve(0, FINAL_EPOCH, &asks, &[]).unwrap();
    assert_eq!(keys_of(&context), [key("a", 0), key("a", 1)]);
    assert_eq!(context.partitions[0].ask.fetch_offset, Offset(3));
}

#[test]
fn epochs_wrap_to_one() {
    assert_eq!(next_epoch(0), 1);
    assert_eq!(next_epoch(i32::MAX), 1);
    assert_eq!(next_epoch(-1), FINAL_EPOCH);
    let mut sessions = FetchSessions::new(10);
    let mut c = client(&mut sessions);
    let id = c.open(&[key("a", 0)]).session_id;
    c.sessions.sessions.get_mut(&id).unwrap().epoch = i32::MAX;
    assert!(c.resolve(id, i32::MAX, &[], &[]).is_ok());
    assert!(c.resolve(id, 1, &[], &[]).is_ok());
}

#[test]
fn a_fresh_session_is_not_evicted_and_the_newcomer_gets_none() {
    let mut sessions = FetchSessions::new(1);
    let mut c = client(&mut sessions);
    let id = c.open(&[key("a", 0)]).session_id;
    assert_eq!(c.open(&[key("a", 0), key("a", 1)]).session_id, INVALID_SESSION_ID);
    assert!(c.resolve(id, 1, &[], &[]).is_ok());
    assert_eq!(sessions.evictions(), 0);
}

#[test]
fn a_stale_session_goes_first() {
    let mut sessions = FetchSessions::new(2);
    let mut c = client(&mut sessions);
    let stale = c.open(&[key("a", 0), key("a", 1)]).session_id;
    let used = c.open(&[key("b", 0)]).session_id;
    c.now = c.now.plus(EVICTION_MS + 1);
    c.resolve(used, 1, &[], &[]).unwrap();
    assert_ne!(c.open(&[key("c", 0)]).session_id, INVALID_SESSION_ID);
    assert_eq!(c.resolve(stale, 1, &[], &[]).unwrap_err(), ErrorCode::FetchSessionIdNotFound);
    assert_eq!((sessions.len(), sessions.evictions()), (2, 1));
}

#[test]
fn an_old_session_in_use_goes_only_for_a_larger_one() {
    let mut sessions = FetchSessions::new(1);
    let mut c = client(&mut sessions);
    let old = c.open(&[key("a", 0), key("a", 1)]).session_id;
    c.now = c.now.plus(EVICTION_MS + 1);
    c.resolve(old, 1, &[], &[]).unwrap();
    assert_eq!(c.open(&[key("b", 0)]).session_id, INVALID_SESSION_ID, "smaller");
    assert_ne!(c.open(&[key("b", 0), key("b", 1), key("b", 2)]).session_id, INVALID_SESSION_ID);
    assert_eq!(c.resolve(old, 2, &[], &[]).unwrap_err(), ErrorCode::FetchSessionIdNotFound);
}

#[test]
fn a_follower_takes_a_fresh_consumers_place_but_not_the_other_way_round() {
    let mut sessions = FetchSessions::new(1);
    let mut c = client(&mut sessions);
    let consumer = c.open(&[key("a", 0)]).session_id;
    let request = SessionRequest {
        session_id: 0,
        epoch: INITIAL_EPOCH,
        by_topic_id: true,
        privileged: true,
        partitions: vec![(PartitionKey { topic: TopicRef::Id(TopicId(uuid::Uuid::from_u128(7))), partition: PartitionIndex(0) }, ask(0))],
        forgotten: &[],
    };
    let context = c.sessions.resolve(c.now, request).unwrap();
    let follower = c.sessions.finish(c.now, &context, &[idle(1)], 77).session_id;
    assert_eq!(follower, 77);
    assert_eq!(c.resolve(consumer, 1, &[], &[]).unwrap_err(), ErrorCode::FetchSessionIdNotFound);
    assert_eq!(c.open(&[key("a", 0), key("a", 1)]).session_id, INVALID_SESSION_ID);
}

#[test]
fn no_slots_means_no_sessions() {
    let mut sessions = FetchSessions::new(0);
    assert_eq!(client(&mut sessions).open(&[key("a", 0)]).session_id, INVALID_SESSION_ID);
}

#[test]
fn partitions_are_bounded_over_all_sessions() {
    let mut sessions = FetchSessions::bounded(10, 3);
    let mut c = client(&mut sessions);
    let first = c.open(&[key("a", 0), key("a", 1)]).session_id;
    assert_eq!(c.open(&[key("b", 0), key("b", 1)]).session_id, INVALID_SESSION_ID);
    let known_and_new = [(key("a", 0), ask(1)), (key("a", 1), ask(1)), (key("a", 2), ask(1))];
    assert!(c.resolve(first, 1, &known_and_new, &[]).is_ok(), "only one of them is new");
    assert_eq!(c.resolve(first, 2, &[(key("a", 3), ask(1))], &[]).unwrap_err(), ErrorCode::FetchSessionIdNotFound);
    assert_eq!((sessions.len(), sessions.partitions()), (0, 0), "the client starts over");
}

#[test]
fn a_taken_id_gives_way_to_the_next() {
    let mut sessions = FetchSessions::new(10);
    let mut c = client(&mut sessions);
    let first = c.open(&[key("a", 0)]).session_id;
    c.fresh_id = first - 1;
    assert_eq!(c.open(&[key("b", 0)]).session_id, first + 1);
    c.fresh_id = -1;
    assert_eq!(c.open(&[key("b", 0)]).session_id, 1, "0 means none");
}

#[derive(Clone, Debug)]
enum Op {
    Fetch { add: Vec<i32>, forget: Vec<i32>, news: Vec<(i32, i64)>, with_records: Vec<i32>, failed: Vec<i32> },
    Wait(i64),
    Rival(u8),
}

fn any_op() -> impl Strategy<Value = Op> {
    let partitions = || prop::collection::vec(0..6_i32, 0..4);
    let fetch = (partitions(), partitions(), prop::collection::vec((0..6_i32, 0..100_i64), 0..4), partitions(), partitions())
        .prop_map(|(add, forget, news, with_records, failed)| Op::Fetch { add, forget, news, with_records, failed });
    prop_oneof![6 => fetch, 1 => (0..DAY).prop_map(Op::Wait), 2 => (1..5_u8).prop_map(Op::Rival)]
}

proptest! {
    /// What a client makes of its answers is what the broker knows: each partition's high watermark as of the last fetch, whatever was
    /// left out. Counts and order books stay true, and the bounds hold.
    #[test]
    fn a_client_that_merges_answers_knows_all(ops in prop::collection::vec(any_op(), 1..60), slots in 1..3_usize) {
        let mut sessions = FetchSessions::bounded(slots, 8);
        let mut c = client(&mut sessions);
        let (mut id, mut epoch) = (INVALID_SESSION_ID, INITIAL_EPOCH);
        let mut wanted: Vec<i32> = Vec::new();
        let mut seen: BTreeMap<i32, Option<i64>> = BTreeMap::new();
        let mut truth: BTreeMap<i32, i64> = (0..6).map(|p| (p, 0)).collect();
        for op in ops {
            match op {
                Op::Wait(ms) => c.now = c.now.plus(ms),
                Op::Rival(n) => {
                    let theirs: Vec<_> = (0..i32::from(n)).map(|p| key("rival", p)).collect();
                    c.open(&theirs);
                }
                Op::Fetch { add, forget, news, with_records, failed } => {
                    truth.extend(news);
                    wanted.retain(|p| !forget.contains(p));
                    wanted.extend(add.iter().filter(|p| !forget.contains(p)));
                    wanted.sort_unstable();
                    wanted.dedup();
                    seen.retain(|p, _| wanted.contains(p));
                    let full: Vec<_> = wanted.iter().map(|p| (key("t", *p), ask(0))).collect();
                    let added: Vec<_> = add.iter().map(|p| (key("t", *p), ask(0))).collect();
                    let dropped: Vec<_> = forget.iter().map(|p| key("t", *p)).collect();
                    let incremental = if epoch == INITIAL_EPOCH { None } else { c.resolve(id, epoch, &added, &dropped).ok() };
                    let context = match incremental {
                        Some(context) => context,
                        None => {
                            (id, epoch) = (INVALID_SESSION_ID, INITIAL_EPOCH);
                            c.resolve(id, epoch, &full, &[]).unwrap()
                        }
                    };
                    if context.kind != Kind::Sessionless {
                        let mut read: Vec<_> = context.partitions.iter().map(|p| p.key.partition.0).collect();
                        read.sort_unstable();
                        prop_assert_eq!(&read, &wanted, "the session reads what the client wants");
                    }
                    let outcomes: Vec<_> = context.partitions.iter().map(|p| {
                        let p = p.key.partition.0;
                        let error = if failed.contains(&p) { ErrorCode::NotLeaderOrFollower } else { ErrorCode::None };
                        PartitionOutcome { error, has_records: with_records.contains(&p), ..idle(truth[&p]) }
                    }).collect();
                    c.fresh_id += 1;
                    let reply = c.sessions.finish(c.now, &context, &outcomes, c.fresh_id);
                    prop_assert_eq!(reply.error, ErrorCode::None);
                    for ((asked, outcome), listed) in context.partitions.iter().zip(&outcomes).zip(&reply.listed) {
                        let view = seen.entry(asked.key.partition.0).or_insert(None);
                        if *listed {
                            *view = (!outcome.error.is_error()).then_some(outcome.high_watermark.0);
                        }
                        prop_assert!(*listed || !outcome.error.is_error());
                        prop_assert_eq!(*view, (!outcome.error.is_error()).then_some(outcome.high_watermark.0));
                    }
                    (id, epoch) = (reply.session_id, if reply.session_id == INVALID_SESSION_ID { INITIAL_EPOCH } else { next_epoch(epoch) });
                }
            }
            let counted: usize = c.sessions.sessions.values().map(|s| s.partitions.len()).sum();
            prop_assert_eq!(c.sessions.partitions(), counted);
            prop_assert_eq!(c.sessions.last_used.len(), c.sessions.len());
            prop_assert!(c.sessions.evictable_by_all.len() <= c.sessions.evictable_by_privileged.len());
            prop_assert!(c.sessions.len() <= slots && counted <= 8);
            for session in c.sessions.sessions.values() {
                prop_assert_eq!(session.slots.len(), session.partitions.len());
            }
        }
    }
}
