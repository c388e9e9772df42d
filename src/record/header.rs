//! The 61-byte header of a record batch (`org.apache.kafka.common.record.DefaultRecordBatch`):
//!
//! ```text
//! 0  base offset        i64      23 last offset delta  i32      51 producer epoch  i16
//! 8  batch length       i32      27 base timestamp     i64      53 base sequence   i32
//! 12 leader epoch       i32      35 max timestamp      i64      57 record count    i32
//! 16 magic              i8       43 producer id        i64      61 records …
//! 17 CRC-32C            u32      the CRC covers everything from byte 21 on
//! 21 attributes         i16      bits: 0-2 codec, 3 LogAppendTime, 4 transactional, 5 control, 6 delete horizon
//! ```
//!
//! Base offset and leader epoch lie before what the CRC covers, so the broker sets them without touching the rest.

use crate::types::{LeaderEpoch, Millis, Offset, ProducerEpoch, ProducerId};

/// The bytes of a header; also the least size of a batch.
pub const HEADER_BYTES: usize = 61;
/// The bytes before those that `batch length` counts.
pub const LOG_OVERHEAD: usize = 12;
/// The CRC covers the batch from here on.
pub const CRC_COVERS_FROM: usize = 21;
/// The only magic that Kafka 4 stores.
pub const MAGIC: i8 = 2;

/// How the records of a batch are compressed.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Hash)]
pub enum Compression {
    None,
    Gzip,
    Snappy,
    Lz4,
    Zstd,
}

impl Compression {
    /// From the low three bits of the attributes; `None` for 5 to 7, which name no codec.
    pub fn from_attributes(attributes: i16) -> Option<Self> {
        match attributes & 7 {
            0 => Some(Self::None),
            1 => Some(Self::Gzip),
            2 => Some(Self::Snappy),
            3 => Some(Self::Lz4),
            4 => Some(Self::Zstd),
            _ => None,
        }
    }

    /// The bits in the attributes.
    pub fn bits(self) -> i16 {
        match self {
            Self::None => 0,
            Self::Gzip => 1,
            Self::Snappy => 2,
            Self::Lz4 => 3,
            Self::Zstd => 4,
        }
    }
}

/// Whose clock a batch's timestamps are.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Hash)]
pub enum TimestampType {
    CreateTime,
    LogAppendTime,
}

/// A header read from bytes; nothing in it is trusted until [`BatchHeader::parse`]'s caller has checked it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct BatchHeader {
    pub base_offset: Offset,
    /// Counts the bytes after itself; the whole batch is this and [`LOG_OVERHEAD`] more.
    pub batch_length: i32,
    pub leader_epoch: LeaderEpoch,
    pub magic: i8,
    pub crc: u32,
    pub attributes: i16,
    pub last_offset_delta: i32,
    pub base_timestamp: Millis,
    pub max_timestamp: Millis,
    pub producer_id: ProducerId,
    pub producer_epoch: ProducerEpoch,
    pub base_sequence: i32,
    pub record_count: i32,
}

impl BatchHeader {
    const TIMESTAMP_TYPE: i16 = 1 << 3;
    pub(super) const TRANSACTIONAL: i16 = 1 << 4;
    pub(super) const CONTROL: i16 = 1 << 5;
    const DELETE_HORIZON: i16 = 1 << 6;

    /// Reads a header from the first 61 bytes; `None` if there are fewer.
    pub fn parse(batch: &[u8]) -> Option<Self> {
        let b: &[u8; HEADER_BYTES] = batch.first_chunk()?;
        Some(Self {
            base_offset: Offset(i64::from_be_bytes(at(b, 0)?)),
            batch_length: i32::from_be_bytes(at(b, 8)?),
            leader_epoch: LeaderEpoch(i32::from_be_bytes(at(b, 12)?)),
            magic: i8::from_be_bytes(at(b, 16)?),
            crc: u32::from_be_bytes(at(b, 17)?),
            attributes: i16::from_be_bytes(at(b, 21)?),
            last_offset_delta: i32::from_be_bytes(at(b, 23)?),
            base_timestamp: Millis(i64::from_be_bytes(at(b, 27)?)),
            max_timestamp: Millis(i64::from_be_bytes(at(b, 35)?)),
            producer_id: ProducerId(i64::from_be_bytes(at(b, 43)?)),
            producer_epoch: ProducerEpoch(i16::from_be_bytes(at(b, 51)?)),
            base_sequence: i32::from_be_bytes(at(b, 53)?),
            record_count: i32::from_be_bytes(at(b, 57)?),
        })
    }

    /// The header's bytes, CRC as it stands in the struct.
    pub fn encode(&self) -> [u8; HEADER_BYTES] {
        let mut header = [0; HEADER_BYTES];
        put(&mut header, 0, self.base_offset.0.to_be_bytes());
        put(&mut header, 8, self.batch_length.to_be_bytes());
        put(&mut header, 12, self.leader_epoch.0.to_be_bytes());
        put(&mut header, 16, self.magic.to_be_bytes());
        put(&mut header, 17, self.crc.to_be_bytes());
        put(&mut header, 21, self.attributes.to_be_bytes());
        put(&mut header, 23, self.last_offset_delta.to_be_bytes());
        put(&mut header, 27, self.base_timestamp.0.to_be_bytes());
        put(&mut header, 35, self.max_timestamp.0.to_be_bytes());
        put(&mut header, 43, self.producer_id.0.to_be_bytes());
        put(&mut header, 51, self.producer_epoch.0.to_be_bytes());
        put(&mut header, 53, self.base_sequence.to_be_bytes());
        put(&mut header, 57, self.record_count.to_be_bytes());
        header
    }

    /// The whole batch in bytes; `None` if the length on the wire is less than a header or negative.
    pub fn size(&self) -> Option<usize> {
        let size = usize::try_from(self.batch_length).ok()?.checked_add(LOG_OVERHEAD)?;
        (size >= HEADER_BYTES).then_some(size)
    }

    /// The last record's offset. Saturates on hostile input.
    pub fn last_offset(&self) -> Offset {
        self.base_offset.plus(self.last_offset_delta.into())
    }

    /// The offset after the batch.
    pub fn next_offset(&self) -> Offset {
        self.last_offset().plus(1)
    }

    pub fn compression(&self) -> Option<Compression> {
        Compression::from_attributes(self.attributes)
    }

    pub fn timestamp_type(&self) -> TimestampType {
        if self.attributes & Self::TIMESTAMP_TYPE == 0 { TimestampType::CreateTime } else { TimestampType::LogAppendTime }
    }

    pub fn is_transactional(&self) -> bool {
        self.attributes & Self::TRANSACTIONAL != 0
    }

    pub fn is_control(&self) -> bool {
        self.attributes & Self::CONTROL != 0
    }

    /// Set when `base timestamp` holds the time from which tombstones may go (KIP-534).
    pub fn has_delete_horizon(&self) -> bool {
        self.attributes & Self::DELETE_HORIZON != 0
    }

    /// The time from which the batch's tombstones, or its transaction marker, may go.
    pub fn delete_horizon(&self) -> Option<Millis> {
        self.has_delete_horizon().then_some(self.base_timestamp)
    }

    /// Sets that time. The records' timestamps are relative to it then, and the CRC must be computed again.
    pub fn set_delete_horizon(&mut self, horizon: Millis) {
        self.attributes |= Self::DELETE_HORIZON;
        self.base_timestamp = horizon;
    }

    /// The same batch without records: offsets, sequences, epochs and the largest timestamp stay (`DefaultRecordBatch.writeEmptyHeader`).
    pub fn emptied(mut self) -> Self {
        self.attributes &= Self::TIMESTAMP_TYPE | Self::TRANSACTIONAL | Self::CONTROL;
        self.base_timestamp = Millis::NONE;
        self.record_count = 0;
        self
    }

    pub fn has_producer(&self) -> bool {
        self.producer_id > ProducerId::NONE
    }

    /// The sequence of the last record: they wrap from `i32::MAX` to 0.
    pub fn last_sequence(&self) -> i32 {
        increment_sequence(self.base_sequence, self.last_offset_delta)
    }

    /// Turns the timestamps into the broker's (`message.timestamp.type=LogAppendTime`). The CRC must be computed again.
    pub fn set_log_append_time(&mut self, now: Millis) {
        self.set_timestamp_type(TimestampType::LogAppendTime);
        self.max_timestamp = now;
    }

    /// Says whose timestamps the batch carries. The CRC must be computed again.
    pub fn set_timestamp_type(&mut self, timestamp_type: TimestampType) {
        match timestamp_type {
            TimestampType::CreateTime => self.attributes &= !Self::TIMESTAMP_TYPE,
            TimestampType::LogAppendTime => self.attributes |= Self::TIMESTAMP_TYPE,
        }
    }

    /// Says how the records are compressed. The CRC must be computed again.
    pub fn set_compression(&mut self, compression: Compression) {
        self.attributes = self.attributes & !7 | compression.bits();
    }

    /// Leaves out attributes that mean nothing, as Kafka does where it writes a header anew (`DefaultRecordBatch.computeAttributes`). The CRC
    /// must be computed again.
    pub fn drop_unknown_attributes(&mut self) {
        self.attributes &= 7 | Self::TIMESTAMP_TYPE | Self::TRANSACTIONAL | Self::CONTROL | Self::DELETE_HORIZON;
    }
}

/// `sequence + increment` where `i32::MAX` is followed by 0 (`DefaultRecordBatch.incrementSequence`).
pub fn increment_sequence(sequence: i32, increment: i32) -> i32 {
    let sum = i64::from(sequence) + i64::from(increment);
    let wrapped = if sum > i64::from(i32::MAX) { sum - i64::from(i32::MAX) - 1 } else { sum };
    i32::try_from(wrapped).unwrap_or(0)
}

/// The CRC-32C that a whole batch should carry; 0 for one without a header.
pub fn batch_crc(batch: &[u8]) -> u32 {
    batch.get(CRC_COVERS_FROM..).map_or(0, crc32c::crc32c)
}

fn at<const N: usize>(bytes: &[u8], from: usize) -> Option<[u8; N]> {
    bytes.get(from..)?.first_chunk().copied()
}

fn put<const N: usize>(header: &mut [u8; HEADER_BYTES], at: usize, bytes: [u8; N]) {
    if let Some(place) = header.get_mut(at..).and_then(|rest| rest.first_chunk_mut()) {
        *place = bytes;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    proptest::proptest! {
        #[test]
        fn a_header_survives_its_bytes(bytes: [u8; 32], more: [u8; 29]) {
            let raw = [&bytes[..], &more[..]].concat();
            let header = BatchHeader::parse(&raw).unwrap();
            proptest::prop_assert_eq!(&header.encode()[..], &raw[..]);
        }
    }

    #[test]
    fn sequences_wrap_to_zero() {
        assert_eq!(increment_sequence(i32::MAX, 1), 0);
        assert_eq!(increment_sequence(i32::MAX - 1, 3), 1);
        assert_eq!(increment_sequence(7, 2), 9);
    }
}
