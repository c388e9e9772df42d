//! InitProducerId and what idempotent producers depend on: duplicates, gaps, epochs.

use std::thread;
use std::time::Duration;

use anyhow::{Result, bail};
use compat_tests::batch::Batch;
use kafka_protocol::messages::{InitProducerIdRequest, ProducerId};

use crate::requests::{THEN, Topic, fetch, fetch_topic, from, produce};
use crate::side::{Side, compare};

/// Version 6 has fields that only an unstable feature of Kafka reads.
const NEWEST: i16 = 5;

fn init(version: i16) -> InitProducerIdRequest {
    let ask = InitProducerIdRequest::default().with_transactional_id(None).with_transaction_timeout_ms(60_000);
    if version >= 3 { ask.with_producer_id(ProducerId(-1)).with_producer_epoch(-1) } else { ask }
}

/// A producer id. (Kafka refuses while it gets more of them from its controller.)
fn producer(side: &mut Side) -> Result<i64> {
    for _ in 0..100 {
        let answer = side.ask(4, &init(4))?;
        if answer.error_code == 0 {
            return Ok(answer.producer_id.0);
        }
        thread::sleep(Duration::from_millis(20));
    }
    bail!("no producer id")
}

#[test]
fn init_producer_id() {
    compare(|side| {
        producer(side)?;
        for version in 0..=NEWEST {
            side.step("as clients ask", version, &init(version))?;
            for timeout in [0, -1, i32::MAX] {
                side.step(format!("timeout {timeout}"), version, &init(version).with_transaction_timeout_ms(timeout))?;
            }
            if version >= 3 {
                for (id, epoch) in [(5, 3), (5, -1), (-1, 3)] {
                    let ask = init(version).with_producer_id(ProducerId(id)).with_producer_epoch(epoch);
                    side.step(format!("as {id} with epoch {epoch}"), version, &ask)?;
                }
            }
        }
        let (first, second) = (producer(side)?, producer(side)?);
        side.note("two ids differ", format!("{}", first != second));
        Ok(())
    });
}

/// One producer's steps: epoch, first sequence, number of records.
fn steps(side: &mut Side, version: i16, topic: &Topic, id: i64, all: &[(&str, i16, i32, usize)]) -> Result<()> {
    for (label, epoch, sequence, records) in all {
        let values: Vec<&[u8]> = vec![b"x"; *records];
        let batch = Batch::of_values(THEN, &values).from_producer(id, *epoch, *sequence);
        side.step_with(*label, version, &produce(version, topic, 0, batch.encode()), |answer| {
            for partition in answer.responses.iter_mut().flat_map(|topic| &mut topic.partition_responses) {
                // For a duplicate Kafka gives its newest timestamp, as if the log had stamped it; these topics stamp nothing.
                partition.log_append_time_ms = -1;
            }
        })?;
    }
    Ok(())
}

/// Producer ids are chance, so the contents are noted without them.
fn note_contents(side: &mut Side, topic: &Topic) -> Result<()> {
    let answer = side.ask(12, &fetch(12, vec![fetch_topic(12, topic, vec![from(0, 0)])]))?;
    let records = answer.responses.into_iter().flat_map(|topic| topic.partitions).filter_map(|partition| partition.records);
    for batch in records.map(compat_tests::batch::read).collect::<Result<Vec<_>>>()?.into_iter().flatten() {
        let shown = batch.with(|header| header.producer_id = header.producer_id.min(0));
        side.note("a batch", format!("{:?}", shown.header));
    }
    Ok(())
}

#[test]
fn duplicates_and_gaps() {
    compare(|side| {
        for version in [3, 8, 11, 13] {
            let name = format!("idem-{version}");
            let topic = Topic::new(&name, side.topic(&name, 1, &[])?);
            let id = producer(side)?;
            steps(
                side,
                version,
                &topic,
                id,
                &[
                    ("the first", 0, 0, 2),
                    ("the first again", 0, 0, 2),
                    ("the next", 0, 2, 3),
                    ("a gap", 0, 6, 1),
                    ("within what was sent", 0, 3, 1),
                    ("one longer than what was sent", 0, 2, 4),
                    ("after the gap", 0, 5, 1),
                    ("another", 0, 6, 1),
                    ("another", 0, 7, 1),
                    ("another", 0, 8, 1),
                    ("the fifth last again", 0, 2, 3),
                    ("another", 0, 9, 1),
                    ("the sixth last", 0, 2, 3),
                    ("the first of all", 0, 0, 2),
                    ("the fifth last again", 0, 5, 1),
                    ("the last again", 0, 9, 1),
                    ("the next", 0, 10, 1),
                    ("a negative sequence", 0, -2, 1),
                    ("no sequence", 0, -1, 1),
                ],
            )?;
            note_contents(side, &topic)?;
        }
        Ok(())
    });
}

#[test]
fn epochs() {
    compare(|side| {
        for version in [3, 8, 11, 13] {
            let name = format!("idem-epoch-{version}");
            let topic = Topic::new(&name, side.topic(&name, 1, &[])?);
            let id = producer(side)?;
            steps(
                side,
                version,
                &topic,
                id,
                &[
                    ("epoch 0", 0, 0, 1),
                    ("epoch 1 from 1", 1, 1, 1),
                    ("epoch 1 from 0", 1, 0, 1),
                    ("epoch 0 again", 0, 1, 1),
                    ("epoch 0's first again", 0, 0, 1),
                    ("epoch 1's first again", 1, 0, 1),
                    ("epoch 5 from 0", 5, 0, 2),
                    ("epoch 5 goes on", 5, 2, 2),
                    ("epoch -1", -1, 4, 1),
                ],
            )?;
            note_contents(side, &topic)?;
        }
        Ok(())
    });
}

/// A producer that a partition doesn't know may start anywhere, and its sequences go round after 2147483647.
#[test]
fn unknown_producers_and_wrapping() {
    compare(|side| {
        for version in [3, 11, 13] {
            let name = format!("idem-wrap-{version}");
            let topic = Topic::new(&name, side.topic(&name, 1, &[])?);
            let id = producer(side)?;
            steps(
                side,
                version,
                &topic,
                id,
                &[
                    ("in the middle", 3, i32::MAX - 2, 2),
                    ("over the end", 3, i32::MAX, 3),
                    ("over the end again", 3, i32::MAX, 3),
                    ("after it", 3, 2, 1),
                ],
            )?;
            let id = producer(side)?;
            steps(side, version, &topic, id, &[("up to the end", 0, i32::MAX, 1), ("from 0", 0, 0, 1), ("from 0 again", 0, 0, 1)])?;
            steps(side, version, &topic, 1 << 40, &[("an id of nobody", 0, 0, 1)])?;
            note_contents(side, &topic)?;
        }
        Ok(())
    });
}
