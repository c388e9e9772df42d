//! README's pictures, made of an hour in a shop's life: the console in a real Chromium, and the lag dashboard's panels drawn from a real
//! Prometheus. Each has to say what has become of every group, in minutes, and every panel has to have data. The pictures lie in
//! `.tools/shots`; with `HIGHWATER_UPDATE_PICTURES=1` those of README are written to `docs/`.
#![allow(clippy::disallowed_methods, reason = "it waits for programs")]

use std::fs;
use std::path::Path;
use std::process::Command;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use compat_tests::api::group;
use compat_tests::process::run;
use compat_tests::prometheus::{Past, Prometheus};
use compat_tests::shop::Shop;
use compat_tests::tools;

/// What a browser takes on a busy machine; each step of it has a limit of its own.
const WAIT: Duration = Duration::from_secs(240);
const PACE: Duration = Duration::from_millis(300);
/// The groups that the dashboard is drawn for: the one that stopped a day ago would make the others' minutes a flat line.
const SHOWN: &str = "group=billing,fraud-check,recommendations,search-indexer";

#[test]
fn an_hour_of_a_shop_is_told_in_minutes() -> Result<()> {
    let mut shop = Shop::open()?;
    let past = shop.pass_the_hour()?;
    let base = format!("http://{}", shop.broker.http().context("HTTP is on")?);
    told(&shop)?;
    let shots = tools::home().join(".tools/shots");
    fs::create_dir_all(&shots)?;
    let stop = AtomicBool::new(false);
    let looked = thread::scope(|scope| -> Result<()> {
        let traffic = scope.spawn(|| -> Result<()> {
            let mut last = Instant::now();
            while !stop.load(Ordering::Relaxed) {
                thread::sleep(PACE);
                shop.go_on(last.elapsed())?;
                last = Instant::now();
            }
            Ok(())
        });
        let looked = look("pictures.mjs", &[&base], &shots);
        stop.store(true, Ordering::Relaxed);
        traffic.join().map_err(|_| anyhow::anyhow!("the traffic panicked"))??;
        looked
    });
    looked?;
    dashboard(&shop, &past, &shots)?;
    if std::env::var_os("HIGHWATER_UPDATE_PICTURES").is_some() {
        let docs = tools::home().join("../docs");
        for (shot, picture) in
            [("shop-wide-overview", "console"), ("shop-dark-billing", "console-group"), ("dashboard-lag-dark", "dashboard")]
        {
            fs::copy(shots.join(format!("{shot}.png")), docs.join(format!("{picture}.png")))?;
        }
    }
    Ok(())
}

/// What the API says at the hour's end, exactly.
fn told(shop: &Shop) -> Result<()> {
    let behind = |name: &str| -> Result<f64> { group(&shop.broker, name)?["lag_seconds"].as_f64().context("it is known") };
    for (name, minutes) in
        [("billing", 38.0..39.5), ("fraud-check", 21.0..22.5), ("recommendations", 7.0..11.0), ("search-indexer", 0.0..0.3)]
    {
        let seconds = behind(name)?;
        ensure!((minutes.start * 60.0..minutes.end * 60.0).contains(&seconds), "{name} is {seconds} s behind");
    }
    ensure!((23.8..24.2).contains(&(behind("nightly-report")? / 3_600.0)), "nightly-report");
    Ok(())
}

/// The lag dashboard over the hour, which Prometheus has as if it had scraped it.
fn dashboard(shop: &Shop, past: &Past, shots: &Path) -> Result<()> {
    let prometheus = Prometheus::start_after(shop.broker.http().context("HTTP is on")?, past)?;
    let url = format!("http://{}", prometheus.address());
    let file = tools::home().join("../grafana/dashboards/lag.json");
    let at = (past.last_ms().context("there were scrapes")? / 1_000).to_string();
    let file = file.to_string_lossy();
    look("dashboard.mjs", &[&url, &file, &at], shots)
}

/// Runs one of `clients/browser/` with `args`, the folder of the pictures, and what more it is told.
fn look(program: &str, args: &[&str], shots: &Path) -> Result<()> {
    let mut command = Command::new("node");
    command.env("NODE_PATH", tools::installed("browser/node_modules")?).arg(tools::home().join("clients/browser").join(program));
    command.args(args).arg(shots).arg(SHOWN);
    let output = run(&mut command, &[], WAIT)?;
    let facts = String::from_utf8_lossy(&output.stdout).lines().filter(|line| line.starts_with("ok: ")).count();
    ensure!(facts > 25, "only {facts} facts were found to be so");
    Ok(())
}
