//! The flags of `raddle record`.

use std::ffi::OsString;
use std::path::PathBuf;

use clap::Args;

use super::{parse_interval, parse_pid};

/// Shows where the threads of a process spend their time: on CPUs and off them
///
/// Samples the threads that execute, and reads the stacks of those that wait while they wait. How
/// long each thread ran, was runnable and waited, and for what, is exact: the process records each
/// switch.
#[derive(Args)]
#[command(after_help = "\
Examples:
  raddle record -d 10 4242                          # a summary on stdout
  raddle record -d 10 4242 -o profile.html          # opens in a browser, without a network
  raddle record -o profile.pb.gz -- java -jar app.jar

The name of a file says its format: .html (one page with a viewer), .pb.gz (pprof), .json (Firefox
Profiler), .speedscope.json (speedscope), .folded (folded stacks, in microseconds), .wakers.folded
(waits with the stacks that ended them).

Needs no privileges. Where the kernel permits no perf events, the runtime samples what threads
execute by itself, at most 1000 times a second, and a sentence says so.

Exit status: 0; the program's own, if this command has started one; 2 if nothing was recorded.")]
pub(crate) struct RecordArguments {
    /// The process, started by `raddle run`
    #[arg(value_parser = parse_pid, required_unless_present = "program")]
    pub pid: Option<u32>,

    /// Ends after so many seconds [default: with ctrl-C, or with the process]
    #[arg(
        short,
        long,
        value_name = "SECONDS",
        allow_negative_numbers = true,
        value_parser = parse_interval
    )]
    pub duration: Option<f64>,

    /// Samples of a thread that executes, each second of its CPU time, 1 to 10000
    #[arg(
        short = 'F',
        long,
        value_name = "HZ",
        default_value_t = 99,
        allow_negative_numbers = true,
        value_parser = parse_frequency
    )]
    pub frequency: u32,

    /// A file to write; it must not exist; may be given several times
    #[arg(short, long, value_name = "FILE")]
    pub output: Vec<PathBuf>,

    /// Replaces existing files
    #[arg(long)]
    pub force: bool,

    /// A program to run with green threads and to record, with its arguments
    #[arg(last = true, conflicts_with = "pid", num_args = 1..)]
    pub program: Vec<OsString>,
}

/// Samples in a second.
fn parse_frequency(text: &str) -> Result<u32, String> {
    let frequency = text.parse().ok();
    let allowed = frequency.filter(|frequency| (1..=10_000).contains(frequency));
    allowed.ok_or_else(|| "give a whole number from 1 to 10000".into())
}
