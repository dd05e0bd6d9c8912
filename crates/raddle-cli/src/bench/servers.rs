//! `raddle bench servers`: servers that are installed on the machine, natively and under raddle.
//!
//! Nouns: a *kind* is a name on the command line ([`catalog::Kind`]); a *server* is one program
//! with its configuration ([`catalog::Server`]), of which a kind may have several; a *window* is a
//! few seconds of load, and windows follow one another from the server's start to its end; a
//! *phase* is the start, a window or an offered rate ([`measure::Phase`]).
//!
//! Protocol: (1) prepare every kind: find its programs and its client, compile, write
//! configuration files into the workshop's folder; (2) for each server, each number of clients and
//! each round, start the server in every way by turns; (3) wait until it listens, and load it
//! window after window; (4) with `--rate`, load it at constant rates after that; (5) end it with
//! SIGTERM, and after [`running`]'s limit with SIGKILL.
//!
//! Clients are processes and threads of this command. They never run under raddle.
//!
//! A signal that ends this command kills the servers and removes the folder first ([`registry`]).
//!
//! Rejected: `redis-benchmark` and `memtier_benchmark`. The first counts requests and knows no
//! time, and the second is not in every distribution. Our own client ([`requests`]) serves both
//! protocols, and HTTP at constant rates.

mod catalog;
mod daemons;
pub(super) mod insight;
mod mariadb;
mod measure;
mod protocol;
mod registry;
mod report;
mod requests;
mod running;
mod runtimes;
mod side_by_side;
mod sysbench;
mod tree;
mod wrk;

use std::process::ExitCode;
use std::time::Duration;

use anyhow::Result;

use super::harness::this_executable;
use super::process::Way;
use super::programs::{Workshop, skipped};
use crate::cli::ServersArguments;
use crate::failure::Failure;
use crate::machine::Machine;
use crate::run::preload;
use catalog::{KINDS, Kind, Missing, Server};
use measure::Plan;
use report::Journal;
use side_by_side::WAYS;

pub(super) fn run(arguments: &ServersArguments) -> Result<ExitCode> {
    let kinds = chosen(&arguments.servers)?;
    if arguments.list {
        return list(&kinds);
    }
    preload::find()?;
    if let Some(port) = arguments.port {
        running::ensure_free(port)?;
    }
    let machine = Machine::look();
    let mut journal = Journal::open(arguments, &machine)?;
    registry::watch()?;
    let workshop = Workshop::open(1.0)?;
    registry::remove_at_end(&workshop.path(""));
    let lanes: Vec<Workshop> = if arguments.side_by_side {
        let of = |way: &Way| workshop.another(way.name());
        WAYS.iter().map(of).collect::<Result<_, _>>()?
    } else {
        Vec::new()
    };
    let shops = if lanes.is_empty() {
        std::slice::from_ref(&workshop)
    } else {
        &lanes
    };
    let mut servers: Vec<(&str, Vec<Server>)> = Vec::new();
    for kind in kinds {
        servers.extend(
            prepared(kind, shops, arguments)?
                .into_iter()
                .map(|them| (kind.name, them)),
        );
    }
    let plan = Plan {
        rounds: arguments.rounds,
        windows: arguments.windows,
        window: Duration::from_secs(arguments.seconds.into()),
        rates_percent: &arguments.rate,
        port: arguments.port,
        raddle: this_executable()?,
        folders: shops.iter().map(|shop| shop.path("")).collect(),
    };
    report::print_head(&machine, &plan)?;
    let (mut measured, mut failed) = (0, 0);
    for (name, same) in &servers {
        for outcome in measure::measure(same, &arguments.clients, &plan) {
            journal.append(name, &outcome)?;
            report::print(&outcome)?;
            measured += u32::from(!outcome.phases.is_empty());
            failed += u32::from(!outcome.failures.is_empty());
        }
    }
    registry::wait_for_signal();
    verdict(measured, failed)
}

fn verdict(measured: u32, failed: u32) -> Result<ExitCode> {
    let what = match (measured, failed) {
        (0, _) => "nothing could be measured".into(),
        (_, 0) => return Ok(ExitCode::SUCCESS),
        (_, 1) => "a server failed in some way".into(),
        _ => format!("{failed} servers failed in some way"),
    };
    Err(Failure::new(1, what, "see the lines above").into())
}

/// The kinds of these names; every kind if there is no name.
fn chosen(names: &[String]) -> Result<Vec<&'static Kind>, Failure> {
    let find = |name: &String| {
        let kind = KINDS.iter().find(|kind| kind.name == *name);
        kind.ok_or_else(|| {
            let known: Vec<_> = KINDS.iter().map(|kind| kind.name).collect();
            Failure::input(
                format!("there is no server {name}"),
                format!("name one of {}", known.join(", ")),
            )
        })
    };
    match names {
        [] => Ok(KINDS.iter().collect()),
        _ => names.iter().map(find).collect(),
    }
}

/// Returns the servers of a kind, each as often as there are workshops. A named kind must be
/// installed; another is skipped with a message.
fn prepared(
    kind: &Kind,
    workshops: &[Workshop],
    arguments: &ServersArguments,
) -> Result<Vec<Vec<Server>>, Failure> {
    let made = || {
        kind.check(!arguments.rate.is_empty())?;
        workshops
            .iter()
            .map(kind.prepare)
            .collect::<Result<Vec<_>, _>>()
    };
    match made() {
        Ok(sets) => Ok(transposed(sets)),
        Err(Missing { what, cure }) if arguments.servers.is_empty() => {
            skipped(kind.name, &format!("{what}: {cure}"));
            Ok(Vec::new())
        }
        Err(Missing { what, cure }) => Err(Failure::input(format!("{}: {what}", kind.name), cure)),
    }
}

/// Returns a list for each place in the sets, which are equally long.
fn transposed<T>(sets: Vec<Vec<T>>) -> Vec<Vec<T>> {
    let mut sets: Vec<_> = sets.into_iter().map(Vec::into_iter).collect();
    std::iter::from_fn(|| sets.iter_mut().map(Iterator::next).collect()).collect()
}

/// Prints a line for each kind; compiles and starts nothing.
fn list(kinds: &[&Kind]) -> Result<ExitCode> {
    report::print_list(
        kinds
            .iter()
            .map(|kind| (kind.name, kind.about, kind.check(false))),
    )?;
    Ok(ExitCode::SUCCESS)
}
