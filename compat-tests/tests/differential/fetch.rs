//! Fetch without sessions: every version, limits, epochs, and what isn't there.

use anyhow::{Context, Result};
use compat_tests::batch::{self, Batch};
use kafka_protocol::messages::{BrokerId, FetchRequest, FetchResponse};
use kafka_protocol::protocol::{Message, StrBytes, VersionRange};

use crate::requests::{NOBODY, THEN, Topic, fetch, fetch_topic, from};
use crate::side::{Side, compare};

const VERSIONS: VersionRange = FetchRequest::VERSIONS;

/// Three partitions: 0 with batches of 3, 1 and 2 records, 1 with one of 1000 bytes, 2 empty.
fn filled(side: &mut Side, name: &str) -> Result<Topic> {
    let topic = Topic::new(name, side.topic(name, 3, &[])?);
    for values in [&[b"a" as &[u8], b"b", b"c"][..], &[b"d"], &[b"e", b"f"]] {
        side.append(&topic, 0, &Batch::of_values(THEN, values))?;
    }
    side.append(&topic, 1, &Batch::of_values(THEN, &[&[b'y'; 1_000]]))?;
    Ok(topic)
}

#[test]
fn every_version() {
    compare(|side| {
        let topic = filled(side, "fetch-all")?;
        for version in VERSIONS.min..=VERSIONS.max {
            let one = |offset| fetch(version, vec![fetch_topic(version, &topic, vec![from(0, offset)])]);
            for offset in 0..=8 {
                side.step(format!("from {offset}"), version, &one(offset))?;
            }
            for offset in [-1, -2, i64::MIN, i64::MAX] {
                side.step(format!("from {offset}"), version, &one(offset))?;
            }
            let all = vec![from(2, 0), from(0, 0), from(1, 0)];
            side.step("all partitions", version, &fetch(version, vec![fetch_topic(version, &topic, all)]))?;
            let one_is_out = vec![from(0, 0), from(1, 5)];
            side.step("one is out of range", version, &fetch(version, vec![fetch_topic(version, &topic, one_is_out)]))?;
            side.step("committed", version, &one(0).with_isolation_level(1))?;
            side.step("nothing", version, &fetch(version, Vec::new()))?;
            if version >= 11 {
                side.step("from a rack", version, &one(0).with_rack_id(StrBytes::from_static_str("r1")))?;
            }
        }
        Ok(())
    });
}

#[test]
fn what_is_not_there() {
    compare(|side| {
        let topic = filled(side, "fetch-there")?;
        let nowhere = Topic::new("fetch-nowhere", NOBODY);
        for version in VERSIONS.min..=VERSIONS.max {
            side.step("an unknown topic", version, &fetch(version, vec![fetch_topic(version, &nowhere, vec![from(0, 0)])]))?;
            let unknown = vec![from(3, 0), from(0, 0), from(-1, 0)];
            side.step("an unknown partition", version, &fetch(version, vec![fetch_topic(version, &topic, unknown)]))?;
            let both = vec![fetch_topic(version, &nowhere, vec![from(0, 0)]), fetch_topic(version, &topic, vec![from(0, 0)])];
            side.step("one of two topics", version, &fetch(version, both))?;
            if version >= 13 {
                let nil = Topic::new("", uuid::Uuid::nil());
                side.step("no id", version, &fetch(version, vec![fetch_topic(version, &nil, vec![from(0, 0)])]))?;
            } else {
                let impossible = Topic::new("a b", NOBODY);
                side.step("a name that can't be", version, &fetch(version, vec![fetch_topic(version, &impossible, vec![from(0, 0)])]))?;
            }
        }
        Ok(())
    });
}

/// What an answer's partitions have, in whole batches. Kafka fills up to its limits with a part of a batch, which clients ignore: whether
/// there is such a part may differ.
fn whole_batches(answer: &mut FetchResponse) {
    for partition in answer.responses.iter_mut().flat_map(|topic| &mut topic.partitions) {
        let Some(records) = &mut partition.records else { continue };
        let whole = batch::read(records.clone()).unwrap_or_default();
        *records = whole.iter().map(Batch::encode).collect::<Vec<_>>().concat().into();
    }
}

#[test]
fn limits() {
    compare(|side| {
        let topic = filled(side, "fetch-limits")?;
        for version in [4, 12, VERSIONS.max] {
            for bytes in [0, 1, 60, 61, 84, 85, 150, 160, 170, 250, 1 << 20] {
                let all = vec![from(0, 0), from(1, 0)];
                let limited = all.iter().map(|partition| partition.clone().with_partition_max_bytes(bytes)).collect();
                let ask = fetch(version, vec![fetch_topic(version, &topic, limited)]);
                side.step_with(format!("{bytes} bytes a partition"), version, &ask, whole_batches)?;
                let ask = fetch(version, vec![fetch_topic(version, &topic, all)]).with_max_bytes(bytes);
                side.step_with(format!("{bytes} bytes"), version, &ask, whole_batches)?;
                let at_the_end_first = vec![from(0, 6), from(1, 0), from(0, 1)];
                let ask = fetch(version, vec![fetch_topic(version, &topic, at_the_end_first)]).with_max_bytes(bytes);
                side.step_with(format!("{bytes} bytes, the first at its end"), version, &ask, whole_batches)?;
            }
        }
        Ok(())
    });
}

/// It answers at once when there is enough, when something is wrong, or when nothing may be waited for; else after the wait. (How long it
/// took isn't compared: a machine may be slow.)
#[test]
fn waiting() {
    compare(|side| {
        let topic = filled(side, "fetch-wait")?;
        for version in [4, 12, VERSIONS.max] {
            let ask = |partition, min: i32, wait: i32| {
                fetch(version, vec![fetch_topic(version, &topic, vec![partition])]).with_min_bytes(min).with_max_wait_ms(wait)
            };
            side.step("enough", version, &ask(from(0, 0), 1, 20_000))?;
            side.step("out of range", version, &ask(from(0, 99), 1, 20_000))?;
            side.step("an unknown partition", version, &ask(from(7, 0), 1, 20_000))?;
            side.step("no wait", version, &ask(from(2, 0), 1, 0))?;
            side.step("nothing comes", version, &ask(from(2, 0), 1, 50))?;
            side.step("not enough comes", version, &ask(from(0, 0), 100_000, 50))?;
            side.step("a negative wait", version, &ask(from(2, 0), 1, -1))?;
            side.step("a negative minimum", version, &ask(from(2, 0), -1, 20_000))?;
        }
        Ok(())
    });
}

/// A Fetch that waits is answered by what another connection produces.
#[test]
fn woken_by_a_produce() {
    compare(|side| {
        let topic = filled(side, "fetch-woken")?;
        for version in [4, 12, VERSIONS.max] {
            let mut waiting = side.connect()?;
            let end = side.answer("its end", 5, &crate::requests::list_offsets("fetch-woken", &[(2, -1)]))?;
            let end = end.topics.first().and_then(|topic| topic.partitions.first()).context("an offset")?.offset;
            let ask = fetch(version, vec![fetch_topic(version, &topic, vec![from(2, end)])]).with_min_bytes(1).with_max_wait_ms(20_000);
            waiting.send(version, &ask)?;
            side.append(&topic, 2, &Batch::of_values(THEN, &[b"awake"]))?;
            let mut answer = waiting.receive::<FetchRequest>(version)?.context("the connection is closed")?;
            crate::masks::Masked::mask(&mut answer);
            for partition in answer.responses.iter_mut().flat_map(|topic| &mut topic.partitions) {
                // Kafka notes them before it reads, and so may miss what woke it.
                (partition.high_watermark, partition.last_stable_offset) = (0, 0);
            }
            side.note(format!("v{version}"), format!("{answer:#?}"));
        }
        Ok(())
    });
}

#[test]
fn epochs() {
    compare(|side| {
        let topic = filled(side, "fetch-epochs")?;
        for version in 9..=VERSIONS.max {
            for epoch in [0, 1, 1_000, -1, -2] {
                let asked = from(0, 0).with_current_leader_epoch(epoch);
                side.step(format!("leader epoch {epoch}"), version, &fetch(version, vec![fetch_topic(version, &topic, vec![asked])]))?;
            }
        }
        for version in 12..=VERSIONS.max {
            for (epoch, offset) in [(0, 0), (0, 3), (0, 6), (0, 9), (1, 0), (1, 6), (-1, 3), (-2, 3)] {
                let asked = from(0, offset).with_last_fetched_epoch(epoch);
                let ask = fetch(version, vec![fetch_topic(version, &topic, vec![asked])]);
                side.step(format!("epoch {epoch} up to {offset}"), version, &ask)?;
            }
        }
        Ok(())
    });
}

/// One that says it is a replica which it isn't.
#[test]
fn replicas() {
    compare(|side| {
        let topic = filled(side, "fetch-replica")?;
        for version in [4, 11, 12, 14] {
            for replica in [5, -2, -3] {
                let ask = fetch(version, vec![fetch_topic(version, &topic, vec![from(0, 0)])]).with_replica_id(BrokerId(replica));
                side.step(format!("replica {replica}"), version, &ask)?;
            }
        }
        Ok(())
    });
}
