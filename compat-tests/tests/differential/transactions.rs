//! The transaction APIs: the life of a transaction in every version of each, and everything that is refused.

use anyhow::Result;
use kafka_protocol::messages::add_partitions_to_txn_request::AddPartitionsToTxnTopic;
use kafka_protocol::messages::describe_producers_request::TopicRequest;
use kafka_protocol::messages::offset_fetch_request::{OffsetFetchRequestGroup, OffsetFetchRequestTopics};
use kafka_protocol::messages::write_txn_markers_request::{WritableTxnMarker, WritableTxnMarkerTopic};
use kafka_protocol::messages::{
    AddPartitionsToTxnRequest, DescribeProducersRequest, DescribeTransactionsRequest, ListTransactionsRequest, OffsetFetchRequest,
    ProducerId, WriteTxnMarkersRequest,
};

use crate::groups::{coordinated, gid};
use crate::requests::{Topic, fetch, fetch_topic, from, text, topic_name};
use crate::side::{Side, compare};
use crate::transactional::{Producer, init, tid};

/// What a transaction of nobody's is asked as.
const NOBODY: i64 = 1 << 50;

fn describe(side: &mut Side, ids: &[&str]) -> Result<()> {
    let request = DescribeTransactionsRequest::default().with_transactional_ids(ids.iter().map(|id| tid(id)).collect());
    side.step(format!("describe {ids:?}"), 0, &request)?;
    Ok(())
}

/// The producers that a partition knows, but for those of other scripts (there are none) and chance.
fn producers(side: &mut Side, topic: &str, partitions: &[i32]) -> Result<()> {
    let of = TopicRequest::default().with_name(topic_name(topic)).with_partition_indexes(partitions.to_vec());
    side.step(format!("producers of {topic}"), 0, &DescribeProducersRequest::default().with_topics(vec![of]))?;
    Ok(())
}

/// Producer ids and the times of markers are chance, so the contents are noted without them.
fn contents(side: &mut Side, topic: &Topic, partition: i32) -> Result<()> {
    let answer = side.ask(12, &fetch(12, vec![fetch_topic(12, topic, vec![from(partition, 0)])]).with_isolation_level(1))?;
    for partition in answer.responses.iter().flat_map(|topic| &topic.partitions) {
        let aborted: Vec<i64> = partition.aborted_transactions.iter().flatten().map(|aborted| aborted.first_offset).collect();
        side.note("where it ends", format!("{} {} {aborted:?}", partition.last_stable_offset, partition.high_watermark));
        for batch in partition.records.clone().map(compat_tests::batch::read).transpose()?.into_iter().flatten() {
            let header = batch.header;
            let (is_control, epoch) = (header.attributes & 1 << 5 != 0, header.producer_epoch);
            // A marker's key says how it ended.
            let records = if is_control { format!("{:?}", &batch.records[..]) } else { String::new() };
            side.note("a batch", format!("{} {} {epoch} {} {records}", header.base_offset, header.attributes, header.base_sequence));
        }
    }
    Ok(())
}

#[test]
fn producers_of_transactional_ids() {
    compare(|side| {
        side.topic("txn-init", 1, &[])?;
        for version in 0..=5 {
            let id = format!("txn-init-{version}");
            let first = Producer::new(side, &id)?;
            side.step("again", version, &init(version, &id))?;
            side.step("no name", version, &init(version, ""))?;
            for timeout in [0, -1, 1, 900_000, 900_001, i32::MAX] {
                side.step(format!("timeout {timeout}"), version, &init(version, &id).with_transaction_timeout_ms(timeout))?;
            }
            if version >= 3 {
                let ask = |producer: i64, epoch: i16| init(version, &id).with_producer_id(ProducerId(producer)).with_producer_epoch(epoch);
                let epoch = side.answer("once more", version, &init(version, &id))?.producer_epoch;
                for (label, producer, of) in [
                    ("as it is", first.producer, epoch),
                    ("as it was", first.producer, epoch),
                    ("as it was long ago", first.producer, 0),
                    ("as it will be", first.producer, epoch + 9),
                    ("as another", NOBODY, epoch),
                    ("without an epoch", first.producer, -1),
                    ("without an id", -1, epoch),
                ] {
                    side.step(label, version, &ask(producer, of))?;
                }
            }
            let open = Producer::new(side, &id)?;
            open.begin(side, "txn-init")?;
            // Not as a producer of long ago: Kafka does not look at its epoch then, so that it aborts the transaction of its successor; here it is
            // fenced (`src/txn/init.rs`).
            side.step("while one is open", version, &init(version, &id))?;
            open.settle(side)?;
            side.step("after it was aborted", version, &init(version, &id))?;
            describe(side, &[&id])?;
        }
        Ok(())
    });
}

#[test]
fn partitions_are_added() {
    compare(|side| {
        side.topic("txn-add", 3, &[])?;
        for version in 0..=5 {
            let id = format!("txn-add-{version}");
            let mut producer = Producer::new(side, &id)?;
            let p0: &[(&str, &[i32])] = &[("txn-add", &[0])];
            side.step("an id of nobody", version, &producer.named("txn-nobody").add(version, p0))?;
            side.step("no name", version, &producer.named("").add(version, p0))?;
            side.step("another's id", version, &producer.of(NOBODY).add(version, p0))?;
            side.step("no id", version, &producer.of(-1).add(version, p0))?;
            side.step("an epoch of old", version, &producer.at(producer.epoch - 1).add(version, p0))?;
            side.step("an epoch to come", version, &producer.at(producer.epoch + 1).add(version, p0))?;
            side.step("a topic that isn't there", version, &producer.add(version, &[("txn-nowhere", &[0])]))?;
            side.step("a partition that isn't there", version, &producer.add(version, &[("txn-add", &[0, 7, -1])]))?;
            side.step("one that is and one that isn't", version, &producer.add(version, &[("txn-add", &[1]), ("txn-nowhere", &[0])]))?;
            side.step("a name that is none", version, &producer.add(version, &[("no/topic", &[0])]))?;
            describe(side, &[&id])?;
            side.step("one", version, &producer.add(version, p0))?;
            side.step("and again", version, &producer.add(version, p0))?;
            side.step("and another", version, &producer.add(version, &[("txn-add", &[0, 1])]))?;
            describe(side, &[&id])?;
            producer.end_step(side, if version >= 5 { 5 } else { 3 }, true)?;
            side.step("after the end", version, &producer.add(version, p0))?;
            describe(side, &[&id])?;
        }
        Ok(())
    });
}

#[test]
fn nothing_is_added() {
    compare(|side| {
        side.topic("txn-none", 1, &[])?;
        for version in 0..=5 {
            let producer = Producer::new(side, &format!("txn-none-{version}"))?;
            side.step("no topics", version, &producer.add(version, &[]))?;
            side.step("no partitions", version, &producer.add(version, &[("txn-none", &[])]))?;
            describe(side, &[&producer.id])?;
        }
        Ok(())
    });
}

/// What brokers ask one another.
#[test]
fn many_transactions_are_verified_and_added() {
    compare(|side| {
        side.topic("txn-many", 3, &[])?;
        for version in 4..=5 {
            let a = Producer::new(side, &format!("txn-many-a{version}"))?;
            let b = Producer::new(side, &format!("txn-many-b{version}"))?;
            let topics = |partitions: &[i32]| {
                vec![AddPartitionsToTxnTopic::default().with_name(topic_name("txn-many")).with_partitions(partitions.to_vec())]
            };
            let all = |transactions| AddPartitionsToTxnRequest::default().with_transactions(transactions);
            // Kafka never answers a request without transactions.
            side.step("nothing was added", version, &all(vec![a.batched(topics(&[0]), true)]))?;
            side.step(
                "added to one, verified in another",
                version,
                &all(vec![a.batched(topics(&[0, 1]), false), b.batched(topics(&[0]), true)]),
            )?;
            side.step(
                "all, some and none of it",
                version,
                &all(vec![a.batched(topics(&[0, 1, 2]), true), b.batched(topics(&[2]), false)]),
            )?;
            for verify_only in [false, true] {
                let stale = [a.at(a.epoch + 1), b.of(NOBODY), a.named("txn-nobody"), b.named("")];
                for one in stale {
                    side.step(format!("verify only {verify_only}"), version, &all(vec![one.batched(topics(&[0]), verify_only)]))?;
                }
                let nowhere = vec![AddPartitionsToTxnTopic::default().with_name(topic_name("txn-nowhere")).with_partitions(vec![0])];
                side.step(format!("nowhere, verify only {verify_only}"), version, &all(vec![a.batched(nowhere, verify_only)]))?;
            }
            describe(side, &[&a.id, &b.id])?;
        }
        Ok(())
    });
}

#[test]
fn transactions_end() {
    compare(|side| {
        side.topic("txn-end", 1, &[])?;
        for version in 0..=5 {
            let mut producer = Producer::new(side, &format!("txn-end-{version}"))?;
            for commit in [true, false] {
                let ask = |producer: &Producer| producer.end(commit);
                side.step("an id of nobody", version, &ask(&producer.named("txn-nobody")))?;
                side.step("no name", version, &ask(&producer.named("")))?;
                side.step("another's id", version, &ask(&producer.of(NOBODY)))?;
                side.step("an epoch to come", version, &ask(&producer.at(producer.epoch + 1)))?;
                side.step("an epoch of old", version, &ask(&producer.at(producer.epoch - 1)))?;
            }
            side.step("a commit of nothing", version, &producer.end(true))?;
            producer.end_step(side, version, false)?;
            describe(side, &[&producer.id])?;
            for commit in [true, false] {
                producer.begin(side, "txn-end")?;
                side.step("by an epoch to come", version, &producer.at(producer.epoch + 1).end(commit))?;
                let was = producer.clone();
                producer.end_step(side, version, commit)?;
                side.step("again", version, &was.end(commit))?;
                producer.settle(side)?;
                side.step("the other way", version, &was.end(!commit))?;
                producer.settle(side)?;
                describe(side, &[&producer.id])?;
                producer = Producer::new(side, &producer.id)?;
            }
        }
        Ok(())
    });
}

#[test]
fn offsets_are_added_and_committed() {
    compare(|side| {
        coordinated(side, "diff-txn-group")?;
        side.topic("txn-offsets", 2, &[])?;
        for version in 0..=5 {
            let group = format!("diff-txn-group-{version}");
            let mut producer = Producer::new(side, &format!("txn-offsets-{version}"))?;
            let add = version.min(4);
            side.step("an id of nobody", add, &producer.named("txn-nobody").add_offsets(&group))?;
            side.step("no name", add, &producer.named("").add_offsets(&group))?;
            side.step("another's id", add, &producer.of(NOBODY).add_offsets(&group))?;
            side.step("an epoch of old", add, &producer.at(producer.epoch - 1).add_offsets(&group))?;
            side.step("an epoch to come", add, &producer.at(producer.epoch + 1).add_offsets(&group))?;
            let commit = |producer: &Producer, group: &str, topic: &str| producer.commit_offsets(version, group, topic, 7);
            if version >= 3 {
                let ask = |group| commit(&producer, group, "txn-offsets").with_generation_id(1).with_member_id(text("me"));
                if version < 5 {
                    side.step("add a group of nobody's", add, &producer.add_offsets("diff-nobody"))?;
                }
                side.step("commit of a generation of nobody's", version, &ask("diff-nobody"))?;
            }
            if version < 5 {
                side.step("commit before the group is added", version, &commit(&producer, &group, "txn-offsets"))?;
                side.step("add", add, &producer.add_offsets(&group))?;
                side.step("add again", add, &producer.add_offsets(&group))?;
            }
            side.step("commit as nobody", version, &commit(&producer.named("txn-nobody"), &group, "txn-offsets"))?;
            side.step("commit without a name", version, &commit(&producer.named(""), &group, "txn-offsets"))?;
            side.step("commit as another", version, &commit(&producer.of(NOBODY), &group, "txn-offsets"))?;
            side.step("commit by an epoch to come", version, &commit(&producer.at(producer.epoch + 1), &group, "txn-offsets"))?;
            side.step("commit without a group", version, &commit(&producer, "", "txn-offsets"))?;
            side.step("commit of a topic that isn't there", version, &commit(&producer, &group, "txn-nowhere"))?;
            let mut long = commit(&producer, &group, "txn-offsets");
            for partition in long.topics.iter_mut().flat_map(|topic| &mut topic.partitions) {
                partition.committed_metadata = Some(text(&"x".repeat(5_000)));
            }
            side.step("commit with long metadata", version, &long)?;
            side.step("commit", version, &commit(&producer, &group, "txn-offsets"))?;
            // Kafka has a group from a commit on that it refused; here there is one once an offset is in it.
            if version >= 3 {
                let ask = |generation, member: &str| {
                    commit(&producer, &group, "txn-offsets").with_generation_id(generation).with_member_id(text(member))
                };
                side.step("commit of a generation", version, &ask(1, ""))?;
                side.step("commit of a member", version, &ask(-1, "me"))?;
                side.step("commit of a member and generation", version, &ask(1, "me"))?;
            }
            describe(side, &[&producer.id])?;
            offsets(side, &group, true)?;
            offsets(side, &group, false)?;
            producer.end_step(side, if version >= 5 { 5 } else { 3 }, true)?;
            offsets(side, &group, true)?;
            if version < 5 {
                side.step("commit after the end", version, &commit(&producer, &group, "txn-offsets"))?;
                side.step("add", add, &producer.add_offsets(&group))?;
            }
            side.step("commit another", version, &producer.commit_offsets(version, &group, "txn-offsets", 9))?;
            producer.end_step(side, if version >= 5 { 5 } else { 3 }, false)?;
            offsets(side, &group, true)?;
        }
        Ok(())
    });
}

/// What the group has committed, waiting for what is open or not.
fn offsets(side: &mut Side, group: &str, stable: bool) -> Result<()> {
    let topic = OffsetFetchRequestTopics::default().with_name(topic_name("txn-offsets")).with_partition_indexes(vec![0, 1]);
    let of = OffsetFetchRequestGroup::default().with_group_id(gid(group)).with_topics(Some(vec![topic])).with_member_epoch(-1);
    let request = OffsetFetchRequest::default().with_groups(vec![of]).with_require_stable(stable);
    side.step(format!("offsets, stable {stable}"), 8, &request)?;
    Ok(())
}

fn marker(producer: &Producer, coordinator_epoch: i32, commit: bool, topics: &[(&str, &[i32])]) -> WritableTxnMarker {
    let topic = |(name, partitions): &(&str, &[i32])| {
        WritableTxnMarkerTopic::default().with_name(topic_name(name)).with_partition_indexes(partitions.to_vec())
    };
    WritableTxnMarker::default()
        .with_producer_id(ProducerId(producer.producer))
        .with_producer_epoch(producer.epoch)
        .with_transaction_result(commit)
        .with_coordinator_epoch(coordinator_epoch)
        .with_topics(topics.iter().map(topic).collect())
}

#[test]
fn markers_are_written_by_hand() {
    compare(|side| {
        let topic = Topic::new("txn-markers", side.topic("txn-markers", 3, &[])?);
        let producer = Producer::new(side, "txn-markers")?;
        let all = |markers| WriteTxnMarkersRequest::default().with_markers(markers);
        side.step("none", 1, &all(Vec::new()))?;
        side.step("nowhere", 1, &all(vec![marker(&producer, 0, true, &[("txn-nowhere", &[0]), ("txn-markers", &[9])])]))?;
        side.step("no topics", 1, &all(vec![marker(&producer, 0, true, &[])]))?;
        side.step("no partitions", 1, &all(vec![marker(&producer, 0, true, &[("txn-markers", &[])])]))?;
        side.step("of a producer that it doesn't know", 1, &all(vec![marker(&producer, 0, true, &[("txn-markers", &[2])])]))?;
        producer.begin(side, "txn-markers")?;
        side.step("produce", 9, &producer.produce(9, &topic, 0, 0))?;
        producers(side, "txn-markers", &[0, 1, 2, 9])?;
        let one = |producer: &Producer, epoch, commit| all(vec![marker(producer, epoch, commit, &[("txn-markers", &[0])])]);
        side.step("of an epoch of old", 1, &one(&producer.at(producer.epoch - 1), 0, false))?;
        producers(side, "txn-markers", &[0])?;
        side.step("an abort", 1, &one(&producer, 3, false))?;
        producers(side, "txn-markers", &[0])?;
        side.step("a commit of nothing", 1, &one(&producer, 3, true))?;
        side.step("of a coordinator of old", 1, &one(&producer, 2, true))?;
        side.step("of a coordinator to come", 1, &one(&producer, 7, true))?;
        side.step("of no coordinator", 1, &one(&producer, -1, true))?;
        side.step("of an epoch to come", 1, &one(&producer.at(producer.epoch + 1), 7, false))?;
        producers(side, "txn-markers", &[0])?;
        let some = vec![
            marker(&producer.at(producer.epoch + 1), 7, true, &[("txn-markers", &[0, 1])]),
            marker(&producer.at(producer.epoch + 1), 7, false, &[("txn-markers", &[2, 5])]),
        ];
        side.step("two", 1, &all(some))?;
        for partition in 0..3 {
            contents(side, &topic, partition)?;
        }
        Ok(())
    });
}

#[test]
fn transactions_are_described_and_listed() {
    compare(|side| {
        side.topic("txn-list", 2, &[])?;
        Producer::new(side, "txn-list-empty")?;
        let open = Producer::new(side, "txn-list-open")?;
        open.begin(side, "txn-list")?;
        for (id, commit) in [("txn-list-committed", true), ("txn-list-aborted", false)] {
            let mut producer = Producer::new(side, id)?;
            producer.begin(side, "txn-list")?;
            producer.end_step(side, 3, commit)?;
        }
        for id in ["txn-list-empty", "txn-list-open", "txn-list-committed", "txn-list-aborted", "txn-list-nobody", ""] {
            describe(side, &[id])?;
        }
        describe(side, &["txn-list-open", "txn-list-nobody", "txn-list-empty"])?;
        describe(side, &[])?;
        let mut list = |label: String, version, request: &ListTransactionsRequest| -> Result<()> {
            side.step_with(label, version, request, |answer| {
                answer.transaction_states.retain(|state| state.transactional_id.starts_with("txn-list-"));
            })?;
            Ok(())
        };
        let ask = ListTransactionsRequest::default;
        for version in 0..=2 {
            list("all".to_owned(), version, &ask())?;
            let states: [&[&str]; 7] = [
                &["Ongoing"],
                &["Empty", "CompleteAbort"],
                &["ongoing"],
                &["nonsense"],
                &["nonsense", "Ongoing", "nonsense"],
                &["Dead"],
                &[""],
            ];
            for states in states {
                list(format!("{states:?}"), version, &ask().with_state_filters(states.iter().map(|state| text(state)).collect()))?;
            }
            list("a producer".to_owned(), version, &ask().with_producer_id_filters(vec![ProducerId(open.producer), ProducerId(NOBODY)]))?;
            list("nobody".to_owned(), version, &ask().with_producer_id_filters(vec![ProducerId(NOBODY)]))?;
            let both = ask().with_producer_id_filters(vec![ProducerId(open.producer)]).with_state_filters(vec![text("Empty")]);
            list("a producer in another state".to_owned(), version, &both)?;
        }
        for version in 1..=2 {
            for duration in [-1, -7, 0, 3_600_000, i64::MAX] {
                list(format!("for {duration} ms"), version, &ask().with_duration_filter(duration))?;
            }
        }
        for pattern in ["txn-list-.*", "txn-list-(open|empty)", "txn-list", "open", "", ".*-open$", "txn-list-[", "(?i)TXN-LIST-OPEN"] {
            list(format!("like {pattern:?}"), 2, &ask().with_transactional_id_pattern(Some(text(pattern))))?;
        }
        Ok(())
    });
}

/// Batches of two producers refuse a request only where both could be appended.
#[test]
fn records_of_two_producers() {
    compare(|side| {
        let topic = Topic::new("txn-two", side.topic("txn-two", 2, &[])?);
        let (one, two) = (Producer::new(side, "txn-two-a")?, Producer::new(side, "txn-two-b")?);
        for version in [9, 11, 12, 13] {
            let both = |other: i32, bytes: bytes::Bytes| {
                let mut ask = one.produce(version, &topic, 0, 0);
                let mut more = two.produce(version, &topic, other, 0);
                more.topic_data.iter_mut().flat_map(|topic| &mut topic.partition_data).for_each(|data| data.records = Some(bytes.clone()));
                let more = more.topic_data.into_iter().flat_map(|topic| topic.partition_data);
                ask.topic_data.iter_mut().for_each(|topic| topic.partition_data.extend(more.clone()));
                ask
            };
            let good = two.batch(0).encode();
            for (label, partition, bytes) in [
                ("both are fine", 1, good.clone()),
                ("the other's partition isn't there", 7, good.clone()),
                ("the other's is cut short", 1, good.slice(..70)),
            ] {
                side.step_with(label, version, &both(partition, bytes), |answer| {
                    for partition in answer.responses.iter_mut().flat_map(|topic| &mut topic.partition_responses) {
                        // For a duplicate Kafka gives its newest timestamp, as if the log had stamped it; these topics stamp nothing.
                        partition.log_append_time_ms = -1;
                    }
                })?;
            }
        }
        contents(side, &topic, 0)
    });
}

#[test]
fn producers_of_partitions_are_described() {
    compare(|side| {
        let topic = Topic::new("txn-producers", side.topic("txn-producers", 2, &[])?);
        producers(side, "txn-producers", &[0, 1, 2, -1])?;
        producers(side, "txn-nowhere", &[0])?;
        producers(side, "no/topic", &[0])?;
        producers(side, "", &[0])?;
        producers(side, "txn-producers", &[])?;
        let mut producer = Producer::new(side, "txn-producers")?;
        for version in [9, 12] {
            if version < 12 {
                producer.begin(side, "txn-producers")?;
            }
            side.step("produce", version, &producer.produce(version, &topic, 0, 0))?;
            side.step("produce more", version, &producer.produce(version, &topic, 0, 1))?;
            producers(side, "txn-producers", &[0])?;
            producer.end_step(side, 5, version < 12)?;
            producers(side, "txn-producers", &[0])?;
        }
        contents(side, &topic, 0)?;
        Ok(())
    });
}

#[test]
fn records_in_transactions() {
    compare(|side| {
        for version in 3..=13 {
            let name = format!("txn-produce-{version}");
            let topic = Topic::new(&name, side.topic(&name, 2, &[])?);
            let mut producer = Producer::new(side, &name)?;
            let nameless = producer.produce(version, &topic, 0, 0).with_transactional_id(None);
            side.step("without a transactional id", version, &nameless)?;
            side.step("as nobody", version, &producer.named("txn-nobody").produce(version, &topic, 0, 0))?;
            side.step("as another", version, &producer.of(NOBODY).produce(version, &topic, 0, 0))?;
            side.step("by an epoch to come", version, &producer.at(producer.epoch + 1).produce(version, &topic, 0, 0))?;
            if version < 12 {
                side.step("before it was added", version, &producer.produce(version, &topic, 0, 0))?;
                producer.begin(side, &name)?;
            }
            side.step("the first", version, &producer.produce(version, &topic, 0, 0))?;
            side.step_with("the first again", version, &producer.produce(version, &topic, 0, 0), |answer| {
                for partition in answer.responses.iter_mut().flat_map(|topic| &mut topic.partition_responses) {
                    // For a duplicate Kafka gives its newest timestamp, as if the log had stamped it; these topics stamp nothing.
                    partition.log_append_time_ms = -1;
                }
            })?;
            side.step("a gap", version, &producer.produce(version, &topic, 0, 5))?;
            side.step("where nobody is", version, &producer.produce(version, &topic, 9, 0))?;
            side.step("by an epoch of old", version, &producer.at(producer.epoch - 1).produce(version, &topic, 0, 1))?;
            let (end, was) = (if version < 12 { 3 } else { 5 }, producer.clone());
            producer.end_step(side, end, true)?;
            side.step("late", version, &was.produce(version, &topic, 0, 1))?;
            if version >= 12 {
                side.step("the next transaction", version, &producer.produce(version, &topic, 0, 0))?;
                side.step("its other partition", version, &producer.produce(version, &topic, 1, 0))?;
                producer.end_step(side, end, false)?;
            }
            contents(side, &topic, 0)?;
            describe(side, &[&producer.id])?;
        }
        Ok(())
    });
}
