//! A topic's configuration, checked and resolved: what the log obeys.

use crate::{
    record::{Compression, TimestampType},
    types::Millis,
};

/// `compression.type`: keep the producer's codec or recompress.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum CompressionType {
    Producer,
    Codec(Compression),
}

/// Kafka's topic configs (`org.apache.kafka.common.config.TopicConfig`), each with its own override or the broker's default.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct TopicConfig {
    /// `cleanup.policy` names `compact`.
    pub cleanup_compact: bool,
    /// `cleanup.policy` names `delete`.
    pub cleanup_delete: bool,
    pub compression_type: CompressionType,
    pub compression_gzip_level: i32,
    pub compression_lz4_level: i32,
    pub compression_zstd_level: i32,
    pub delete_retention_ms: i64,
    pub file_delete_delay_ms: i64,
    pub flush_messages: i64,
    pub flush_ms: i64,
    pub index_interval_bytes: usize,
    pub max_compaction_lag_ms: i64,
    /// Of one record of a compressed batch; at Kafka's default no batch is decompressed for it.
    pub max_decompressed_message_bytes: usize,
    pub max_message_bytes: usize,
    pub message_timestamp_type: TimestampType,
    pub message_timestamp_before_max_ms: i64,
    pub message_timestamp_after_max_ms: i64,
    /// In millionths, so that the struct compares exactly.
    pub min_cleanable_dirty_ratio_ppm: u32,
    pub min_compaction_lag_ms: i64,
    pub min_insync_replicas: i32,
    pub preallocate: bool,
    pub retention_bytes: i64,
    pub retention_ms: i64,
    pub segment_bytes: usize,
    pub segment_index_bytes: usize,
    pub segment_jitter_ms: i64,
    pub segment_ms: i64,
    pub unclean_leader_election_enable: bool,
}

impl Default for TopicConfig {
    /// Kafka 4's defaults.
    fn default() -> Self {
        const DAY_MS: i64 = 86_400_000;
        Self {
            cleanup_compact: false,
            cleanup_delete: true,
            compression_type: CompressionType::Producer,
            compression_gzip_level: -1,
            compression_lz4_level: 9,
            compression_zstd_level: 3,
            delete_retention_ms: DAY_MS,
            file_delete_delay_ms: 60_000,
            flush_messages: i64::MAX,
            flush_ms: i64::MAX,
            index_interval_bytes: 4096,
            max_compaction_lag_ms: i64::MAX,
            max_decompressed_message_bytes: Self::NO_BOUND_BYTES,
            max_message_bytes: 1_048_588,
            message_timestamp_type: TimestampType::CreateTime,
            message_timestamp_before_max_ms: i64::MAX,
            message_timestamp_after_max_ms: 3_600_000,
            min_cleanable_dirty_ratio_ppm: 500_000,
            min_compaction_lag_ms: 0,
            min_insync_replicas: 1,
            preallocate: false,
            retention_bytes: -1,
            retention_ms: 7 * DAY_MS,
            segment_bytes: 1 << 30,
            segment_index_bytes: 10 << 20,
            segment_jitter_ms: 0,
            segment_ms: 7 * DAY_MS,
            unclean_leader_election_enable: false,
        }
    }
}

impl TopicConfig {
    /// `max.decompressed.message.bytes` where it is no bound.
    const NO_BOUND_BYTES: usize = 2_147_483_639;

    /// Whether records of compressed batches are looked at for their size.
    pub fn bounds_decompressed(&self) -> bool {
        self.max_decompressed_message_bytes < Self::NO_BOUND_BYTES
    }

    /// The level for a codec; 0 for those that have none.
    pub fn compression_level(&self, codec: Compression) -> i32 {
        match codec {
            Compression::Gzip => self.compression_gzip_level,
            Compression::Lz4 => self.compression_lz4_level,
            Compression::Zstd => self.compression_zstd_level,
            Compression::None | Compression::Snappy => 0,
        }
    }

    /// How old a segment becomes at the most before a new one begins: on a compacted topic no older than its records may wait for being
    /// compacted, since a segment that's written to isn't (`LogConfig.maxSegmentMs`).
    pub fn segment_ms_max(&self) -> i64 {
        if self.cleanup_compact && self.max_compaction_lag_ms > 0 {
            self.segment_ms.min(self.max_compaction_lag_ms)
        } else {
            self.segment_ms
        }
    }

    /// The oldest and newest timestamps that a record may carry at `now`.
    pub fn timestamp_bounds(&self, now: Millis) -> (Millis, Millis) {
        (Millis(now.0.saturating_sub(self.message_timestamp_before_max_ms)), now.plus(self.message_timestamp_after_max_ms))
    }
}
