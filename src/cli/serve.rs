//! `highwater serve`: gathers the configuration, starts the broker, says where it is, and stops it at SIGINT or SIGTERM.

use super::ServeArgs;
use crate::{
    broker::{Broker, Ready},
    config::{ServerConfig, Sources},
    telemetry::logs,
};
use anyhow::Context as _;
use std::{ffi::OsString, path::Path, time::Duration};
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
    let mut interrupt = signal(SignalKind::interrupt())?;
    let mut terminate = signal(SignalKind::terminate())?;
    let start = Broker::start(config);
    let (broker, ready) = tokio::select! {
        started = start => started?,
        _ = either(&mut interrupt, &mut terminate) => anyhow::bail!("stopped before it was ready"),
    };
    print(&ready);
    either(&mut interrupt, &mut terminate).await;
    tracing::info!("stopping; a second signal ends it at once");
    tokio::select! {
        stopped = broker.stop() => stopped,
        _ = either(&mut interrupt, &mut terminate) => anyhow::bail!("ended by a second signal; the logs will be checked at the next start"),
        () = tokio::time::sleep(STOP_TIMEOUT) => anyhow::bail!("not stopped within {} s; the logs will be checked at the next start", STOP_TIMEOUT.as_secs()),
    }
}

async fn either(a: &mut Signal, b: &mut Signal) {
    tokio::select! {
        _ = a.recv() => {}
        _ = b.recv() => {}
    }
}

/// One fact a line, for people and for scripts.
fn print(ready: &Ready) {
    println!("highwater {}", env!("CARGO_PKG_VERSION"));
    for address in &ready.kafka {
        println!("  kafka  {address}");
    }
    for address in &ready.http {
        println!("  http   {address}");
    }
    for dir in &ready.data {
        println!("  data   {}", Path::new(dir).display());
    }
    if let Some(address) = ready.kafka.first() {
        println!("  try    echo hello | kcat -b {address} -t greetings -P");
    }
}
