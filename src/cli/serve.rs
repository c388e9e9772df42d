//! `highwater serve`: gathers the configuration, starts the broker, says where it is, and stops it at SIGINT or SIGTERM.

use super::ServeArgs;
use crate::{
    broker::{Broker, Ready},
    config::{ServerConfig, Sources},
    telemetry::logs,
};
use anyhow::Context as _;
use std::{ffi::OsString, fmt::Display, io::Write, task::Poll, time::Duration};
use tokio::signal::unix::{Signal, SignalKind, signal};

/// How long a stop may take before it is cut short.
const STOP_TIMEOUT: Duration = Duration::from_secs(10);

pub fn run(args: &ServeArgs) -> anyhow::Result<()> {
    logs::init(std::env::var(logs::FILTER_VARIABLE).ok().as_deref())?;
    let loaded = ServerConfig::load(&sources(args)?)?;
    for warning in &loaded.warnings {
        tracing::warn!("{warning}");
    }
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build().context("start the runtime")?;
    let stopped = runtime.block_on(serve(loaded.config));
    // Blocking work that is still under way has been waited for by the broker; nothing else is worth waiting for.
    runtime.shutdown_background();
    stopped
}

fn sources(args: &ServeArgs) -> anyhow::Result<Sources> {
    let file = match &args.config {
        Some(path) => {
            let text = std::fs::read_to_string(path).with_context(|| format!("read the configuration file {}", path.display()))?;
            Some((path.display().to_string(), text))
        }
        None => None,
    };
    let host_name = rustix::system::uname().nodename().to_string_lossy().into_owned();
    // A variable that isn't UTF-8 can't be a key of ours.
    let utf8 = |(name, value): (OsString, OsString)| Some((name.into_string().ok()?, value.into_string().ok()?));
    Ok(Sources { file, environment: std::env::vars_os().filter_map(utf8).collect(), flags: args.set.clone(), host_name })
}

async fn serve(config: ServerConfig) -> anyhow::Result<()> {
    let mut stop =
        [SignalKind::interrupt(), SignalKind::terminate(), SignalKind::hangup()].map(signal).into_iter().collect::<Result<Vec<_>, _>>()?;
    let start = Broker::start(config);
    let (broker, ready) = tokio::select! {
        started = start => started?,
        _ = any(&mut stop) => anyhow::bail!("stopped before it was ready"),
    };
    print(&ready);
    any(&mut stop).await;
    tracing::info!("stopping; a second signal ends it at once");
    tokio::select! {
        stopped = broker.stop() => stopped,
        _ = any(&mut stop) => anyhow::bail!("ended by a second signal; the logs will be checked at the next start"),
        () = tokio::time::sleep(STOP_TIMEOUT) => anyhow::bail!("not stopped within {} s; the logs will be checked at the next start", STOP_TIMEOUT.as_secs()),
    }
}

/// The next of any of these signals.
async fn any(signals: &mut [Signal]) {
    std::future::poll_fn(|context| {
        let come = signals.iter_mut().any(|signal| signal.poll_recv(context).is_ready());
        if come { Poll::Ready(()) } else { Poll::Pending }
    })
    .await;
}

/// One fact a line, for people and for scripts. Nobody may be reading: that is no reason to stop.
fn print(ready: &Ready) {
    let mut text = format!("highwater {}\n", env!("CARGO_PKG_VERSION"));
    let mut fact = |name: &str, value: &dyn Display| text.push_str(&format!("  {name:6} {value}\n"));
    ready.kafka.iter().for_each(|address| fact("kafka", address));
    ready.http.iter().for_each(|address| fact("http", address));
    ready.data.iter().for_each(|dir| fact("data", &dir.display()));
    if let Some(address) = ready.kafka.first() {
        fact("try", &format!("echo hello | kcat -b {address} -t greetings -P"));
    }
    let _ = std::io::stdout().write_all(text.as_bytes());
}
