//! The lines of `DumpLogSegments` for batches and records, field by field, so that what reads its output reads ours.

use super::{
    DumpOptions,
    segment::{Batch, DECOMPRESSED_BYTES_MAX},
};
use crate::record::{
    BatchHeader, BatchRecords, EndTxnMarker,
    header::{Compression, TimestampType},
    records::Record,
};
use std::io::{self, Write};

/// A batch's line, and its records' if they're wanted and can be read.
pub(super) fn batch(batch: &Batch<'_>, options: DumpOptions, out: &mut dyn Write) -> io::Result<()> {
    let header = &batch.found.header;
    let count = header.record_count;
    writeln!(
        out,
        "baseOffset: {} lastOffset: {} count: {count} baseSequence: {} lastSequence: {} producerId: {} producerEpoch: {} \
         partitionLeaderEpoch: {} isTransactional: {} isControl: {} deleteHorizonMs: {} position: {} {}: {} size: {} magic: {} \
         compresscodec: {} crc: {} isvalid: {}",
        header.base_offset,
        header.last_offset(),
        header.base_sequence,
        header.last_sequence(),
        header.producer_id,
        header.producer_epoch,
        header.leader_epoch,
        header.is_transactional(),
        header.is_control(),
        delete_horizon(header),
        batch.found.position,
        timestamp_type(header),
        header.max_timestamp,
        batch.found.size,
        header.magic,
        codec(header),
        header.crc,
        batch.is_valid,
    )?;
    if !options.records && !options.data || !batch.is_valid {
        return Ok(());
    }
    // What can't be read is a finding.
    let Ok(records) = BatchRecords::open(batch.bytes, DECOMPRESSED_BYTES_MAX) else { return Ok(()) };
    for read in records.iter().map_while(Result::ok) {
        record(header, &read, options.data, out)?;
    }
    Ok(())
}

fn record(header: &BatchHeader, record: &Record<'_>, with_data: bool, out: &mut dyn Write) -> io::Result<()> {
    let size = |bytes: Option<&[u8]>| bytes.map_or(-1, |bytes| i64::try_from(bytes.len()).unwrap_or(i64::MAX));
    let keys: Vec<_> = record.headers.map(|(key, _)| String::from_utf8_lossy(key).into_owned()).collect();
    write!(
        out,
        "| offset: {} {}: {} keySize: {} valueSize: {} sequence: {} headerKeys: [{}]",
        record.offset,
        timestamp_type(header),
        record.timestamp,
        size(record.key),
        size(record.value),
        sequence(header, record),
        keys.join(",")
    )?;
    if header.is_control() {
        match record.key.zip(record.value).and_then(|(key, value)| EndTxnMarker::decode(key, value)) {
            Some(marker) => {
                let what = if marker.commit { "COMMIT" } else { "ABORT" };
                write!(out, " endTxnMarker: {what} coordinatorEpoch: {}", marker.coordinator_epoch)?;
            }
            None => write!(out, " controlType: UNKNOWN")?,
        }
    } else if with_data {
        if let Some(key) = record.key {
            write!(out, " key: {}", String::from_utf8_lossy(key))?;
        }
        if let Some(value) = record.value {
            write!(out, " payload: {}", String::from_utf8_lossy(value))?;
        }
    }
    writeln!(out)
}

/// A record's sequence: counted from the batch's by its offset, round from `i32::MAX` to 0 (`DefaultRecordBatch.incrementSequence`).
fn sequence(header: &BatchHeader, record: &Record<'_>) -> i32 {
    if header.base_sequence < 0 {
        return header.base_sequence;
    }
    let delta = i32::try_from(record.offset.0.saturating_sub(header.base_offset.0)).unwrap_or(0);
    crate::record::header::increment_sequence(header.base_sequence, delta)
}

fn delete_horizon(header: &BatchHeader) -> String {
    if header.has_delete_horizon() { format!("OptionalLong[{}]", header.base_timestamp) } else { "OptionalLong.empty".to_owned() }
}

fn timestamp_type(header: &BatchHeader) -> &'static str {
    match header.timestamp_type() {
        TimestampType::CreateTime => "CreateTime",
        TimestampType::LogAppendTime => "LogAppendTime",
    }
}

fn codec(header: &BatchHeader) -> &'static str {
    match header.compression() {
        Some(Compression::None) => "none",
        Some(Compression::Gzip) => "gzip",
        Some(Compression::Snappy) => "snappy",
        Some(Compression::Lz4) => "lz4",
        Some(Compression::Zstd) => "zstd",
        None => "unknown",
    }
}
