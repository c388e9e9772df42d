//! `ConsumerGroupRegularExpressionKey` (version 16) and `ConsumerGroupRegularExpressionValue` (version 0): the topics that a regular
//! expression fits.
//!
//! ```text
//! key    group text · regular expression text
//! value  topics [text] · version of the metadata that it was resolved against i64 · when i64
//! ```

use super::{begin, open};
use crate::{
    codec::Malformed,
    coordinator::records::{TooLong, compact},
    group::ResolvedRegex,
    types::Millis,
};
use bytes::{BufMut, Bytes};

pub fn encode(value: &ResolvedRegex) -> Result<Vec<u8>, TooLong> {
    let mut out = begin();
    compact::put_texts(&mut out, &value.topics)?;
    out.put_i64(value.version);
    out.put_i64(value.timestamp.0);
    compact::put_no_tags(&mut out);
    Ok(out)
}

pub fn decode(bytes: Bytes) -> Result<ResolvedRegex, Malformed> {
    let mut reader = open(&bytes)?;
    let resolved = ResolvedRegex { topics: compact::texts(&mut reader)?, version: reader.i64()?, timestamp: Millis(reader.i64()?) };
    reader.skip_tagged_fields()?;
    Ok(resolved)
}
