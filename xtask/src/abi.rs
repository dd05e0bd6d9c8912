//! `xtask abi`: checks that the header, the libraries' exports and the committed list of `raddle-c`
//! agree.
//!
//! The list has each prototype with the version that its name is exported with. A function that is
//! taken away or changed shows there, in review.

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;

use anyhow::{Context, Result};
use object::elf::FileHeader64;
use object::read::elf::{FileHeader, Sym};
use object::{Endianness, Object, ObjectSymbol};

use crate::c_library::{self, CLibrary, name, prototypes};
use crate::workspace::Workspace;

const LIST: &str = "abi.txt";
const LIST_HEAD: &str = "\
# What libraddle exports: version, prototype. `cargo xtask abi --update` writes it; what was
# released is neither removed nor changed.
";

/// Exported names with their versions; a static library has none.
type Exports = BTreeMap<String, String>;

/// Runs the check; `update` writes the list first. Returns true when all agree.
pub(crate) fn run(workspace: &Workspace, update: bool) -> Result<bool> {
    let library = c_library::build(workspace)?;
    let problems = problems(workspace, &library, update)?;
    for problem in &problems {
        println!("abi: {problem}");
    }
    if problems.is_empty() {
        println!("abi: header, libraries and list agree");
    }
    Ok(problems.is_empty())
}

fn problems(workspace: &Workspace, library: &CLibrary, update: bool) -> Result<Vec<String>> {
    let header = c_library::headers(workspace)?;
    let declared = prototypes(&header);
    let shared = exports(&library.shared)?;
    let list = c_library::source(workspace, LIST);
    let now = listed(&declared, &shared);
    if update {
        fs::write(&list, &now)?;
    }
    let mut problems = compare("libraddle.so", &declared, &shared);
    problems.extend(compare(
        "libraddle.a",
        &declared,
        &globals(&library.archive)?,
    ));
    let committed = fs::read_to_string(&list).unwrap_or_default();
    problems.extend(differences(&committed, &now));
    let number = version_number(&library.version);
    if !header.contains(&format!("#define RADDLE_VERSION {number}\n")) {
        problems.push(format!("the header's RADDLE_VERSION is not {number}"));
    }
    Ok(problems)
}

/// Returns what a library lacks of the header, and what it exports beyond it.
fn compare(library: &str, declared: &[String], exported: &Exports) -> Vec<String> {
    let names: Vec<_> = declared.iter().map(|prototype| name(prototype)).collect();
    let lacks = names.iter().filter(|name| !exported.contains_key(**name));
    let beyond = exported
        .keys()
        .filter(|name| !names.contains(&name.as_str()));
    lacks
        .map(|name| format!("{library} lacks {name}"))
        .chain(beyond.map(|name| format!("{library} exports {name}, which no header declares")))
        .collect()
}

/// Returns the list in its current form.
fn listed(declared: &[String], shared: &Exports) -> String {
    let line = |prototype: &String| {
        let version = shared.get(name(prototype)).map_or("-", String::as_str);
        format!("{version} {prototype};\n")
    };
    LIST_HEAD.to_owned() + &declared.iter().map(line).collect::<String>()
}

fn differences(committed: &str, now: &str) -> Vec<String> {
    let only = |a: &str, b: &str, what: &str| -> Vec<String> {
        let lines = a
            .lines()
            .filter(|line| !b.lines().any(|other| other == *line));
        lines.map(|line| format!("{LIST} {what}: {line}")).collect()
    };
    let mut found = only(committed, now, "has what is not");
    found.extend(only(now, committed, "lacks"));
    found
}

/// As in the header's RADDLE_VERSION.
fn version_number(version: &str) -> String {
    let parts = version.split('.').map(|part| part.parse().unwrap_or(0u32));
    format!("{:#08x}", parts.fold(0, |number, part| number << 8 | part))
}

/// Returns the names that a shared library defines, with their versions.
fn exports(library: &Path) -> Result<Exports> {
    let image = fs::read(library).with_context(|| library.display().to_string())?;
    let image = image.as_slice();
    let header = FileHeader64::<Endianness>::parse(image)?;
    let endian = header.endian()?;
    let sections = header.sections(endian, image)?;
    let symbols = sections.symbols(endian, image, object::elf::SHT_DYNSYM)?;
    let versions = sections.versions(endian, image)?;
    let mut found = Exports::new();
    for (index, symbol) in symbols.enumerate() {
        let name = symbol.name(endian, symbols.strings())?;
        if name.is_empty() || symbol.is_undefined(endian) {
            continue;
        }
        let name = String::from_utf8_lossy(name).into_owned();
        let version = match &versions {
            None => None,
            Some(versions) => versions.version(versions.version_index(endian, index))?,
        };
        let version = version.map(|version| String::from_utf8_lossy(version.name()).into_owned());
        // A version itself is a symbol of that name.
        if version.as_ref() != Some(&name) {
            found.insert(name, version.unwrap_or_else(|| "-".into()));
        }
    }
    Ok(found)
}

/// Returns the global names that a static library's objects define.
fn globals(archive: &Path) -> Result<Exports> {
    let image = fs::read(archive).with_context(|| archive.display().to_string())?;
    let archive = object::read::archive::ArchiveFile::parse(image.as_slice())?;
    let mut found = Exports::new();
    for member in archive.members() {
        let object = object::File::parse(member?.data(image.as_slice())?)?;
        let symbols = object.symbols().filter(|symbol| symbol.is_definition());
        for symbol in symbols.filter(|symbol| symbol.is_global()) {
            found.insert(symbol.name()?.to_owned(), String::new());
        }
    }
    Ok(found)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn exported(names: &[&str]) -> Exports {
        names
            .iter()
            .map(|&name| (name.into(), "V".into()))
            .collect()
    }

    #[test]
    fn what_a_library_lacks_or_has_beyond_the_header_is_found() {
        let declared = ["int raddle_a(void)".to_owned()];
        assert!(compare("x", &declared, &exported(&["raddle_a"])).is_empty());
        assert_eq!(
            compare("x", &declared, &exported(&[])),
            ["x lacks raddle_a"]
        );
        let beyond = compare("x", &declared, &exported(&["raddle_a", "rust_panic"]));
        assert_eq!(beyond, ["x exports rust_panic, which no header declares"]);
    }

    #[test]
    fn a_changed_prototype_is_found_on_both_sides() {
        let one = listed(&["int raddle_a(void)".into()], &exported(&["raddle_a"]));
        let other = listed(&["int raddle_a(int)".into()], &exported(&["raddle_a"]));
        assert!(one.ends_with("V int raddle_a(void);\n"));
        assert!(differences(&one, &one).is_empty());
        assert_eq!(differences(&one, &other).len(), 2);
    }

    #[test]
    fn a_version_takes_a_byte_a_part() {
        assert_eq!(version_number("0.1.0"), "0x000100");
        assert_eq!(version_number("1.2.10"), "0x01020a");
    }
}
