//! The flags of `raddle top`.

use clap::{Args, ValueEnum};
use raddle_inspect::ThreadState;

use super::dump::State;
use super::{parse_interval, parse_pid};

/// Shows which threads run, wait and are late, again and again
///
/// Threads by CPU time, wait or wake-ups; carriers; delays; and, in plain words, what is wrong for
/// longer than a moment. The process is read from outside. On a terminal, h shows the keys.
#[derive(Args)]
#[command(after_help = "\
Examples:
  raddle top 4242
  raddle top 4242 --by-name -d 0.5
  raddle top 4242 --once --sort wait --filter 'worker*'
  raddle top 4242 --once --json | jq '.lints[].text'
  raddle top 4242 --batch -n 10 | tee log

The process counts CPU time for some seconds more than this command asks for; each switch reads the
clock meanwhile. docs/observability.md has examples, docs/top.schema.json the fields of the JSON
document.

Exit status: 0; 2 if there is no such process, or it can't be read, and a sentence says why.")]
pub(crate) struct TopArguments {
    /// The process, started by `raddle run`
    #[arg(value_parser = parse_pid)]
    pub pid: u32,

    /// Looks for one interval, prints, and ends
    #[arg(long, conflicts_with = "batch")]
    pub once: bool,

    /// Prints plain text after each interval, for files and terminals without control sequences
    #[arg(short, long)]
    pub batch: bool,

    /// Prints JSON documents: one with --once, one on each line with --batch
    #[arg(long)]
    pub json: bool,

    /// The interval in seconds
    #[arg(
        short = 'd',
        long,
        value_name = "SECONDS",
        default_value = "1",
        allow_negative_numbers = true,
        value_parser = parse_interval
    )]
    pub interval: f64,

    /// With --batch: ends after so many intervals [default: with the process]
    #[arg(
        short = 'n',
        long,
        value_name = "COUNT",
        requires = "batch",
        allow_negative_numbers = true,
        value_parser = parse_count
    )]
    pub count: Option<u64>,

    /// The order of threads, the largest first; of names and ids, the smallest
    #[arg(long, value_enum, default_value = "cpu")]
    pub sort: SortKey,

    /// Shows threads with such a name, in which * and ? stand for others; may be repeated
    #[arg(long, value_name = "GLOB")]
    pub filter: Vec<String>,

    /// Shows threads in this state; may be repeated
    #[arg(long, value_name = "STATE", value_enum)]
    pub state: Vec<State>,

    /// Shows threads with names that differ in digits only as one row
    #[arg(long)]
    pub by_name: bool,

    /// Prints at most so many threads [default: 20 as text, all as JSON]
    #[arg(
        long,
        value_name = "COUNT",
        allow_negative_numbers = true,
        value_parser = parse_rows
    )]
    pub rows: Option<usize>,
}

impl TopArguments {
    /// Returns the states to show; none for all.
    pub(crate) fn states(&self) -> Vec<ThreadState> {
        self.state.iter().map(|state| state.code()).collect()
    }
}

fn parse_count(text: &str) -> Result<u64, String> {
    let count = text.parse().ok().filter(|count| *count != 0);
    count.ok_or_else(|| "give a whole number from 1 on".into())
}

fn parse_rows(text: &str) -> Result<usize, String> {
    let rows = text.parse();
    rows.map_err(|_| "give a whole number, 0 or more".into())
}

/// What threads are sorted by.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum SortKey {
    /// CPU time in the interval.
    Cpu,
    /// How long a thread has waited.
    Wait,
    /// How long a thread has been runnable without a turn.
    Delay,
    /// Ends of waits in the interval.
    Wakes,
    /// Turns in the interval.
    Turns,
    /// Preemptions in the interval.
    Preempts,
    /// Names.
    Name,
    /// Ids.
    Tid,
}
