//! The tables, the cases that differ, and the judgement.

use std::collections::BTreeMap;

use super::{CARRIERS, Case, HUNG, Suite};
use crate::tally::Tally;

/// Counts of cases that passed.
#[derive(Default)]
struct Line {
    cases: usize,
    native: usize,
    raddle: BTreeMap<u32, usize>,
    /// Cases that differ and are listed.
    exceptions: usize,
}

impl Line {
    fn add(&mut self, case: &Case) {
        self.cases += 1;
        self.native += usize::from(case.native.is_ok());
        for (carriers, outcome) in &case.raddle {
            *self.raddle.entry(*carriers).or_default() += usize::from(outcome.is_ok());
        }
    }

    fn print(&self, name: &str) {
        let counts = CARRIERS.map(|carriers| match self.raddle.get(&carriers) {
            Some(count) => count.to_string(),
            None => "-".to_owned(),
        });
        let [one, two, three] = counts;
        let (cases, native, listed) = (self.cases, self.native, self.exceptions);
        println!("{name:<56} {cases:>6} {native:>7} {one:>6} {two:>6} {three:>6} {listed:>11}");
    }
}

fn print_heading(first: &str) {
    let [cases, native, listed] = ["cases", "native", "exceptions"];
    let carriers = CARRIERS.map(|carriers| format!("-n {carriers}"));
    let [one, two, three] = carriers;
    println!("{first:<56} {cases:>6} {native:>7} {one:>6} {two:>6} {three:>6} {listed:>11}");
}

/// Prints the groups, the differences, and the table of the suites. A case that differs without a
/// reason has failed, and so has a suite without a case.
pub(super) fn judge(suites: &[Suite]) -> Tally {
    let mut tally = Tally::default();
    let mut lines = Vec::new();
    for suite in suites {
        println!("--- {}", suite.title);
        print_groups(&suite.cases);
        let mut line = Line::default();
        for case in &suite.cases {
            line.add(case);
            match told(case, suite) {
                Difference::None => tally.passed += 1,
                Difference::Listed => line.exceptions += 1,
                Difference::Unexplained => tally.failed += 1,
            }
        }
        tally.failed += u64::from(suite.cases.is_empty());
        lines.push((&suite.title, line));
    }
    println!("---");
    print_heading("suite");
    for (title, line) in lines {
        line.print(title);
    }
    println!("{} cases differ without a reason", tally.failed);
    tally
}

enum Difference {
    None,
    Listed,
    Unexplained,
}

/// Prints a case's difference, and a listed case that doesn't differ.
fn told(case: &Case, suite: &Suite) -> Difference {
    let name = case.full_name();
    let failed = case.failures();
    match (failed.is_empty(), suite.exceptions.reason(&name)) {
        (true, _) => {
            if case.native.is_ok() && suite.exceptions.always(&name) {
                println!("passes now, remove it from the list: {name}");
            }
            Difference::None
        }
        (false, Some(reason)) => {
            println!("differs: {name}: {failed}: {reason}");
            Difference::Listed
        }
        (false, None) => {
            println!("DIFFERS: {name}: {failed}");
            Difference::Unexplained
        }
    }
}

impl Case {
    pub(crate) fn full_name(&self) -> String {
        format!("{}/{}", self.group, self.name)
    }

    pub(crate) fn differs(&self) -> bool {
        self.raddle.iter().any(|(_, outcome)| outcome.is_err())
    }

    /// Merges a second run: a mode fails if it failed twice, or hung; a mode that failed once is
    /// reported.
    pub(crate) fn confirm(&mut self, again: Case) {
        let name = self.full_name();
        if again.native.is_err() {
            println!("UNSTABLE natively: {name}");
            (self.native, self.raddle) = (again.native, again.raddle);
            return;
        }
        for ((carriers, first), (_, second)) in self.raddle.iter_mut().zip(again.raddle) {
            if let (Err(how), Ok(())) = (&first, &second)
                && how != HUNG
            {
                println!("UNSTABLE: {name}: {how} with {carriers} carriers, then passed");
                *first = second;
            }
        }
    }

    /// Returns the failures under raddle, as `hung with 1 and 3 carriers`.
    fn failures(&self) -> String {
        let mut by_outcome: BTreeMap<&str, Vec<String>> = BTreeMap::new();
        for (carriers, outcome) in &self.raddle {
            if let Err(how) = outcome {
                by_outcome
                    .entry(how)
                    .or_default()
                    .push(carriers.to_string());
            }
        }
        let parts = by_outcome
            .iter()
            .map(|(how, carriers)| format!("{how} with {} carriers", carriers.join(" and ")));
        parts.collect::<Vec<_>>().join(", ")
    }
}

fn print_groups(cases: &[Case]) {
    let mut lines: BTreeMap<&str, Line> = BTreeMap::new();
    for case in cases {
        lines.entry(&case.group).or_default().add(case);
    }
    print_heading("group");
    for (group, line) in lines {
        line.print(group);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::conformance::exceptions::Exceptions;

    fn case(native: bool, raddle: [bool; 3]) -> Case {
        let outcome = |passed| {
            if passed {
                Ok(())
            } else {
                Err("exit 1".to_owned())
            }
        };
        Case {
            group: "a".into(),
            name: "1-1".into(),
            native: outcome(native),
            raddle: CARRIERS.into_iter().zip(raddle.map(outcome)).collect(),
        }
    }

    #[test]
    fn only_an_unexplained_difference_is_a_failure() {
        let failed = |cases| {
            let suite = Suite {
                title: "a suite".into(),
                cases,
                exceptions: Exceptions::default(),
            };
            judge(&[suite]).failed
        };
        assert_eq!(failed(vec![case(true, [true; 3])]), 0);
        assert_eq!(failed(vec![case(true, [true, false, true])]), 1);
        assert_eq!(failed(vec![]), 1);
    }

    #[test]
    fn a_mode_that_passes_in_one_of_two_runs_has_passed() {
        let mut first = case(true, [false, false, true]);
        first.confirm(case(true, [true, false, true]));
        assert_eq!(first.failures(), "exit 1 with 2 carriers");
    }

    #[test]
    fn a_hang_counts_even_if_it_comes_once() {
        let mut first = case(true, [true, true, false]);
        first.raddle[2].1 = Err(HUNG.to_owned());
        first.confirm(case(true, [true; 3]));
        assert_eq!(first.failures(), "hung with 3 carriers");
    }

    #[test]
    fn failures_are_grouped_by_their_kind() {
        let case = case(true, [false, true, false]);
        assert_eq!(case.failures(), "exit 1 with 1 and 3 carriers");
    }
}
