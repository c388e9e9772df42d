//! A connection to a broker that says exactly what a test wants said: a request of the protocol's tables, or any bytes at all.
//! It never retries, never reconnects and never looks at what it is told to send.

use std::io::{ErrorKind, Read, Write};
use std::net::{Shutdown, SocketAddr, TcpStream};
use std::os::fd::{AsFd, BorrowedFd};
use std::time::Duration;

use anyhow::{Context, Result, bail, ensure};
use bytes::{Buf, BufMut, Bytes, BytesMut};
use kafka_protocol::messages::{ApiVersionsRequest, RequestHeader};
use kafka_protocol::protocol::{Decodable, Encodable, HeaderVersion, Request, StrBytes};

/// The longest that an answer may take.
const WAIT: Duration = Duration::from_secs(30);

/// One connection, its correlation ids counting from 1.
pub struct Client {
    stream: TcpStream,
    correlation_id: i32,
    client_id: StrBytes,
}

impl AsFd for Client {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.stream.as_fd()
    }
}

impl Client {
    /// # Errors
    /// If the broker doesn't accept a connection.
    pub fn connect(address: SocketAddr) -> Result<Self> {
        Self::connect_as(address, "compat-tests")
    }

    /// [`Client::connect`] with a client id of the test's own.
    ///
    /// # Errors
    /// As [`Client::connect`].
    pub fn connect_as(address: SocketAddr, client_id: &str) -> Result<Self> {
        let stream = TcpStream::connect_timeout(&address, WAIT).with_context(|| format!("connect to {address}"))?;
        stream.set_nodelay(true)?;
        stream.set_read_timeout(Some(WAIT))?;
        stream.set_write_timeout(Some(WAIT))?;
        Ok(Self { stream, correlation_id: 0, client_id: StrBytes::from_string(client_id.to_owned()) })
    }

    /// Sends `request` as `version` of its API and reads the answer.
    ///
    /// # Errors
    /// If the request has no such version, the connection ends, or the answer isn't one.
    pub fn ask<R: Request>(&mut self, version: i16, request: &R) -> Result<R::Response> {
        self.send(version, request)?;
        self.receive::<R>(version)?.context("the broker closed the connection")
    }

    /// [`Client::ask`], with `None` if the broker closes the connection instead of an answer.
    ///
    /// # Errors
    /// As [`Client::ask`].
    pub fn ask_or_closed<R: Request>(&mut self, version: i16, request: &R) -> Result<Option<R::Response>> {
        self.send(version, request)?;
        self.receive::<R>(version)
    }

    /// [`Client::ask_or_closed`] with another request right behind this one, so that nothing is a reason for the broker to hold an answer back.
    ///
    /// # Errors
    /// As [`Client::ask`].
    pub fn ask_with_another_behind<R: Request>(&mut self, version: i16, request: &R) -> Result<Option<R::Response>> {
        self.send(version, request)?;
        let correlation_id = self.correlation_id;
        self.send(0, &ApiVersionsRequest::default())?;
        let answer = self.receive_answer::<R>(version, correlation_id)?;
        if answer.is_some() {
            self.receive::<ApiVersionsRequest>(0)?;
        }
        Ok(answer)
    }

    /// Sends without reading an answer, as for a pipeline, or for Produce with acks 0.
    ///
    /// # Errors
    /// If the request has no such version, or the connection ended.
    pub fn send<R: Request>(&mut self, version: i16, request: &R) -> Result<()> {
        let frame = self.encode(version, request)?;
        self.send_frame(&frame)
    }

    /// The frame of `request` without its length, with the next correlation id.
    ///
    /// # Errors
    /// If the request has no such version.
    pub fn encode<R: Request>(&mut self, version: i16, request: &R) -> Result<BytesMut> {
        let mut frame = self.header::<R>(version)?;
        request.encode(&mut frame, version)?;
        Ok(frame)
    }

    fn header<R: Request>(&mut self, version: i16) -> Result<BytesMut> {
        self.correlation_id += 1;
        let mut frame = BytesMut::new();
        RequestHeader::default()
            .with_request_api_key(R::KEY)
            .with_request_api_version(version)
            .with_correlation_id(self.correlation_id)
            .with_client_id(Some(self.client_id.clone()))
            .encode(&mut frame, R::header_version(version))?;
        Ok(frame)
    }

    /// Reads the answer to a request of type `R`; `None` if the broker closed the connection.
    ///
    /// # Errors
    /// If nothing comes in [`WAIT`], or the answer isn't one, or bytes are left over.
    pub fn receive<R: Request>(&mut self, version: i16) -> Result<Option<R::Response>> {
        self.receive_answer::<R>(version, self.correlation_id)
    }

    fn receive_answer<R: Request>(&mut self, version: i16, expected: i32) -> Result<Option<R::Response>> {
        let Some(mut frame) = self.receive_frame()? else { return Ok(None) };
        ensure!(frame.len() >= 4, "an answer of {} bytes", frame.len());
        let correlation_id = frame.get_i32();
        ensure!(correlation_id == expected, "the answer is to {correlation_id}, not to {expected}");
        if R::Response::header_version(version) >= 1 {
            skip_tagged_fields(&mut frame)?;
        }
        let answer = R::Response::decode(&mut frame, version)?;
        ensure!(frame.is_empty(), "{} bytes after the answer", frame.len());
        Ok(Some(answer))
    }

    /// Sends `frame` after its length.
    ///
    /// # Errors
    /// If the connection ended.
    pub fn send_frame(&mut self, frame: &[u8]) -> Result<()> {
        let mut bytes = BytesMut::with_capacity(4 + frame.len());
        bytes.put_i32(i32::try_from(frame.len())?);
        bytes.put_slice(frame);
        self.send_bytes(&bytes)
    }

    /// Sends `bytes` as they are.
    ///
    /// # Errors
    /// If the connection ended.
    pub fn send_bytes(&mut self, bytes: &[u8]) -> Result<()> {
        self.stream.write_all(bytes).context("send")
    }

    /// Reads a frame: what follows its length. `None` if the broker closed the connection.
    ///
    /// # Errors
    /// If nothing comes in [`WAIT`], or the connection ends inside a frame.
    pub fn receive_frame(&mut self) -> Result<Option<Bytes>> {
        let mut length = [0; 4];
        if !self.fill(&mut length)? {
            return Ok(None);
        }
        let length = i32::from_be_bytes(length);
        let Ok(length) = usize::try_from(length) else { bail!("a frame of length {length}") };
        let mut frame = vec![0; length];
        ensure!(self.fill(&mut frame)? || length == 0, "the connection ended after a frame's length");
        Ok(Some(Bytes::from(frame)))
    }

    /// Whether the broker closes the connection, with nothing more to say.
    ///
    /// # Errors
    /// If it says something, or nothing happens in [`WAIT`].
    pub fn expect_closed(&mut self) -> Result<()> {
        match self.receive_frame()? {
            None => Ok(()),
            Some(frame) => bail!("an answer of {} bytes instead of the end", frame.len()),
        }
    }

    /// Says that nothing more will be sent; what the broker sends can still be read.
    ///
    /// # Errors
    /// If the connection ended.
    pub fn finish_sending(&mut self) -> Result<()> {
        self.stream.shutdown(Shutdown::Write).context("shut down the sending side")
    }

    /// Fills `buffer`; false if the connection ended before its first byte.
    fn fill(&mut self, buffer: &mut [u8]) -> Result<bool> {
        let mut filled = 0;
        while filled < buffer.len() {
            match self.stream.read(&mut buffer[filled..]) {
                Ok(0) if filled == 0 => return Ok(false),
                Ok(0) => bail!("the connection ended after {filled} of {} bytes", buffer.len()),
                Ok(read) => filled += read,
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                Err(error) if error.kind() == ErrorKind::ConnectionReset && filled == 0 => return Ok(false),
                Err(error) => return Err(error).context("receive"),
            }
        }
        Ok(true)
    }
}

fn skip_tagged_fields(frame: &mut Bytes) -> Result<()> {
    for _ in 0..unsigned_varint(frame)? {
        unsigned_varint(frame)?;
        let size = unsigned_varint(frame)?;
        ensure!(frame.len() >= size, "a tagged field of {size} bytes");
        frame.advance(size);
    }
    Ok(())
}

fn unsigned_varint(frame: &mut Bytes) -> Result<usize> {
    let mut value = 0;
    for shift in (0..35).step_by(7) {
        ensure!(frame.has_remaining(), "the answer ends inside a number");
        let byte = frame.get_u8();
        value |= usize::from(byte & 0x7f) << shift;
        if byte & 0x80 == 0 {
            return Ok(value);
        }
    }
    bail!("a number of more than 5 bytes")
}
