//! What a broker answers under `/api/` and `/metrics`, for tests that look into it.

use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use serde_json::Value;

use crate::{Broker, http};

const WAIT: Duration = Duration::from_secs(30);

/// GETs a path that is answered in JSON.
///
/// # Errors
/// If the answer isn't 200.
pub fn json(broker: &Broker, path: &str) -> Result<Value> {
    let answer = http::get(broker.http().context("HTTP is on")?, path)?;
    ensure!(answer.status == 200, "{path}: {} {}", answer.status, answer.body);
    Ok(serde_json::from_str(&answer.body)?)
}

/// A group, by any name.
///
/// # Errors
/// As [`json`].
pub fn group(broker: &Broker, group: &str) -> Result<Value> {
    json(broker, &format!("/api/group?name={}", http::encoded(group)))
}

/// One of the partitions of a group's only topic.
pub fn partition(group: &Value, partition: usize) -> &Value {
    let all = group["partitions_list"].as_array().map_or(&[][..], Vec::as_slice);
    all.iter().find(|p| p["partition"] == partition).unwrap_or(&Value::Null)
}

/// Asks until the answer is so.
///
/// # Errors
/// If it isn't in time, with the last answer.
pub fn until(what: &str, ask: impl Fn() -> Result<Value>, is_so: impl Fn(&Value) -> bool) -> Result<Value> {
    let deadline = Instant::now() + WAIT;
    loop {
        let last = ask();
        match &last {
            Ok(value) if is_so(value) => return last,
            _ if Instant::now() > deadline => anyhow::bail!("not in time: {what}; last {last:?}"),
            _ => std::thread::sleep(Duration::from_millis(50)),
        }
    }
}

/// A group, once it is so.
///
/// # Errors
/// As [`until`].
pub fn group_until(broker: &Broker, name: &str, what: &str, is_so: impl Fn(&Value) -> bool) -> Result<Value> {
    until(what, || group(broker, name), is_so)
}

/// A series' value: `series` is its name with its labels, as the exposition has them.
///
/// # Errors
/// If it isn't there.
pub fn metric(broker: &Broker, series: &str) -> Result<f64> {
    let answer = http::get(broker.http().context("HTTP is on")?, "/metrics")?;
    let line = answer.body.lines().find_map(|line| line.strip_prefix(series)?.strip_prefix(' ')).with_context(|| format!("no {series}"))?;
    Ok(line.parse()?)
}
