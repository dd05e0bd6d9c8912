//! The flags of `raddle locks`.

use clap::Args;

use super::{parse_interval, parse_pid};

/// Shows the locks that threads wait for: for how long, where, and what their holders do meanwhile
///
/// Times and counts are exact: the process records each wait. A lock that no thread waits for costs
/// nothing and is not shown.
#[derive(Args)]
#[command(after_help = "\
Examples:
  raddle locks 4242
  raddle locks -d 30 --json 4242

A hold is the time from the end of a thread's wait for a lock to its wake-up of the next one. If it
has not waited itself, it is the part of its hold in which another thread waited. Semaphores count
as locks, because some runtimes (CPython) use them so. Where a kind of lock notes no owner
(semaphores, Rust's, parking_lot's), holders are not shown. Java's monitors are shown by their
objects, numbered by class, from JDK 17 on. Java's other locks, CPython's without its global lock,
and monitors of which the object is not known are shown by the method that wants them; holders of
these are the threads that end the waits.

Exit status: 0; 2 if nothing was recorded.")]
pub(crate) struct LocksArguments {
    /// The process, started by `raddle run`
    #[arg(value_parser = parse_pid)]
    pub pid: u32,

    /// Ends after so many seconds, with ctrl-C, or with the process
    #[arg(
        short,
        long,
        value_name = "SECONDS",
        default_value = "5",
        allow_negative_numbers = true,
        value_parser = parse_interval
    )]
    pub duration: f64,

    /// Prints a JSON document
    #[arg(long)]
    pub json: bool,
}
