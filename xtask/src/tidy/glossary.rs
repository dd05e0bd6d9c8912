//! One word for one thing: `docs/glossary.md` defines the terms and bans their synonyms.
//!
//! Its table has four columns: the term, its meaning, the words not to use for it, and homonyms:
//! words that have named this and other things. A list under `## Proper names` holds phrases in
//! which a banned word is part of a proper name. Every term must be in use; no banned word may
//! stand in a crate's source; no item may be named by a homonym alone.

use anyhow::{Result, ensure};

use super::tree::{TextFile, Tree, has_phrase, words};
use super::{Findings, Subject, Violation};

const GLOSSARY: &str = "docs/glossary.md";

#[derive(Debug, Default, PartialEq, Eq)]
struct Glossary {
    terms: Vec<String>,
    /// A banned word and the term to use instead.
    banned: Vec<(String, String)>,
    /// A word that has named several things, and the term to use here.
    homonyms: Vec<(String, String)>,
    proper_names: Vec<String>,
}

pub(super) fn check_terms(subject: &Subject<'_>) -> Result<Findings> {
    let glossary = Glossary::load(&subject.tree)?;
    let users = subject.tree.files.iter().filter(|file| {
        file.is_crate_source() || (file.extension() == "md" && file.path != GLOSSARY)
    });
    let text: String = users.map(|file| words(&joined(&file.text))).collect();
    let violations = unused(&glossary, &text);
    Ok(Findings {
        looked_at: glossary.terms.len(),
        violations,
    })
}

pub(super) fn check_banned(subject: &Subject<'_>) -> Result<Findings> {
    let glossary = Glossary::load(&subject.tree)?;
    let sources = subject
        .tree
        .files
        .iter()
        .filter(|file| file.is_crate_source());
    let violations = sources
        .flat_map(|file| banned_words(&glossary, file))
        .collect();
    Ok(Findings {
        looked_at: glossary.banned.len(),
        violations,
    })
}

impl Glossary {
    fn load(tree: &Tree) -> Result<Glossary> {
        let glossary = Glossary::parse(&tree.file(GLOSSARY)?.text);
        ensure!(
            !glossary.terms.is_empty(),
            "{GLOSSARY} has no table of terms"
        );
        Ok(glossary)
    }

    fn parse(text: &str) -> Glossary {
        let mut glossary = Glossary::default();
        let mut section = "";
        for line in text.lines() {
            if let Some(title) = line.strip_prefix("## ") {
                section = title.trim();
            } else if let Some(row) = line.strip_prefix('|') {
                glossary.add_row(row);
            } else if section == "Proper names" {
                let code = line.split('`').skip(1).step_by(2);
                glossary.proper_names.extend(code.map(str::to_owned));
            }
        }
        glossary
    }

    /// Adds `term | meaning | synonym, synonym | homonym, homonym |`; the table's two head rows are
    /// no terms.
    fn add_row(&mut self, row: &str) {
        let cells: Vec<_> = row.split('|').map(str::trim).collect();
        let [term, _, synonyms, homonyms, ..] = cells[..] else {
            return;
        };
        if term == "term" || term.starts_with("--") {
            return;
        }
        self.terms.push(term.to_owned());
        let words = |cell: &str| -> Vec<_> {
            let words = cell.split(',').map(str::trim);
            let words = words.filter(|word| !word.is_empty());
            words
                .map(|word| (word.to_owned(), term.to_owned()))
                .collect()
        };
        self.banned.extend(words(synonyms));
        self.homonyms.extend(words(homonyms));
    }
}

pub(crate) fn check_homonyms(subject: &Subject<'_>) -> Result<Findings> {
    let glossary = Glossary::load(&subject.tree)?;
    let sources = subject.tree.files.iter();
    let sources = sources.filter(|file| file.is_crate_source());
    Ok(Findings {
        looked_at: glossary.homonyms.len(),
        violations: sources.flat_map(|file| homonyms(&glossary, file)).collect(),
    })
}

/// The items of a file that are named by a homonym.
fn homonyms(glossary: &Glossary, file: &TextFile) -> Vec<Violation> {
    let named = file
        .lines()
        .filter_map(|(number, line)| Some((number, item(line)?)));
    let found = named.filter_map(|(number, name)| {
        let same = |homonym: &str| words(homonym) == words(name);
        let (_, term) = glossary.homonyms.iter().find(|(word, _)| same(word))?;
        let what = format!("{name} has named several things: say which {term:?}");
        Some(Violation::new(format!("{}:{number}", file.path), what))
    });
    found.collect()
}

/// The name of the item that a line defines, if it does.
fn item(line: &str) -> Option<&str> {
    const KINDS: [&str; 8] = [
        "fn ", "struct ", "enum ", "trait ", "mod ", "static ", "const ", "type ",
    ];
    let code = line.split("//").next()?;
    let start = KINDS.iter().find_map(|kind| {
        let (before, name) = code.split_once(kind)?;
        let is_word = before.is_empty() || before.ends_with([' ', ')']);
        is_word.then_some(name)
    })?;
    let end = start.find(|c: char| !c.is_alphanumeric() && c != '_')?;
    (end > 0).then(|| &start[..end])
}

fn unused(glossary: &Glossary, text: &str) -> Vec<Violation> {
    let unused = glossary
        .terms
        .iter()
        .filter(|term| !text.contains(words(term).trim_end()));
    unused
        .map(|term| Violation::new(GLOSSARY, format!("nothing uses the term {term:?}")))
        .collect()
}

fn banned_words(glossary: &Glossary, file: &TextFile) -> Vec<Violation> {
    let mut violations = Vec::new();
    for (number, line) in file.lines() {
        let names = glossary.proper_names.iter();
        let line = names.fold(line.to_owned(), |line, name| line.replace(name, ""));
        let line = words(&line);
        for (word, term) in glossary
            .banned
            .iter()
            .filter(|(word, _)| has_phrase(&line, word))
        {
            let place = format!("{}:{number}", file.path);
            violations.push(Violation::new(
                place,
                format!("{word:?}: our word is {term:?}"),
            ));
        }
    }
    violations
}

/// The text with comment marks and line ends removed, so that a phrase may span two lines.
fn joined(text: &str) -> String {
    let lines = text
        .lines()
        .map(|line| line.trim_start_matches([' ', '/', '!', '#', '>']));
    lines.collect::<Vec<_>>().join(" ")
}

#[cfg(test)]
mod tests {
    use super::*;

    const TEXT: &str = "# Glossary\n\n| term | meaning | not | homonyms |\n|---|---|---|---|\n\
        | green thread | what runs | fibre, user thread | |\n| carrier | runs them | | breed |\n\n\
        ## Proper names\n\n- `Boost.Fibre`\n";

    #[test]
    fn the_table_and_the_names_are_read() {
        let glossary = Glossary::parse(TEXT);
        assert_eq!(glossary.terms, ["green thread", "carrier"]);
        assert_eq!(glossary.banned.len(), 2);
        assert_eq!(glossary.proper_names, ["Boost.Fibre"]);
    }

    #[test]
    fn a_term_that_nothing_uses_is_found() {
        let text = words(&joined("//! the green\n//! threads run"));
        assert_eq!(
            unused(&Glossary::parse(TEXT), &text),
            [Violation::new(
                GLOSSARY,
                "nothing uses the term \"carrier\""
            )]
        );
    }

    #[test]
    fn a_banned_word_is_found_in_prose_and_identifiers() {
        let glossary = Glossary::parse(TEXT);
        let file = TextFile::new(
            "x.rs",
            "struct Fibre;\nfn spawn_user_thread() {}\nlet a = 1;",
        );
        let places: Vec<_> = banned_words(&glossary, &file)
            .into_iter()
            .map(|v| v.place)
            .collect();
        assert_eq!(places, ["x.rs:1", "x.rs:2"]);
    }

    #[test]
    fn an_item_with_the_name_of_several_things_is_found() {
        let text = "pub(crate) fn breed() {}\nfn breed_carrier() {}\nlet breed = 1;\nmod breed;\n";
        let file = TextFile::new("x.rs", text);
        let found = homonyms(&Glossary::parse(TEXT), &file);
        let places: Vec<_> = found.into_iter().map(|v| v.place).collect();
        assert_eq!(places, ["x.rs:1", "x.rs:4"]);
    }

    #[test]
    fn a_proper_name_is_nobodys_synonym() {
        let file = TextFile::new("x.rs", "// as Boost.Fibre does");
        assert!(banned_words(&Glossary::parse(TEXT), &file).is_empty());
    }
}
