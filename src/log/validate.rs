//! What Kafka checks on a batch before it gives it offsets (`LogValidator`, `UnifiedLog.analyzeAndValidateRecords`,
//! `ProduceRequest.validateRecords`).
//!
//! Pure. It never assigns an offset, and it never copies a batch unless the topic's `compression.type` forces another codec.
//!
//! Uncompressed records are walked (lengths, counts, offsets, timestamps, keys), which costs a fraction of the CRC. Compressed ones are
//! not touched unless the answer needs it: a compacted topic, another codec, a bound on decompressed records, timestamps that look out of bounds; else only their first bytes
//! are compared with the codec's. That is less than Kafka does, which decompresses every batch: compressed bytes that are broken under
//! a right CRC are found by who reads them.

use super::{AppendError, RecordError, verification::Proof};
use crate::{
    config::{CompressionType, TopicConfig},
    record::{
        BatchHeader, BatchRecords, Compression, HEADER_BYTES, RecordsError, TimestampType,
        compression::{self, CompressionError},
        header::{CRC_COVERS_FROM, LOG_OVERHEAD, MAGIC},
        records::RawRecord,
        varint::read_varint,
    },
    types::{Millis, Offset},
};
use bytes::Bytes;

/// A batch may decompress to this many times `max.message.bytes` …
const DECOMPRESSED_RATIO_MAX: usize = 64;
/// … but to no more than this, whatever the config, and to no less than [`DECOMPRESSED_BYTES_FLOOR`].
pub const DECOMPRESSED_BYTES_MAX: usize = 128 << 20;
const DECOMPRESSED_BYTES_FLOOR: usize = 1 << 20;
/// As many records are blamed by index in an answer. The client fails the others of the batch with a general message.
const RECORD_ERRORS_MAX: usize = 100;
/// Carrying a CRC over costs some 5 µs whatever the length, as much as reading this many bytes.
const CARRIED_CRC_FROM_BYTES: usize = 128 << 10;
/// The first Produce version whose clients may send zstd (KIP-110).
const ZSTD_FROM_PRODUCE_VERSION: i16 = 7;

/// Who appends (`AppendOrigin`): how much is checked.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Origin {
    /// A Produce request: everything is checked. A transactional batch may only go on in a transaction that is open.
    Client,
    /// A Produce request that says how its transaction is known (KIP-890).
    ClientInTransaction(Proof),
    /// A coordinator of this broker: writes its own topic, without sequences.
    Coordinator,
    /// The same for a client's transaction: offsets of a group.
    CoordinatorInTransaction(Proof),
    /// The marker that ends a transaction, by the rules of its coordinator's `transaction.version`.
    Marker { transaction_version: i16 },
    /// A copy from the leader, which has checked it; only its integrity is checked.
    Replication,
}

impl Origin {
    pub fn is_client(self) -> bool {
        matches!(self, Self::Client | Self::ClientInTransaction(_))
    }

    /// What allows a batch to open a transaction.
    pub fn proof(self) -> Proof {
        match self {
            Self::ClientInTransaction(proof) | Self::CoordinatorInTransaction(proof) => proof,
            Self::Client | Self::Coordinator | Self::Marker { .. } | Self::Replication => Proof::Missing,
        }
    }
}

/// A batch that may be appended: write `header` (with the offset and leader epoch that the log gives it; the CRC covers neither) and then `records`.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Accepted {
    /// The header as it is to be stored, CRC included: differs from the one that came if the topic stamps LogAppendTime or recompresses.
    pub header: BatchHeader,
    /// Everything after the header, as it is to be stored: a slice of what came, or the recompressed records.
    pub records: Bytes,
    /// The time that the topic stamped; [`Millis::NONE`] under CreateTime. What a Produce answer says.
    pub log_append_time: Millis,
}

impl Accepted {
    /// The whole batch in bytes.
    pub fn size(&self) -> usize {
        HEADER_BYTES.saturating_add(self.records.len())
    }
}

/// The most that a batch of this topic may decompress to when its records have to be seen.
pub fn decompressed_bytes_max(config: &TopicConfig) -> usize {
    config.max_message_bytes.saturating_mul(DECOMPRESSED_RATIO_MAX).clamp(DECOMPRESSED_BYTES_FLOOR, DECOMPRESSED_BYTES_MAX)
}

/// What a Produce request's records of one partition must be, by the request's version: exactly one batch, of magic 2, with zstd only from
/// version 7 on. Answers that batch's bytes; an incomplete batch after it is cut off, as Kafka does.
pub fn split_one_batch(records: &Bytes, produce_version: i16) -> Result<Bytes, AppendError> {
    let size = whole_batch(records)?.ok_or_else(|| invalid("a Produce request needs one record batch per partition".into()))?;
    let magic = records.get(16).map_or(MAGIC, |byte| byte.cast_signed());
    if magic != MAGIC {
        return Err(invalid(format!("only record batches of magic {MAGIC} are accepted, not of magic {magic}")));
    }
    let batch = records.slice(..size);
    let header = BatchHeader::parse(&batch).ok_or_else(|| cut_short(batch.len()))?;
    if header.compression() == Some(Compression::Zstd) && produce_version < ZSTD_FROM_PRODUCE_VERSION {
        return Err(AppendError::UnsupportedCompression(format!("zstd is not allowed in Produce requests of version {produce_version}")));
    }
    let after = records.slice(size..);
    if whole_batch(&after)?.is_some() {
        return Err(invalid("a Produce request may have only one record batch per partition".into()));
    }
    Ok(batch)
}

/// The size of the batch that `bytes` begin with; `None` if it isn't there whole (`ByteBufferLogInputStream.nextBatch`).
///
/// # Errors
/// If its length or magic can't be.
pub fn whole_batch(bytes: &[u8]) -> Result<Option<usize>, AppendError> {
    /// The smallest message of the oldest magic.
    const LENGTH_MIN: i32 = 14;
    let Some(length) = bytes.get(8..).and_then(|b| b.first_chunk()) else { return Ok(None) };
    let length = i32::from_be_bytes(*length);
    if length < LENGTH_MIN {
        return Err(AppendError::Corrupt(format!("batch length {length} is less than the least, {LENGTH_MIN}")));
    }
    let Some(magic) = bytes.get(16).map(|byte| byte.cast_signed()) else { return Ok(None) };
    if !(0..=MAGIC).contains(&magic) {
        return Err(AppendError::Corrupt(format!("unknown magic {magic}")));
    }
    let size = usize::try_from(length).unwrap_or(usize::MAX).saturating_add(LOG_OVERHEAD);
    Ok((size <= bytes.len()).then_some(size))
}

/// Checks one batch's bytes, and prepares what is to be stored.
pub fn validate(batch: &Bytes, config: &TopicConfig, now: Millis, origin: Origin) -> Result<Accepted, AppendError> {
    let header = check_envelope(batch, config, origin)?;
    let codec = header.compression().ok_or_else(|| unknown_codec(&header))?;
    let records = batch.slice(HEADER_BYTES..);
    if origin == Origin::Replication {
        return Ok(Accepted { header, records, log_append_time: Millis::NONE });
    }
    if origin.is_client() {
        check_client_header(&header)?;
    }
    let target = match config.compression_type {
        // Markers stay as they are written.
        CompressionType::Producer => codec,
        CompressionType::Codec(_) if header.is_control() => codec,
        CompressionType::Codec(target) => target,
    };
    let mut stored = header;
    let mut accepted_records = records.clone();
    if codec == Compression::None && target == Compression::None {
        let max_timestamp = check_records(&records, &header, config, now, usize::MAX)?;
        set_timestamps(&mut stored, config, now, max_timestamp);
    } else if needs_records(&header, codec, codec != target, config, now) {
        let opened = BatchRecords::from_parts(header, &records, decompressed_bytes_max(config)).map_err(refused)?;
        let record_max = if codec == Compression::None { usize::MAX } else { config.max_decompressed_message_bytes };
        let max_timestamp = check_records(opened.body(), &header, config, now, record_max)?;
        set_timestamps(&mut stored, config, now, max_timestamp);
        if codec != target {
            accepted_records = recompress(target, config, opened.body())?;
            stored.set_compression(target);
            stored.drop_unknown_attributes();
            let length = accepted_records.len().saturating_add(HEADER_BYTES - LOG_OVERHEAD);
            stored.batch_length = i32::try_from(length).unwrap_or(i32::MAX);
            stored.crc = crc32c::crc32c_append(head_crc(&stored), &accepted_records);
        }
    } else if compression::begins_like(codec, &records) {
        set_timestamps(&mut stored, config, now, header.max_timestamp);
    } else {
        return Err(invalid(format!("the records are not compressed with {codec:?}, as the header says")));
    }
    if codec == target && stored != header {
        stored.crc = restamped_crc(&header, &stored, &records);
    }
    let log_append_time = match config.message_timestamp_type {
        TimestampType::CreateTime => Millis::NONE,
        TimestampType::LogAppendTime => now,
    };
    let accepted = Accepted { header: stored, records: accepted_records, log_append_time };
    if !matches!(origin, Origin::Marker { .. }) {
        check_size(accepted.size(), config)?;
    }
    Ok(accepted)
}

/// Length, magic, size limits, base offset and CRC.
fn check_envelope(batch: &Bytes, config: &TopicConfig, origin: Origin) -> Result<BatchHeader, AppendError> {
    let header = BatchHeader::parse(batch).ok_or_else(|| cut_short(batch.len()))?;
    if header.magic != MAGIC {
        return Err(AppendError::UnsupportedMagic(header.magic));
    }
    if header.size() != Some(batch.len()) {
        return Err(AppendError::Corrupt(format!("batch length {} in {} bytes", header.batch_length, batch.len())));
    }
    if origin.is_client() && header.base_offset != Offset(0) {
        return Err(invalid(format!("the base offset of a produced batch must be 0, not {}", header.base_offset)));
    }
    // A transaction whose marker is too large for its topic would never end.
    let has_limit = !matches!(origin, Origin::Replication | Origin::Marker { .. });
    if has_limit && batch.len() > config.max_message_bytes {
        return Err(AppendError::TooLarge { size: batch.len(), max: config.max_message_bytes });
    }
    let computed = crate::record::header::batch_crc(batch);
    if computed != header.crc {
        return Err(AppendError::Corrupt(format!("CRC-32C is {computed:#010x}, the header says {:#010x}", header.crc)));
    }
    Ok(header)
}

/// What a client may say in a header (`LogValidator.validateBatch`).
fn check_client_header(header: &BatchHeader) -> Result<(), AppendError> {
    let (count, last) = (header.record_count, header.last_offset_delta);
    if count <= 0 || i64::from(last) + 1 != i64::from(count) {
        return Err(invalid(format!("{count} records do not fit a last offset delta of {last}")));
    }
    if header.is_control() {
        return Err(invalid("clients may not write control records".into()));
    }
    if header.has_producer() && header.base_sequence < 0 {
        return Err(invalid(format!("sequence {} of producer {} is negative", header.base_sequence, header.producer_id)));
    }
    if header.is_transactional() && !header.has_producer() {
        return Err(invalid("a transactional batch needs a producer id".into()));
    }
    Ok(())
}

/// Whether a compressed (or to be compressed) batch's records must be seen.
fn needs_records(header: &BatchHeader, codec: Compression, recompress: bool, config: &TopicConfig, now: Millis) -> bool {
    let timestamps = || match config.message_timestamp_type {
        // Such a batch is refused, record by record; see `TimestampCheck`.
        TimestampType::LogAppendTime => header.timestamp_type() == TimestampType::LogAppendTime,
        // The header knows the newest timestamp only, so any bound on the oldest one needs all.
        TimestampType::CreateTime => {
            header.timestamp_type() == TimestampType::LogAppendTime
                || config.message_timestamp_before_max_ms != i64::MAX
                || header.max_timestamp > config.timestamp_bounds(now).1
                || header.max_timestamp < header.base_timestamp
        }
    };
    recompress || config.cleanup_compact || codec != Compression::None && config.bounds_decompressed() || timestamps()
}

/// Walks the encoded records; answers their newest timestamp. Every record must be well formed and carry its place as its offset
/// delta, and there must be as many as the header says. None may take more than `record_max` bytes.
fn check_records(
    mut body: &[u8],
    header: &BatchHeader,
    config: &TopicConfig,
    now: Millis,
    record_max: usize,
) -> Result<Millis, AppendError> {
    let (oldest, newest) = config.timestamp_bounds(now);
    let create_time = config.message_timestamp_type == TimestampType::CreateTime;
    let stamped = !create_time && header.timestamp_type() == TimestampType::LogAppendTime;
    let mut max_timestamp = Millis::NONE;
    let mut errors = Errors::default();
    for index in 0..header.record_count {
        if record_max < usize::MAX {
            check_record_size(body, index, record_max)?;
        }
        let record = RawRecord::read(&mut body).map_err(|what| refused(RecordsError::Malformed { index, what }))?;
        if record.offset_delta != index {
            return Err(invalid(format!("record {index} has offset delta {}", record.offset_delta)));
        }
        // A wrapped timestamp is what every reader gets from the same bytes.
        let timestamp = Millis(header.base_timestamp.0.wrapping_add(record.timestamp_delta));
        max_timestamp = max_timestamp.max(timestamp);
        if config.cleanup_compact && record.key.is_none() {
            errors.push(index, false, || "Compacted topic cannot accept message without key".into());
        } else if create_time && timestamp != Millis::NONE && !(oldest..=newest).contains(&timestamp) {
            errors.push(index, true, || {
                format!("Timestamp {timestamp} of message {index} is out of range. The timestamp should be within [{oldest}, {newest}]")
            });
        } else if stamped {
            errors.push(index, true, || "Producer should not set timestamp type to LogAppendTime".into());
        }
    }
    if !body.is_empty() {
        return Err(refused(RecordsError::BytesOver(header.record_count)));
    }
    errors.result().map(|()| max_timestamp)
}

/// Holds the size of the record that `body` begins with, as its length says it, against `max.decompressed.message.bytes`.
fn check_record_size(mut body: &[u8], index: i32, max: usize) -> Result<(), AppendError> {
    match read_varint(&mut body).and_then(|length| usize::try_from(length).ok()) {
        Some(size) if size > max => {
            Err(invalid(format!("record {index} takes {size} bytes decompressed, max.decompressed.message.bytes is {max}")))
        }
        _ => Ok(()),
    }
}

/// The records of a batch that are to blame.
#[derive(Default)]
struct Errors {
    records: Vec<RecordError>,
    count: usize,
    timestamp: bool,
}

impl Errors {
    fn push(&mut self, batch_index: i32, timestamp: bool, message: impl FnOnce() -> String) {
        self.count = self.count.saturating_add(1);
        self.timestamp |= timestamp;
        if self.records.len() < RECORD_ERRORS_MAX {
            self.records.push(RecordError { batch_index, message: Some(message()) });
        }
    }

    /// One bad timestamp makes it INVALID_TIMESTAMP, whatever else is wrong.
    fn result(self) -> Result<(), AppendError> {
        match self {
            Self { count: 0, .. } => Ok(()),
            Self { timestamp: true, records, .. } => Err(AppendError::InvalidTimestamp {
                message: "One or more records have been rejected due to invalid timestamp".into(),
                records,
            }),
            Self { count, records, .. } => {
                let message = format!("One or more records have been rejected due to {count} record errors in total");
                Err(AppendError::InvalidRecord { message, records })
            }
        }
    }
}

/// The topic's timestamp type and the newest timestamp, as they are to be stored.
fn set_timestamps(stored: &mut BatchHeader, config: &TopicConfig, now: Millis, max_timestamp: Millis) {
    let came = *stored;
    match config.message_timestamp_type {
        TimestampType::LogAppendTime => stored.set_log_append_time(now),
        TimestampType::CreateTime => {
            stored.set_timestamp_type(TimestampType::CreateTime);
            stored.max_timestamp = max_timestamp;
        }
    }
    if *stored != came {
        stored.drop_unknown_attributes();
    }
}

fn recompress(target: Compression, config: &TopicConfig, body: &[u8]) -> Result<Bytes, AppendError> {
    let level = config.compression_level(target);
    // Nothing is wrong with the records: compressing fails only if the codec is out of memory.
    let compressed = compression::compress(target, level, body).map_err(|e| AppendError::Io(std::io::Error::other(e)))?;
    Ok(compressed.into())
}

/// The recompressed batch may be larger than what came.
fn check_size(size: usize, config: &TopicConfig) -> Result<(), AppendError> {
    if size > config.max_message_bytes {
        Err(AppendError::TooLarge { size, max: config.max_message_bytes })
    } else if size > config.segment_bytes {
        Err(AppendError::LargerThanSegment { size, segment_bytes: config.segment_bytes })
    } else {
        Ok(())
    }
}

/// The CRC of the part of a header that it covers.
fn head_crc(header: &BatchHeader) -> u32 {
    crc32c::crc32c(header.encode().get(CRC_COVERS_FROM..).unwrap_or_default())
}

/// The CRC of a batch whose header changed from `old` to `new` and whose records did not. Small ones are read again. For large ones the
/// difference of the headers' CRCs, carried over as many zeros as there are records, is the difference of the batches', as CRCs are linear.
fn restamped_crc(old: &BatchHeader, new: &BatchHeader, records: &[u8]) -> u32 {
    if records.len() < CARRIED_CRC_FROM_BYTES {
        return crc32c::crc32c_append(head_crc(new), records);
    }
    old.crc ^ crc32c::crc32c_combine(head_crc(old) ^ head_crc(new), 0, records.len())
}

fn invalid(message: String) -> AppendError {
    AppendError::InvalidRecord { message, records: Vec::new() }
}

fn cut_short(len: usize) -> AppendError {
    AppendError::Corrupt(format!("{len} bytes are no record batch"))
}

fn unknown_codec(header: &BatchHeader) -> AppendError {
    AppendError::UnsupportedCompression(format!("unknown codec in attributes {:#06x}", header.attributes))
}

/// Records that can't be read are the client's fault, and sending them again doesn't help.
fn refused(error: RecordsError) -> AppendError {
    match error {
        RecordsError::Compression(CompressionError::Malformed(codec, cause)) => invalid(format!("{codec:?} data is malformed: {cause}")),
        other => invalid(other.to_string()),
    }
}

#[cfg(test)]
mod tests;
