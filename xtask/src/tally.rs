//! Counts of passed and failed cases, read from the test harness's own summary lines.

/// The cases of one lane.
#[derive(Debug, Default, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Tally {
    pub passed: u64,
    pub failed: u64,
    pub ignored: u64,
}

impl Tally {
    pub(crate) fn cases(self) -> u64 {
        self.passed + self.failed
    }

    pub(crate) fn add(&mut self, other: Tally) {
        self.passed += other.passed;
        self.failed += other.failed;
        self.ignored += other.ignored;
    }

    /// A program that failed without naming a failed case (it crashed, or did not build) is one.
    pub(crate) fn note_exit(&mut self, success: bool) {
        if !success && self.failed == 0 {
            self.failed = 1;
        }
    }
}

/// Reads `test result: ok. 3 passed; 0 failed; 1 ignored; ...`; `None` for any other line.
pub(crate) fn parse_result_line(line: &str) -> Option<Tally> {
    let (_, counts) = line
        .trim()
        .strip_prefix("test result: ")?
        .split_once(". ")?;
    let mut tally = Tally::default();
    for count in counts.split(';') {
        let Some((number, what)) = count.trim().split_once(' ') else {
            continue;
        };
        match what {
            "passed" => tally.passed = number.parse().ok()?,
            "failed" => tally.failed = number.parse().ok()?,
            "ignored" => tally.ignored = number.parse().ok()?,
            _ => {}
        }
    }
    Some(tally)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reads_a_passing_summary() {
        let line = "test result: ok. 12 passed; 0 failed; 3 ignored; 0 measured; \
                    1 filtered out; finished in 0.10s";
        assert_eq!(
            parse_result_line(line),
            Some(Tally {
                passed: 12,
                failed: 0,
                ignored: 3
            })
        );
    }

    #[test]
    fn reads_a_failing_summary() {
        let line = "test result: FAILED. 4 passed; 2 failed; 0 ignored; 0 measured";
        assert_eq!(
            parse_result_line(line),
            Some(Tally {
                passed: 4,
                failed: 2,
                ignored: 0
            })
        );
    }

    #[test]
    fn other_lines_and_broken_numbers_count_nothing() {
        assert_eq!(parse_result_line("test queue::keeps_order ... ok"), None);
        assert_eq!(
            parse_result_line("test result: ok. many passed; 0 failed"),
            None
        );
    }

    #[test]
    fn a_crash_without_a_summary_is_one_failure() {
        let mut tally = Tally {
            passed: 3,
            ..Tally::default()
        };
        tally.note_exit(false);
        assert_eq!((tally.failed, tally.cases()), (1, 4));
        tally.note_exit(false);
        assert_eq!(tally.failed, 1);
    }
}
