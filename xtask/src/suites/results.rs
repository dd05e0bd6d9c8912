//! The table of the suites, and the same as a file for machines.

use std::collections::BTreeMap;

use anyhow::{Context, Result};
use serde::Serialize;

use super::batch::WHOLE;
use super::manifest::Suite;
use crate::conformance::Case;
use crate::workspace::Workspace;

/// The file in the target folder.
const FILE: &str = "suites/results.json";

/// The outcome of one suite.
#[derive(Serialize)]
pub(super) struct Outcome {
    suite: String,
    version: String,
    /// The reason why it could not be fetched, built or run.
    #[serde(skip_serializing_if = "Option::is_none")]
    error: Option<String>,
    cases: Vec<Line>,
    /// Cases that are not run, with the reasons.
    skipped: BTreeMap<String, String>,
}

/// The outcome of one case.
#[derive(Serialize)]
struct Line {
    name: String,
    native: String,
    /// By number of carriers; empty for a case that does not pass natively.
    raddle: BTreeMap<u32, String>,
    /// The reason why the case may differ.
    #[serde(skip_serializing_if = "Option::is_none")]
    reason: Option<String>,
}

const PASS: &str = "pass";

impl Line {
    fn new(case: Case, suite: &Suite) -> Line {
        let word = |outcome: Result<(), String>| outcome.err().unwrap_or_else(|| PASS.to_owned());
        let name = match case.name.as_str() {
            WHOLE => case.group,
            name => format!("{}/{name}", case.group),
        };
        let raddle = case.raddle.into_iter();
        Line {
            reason: suite.differs.get(&name).cloned(),
            native: word(case.native),
            raddle: raddle
                .map(|(carriers, how)| (carriers, word(how)))
                .collect(),
            name,
        }
    }

    fn passes_natively(&self) -> bool {
        self.native == PASS
    }

    fn differs(&self) -> bool {
        self.passes_natively() && self.raddle.values().any(|how| how != PASS)
    }
}

impl Outcome {
    pub(super) fn new(suite: &Suite, cases: Vec<Case>) -> Outcome {
        Outcome {
            suite: suite.name.clone(),
            version: suite.version().to_owned(),
            error: None,
            cases: cases
                .into_iter()
                .map(|case| Line::new(case, suite))
                .collect(),
            skipped: suite.skip.clone(),
        }
    }

    /// Makes the outcome of a suite that did not get to its cases.
    pub(super) fn broken(suite: &Suite, error: String) -> Outcome {
        Outcome {
            error: Some(error),
            ..Outcome::new(suite, Vec::new())
        }
    }

    pub(super) fn print_differences(&self) {
        if let Some(error) = &self.error {
            println!("BROKEN: {error}");
        }
        for case in &self.cases {
            if !case.passes_natively() {
                println!("fails natively: {}: {}", case.name, case.native);
            } else if case.differs() {
                let how = case.how();
                match &case.reason {
                    Some(reason) => println!("differs: {}: {how}: {reason}", case.name),
                    None => println!("DIFFERS: {}: {how}", case.name),
                }
            } else if let Some(reason) = &case.reason
                && !reason.starts_with("sometimes:")
            {
                println!("passes now, remove it from the manifest: {}", case.name);
            }
        }
    }

    fn native(&self) -> usize {
        self.count(Line::passes_natively)
    }

    fn count(&self, has: impl Fn(&Line) -> bool) -> usize {
        self.cases.iter().filter(|case| has(case)).count()
    }

    /// Returns whether every difference is documented. A suite without a case that passes natively
    /// shows nothing, and is a failure.
    fn is_good(&self) -> bool {
        self.error.is_none()
            && self.native() > 0
            && !self
                .cases
                .iter()
                .any(|case| case.differs() && case.reason.is_none())
    }
}

impl Line {
    /// `exit 1 (-n 2), hung (-n 3)`.
    fn how(&self) -> String {
        let failed = self.raddle.iter().filter(|(_, how)| *how != PASS);
        let parts = failed.map(|(carriers, how)| format!("{how} (-n {carriers})"));
        parts.collect::<Vec<_>>().join(", ")
    }
}

pub(super) fn write(workspace: &Workspace, outcomes: &[Outcome]) -> Result<()> {
    let file = workspace.target.join(FILE);
    let text = serde_json::to_string_pretty(outcomes)?;
    std::fs::write(&file, text).with_context(|| format!("can't write {}", file.display()))
}

/// Prints the table. Returns true if no case differs without a documented reason.
pub(super) fn judge(outcomes: &[Outcome]) -> bool {
    println!("---");
    let [suite, cases, native, raddle] = ["suite", "cases", "native", "raddle"];
    println!("{suite:<20} {cases:>6} {native:>7} {raddle:>7}  native passes, raddle fails");
    for outcome in outcomes {
        let (name, cases, native) = (&outcome.suite, outcome.cases.len(), outcome.native());
        let raddle = outcome.count(|case| case.passes_natively() && !case.differs());
        let differing: Vec<_> = outcome
            .cases
            .iter()
            .filter(|case| case.differs())
            .map(|case| match case.reason {
                Some(_) => format!("{} (documented)", case.name),
                None => case.name.clone(),
            })
            .collect();
        let last = match &outcome.error {
            Some(_) => "BROKEN".to_owned(),
            None if differing.is_empty() => "-".to_owned(),
            None => differing.join(" "),
        };
        println!("{name:<20} {cases:>6} {native:>7} {raddle:>7}  {last}");
    }
    let bad = outcomes.iter().filter(|outcome| !outcome.is_good()).count();
    println!("{bad} suites differ without a documented reason, or did not run");
    bad == 0
}

#[cfg(test)]
mod tests {
    use super::*;

    fn outcome(native: &str, raddle: &str, reason: Option<&str>) -> Outcome {
        let line = Line {
            name: "a/b".into(),
            native: native.into(),
            raddle: BTreeMap::from([(2, raddle.to_owned())]),
            reason: reason.map(str::to_owned),
        };
        Outcome {
            suite: "s".into(),
            version: "1".into(),
            error: None,
            cases: vec![line],
            skipped: BTreeMap::new(),
        }
    }

    #[test]
    fn only_an_undocumented_difference_is_bad() {
        assert!(outcome(PASS, PASS, None).is_good());
        assert!(outcome(PASS, "exit 1", Some("why")).is_good());
        assert!(!outcome(PASS, "exit 1", None).is_good());
    }

    #[test]
    fn a_suite_that_shows_nothing_is_bad() {
        assert!(!outcome("exit 1", PASS, None).is_good());
        let mut broken = outcome(PASS, PASS, None);
        broken.error = Some("no network".into());
        assert!(!broken.is_good());
    }
}
