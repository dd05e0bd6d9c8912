//! The lane `deny`: licences, sources, duplicates and known holes of the project's dependencies.
//!
//! The checks are those of cargo-deny (`deny.toml`), which is built from crates.io into the target
//! folder. One case is one kind of check. The database of advisories is a Git repository on another
//! host than the registries: without a way to it that check is left out, with a message.

use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result};
use serde_json::Value;

use crate::tally::Tally;
use crate::workspace::Workspace;
use crate::{lanes, shell};

const VERSION: &str = "0.20.2";
/// Checks that need only the registry.
const CHECKS: [&str; 3] = ["bans", "licenses", "sources"];
const ADVISORIES: &str = "advisories";

/// The path of cargo-deny, once it is installed.
pub(crate) fn program(target: &Path) -> PathBuf {
    target.join("tools/bin/cargo-deny")
}

/// Builds cargo-deny, unoptimised: a check takes seconds either way.
pub(crate) fn install(target: &Path) -> Result<()> {
    let wanted = format!("cargo-deny@{VERSION}");
    shell::run(
        shell::cargo(Path::new("."))
            .args(["install", "--quiet", "--locked", "--debug"])
            .args(["--no-default-features", &wanted, "--root"])
            .arg(target.join("tools")),
    )
}

/// Runs the checks.
pub(crate) fn lane(workspace: &Workspace) -> Result<lanes::Outcome> {
    let program = program(&workspace.target);
    if !program.is_file() {
        let why = "cargo-deny is missing: cargo xtask deps installs it";
        return Ok(lanes::Outcome::Skipped(why.into()));
    }
    let mut tally = Tally::default();
    for check in CHECKS {
        match errors(&program, workspace, check)? {
            Some(0) => tally.passed += 1,
            _ => tally.failed += 1,
        }
    }
    match errors(&program, workspace, ADVISORIES)? {
        Some(0) => tally.passed += 1,
        Some(_) => tally.failed += 1,
        None => println!("advisories: not checked, because their database can't be fetched"),
    }
    Ok(lanes::Outcome::Ran(tally))
}

/// Runs a check and prints its errors. Returns their number; `None` if the check could not run.
fn errors(program: &Path, workspace: &Workspace, check: &str) -> Result<Option<u64>> {
    let output = Command::new(program)
        .current_dir(&workspace.root)
        .args(["--format", "json", "check", check])
        .output()
        .with_context(|| format!("{} did not start", program.display()))?;
    let text = String::from_utf8_lossy(&output.stderr);
    let messages = text
        .lines()
        .filter_map(|line| serde_json::from_str::<Value>(line).ok());
    let mut found = None;
    for message in messages {
        let fields = &message["fields"];
        if message["type"] == "summary" {
            found = fields[check]["errors"].as_u64();
        } else if fields["severity"] == "error" {
            println!(
                "{check}: {}",
                fields["message"].as_str().unwrap_or_default()
            );
        }
    }
    Ok(found)
}
