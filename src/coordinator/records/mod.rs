//! The records of `__consumer_offsets` and `__transaction_state` as Apache Kafka writes them, byte for byte: tools read the topics, and a
//! directory of Kafka's opens.
//!
//! Keys and values begin with the version of their schema; a key's version also says what kind it is (`CoordinatorRecordType`).

mod compact;
pub mod consumer;
pub mod group_metadata;
pub mod offset_commit;
pub mod transaction;

use crate::{
    codec::{Malformed, Reader},
    group::{GroupId, Record},
    types::{PartitionIndex, TopicName, TopicPartition},
};
use bytes::{BufMut, Bytes};
use std::sync::Arc;

/// A record that can't be written: a name is longer than Kafka's schema allows.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("text of {0} bytes does not fit the schema of its topic")]
pub struct TooLong(usize);

/// What a record of an internal topic is.
#[derive(Clone, PartialEq, Debug)]
pub enum Read<R = Record> {
    Known(R),
    /// Of a kind that is not kept here: a newer Kafka's, or a topic's that can't exist.
    Ignored,
}

/// A record's key and value; no value is a tombstone.
pub fn encode(record: &Record) -> Result<(Vec<u8>, Option<Vec<u8>>), TooLong> {
    match record {
        Record::Offset { group, partition, value } => {
            let value = value.as_ref().map(offset_commit::encode_value).transpose()?;
            Ok((offset_commit::encode_key(group, partition)?, value))
        }
        Record::Group { group, value } => {
            let value = value.as_ref().map(group_metadata::encode_value).transpose()?;
            Ok((group_metadata::encode_key(group)?, value))
        }
        Record::Consumer { group, record } => consumer::encode(group, record),
    }
}

/// Reads a record back, in any version that Kafka has written.
pub fn decode(key: &[u8], value: Option<&[u8]>) -> Result<Read, Malformed> {
    let (version, mut key) = versioned(key, i16::MAX)?;
    let value = value.map(Bytes::copy_from_slice);
    Ok(match version {
        0 | offset_commit::KEY_VERSION => {
            let group = text(&mut key)?;
            let topic = text(&mut key)?;
            let partition = PartitionIndex(key.i32()?);
            let Ok(topic) = TopicName::new(&topic) else { return Ok(Read::Ignored) };
            let value = value.map(|value| offset_commit::decode_value(&value)).transpose()?;
            Read::Known(Record::Offset { group, partition: TopicPartition { topic, partition }, value })
        }
        group_metadata::KEY_VERSION => {
            let group: GroupId = text(&mut key)?;
            let value = value.map(|value| group_metadata::decode_value(&value)).transpose()?;
            Read::Known(Record::Group { group, value })
        }
        _ => match consumer::decode(version, &mut key, value)? {
            Some((group, record)) => Read::Known(Record::Consumer { group, record }),
            None => Read::Ignored,
        },
    })
}

/// The version that bytes begin with, and a reader of the rest: compact from `flexible_since` on.
fn versioned(bytes: &[u8], flexible_since: i16) -> Result<(i16, Reader), Malformed> {
    let mut reader = Reader::new(Bytes::copy_from_slice(bytes), false);
    let version = reader.i16()?;
    Ok((version, Reader::new(reader.into_rest(), version >= flexible_since)))
}

fn text(reader: &mut Reader) -> Result<Arc<str>, Malformed> {
    nullable_text(reader)?.ok_or(Malformed::Null)
}

fn nullable_text(reader: &mut Reader) -> Result<Option<Arc<str>>, Malformed> {
    let Some(bytes) = reader.nullable_string()? else { return Ok(None) };
    std::str::from_utf8(&bytes).map(|text| Some(text.into())).map_err(|_| Malformed::NotUtf8)
}

fn put_text(out: &mut Vec<u8>, text: &str) -> Result<(), TooLong> {
    out.put_i16(i16::try_from(text.len()).map_err(|_| TooLong(text.len()))?);
    out.put_slice(text.as_bytes());
    Ok(())
}

fn put_nullable_text(out: &mut Vec<u8>, text: Option<&str>) -> Result<(), TooLong> {
    match text {
        Some(text) => put_text(out, text),
        None => {
            out.put_i16(-1);
            Ok(())
        }
    }
}

fn put_bytes(out: &mut Vec<u8>, bytes: &[u8]) -> Result<(), TooLong> {
    out.put_i32(i32::try_from(bytes.len()).map_err(|_| TooLong(bytes.len()))?);
    out.put_slice(bytes);
    Ok(())
}

#[cfg(test)]
mod tests;
