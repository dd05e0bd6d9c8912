//! The table of a suite, the cases that differ, and the judgement.

use std::collections::BTreeMap;

use super::exceptions::Exceptions;
use super::{CARRIERS, Case};

#[derive(Default)]
struct Line {
    cases: usize,
    native: usize,
    raddle: [usize; CARRIERS.len()],
}

/// Prints the table and the differences; `false` when one of them has no reason, or when there
/// is no case.
pub fn judge(cases: &[Case], exceptions: &Exceptions) -> bool {
    print_table(cases);
    let mut unexplained = 0;
    for case in cases {
        let name = case.full_name();
        let failed = case.failures();
        match (failed.is_empty(), exceptions.reason(&name)) {
            (true, _) if case.native.is_ok() && exceptions.always(&name) => {
                println!("passes now, remove it from the list: {name}");
            }
            (true, _) => {}
            (false, Some(reason)) => println!("differs: {name}: {failed}: {reason}"),
            (false, None) => {
                unexplained += 1;
                println!("DIFFERS: {name}: {failed}");
            }
        }
    }
    println!(
        "{} cases, {unexplained} differ without a reason",
        cases.len()
    );
    unexplained == 0 && !cases.is_empty()
}

impl Case {
    pub fn full_name(&self) -> String {
        format!("{}/{}", self.group, self.name)
    }

    pub fn differs(&self) -> bool {
        self.raddle.iter().any(|(_, outcome)| outcome.is_err())
    }

    /// What failed under raddle, as `1 and 3 carriers: hung`.
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

fn print_table(cases: &[Case]) {
    let mut lines: BTreeMap<&str, Line> = BTreeMap::new();
    for case in cases {
        for group in [case.group.as_str(), "~"] {
            let line = lines.entry(group).or_default();
            line.cases += 1;
            line.native += usize::from(case.native.is_ok());
            for (count, (_, outcome)) in line.raddle.iter_mut().zip(&case.raddle) {
                *count += usize::from(outcome.is_ok());
            }
        }
    }
    println!(
        "{:<36} {:>6} {:>7} {:>21}",
        "group", "cases", "native", "raddle, -n 1, 2, 3"
    );
    for (group, line) in lines {
        let group = if group == "~" { "all" } else { group };
        let [one, two, three] = line.raddle;
        println!(
            "{group:<36} {:>6} {:>7} {one:>7}{two:>7}{three:>7}",
            line.cases, line.native
        );
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn case(native: bool, raddle: [bool; 3]) -> Case {
        let outcome = |passed| {
            if passed {
                Ok(())
            } else {
                Err("hung".to_owned())
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
        let nothing = Exceptions::default();
        assert!(judge(&[case(true, [true; 3])], &nothing));
        assert!(!judge(&[case(true, [true, false, true])], &nothing));
        assert!(!judge(&[], &nothing));
    }

    #[test]
    fn failures_are_grouped_by_their_kind() {
        let case = case(true, [false, true, false]);
        assert_eq!(case.failures(), "hung with 1 and 3 carriers");
    }
}
