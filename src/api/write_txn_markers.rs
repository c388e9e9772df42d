//! WriteTxnMarkers (key 27), version 1.
//!
//! - Ends producers' transactions in partitions: between brokers, and for `kafka-transactions abort`, which so ends a transaction that hangs.
//! - In a partition of `__consumer_offsets` the offsets of the transaction count, or are dropped.
//! - A partition that isn't there is UNKNOWN_TOPIC_OR_PARTITION, an older coordinator than the partition has seen TRANSACTION_COORDINATOR_FENCED.
//! - A producer id or epoch below 0 is refused: INVALID_PRODUCER_ID_MAPPING, INVALID_PRODUCER_EPOCH.

use super::{Api, Body, Context, FrameMax, Request, convert::first_error, transactional::producer};
use crate::{
    codec::shape::{BOOL, I16, I32, I64, Kind, Shape, TEXT, always},
    coordinator::{Committing, Marker},
    net::{Answer, Refusal},
    txn::TransactionVersion,
    types::ErrorCode,
};
use kafka_protocol::messages::{
    ProducerId, TopicName, WriteTxnMarkersRequest, WriteTxnMarkersResponse,
    write_txn_markers_request::WritableTxnMarker,
    write_txn_markers_response::{WritableTxnMarkerPartitionResult, WritableTxnMarkerResult, WritableTxnMarkerTopicResult},
};
use std::{
    collections::{BTreeMap, HashMap},
    sync::Arc,
};

pub const API: Api = Api {
    key: 27,
    name: "WriteTxnMarkers",
    versions: 1..=1,
    advertised_min: 1,
    flexible_since: 1,
    frame_max: FrameMax::Control,
    body: Body::Shaped(Shape(&[always(Kind::Structs(&[
        always(I64),
        always(I16),
        always(BOOL),
        always(Kind::Structs(&[always(TEXT), always(Kind::Array(&I32))])),
        always(I32),
    ]))])),
    run,
    note: "",
};

type Written = Result<Option<Committing>, ErrorCode>;

fn run(context: &Arc<Context>, request: Request) -> Result<Answer, Refusal> {
    let asked: WriteTxnMarkersRequest = request.decode()?;
    let mut written: Vec<Written> = Vec::new();
    for of in &asked.markers {
        // A partition that is named twice gets one marker.
        let mut done: HashMap<(&str, i32), Written> = HashMap::new();
        let marker = Marker {
            producer: producer(of.producer_id, of.producer_epoch),
            commit: of.transaction_result,
            coordinator_epoch: of.coordinator_epoch,
            version: TransactionVersion::V0,
        };
        for topic in &of.topics {
            for index in &topic.partition_indexes {
                let write = || check(of).and_then(|()| context.markers.write_to(&marker, &topic.name, *index));
                written.push(done.entry((&topic.name, *index)).or_insert_with(write).clone());
            }
        }
    }
    if written.iter().all(|one| !matches!(one, Ok(Some(_)))) {
        let errors = written.into_iter().map(|one| one.err().unwrap_or_default()).collect();
        let (response, error) = respond(&asked, errors);
        return request.ready(&response, error);
    }
    Ok(Answer::Later(Box::pin(async move {
        let mut errors = Vec::with_capacity(written.len());
        for one in written {
            errors.push(match one {
                Ok(Some(committing)) => committing.wait().await.err().map_or(ErrorCode::None, |_| ErrorCode::NotLeaderOrFollower),
                Ok(None) => ErrorCode::None,
                Err(error) => error,
            });
        }
        let (response, error) = respond(&asked, errors);
        request.reply(&response, error)
    })))
}

/// Nobody was given such a producer id or epoch, and a marker of none is in no transaction.
fn check(of: &WritableTxnMarker) -> Result<(), ErrorCode> {
    if of.producer_id.0 < 0 {
        return Err(ErrorCode::InvalidProducerIdMapping);
    }
    if of.producer_epoch < 0 { Err(ErrorCode::InvalidProducerEpoch) } else { Ok(()) }
}

/// Kafka collects errors by producer and topic: markers of one producer are one result, and what names no partition is none.
fn respond(asked: &WriteTxnMarkersRequest, errors: Vec<ErrorCode>) -> (WriteTxnMarkersResponse, ErrorCode) {
    let error = first_error(errors.iter().map(|error| error.code()));
    let mut errors = errors.into_iter();
    let mut results: BTreeMap<ProducerId, BTreeMap<&TopicName, BTreeMap<i32, ErrorCode>>> = BTreeMap::new();
    for of in &asked.markers {
        for topic in &of.topics {
            for index in &topic.partition_indexes {
                let of_topic = results.entry(of.producer_id).or_default().entry(&topic.name).or_default();
                of_topic.insert(*index, errors.next().unwrap_or_default());
            }
        }
    }
    let partition = |(index, error): (i32, ErrorCode)| {
        WritableTxnMarkerPartitionResult::default().with_partition_index(index).with_error_code(error.code())
    };
    let topic = |(name, partitions): (&TopicName, BTreeMap<i32, ErrorCode>)| {
        let partitions = partitions.into_iter().map(partition).collect();
        WritableTxnMarkerTopicResult::default().with_name(name.clone()).with_partitions(partitions)
    };
    let markers = results.into_iter().map(|(producer, topics)| {
        let topics = topics.into_iter().map(topic).collect();
        WritableTxnMarkerResult::default().with_producer_id(producer).with_topics(topics)
    });
    (WriteTxnMarkersResponse::default().with_markers(markers.collect()), error)
}
