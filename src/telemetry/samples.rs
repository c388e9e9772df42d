//! Topics' and partitions' families, rendered from plain structs that the caller reads off the topics that exist at the scrape.
//! Nothing is kept between scrapes.

use super::{
    exposition::{Exposition, Value},
    names::{self, Metric},
};
use crate::types::{Offset, PartitionIndex};

/// What a partition looks like now.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct PartitionSample<'a> {
    pub topic: &'a str,
    pub partition: PartitionIndex,
    pub log_start: Offset,
    pub last_stable: Offset,
    pub high_watermark: Offset,
    pub log_end: Offset,
    pub size_bytes: u64,
    pub segments: u64,
}

/// What a topic looks like now; its counts are since the broker started.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct TopicSample<'a> {
    pub topic: &'a str,
    pub partitions: u64,
    pub received_bytes: u64,
    pub received_records: u64,
    pub sent_bytes: u64,
    pub sent_records: u64,
}

impl<'a> TopicSample<'a> {
    /// A topic without partitions yet; add to it.
    pub fn of(topic: &'a str) -> Self {
        Self { topic, partitions: 0, received_bytes: 0, received_records: 0, sent_bytes: 0, sent_records: 0 }
    }
}

/// Writes the partitions' families.
pub fn render_partitions<'a>(out: &mut Exposition, partitions: impl IntoIterator<Item = PartitionSample<'a>>) {
    let samples: Vec<_> = partitions.into_iter().map(|sample| (sample.partition.to_string(), sample)).collect();
    fn family<V: Value>(
        out: &mut Exposition,
        metric: &Metric,
        samples: &[(String, PartitionSample<'_>)],
        value: fn(&PartitionSample<'_>) -> V,
    ) {
        let mut family = out.family(metric);
        for (partition, sample) in samples {
            family.sample(&[sample.topic, partition], value(sample));
        }
    }
    family(out, &names::PARTITION_LOG_START, &samples, |s| s.log_start.0);
    family(out, &names::PARTITION_LAST_STABLE, &samples, |s| s.last_stable.0);
    family(out, &names::PARTITION_HIGH_WATERMARK, &samples, |s| s.high_watermark.0);
    family(out, &names::PARTITION_LOG_END, &samples, |s| s.log_end.0);
    family(out, &names::PARTITION_SIZE, &samples, |s| s.size_bytes);
    family(out, &names::PARTITION_SEGMENTS, &samples, |s| s.segments);
}

/// Writes the topics' families.
pub fn render_topics<'a>(out: &mut Exposition, topics: impl IntoIterator<Item = TopicSample<'a>>) {
    let samples: Vec<_> = topics.into_iter().collect();
    let mut family = |metric: &Metric, value: fn(&TopicSample<'_>) -> u64| {
        let mut family = out.family(metric);
        for sample in &samples {
            family.sample(&[sample.topic], value(sample));
        }
    };
    family(&names::TOPIC_PARTITIONS, |s| s.partitions);
    family(&names::TOPIC_RECEIVED_BYTES, |s| s.received_bytes);
    family(&names::TOPIC_RECEIVED_RECORDS, |s| s.received_records);
    family(&names::TOPIC_SENT_BYTES, |s| s.sent_bytes);
    family(&names::TOPIC_SENT_RECORDS, |s| s.sent_records);
}

/// What compaction did since the broker started, and what is left to do.
#[derive(Clone, Copy, PartialEq, Debug, Default)]
pub struct CompactionSample {
    pub read_bytes: u64,
    pub written_bytes: u64,
    pub compactions: u64,
    /// From 0 to 1.
    pub max_dirty_ratio: f64,
    /// Seconds since 1970.
    pub last_run_s: f64,
    pub uncleanable_partitions: u64,
}

/// Writes compaction's families.
pub fn render_compaction(out: &mut Exposition, sample: &CompactionSample) {
    out.single(&names::COMPACTION_READ, &[], sample.read_bytes);
    out.single(&names::COMPACTION_WRITTEN, &[], sample.written_bytes);
    out.single(&names::COMPACTIONS, &[], sample.compactions);
    out.single(&names::COMPACTION_MAX_DIRTY, &[], sample.max_dirty_ratio);
    out.single(&names::COMPACTION_LAST_RUN, &[], sample.last_run_s);
    out.single(&names::COMPACTION_UNCLEANABLE, &[], sample.uncleanable_partitions);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn partitions_are_grouped_by_family() {
        let sample = PartitionSample {
            topic: "orders",
            partition: PartitionIndex(0),
            log_start: Offset(1),
            last_stable: Offset(5),
            high_watermark: Offset(7),
            log_end: Offset(9),
            size_bytes: 1234,
            segments: 2,
        };
        let mut out = Exposition::default();
        render_partitions(&mut out, [sample, PartitionSample { partition: PartitionIndex(11), ..sample }]);
        let text = out.finish();
        let expected = "# TYPE highwater_partition_log_start_offset gauge\n\
            highwater_partition_log_start_offset{topic=\"orders\",partition=\"0\"} 1\n\
            highwater_partition_log_start_offset{topic=\"orders\",partition=\"11\"} 1\n\
            # HELP highwater_partition_last_stable_offset";
        assert!(text.contains(expected), "{text}");
        for (name, value) in
            [("last_stable_offset", 5), ("high_watermark_offset", 7), ("log_end_offset", 9), ("size_bytes", 1234), ("segments", 2)]
        {
            assert!(
                text.contains(&format!("highwater_partition_{name}{{topic=\"orders\",partition=\"0\"}} {value}\n")),
                "{name} in\n{text}"
            );
        }
        assert_eq!(text.matches("# TYPE").count(), 6);
    }

    #[test]
    fn topics_have_their_counts_and_a_gone_topic_has_nothing() {
        let mut out = Exposition::default();
        let sample = TopicSample {
            partitions: 3,
            received_bytes: 10,
            received_records: 1,
            sent_bytes: 20,
            sent_records: 2,
            ..TopicSample::of("a.b")
        };
        render_topics(&mut out, [sample]);
        let text = out.finish();
        for line in [
            "highwater_topic_partitions{topic=\"a.b\"} 3\n",
            "highwater_topic_received_bytes_total{topic=\"a.b\"} 10\n",
            "highwater_topic_received_records_total{topic=\"a.b\"} 1\n",
            "highwater_topic_sent_bytes_total{topic=\"a.b\"} 20\n",
            "highwater_topic_sent_records_total{topic=\"a.b\"} 2\n",
        ] {
            assert!(text.contains(line), "{line} in\n{text}");
        }
        let mut out = Exposition::default();
        render_topics(&mut out, []);
        render_partitions(&mut out, []);
        assert_eq!(out.finish(), "");
    }
}
