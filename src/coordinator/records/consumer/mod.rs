//! The records of consumer groups (KIP-848), one file a kind. All values are flexible in their only version, 0.

pub mod current;
pub mod group;
pub mod member;
pub mod regex;
pub mod target;

use super::{TooLong, put_text};
use crate::{
    codec::Malformed,
    group::{ConsumerRecord, GroupId},
};
use bytes::{BufMut, Bytes};

/// `ConsumerGroupMetadataKey` … `ConsumerGroupRegularExpressionKey`: the versions that a key begins with.
pub const GROUP: i16 = 3;
pub const PARTITION_METADATA: i16 = 4;
pub const MEMBER: i16 = 5;
pub const TARGET_METADATA: i16 = 6;
pub const TARGET: i16 = 7;
pub const CURRENT: i16 = 8;
pub const REGEX: i16 = 16;

pub(super) const VALUE_VERSION: i16 = 0;

/// A record's key and value; no value is a tombstone.
pub fn encode(group: &GroupId, record: &ConsumerRecord) -> Result<(Vec<u8>, Option<Vec<u8>>), TooLong> {
    Ok(match record {
        ConsumerRecord::Group(value) => (key(GROUP, group, None)?, value.as_ref().map(group::encode).transpose()?),
        ConsumerRecord::NoPartitionMetadata => (key(PARTITION_METADATA, group, None)?, None),
        ConsumerRecord::Member(id, value) => (key(MEMBER, group, Some(id))?, value.as_ref().map(member::encode).transpose()?),
        ConsumerRecord::TargetMetadata(value) => {
            (key(TARGET_METADATA, group, None)?, value.as_ref().map(target::encode_metadata).transpose()?)
        }
        ConsumerRecord::Target(id, value) => (key(TARGET, group, Some(id))?, value.as_ref().map(target::encode).transpose()?),
        ConsumerRecord::Current(id, value) => (key(CURRENT, group, Some(id))?, value.as_ref().map(current::encode).transpose()?),
        ConsumerRecord::Regex(text, value) => (key(REGEX, group, Some(text))?, value.as_ref().map(regex::encode).transpose()?),
    })
}

/// A key: the group, and for some kinds a member or a regular expression.
fn key(version: i16, group: &str, second: Option<&str>) -> Result<Vec<u8>, TooLong> {
    let mut out = Vec::with_capacity(group.len().saturating_add(second.map_or(0, str::len)).saturating_add(6));
    out.put_i16(version);
    put_text(&mut out, group)?;
    second.iter().try_for_each(|second| put_text(&mut out, second))?;
    Ok(out)
}

/// Reads what follows a key's version, and the value. `None` is a kind that isn't here, or one that is passed over.
pub fn decode(version: i16, key: &mut crate::codec::Reader, value: Option<Bytes>) -> Result<Option<(GroupId, ConsumerRecord)>, Malformed> {
    if ![GROUP, PARTITION_METADATA, MEMBER, TARGET_METADATA, TARGET, CURRENT, REGEX].contains(&version) {
        return Ok(None);
    }
    let group = super::text(key)?;
    let record = match version {
        GROUP => ConsumerRecord::Group(value.map(group::decode).transpose()?),
        // Topics and racks as Kafka kept them before 4.1: nobody needs them any more.
        PARTITION_METADATA if value.is_some() => return Ok(None),
        PARTITION_METADATA => ConsumerRecord::NoPartitionMetadata,
        TARGET_METADATA => ConsumerRecord::TargetMetadata(value.map(target::decode_metadata).transpose()?),
        _ => {
            let second = super::text(key)?;
            match version {
                MEMBER => ConsumerRecord::Member(second, value.map(member::decode).transpose()?),
                TARGET => ConsumerRecord::Target(second, value.map(target::decode).transpose()?),
                CURRENT => ConsumerRecord::Current(second, value.map(current::decode).transpose()?),
                _ => ConsumerRecord::Regex(second, value.map(regex::decode).transpose()?),
            }
        }
    };
    Ok(Some((group, record)))
}

/// A reader of what follows a value's version, and a buffer that begins with it.
fn open(bytes: &Bytes) -> Result<crate::codec::Reader, Malformed> {
    super::versioned(bytes, 0).map(|(_, reader)| reader)
}

fn begin() -> Vec<u8> {
    VALUE_VERSION.to_be_bytes().to_vec()
}
