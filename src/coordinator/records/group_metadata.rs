//! `GroupMetadataKey` (version 2) and `GroupMetadataValue` (read 0 to 4, written 3).
//!
//! ```text
//! key     group text
//! value   protocol type text · generation i32 · protocol nullable text · leader nullable text · state timestamp i64 (from 2 on) · members
//! member  id text · instance id nullable text (from 3 on) · client id text · client host text · rebalance timeout i32 (from 1 on) ·
//!         session timeout i32 · subscription bytes · assignment bytes
//! ```

use super::{TooLong, nullable_text, put_bytes, put_nullable_text, put_text, text, versioned};
use crate::{
    codec::{Malformed, Reader},
    group::{Generation, GroupMetadata, MemberMetadata},
    types::Millis,
};
use bytes::{BufMut, Bytes};

pub const KEY_VERSION: i16 = 2;
const VALUE_VERSION: i16 = 3;
const VALUE_FLEXIBLE_SINCE: i16 = 4;
/// The bytes of a member all of whose fields are empty, in version 0.
const MEMBER_BYTES_MIN: usize = 9;

pub fn encode_key(group: &str) -> Result<Vec<u8>, TooLong> {
    let mut out = Vec::with_capacity(group.len() + 4);
    out.put_i16(KEY_VERSION);
    put_text(&mut out, group)?;
    Ok(out)
}

pub fn encode_value(value: &GroupMetadata) -> Result<Vec<u8>, TooLong> {
    let mut out = Vec::new();
    out.put_i16(VALUE_VERSION);
    put_text(&mut out, &value.protocol_type)?;
    out.put_i32(value.generation.0);
    put_nullable_text(&mut out, value.protocol.as_deref())?;
    put_nullable_text(&mut out, value.leader.as_deref())?;
    out.put_i64(value.state_since.unwrap_or(Millis::NONE).0);
    out.put_i32(i32::try_from(value.members.len()).map_err(|_| TooLong(value.members.len()))?);
    for member in &value.members {
        put_text(&mut out, &member.member_id)?;
        put_nullable_text(&mut out, member.instance_id.as_deref())?;
        put_text(&mut out, &member.client_id)?;
        put_text(&mut out, &member.client_host)?;
        out.put_i32(member.rebalance_timeout_ms);
        out.put_i32(member.session_timeout_ms);
        put_bytes(&mut out, &member.subscription)?;
        put_bytes(&mut out, &member.assignment)?;
    }
    Ok(out)
}

pub fn decode_value(bytes: &[u8]) -> Result<GroupMetadata, Malformed> {
    let (version, mut reader) = versioned(bytes, VALUE_FLEXIBLE_SINCE)?;
    let protocol_type = text(&mut reader)?;
    let generation = Generation(reader.i32()?);
    let protocol = nullable_text(&mut reader)?;
    let leader = nullable_text(&mut reader)?;
    let state_since = if version >= 2 { Some(Millis(reader.i64()?)).filter(|at| at.0 != -1) } else { None };
    let count = reader.array_len(MEMBER_BYTES_MIN)?;
    let members = (0..count).map(|_| decode_member(&mut reader, version)).collect::<Result<_, _>>()?;
    Ok(GroupMetadata { protocol_type, generation, protocol, leader, state_since, members })
}

fn decode_member(reader: &mut Reader, version: i16) -> Result<MemberMetadata, Malformed> {
    let member = MemberMetadata {
        member_id: text(reader)?,
        instance_id: if version >= 3 { nullable_text(reader)? } else { None },
        client_id: text(reader)?,
        client_host: text(reader)?,
        rebalance_timeout_ms: if version >= 1 { reader.i32()? } else { -1 },
        session_timeout_ms: reader.i32()?,
        subscription: bytes(reader)?,
        assignment: bytes(reader)?,
    };
    reader.skip_tagged_fields()?;
    Ok(member)
}

/// A copy: what is kept must not hold the whole record.
fn bytes(reader: &mut Reader) -> Result<Bytes, Malformed> {
    reader.nullable_bytes()?.map(|bytes| Bytes::copy_from_slice(&bytes)).ok_or(Malformed::Null)
}
