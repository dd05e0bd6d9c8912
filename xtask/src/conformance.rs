//! Test suites, own and outside ones, natively and under raddle: a case that passes natively must
//! pass under raddle.
//!
//! Nouns: a *case* is one judged test of a suite; a *group* is the cases on one line of the
//! details; a *suite* is the cases on one line of the table; a *mode* is native or a number of
//! carriers; an *exception* is a case that is allowed to differ, with its reason, in
//! `crates/raddle-tests/conformance.toml`.
//!
//! No outside suite is in this tree: the user names the folder of the Open POSIX Test Suite, and
//! the others are Debian packages.

mod exceptions;
mod own;
mod posix;
pub(crate) mod process;
pub(crate) mod python;
mod report;
mod stress;

use std::path::PathBuf;
use std::time::Duration;

use anyhow::Result;

use crate::tally::Tally;
use crate::workspace::Workspace;
use exceptions::Exceptions;
use process::Runner;

/// How one case is run.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Mode {
    Native,
    /// Under raddle with so many carriers.
    Raddle(u32),
}

const CARRIERS: [u32; 3] = [1, 2, 3];

/// The failure of a case that did not end in its time. Under raddle a second run does not excuse
/// it: a case that hangs now and then has lost a wake-up.
pub(crate) const HUNG: &str = "hung";

/// A case's outcomes: natively, then with each number of carriers. `Err` holds the failure; a case
/// that fails natively does not run under raddle.
pub(crate) struct Case {
    pub group: String,
    pub name: String,
    pub native: Result<(), String>,
    pub raddle: Vec<(u32, Result<(), String>)>,
}

/// Cases that share a line of the table.
struct Suite {
    title: String,
    cases: Vec<Case>,
    exceptions: Exceptions,
}

/// Selects the cases.
#[derive(Default)]
pub(crate) struct Settings {
    /// Only names with this part: a test file, a module, a stressor, a program.
    pub only: Option<String>,
    /// Only these numbers of carriers.
    pub carriers: Vec<u32>,
}

impl Settings {
    fn wants(&self, name: &str) -> bool {
        self.only.as_ref().is_none_or(|only| name.contains(only))
    }

    fn carriers(&self) -> Vec<u32> {
        if self.carriers.is_empty() {
            return CARRIERS.to_vec();
        }
        self.carriers.clone()
    }
}

/// The Open POSIX Test Suite: its folder, the folder of its programs, the time limit of each.
pub(crate) struct Posix {
    /// The folder `conformance/interfaces`, or one above it.
    pub suite: PathBuf,
    pub build: Option<PathBuf>,
    pub limit: Duration,
}

/// The Open POSIX Test Suite alone.
pub(crate) fn run_posix(workspace: &Workspace, settings: &Settings, posix: &Posix) -> Result<bool> {
    workspace.build_release()?;
    Ok(report::judge(&posix::run(workspace, settings, posix)?).failed == 0)
}

/// Runs every suite; the Open POSIX Test Suite if its folder is given.
pub(crate) fn run(
    workspace: &Workspace,
    settings: &Settings,
    posix: Option<&Posix>,
) -> Result<bool> {
    workspace.build_release()?;
    let mut suites = vec![Suite {
        title: "integration tests".to_owned(),
        cases: own::run(workspace, settings)?,
        exceptions: exceptions::known_failures(workspace)?,
    }];
    if let Some(posix) = posix {
        suites.extend(posix::run(workspace, settings, posix)?);
    }
    suites.push(stress(workspace, settings, stress::LONG)?);
    suites.push(python(workspace, settings, &python::MODULES)?);
    if settings.only.is_some() {
        suites.retain(|suite| !suite.cases.is_empty());
    }
    Ok(report::judge(&suites).failed == 0)
}

/// The short, fixed part that continuous integration runs.
pub(crate) fn run_short(workspace: &Workspace) -> Result<Tally> {
    workspace.build_release()?;
    let settings = Settings::default();
    Ok(report::judge(&[
        stress(workspace, &settings, stress::SHORT)?,
        python(workspace, &settings, &python::SHORT)?,
    ]))
}

fn stress(workspace: &Workspace, settings: &Settings, run_s: &str) -> Result<Suite> {
    let runner = runner(workspace, settings, "stress")?;
    Ok(Suite {
        title: "stress-ng --verify".to_owned(),
        cases: stress::run(&runner, settings, run_s)?,
        exceptions: Exceptions::load(workspace, "stress")?,
    })
}

fn python(workspace: &Workspace, settings: &Settings, modules: &[&str]) -> Result<Suite> {
    let runner = runner(workspace, settings, "python")?;
    Ok(Suite {
        title: "CPython".to_owned(),
        cases: python::run(&runner, settings, modules, python::MODULE_LIMIT, 1)?,
        exceptions: Exceptions::load(workspace, "python")?,
    })
}

fn runner(workspace: &Workspace, settings: &Settings, folder: &str) -> Result<Runner> {
    let folder = workspace.target.join("conformance").join(folder);
    Runner::new(workspace.raddle(), folder, settings.carriers())
}
