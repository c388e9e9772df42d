//! ListOffsets and OffsetForLeaderEpoch.

use anyhow::Result;
use compat_tests::batch::{Batch, Record};
use kafka_protocol::messages::offset_for_leader_epoch_request::{OffsetForLeaderPartition, OffsetForLeaderTopic};
use kafka_protocol::messages::{BrokerId, ListOffsetsRequest, OffsetForLeaderEpochRequest};
use kafka_protocol::protocol::Message;

use crate::requests::{THEN, Topic, list_offsets, topic_name};
use crate::side::{Side, compare};

/// Partition 0: offsets 0 to 9 with times that go back and forth, two of them the greatest; partition 1: nothing.
fn topic_with_times(side: &mut Side, name: &str) -> Result<Topic> {
    let id = side.topic(name, 2, &[])?;
    let topic = Topic::new(name, id);
    for deltas in [&[0, 10, 20][..], &[50, 40, 30], &[5, 50], &[45, 1]] {
        let record = |delta: &i64| Record { timestamp_delta: *delta, ..Record::value(b"at a time") };
        let batch = Batch::of(THEN, &deltas.iter().map(record).collect::<Vec<_>>());
        side.append(&topic, 0, &batch)?;
    }
    Ok(topic)
}

#[test]
fn list_offsets_by_time() {
    compare(|side| {
        topic_with_times(side, "times")?;
        for version in ListOffsetsRequest::VERSIONS.min..=ListOffsetsRequest::VERSIONS.max {
            for delta in [-1_000, 0, 1, 9, 10, 11, 20, 21, 30, 40, 45, 49, 50, 51, 1_000] {
                side.step(format!("{delta} ms"), version, &list_offsets("times", &[(0, THEN + delta), (1, THEN + delta)]))?;
            }
            side.step("0", version, &list_offsets("times", &[(0, 0)]))?;
            side.step("the end of time", version, &list_offsets("times", &[(0, i64::MAX)]))?;
        }
        Ok(())
    });
}

/// -1 latest, -2 earliest, -3 of the greatest timestamp, -4 earliest local, -5 latest tiered; the others are nothing that a version knows.
#[test]
fn list_offsets_of_special_times() {
    compare(|side| {
        topic_with_times(side, "special")?;
        for version in ListOffsetsRequest::VERSIONS.min..=ListOffsetsRequest::VERSIONS.max {
            for special in [-1, -2, -3, -4, -5, -6, -7, -100, i64::MIN] {
                side.step(format!("{special}"), version, &list_offsets("special", &[(0, special), (1, special)]))?;
            }
            if version >= 2 {
                side.step("latest, committed", version, &list_offsets("special", &[(0, -1)]).with_isolation_level(1))?;
            }
        }
        Ok(())
    });
}

/// Records may have no time at all: then −1 is the greatest that there is.
#[test]
fn the_greatest_of_no_times() {
    compare(|side| {
        let topic = Topic::new("no-times", side.topic("no-times", 2, &[])?);
        for _ in 0..2 {
            side.append(&topic, 0, &Batch::of_values(-1, &[b"one", b"two"]))?;
            for version in 7..=ListOffsetsRequest::VERSIONS.max {
                side.step("the greatest", version, &list_offsets("no-times", &[(0, -3), (1, -3)]))?;
            }
        }
        side.append(&topic, 0, &Batch::of_values(5, &[b"three"]))?;
        side.step("the greatest of some", 7, &list_offsets("no-times", &[(0, -3)])).map(drop)
    });
}

#[test]
fn list_offsets_wrongly() {
    compare(|side| {
        topic_with_times(side, "wrong-times")?;
        for version in ListOffsetsRequest::VERSIONS.min..=ListOffsetsRequest::VERSIONS.max {
            side.step("an unknown topic", version, &list_offsets("wrong-nowhere", &[(0, -1)]))?;
            side.step("an unknown partition", version, &list_offsets("wrong-times", &[(0, -1), (2, -1), (-1, -1)]))?;
            side.step("a partition twice", version, &list_offsets("wrong-times", &[(0, -1), (0, -2), (1, -1)]))?;
            side.step("nothing", version, &list_offsets("wrong-times", &[]))?;
            side.step("a name that can't be", version, &list_offsets("a b", &[(0, -1)]))?;
            if version >= 4 {
                for epoch in [0, 1, 1_000, -2] {
                    let mut ask = list_offsets("wrong-times", &[(0, -1)]);
                    for partition in ask.topics.iter_mut().flat_map(|topic| &mut topic.partitions) {
                        partition.current_leader_epoch = epoch;
                    }
                    side.step(format!("leader epoch {epoch}"), version, &ask)?;
                }
            }
            for replica in [-2, 1, 5] {
                let ask = list_offsets("wrong-times", &[(0, -1)]).with_replica_id(BrokerId(replica));
                side.step(format!("replica {replica}"), version, &ask)?;
            }
        }
        Ok(())
    });
}

#[test]
fn offset_for_leader_epoch() {
    compare(|side| {
        topic_with_times(side, "epochs")?;
        let ask = |version: i16, name: &str, partitions: &[(i32, i32, i32)]| {
            let asked = |(partition, current, epoch): &(i32, i32, i32)| {
                OffsetForLeaderPartition::default().with_partition(*partition).with_current_leader_epoch(*current).with_leader_epoch(*epoch)
            };
            let topic =
                OffsetForLeaderTopic::default().with_topic(topic_name(name)).with_partitions(partitions.iter().map(asked).collect());
            let ask = OffsetForLeaderEpochRequest::default().with_topics(vec![topic]);
            if version >= 3 { ask.with_replica_id(BrokerId(-1)) } else { ask }
        };
        for version in OffsetForLeaderEpochRequest::VERSIONS.min..=OffsetForLeaderEpochRequest::VERSIONS.max {
            for epoch in [0, 1, 7, -1, -2] {
                side.step(format!("epoch {epoch}"), version, &ask(version, "epochs", &[(0, -1, epoch), (1, -1, epoch)]))?;
            }
            for current in [0, 1, 1_000, -2] {
                side.step(format!("current epoch {current}"), version, &ask(version, "epochs", &[(0, current, 0)]))?;
            }
            side.step("an unknown partition", version, &ask(version, "epochs", &[(0, -1, 0), (9, -1, 0), (-1, -1, 0)]))?;
            side.step("an unknown topic", version, &ask(version, "epochs-nowhere", &[(0, -1, 0)]))?;
            side.step("a name that can't be", version, &ask(version, "a b", &[(0, -1, 0)]))?;
            side.step("nothing", version, &OffsetForLeaderEpochRequest::default())?;
        }
        Result::Ok(())
    });
}
