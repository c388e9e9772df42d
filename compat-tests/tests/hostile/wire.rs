//! The writer that hostile frames are made with: it can lie about any length. Depends on nothing of the broker, and on no codec.

use std::io::Write;

/// What every hostile frame calls itself.
pub const CLIENT_ID: &str = "hostile-client";
/// Its correlation id.
pub const CORRELATION_ID: i32 = 7;

/// A length that a frame lies about: the nth of its kind, counted from 0 through the body.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Place {
    Array(usize),
    Text(usize),
    Blob(usize),
    Tags(usize),
    TagSize(usize),
}

impl Place {
    pub fn name(self) -> &'static str {
        match self {
            Self::Array(_) => "array",
            Self::Text(_) => "text",
            Self::Blob(_) => "blob",
            Self::Tags(_) => "tags",
            Self::TagSize(_) => "tag-size",
        }
    }

    /// Another place of the same kind.
    pub fn nth(self, nth: usize) -> Self {
        match self {
            Self::Array(_) => Self::Array(nth),
            Self::Text(_) => Self::Text(nth),
            Self::Blob(_) => Self::Blob(nth),
            Self::Tags(_) => Self::Tags(nth),
            Self::TagSize(_) => Self::TagSize(nth),
        }
    }
}

/// What is written instead of a length.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Lie {
    /// The largest that its form can say.
    Max,
    /// −2, which no form allows; in compact form 2³²−1, which overflows to it in a broker that adds without care.
    Negative,
    /// So many more than there are.
    More(usize),
}

/// A request's body under construction.
pub struct Body {
    pub flexible: bool,
    bytes: Vec<u8>,
    lie: Option<(Place, Lie)>,
    arrays: usize,
    texts: usize,
    blobs: usize,
    tags: usize,
    /// Whether the place of the lie was met.
    pub lied: bool,
}

impl Body {
    pub fn new(flexible: bool, lie: Option<(Place, Lie)>) -> Self {
        Self { flexible, bytes: Vec::new(), lie, arrays: 0, texts: 0, blobs: 0, tags: 0, lied: false }
    }

    pub fn finish(self) -> Vec<u8> {
        self.bytes
    }

    pub fn i8(&mut self, value: i8) {
        self.raw(&value.to_be_bytes());
    }

    pub fn i16(&mut self, value: i16) {
        self.raw(&value.to_be_bytes());
    }

    pub fn i32(&mut self, value: i32) {
        self.raw(&value.to_be_bytes());
    }

    pub fn i64(&mut self, value: i64) {
        self.raw(&value.to_be_bytes());
    }

    pub fn raw(&mut self, bytes: &[u8]) {
        self.bytes.extend_from_slice(bytes);
    }

    /// An array's length; the caller writes so many elements.
    pub fn array(&mut self, elements: usize) {
        let place = Place::Array(self.arrays);
        self.arrays += 1;
        self.long(place, Some(elements));
    }

    pub fn text(&mut self, text: &str) {
        self.any_text(Some(text.as_bytes()));
    }

    pub fn null_text(&mut self) {
        self.any_text(None);
    }

    pub fn any_text(&mut self, text: Option<&[u8]>) {
        let place = Place::Text(self.texts);
        self.texts += 1;
        if self.flexible {
            self.long(place, text.map(<[u8]>::len));
        } else {
            let honest = text.map_or(-1, |t| t.len() as i16);
            let length = match self.lie_at(place) {
                Some(Lie::Max) => i16::MAX,
                Some(Lie::Negative) => -2,
                Some(Lie::More(more)) => honest + more as i16,
                None => honest,
            };
            self.i16(length);
        }
        self.raw(text.unwrap_or_default());
    }

    pub fn blob(&mut self, blob: Option<&[u8]>) {
        let place = Place::Blob(self.blobs);
        self.blobs += 1;
        self.long(place, blob.map(<[u8]>::len));
        self.raw(blob.unwrap_or_default());
    }

    /// The tagged fields at a struct's end: none.
    pub fn tags(&mut self) {
        if !self.flexible {
            return;
        }
        let nth = self.tags;
        self.tags += 1;
        let lies = |lie| if lie == Lie::Negative { u64::from(u32::MAX) } else { i32::MAX as u64 };
        if let Some(lie) = self.lie_at(Place::Tags(nth)) {
            return self.varint(lies(lie));
        }
        if let Some(lie) = self.lie_at(Place::TagSize(nth)) {
            self.varint(1);
            self.varint(7777);
            return self.varint(lies(lie));
        }
        self.varint(0);
    }

    pub fn varint(&mut self, mut value: u64) {
        while value >= 0x80 {
            self.bytes.push(value as u8 | 0x80);
            value >>= 7;
        }
        self.bytes.push(value as u8);
    }

    fn lie_at(&mut self, place: Place) -> Option<Lie> {
        let lie = self.lie.filter(|(at, _)| *at == place).map(|(_, lie)| lie);
        self.lied |= lie.is_some();
        lie
    }

    /// A length of 32 bits, or a compact one.
    fn long(&mut self, place: Place, honest: Option<usize>) {
        let lie = self.lie_at(place);
        if self.flexible {
            let honest = honest.map_or(0, |n| n as u64 + 1);
            self.varint(match lie {
                Some(Lie::More(more)) => honest + more as u64,
                Some(Lie::Max) => i32::MAX as u64,
                Some(Lie::Negative) => u64::from(u32::MAX),
                None => honest,
            });
        } else {
            let honest = honest.map_or(-1, |n| n as i32);
            self.i32(match lie {
                Some(Lie::Max) => i32::MAX,
                Some(Lie::Negative) => -2,
                Some(Lie::More(more)) => honest + more as i32,
                None => honest,
            });
        }
    }
}

/// A whole frame with its length: header (with tagged fields if `flexible`) and body.
pub fn frame(key: i16, version: i16, flexible: bool, body: &[u8]) -> Vec<u8> {
    let mut header = Body::new(false, None);
    header.i16(key);
    header.i16(version);
    header.i32(CORRELATION_ID);
    header.text(CLIENT_ID);
    if flexible {
        header.varint(0);
    }
    framed(&[&header.finish(), body])
}

/// Parts after their common length.
pub fn framed(parts: &[&[u8]]) -> Vec<u8> {
    let bytes = parts.concat();
    [&(bytes.len() as i32).to_be_bytes()[..], &bytes].concat()
}

/// A zigzag varint, as records have them.
pub fn zigzag(value: i64) -> Vec<u8> {
    let mut body = Body::new(true, None);
    body.varint(((value << 1) ^ (value >> 63)) as u64);
    body.finish()
}

/// Bytes that look random and are the same in every run (xorshift64*).
pub struct Noise(u64);

impl Noise {
    pub fn new(seed: u64) -> Self {
        Self(seed.wrapping_mul(0x9E37_79B9_7F4A_7C15) | 1)
    }

    pub fn next(&mut self) -> u64 {
        self.0 ^= self.0 >> 12;
        self.0 ^= self.0 << 25;
        self.0 ^= self.0 >> 27;
        self.0.wrapping_mul(0x2545_F491_4F6C_DD1D)
    }

    pub fn below(&mut self, bound: usize) -> usize {
        (self.next() >> 33) as usize % bound
    }

    pub fn bytes(&mut self, count: usize) -> Vec<u8> {
        let mut bytes = Vec::with_capacity(count + 8);
        while bytes.len() < count {
            let _ = bytes.write_all(&self.next().to_be_bytes());
        }
        bytes.truncate(count);
        bytes
    }
}
