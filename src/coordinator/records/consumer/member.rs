//! `ConsumerGroupMemberMetadataKey` (version 5) and `ConsumerGroupMemberMetadataValue` (version 0): who a member is and what it subscribes to.
//!
//! ```text
//! key       group text · member text
//! value     instance id nullable text · rack id nullable text · client id text · client host text · topic names [text] ·
//!           regular expression nullable text, empty for none · rebalance timeout i32 · assignor nullable text · tag 0: classic
//! classic   1, session timeout i32, protocols [protocol]; or 0, if it doesn't speak that protocol (without the tag Kafka takes it for one that
//!           does, and has no protocols)
//! protocol  name text · metadata bytes
//! ```

use super::{begin, open};
use crate::{
    codec::{Malformed, Reader},
    coordinator::records::{TooLong, compact, nullable_text, text},
    group::{ClassicMemberMetadata, ConsumerMemberMetadata, Protocol},
};
use bytes::{BufMut, Bytes};

/// What a struct begins with that may be null.
const IS_NULL: u8 = 0;
const IS_THERE: u8 = 1;

/// The bytes of a protocol all of whose fields are empty.
const PROTOCOL_BYTES_MIN: usize = 3;

pub fn encode(value: &ConsumerMemberMetadata) -> Result<Vec<u8>, TooLong> {
    let mut out = begin();
    compact::put_nullable_text(&mut out, value.instance_id.as_deref())?;
    compact::put_nullable_text(&mut out, value.rack_id.as_deref())?;
    compact::put_text(&mut out, &value.client_id)?;
    compact::put_text(&mut out, &value.client_host)?;
    compact::put_texts(&mut out, &value.subscribed_topic_names)?;
    compact::put_text(&mut out, value.subscribed_topic_regex.as_deref().unwrap_or_default())?;
    out.put_i32(value.rebalance_timeout_ms);
    compact::put_nullable_text(&mut out, value.server_assignor.as_deref())?;
    let classic = value.classic.as_ref().map_or_else(|| Ok(vec![IS_NULL]), encode_classic)?;
    compact::put_tag(&mut out, &classic)?;
    Ok(out)
}

fn encode_classic(classic: &ClassicMemberMetadata) -> Result<Vec<u8>, TooLong> {
    let mut out = vec![IS_THERE];
    out.put_i32(classic.session_timeout_ms);
    compact::put_len(&mut out, classic.protocols.len())?;
    for protocol in &*classic.protocols {
        compact::put_text(&mut out, &protocol.name)?;
        compact::put_bytes(&mut out, &protocol.metadata)?;
        compact::put_no_tags(&mut out);
    }
    compact::put_no_tags(&mut out);
    Ok(out)
}

pub fn decode(bytes: Bytes) -> Result<ConsumerMemberMetadata, Malformed> {
    let mut reader = open(&bytes)?;
    let mut member = ConsumerMemberMetadata {
        instance_id: nullable_text(&mut reader)?,
        rack_id: nullable_text(&mut reader)?,
        client_id: text(&mut reader)?,
        client_host: text(&mut reader)?,
        subscribed_topic_names: compact::texts(&mut reader)?,
        subscribed_topic_regex: nullable_text(&mut reader)?.filter(|regex| !regex.is_empty()),
        rebalance_timeout_ms: reader.i32()?,
        server_assignor: nullable_text(&mut reader)?,
        classic: None,
    };
    reader.tagged_fields(|tag, field| {
        if tag == 0 {
            member.classic = decode_classic(Reader::new(field, true))?;
        }
        Ok(())
    })?;
    Ok(member)
}

fn decode_classic(mut reader: Reader) -> Result<Option<ClassicMemberMetadata>, Malformed> {
    if reader.i8()? <= 0 {
        return Ok(None);
    }
    let session_timeout_ms = reader.i32()?;
    let count = reader.array_len(PROTOCOL_BYTES_MIN)?;
    let mut protocol = || {
        let protocol = Protocol { name: text(&mut reader)?, metadata: compact::bytes(&mut reader)? };
        reader.skip_tagged_fields()?;
        Ok(protocol)
    };
    let protocols = (0..count).map(|_| protocol()).collect::<Result<_, Malformed>>()?;
    Ok(Some(ClassicMemberMetadata { session_timeout_ms, protocols }))
}
