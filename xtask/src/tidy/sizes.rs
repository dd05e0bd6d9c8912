//! File and function sizes, as a ratchet.
//!
//! Protocol: (1) a file or function within the limit needs nothing; (2) a larger one must be
//! recorded in `xtask/tidy.toml` with its size; (3) a recorded one may not grow; (4) when it
//! shrinks, `cargo xtask tidy --update` lowers the record, and removes it at the limit. Only an
//! edit by hand raises a record, and a reviewer sees that.

use std::collections::BTreeMap;
use std::path::Path;

use anyhow::{Context, Result};
use serde::{Deserialize, Serialize};
use syn::spanned::Spanned;
use syn::visit::{self, Visit};

use super::tree::{TextFile, Tree};
use super::{Findings, Subject, Violation};

const FILE_LIMIT_LINES: usize = 600;
const FUNCTION_LIMIT_LINES: usize = 80;

/// ARCHITECTURE.md is a map: a long one would not be read.
const MAP: &str = "ARCHITECTURE.md";
const MAP_LIMIT_LINES: usize = 300;

const RECORD: &str = "xtask/tidy.toml";
const RECORD_HEAD: &str = "\
# What is over the size limits, with its lines: these numbers may only shrink.
# `cargo xtask tidy --update` lowers them.

";

/// Sizes in lines, by path, or by path and name.
type Sizes = BTreeMap<String, usize>;

#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Record {
    files: Sizes,
    functions: Sizes,
}

impl Record {
    fn load(tree: &Tree) -> Result<Record> {
        toml::from_str(&tree.file(RECORD)?.text).with_context(|| format!("{RECORD} is malformed"))
    }
}

pub fn check_files(subject: &Subject<'_>) -> Result<Findings> {
    let sizes = file_sizes(&subject.tree);
    let record = Record::load(&subject.tree)?;
    let mut violations = ratchet(FILE_LIMIT_LINES, &sizes, &record.files);
    let map_lines = subject.tree.file(MAP)?.text.lines().count();
    if map_lines >= MAP_LIMIT_LINES {
        violations.push(Violation::new(
            MAP,
            format!("{map_lines} lines: a map stays short"),
        ));
    }
    Ok(Findings {
        looked_at: sizes.len(),
        violations,
    })
}

pub fn check_functions(subject: &Subject<'_>) -> Result<Findings> {
    let sizes = function_sizes(&subject.tree)?;
    let record = Record::load(&subject.tree)?;
    let violations = ratchet(FUNCTION_LIMIT_LINES, &sizes, &record.functions);
    Ok(Findings {
        looked_at: sizes.len(),
        violations,
    })
}

/// Lowers each record to today's size and drops those that the limit covers.
pub fn update(tree: &Tree, root: &Path) -> Result<()> {
    let mut record = Record::load(tree)?;
    lower(&mut record.files, FILE_LIMIT_LINES, &file_sizes(tree));
    lower(
        &mut record.functions,
        FUNCTION_LIMIT_LINES,
        &function_sizes(tree)?,
    );
    let text = format!("{RECORD_HEAD}{}", toml::to_string(&record)?);
    std::fs::write(root.join(RECORD), text).with_context(|| format!("{RECORD} is not writable"))
}

fn file_sizes(tree: &Tree) -> Sizes {
    let sources = tree.files.iter().filter(|file| file.is_source());
    sources
        .map(|file| (file.path.clone(), file.text.lines().count()))
        .collect()
}

/// Returns the sizes of all Rust functions; of two with one name in one file, the larger.
fn function_sizes(tree: &Tree) -> Result<Sizes> {
    let mut sizes = Sizes::new();
    for file in tree.files.iter().filter(|file| file.extension() == "rs") {
        for (name, lines) in functions(file)? {
            let size = sizes.entry(format!("{}::{name}", file.path)).or_default();
            *size = lines.max(*size);
        }
    }
    Ok(sizes)
}

fn functions(file: &TextFile) -> Result<Vec<(String, usize)>> {
    let syntax =
        syn::parse_file(&file.text).with_context(|| format!("{} is no Rust", file.path))?;
    let mut walk = Walk::default();
    walk.visit_file(&syntax);
    Ok(walk.functions)
}

/// Collects functions with their lines, from `fn` to the closing brace; comments and attributes
/// above a function don't count. Functions that a macro makes are not seen.
#[derive(Default)]
struct Walk {
    owner: Option<String>,
    functions: Vec<(String, usize)>,
}

impl Walk {
    fn note(&mut self, signature: &syn::Signature, block: &syn::Block) {
        let lines = block.span().end().line - signature.fn_token.span.start().line + 1;
        let owner = self
            .owner
            .as_ref()
            .map(|owner| format!("{owner}::"))
            .unwrap_or_default();
        self.functions
            .push((format!("{owner}{}", signature.ident), lines));
    }
}

impl<'ast> Visit<'ast> for Walk {
    fn visit_item_fn(&mut self, item: &'ast syn::ItemFn) {
        self.note(&item.sig, &item.block);
        visit::visit_item_fn(self, item);
    }

    fn visit_impl_item_fn(&mut self, item: &'ast syn::ImplItemFn) {
        self.note(&item.sig, &item.block);
        visit::visit_impl_item_fn(self, item);
    }

    fn visit_trait_item_fn(&mut self, item: &'ast syn::TraitItemFn) {
        if let Some(block) = &item.default {
            self.note(&item.sig, block);
        }
        visit::visit_trait_item_fn(self, item);
    }

    fn visit_item_impl(&mut self, item: &'ast syn::ItemImpl) {
        let owner = match &*item.self_ty {
            syn::Type::Path(path) => path.path.segments.last().map(|part| part.ident.to_string()),
            _ => None,
        };
        let outer = std::mem::replace(&mut self.owner, owner);
        visit::visit_item_impl(self, item);
        self.owner = outer;
    }
}

fn ratchet(limit: usize, sizes: &Sizes, record: &Sizes) -> Vec<Violation> {
    let mut violations = Vec::new();
    for (place, &lines) in sizes {
        let what = match record.get(place) {
            None if lines > limit => format!("{lines} lines, more than {limit}"),
            Some(&recorded) if lines > recorded => format!("grew from {recorded} to {lines} lines"),
            Some(&recorded) if lines < recorded => {
                format!("shrank from {recorded} to {lines} lines: cargo xtask tidy --update")
            }
            _ => continue,
        };
        violations.push(Violation::new(place, what));
    }
    let gone = record.keys().filter(|place| !sizes.contains_key(*place));
    violations.extend(
        gone.map(|place| Violation::new(place, "is recorded but gone: cargo xtask tidy --update")),
    );
    violations
}

fn lower(record: &mut Sizes, limit: usize, sizes: &Sizes) {
    record.retain(|place, _| sizes.get(place).is_some_and(|&lines| lines > limit));
    for (place, recorded) in record {
        *recorded = sizes[place].min(*recorded);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sizes(pairs: &[(&str, usize)]) -> Sizes {
        pairs
            .iter()
            .map(|&(place, lines)| (place.to_owned(), lines))
            .collect()
    }

    #[test]
    fn over_the_limit_is_found_and_at_it_is_not() {
        assert_eq!(ratchet(80, &sizes(&[("a", 81)]), &Sizes::new()).len(), 1);
        assert!(ratchet(80, &sizes(&[("a", 80)]), &Sizes::new()).is_empty());
    }

    #[test]
    fn a_recorded_size_may_stay_but_neither_grow_nor_shrink_unrecorded_nor_vanish() {
        let record = sizes(&[("a", 100)]);
        assert!(ratchet(80, &sizes(&[("a", 100)]), &record).is_empty());
        assert_eq!(ratchet(80, &sizes(&[("a", 101)]), &record).len(), 1);
        assert_eq!(ratchet(80, &sizes(&[("a", 99)]), &record).len(), 1);
        assert_eq!(ratchet(80, &Sizes::new(), &record).len(), 1);
    }

    #[test]
    fn updating_only_lowers() {
        let mut record = sizes(&[
            ("grown", 100),
            ("shrunk", 100),
            ("small", 100),
            ("gone", 100),
        ]);
        lower(
            &mut record,
            80,
            &sizes(&[("grown", 120), ("shrunk", 90), ("small", 70)]),
        );
        assert_eq!(record, sizes(&[("grown", 100), ("shrunk", 90)]));
    }

    #[test]
    fn functions_are_measured_without_what_stands_above_them() {
        let text = "/// Doc.\n#[inline]\nfn one() {\n    two();\n}\n\
                    struct S;\nimpl S {\n    fn two() {}\n}\n\
                    trait T {\n    fn three();\n    fn four() {\n    }\n}\n";
        let found = functions(&TextFile::new("x.rs", text)).unwrap();
        let expected = [("one", 3), ("S::two", 1), ("four", 2)];
        assert_eq!(
            found,
            expected.map(|(name, lines)| (name.to_owned(), lines))
        );
    }

    #[test]
    fn a_file_that_is_no_rust_is_an_error() {
        assert!(functions(&TextFile::new("x.rs", "fn (")).is_err());
    }
}
