//! The ways to a program's first thread, and the program's actions before it.

mod first_thread {
    raddle_tests::cases! { "first_thread.c":
        without_threads_libc_stays_as_it_is,
        made_by_its_usual_name,
        made_by_libcs_own_function,
        made_by_libc_for_a_timer,
        made_by_the_child_of_a_fork,
        made_after_children_of_other_kinds,
        made_while_signals_come,
        made_after_the_environment_was_overwritten,
        made_without_the_files_that_were_there,
        made_behind_a_filter,
        made_after_a_descriptor_for_signals,
        a_thread_traces_what_it_forked,
        a_tracer_makes_a_thread,
    }
}

use anyhow::{Result, ensure};
use raddle_tests::{Mode, Outcome, Program, Running, in_every_mode, status_number};
use std::time::Duration;

const LIMIT: Duration = Duration::from_secs(60);
const GREEN: &str = "raddle: threads are green";
const KERNEL: &str = "raddle: runs on kernel threads: ";

/// The output of the program's `case` under raddle with one carrier; `None` natively.
fn said(mode: Mode, case: &str) -> Result<Option<Outcome>> {
    if mode != (Mode::Raddle { carriers: 1 }) {
        return Ok(None);
    }
    let program = Program::build("first_thread.c")?;
    let mut line = program.variants[0].command.clone();
    line.push(case.into());
    let mut command = mode.command(&line)?;
    command.env("RADDLE_VERBOSE", "1");
    let outcome = Running::start(mode, command, None)?.wait(LIMIT)?;
    ensure!(status_number(outcome.status) == 0, "{outcome:?}");
    Ok(Some(outcome))
}

/// However the first thread is made, it is green, and so are the threads before and after.
#[test]
fn it_is_green_whoever_makes_it() {
    let name = "first_thread::it_is_green_whoever_makes_it";
    in_every_mode(name, |mode| {
        for (case, processes) in [
            ("made_by_its_usual_name", 1),
            ("made_by_libcs_own_function", 1),
            ("made_by_libc_for_a_timer", 1),
            ("made_by_the_child_of_a_fork", 4),
            ("made_after_children_of_other_kinds", 1),
            ("made_after_the_environment_was_overwritten", 1),
            ("made_without_the_files_that_were_there", 1),
            ("made_behind_a_filter", 1),
            ("a_thread_traces_what_it_forked", 1),
            ("without_threads_libc_stays_as_it_is", 0),
        ] {
            if let Some(outcome) = said(mode, case)? {
                let found = outcome.stderr.matches(GREEN).count();
                ensure!(found == processes, "{case}: {outcome:?}");
            }
        }
        Ok(())
    });
}

/// The kernel takes the kernel thread that is there for the tracer.
#[test]
fn a_tracer_keeps_its_kernel_thread() {
    let name = "first_thread::a_tracer_keeps_its_kernel_thread";
    in_every_mode(name, |mode| {
        if let Some(outcome) = said(mode, "a_tracer_makes_a_thread")? {
            ensure!(outcome.stderr.contains(KERNEL), "{outcome:?}");
        }
        Ok(())
    });
}
