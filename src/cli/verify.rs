//! `highwater verify`: checks a whole data directory that no broker uses, and says what is wrong and where. Changes nothing.

use crate::{
    cluster::journal::{JOURNAL, Journal},
    log::{
        inspect::{self, Finding, Severity},
        io::RealDisk,
    },
};
use anyhow::{Context as _, bail};
use clap::Args;
use std::{
    io::{self, Write},
    path::{Path, PathBuf},
    thread,
};

#[derive(Debug, Args)]
pub struct VerifyArgs {
    /// The data directory (one of log.dirs).
    #[arg(value_name = "DIR")]
    pub dir: PathBuf,
}

/// What is wrong with the metadata journal, if there's one in this directory.
fn metadata(dir: &Path) -> Option<Finding> {
    let (severity, what) = match Journal::check(&RealDisk, dir) {
        Ok(Some(replay)) if replay.cut_bytes > 0 => {
            (Severity::Note, format!("{} bytes of an unfinished change at the end; the next start cuts them off", replay.cut_bytes))
        }
        Ok(_) => return None,
        Err(error) => (Severity::Wrong, error.to_string()),
    };
    Some(Finding { severity, path: dir.join(JOURNAL), what })
}

/// Fails if something is wrong, or the directory is in use.
pub fn run(args: &VerifyArgs) -> anyhow::Result<()> {
    let threads = thread::available_parallelism().map_or(1, usize::from);
    let mut verified = inspect::verify(&RealDisk, &args.dir, threads).with_context(|| format!("verify {}", args.dir.display()))?;
    verified.findings.extend(metadata(&args.dir));
    // Not `println!`: it panics where whoever reads has seen enough. The exit code tells all the same.
    let mut out = io::stdout().lock();
    verified.findings.iter().for_each(|finding| _ = writeln!(out, "{finding}"));
    let wrong = verified.findings.iter().filter(|finding| finding.severity == Severity::Wrong).count();
    let _ = writeln!(
        out,
        "{} partitions, {} segments, {} batches, {} bytes; {}; {wrong} wrong, {} notes",
        verified.partitions,
        verified.segments,
        verified.batches,
        verified.bytes,
        if verified.clean { "stopped cleanly" } else { "not stopped cleanly" },
        verified.findings.len().saturating_sub(wrong)
    );
    if !verified.is_sound() {
        bail!("{wrong} things are wrong in {}", args.dir.display());
    }
    Ok(())
}
