//! Suites of Debian's source packages that have drivers of their own: one of the driver's tests is
//! a batch.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result, ensure};

use super::batch::{Batch, Reading, drop_root, give_away};
use crate::conformance::process::cpus;
use crate::shell;

/// The programs that Redis' driver starts, at the paths where it looks for them.
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
pub(super) fn libuv(source: &Path, folder: &Path) -> Result<Vec<Batch>> {
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

/// Lets Redis' driver find the installed programs.
pub(super) fn redis(source: &Path, units: &[String]) -> Result<Vec<Batch>> {
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
            folder: redis_view(source, index)?,
            environment: Vec::new(),
            unprivileged: false,
            reading: Reading::ExitCode,
        });
    }
    Ok(batches)
}

/// Makes a folder that looks like the source and has an empty `tests/tmp` of its own: a driver
/// removes the files of others there.
fn redis_view(source: &Path, number: usize) -> Result<PathBuf> {
    let view = source.join("views").join(number.to_string());
    fs::create_dir_all(view.join("tests/tmp"))?;
    link_entries(source, &view, &["views", "tests"])?;
    link_entries(&source.join("tests"), &view.join("tests"), &["tmp"])?;
    Ok(view)
}

/// Links all entries of a folder but those named into another folder.
fn link_entries(from: &Path, to: &Path, without: &[&str]) -> Result<()> {
    for entry in fs::read_dir(from)? {
        let entry = entry?;
        let name = entry.file_name();
        if !without.iter().any(|other| name == *other) {
            link(&entry.path(), &to.join(name))?;
        }
    }
    Ok(())
}

/// Builds Varnish with its modules and its test runner.
pub(super) fn varnish(source: &Path) -> Result<Vec<Batch>> {
    let program = source.join("bin/varnishtest/varnishtest");
    if !program.exists() {
        shell::run(Command::new("./autogen.sh").current_dir(source))?;
        // Manuals are not needed for the build below.
        let mut configure = Command::new("./configure");
        configure.args([
            "--disable-dependency-tracking",
            "SPHINX=true",
            "RST2MAN=true",
        ]);
        shell::run(configure.current_dir(source))?;
        for part in ["include", "lib", "bin", "vmod"] {
            make(source, &["-C", part])?;
        }
    }
    give_away(source)?;
    let tests = source.join("bin/varnishtest/tests");
    let batch = |name: String| Batch {
        program: program.clone(),
        arguments: vec!["-i".to_owned(), tests.join(&name).display().to_string()],
        name,
        folder: source.join("bin/varnishtest"),
        environment: Vec::new(),
        unprivileged: true,
        reading: Reading::ExitCode,
    };
    Ok(names(&tests, "vtc")?.into_iter().map(batch).collect())
}

/// Builds memcached and the programs of its tests. Every script runs with plain connections and
/// with TLS.
pub(super) fn memcached(source: &Path) -> Result<Vec<Batch>> {
    let perl = shell::find("perl").context("perl is not here")?;
    let unit = source.join("testapp");
    if !unit.exists() {
        let mut configure = Command::new("./configure");
        shell::run(configure.args(["-q", "--enable-tls"]).current_dir(source))?;
        let programs = [
            "memcached",
            "memcached-debug",
            "sizes",
            "timedrun",
            "testapp",
        ];
        make(source, &programs)?;
    }
    give_away(source)?;
    let batch = |name: String, program: &Path, script: Option<&String>| Batch {
        name,
        program: program.to_owned(),
        arguments: script.map(|name| format!("t/{name}")).into_iter().collect(),
        folder: source.to_owned(),
        environment: Vec::new(),
        unprivileged: true,
        reading: Reading::Tap,
    };
    let mut batches = vec![batch("testapp".to_owned(), &unit, None)];
    for name in names(&source.join("t"), "t")? {
        let mut encrypted = batch(format!("tls/{name}"), &perl, Some(&name));
        encrypted
            .environment
            .push(("SSL_TEST".to_owned(), "1".to_owned()));
        batches.push(batch(name.clone(), &perl, Some(&name)));
        batches.push(encrypted);
    }
    Ok(batches)
}

fn make(folder: &Path, arguments: &[&str]) -> Result<()> {
    let mut make = Command::new("make");
    make.current_dir(folder).arg(format!("-j{}", cpus()));
    shell::run(make.args(arguments))
}

/// The names of the files in a folder that end in `.EXTENSION`, in order.
fn names(folder: &Path, extension: &str) -> Result<Vec<String>> {
    let mut names = Vec::new();
    for entry in fs::read_dir(folder)? {
        let path = entry?.path();
        if path.extension().is_some_and(|found| found == extension) {
            names.extend(
                path.file_name()
                    .map(|name| name.to_string_lossy().into_owned()),
            );
        }
    }
    names.sort();
    ensure!(!names.is_empty(), "{} has no tests", folder.display());
    Ok(names)
}

fn link(program: &PathBuf, at: &Path) -> Result<()> {
    if !at.exists() {
        let _ = fs::remove_file(at);
        std::os::unix::fs::symlink(program, at)?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_view_of_redis_has_temporary_files_of_its_own() {
        let source = std::env::temp_dir().join("raddle-test-redis-view");
        let _ = fs::remove_dir_all(&source);
        fs::create_dir_all(source.join("tests/tmp")).expect("a folder");
        fs::write(source.join("tests/tmp/old"), "").expect("a file");
        fs::write(source.join("tests/a.tcl"), "").expect("a file");
        let view = redis_view(&source, 3).expect("a view");
        assert!(view.join("tests/a.tcl").is_file());
        assert!(!view.join("tests/tmp/old").exists());
        fs::remove_dir_all(&source).expect("the folder is there");
    }
}
