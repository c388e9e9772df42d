//! Listeners and connections: frames in, answers out, in order, within bounds.
//!
//! One task a connection. It reads a frame, has the [`Service`] handle it, and writes the answers in the order of their requests;
//! while an answer waits (a long-polling Fetch, a sync), the next requests are already handled, up to a bound, unless the request's own work
//! is still to be done. What it never
//! does: look into a request's body, or hold more of a peer's bytes than it has taken from the memory budget.

pub mod connection;
mod inbound;
pub mod listener;
pub mod memory;
mod outbox;

use crate::{
    codec::{Malformed, Reply, header::Prelude, reply::EncodeError},
    telemetry::{CloseReason, RejectReason, RequestTimes},
    types::ErrorCode,
};
use bytes::Bytes;
use std::{
    future::Future,
    net::SocketAddr,
    pin::Pin,
    sync::{Arc, OnceLock},
    time::Duration,
};

/// A listener as clients see it: the address that Metadata answers on it name.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ListenerInfo {
    /// `PLAINTEXT` or a name of the user's.
    pub name: String,
    pub advertised_host: String,
    pub advertised_port: u16,
}

/// Who is at the other end.
#[derive(Debug)]
pub struct ConnectionInfo {
    pub peer: SocketAddr,
    pub listener: Arc<ListenerInfo>,
    /// What the client says that it is, once it has.
    pub software: OnceLock<Software>,
}

impl ConnectionInfo {
    pub fn new(peer: SocketAddr, listener: Arc<ListenerInfo>) -> Self {
        Self { peer, listener, software: OnceLock::new() }
    }
}

/// A client's library and its version (KIP-511), as the client says them; each no more than its first [`SOFTWARE_CHARS_MAX`], for every
/// connection keeps them.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Software {
    pub name: Box<str>,
    pub version: Box<str>,
}

/// What is kept of a client's name, and of its version.
const SOFTWARE_CHARS_MAX: usize = 255;

impl Software {
    pub fn new(name: &str, version: &str) -> Self {
        let kept = |text: &str| text.chars().take(SOFTWARE_CHARS_MAX).collect::<String>().into_boxed_str();
        Self { name: kept(name), version: kept(version) }
    }
}

/// What goes with an answer that is held back. It is dropped with the connection.
pub trait Hold: Send {
    /// Another request has come on the connection.
    fn interrupt(self: Box<Self>);
}

/// What a request comes to.
pub enum Answer {
    Ready(Reply),
    /// What it asked for is done, and waits for an offset or a disk; later requests of the connection are handled meanwhile, their
    /// answers stay behind it.
    Later(Pin<Box<dyn Future<Output = Result<Reply, Refusal>> + Send>>),
    /// What it asked for is done only while this runs. No later request of the connection is handled before, so that none overtakes it: a
    /// producer's next batch, or a question after a change (Kafka mutes the channel for every request).
    Acting(Pin<Box<dyn Future<Output = Result<Reply, Refusal>> + Send>>),
    /// The same, and it may wait for minutes: it has let go of its frame, whose memory goes back to the budget now.
    Parked(Pin<Box<dyn Future<Output = Result<Reply, Refusal>> + Send>>),
    /// The same, and nobody may wait for it: it is held back for news. The second part is told when another request comes on the connection, and
    /// dropped with the connection; whoever made it gives the answer then.
    Held(Pin<Box<dyn Future<Output = Result<Reply, Refusal>> + Send>>, Box<dyn Hold>),
}

/// Why a connection is closed instead of an answer. One (rate-limited) log line each.
#[derive(Debug, thiserror::Error)]
pub enum Refusal {
    #[error("malformed request: {0}")]
    Malformed(#[from] Malformed),
    #[error("a frame of {len} bytes where at most {max} are allowed")]
    FrameLength { len: i64, max: usize },
    #[error("API key {0} is not served here")]
    UnknownApi(i16),
    #[error("{api} version {version} is not served here (versions {min} to {max} are)")]
    UnsupportedVersion { api: &'static str, version: i16, min: i16, max: i16 },
    #[error("produce with acks=0 failed ({0}), which only a closed connection can tell the producer")]
    Unacknowledged(ErrorCode),
    #[error(transparent)]
    Encode(#[from] EncodeError),
    #[error("no memory for the request within {} s: queued.max.request.bytes is taken by other requests", .0.as_secs())]
    OutOfMemory(Duration),
    #[error("a frame of {len} bytes was not there after {} s, while other requests wait for the memory that it holds", .after.as_secs())]
    Slow { len: usize, after: Duration },
}

/// An answered request, for metrics.
#[derive(Debug, Clone, Copy)]
pub struct Answered {
    /// The API's place in the table.
    pub api: usize,
    pub error: ErrorCode,
    pub times: RequestTimes,
    pub request_bytes: usize,
    pub response_bytes: usize,
}

/// What connections serve. The broker's is `api::Context`; tests have their own.
pub trait Service: Send + Sync + 'static {
    /// The most bytes that a frame which begins like this may have; with `None`, that any frame may have.
    fn frame_bytes_max(&self, prelude: Option<Prelude>) -> usize;
    /// Handles one frame (without its length); the number is the API's place in the table.
    fn handle(&self, connection: &Arc<ConnectionInfo>, frame: Bytes) -> (usize, Result<Answer, Refusal>);
    /// An answer has left.
    fn sent(&self, answered: &Answered);
    /// A connection is about to be closed; `frame` is the beginning of what it sent.
    fn refused(&self, connection: &ConnectionInfo, frame: &[u8], refusal: &Refusal);
    fn opened(&self);
    fn closed(&self, reason: CloseReason);
    /// A connection was closed unserved.
    fn turned_away(&self, peer: SocketAddr, reason: RejectReason);
}

#[cfg(test)]
mod tests;
