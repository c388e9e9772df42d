//! The records of a batch, read in place (`org.apache.kafka.common.record.DefaultRecord`):
//!
//! ```text
//! length        varint   of what follows
//! attributes    i8       unused
//! timestamp     varlong  delta to the batch's base timestamp
//! offset        varint   delta to the batch's base offset
//! key           varint length, −1 for null, bytes
//! value         varint length, −1 for null, bytes
//! headers       varint count, each: key (varint length, bytes), value (varint length, −1 for null, bytes)
//! ```
//!
//! Every length is checked against the bytes left before it is used; nothing is allocated but the decompressed bytes, up to a cap.

use super::{
    BatchHeader, HEADER_BYTES, TimestampType,
    compression::{self, CompressionError},
    varint::{read_varint, read_varlong},
};
use crate::types::{Millis, Offset};
use std::borrow::Cow;

/// Why records can't be read.
#[derive(Debug, thiserror::Error)]
pub enum RecordsError {
    #[error("a batch of {0} bytes has no header of magic 2")]
    Header(usize),
    #[error("a batch of unknown codec (attributes {0:#06x})")]
    Codec(i16),
    #[error(transparent)]
    Compression(#[from] CompressionError),
    #[error("record {index} is malformed: {what}")]
    Malformed { index: i32, what: &'static str },
    #[error("the batch says {0} records and has bytes over")]
    BytesOver(i32),
}

/// One record as it is encoded: deltas, not yet offsets and times.
#[derive(Clone, Copy, Debug)]
pub struct RawRecord<'a> {
    pub timestamp_delta: i64,
    pub offset_delta: i32,
    pub key: Option<&'a [u8]>,
    pub value: Option<&'a [u8]>,
    pub headers: Headers<'a>,
}

impl<'a> RawRecord<'a> {
    /// Takes the next record off the front; the error says what is wrong with it.
    #[inline]
    pub fn read(bytes: &mut &'a [u8]) -> Result<Self, &'static str> {
        let length = read_varint(bytes).ok_or("its length is no varint")?;
        let length = usize::try_from(length).map_err(|_| "its length is negative")?;
        let (mut body, rest) = bytes.split_at_checked(length).ok_or("it is longer than the batch")?;
        *bytes = rest;
        let (_attributes, after) = body.split_first().ok_or("it is empty")?;
        body = after;
        let timestamp_delta = read_varlong(&mut body).ok_or("its timestamp is no varlong")?;
        let offset_delta = read_varint(&mut body).ok_or("its offset is no varint")?;
        let key = read_bytes(&mut body).ok_or("its key is longer than it")?;
        let value = read_bytes(&mut body).ok_or("its value is longer than it")?;
        let headers = Headers::read(body)?;
        Ok(Self { timestamp_delta, offset_delta, key, value, headers })
    }
}

/// A nullable byte string; any negative length is null, as Kafka reads it.
#[inline]
fn read_bytes<'a>(bytes: &mut &'a [u8]) -> Option<Option<&'a [u8]>> {
    let length = read_varint(bytes)?;
    let Ok(length) = usize::try_from(length) else { return Some(None) };
    let (taken, rest) = bytes.split_at_checked(length)?;
    *bytes = rest;
    Some(Some(taken))
}

/// A record's headers, checked; iterate to get `(key, value)` pairs.
#[derive(Clone, Copy, Debug, Default)]
pub struct Headers<'a> {
    left: i32,
    bytes: &'a [u8],
}

impl<'a> Headers<'a> {
    /// Checks the count and each header, and that nothing comes after them.
    #[inline]
    fn read(mut bytes: &'a [u8]) -> Result<Self, &'static str> {
        let left = read_varint(&mut bytes).ok_or("its header count is no varint")?;
        let headers = Self { left, bytes };
        if left == 0 && bytes.is_empty() {
            return Ok(headers);
        }
        // Each header takes two bytes at least, so a lying count is found before anything loops on it.
        if usize::try_from(left).map_or(true, |count| count > bytes.len() / 2) {
            return Err("its header count does not fit its length");
        }
        let mut rest = headers;
        for _ in 0..left {
            rest.read_one().ok_or("a header is longer than it")?;
        }
        if rest.bytes.is_empty() { Ok(headers) } else { Err("it has bytes over") }
    }

    fn read_one(&mut self) -> Option<(&'a [u8], Option<&'a [u8]>)> {
        let key = read_bytes(&mut self.bytes)??;
        let value = read_bytes(&mut self.bytes)?;
        self.left = self.left.saturating_sub(1);
        Some((key, value))
    }
}

impl<'a> Iterator for Headers<'a> {
    type Item = (&'a [u8], Option<&'a [u8]>);

    fn next(&mut self) -> Option<Self::Item> {
        if self.left > 0 { self.read_one() } else { None }
    }

    fn size_hint(&self) -> (usize, Option<usize>) {
        let left = usize::try_from(self.left).unwrap_or(0);
        (left, Some(left))
    }
}

impl ExactSizeIterator for Headers<'_> {}

/// One record of a batch.
#[derive(Clone, Copy, Debug)]
pub struct Record<'a> {
    pub offset: Offset,
    /// The producer's, or the broker's in a LogAppendTime batch.
    pub timestamp: Millis,
    pub key: Option<&'a [u8]>,
    pub value: Option<&'a [u8]>,
    pub headers: Headers<'a>,
}

/// A batch whose records can be read: decompressed if need be.
#[derive(Debug)]
pub struct BatchRecords<'a> {
    header: BatchHeader,
    body: Cow<'a, [u8]>,
}

impl<'a> BatchRecords<'a> {
    /// Opens a whole batch (header and all); decompresses to `max` bytes at most. Checks neither the CRC nor the length in the header.
    pub fn open(batch: &'a [u8], max: usize) -> Result<Self, RecordsError> {
        let header = BatchHeader::parse(batch).filter(|h| h.magic == super::header::MAGIC);
        let header = header.ok_or(RecordsError::Header(batch.len()))?;
        Self::from_parts(header, batch.get(HEADER_BYTES..).unwrap_or_default(), max)
    }

    /// The same from a header and the bytes after it.
    pub fn from_parts(header: BatchHeader, records: &'a [u8], max: usize) -> Result<Self, RecordsError> {
        let codec = header.compression().ok_or(RecordsError::Codec(header.attributes))?;
        let body = compression::decompress_capped(codec, records, max)?;
        Ok(Self { header, body })
    }

    pub fn header(&self) -> &BatchHeader {
        &self.header
    }

    /// The encoded records, decompressed.
    pub fn body(&self) -> &[u8] {
        &self.body
    }

    /// The records in order. The first error ends the iteration; one that comes after the last record tells of bytes over.
    pub fn iter(&self) -> RecordIter<'_> {
        RecordIter { header: &self.header, rest: &self.body, index: 0, failed: false }
    }

    /// Takes the decompressed bytes out.
    pub fn into_body(self) -> Cow<'a, [u8]> {
        self.body
    }
}

impl<'a> IntoIterator for &'a BatchRecords<'_> {
    type Item = Result<Record<'a>, RecordsError>;
    type IntoIter = RecordIter<'a>;

    fn into_iter(self) -> RecordIter<'a> {
        self.iter()
    }
}

/// See [`BatchRecords::iter`].
#[derive(Debug)]
pub struct RecordIter<'a> {
    header: &'a BatchHeader,
    rest: &'a [u8],
    index: i32,
    failed: bool,
}

impl<'a> RecordIter<'a> {
    /// The next record, and its bytes as they're encoded, length and all.
    pub fn next_encoded(&mut self) -> Option<Result<(Record<'a>, &'a [u8]), RecordsError>> {
        let before = self.rest;
        let record = self.next()?;
        let encoded = before.get(..before.len().saturating_sub(self.rest.len())).unwrap_or_default();
        Some(record.map(|record| (record, encoded)))
    }
}

impl<'a> Iterator for RecordIter<'a> {
    type Item = Result<Record<'a>, RecordsError>;

    fn next(&mut self) -> Option<Self::Item> {
        if self.failed {
            return None;
        }
        if self.index >= self.header.record_count {
            self.failed = true;
            return (!self.rest.is_empty()).then_some(Err(RecordsError::BytesOver(self.header.record_count)));
        }
        let read = RawRecord::read(&mut self.rest);
        let raw = match read {
            Ok(raw) => raw,
            Err(what) => {
                self.failed = true;
                return Some(Err(RecordsError::Malformed { index: self.index, what }));
            }
        };
        self.index = self.index.saturating_add(1);
        let timestamp = match self.header.timestamp_type() {
            TimestampType::CreateTime => self.header.base_timestamp.plus(raw.timestamp_delta),
            TimestampType::LogAppendTime => self.header.max_timestamp,
        };
        let offset = self.header.base_offset.plus(raw.offset_delta.into());
        Some(Ok(Record { offset, timestamp, key: raw.key, value: raw.value, headers: raw.headers }))
    }
}
