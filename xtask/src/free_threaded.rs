//! CPython without its global lock: no distribution that is supported has a package of it, so it is
//! built from Debian 13's source package, once, into the target folder.

use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::Result;

use crate::apt::{Apt, Source};
use crate::shell;

const ARCHIVE: [Source<'static>; 1] = [("deb-src", "http://deb.debian.org/debian", "trixie")];
const PACKAGE: &str = "python3.13";
/// Below the target folder.
const FOLDER: &str = "free-threaded";

/// Returns the interpreter, which is there when it works.
pub(crate) fn program(target: &Path) -> PathBuf {
    target.join(FOLDER).join("python3.13t")
}

/// Fetches and builds it. Debug information and most optimisation are left out, for time.
pub(crate) fn install(target: &Path) -> Result<()> {
    println!("building from source: {PACKAGE} without its global lock");
    let folder = target.join(FOLDER);
    let apt = Apt::update(&folder.join("apt"), &ARCHIVE)?;
    let source = apt.unpack_upstream(PACKAGE, &folder.join("source"))?;
    let build = folder.join("build");
    std::fs::create_dir_all(&build)?;
    let mut configure = Command::new(source.join("configure"));
    configure.args(["--disable-gil", "--disable-test-modules", "--quiet"]);
    shell::run(
        configure
            .arg("OPT=-O1 -DNDEBUG")
            .arg("CFLAGS=-g0")
            .current_dir(&build),
    )?;
    let jobs = std::thread::available_parallelism().map_or(1, usize::from);
    let mut make = Command::new("make");
    make.args(["--silent", &format!("-j{jobs}")]);
    // The interpreter, and then the modules that asyncio needs.
    shell::run(make.args(["python", "sharedmods"]).current_dir(&build))?;
    let python = build.join("python");
    shell::run(Command::new(&python).args(["-c", "import asyncio, sys; sys._is_gil_enabled()"]))?;
    symlink(python, program(target))?;
    Ok(())
}
