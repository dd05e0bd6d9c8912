//! File and function sizes in lines, under the [ratchet](super::ratchet).

use anyhow::{Context, Result};
use syn::spanned::Spanned;
use syn::visit::{self, Visit};

use super::ratchet::{Numbers, Ratchet, Record};
use super::tree::{TextFile, Tree};
use super::{Findings, Subject, Violation};

pub(super) const FILES: Ratchet = Ratchet {
    limit: 600,
    unit: "lines",
};
pub(super) const FUNCTIONS: Ratchet = Ratchet {
    limit: 80,
    unit: "lines",
};

/// ARCHITECTURE.md is a map: a long one would not be read.
const MAP: &str = "ARCHITECTURE.md";
const MAP_LIMIT_LINES: usize = 300;

pub(super) fn check_files(subject: &Subject<'_>) -> Result<Findings> {
    let sizes = file_sizes(&subject.tree);
    let record = Record::load(&subject.tree)?;
    let mut violations = FILES.check(&sizes, &record.files);
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

pub(super) fn check_functions(subject: &Subject<'_>) -> Result<Findings> {
    let sizes = function_sizes(&subject.tree)?;
    let record = Record::load(&subject.tree)?;
    let violations = FUNCTIONS.check(&sizes, &record.functions);
    Ok(Findings {
        looked_at: sizes.len(),
        violations,
    })
}

pub(super) fn file_sizes(tree: &Tree) -> Numbers {
    let sources = tree.files.iter().filter(|file| file.is_source());
    sources
        .map(|file| (file.path.clone(), file.text.lines().count()))
        .collect()
}

/// The sizes of all Rust functions; of two with one name in one file, the larger.
pub(super) fn function_sizes(tree: &Tree) -> Result<Numbers> {
    let mut sizes = Numbers::new();
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

#[cfg(test)]
mod tests {
    use super::*;

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
