//! `raddle dump`: asks a process under Raddle for a snapshot, and shows it as lines or as JSON.
//!
//! `raddle-inspect` has the protocol. Two things are not trusted: that the socket of a process
//! belongs to that process (any process may bind a name), and that the bytes make sense.

mod blocking;
pub(crate) mod connect;
pub(crate) mod deadlocks;
mod document;
pub(crate) mod filter;
pub(crate) mod from_core;
mod groups;
mod lights;
mod lines;
pub(crate) mod locate;
mod managed;
mod mappings;
pub(crate) mod one;
pub(crate) mod process;
pub(crate) mod readable;
pub(crate) mod stacks;
mod start;
mod symbols;
mod unwind;
mod usage;
mod waits;

use std::io::{self, IsTerminal, Write};
use std::process::ExitCode;
use std::time::Duration;

use anyhow::Result;
use raddle_inspect::{
    BlockingRecords, BlockingSite, BlockingSites, CarrierState, Header, Histogram, Request,
    RequestKind, Snapshot, Wire,
};

use raddle_stacks::locks::Deadlock;

use crate::cli::{Allotment, Change, CtlArguments, DumpArguments, StackArguments, Switch};
use crate::failure::{Failure, say};
use crate::stdout::stdout;
use filter::Filter;
pub(crate) use groups::without_numbers;
use stacks::Taken;
use usage::Usage;

/// For how many seconds more than needed CPU time is counted.
const COUNTED_S: u64 = 5;

pub(crate) fn run(arguments: &DumpArguments) -> Result<ExitCode> {
    if arguments.deadlocks && arguments.from.is_none() {
        return deadlocks::run(arguments);
    }
    let chosen = &arguments.stacks;
    let filter = Filter {
        tids: chosen.tid.clone(),
        names: chosen.name.clone(),
        states: chosen.state.iter().map(|state| state.code()).collect(),
    };
    if let Some(path) = &arguments.from {
        return from_core::show(arguments, path, &filter);
    }
    let pid = arguments.pid.unwrap_or_default();
    let has_stacks = !(chosen.no_stacks || arguments.stats || arguments.cpu);
    let taken = if has_stacks {
        Some(stacks::take(pid, &filter, !chosen.no_attach)?)
    } else {
        None
    };
    match taken {
        Some(Ok(taken)) => {
            show_stacks(pid, arguments, taken)?;
            Ok(ExitCode::SUCCESS)
        }
        Some(Err(missing)) => {
            show_snapshot(pid, arguments, &filter, Some(missing))?;
            Ok(ExitCode::from(u8::from(chosen.stacks)))
        }
        None => {
            show_snapshot(pid, arguments, &filter, None)?;
            Ok(ExitCode::SUCCESS)
        }
    }
}

/// Shows threads that were read from outside, with their stacks.
fn show_stacks(pid: u32, arguments: &DumpArguments, taken: Taken) -> Result<()> {
    let snapshot = understand(pid, &taken.snapshot)?;
    filter::check(pid, &arguments.stacks.tid, &snapshot)?;
    let is_process = arguments.from.is_none();
    let facts = Facts {
        pid,
        statistics: None,
        usage: None,
        sitting: if is_process {
            sitting(pid, &snapshot)
        } else {
            Vec::new()
        },
        stacks: Some(&taken),
        missing: taken.java_missing.clone(),
        shown: Shown::of(&arguments.stacks),
        deadlocks: None,
    };
    show(arguments.json, &facts, &snapshot)
}

/// Shows what the process says of itself.
fn show_snapshot(
    pid: u32,
    arguments: &DumpArguments,
    filter: &Filter,
    missing: Option<String>,
) -> Result<()> {
    let kind = match (arguments.stats, arguments.cpu) {
        (true, _) => RequestKind::STATS,
        (_, true) => RequestKind::CPU,
        _ => RequestKind::SNAPSHOT,
    };
    // The process counts until the second request.
    let counted_s = arguments.interval.ceil() as u64 + COUNTED_S;
    let request = Request::new(kind, if arguments.cpu { counted_s } else { 0 });
    let before = if arguments.cpu {
        Some(connect::ask(pid, &request)?)
    } else {
        None
    };
    if before.is_some() {
        std::thread::sleep(Duration::from_secs_f64(arguments.interval));
    }
    let bytes = connect::ask(pid, &request)?;
    let snapshot = understand(pid, &bytes)?;
    let behind = snapshot.header().total_bytes().unwrap_or(bytes.len());
    let statistics = if arguments.stats {
        Statistics::parse(pid, bytes.get(behind..).unwrap_or_default())
    } else {
        None
    };
    let filtered = (!filter.is_open()).then(|| filter.apply(&snapshot));
    let snapshot = match &filtered {
        Some(bytes) => understand(pid, bytes)?,
        None => snapshot,
    };
    filter::check(pid, &filter.tids, &snapshot)?;
    let usage = match before {
        Some(before) => Some(Usage::between(&understand(pid, &before)?, &snapshot)),
        None => None,
    };
    let facts = Facts {
        pid,
        statistics,
        usage,
        sitting: sitting(pid, &snapshot),
        stacks: None,
        missing,
        shown: Shown::of(&arguments.stacks),
        deadlocks: None,
    };
    show(arguments.json, &facts, &snapshot)
}

fn show(is_json: bool, facts: &Facts<'_>, snapshot: &Snapshot<'_>) -> Result<()> {
    if !is_json {
        let taken = facts.stacks;
        let silence = taken.and_then(|taken| taken.silence.as_deref());
        let names = taken.and_then(|taken| taken.names_missing.as_deref());
        // Of a process that doesn't answer, no virtual machine was asked.
        let missing = silence.or(facts.missing.as_deref());
        missing.into_iter().chain(names).for_each(say);
    }
    let mut out = io::BufWriter::new(stdout());
    if is_json {
        let document = document::Document::new(facts, snapshot);
        serde_json::to_writer_pretty(&mut out, &document).map_err(io::Error::from)?;
        writeln!(out)?;
    } else {
        lines::write(facts, snapshot, &mut out)?
    }
    out.flush()?;
    Ok(())
}

/// Facts that are shown beside a snapshot.
pub(crate) struct Facts<'a> {
    pid: u32,
    statistics: Option<Statistics>,
    usage: Option<Usage>,
    /// Green threads that keep a carrier in the kernel, by their ids.
    sitting: Vec<(u32, blocking::BlockedThread)>,
    stacks: Option<&'a Taken>,
    /// Why there are no stacks, if they were wanted.
    missing: Option<String>,
    shown: Shown,
    /// Waits that can't end, if they were looked for.
    deadlocks: Option<&'a [Deadlock]>,
}

/// How stacks are shown.
pub(crate) struct Shown {
    /// Equal stacks once; `None` for as many threads ask for it.
    grouped: Option<bool>,
    all_frames: bool,
    colour: bool,
}

impl Shown {
    /// Plain text, without the runtime's frames.
    pub(crate) const PLAIN: Shown = Shown {
        grouped: None,
        all_frames: false,
        colour: false,
    };

    fn of(chosen: &StackArguments) -> Shown {
        let is_plain = std::env::var_os("NO_COLOR").is_some_and(|it| !it.is_empty());
        Shown {
            grouped: match (chosen.group, chosen.no_group) {
                (true, _) => Some(true),
                (_, true) => Some(false),
                _ => None,
            },
            all_frames: chosen.all_frames,
            colour: io::stdout().is_terminal() && !is_plain,
        }
    }
}

/// Looks at the stacks of threads on replaced carriers.
fn sitting(pid: u32, snapshot: &Snapshot<'_>) -> Vec<(u32, blocking::BlockedThread)> {
    let blocked = |record: &raddle_inspect::CarrierRecord| {
        record.state == CarrierState::BLOCKED && record.current_tid != 0
    };
    let mut blocked = snapshot.carriers().filter(blocked).peekable();
    if blocked.peek().is_none() {
        return Vec::new();
    }
    let mappings = mappings::Mappings::of(pid);
    let numbers = raddle_stacks::kernel_numbers(pid);
    let sits = |record: raddle_inspect::CarrierRecord| {
        let tid = numbers
            .get(&record.kernel_tid)
            .unwrap_or(&record.kernel_tid);
        let sitting = blocking::BlockedThread::of(pid, *tid, &mappings)?;
        Some((record.current_tid, sitting))
    };
    blocked.filter_map(sits).collect()
}

/// The part of an answer to a request for statistics that follows the carriers.
pub(crate) struct Statistics {
    wake_ups: Histogram,
    delays: Histogram,
    blocking: BlockingRecords,
    frequent: Vec<BlockingSite>,
    mappings: mappings::Mappings,
}

impl Statistics {
    fn parse(pid: u32, bytes: &[u8]) -> Option<Statistics> {
        let wake_ups = Histogram::from_prefix(bytes)?;
        let behind = bytes.get(size_of::<Histogram>()..).unwrap_or_default();
        let sites = behind
            .get(size_of::<BlockingRecords>()..)
            .unwrap_or_default();
        let (sites, delays) = sites.split_at_checked(size_of::<BlockingSites>())?;
        let sites = sites.chunks_exact(size_of::<BlockingSite>());
        Some(Statistics {
            frequent: sites.filter_map(BlockingSite::from_prefix).collect(),
            wake_ups,
            delays: Histogram::from_prefix(delays)?,
            blocking: BlockingRecords::from_prefix(behind)?,
            mappings: mappings::Mappings::of(pid),
        })
    }
}

/// `raddle ctl`: changes a running process, and prints its new state.
pub(crate) fn control(arguments: &CtlArguments) -> Result<ExitCode> {
    let pid = arguments.pid;
    let request = match &arguments.change {
        Change::Carriers { count } => Request::new(RequestKind::CARRIERS, u64::from(*count)),
        Change::Quantum { us: 0 } => Request::new(RequestKind::QUANTUM, u64::MAX),
        Change::Policy { policy: None } => Request::new(RequestKind::STATS, 0),
        Change::Policy { policy: Some(kind) } => Request::new(RequestKind::POLICY, *kind as u64),
        Change::Share { number, part } => {
            let value = match part {
                Allotment::Quota(percent) => u64::from(*percent),
                Allotment::Weight(percent) => 1 << 63 | u64::from(*percent),
            };
            Request {
                reserved: *number,
                ..Request::new(RequestKind::SHARE, value)
            }
        }
        Change::FlightRecorder { switch, events } => {
            let seconds = match switch {
                Switch::On => u32::MAX,
                Switch::Off => 0,
            };
            let value = u64::from(seconds) | u64::from(*events) << 32;
            Request::new(RequestKind::RECORD, value)
        }
        Change::Quantum { us } => Request::new(RequestKind::QUANTUM, u64::from(*us) * 1000),
    };
    let bytes = connect::ask(pid, &request)?;
    let snapshot = understand(pid, &bytes)?;
    let header = snapshot.header();
    if let Change::Policy { policy } = &arguments.change {
        writeln!(stdout(), "process {pid}: {}", lines::policy(header))?;
        let is_it = policy.is_none_or(|policy| policy as u32 == header.policy.0);
        return Ok(ExitCode::from(u8::from(!is_it)));
    }
    if let Change::Share { number, part } = &arguments.change {
        return says_share(pid, header, *number, *part);
    }
    if let Change::FlightRecorder { switch, .. } = &arguments.change {
        let does = match switch {
            Switch::On => "records events",
            Switch::Off => "records no events",
        };
        writeln!(stdout(), "process {pid}: {does}")?;
        return Ok(ExitCode::SUCCESS);
    }
    let quantum = match header.quantum_ns {
        u64::MAX => "no quantum".into(),
        ns => format!("quantum {} us", ns / 1000),
    };
    let carriers = header.wanted;
    writeln!(stdout(), "process {pid}: carriers {carriers}, {quantum}")?;
    Ok(ExitCode::SUCCESS)
}

/// Prints the part of the rule or the engine; an error if it isn't the requested one.
fn says_share(pid: u32, header: &Header, number: u32, part: Allotment) -> Result<ExitCode> {
    let at = number as usize;
    let (is_it, text) = match part {
        Allotment::Weight(percent) => {
            let has = u32::from(header.shares.get(at).copied().unwrap_or(0));
            (has == percent, lines::policy(header))
        }
        Allotment::Quota(percent) => {
            let quota = header.answer.checked_sub(1);
            (quota == Some(percent), lines::engine(number, quota))
        }
    };
    if !is_it {
        let what = format!("process {pid} has not changed the part of number {number}");
        return Err(Failure::new(1, what, text).into());
    }
    writeln!(stdout(), "process {pid}: {text}")?;
    Ok(ExitCode::SUCCESS)
}

pub(crate) fn understand(pid: u32, bytes: &[u8]) -> Result<Snapshot<'_>, Failure> {
    Snapshot::parse(bytes).map_err(|error| {
        Failure::input(
            format!("the answer of process {pid} can't be understood, because {error}"),
            "use the raddle that started it",
        )
    })
}
