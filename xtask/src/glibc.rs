//! Tests with another glibc than the machine's: the programs are linked with it and started by its
//! ld.so, natively and under raddle.
//!
//! The package comes from a Debian suite through apt, with lists and a cache of their own below the
//! target folder: nothing on the machine is installed or changed.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result, ensure};

use crate::apt::Apt;
use crate::workspace::Workspace;
use crate::{lanes, shell};

const MIRROR: &str = "http://deb.debian.org/debian";
/// Where a package has libc and ld.so.
const LIBRARIES: &str = "usr/lib/x86_64-linux-gnu";

/// Fetches the glibc of `suite`, unless a `folder` with its libraries is given, and runs the tests
/// on C and C++ programs with it.
pub(crate) fn run(workspace: &Workspace, suite: &str, folder: Option<PathBuf>) -> Result<bool> {
    let folder = match folder {
        Some(folder) => folder,
        None => fetch(&workspace.target.join("glibc").join(suite), suite)?,
    };
    let folder = fs::canonicalize(&folder).with_context(|| folder.display().to_string())?;
    let loader = folder.join("ld-linux-x86-64.so.2");
    ensure!(loader.is_file(), "{} is not there", loader.display());
    shell::run(Command::new(&loader).arg("--version"))?;
    lanes::with_glibc(workspace, &folder)
}

/// Gets and unpacks the package. Returns the folder of its libraries.
fn fetch(folder: &Path, suite: &str) -> Result<PathBuf> {
    let apt = Apt::update(folder, &[("deb", MIRROR, suite)])?;
    let root = folder.join("root");
    apt.unpack("libc6", &root)?;
    Ok(root.join(LIBRARIES))
}
