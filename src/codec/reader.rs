//! A reader of Kafka's primitive types that trusts no length.
//!
//! Slices share the frame's memory; nothing is copied. See Kafka's protocol guide, "Protocol Primitive Types", and KIP-482 for
//! the compact forms and tagged fields.

use crate::types::TopicId;
use bytes::{Buf, Bytes};

/// Why a frame cannot be what it says it is. The connection that sent it is closed.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum Malformed {
    #[error("the frame ends before its fields do")]
    Truncated,
    #[error("a length of {0} where only null (-1) may be negative")]
    NegativeLength(i64),
    #[error("null where a value is required")]
    Null,
    #[error("an array of {elements} elements with only {bytes_left} bytes left")]
    ArrayLength { elements: u64, bytes_left: usize },
    #[error("more than {max} elements and tagged fields in one request")]
    TooManyElements { max: usize },
    #[error("a variable-length integer of more than five bytes")]
    Varint,
    #[error("text that is not UTF-8")]
    NotUtf8,
    #[error("{0} bytes left over after the last field")]
    LeftOver(usize),
    #[error("{0}")]
    Field(String),
}

/// The most array elements and tagged fields in one request: 100,000 partitions in a request are legitimate, millions are not, and an
/// element that takes a byte on the wire can take a hundred in memory.
pub const ELEMENTS_MAX: usize = 400_000;

/// Reads from the front of a frame.
#[derive(Debug, Clone)]
pub struct Reader {
    bytes: Bytes,
    flexible: bool,
    /// Array elements and tagged fields so far.
    elements: usize,
}

impl Reader {
    /// `flexible`: whether strings, arrays and bytes are in compact form and structs end in tagged fields.
    pub fn new(bytes: Bytes, flexible: bool) -> Self {
        Self { bytes, flexible, elements: 0 }
    }

    pub fn remaining(&self) -> usize {
        self.bytes.len()
    }

    /// What has not been read yet.
    pub fn into_rest(self) -> Bytes {
        self.bytes
    }

    pub fn i8(&mut self) -> Result<i8, Malformed> {
        self.bytes.try_get_i8().map_err(|_| Malformed::Truncated)
    }

    pub fn bool(&mut self) -> Result<bool, Malformed> {
        Ok(self.i8()? != 0)
    }

    pub fn i16(&mut self) -> Result<i16, Malformed> {
        self.bytes.try_get_i16().map_err(|_| Malformed::Truncated)
    }

    pub fn i32(&mut self) -> Result<i32, Malformed> {
        self.bytes.try_get_i32().map_err(|_| Malformed::Truncated)
    }

    pub fn i64(&mut self) -> Result<i64, Malformed> {
        self.bytes.try_get_i64().map_err(|_| Malformed::Truncated)
    }

    pub fn topic_id(&mut self) -> Result<TopicId, Malformed> {
        let bits = self.bytes.try_get_u128().map_err(|_| Malformed::Truncated)?;
        Ok(TopicId(uuid::Uuid::from_u128(bits)))
    }

    /// An unsigned varint of at most 32 bits.
    pub fn uvarint(&mut self) -> Result<u32, Malformed> {
        let mut value: u64 = 0;
        for shift in [0, 7, 14, 21, 28] {
            let byte = self.bytes.try_get_u8().map_err(|_| Malformed::Truncated)?;
            value |= u64::from(byte & 0x7f) << shift;
            if byte & 0x80 == 0 {
                return u32::try_from(value).map_err(|_| Malformed::Varint);
            }
        }
        Err(Malformed::Varint)
    }

    /// The next `len` bytes, sharing the frame's memory.
    pub fn take(&mut self, len: usize) -> Result<Bytes, Malformed> {
        if len > self.bytes.len() {
            return Err(Malformed::Truncated);
        }
        Ok(self.bytes.split_to(len))
    }

    pub fn skip(&mut self, len: usize) -> Result<(), Malformed> {
        if len > self.bytes.len() {
            return Err(Malformed::Truncated);
        }
        self.bytes.advance(len);
        Ok(())
    }

    /// The length of a string (`i16` before flexible versions); `None` is null.
    pub fn string_len(&mut self) -> Result<Option<usize>, Malformed> {
        if self.flexible {
            return self.compact_len();
        }
        signed_len(self.i16()?.into())
    }

    /// The length of a byte field or the elements of an array (`i32` before flexible versions); `None` is null.
    pub fn long_len(&mut self) -> Result<Option<usize>, Malformed> {
        if self.flexible {
            return self.compact_len();
        }
        signed_len(self.i32()?.into())
    }

    fn compact_len(&mut self) -> Result<Option<usize>, Malformed> {
        Ok(self.uvarint()?.checked_sub(1).map(|len| len as usize))
    }

    /// A string that may be null, checked to be UTF-8.
    pub fn nullable_string(&mut self) -> Result<Option<Bytes>, Malformed> {
        let Some(len) = self.string_len()? else { return Ok(None) };
        let text = self.take(len)?;
        std::str::from_utf8(&text).map_err(|_| Malformed::NotUtf8)?;
        Ok(Some(text))
    }

    pub fn string(&mut self) -> Result<Bytes, Malformed> {
        self.nullable_string()?.ok_or(Malformed::Null)
    }

    pub fn nullable_bytes(&mut self) -> Result<Option<Bytes>, Malformed> {
        let Some(len) = self.long_len()? else { return Ok(None) };
        self.take(len).map(Some)
    }

    /// The elements of an array (null counts as none) of which each takes `element_bytes_min` or more: so many that fit in what is left.
    pub fn array_len(&mut self, element_bytes_min: usize) -> Result<usize, Malformed> {
        let elements = self.long_len()?.unwrap_or(0);
        let bytes_left = self.remaining();
        if elements > bytes_left / element_bytes_min.max(1) {
            return Err(Malformed::ArrayLength { elements: elements as u64, bytes_left });
        }
        self.count(elements)?;
        Ok(elements)
    }

    fn count(&mut self, elements: usize) -> Result<(), Malformed> {
        self.elements = self.elements.saturating_add(elements);
        if self.elements > ELEMENTS_MAX {
            return Err(Malformed::TooManyElements { max: ELEMENTS_MAX });
        }
        Ok(())
    }

    /// Skips the tagged fields at the end of a struct, handing each to `known`; nothing before flexible versions. Returns their number.
    pub fn tagged_fields(&mut self, mut known: impl FnMut(u32, Bytes) -> Result<(), Malformed>) -> Result<usize, Malformed> {
        if !self.flexible {
            return Ok(0);
        }
        let count = self.uvarint()? as usize;
        if count > self.remaining() / 2 {
            return Err(Malformed::ArrayLength { elements: count as u64, bytes_left: self.remaining() });
        }
        self.count(count)?;
        for _ in 0..count {
            let tag = self.uvarint()?;
            let size = self.uvarint()? as usize;
            known(tag, self.take(size)?)?;
        }
        Ok(count)
    }

    pub fn skip_tagged_fields(&mut self) -> Result<usize, Malformed> {
        self.tagged_fields(|_, _| Ok(()))
    }

    /// Refuses bytes after the last field: Kafka does too, and they would hide a wrong reading.
    pub fn finish(self) -> Result<(), Malformed> {
        match self.bytes.len() {
            0 => Ok(()),
            left => Err(Malformed::LeftOver(left)),
        }
    }
}

fn signed_len(len: i64) -> Result<Option<usize>, Malformed> {
    match len {
        -1 => Ok(None),
        _ => usize::try_from(len).map(Some).map_err(|_| Malformed::NegativeLength(len)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn reader(bytes: &'static [u8], flexible: bool) -> Reader {
        Reader::new(Bytes::from_static(bytes), flexible)
    }

    #[test]
    fn lengths_are_held_against_the_bytes_left() {
        assert_eq!(
            reader(&[0x7f, 0xff, 0xff, 0xff, 0], false).array_len(1),
            Err(Malformed::ArrayLength { elements: 0x7fff_ffff, bytes_left: 1 })
        );
        assert_eq!(
            reader(&[0xff, 0xff, 0xff, 0xff, 0x0f], true).array_len(1),
            Err(Malformed::ArrayLength { elements: 0xffff_fffe, bytes_left: 0 })
        );
        assert_eq!(reader(&[0, 5, b'a'], false).string(), Err(Malformed::Truncated));
        assert_eq!(reader(&[0xff, 0xfe], false).string(), Err(Malformed::NegativeLength(-2)));
        assert_eq!(reader(&[0xff; 6], true).uvarint(), Err(Malformed::Varint));
        assert_eq!(reader(&[0xff, 0xff, 0xff, 0xff, 0x1f], true).uvarint(), Err(Malformed::Varint));
    }

    #[test]
    fn nulls_and_compact_forms() {
        assert_eq!(reader(&[0xff, 0xff], false).nullable_string(), Ok(None));
        assert_eq!(reader(&[0], true).nullable_string(), Ok(None));
        assert_eq!(reader(&[3, b'h', b'i'], true).string(), Ok(Bytes::from_static(b"hi")));
        assert_eq!(reader(&[0], true).string(), Err(Malformed::Null));
        assert_eq!(reader(&[2, 7, 1, b'x', 9, 0], true).skip_tagged_fields(), Ok(2));
    }
}
