//! `raddle top`: which threads run, wait and are late, again and again.
//!
//! | module | noun |
//! |---|---|
//! | `source` | the process, and what it is doing |
//! | `look` | what its tables say, and frames: what has happened since |
//! | `select` | which threads are shown, in which order |
//! | `lints` | what is wrong, in plain words |
//! | `text` | a frame as plain text |
//! | `document` | a frame as JSON |
//! | `screen` | frames again and again, and keys |
//!
//! The process is read from outside, in large pieces: see `raddle_stacks::Threads`.

mod document;
mod lints;
mod look;
mod screen;
mod select;
mod source;
mod text;

use std::io::{self, IsTerminal, Write};
use std::process::ExitCode;
use std::thread;
use std::time::{Duration, Instant};

use anyhow::Result;

use crate::cli::{SortKey, TopArguments};
use crate::dump::filter::Filter;
use crate::failure::{Failure, say};
use crate::stdout::stdout;
use lints::{Lint, Watch};
use look::{Frame, Looker};
use source::{Condition, Source};

/// Looks in a frame of a command without a screen: lints are what is true at each.
const LOOKS: u32 = 4;
/// A batch with more threads looks once a frame: it goes on for long, and a look has its price.
const MANY: u64 = 10_000;

/// What is shown of a frame.
pub(super) struct Shown {
    pub filter: Filter,
    pub sort: SortKey,
    pub by_name: bool,
    /// Threads or groups at most.
    pub rows: Option<usize>,
}

impl Shown {
    fn of(arguments: &TopArguments) -> Shown {
        Shown {
            filter: Filter {
                tids: Vec::new(),
                names: arguments.filter.clone(),
                states: arguments.states(),
            },
            sort: arguments.sort,
            by_name: arguments.by_name,
            rows: arguments.rows,
        }
    }
}

pub(crate) fn run(arguments: &TopArguments) -> Result<ExitCode> {
    if !(arguments.once || arguments.batch) {
        check_terminal(arguments)?;
        return screen::run(arguments, Shown::of(arguments));
    }
    let frames = match (arguments.once, arguments.count) {
        (true, _) => 1,
        (false, count) => count.unwrap_or(u64::MAX),
    };
    let mut source = Source::open(arguments.pid)?;
    let mut plain = Plain {
        looker: Looker::default(),
        watch: Watch::default(),
        interval: Duration::from_secs_f64(arguments.interval),
        looks: LOOKS,
    };
    let shown = Shown::of(arguments);
    for number in 0..frames {
        let (frame, lints) = match plain.frame(&mut source) {
            Ok(frame) => frame,
            Err(condition) => return ended(arguments, condition, number),
        };
        print(arguments, &source, &frame, &lints, &shown)?;
        plain.looks = if frame.states.all() > MANY { 1 } else { LOOKS };
        plain.looker.recycle(frame);
    }
    Ok(ExitCode::SUCCESS)
}

fn check_terminal(arguments: &TopArguments) -> Result<(), Failure> {
    let is_dumb = std::env::var_os("TERM").is_none_or(|it| it.is_empty() || it == "dumb");
    let is_terminal = io::stdin().is_terminal() && io::stdout().is_terminal();
    if arguments.json {
        let what = "--json has no screen";
        return Err(Failure::input(what, "give --once or --batch, too"));
    }
    if is_terminal && !is_dumb {
        return Ok(());
    }
    let what = if is_terminal {
        "this terminal has no control sequences (TERM)"
    } else {
        "this is no terminal"
    };
    let pid = arguments.pid;
    let cure = format!("give --batch or --once: raddle top {pid} --batch");
    Err(Failure::input(what, cure))
}

/// The end of a process before `number` frames were printed is a fault only before the first.
fn ended(arguments: &TopArguments, condition: Condition, number: u64) -> Result<ExitCode> {
    let pid = arguments.pid;
    let what = match condition {
        Condition::Executed => format!("process {pid} has executed another program"),
        _ => format!("process {pid} has ended"),
    };
    if number == 0 {
        return Err(Failure::input(what, "start this again for a process that runs").into());
    }
    say(&what);
    Ok(ExitCode::SUCCESS)
}

fn print(
    arguments: &TopArguments,
    source: &Source,
    frame: &Frame,
    lints: &[Lint],
    shown: &Shown,
) -> Result<()> {
    let mut out = io::BufWriter::new(stdout());
    if arguments.json {
        let document = document::Document::new(source, frame, lints, shown);
        let written = if arguments.batch {
            serde_json::to_writer(&mut out, &document)
        } else {
            serde_json::to_writer_pretty(&mut out, &document)
        };
        written.map_err(io::Error::from)?;
        writeln!(out)?;
    } else {
        for line in text::lines(source, frame, lints, shown) {
            writeln!(out, "{line}")?;
        }
        if arguments.batch {
            writeln!(out)?;
        }
    }
    out.flush()?;
    Ok(())
}

/// Frames of equal length, one after the other.
struct Plain {
    looker: Looker,
    watch: Watch,
    interval: Duration,
    /// In a frame.
    looks: u32,
}

impl Plain {
    /// Waits for the end of a frame. The first one begins with the call.
    fn frame(&mut self, source: &mut Source) -> Result<(Frame, Vec<Lint>), Condition> {
        let begun = Instant::now();
        if !self.looker.has_base() {
            let first = self.looker.look(source, true)?;
            self.watch.look(source, &first);
            self.looker.recycle(first);
        }
        for number in 1..self.looks {
            let until = begun + self.interval * number / self.looks;
            thread::sleep(until.saturating_duration_since(Instant::now()));
            let frame = self.looker.look(source, false)?;
            self.watch.look(source, &frame);
            self.looker.recycle(frame);
        }
        let until = begun + self.interval;
        thread::sleep(until.saturating_duration_since(Instant::now()));
        let frame = self.looker.look(source, true)?;
        let lints = self.watch.look(source, &frame);
        Ok((frame, lints))
    }
}
