//! DeleteRecords, and what readers see of a log whose start has moved.

use anyhow::Result;
use compat_tests::batch::{Batch, Record};
use kafka_protocol::messages::DeleteRecordsRequest;
use kafka_protocol::messages::delete_records_request::{DeleteRecordsPartition, DeleteRecordsTopic};
use kafka_protocol::protocol::Message;

use crate::alter::{SUBTRACT, change, resource};
use crate::requests::{THEN, Topic, fetch, fetch_topic, from, list_offsets, produce, topic_name};
use crate::side::{Side, compare};

fn below(topic: &str, partitions: &[(i32, i64)]) -> DeleteRecordsTopic {
    let partition = |(index, offset): &(i32, i64)| DeleteRecordsPartition::default().with_partition_index(*index).with_offset(*offset);
    DeleteRecordsTopic::default().with_name(topic_name(topic)).with_partitions(partitions.iter().map(partition).collect())
}

fn ask(topics: Vec<DeleteRecordsTopic>) -> DeleteRecordsRequest {
    DeleteRecordsRequest::default().with_topics(topics).with_timeout_ms(30_000)
}

/// Offsets 0 to 9 in batches of 1, 2, 3 and 4 records.
fn ten_records(side: &mut Side, topic: &Topic, partition: i32) -> Result<()> {
    for count in 1..=4 {
        let records: Vec<Record> = (0..count).map(|nth| Record { timestamp_delta: nth, ..Record::value(b"a record") }).collect();
        side.append(topic, partition, &Batch::of(THEN, &records))?;
    }
    Ok(())
}

#[test]
fn the_log_start_moves() {
    compare(|side| {
        for version in DeleteRecordsRequest::VERSIONS.min..=DeleteRecordsRequest::VERSIONS.max {
            let name = format!("deleted-{version}");
            let topic = Topic::new(&name, side.topic(&name, 2, &[])?);
            ten_records(side, &topic, 0)?;
            for before in [0, 1, 4, 2, 6, 6, -1, 10, -1] {
                side.step(format!("below {before}"), version, &ask(vec![below(&name, &[(0, before)])]))?;
                side.step(format!("earliest and latest after {before}"), 5, &list_offsets(&name, &[(0, -2), (0, -1)]))?;
                for offset in [0, 3, 4, 5, 6, 9, 10] {
                    let request = fetch(12, vec![fetch_topic(12, &topic, vec![from(0, offset)])]);
                    side.step(format!("read from {offset} after {before}"), 12, &request)?;
                }
                side.step(format!("by time after {before}"), 5, &list_offsets(&name, &[(0, THEN), (0, THEN + 3)]))?;
            }
            ten_records(side, &topic, 0)?;
            side.step("more than there was", version, &ask(vec![below(&name, &[(0, 15)])]))?;
            side.step("an empty partition", version, &ask(vec![below(&name, &[(1, -1)])]))?;
            side.step("an empty partition below 0", version, &ask(vec![below(&name, &[(1, 0)])]))?;
        }
        Ok(())
    });
}

#[test]
fn wrongly() {
    compare(|side| {
        let topic = Topic::new("deleted-wrongly", side.topic("deleted-wrongly", 2, &[])?);
        ten_records(side, &topic, 0)?;
        side.topic("deleted-compact", 1, &[("cleanup.policy", "compact")])?;
        side.topic("deleted-both", 1, &[("cleanup.policy", "compact,delete")])?;
        for version in DeleteRecordsRequest::VERSIONS.min..=DeleteRecordsRequest::VERSIONS.max {
            for before in [11, i64::MAX, -2, i64::MIN] {
                side.step(format!("below {before}"), version, &ask(vec![below("deleted-wrongly", &[(0, before)])]))?;
            }
            side.step("nothing", version, &ask(Vec::new()))?;
            side.step("a topic without partitions", version, &ask(vec![below("deleted-wrongly", &[])]))?;
            side.step("an unknown partition", version, &ask(vec![below("deleted-wrongly", &[(2, 0), (-1, 0)])]))?;
            side.step("an unknown topic", version, &ask(vec![below("deleted-nowhere", &[(0, 0)])]))?;
            side.step("a topic that is compacted", version, &ask(vec![below("deleted-compact", &[(0, 0)])]))?;
            side.step("a topic that is compacted and deleted from", version, &ask(vec![below("deleted-both", &[(0, 0)])]))?;
            let some = vec![below("deleted-wrongly", &[(0, 2), (1, 3), (0, 3)]), below("deleted-nowhere", &[(0, -1)])];
            side.step("one that is fine with others that aren't, and twice", version, &ask(some))?;
            side.step("where it starts then", 5, &list_offsets("deleted-wrongly", &[(0, -2)]))?;
        }
        Ok(())
    });
}

/// A topic whose last policy was taken away is not compacted, so that its records may be deleted.
#[test]
fn without_any_policy() {
    compare(|side| {
        let topic = Topic::new("deleted-none", side.topic("deleted-none", 1, &[])?);
        ten_records(side, &topic, 0)?;
        let change = change(vec![resource(2, "deleted-none", &[("cleanup.policy", SUBTRACT, Some("delete"))])]);
        side.step("no policy", 1, &change)?;
        for before in [4, 2, -1] {
            side.step(format!("below {before}"), 2, &ask(vec![below("deleted-none", &[(0, before)])]))?;
        }
        Ok(())
    });
}

/// An idempotent producer goes on although its records are gone.
#[test]
fn producers_stay_known() {
    compare(|side| {
        let topic = Topic::new("deleted-idempotent", side.topic("deleted-idempotent", 1, &[])?);
        let batch = |sequence| Batch::of_values(THEN, &[b"one", b"two"]).from_producer(4_000, 0, sequence);
        side.append(&topic, 0, &batch(0))?;
        side.append(&topic, 0, &batch(2))?;
        side.step("all", 2, &ask(vec![below("deleted-idempotent", &[(0, -1)])]))?;
        for (label, sequence) in [("the last one again", 2), ("one with a gap", 7), ("the next one", 4)] {
            side.step_with(label, 9, &produce(9, &topic, 0, batch(sequence).encode()), |answer| {
                for partition in answer.responses.iter_mut().flat_map(|topic| &mut topic.partition_responses) {
                    // For a duplicate Kafka gives its newest timestamp, as if the log had stamped it.
                    partition.log_append_time_ms = -1;
                }
            })?;
        }
        Ok(())
    });
}
