//! The same numbers under the names of seglo/kafka-lag-exporter (`lag.metrics.compat`), for dashboards that ask for them.

use super::{MetricsSettings, Row, Shown, State, seconds};
use crate::telemetry::{
    Exposition,
    exposition::Labels,
    names::{self, Metric},
};

pub fn render(out: &mut Exposition, state: &State, shown: &[Shown<'_>], rows: &[Row<'_>], cluster: &str, settings: &MetricsSettings) {
    let topics: Vec<_> = state.topics.iter().filter(|(topic, _)| settings.topics.takes(topic.as_str())).collect();
    let mut by_partition = |metric: &Metric, value: fn(&super::super::partition::Marks) -> i64| {
        let mut family = out.family(metric);
        for (topic, flow) in &topics {
            for (index, flow) in flow.partitions.iter().enumerate() {
                if let Some(marks) = &flow.marks {
                    family.sample(&[cluster, topic.as_str(), &index.to_string()], value(marks));
                }
            }
        }
    };
    by_partition(&names::SEGLO_LATEST, |marks| marks.high_watermark.0);
    by_partition(&names::SEGLO_EARLIEST, |marks| marks.log_start.0);
    let labels: Vec<Labels> = rows.iter().map(|row| labels(row, cluster)).collect();
    let mut by_row = |metric: &Metric, value: fn(&Row<'_>) -> Option<f64>| {
        let mut family = out.family(metric);
        for (row, labels) in rows.iter().zip(&labels) {
            if let Some(value) = value(row) {
                family.labelled(labels, value);
            }
        }
    };
    by_row(&names::SEGLO_GROUP_OFFSET, |row| row.reader.commit.map(|commit| commit.offset.0.max(0) as f64));
    by_row(&names::SEGLO_GROUP_LAG, |row| Some(row.behind.records as f64));
    by_row(&names::SEGLO_GROUP_LAG_SECONDS, |row| row.behind.ms.map(seconds));
    let mut by_group = |metric: &Metric, value: fn(&Shown<'_>) -> Option<f64>| {
        let mut family = out.family(metric);
        for group in shown {
            if let Some(value) = value(group) {
                family.sample(&[cluster, group.id], value);
            }
        }
    };
    by_group(&names::SEGLO_GROUP_MAX_LAG, |group| Some(group.summary.records_max as f64));
    by_group(&names::SEGLO_GROUP_MAX_LAG_SECONDS, |group| group.summary.ms.map(seconds));
    by_group(&names::SEGLO_GROUP_SUM_LAG, |group| Some(group.summary.records as f64));
    let mut family = out.family(&names::SEGLO_GROUP_TOPIC_SUM_LAG);
    for group in shown {
        for (topic, sums) in &group.topics {
            family.sample(&[cluster, group.id, topic.as_str()], sums.records);
        }
    }
}

fn labels(row: &Row<'_>, cluster: &str) -> Labels {
    let owner = row.reader.owner.and_then(|place| row.lag.described.members.get(place));
    let (host, id, client) = owner.map_or(("", "", ""), |member| (&*member.client_host, &*member.member_id, &*member.client_id));
    let partition = row.reader.partition.to_string();
    let values = [cluster, row.group, row.topic.as_str(), &partition, host.trim_start_matches('/'), id, client];
    Labels::of(&names::SEGLO_GROUP_LAG, &values)
}
