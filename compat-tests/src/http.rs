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
    let mut bytes = Vec::new();
    stream.read_to_end(&mut bytes)?;
    let end = bytes.windows(4).position(|four| four == b"\r\n\r\n");
    let end = end.with_context(|| format!("no HTTP answer: {}", String::from_utf8_lossy(&bytes)))?;
    let (head, body) = (std::str::from_utf8(&bytes[..end])?, &bytes[end + 4..]);
    let status = head.strip_prefix("HTTP/1.1 ").and_then(|rest| rest.get(..3)?.parse().ok()).with_context(|| head.to_owned())?;
    let head = head.to_lowercase();
    let body = if head.contains("transfer-encoding: chunked") { unchunked(body)? } else { body.to_vec() };
    Ok(Answer { status, head, body: String::from_utf8(body)? })
}

fn unchunked(mut rest: &[u8]) -> Result<Vec<u8>> {
    let mut body = Vec::new();
    loop {
        let end = rest.windows(2).position(|two| two == b"\r\n").context("a chunk without its size")?;
        let size = std::str::from_utf8(&rest[..end])?.split(';').next().unwrap_or_default().trim();
        let size = usize::from_str_radix(size, 16).context("a chunk's size")?;
        if size == 0 {
            return Ok(body);
        }
        let chunk = rest.get(end + 2..end + 2 + size).context("a chunk is cut short")?;
        body.extend_from_slice(chunk);
        rest = rest[end + 2 + size..].strip_prefix(b"\r\n").context("a chunk without an end")?;
    }
}

/// A text as a part of a path or a query.
pub fn encoded(text: &str) -> String {
    let plain = |byte: u8| byte.is_ascii_alphanumeric() || b"-_.~".contains(&byte);
    text.bytes().map(|byte| if plain(byte) { char::from(byte).to_string() } else { format!("%{byte:02X}") }).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn chunks_are_joined() {
        assert_eq!(unchunked(b"3\r\nabc\r\nA;x=y\r\n0123456789\r\n0\r\n\r\n").unwrap(), b"abc0123456789");
        for cut in ["", "3\r\nab", "3\r\nabc\r\n", "x\r\n"] {
            assert!(unchunked(cut.as_bytes()).is_err(), "{cut}");
        }
    }

    #[test]
    fn texts_are_encoded() {
        assert_eq!(encoded("a-b {x=\"ü\"}"), "a-b%20%7Bx%3D%22%C3%BC%22%7D");
    }
}
