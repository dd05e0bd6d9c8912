//! The test executables: built here, with the programs that they run, and their cases listed.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result, ensure};

use super::image::Image;
use super::manifest::{Guest, Manifest, Test};
use crate::lanes::QUICK_RELEASE;
use crate::shell;
use crate::workspace::Workspace;

const PACKAGE: &str = "raddle-tests";
/// Compilers that the tests look for. In the guest all programs are there already.
const COMPILERS: [&str; 2] = ["cc", "c++"];
const STUB: &str = "#!/bin/sh\necho 'there is no compiler in the guest' >&2\nexit 1\n";

/// Files that every guest has in a form of its own.
const OWN_FILES: [(&str, u32, &str); 5] = [
    ("/etc/group", 0o644, "root:x:0:\nnogroup:x:65534:\n"),
    ("/etc/hosts", 0o644, "127.0.0.1 localhost\n::1 localhost\n"),
    ("/etc/nsswitch.conf", 0o644, "hosts: files dns\n"),
    (
        "/etc/passwd",
        0o644,
        "root:x:0:0:root:/root:/bin/sh\n\
         nobody:x:65534:65534:nobody:/nonexistent:/bin/false\n",
    ),
    ("/etc/shadow", 0o600, "root:*:19000::::::\n"),
];

/// A test executable and the cases of it that run.
pub(super) struct Executable<'a> {
    pub test: &'a Test,
    pub path: PathBuf,
    pub cases: Vec<String>,
}

/// Builds the executables of the manifest. `part` is a part of `FILE/CASE` that all cases have.
pub(super) fn build<'a>(
    workspace: &Workspace,
    manifest: &'a Manifest,
    part: Option<&str>,
) -> Result<Vec<Executable<'a>>> {
    let files = manifest
        .tests
        .iter()
        .flat_map(|test| ["--test", &test.file]);
    let mut cargo = shell::cargo(&workspace.root);
    cargo.envs(QUICK_RELEASE);
    cargo.args(["test", "--no-run", "--release", "--package", PACKAGE]);
    cargo.args(files).args(["--message-format", "json"]);
    let mut paths = BTreeMap::new();
    let status = shell::stream(&mut cargo, |line| {
        paths.extend(parse_executable(line));
    })?;
    ensure!(status.success(), "the tests don't build");
    let mut executables = Vec::new();
    for test in &manifest.tests {
        let path = paths.get(&test.file);
        let path = path.with_context(|| format!("there is no test file {}", test.file))?;
        let mut cases = list(path)?;
        cases.retain(|case| test.selects(case, part));
        if !cases.is_empty() {
            executables.push(Executable {
                test,
                path: path.clone(),
                cases,
            });
        }
    }
    ensure!(!executables.is_empty(), "no case has this in its name");
    Ok(executables)
}

/// Compiles the programs of all cases. A case that is no program of one kind is run natively for
/// that: only the case knows what it compiles.
pub(super) fn build_programs(executables: &[Executable<'_>]) -> Result<()> {
    for executable in executables {
        let mut command = Command::new(&executable.path);
        command.env("RADDLE_TESTS", "build").env("CI", "true");
        command.args(["--quiet", "--exact"]).args(&executable.cases);
        let output = command.output()?;
        ensure!(
            output.status.success(),
            "the programs of {} don't build:\n{}",
            executable.test.file,
            String::from_utf8_lossy(&output.stdout)
        );
    }
    Ok(())
}

/// Puts the executables' needs into the image.
pub(super) fn stage(
    workspace: &Workspace,
    guest: &Guest,
    executables: &[Executable<'_>],
    image: &mut Image,
) -> Result<()> {
    let mut programs: Vec<_> = executables.iter().map(|it| it.path.clone()).collect();
    programs.extend([workspace.raddle(), workspace.preload("release")]);
    for name in &guest.programs {
        programs.push(shell::find(name).with_context(|| format!("{name} is not here"))?);
    }
    products(
        &workspace.target.join(PACKAGE).join("programs"),
        &mut programs,
    )?;
    image.add_programs(&programs)?;
    let package = workspace.package(PACKAGE);
    image.add(package.context("there are no tests")?.folder())?;
    for file in &guest.files {
        image.add(Path::new(file))?;
    }
    for (path, mode, text) in OWN_FILES {
        image.write(path, mode, text)?;
    }
    for compiler in COMPILERS {
        let path = shell::find(compiler).context("install build-essential")?;
        image.write(&path.to_string_lossy(), 0o755, STUB)?;
    }
    Ok(())
}

/// Collects programs and shared objects that tests have compiled.
fn products(folder: &Path, programs: &mut Vec<PathBuf>) -> Result<()> {
    for entry in std::fs::read_dir(folder)? {
        let folder = entry?.path();
        let files = ["program", "library.so"].map(|name| folder.join(name));
        programs.extend(files.into_iter().filter(|file| file.is_file()));
    }
    Ok(())
}

/// The names of an executable's cases.
fn list(path: &Path) -> Result<Vec<String>> {
    let mut command = Command::new(path);
    let output = command.args(["--list", "--format", "terse"]).output()?;
    Ok(parse_list(&String::from_utf8_lossy(&output.stdout)))
}

/// Reads lines `CASE: test`.
fn parse_list(text: &str) -> Vec<String> {
    let cases = text.lines().filter_map(|line| line.strip_suffix(": test"));
    cases.map(str::to_owned).collect()
}

/// Reads the name and the executable of a test from one of Cargo's messages.
fn parse_executable(line: &str) -> Option<(String, PathBuf)> {
    let message: serde_json::Value = serde_json::from_str(line).ok()?;
    let target = &message["target"];
    if target["kind"][0] != "test" {
        return None;
    }
    let executable = message["executable"].as_str()?;
    Some((target["name"].as_str()?.to_owned(), executable.into()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn cases_are_read_from_the_harnesss_list() {
        assert_eq!(
            parse_list("a::b: test\nc: test\nd: benchmark\n"),
            ["a::b", "c"]
        );
    }

    #[test]
    fn an_executable_is_read_from_cargos_message() {
        let line = r#"{"target":{"kind":["test"],"name":"io"},"executable":"/t/deps/io-1"}"#;
        let found = parse_executable(line).expect("a test");
        assert_eq!(found, ("io".to_owned(), PathBuf::from("/t/deps/io-1")));
        assert!(parse_executable(&line.replace("[\"test\"]", "[\"lib\"]")).is_none());
        assert!(parse_executable("warning: x").is_none());
    }
}
