//! The list of cases that are allowed to differ from native.

use std::collections::BTreeMap;

use anyhow::{Context, Result};

use crate::workspace::Workspace;

const LIST: &str = "crates/raddle-tests/conformance.toml";
const KNOWN_FAILURES: &str = "crates/raddle-tests/known-failures.toml";

/// The reasons by case, of one suite.
#[derive(Default)]
pub(super) struct Exceptions {
    reasons: BTreeMap<String, String>,
}

impl Exceptions {
    pub(super) fn load(workspace: &Workspace, suite: &str) -> Result<Exceptions> {
        Exceptions::read(workspace, LIST, suite)
    }

    fn read(workspace: &Workspace, file: &str, table: &str) -> Result<Exceptions> {
        let text = std::fs::read_to_string(workspace.root.join(file))
            .with_context(|| format!("can't read {file}"))?;
        Exceptions::parse(&text, table).with_context(|| format!("{file} is malformed"))
    }

    fn parse(text: &str, suite: &str) -> Result<Exceptions> {
        let mut suites: BTreeMap<String, BTreeMap<String, String>> = toml::from_str(text)?;
        let reasons = suites.remove(suite).unwrap_or_default();
        Ok(Exceptions { reasons })
    }

    /// Returns the reason why `case` may differ; `None` if it may not.
    pub(super) fn reason(&self, case: &str) -> Option<&str> {
        self.reasons.get(case).map(String::as_str)
    }

    /// Returns whether `case` is listed to differ every time, so that a pass is worth a line.
    pub(super) fn always(&self, case: &str) -> bool {
        let reason = self.reason(case);
        reason.is_some_and(|reason| !reason.starts_with("sometimes:"))
    }
}

/// The known failures of the own integration tests. A name there has the group before the first
/// `::`.
pub(super) fn known_failures(workspace: &Workspace) -> Result<Exceptions> {
    let known = Exceptions::read(workspace, KNOWN_FAILURES, "failures")?;
    let rename = |(name, reason): (String, String)| (name.replacen("::", "/", 1), reason);
    Ok(Exceptions {
        reasons: known.reasons.into_iter().map(rename).collect(),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reasons_belong_to_one_suite() {
        let text = "[posix]\n\"a/1-1\" = \"no priorities\"\n\"a/1-2\" = \"sometimes: slow\"\n";
        let posix = Exceptions::parse(text, "posix").expect("well-formed");
        assert_eq!(posix.reason("a/1-1"), Some("no priorities"));
        assert!(posix.always("a/1-1") && !posix.always("a/1-2") && !posix.always("a/1-3"));
        let python = Exceptions::parse(text, "python").expect("well-formed");
        assert_eq!(python.reason("a/1-1"), None);
    }

    #[test]
    fn a_case_without_a_reason_is_malformed() {
        assert!(Exceptions::parse("[posix]\n\"a/1-1\" = true\n", "posix").is_err());
    }
}
