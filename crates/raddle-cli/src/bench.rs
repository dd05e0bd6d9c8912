//! `raddle bench`: the same unmodified program in four ways, interleaved.
//!
//! Nouns: a *case* is one program with its arguments; a *way* is how it is started ([`Way`]); a
//! *sample* is one figure that one run gave; a *figure* has a name and a unit.
//!
//! Protocol: compile what is to be measured into a temporary folder; for each case and each round,
//! run every way once, so that whatever else the machine does hits all ways alike; keep all
//! samples, show medians and ratios, append everything to a file of JSON lines.
//!
//! Programs print `METRIC name value unit` and time themselves, so that start-up is not in their
//! figures; start-up is a case of its own.
//!
//! Rejected: comparing only with all CPUs. Two threads that hand a turn to each other are faster on
//! one CPU than on two, natively too; so the native program on one CPU is the honest opponent.

mod examples;
mod harness;
mod http;
mod overhead;
mod pingpong;
mod primitives;
mod process;
mod programs;
mod report;
mod servers;

use std::process::ExitCode;

use anyhow::Result;

use crate::cli::{BenchArguments, BenchCommand, Group};
use crate::failure::Failure;
use crate::machine::Machine;
use crate::run::preload;
use harness::{Case, Settings};
use programs::Workshop;
use report::Journal;

/// Makes the cases of a group, and says what it can't make.
type Prepare = fn(&Workshop) -> Vec<Case>;

const GROUPS: [(Group, &str, Prepare); 15] = [
    (Group::Api, "api", examples::api),
    (Group::Pingpong, "pingpong", pingpong::cases),
    (Group::Yield, "yield", primitives::yielding),
    (Group::Create, "create", primitives::creating),
    (Group::Fork, "fork", primitives::forking),
    (Group::Wakeup, "wakeup", primitives::waking),
    (Group::Disk, "disk", primitives::disk),
    (Group::Fairness, "fairness", primitives::sharing),
    (Group::Handoff, "handoff", primitives::handing_off),
    (Group::Latency, "latency", latency),
    (Group::Handles, "handles", examples::handles),
    (Group::Ums, "ums", examples::ums),
    (Group::Http, "http", http::cases),
    (Group::Overhead, "overhead", overhead::cases),
    (Group::Pool, "pool", examples::pools),
];

/// The delay of other threads beside threads that compute, read, or are stuck in the kernel.
fn latency(workshop: &Workshop) -> Vec<Case> {
    let mut cases = http::busy_cases(workshop);
    cases.extend(primitives::getting_stuck(workshop));
    cases
}

pub(crate) fn run(arguments: &BenchArguments) -> Result<ExitCode> {
    match &arguments.command {
        Some(BenchCommand::Servers(arguments)) => return servers::run(arguments),
        Some(BenchCommand::Insight(arguments)) => return servers::insight::run(arguments),
        None => {}
    }
    preload::find()?;
    let settings = Settings::new(arguments)?;
    let machine = Machine::look();
    let mut journal = Journal::open(arguments, &machine)?;
    let workshop = Workshop::open(arguments.fraction)?;
    report::print_head(&machine, &settings)?;
    let wanted = |group: Group| [Some(Group::All), Some(group)].contains(&arguments.group);
    let mut measured = false;
    for (_, name, prepare) in GROUPS.iter().filter(|(group, ..)| wanted(*group)) {
        let mut outcomes = Vec::new();
        for case in prepare(&workshop) {
            let outcome = harness::measure(&case, &settings);
            journal.append(name, &outcome)?;
            outcomes.push(outcome);
        }
        measured |= outcomes.iter().any(|outcome| !outcome.figures.is_empty());
        report::print_group(name, &outcomes)?;
    }
    if measured {
        Ok(ExitCode::SUCCESS)
    } else {
        Err(Failure::new(1, "nothing could be measured", "see the lines above").into())
    }
}
