//! What the commands that ask a running broker share: a GET of its JSON API, spans of time, and tables.
#![allow(clippy::disallowed_methods, reason = "a command: it drives its one connection itself")]

use anyhow::{Context as _, bail};
use clap::Args;
use hyper::{Request, body::Incoming, client::conn::http1, header};
use hyper_util::rt::TokioIo;
use serde::de::DeserializeOwned;
use std::{
    io::{self, Write},
    time::Duration,
};
use tokio::{net::TcpStream, time::timeout};

/// How long an answer may take.
const TIMEOUT: Duration = Duration::from_secs(30);
/// No answer is larger.
const ANSWER_BYTES_MAX: usize = 256 << 20;

/// Where the broker is.
#[derive(Debug, Clone, Args)]
pub struct Url {
    /// The broker's HTTP listener.
    #[arg(long, value_name = "URL", default_value = "http://127.0.0.1:9308")]
    pub url: String,
}

impl Url {
    /// GETs a path of the API; what it says went wrong, if something did.
    pub fn get<T: DeserializeOwned>(&self, path: &str) -> anyhow::Result<T> {
        let text = self.text(path)?;
        serde_json::from_slice(&text).with_context(|| format!("read what {}{path} answers", self.url))
    }

    fn text(&self, path: &str) -> anyhow::Result<Vec<u8>> {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().context("start the runtime")?;
        let answered = runtime.block_on(async { timeout(TIMEOUT, exchange(&self.url, path)).await });
        let (status, text) = answered
            .with_context(|| format!("{} did not answer within {} s", self.url, TIMEOUT.as_secs()))?
            .with_context(|| format!("ask {} (is the broker running, and is --url its http.listeners?)", self.url))?;
        if !status.is_success() {
            let failure: Option<crate::http::view::Failure> = serde_json::from_slice(&text).ok();
            bail!("{}{path}: {}", self.url, failure.map_or_else(|| status.to_string(), |failure| failure.error));
        }
        Ok(text)
    }
}

async fn exchange(url: &str, path: &str) -> anyhow::Result<(hyper::StatusCode, Vec<u8>)> {
    let authority = url.strip_prefix("http://").unwrap_or(url).trim_end_matches('/');
    let address = if authority.rsplit_once(':').is_some_and(|(_, port)| port.parse::<u16>().is_ok()) {
        authority.to_owned()
    } else {
        format!("{authority}:80")
    };
    let stream = TcpStream::connect(&address).await.with_context(|| format!("connect to {address}"))?;
    let (mut sender, connection) = http1::handshake(TokioIo::new(stream)).await?;
    let request = Request::get(path).header(header::HOST, authority).header(header::CONNECTION, "close").body(String::new())?;
    let exchange = async {
        let answer = sender.send_request(request).await?;
        let status = answer.status();
        Ok::<_, anyhow::Error>((status, read(answer.into_body()).await?))
    };
    let (answered, _) = tokio::join!(exchange, connection);
    answered
}

async fn read(mut body: Incoming) -> anyhow::Result<Vec<u8>> {
    let mut bytes = Vec::new();
    loop {
        let frame = std::future::poll_fn(|context| hyper::body::Body::poll_frame(std::pin::Pin::new(&mut body), context)).await;
        let Some(frame) = frame else { return Ok(bytes) };
        if let Ok(data) = frame?.into_data() {
            bytes.extend_from_slice(&data);
        }
        if bytes.len() > ANSWER_BYTES_MAX {
            bail!("the answer is larger than {ANSWER_BYTES_MAX} bytes");
        }
    }
}

/// A name as a part of a path.
pub fn encoded(name: &str) -> String {
    let plain = |byte: u8| byte.is_ascii_alphanumeric() || b"-_.~".contains(&byte);
    name.bytes().map(|byte| if plain(byte) { char::from(byte).to_string() } else { format!("%{byte:02X}") }).collect()
}

/// `90s`, `5m`, `2h`, `1d`, `250ms`, or seconds.
pub fn span(text: &str) -> Result<Duration, String> {
    let digits = text.find(|c: char| !c.is_ascii_digit() && c != '.').unwrap_or(text.len());
    let (number, unit) = text.split_at_checked(digits).unwrap_or((text, ""));
    let seconds = match unit {
        "ms" => 0.001,
        "" | "s" => 1.0,
        "m" => 60.0,
        "h" => 3_600.0,
        "d" => 86_400.0,
        _ => return Err(format!("{unit:?} is no unit: ms, s, m, h or d")),
    };
    let number: f64 = number.parse().map_err(|_| format!("{text:?} is no span of time, as 90s or 5m"))?;
    Duration::try_from_secs_f64(number * seconds).map_err(|error| error.to_string())
}

/// Seconds for people: the two largest units.
pub fn in_words(seconds: f64) -> String {
    let whole = seconds.max(0.0) as u64;
    let (days, hours, minutes, rest) = (whole / 86_400, whole / 3_600 % 24, whole / 60 % 60, whole % 60);
    match (days, hours, minutes) {
        (0, 0, 0) if seconds < 10.0 => format!("{:.1}s", seconds.max(0.0)),
        (0, 0, 0) => format!("{rest}s"),
        (0, 0, _) => format!("{minutes}m{rest:02}s"),
        (0, ..) => format!("{hours}h{minutes:02}m"),
        _ => format!("{days}d{hours:02}h"),
    }
}

/// Seconds that may not be known.
pub fn maybe(seconds: Option<f64>) -> String {
    seconds.map_or_else(|| "-".to_owned(), in_words)
}

/// A peer's text on a terminal: printable.
pub fn printable(text: &str) -> String {
    text.chars().flat_map(char::escape_debug).collect()
}

/// Rows under a head, columns as wide as their widest cell; numbers are told by the head, which ends with `>`.
pub fn table(head: &[&str], rows: &[Vec<String>]) -> String {
    let width = |i: usize| {
        let cells = rows.iter().filter_map(|row| row.get(i)).map(|cell| cell.chars().count());
        cells.chain(head.get(i).map(|name| name.trim_end_matches('>').len())).max().unwrap_or(0)
    };
    let widths: Vec<usize> = (0..head.len()).map(width).collect();
    let mut text = String::new();
    let names: Vec<String> = head.iter().map(|name| name.trim_end_matches('>').to_owned()).collect();
    for row in std::iter::once(&names).chain(rows) {
        let mut line = String::new();
        for ((cell, width), name) in row.iter().zip(&widths).zip(head) {
            let padded = if name.ends_with('>') { format!("{cell:>width$}") } else { format!("{cell:width$}") };
            line.push_str(if line.is_empty() { "" } else { "  " });
            line.push_str(&padded);
        }
        text.push_str(line.trim_end());
        text.push('\n');
    }
    text
}

/// Writes to stdout; false where nobody reads any more.
pub fn print(text: &str) -> bool {
    let mut out = io::stdout().lock();
    out.write_all(text.as_bytes()).and_then(|()| out.flush()).is_ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn spans_are_read_and_said() {
        assert_eq!(span("5m"), Ok(Duration::from_secs(300)));
        assert_eq!(span("250ms"), Ok(Duration::from_millis(250)));
        assert_eq!(span("90"), Ok(Duration::from_secs(90)));
        assert_eq!(span("1.5h"), Ok(Duration::from_secs(5_400)));
        for wrong in ["", "m", "5 m", "5x", "-5m", "1e400d", "1.2.3s"] {
            assert!(span(wrong).is_err(), "{wrong}");
        }
        let said = [0.0, 0.34, 59.9, 61.0, 2_280.0, 7_260.0, 90_000.0].map(in_words);
        assert_eq!(said, ["0.0s", "0.3s", "59s", "1m01s", "38m00s", "2h01m", "1d01h"]);
    }

    #[test]
    fn tables_line_up() {
        let rows = [vec!["billing".to_owned(), "7".to_owned()], vec!["a".to_owned(), "1234".to_owned()]];
        assert_eq!(table(&["GROUP", "LAG>"], &rows), "GROUP     LAG\nbilling     7\na        1234\n");
        assert_eq!(printable("a\nb\u{1b}"), "a\\nb\\u{1b}");
        assert_eq!(encoded("a b/ü"), "a%20b%2F%C3%BC");
    }
}
