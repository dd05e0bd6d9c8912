//! Assembly: it stands in one crate, so that another architecture is one more folder there.
//!
//! Tests, examples and the fuzzer make system calls of their own or look at registers: their files
//! are listed here. A listed file without assembly is a fault, too, so that the list only shrinks.

use anyhow::Result;

use super::tree::TextFile;
use super::{Findings, Subject, Violation};

/// The crate that may have assembly.
const CRATE: &str = "crates/raddle-arch/";

/// Files outside the crate that may have assembly, and what it is for.
const OTHERS: [(&str, &str); 5] = [
    (
        "crates/raddle-fuzz/src/execute/sites.rs",
        "system calls by instructions of the case's own",
    ),
    (
        "crates/raddle-patch/examples/patched_child/entries.rs",
        "entries that count their calls",
    ),
    (
        "crates/raddle-patch/examples/patched_child/traces.rs",
        "functions with sites that are stepped through",
    ),
    (
        "crates/raddle-patch/examples/patched_child/work.rs",
        "registers around a patched call",
    ),
    (
        "crates/raddle/tests/reuse/main.rs",
        "the floating-point control word of a thread",
    ),
];

/// What assembly looks like in Rust.
const FORMS: [&str; 4] = ["asm!", "global_asm!", "naked_asm!", "unsafe(naked)"];

/// This file, which names the forms.
const OWN: &str = "xtask/src/tidy/assembly.rs";
/// Another check with the forms in its fixtures.
const FIXTURES: &str = "xtask/src/tidy/addresses.rs";

pub(super) fn check(subject: &Subject<'_>) -> Result<Findings> {
    let files = subject.tree.files.iter();
    let files: Vec<_> = files.filter(|file| file.extension() == "rs").collect();
    let mut violations: Vec<_> = files.iter().flat_map(|file| violations(file)).collect();
    let is_there = |place: &str| files.iter().any(|file| file.path == place);
    let missing = OTHERS.iter().filter(|(place, _)| !is_there(place));
    violations.extend(missing.map(|(place, _)| Violation::new(*place, "is listed and missing")));
    Ok(Findings {
        looked_at: files.len(),
        violations,
    })
}

fn violations(file: &TextFile) -> Vec<Violation> {
    if file.path.starts_with(CRATE) || [OWN, FIXTURES].contains(&file.path.as_str()) {
        return Vec::new();
    }
    let found: Vec<_> = file.lines().filter(|(_, line)| is_assembly(line)).collect();
    let is_listed = OTHERS.iter().any(|(place, _)| *place == file.path);
    match (is_listed, found.is_empty()) {
        (true, false) => Vec::new(),
        (true, true) => vec![Violation::new(&file.path, "is listed and has no assembly")],
        (false, _) => found
            .into_iter()
            .map(|(number, line)| {
                let place = format!("{}:{number}", file.path);
                Violation::new(
                    place,
                    format!("assembly outside {CRATE}: `{}`", line.trim()),
                )
            })
            .collect(),
    }
}

fn is_assembly(line: &str) -> bool {
    let code = line.split("//").next().unwrap_or_default();
    FORMS.iter().any(|form| {
        let mut places = code.match_indices(form);
        places.any(|(at, _)| {
            let before = code[..at].chars().next_back();
            !before.is_some_and(|before| before.is_alphanumeric() || before == '_')
        })
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn found(path: &str, text: &str) -> usize {
        violations(&TextFile::new(path, text)).len()
    }

    #[test]
    fn assembly_outside_its_crate_is_found() {
        for line in [
            "unsafe { asm!(\"nop\") };",
            "core::arch::asm!(",
            "global_asm!(",
            "    $(global_asm!(",
            "    naked_asm!(\"ret\")",
            "#[unsafe(naked)]",
        ] {
            assert_eq!(
                found("crates/raddle-engine/src/switch.rs", line),
                1,
                "{line}"
            );
            assert_eq!(found("crates/raddle-arch/src/x86_64/switch.rs", line), 0);
        }
    }

    #[test]
    fn other_lines_are_not() {
        for line in [
            "// asm! would be faster",
            "raddle_arch::first_instruction! {",
            "let sasm = disasm!(at);",
            "fn naked_eye() {}",
        ] {
            assert_eq!(
                found("crates/raddle-engine/src/switch.rs", line),
                0,
                "{line}"
            );
        }
    }

    #[test]
    fn a_listed_file_has_assembly() {
        let (place, _) = OTHERS[0];
        assert_eq!(found(place, "global_asm!(\nglobal_asm!(\n"), 0);
        assert_eq!(
            found(place, "fn main() {}\n"),
            1,
            "the list may only shrink"
        );
    }
}
