//! One HTTP request over a connection of its own, and the answer as it came.

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::time::Duration;

use anyhow::{Context, Result};

const WAIT: Duration = Duration::from_secs(10);

/// An answer.
#[derive(Debug)]
pub struct Answer {
    pub status: u16,
    /// The lines before the body, in lower case.
    pub head: String,
    pub body: String,
}

/// GETs `path`.
///
/// # Errors
/// If what comes is no HTTP/1.1 answer.
pub fn get(address: SocketAddr, path: &str) -> Result<Answer> {
    let mut stream = TcpStream::connect_timeout(&address, WAIT)?;
    stream.set_read_timeout(Some(WAIT))?;
    write!(stream, "GET {path} HTTP/1.1\r\nHost: {address}\r\nConnection: close\r\n\r\n")?;
    let mut text = String::new();
    stream.read_to_string(&mut text)?;
    let (head, body) = text.split_once("\r\n\r\n").with_context(|| format!("no HTTP answer: {text}"))?;
    let status = head.strip_prefix("HTTP/1.1 ").and_then(|rest| rest.get(..3)?.parse().ok()).with_context(|| head.to_owned())?;
    Ok(Answer { status, head: head.to_lowercase(), body: body.to_owned() })
}
