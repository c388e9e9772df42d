//! Produce requests, versions 3 to 13, decoded by hand: the hot path, and the one request that may be large.
//!
//! Records are slices of the frame. Version 9 is flexible, 13 names topics by id (KIP-516).

use super::reader::{Malformed, Reader};
use crate::types::{PartitionIndex, TopicId};
use bytes::Bytes;

/// A decoded request.
#[derive(Debug, PartialEq, Eq)]
pub struct ProduceRequest {
    pub transactional_id: Option<Bytes>,
    /// 0, 1 or −1 (all); anything else is INVALID_REQUIRED_ACKS.
    pub acks: i16,
    pub timeout_ms: i32,
    pub topics: Vec<ProduceTopic>,
}

/// One topic of a request.
#[derive(Debug, PartialEq, Eq)]
pub struct ProduceTopic {
    /// UTF-8; empty from version 13 on.
    pub name: Bytes,
    /// Zero before version 13.
    pub id: TopicId,
    pub partitions: Vec<ProducePartition>,
}

/// One partition's records.
#[derive(Debug, PartialEq, Eq)]
pub struct ProducePartition {
    pub index: PartitionIndex,
    pub records: Option<Bytes>,
}

impl ProduceRequest {
    /// Decodes a body of one of the versions 3 to 13.
    pub fn decode(body: Bytes, version: i16) -> Result<Self, Malformed> {
        let flexible = version >= 9;
        let mut r = Reader::new(body, flexible);
        let transactional_id = r.nullable_string()?;
        let acks = r.i16()?;
        let timeout_ms = r.i32()?;
        // A topic takes 2 bytes or more for its name (16 for its id) and 1 for its array; a partition 5 or more.
        let count = r.array_len(3)?;
        let mut topics = Vec::with_capacity(count.min(1024));
        for _ in 0..count {
            let (name, id) = if version >= 13 { (Bytes::new(), r.topic_id()?) } else { (r.string()?, TopicId::ZERO) };
            let count = r.array_len(5)?;
            let mut partitions = Vec::with_capacity(count.min(1024));
            for _ in 0..count {
                let index = PartitionIndex(r.i32()?);
                let records = r.nullable_bytes()?;
                r.skip_tagged_fields()?;
                partitions.push(ProducePartition { index, records });
            }
            r.skip_tagged_fields()?;
            topics.push(ProduceTopic { name, id, partitions });
        }
        r.skip_tagged_fields()?;
        r.finish()?;
        Ok(Self { transactional_id, acks, timeout_ms, topics })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use bytes::{BufMut, BytesMut};

    #[test]
    fn old_and_flexible_forms() {
        let mut v3 = BytesMut::new();
        v3.put_i16(-1); // transactional id
        v3.put_i16(-1);
        v3.put_i32(1500);
        v3.put_i32(1);
        v3.put_slice(b"\0\x01t\0\0\0\x01\0\0\0\x07\0\0\0\x03abc");
        let request = ProduceRequest::decode(v3.freeze(), 3).unwrap();
        assert_eq!((request.acks, request.timeout_ms), (-1, 1500));
        assert_eq!(
            request.topics[0].partitions[0],
            ProducePartition { index: PartitionIndex(7), records: Some(Bytes::from_static(b"abc")) }
        );
        let v9 = Bytes::from_static(b"\0\0\x01\0\0\x05\xdc\x02\x02t\x02\0\0\0\x07\x04abc\0\0\0");
        let request = ProduceRequest::decode(v9.clone(), 9).unwrap();
        assert_eq!(request.topics[0].name, "t");
        for cut in 0..v9.len() {
            assert!(ProduceRequest::decode(v9.slice(..cut), 9).is_err());
        }
    }
}
