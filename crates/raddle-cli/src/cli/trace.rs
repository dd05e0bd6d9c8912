//! The flags of `raddle trace`.

use std::path::PathBuf;

use clap::Args;

use super::{parse_interval, parse_pid};
use raddle_record::conditions::Limits;

/// Writes what carriers and green threads do, for Perfetto (ui.perfetto.dev)
///
/// Carriers are shown as CPUs. Each thread has a track with the times at which it ran, was runnable
/// and waited, for what, and which thread woke it.
#[derive(Args)]
#[command(after_help = "\
Examples:
  raddle trace 4242 -o server.pftrace            # until ctrl-C
  raddle trace 4242 -d 5 -o server.pftrace
  raddle ctl 4242 flight-recorder on
  raddle trace 4242 --last 5 -o server.pftrace   # what happened before
  raddle trace 4242 --when-late 20 -o server.pftrace
  raddle trace --from core.4242 -o server.pftrace

The process records events in memory for as long as this command asks it to, and each switch takes
some tens of nanoseconds more. Events that come faster than they are read are lost, and counted.

Exit status: 0; 1 if events were lost, and a sentence says how many, or if -d ended before a
condition was met; 2 if there is no trace.")]
pub(crate) struct TraceArguments {
    /// The process, started by `raddle run`
    #[arg(value_parser = parse_pid, required_unless_present = "from")]
    pub pid: Option<u32>,

    /// Reads a core file, or the file that a flight recorder has left in a crash
    #[arg(long, value_name = "FILE", conflicts_with_all = ["pid", "duration"])]
    pub from: Option<PathBuf>,

    /// The file to write; it must not exist; - for standard output
    #[arg(short, long, value_name = "FILE")]
    pub output: PathBuf,

    /// Replaces an existing file
    #[arg(long)]
    pub force: bool,

    /// Ends after so many seconds [default: with ctrl-C, or with the process]
    #[arg(
        short,
        long,
        value_name = "SECONDS",
        allow_negative_numbers = true,
        value_parser = parse_interval
    )]
    pub duration: Option<f64>,

    /// Writes the last seconds that were recorded, and ends. The process records since `raddle run
    /// --flight-recorder` or `raddle ctl PID flight-recorder on`
    #[arg(
        long,
        value_name = "SECONDS",
        allow_negative_numbers = true,
        value_parser = parse_interval
    )]
    pub last: Option<f64>,

    /// Waits until a thread has not run so many milliseconds after its wake-up; then writes the
    /// last 5 seconds, or those of --last
    #[arg(
        long,
        value_name = "MS",
        conflicts_with = "from",
        allow_negative_numbers = true,
        value_parser = parse_ms
    )]
    pub when_late: Option<f64>,

    /// Likewise, until a thread is runnable for so long, whether it was woken or has made room
    #[arg(
        long,
        value_name = "MS",
        conflicts_with = "from",
        allow_negative_numbers = true,
        value_parser = parse_ms
    )]
    pub when_runnable: Option<f64>,

    /// Likewise, until a carrier runs one thread for so long while others are runnable
    #[arg(
        long,
        value_name = "MS",
        conflicts_with = "from",
        allow_negative_numbers = true,
        value_parser = parse_ms
    )]
    pub when_stalled: Option<f64>,
}

impl TraceArguments {
    /// Returns the limits to wait for.
    pub(crate) fn limits(&self) -> Limits {
        let ns = |ms: Option<f64>| ms.map(|ms| (ms * 1e6) as u64);
        Limits {
            late_ns: ns(self.when_late),
            runnable_ns: ns(self.when_runnable),
            stalled_ns: ns(self.when_stalled),
        }
    }
}

/// Milliseconds.
fn parse_ms(text: &str) -> Result<f64, String> {
    let ms = text.parse().ok();
    let allowed = ms.filter(|ms| (0.01..=3_600_000.0).contains(ms));
    allowed.ok_or_else(|| "give a number of milliseconds from 0.01 to 3600000".into())
}
