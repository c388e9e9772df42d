//! `/api/topics` and `/api/topics/{topic}`.

use super::{
    super::view::{self, Config, Consumer, OpenTransaction, TopicDetail, TopicPartition, Topics},
    Asked, Failed, Json, LIMIT_DEFAULT, LIMIT_MAX, seconds,
};
use crate::{
    cluster::Topic,
    config::describe::{Described, Source},
    lag::{GroupLag, Reading, State, topic::Flow},
    log::PartitionLog,
    types::Millis,
};
use std::{cmp::Reverse, sync::Arc};

pub(super) fn list(asked: &Asked<'_>) -> Result<Json, Failed> {
    let limit = asked.limit(LIMIT_DEFAULT, LIMIT_MAX)?;
    let internal = asked.parameter("internal") == Some("true");
    let topics: Vec<_> = asked.image.topics().filter(|topic| internal || !topic.name.is_internal()).collect();
    let lag = asked.lag();
    let shown = topics.iter().take(limit).map(|topic| view(&lag, topic, &logs(asked, topic))).collect();
    Json::of(&Topics { now_ms: asked.now.0, total: topics.len(), topics: shown })
}

pub(super) fn detail(asked: &Asked<'_>) -> Result<Json, Failed> {
    let Some(topic) = asked.image.topic(asked.name(0)) else { return Err(Failed::not_found("topic")) };
    let logs = logs(asked, topic);
    let lag = asked.lag();
    let described = asked.broker.context.config.describe_topic(&topic.overrides, asked.image.layers());
    let config = |described: Described| Config {
        name: described.key.name.to_owned(),
        value: described.value,
        default: described.source != Source::Topic,
    };
    let mut consumers: Vec<_> = lag.groups.iter().filter_map(|(id, group)| consumer(asked, &lag, topic, id, group)).collect();
    consumers.sort_by(|a, b| b.lag_seconds.partial_cmp(&a.lag_seconds).unwrap_or(std::cmp::Ordering::Equal).then(b.lag.cmp(&a.lag)));
    Json::of(&TopicDetail {
        now_ms: asked.now.0,
        topic: view(&lag, topic, &logs),
        partitions_list: partitions(asked.now, &lag, topic, &logs),
        configs: described.into_iter().map(config).collect(),
        consumers,
    })
}

/// The logs of its partitions, in order, as far as they are here.
fn logs(asked: &Asked<'_>, topic: &Topic) -> Vec<Option<Arc<PartitionLog>>> {
    topic.indexed().map(|(partition, _)| asked.broker.context.logs.get(topic.id, partition)).collect()
}

fn view(lag: &State, topic: &Topic, logs: &[Option<Arc<PartitionLog>>]) -> view::Topic {
    let flow = lag.topics.get(&topic.name).filter(|flow| flow.id == topic.id);
    let skew = flow.and_then(|flow| flow.skew());
    let length = |log: &Arc<PartitionLog>| {
        let marks = log.watermarks();
        marks.high_watermark.0.saturating_sub(marks.log_start.0).max(0)
    };
    let reads = |group: &&GroupLag| group.topics.get(&topic.name).is_some_and(|reading| reading.id == topic.id);
    let policies = [("compact", topic.config.cleanup_compact), ("delete", topic.config.cleanup_delete)];
    let policies: Vec<_> = policies.into_iter().filter(|(_, is_set)| *is_set).map(|(name, _)| name).collect();
    let offline = |log: &&Option<Arc<PartitionLog>>| log.as_ref().is_none_or(|log| log.offline_reason().is_some());
    view::Topic {
        topic: topic.name.to_string(),
        id: topic.id.to_string(),
        internal: topic.name.is_internal(),
        partitions: topic.partitions.len(),
        replication_factor: topic.partitions.first().map_or(0, |state| state.replicas.len()),
        size_bytes: logs.iter().flatten().map(|log| log.size_bytes()).sum(),
        records: logs.iter().flatten().map(length).fold(0, i64::saturating_add),
        produce_rate: flow.map_or(0.0, |flow| flow.rate()),
        produce_bytes_per_second: flow.map_or(0.0, |flow| flow.bytes_rate()),
        skew: skew.map(|skew| skew.ratio),
        hottest_partition: skew.map(|skew| skew.hottest.0),
        groups: lag.groups.values().filter(reads).count(),
        offline_partitions: logs.iter().filter(offline).count(),
        cleanup_policy: policies.join(","),
        retention_ms: topic.config.retention_ms,
    }
}

/// The oldest open transaction of a partition.
pub(super) fn open_transaction(now: Millis, flow: &Flow) -> Option<OpenTransaction> {
    let open = flow.open?;
    Some(OpenTransaction {
        producer_id: open.producer_id.0,
        transactional_id: flow.ended_by.transactional_id().map(str::to_owned),
        ended_by: flow.ended_by.name().to_owned(),
        since_ms: open.since.0,
        age_seconds: seconds(open.age_ms(now)),
        first_offset: open.first_offset.0,
    })
}

fn partitions(now: Millis, lag: &State, topic: &Topic, logs: &[Option<Arc<PartitionLog>>]) -> Vec<TopicPartition> {
    let flow = lag.topics.get(&topic.name).filter(|flow| flow.id == topic.id);
    let all = flow.map_or(0.0, |flow| flow.rate());
    let one = |((partition, state), log): ((crate::types::PartitionIndex, &crate::cluster::PartitionState), &Option<Arc<PartitionLog>>)| {
        let marks = log.as_ref().map(|log| log.watermarks());
        let flow = flow.and_then(|flow| flow.partition(partition));
        let rate = flow.and_then(|flow| flow.records.per_second());
        TopicPartition {
            partition: partition.0,
            leader: state.leader.0,
            replicas: state.replicas.iter().map(|id| id.0).collect(),
            isr: state.isr.iter().map(|id| id.0).collect(),
            log_start: marks.map(|marks| marks.log_start.0),
            last_stable: marks.map(|marks| marks.last_stable.0),
            high_watermark: marks.map(|marks| marks.high_watermark.0),
            log_end: marks.map(|marks| marks.log_end.0),
            size_bytes: log.as_ref().map_or(0, |log| log.size_bytes()),
            segments: log.as_ref().map_or(0, |log| log.segment_count()),
            produce_rate: rate,
            produce_bytes_per_second: flow.and_then(|flow| flow.bytes.per_second()),
            share: rate.filter(|_| all > 0.0).map(|rate| rate / all),
            offline: match log {
                None => Some("its directory is in none of log.dirs".to_owned()),
                Some(log) => log.offline_reason().map(str::to_owned),
            },
            open_transaction: flow.and_then(|flow| open_transaction(now, flow)),
        }
    };
    topic.indexed().zip(logs).map(one).collect()
}

/// A group that reads the topic.
fn consumer(asked: &Asked<'_>, lag: &State, topic: &Topic, id: &str, group: &GroupLag) -> Option<Consumer> {
    let here = group.partitions(asked.now, &lag.topics).filter(|(name, ..)| **name == topic.name);
    let here: Vec<_> = here.map(|(_, reader, behind)| (reader.reading, behind)).collect();
    // What most tells of it: that it reads, before that it did.
    let reading = here.iter().map(|(reading, _)| *reading).min_by_key(|reading| Reverse(weight(*reading)))?;
    let behind = here.iter().filter_map(|(_, behind)| behind.as_ref());
    Some(Consumer {
        group: id.to_owned(),
        state: group.described.state.to_owned(),
        members: group.described.members.len(),
        reading: reading.name().to_owned(),
        lag: behind.clone().map(|behind| behind.records).fold(0, i64::saturating_add),
        lag_seconds: behind.filter_map(|behind| behind.ms).max().map(seconds),
    })
}

fn weight(reading: Reading) -> u8 {
    match reading {
        Reading::Committing => 5,
        Reading::FetchingOnly => 4,
        Reading::Unowned => 3,
        Reading::Idle => 2,
        Reading::Abandoned => 1,
        Reading::Silent => 0,
    }
}
