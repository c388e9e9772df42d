//! A running Prometheus, Debian's: it scrapes a broker every second and answers queries. And promtool, its judge of metrics and rules.

use std::fs;
use std::io::Write;
use std::net::{Ipv4Addr, SocketAddr, TcpListener};
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail, ensure};
use serde_json::Value;
use tempfile::TempDir;

use crate::http;
use crate::process::{Leash, run, run_any, tail};

/// The longest that it may take to start, and promtool to judge.
const WAIT: Duration = Duration::from_secs(30);
/// Another process may take the free port before Prometheus has it.
const STARTS_MAX: usize = 3;

/// It ends with this value.
pub struct Prometheus {
    child: Child,
    _leash: Leash,
    _temp: TempDir,
    address: SocketAddr,
}

/// A series of an answer: its labels, and its value as Prometheus writes it.
#[derive(Clone, Debug)]
pub struct Sample {
    pub labels: serde_json::Map<String, Value>,
    pub value: f64,
}

impl Prometheus {
    /// Starts one that scrapes `target` as the job `highwater`, with the rules of a file.
    ///
    /// # Errors
    /// If it isn't ready within [`WAIT`].
    pub fn start(target: SocketAddr, rules: Option<&Path>) -> Result<Self> {
        Self::start_with(target, rules, None)
    }

    /// [`Prometheus::start`] of one that has scraped the target before: it knows of the past what [`Past`] holds.
    ///
    /// # Errors
    /// As [`Prometheus::start`], and if promtool can't read the past.
    pub fn start_after(target: SocketAddr, past: &Past) -> Result<Self> {
        Self::start_with(target, None, Some(past))
    }

    fn start_with(target: SocketAddr, rules: Option<&Path>, past: Option<&Past>) -> Result<Self> {
        let mut tries = 1;
        loop {
            match Self::start_once(target, rules, past) {
                Err(_) if tries < STARTS_MAX => tries += 1,
                started => return started,
            }
        }
    }

    fn start_once(target: SocketAddr, rules: Option<&Path>, past: Option<&Past>) -> Result<Self> {
        let temp = TempDir::with_prefix("prometheus-test-").context("make a directory")?;
        let config = temp.path().join("prometheus.yml");
        let rules = rules.map(|path| format!("rule_files: [{path:?}]\n")).unwrap_or_default();
        fs::write(
            &config,
            format!(
                "global: {{ scrape_interval: 1s, scrape_timeout: 1s, evaluation_interval: 1s }}\n{rules}\
                 scrape_configs: [{{ job_name: highwater, static_configs: [{{ targets: [\"{target}\"] }}] }}]\n"
            ),
        )?;
        if let Some(past) = past {
            fs::write(temp.path().join("past"), past.open_metrics(target))?;
            promtool(temp.path(), &["tsdb", "create-blocks-from", "openmetrics", "past", "data"])?;
        }
        let address = TcpListener::bind((Ipv4Addr::LOCALHOST, 0))?.local_addr()?;
        let log = fs::File::create(temp.path().join("prometheus.log"))?;
        let mut child = Command::new("prometheus")
            .arg(format!("--config.file={}", config.display()))
            .arg(format!("--storage.tsdb.path={}", temp.path().join("data").display()))
            .arg(format!("--web.listen-address={address}"))
            .current_dir(temp.path())
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(log)
            .spawn()
            .context("start prometheus: compat-tests/install brings it")?;
        let leash = Leash::tie(&child, Some(temp.path()))?;
        let deadline = Instant::now() + WAIT;
        loop {
            if http::get(address, "/-/ready").is_ok_and(|answer| answer.status == 200) {
                return Ok(Self { child, _leash: leash, _temp: temp, address });
            }
            if child.try_wait()?.is_some() || Instant::now() > deadline {
                let _ = child.kill();
                let _ = child.wait();
                let log = fs::read(temp.path().join("prometheus.log")).unwrap_or_default();
                bail!("prometheus isn't ready; its log ends with\n{}", tail(&log));
            }
            thread::sleep(Duration::from_millis(20));
        }
    }

    /// What an instant query finds now.
    ///
    /// # Errors
    /// If Prometheus doesn't understand it, with what it said.
    pub fn query(&self, expr: &str) -> Result<Vec<Sample>> {
        let answer = self.ask(&format!("/api/v1/query?query={}", http::encoded(expr)))?;
        let found = answer["result"].as_array().with_context(|| format!("{expr}: {answer}"))?;
        let sample = |series: &Value| -> Result<Sample> {
            let value = series["value"][1].as_str().context("no value")?;
            Ok(Sample { labels: series["metric"].as_object().cloned().unwrap_or_default(), value: value.parse()? })
        };
        found.iter().map(sample).collect()
    }

    /// What `/api/v1/…` answers as its `data`.
    ///
    /// # Errors
    /// If it says that the question is wrong.
    pub fn ask(&self, path: &str) -> Result<Value> {
        let answer = http::get(self.address, path)?;
        let body: Value = serde_json::from_str(&answer.body).with_context(|| answer.body.clone())?;
        ensure!(body["status"] == "success", "{path}: {}", body["error"]);
        Ok(body["data"].clone())
    }

    /// Where it listens.
    pub fn address(&self) -> SocketAddr {
        self.address
    }
}

impl Drop for Prometheus {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// Scrapes of the past, each of its time.
#[derive(Default)]
pub struct Past {
    scrapes: Vec<(i64, String)>,
}

impl Past {
    /// An exposition as it was at a time, later than those before.
    pub fn scraped(&mut self, at_ms: i64, exposition: String) {
        self.scrapes.push((at_ms, exposition));
    }

    /// When the last one was.
    pub fn last_ms(&self) -> Option<i64> {
        self.scrapes.last().map(|(at_ms, _)| *at_ms)
    }

    /// As promtool takes them: each sample with the labels that a scrape gives it, and its time.
    fn open_metrics(&self, target: SocketAddr) -> String {
        let mut text = String::new();
        for (at_ms, exposition) in &self.scrapes {
            let at = *at_ms as f64 / 1_000.0;
            for line in exposition.lines().filter(|line| !line.starts_with('#')) {
                let Some((series, value)) = line.rsplit_once(' ') else { continue };
                let (name, labels) =
                    series.split_once('{').map_or((series, String::new()), |(name, rest)| (name, format!(",{}", &rest[..rest.len() - 1])));
                text.push_str(&format!("{name}{{job=\"highwater\",instance=\"{target}\"{labels}}} {value} {at:.3}\n"));
            }
        }
        text + "# EOF\n"
    }
}

/// kafka_exporter's names end so, and dashboards ask for them.
const NAMES_OF_OTHERS: [&str; 2] = ["kafka_consumergroup_current_offset_sum", "kafka_consumergroup_lag_sum"];

/// `promtool check metrics` of an exposition: names, helps and types that follow Prometheus' conventions.
///
/// # Errors
/// If there is anything to say about it, but that kafka_exporter's `_sum` are gauges.
pub fn check_metrics(exposition: &str) -> Result<()> {
    let output = run_any(Command::new("promtool").args(["check", "metrics"]), exposition.as_bytes(), WAIT)?;
    let mut said = output.stdout;
    said.write_all(&output.stderr)?;
    let text = String::from_utf8_lossy(&said);
    let is_known = |line: &&str| {
        NAMES_OF_OTHERS.iter().any(|name| line.strip_prefix(name).is_some_and(|rest| rest.ends_with("should not have \"_sum\" suffix")))
    };
    let wrong: Vec<&str> = text.lines().filter(|line| !is_known(line)).collect();
    ensure!(wrong.is_empty() && (output.status.success() || !text.is_empty()), "{text}");
    Ok(())
}

/// `promtool` with `args`, in a folder.
///
/// # Errors
/// If it says that something is wrong.
pub fn promtool(folder: &Path, args: &[&str]) -> Result<String> {
    let output = run(Command::new("promtool").args(args).current_dir(folder), &[], WAIT)?;
    Ok(String::from_utf8_lossy(&output.stdout).into_owned())
}
