//! The binary: parses the command line and runs it. The only place where the process ends.
#![forbid(unsafe_code)]

use clap::Parser;
use std::{io::Write, process::ExitCode};

/// Large blocks are mapped without being reserved, and freed ones are given back: frames come and go by the megabyte.
#[global_allocator]
static ALLOCATOR: tikv_jemallocator::Jemalloc = tikv_jemallocator::Jemalloc;

fn main() -> ExitCode {
    match highwater::cli::run(highwater::cli::Cli::parse()) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            // Not `eprintln!`: it panics where stderr cannot be written.
            let _ = writeln!(std::io::stderr(), "highwater: {error:#}");
            ExitCode::FAILURE
        }
    }
}
