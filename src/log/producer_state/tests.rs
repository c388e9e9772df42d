//! Sequences, epochs and transactions against a model, replay against the live state, and snapshots in Kafka's bytes.

use super::{super::verification::Proof, *};
use crate::types::LeaderEpoch;
use proptest::prelude::*;
use std::collections::VecDeque;

fn header(producer: i64, epoch: i16, sequence: i32, records: i32, offset: i64) -> BatchHeader {
    BatchHeader {
        base_offset: Offset(offset),
        batch_length: 100,
        leader_epoch: LeaderEpoch(0),
        magic: 2,
        crc: 0,
        attributes: 0,
        last_offset_delta: records - 1,
        base_timestamp: Millis(1000 + offset),
        max_timestamp: Millis(1000 + offset),
        producer_id: ProducerId(producer),
        producer_epoch: ProducerEpoch(epoch),
        base_sequence: sequence,
        record_count: records,
    }
}

fn transactional(header: BatchHeader) -> BatchHeader {
    BatchHeader { attributes: 1 << 4, ..header }
}

fn marker_batch(producer: i64, epoch: i16, offset: i64) -> BatchHeader {
    BatchHeader { attributes: 1 << 4 | 1 << 5, ..header(producer, epoch, -1, 1, offset) }
}

const COMMIT: EndTxnMarker = EndTxnMarker { commit: true, coordinator_epoch: 0 };
const ABORT: EndTxnMarker = EndTxnMarker { commit: false, coordinator_epoch: 0 };

/// Admits as a client's and applies; panics if it isn't to be appended.
fn append(states: &mut ProducerStates, header: BatchHeader) {
    assert_eq!(states.admit(&header, None, Origin::ClientInTransaction(Proof::Unchecked), None).unwrap(), Admission::Append);
    states.apply(&header, None);
}

fn admit(states: &ProducerStates, header: BatchHeader) -> Result<Admission, AppendError> {
    states.admit(&header, None, Origin::Client, None)
}

#[test]
fn batches_without_a_producer_leave_no_trace() {
    let mut states = ProducerStates::default();
    append(&mut states, header(-1, -1, -1, 3, 0));
    assert!(states.is_empty());
    assert_eq!(states.end_offset(), Offset(3));
}

#[test]
fn an_unknown_producer_may_start_anywhere() {
    let mut states = ProducerStates::default();
    append(&mut states, header(7, 3, 1234, 2, 0));
    assert_eq!(states.entry(ProducerId(7)).unwrap().last_sequence(), 1235);
    append(&mut states, header(7, 3, 1236, 1, 2));
}

#[test]
fn a_gap_is_refused_and_names_what_was_due() {
    let mut states = ProducerStates::default();
    append(&mut states, header(7, 0, 0, 2, 0));
    let refused = admit(&states, header(7, 0, 3, 1, 2));
    assert!(matches!(refused, Err(AppendError::OutOfOrderSequence { producer_id: ProducerId(7), got: 3, expected: 2 })), "{refused:?}");
    assert!(matches!(admit(&states, header(7, 0, 1, 1, 2)), Err(AppendError::OutOfOrderSequence { .. })), "part of a batch");
}

#[test]
fn the_last_five_batches_are_duplicates_and_older_ones_are_out_of_order() {
    let mut states = ProducerStates::default();
    for i in 0..6 {
        append(&mut states, header(7, 0, i * 2, 2, i64::from(i) * 2 + 100));
    }
    for i in 1..6 {
        let offset = i64::from(i) * 2 + 100;
        let expected =
            Admission::Duplicate { base_offset: Offset(offset), last_offset: Offset(offset + 1), timestamp: Millis(1000 + offset) };
        assert_eq!(admit(&states, header(7, 0, i * 2, 2, 0)).unwrap(), expected, "batch {i}");
    }
    assert!(matches!(admit(&states, header(7, 0, 0, 2, 0)), Err(AppendError::OutOfOrderSequence { .. })));
    assert!(matches!(admit(&states, header(7, 0, 10, 3, 0)), Err(AppendError::OutOfOrderSequence { .. })), "same start, other end");
}

#[test]
fn a_new_epoch_starts_at_zero_and_fences_the_old_one() {
    let mut states = ProducerStates::default();
    append(&mut states, header(7, 0, 0, 5, 0));
    assert!(matches!(admit(&states, header(7, 1, 5, 1, 5)), Err(AppendError::OutOfOrderSequence { expected: 0, .. })));
    append(&mut states, header(7, 1, 0, 1, 5));
    assert_eq!(states.entry(ProducerId(7)).unwrap().batches().len(), 1, "the old epoch's batches are gone");
    let fenced = admit(&states, header(7, 0, 5, 1, 6));
    assert!(
        matches!(fenced, Err(AppendError::FencedProducer { got: ProducerEpoch(0), current: ProducerEpoch(1), .. })),
        "even with the sequence that was due: {fenced:?}"
    );
    assert!(matches!(admit(&states, header(7, 0, 0, 5, 6)), Err(AppendError::FencedProducer { .. })), "no duplicate across epochs");
}

#[test]
fn sequences_wrap_to_zero() {
    let mut states = ProducerStates::default();
    append(&mut states, header(7, 0, i32::MAX - 2, 3, 0));
    append(&mut states, header(7, 0, 0, 1, 3));
    let mut states = ProducerStates::default();
    append(&mut states, header(7, 0, i32::MAX - 1, 4, 0));
    assert_eq!(states.entry(ProducerId(7)).unwrap().last_sequence(), 1);
    assert!(matches!(admit(&states, header(7, 0, i32::MAX - 1, 4, 4)), Ok(Admission::Duplicate { .. })), "within one batch too");
    append(&mut states, header(7, 0, 2, 1, 4));
}

#[test]
fn coordinators_and_followers_have_no_sequences() {
    let mut states = ProducerStates::default();
    append(&mut states, header(7, 5, 0, 1, 0));
    assert_eq!(states.admit(&header(7, 5, -1, 1, 1), None, Origin::Coordinator, None).unwrap(), Admission::Append);
    assert!(states.admit(&header(7, 4, -1, 1, 1), None, Origin::Coordinator, None).is_err(), "its epoch still counts");
    assert_eq!(states.admit(&header(7, 4, 77, 1, 1), None, Origin::Replication, None).unwrap(), Admission::Append);
}

#[test]
fn a_transaction_holds_the_last_stable_offset_until_its_marker_is_replicated() {
    let mut states = ProducerStates::default();
    append(&mut states, header(1, 0, 0, 10, 0));
    append(&mut states, transactional(header(7, 0, 0, 2, 10)));
    append(&mut states, transactional(header(8, 0, 0, 2, 12)));
    append(&mut states, transactional(header(7, 0, 2, 2, 14)));
    assert_eq!(states.first_undecided_offset(), Some(Offset(10)));
    assert_eq!(states.last_stable_offset(Offset(16)), Offset(10));
    assert_eq!(states.last_stable_offset(Offset(5)), Offset(5), "never beyond the high watermark");
    let done = states.apply(&marker_batch(7, 0, 16), Some(&ABORT)).unwrap();
    let expected = CompletedTxn {
        producer_id: ProducerId(7),
        first_offset: Offset(10),
        last_offset: Offset(16),
        aborted: true,
        last_stable_offset: Offset(12),
    };
    assert_eq!(done, expected);
    assert_eq!(states.first_undecided_offset(), Some(Offset(12)));
    assert_eq!(states.first_unstable_offset(), Some(Offset(10)), "the marker isn't below the high watermark");
    states.on_high_watermark(Offset(16));
    assert_eq!(states.first_unstable_offset(), Some(Offset(10)));
    states.on_high_watermark(Offset(17));
    assert_eq!(states.first_unstable_offset(), Some(Offset(12)));
    let done = states.apply(&marker_batch(8, 0, 17), Some(&COMMIT)).unwrap();
    assert_eq!((done.aborted, done.last_stable_offset), (false, Offset(18)));
    states.on_high_watermark(Offset(18));
    assert_eq!(states.last_stable_offset(Offset(18)), Offset(18));
}

#[test]
fn writes_outside_of_a_transaction_are_refused() {
    let mut states = ProducerStates::default();
    let begins = transactional(header(7, 0, 0, 1, 0));
    assert!(matches!(admit(&states, begins), Err(AppendError::InvalidTxnState(_))), "not verified");
    append(&mut states, begins);
    assert_eq!(admit(&states, transactional(header(7, 0, 1, 1, 1))).unwrap(), Admission::Append, "the transaction goes on");
    assert!(matches!(admit(&states, header(7, 0, 1, 1, 1)), Err(AppendError::InvalidTxnState(_))));
}

#[test]
fn a_stale_coordinator_is_fenced() {
    let mut states = ProducerStates::default();
    append(&mut states, transactional(header(7, 0, 0, 1, 0)));
    states.apply(&marker_batch(7, 0, 1), Some(&EndTxnMarker { commit: true, coordinator_epoch: 5 }));
    let admit = |epoch| {
        let marker = EndTxnMarker { commit: true, coordinator_epoch: epoch };
        states.admit(&marker_batch(7, 0, 2), Some(&marker), Origin::Coordinator, None)
    };
    assert!(matches!(admit(4), Err(AppendError::FencedCoordinator { got: 4, current: 5, .. })));
    assert_eq!(admit(5).unwrap(), Admission::Append);
}

#[test]
fn a_marker_of_a_newer_epoch_lets_the_next_batch_start_at_zero() {
    let mut states = ProducerStates::default();
    append(&mut states, transactional(header(7, 0, 0, 5, 0)));
    states.apply(&marker_batch(7, 1, 5), Some(&ABORT));
    assert!(admit(&states, header(7, 1, 5, 1, 6)).is_err());
    append(&mut states, header(7, 1, 0, 1, 6));
}

#[test]
fn a_marker_without_data_completes_nothing() {
    let mut states = ProducerStates::default();
    assert_eq!(states.apply(&marker_batch(7, 0, 0), Some(&ABORT)), None);
    assert_eq!(states.last_stable_offset(Offset(1)), Offset(1));
    assert_eq!(states.entry(ProducerId(7)).unwrap().epoch, ProducerEpoch(0), "but its epoch counts");
}

#[test]
fn idle_producers_expire_unless_a_transaction_is_open() {
    let mut states = ProducerStates::default();
    append(&mut states, header(1, 0, 0, 1, 0));
    append(&mut states, transactional(header(2, 0, 0, 1, 1)));
    append(&mut states, header(3, 0, 0, 1, 500));
    states.expire(Millis(1000 + 100), 100);
    let left: Vec<_> = states.entries().map(|e| e.producer_id.0).collect();
    assert_eq!(left, [2, 3]);
    append(&mut states, header(1, 0, 99, 1, 600));
}

#[test]
fn the_log_start_forgets_no_producer() {
    let mut states = ProducerStates::default();
    append(&mut states, header(1, 0, 0, 3, 0));
    states.on_log_start(Offset(10));
    assert_eq!(states.end_offset(), Offset(10));
    assert!(matches!(admit(&states, header(1, 0, 0, 3, 10)), Ok(Admission::Duplicate { .. })));
    states.reset(Offset(20));
    assert!(states.is_empty());
    assert_eq!(states.end_offset(), Offset(20));
}

#[test]
fn a_snapshot_is_kafkas_bytes() {
    let mut states = ProducerStates::default();
    append(&mut states, header(1, 2, 10, 3, 40));
    let mut expected = vec![0, 1];
    let mut covered = vec![0, 0, 0, 1]; // one entry
    covered.extend(1_i64.to_be_bytes()); // producer id
    covered.extend(2_i16.to_be_bytes()); // epoch
    covered.extend(12_i32.to_be_bytes()); // last sequence
    covered.extend(42_i64.to_be_bytes()); // last offset
    covered.extend(2_i32.to_be_bytes()); // offset delta
    covered.extend(1040_i64.to_be_bytes()); // timestamp
    covered.extend((-1_i32).to_be_bytes()); // coordinator epoch
    covered.extend((-1_i64).to_be_bytes()); // no transaction
    expected.extend(crc32c::crc32c(&covered).to_be_bytes());
    expected.extend(covered);
    assert_eq!(states.encode_snapshot(), expected);
}

#[test]
fn a_broken_snapshot_is_told() {
    let mut states = ProducerStates::default();
    append(&mut states, header(1, 0, 0, 1, 0));
    let good = states.encode_snapshot();
    for length in 0..good.len() {
        assert!(ProducerStates::decode_snapshot(&good[..length], Offset(1)).is_err(), "cut to {length}");
    }
    let mut flipped = good.clone();
    *flipped.last_mut().unwrap() ^= 1;
    assert!(matches!(ProducerStates::decode_snapshot(&flipped, Offset(1)), Err(SnapshotError::Crc { .. })));
    let mut newer = good.clone();
    newer[1] = 9;
    assert_eq!(ProducerStates::decode_snapshot(&newer, Offset(1)), Err(SnapshotError::Version(9)));
    let lying = [&i32::MAX.to_be_bytes()[..], &[0; SNAPSHOT_ENTRY_BYTES]].concat();
    let lying = [&[0, 1][..], &crc32c::crc32c(&lying).to_be_bytes(), &lying].concat();
    assert_eq!(ProducerStates::decode_snapshot(&lying, Offset(1)), Err(SnapshotError::Length(lying.len())), "a lying count");
}

/// What a producer tries next: a good batch mostly, else a bad one.
#[derive(Clone, Debug)]
enum Try {
    Next(i32),
    Again(usize),
    Skip(i32),
    Bump,
    Zombie,
    Begin,
    End(bool),
}

fn any_try() -> impl Strategy<Value = (i64, Try)> {
    let what = prop_oneof![
        8 => (1..4_i32).prop_map(Try::Next),
        3 => (0..8_usize).prop_map(Try::Again),
        1 => (1..4_i32).prop_map(Try::Skip),
        1 => Just(Try::Bump),
        1 => Just(Try::Zombie),
        2 => Just(Try::Begin),
        3 => any::<bool>().prop_map(Try::End),
    ];
    (1..4_i64, what)
}

/// One producer, as a plain list of what it had appended.
#[derive(Clone, Debug)]
struct Model {
    epoch: i16,
    next: i32,
    open: Option<i64>,
    /// Of this epoch: base sequence, records, base offset.
    appended: VecDeque<(i32, i32, i64)>,
}

fn advance(sequence: i32, by: i32) -> i32 {
    ((i64::from(sequence) + i64::from(by)) % (1 << 31)) as i32
}

/// Runs tries against the states and the model; answers what went into the log.
fn run(tries: &[(i64, Try)], start: i32) -> (ProducerStates, Vec<(BatchHeader, Option<EndTxnMarker>)>) {
    let mut states = ProducerStates::default();
    let mut log = Vec::new();
    let mut end = 0;
    let mut models: BTreeMap<i64, Model> = BTreeMap::new();
    for (producer, what) in tries {
        let model = models.entry(*producer).or_insert(Model { epoch: 0, next: start, open: None, appended: VecDeque::new() });
        let batch = |model: &Model, sequence, records, offset| {
            let plain = header(*producer, model.epoch, sequence, records, offset);
            if model.open.is_some() { transactional(plain) } else { plain }
        };
        let known = states.entry(ProducerId(*producer)).is_some();
        match what {
            Try::Next(records) => {
                let batch = batch(model, model.next, *records, end);
                append(&mut states, batch);
                log.push((batch, None));
                model.appended.push_back((model.next, *records, end));
                model.next = advance(model.next, *records);
                end += i64::from(*records);
            }
            Try::Again(back) => {
                let Some((sequence, records, offset)) = model.appended.iter().rev().nth(*back).copied() else { continue };
                let answer = states.admit(&batch(model, sequence, records, end), None, Origin::ClientInTransaction(Proof::Unchecked), None);
                if *back < BATCHES_RETAINED {
                    let last = offset + i64::from(records) - 1;
                    let same =
                        Admission::Duplicate { base_offset: Offset(offset), last_offset: Offset(last), timestamp: Millis(1000 + offset) };
                    assert_eq!(answer.unwrap(), same);
                } else {
                    assert!(matches!(answer, Err(AppendError::OutOfOrderSequence { .. })), "{answer:?}");
                }
            }
            Try::Skip(by) if known => {
                let answer = states.admit(
                    &batch(model, advance(model.next, *by), 1, end),
                    None,
                    Origin::ClientInTransaction(Proof::Unchecked),
                    None,
                );
                assert!(matches!(answer, Err(AppendError::OutOfOrderSequence { .. })), "{answer:?}");
            }
            Try::Bump if known && model.open.is_none() => {
                (model.epoch, model.next) = (model.epoch + 1, 0);
                model.appended.clear();
                let batch = batch(model, 0, 1, end);
                append(&mut states, batch);
                log.push((batch, None));
                model.appended.push_back((0, 1, end));
                model.next = 1;
                end += 1;
            }
            Try::Zombie if known => {
                let zombie = BatchHeader { producer_epoch: ProducerEpoch(model.epoch - 1), ..batch(model, model.next, 1, end) };
                let answer = states.admit(&zombie, None, Origin::ClientInTransaction(Proof::Unchecked), None);
                assert!(matches!(answer, Err(AppendError::FencedProducer { .. })), "{answer:?}");
            }
            Try::Begin if model.open.is_none() => {
                model.open = Some(end);
                let batch = batch(model, model.next, 1, end);
                append(&mut states, batch);
                log.push((batch, None));
                model.appended.push_back((model.next, 1, end));
                model.next = advance(model.next, 1);
                end += 1;
            }
            Try::End(commit) if model.open.is_some() => {
                let marker = EndTxnMarker { commit: *commit, coordinator_epoch: 0 };
                let batch = marker_batch(*producer, model.epoch, end);
                let done = states.apply(&batch, Some(&marker)).unwrap();
                assert_eq!((Some(done.first_offset.0), done.last_offset.0, done.aborted), (model.open.take(), end, !commit));
                log.push((batch, Some(marker)));
                end += 1;
            }
            _ => {}
        }
        let oldest_open = models.values().filter_map(|m| m.open).min();
        assert_eq!(states.first_undecided_offset(), oldest_open.map(Offset));
        assert_eq!(states.end_offset(), Offset(end));
    }
    (states, log)
}

fn replay(mut states: ProducerStates, log: &[(BatchHeader, Option<EndTxnMarker>)]) -> ProducerStates {
    for (header, marker) in log {
        states.apply(header, marker.as_ref());
    }
    states
}

fn near_the_wrap() -> impl Strategy<Value = i32> {
    prop_oneof![Just(0), Just(1000), i32::MAX - 20..=i32::MAX]
}

proptest! {
    #[test]
    fn sequences_follow_the_model_and_replay_equals_live(tries in prop::collection::vec(any_try(), 1..80), start in near_the_wrap()) {
        let (live, log) = run(&tries, start);
        prop_assert_eq!(replay(ProducerStates::default(), &log), live);
    }

    /// A snapshot keeps the last batch of each producer, so that what it decides of older duplicates differs; all else is the same.
    #[test]
    fn a_snapshot_and_the_tail_decide_as_the_live_state(
        tries in prop::collection::vec(any_try(), 1..80), start in near_the_wrap(), cut in 0..80_usize,
    ) {
        let (mut live, log) = run(&tries, start);
        let (before, after) = log.split_at(cut.min(log.len()));
        let at_cut = replay(ProducerStates::default(), before);
        let bytes = at_cut.encode_snapshot();
        let loaded = ProducerStates::decode_snapshot(&bytes, at_cut.end_offset()).unwrap();
        prop_assert_eq!(loaded.encode_snapshot(), bytes, "a snapshot survives its bytes");
        let mut recovered = replay(loaded, after);
        // A restarted log's high watermark is its end.
        live.on_high_watermark(live.end_offset());
        recovered.on_high_watermark(recovered.end_offset());
        prop_assert_eq!(recovered.end_offset(), live.end_offset());
        prop_assert_eq!(recovered.first_unstable_offset(), live.first_unstable_offset());
        prop_assert_eq!(recovered.encode_snapshot(), live.encode_snapshot());
        for (ours, theirs) in recovered.entries().zip(live.entries()) {
            // The last batch's timestamp gives way to a later marker's, in Kafka too: the format has one for both.
            let parts = |b: &BatchMetadata| (b.first_sequence(), b.last_sequence, b.first_offset(), b.last_offset);
            let (ours_batches, theirs_batches): (Vec<_>, Vec<_>) =
                (ours.batches().iter().map(parts).collect(), theirs.batches().iter().map(parts).collect());
            prop_assert!(theirs_batches.ends_with(&ours_batches));
            prop_assert_eq!(ours.last_sequence(), theirs.last_sequence());
        }
    }

    #[test]
    fn any_bytes_are_no_panic(bytes: Vec<u8>, valid_crc: bool) {
        let bytes = if valid_crc { [&[0, 1][..], &crc32c::crc32c(&bytes).to_be_bytes(), &bytes].concat() } else { bytes };
        let _ = ProducerStates::decode_snapshot(&bytes, Offset(0));
    }
}
