//! What the members of a consumer group shall own in the end: `ConsumerGroupTargetAssignmentMetadataKey` (version 6) with its value, and
//! for each member `ConsumerGroupTargetAssignmentMemberKey` (version 7) with its own (values of version 0).
//!
//! ```text
//! key    group text
//! value  epoch i32 · tag 0: when it was computed i64, unless it is 0
//!
//! key    group text · member text
//! value  topics [id uuid · partitions [i32]]
//! ```

use super::{begin, open};
use crate::{
    codec::{Malformed, Reader},
    coordinator::records::{TooLong, compact},
    group::{Epoch, TargetMetadata, consumer::Partitions},
    types::Millis,
};
use bytes::{BufMut, Bytes};

pub fn encode_metadata(value: &TargetMetadata) -> Result<Vec<u8>, TooLong> {
    let mut out = begin();
    out.put_i32(value.assignment_epoch.0);
    match value.assignment_timestamp.0 {
        0 => compact::put_no_tags(&mut out),
        at => compact::put_tag(&mut out, &at.to_be_bytes())?,
    }
    Ok(out)
}

pub fn decode_metadata(bytes: Bytes) -> Result<TargetMetadata, Malformed> {
    let mut reader = open(&bytes)?;
    let assignment_epoch = Epoch(reader.i32()?);
    let mut assignment_timestamp = Millis(0);
    reader.tagged_fields(|tag, field| {
        if tag == 0 {
            assignment_timestamp = Millis(Reader::new(field, true).i64()?);
        }
        Ok(())
    })?;
    Ok(TargetMetadata { assignment_epoch, assignment_timestamp })
}

pub fn encode(value: &Partitions) -> Result<Vec<u8>, TooLong> {
    let mut out = begin();
    compact::put_partitions(&mut out, value)?;
    compact::put_no_tags(&mut out);
    Ok(out)
}

pub fn decode(bytes: Bytes) -> Result<Partitions, Malformed> {
    let mut reader = open(&bytes)?;
    let partitions = compact::partitions(&mut reader)?;
    reader.skip_tagged_fields()?;
    Ok(partitions)
}
