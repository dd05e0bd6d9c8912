//! `raddle run`: looks at the program, sets the environment and becomes the program.
//!
//! Protocol:
//!
//! 0. Under a filter that kills for what follows, and without memory for the library, become the
//!    program at once ([`native`]).
//! 1. Find the preloaded library; without it nothing runs, because a program that silently ran on
//!    kernel threads would be worse than a sentence.
//! 2. Resolve the command as a shell would (126, 127).
//! 3. Follow `#!` lines to the ELF file that the kernel will start, and look for obstacles to green
//!    threads in it.
//! 4. With an obstacle, run the program all the same, without the preload where it would do harm.
//! 5. `execve`. Nothing of this process is left; the runtime inside decides the rest.
//!
//! Rejected: a parent that waits (another process id, doubled signals, a job-control puzzle), and
//! refusing programs that can't have green threads (scripts would need to know which can).

pub(crate) mod elf;
pub(crate) mod filtered;
pub(crate) mod inherit;
mod launch;
mod native;
pub(crate) mod pattern;
pub(crate) mod policy;
pub(crate) mod preload;
mod privilege;
mod program;
pub(crate) mod resolve;
mod watch;

use std::process::ExitCode;
use std::time::Duration;

use anyhow::Result;

use crate::cli::RunArguments;
use crate::failure::{Failure, say};
use crate::machine::has_procfs;
use crate::run::policy::Share;

pub(crate) fn run(arguments: &RunArguments) -> Result<ExitCode> {
    if let Some(why) = native::reason() {
        return Err(native::exec(arguments, &why).into());
    }
    let preload = preload::find()?;
    Share::check(&arguments.share, arguments.policy.as_ref()).map_err(|what| {
        Failure::input(
            what,
            "give at most 15 --share of 100 percent together, with --policy fair or without one",
        )
    })?;
    let [name, ..] = &arguments.command[..] else {
        return Err(Failure::input("no program given", "write it behind --").into());
    };
    let path = resolve::resolve(name, std::env::var_os("PATH").as_deref())?;
    let start = program::examine(&path);
    if let Some(obstacle) = &start.obstacle
        && arguments.verbose
    {
        let file = start.image.display();
        say(&format!("{file}: runs on kernel threads: {obstacle}"));
    }
    if arguments.verbose && !has_procfs() {
        say("/proc is not mounted: raddle dump and other tools can't find the program from here");
    }
    let keep_preload = start
        .obstacle
        .is_none_or(|obstacle| obstacle.spares_preload());
    let environment = launch::environment(arguments, &preload, keep_preload);
    let watch_ms = arguments.watch_deadlocks.filter(|&ms| ms != 0);
    if let (Some(ms), true) = (watch_ms, keep_preload) {
        watch::start(Duration::from_millis(ms.into()));
    }
    Err(launch::exec(&path, &arguments.command, &environment).into())
}
