//! The tests of a crate: Cargo builds them, and each test binary is a batch.

use std::fs;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result, ensure};
use serde::Deserialize;

use super::batch::{Batch, Reading};
use crate::shell;
use crate::workspace::Workspace;

/// One line of Cargo's report of a build; most kinds of lines are ignored.
#[derive(Deserialize)]
struct Message {
    target: Option<Target>,
    executable: Option<PathBuf>,
}

#[derive(Deserialize)]
struct Target {
    name: String,
    kind: Vec<String>,
}

/// Builds the unit tests of the library and the integration tests; with `tests`, only those
/// integration tests.
pub(super) fn build(
    workspace: &Workspace,
    source: &Path,
    features: &[String],
    tests: &[String],
) -> Result<Vec<Batch>> {
    let mut cargo = shell::cargo(source);
    // Debug information takes most of the time of linking.
    cargo
        .env("CARGO_TARGET_DIR", workspace.target.join("suites/cargo"))
        .env("CARGO_PROFILE_DEV_DEBUG", "0")
        .env("RUSTFLAGS", "--cap-lints=allow")
        .args(["test", "--no-run", "--no-fail-fast", "--lib"])
        .args(["--message-format", "json-render-diagnostics"]);
    if tests.is_empty() {
        cargo.arg("--tests");
    }
    for test in tests {
        cargo.args(["--test", test]);
    }
    if !features.is_empty() {
        cargo.args(["--features", &features.join(",")]);
    }
    let mut batches = Vec::new();
    let mut malformed = None;
    let status = shell::stream(&mut cargo, |line| match parse(line) {
        Ok(Some((name, program))) => batches.push(batch(source, name, program)),
        Ok(None) => {}
        Err(error) => malformed = Some(error),
    })?;
    if let Some(error) = malformed {
        return Err(error).context("cargo printed something else");
    }
    ensure!(
        !batches.is_empty(),
        "no test of the crate was built: {status}"
    );
    // A test that needs files which the published crate lacks does not compile, and is left out.
    println!("{} test binaries, {status}", batches.len());
    batches.sort_by(|a, b| a.name.cmp(&b.name));
    Ok(batches)
}

/// Returns the name and file of a test binary, if the line names one.
fn parse(line: &str) -> Result<Option<(String, PathBuf)>> {
    if !line.starts_with('{') {
        return Ok(None);
    }
    let message: Message = serde_json::from_str(line)?;
    let (Some(target), Some(program)) = (message.target, message.executable) else {
        return Ok(None);
    };
    let is_library = target.kind.iter().any(|kind| kind == "lib");
    let name = if is_library {
        "lib".to_owned()
    } else {
        target.name
    };
    let is_test = is_library || target.kind.iter().any(|kind| kind == "test");
    Ok(is_test.then_some((name, program)))
}

fn batch(source: &Path, name: String, program: PathBuf) -> Batch {
    // A folder that the crate's workspace gives its tests is the crate's own here.
    let folder = fs::canonicalize(source).unwrap_or_else(|_| source.to_owned());
    Batch {
        name,
        program,
        arguments: Vec::new(),
        environment: vec![("CARGO_MANIFEST_DIR".into(), folder.display().to_string())],
        folder,
        unprivileged: false,
        reading: Reading::Libtest,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_test_binaries_are_batches() {
        let unit = r#"{"target":{"name":"x","kind":["lib"]},"executable":"/t/x-1"}"#;
        let test = r#"{"target":{"name":"y","kind":["test"]},"executable":"/t/y-1"}"#;
        let library = r#"{"target":{"name":"x","kind":["lib"]},"executable":null}"#;
        let name = |line| parse(line).expect("well-formed").map(|(name, _)| name);
        assert_eq!(name(unit).as_deref(), Some("lib"));
        assert_eq!(name(test).as_deref(), Some("y"));
        assert_eq!(name(library), None);
        assert_eq!(name(r#"{"reason":"build-finished","success":true}"#), None);
        assert_eq!(name("warning"), None);
    }
}
