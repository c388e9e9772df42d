//! `ConsumerGroupMetadataKey` (version 3) and `ConsumerGroupMetadataValue` (version 0): a consumer group's epoch.
//!
//! ```text
//! key    group text
//! value  epoch i32 · tag 0: metadata hash i64, unless it is 0
//! ```

use super::{begin, open};
use crate::{
    codec::{Malformed, Reader},
    coordinator::records::{TooLong, compact},
    group::{ConsumerGroupMetadata, Epoch},
};
use bytes::{BufMut, Bytes};

pub fn encode(value: &ConsumerGroupMetadata) -> Result<Vec<u8>, TooLong> {
    let mut out = begin();
    out.put_i32(value.epoch.0);
    match value.metadata_hash {
        0 => compact::put_no_tags(&mut out),
        hash => compact::put_tag(&mut out, &hash.to_be_bytes())?,
    }
    Ok(out)
}

pub fn decode(bytes: Bytes) -> Result<ConsumerGroupMetadata, Malformed> {
    let mut reader = open(&bytes)?;
    let epoch = Epoch(reader.i32()?);
    let mut metadata_hash = 0;
    reader.tagged_fields(|tag, field| {
        if tag == 0 {
            metadata_hash = Reader::new(field, true).i64()?;
        }
        Ok(())
    })?;
    Ok(ConsumerGroupMetadata { epoch, metadata_hash })
}
