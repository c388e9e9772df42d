//! The state as Prometheus families: kafka_exporter's names and labels, and ours beside them. Read off at the scrape, so that what is gone
//! leaves no ghost. Series of partitions are many: `rows` has their numbers, and writes them as they are sent.
//!
//! `max_series` bounds what groups may take. Where it cuts, whole groups lose their partitions' series first, in order of their names, so
//! that the same ones stay from scrape to scrape; what was left out is counted.

mod kafka_lag_exporter;
mod rows;
#[cfg(test)]
mod tests;

use super::{
    filter::Filter,
    group::{GroupLag, Summary},
    partition::{Behind, CatchUp, Reader},
    state::State,
};
use crate::{
    cluster::{Image, Topic},
    group::GroupId,
    telemetry::{
        Exposition,
        exposition::Labels,
        names::{self, Metric},
    },
    types::{Millis, TopicName},
};
use std::collections::BTreeMap;

/// What is exported.
#[derive(Clone, Debug)]
pub struct MetricsSettings {
    /// Series of groups in one scrape.
    pub max_series: usize,
    pub groups: Filter,
    pub topics: Filter,
    /// kafka-lag-exporter's names, too.
    pub kafka_lag_exporter: bool,
}

/// A partition that a group reads.
struct Row<'a> {
    group: &'a GroupId,
    lag: &'a GroupLag,
    topic: &'a TopicName,
    reader: &'a Reader,
    behind: Behind,
}

/// A group that is exported.
struct Shown<'a> {
    id: &'a GroupId,
    lag: &'a GroupLag,
    summary: Summary,
    /// By topic: committed offsets, records behind, lost, consume rate.
    topics: BTreeMap<&'a TopicName, Sums>,
}

#[derive(Clone, Copy, Default)]
struct Sums {
    committed: i64,
    records: i64,
    lost: u64,
    rate: f64,
}

/// Families of one partition's row that are always there, and those of one that's behind.
const ROW_SERIES: usize = 4;
const ROW_SERIES_BEHIND: usize = 3;
const GROUP_SERIES: usize = 11;
const TOPIC_SERIES: usize = 4;

/// Writes everything that the lag has to say.
pub fn render(out: &mut Exposition, state: &State, image: &Image, now: Millis, settings: &MetricsSettings) {
    topics(out, state, image, now, settings);
    let mut shown = Vec::new();
    let mut rows = Vec::new();
    let mut written = rows::Rows::default();
    let (mut left, mut dropped, mut pending) = (settings.max_series, 0_usize, 0_usize);
    for (id, lag) in state.groups.iter().filter(|(id, _)| settings.groups.takes(id)) {
        let (group, of_group) = read(state, id, lag, now, settings);
        pending = pending.saturating_add(group.summary.pending);
        let own = GROUP_SERIES.saturating_add(lag.rebalances.len()).saturating_add(group.topics.len().saturating_mul(TOPIC_SERIES));
        let behind = of_group.iter().filter(|row| row.behind.records > 0).count();
        let of_rows = of_group.len().saturating_mul(ROW_SERIES).saturating_add(behind.saturating_mul(ROW_SERIES_BEHIND));
        if own > left {
            dropped = dropped.saturating_add(own).saturating_add(of_rows);
            continue;
        }
        left = left.saturating_sub(own);
        shown.push(group);
        if of_rows > left {
            dropped = dropped.saturating_add(of_rows);
        } else {
            left = left.saturating_sub(of_rows);
            written.take(&of_group, now);
            if settings.kafka_lag_exporter {
                rows.extend(of_group);
            }
        }
    }
    groups(out, &shown);
    if settings.kafka_lag_exporter {
        kafka_lag_exporter::render(out, state, &shown, &rows, &image.cluster_id, settings);
    }
    out.single(&names::LAG_DROPPED, &[], dropped as u64);
    out.single(&names::LAG_PENDING, &[], pending as u64);
    out.later(written);
}

fn read<'a>(state: &'a State, id: &'a GroupId, lag: &'a GroupLag, now: Millis, settings: &MetricsSettings) -> (Shown<'a>, Vec<Row<'a>>) {
    let mut topics: BTreeMap<&TopicName, Sums> = BTreeMap::new();
    let mut rows = Vec::new();
    // The topic that comes now, and whether it is shown.
    let mut current: Option<(&TopicName, bool)> = None;
    for (topic, reader, behind) in lag.partitions(now, &state.topics) {
        let taken = match current {
            Some((same, taken)) if std::ptr::eq(same, topic) => taken,
            _ => settings.topics.takes(topic.as_str()),
        };
        current = Some((topic, taken));
        let (Some(commit), Some(behind), true) = (reader.commit, behind, taken) else { continue };
        let sums = topics.entry(topic).or_default();
        sums.committed = sums.committed.saturating_add(commit.offset.0.max(0));
        sums.records = sums.records.saturating_add(behind.records);
        sums.lost = sums.lost.saturating_add(reader.lost);
        sums.rate += reader.consumed.per_second().unwrap_or(0.0);
        rows.push(Row { group: id, lag, topic, reader, behind });
    }
    (Shown { id, lag, summary: lag.summary(now, &state.topics), topics }, rows)
}

/// Milliseconds as seconds.
fn seconds(ms: i64) -> f64 {
    ms as f64 / 1_000.0
}

/// A family of one value a group, where there is one.
fn by_group<'a>(out: &mut Exposition, metric: &Metric, shown: &[Shown<'a>], value: impl Fn(&Shown<'a>) -> Option<f64>) {
    let mut family = out.family(metric);
    for group in shown {
        if let Some(value) = value(group) {
            family.sample(&[group.id], value);
        }
    }
}

fn groups(out: &mut Exposition, shown: &[Shown<'_>]) {
    by_group(out, &names::GROUP_MEMBERS, shown, |g| Some(g.lag.described.members.len() as f64));
    by_group(out, &names::GROUP_MAX_LAG_SECONDS, shown, |g| g.summary.ms.map(seconds));
    by_group(out, &names::GROUP_MAX_LAG, shown, |g| Some(g.summary.records_max as f64));
    by_group(out, &names::GROUP_MIN_MARGIN, shown, |g| g.summary.margin_ms.map(seconds));
    by_group(out, &names::GROUP_CATCH_UP, shown, |g| match g.summary.catch_up {
        CatchUp::Unknown => None,
        CatchUp::In(seconds) => Some(seconds),
        CatchUp::Never => Some(f64::INFINITY),
    });
    by_group(out, &names::GROUP_UNOWNED, shown, |g| Some(g.lag.unowned_ms() as f64 / 1_000.0));
    by_group(out, &names::GROUP_ABANDONED, shown, |g| Some(g.summary.abandoned as f64));
    by_group(out, &names::GROUP_UNCOMMITTED, shown, |g| Some(g.summary.uncommitted as f64));
    by_group(out, &names::GROUP_STUCK, shown, |g| Some(g.summary.stuck as f64));
    by_group(out, &names::GROUP_BEYOND, shown, |g| Some(g.summary.beyond as f64));
    let mut family = out.family(&names::GROUP_STATE);
    for group in shown {
        family.sample(&[group.id, group.lag.described.state], 1_u64);
    }
    let mut family = out.family(&names::GROUP_REBALANCES);
    for group in shown {
        for (cause, count) in &group.lag.rebalances {
            family.sample(&[group.id, cause], *count);
        }
    }
    let mut by_topic = |metric: &Metric, value: fn(&Sums) -> f64| {
        let mut family = out.family(metric);
        for group in shown {
            for (topic, sums) in &group.topics {
                family.sample(&[group.id, topic.as_str()], value(sums));
            }
        }
    };
    by_topic(&names::GROUP_CURRENT_OFFSET_SUM, |s| s.committed as f64);
    by_topic(&names::GROUP_LAG_SUM, |s| s.records as f64);
    by_topic(&names::GROUP_LOST, |s| s.lost as f64);
    by_topic(&names::GROUP_CONSUME_RATE, |s| s.rate);
}

fn topics(out: &mut Exposition, state: &State, image: &Image, now: Millis, settings: &MetricsSettings) {
    out.single(&names::KAFKA_BROKERS, &[], image.brokers.len() as u64);
    let mut family = out.family(&names::KAFKA_BROKER_INFO);
    for (id, broker) in &image.brokers {
        // kafka_exporter shows the one address that it was told; the first listener is ours.
        let address = broker.endpoints.values().next().map(ToString::to_string).unwrap_or_default();
        family.sample(&[&id.to_string(), &address], 1_u64);
    }
    let shown: Vec<&Topic> = image.topics().map(|topic| &**topic).filter(|topic| settings.topics.takes(topic.name.as_str())).collect();
    let mut family = out.family(&names::KAFKA_TOPIC_PARTITIONS);
    for topic in &shown {
        family.sample(&[topic.name.as_str()], topic.partitions.len() as u64);
    }
    let labels: Vec<Labels> = shown
        .iter()
        .flat_map(|topic| {
            topic.indexed().map(|(index, _)| Labels::of(&names::KAFKA_PARTITION_LEADER, &[topic.name.as_str(), &index.to_string()]))
        })
        .collect();
    let mut of_image = |metric: &Metric, value: fn(&crate::cluster::PartitionState) -> i64| {
        let mut family = out.family(metric);
        let states = shown.iter().flat_map(|topic| &topic.partitions);
        labels.iter().zip(states).for_each(|(labels, state)| family.labelled(labels, value(state)));
    };
    of_image(&names::KAFKA_PARTITION_LEADER, |state| state.leader.0.into());
    of_image(&names::KAFKA_PARTITION_PREFERRED, |state| i64::from(state.replicas.first() == Some(&state.leader)));
    of_image(&names::KAFKA_PARTITION_REPLICAS, |state| count(state.replicas.len()));
    of_image(&names::KAFKA_PARTITION_ISR, |state| count(state.isr.len()));
    of_image(&names::KAFKA_PARTITION_UNDER_REPLICATED, |state| i64::from(state.isr.len() < state.replicas.len()));
    let flow = |topic: &Topic| state.topics.get(&topic.name).filter(|flow| flow.id == topic.id);
    let flows: Vec<_> =
        shown.iter().flat_map(|topic| topic.indexed().map(|(index, _)| flow(topic).and_then(|flow| flow.partition(index)))).collect();
    let mut of_flow = |metric: &Metric, value: &dyn Fn(&super::topic::Flow) -> Option<f64>| {
        let mut family = out.family(metric);
        for (labels, flow) in labels.iter().zip(&flows) {
            if let Some(value) = flow.and_then(value) {
                family.labelled(labels, value);
            }
        }
    };
    of_flow(&names::KAFKA_PARTITION_CURRENT, &|flow| flow.marks.map(|marks| marks.high_watermark.0 as f64));
    of_flow(&names::KAFKA_PARTITION_OLDEST, &|flow| flow.marks.map(|marks| marks.log_start.0 as f64));
    of_flow(&names::PARTITION_PRODUCE_RATE, &|flow| flow.records.per_second());
    of_flow(&names::PARTITION_OFFLINE, &|flow| flow.offline.then_some(1.0));
    of_flow(&names::OPEN_TXN_AGE, &|flow| flow.open.map(|open| seconds(open.age_ms(now))));
    of_flow(&names::OPEN_TXN_PRODUCER, &|flow| flow.open.map(|open| open.producer_id.0 as f64));
    let mut family = out.family(&names::OPEN_TXN_INFO);
    let partitions = shown.iter().flat_map(|topic| topic.indexed().map(move |(index, _)| (topic, index)));
    for ((topic, partition), flow) in partitions.zip(&flows) {
        let Some((flow, open)) = flow.and_then(|flow| Some((flow, flow.held_back_by(now)?))) else { continue };
        let id = flow.ended_by.transactional_id().unwrap_or_default();
        let labels = [topic.name.as_str(), &partition.to_string(), &open.producer_id.to_string(), id, flow.ended_by.name()];
        family.sample(&labels, 1_u64);
    }
    out.single(&names::OFFLINE_PARTITIONS, &[], flows.iter().flatten().filter(|flow| flow.offline).count() as u64);
    let mut family = out.family(&names::TOPIC_SKEW);
    for topic in &shown {
        if let Some(skew) = flow(topic).and_then(|flow| flow.skew()) {
            family.sample(&[topic.name.as_str()], skew.ratio);
        }
    }
}

fn count(len: usize) -> i64 {
    i64::try_from(len).unwrap_or(i64::MAX)
}
