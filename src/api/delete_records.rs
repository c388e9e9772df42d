//! DeleteRecords (key 21), versions 0 to 2.
//!
//! - Moves a partition's log start offset up at once, and answers it as the low watermark: no reader sees a record below it again, not after a
//!   power loss either. −1 means all up to the high watermark. The space is given back with the next look at retention.
//! - An offset above the high watermark is OFFSET_OUT_OF_RANGE; a topic whose cleanup.policy is without delete is POLICY_VIOLATION.
//! - A partition that stands twice is answered once, by what was asked last; a topic without partitions isn't answered. So does Kafka.
//! - Version 2 is flexible; 1 changed only what a throttled client is told. The time limit is not looked at: nothing waits for followers yet.

use super::{Api, Body, Context, FrameMax, Request, context::find, convert::on_disk_thread};
use crate::{
    codec::shape::{I32, I64, Kind, Shape, TEXT, always},
    log::PartitionLog,
    net::{Answer, Refusal},
    types::{ErrorCode, Offset, PartitionIndex, TopicId},
};
use indexmap::IndexMap;
use kafka_protocol::messages::{
    DeleteRecordsRequest, DeleteRecordsResponse, TopicName,
    delete_records_response::{DeleteRecordsPartitionResult, DeleteRecordsTopicResult},
};
use std::sync::Arc;

pub const API: Api = Api {
    key: 21,
    name: "DeleteRecords",
    versions: 0..=2,
    advertised_min: 0,
    flexible_since: 2,
    frame_max: FrameMax::Control,
    body: Body::Shaped(Shape(&[always(Kind::Structs(&[always(TEXT), always(Kind::Structs(&[always(I32), always(I64)]))])), always(I32)])),
    run,
    note: "the log start offset is durable before the answer",
};

type Asked<'a> = (&'a TopicName, PartitionIndex, Offset);

fn run(context: &Arc<Context>, request: Request) -> Result<Answer, Refusal> {
    let asked: DeleteRecordsRequest = request.decode()?;
    on_disk_thread(context, request, move |context, _| answer(&asked, |all| delete(context, all)))
}

/// `delete` answers each that it is asked.
fn answer(
    asked: &DeleteRecordsRequest,
    delete: impl FnOnce(&[Asked<'_>]) -> Vec<Result<Offset, ErrorCode>>,
) -> (DeleteRecordsResponse, ErrorCode) {
    let mut distinct: IndexMap<(&TopicName, i32), i64> = IndexMap::new();
    for topic in &asked.topics {
        distinct.extend(topic.partitions.iter().map(|partition| ((&topic.name, partition.partition_index), partition.offset)));
    }
    let all: Vec<Asked<'_>> =
        distinct.into_iter().map(|((name, partition), offset)| (name, PartitionIndex(partition), Offset(offset))).collect();
    let mut worst = ErrorCode::None;
    let mut by_topic: IndexMap<&TopicName, Vec<DeleteRecordsPartitionResult>> = IndexMap::new();
    for ((name, partition, _), deleted) in all.iter().zip(delete(&all)) {
        let result = DeleteRecordsPartitionResult::default().with_partition_index(partition.0);
        by_topic.entry(name).or_default().push(match deleted {
            Ok(low_watermark) => result.with_low_watermark(low_watermark.0),
            Err(error) => {
                worst = error;
                result.with_low_watermark(-1).with_error_code(error.code())
            }
        });
    }
    let topic =
        |(name, partitions): (&TopicName, _)| DeleteRecordsTopicResult::default().with_name(name.clone()).with_partitions(partitions);
    (DeleteRecordsResponse::default().with_topics(by_topic.into_iter().map(topic).collect()), worst)
}

fn delete(context: &Context, asked: &[Asked<'_>]) -> Vec<Result<Offset, ErrorCode>> {
    let mut logs = Vec::new();
    let mut answers: Vec<Result<Option<Offset>, ErrorCode>> = Vec::with_capacity(asked.len());
    for (name, partition, before) in asked {
        answers.push(log_of(context, name, *partition).map(|log| {
            logs.push((log, *before));
            None
        }));
    }
    let mut deleted = context.logs.delete_records(&logs).into_iter();
    let mut next = || {
        let deleted = deleted.next().unwrap_or(Ok(Offset(-1)));
        deleted.map_err(|error| {
            tracing::debug!(%error, "records are not deleted");
            ErrorCode::from(&error)
        })
    };
    answers.into_iter().map(|answer| answer.and_then(|start| start.map_or_else(&mut next, Ok))).collect()
}

fn log_of(context: &Context, name: &str, partition: PartitionIndex) -> Result<Arc<PartitionLog>, ErrorCode> {
    let image = context.image();
    let topic = find(&image, name, TopicId::ZERO)?;
    let (log, _) = context.led(topic, partition)?;
    if topic.name.is_internal() { Err(ErrorCode::InvalidTopicException) } else { Ok(log) }
}

#[cfg(test)]
mod tests {
    use super::{
        super::{admin_tests::survives, convert::text},
        *,
    };
    use kafka_protocol::messages::delete_records_request::{DeleteRecordsPartition, DeleteRecordsTopic};

    #[test]
    fn each_partition_is_answered_once_by_its_last_offset() {
        let partition = |(index, offset): &(i32, i64)| DeleteRecordsPartition::default().with_partition_index(*index).with_offset(*offset);
        let topic = |name: &str, partitions: &[(i32, i64)]| {
            let partitions = partitions.iter().map(partition).collect();
            DeleteRecordsTopic::default().with_name(TopicName(text(name))).with_partitions(partitions)
        };
        let topics = vec![topic("t", &[(0, 5), (1, 99), (0, 7)]), topic("none", &[]), topic("u", &[(3, -1)]), topic("t", &[(2, 4)])];
        let asked = DeleteRecordsRequest::default().with_topics(topics);
        let (response, worst) = answer(&asked, |all| {
            let fine = |(_, _, offset): &Asked<'_>| if offset.0 < 50 { Ok(*offset) } else { Err(ErrorCode::OffsetOutOfRange) };
            all.iter().map(fine).collect()
        });
        API.versions.clone().for_each(|version| survives(&response, version));
        assert_eq!(worst, ErrorCode::OffsetOutOfRange);
        let told = response.topics.iter().flat_map(|topic| {
            topic.partitions.iter().map(|one| (topic.name.as_str(), one.partition_index, one.low_watermark, one.error_code))
        });
        let expected = [("t", 0, 7, 0), ("t", 1, -1, ErrorCode::OffsetOutOfRange.code()), ("t", 2, 4, 0), ("u", 3, -1, 0)];
        assert_eq!(told.collect::<Vec<_>>(), expected);
    }
}
