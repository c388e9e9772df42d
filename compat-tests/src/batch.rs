//! Record batches (magic 2) as a client builds them, and wrong ones: every header field can be set before the CRC is made, and any byte
//! changed after it. Written from the protocol's description, apart from the broker's own code, so that one checks the other.

use anyhow::{Result, ensure};
use bytes::{Buf, BufMut, Bytes, BytesMut};

/// Bytes from the batch's start to its first record.
pub const HEADER_BYTES: usize = 61;
/// Bytes before those that the length counts: base offset and length.
const OVERHEAD: usize = 12;
/// Where the CRC-32C stands, and where the bytes that it covers begin.
const CRC_AT: usize = 17;
const CRC_COVERS_FROM: usize = 21;

/// A batch's header, its CRC aside.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Header {
    pub base_offset: i64,
    pub partition_leader_epoch: i32,
    pub magic: i8,
    pub attributes: i16,
    pub last_offset_delta: i32,
    pub base_timestamp: i64,
    pub max_timestamp: i64,
    pub producer_id: i64,
    pub producer_epoch: i16,
    pub base_sequence: i32,
    pub record_count: i32,
}

/// One record: key, value and headers may be null.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Record {
    pub timestamp_delta: i64,
    pub key: Option<Vec<u8>>,
    pub value: Option<Vec<u8>>,
    pub headers: Vec<(String, Option<Vec<u8>>)>,
}

impl Record {
    /// A record with this value and nothing else.
    pub fn value(value: &[u8]) -> Self {
        Self { value: Some(value.to_vec()), ..Self::default() }
    }
}

/// A batch to be encoded; the header is that of a correct batch without a producer id until the test changes it.
#[derive(Clone, Debug)]
pub struct Batch {
    pub header: Header,
    /// The records' bytes, compressed if the attributes say so.
    pub records: Bytes,
}

impl Batch {
    /// Uncompressed, with timestamps from `base_timestamp` on.
    pub fn of(base_timestamp: i64, records: &[Record]) -> Self {
        let count = i32::try_from(records.len()).unwrap_or(i32::MAX);
        let last = records.iter().map(|record| record.timestamp_delta).max().unwrap_or(0);
        let mut bytes = BytesMut::new();
        for (delta, record) in records.iter().enumerate() {
            put_record(&mut bytes, i64::try_from(delta).unwrap_or(i64::MAX), record);
        }
        Self {
            header: Header {
                base_offset: 0,
                partition_leader_epoch: -1,
                magic: 2,
                attributes: 0,
                last_offset_delta: count - 1,
                base_timestamp,
                max_timestamp: base_timestamp + last,
                producer_id: -1,
                producer_epoch: -1,
                base_sequence: -1,
                record_count: count,
            },
            records: bytes.freeze(),
        }
    }

    /// Records with these values, all of the time `base_timestamp`.
    pub fn of_values(base_timestamp: i64, values: &[&[u8]]) -> Self {
        Self::of(base_timestamp, &values.iter().map(|value| Record::value(value)).collect::<Vec<_>>())
    }

    /// As an idempotent producer sends it.
    #[must_use]
    pub fn from_producer(mut self, id: i64, epoch: i16, base_sequence: i32) -> Self {
        (self.header.producer_id, self.header.producer_epoch, self.header.base_sequence) = (id, epoch, base_sequence);
        self
    }

    /// With changes to the header, which the CRC will cover.
    #[must_use]
    pub fn with(mut self, change: impl FnOnce(&mut Header)) -> Self {
        change(&mut self.header);
        self
    }

    /// The bytes, with a right length and CRC.
    pub fn encode(&self) -> Bytes {
        let header = &self.header;
        let mut bytes = BytesMut::with_capacity(HEADER_BYTES + self.records.len());
        bytes.put_i64(header.base_offset);
        bytes.put_i32(i32::try_from(HEADER_BYTES - OVERHEAD + self.records.len()).unwrap_or(i32::MAX));
        bytes.put_i32(header.partition_leader_epoch);
        bytes.put_i8(header.magic);
        bytes.put_u32(0);
        bytes.put_i16(header.attributes);
        bytes.put_i32(header.last_offset_delta);
        bytes.put_i64(header.base_timestamp);
        bytes.put_i64(header.max_timestamp);
        bytes.put_i64(header.producer_id);
        bytes.put_i16(header.producer_epoch);
        bytes.put_i32(header.base_sequence);
        bytes.put_i32(header.record_count);
        bytes.put_slice(&self.records);
        let crc = crc32c::crc32c(&bytes[CRC_COVERS_FROM..]);
        bytes[CRC_AT..CRC_COVERS_FROM].copy_from_slice(&crc.to_be_bytes());
        bytes.freeze()
    }
}

/// The batches in `bytes` as a Fetch answer has them: a last one that is cut short is left out.
///
/// # Errors
/// If a batch's length or CRC is wrong.
pub fn read(mut bytes: Bytes) -> Result<Vec<Batch>> {
    let mut batches = Vec::new();
    while bytes.len() >= HEADER_BYTES {
        let length = OVERHEAD + usize::try_from((&bytes[8..OVERHEAD]).get_i32())?;
        ensure!(length >= HEADER_BYTES, "a batch of {length} bytes");
        if bytes.len() < length {
            break;
        }
        let batch = bytes.split_to(length);
        let crc = (&batch[CRC_AT..]).get_u32();
        ensure!(crc == crc32c::crc32c(&batch[CRC_COVERS_FROM..]), "a batch with a wrong CRC");
        batches.push(Batch { header: header(batch.clone()), records: batch.slice(HEADER_BYTES..) });
    }
    Ok(batches)
}

fn header(mut batch: Bytes) -> Header {
    let base_offset = batch.get_i64();
    batch.advance(4);
    let (partition_leader_epoch, magic) = (batch.get_i32(), batch.get_i8());
    batch.advance(4);
    Header {
        base_offset,
        partition_leader_epoch,
        magic,
        attributes: batch.get_i16(),
        last_offset_delta: batch.get_i32(),
        base_timestamp: batch.get_i64(),
        max_timestamp: batch.get_i64(),
        producer_id: batch.get_i64(),
        producer_epoch: batch.get_i16(),
        base_sequence: batch.get_i32(),
        record_count: batch.get_i32(),
    }
}

fn put_record(bytes: &mut BytesMut, offset_delta: i64, record: &Record) {
    let mut body = BytesMut::new();
    body.put_i8(0);
    put_varint(&mut body, record.timestamp_delta);
    put_varint(&mut body, offset_delta);
    put_nullable(&mut body, record.key.as_deref());
    put_nullable(&mut body, record.value.as_deref());
    put_length(&mut body, record.headers.len());
    for (name, value) in &record.headers {
        put_nullable(&mut body, Some(name.as_bytes()));
        put_nullable(&mut body, value.as_deref());
    }
    put_length(bytes, body.len());
    bytes.put_slice(&body);
}

fn put_nullable(bytes: &mut BytesMut, data: Option<&[u8]>) {
    match data {
        None => put_varint(bytes, -1),
        Some(data) => {
            put_length(bytes, data.len());
            bytes.put_slice(data);
        }
    }
}

fn put_length(bytes: &mut BytesMut, length: usize) {
    put_varint(bytes, i64::try_from(length).unwrap_or(i64::MAX));
}

/// Zigzag, seven bits a byte.
fn put_varint(bytes: &mut BytesMut, value: i64) {
    let mut rest = ((value << 1) ^ (value >> 63)).cast_unsigned();
    while rest >= 0x80 {
        bytes.put_u8(u8::try_from(rest & 0x7f).unwrap_or(0) | 0x80);
        rest >>= 7;
    }
    bytes.put_u8(u8::try_from(rest).unwrap_or(0));
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_batch_reads_back() {
        let batch = Batch::of_values(1_000, &[b"a", b"b"]).from_producer(7, 1, 40);
        let found = read(batch.encode()).unwrap();
        assert_eq!(found.len(), 1);
        assert_eq!(found[0].header, batch.header);
        assert_eq!(found[0].records, batch.records);
    }

    #[test]
    fn numbers_are_zigzag() {
        let mut bytes = BytesMut::new();
        for value in [0, -1, 1, 63, 64, -65] {
            put_varint(&mut bytes, value);
        }
        assert_eq!(&bytes[..], [0, 1, 2, 126, 0x80, 1, 0x81, 1]);
    }
}
