//! Answers as they go out: encoded parts and ranges of files in turn, the length in front.

use crate::{log::io::DiskFile, types::ErrorCode};
use bytes::{BufMut, Bytes, BytesMut};
use kafka_protocol::protocol::Encodable;
use std::sync::Arc;

/// A part of an answer.
pub enum Segment {
    Bytes(Bytes),
    /// `len` bytes of a file from `position` on; goes by `sendfile` where the socket and the disk allow it.
    File {
        file: Arc<dyn DiskFile>,
        position: u64,
        len: usize,
    },
}

impl Segment {
    pub fn len(&self) -> usize {
        match self {
            Self::Bytes(bytes) => bytes.len(),
            Self::File { len, .. } => *len,
        }
    }

    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }
}

/// An answer ready to be sent, and what metrics say of it.
pub struct Reply {
    pub segments: Vec<Segment>,
    /// The worst error in it, or `None`.
    pub error: ErrorCode,
}

/// An answer could not be encoded: a fault of ours. The connection is closed, since its client cannot be answered.
#[derive(Debug, thiserror::Error)]
#[error("encode the answer: {0}")]
pub struct EncodeError(String);

impl From<&std::io::Error> for EncodeError {
    fn from(error: &std::io::Error) -> Self {
        Self(error.to_string())
    }
}

/// Which header goes before an answer's body.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ReplyHeader {
    pub correlation_id: i32,
    /// Header version 1: an (empty) set of tagged fields follows the correlation id. Never for ApiVersions.
    pub tagged: bool,
}

impl ReplyHeader {
    /// Room for the length, then the header; [`finish_frame`] fills in the length.
    pub fn start(&self, frame: &mut BytesMut) {
        frame.put_i32(0);
        frame.put_i32(self.correlation_id);
        if self.tagged {
            frame.put_u8(0);
        }
    }
}

/// Writes the length that a frame (or its first part, with `more` bytes to follow in others) begins with.
pub fn finish_frame(first: &mut BytesMut, more: usize) -> Result<(), EncodeError> {
    let len = first.len().saturating_sub(4).saturating_add(more);
    let len = i32::try_from(len).map_err(|_| EncodeError(format!("{len} bytes are more than a frame can hold")))?;
    if let Some(prefix) = first.first_chunk_mut::<4>() {
        *prefix = len.to_be_bytes();
    }
    Ok(())
}

impl Reply {
    /// An answer whose body the codec crate encodes.
    pub fn encode<T: Encodable>(header: ReplyHeader, body: &T, version: i16, error: ErrorCode) -> Result<Self, EncodeError> {
        let fault = |e: anyhow::Error| EncodeError(e.to_string());
        let size = body.compute_size(version).map_err(fault)?;
        let mut frame = BytesMut::with_capacity(size + 16);
        header.start(&mut frame);
        body.encode(&mut frame, version).map_err(fault)?;
        finish_frame(&mut frame, 0)?;
        Ok(Self { segments: vec![Segment::Bytes(frame.freeze())], error })
    }

    /// Bytes on the wire.
    pub fn len(&self) -> usize {
        self.segments.iter().map(Segment::len).sum()
    }

    pub fn is_empty(&self) -> bool {
        self.segments.iter().all(Segment::is_empty)
    }

    /// No answer at all (Produce with `acks=0`).
    pub fn nothing() -> Self {
        Self { segments: Vec::new(), error: ErrorCode::None }
    }
}
