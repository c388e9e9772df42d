//! `highwater dump-log`: prints what files of the log hold, as Apache Kafka's `kafka-dump-log.sh` does, and checks them. Changes nothing.

use crate::log::{
    inspect::{self, DumpOptions, Severity},
    io::RealDisk,
};
use anyhow::{Context as _, bail};
use clap::Args;
use std::{
    io::{self, BufWriter, Write},
    path::PathBuf,
};

#[derive(Debug, Args)]
pub struct DumpLogArgs {
    /// Segments (.log), their indexes (.index, .timeindex, .txnindex) and producer snapshots (.snapshot).
    #[arg(required = true, value_name = "FILE")]
    pub files: Vec<PathBuf>,
    /// A line for each record.
    #[arg(long)]
    pub deep_iteration: bool,
    /// A line for each record, with its key and value as text.
    #[arg(long)]
    pub print_data_log: bool,
}

/// Fails if something is wrong with a file.
pub fn run(args: &DumpLogArgs) -> anyhow::Result<()> {
    let options = DumpOptions { records: args.deep_iteration || args.print_data_log, data: args.print_data_log };
    let mut out = BufWriter::with_capacity(64 << 10, io::stdout().lock());
    let mut wrong: usize = 0;
    for file in &args.files {
        let dumped = inspect::dump(&RealDisk, file, options, &mut out).and_then(|findings| out.flush().map(|()| findings));
        let findings = match dumped {
            // Whoever reads has seen enough.
            Err(error) if error.kind() == io::ErrorKind::BrokenPipe => return Ok(()),
            dumped => dumped.with_context(|| format!("dump {}", file.display()))?,
        };
        // Not `eprintln!`: it panics where stderr cannot be written. The exit code tells all the same.
        findings.iter().for_each(|finding| _ = writeln!(io::stderr(), "{finding}"));
        wrong = wrong.saturating_add(findings.iter().filter(|finding| finding.severity == Severity::Wrong).count());
    }
    if wrong > 0 {
        bail!("{wrong} things are wrong");
    }
    Ok(())
}
