//! Suites of Debian's source packages that have drivers of their own: one of the driver's tests is
//! a batch.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result, ensure};

use super::batch::{Batch, Reading, drop_root, give_away};
use crate::conformance::process::cpus;
use crate::shell;

/// What Redis' driver starts, where it looks for it.
const REDIS_PROGRAMS: [&str; 5] = [
    "redis-server",
    "redis-cli",
    "redis-benchmark",
    "redis-check-aof",
    "redis-check-rdb",
];
const REDIS_SENTINEL: &str = "redis-sentinel";
/// The first port of a driver's servers; every unit has as many after it.
const REDIS_PORT: usize = 21111;
const REDIS_PORTS: usize = 400;

/// Builds libuv's test runner with CMake.
pub fn libuv(source: &Path, folder: &Path) -> Result<Vec<Batch>> {
    let build = folder.join("build");
    let mut cmake = Command::new("cmake");
    cmake.arg("-S").arg(source).arg("-B").arg(&build);
    shell::run(cmake.arg("-DCMAKE_BUILD_TYPE=RelWithDebInfo"))?;
    let mut make = Command::new("cmake");
    make.arg("--build").arg(&build);
    let jobs = cpus().to_string();
    shell::run(make.args(["--target", "uv_run_tests", "-j", &jobs]))?;
    let program = build.join("uv_run_tests");
    give_away(source)?;
    let mut lister = Command::new(&program);
    drop_root(&mut lister);
    let output = lister.arg("--list").output()?;
    ensure!(
        output.status.success(),
        "{} lists no tests",
        program.display()
    );
    let list = String::from_utf8_lossy(&output.stdout).into_owned();
    let batch = |name: &str| Batch {
        name: name.to_owned(),
        program: program.clone(),
        arguments: vec![name.to_owned()],
        // Tests open files of the source, as "test/fixtures".
        folder: source.to_owned(),
        environment: Vec::new(),
        unprivileged: true,
        reading: Reading::ExitCode,
    };
    // A line is a test's name, or in brackets a server that a test starts.
    let tests = list
        .lines()
        .filter_map(|line| line.split_whitespace().next());
    Ok(tests
        .filter(|name| !name.starts_with('('))
        .map(batch)
        .collect())
}

/// Lets Redis' driver find the programs that are installed.
pub fn redis(source: &Path, units: &[String]) -> Result<Vec<Batch>> {
    let tclsh = shell::find("tclsh").context("tclsh is not here")?;
    // Below the target folder the path of a server's Unix socket would be too long.
    let copy = std::env::temp_dir().join("raddle-redis");
    let _ = fs::remove_dir_all(&copy);
    shell::run(Command::new("cp").arg("-r").arg(source).arg(&copy))?;
    let source = copy.as_path();
    for name in REDIS_PROGRAMS {
        let program = shell::find(name).with_context(|| format!("{name} is not here"))?;
        link(&program, &source.join("src").join(name))?;
    }
    let server = source.join("src/redis-server");
    link(&server, &source.join("src").join(REDIS_SENTINEL))?;
    let mut batches = Vec::new();
    for (index, unit) in units.iter().enumerate() {
        let port = (REDIS_PORT + index * REDIS_PORTS % 20_000).to_string();
        let arguments = ["tests/test_helper.tcl", "--single", unit, "--clients", "1"];
        let mut arguments = arguments.map(str::to_owned).to_vec();
        arguments.extend(["--baseport".to_owned(), port]);
        batches.push(Batch {
            name: unit.clone(),
            program: tclsh.clone(),
            arguments,
            folder: source.to_owned(),
            environment: Vec::new(),
            unprivileged: false,
            reading: Reading::ExitCode,
        });
    }
    Ok(batches)
}

fn link(program: &PathBuf, at: &Path) -> Result<()> {
    if !at.exists() {
        let _ = fs::remove_file(at);
        std::os::unix::fs::symlink(program, at)?;
    }
    Ok(())
}
