//! AlterReplicaLogDirs (key 34), versions 1 and 2.
//!
//! - Moves partitions to another data directory while they are used (KIP-113). The answer says that the move has begun; DescribeLogDirs tells how
//!   far it is. Naming the directory that a partition is in gives a move of it up.
//! - A directory that isn't one of `log.dirs` is LOG_DIR_NOT_FOUND, one that has failed KAFKA_STORAGE_ERROR.
//! - A partition that stands twice goes where it was asked to last. Version 2 is flexible; 0 is no longer served, as in Kafka 4.

use super::{
    Api, Body, Context, FrameMax, Request,
    context::find,
    convert::{first_error, on_disk_thread},
};
use crate::{
    codec::shape::{I32, Kind, Shape, TEXT, always},
    log::MoveError,
    net::{Answer, Refusal},
    types::{self, ErrorCode, PartitionIndex, TopicId, TopicPartition},
};
use indexmap::IndexMap;
use kafka_protocol::messages::{
    AlterReplicaLogDirsRequest, AlterReplicaLogDirsResponse, TopicName,
    alter_replica_log_dirs_response::{AlterReplicaLogDirPartitionResult, AlterReplicaLogDirTopicResult},
};
use std::{path::Path, sync::Arc};

pub const API: Api = Api {
    key: 34,
    name: "AlterReplicaLogDirs",
    versions: 1..=2,
    advertised_min: 1,
    flexible_since: 2,
    frame_max: FrameMax::Control,
    body: Body::Shaped(Shape(&[always(Kind::Structs(&[always(TEXT), always(Kind::Structs(&[always(TEXT), always(Kind::Array(&I32))]))]))])),
    run,
    note: "moves go on while the partitions are used",
};

fn run(context: &Arc<Context>, request: Request) -> Result<Answer, Refusal> {
    let asked: AlterReplicaLogDirsRequest = request.decode()?;
    on_disk_thread(context, request, move |context, _| {
        let response = answer(&asked, |name, partition, to| begin(context, name, partition, to));
        let error = first_error(response.results.iter().flat_map(|topic| topic.partitions.iter().map(|one| one.error_code)));
        (response, error)
    })
}

/// `begin` answers each that it is asked.
fn answer(
    asked: &AlterReplicaLogDirsRequest,
    begin: impl Fn(&TopicName, PartitionIndex, &Path) -> Result<(), ErrorCode>,
) -> AlterReplicaLogDirsResponse {
    let mut distinct: IndexMap<(&TopicName, i32), &str> = IndexMap::new();
    for dir in &asked.dirs {
        for topic in &dir.topics {
            distinct.extend(topic.partitions.iter().map(|partition| ((&topic.name, *partition), dir.path.as_str())));
        }
    }
    let mut by_topic: IndexMap<&TopicName, Vec<AlterReplicaLogDirPartitionResult>> = IndexMap::new();
    for ((name, partition), to) in distinct {
        let code = begin(name, PartitionIndex(partition), Path::new(to)).err().unwrap_or(ErrorCode::None).code();
        let result = AlterReplicaLogDirPartitionResult::default().with_partition_index(partition).with_error_code(code);
        by_topic.entry(name).or_default().push(result);
    }
    let topic = |(name, partitions): (&TopicName, _)| {
        AlterReplicaLogDirTopicResult::default().with_topic_name(name.clone()).with_partitions(partitions)
    };
    AlterReplicaLogDirsResponse::default().with_results(by_topic.into_iter().map(topic).collect())
}

fn begin(context: &Context, name: &str, partition: PartitionIndex, to: &Path) -> Result<(), ErrorCode> {
    let told = |error: MoveError| {
        tracing::debug!(topic = name, %partition, %error, "a partition is not moved");
        ErrorCode::from(&error)
    };
    // In the order of Kafka's checks: the directory comes before the partition.
    if let Ok(topic) = types::TopicName::new(name) {
        context.logs.check_move(&TopicPartition { topic, partition }, to).map_err(told)?;
    }
    let image = context.image();
    let topic = find(&image, name, TopicId::ZERO)?;
    let (log, _) = context.led(topic, partition)?;
    context.logs.move_to(&log, to).map_err(told)
}

#[cfg(test)]
mod tests {
    use super::{
        super::{admin_tests::survives, convert::text},
        *,
    };
    use kafka_protocol::messages::alter_replica_log_dirs_request::{AlterReplicaLogDir, AlterReplicaLogDirTopic};

    #[test]
    fn each_partition_is_answered_once_and_goes_where_it_was_asked_to_last() {
        let topic = |name: &str, partitions: &[i32]| {
            AlterReplicaLogDirTopic::default().with_name(TopicName(text(name))).with_partitions(partitions.to_vec())
        };
        let dir = |path: &str, topics| AlterReplicaLogDir::default().with_path(text(path)).with_topics(topics);
        let dirs = vec![dir("/a", vec![topic("t", &[0, 1]), topic("none", &[])]), dir("/b", vec![topic("u", &[7]), topic("t", &[1])])];
        let response = answer(&AlterReplicaLogDirsRequest::default().with_dirs(dirs), |name, partition, to| {
            match (name.as_str(), partition.0, to.to_str()) {
                ("t", 0, Some("/a")) | ("t", 1, Some("/b")) => Ok(()),
                _ => Err(ErrorCode::LogDirNotFound),
            }
        });
        API.versions.clone().for_each(|version| survives(&response, version));
        let told: Vec<_> = response
            .results
            .iter()
            .flat_map(|topic| topic.partitions.iter().map(|one| (topic.topic_name.as_str(), one.partition_index, one.error_code)))
            .collect();
        assert_eq!(told, [("t", 0, 0), ("t", 1, 0), ("u", 7, ErrorCode::LogDirNotFound.code())]);
    }
}
