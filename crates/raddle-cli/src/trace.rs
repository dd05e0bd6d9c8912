//! `raddle trace`: the events of a process as a file for Perfetto.

use std::io::{self, BufWriter};
use std::process::ExitCode;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use anyhow::Result;
use raddle_record::clock::Moment;
use raddle_record::perfetto::{Counts, PerfettoWriter};
use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM};

use crate::cli::TraceArguments;
use crate::failure::{Failure, say};
use crate::output::Output;
use crate::recording::{Recording, Timed, command};

/// How often the rings are read, unless they fill up.
const POLL: Duration = Duration::from_millis(10);
/// How often names of new threads are read at most.
const NAMES: Duration = Duration::from_millis(100);

pub(crate) fn run(arguments: &TraceArguments) -> Result<ExitCode> {
    let pid = arguments.pid;
    let output = Output::create(&arguments.output, arguments.force)?;
    let mut recording = match arguments.last {
        None => Recording::start(pid)?,
        Some(_) => Recording::of_the_past(pid)?,
    };
    let begin_ns = Moment::now().boot_ns;
    let file = BufWriter::new(output.file());
    let mut tracer = Tracer {
        writer: PerfettoWriter::new(file, pid, command(pid), begin_ns)
            .map_err(|error| output.failed(&error))?,
        named: Instant::now(),
        failure: None,
    };
    tracer.name_all(&recording);
    match arguments.last {
        None => follow(arguments, &mut recording, &mut tracer)?,
        Some(seconds) => {
            let from_ns = begin_ns.saturating_sub((seconds * 1e9) as u64);
            recording.poll(true, |timed| tracer.take(timed, from_ns))?;
        }
    }
    tracer.name_all(&recording);
    let counts = tracer.finish().map_err(|error| output.failed(&error))?;
    let lost = recording.lost();
    recording.close();
    if counts == Counts::default() && arguments.last.is_some() {
        return Err(Failure::input(
            format!("process {pid} has recorded nothing in this time"),
            format!("have it record: raddle ctl {pid} record on"),
        )
        .into());
    }
    output.keep()?;
    let shown = arguments.output.display();
    println!(
        "process {pid}: {} turns and {} wake-ups in {shown}",
        counts.runs, counts.wakes
    );
    if lost != 0 && arguments.last.is_none() {
        say(&format!(
            "{lost} events were lost: they came faster than they could be read"
        ));
        return Ok(ExitCode::from(1));
    }
    Ok(ExitCode::SUCCESS)
}

/// Writes events until the time is over, a signal comes, or the process ends.
fn follow<W: io::Write>(
    arguments: &TraceArguments,
    recording: &mut Recording,
    tracer: &mut Tracer<W>,
) -> Result<()> {
    let ends = Arc::new(AtomicBool::new(false));
    for signal in [SIGINT, SIGTERM, SIGHUP] {
        signal_hook::flag::register(signal, Arc::clone(&ends))?;
    }
    let until = arguments
        .duration
        .map(|seconds| Instant::now() + Duration::from_secs_f64(seconds));
    loop {
        let left = until.map(|until| until.saturating_duration_since(Instant::now()));
        let pause = if recording.is_behind() {
            Duration::ZERO
        } else {
            POLL
        };
        std::thread::sleep(left.map_or(pause, |left| left.min(pause)));
        let is_last = left.is_some_and(|left| left.is_zero()) || ends.load(Ordering::Relaxed);
        let goes_on = recording.poll(is_last, |timed| tracer.take(timed, 0))?;
        if is_last || !goes_on || tracer.failure.is_some() {
            return Ok(());
        }
        if tracer.named.elapsed() >= NAMES {
            tracer.name_all(recording);
        }
    }
}

/// What becomes of the events.
struct Tracer<W> {
    writer: PerfettoWriter<W>,
    /// When names were read last.
    named: Instant,
    failure: Option<io::Error>,
}

impl<W: io::Write> Tracer<W> {
    /// Writes an event that is not older than `from_ns`.
    fn take(&mut self, timed: &Timed, from_ns: u64) {
        if self.failure.is_none() && timed.boot_ns >= from_ns {
            let written = self.writer.event(timed.lane, &timed.event, timed.boot_ns);
            self.failure = written.err();
        }
    }

    /// Ends the trace. An error that was met before is that of the trace.
    fn finish(self) -> io::Result<Counts> {
        match self.failure {
            Some(error) => Err(error),
            None => self.writer.finish(Moment::now().boot_ns),
        }
    }

    /// Tells the names of all threads.
    fn name_all(&mut self, recording: &Recording) {
        self.named = Instant::now();
        for thread in recording.threads() {
            if self.failure.is_none() {
                let name = String::from_utf8_lossy(thread.name_bytes());
                self.failure = self.writer.name(thread.tid, &name).err();
            }
        }
    }
}
