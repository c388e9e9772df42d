//! The endpoints under `/api/`: the table that routes, documents and is README's, and how a request is read.

mod broker;
mod bytes;
mod groups;
mod records;
#[cfg(test)]
mod tests;
mod topics;

use super::{Broker, view::Failure};
use crate::{
    cluster::Image,
    lag::sampler::{Sight, View},
    types::Millis,
};
use axum::{
    http::{HeaderValue, StatusCode, Uri, header},
    response::{IntoResponse, Response},
};
use serde::Serialize;
use std::{fmt::Write, sync::Arc};

/// Items of a list, unless the request says how many.
const LIMIT_DEFAULT: usize = 1_000;
const LIMIT_MAX: usize = 10_000;

/// An endpoint: `{}` in its path stands for a name, percent-encoded.
pub struct Endpoint {
    pub path: &'static str,
    pub doc: &'static str,
    run: fn(&Asked<'_>) -> Result<Json, Failed>,
}

/// Every endpoint.
pub const ENDPOINTS: &[Endpoint] = &[
    Endpoint { path: "/api/overview", doc: "The cluster in a few numbers, and the group that is behind most.", run: broker::overview },
    Endpoint {
        path: "/api/groups",
        doc: "Every consumer group, the worst first: state, members, records and time behind, retention margin, rates, and some points of the last hour. `limit`, `find` for those with a text in their names.",
        run: groups::list,
    },
    Endpoint {
        path: "/api/groups/{group}",
        doc: "One group: also its members and who owns what, every partition, the last hour, and its rebalances with their causes.",
        run: groups::detail,
    },
    Endpoint {
        path: "/api/group",
        doc: "The same for the group of the parameter `name`: clients take `.` and `..` out of paths.",
        run: groups::named,
    },
    Endpoint {
        path: "/api/topics",
        doc: "Every topic: partitions, size, produce rate and skew. `limit`, `internal=true` for Kafka's own.",
        run: topics::list,
    },
    Endpoint { path: "/api/topics/{topic}", doc: "One topic: also its partitions, configs and consumer groups.", run: topics::detail },
    Endpoint {
        path: "/api/topics/{topic}/partitions/{partition}/records",
        doc: "Records to read, the latest unless `from` says an offset: keys, values and headers as text, JSON or hexadecimal. `limit` (50; 1 to 200). A batch that can't be read is one item of kind `unreadable`: from `offset` to `last_offset`, and why (`error`).",
        run: records::page,
    },
    Endpoint { path: "/api/broker", doc: "This broker: listeners, version, memory, data directories, health.", run: broker::detail },
];

/// README's table, in Markdown.
pub fn readme_table() -> String {
    let mut table = String::from("| GET | what it answers |\n| --- | --- |\n");
    for endpoint in ENDPOINTS {
        let _ = writeln!(table, "| `{}` | {} |", endpoint.path, endpoint.doc);
    }
    table
}

/// An answer's text.
struct Json(String);

impl Json {
    fn of(answer: &impl Serialize) -> Result<Self, Failed> {
        serde_json::to_string(answer).map(Self).map_err(|error| Failed(StatusCode::INTERNAL_SERVER_ERROR, error.to_string()))
    }
}

/// Why there's no answer.
#[derive(Debug)]
struct Failed(StatusCode, String);

impl Failed {
    fn not_found(what: &str) -> Self {
        Self(StatusCode::NOT_FOUND, format!("no such {what}"))
    }

    fn bad(what: impl Into<String>) -> Self {
        Self(StatusCode::BAD_REQUEST, what.into())
    }
}

/// A request, with what it is answered from.
struct Asked<'a> {
    broker: &'a Broker,
    image: Arc<Image>,
    now: Millis,
    names: Vec<String>,
    query: &'a str,
}

impl Asked<'_> {
    fn sight(&self) -> Sight<'_> {
        let context = &self.broker.context;
        let (logs, groups, transactions) = (&context.logs, &context.groups, &context.transactions);
        Sight { image: &self.image, logs, groups, transactions, now: self.now }
    }

    /// The lag as it is now.
    fn lag(&self) -> View<'_> {
        self.broker.context.lag.view(&self.sight())
    }

    /// The nth name in the path.
    fn name(&self, nth: usize) -> &str {
        self.names.get(nth).map_or("", String::as_str)
    }

    fn parameter(&self, name: &str) -> Option<&str> {
        let pairs = self.query.split('&').filter_map(|pair| pair.split_once('='));
        pairs.filter(|(key, _)| *key == name).map(|(_, value)| value).next_back()
    }

    /// A parameter as its sender had it.
    fn text(&self, name: &str) -> Result<Option<String>, Failed> {
        let decode = |text| decoded_in_query(text).ok_or_else(|| Failed::bad(format!("{name} isn't UTF-8")));
        self.parameter(name).map(decode).transpose()
    }

    fn number(&self, name: &str) -> Result<Option<i64>, Failed> {
        let parse = |text: &str| text.parse().map_err(|_| Failed::bad(format!("{name} is no number")));
        self.parameter(name).map(parse).transpose()
    }

    /// How many items a list may have.
    fn limit(&self, default: usize, max: usize) -> Result<usize, Failed> {
        match self.number("limit")? {
            None => Ok(default),
            Some(limit) => usize::try_from(limit).map(|limit| limit.min(max)).map_err(|_| Failed::bad("limit is negative")),
        }
    }
}

/// Milliseconds as seconds.
fn seconds(ms: i64) -> f64 {
    ms.max(0) as f64 / 1_000.0
}

/// Answers a request for a path under `/api`. Blocks.
pub(super) fn answer(broker: Option<&Broker>, uri: &Uri) -> Response {
    let answered = match broker {
        Some(broker) => run(broker, uri),
        None => Err(Failed(StatusCode::SERVICE_UNAVAILABLE, "the broker is starting".to_owned())),
    };
    let (status, text) = match answered {
        Ok(Json(text)) => (StatusCode::OK, text),
        Err(Failed(status, error)) => (status, serde_json::to_string(&Failure { error }).unwrap_or_default()),
    };
    let mut response = (status, text).into_response();
    let headers = response.headers_mut();
    for (name, value) in [
        (header::CONTENT_TYPE, "application/json"),
        (header::CACHE_CONTROL, "no-store"),
        (header::X_CONTENT_TYPE_OPTIONS, "nosniff"),
        (header::CONTENT_SECURITY_POLICY, "default-src 'none'; frame-ancestors 'none'"),
    ] {
        headers.insert(name, HeaderValue::from_static(value));
    }
    response
}

fn run(broker: &Broker, uri: &Uri) -> Result<Json, Failed> {
    let found = ENDPOINTS.iter().find_map(|endpoint| Some((endpoint, names(endpoint.path, uri.path())?)));
    let Some((endpoint, names)) = found else { return Err(Failed::not_found("endpoint")) };
    let names = names.into_iter().map(decoded).collect::<Option<Vec<_>>>().ok_or_else(|| Failed::bad("a name in the path isn't UTF-8"))?;
    let context = &broker.context;
    (endpoint.run)(&Asked { broker, image: context.image(), now: context.now(), names, query: uri.query().unwrap_or_default() })
}

/// The names in a path, if it is one of this pattern.
fn names<'a>(pattern: &str, path: &'a str) -> Option<Vec<&'a str>> {
    let (mut parts, mut names) = (path.split('/'), Vec::new());
    for wanted in pattern.split('/') {
        let part = parts.next()?;
        if wanted.starts_with('{') {
            names.push(part);
        } else if wanted != part {
            return None;
        }
    }
    parts.next().is_none().then_some(names)
}

/// A parameter's value, encoded as forms are (`application/x-www-form-urlencoded`, as browsers' `URLSearchParams` and Python's `urlencode`
/// send it): a plus is a space. `None` if it isn't UTF-8.
fn decoded_in_query(value: &str) -> Option<String> {
    decoded(&value.replace('+', " "))
}

/// A name without its percent signs; `None` if it isn't UTF-8.
fn decoded(text: &str) -> Option<String> {
    let mut bytes = Vec::with_capacity(text.len());
    let mut rest = text.as_bytes();
    while let Some((byte, after)) = rest.split_first() {
        let digits = after.first_chunk::<2>().filter(|digits| *byte == b'%' && digits.iter().all(u8::is_ascii_hexdigit));
        let value = digits.and_then(|digits| u8::from_str_radix(std::str::from_utf8(digits).ok()?, 16).ok());
        bytes.push(value.unwrap_or(*byte));
        rest = if value.is_some() { after.get(2..).unwrap_or_default() } else { after };
    }
    String::from_utf8(bytes).ok()
}
