//! What the kernel says about a process: CPU time and resident memory. It never asks the process itself, so both brokers are
//! measured by the same rule.

use std::fs;

use anyhow::{Context, Result};

/// Ticks a second of the times in `/proc/PID/stat` (USER_HZ, 100 on every Linux of today).
const TICKS_PER_SECOND: f64 = 100.0;

/// Seconds of CPU that all threads of `pid` took so far, in user and in kernel mode.
pub fn cpu_seconds(pid: u32) -> Result<f64> {
    let path = format!("/proc/{pid}/stat");
    let stat = fs::read_to_string(&path).with_context(|| format!("read {path}"))?;
    let (_, fields) = stat.rsplit_once(')').context("a stat line without a name")?;
    let ticks: Vec<u64> = fields.split_whitespace().skip(11).take(2).filter_map(|field| field.parse().ok()).collect();
    match ticks[..] {
        [user, system] => Ok((user + system) as f64 / TICKS_PER_SECOND),
        _ => anyhow::bail!("no CPU times in {path}"),
    }
}

/// Resident memory of `pid` in MB of 1,000,000 bytes.
pub fn resident_mb(pid: u32) -> Result<f64> {
    let path = format!("/proc/{pid}/status");
    let status = fs::read_to_string(&path).with_context(|| format!("read {path}"))?;
    let kib = status.lines().find_map(|line| line.strip_prefix("VmRSS:")?.trim().strip_suffix("kB")?.trim().parse::<f64>().ok());
    Ok(kib.context("no VmRSS")? * 1024.0 / 1e6)
}
