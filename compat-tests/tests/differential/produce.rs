//! Produce: what is taken, what is refused, and with which error.

use anyhow::Result;
use bytes::{BufMut, Bytes, BytesMut};
use compat_tests::batch::{Batch, Record};
use kafka_protocol::messages::{MetadataRequest, ProduceRequest, TransactionalId};
use kafka_protocol::protocol::{Message, VersionRange};

use crate::requests::{NOBODY, THEN, Topic, fetch, fetch_topic, from, list_offsets, named, produce, produce_all, text};
use crate::side::{Side, compare};

const VERSIONS: VersionRange = ProduceRequest::VERSIONS;

/// The versions whose errors differ: the oldest, those around record errors and current leaders, and the newest.
const SOME: [i16; 5] = [3, 7, 8, 10, 13];

fn made(side: &mut Side, name: &str, configs: &[(&str, &str)]) -> Result<Topic> {
    Ok(Topic::new(name, side.topic(name, 2, configs)?))
}

fn good() -> Batch {
    Batch::of_values(THEN, &[b"first", b"second"])
}

/// Where the topic ends after all that, and what it keeps.
fn note_contents(side: &mut Side, topic: &Topic) -> Result<()> {
    side.step("its end", 5, &list_offsets(&topic.name, &[(0, -1), (1, -1)]))?;
    side.step("its contents", 12, &fetch(12, vec![fetch_topic(12, topic, vec![from(0, 0), from(1, 0)])]))?;
    Ok(())
}

#[test]
fn every_version() {
    compare(|side| {
        let topic = made(side, "prod-all", &[])?;
        for version in VERSIONS.min..=VERSIONS.max {
            side.step("a batch", version, &produce(version, &topic, 0, good().encode()))?;
            let both = vec![(0, Some(good().encode())), (1, Some(Batch::of_values(THEN, &[b"x"]).encode()))];
            side.step("two partitions", version, &produce_all(version, &topic, both))?;
            side.step("acks 1", version, &produce(version, &topic, 1, good().encode()).with_acks(1))?;
            let far = good().with(|header| (header.base_offset, header.partition_leader_epoch) = (77, 9));
            side.step("with an offset and an epoch of its own", version, &produce(version, &topic, 0, far.encode()))?;
        }
        note_contents(side, &topic)
    });
}

/// A change to a good batch: to its header before the CRC is made, or to its bytes after it.
fn wrong_batches() -> Vec<(&'static str, Bytes)> {
    let changed = |change: fn(&mut compat_tests::batch::Header)| good().with(change).encode();
    let bytes = |change: fn(&mut BytesMut)| {
        let mut bytes = BytesMut::from(&good().encode()[..]);
        change(&mut bytes);
        bytes.freeze()
    };
    let twice = [good().encode(), good().encode()].concat();
    vec![
        ("a wrong CRC", bytes(|all| all[17] ^= 1)),
        ("a changed value", bytes(|all| *all.last_mut().unwrap() ^= 1)),
        ("magic 0", changed(|header| header.magic = 0)),
        ("magic 1", changed(|header| header.magic = 1)),
        ("magic 3", changed(|header| header.magic = 3)),
        ("magic -1", changed(|header| header.magic = -1)),
        ("two batches", twice.into()),
        ("bytes after the batch", bytes(|all| all.put_slice(b"after"))),
        ("a batch cut short", bytes(|all| all.truncate(70))),
        ("a header cut short", bytes(|all| all.truncate(40))),
        ("a few bytes", bytes(|all| all.truncate(10))),
        ("a length of 0", bytes(|all| all[8..12].copy_from_slice(&0_i32.to_be_bytes()))),
        ("a negative length", bytes(|all| all[8..12].copy_from_slice(&(-1_i32).to_be_bytes()))),
        ("a length of 2 GiB", bytes(|all| all[8..12].copy_from_slice(&i32::MAX.to_be_bytes()))),
        ("a last offset too high", changed(|header| header.last_offset_delta = 5)),
        ("a last offset too low", changed(|header| header.last_offset_delta = 0)),
        ("a negative last offset", changed(|header| header.last_offset_delta = -1)),
        ("a count too high", changed(|header| (header.record_count, header.last_offset_delta) = (3, 2))),
        ("a count too low", changed(|header| (header.record_count, header.last_offset_delta) = (1, 0))),
        ("a count of 0", changed(|header| (header.record_count, header.last_offset_delta) = (0, -1))),
        ("a negative count", changed(|header| header.record_count = -1)),
        ("a count of 2 billion", changed(|header| (header.record_count, header.last_offset_delta) = (i32::MAX, i32::MAX - 1))),
        ("no records", Batch::of(THEN, &[]).encode()),
        ("a control batch", changed(|header| header.attributes = 0b10_0000)),
        ("log append time", changed(|header| header.attributes = 0b1000)),
        ("codec 5", changed(|header| header.attributes = 5)),
        ("codec 7", changed(|header| header.attributes = 7)),
        ("gzip that isn't", changed(|header| header.attributes = 1)),
        // We look only at the first bytes of compressed records: whoever reads the rest finds it broken. Raw snappy may begin with any byte,
        // so there is no wrong one here.
        ("lz4 that isn't", changed(|header| header.attributes = 3)),
        ("zstd that isn't", changed(|header| header.attributes = 4)),
        ("unknown attributes", changed(|header| header.attributes = 0x4000)),
        ("a wrong greatest timestamp", changed(|header| header.max_timestamp += 1_000)),
        ("no timestamps", changed(|header| (header.base_timestamp, header.max_timestamp) = (-1, -1))),
        ("a negative base offset", changed(|header| header.base_offset = -5)),
        ("a producer without an epoch", changed(|header| header.producer_id = 4)),
        ("a sequence without a producer", changed(|header| header.base_sequence = 4)),
    ]
}

#[test]
fn wrong_batches_are_refused() {
    compare(|side| {
        for version in SOME {
            let topic = made(side, &format!("prod-wrong-{version}"), &[])?;
            for (label, bytes) in wrong_batches() {
                // Kafka trips over some with an unknown server error, where we say what is wrong: that both refuse counts.
                let kafka_trips = ["a length of 2 GiB", "codec", "that isn't"].iter().any(|part| label.contains(part));
                side.step_with(label, version, &produce(version, &topic, 0, bytes), |answer| {
                    let partitions = answer.responses.iter_mut().flat_map(|topic| &mut topic.partition_responses);
                    for refused in partitions.filter(|partition| kafka_trips && partition.error_code != 0) {
                        (refused.error_code, refused.log_start_offset) = (-1, -1);
                    }
                })?;
            }
            side.step("no bytes", version, &produce(version, &topic, 0, Bytes::new()))?;
            // Records that are null are left out: Kafka never answers.
            let one_is_wrong = vec![(0, Some(Bytes::from_static(b"nonsense"))), (1, Some(good().encode()))];
            side.step("one of two partitions is wrong", version, &produce_all(version, &topic, one_is_wrong))?;
            note_contents(side, &topic)?;
        }
        Ok(())
    });
}

#[test]
fn wrong_requests_are_refused() {
    compare(|side| {
        let topic = made(side, "prod-requests", &[])?;
        for version in VERSIONS.min..=VERSIONS.max {
            for acks in [5, 2, -2, i16::MIN] {
                side.step(format!("acks {acks}"), version, &produce(version, &topic, 0, good().encode()).with_acks(acks))?;
            }
            let nowhere = Topic::new("prod-nowhere", NOBODY);
            side.step("an unknown topic", version, &produce(version, &nowhere, 0, good().encode()))?;
            let unknown = vec![(2, Some(good().encode())), (0, Some(good().encode())), (-1, Some(good().encode()))];
            side.step("an unknown partition", version, &produce_all(version, &topic, unknown))?;
            side.step("no topics", version, &ProduceRequest::default().with_acks(-1).with_timeout_ms(1_000))?;
            side.step("no partitions", version, &produce_all(version, &topic, Vec::new()))?;
            if version < 13 {
                let impossible = Topic::new("a b", NOBODY);
                side.step("a name that can't be", version, &produce(version, &impossible, 0, good().encode()))?;
            }
        }
        note_contents(side, &topic)
    });
}

/// Whether there is such a partition is looked at first, then the records, and acks after both. Of a batch whose magic or length can't be
/// nothing is known, not even whether it is in a transaction, so that it refuses all that came with it.
#[test]
fn the_order_of_refusals() {
    compare(|side| {
        let topic = made(side, "prod-order", &[])?;
        for version in SOME {
            let nowhere = Topic::new("prod-nowhere", NOBODY);
            side.step("an unknown topic, acks 2", version, &produce(version, &nowhere, 0, good().encode()).with_acks(2))?;
            let nobody = Topic::new("", uuid::Uuid::nil());
            side.step("neither name nor id", version, &produce(version, &nobody, 0, good().encode()))?;
            side.step("no bytes, acks 2", version, &produce(version, &topic, 0, Bytes::new()).with_acks(2))?;
            let mixed = vec![(0, Some(Bytes::new())), (1, Some(good().encode())), (2, Some(good().encode()))];
            side.step("each refused for another reason, acks 2", version, &produce_all(version, &topic, mixed).with_acks(2))?;
            for magic in [-1, 0, 1, 3] {
                let other = good().with(|header| header.magic = magic).encode();
                let mixed = vec![(1, Some(good().encode())), (0, Some(other)), (2, Some(good().encode()))];
                side.step(format!("one of magic {magic}"), version, &produce_all(version, &topic, mixed))?;
            }
        }
        note_contents(side, &topic)
    });
}

/// Not more replicas are asked for than there are.
#[test]
fn more_replicas_in_sync_than_there_are() {
    compare(|side| {
        let topic = made(side, "prod-isr", &[("min.insync.replicas", "2")])?;
        for version in VERSIONS.min..=VERSIONS.max {
            for acks in [-1, 1] {
                side.step(format!("acks {acks}"), version, &produce(version, &topic, 0, good().encode()).with_acks(acks))?;
            }
        }
        note_contents(side, &topic)
    });
}

/// Attributes that mean nothing, where the broker writes the header anew and where it doesn't.
#[test]
fn unknown_attributes() {
    compare(|side| {
        for (key, value) in
            [("message.timestamp.type", "CreateTime"), ("message.timestamp.type", "LogAppendTime"), ("compression.type", "zstd")]
        {
            let topic = made(side, &format!("prod-attributes-{value}"), &[(key, value)])?;
            let batch = good().with(|header| header.attributes = 1 << 9);
            side.step(value, 9, &produce(9, &topic, 0, batch.encode()))?;
            let answer = side.ask(12, &fetch(12, vec![fetch_topic(12, &topic, vec![from(0, 0)])]))?;
            let records = answer.responses.into_iter().flat_map(|topic| topic.partitions).filter_map(|partition| partition.records);
            for batch in records.map(compat_tests::batch::read).collect::<Result<Vec<_>>>()?.into_iter().flatten() {
                side.note(format!("stored for {value}"), format!("{:?}", batch.header.attributes));
            }
        }
        Ok(())
    });
}

/// A transactional id needs a transactional batch, and the other way round.
#[test]
fn a_transactional_id_without_a_transaction() {
    compare(|side| {
        let topic = made(side, "prod-txn-id", &[])?;
        for version in [3, 11] {
            let ask = produce(version, &topic, 0, good().encode()).with_transactional_id(Some(TransactionalId(text("t"))));
            side.step("a plain batch", version, &ask)?;
        }
        note_contents(side, &topic)
    });
}

/// No answer when all is well, which the next answer on the connection shows; and the end of the connection when it isn't.
#[test]
fn acks_0() {
    compare(|side| {
        let topic = made(side, "prod-acks-0", &[])?;
        let after = MetadataRequest::default().with_topics(Some(vec![named("prod-acks-0")]));
        for version in [3, 9, 13] {
            let mut client = side.connect()?;
            client.send(version, &produce(version, &topic, 0, good().encode()).with_acks(0))?;
            let answered = client.ask_or_closed(9, &after)?.is_some();
            side.note(format!("v{version} a good batch"), format!("the next request is answered: {answered}"));
            let mut client = side.connect()?;
            client.send(version, &produce(version, &topic, 0, Bytes::from_static(b"nonsense")).with_acks(0))?;
            // The connection may be closed before or after this is sent.
            let answered = client.ask_or_closed(9, &after).is_ok_and(|answer| answer.is_some());
            side.note(format!("v{version} a wrong batch"), format!("the next request is answered: {answered}"));
        }
        note_contents(side, &topic)
    });
}

#[test]
fn sizes() {
    compare(|side| {
        let of = |bytes: usize| Batch::of_values(THEN, &[&vec![b'x'; bytes]]).encode();
        let small = made(side, "prod-small", &[("max.message.bytes", "1000")])?;
        // A record of one value of 3 digits has 61 bytes of batch header and 9 of its own.
        for version in SOME {
            for bytes in [900, 929, 930, 931, 932, 933, 2_000] {
                side.step(format!("a value of {bytes}, at most 1000"), version, &produce(version, &small, 0, of(bytes)))?;
            }
        }
        note_contents(side, &small)?;
        let plain = made(side, "prod-large", &[])?;
        for version in SOME {
            side.step("1 MiB", version, &produce(version, &plain, 0, of(1 << 20)))?;
            side.step("more than 1 MiB", version, &produce(version, &plain, 0, of((1 << 20) + 12)))?;
        }
        let segments = made(side, "prod-segments", &[("segment.bytes", "1048576"), ("max.message.bytes", "4000000")])?;
        for version in SOME {
            side.step("more than a segment", version, &produce(version, &segments, 0, of(2 << 20)))?;
        }
        side.step("its end", 5, &list_offsets("prod-segments", &[(0, -1)]))?;
        Ok(())
    });
}

/// zstd came with version 7. The frame is `zstd` of nothing in particular: its header is looked at first.
#[test]
fn zstd_in_old_versions() {
    compare(|side| {
        let topic = made(side, "prod-zstd", &[])?;
        for version in 3..=6 {
            let batch = good().with(|header| header.attributes = 4);
            side.step("zstd", version, &produce(version, &topic, 0, batch.encode()))?;
        }
        note_contents(side, &topic)
    });
}

#[test]
fn compacted_topics_want_keys() {
    compare(|side| {
        let topic = made(side, "prod-compacted", &[("cleanup.policy", "compact")])?;
        let keyed = |key: Option<&[u8]>| Record { key: key.map(<[u8]>::to_vec), ..Record::value(b"v") };
        for version in SOME {
            let all = [keyed(Some(b"a")), keyed(Some(b""))];
            side.step("keys", version, &produce(version, &topic, 0, Batch::of(THEN, &all).encode()))?;
            let one = [keyed(Some(b"a")), keyed(None), keyed(Some(b"b")), keyed(None)];
            side.step("two without", version, &produce(version, &topic, 0, Batch::of(THEN, &one).encode()))?;
        }
        note_contents(side, &topic)
    });
}

#[test]
fn timestamps() {
    compare(|side| {
        let tight = made(side, "prod-before", &[("message.timestamp.before.max.ms", "3600000")])?;
        let after = made(side, "prod-after", &[])?;
        // Some time after 2200, when nobody runs this.
        let far = 7_500_000_000_000;
        for version in SOME {
            side.step("too early", version, &produce(version, &tight, 0, good().encode()))?;
            side.step("too late", version, &produce(version, &after, 0, Batch::of_values(far, &[b"a", b"b"]).encode()))?;
            let mixed = [Record::value(b"now"), Record { timestamp_delta: far - THEN, ..Record::value(b"later") }];
            side.step("one of two is too late", version, &produce(version, &after, 0, Batch::of(THEN, &mixed).encode()))?;
        }
        note_contents(side, &tight)?;
        note_contents(side, &after)?;
        let appended = made(side, "prod-append-time", &[("message.timestamp.type", "LogAppendTime")])?;
        for version in SOME {
            side.step("log append time", version, &produce(version, &appended, 0, good().encode()))?;
            side.step("log append time, too late", version, &produce(version, &appended, 0, Batch::of_values(far, &[b"a"]).encode()))?;
        }
        side.step("its end", 5, &list_offsets("prod-append-time", &[(0, -1)]))?;
        Ok(())
    });
}

/// A topic's own compression: the broker compresses again. The bytes depend on the compressor; the header doesn't.
#[test]
fn recompression() {
    compare(|side| {
        for codec in ["producer", "uncompressed", "gzip", "snappy", "lz4", "zstd"] {
            let topic = made(side, &format!("prod-to-{codec}"), &[("compression.type", codec)])?;
            for version in [3, 13] {
                let values: Vec<&[u8]> = vec![b"again and again and again"; 20];
                let batch = Batch::of_values(THEN, &values).with(|header| header.partition_leader_epoch = 6);
                side.step(codec, version, &produce(version, &topic, 0, batch.encode()))?;
            }
            let answer = side.ask(12, &fetch(12, vec![fetch_topic(12, &topic, vec![from(0, 0)])]))?;
            let records = answer.responses.into_iter().flat_map(|topic| topic.partitions).filter_map(|partition| partition.records);
            for batch in records.map(compat_tests::batch::read).collect::<Result<Vec<_>>>()?.into_iter().flatten() {
                side.note(format!("stored for {codec}"), format!("{:?}", batch.header));
            }
        }
        Ok(())
    });
}
