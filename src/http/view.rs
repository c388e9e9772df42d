//! What the JSON API answers, field by field: written by the broker, read by the command line. Instants end in `_ms` (since 1970), spans in
//! `_seconds`; what isn't known is null.

use serde::{Deserialize, Serialize};

/// A moment of a group's past: when (ms), records behind, time behind (seconds).
pub type Point = (i64, i64, Option<f64>);

#[derive(Serialize, Deserialize, Debug, Clone)]
pub struct Overview {
    pub now_ms: i64,
    pub cluster_id: String,
    pub version: String,
    pub uptime_seconds: f64,
    pub brokers: usize,
    pub topics: usize,
    pub partitions: usize,
    pub offline_partitions: usize,
    pub groups: GroupCounts,
    /// The one that is behind most; null if none is.
    pub worst_group: Option<WorstGroup>,
    /// Partitions where a transaction that is open for long, or hangs, holds readers of committed records back.
    pub held_back_partitions: usize,
    /// Of those, the ones where it is open for longest.
    pub held_back: Vec<HeldBack>,
    pub produce_records_per_second: f64,
    pub produce_bytes_per_second: f64,
    pub size_bytes: u64,
}

#[derive(Serialize, Deserialize, Debug, Clone, Default)]
pub struct GroupCounts {
    pub total: usize,
    pub behind: usize,
    /// Those behind by a minute or more.
    pub late: usize,
    pub stable: usize,
    pub rebalancing: usize,
    pub empty: usize,
}

#[derive(Serialize, Deserialize, Debug, Clone)]
pub struct WorstGroup {
    pub group: String,
    pub lag_seconds: Option<f64>,
    pub lag: i64,
}

/// A partition whose readers of committed records wait for a transaction.
#[derive(Serialize, Deserialize, Debug, Clone)]
pub struct HeldBack {
    pub topic: String,
    pub partition: i32,
    pub open_transaction: OpenTransaction,
}

#[derive(Serialize, Deserialize, Debug, Clone)]
pub struct Groups {
    pub now_ms: i64,
    /// All that have what was looked for in their names.
    pub total: usize,
    /// The worst first.
    pub groups: Vec<Group>,
}

#[derive(Serialize, Deserialize, Debug, Clone)]
pub struct Group {
    pub group: String,
    pub state: String,
    #[serde(rename = "type")]
    pub kind: String,
    pub protocol_type: String,
    pub members: usize,
    pub topics: Vec<String>,
    pub partitions: usize,
    pub lag: i64,
    pub lag_seconds: Option<f64>,
    pub event_lag_seconds: Option<f64>,
    pub max_lag: i64,
    pub retention_margin_seconds: Option<f64>,
    pub lost_records: u64,
    pub consume_rate: Option<f64>,
    pub produce_rate: Option<f64>,
    /// Null where it never does, or that isn't known: `catches_up` tells.
    pub catch_up_seconds: Option<f64>,
    pub catches_up: Option<bool>,
    pub last_commit_ms: Option<i64>,
    pub oldest_unconsumed_ms: Option<i64>,
    pub abandoned_partitions: usize,
    pub uncommitted_partitions: usize,
    pub pending_partitions: usize,
    pub stuck_partitions: usize,
    pub beyond_end_partitions: usize,
    /// Partitions where the group waits for a transaction that is open for long, or hangs.
    pub held_back_partitions: usize,
    pub rebalances: u64,
    pub rebalancing_since_ms: Option<i64>,
    pub unowned_partition_seconds: f64,
    pub history: Vec<Point>,
}

#[derive(Serialize, Deserialize, Debug, Clone)]
pub struct GroupDetail {
    pub now_ms: i64,
    #[serde(flatten)]
    pub group: Group,
    pub generation: i32,
    pub protocol: String,
    pub leader: Option<String>,
    pub members_list: Vec<Member>,
    pub partitions_list: Vec<GroupPartition>,
    pub rebalances_by_cause: std::collections::BTreeMap<String, u64>,
    /// The newest first.
    pub rebalances_list: Vec<Rebalance>,
}

#[derive(Serialize, Deserialize, Debug, Clone)]
pub struct Member {
    pub member_id: String,
    pub instance_id: Option<String>,
    pub client_id: String,
    pub host: String,
    pub assignment: Vec<Assigned>,
    pub lag: i64,
    pub lag_seconds: Option<f64>,
    /// Its heartbeat is held back just now: it hears of a rebalance at once.
    #[serde(default)]
    pub hears_at_once: bool,
}

#[derive(Serialize, Deserialize, Debug, Clone)]
pub struct Assigned {
    pub topic: String,
    pub partitions: Vec<i32>,
}

#[derive(Serialize, Deserialize, Debug, Clone)]
pub struct GroupPartition {
    pub topic: String,
    pub partition: i32,
    pub member_id: Option<String>,
    pub client_id: Option<String>,
    pub host: Option<String>,
    pub reading: String,
    pub committed: Option<i64>,
    pub committed_at_ms: Option<i64>,
    pub commit_age_seconds: Option<f64>,
    pub log_start: Option<i64>,
    pub end: Option<i64>,
    pub first_unconsumed: Option<i64>,
    pub lag: Option<i64>,
    pub lag_seconds: Option<f64>,
    pub event_lag_seconds: Option<f64>,
    pub oldest_unconsumed_ms: Option<i64>,
    pub arrived_ms: Option<i64>,
    pub retention_margin_seconds: Option<f64>,
    pub lost_records: u64,
    pub consume_rate: Option<f64>,
    pub produce_rate: Option<f64>,
    /// Null where it never does, or that isn't known: `catches_up` tells.
    pub catch_up_seconds: Option<f64>,
    pub catches_up: Option<bool>,
    pub read_committed: bool,
    /// The oldest open transaction, where the group reads committed records and waits for it.
    pub open_transaction: Option<OpenTransaction>,
    /// Offsets from where it stops to the high watermark.
    pub held_back: i64,
    pub pending: bool,
    /// How long it has stood before the first unconsumed record.
    pub stalled_seconds: Option<f64>,
    /// It has an owner, and that has been five minutes.
    pub stuck: bool,
    /// Offsets by which the commit lies beyond the end; mostly 0.
    pub beyond_end: i64,
}

#[derive(Serialize, Deserialize, Debug, Clone)]
pub struct Rebalance {
    pub began_ms: i64,
    pub joined_ms: Option<i64>,
    pub ended_ms: Option<i64>,
    pub outcome: Option<String>,
    pub cause: String,
    pub why: String,
    pub from_generation: i32,
    pub generation: Option<i32>,
    pub members_before: usize,
    pub members: Option<usize>,
    pub removed: Vec<String>,
    pub last: Option<String>,
    /// Of all partitions together; while it is under way, so far.
    pub unowned_partition_seconds: f64,
    /// The partitions that changed hands by it and had no owner meanwhile; of many, the first 1000.
    pub unowned: Vec<Unowned>,
}

/// How long a partition had no owner.
#[derive(Serialize, Deserialize, Debug, Clone)]
pub struct Unowned {
    pub topic: String,
    pub partition: i32,
    pub seconds: f64,
}

#[derive(Serialize, Deserialize, Debug, Clone)]
pub struct Topics {
    pub now_ms: i64,
    pub total: usize,
    pub topics: Vec<Topic>,
}

#[derive(Serialize, Deserialize, Debug, Clone)]
pub struct Topic {
    pub topic: String,
    pub id: String,
    pub internal: bool,
    pub partitions: usize,
    pub replication_factor: usize,
    pub size_bytes: u64,
    pub records: i64,
    pub produce_rate: f64,
    pub produce_bytes_per_second: f64,
    pub skew: Option<f64>,
    pub hottest_partition: Option<i32>,
    pub groups: usize,
    pub offline_partitions: usize,
    pub cleanup_policy: String,
    pub retention_ms: i64,
}

#[derive(Serialize, Deserialize, Debug, Clone)]
pub struct TopicDetail {
    pub now_ms: i64,
    #[serde(flatten)]
    pub topic: Topic,
    pub partitions_list: Vec<TopicPartition>,
    pub configs: Vec<Config>,
    pub consumers: Vec<Consumer>,
}

#[derive(Serialize, Deserialize, Debug, Clone)]
pub struct TopicPartition {
    pub partition: i32,
    pub leader: i32,
    pub replicas: Vec<i32>,
    pub isr: Vec<i32>,
    pub log_start: Option<i64>,
    pub last_stable: Option<i64>,
    pub high_watermark: Option<i64>,
    pub log_end: Option<i64>,
    pub size_bytes: u64,
    pub segments: usize,
    pub produce_rate: Option<f64>,
    pub produce_bytes_per_second: Option<f64>,
    /// Of what is produced to the topic, from 0 to 1.
    pub share: Option<f64>,
    pub offline: Option<String>,
    pub open_transaction: Option<OpenTransaction>,
}

#[derive(Serialize, Deserialize, Debug, Clone)]
pub struct OpenTransaction {
    pub producer_id: i64,
    /// Where its coordinator has the partition in a transaction; null where it hangs.
    pub transactional_id: Option<String>,
    /// `coordinator`; `nobody`, where it hangs and only an administrator ends it; `unknown`.
    pub ended_by: String,
    pub since_ms: i64,
    pub age_seconds: f64,
    pub first_offset: i64,
}

#[derive(Serialize, Deserialize, Debug, Clone)]
pub struct Config {
    pub name: String,
    pub value: Option<String>,
    pub default: bool,
}

#[derive(Serialize, Deserialize, Debug, Clone)]
pub struct Consumer {
    pub group: String,
    pub state: String,
    pub members: usize,
    pub reading: String,
    pub lag: i64,
    pub lag_seconds: Option<f64>,
}

#[derive(Serialize, Deserialize, Debug, Clone)]
pub struct Records {
    pub now_ms: i64,
    pub topic: String,
    pub partition: i32,
    pub log_start: i64,
    pub end: i64,
    /// Where the page after this one begins.
    pub next: i64,
    /// Where the page before this one begins; null if this is the first.
    pub previous: Option<i64>,
    pub truncated: bool,
    pub records: Vec<Record>,
}

#[derive(Serialize, Deserialize, Debug, Clone)]
pub struct Record {
    /// The first one, where several are unreadable.
    pub offset: i64,
    /// The last one of a batch that is unreadable.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub last_offset: Option<i64>,
    /// Why it is.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub error: Option<String>,
    pub timestamp_ms: i64,
    pub timestamp_type: String,
    pub size_bytes: usize,
    /// `record`; `control` for what ends a transaction; `unreadable` for a batch, or the rest of one, that can't be decoded.
    pub kind: String,
    /// `COMMIT` or `ABORT`.
    pub marker: Option<String>,
    pub key: Option<Bytes>,
    pub value: Option<Bytes>,
    pub headers: Vec<Header>,
}

/// Bytes for people: as they came if they are text, else in hexadecimal.
#[derive(Serialize, Deserialize, Debug, Clone, PartialEq, Eq)]
pub struct Bytes {
    /// `text`, `json` or `hex`.
    pub format: String,
    pub text: String,
    pub size_bytes: usize,
    pub cut: bool,
}

#[derive(Serialize, Deserialize, Debug, Clone)]
pub struct Header {
    pub key: String,
    pub value: Option<Bytes>,
}

#[derive(Serialize, Deserialize, Debug, Clone)]
pub struct Broker {
    pub now_ms: i64,
    pub id: i32,
    pub version: String,
    pub cluster_id: String,
    pub rack: Option<String>,
    pub uptime_seconds: f64,
    pub started_ms: i64,
    pub ready: bool,
    pub not_ready_reason: Option<String>,
    pub listeners: Vec<Listener>,
    pub http: Vec<String>,
    pub memory: Memory,
    pub cpu_seconds: Option<f64>,
    pub threads: Option<u64>,
    pub open_files: Option<u64>,
    pub max_files: Option<u64>,
    pub connections: u64,
    pub log_dirs: Vec<LogDir>,
}

#[derive(Serialize, Deserialize, Debug, Clone)]
pub struct Listener {
    pub name: String,
    pub address: String,
}

#[derive(Serialize, Deserialize, Debug, Clone)]
pub struct Memory {
    pub resident_bytes: Option<u64>,
    pub virtual_bytes: Option<u64>,
}

#[derive(Serialize, Deserialize, Debug, Clone)]
pub struct LogDir {
    pub path: String,
    pub online: bool,
    pub reason: Option<String>,
    pub full: bool,
    pub total_bytes: Option<u64>,
    pub free_bytes: Option<u64>,
    pub partitions: usize,
    pub size_bytes: u64,
}

/// Any answer that isn't 200.
#[derive(Serialize, Deserialize, Debug, Clone)]
pub struct Failure {
    pub error: String,
}
