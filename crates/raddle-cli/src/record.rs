//! `raddle record`: where the threads of a process spend their time.

mod bound;
mod chooser;
mod cpu_clock;
pub(crate) mod formats;
mod idle;
mod locks;
pub(crate) mod locks_command;
mod mappings;
mod names;
mod program;
mod recorder;
mod result;
mod sitting;

use std::process::ExitCode;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use anyhow::Result;
use signal_hook::consts::{SIGHUP, SIGTERM};

use crate::cli::RecordArguments;
use crate::failure::{Failure, say};
use crate::recording::ends_by_signal;
use crate::stdout::{print, width};
use formats::Files;
use program::Program;
use raddle_record::outputs::summary;
use recorder::Recorder;

pub(crate) fn run(arguments: &RecordArguments) -> Result<ExitCode> {
    let files = Files::create(&arguments.output, arguments.force)?;
    let ends = ends_by_signal()?;
    match arguments.pid {
        Some(pid) => {
            let recorder = Recorder::start(pid, arguments.frequency, true)?;
            finish(arguments, recorder, files, &ends, &|| false)?;
            Ok(ExitCode::SUCCESS)
        }
        None => run_program(arguments, files, &ends),
    }
}

/// Records a program from its start on, and ends as it does.
fn run_program(
    arguments: &RecordArguments,
    files: Files,
    ends: &Arc<AtomicBool>,
) -> Result<ExitCode> {
    let mut program = Program::start(&arguments.program)?;
    // The terminal sends SIGINT and SIGQUIT to the program itself.
    let passed_on = [SIGTERM, SIGHUP].map(|signal| (signal, Arc::new(AtomicBool::new(false))));
    for (signal, came) in &passed_on {
        signal_hook::flag::register(*signal, Arc::clone(came))?;
    }
    match program.recorder(arguments.frequency, ends) {
        Ok(recorder) => {
            let recorded = finish(arguments, recorder, files, ends, &|| program.has_ended());
            if let Err(error) = recorded {
                say(&format!("{error:#}"));
            }
        }
        Err(failure) if !program.was_not_executed() => say(&failure.to_string()),
        Err(_) => {} // that has been said
    }
    for (signal, came) in passed_on {
        if came.load(Ordering::Relaxed) {
            program.signal(signal);
        }
    }
    program.wait()
}

/// Records until the end, writes the files, and prints a summary.
fn finish(
    arguments: &RecordArguments,
    mut recorder: Recorder,
    files: Files,
    ends: &Arc<AtomicBool>,
    has_ended: &dyn Fn() -> bool,
) -> Result<()> {
    let until = arguments
        .duration
        .map(|seconds| Instant::now() + Duration::from_secs_f64(seconds));
    recorder.record(&|| {
        ends.load(Ordering::Relaxed)
            || until.is_some_and(|until| Instant::now() >= until)
            || has_ended()
    })?;
    let profile = result::profile(recorder);
    if profile.samples.is_empty() {
        let what = format!("process {} did nothing while it was recorded", profile.pid);
        return Err(Failure::input(what, "record it for longer, with -d").into());
    }
    let (written, failure) = files.write(&profile);
    let names = written.iter();
    let names: String = names
        .map(|path| format!("{} is written\n", path.display()))
        .collect();
    let printed = print(&(names + &summary::text(&profile, width())));
    failure.map_or(Ok(()), Err)?;
    Ok(printed?)
}
