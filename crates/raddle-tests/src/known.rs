//! The list of known failures, and the judgement that keeps it true.

use std::path::Path;

use anyhow::{Context, Result, bail};

/// The content of `known-failures.toml`.
#[derive(Debug, Default)]
pub struct Known {
    failures: toml::Table,
}

impl Known {
    /// Reads the list beside this crate's manifest.
    pub fn load() -> Result<Known> {
        let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("known-failures.toml");
        let text = std::fs::read_to_string(&path)
            .with_context(|| format!("can't read {}", path.display()))?;
        Known::parse(&text)
    }

    pub fn parse(text: &str) -> Result<Known> {
        let mut table: toml::Table = text.parse()?;
        let Some(toml::Value::Table(failures)) = table.remove("failures") else {
            bail!("the list of known failures has no table [failures]");
        };
        if let Some((test, _)) = failures.iter().find(|(_, reason)| !reason.is_str()) {
            bail!("the known failure {test} has no reason");
        }
        Ok(Known { failures })
    }

    /// The reason why `test` is known to fail, if it is.
    pub fn reason(&self, test: &str) -> Option<&str> {
        self.failures.get(test).and_then(toml::Value::as_str)
    }

    pub fn tests(&self) -> impl Iterator<Item = &str> {
        self.failures.keys().map(String::as_str)
    }
}

/// Turns the outcome under raddle into the test's result: `Ok` with a line to print, or the
/// failure.
pub fn judge(test: &str, known: Option<&str>, outcome: Result<()>) -> Result<Option<String>> {
    match (known, outcome) {
        (None, Ok(())) => Ok(None),
        (None, Err(error)) => Err(error),
        (Some(reason), Err(_)) => Ok(Some(format!("expected failure: {test}: {reason}"))),
        (Some(reason), Ok(())) if reason.starts_with("sometimes:") => {
            Ok(Some(format!("passed this time: {test}: {reason}")))
        }
        (Some(_), Ok(())) => {
            bail!("{test} is a known failure and passes now: remove it from known-failures.toml")
        }
    }
}
