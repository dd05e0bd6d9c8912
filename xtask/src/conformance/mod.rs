//! Outside suites, natively and under raddle: what passes natively has to pass under raddle.
//!
//! Nouns: a *case* is one thing that a suite judges; a *group* is the cases that share a line of
//! the table; a *mode* is native or a number of carriers; an *exception* is a case that is allowed
//! to differ, with its reason, in `crates/raddle-tests/conformance.toml`.
//!
//! Nothing of a suite is in this tree: the Open POSIX Test Suite is where the user says, and the
//! others are Debian packages.

mod exceptions;
pub mod posix;
mod process;
mod python;
mod report;
mod stress;

use std::path::PathBuf;

use anyhow::Result;

use crate::workspace::Workspace;
use exceptions::Exceptions;
use process::Runner;

/// How one case is run.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Mode {
    Native,
    /// Under raddle with so many carriers.
    Raddle(u32),
}

const CARRIERS: [u32; 3] = [1, 2, 3];

/// What one case did: natively, then with each number of [`CARRIERS`]. `Err` says how it failed;
/// under raddle nothing is run that does not pass natively.
pub struct Case {
    pub group: String,
    pub name: String,
    pub native: Result<(), String>,
    pub raddle: Vec<(u32, Result<(), String>)>,
}

/// CPython's own tests and stress-ng's; `only` leaves those whose name contains it.
pub fn run(workspace: &Workspace, only: Option<&str>) -> Result<bool> {
    workspace.build_release()?;
    let folder = workspace.target.join("conformance");
    let mut clean = true;
    let exceptions = Exceptions::load(workspace, "python")?;
    clean &= report::judge(
        &python::run(&runner(workspace, folder.join("python"))?, only)?,
        &exceptions,
    );
    let exceptions = Exceptions::load(workspace, "stress")?;
    clean &= report::judge(
        &stress::run(&runner(workspace, folder.join("stress"))?, only)?,
        &exceptions,
    );
    Ok(clean)
}

fn runner(workspace: &Workspace, folder: PathBuf) -> Result<Runner> {
    Runner::new(workspace.raddle(), folder)
}
