//! `/api/overview` and `/api/broker`.

use super::{
    super::view::{self, GroupCounts, HeldBack, Listener, LogDir, Memory, Overview, WorstGroup},
    Asked, Failed, Json, seconds,
    topics::open_transaction,
};
use crate::{
    lag::State,
    log::{DirInfo, DirStatus},
    telemetry::process::Process,
    types::{Millis, TopicPartition},
};
use std::cmp::Reverse;

const VERSION: &str = env!("CARGO_PKG_VERSION");

/// From here on a group is late; below, records are just on their way.
const LATE_MS: i64 = 60_000;
/// Partitions that a transaction holds back, as the overview lists them.
const HELD_BACK_MAX: usize = 10;

/// The one that is held back for longest first.
fn held_back(asked: &Asked<'_>, lag: &State) -> Vec<HeldBack> {
    let flow = |at: &TopicPartition| lag.topics.get(&at.topic)?.partition(at.partition);
    let mut held: Vec<_> = lag
        .open_transactions()
        .filter_map(|(_, at, _)| flow(&at).and_then(|flow| flow.held_back_by(asked.now)).map(|open| (open.since, at)))
        .collect();
    held.sort();
    let shown = |(_, at): (Millis, TopicPartition)| {
        let open_transaction = open_transaction(asked.now, flow(&at)?)?;
        Some(HeldBack { topic: at.topic.to_string(), partition: at.partition.0, open_transaction })
    };
    held.into_iter().filter_map(shown).collect()
}

/// When the process started.
fn started(asked: &Asked<'_>, process: &Process) -> Millis {
    process.started_seconds.map_or(asked.now, |at| Millis((at * 1_000.0) as i64)).min(asked.now)
}

pub(super) fn overview(asked: &Asked<'_>) -> Result<Json, Failed> {
    let sizes = asked.broker.context.logs.partitions();
    let size_bytes = sizes.iter().map(|log| log.size_bytes()).sum();
    let lag = asked.lag();
    let topics: Vec<_> = lag.topics.values().filter(|topic| !topic.internal).collect();
    let mut groups = GroupCounts { total: lag.groups.len(), ..GroupCounts::default() };
    let mut worst = None;
    for (id, group) in &lag.groups {
        let summary = lag.summary(asked.now, group);
        groups.behind = groups.behind.saturating_add(usize::from(summary.records > 0));
        groups.late = groups.late.saturating_add(usize::from(summary.records > 0 && summary.ms.is_some_and(|ms| ms >= LATE_MS)));
        let count = match group.described.state {
            "Stable" => &mut groups.stable,
            "Empty" => &mut groups.empty,
            _ => &mut groups.rebalancing,
        };
        *count = count.saturating_add(1);
        let rank = (summary.ms, summary.records, Reverse(id));
        if summary.records > 0 && worst.as_ref().is_none_or(|worst| rank > *worst) {
            worst = Some(rank);
        }
    }
    let held_back = held_back(asked, &lag);
    let started = started(asked, &Process::read());
    Json::of(&Overview {
        now_ms: asked.now.0,
        cluster_id: asked.image.cluster_id.clone(),
        version: VERSION.to_owned(),
        uptime_seconds: seconds(asked.now.0.saturating_sub(started.0)),
        brokers: asked.image.brokers.len(),
        topics: topics.len(),
        partitions: topics.iter().map(|topic| topic.partitions.len()).sum(),
        offline_partitions: lag.topics.values().flat_map(|topic| &topic.partitions).filter(|flow| flow.offline).count(),
        groups,
        worst_group: worst.map(|(ms, lag, Reverse(id))| WorstGroup { group: id.to_string(), lag_seconds: ms.map(seconds), lag }),
        held_back_partitions: held_back.len(),
        held_back: held_back.into_iter().take(HELD_BACK_MAX).collect(),
        produce_records_per_second: topics.iter().map(|topic| topic.rate()).sum(),
        produce_bytes_per_second: topics.iter().map(|topic| topic.bytes_rate()).sum(),
        size_bytes,
    })
}

pub(super) fn detail(asked: &Asked<'_>) -> Result<Json, Failed> {
    let context = &asked.broker.context;
    let process = Process::read();
    let started = started(asked, &process);
    let stopping = *context.stopping.borrow();
    let endpoints = asked.image.brokers.get(&asked.image.node_id).map(|broker| &broker.endpoints);
    let listener = |(name, address): (&String, &crate::config::HostPort)| Listener { name: name.clone(), address: address.to_string() };
    Json::of(&view::Broker {
        now_ms: asked.now.0,
        id: asked.image.node_id.0,
        version: VERSION.to_owned(),
        cluster_id: asked.image.cluster_id.clone(),
        rack: context.config.rack.clone(),
        uptime_seconds: seconds(asked.now.0.saturating_sub(started.0)),
        started_ms: started.0,
        ready: !stopping,
        not_ready_reason: stopping.then(|| "the broker is stopping".to_owned()),
        listeners: endpoints.into_iter().flatten().map(listener).collect(),
        http: asked.broker.http.clone(),
        memory: Memory { resident_bytes: process.resident_bytes, virtual_bytes: process.virtual_bytes },
        cpu_seconds: process.cpu_seconds,
        threads: process.threads,
        open_files: process.open_files,
        max_files: process.max_files,
        connections: context.events.connections_open(),
        log_dirs: context.logs.dirs().iter().map(log_dir).collect(),
    })
}

fn log_dir(info: &DirInfo) -> LogDir {
    let reason = match &info.status {
        DirStatus::Failed(why) => Some(why.clone()),
        DirStatus::Online | DirStatus::LowOnSpace => None,
    };
    LogDir {
        path: info.path.display().to_string(),
        online: reason.is_none(),
        reason,
        full: info.status == DirStatus::LowOnSpace,
        total_bytes: info.total_bytes,
        free_bytes: info.usable_bytes,
        partitions: info.partitions.len(),
        size_bytes: info.partitions.iter().map(|log| log.size_bytes()).sum(),
    }
}
