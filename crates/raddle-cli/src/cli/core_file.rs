//! The flags of `raddle core`.

use std::path::PathBuf;

use clap::Args;

use super::parse_pid;

/// Writes a core file with every green thread, for gdb and lldb
///
/// The process goes on while its memory is read. Stacks and registers of one thread are of one
/// moment; other memory may change while it is copied. With --stop the process stands still until
/// the file is written.
#[derive(Args)]
#[command(after_help = "\
Examples:
  raddle core 4242 -o core.4242
  gdb -batch -ex 'thread apply all bt' ./server core.4242
  raddle core --from core -o core.full    # a core that the kernel has written

Exit status: 0; 1 if the core has less than its process had, and a sentence says what; 2 if there is
no core.")]
pub(crate) struct CoreArguments {
    /// The process, started by `raddle run`
    #[arg(value_parser = parse_pid, required_unless_present = "from")]
    pub pid: Option<u32>,

    /// Completes a core file that the kernel has written
    #[arg(long, value_name = "CORE", conflicts_with_all = ["pid", "stop"])]
    pub from: Option<PathBuf>,

    /// The file to write; it must not exist
    #[arg(short, long, value_name = "FILE")]
    pub output: PathBuf,

    /// Replaces an existing file
    #[arg(long)]
    pub force: bool,

    /// Stops the process while the core is written, so that threads that execute code have
    /// registers, and all memory is of one moment
    ///
    /// Some calls that wait in the kernel end with EINTR then, as after SIGSTOP (signal(7)).
    #[arg(long)]
    pub stop: bool,
}
