//! Tidy: checked promises about the tree.
//!
//! Each check is a pure function from the tree's text (or Cargo's metadata, or an ELF image) to
//! violations, so that its tests can hand it a fixture and see it fail. `cargo test -p xtask`
//! runs the same checks on the real tree. Sizes and words have a [ratchet]: what is over the limit
//! is recorded in `xtask/tidy.toml` and may only shrink.
//!
//! rustfmt checks formatting, and clippy `unsafe` without a reason.

mod addresses;
mod arrows;
mod assembly;
mod columns;
mod constants;
mod doctests;
mod documents;
mod elf;
mod forks;
mod glossary;
mod links;
mod modules;
mod paths;
mod persons;
mod ratchet;
mod rooms;
mod sizes;
mod tree;

use std::fmt;

use anyhow::Result;

use crate::tally::Tally;
use crate::workspace::Workspace;
use tree::Tree;

/// One fault, and its place.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Violation {
    pub place: String,
    pub what: String,
}

impl Violation {
    fn new(place: impl Into<String>, what: impl Into<String>) -> Violation {
        Violation {
            place: place.into(),
            what: what.into(),
        }
    }
}

impl fmt::Display for Violation {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(out, "{}: {}", self.place, self.what)
    }
}

/// The findings of one check.
pub(crate) struct Findings {
    /// How many things were checked: a check that looks at nothing has failed.
    pub looked_at: usize,
    pub violations: Vec<Violation>,
}

/// The input of the checks.
struct Subject<'a> {
    workspace: &'a Workspace,
    tree: Tree,
}

type Check = fn(&Subject<'_>) -> Result<Findings>;

const CHECKS: &[(&str, Check)] = &[
    ("dependency directions", arrows::check),
    ("directions between rooms", rooms::check),
    ("module files", modules::check),
    ("lints inherited", arrows::check_lints),
    ("file sizes", sizes::check_files),
    ("function sizes", sizes::check_functions),
    ("columns", columns::check),
    ("persons in comments", persons::check),
    ("glossary: terms used", glossary::check_terms),
    ("glossary: banned synonyms", glossary::check_banned),
    ("glossary: homonyms", glossary::check_homonyms),
    ("absolute paths", paths::check),
    ("links", links::check),
    ("files that documents name", documents::check),
    ("addresses of the program", addresses::check),
    ("assembly in one crate", assembly::check),
    ("locks in forked children", forks::check),
    ("numbers of Linux", constants::check),
    ("doctests of the API", doctests::check),
    ("no libc inside the runtime", elf::check),
];

/// The outcome of all checks: a case is a check.
pub(crate) struct Report {
    checks_passed: u64,
    checks_failed: u64,
}

impl Report {
    pub(crate) fn is_clean(&self) -> bool {
        self.checks_failed == 0
    }

    pub(crate) fn tally(&self) -> Tally {
        Tally {
            passed: self.checks_passed,
            failed: self.checks_failed,
            ignored: 0,
        }
    }
}

/// Runs every check and prints what each found.
pub(crate) fn run(workspace: &Workspace) -> Result<Report> {
    let subject = Subject {
        workspace,
        tree: Tree::load(&workspace.root)?,
    };
    let mut report = Report {
        checks_passed: 0,
        checks_failed: 0,
    };
    for (name, check) in CHECKS {
        let problems = problems(check(&subject));
        if problems.is_empty() {
            println!("tidy: {name}: ok");
            report.checks_passed += 1;
            continue;
        }
        report.checks_failed += 1;
        println!("tidy: {name}: {} violations", problems.len());
        for problem in problems {
            println!("  {problem}");
        }
    }
    Ok(report)
}

/// Returns a check's violations; a check that could not run, or looked at nothing, has one, too.
fn problems(findings: Result<Findings>) -> Vec<Violation> {
    match findings {
        Ok(findings) if findings.looked_at == 0 => {
            vec![Violation::new(
                "tidy",
                "this check found nothing to look at",
            )]
        }
        Ok(findings) => findings.violations,
        Err(error) => vec![Violation::new("tidy", format!("{error:#}"))],
    }
}

/// Lowers recorded numbers to today's.
pub(crate) fn update(workspace: &Workspace) -> Result<()> {
    ratchet::update(&Tree::load(&workspace.root)?, &workspace.root)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// One test a check, on the real tree.
    macro_rules! real_tree {
        ($($test:ident: $check:path;)*) => {$(
            #[test]
            fn $test() {
                let workspace = Workspace::load().unwrap();
                let tree = Tree::load(&workspace.root).unwrap();
                let problems = problems($check(&Subject { workspace: &workspace, tree }));
                let lines: Vec<_> = problems.iter().map(ToString::to_string).collect();
                assert!(lines.is_empty(), "{}", lines.join("\n"));
            }
        )*};
    }

    real_tree! {
        tree_dependencies_point_down: arrows::check;
        tree_rooms_point_down: rooms::check;
        tree_has_one_style_of_modules: modules::check;
        tree_crates_inherit_the_lints: arrows::check_lints;
        tree_files_are_small: sizes::check_files;
        tree_functions_fit_a_screen: sizes::check_functions;
        tree_lines_fit_the_columns: columns::check;
        tree_speaks_of_no_more_persons: persons::check;
        tree_uses_every_term_it_defines: glossary::check_terms;
        tree_has_no_banned_synonym: glossary::check_banned;
        tree_names_no_item_by_a_homonym: glossary::check_homonyms;
        tree_has_no_absolute_path: paths::check;
        tree_links_lead_somewhere: links::check;
        tree_documents_name_what_exists: documents::check;
        tree_reaches_the_programs_memory_in_one_way: addresses::check;
        tree_has_its_assembly_in_one_crate: assembly::check;
        tree_resets_its_locks_in_children: forks::check;
        tree_copies_no_number_of_linux: constants::check;
        tree_tests_the_documentation_of_its_api: doctests::check;
        preloaded_library_needs_nothing: elf::check;
    }

    #[test]
    fn a_check_that_looks_at_nothing_has_failed() {
        let nothing = Findings {
            looked_at: 0,
            violations: Vec::new(),
        };
        assert_eq!(problems(Ok(nothing)).len(), 1);
        assert_eq!(problems(Err(anyhow::anyhow!("no such file"))).len(), 1);
    }
}
