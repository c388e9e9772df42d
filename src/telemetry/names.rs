//! Every metric that the broker exports: the only place where a metric's name, labels and help stand.
//!
//! Names follow Prometheus' rules: `highwater_<what>_<base unit>`, and `_total` on counters; `process_*` are the names that every
//! Prometheus client library uses, `kafka_*` those of kafka_exporter, which dashboards ask for, and what goes beside them. A label's values
//! come from an enum, the table of APIs, or the topics and groups that exist.

use std::fmt::Write;

/// What a metric is to Prometheus.
#[derive(Clone, Copy, PartialEq, Debug)]
pub enum Kind {
    Counter,
    Gauge,
    /// With its buckets' upper bounds, ascending, without `+Inf`.
    Histogram(&'static [f64]),
}

impl Kind {
    /// As a `# TYPE` line spells it.
    pub fn name(self) -> &'static str {
        match self {
            Self::Counter => "counter",
            Self::Gauge => "gauge",
            Self::Histogram(_) => "histogram",
        }
    }
}

/// A family of series.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct Metric {
    pub name: &'static str,
    pub kind: Kind,
    /// The names of its labels; a sample gives their values in this order.
    pub labels: &'static [&'static str],
    /// One sentence without a full stop.
    pub help: &'static str,
}

/// From 100 µs, what a cached read takes, to 30 s, the longest that a client waits by default.
pub const REQUEST_SECONDS: &[f64] =
    &[0.0001, 0.000_25, 0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0];

macro_rules! metrics {
    ($($constant:ident = $kind:ident $(($buckets:ident))? $name:literal [$($label:literal),*] $help:literal;)*) => {
        $(#[doc = $help] pub const $constant: Metric =
            Metric { name: $name, kind: Kind::$kind $(($buckets))?, labels: &[$($label),*], help: $help };)*
        /// All of them, in the order in which README lists them.
        pub const ALL: &[&Metric] = &[$(&$constant),*];
    };
}

metrics! {
    REQUESTS = Counter "highwater_requests_total" ["api", "error"] "Requests answered, by API and by the answer's first error code (NONE if it has none)";
    REQUEST_DURATION = Histogram(REQUEST_SECONDS) "highwater_request_duration_seconds" ["api"] "Time from a request's last byte read to its answer's last byte written";
    REQUEST_STAGE_DURATION = Histogram(REQUEST_SECONDS) "highwater_request_stage_duration_seconds" ["api", "stage"] "The parts of that time: queue (before work began), work, wait (for offsets, data or syncs) and send (written behind earlier answers)";
    REQUEST_BYTES = Counter "highwater_request_bytes_total" ["api"] "Bytes of requests' frames";
    RESPONSE_BYTES = Counter "highwater_response_bytes_total" ["api"] "Bytes of answers' frames";
    NETWORK_RECEIVED = Counter "highwater_network_received_bytes_total" [] "Bytes read from Kafka clients' connections";
    NETWORK_SENT = Counter "highwater_network_sent_bytes_total" [] "Bytes written to Kafka clients' connections";
    CONNECTIONS = Gauge "highwater_connections" [] "Kafka clients' connections open now";
    CONNECTIONS_OPENED = Counter "highwater_connections_opened_total" [] "Connections accepted and served";
    CONNECTIONS_CLOSED = Counter "highwater_connections_closed_total" ["reason"] "Connections that were served and are closed, by reason";
    CONNECTIONS_REJECTED = Counter "highwater_connections_rejected_total" ["reason"] "Connections closed at once because a limit was reached";
    FRAMES_REJECTED = Counter "highwater_frames_rejected_total" ["reason"] "Frames that were no valid request; each closed its connection";
    TOPIC_PARTITIONS = Gauge "highwater_topic_partitions" ["topic"] "Partitions of the topic";
    TOPIC_RECEIVED_BYTES = Counter "highwater_topic_received_bytes_total" ["topic"] "Bytes of record batches appended to the topic";
    TOPIC_RECEIVED_RECORDS = Counter "highwater_topic_received_records_total" ["topic"] "Records appended to the topic";
    TOPIC_SENT_BYTES = Counter "highwater_topic_sent_bytes_total" ["topic"] "Bytes of record batches sent to consumers of the topic";
    TOPIC_SENT_RECORDS = Counter "highwater_topic_sent_records_total" ["topic"] "Records sent to consumers of the topic";
    PARTITION_LOG_START = Gauge "highwater_partition_log_start_offset" ["topic", "partition"] "The first offset that the partition still has";
    PARTITION_LAST_STABLE = Gauge "highwater_partition_last_stable_offset" ["topic", "partition"] "Where read_committed consumers stop: the first offset of the oldest open transaction, or the high watermark";
    PARTITION_HIGH_WATERMARK = Gauge "highwater_partition_high_watermark_offset" ["topic", "partition"] "Where consumers stop: the offset after the last record that all in-sync replicas have";
    PARTITION_LOG_END = Gauge "highwater_partition_log_end_offset" ["topic", "partition"] "The offset that the next record will get";
    PARTITION_SIZE = Gauge "highwater_partition_size_bytes" ["topic", "partition"] "Bytes of the partition's segments, without their indexes";
    PARTITION_SEGMENTS = Gauge "highwater_partition_segments" ["topic", "partition"] "Segments of the partition, the active one included";
    COMPACTION_READ = Counter "highwater_compaction_read_bytes_total" [] "Bytes that compaction read, for the newest offsets of keys and for what stays";
    COMPACTION_WRITTEN = Counter "highwater_compaction_written_bytes_total" [] "Bytes that compaction wrote";
    COMPACTIONS = Counter "highwater_compactions_total" [] "Partitions' logs compacted";
    COMPACTION_MAX_DIRTY = Gauge "highwater_compaction_max_dirty_ratio" [] "The dirty share of the dirtiest compacted log at the last look, from 0 to 1";
    COMPACTION_LAST_RUN = Gauge "highwater_compaction_last_run_timestamp_seconds" [] "When compaction last looked for something to do, in seconds since 1970";
    COMPACTION_UNCLEANABLE = Gauge "highwater_compaction_uncleanable_partitions" [] "Partitions that are not compacted any more because their log can't be read";
    KAFKA_BROKERS = Gauge "kafka_brokers" [] "Brokers of the cluster";
    KAFKA_BROKER_INFO = Gauge "kafka_broker_info" ["id", "address"] "Always 1; its labels say which broker is where";
    KAFKA_TOPIC_PARTITIONS = Gauge "kafka_topic_partitions" ["topic"] "Partitions of the topic";
    KAFKA_PARTITION_CURRENT = Gauge "kafka_topic_partition_current_offset" ["topic", "partition"] "The offset after the partition's last record";
    KAFKA_PARTITION_OLDEST = Gauge "kafka_topic_partition_oldest_offset" ["topic", "partition"] "The first offset that the partition still has";
    KAFKA_PARTITION_ISR = Gauge "kafka_topic_partition_in_sync_replica" ["topic", "partition"] "In-sync replicas of the partition";
    KAFKA_PARTITION_LEADER = Gauge "kafka_topic_partition_leader" ["topic", "partition"] "The id of the broker that leads the partition; -1 for none";
    KAFKA_PARTITION_PREFERRED = Gauge "kafka_topic_partition_leader_is_preferred" ["topic", "partition"] "1 if the partition's first replica leads it";
    KAFKA_PARTITION_REPLICAS = Gauge "kafka_topic_partition_replicas" ["topic", "partition"] "Replicas of the partition";
    KAFKA_PARTITION_UNDER_REPLICATED = Gauge "kafka_topic_partition_under_replicated_partition" ["topic", "partition"] "1 if a replica of the partition is not in sync";
    GROUP_CURRENT_OFFSET = Gauge "kafka_consumergroup_current_offset" ["consumergroup", "topic", "partition"] "The offset that the group committed";
    GROUP_CURRENT_OFFSET_SUM = Gauge "kafka_consumergroup_current_offset_sum" ["consumergroup", "topic"] "The offsets that the group committed, over the topic's partitions";
    GROUP_LAG = Gauge "kafka_consumergroup_lag" ["consumergroup", "topic", "partition"] "Records behind: offsets from the first visible record that the group has not consumed to where its readers stop; 0 exactly when there is none";
    GROUP_LAG_SUM = Gauge "kafka_consumergroup_lag_sum" ["consumergroup", "topic"] "Records behind, over the topic's partitions";
    GROUP_MEMBERS = Gauge "kafka_consumergroup_members" ["consumergroup"] "Members of the group";
    GROUP_LAG_SECONDS = Gauge "kafka_consumergroup_lag_seconds" ["consumergroup", "topic", "partition"] "Time behind: how long the first unconsumed record has been here; by its own timestamp where its arrival isn't known";
    GROUP_EVENT_LAG_SECONDS = Gauge "kafka_consumergroup_event_lag_seconds" ["consumergroup", "topic", "partition"] "Where behind: now less the first unconsumed record's own timestamp";
    GROUP_OLDEST = Gauge "kafka_consumergroup_oldest_unconsumed_timestamp_seconds" ["consumergroup", "topic", "partition"] "Where behind: the first unconsumed record's own timestamp, in seconds since 1970";
    GROUP_MARGIN = Gauge "kafka_consumergroup_retention_margin_seconds" ["consumergroup", "topic", "partition"] "Where behind: time until retention may take the first unconsumed record";
    GROUP_COMMIT_AGE = Gauge "kafka_consumergroup_commit_age_seconds" ["consumergroup", "topic", "partition"] "Time since the last commit";
    GROUP_LOST = Counter "kafka_consumergroup_lost_records_total" ["consumergroup", "topic"] "Offsets that were removed before the group had read them";
    GROUP_CONSUME_RATE = Gauge "kafka_consumergroup_consume_rate_records" ["consumergroup", "topic"] "Offsets committed per second, over the last minute or so";
    GROUP_MAX_LAG_SECONDS = Gauge "kafka_consumergroup_max_lag_seconds" ["consumergroup"] "The worst time behind of the partitions that the group reads";
    GROUP_MAX_LAG = Gauge "kafka_consumergroup_max_lag" ["consumergroup"] "The most records behind of the partitions that the group reads";
    GROUP_MIN_MARGIN = Gauge "kafka_consumergroup_min_retention_margin_seconds" ["consumergroup"] "Where behind: the smallest retention margin of the partitions that the group reads";
    GROUP_CATCH_UP = Gauge "kafka_consumergroup_catch_up_seconds" ["consumergroup"] "Time to catch up at the present rates; +Inf if it doesn't, and nothing while they aren't known";
    GROUP_STATE = Gauge "kafka_consumergroup_state" ["consumergroup", "state"] "Always 1; its label is the group's state";
    GROUP_REBALANCES = Counter "kafka_consumergroup_rebalances_total" ["consumergroup", "cause"] "Rebalances that began, by cause; the last member's going is none";
    GROUP_UNOWNED = Counter "kafka_consumergroup_unowned_partition_seconds_total" ["consumergroup"] "Partition-seconds that partitions of the group's topics had no owner while it had members";
    GROUP_ABANDONED = Gauge "kafka_consumergroup_abandoned_partitions" ["consumergroup"] "Partitions with a commit whose topic the group's members read no more";
    GROUP_UNCOMMITTED = Gauge "kafka_consumergroup_uncommitted_partitions" ["consumergroup"] "Partitions that members fetch and never committed";
    GROUP_STUCK = Gauge "kafka_consumergroup_stuck_partitions" ["consumergroup"] "Partitions with records to read whose owner has taken no step for five minutes";
    GROUP_BEYOND = Gauge "kafka_consumergroup_beyond_end_partitions" ["consumergroup"] "Partitions whose commit lies beyond the end: the next fetch is out of range, and auto.offset.reset says where it goes on";
    PARTITION_PRODUCE_RATE = Gauge "highwater_partition_produce_rate_records" ["topic", "partition"] "Records appended per second, over the last minute or so";
    TOPIC_SKEW = Gauge "highwater_topic_produce_skew_ratio" ["topic"] "The busiest partition's produce rate over the mean; 1 is even";
    PARTITION_OFFLINE = Gauge "highwater_partition_offline" ["topic", "partition"] "Always 1; there for partitions that take no writes";
    OFFLINE_PARTITIONS = Gauge "highwater_offline_partitions" [] "Partitions that take no writes";
    OPEN_TXN_AGE = Gauge "highwater_partition_open_transaction_age_seconds" ["topic", "partition"] "Age of the oldest open transaction, where one holds readers of committed records back";
    OPEN_TXN_INFO = Gauge "highwater_partition_open_transaction_info" ["topic", "partition", "producer_id", "transactional_id", "ended_by"] "Always 1; its labels name that transaction once it is open for 10 seconds or hangs: ended_by is coordinator, nobody (it hangs: only an administrator ends it) or unknown";
    OPEN_TXN_PRODUCER = Gauge "highwater_partition_open_transaction_producer_id" ["topic", "partition"] "The producer of that transaction";
    LAG_DROPPED = Gauge "highwater_lag_dropped_series" [] "Series left out of this scrape because of lag.metrics.max.series";
    LAG_PENDING = Gauge "highwater_lag_pending_partitions" [] "Groups' partitions whose first unconsumed record is still looked for";
    SEGLO_LATEST = Gauge "kafka_partition_latest_offset" ["cluster_name", "topic", "partition"] "The offset after the partition's last record (kafka-lag-exporter's name)";
    SEGLO_EARLIEST = Gauge "kafka_partition_earliest_offset" ["cluster_name", "topic", "partition"] "The first offset that the partition still has (kafka-lag-exporter's name)";
    SEGLO_GROUP_OFFSET = Gauge "kafka_consumergroup_group_offset" ["cluster_name", "group", "topic", "partition", "member_host", "consumer_id", "client_id"] "The offset that the group committed (kafka-lag-exporter's name)";
    SEGLO_GROUP_LAG = Gauge "kafka_consumergroup_group_lag" ["cluster_name", "group", "topic", "partition", "member_host", "consumer_id", "client_id"] "Records behind (kafka-lag-exporter's name)";
    SEGLO_GROUP_LAG_SECONDS = Gauge "kafka_consumergroup_group_lag_seconds" ["cluster_name", "group", "topic", "partition", "member_host", "consumer_id", "client_id"] "Time behind (kafka-lag-exporter's name)";
    SEGLO_GROUP_MAX_LAG = Gauge "kafka_consumergroup_group_max_lag" ["cluster_name", "group"] "The most records behind of the group's partitions (kafka-lag-exporter's name)";
    SEGLO_GROUP_MAX_LAG_SECONDS = Gauge "kafka_consumergroup_group_max_lag_seconds" ["cluster_name", "group"] "The worst time behind of the group's partitions (kafka-lag-exporter's name)";
    SEGLO_GROUP_SUM_LAG = Gauge "kafka_consumergroup_group_sum_lag" ["cluster_name", "group"] "Records behind, over the group's partitions (kafka-lag-exporter's name)";
    SEGLO_GROUP_TOPIC_SUM_LAG = Gauge "kafka_consumergroup_group_topic_sum_lag" ["cluster_name", "group", "topic"] "Records behind, over the topic's partitions (kafka-lag-exporter's name)";
    BUILD_INFO = Gauge "highwater_build_info" ["version"] "Always 1; its label says which version runs";
    PROCESS_START_TIME = Gauge "process_start_time_seconds" [] "When the process started, in seconds since 1970";
    PROCESS_CPU = Counter "process_cpu_seconds_total" [] "CPU time, user and system";
    PROCESS_RESIDENT = Gauge "process_resident_memory_bytes" [] "Resident memory";
    PROCESS_VIRTUAL = Gauge "process_virtual_memory_bytes" [] "Virtual memory";
    PROCESS_THREADS = Gauge "process_threads" [] "Threads";
    PROCESS_OPEN_FDS = Gauge "process_open_fds" [] "Open file descriptors";
    PROCESS_MAX_FDS = Gauge "process_max_fds" [] "File descriptors that the process may open";
}

/// README's table of metrics, in Markdown.
pub fn readme_table() -> String {
    let mut table = String::from("| metric | type | labels | what it says |\n| --- | --- | --- | --- |\n");
    for metric in ALL {
        let labels = metric.labels.iter().map(|label| format!("`{label}`")).collect::<Vec<_>>().join(", ");
        let _ = writeln!(table, "| `{}` | {} | {labels} | {} |", metric.name, metric.kind.name(), metric.help);
    }
    table
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeSet;

    #[test]
    fn names_follow_prometheus_rules() {
        let mut seen = BTreeSet::new();
        for metric in ALL {
            let name = metric.name;
            assert!(seen.insert(name), "{name} twice");
            assert!(name.bytes().all(|b| b.is_ascii_lowercase() || b.is_ascii_digit() || b == b'_'), "{name}");
            assert!(["highwater_", "process_", "kafka_"].iter().any(|prefix| name.starts_with(prefix)), "{name}");
            assert_eq!(name.ends_with("_total"), metric.kind == Kind::Counter, "{name}: _total is for counters and for them alone");
            for ending in ["_count", "_sum", "_bucket", "_info_total"] {
                // kafka_exporter's name is what it is.
                assert!(!name.ends_with(ending) || name.starts_with("kafka_consumergroup_"), "{name}");
            }
            for unit in
                ["_ms", "milliseconds", "_kb", "kilobytes", "_mb", "minutes", "hours", "_percent", "_counter", "_gauge", "_histogram"]
            {
                assert!(!name.contains(unit), "{name} is not in base units");
            }
            if matches!(metric.kind, Kind::Histogram(_)) {
                assert!(name.ends_with("_seconds") || name.ends_with("_bytes"), "{name} has no unit");
            }
        }
    }

    #[test]
    fn helps_and_labels_are_well_formed() {
        for metric in ALL {
            assert!(!metric.help.is_empty() && !metric.help.ends_with('.') && !metric.help.contains(['\n', '|']), "{}", metric.name);
            for label in metric.labels {
                assert!(label.bytes().all(|b| b.is_ascii_lowercase() || b == b'_') && !label.starts_with("__"), "{}: {label}", metric.name);
                assert!(!["le", "quantile", "job", "instance"].contains(label), "{}: {label} is Prometheus' own", metric.name);
            }
            let Kind::Histogram(buckets) = metric.kind else { continue };
            assert!(!buckets.is_empty() && buckets.windows(2).all(|pair| pair[0] < pair[1]), "{}", metric.name);
        }
    }

    #[test]
    fn readme_has_a_row_for_each() {
        let table = readme_table();
        assert_eq!(table.lines().count(), ALL.len() + 2);
        assert!(table.lines().all(|row| row.matches('|').count() == 5), "a cell holds a bar");
        assert!(table.contains("| `highwater_requests_total` | counter | `api`, `error` |"));
    }
}
