//! A guest's report, and the verdict on each case.

use std::collections::BTreeMap;

use super::guest::MARK;

/// The report of one guest.
#[derive(Default)]
pub(super) struct Report {
    /// The kernel's release, as `uname -r` has it.
    pub release: Option<String>,
    /// Lines of `raddle run -v` about a program.
    pub says: Vec<String>,
    /// The test harness's output by file: of the first run, and of the second run of failed cases.
    files: BTreeMap<String, Texts>,
    /// True if the guest's script came to its end.
    pub is_complete: bool,
}

#[derive(Default)]
struct Texts {
    first: String,
    again: String,
}

/// The verdict on a case.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Verdict {
    Passed,
    /// The case failed once and passed when it ran a second time.
    PassedAgain(String),
    FailsNatively(String),
    /// The case passes natively and fails under raddle.
    Fails(String),
    DidNotRun,
}

impl Report {
    pub(super) fn parse(text: &str) -> Report {
        let mut report = Report::default();
        let mut file = None;
        let mut is_again = false;
        for line in text.lines() {
            let line = line.trim_end();
            if let Some((mark, rest)) = marked(line) {
                match mark {
                    "kernel" => report.release = rest.split(' ').next().map(str::to_owned),
                    "says" => report.says.push(rest.to_owned()),
                    "file" | "again" => {
                        is_again = mark == "again";
                        file = Some(rest.to_owned());
                    }
                    "end" => file = None,
                    "done" => report.is_complete = true,
                    _ => {}
                }
            } else if let Some(file) = &file {
                let texts = report.files.entry(file.clone()).or_default();
                let text = if is_again {
                    &mut texts.again
                } else {
                    &mut texts.first
                };
                text.push_str(line);
                text.push('\n');
            }
        }
        report
    }

    /// Returns the verdict on a case of `file`. A hang under raddle is a failure, whatever follows.
    pub(super) fn verdict(&self, file: &str, case: &str) -> Verdict {
        let Some(texts) = self.files.get(file) else {
            return Verdict::DidNotRun;
        };
        let first = outcome(&texts.first, case);
        let is_hang = matches!(&first, Verdict::Fails(why) if why.contains(HANG));
        match (first, outcome(&texts.again, case)) {
            (Verdict::Fails(why), Verdict::Passed) if !is_hang => Verdict::PassedAgain(why),
            (Verdict::FailsNatively(why), Verdict::Passed) => Verdict::PassedAgain(why),
            (Verdict::FailsNatively(_), Verdict::Fails(why)) => Verdict::Fails(why),
            (first, _) => first,
        }
    }
}

/// The words of raddle-tests for a case that does not end.
const HANG: &str = "did not end within";

/// `@end 12.3` as `end` and `12.3`.
fn marked(line: &str) -> Option<(&str, &str)> {
    let line = line.strip_prefix(MARK)?;
    Some(line.split_once(' ').unwrap_or((line, "")))
}

/// Returns the outcome of a case in one run of the test harness.
fn outcome(text: &str, case: &str) -> Verdict {
    let start = format!("test {case} ... ");
    let mut lines = text.lines();
    let Some(word) = lines.find_map(|line| line.strip_prefix(&start)) else {
        return Verdict::DidNotRun;
    };
    match word {
        "ok" => Verdict::Passed,
        "FAILED" => {
            let why = reason(text, case);
            match why.strip_prefix("natively: ") {
                Some(why) => Verdict::FailsNatively(why.to_owned()),
                None => Verdict::Fails(why),
            }
        }
        _ => Verdict::DidNotRun,
    }
}

/// Returns the first line of a failed case's message without its test's name, and the line with the
/// program's expectation: `raddle-2: exit status 1, natively 0: FAIL a: x.c:9: x is 1`.
fn reason(text: &str, case: &str) -> String {
    let after = text.split_once(&format!("---- {case} stdout ----"));
    let rest = after.map_or("", |(_, rest)| rest);
    let section = rest.split("\n---- ").next().unwrap_or_default();
    let mut lines = section.lines().filter(|line| !line.is_empty());
    let _panicked_at = lines.next();
    let line = lines
        .next()
        .unwrap_or("no message: its file's time may have ended first");
    let line = line.split_once(": ").map_or(line, |(_test, rest)| rest);
    let program = lines.find(|line| line.starts_with("FAIL "));
    [line]
        .into_iter()
        .chain(program)
        .collect::<Vec<_>>()
        .join(": ")
}

#[cfg(test)]
mod tests {
    use super::*;

    const TEXT: &str = "\
@kernel 6.1.0-1-cloud-amd64 2\r
@says raddle: threads are green: 436 sites
@file time
running 5 tests
test sleeping::a ... ok
test sleeping::b ... FAILED
test sleeping::c ... FAILED
test sleeping::d ... FAILED
test sleeping::e ...
failures:

---- sleeping::b stdout ----

thread 'sleeping::b' (7) panicked at crates/raddle-tests/src/tools.rs:50:23:
time::sleeping::b: raddle-2: exit status 1, natively 0
--- stdout
FAIL b: sleeping.c:7: x is 1

---- sleeping::c stdout ----

thread 'sleeping::c' (8) panicked at crates/raddle-tests/src/tools.rs:50:23:
time::sleeping::c: natively: the last line is not `ok c`

---- sleeping::d stdout ----

thread 'sleeping::d' (8) panicked at crates/raddle-tests/src/tools.rs:50:23:
time::sleeping::d: raddle-1: did not end within 60 s

failures:
    sleeping::b
@again time
test sleeping::b ... ok
test sleeping::d ... ok
@end 12.00
";

    #[test]
    fn each_case_has_its_verdict() {
        let report = Report::parse(TEXT);
        let verdict = |case: &str| report.verdict("time", case);
        assert_eq!(verdict("sleeping::a"), Verdict::Passed);
        assert_eq!(
            verdict("sleeping::b"),
            Verdict::PassedAgain(
                "raddle-2: exit status 1, natively 0: FAIL b: sleeping.c:7: x is 1".into()
            )
        );
        assert_eq!(
            verdict("sleeping::c"),
            Verdict::FailsNatively("the last line is not `ok c`".into())
        );
        assert_eq!(verdict("sleeping::e"), Verdict::DidNotRun);
        assert_eq!(verdict("sleeping::f"), Verdict::DidNotRun);
        assert_eq!(report.verdict("io", "a"), Verdict::DidNotRun);
    }

    #[test]
    fn a_hang_is_not_excused_by_a_second_run() {
        let report = Report::parse(TEXT);
        assert!(matches!(
            report.verdict("time", "sleeping::d"),
            Verdict::Fails(_)
        ));
    }

    #[test]
    fn marks_tell_of_the_guest() {
        let report = Report::parse(TEXT);
        assert_eq!(report.release.as_deref(), Some("6.1.0-1-cloud-amd64"));
        assert_eq!(report.says, ["raddle: threads are green: 436 sites"]);
        assert!(!report.is_complete);
        assert!(Report::parse("@done").is_complete);
    }
}
