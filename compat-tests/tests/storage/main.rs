//! The data directory under stress: a disk that is full, kills at any moment, many partitions; and what the inspecting commands say of what
//! is left each time.
#![allow(clippy::disallowed_methods, reason = "it waits for programs and measures how long a restart takes")]

mod full_disk;
mod inspect;
mod kills;
mod many;

use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use compat_tests::process::{run, run_any};
use compat_tests::tools;

const WAIT: Duration = Duration::from_secs(60);

/// What `highwater verify` says of a directory that nobody uses, if it finds nothing wrong.
fn verify(data: &Path) -> Result<String> {
    let output = run(Command::new(tools::highwater()?).arg("verify").arg(data), &[], WAIT).context("highwater verify")?;
    Ok(String::from_utf8_lossy(&output.stdout).into_owned())
}

/// What it says, whatever it finds: its exit code, and stdout and stderr.
fn verify_any(data: &Path) -> Result<(Option<i32>, String)> {
    let output = run_any(Command::new(tools::highwater()?).arg("verify").arg(data), &[], WAIT)?;
    let said = [output.stdout, output.stderr].concat();
    Ok((output.status.code(), String::from_utf8_lossy(&said).into_owned()))
}

/// The files of a partition's directory whose names end so, in order.
fn files(partition: &Path, suffix: &str) -> Result<Vec<PathBuf>> {
    let mut files = Vec::new();
    for file in std::fs::read_dir(partition).with_context(|| partition.display().to_string())? {
        files.push(file?.path());
    }
    files.retain(|path| path.to_string_lossy().ends_with(suffix));
    files.sort();
    ensure!(!files.is_empty(), "no {suffix} in {}", partition.display());
    Ok(files)
}
