//! Frames out of a byte stream: length, limit, memory, bytes.
//!
//! Small frames are read many at a time into one buffer. A large one gets a buffer of its own size once the budget has room, and
//! the socket is read exactly to its end, so that its bytes are copied once, by the kernel.

use super::{
    Refusal, Service,
    memory::{Memory, Reserved},
};
use crate::codec::header::Prelude;
use bytes::{Buf, BufMut, Bytes, BytesMut};
use std::io;
use tokio::{io::Interest, net::TcpStream};

/// What is read at a time while no large frame is under way; held by a connection only between its first byte and its answer.
const CHUNK_BYTES: usize = 16 << 10;
const LENGTH_BYTES: usize = 4;

/// A whole frame, without its length, and the memory that it holds.
pub struct Frame {
    pub bytes: Bytes,
    pub reserved: Option<Reserved>,
}

/// What the buffer holds now.
pub enum Next {
    Frame(Frame),
    /// More bytes have to be read.
    Read,
    /// The frame under way has got its memory just now; more bytes have to be read.
    Reserved,
    /// The frame needs so many bytes of the budget before it may be read.
    Memory(usize),
}

/// What a read came to.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Received {
    /// Bytes, and there may be more.
    More,
    /// Bytes, and that was all that there is.
    All,
    /// The socket has nothing.
    Nothing,
    /// The peer sends no more.
    End,
}

#[derive(Default)]
pub struct Inbound {
    buffer: BytesMut,
    reserved: Option<Reserved>,
}

impl Inbound {
    /// The next frame if it is whole.
    pub fn next<S: Service>(&mut self, service: &S, memory: &Memory) -> Result<Next, Refusal> {
        let Some(prefix) = self.buffer.first_chunk::<LENGTH_BYTES>() else { return Ok(Next::Read) };
        let len = i32::from_be_bytes(*prefix);
        let prelude = self.buffer.get(LENGTH_BYTES..).and_then(Prelude::peek);
        let len = self.check_len(len, service.frame_bytes_max(prelude))?;
        let whole = len.saturating_add(LENGTH_BYTES);
        if self.buffer.len() >= whole {
            self.buffer.advance(LENGTH_BYTES);
            let bytes = self.buffer.split_to(len).freeze();
            return Ok(Next::Frame(Frame { bytes, reserved: self.reserved.take() }));
        }
        // A length alone is only a claim: memory is taken for a frame of which a chunk is there.
        if whole > CHUNK_BYTES && self.buffer.len() >= CHUNK_BYTES && self.reserved.is_none() {
            match memory.try_reserve(whole) {
                Some(reserved) => self.reserve_room(whole, reserved),
                None => return Ok(Next::Memory(whole)),
            }
            return Ok(Next::Reserved);
        }
        Ok(Next::Read)
    }

    /// The budget had room after all: takes the buffer for the frame under way.
    pub fn reserve_room(&mut self, whole: usize, reserved: Reserved) {
        self.reserved = Some(reserved);
        self.buffer.reserve(whole.saturating_sub(self.buffer.len()));
    }

    /// The length of the frame under way, if it holds memory of the budget.
    pub fn holds(&self) -> Option<usize> {
        let prefix = self.buffer.first_chunk::<LENGTH_BYTES>().filter(|_| self.reserved.is_some())?;
        usize::try_from(i32::from_be_bytes(*prefix)).ok()
    }

    fn check_len(&self, len: i32, max: usize) -> Result<usize, Refusal> {
        match usize::try_from(len) {
            Ok(n) if (Prelude::BYTES..=max).contains(&n) => Ok(n),
            _ => Err(Refusal::FrameLength { len: len.into(), max }),
        }
    }

    /// Reads what the socket has, once.
    pub fn read(&mut self, stream: &TcpStream) -> io::Result<Received> {
        let wanted = match self.buffer.first_chunk::<LENGTH_BYTES>() {
            Some(prefix) if self.reserved.is_some() => {
                let len = usize::try_from(i32::from_be_bytes(*prefix)).unwrap_or(0);
                len.saturating_add(LENGTH_BYTES).saturating_sub(self.buffer.len())
            }
            _ => {
                self.buffer.reserve(CHUNK_BYTES);
                CHUNK_BYTES
            }
        };
        // A read that got less than it asked for has emptied the socket: tokio is told so, as if a further one had found nothing. Bytes that
        // came meanwhile are an event of their own.
        let mut got = None;
        let read = stream.try_io(Interest::READABLE, || {
            let bytes = stream.try_read_buf(&mut (&mut self.buffer).limit(wanted))?;
            got = Some(bytes);
            if (1..wanted).contains(&bytes) { Err(io::ErrorKind::WouldBlock.into()) } else { Ok(()) }
        });
        match (got, read) {
            (Some(0), _) => Ok(Received::End),
            (Some(_), Ok(())) => Ok(Received::More),
            (Some(_), Err(_)) => Ok(Received::All),
            (None, Err(e)) if e.kind() == io::ErrorKind::WouldBlock => Ok(Received::Nothing),
            (None, read) => read.map(|()| Received::Nothing),
        }
    }

    /// Gives the buffer back while nothing is in it: ten thousand idle connections hold none.
    pub fn rest(&mut self) {
        if self.buffer.is_empty() {
            self.buffer = BytesMut::new();
        }
    }

    /// The beginning of what could not be taken, for its log line.
    pub fn unread(&self) -> &[u8] {
        self.buffer.get(LENGTH_BYTES..).unwrap_or_default()
    }
}
