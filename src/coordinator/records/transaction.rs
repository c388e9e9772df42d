//! `TransactionLogKey` (version 0) and `TransactionLogValue` (version 0; 1, which is flexible, where `transaction.version` is 1 or more).
//!
//! ```text
//! key        transactional id text
//! value      producer id i64 · producer epoch i16 · timeout i32 · status i8 · partitions nullable · last update i64 · start i64 · tagged
//! partitions topic text · partition i32 … · tagged
//! tagged     0: previous producer id i64 · 1: next producer id i64 · 2: client's transaction version i16, each if it is not the default
//! ```

use super::{Read, TooLong, put_text, text, versioned};
use crate::{
    codec::{Malformed, Reader},
    txn::{Metadata, Record, State, TransactionVersion},
    types::{Millis, PartitionIndex, ProducerEpoch, ProducerId, ProducerIdAndEpoch, TopicName, TopicPartition},
};
use bytes::{BufMut, Bytes};
use std::collections::{BTreeMap, BTreeSet};

const KEY_VERSION: i16 = 0;
const VALUE_FLEXIBLE_SINCE: i16 = 1;
const VALUE_VERSION_MAX: i16 = 1;
/// A topic without a name and its empty list of partitions, in the flexible version.
const PARTITIONS_BYTES_MIN: usize = 3;
const TAG_PREVIOUS_PRODUCER_ID: u32 = 0;
const TAG_NEXT_PRODUCER_ID: u32 = 1;
const TAG_CLIENT_VERSION: u32 = 2;

/// A record's key and value, in the value's version for this level of the feature; no value is a tombstone.
pub fn encode(record: &Record, version: TransactionVersion) -> Result<(Vec<u8>, Option<Vec<u8>>), TooLong> {
    let mut key = Vec::with_capacity(record.id.len() + 4);
    key.put_i16(KEY_VERSION);
    put_text(&mut key, &record.id)?;
    let flexible = version >= TransactionVersion::V1;
    let value = record.value.as_ref().map(|value| encode_value(value, flexible)).transpose()?;
    Ok((key, value))
}

fn encode_value(value: &Metadata, flexible: bool) -> Result<Vec<u8>, TooLong> {
    let mut out = Vec::with_capacity(64 + value.partitions.len() * 4);
    out.put_i16(if flexible { VALUE_FLEXIBLE_SINCE } else { 0 });
    out.put_i64(value.producer.id.0);
    out.put_i16(value.producer.epoch.0);
    out.put_i32(value.timeout_ms);
    out.put_i8(value.state.id());
    put_partitions(&mut out, value, flexible)?;
    out.put_i64(value.updated_at.0);
    out.put_i64(value.started_at.0);
    if flexible {
        put_tagged(&mut out, value);
    }
    Ok(out)
}

fn put_partitions(out: &mut Vec<u8>, value: &Metadata, flexible: bool) -> Result<(), TooLong> {
    let mut topics: BTreeMap<&TopicName, Vec<i32>> = BTreeMap::new();
    for partition in &value.partitions {
        topics.entry(&partition.topic).or_default().push(partition.partition.0);
    }
    // Kafka has null for a producer without a transaction.
    let count = (value.state != State::Empty).then_some(topics.len());
    put_len(out, count, flexible)?;
    for (topic, partitions) in count.iter().flat_map(|_| &topics) {
        if flexible {
            put_len(out, Some(topic.as_str().len()), true)?;
            out.put_slice(topic.as_str().as_bytes());
        } else {
            put_text(out, topic.as_str())?;
        }
        put_len(out, Some(partitions.len()), flexible)?;
        partitions.iter().for_each(|partition| out.put_i32(*partition));
        if flexible {
            out.put_u8(0);
        }
    }
    Ok(())
}

fn put_tagged(out: &mut Vec<u8>, value: &Metadata) {
    let mut tagged: Vec<(u32, Vec<u8>)> = Vec::new();
    if value.previous_producer_id != ProducerId::NONE {
        tagged.push((TAG_PREVIOUS_PRODUCER_ID, value.previous_producer_id.0.to_be_bytes().to_vec()));
    }
    if value.next_producer_id != ProducerId::NONE {
        tagged.push((TAG_NEXT_PRODUCER_ID, value.next_producer_id.0.to_be_bytes().to_vec()));
    }
    if value.client_version != TransactionVersion::V0 {
        tagged.push((TAG_CLIENT_VERSION, value.client_version.0.to_be_bytes().to_vec()));
    }
    put_uvarint(out, u32::try_from(tagged.len()).unwrap_or(u32::MAX));
    for (tag, bytes) in tagged {
        put_uvarint(out, tag);
        put_uvarint(out, u32::try_from(bytes.len()).unwrap_or(u32::MAX));
        out.put_slice(&bytes);
    }
}

/// A length of an array, or of a compact string; `None` is null.
fn put_len(out: &mut Vec<u8>, len: Option<usize>, flexible: bool) -> Result<(), TooLong> {
    let checked = len.map(|len| i32::try_from(len).map_err(|_| TooLong(len))).transpose()?;
    if flexible {
        put_uvarint(out, checked.map_or(0, |len| len.unsigned_abs().saturating_add(1)));
    } else {
        out.put_i32(checked.unwrap_or(-1));
    }
    Ok(())
}

fn put_uvarint(out: &mut Vec<u8>, mut value: u32) {
    while value >= 0x80 {
        out.put_u8((value & 0x7f) as u8 | 0x80);
        value >>= 7;
    }
    out.put_u8(value as u8);
}

/// Reads a record back, in any version that Kafka has written.
pub fn decode(key: &[u8], value: Option<&[u8]>) -> Result<Read<Record>, Malformed> {
    let (version, mut key) = versioned(key, i16::MAX)?;
    if version != KEY_VERSION {
        return Ok(Read::Ignored);
    }
    let id = text(&mut key)?;
    let Some(value) = value else { return Ok(Read::Known(Record { id, value: None })) };
    let (version, mut reader) = versioned(value, VALUE_FLEXIBLE_SINCE)?;
    if !(0..=VALUE_VERSION_MAX).contains(&version) {
        return Ok(Read::Ignored);
    }
    Ok(Read::Known(Record { id, value: Some(decode_value(&mut reader)?) }))
}

fn decode_value(reader: &mut Reader) -> Result<Metadata, Malformed> {
    let producer = ProducerIdAndEpoch { id: ProducerId(reader.i64()?), epoch: ProducerEpoch(reader.i16()?) };
    let timeout_ms = reader.i32()?;
    let status = reader.i8()?;
    let state = State::from_id(status).ok_or_else(|| Malformed::Field(format!("a transaction in the unknown state {status}")))?;
    let partitions = decode_partitions(reader)?;
    let (updated_at, started_at) = (Millis(reader.i64()?), Millis(reader.i64()?));
    let mut metadata = Metadata {
        producer,
        previous_producer_id: ProducerId::NONE,
        next_producer_id: ProducerId::NONE,
        timeout_ms,
        state,
        // Kafka reads none where there is no transaction, whatever the record says.
        partitions: if state == State::Empty { BTreeSet::new() } else { partitions },
        started_at,
        updated_at,
        client_version: TransactionVersion::V0,
    };
    reader.tagged_fields(|tag, bytes| {
        let mut field = Reader::new(bytes, true);
        match tag {
            TAG_PREVIOUS_PRODUCER_ID => metadata.previous_producer_id = ProducerId(field.i64()?),
            TAG_NEXT_PRODUCER_ID => metadata.next_producer_id = ProducerId(field.i64()?),
            TAG_CLIENT_VERSION => metadata.client_version = TransactionVersion(field.i16()?),
            _ => {}
        }
        Ok(())
    })?;
    Ok(metadata)
}

fn decode_partitions(reader: &mut Reader) -> Result<BTreeSet<TopicPartition>, Malformed> {
    let mut partitions = BTreeSet::new();
    for _ in 0..reader.array_len(PARTITIONS_BYTES_MIN)? {
        let name: Bytes = reader.string()?;
        let name = std::str::from_utf8(&name).map_err(|_| Malformed::NotUtf8)?;
        let topic = TopicName::new(name).map_err(|error| Malformed::Field(error.to_string()))?;
        for _ in 0..reader.array_len(size_of::<i32>())? {
            partitions.insert(TopicPartition { topic: topic.clone(), partition: PartitionIndex(reader.i32()?) });
        }
        reader.skip_tagged_fields()?;
    }
    Ok(partitions)
}

#[cfg(test)]
mod tests {
    //! Round trips of both versions, Kafka's bytes, and bytes that are none.

    use super::*;
    use proptest::prelude::*;

    fn any_metadata() -> impl Strategy<Value = Metadata> {
        let id = || prop_oneof![Just(-1), 0..i64::MAX];
        let partition = ("[a-c]{1,3}", 0..40_i32)
            .prop_map(|(topic, partition)| TopicPartition { topic: TopicName::new(&topic).unwrap(), partition: PartitionIndex(partition) });
        let producers = (0..i64::MAX, any::<i16>(), id(), id());
        let times = (any::<i32>(), any::<i64>(), any::<i64>());
        let partitions = proptest::collection::btree_set(partition, 0..200);
        (producers, times, 0..8_i8, partitions, 0..3_i16).prop_map(|(producers, times, state, partitions, version)| {
            let state = State::from_id(state).unwrap();
            Metadata {
                producer: ProducerIdAndEpoch::new(producers.0, producers.1),
                previous_producer_id: ProducerId(producers.2),
                next_producer_id: ProducerId(producers.3),
                timeout_ms: times.0,
                state,
                partitions: if state == State::Empty { BTreeSet::new() } else { partitions },
                started_at: Millis(times.1),
                updated_at: Millis(times.2),
                client_version: TransactionVersion(version),
            }
        })
    }

    proptest! {
        #[test]
        fn records_are_read_as_they_were_written(id in ".{0,12}", value in proptest::option::of(any_metadata())) {
            let record = Record { id: id.as_str().into(), value };
            let (key, value) = encode(&record, TransactionVersion::V2).unwrap();
            prop_assert_eq!(decode(&key, value.as_deref()).unwrap(), Read::Known(record.clone()));
            let (key, value) = encode(&record, TransactionVersion::V0).unwrap();
            let without = Record { value: record.value.map(without_tagged), ..record };
            prop_assert_eq!(decode(&key, value.as_deref()).unwrap(), Read::Known(without));
            for cut in 0..value.as_ref().map_or(0, Vec::len) {
                prop_assert!(decode(&key, Some(&value.as_ref().unwrap()[..cut])).is_err(), "cut at {}", cut);
            }
        }

        #[test]
        fn any_bytes_are_read_without_harm(version in 0_u8..3, key in any::<Vec<u8>>(), value in any::<Vec<u8>>()) {
            let _ = decode(&key, Some(&value));
            let _ = decode(b"\0\0\0\x01t", Some(&[&[0, version], &value[..]].concat()));
        }
    }

    fn without_tagged(value: Metadata) -> Metadata {
        let (previous_producer_id, next_producer_id) = (ProducerId::NONE, ProducerId::NONE);
        Metadata { previous_producer_id, next_producer_id, client_version: TransactionVersion::V0, ..value }
    }

    /// Written by hand from the schemas `TransactionLogKey.json` and `TransactionLogValue.json`.
    #[test]
    fn bytes_are_kafkas() {
        let topic = TopicName::new("t").unwrap();
        let partition = |partition| TopicPartition { topic: topic.clone(), partition: PartitionIndex(partition) };
        let metadata = Metadata {
            producer: ProducerIdAndEpoch::new(7, 3),
            previous_producer_id: ProducerId(7),
            next_producer_id: ProducerId(9),
            timeout_ms: 60_000,
            state: State::PrepareCommit,
            partitions: [partition(0), partition(2)].into(),
            started_at: Millis(4),
            updated_at: Millis(5),
            client_version: TransactionVersion::V2,
        };
        let record = Record { id: "tx".into(), value: Some(metadata) };
        let (key, value) = encode(&record, TransactionVersion::V2).unwrap();
        assert_eq!(key, b"\0\0\0\x02tx");
        let head = b"\0\0\0\0\0\0\0\x07\0\x03\0\0\xea\x60\x02";
        let v1 = [
            b"\0\x01",
            &head[..],
            b"\x02\x02t\x03\0\0\0\0\0\0\0\x02\0",
            b"\0\0\0\0\0\0\0\x05\0\0\0\0\0\0\0\x04",
            b"\x03\x00\x08\0\0\0\0\0\0\0\x07\x01\x08\0\0\0\0\0\0\0\x09\x02\x02\0\x02",
        ];
        assert_eq!(value.unwrap(), v1.concat());
        let v0 = [b"\0\0", &head[..], b"\0\0\0\x01\0\x01t\0\0\0\x02\0\0\0\0\0\0\0\x02", b"\0\0\0\0\0\0\0\x05\0\0\0\0\0\0\0\x04"];
        assert_eq!(encode(&record, TransactionVersion::V0).unwrap().1.unwrap(), v0.concat());
        let empty = Metadata { state: State::Empty, partitions: BTreeSet::new(), ..record.value.unwrap() };
        let bytes = |version| encode(&Record { id: "tx".into(), value: Some(empty.clone()) }, version).unwrap().1.unwrap();
        assert_eq!(&bytes(TransactionVersion::V0)[17..21], b"\xff\xff\xff\xff");
        assert_eq!(bytes(TransactionVersion::V2)[17], 0);
    }

    #[test]
    fn what_a_newer_kafka_writes_is_left_out() {
        assert_eq!(decode(b"\0\x01\0\x02tx", None).unwrap(), Read::Ignored);
        assert_eq!(decode(b"\0\0\0\x02tx", Some(b"\0\x02\0")).unwrap(), Read::Ignored);
        assert!(decode(b"\0\0\0\x02tx", Some(b"\0\0\0\0\0\0\0\0\0\x07\0\x03\0\0\xea\x60\x09")).is_err(), "no such state");
    }
}
