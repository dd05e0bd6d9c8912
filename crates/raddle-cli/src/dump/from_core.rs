//! `raddle dump --from CORE`: the threads of a core file.

use std::collections::HashMap;
use std::path::Path;
use std::process::ExitCode;

use anyhow::Result;
use raddle_inspect::{Snapshot, ThreadFlags};
use raddle_stacks::corefile::CoreFile;
use raddle_stacks::locks::{self, Waits};
use raddle_stacks::{Modules, Symbols, Tables, Target, capture};

use super::deadlocks::Findings;
use super::filter::Filter;
use super::{show_stacks, stacks, understand};
use crate::cli::DumpArguments;
use crate::failure::{Failure, say};

/// A core with green threads.
pub(crate) struct Opened {
    pub core: CoreFile,
    pub modules: Modules,
    pub tables: Tables,
}

impl Opened {
    /// Opens a core file, and finds the runtime's tables in it.
    pub(crate) fn open(path: &Path) -> Result<Opened, Failure> {
        let shown = path.display();
        let core = CoreFile::open(path).map_err(|error| {
            Failure::input(
                format!("{shown} can't be used, because {error}"),
                "give a core file of a process that ran under raddle run",
            )
        })?;
        let maps = core.maps();
        let modules = Modules::parse(maps.as_bytes(), "").map_err(|error| {
            Failure::input(
                format!("the mappings of {shown} can't be read ({error})"),
                "",
            )
        })?;
        let tables = Tables::of(&core, &modules).map_err(|error| {
            let cure = match truncated(&core) {
                Some(missing) => format!("the file is too short, {missing} are missing"),
                None => "use the raddle that ran it, or gdb, which shows its kernel threads".into(),
            };
            Failure::input(format!("no green threads in {shown}: {error}"), cure)
        })?;
        Ok(Opened {
            core,
            modules,
            tables,
        })
    }
}

/// Returns how much is missing, in words.
pub(crate) fn truncated(core: &CoreFile) -> Option<String> {
    match core.missing {
        0 => None,
        missing => Some(format!("{missing} of {} bytes", core.bytes() + missing)),
    }
}

pub(super) fn show(arguments: &DumpArguments, path: &Path, filter: &Filter) -> Result<ExitCode> {
    let opened = Opened::open(path)?;
    let pid = opened.core.pid();
    let made = opened.tables.snapshot();
    let stored = opened
        .core
        .snapshot()
        .filter(|it| Snapshot::parse(it).is_ok());
    let snapshot = understand(pid, stored.unwrap_or(&made))?;
    let stopped = opened.core.stopped();
    let carriers: Vec<_> = snapshot.carriers().collect();
    let target = Target {
        pid,
        memory: &opened.core,
        layout: &opened.tables.layout,
        carriers: &carriers,
        modules: &opened.modules,
        started_ns: snapshot.header().started_ns,
        stopped: Some(&stopped),
    };
    let taken = capture(&target, &|record| filter.may_pick(record)).ok_or_else(|| {
        let what = format!("no green threads in {}", path.display());
        Failure::input(what, "its tables make no sense")
    })?;
    let mut symbols = Symbols::new(&opened.core, &opened.modules);
    let mut edges = locks::edges(&target, &taken, &mut symbols);
    if let Some(stored) = stored.and_then(|it| Snapshot::parse(it).ok()) {
        let unmoved = unmoved(&stored);
        edges.retain(|edge| unmoved.get(&edge.waiter) == Some(&edge.switches));
    }
    let waits = Waits {
        switches: HashMap::new(),
        edges,
        is_asleep: false,
    };
    let taken = stacks::named(
        &snapshot,
        taken,
        &waits.edges,
        &target,
        &mut symbols,
        filter,
    );
    let status = if arguments.deadlocks {
        Findings::of_core(taken, &waits).show(pid, arguments)?
    } else {
        show_stacks(pid, arguments, taken)?;
        ExitCode::SUCCESS
    };
    Ok(match truncated(&opened.core) {
        Some(missing) => {
            say(&format!(
                "{} is too short, {missing} are missing: what it has is shown",
                path.display()
            ));
            ExitCode::from(1)
        }
        None => status,
    })
}

/// Returns the threads of which the core has locks and stack of one moment, and how often each had
/// been switched to. A core that the kernel has written is of one moment as a whole.
fn unmoved(stored: &Snapshot<'_>) -> HashMap<u32, u64> {
    let threads = stored.threads();
    threads
        .filter(|record| record.flags.contains(ThreadFlags::UNMOVED))
        .map(|record| (record.tid, record.switches))
        .collect()
}
