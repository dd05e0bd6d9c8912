//! The user-mode kernel reaches the program's memory only through its module `user`.
//!
//! An address from the program is a number there, and there are few ways to make a pointer of a
//! number. Each way is refused outside that module, except where the number is the kernel's or the
//! runtime's own: those places are listed here, with their count and the number's meaning.

use anyhow::Result;

use super::tree::TextFile;
use super::{Findings, Subject, Violation};

/// The crate's sources.
const CRATE: &str = "crates/raddle-kernel/src/";
/// The module that may make such pointers.
const USER: &str = "crates/raddle-kernel/src/user.rs";

/// Words of a line of code that make a pointer of a number, or bytes of anything.
const WAYS: [&str; 7] = [
    "with_exposed_provenance",
    "without_provenance",
    "from_exposed_addr",
    "transmute",
    " as *const ",
    " as *mut ",
    " asm!(",
];

/// The address of a function, which nothing is read from.
const FUNCTION: &str = " as *const () as ";

/// Numbers that aren't the program's: the file, the count, and their meaning.
const OWN: [(&str, usize, &str); 1] = [(
    "signal/entry.rs",
    3,
    "a frame that the kernel or the runtime laid out",
)];

pub(super) fn check(subject: &Subject<'_>) -> Result<Findings> {
    let is_checked = |file: &&TextFile| file.path.starts_with(CRATE) && file.path != USER;
    let files = subject.tree.files.iter().filter(is_checked);
    let mut findings = Findings {
        looked_at: 0,
        violations: Vec::new(),
    };
    for file in files {
        findings.looked_at += 1;
        findings.violations.extend(violations(file));
    }
    Ok(findings)
}

fn violations(file: &TextFile) -> Vec<Violation> {
    let name = file.path.strip_prefix(CRATE).unwrap_or(&file.path);
    let own = OWN.iter().find(|(place, ..)| *place == name);
    let allowed = own.map_or(0, |(_, count, _)| *count);
    let found: Vec<_> = file
        .lines()
        .filter(|(_, line)| makes_pointer(line))
        .collect();
    if found.len() < allowed {
        let what = format!(
            "{} of {allowed} listed ways to memory are left",
            found.len()
        );
        return vec![Violation::new(&file.path, what)];
    }
    let more = found.into_iter().skip(allowed);
    more.map(|(number, line)| {
        let place = format!("{}:{number}", file.path);
        Violation::new(
            place,
            format!("a number becomes a pointer: `{}`", line.trim()),
        )
    })
    .collect()
}

fn makes_pointer(line: &str) -> bool {
    let code = line.split("//").next().unwrap_or_default();
    let code = code.replace(FUNCTION, " ");
    !code.trim_start().starts_with("use ") && WAYS.iter().any(|way| code.contains(way))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn found(name: &str, text: &str) -> usize {
        violations(&TextFile::new(&format!("{CRATE}{name}"), text)).len()
    }

    #[test]
    fn a_number_that_becomes_a_pointer_is_found() {
        for line in [
            "let at = with_exposed_provenance::<u64>(frame.arg(1));",
            "let at = core::ptr::with_exposed_provenance_mut::<u8>(to);",
            "let value = unsafe { *(frame.arg(0) as *const u32) };",
            "let at = address as *mut u8;",
            "let at: &u32 = transmute(frame.arg(0));",
            "unsafe { asm!(\"mov eax, [rdi]\") };",
        ] {
            assert_eq!(found("ids.rs", line), 1, "{line}");
        }
    }

    #[test]
    fn other_lines_are_not() {
        for line in [
            "use core::ptr::with_exposed_provenance;",
            "// with_exposed_provenance would be a way",
            "let code = handler as *const () as usize;",
            "let at = (&raw const word).expose_provenance();",
            "global_asm!(",
            "let value = frame.user::<u64>(1).read();",
        ] {
            assert_eq!(found("ids.rs", line), 0, "{line}");
        }
    }

    #[test]
    fn a_listed_place_may_have_as_many_as_are_listed() {
        let line = "frame = core::ptr::with_exposed_provenance((*frame)[0]);\n";
        assert_eq!(found("signal/entry.rs", &line.repeat(3)), 0);
        assert_eq!(found("signal/entry.rs", &line.repeat(4)), 1);
        assert_eq!(
            found("signal/entry.rs", line),
            1,
            "the list may only shrink"
        );
        assert_eq!(found("entry.rs", line), 1);
    }
}
