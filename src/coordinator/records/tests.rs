//! Round trips of every record, old and new versions, and bytes that are none.

use super::*;
use crate::{
    group::{Committed, Generation, GroupMetadata, MemberMetadata},
    types::{LeaderEpoch, Millis, Offset},
};
use proptest::prelude::*;

fn any_text() -> impl Strategy<Value = Arc<str>> {
    ".{0,12}".prop_map(|text: String| text.into())
}

fn any_offset() -> impl Strategy<Value = Record> {
    let expiry = proptest::option::of(0..i64::MAX);
    let value = (0..i64::MAX, -1..i32::MAX, any_text(), 0..i64::MAX, expiry).prop_map(|(offset, epoch, metadata, at, expires)| Committed {
        offset: Offset(offset),
        // The version with an expiry has no epoch.
        leader_epoch: if expires.is_some() { LeaderEpoch::NONE } else { LeaderEpoch(epoch) },
        metadata,
        committed_at: Millis(at),
        expires_at: expires.map(Millis),
    });
    (any_text(), "[a-z]{1,9}", 0..i32::MAX, proptest::option::of(value)).prop_map(|(group, topic, partition, value)| {
        let partition = TopicPartition { topic: TopicName::new(&topic).unwrap(), partition: PartitionIndex(partition) };
        Record::Offset { group, partition, value }
    })
}

fn any_member() -> impl Strategy<Value = MemberMetadata> {
    let texts = (any_text(), proptest::option::of(any_text()), any_text(), any_text());
    let bytes = || proptest::collection::vec(any::<u8>(), 0..20).prop_map(Bytes::from);
    (texts, any::<i32>(), any::<i32>(), bytes(), bytes()).prop_map(|(texts, rebalance, session, subscription, assignment)| MemberMetadata {
        member_id: texts.0,
        instance_id: texts.1,
        client_id: texts.2,
        client_host: texts.3,
        rebalance_timeout_ms: rebalance,
        session_timeout_ms: session,
        subscription,
        assignment,
    })
}

fn any_group() -> impl Strategy<Value = Record> {
    let texts = (any_text(), proptest::option::of(any_text()), proptest::option::of(any_text()));
    let value = (texts, any::<i32>(), proptest::option::of(0..i64::MAX), proptest::collection::vec(any_member(), 0..4)).prop_map(
        |((protocol_type, protocol, leader), generation, since, members)| GroupMetadata {
            protocol_type,
            generation: Generation(generation),
            protocol,
            leader,
            state_since: since.map(Millis),
            members,
        },
    );
    (any_text(), proptest::option::of(value)).prop_map(|(group, value)| Record::Group { group, value })
}

proptest! {
    #[test]
    fn records_are_read_as_they_were_written(record in prop_oneof![any_offset(), any_group()]) {
        let (key, value) = encode(&record).unwrap();
        prop_assert_eq!(decode(&key, value.as_deref()).unwrap(), Read::Known(record));
        // Any cut of a value is noticed, but for a member's tagged fields, which only version 4 has.
        if let Some(value) = &value {
            for cut in 0..value.len() {
                prop_assert!(decode(&key, Some(&value[..cut])).is_err(), "cut at {}", cut);
            }
        }
    }

    #[test]
    fn any_bytes_are_read_without_harm(kind in 0_u8..4, key in proptest::collection::vec(any::<u8>(), 0..40), value in proptest::collection::vec(any::<u8>(), 0..80)) {
        let _ = decode(&[&[0, kind], &key[..]].concat(), Some(&value));
    }
}

#[test]
fn old_and_new_versions_are_read() {
    let key =
        offset_commit::encode_key("g", &TopicPartition { topic: TopicName::new("t").unwrap(), partition: PartitionIndex(4) }).unwrap();
    let value = |bytes: &[u8]| match decode(&key, Some(bytes)).unwrap() {
        Read::Known(Record::Offset { value: Some(value), .. }) => value,
        other => panic!("{other:?}"),
    };
    let v0 = value(b"\0\0\0\0\0\0\0\0\0\x09\0\x01m\0\0\0\0\0\0\0\x05");
    assert_eq!((v0.offset, &*v0.metadata, v0.committed_at, v0.leader_epoch), (Offset(9), "m", Millis(5), LeaderEpoch::NONE));
    let v4 = value(b"\0\x04\0\0\0\0\0\0\0\x09\0\0\0\x02\x02m\0\0\0\0\0\0\0\x05\0");
    assert_eq!((v4.offset, &*v4.metadata, v4.committed_at, v4.leader_epoch), (Offset(9), "m", Millis(5), LeaderEpoch(2)));

    let v0 = b"\0\0\0\x01c\0\0\0\x07\0\x01r\0\x01a\0\0\0\x01\0\x01a\0\x01i\0\x01h\0\0\x27\x10\0\0\0\x01S\0\0\0\x02AA";
    let group = group_metadata::decode_value(v0).unwrap();
    assert_eq!((group.generation, group.state_since, group.leader.as_deref()), (Generation(7), None, Some("a")));
    let member = &group.members[0];
    assert_eq!((member.rebalance_timeout_ms, member.session_timeout_ms, &member.assignment[..]), (-1, 10_000, &b"AA"[..]));
    // A newer Kafka's kinds: members of KIP-848, share groups.
    assert_eq!(decode(&[0, 3, 0, 1, b'g'], Some(&[0, 0])).unwrap(), Read::Ignored);
    // A topic that can't exist.
    assert_eq!(decode(b"\0\x01\0\x01g\0\x01/\0\0\0\0", None).unwrap(), Read::Ignored);
    assert!(decode(&[], None).is_err());
}

#[test]
fn names_that_do_not_fit_are_refused() {
    let long = "x".repeat(40_000);
    let record = Record::Group { group: long.as_str().into(), value: None };
    assert_eq!(encode(&record), Err(TooLong(40_000)));
}
