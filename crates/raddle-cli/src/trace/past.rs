//! `raddle trace --from FILE`: the events of a process that has ended, in a core file or in the
//! file that its flight recorder has left.

use std::path::Path;
use std::process::ExitCode;
use std::time::Duration;

use anyhow::Result;
use raddle_inspect::{Event, Layout};
use raddle_record::clock::{Clock, Moment};
use raddle_record::crash::CrashFile;
use raddle_record::order::Order;
use raddle_record::rings::{From, Lane, Rings};
use raddle_stacks::{Memory, Target, threads_and_bound};

use super::tracer::Tracer;
use super::{nothing_recorded, say_what_is_there};
use crate::cli::TraceArguments;
use crate::dump::from_core::{Opened, truncated};
use crate::failure::{Failure, say};
use crate::output::Output;

/// What a file has of a process.
struct Past {
    pid: u32,
    layout: Layout,
    memory: Box<dyn Memory>,
    /// Threads, their names and the numbers of their engines or shares.
    names: Vec<(u32, String, u32)>,
    /// Carriers of bound threads.
    bound: Vec<u64>,
    /// What the file lacks, in words.
    missing: Option<String>,
}

pub(super) fn show(arguments: &TraceArguments, path: &Path) -> Result<ExitCode> {
    let past = open(path)?;
    let shown = path.display();
    let (events, whole_from) = read(&past);
    let words: [u64; 4] = std::array::from_fn(|at| {
        let place = past.layout.event_moments.wrapping_add(at as u64 * 8);
        past.memory.word(place).unwrap_or(0)
    });
    let Some(&(_, last)) = events.last() else {
        return Err(nothing_recorded(past.pid).into());
    };
    let clock = clock_of_the_past(words).ok_or_else(|| {
        Failure::input(
            format!("{shown} doesn't say the time of its events"),
            "use the machine on which the process ran",
        )
    })?;
    let end_ns = clock.boot_ns(last.stamp);
    let last_ns = arguments.last.map(|seconds| (seconds * 1e9) as u64);
    let begin_ns = last_ns.map_or(0, |last_ns| end_ns.saturating_sub(last_ns));
    let first_ns = clock.boot_ns(events.first().map_or(0, |(_, event)| event.stamp));
    let whole_ns = clock.boot_ns(whole_from).max(first_ns);
    let output = Output::create_or_stdout(&arguments.output, arguments.force)?;
    let failed = |error| output.failed(&error);
    let process = (past.pid, Vec::new());
    let mut tracer =
        Tracer::of_the_past(output.file(), process, begin_ns, whole_ns).map_err(failed)?;
    tracer.name_all(past.names.iter().cloned());
    for (lane, event) in &events {
        tracer.take(&*past.memory, *lane, event, clock.boot_ns(event.stamp));
    }
    tracer.name_all(past.names.iter().cloned());
    let start_ns = tracer.first_ns().unwrap_or(end_ns);
    let counts = tracer.finish(end_ns).map_err(failed)?;
    say_what_is_there(past.pid, &counts, end_ns - start_ns, output)?;
    if let Some(missing) = past.missing {
        say(&format!(
            "{shown} is too short, {missing} are missing: what it has is shown"
        ));
        return Ok(ExitCode::from(1));
    }
    Ok(ExitCode::SUCCESS)
}

/// The process may have ended a moment ago: then a second moment is waited for.
fn clock_of_the_past(words: [u64; 4]) -> Option<Clock> {
    Clock::of_the_past(words, Moment::now()).or_else(|| {
        std::thread::sleep(Duration::from_nanos(Clock::LEAST_NS));
        Clock::of_the_past(words, Moment::now())
    })
}

fn open(path: &Path) -> Result<Past, Failure> {
    let unreadable = |why: &dyn std::fmt::Display| {
        let what = format!("{} can't be used, because {why}", path.display());
        Failure::input(what, "give a core file, or the file of a flight recorder")
    };
    if CrashFile::is_one(path).map_err(|error| unreadable(&error))? {
        let file = CrashFile::open(path).map_err(|error| unreadable(&error))?;
        return Ok(Past {
            pid: file.header.pid,
            layout: file.layout,
            names: file
                .names
                .iter()
                .map(|(tid, name)| (*tid, name.clone(), 0))
                .collect(),
            bound: file.bound.clone(),
            memory: Box::new(file),
            missing: None,
        });
    }
    let opened = Opened::open(path)?;
    let target = Target {
        pid: opened.core.pid(),
        memory: &opened.core,
        layout: &opened.tables.layout,
        carriers: &opened.tables.carriers,
        modules: &opened.modules,
        started_ns: opened.tables.header.started_ns,
        stopped: None,
    };
    let (threads, bound) = threads_and_bound(&target).unwrap_or_default();
    let names = threads.iter().map(|thread| {
        let name = String::from_utf8_lossy(thread.name_bytes());
        (thread.tid, name.into_owned(), thread.group)
    });
    Ok(Past {
        pid: opened.core.pid(),
        layout: opened.tables.layout,
        names: names.collect(),
        bound: bound.iter().map(|thread| thread.carrier).collect(),
        missing: truncated(&opened.core),
        memory: Box::new(opened.core),
    })
}

/// Returns the events in the order of time, and the stamp from which on none is missing.
fn read(past: &Past) -> (Vec<(Lane, Event)>, u64) {
    let mut order = Order::default();
    let mut rings = Rings::new(past.layout, From::Oldest);
    rings.follow_bound(past.bound.iter().copied());
    let mut goes_on = true;
    while goes_on {
        goes_on = rings.poll(&*past.memory, |lane, event| order.add(lane, event));
        goes_on &= rings.read_to().is_some();
    }
    let mut events = Vec::new();
    order.tell(u64::MAX, |lane, event| events.push((lane, event)));
    (events, rings.whole_from())
}
