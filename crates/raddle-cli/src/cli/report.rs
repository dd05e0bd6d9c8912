//! The flags of `raddle report`.

use std::path::PathBuf;

use clap::Args;

/// Shows a recording, or compares two
///
/// With one file: its summary, as after `raddle record`. With two, before and after: what grew and
/// what shrank, for each second of the recording, by function and on CPU and off it.
#[derive(Args)]
#[command(after_help = "\
Examples:
  raddle report profile.pb.gz
  raddle report profile.pb.gz -o profile.html           # in another format
  raddle report before.pb.gz after.pb.gz
  raddle report before.pb.gz after.pb.gz -o diff.html   # flame graphs of what grew and shrank
  raddle report before.pb.gz after.pb.gz -o diff.folded # two columns, for flamegraph.pl
  raddle report a.pb.gz b.pb.gz --json | jq '.functions[] | select(.on_cpu.self.after > 1e6)'

A file is one that `raddle record -o FILE.pb.gz` has written, or another profiler's in pprof's
format, as far as its values are times.

Exit status: 0; 2 if a file can't be read.")]
pub(crate) struct ReportArguments {
    /// The recording; two to compare: before, and after
    #[arg(required = true, num_args = 1..=2, value_name = "FILE")]
    pub files: Vec<PathBuf>,

    /// Prints one JSON document instead of text
    #[arg(long)]
    pub json: bool,

    /// A file to write; it must not exist; may be given several times. Of one recording, the
    /// formats of `raddle record`; of two, .html and .folded
    #[arg(short, long, value_name = "FILE")]
    pub output: Vec<PathBuf>,

    /// Replaces existing files
    #[arg(long)]
    pub force: bool,
}
