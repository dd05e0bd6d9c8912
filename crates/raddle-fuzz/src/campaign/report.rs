//! The results of a campaign, in figures and by class.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::fs;
use std::path::Path;

use anyhow::Result;

use super::Explanations;
use super::judge::Share;
use super::modes::Mode;
use super::trace::{Difference, Trace};
use crate::case::{Case, listing, to_text};

/// Differences of one class.
pub(super) struct Found {
    pub count: u64,
    /// The first of them.
    pub id: String,
    pub case: Case,
    pub mode: Mode,
    pub difference: Difference,
}

/// Calls by their outcome.
#[derive(Default)]
struct Calls {
    good: u64,
    errors: u64,
}

/// How often each class was seen, with its first example.
#[derive(Default)]
struct Tally(BTreeMap<String, (u64, String)>);

impl Tally {
    fn add(&mut self, class: String, id: &str, difference: &Difference) {
        let Difference {
            agent,
            native,
            other,
            ..
        } = difference;
        let example = || (0, format!("case {id}: {agent} `{native}` and `{other}`"));
        self.0.entry(class).or_insert_with(example).0 += 1;
    }

    fn count(&self) -> u64 {
        self.0.values().map(|(count, _)| count).sum()
    }

    fn lines(&self) -> Vec<(u64, String)> {
        let lines = self.0.iter();
        lines
            .map(|(class, (count, example))| (*count, format!("{class}; {example}")))
            .collect()
    }
}

#[derive(Default)]
pub struct Report {
    pub cases: u64,
    pub calls: u64,
    calls_by_name: BTreeMap<String, Calls>,
    noise: Tally,
    unsteady: Tally,
    delayed: Tally,
    unrepeated: Tally,
    explained: BTreeMap<usize, u64>,
    suspects: BTreeMap<Mode, u64>,
    classes: BTreeMap<String, Found>,
}

impl Report {
    pub fn new() -> Self {
        Self::default()
    }

    pub(super) fn count(&mut self, _: &Case, native: &Trace) {
        self.cases += 1;
        for (name, is_error) in native.results() {
            self.calls += 1;
            let calls = self.calls_by_name.entry(name.to_owned()).or_default();
            if is_error {
                calls.errors += 1;
            } else {
                calls.good += 1;
            }
        }
    }

    pub(super) fn noise(&mut self, id: &str, case: &Case, difference: &Difference) {
        self.noise.add(difference.class(case), id, difference);
    }

    pub(super) fn suspect(&mut self, mode: Mode) {
        *self.suspects.entry(mode).or_default() += 1;
    }

    pub(super) fn explained(&mut self, index: usize) {
        *self.explained.entry(index).or_default() += 1;
    }

    pub(super) fn unsteady(&mut self, id: &str, case: &Case, difference: &Difference) {
        self.unsteady.add(difference.class(case), id, difference);
    }

    pub(super) fn delayed(
        &mut self,
        id: &str,
        case: &Case,
        mode: Mode,
        found: &Difference,
        share: Share,
    ) {
        let often = match share {
            Share::All => "always",
            Share::Some => "sometimes",
        };
        self.delayed.add(
            format!("{} ({mode}, {often})", found.class(case)),
            id,
            found,
        );
    }

    pub(super) fn unrepeated(&mut self, id: &str, case: &Case, mode: Mode, found: &Difference) {
        self.unrepeated
            .add(format!("{} ({mode})", found.class(case)), id, found);
    }

    pub(super) fn different(&mut self, id: &str, case: &Case, mode: Mode, difference: Difference) {
        let found = self
            .classes
            .entry(difference.class(case))
            .or_insert_with(|| Found {
                count: 0,
                id: id.to_owned(),
                case: case.clone(),
                mode,
                difference,
            });
        found.count += 1;
    }

    /// Returns true for a class that was repeated so often that one more case needs no repetition.
    pub(super) fn is_known(&self, class: &str) -> bool {
        const ENOUGH: u64 = 3;
        self.classes
            .get(class)
            .is_some_and(|found| found.count >= ENOUGH)
    }

    /// One more difference of a known class.
    pub(super) fn again(&mut self, class: &str) {
        if let Some(found) = self.classes.get_mut(class) {
            found.count += 1;
        }
    }

    pub(super) fn classes_mut(&mut self) -> impl Iterator<Item = &mut Found> {
        let mut classes: Vec<_> = self.classes.values_mut().collect();
        classes.sort_by_key(|found| std::cmp::Reverse(found.count));
        classes.into_iter()
    }

    /// Differences that nothing explains.
    pub fn unexplained(&self) -> u64 {
        self.classes.values().map(|found| found.count).sum()
    }

    pub fn unrepeated_count(&self) -> u64 {
        self.unrepeated.count()
    }

    /// The figures in one line.
    pub fn line(&self) -> String {
        format!(
            "{} cases, {} calls; noise {}, explained {}, unsteady {}, delayed {}, unrepeated {}, \
             unexplained {} in {} classes",
            self.cases,
            self.calls,
            self.noise.count(),
            self.explained.values().sum::<u64>(),
            self.unsteady.count(),
            self.delayed.count(),
            self.unrepeated_count(),
            self.unexplained(),
            self.classes.len()
        )
    }

    /// The whole report.
    pub fn text(&self, explanations: &Explanations) -> String {
        let mut text = self.line() + "\n";
        let mut section = |title: &str, lines: Vec<(u64, String)>| {
            let mut lines = lines;
            lines.sort_by(|a, b| b.cmp(a));
            let _ = writeln!(text, "\n{title}");
            for (count, line) in lines {
                let _ = writeln!(text, "{count:8} {line}");
            }
        };
        section("noise: native traces differ", self.noise.lines());
        section(
            "unsteady: native traces differ when repeated",
            self.unsteady.lines(),
        );
        section(
            "delayed: native traces differ likewise when threads are late",
            self.delayed.lines(),
        );
        section("unrepeated: differed once", self.unrepeated.lines());
        let explained = self.explained.iter();
        let explained =
            explained.map(|(&index, &count)| (count, explanations.get(index).reason.clone()));
        section("explained", explained.collect());
        let classes = self.classes.iter();
        let classes = classes.map(|(class, found)| {
            let (id, mode) = (&found.id, found.mode);
            (found.count, format!("{class}, first in case {id} ({mode})"))
        });
        section("unexplained", classes.collect());
        text
    }

    /// Calls by name, with those that were no error.
    pub fn calls_text(&self) -> String {
        let mut text = String::new();
        for (name, calls) in &self.calls_by_name {
            let _ = writeln!(
                text,
                "{name:28} {:8} good {:8} errors",
                calls.good, calls.errors
            );
        }
        text
    }

    /// Writes the case of each class to a folder.
    ///
    /// # Errors
    /// A folder that can't be written.
    pub fn save(&self, folder: &Path) -> Result<()> {
        fs::create_dir_all(folder)?;
        for (index, (class, found)) in self.classes.iter().enumerate() {
            let listing: String = listing(&found.case)
                .lines()
                .map(|line| format!("# {line}\n"))
                .collect();
            let difference = &found.difference;
            let text = format!(
                "# {class}\n# {} times, first in case {} with {}\n\
                 # {}: {:?} natively, {:?} here\n{listing}{}",
                found.count,
                found.id,
                found.mode,
                difference.agent,
                difference.native,
                difference.other,
                to_text(&found.case)
            );
            fs::write(folder.join(format!("{index:03}.case")), text)?;
        }
        Ok(())
    }
}
