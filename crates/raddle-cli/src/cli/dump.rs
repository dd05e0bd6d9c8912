//! The flags of `raddle dump` for stacks, and for which threads are shown.

use clap::{Args, ValueEnum};
use raddle_inspect::ThreadState;

#[derive(Args)]
pub(crate) struct StackArguments {
    /// Fails if the stacks can't be read; they are shown by default if they can
    #[arg(long, conflicts_with_all = ["no_stacks", "stats", "cpu"])]
    pub stacks: bool,

    /// Shows no stacks
    #[arg(long, conflicts_with = "deadlocks")]
    pub no_stacks: bool,

    /// Shows equal stacks once, with the number and the names of their threads, the longest wait
    /// first; from 65 threads on this is the default
    #[arg(long, conflicts_with_all = ["no_stacks", "no_group", "stats", "cpu", "deadlocks"])]
    pub group: bool,

    /// Shows each thread with its stack
    #[arg(long)]
    pub no_group: bool,

    /// Shows all frames, those of the runtime's own code, too
    #[arg(long, conflicts_with = "no_stacks")]
    pub all_frames: bool,

    /// Asks no Java virtual machine for its locks: asking makes a safepoint
    #[arg(long, conflicts_with = "no_stacks")]
    pub no_attach: bool,

    /// Shows the thread with this id; may be repeated
    #[arg(long, value_name = "TID", conflicts_with = "deadlocks")]
    pub tid: Vec<u32>,

    /// Shows threads with such a name, in which * and ? stand for others; may be repeated
    #[arg(long, value_name = "GLOB", conflicts_with = "deadlocks")]
    pub name: Vec<String>,

    /// Shows threads in this state; may be repeated
    #[arg(long, value_name = "STATE", value_enum, conflicts_with = "deadlocks")]
    pub state: Vec<State>,
}

/// A thread's state, as `raddle dump` prints it.
#[derive(Clone, Copy, ValueEnum)]
pub(crate) enum State {
    Running,
    Runnable,
    Waiting,
    Exiting,
}

impl State {
    pub(crate) fn code(self) -> ThreadState {
        match self {
            State::Running => ThreadState::RUNNING,
            State::Runnable => ThreadState::RUNNABLE,
            State::Waiting => ThreadState::WAITING,
            State::Exiting => ThreadState::EXITING,
        }
    }
}
