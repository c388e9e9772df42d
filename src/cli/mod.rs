//! The command line: one file a command.

pub mod api;
pub mod dump_log;
pub mod group;
pub mod lag;
pub mod serve;
pub mod verify;

use clap::{Args, Parser, Subcommand};
use std::path::PathBuf;

/// A Kafka broker in one binary.
#[derive(Debug, Parser)]
#[command(
    name = "highwater",
    version,
    about = "A Kafka broker in one binary: existing clients use it unchanged",
    args_conflicts_with_subcommands = true
)]
pub struct Cli {
    #[command(subcommand)]
    pub command: Option<Command>,
    #[command(flatten)]
    pub serve: ServeArgs,
}

#[derive(Debug, Subcommand)]
pub enum Command {
    /// Run the broker (what happens without a command, too).
    Serve(ServeArgs),
    /// How far behind the consumer groups of a running broker are, in records and in time. Exits 1 if one is further behind than --max-behind.
    Lag(lag::LagArgs),
    /// The consumer groups of a running broker: members, what they own, and the story of their rebalances.
    Group(group::GroupArgs),
    /// Print and check files of the log: batches, records, index entries, producer snapshots. Exits 1 if something is wrong.
    DumpLog(dump_log::DumpLogArgs),
    /// Check a data directory that no broker uses. Exits 1 and says what is wrong and where.
    Verify(verify::VerifyArgs),
}

#[derive(Debug, Default, Args)]
pub struct ServeArgs {
    /// A Kafka server.properties file.
    #[arg(long, value_name = "FILE")]
    pub config: Option<PathBuf>,
    /// A setting that wins over environment (KAFKA_LOG_DIRS is log.dirs) and file; may be repeated.
    #[arg(short = 'o', value_name = "KEY=VALUE")]
    pub set: Vec<String>,
}

/// Runs the command that was given.
pub fn run(cli: Cli) -> anyhow::Result<()> {
    match cli.command {
        Some(Command::Serve(args)) => serve::run(&args),
        Some(Command::Lag(args)) => lag::run(&args),
        Some(Command::Group(args)) => group::run(&args),
        Some(Command::DumpLog(args)) => dump_log::run(&args),
        Some(Command::Verify(args)) => verify::run(&args),
        None => serve::run(&cli.serve),
    }
}
