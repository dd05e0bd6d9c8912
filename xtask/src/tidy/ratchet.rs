//! A ratchet: numbers over a limit are recorded, and may only shrink.
//!
//! Protocol: (1) a number within the limit needs nothing; (2) one over it must be recorded in
//! `xtask/tidy.toml`; (3) a recorded one may not grow; (4) when it shrinks, `cargo xtask tidy
//! --update` lowers the record, and removes it at the limit. Only a hand raises a record, and a
//! reviewer sees that.

use std::collections::BTreeMap;
use std::path::Path;

use anyhow::{Context, Result};
use serde::{Deserialize, Serialize};

use super::tree::Tree;
use super::{Violation, persons, sizes};

const RECORD: &str = "xtask/tidy.toml";
const RECORD_HEAD: &str = "\
# What is over its limit, by number: these numbers may only shrink.
# `cargo xtask tidy --update` lowers them.

";

/// Numbers by path, or by path and name.
pub(super) type Numbers = BTreeMap<String, usize>;

/// The recorded numbers of all checks that have a ratchet.
#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Record {
    /// Lines of files.
    pub files: Numbers,
    /// Lines of functions.
    pub functions: Numbers,
    /// Lines of files with a person for a subject.
    pub persons: Numbers,
}

impl Record {
    pub(super) fn load(tree: &Tree) -> Result<Record> {
        toml::from_str(&tree.file(RECORD)?.text).with_context(|| format!("{RECORD} is malformed"))
    }
}

/// Lowers each record to today's number and drops those that the limit covers.
pub(super) fn update(tree: &Tree, root: &Path) -> Result<()> {
    let mut record = Record::load(tree)?;
    sizes::FILES.lower(&mut record.files, &sizes::file_sizes(tree));
    sizes::FUNCTIONS.lower(&mut record.functions, &sizes::function_sizes(tree)?);
    persons::LINES.lower(&mut record.persons, &persons::lines(tree));
    let text = format!("{RECORD_HEAD}{}", toml::to_string(&record)?);
    std::fs::write(root.join(RECORD), text).with_context(|| format!("{RECORD} is not writable"))
}

/// A limit on numbers of one kind.
pub(super) struct Ratchet {
    pub limit: usize,
    /// What is counted.
    pub unit: &'static str,
}

impl Ratchet {
    pub(super) fn check(&self, numbers: &Numbers, record: &Numbers) -> Vec<Violation> {
        let (limit, unit) = (self.limit, self.unit);
        let mut violations = Vec::new();
        for (place, &number) in numbers {
            let what = match record.get(place) {
                None if number > limit => format!("{number} {unit}, more than {limit}"),
                Some(&recorded) if number > recorded => {
                    format!("grew from {recorded} to {number} {unit}")
                }
                Some(&recorded) if number < recorded => {
                    format!("shrank from {recorded} to {number} {unit}: cargo xtask tidy --update")
                }
                _ => continue,
            };
            violations.push(Violation::new(place, what));
        }
        let gone = record.keys().filter(|place| !numbers.contains_key(*place));
        violations.extend(
            gone.map(|place| {
                Violation::new(place, "is recorded but gone: cargo xtask tidy --update")
            }),
        );
        violations
    }

    fn lower(&self, record: &mut Numbers, numbers: &Numbers) {
        record.retain(|place, _| {
            numbers
                .get(place)
                .is_some_and(|&number| number > self.limit)
        });
        for (place, recorded) in record {
            *recorded = numbers[place].min(*recorded);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const EIGHTY: Ratchet = Ratchet {
        limit: 80,
        unit: "lines",
    };

    fn numbers(pairs: &[(&str, usize)]) -> Numbers {
        pairs
            .iter()
            .map(|&(place, lines)| (place.to_owned(), lines))
            .collect()
    }

    #[test]
    fn over_the_limit_is_found_and_at_it_is_not() {
        assert_eq!(
            EIGHTY.check(&numbers(&[("a", 81)]), &Numbers::new()).len(),
            1
        );
        assert!(
            EIGHTY
                .check(&numbers(&[("a", 80)]), &Numbers::new())
                .is_empty()
        );
    }

    #[test]
    fn a_recorded_size_may_stay_but_neither_grow_nor_shrink_unrecorded_nor_vanish() {
        let record = numbers(&[("a", 100)]);
        assert!(EIGHTY.check(&numbers(&[("a", 100)]), &record).is_empty());
        assert_eq!(EIGHTY.check(&numbers(&[("a", 101)]), &record).len(), 1);
        assert_eq!(EIGHTY.check(&numbers(&[("a", 99)]), &record).len(), 1);
        assert_eq!(EIGHTY.check(&Numbers::new(), &record).len(), 1);
    }

    #[test]
    fn updating_only_lowers() {
        let mut record = numbers(&[
            ("grown", 100),
            ("shrunk", 100),
            ("small", 100),
            ("gone", 100),
        ]);
        EIGHTY.lower(
            &mut record,
            &numbers(&[("grown", 120), ("shrunk", 90), ("small", 70)]),
        );
        assert_eq!(record, numbers(&[("grown", 100), ("shrunk", 90)]));
    }
}
