//! `OffsetCommitKey` (versions 0 and 1, the same bytes) and `OffsetCommitValue` (read 0 to 4, written 3, or 1 where a client set the
//! retention: no later version has it).
//!
//! ```text
//! key    group text · topic text · partition i32
//! value  offset i64 · leader epoch i32 (from 3 on) · metadata text · commit timestamp i64 · expire timestamp i64 (1 only)
//! ```

use super::{TooLong, put_text, text, versioned};
use crate::{
    codec::Malformed,
    group::Committed,
    types::{LeaderEpoch, Millis, Offset, TopicPartition},
};
use bytes::BufMut;

pub const KEY_VERSION: i16 = 1;
const VALUE_VERSION: i16 = 3;
const VALUE_VERSION_WITH_EXPIRY: i16 = 1;
const VALUE_FLEXIBLE_SINCE: i16 = 4;

pub fn encode_key(group: &str, partition: &TopicPartition) -> Result<Vec<u8>, TooLong> {
    let mut out = Vec::with_capacity(group.len() + partition.topic.as_str().len() + 10);
    out.put_i16(KEY_VERSION);
    put_text(&mut out, group)?;
    put_text(&mut out, partition.topic.as_str())?;
    out.put_i32(partition.partition.0);
    Ok(out)
}

pub fn encode_value(value: &Committed) -> Result<Vec<u8>, TooLong> {
    let mut out = Vec::with_capacity(value.metadata.len() + 32);
    out.put_i16(if value.expires_at.is_some() { VALUE_VERSION_WITH_EXPIRY } else { VALUE_VERSION });
    out.put_i64(value.offset.0);
    if value.expires_at.is_none() {
        out.put_i32(value.leader_epoch.0);
    }
    put_text(&mut out, &value.metadata)?;
    out.put_i64(value.committed_at.0);
    if let Some(expires_at) = value.expires_at {
        out.put_i64(expires_at.0);
    }
    Ok(out)
}

pub fn decode_value(bytes: &[u8]) -> Result<Committed, Malformed> {
    let (version, mut reader) = versioned(bytes, VALUE_FLEXIBLE_SINCE)?;
    Ok(Committed {
        offset: Offset(reader.i64()?),
        leader_epoch: if version >= 3 { LeaderEpoch(reader.i32()?) } else { LeaderEpoch::NONE },
        metadata: text(&mut reader)?,
        committed_at: Millis(reader.i64()?),
        expires_at: if version == VALUE_VERSION_WITH_EXPIRY { Some(Millis(reader.i64()?)).filter(|at| at.0 != -1) } else { None },
    })
}
