//! Outside test suites, fetched from package registries, natively and under raddle: a case that
//! passes natively must pass under raddle.
//!
//! Nouns: a *suite* is an entry of the manifest `xtask/suites.toml`, which names its source with
//! the exact version, its build, and the cases that are not run or may differ; a *batch* is one
//! command of a suite, with one case or more; a *family* is suites that one name selects.
//!
//! Protocol, for each suite: (1) its source is fetched below the target folder, unless that version
//! is there; (2) it is built; (3) each batch runs natively and then under raddle; (4) a case that
//! fails in a mode runs once more in every mode, after all batches and with nothing beside it;
//! (5) the table and `suites/results.json` in the target folder tell the result.
//!
//! Rejected: the suites' own drivers as the judges. Each prints in a form of its own, and none
//! compares two ways of running.

mod batch;
mod crates;
mod fetch;
mod glibc;
mod manifest;
mod mariadb;
mod packaged;
mod results;
mod run;

use anyhow::{Result, bail};

use crate::conformance::process::Runner;
use crate::conformance::{self, Case, python};
use crate::workspace::Workspace;
use batch::Batch;
use manifest::{Build, Manifest, Suite};
use results::Outcome;

/// Selects the suites and cases.
pub(crate) struct Options {
    /// Suites or families; all when there is none.
    pub names: Vec<String>,
    /// Only batches that have this in their names.
    pub only: Option<String>,
    pub carriers: Vec<u32>,
    /// Nothing runs; the manifest is printed.
    pub list: bool,
}

/// Runs the selected suites. Returns false if a case differs without a documented reason.
pub(crate) fn run(workspace: &Workspace, options: &Options) -> Result<bool> {
    let manifest = Manifest::load(workspace)?;
    let suites = manifest.select(&options.names)?;
    if options.list {
        for suite in suites {
            suite.print();
        }
        return Ok(true);
    }
    if let Some(bad) = options.carriers.iter().find(|n| !(1..=3).contains(*n)) {
        bail!("{bad} carriers: a suite runs with 1, 2 or 3");
    }
    workspace.build_release()?;
    let mut outcomes = Vec::new();
    for suite in suites {
        println!("--- {} {}", suite.name, suite.version());
        // A suite that can't be fetched or built is a failure, but does not keep others from
        // running.
        let outcome = match examine(workspace, options, suite) {
            Ok(cases) => Outcome::new(suite, cases),
            Err(error) => Outcome::broken(suite, format!("{error:#}")),
        };
        outcome.print_differences();
        outcomes.push(outcome);
        results::write(workspace, &outcomes)?;
    }
    Ok(results::judge(&outcomes))
}

fn examine(workspace: &Workspace, options: &Options, suite: &Suite) -> Result<Vec<Case>> {
    let folder = workspace.target.join("suites").join(&suite.name);
    std::fs::create_dir_all(&folder)?;
    let logs = folder.join("logs");
    let runner = Runner::new(workspace.raddle(), logs, options.carriers.clone())?;
    if let Build::Python { modules } = &suite.build {
        fetch::check_installed(suite)?;
        let settings = conformance::Settings {
            only: options.only.clone(),
            carriers: options.carriers.clone(),
        };
        let mut modules: Vec<_> = modules.iter().map(String::as_str).collect();
        modules.retain(|module| !suite.skip.contains_key(*module));
        return python::run(&runner, &settings, &modules, suite.limit(), suite.at_once);
    }
    let mut batches = prepare(workspace, suite, &folder)?;
    batches.retain(|batch| is_wanted(options, suite, batch));
    run::compare_all(&runner, suite, &batches)
}

fn is_wanted(options: &Options, suite: &Suite, batch: &Batch) -> bool {
    let only = options.only.as_ref();
    let named = only.is_none_or(|only| batch.name.contains(only.as_str()));
    named && !suite.skip.contains_key(&batch.name)
}

/// Fetches and builds a suite.
fn prepare(workspace: &Workspace, suite: &Suite, folder: &std::path::Path) -> Result<Vec<Batch>> {
    let source = fetch::source(workspace, suite, folder)?;
    match &suite.build {
        Build::Glibc { folders } => glibc::build(&source, folder, folders),
        Build::Crate { features, tests } => crates::build(workspace, &source, features, tests),
        Build::Libuv => packaged::libuv(&source, folder),
        Build::Redis { units } => packaged::redis(&source, units),
        Build::Varnish => packaged::varnish(&source),
        Build::Memcached => packaged::memcached(&source),
        Build::Mariadb(suites) => mariadb::batches(suites),
        Build::Python { .. } => bail!("CPython is run by its own module"),
    }
}
