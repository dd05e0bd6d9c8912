//! The failures of a run of many lanes, repeated at its end.

use std::sync::Mutex;

/// The number of last lines that are kept of a program that ended without a summary.
const LAST: usize = 40;
/// The most lines that are kept of one command.
const MOST: usize = 400;

static KEPT: Mutex<Vec<String>> = Mutex::new(Vec::new());

/// Reads one command's output: the sections in which test harnesses report failures.
#[derive(Default)]
pub(crate) struct Failures {
    told: Vec<String>,
    last: Vec<String>,
    in_section: bool,
}

impl Failures {
    pub(crate) fn read(&mut self, line: &str) {
        if line.starts_with("running ") {
            self.last.clear();
        }
        self.in_section |= line == "failures:";
        if self.in_section && self.told.len() < MOST {
            self.told.push(line.to_owned());
        }
        self.in_section &= !line.starts_with("test result: ");
        if self.last.len() == LAST {
            self.last.remove(0);
        }
        self.last.push(line.to_owned());
    }

    /// Keeps the sections of a command with a failed case, or its last lines if it has none.
    pub(crate) fn keep(self) {
        let lines = if self.told.is_empty() {
            self.last
        } else {
            self.told
        };
        let mut kept = KEPT.lock().expect("nobody panics with the lock");
        kept.extend(lines);
    }
}

/// Prints the kept lines.
pub(crate) fn print_kept() {
    let kept = KEPT.lock().expect("nobody panics with the lock");
    if !kept.is_empty() {
        println!("--- what failed\n{}", kept.join("\n"));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn told(output: &str) -> Vec<String> {
        let mut failures = Failures::default();
        output.lines().for_each(|line| failures.read(line));
        failures.told
    }

    #[test]
    fn the_sections_of_failed_programs_are_told() {
        let output = "running 1 test\ntest a ... ok\ntest result: ok. 1 passed\n\
                      running 1 test\ntest b ... FAILED\n\nfailures:\n\n---- b stdout ----\n\
                      why\n\nfailures:\n    b\n\ntest result: FAILED. 0 passed; 1 failed\nmore";
        let told = told(output);
        assert_eq!(told.first().map(String::as_str), Some("failures:"));
        assert!(told.contains(&"why".to_owned()) && !told.contains(&"more".to_owned()));
    }

    #[test]
    fn nothing_is_told_of_what_passed() {
        assert!(told("running 1 test\ntest a ... ok\ntest result: ok. 1 passed").is_empty());
    }
}
