//! The compact forms of the flexible schemas (KIP-482): what the values of consumer groups are written in.

use super::{TooLong, text};
use crate::{
    codec::{Malformed, Reader},
    group::consumer::Partitions,
    types::{PartitionIndex, TopicId},
};
use bytes::{BufMut, Bytes};
use std::{collections::BTreeSet, sync::Arc};

/// The bytes of a topic without partitions: its id, the length of the array, its tagged fields.
pub(super) const TOPIC_BYTES_MIN: usize = 18;

pub(super) fn put_uvarint(out: &mut Vec<u8>, mut value: u32) {
    while value >= 0x80 {
        out.put_u8((value & 0x7f) as u8 | 0x80);
        value >>= 7;
    }
    out.put_u8(value as u8);
}

/// A length, one more than it is: 0 means null.
pub(super) fn put_len(out: &mut Vec<u8>, len: usize) -> Result<(), TooLong> {
    let one_more = len.checked_add(1).and_then(|len| u32::try_from(len).ok()).filter(|len| i32::try_from(*len).is_ok());
    put_uvarint(out, one_more.ok_or(TooLong(len))?);
    Ok(())
}

pub(super) fn put_text(out: &mut Vec<u8>, text: &str) -> Result<(), TooLong> {
    // Kafka's strings have a bound of their own.
    if i16::try_from(text.len()).is_err() {
        return Err(TooLong(text.len()));
    }
    put_len(out, text.len())?;
    out.put_slice(text.as_bytes());
    Ok(())
}

pub(super) fn put_nullable_text(out: &mut Vec<u8>, text: Option<&str>) -> Result<(), TooLong> {
    match text {
        Some(text) => put_text(out, text),
        None => {
            out.put_u8(0);
            Ok(())
        }
    }
}

pub(super) fn put_bytes(out: &mut Vec<u8>, bytes: &[u8]) -> Result<(), TooLong> {
    put_len(out, bytes.len())?;
    out.put_slice(bytes);
    Ok(())
}

pub(super) fn put_texts(out: &mut Vec<u8>, texts: &BTreeSet<Arc<str>>) -> Result<(), TooLong> {
    put_len(out, texts.len())?;
    texts.iter().try_for_each(|text| put_text(out, text))
}

pub(super) fn put_no_tags(out: &mut Vec<u8>) {
    out.put_u8(0);
}

/// The one tagged field of a struct, which is tag 0.
pub(super) fn put_tag(out: &mut Vec<u8>, field: &[u8]) -> Result<(), TooLong> {
    out.put_slice(&[1, 0]);
    put_uvarint(out, u32::try_from(field.len()).map_err(|_| TooLong(field.len()))?);
    out.put_slice(field);
    Ok(())
}

pub(super) fn put_topic_id(out: &mut Vec<u8>, id: TopicId) {
    out.put_slice(id.0.as_bytes());
}

pub(super) fn put_partitions(out: &mut Vec<u8>, partitions: &Partitions) -> Result<(), TooLong> {
    put_len(out, partitions.len())?;
    for (id, of_topic) in partitions {
        put_topic_id(out, *id);
        put_len(out, of_topic.len())?;
        of_topic.iter().for_each(|partition| out.put_i32(partition.0));
        put_no_tags(out);
    }
    Ok(())
}

pub(super) fn texts(reader: &mut Reader) -> Result<BTreeSet<Arc<str>>, Malformed> {
    let count = reader.array_len(1)?;
    (0..count).map(|_| text(reader)).collect()
}

/// A copy: what is kept must not hold the whole record.
pub(super) fn bytes(reader: &mut Reader) -> Result<Bytes, Malformed> {
    reader.nullable_bytes()?.map(|bytes| Bytes::copy_from_slice(&bytes)).ok_or(Malformed::Null)
}

pub(super) fn i32s(reader: &mut Reader) -> Result<Vec<i32>, Malformed> {
    let count = reader.array_len(4)?;
    (0..count).map(|_| reader.i32()).collect()
}

/// A topic that stands twice has the partitions of both; one without partitions is none.
pub(super) fn partitions(reader: &mut Reader) -> Result<Partitions, Malformed> {
    let mut all = Partitions::new();
    for _ in 0..reader.array_len(TOPIC_BYTES_MIN)? {
        let id = reader.topic_id()?;
        let indexes = i32s(reader)?;
        reader.skip_tagged_fields()?;
        if !indexes.is_empty() {
            all.entry(id).or_default().extend(indexes.into_iter().map(PartitionIndex));
        }
    }
    Ok(all)
}
