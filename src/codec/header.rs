//! The request header: read by hand, since a request of an unknown API or version must still be answered or named in a log line.
//!
//! Versions 1 (key, version, correlation id, client id) and 2 (the same and tagged fields). The client id is a plain nullable
//! string in both. KIP-482, KIP-511.

use super::reader::{Malformed, Reader};
use bytes::Bytes;

/// The first bytes of any frame: what it asks for. Eight bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Prelude {
    pub api_key: i16,
    pub api_version: i16,
    pub correlation_id: i32,
}

impl Prelude {
    pub const BYTES: usize = 8;

    /// Reads it from the start of a frame (after the length); `None` with fewer than eight bytes.
    pub fn peek(frame: &[u8]) -> Option<Self> {
        let [k0, k1, v0, v1, c0, c1, c2, c3] = *frame.first_chunk::<{ Self::BYTES }>()?;
        Some(Self {
            api_key: i16::from_be_bytes([k0, k1]),
            api_version: i16::from_be_bytes([v0, v1]),
            correlation_id: i32::from_be_bytes([c0, c1, c2, c3]),
        })
    }
}

/// A request's header, read.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RequestHeader {
    pub api_version: i16,
    pub correlation_id: i32,
    /// What the client calls itself; UTF-8.
    pub client_id: Option<Bytes>,
    /// Whether the body is in flexible form.
    pub flexible: bool,
}

impl RequestHeader {
    /// Splits a frame into its header and its body.
    pub fn decode(frame: Bytes, prelude: Prelude, flexible: bool) -> Result<(Self, Bytes), Malformed> {
        // The client id keeps its old form in header version 2.
        let mut plain = Reader::new(frame, false);
        plain.skip(Prelude::BYTES)?;
        let client_id = plain.nullable_string()?;
        let mut rest = Reader::new(plain.into_rest(), flexible);
        rest.skip_tagged_fields()?;
        let header = Self { api_version: prelude.api_version, correlation_id: prelude.correlation_id, client_id, flexible };
        Ok((header, rest.into_rest()))
    }

    /// The client id for logs: printable, at most 64 characters.
    pub fn client_id_text(&self) -> String {
        client_id_text(self.client_id.as_deref())
    }
}

/// A peer's text for a log line: escaped, at most 64 characters, `-` for none.
pub fn client_id_text(client_id: Option<&[u8]>) -> String {
    match client_id {
        None => "-".to_owned(),
        Some(bytes) => String::from_utf8_lossy(bytes).chars().take(64).flat_map(char::escape_default).collect(),
    }
}

/// The client id of a frame that cannot be decoded further, for its log line.
pub fn peek_client_id(frame: &[u8]) -> Option<&[u8]> {
    let len: [u8; 2] = *frame.get(Prelude::BYTES..)?.first_chunk()?;
    let len = usize::try_from(i16::from_be_bytes(len)).ok()?;
    frame.get(Prelude::BYTES + 2..)?.get(..len)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn both_header_versions() {
        let frame = Bytes::from_static(&[0, 3, 0, 9, 0, 0, 0, 7, 0, 2, b'm', b'e', 1, 5, 2, b'x', b'y', b'B']);
        let prelude = Prelude::peek(&frame).unwrap();
        assert_eq!(prelude, Prelude { api_key: 3, api_version: 9, correlation_id: 7 });
        let (header, body) = RequestHeader::decode(frame.clone(), prelude, true).unwrap();
        assert_eq!(header.client_id.as_deref(), Some(&b"me"[..]));
        assert_eq!(&body[..], b"B");
        let (_, body) = RequestHeader::decode(frame, prelude, false).unwrap();
        assert_eq!(&body[..], &[1, 5, 2, b'x', b'y', b'B']);
    }

    #[test]
    fn hostile_client_ids_print_safely() {
        assert_eq!(client_id_text(Some(b"a\n\xff")), "a\\n\\u{fffd}");
        assert_eq!(client_id_text(None), "-");
    }
}
