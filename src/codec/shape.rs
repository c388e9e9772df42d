//! The shapes of requests, walked before the codec crate decodes them.
//!
//! `kafka-protocol` takes memory for an array by the length that the wire gives, unchecked, and a byte on the wire can become a
//! hundred in memory. A [`Shape`] says what a request is made of; [`Shape::check`] walks the frame by it without taking memory,
//! holds every length against the bytes left and the sum of elements against [`ELEMENTS_MAX`](super::reader::ELEMENTS_MAX). What passes decodes in bounded memory.

use super::reader::{Malformed, Reader};
use bytes::Bytes;

/// A field's type.
#[derive(Debug, Clone, Copy)]
pub enum Kind {
    /// A number, a boolean or a UUID: so many bytes.
    Fixed(usize),
    /// A string, nullable or not.
    Text,
    /// A byte field, nullable or not.
    Blob,
    /// An array of single values.
    Array(&'static Kind),
    /// An array of structs.
    Structs(&'static [Field]),
    /// A nullable struct: one byte says whether it is there.
    Maybe(&'static [Field]),
}

/// A field and the versions that have it.
#[derive(Debug, Clone, Copy)]
pub struct Field {
    pub kind: Kind,
    pub since: i16,
    pub until: i16,
}

/// A field of every version.
pub const fn always(kind: Kind) -> Field {
    Field { kind, since: 0, until: i16::MAX }
}

/// A field from version `since` on.
pub const fn since(since: i16, kind: Kind) -> Field {
    Field { kind, since, until: i16::MAX }
}

/// A field up to and with version `until`.
pub const fn until(until: i16, kind: Kind) -> Field {
    Field { kind, since: 0, until }
}

pub const I8: Kind = Kind::Fixed(1);
pub const BOOL: Kind = Kind::Fixed(1);
pub const I16: Kind = Kind::Fixed(2);
pub const I32: Kind = Kind::Fixed(4);
pub const I64: Kind = Kind::Fixed(8);
pub const UUID: Kind = Kind::Fixed(16);
pub const TEXT: Kind = Kind::Text;

/// The fields of a request's body.
#[derive(Debug, Clone, Copy)]
pub struct Shape(pub &'static [Field]);

impl Shape {
    /// Walks a request's body; `Ok` if it has this shape to its last byte.
    pub fn check(&self, body: &Bytes, version: i16, flexible: bool) -> Result<(), Malformed> {
        let mut walk = Walk { reader: Reader::new(body.clone(), flexible), version };
        walk.fields(self.0)?;
        walk.reader.finish()
    }
}

struct Walk {
    reader: Reader,
    version: i16,
}

impl Walk {
    fn fields(&mut self, fields: &'static [Field]) -> Result<(), Malformed> {
        for field in fields {
            if (field.since..=field.until).contains(&self.version) {
                self.value(&field.kind)?;
            }
        }
        self.reader.skip_tagged_fields().map(drop)
    }

    fn value(&mut self, kind: &'static Kind) -> Result<(), Malformed> {
        match kind {
            Kind::Fixed(bytes) => self.reader.skip(*bytes),
            Kind::Text => {
                let len = self.reader.string_len()?.unwrap_or(0);
                self.reader.skip(len)
            }
            Kind::Blob => {
                let len = self.reader.long_len()?.unwrap_or(0);
                self.reader.skip(len)
            }
            Kind::Array(element) => {
                let elements = self.reader.array_len(1)?;
                (0..elements).try_for_each(|_| self.value(element))
            }
            Kind::Structs(fields) => {
                let elements = self.reader.array_len(1)?;
                (0..elements).try_for_each(|_| self.fields(fields))
            }
            Kind::Maybe(fields) => match self.reader.i8()? {
                -1 => Ok(()),
                _ => self.fields(fields),
            },
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::codec::reader::ELEMENTS_MAX;

    const SHAPE: Shape = Shape(&[always(Kind::Structs(&[always(TEXT), since(1, I32)])), until(0, BOOL)]);

    #[test]
    fn a_shape_knows_versions_and_forms() {
        let v0 = Bytes::from_static(&[0, 0, 0, 1, 0, 1, b'a', 1]);
        assert_eq!(SHAPE.check(&v0, 0, false), Ok(()));
        let v1 = Bytes::from_static(&[2, 2, b'a', 0, 0, 0, 9, 0, 0]);
        assert_eq!(SHAPE.check(&v1, 1, true), Ok(()));
        assert_eq!(SHAPE.check(&v1.slice(..8), 1, true), Err(Malformed::Truncated));
        assert_eq!(SHAPE.check(&Bytes::from_static(&[0, 0, 0, 0, 1, 9]), 0, false), Err(Malformed::LeftOver(1)));
    }

    #[test]
    fn lengths_that_lie_are_refused() {
        let lie = Bytes::from_static(&[0x7f, 0xff, 0xff, 0xff, 0, 0]);
        assert!(matches!(SHAPE.check(&lie, 0, false), Err(Malformed::ArrayLength { .. })));
        const NULLS: Shape = Shape(&[always(Kind::Array(&TEXT))]);
        let mut many = vec![0xff, 0xff, 0xff, 0x7f]; // compact: 268,435,454 elements
        many.resize(4 << 20, 0);
        assert!(NULLS.check(&many.into(), 0, true).is_err());
        let mut many = vec![0x81, 0x89, 0x7a]; // 2,000,000 elements of one byte each
        many.resize(3 << 20, 0);
        assert_eq!(NULLS.check(&many.into(), 0, true), Err(Malformed::TooManyElements { max: ELEMENTS_MAX }));
    }
}
