//! Comments and documents speak of things of the field, and not of persons.
//!
//! Words like *who* and *somebody* stand for a carrier, a waker or a caller, and do not say for
//! which. A line of a comment or of a document with such a word counts; the
//! [ratchet](super::ratchet) lets the counts shrink only.

use anyhow::Result;

use super::ratchet::{Numbers, Ratchet, Record};
use super::tree::{TextFile, Tree};
use super::{Findings, Subject};

pub(super) const LINES: Ratchet = Ratchet {
    limit: 0,
    unit: "lines with a person for a subject",
};

const WORDS: [&str; 8] = [
    "who",
    "whom",
    "whose",
    "whoever",
    "somebody",
    "nobody",
    "anybody",
    "everybody",
];

/// The file that names the words.
const OWN: &str = "xtask/src/tidy/persons.rs";

pub(super) fn check(subject: &Subject<'_>) -> Result<Findings> {
    let counted = lines(&subject.tree);
    let record = Record::load(&subject.tree)?;
    Ok(Findings {
        looked_at: counted.len(),
        violations: LINES.check(&counted, &record.persons),
    })
}

/// How many such lines each file has.
pub(super) fn lines(tree: &Tree) -> Numbers {
    let applies = |file: &&TextFile| {
        matches!(file.extension(), "rs" | "c" | "cc" | "h" | "md") && file.path != OWN
    };
    let files = tree.files.iter().filter(applies);
    files.map(|file| (file.path.clone(), count(file))).collect()
}

fn count(file: &TextFile) -> usize {
    let prose = |line: &str| match file.extension() {
        "md" => Some(line.to_owned()),
        _ => comment(line).map(ToOwned::to_owned),
    };
    let lines = file.text.lines().filter_map(prose);
    lines.filter(|line| has_person(line)).count()
}

/// The part of a line of Rust or C that is a comment. A slash in a string may be taken for one.
fn comment(line: &str) -> Option<&str> {
    let line = line.trim_start();
    if line.starts_with("* ") || line.starts_with("/*") {
        return Some(line);
    }
    let start = line.find("//").or_else(|| line.find("/*"))?;
    Some(&line[start..])
}

fn has_person(text: &str) -> bool {
    let mut words = text.split(|c: char| !c.is_alphanumeric() && c != '_');
    words.any(|word| {
        let is_constant = word.chars().all(|c| c.is_uppercase());
        !is_constant && WORDS.iter().any(|person| word.eq_ignore_ascii_case(person))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn persons_in_comments_and_documents_are_counted_by_line() {
        let rust =
            "//! Who wakes it.\n/// Nobody, whose.\nlet who = 1; // somebody\nlet who = 2;\n";
        assert_eq!(count(&TextFile::new("a.rs", rust)), 3);
        let c = "/* Whoever\n * comes.\n * Nobody. */\nint who;\n";
        assert_eq!(count(&TextFile::new("a.c", c)), 2);
        assert_eq!(count(&TextFile::new("a.md", "who\n\nThe carrier.\n")), 1);
    }

    #[test]
    fn parts_of_words_and_code_are_none() {
        let rust = "// The whole `is_nobody_there`, `Owner::NOBODY`.\nlet nobody = whose(who);\n";
        assert_eq!(count(&TextFile::new("a.rs", rust)), 0);
    }
}
