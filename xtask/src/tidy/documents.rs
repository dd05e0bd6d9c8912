//! Files and modules that documents name exist.
//!
//! Documents name files in code spans. A span's word is such a name if it begins with a folder of
//! the tree (`crates/NAME/src`), ends like a file of Rust (`plan.rs`, which is the end of some
//! path), or is a module of a crate (`raddle_sched::quota`). A star stands for any name, and so
//! does a part in capitals. [`links`](super::links) checks links.

use anyhow::Result;
use std::collections::BTreeSet;

use super::tree::{TextFile, Tree};
use super::{Findings, Subject, Violation};

/// The folders of the tree that a path begins with.
const FOLDERS: [&str; 3] = ["crates", "docs", "xtask"];

pub(super) fn check(subject: &Subject<'_>) -> Result<Findings> {
    let names = Names::of(&subject.tree);
    let documents = subject.tree.files.iter();
    let documents = documents.filter(|file| file.extension() == "md");
    let mut findings = Findings {
        looked_at: 0,
        violations: Vec::new(),
    };
    for document in documents {
        for (number, word) in named(document) {
            findings.looked_at += 1;
            if !names.has(word) {
                let place = format!("{}:{number}", document.path);
                let what = format!("names {word}, which does not exist");
                findings.violations.push(Violation::new(place, what));
            }
        }
    }
    Ok(findings)
}

/// The names that a document may use.
struct Names<'a> {
    /// Paths of files, and of the folders that they stand in.
    paths: BTreeSet<&'a str>,
    /// `raddle_engine::ums`: a module of a crate, or a name that the crate's root exports.
    modules: BTreeSet<String>,
}

impl<'a> Names<'a> {
    fn of(tree: &'a Tree) -> Self {
        let mut names = Names {
            paths: BTreeSet::new(),
            modules: BTreeSet::new(),
        };
        for file in &tree.files {
            let ends = file.path.match_indices('/').map(|(at, _)| at);
            let folders = ends.map(|end| &file.path[..end]);
            names.paths.extend(folders.chain([&*file.path]));
            names.add_modules(file);
        }
        names
    }

    /// Adds every word of a crate's root: the names of its modules and of what it exports.
    fn add_modules(&mut self, file: &TextFile) {
        let name = file.path.strip_prefix("crates/");
        let Some(name) = name.and_then(|rest| rest.strip_suffix("/src/lib.rs")) else {
            return;
        };
        let name = name.replace('-', "_");
        let code = file.text.lines().filter(|line| !line.starts_with("//"));
        let words = code.flat_map(|line| line.split(|c: char| !c.is_alphanumeric() && c != '_'));
        let modules = words.map(|word| format!("{name}::{word}"));
        self.modules.extend(modules);
    }

    fn has(&self, word: &str) -> bool {
        if let Some((name, path)) = word.split_once("::") {
            let module = path.split("::").next().unwrap_or_default();
            return self.modules.contains(&format!("{name}::{module}"));
        }
        let word = word.trim_end_matches('/');
        let is_whole = FOLDERS.iter().any(|folder| begins_with(word, folder));
        self.paths.iter().any(|path| matches(word, path, is_whole))
    }
}

/// The names of files and modules in a document's code spans, with the numbers of their lines.
fn named(document: &TextFile) -> impl Iterator<Item = (usize, &str)> {
    document.lines().flat_map(|(number, line)| {
        let spans = line.split('`').skip(1).step_by(2);
        let words = spans.flat_map(str::split_whitespace);
        words
            .filter(|word| is_name(word))
            .map(move |word| (number, word))
    })
}

fn is_name(word: &str) -> bool {
    let is_path = |c: char| c.is_alphanumeric() || "/._-*".contains(c);
    let is_module = |c: char| c.is_alphanumeric() || "_:".contains(c);
    match word.split_once("::") {
        Some((name, _)) => name.starts_with("raddle_") && word.chars().all(is_module),
        None => {
            let is_file = word.ends_with(".rs");
            let is_whole = FOLDERS.iter().any(|folder| begins_with(word, folder));
            (is_file || is_whole) && word.chars().all(is_path)
        }
    }
}

fn begins_with(path: &str, folder: &str) -> bool {
    path.strip_prefix(folder)
        .is_some_and(|rest| rest.starts_with('/'))
}

/// Returns whether the path, or its end unless the name `is_whole`, is what the name says.
fn matches(name: &str, path: &str, is_whole: bool) -> bool {
    let (mut names, mut parts) = (name.rsplit('/'), path.rsplit('/'));
    loop {
        match (names.next(), parts.next()) {
            (None, left) => return left.is_none() || !is_whole,
            (Some(name), Some(part)) if part_matches(name, part) => {}
            (Some(_), _) => return false,
        }
    }
}

fn part_matches(name: &str, part: &str) -> bool {
    let (stem, extension) = name.rsplit_once('.').unwrap_or((name, ""));
    let stands_for_any = |c: char| c.is_ascii_uppercase() || c == '*';
    if !stem.is_empty() && stem.chars().all(stands_for_any) && name != "README.md" {
        return extension.is_empty() || part.ends_with(&format!(".{extension}"));
    }
    match name.split_once('*') {
        Some((start, end)) => part.starts_with(start) && part.ends_with(end),
        None => name == part,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn wrong(document: &str) -> Vec<String> {
        let file = |path: &str, text: &str| TextFile::new(path, text);
        let tree = Tree {
            files: vec![
                file(
                    "crates/raddle-a/src/lib.rs",
                    "//! about\npub mod low;\nmod b;\n",
                ),
                file("crates/raddle-a/src/low/part.rs", ""),
                file("docs/README.md", ""),
            ],
        };
        let names = Names::of(&tree);
        let document = TextFile::new("docs/x.md", document);
        let words = named(&document).filter(|(_, word)| !names.has(word));
        words.map(|(_, word)| word.to_owned()).collect()
    }

    #[test]
    fn names_that_exist_are_accepted() {
        let text = "`crates/raddle-a/src/low`, `low/part.rs`, `crates/raddle-a/src/low/NAME.rs`\n\
            `crates/raddle-a/src/*/part.rs` or `docs/README.md`; `raddle_a::low::Thing`, `x.c`\n\
            crates/gone.rs outside of code, `cargo test -p raddle-a`, `std::ptr::null`\n";
        assert!(wrong(text).is_empty(), "{:?}", wrong(text));
    }

    #[test]
    fn names_that_do_not_exist_are_found() {
        let text = "`crates/raddle-a/src/high`, `high/part.rs`, `crates/raddle-a/lib.rs`\n\
            `crates/raddle-a/src/low/NAME.c`, `raddle_a::about`, `docs/gone.md`\n";
        assert_eq!(wrong(text).len(), 6, "{:?}", wrong(text));
    }
}
