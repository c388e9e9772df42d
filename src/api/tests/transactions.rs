//! The APIs of transactions in every version: their shapes, and transactions of both flows through the dispatch on real logs.

use super::{groups::Served, shape_holds, text, topic};
use crate::{
    api::{
        add_offsets_to_txn, add_partitions_to_txn, describe_producers, describe_transactions, end_txn, find_coordinator, init_producer_id,
        list_transactions, offset_fetch, produce, txn_offset_commit, update_features, write_txn_markers,
    },
    cluster::NewTopic,
    log::Isolation,
    record::{BatchBuilder, BatchRecords},
    types::{ErrorCode, Offset, PartitionIndex, ProducerEpoch, ProducerId, TopicId},
};
use kafka_protocol::messages::{self, GroupId, TransactionalId};

const T: &str = "tx";

fn id() -> TransactionalId {
    TransactionalId(text(T))
}

fn partitions_request(v: i16, of: &str, producer: (i64, i16), verify_only: bool) -> messages::AddPartitionsToTxnRequest {
    use messages::add_partitions_to_txn_request::{AddPartitionsToTxnTopic, AddPartitionsToTxnTransaction};
    let topics = vec![AddPartitionsToTxnTopic::default().with_name(topic(of)).with_partitions(vec![0])];
    let producer_id = messages::ProducerId(producer.0);
    let request = messages::AddPartitionsToTxnRequest::default();
    if v < 4 {
        return request
            .with_v3_and_below_transactional_id(id())
            .with_v3_and_below_producer_id(producer_id)
            .with_v3_and_below_producer_epoch(producer.1)
            .with_v3_and_below_topics(topics);
    }
    let one = AddPartitionsToTxnTransaction::default().with_transactional_id(id()).with_producer_id(producer_id);
    request.with_transactions(vec![one.with_producer_epoch(producer.1).with_verify_only(verify_only).with_topics(topics)])
}

fn offsets_request(v: i16, producer: (i64, i16), offset: i64) -> messages::TxnOffsetCommitRequest {
    use messages::txn_offset_commit_request::{TxnOffsetCommitRequestPartition, TxnOffsetCommitRequestTopic};
    let of = |index: i32| {
        let epoch = if v >= 2 { 3 } else { -1 };
        let partition = TxnOffsetCommitRequestPartition::default().with_partition_index(index).with_committed_offset(offset);
        partition.with_committed_leader_epoch(epoch).with_committed_metadata(Some(text("mine")))
    };
    let topics = vec![TxnOffsetCommitRequestTopic::default().with_name(topic("t")).with_partitions(vec![of(0), of(9)])];
    messages::TxnOffsetCommitRequest::default()
        .with_transactional_id(id())
        .with_group_id(GroupId(text("g")))
        .with_producer_id(messages::ProducerId(producer.0))
        .with_producer_epoch(producer.1)
        .with_topics(topics)
}

fn end_request(producer: (i64, i16), commit: bool) -> messages::EndTxnRequest {
    let request = messages::EndTxnRequest::default().with_transactional_id(id()).with_committed(commit);
    request.with_producer_id(messages::ProducerId(producer.0)).with_producer_epoch(producer.1)
}

fn markers_request(of: &str, producer: (i64, i16), coordinator_epoch: i32) -> messages::WriteTxnMarkersRequest {
    use messages::write_txn_markers_request::{WritableTxnMarker, WritableTxnMarkerTopic};
    let topics = vec![WritableTxnMarkerTopic::default().with_name(topic(of)).with_partition_indexes(vec![0, 7])];
    let marker = WritableTxnMarker::default().with_producer_id(messages::ProducerId(producer.0)).with_producer_epoch(producer.1);
    let marker = marker.with_transaction_result(false).with_topics(topics).with_coordinator_epoch(coordinator_epoch);
    messages::WriteTxnMarkersRequest::default().with_markers(vec![marker])
}

#[test]
fn shapes() {
    shape_holds(&add_partitions_to_txn::API, |v| partitions_request(v, "t", (5, 6), true));
    shape_holds(&add_offsets_to_txn::API, |_| {
        let request = messages::AddOffsetsToTxnRequest::default().with_transactional_id(id()).with_group_id(GroupId(text("g")));
        request.with_producer_id(messages::ProducerId(5)).with_producer_epoch(6)
    });
    shape_holds(&end_txn::API, |_| end_request((5, 6), true));
    shape_holds(&write_txn_markers::API, |_| markers_request("t", (5, 6), 7));
    shape_holds(&txn_offset_commit::API, |v| {
        let request = offsets_request(v, (5, 6), 42);
        if v >= 3 { request.with_generation_id(4).with_member_id(text("m")).with_group_instance_id(Some(text("i"))) } else { request }
    });
    shape_holds(&describe_producers::API, |_| {
        use messages::describe_producers_request::TopicRequest;
        let of = |name| TopicRequest::default().with_name(topic(name)).with_partition_indexes(vec![0, 1]);
        messages::DescribeProducersRequest::default().with_topics(["a", "bc"].map(of).into())
    });
    shape_holds(&describe_transactions::API, |_| {
        messages::DescribeTransactionsRequest::default().with_transactional_ids(vec![id(), TransactionalId(text("b"))])
    });
    shape_holds(&list_transactions::API, |v| {
        let request = messages::ListTransactionsRequest::default().with_state_filters(vec![text("Ongoing"), text("x")]);
        let request = request.with_producer_id_filters(vec![messages::ProducerId(5)]).with_duration_filter(if v >= 1 { 9 } else { -1 });
        if v >= 2 { request.with_transactional_id_pattern(Some(text("a.*"))) } else { request }
    });
}

impl Served {
    async fn with_transactions() -> Self {
        let served = Self::new();
        for kind in [0, 1] {
            let find = messages::FindCoordinatorRequest::default().with_key(text("any")).with_key_type(kind);
            assert_eq!(served.ask(&find_coordinator::API, 3, &find).await.error_code, 0);
        }
        served
    }

    async fn init(&self, v: i16) -> (i64, i16) {
        let request = messages::InitProducerIdRequest::default().with_transactional_id(Some(id())).with_transaction_timeout_ms(60_000);
        let given = self.ask(&init_producer_id::API, v, &request).await;
        assert_eq!(given.error_code, 0, "version {v}");
        (given.producer_id.0, given.producer_epoch)
    }

    async fn produce(&self, v: i16, producer: (i64, i16), sequence: i32, with_id: bool) -> ErrorCode {
        use messages::produce_request::{PartitionProduceData, TopicProduceData};
        let batch = BatchBuilder::default().producer(ProducerId(producer.0), ProducerEpoch(producer.1), sequence).transactional();
        let batch = batch.record(self.context.now(), Some(b"k"), Some(b"v")).build().unwrap();
        let of = TopicProduceData::default().with_partition_data(vec![PartitionProduceData::default().with_records(Some(batch))]);
        let of = if v >= 13 { of.with_topic_id(self.t().0) } else { of.with_name(topic("t")) };
        let request = messages::ProduceRequest::default().with_transactional_id(with_id.then(id)).with_acks(-1).with_timeout_ms(99);
        let answer = self.ask(&produce::API, v, &request.with_topic_data(vec![of])).await;
        ErrorCode::from_code(answer.responses[0].partition_responses[0].error_code).unwrap()
    }

    fn t(&self) -> TopicId {
        self.context.image().topic("t").unwrap().id
    }

    async fn add(&self, v: i16, of: &str, producer: (i64, i16), verify_only: bool) -> ErrorCode {
        let answer = self.ask(&add_partitions_to_txn::API, v, &partitions_request(v, of, producer, verify_only)).await;
        let topics = if v >= 4 { &answer.results_by_transaction[0].topic_results } else { &answer.results_by_topic_v3_and_below };
        ErrorCode::from_code(topics[0].results_by_partition[0].partition_error_code).unwrap()
    }

    async fn end(&self, v: i16, producer: (i64, i16), commit: bool) -> Result<(i64, i16), ErrorCode> {
        let ended = self.ask(&end_txn::API, v, &end_request(producer, commit)).await;
        match ErrorCode::from_code(ended.error_code).unwrap() {
            ErrorCode::None => Ok((ended.producer_id.0, ended.producer_epoch)),
            error => Err(error),
        }
    }

    /// Where `t` ends for readers of committed records, and the aborted transactions they are told of.
    fn committed(&self) -> (i64, usize) {
        let log = self.context.logs.get(self.t(), PartitionIndex(0)).unwrap();
        let aborted = log.read(Offset(0), 1 << 20, true, Isolation::ReadCommitted).unwrap().aborted.len();
        (log.watermarks().last_stable.0, aborted)
    }

    /// The group's offset of `t`: for a reader that wants a stable one, and for one that doesn't mind.
    async fn offsets(&self) -> [Result<i64, ErrorCode>; 2] {
        use messages::offset_fetch_request::{OffsetFetchRequestGroup, OffsetFetchRequestTopics};
        let mut found = Vec::new();
        for stable in [true, false] {
            let topics = vec![OffsetFetchRequestTopics::default().with_name(topic("t")).with_partition_indexes(vec![0])];
            let group = OffsetFetchRequestGroup::default().with_group_id(GroupId(text("g"))).with_topics(Some(topics));
            let request = messages::OffsetFetchRequest::default().with_groups(vec![group]).with_require_stable(stable);
            let answer = self.ask(&offset_fetch::API, 8, &request).await;
            let partition = &answer.groups[0].topics[0].partitions[0];
            found.push(match ErrorCode::from_code(partition.error_code).unwrap() {
                ErrorCode::None => Ok(partition.committed_offset),
                error => Err(error),
            });
        }
        [found[0], found[1]]
    }

    async fn state(&self) -> String {
        let request = messages::DescribeTransactionsRequest::default().with_transactional_ids(vec![id()]);
        let described = self.ask(&describe_transactions::API, 0, &request).await;
        described.transaction_states[0].transaction_state.to_string()
    }
}

#[tokio::test]
async fn the_flow_of_old_in_every_version() {
    let served = Served::with_transactions().await;
    let mut expected = (0, 0);
    for v in 0..=11_i16 {
        let producer = served.init(v.min(5)).await;
        let commit = v % 2 == 0;
        assert_eq!(
            served.produce(v.max(3), producer, 0, true).await,
            if v >= 11 { ErrorCode::TransactionAbortable } else { ErrorCode::InvalidTxnState }
        );
        assert_eq!(served.add(v.min(3), "t", producer, false).await, ErrorCode::None);
        assert_eq!(served.add(4, "t", producer, true).await, ErrorCode::None, "verified");
        assert_eq!(served.produce(v.max(3), producer, 0, true).await, ErrorCode::None);
        assert_eq!(served.produce(v.max(3), producer, 0, true).await, ErrorCode::None, "a duplicate");
        assert_eq!(served.committed().0, expected.0, "nothing is stable before the end");
        let request = messages::AddOffsetsToTxnRequest::default().with_transactional_id(id()).with_group_id(GroupId(text("g")));
        let request = request.with_producer_id(messages::ProducerId(producer.0)).with_producer_epoch(producer.1);
        assert_eq!(served.ask(&add_offsets_to_txn::API, v.min(4), &request).await.error_code, 0);
        let before = served.offsets().await;
        let answer = served.ask(&txn_offset_commit::API, v.min(4), &offsets_request(v.min(4), producer, 100 + i64::from(v))).await;
        let errors: Vec<_> = answer.topics[0].partitions.iter().map(|p| p.error_code).collect();
        assert_eq!(errors, [0, ErrorCode::UnknownTopicOrPartition.code()]);
        assert_eq!(served.offsets().await, [Err(ErrorCode::UnstableOffsetCommit), before[1]]);
        assert_eq!(served.state().await, "Ongoing");
        assert_eq!(served.end(v.min(4), producer, commit).await, Ok((-1, -1)));
        assert_eq!(served.end(v.min(4), producer, commit).await, Ok((-1, -1)), "asked again");
        assert_eq!(served.end(v.min(4), producer, !commit).await, Err(ErrorCode::InvalidTxnState));
        assert_eq!(served.state().await, if commit { "CompleteCommit" } else { "CompleteAbort" });
        expected = (expected.0 + 2, expected.1 + usize::from(!commit));
        assert_eq!(served.committed(), expected);
        let offset = if commit { Ok(100 + i64::from(v)) } else { before[1] };
        assert_eq!(served.offsets().await, [offset, offset]);
        let fenced = if v >= 2 { ErrorCode::ProducerFenced } else { ErrorCode::InvalidProducerEpoch };
        assert_eq!(served.end(v.min(4), (producer.0, producer.1 - 1), commit).await, Err(fenced));
        assert_eq!(served.add(v.min(3), "t", (producer.0, producer.1 - 1), false).await, fenced);
    }
}

#[tokio::test]
async fn the_flow_of_version_2() {
    let served = Served::with_transactions().await;
    let mut producer = served.init(5).await;
    let mut expected = (0, 0);
    for v in 0..6_i16 {
        let (commit, produce_version) = (v % 2 == 0, 12 + v % 2);
        assert_eq!(served.produce(produce_version, producer, 1, true).await, ErrorCode::OutOfOrderSequenceNumber, "each begins at 0");
        assert_eq!(served.produce(produce_version, producer, 0, true).await, ErrorCode::None, "it joins by being written to");
        assert_eq!(served.produce(produce_version, producer, 1, true).await, ErrorCode::None);
        let answer = served.ask(&txn_offset_commit::API, 5, &offsets_request(5, producer, 100 + i64::from(v))).await;
        assert_eq!(answer.topics[0].partitions[0].error_code, 0);
        assert_eq!(served.offsets().await[0], Err(ErrorCode::UnstableOffsetCommit));
        let next = served.end(5, producer, commit).await.unwrap();
        assert_eq!(next, (producer.0, producer.1 + 1));
        assert_eq!(served.end(5, producer, commit).await, Ok(next), "asked again");
        assert_eq!(served.produce(produce_version, producer, 2, true).await, ErrorCode::InvalidProducerEpoch, "nothing of it comes late");
        producer = next;
        expected = (expected.0 + 3, expected.1 + usize::from(!commit));
        assert_eq!(served.committed(), expected);
    }
    assert_eq!(served.offsets().await, [Ok(104), Ok(104)]);
}

#[tokio::test]
async fn what_is_in_no_transaction_is_refused() {
    let served = Served::with_transactions().await;
    let producer = served.init(5).await;
    assert_eq!(served.produce(9, producer, 0, false).await, ErrorCode::TransactionalIdAuthorizationFailed);
    assert_eq!(served.add(3, "nowhere", producer, false).await, ErrorCode::UnknownTopicOrPartition);
    assert_eq!(served.add(3, "__consumer_offsets", producer, false).await, ErrorCode::TopicAuthorizationFailed);
    assert_eq!(served.add(5, "t", (producer.0 + 9, 0), true).await, ErrorCode::InvalidProducerIdMapping);
    for v in 0..=5 {
        let answer = served.ask(&txn_offset_commit::API, v, &offsets_request(v, (producer.0, producer.1 + 1), 1)).await;
        let error = ErrorCode::from_code(answer.topics[0].partitions[0].error_code).unwrap();
        assert_eq!(error, ErrorCode::InvalidProducerEpoch, "version {v}");
    }
    let nameless = offsets_request(3, producer, 1).with_group_id(GroupId(text("")));
    let answer = served.ask(&txn_offset_commit::API, 3, &nameless).await;
    assert_eq!(answer.topics[0].partitions[0].error_code, ErrorCode::InvalidGroupId.code());
    let long = messages::InitProducerIdRequest::default().with_transactional_id(Some(id())).with_transaction_timeout_ms(i32::MAX);
    assert_eq!(served.ask(&init_producer_id::API, 5, &long).await.error_code, ErrorCode::InvalidTransactionTimeout.code());
    let nameless = long.with_transactional_id(Some(TransactionalId(text(""))));
    assert_eq!(served.ask(&init_producer_id::API, 5, &nameless).await.error_code, ErrorCode::InvalidRequest.code());
}

#[tokio::test]
async fn tools_find_a_transaction_and_end_it_where_it_hangs() {
    let served = Served::with_transactions().await;
    let producer = served.init(5).await;
    served.produce(12, producer, 0, true).await;
    let request = messages::DescribeProducersRequest::default();
    let of = |name: &str, index| {
        use messages::describe_producers_request::TopicRequest;
        request.clone().with_topics(vec![TopicRequest::default().with_name(topic(name)).with_partition_indexes(vec![index])])
    };
    let answer = served.ask(&describe_producers::API, 0, &of("t", 0)).await;
    let known = &answer.topics[0].partitions[0].active_producers[0];
    assert_eq!((known.producer_id.0, known.producer_epoch, known.current_txn_start_offset), (producer.0, i32::from(producer.1), 0));
    assert_eq!((known.last_sequence, known.last_timestamp, known.coordinator_epoch), (0, served.context.now().0, -1));
    for (name, index, error) in [
        ("nowhere", 0, ErrorCode::UnknownTopicOrPartition),
        ("t", 7, ErrorCode::UnknownTopicOrPartition),
        ("a b", 0, ErrorCode::InvalidTopicException),
    ] {
        let answer = served.ask(&describe_producers::API, 0, &of(name, index)).await;
        assert_eq!(answer.topics[0].partitions[0].error_code, error.code(), "{name}");
    }
    for v in 0..=2 {
        let list = async |states: &[&str], pattern: Option<&str>, longer: i64| {
            let request = messages::ListTransactionsRequest::default().with_state_filters(states.iter().map(|s| text(s)).collect());
            let request = request.with_duration_filter(if v >= 1 { longer } else { -1 });
            let request = request.with_transactional_id_pattern(pattern.filter(|_| v >= 2).map(text));
            let listed = served.ask(&list_transactions::API, v, &request).await;
            assert_eq!(listed.error_code, 0);
            (listed.transaction_states.len(), listed.unknown_state_filters.len())
        };
        assert_eq!(list(&[], None, -1).await, (1, 0));
        assert_eq!(list(&["Ongoing", "x"], None, -1).await, (1, 1));
        assert_eq!(list(&["x"], None, -1).await, (0, 1));
        assert_eq!(list(&["Empty"], None, -1).await, (0, 0));
        assert_eq!(list(&[], Some("t.*"), -1).await, (1, 0));
        assert_eq!(list(&[], Some("t"), -1).await, (usize::from(v < 2), 0));
        assert_eq!(list(&[], None, 0).await, (usize::from(v < 1), 0), "no time has passed");
    }
    let written = served.ask(&write_txn_markers::API, 1, &markers_request("t", producer, 3)).await;
    let errors: Vec<_> = written.markers[0].topics[0].partitions.iter().map(|p| p.error_code).collect();
    assert_eq!(errors, [0, ErrorCode::UnknownTopicOrPartition.code()]);
    assert_eq!(served.committed(), (2, 1));
    for (producer, coordinator, error) in [
        (producer, 2, ErrorCode::TransactionCoordinatorFenced),
        ((producer.0, producer.1 - 1), 3, ErrorCode::InvalidProducerEpoch),
        (producer, 3, ErrorCode::None),
    ] {
        let written = served.ask(&write_txn_markers::API, 1, &markers_request("t", producer, coordinator)).await;
        assert_eq!(written.markers[0].topics[0].partitions[0].error_code, error.code());
    }
}

/// A marker by hand may carry any coordinator epoch: the coordinator's own must not be lost to it, or the transaction would never end.
#[tokio::test]
async fn a_coordinator_epoch_from_elsewhere_holds_no_transaction_open() {
    let served = Served::with_transactions().await;
    let producer = served.init(5).await;
    let marked = async |producer| {
        let written = served.ask(&write_txn_markers::API, 1, &markers_request("t", producer, i32::MAX)).await;
        ErrorCode::from_code(written.markers[0].topics[0].partitions[0].error_code).unwrap()
    };
    assert_eq!(marked((-1, 0)).await, ErrorCode::InvalidProducerIdMapping);
    assert_eq!(marked((producer.0, -1)).await, ErrorCode::InvalidProducerEpoch);
    assert_eq!(served.committed(), (0, 0), "neither was written");
    assert_eq!(marked(producer).await, ErrorCode::None);
    let producer = served.init(5).await;
    assert_eq!(served.produce(12, producer, 0, true).await, ErrorCode::None);
    assert_eq!(served.committed().0, 1);
    served.end(5, producer, true).await.unwrap();
    assert_eq!(served.committed(), (3, 0));
}

/// The coordinator goes by a new `transaction.version` at once, not from the next start on: the form of its records tells.
#[tokio::test]
async fn a_new_level_of_the_feature_is_followed_at_once() {
    use messages::update_features_request::FeatureUpdateKey;
    let served = Served::with_transactions().await;
    let written = || {
        let logs = served.context.logs.partitions();
        let log =
            logs.iter().find(|log| log.topic().topic.as_str() == "__transaction_state" && log.watermarks().log_end > Offset(0)).unwrap();
        let last = log.read(log.watermarks().log_end.plus(-1), 1 << 20, true, Isolation::ReadUncommitted).unwrap().bytes().unwrap();
        let opened = BatchRecords::open(&last, 1 << 20).unwrap();
        let value = opened.iter().last().unwrap().unwrap().value.unwrap();
        i16::from_be_bytes([value[0], value[1]])
    };
    served.init(5).await;
    assert_eq!(written(), 1);
    for (level, upgrade_type, form) in [(0, 2, 0), (1, 1, 1), (0, 2, 0), (2, 1, 1)] {
        let key = FeatureUpdateKey::default().with_feature(text("transaction.version"));
        let update = key.with_max_version_level(level).with_upgrade_type(upgrade_type);
        let request = messages::UpdateFeaturesRequest::default().with_feature_updates(vec![update]);
        assert_eq!(served.ask(&update_features::API, 2, &request).await.error_code, 0);
        served.init(5).await;
        assert_eq!(written(), form, "level {level}");
    }
}

/// Right after EndTxn the markers may be under way: what the producer writes next waits for them, but not for ever.
#[tokio::test]
async fn the_next_transaction_waits_for_the_last_ones_markers() {
    use messages::add_partitions_to_txn_request::AddPartitionsToTxnTopic;
    let served = Served::with_transactions().await;
    // More than are written before the answer; nobody writes markers in the background yet.
    served.context.cluster.create_topics(&[NewTopic { partitions: 40, ..NewTopic::with_defaults("many") }], false).remove(0).unwrap();
    let producer = served.init(5).await;
    let all = AddPartitionsToTxnTopic::default().with_name(topic("many")).with_partitions((0..40).collect());
    let mut add = partitions_request(5, "t", producer, false);
    add.transactions[0].topics.push(all);
    let added = served.ask(&add_partitions_to_txn::API, 5, &add).await;
    assert_eq!(added.results_by_transaction[0].topic_results[1].results_by_partition[39].partition_error_code, 0);
    let next = served.end(5, producer, true).await.unwrap();
    assert_eq!(served.state().await, "PrepareCommit");

    assert_eq!(served.produce(12, next, 0, true).await, ErrorCode::ConcurrentTransactions, "its patience ends");
    assert_eq!(served.produce(11, next, 0, true).await, ErrorCode::NotEnoughReplicas, "clients of old ask again themselves");

    let (_stop, stopping) = tokio::sync::watch::channel(false);
    let writer = served.context.transactions.clone().run_endings(stopping);
    tokio::select! {
        // It is asked before a marker is written, and again after all are.
        biased;
        answer = served.produce(12, next, 0, true) => assert_eq!(answer, ErrorCode::None),
        () = writer => panic!("nobody stopped it"),
    }
    assert_eq!(served.state().await, "Ongoing");
}
