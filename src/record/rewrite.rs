//! A batch made of some of another one's records, as compaction leaves it (`MemoryRecords.filterTo`).
//!
//! Offsets, sequences, producer, epochs and the batch's range stay as they were, gaps and all; nothing here decides which records go.
//! Records are copied as they're encoded, unless the base timestamp becomes a delete horizon (KIP-534).

use super::{
    BatchHeader, Compression, Record, TimestampType,
    builder::assemble,
    compression::{self, CompressionError},
    varint::{read_varint, read_varlong, varlong_size, write_varint, write_varlong},
};
use crate::types::Millis;
use bytes::Bytes;

/// The records that stay of one batch.
#[derive(Clone, Debug)]
pub struct Rewrite {
    header: BatchHeader,
    /// Timestamps are encoded anew.
    rebased: bool,
    records: Vec<u8>,
    count: i32,
    max_timestamp: Millis,
}

impl Rewrite {
    /// None of the batch's records yet. With `delete_horizon` its tombstones may go from then on.
    pub fn of(header: BatchHeader, delete_horizon: Option<Millis>) -> Self {
        let mut new = header;
        if let Some(horizon) = delete_horizon {
            new.set_delete_horizon(horizon);
        }
        Self { header: new, rebased: delete_horizon.is_some(), records: Vec::new(), count: 0, max_timestamp: Millis::NONE }
    }

    /// Keeps a record of the batch; `encoded` are its bytes there. Called in the records' order.
    pub fn keep(&mut self, record: &Record<'_>, encoded: &[u8]) {
        self.count = self.count.saturating_add(1);
        self.max_timestamp = self.max_timestamp.max(record.timestamp);
        if !(self.rebased && self.keep_rebased(record, encoded).is_some()) {
            self.records.extend_from_slice(encoded);
        }
    }

    /// `None` if the bytes are no record; nothing is written then.
    fn keep_rebased(&mut self, record: &Record<'_>, mut encoded: &[u8]) -> Option<()> {
        read_varint(&mut encoded)?;
        let (attributes, mut rest) = encoded.split_first()?;
        read_varlong(&mut rest)?;
        let delta = record.timestamp.0.wrapping_sub(self.header.base_timestamp.0);
        let length = rest.len().saturating_add(varlong_size(delta)).saturating_add(1);
        write_varint(&mut self.records, i32::try_from(length).unwrap_or(i32::MAX));
        self.records.push(*attributes);
        write_varlong(&mut self.records, delta);
        self.records.extend_from_slice(rest);
        Some(())
    }

    /// How many records are kept.
    pub fn count(&self) -> i32 {
        self.count
    }

    /// The new batch, and its header.
    pub fn build(self, codec: Compression, level: i32) -> Result<(BatchHeader, Bytes), CompressionError> {
        let mut header = self.header;
        header.record_count = self.count;
        if header.timestamp_type() == TimestampType::CreateTime {
            header.max_timestamp = self.max_timestamp;
        }
        header.set_compression(codec);
        let batch = if codec == Compression::None {
            assemble(header, &self.records)
        } else {
            assemble(header, &compression::compress(codec, level, &self.records)?)
        };
        Ok((BatchHeader::parse(&batch).unwrap_or(header), batch))
    }
}

/// The batch without its records.
pub fn empty_batch(header: &BatchHeader) -> (BatchHeader, Bytes) {
    let batch = assemble(header.emptied(), &[]);
    (BatchHeader::parse(&batch).unwrap_or(*header), batch)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{
        record::{BatchBuilder, BatchRecords, header::batch_crc},
        types::{Offset, ProducerEpoch, ProducerId},
    };
    use proptest::prelude::*;

    type Plain = (i64, i64, Option<Vec<u8>>, Option<Vec<u8>>);

    fn plain(batch: &[u8]) -> Vec<Plain> {
        let records = BatchRecords::open(batch, 1 << 20).unwrap();
        records
            .iter()
            .map(|r| r.unwrap())
            .map(|r| (r.offset.0, r.timestamp.0, r.key.map(<[u8]>::to_vec), r.value.map(<[u8]>::to_vec)))
            .collect()
    }

    proptest! {
        #[test]
        fn what_is_kept_is_as_it_was_and_where_it_was(
            records in prop::collection::vec((0i64..1 << 42, prop::option::of(prop::collection::vec(any::<u8>(), 0..40)), any::<bool>()), 1..30),
            base in 0i64..1_000_000,
            horizon in prop::option::of(0i64..1 << 43),
            codec in prop::sample::select(vec![Compression::None, Compression::Gzip, Compression::Snappy, Compression::Lz4, Compression::Zstd]),
        ) {
            let mut builder = BatchBuilder::new(codec).base_offset(Offset(base)).producer(ProducerId(7), ProducerEpoch(1), 40);
            for (timestamp, value, _) in &records {
                builder.append(Millis(*timestamp), Some(b"k"), value.as_deref(), &[(b"h", Some(b"v")), (b"n", None)]);
            }
            let batch = builder.build().unwrap();
            let old = BatchHeader::parse(&batch).unwrap();
            let opened = BatchRecords::open(&batch, 1 << 20).unwrap();
            let mut rewrite = Rewrite::of(old, horizon.map(Millis));
            let (mut iter, mut keep) = (opened.iter(), records.iter().map(|r| r.2));
            while let Some(next) = iter.next_encoded() {
                let (record, encoded) = next.unwrap();
                if keep.next().unwrap() {
                    rewrite.keep(&record, encoded);
                }
            }
            let (new, bytes) = rewrite.build(codec, 3).unwrap();
            let expected: Vec<_> = plain(&batch).into_iter().zip(&records).filter(|(_, r)| r.2).map(|(p, _)| p).collect();
            prop_assert_eq!(plain(&bytes), expected.clone());
            prop_assert_eq!(new.crc, batch_crc(&bytes));
            prop_assert_eq!(new.size(), Some(bytes.len()));
            prop_assert_eq!((new.base_offset, new.last_offset(), new.last_sequence()), (old.base_offset, old.last_offset(), old.last_sequence()));
            prop_assert_eq!(new.delete_horizon(), horizon.map(Millis));
            prop_assert_eq!(new.max_timestamp.0, expected.iter().map(|r| r.1).max().unwrap_or(-1));
        }
    }

    #[test]
    fn an_empty_batch_keeps_its_range_and_its_sequences() {
        let batch = BatchBuilder::new(Compression::Lz4)
            .base_offset(Offset(9))
            .producer(ProducerId(7), ProducerEpoch(1), 40)
            .transactional()
            .record(Millis(5), None, None)
            .record(Millis(3), None, None);
        let batch = batch.build().unwrap();
        let old = BatchHeader::parse(&batch).unwrap();
        let (new, bytes) = empty_batch(&old);
        assert_eq!((bytes.len(), new.record_count, new.last_offset(), new.last_sequence()), (61, 0, Offset(10), 41));
        assert_eq!((new.max_timestamp, new.is_transactional(), new.compression()), (Millis(5), true, Some(Compression::None)));
        assert_eq!(plain(&bytes), []);
        assert_eq!(empty_batch(&new).1, bytes, "once empty it stays as it is");
    }
}
