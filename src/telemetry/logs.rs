//! The log: plain text on stderr by `tracing`, and the brake for lines that a peer can cause. Never reads a clock itself, save for
//! the stamps that the formatter puts on lines.

use crate::types::Millis;
use parking_lot::Mutex;
use std::io::{self, IsTerminal};
use tracing_subscriber::{EnvFilter, fmt, util::TryInitError};

/// The environment variable that says what is logged, in `tracing`'s syntax: `debug`, `highwater::net=trace,info`.
pub const FILTER_VARIABLE: &str = "HIGHWATER_LOG";
/// What is logged if the variable is not set.
pub const FILTER_DEFAULT: &str = "info";

/// Why logging could not be started.
#[derive(Debug, thiserror::Error)]
pub enum LogsError {
    #[error("{FILTER_VARIABLE}={filter} is not a log filter: {reason}")]
    Filter { filter: String, reason: String },
    #[error("start logging")]
    Init(#[source] TryInitError),
}

/// Starts logging to stderr; `filter` is the value of [`FILTER_VARIABLE`] if it is set. Once a process.
pub fn init(filter: Option<&str>) -> Result<(), LogsError> {
    use tracing_subscriber::util::SubscriberInitExt;
    let filter = parse_filter(filter)?;
    let subscriber = fmt()
        .with_env_filter(filter)
        .with_writer(io::stderr)
        .with_ansi(io::stderr().is_terminal())
        // What cannot be written to stderr is lost: reporting that to stderr, as the library would, panics.
        .log_internal_errors(false)
        .finish();
    subscriber.try_init().map_err(LogsError::Init)
}

fn parse_filter(filter: Option<&str>) -> Result<EnvFilter, LogsError> {
    let filter = filter.map(str::trim).filter(|f| !f.is_empty()).unwrap_or(FILTER_DEFAULT);
    EnvFilter::builder().parse(filter).map_err(|e| LogsError::Filter { filter: filter.to_owned(), reason: e.to_string() })
}

/// Lets so many log lines of a kind through in a second and counts the others, so that a hostile peer cannot fill a disk with them.
/// Kinds are names in the source, so their number is bounded.
///
/// ```
/// # use highwater::{telemetry::RateLimited, types::Millis};
/// let rejected = RateLimited::per_second(1);
/// assert_eq!(rejected.admit("too_large", Millis(0)), Some(0)); // log it
/// assert_eq!(rejected.admit("too_large", Millis(900)), None); // don't
/// assert_eq!(rejected.admit("too_large", Millis(1000)), Some(1)); // log it, and that one line was left out before it
/// ```
#[derive(Debug)]
pub struct RateLimited {
    lines_per_second: u32,
    kinds: Mutex<Vec<(&'static str, Window)>>,
}

#[derive(Clone, Copy, Debug)]
struct Window {
    /// The second (since 1970) that `admitted` counts lines of.
    second: i64,
    admitted: u32,
    /// Lines left out and not reported yet.
    suppressed: u64,
}

impl RateLimited {
    /// Fit for a `static`. With 0 nothing is ever logged.
    pub const fn per_second(lines: u32) -> Self {
        Self { lines_per_second: lines, kinds: Mutex::new(Vec::new()) }
    }

    /// Whether a line of this kind may be written now: then the number of lines left out since the last one, to be told with it.
    pub fn admit(&self, kind: &'static str, now: Millis) -> Option<u64> {
        let second = now.0.div_euclid(1000);
        let mut kinds = self.kinds.lock();
        let at = kinds.iter().position(|(known, _)| *known == kind).unwrap_or_else(|| {
            kinds.push((kind, Window { second, admitted: 0, suppressed: 0 }));
            kinds.len().saturating_sub(1)
        });
        let (_, window) = kinds.get_mut(at)?;
        if window.second != second {
            (window.second, window.admitted) = (second, 0);
        }
        if window.admitted >= self.lines_per_second {
            window.suppressed = window.suppressed.saturating_add(1);
            return None;
        }
        window.admitted = window.admitted.saturating_add(1);
        Some(std::mem::take(&mut window.suppressed))
    }

    /// What was left out in seconds that are over and that no later line has told: call it about once a second and log it.
    pub fn drain(&self, now: Millis) -> Vec<(&'static str, u64)> {
        let second = now.0.div_euclid(1000);
        let mut kinds = self.kinds.lock();
        let over = kinds.iter_mut().filter(|(_, window)| window.second != second && window.suppressed > 0);
        over.map(|(kind, window)| (*kind, std::mem::take(&mut window.suppressed))).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn filters_are_checked() {
        assert_eq!(parse_filter(None).unwrap().to_string(), "info");
        assert_eq!(parse_filter(Some("  ")).unwrap().to_string(), "info");
        assert_eq!(parse_filter(Some("debug")).unwrap().to_string(), "debug");
        let error = parse_filter(Some("highwater=loud")).unwrap_err();
        assert!(error.to_string().starts_with("HIGHWATER_LOG=highwater=loud is not a log filter: "), "{error}");
    }

    #[test]
    fn kinds_are_limited_apart_and_suppressed_lines_are_told() {
        let limit = RateLimited::per_second(2);
        assert_eq!(limit.admit("a", Millis(5)), Some(0));
        assert_eq!(limit.admit("a", Millis(5)), Some(0));
        assert_eq!(limit.admit("a", Millis(5)), None);
        assert_eq!(limit.admit("b", Millis(5)), Some(0));
        assert_eq!(limit.admit("a", Millis(999)), None);
        assert_eq!(limit.drain(Millis(999)), [], "the second is not over");
        assert_eq!(limit.admit("a", Millis(1000)), Some(2));
        assert_eq!(limit.admit("a", Millis(1001)), Some(0));
        assert_eq!(limit.admit("a", Millis(1002)), None);
        assert_eq!(limit.drain(Millis(2000)), [("a", 1)]);
        assert_eq!(limit.drain(Millis(3000)), []);
    }

    proptest::proptest! {
        #[test]
        fn every_line_is_written_or_told(times in proptest::collection::vec(0i64..5000, 0..200), lines in 0u32..5) {
            let mut times = times;
            times.sort_unstable();
            let limit = RateLimited::per_second(lines);
            let (mut written, mut told) = (vec![0u32; 5], 0);
            for time in &times {
                if let Some(suppressed) = limit.admit("k", Millis(*time)) {
                    written[(*time / 1000) as usize] += 1;
                    told += suppressed;
                }
            }
            told += limit.drain(Millis(10_000)).iter().map(|(_, n)| n).sum::<u64>();
            proptest::prop_assert!(written.iter().all(|n| *n <= lines));
            proptest::prop_assert_eq!(u64::from(written.iter().sum::<u32>()) + told, times.len() as u64);
        }
    }
}
