//! Builds batches of magic 2: control markers, what coordinators write, and tests' input (`MemoryRecordsBuilder`).
//!
//! Not on the way of clients' records: those are stored as they came.

use super::{
    BatchHeader, Compression, EndTxnMarker, HEADER_BYTES, TimestampType,
    compression::{self, CompressionError},
    header::{LOG_OVERHEAD, MAGIC, batch_crc},
    varint::{varlong_size, write_varint, write_varlong},
};
use crate::types::{LeaderEpoch, Millis, Offset, ProducerEpoch, ProducerId};
use bytes::Bytes;

/// A record's header to write: key and nullable value.
pub type HeaderPair<'a> = (&'a [u8], Option<&'a [u8]>);

/// Gathers records into one batch. Offsets within it are consecutive.
#[derive(Clone, Debug)]
pub struct BatchBuilder {
    header: BatchHeader,
    compression: Compression,
    level: i32,
    records: Vec<u8>,
}

impl Default for BatchBuilder {
    fn default() -> Self {
        Self::new(Compression::None)
    }
}

impl BatchBuilder {
    /// An empty batch at offset 0 without a producer.
    pub fn new(compression: Compression) -> Self {
        let header = BatchHeader {
            base_offset: Offset(0),
            batch_length: 0,
            leader_epoch: LeaderEpoch::NONE,
            magic: MAGIC,
            crc: 0,
            attributes: compression.bits(),
            last_offset_delta: -1,
            base_timestamp: Millis::NONE,
            max_timestamp: Millis::NONE,
            producer_id: ProducerId::NONE,
            producer_epoch: ProducerEpoch::NONE,
            base_sequence: -1,
            record_count: 0,
        };
        let level = if compression == Compression::Zstd { 3 } else { -1 };
        Self { header, compression, level, records: Vec::new() }
    }

    /// The codec's level; see [`compression::compress`].
    pub fn level(mut self, level: i32) -> Self {
        self.level = level;
        self
    }

    pub fn base_offset(mut self, offset: Offset) -> Self {
        self.header.base_offset = offset;
        self
    }

    pub fn leader_epoch(mut self, epoch: LeaderEpoch) -> Self {
        self.header.leader_epoch = epoch;
        self
    }

    /// Writes as an idempotent producer.
    pub fn producer(mut self, id: ProducerId, epoch: ProducerEpoch, base_sequence: i32) -> Self {
        (self.header.producer_id, self.header.producer_epoch, self.header.base_sequence) = (id, epoch, base_sequence);
        self
    }

    pub fn transactional(mut self) -> Self {
        self.header.attributes |= BatchHeader::TRANSACTIONAL;
        self
    }

    pub fn control(mut self) -> Self {
        self.header.attributes |= BatchHeader::CONTROL;
        self
    }

    /// Appends a record.
    pub fn record(self, timestamp: Millis, key: Option<&[u8]>, value: Option<&[u8]>) -> Self {
        self.record_with_headers(timestamp, key, value, &[])
    }

    /// Appends a record with headers.
    pub fn record_with_headers(mut self, timestamp: Millis, key: Option<&[u8]>, value: Option<&[u8]>, headers: &[HeaderPair]) -> Self {
        self.append(timestamp, key, value, headers);
        self
    }

    /// Appends a record.
    pub fn append(&mut self, timestamp: Millis, key: Option<&[u8]>, value: Option<&[u8]>, headers: &[HeaderPair]) {
        if self.header.record_count == 0 {
            self.header.base_timestamp = timestamp;
        }
        let timestamp_delta = timestamp.0.wrapping_sub(self.header.base_timestamp.0);
        let offset_delta = self.header.record_count;
        let header_bytes: usize = headers.iter().map(|(k, v)| bytes_size(Some(k)).saturating_add(bytes_size(*v))).sum();
        let length = [
            1,
            varlong_size(timestamp_delta),
            varlong_size(offset_delta.into()),
            bytes_size(key),
            bytes_size(value),
            varlong_size(to_i32(headers.len()).into()),
            header_bytes,
        ];
        write_varint(&mut self.records, to_i32(length.iter().sum()));
        self.records.push(0);
        write_varlong(&mut self.records, timestamp_delta);
        write_varint(&mut self.records, offset_delta);
        write_bytes(&mut self.records, key);
        write_bytes(&mut self.records, value);
        write_varint(&mut self.records, to_i32(headers.len()));
        for (key, value) in headers {
            write_bytes(&mut self.records, Some(key));
            write_bytes(&mut self.records, *value);
        }
        self.header.max_timestamp = self.header.max_timestamp.max(timestamp);
        self.header.last_offset_delta = offset_delta;
        self.header.record_count = offset_delta.saturating_add(1);
    }

    pub fn is_empty(&self) -> bool {
        self.header.record_count == 0
    }

    /// The records' bytes so far, uncompressed.
    pub fn records_bytes(&self) -> usize {
        self.records.len()
    }

    /// The finished batch.
    pub fn build(self) -> Result<Bytes, CompressionError> {
        let records = compression::compress(self.compression, self.level, &self.records)?;
        Ok(assemble(self.header, &records))
    }

    /// The finished batch with the broker's time on it.
    pub fn build_log_append_time(mut self, now: Millis) -> Result<Bytes, CompressionError> {
        self.header.set_timestamp_type(TimestampType::LogAppendTime);
        self.header.max_timestamp = now;
        self.build()
    }
}

/// A header and encoded (compressed) records as one batch: sets its length and its CRC.
pub fn assemble(mut header: BatchHeader, records: &[u8]) -> Bytes {
    header.batch_length = to_i32(records.len().saturating_add(HEADER_BYTES - LOG_OVERHEAD));
    let mut batch = Vec::with_capacity(records.len().saturating_add(HEADER_BYTES));
    batch.extend_from_slice(&header.encode());
    batch.extend_from_slice(records);
    header.crc = batch_crc(&batch);
    if let Some(head) = batch.first_chunk_mut() {
        *head = header.encode();
    }
    batch.into()
}

/// The control batch that ends a producer's transaction on one partition, without an offset yet (`MemoryRecords.withEndTransactionMarker`).
pub fn end_txn_batch(producer_id: ProducerId, epoch: ProducerEpoch, marker: EndTxnMarker, now: Millis) -> Bytes {
    let (key, value) = marker.encode();
    let mut builder = BatchBuilder::default().producer(producer_id, epoch, -1).transactional().control();
    builder.append(now, Some(&key), Some(&value), &[]);
    assemble(builder.header, &builder.records)
}

fn bytes_size(bytes: Option<&[u8]>) -> usize {
    bytes.map_or(1, |b| varlong_size(to_i32(b.len()).into()).saturating_add(b.len()))
}

fn write_bytes(out: &mut Vec<u8>, bytes: Option<&[u8]>) {
    write_varint(out, bytes.map_or(-1, |b| to_i32(b.len())));
    out.extend_from_slice(bytes.unwrap_or_default());
}

/// A batch's bounds are far below; a caller that goes beyond gets a batch that no reader accepts rather than a panic.
fn to_i32(length: usize) -> i32 {
    i32::try_from(length).unwrap_or(i32::MAX)
}
