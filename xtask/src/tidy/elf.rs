//! No libc function inside the runtime: the preloaded library sits beneath libc, so its file may
//! need no other library, leave no symbol undefined and own no thread-local storage (a carrier
//! has no libc thread block to hold it). Its memory is never writable and executable at once.

use std::path::Path;

use anyhow::{Context, Result};
use object::Endianness;
use object::elf::{DT_NEEDED, FileHeader64, PF_W, PF_X, PT_GNU_STACK, PT_TLS};
use object::read::elf::{Dyn, ElfFile64, FileHeader, ProgramHeader};
use object::{Object, ObjectSymbol};

use super::{Findings, Subject, Violation};
use crate::shell;

/// Cargo's arguments for a profile, and its output folder.
const PROFILES: [(&[&str], &str); 2] = [(&["--release"], "release"), (&[], "debug")];

/// Checks the library of each profile that was built before, freshly built; else of debug.
pub(super) fn check(subject: &Subject<'_>) -> Result<Findings> {
    let workspace = subject.workspace;
    let none = PROFILES
        .iter()
        .all(|(_, folder)| !workspace.preload(folder).exists());
    let mut findings = Findings {
        looked_at: 0,
        violations: Vec::new(),
    };
    for (arguments, folder) in PROFILES {
        let library = workspace.preload(folder);
        if library.exists() || (none && folder == "debug") {
            let mut cargo = shell::cargo(&workspace.root);
            shell::run(
                cargo
                    .args(["build", "--package", "raddle-preload"])
                    .args(arguments),
            )?;
            findings.looked_at += 1;
            findings.violations.extend(violations_of(&library)?);
        }
    }
    Ok(findings)
}

fn violations_of(library: &Path) -> Result<Vec<Violation>> {
    let place = library.display().to_string();
    let image = std::fs::read(library).with_context(|| place.clone())?;
    let whats = impurities(&image).with_context(|| place.clone())?;
    Ok(whats
        .into_iter()
        .map(|what| Violation::new(place.clone(), what))
        .collect())
}

fn impurities(image: &[u8]) -> Result<Vec<String>> {
    let file = ElfFile64::<Endianness>::parse(image)?;
    let mut found = needed_libraries(image)?;
    for symbol in file
        .dynamic_symbols()
        .filter(|symbol| symbol.is_undefined())
    {
        match symbol.name()? {
            "" => {}
            name => found.push(format!("leaves {name} undefined")),
        }
    }
    let endian = file.endian();
    for header in file.elf_program_headers() {
        let flags = header.p_flags(endian);
        match header.p_type(endian) {
            PT_TLS => found.push("has a thread-local segment".into()),
            PT_GNU_STACK if flags & PF_X == 0 => {}
            _ if flags & (PF_W | PF_X) == PF_W | PF_X => {
                found.push("has memory that is writable and executable".into());
            }
            _ => {}
        }
    }
    Ok(found)
}

fn needed_libraries(image: &[u8]) -> Result<Vec<String>> {
    let header = FileHeader64::<Endianness>::parse(image)?;
    let endian = header.endian()?;
    let sections = header.sections(endian, image)?;
    let Some((entries, strings)) = sections.dynamic(endian, image)? else {
        anyhow::bail!("this is no shared library: it has no dynamic section");
    };
    let strings = sections.strings(endian, image, strings)?;
    let needed = entries
        .iter()
        .filter(|entry| entry.tag(endian) == DT_NEEDED);
    let names = needed.map(|entry| {
        let name = entry.string(endian, strings)?;
        Ok(format!("needs {}", String::from_utf8_lossy(name)))
    });
    names.collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::process::Command;

    /// Compiles `source` as a shared library and returns its bytes.
    fn library(name: &str, source: &str, flags: &[&str]) -> Vec<u8> {
        let folder = std::env::temp_dir().join(format!("raddle-elf-{}-{name}", std::process::id()));
        std::fs::create_dir_all(&folder).unwrap();
        let (c, so) = (folder.join("x.c"), folder.join("x.so"));
        std::fs::write(&c, source).unwrap();
        let mut cc = Command::new("cc");
        let status = cc
            .args(["-shared", "-fPIC", "-o"])
            .arg(&so)
            .args(flags)
            .arg(&c)
            .status();
        assert!(status.unwrap().success());
        let image = std::fs::read(&so).unwrap();
        std::fs::remove_dir_all(&folder).unwrap();
        image
    }

    #[test]
    fn a_library_that_needs_nothing_is_pure() {
        let image = library("pure", "int f(void) { return 1; }", &["-nostdlib"]);
        assert!(impurities(&image).unwrap().is_empty());
    }

    #[test]
    fn a_needed_library_and_an_undefined_symbol_are_found() {
        let source = "int puts(const char *); int f(void) { return puts(\"\"); }";
        let found = impurities(&library("libc", source, &[])).unwrap();
        assert!(
            found.iter().any(|what| what.starts_with("needs libc.so")),
            "{found:?}"
        );
        assert!(
            found.iter().any(|what| what == "leaves puts undefined"),
            "{found:?}"
        );
    }

    #[test]
    fn thread_local_storage_is_found() {
        let source = "__thread int counter; int f(void) { return counter++; }";
        let flags = ["-nostdlib", "-ftls-model=initial-exec"];
        let found = impurities(&library("tls", source, &flags)).unwrap();
        assert_eq!(found, ["has a thread-local segment"]);
    }

    #[test]
    fn an_executable_stack_is_found() {
        let flags = ["-nostdlib", "-Wl,-z,execstack"];
        let found = impurities(&library("stack", "int x;", &flags)).unwrap();
        assert_eq!(found, ["has memory that is writable and executable"]);
    }

    #[test]
    fn a_file_that_is_no_library_is_an_error() {
        assert!(impurities(b"#!/bin/sh\n").is_err());
    }
}
