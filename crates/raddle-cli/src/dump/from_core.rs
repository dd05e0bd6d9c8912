//! `raddle dump --from CORE`: the threads of a core file.

use std::path::Path;
use std::process::ExitCode;

use anyhow::Result;
use raddle_inspect::Snapshot;
use raddle_stacks::corefile::{CoreFile, Tables};
use raddle_stacks::{Modules, Symbols, Target, capture};

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
    let taken = capture(&target, &|record| filter.picks(record)).ok_or_else(|| {
        let what = format!("no green threads in {}", path.display());
        Failure::input(what, "its tables make no sense")
    })?;
    let mut symbols = Symbols::new(&opened.core, &opened.modules);
    let taken = stacks::named(&snapshot, taken, &[], &target, &mut symbols);
    show_stacks(pid, arguments, taken)?;
    Ok(match truncated(&opened.core) {
        Some(missing) => {
            say(&format!(
                "{} is too short, {missing} are missing: what it has is shown",
                path.display()
            ));
            ExitCode::from(1)
        }
        None => ExitCode::SUCCESS,
    })
}
