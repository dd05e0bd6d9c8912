//! The flags of `raddle trace`.

use std::path::PathBuf;

use clap::Args;

use super::{parse_interval, parse_pid};

/// Writes what carriers and green threads do, for Perfetto (ui.perfetto.dev)
///
/// Carriers are shown as CPUs. Each thread has a track with the times at which it ran, was runnable
/// and waited, for what, and which thread woke it.
#[derive(Args)]
#[command(after_help = "\
Examples:
  raddle trace 4242 -o server.pftrace            # until ctrl-C
  raddle trace 4242 -d 5 -o server.pftrace
  raddle ctl 4242 record on
  raddle trace 4242 --last 5 -o server.pftrace   # what happened before

The process records events in memory for as long as this command asks it to, and each switch takes
some tens of nanoseconds more. Events that come faster than they are read are lost, and counted.

Exit status: 0; 1 if events were lost, and a sentence says how many; 2 if there is no trace.")]
pub(crate) struct TraceArguments {
    /// The process, started by `raddle run`
    #[arg(value_parser = parse_pid)]
    pub pid: u32,

    /// The file to write; it must not exist
    #[arg(short, long, value_name = "FILE")]
    pub output: PathBuf,

    /// Replaces an existing file
    #[arg(long)]
    pub force: bool,

    /// Ends after so many seconds [default: with ctrl-C, or with the process]
    #[arg(short, long, value_name = "SECONDS", value_parser = parse_interval)]
    pub duration: Option<f64>,

    /// Writes the last seconds that were recorded, and ends. The process records since `raddle ctl
    /// PID record on`
    #[arg(long, value_name = "SECONDS", conflicts_with = "duration", value_parser = parse_interval)]
    pub last: Option<f64>,
}
