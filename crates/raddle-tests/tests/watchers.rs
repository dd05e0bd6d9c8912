//! Programs that watch threads from below run on kernel threads, however they are started, and say
//! so.

use std::ffi::OsString;
use std::path::PathBuf;
use std::process::Command;
use std::time::Duration;

use anyhow::{Result, ensure};
use raddle_tests::{Mode, Outcome, Running, find_tool, in_every_mode, raddle, status_number};

const LIMIT: Duration = Duration::from_secs(120);
const KERNEL_THREADS: &str = "raddle: runs on kernel threads: ";

/// A program of threads and locks that ends with status 0.
fn threads() -> Result<Vec<OsString>> {
    let program = raddle_tests::Program::build("sync_objects.c")?;
    let mut line = program.variants[0].command.clone();
    line.push("semaphores_take_turns".into());
    Ok(line)
}

fn run(mode: Mode, line: &[OsString]) -> Result<Outcome> {
    let mut command = mode.command(line)?;
    command.env("RADDLE_VERBOSE", "1");
    Running::start(mode, command, None)?.wait(LIMIT)
}

fn ensure_ok(outcome: &Outcome) -> Result<()> {
    ensure!(status_number(outcome.status) == 0, "{outcome:?}");
    let ok = outcome.stdout.contains("ok semaphores_take_turns");
    ensure!(ok, "{outcome:?}");
    Ok(())
}

#[test]
fn valgrind_runs_a_program_with_threads() {
    let name = "watchers::valgrind_runs_a_program_with_threads";
    in_every_mode(name, |mode| {
        let mut line: Vec<OsString> = vec![find_tool("valgrind")?.into(), "--tool=none".into()];
        line.extend(threads()?);
        let outcome = run(mode, &line)?;
        ensure_ok(&outcome)?;
        if mode != Mode::Native {
            ensure!(
                outcome.stderr.contains("runs on kernel threads"),
                "{outcome:?}"
            );
        }
        Ok(())
    });
}

#[test]
fn valgrind_that_inherits_the_preload_runs_a_program_with_threads() {
    let name = "watchers::valgrind_that_inherits_the_preload_runs_a_program_with_threads";
    in_every_mode(name, |mode| {
        let mut line: Vec<OsString> = ["sh", "-c", "\"$0\" --tool=none \"$@\"; exit $?"]
            .map(Into::into)
            .into();
        line.push(find_tool("valgrind")?.into());
        line.extend(threads()?);
        let outcome = run(mode, &line)?;
        ensure_ok(&outcome)?;
        if mode != Mode::Native {
            ensure!(outcome.stderr.contains(KERNEL_THREADS), "{outcome:?}");
        }
        Ok(())
    });
}

#[test]
fn gdb_and_its_program_run_on_green_threads() {
    let name = "watchers::gdb_and_its_program_run_on_green_threads";
    in_every_mode(name, |mode| {
        let mut line: Vec<OsString> = vec![find_tool("gdb")?.into()];
        line.extend(["-nx", "-batch", "-ex", "run", "--args"].map(Into::into));
        line.extend(threads()?);
        let outcome = run(mode, &line)?;
        ensure_ok(&outcome)?;
        if mode != Mode::Native {
            let green = outcome.stderr.matches("threads are green").count();
            ensure!(green == 2, "{outcome:?}");
        }
        Ok(())
    });
}

/// What ld.so says when nothing of the runtime may look: the preload alone, without `raddle run`.
fn preload() -> Result<PathBuf> {
    Ok(raddle()?.with_file_name("libraddle_preload.so"))
}

#[test]
fn a_program_under_a_watcher_keeps_its_functions() {
    let name = "watchers::a_program_under_a_watcher_keeps_its_functions";
    in_every_mode(name, |mode| {
        if mode != (Mode::Raddle { carriers: 1 }) {
            return Ok(());
        }
        let line = threads()?;
        let mut command = Command::new(find_tool("valgrind")?);
        command.args(["-q", "--tool=none"]).args(&line);
        command.env("LD_PRELOAD", preload()?);
        ensure_ok(&Running::start(mode, command, None)?.wait(LIMIT)?)
    });
}

/// Go's runtime makes system calls by itself, for threads that libc makes as well: these must be
/// threads of the kernel.
#[test]
fn a_go_program_with_c_parts_runs_on_kernel_threads() {
    let name = "watchers::a_go_program_with_c_parts_runs_on_kernel_threads";
    in_every_mode(name, |mode| {
        let program = raddle_tests::Program::build("go_note.c")?;
        for variant in &program.variants {
            let mut line = variant.command.clone();
            line.push("a_thread_is_joined".into());
            let outcome = run(mode, &line)?;
            ensure!(status_number(outcome.status) == 0, "{outcome:?}");
            if mode != Mode::Native {
                let expected = format!("{KERNEL_THREADS}Go programs");
                ensure!(outcome.stderr.contains(&expected), "{outcome:?}");
            }
        }
        Ok(())
    });
}
