//! Doctests of the explicit API: every public item has one.
//!
//! An item is public if its module is, or if a public module re-exports it by name. A function,
//! type, trait or constant needs a doctest in its own documentation. A method or an associated
//! constant needs one there, or must be named by a doctest of its type or trait. Items for models
//! or tests only, and items that are hidden from the documentation, need none.

use std::collections::BTreeSet;

use anyhow::{Context, Result};
use syn::punctuated::Punctuated;
use syn::{Attribute, Ident, ImplItem, Item, ItemImpl, TraitItem, UseTree, Visibility};

use super::tree::{TextFile, Tree};
use super::{Findings, Subject, Violation};

/// Source folders of the checked crates.
const CRATES: [&str; 2] = ["crates/raddle/src", "crates/raddle-handles/src"];

pub(super) fn check(subject: &Subject<'_>) -> Result<Findings> {
    let mut findings = Findings {
        looked_at: 0,
        violations: Vec::new(),
    };
    for folder in CRATES {
        let found = check_crate(&subject.tree, folder)?;
        findings.looked_at += found.looked_at;
        findings.violations.extend(found.violations);
    }
    Ok(findings)
}

fn check_crate(tree: &Tree, folder: &str) -> Result<Findings> {
    let mut modules = Modules::default();
    let root = tree.file(&format!("{folder}/lib.rs"))?;
    modules.load(tree, root, folder, Vec::new(), true)?;
    let exported = modules.exported();
    let mut findings = Findings {
        looked_at: 0,
        violations: Vec::new(),
    };
    for module in &modules.0 {
        for item in module.items.iter().filter(|item| is_for_users(item)) {
            modules.judge(module, item, &exported, &mut findings);
        }
    }
    Ok(findings)
}

/// Names in modules.
type Names = BTreeSet<(Vec<String>, String)>;

/// One module's items.
struct Module {
    file: String,
    path: Vec<String>,
    is_public: bool,
    items: Vec<Item>,
}

#[derive(Default)]
struct Modules(Vec<Module>);

impl Modules {
    /// Reads a file's module and those below it, which are in `folder`.
    fn load(
        &mut self,
        tree: &Tree,
        file: &TextFile,
        folder: &str,
        path: Vec<String>,
        is_public: bool,
    ) -> Result<()> {
        let syntax =
            syn::parse_file(&file.text).with_context(|| format!("{} is no Rust", file.path))?;
        for item in syntax.items.iter().filter(|item| is_for_users(item)) {
            let Item::Mod(child) = item else { continue };
            let name = child.ident.to_string();
            let folder = format!("{folder}/{name}");
            let file = tree.file(&format!("{folder}.rs"))?;
            let path = [path.clone(), vec![name]].concat();
            self.load(tree, file, &folder, path, is_public && is_pub(&child.vis))?;
        }
        self.0.push(Module {
            file: file.path.clone(),
            path,
            is_public,
            items: syntax.items,
        });
        Ok(())
    }

    /// Returns the names that public modules have, by the module that defines them.
    fn exported(&self) -> Names {
        let mut names = Names::new();
        for module in self.0.iter().filter(|module| module.is_public) {
            for item in module.items.iter().filter(|item| is_for_users(item)) {
                match item {
                    Item::Use(item) if is_pub(&item.vis) => {
                        re_exports(&item.tree, module.path.clone(), &mut names);
                    }
                    _ => names.extend(
                        name_of(item)
                            .filter(|(_, vis)| is_pub(vis))
                            .map(|(name, _)| (module.path.clone(), name.to_string())),
                    ),
                }
            }
        }
        names
    }

    /// Returns the type or trait that a name means in a module: the one defined nearest to it.
    fn owner(&self, name: &str, from: &Module) -> Option<(&Module, &Item)> {
        let all = self.0.iter().flat_map(|module| {
            let items = module.items.iter().filter(|item| is_type(item));
            items.map(move |item| (module, item))
        });
        let named =
            all.filter(|(_, item)| name_of(item).is_some_and(|(defined, _)| defined == name));
        named.max_by_key(|(module, _)| {
            let pairs = module.path.iter().zip(&from.path);
            pairs.take_while(|(one, other)| one == other).count()
        })
    }

    /// Counts an item, and notes a missing doctest.
    fn judge(&self, module: &Module, item: &Item, exported: &Names, findings: &mut Findings) {
        let is_exported = |module: &Module, item: &Item| {
            name_of(item).is_some_and(|(name, _)| {
                exported.contains(&(module.path.clone(), name.to_string()))
            })
        };
        let mut note = |name: &Ident, has_one: bool| {
            findings.looked_at += 1;
            if !has_one {
                let place = format!("{}:{}", module.file, name.span().start().line);
                let what = format!("{name} has no doctest");
                findings.violations.push(Violation::new(place, what));
            }
        };
        if let Item::Impl(block) = item {
            let owner = owner_name(block).and_then(|name| self.owner(&name, module));
            let Some((_, owner)) = owner.filter(|(at, owner)| is_exported(at, owner)) else {
                return;
            };
            let of_type = doctests(attributes(owner));
            for (name, attributes) in public_parts(block) {
                note(
                    name,
                    !doctests(attributes).is_empty() || names(&of_type, name),
                );
            }
        } else if is_exported(module, item) {
            let of_item = doctests(attributes(item));
            if let Some((name, _)) = name_of(item) {
                note(name, !of_item.is_empty());
            }
            let Item::Trait(item) = item else { return };
            for part in &item.items {
                let TraitItem::Fn(function) = part else {
                    continue;
                };
                let name = &function.sig.ident;
                note(
                    name,
                    !doctests(&function.attrs).is_empty() || names(&of_item, name),
                );
            }
        }
    }
}

/// The public functions and constants of a block that implements no trait.
fn public_parts(block: &ItemImpl) -> impl Iterator<Item = (&Ident, &[Attribute])> {
    let parts = block.items.iter().filter_map(|part| match part {
        ImplItem::Fn(part) => Some((&part.vis, &part.attrs, &part.sig.ident)),
        ImplItem::Const(part) => Some((&part.vis, &part.attrs, &part.ident)),
        _ => None,
    });
    let public = parts.filter(|(vis, attributes, _)| is_pub(vis) && are_for_users(attributes));
    public.map(|(_, attributes, name)| (name, attributes.as_slice()))
}

/// Returns the type of a block, if the block implements no trait.
fn owner_name(block: &ItemImpl) -> Option<String> {
    let syn::Type::Path(path) = &*block.self_ty else {
        return None;
    };
    let last = path.path.segments.last()?;
    block.trait_.is_none().then(|| last.ident.to_string())
}

/// Notes what a tree of re-exports names. Names of other crates' items match nothing here, and do
/// no harm.
fn re_exports(tree: &UseTree, mut path: Vec<String>, names: &mut Names) {
    match tree {
        UseTree::Path(part) => {
            match part.ident.to_string().as_str() {
                "self" => {}
                "crate" => path.clear(),
                name => path.push(name.to_owned()),
            }
            re_exports(&part.tree, path, names);
        }
        UseTree::Group(group) => {
            for tree in &group.items {
                re_exports(tree, path.clone(), names);
            }
        }
        UseTree::Name(name) => drop(names.insert((path, name.ident.to_string()))),
        UseTree::Rename(name) => drop(names.insert((path, name.ident.to_string()))),
        _ => {} // glob re-exports: there are none
    }
}

fn is_pub(visibility: &Visibility) -> bool {
    matches!(visibility, Visibility::Public(_))
}

fn is_type(item: &Item) -> bool {
    matches!(
        item,
        Item::Struct(_) | Item::Enum(_) | Item::Union(_) | Item::Trait(_)
    )
}

/// The name and visibility of an item that documentation shows.
fn name_of(item: &Item) -> Option<(&Ident, &Visibility)> {
    let (ident, visibility) = match item {
        Item::Fn(item) => (&item.sig.ident, &item.vis),
        Item::Struct(item) => (&item.ident, &item.vis),
        Item::Enum(item) => (&item.ident, &item.vis),
        Item::Union(item) => (&item.ident, &item.vis),
        Item::Trait(item) => (&item.ident, &item.vis),
        Item::Const(item) => (&item.ident, &item.vis),
        Item::Static(item) => (&item.ident, &item.vis),
        Item::Type(item) => (&item.ident, &item.vis),
        _ => return None,
    };
    Some((ident, visibility))
}

fn attributes(item: &Item) -> &[Attribute] {
    match item {
        Item::Fn(item) => &item.attrs,
        Item::Struct(item) => &item.attrs,
        Item::Enum(item) => &item.attrs,
        Item::Union(item) => &item.attrs,
        Item::Trait(item) => &item.attrs,
        Item::Const(item) => &item.attrs,
        Item::Static(item) => &item.attrs,
        Item::Type(item) => &item.attrs,
        Item::Mod(item) => &item.attrs,
        Item::Use(item) => &item.attrs,
        Item::Impl(item) => &item.attrs,
        _ => &[],
    }
}

fn is_for_users(item: &Item) -> bool {
    are_for_users(attributes(item))
}

/// Returns whether an item is for users: not for models or tests only, not hidden, and not C's.
fn are_for_users(attributes: &[Attribute]) -> bool {
    attributes.iter().all(|attribute| {
        let syn::Meta::List(list) = &attribute.meta else {
            return true;
        };
        let is = |name, word| list.path.is_ident(name) && list.tokens.to_string() == word;
        let condition = list.path.is_ident("cfg").then(|| list.parse_args());
        !is("doc", "hidden")
            && !is("unsafe", "no_mangle")
            && condition.is_none_or(|condition| condition.is_ok_and(|meta| holds(&meta)))
    })
}

/// Returns whether a condition holds in users' builds: neither for tests nor for models, and with
/// every feature.
fn holds(condition: &syn::Meta) -> bool {
    const ELSEWHERE: [&str; 3] = ["test", "raddle_loom", "raddle_shuttle"];
    match condition {
        syn::Meta::Path(name) => !ELSEWHERE.iter().any(|elsewhere| name.is_ident(elsewhere)),
        syn::Meta::NameValue(_) => true,
        syn::Meta::List(list) => {
            let parts = Punctuated::<syn::Meta, syn::Token![,]>::parse_terminated;
            let parts = list.parse_args_with(parts).unwrap_or_default();
            match () {
                () if list.path.is_ident("not") => !parts.iter().all(holds),
                () if list.path.is_ident("any") => parts.iter().any(holds),
                () => parts.iter().all(holds),
            }
        }
    }
}

fn is_in_name(character: char) -> bool {
    character.is_alphanumeric() || character == '_'
}

/// Returns the text of the doctests in an item's documentation: fences without another language's
/// name that are run or must not compile.
fn doctests(attributes: &[Attribute]) -> String {
    const RUST: [&str; 4] = ["rust", "no_run", "should_panic", "edition2024"];
    let mut code = String::new();
    let mut is_rust = None;
    for line in attributes.iter().filter_map(documentation) {
        match (line.trim().strip_prefix("```"), is_rust) {
            (Some(_), Some(_)) => is_rust = None,
            (Some(language), None) => {
                let mut words = language.split(',').filter(|word| !word.is_empty());
                is_rust = Some(words.all(|word| RUST.contains(&word)));
            }
            (None, Some(true)) => code += &format!("{line}\n"),
            (None, _) => {}
        }
    }
    code
}

fn documentation(attribute: &Attribute) -> Option<String> {
    let syn::Meta::NameValue(pair) = &attribute.meta else {
        return None;
    };
    match &pair.value {
        syn::Expr::Lit(literal) if pair.path.is_ident("doc") => match &literal.lit {
            syn::Lit::Str(text) => Some(text.value()),
            _ => None,
        },
        _ => None,
    }
}

/// Returns whether code has a name as a whole word.
fn names(code: &str, name: &Ident) -> bool {
    code.split(|c: char| !is_in_name(c))
        .any(|word| name == word)
}

#[cfg(test)]
mod tests {
    use super::*;

    const LIB: &str = "\
        pub mod open;\n\
        mod shut;\n\
        pub use shut::{Seen, seen};\n\
        #[cfg(all(raddle_loom, not(test)))]\n\
        pub mod modelled;\n\
        #[cfg(all(test, not(any(raddle_loom, raddle_shuttle))))]\n\
        mod tests;\n";
    const OPEN: &str = "\
        /// ```\n/// open::tested();\n/// ```\n\
        pub fn tested() {}\n\
        /// ```text\n/// no code\n/// ```\n\
        #[cfg(not(any(test, raddle_loom)))]\n\
        pub fn told() {}\n\
        #[doc(hidden)]\n\
        pub fn hidden() {}\n\
        pub(crate) fn private() {}\n\
        #[cfg(test)]\n\
        pub fn for_tests() {}\n";
    const SHUT: &str = "\
        /// ```\n/// Seen.named();\n/// ```\n\
        pub struct Seen;\n\
        impl Seen {\n\
            pub fn named(&self) {}\n\
            pub fn forgotten(&self) {}\n\
            fn private(&self) {}\n\
            /// ```\n/// Seen.own();\n/// ```\n\
            pub fn own(&self) {}\n\
        }\n\
        impl Drop for Seen { fn drop(&mut self) {} }\n\
        pub struct Unseen;\n\
        impl Unseen { pub fn unseen(&self) {} }\n\
        pub fn seen() {}\n";

    #[test]
    fn what_users_see_needs_a_doctest_and_nothing_else_does() {
        let files = [("lib.rs", LIB), ("open.rs", OPEN), ("shut.rs", SHUT)];
        let files = files.map(|(path, text)| TextFile::new(&format!("a/src/{path}"), text));
        let tree = Tree {
            files: files.into(),
        };
        let findings = check_crate(&tree, "a/src").unwrap();
        let mut lacking: Vec<_> = findings.violations.iter().map(|v| &*v.what).collect();
        lacking.sort_unstable();
        let expected = ["forgotten", "seen", "told"].map(|name| format!("{name} has no doctest"));
        assert_eq!(lacking, expected);
        assert_eq!(findings.looked_at, 7); // and tested, Seen, named, own
    }

    #[test]
    fn the_nearest_type_of_a_name_is_meant() {
        let of = |lacks: &str| format!("/// ```\n/// it\n/// ```\npub struct Same;\n{lacks}");
        let one = of("impl Same { pub fn lacks(&self) {} }");
        let files = [
            ("lib.rs", "pub mod one;\nmod two;\n"),
            ("one.rs", &*one),
            (
                "two.rs",
                "pub struct Same;\nimpl Same { pub fn inner(&self) {} }\n",
            ),
        ];
        let files = files.map(|(path, text)| TextFile::new(&format!("a/src/{path}"), text));
        let tree = Tree {
            files: files.into(),
        };
        let findings = check_crate(&tree, "a/src").unwrap();
        assert_eq!(findings.violations.len(), 1);
        assert_eq!(findings.violations[0].what, "lacks has no doctest");
    }
}
