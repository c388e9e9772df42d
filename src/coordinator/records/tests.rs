//! Round trips of every record, old and new versions, and bytes that are none.

use super::*;
use crate::{
    group::{
        ClassicMemberMetadata, Committed, ConsumerGroupMetadata, ConsumerMemberMetadata, ConsumerRecord, CurrentAssignment, Epoch,
        Generation, GroupMetadata, MemberMetadata, Protocol, ResolvedRegex, TargetMetadata,
        consumer::{MemberState, Owned, Partitions},
    },
    types::{LeaderEpoch, Millis, Offset, TopicId},
};
use proptest::{
    collection::{btree_map, btree_set, vec},
    option,
    prelude::*,
};

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

fn any_partitions() -> impl Strategy<Value = Partitions> {
    let of_topic = btree_set((0..i32::MAX).prop_map(PartitionIndex), 1..4);
    btree_map(any::<u128>().prop_map(|bits| TopicId(uuid::Uuid::from_u128(bits))), of_topic, 0..4)
}

fn any_owned() -> impl Strategy<Value = Owned> {
    let of_topic = btree_map((0..i32::MAX).prop_map(PartitionIndex), any::<i32>().prop_map(Epoch), 1..4);
    btree_map(any::<u128>().prop_map(|bits| TopicId(uuid::Uuid::from_u128(bits))), of_topic, 0..4)
}

fn any_classic_member() -> impl Strategy<Value = ClassicMemberMetadata> {
    let protocol = (any_text(), vec(any::<u8>(), 0..20)).prop_map(|(name, bytes)| Protocol { name, metadata: bytes.into() });
    (any::<i32>(), vec(protocol, 0..3))
        .prop_map(|(session_timeout_ms, protocols)| ClassicMemberMetadata { session_timeout_ms, protocols: protocols.into() })
}

fn any_consumer_member() -> impl Strategy<Value = ConsumerMemberMetadata> {
    let optional = || option::of(any_text());
    let texts = (optional(), optional(), any_text(), any_text(), optional(), optional());
    (texts, btree_set(any_text(), 0..4), any::<i32>(), option::of(any_classic_member())).prop_map(|(texts, names, rebalance, classic)| {
        ConsumerMemberMetadata {
            instance_id: texts.0,
            rack_id: texts.1,
            client_id: texts.2,
            client_host: texts.3,
            subscribed_topic_names: names,
            subscribed_topic_regex: texts.4.filter(|regex| !regex.is_empty()),
            rebalance_timeout_ms: rebalance,
            server_assignor: texts.5,
            classic,
        }
    })
}

fn any_consumer() -> impl Strategy<Value = Record> {
    let group =
        (any::<i32>(), any::<i64>()).prop_map(|(epoch, metadata_hash)| ConsumerGroupMetadata { epoch: Epoch(epoch), metadata_hash });
    let target = (any::<i32>(), any::<i64>())
        .prop_map(|(epoch, at)| TargetMetadata { assignment_epoch: Epoch(epoch), assignment_timestamp: Millis(at) });
    let state = prop_oneof![Just(MemberState::Stable), Just(MemberState::UnrevokedPartitions), Just(MemberState::UnreleasedPartitions)];
    let current = (any::<i32>(), any::<i32>(), state, any_owned(), any_owned()).prop_map(|(epoch, previous, state, assigned, revoked)| {
        CurrentAssignment {
            member_epoch: Epoch(epoch),
            previous_member_epoch: Epoch(previous),
            state,
            assigned,
            pending_revocation: revoked,
        }
    });
    let regex = (btree_set(any_text(), 0..4), any::<i64>(), any::<i64>()).prop_map(|(topics, version, at)| ResolvedRegex {
        topics,
        version,
        timestamp: Millis(at),
    });
    let record = prop_oneof![
        option::of(group).prop_map(ConsumerRecord::Group),
        Just(ConsumerRecord::NoPartitionMetadata),
        (any_text(), option::of(any_consumer_member())).prop_map(|(id, value)| ConsumerRecord::Member(id, value)),
        option::of(target).prop_map(ConsumerRecord::TargetMetadata),
        (any_text(), option::of(any_partitions())).prop_map(|(id, value)| ConsumerRecord::Target(id, value)),
        (any_text(), option::of(current)).prop_map(|(id, value)| ConsumerRecord::Current(id, value)),
        (any_text(), option::of(regex)).prop_map(|(text, value)| ConsumerRecord::Regex(text, value)),
    ];
    (any_text(), record).prop_map(|(group, record)| Record::Consumer { group, record })
}

proptest! {
    #[test]
    fn records_are_read_as_they_were_written(record in prop_oneof![any_offset(), any_group(), any_consumer()]) {
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
    fn any_bytes_are_read_without_harm(kind in 0_u8..18, key in proptest::collection::vec(any::<u8>(), 0..40), value in proptest::collection::vec(any::<u8>(), 0..80)) {
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
    // Kinds that are not kept here: share groups, partition metadata of Kafka before 4.1.
    assert_eq!(decode(&[0, 11, 0, 1, b'g'], Some(&[0, 0])).unwrap(), Read::Ignored);
    assert_eq!(decode(&[0, 4, 0, 1, b'g'], Some(&[0, 0, 1, 0])).unwrap(), Read::Ignored);
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

/// What the classes of Apache Kafka 4.4 write.
#[test]
fn consumer_groups_are_written_as_kafka_writes_them() {
    let id = TopicId(uuid::Uuid::from_u128(0x0102_0304_0506_0708_090a_0b0c_0d0e_0f10));
    let texts = |all: &[&str]| all.iter().map(|text| Arc::from(*text)).collect();
    let member = ConsumerMemberMetadata {
        instance_id: Some("i".into()),
        rack_id: None,
        client_id: "c".into(),
        client_host: "/h".into(),
        subscribed_topic_names: texts(&["a", "b"]),
        subscribed_topic_regex: Some("r.*".into()),
        rebalance_timeout_ms: 300_000,
        server_assignor: Some("uniform".into()),
        classic: None,
    };
    let classic = ConsumerMemberMetadata {
        instance_id: None,
        rack_id: Some("k".into()),
        subscribed_topic_names: texts(&["a"]),
        subscribed_topic_regex: None,
        rebalance_timeout_ms: 5,
        server_assignor: None,
        classic: Some(ClassicMemberMetadata {
            session_timeout_ms: 6_000,
            protocols: [Protocol { name: "range".into(), metadata: Bytes::from_static(&[1, 2]) }].into(),
        }),
        ..member.clone()
    };
    let index = PartitionIndex;
    let current = CurrentAssignment {
        member_epoch: Epoch(7),
        previous_member_epoch: Epoch(6),
        state: MemberState::UnrevokedPartitions,
        assigned: Owned::from([(id, [(index(0), Epoch(5)), (index(2), Epoch(7))].into())]),
        pending_revocation: Owned::new(),
    };
    let target = Partitions::from([(id, [index(0), index(2)].into())]);
    let hash = ConsumerGroupMetadata { epoch: Epoch(7), metadata_hash: 0x1122_3344_5566_7788 };
    let computed = TargetMetadata { assignment_epoch: Epoch(7), assignment_timestamp: Millis(0x0102) };
    let regex = ResolvedRegex { topics: texts(&["a", "b"]), version: 9, timestamp: Millis(11) };
    let uuid = "0102030405060708090a0b0c0d0e0f10";
    let two = "03000000000000000200";
    let cases = [
        (ConsumerRecord::Group(Some(hash)), "0003000167", "0000000000070100081122334455667788".to_owned()),
        (ConsumerRecord::Group(Some(ConsumerGroupMetadata { metadata_hash: 0, ..hash })), "0003000167", "00000000000700".to_owned()),
        (
            ConsumerRecord::Member("m".into(), Some(member)),
            "000500016700016d",
            "00000269000263032f68030261026204722e2a000493e008756e69666f726d01000100".to_owned(),
        ),
        (
            ConsumerRecord::Member("m".into(), Some(classic)),
            "000500016700016d",
            "000000026b0263032f680202610100000005000100110100001770020672616e67650301020000".to_owned(),
        ),
        (ConsumerRecord::TargetMetadata(Some(computed)), "0006000167", "0000000000070100080000000000000102".to_owned()),
        (ConsumerRecord::Target("m".into(), Some(target)), "000700016700016d", format!("000002{uuid}{two}00")),
        (
            ConsumerRecord::Current("m".into(), Some(current)),
            "000800016700016d",
            format!("000000000007000000060102{uuid}{}01000903000000050000000701{}", &two[..18], "00"),
        ),
        (
            ConsumerRecord::Regex("r.*".into(), Some(regex)),
            "00100001670003722e2a",
            "000003026102620000000000000009000000000000000b00".to_owned(),
        ),
        (ConsumerRecord::NoPartitionMetadata, "0004000167", String::new()),
    ];
    let hex = |bytes: &[u8]| bytes.iter().map(|byte| format!("{byte:02x}")).collect::<String>();
    for (record, key, value) in cases {
        let record = Record::Consumer { group: "g".into(), record };
        let (written_key, written) = encode(&record).unwrap();
        assert_eq!((hex(&written_key).as_str(), hex(written.as_deref().unwrap_or_default())), (key, value), "{record:?}");
        assert_eq!(decode(&written_key, written.as_deref()), Ok(Read::Known(record)));
    }
}
