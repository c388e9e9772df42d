//! DescribeLogDirs (key 35), versions 1 to 4.
//!
//! - Each data directory with the partitions in it, all or those asked for, and their sizes in bytes; those that aren't there are left out.
//!   A directory that has failed is KAFKA_STORAGE_ERROR and says nothing else.
//! - A copy that AlterReplicaLogDirs makes is listed beside them as a future one, with how far it is behind.
//! - Version 2 is flexible, 3 has an error for all, 4 tells how large the directory's file system is and what is left of it (KIP-827).

use super::{
    Api, Body, Context, FrameMax, Request,
    convert::{first_error, on_disk_thread, text, topic_name},
};
use crate::{
    codec::shape::{I32, Kind, Shape, TEXT, always},
    log::{DirInfo, DirStatus},
    net::{Answer, Refusal},
    types::{ErrorCode, TopicName, TopicPartition},
};
use kafka_protocol::messages::{
    DescribeLogDirsRequest, DescribeLogDirsResponse,
    describe_log_dirs_response::{DescribeLogDirsPartition, DescribeLogDirsResult, DescribeLogDirsTopic},
};
use std::{
    collections::{BTreeMap, HashSet},
    sync::Arc,
};

pub const API: Api = Api {
    key: 35,
    name: "DescribeLogDirs",
    versions: 1..=4,
    advertised_min: 1,
    flexible_since: 2,
    frame_max: FrameMax::Control,
    body: Body::Shaped(Shape(&[always(Kind::Structs(&[always(TEXT), always(Kind::Array(&I32))]))])),
    run,
    note: "sizes of partitions and of file systems",
};

fn run(context: &Arc<Context>, request: Request) -> Result<Answer, Refusal> {
    let asked: DescribeLogDirsRequest = request.decode()?;
    on_disk_thread(context, request, move |context, _| {
        let response = answer(context.logs.dirs(), &asked);
        let error = first_error(response.results.iter().map(|dir| dir.error_code));
        (response, error)
    })
}

fn answer(dirs: Vec<DirInfo>, asked: &DescribeLogDirsRequest) -> DescribeLogDirsResponse {
    let asked: Option<HashSet<(&str, i32)>> = asked.topics.as_ref().map(|topics| {
        topics.iter().flat_map(|topic| topic.partitions.iter().map(|partition| (topic.topic.as_str(), *partition))).collect()
    });
    let wanted = |topic: &TopicPartition| asked.as_ref().is_none_or(|asked| asked.contains(&(topic.topic.as_str(), topic.partition.0)));
    DescribeLogDirsResponse::default().with_results(dirs.into_iter().map(|dir| result(dir, &wanted)).collect())
}

fn result(dir: DirInfo, wanted: &impl Fn(&TopicPartition) -> bool) -> DescribeLogDirsResult {
    let path = std::path::absolute(&dir.path).unwrap_or(dir.path);
    let result = DescribeLogDirsResult::default().with_log_dir(text(path.to_string_lossy()));
    if let DirStatus::Failed(_) = dir.status {
        return result.with_error_code(ErrorCode::KafkaStorageError.code()).with_total_bytes(-1).with_usable_bytes(-1);
    }
    let mut by_topic: BTreeMap<&TopicName, Vec<DescribeLogDirsPartition>> = BTreeMap::new();
    for log in dir.partitions.iter().filter(|log| wanted(log.topic())) {
        let marks = log.watermarks();
        let partition = DescribeLogDirsPartition::default()
            .with_partition_index(log.partition().0)
            .with_partition_size(number(log.size_bytes()))
            .with_offset_lag(marks.high_watermark.0.saturating_sub(marks.log_end.0).max(0));
        by_topic.entry(&log.topic().topic).or_default().push(partition);
    }
    for future in dir.futures.iter().filter(|future| wanted(&future.topic)) {
        let partition = DescribeLogDirsPartition::default()
            .with_partition_index(future.topic.partition.0)
            .with_partition_size(number(future.size_bytes))
            .with_offset_lag(future.offset_lag)
            .with_is_future_key(true);
        by_topic.entry(&future.topic.topic).or_default().push(partition);
    }
    let topic = |(name, partitions)| DescribeLogDirsTopic::default().with_name(topic_name(name)).with_partitions(partitions);
    let bytes = |bytes: Option<u64>| bytes.map_or(-1, number);
    result
        .with_topics(by_topic.into_iter().map(topic).collect())
        .with_total_bytes(bytes(dir.total_bytes))
        .with_usable_bytes(bytes(dir.usable_bytes))
}

/// File systems can be larger than the protocol can say (`adjustForLargeFileSystems`).
fn number(bytes: u64) -> i64 {
    i64::try_from(bytes).unwrap_or(i64::MAX)
}

#[cfg(test)]
mod tests {
    use super::{super::admin_tests::survives, *};
    use crate::{
        log::{LogSettings, Logs, PartitionSpec, io::RealDisk},
        types::{LeaderEpoch, Millis, PartitionIndex, TopicId},
    };
    use kafka_protocol::messages::describe_log_dirs_request::DescribableLogDirTopic;

    fn spec(topic: &str, partition: i32) -> PartitionSpec {
        PartitionSpec {
            topic: TopicPartition { topic: TopicName::new(topic).unwrap(), partition: PartitionIndex(partition) },
            topic_id: TopicId(uuid::Uuid::from_u128(topic.len() as u128)),
            config: Arc::default(),
            leader_epoch: LeaderEpoch(0),
        }
    }

    #[test]
    fn each_directory_tells_what_is_in_it() {
        let root = tempfile::tempdir().unwrap();
        let dirs: Vec<_> = ["a", "b"].iter().map(|name| root.path().join(name)).collect();
        let logs = Logs::lock(Arc::new(RealDisk), LogSettings { dirs: dirs.clone(), ..LogSettings::default() }).unwrap();
        logs.open_all(vec![spec("t", 0), spec("t", 1), spec("uu", 0)], Millis(0)).unwrap();
        let told = |topics: Option<&[(&str, &[i32])]>| {
            let topic = |(name, partitions): &(&str, &[i32])| {
                DescribableLogDirTopic::default()
                    .with_topic(super::super::convert::topic_name(&TopicName::new(name).unwrap()))
                    .with_partitions(partitions.to_vec())
            };
            let asked = DescribeLogDirsRequest::default().with_topics(topics.map(|topics| topics.iter().map(topic).collect()));
            let response = answer(logs.dirs(), &asked);
            API.versions.clone().for_each(|version| survives(&response, version));
            assert_eq!(
                response.results.iter().map(|dir| dir.log_dir.to_string()).collect::<Vec<_>>(),
                dirs.iter().map(|d| d.display().to_string()).collect::<Vec<_>>()
            );
            assert!(response.results.iter().all(|dir| dir.total_bytes >= dir.usable_bytes && dir.usable_bytes > 0));
            let partitions = response
                .results
                .iter()
                .flat_map(|dir| &dir.topics)
                .flat_map(|t| t.partitions.iter().map(|p| (t.name.to_string(), p.partition_index)));
            let mut all: Vec<_> = partitions.collect();
            all.sort();
            all
        };
        let of = |all: &[(&str, i32)]| all.iter().map(|(name, index)| ((*name).to_owned(), *index)).collect::<Vec<_>>();
        assert_eq!(told(None), of(&[("t", 0), ("t", 1), ("uu", 0)]));
        assert_eq!(told(Some(&[("t", &[1, 7]), ("nowhere", &[0])])), of(&[("t", 1)]));
        assert_eq!(told(Some(&[])), of(&[]));
    }

    #[test]
    fn a_failed_directory_says_so_and_nothing_else() {
        let dir = DirInfo {
            path: "/gone".into(),
            status: DirStatus::Failed("broken".to_owned()),
            total_bytes: Some(1),
            usable_bytes: Some(1),
            partitions: Vec::new(),
            futures: Vec::new(),
        };
        let response = answer(vec![dir], &DescribeLogDirsRequest::default().with_topics(None));
        let result = &response.results[0];
        assert_eq!((result.error_code, result.total_bytes), (ErrorCode::KafkaStorageError.code(), -1));
    }
}
