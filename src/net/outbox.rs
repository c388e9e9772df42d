//! Answers on their way out: gathered writes of encoded parts, `sendfile` for ranges of files.

use crate::codec::Segment;
use bytes::Buf;
use rustix::net::{SendAncillaryBuffer, SendFlags};
use std::{
    collections::VecDeque,
    io::{self, IoSlice},
    os::fd::BorrowedFd,
};
use tokio::{io::Interest, net::TcpStream};

/// Parts gathered in one write.
const GATHER_MAX: usize = 16;
/// After so many bytes other connections have their turn, even if the socket takes more.
const WRITE_BYTES_PER_TURN: usize = 2 << 20;
/// The most of a file that is copied at once where `sendfile` cannot be used.
const COPY_CHUNK_BYTES: usize = 64 << 10;

/// What is still to be written, and whose answer each part belongs to.
pub struct Outbox<T> {
    answers: VecDeque<(VecDeque<Segment>, T)>,
    /// Encoded bytes in memory (file ranges don't count).
    memory_bytes: usize,
}

impl<T> Default for Outbox<T> {
    fn default() -> Self {
        Self { answers: VecDeque::new(), memory_bytes: 0 }
    }
}

impl<T> Outbox<T> {
    pub fn push(&mut self, segments: Vec<Segment>, of: T) {
        self.memory_bytes += segments.iter().map(in_memory).sum::<usize>();
        self.answers.push_back((segments.into(), of));
    }

    pub fn is_empty(&self) -> bool {
        self.answers.is_empty()
    }

    pub fn memory_bytes(&self) -> usize {
        self.memory_bytes
    }

    /// Writes until all is out (`Ok(true)`), or the socket takes no more or it's others' turn (`Ok(false)`); `sent` hears of each answer that has left.
    pub fn write(&mut self, stream: &TcpStream, mut sent: impl FnMut(T)) -> io::Result<bool> {
        let mut written = 0_usize;
        loop {
            while self.answers.front().is_some_and(|(segments, _)| segments.iter().all(Segment::is_empty)) {
                if let Some((_, of)) = self.answers.pop_front() {
                    sent(of);
                }
            }
            if self.answers.is_empty() {
                return Ok(true);
            }
            if written >= WRITE_BYTES_PER_TURN {
                return Ok(false);
            }
            match stream.try_io(Interest::WRITABLE, || self.write_once(stream)) {
                Ok(n) => {
                    written = written.saturating_add(n);
                    self.advance(n);
                }
                Err(e) if e.kind() == io::ErrorKind::WouldBlock => return Ok(false),
                Err(e) if e.kind() == io::ErrorKind::Interrupted => {}
                Err(e) => return Err(e),
            }
        }
    }

    /// One system call: a gathered send of encoded parts, or a range of a file.
    fn write_once(&self, stream: &TcpStream) -> io::Result<usize> {
        let mut gathered: [IoSlice<'_>; GATHER_MAX] = std::array::from_fn(|_| IoSlice::new(&[]));
        let mut count = 0;
        let mut file_follows = false;
        for segment in self.answers.iter().flat_map(|(segments, _)| segments).filter(|s| !s.is_empty()) {
            match segment {
                Segment::Bytes(bytes) => {
                    let Some(slot) = gathered.get_mut(count) else { break };
                    *slot = IoSlice::new(bytes);
                    count += 1;
                }
                Segment::File { file, position, len } if count == 0 => {
                    return match file.fd() {
                        Some(fd) => send_file(stream, fd, *position, *len),
                        None => {
                            let mut chunk = vec![0; (*len).min(COPY_CHUNK_BYTES)];
                            let n = file.read_at(&mut chunk, *position)?;
                            at_end_of_file(n)?;
                            send(stream, &[IoSlice::new(chunk.get(..n).unwrap_or_default())], false)
                        }
                    };
                }
                Segment::File { .. } => {
                    file_follows = true;
                    break;
                }
            }
        }
        send(stream, gathered.get(..count).unwrap_or_default(), file_follows)
    }

    fn advance(&mut self, mut n: usize) {
        for segment in self.answers.iter_mut().flat_map(|(segments, _)| segments) {
            let step = n.min(segment.len());
            match segment {
                Segment::Bytes(bytes) => {
                    bytes.advance(step);
                    self.memory_bytes = self.memory_bytes.saturating_sub(step);
                }
                Segment::File { position, len, .. } => {
                    *position += step as u64;
                    *len -= step;
                }
            }
            n -= step;
            if n == 0 {
                return;
            }
        }
    }
}

fn in_memory(segment: &Segment) -> usize {
    match segment {
        Segment::Bytes(bytes) => bytes.len(),
        Segment::File { .. } => 0,
    }
}

/// `more`: the kernel may wait for the file range that follows, so that the answer's head doesn't go out as a packet of its own.
fn send(stream: &TcpStream, parts: &[IoSlice<'_>], more: bool) -> io::Result<usize> {
    let flags = if more { SendFlags::NOSIGNAL | SendFlags::MORE } else { SendFlags::NOSIGNAL };
    if let [part] = parts {
        return Ok(rustix::net::send(stream, part, flags)?);
    }
    Ok(rustix::net::sendmsg(stream, parts, &mut SendAncillaryBuffer::default(), flags)?)
}

fn send_file(stream: &TcpStream, file: BorrowedFd<'_>, mut position: u64, len: usize) -> io::Result<usize> {
    let n = rustix::fs::sendfile(stream, file, Some(&mut position), len)?;
    at_end_of_file(n)?;
    Ok(n)
}

/// A range that ends before its length: the file was cut under it. The answer cannot be completed.
fn at_end_of_file(n: usize) -> io::Result<()> {
    if n == 0 {
        return Err(io::Error::new(io::ErrorKind::UnexpectedEof, "a segment file is shorter than the range to be sent from it"));
    }
    Ok(())
}
