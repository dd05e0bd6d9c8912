//! `raddle trace`: the events of a process as a file for Perfetto.

mod before;
mod bound;
mod copier;
mod last_seconds;
mod past;
mod replay;
mod spool;
mod texts;
mod tracer;
mod wakers;

use std::collections::HashMap;
use std::io;
use std::process::ExitCode;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use anyhow::Result;
use raddle_record::clock::Moment;
use raddle_record::conditions::{Conditions, Exceeded, Limits};
use raddle_record::perfetto::Counts;
use raddle_record::rings::Lane;
use raddle_record::text::quoted;

use crate::cli::TraceArguments;
use crate::failure::{Failure, say};
use crate::output::Output;
use crate::recording::{Recording, Sequence, command, ends_by_signal};
use copier::Copier;
use last_seconds::write_last;
use replay::replay;
use spool::Spool;
use tracer::Tracer;

/// How often the rings are read, unless they fill up; of a recording without bound threads and
/// limits, of which nothing is so short that it would be missed.
const POLL: Duration = Duration::from_millis(20);
const RARE_POLL: Duration = Duration::from_millis(40);
/// For how many seconds before a condition was met events are written, without `--last`.
const BEFORE_S: f64 = 5.0;

pub(crate) fn run(arguments: &TraceArguments) -> Result<ExitCode> {
    if let Some(path) = &arguments.from {
        return past::show(arguments, path);
    }
    let pid = arguments.pid.unwrap_or_default();
    let limits = arguments.limits();
    if limits != Limits::default() {
        wait(arguments, pid, limits)
    } else if arguments.last.is_some() && arguments.duration.is_some() {
        let what = "--duration has no meaning with --last, which ends at once";
        let cure = "leave one of them out, or wait for a delay with --when-late";
        Err(Failure::input(what, cure).into())
    } else if let Some(seconds) = arguments.last {
        let output = Output::create_or_stdout(&arguments.output, arguments.force)?;
        let recording = Recording::of_the_past(pid)?;
        write_last(pid, seconds, recording, output)
    } else {
        follow(arguments, pid)
    }
}

/// Records what comes, and writes it then.
fn follow(arguments: &TraceArguments, pid: u32) -> Result<ExitCode> {
    let output = Output::create_or_stdout(&arguments.output, arguments.force)?;
    let mut recording = Recording::start_dense(pid)?;
    let command = command(pid);
    let begin_ns = Moment::now().boot_ns;
    let mut sequence = Sequence::new(recording.clock(), begin_ns);
    let mut rounds = Rounds::new(arguments.duration)?;
    let mut copier = Copier::new(&mut recording, Spool::new(&output));
    loop {
        let is_rare = recording.bound().is_empty();
        let is_last = rounds.next(&recording, if is_rare { RARE_POLL } else { POLL });
        if !copier.round(&mut recording, is_last) || output.is_left() {
            break;
        }
    }
    let spool = copier.finish(&mut recording);
    let mut end_ns = Moment::now().boot_ns;
    let lost = recording.lost();
    drop(recording); // the process need not record any more
    let (pieces, full) = spool.into_pieces();
    let mut tracer = Tracer::new(output.file(), pid, command, begin_ns)
        .map_err(|error| output.failed(&error))?;
    let written = (&mut tracer, output.file());
    let full = replay(pieces, &mut sequence, written, &rounds.ends)?.or(full);
    if full.is_some() {
        end_ns = tracer.full_ns().unwrap_or(sequence.told_ns());
    }
    let counts = tracer
        .finish(end_ns)
        .map_err(|error| output.failed(&error))?;
    say_what_is_there(pid, &counts, end_ns - begin_ns, output)?;
    let code = say_full(full.as_ref());
    if lost != 0 {
        say(&format!(
            "{lost} events were lost: they came faster than they could be read"
        ));
    }
    Ok(if lost == 0 { code } else { ExitCode::from(1) })
}

/// Says that there was no room for all of the trace, if that is so. Returns the exit status.
fn say_full(full: Option<&io::Error>) -> ExitCode {
    let Some(error) = full else {
        return ExitCode::SUCCESS;
    };
    say(&format!(
        "the trace ends early, because there is no room for more of it ({error})"
    ));
    ExitCode::from(1)
}

/// Waits until a limit is exceeded, and writes what came before.
fn wait(arguments: &TraceArguments, pid: u32, limits: Limits) -> Result<ExitCode> {
    let output = Output::create_or_stdout(&arguments.output, arguments.force)?;
    let mut recording = Recording::start_dense(pid)?;
    let mut conditions = Conditions::new(limits);
    let mut rounds = Rounds::new(arguments.duration)?;
    let mut lost = 0;
    let exceeded = loop {
        let is_last = rounds.next(&recording, POLL);
        let goes_on = recording.poll(is_last, |timed, _| {
            conditions.event(timed.lane, &timed.event, timed.boot_ns);
        })?;
        let lost_now = recording.lost();
        if lost_now != lost {
            lost = lost_now;
            conditions.forget();
        }
        if let Some(exceeded) = conditions.exceeded(recording.told_ns()) {
            break exceeded;
        }
        if is_last || !goes_on {
            let what = format!("nothing in process {pid} took so long");
            let cure = "no trace is written; wait longer, or give a shorter time";
            return Err(Failure::new(1, what, cure).into());
        }
    };
    let names = recording.names().map(|(tid, name, _)| (tid, name));
    let names: HashMap<_, _> = names.collect();
    let name = |tid| match names.get(&tid) {
        Some(name) => format!("thread {tid} {}", quoted(name.as_bytes())),
        None => format!("thread {tid}"),
    };
    let ms = |ns: u64| ns as f64 / 1e6;
    let what = match exceeded {
        Exceeded::Late { tid, ns } => {
            format!(
                "{} had not run {:.1} ms after its wake-up",
                name(tid),
                ms(ns)
            )
        }
        Exceeded::Runnable { tid, ns } => {
            format!("{} was runnable for {:.1} ms", name(tid), ms(ns))
        }
        Exceeded::Stalled { lane, tid, ns } => {
            let carrier = match lane {
                Lane::Carrier(id) | Lane::Bound(id) => format!("carrier {id}"),
                Lane::Other => "a kernel thread".to_owned(),
            };
            let name = name(tid);
            format!(
                "{carrier} ran {name} for {:.1} ms while others were runnable",
                ms(ns)
            )
        }
    };
    output.tell(&format!("process {pid}: {what}"))?;
    recording.begin_again();
    write_last(pid, arguments.last.unwrap_or(BEFORE_S), recording, output)
}

fn nothing_recorded(pid: u32) -> Failure {
    Failure::input(
        format!("process {pid} has recorded nothing in this time"),
        format!("have it record: raddle ctl {pid} flight-recorder on"),
    )
}

/// Keeps the file, and says what is in it.
fn say_what_is_there(pid: u32, counts: &Counts, ns: u64, output: Output) -> Result<()> {
    let line = format!(
        "process {pid}: {} turns and {} wake-ups of {:.3} s in {}",
        counts.runs,
        counts.wakes,
        ns as f64 / 1e9,
        output.shown()
    );
    output.keep_and_tell(&line)
}

/// The pauses between two looks at the rings.
struct Rounds {
    until: Option<Instant>,
    /// A signal has come.
    ends: Arc<AtomicBool>,
}

impl Rounds {
    /// Looks for so many seconds, or until a signal comes.
    fn new(seconds: Option<f64>) -> io::Result<Rounds> {
        Ok(Rounds {
            until: seconds.map(|seconds| Instant::now() + Duration::from_secs_f64(seconds)),
            ends: ends_by_signal()?,
        })
    }

    /// Waits for the next look, no longer than `most`. Returns whether it is the last one.
    fn next(&mut self, recording: &Recording, most: Duration) -> bool {
        let left = self.until;
        let left = left.map(|until| until.saturating_duration_since(Instant::now()));
        let pause = recording.patience().min(most);
        recording.rest(left.map_or(pause, |left| left.min(pause)));
        left.is_some_and(|left| left.is_zero()) || self.ends.load(Ordering::Relaxed)
    }
}
