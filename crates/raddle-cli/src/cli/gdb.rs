//! The flags of `raddle gdb`.

use std::ffi::OsString;
use std::path::PathBuf;

use clap::Args;

use super::parse_carriers;

/// Starts gdb with commands for green threads
///
/// gdb works as always. `info threads` lists green threads, too; `raddle thread TID` selects one,
/// parked or not, `raddle bt all` shows all stacks, and `help raddle` lists the rest.
#[derive(Args)]
#[command(after_help = "\
Examples:
  raddle gdb 4242
  raddle gdb -n 2 ./server --port 8080
  raddle gdb --core core.4242 ./server
  raddle gdb --batch --ex 'raddle bt all' 4242

Needs gdb 12 or later, with Python. The process stops while gdb shows it. Exit status: gdb's own; 2
for bad usage, 127 without gdb.")]
pub(crate) struct GdbArguments {
    /// Kernel threads that run green threads of a PROGRAM, 1 to 1024
    #[arg(short = 'n', long, value_parser = parse_carriers)]
    pub carriers: Option<u16>,

    /// Shows a core file of the program
    #[arg(long, value_name = "CORE", conflicts_with = "carriers")]
    pub core: Option<PathBuf>,

    /// Executes a command of gdb at the start; may be repeated
    #[arg(long, value_name = "COMMAND")]
    pub ex: Vec<String>,

    /// Ends when all of those are executed
    #[arg(long)]
    pub batch: bool,

    /// A process that runs under raddle, or a program and its arguments
    #[arg(value_name = "PID|PROGRAM", required = true, trailing_var_arg = true)]
    pub target: Vec<OsString>,
}
