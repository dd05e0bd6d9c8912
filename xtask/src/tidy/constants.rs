//! Numbers of Linux's interface are named by `linux-raw-sys`, not copied.
//!
//! In the crates inside the process, a system call's number is a name, and a constant with a name
//! of Linux's is defined by that crate's constant (`raddle_sys::nr`, `raddle_sys::errno`), if need
//! be with a cast. Names of Linux's are told by their beginnings. A constant that is nothing but
//! one of Linux's, with or without a cast, has Linux's full name.

use anyhow::Result;

use super::tree::TextFile;
use super::{Findings, Subject, Violation};

/// Crates inside the process.
const CRATES: [&str; 6] = ["sys", "arch", "engine", "kernel", "patch", "preload"];

/// Those of them in which a constant of Linux's has Linux's name.
const NAMED: [&str; 5] = ["sys", "arch", "kernel", "patch", "preload"];

/// Beginnings of Linux's names.
const BEGINNINGS: [&str; 26] = [
    "AT_FDCWD", "CLD_", "CLOCK_", "CLONE_", "EPOLL_", "FUTEX_", "F_", "GRND_", "MADV_", "MAP_",
    "MFD_", "MREMAP_", "O_", "POLLIN", "PRIO_", "PROT_", "RLIMIT_", "RWF_", "SA_", "SCHED_",
    "SIGBUS", "SIGSEGV", "SI_", "SS_", "TIMER_", "WNOHANG",
];

/// Names of ours that begin likewise.
const OURS: [&str; 5] = [
    "FUTEX_ROWS",
    "SCHED_CORE",
    "CLONE_LEN",
    "CLONE_COUNT",
    "TIMER_CREATE",
];

pub(super) fn check(subject: &Subject<'_>) -> Result<Findings> {
    let files = subject.tree.files.iter().filter(|file| is_checked(file));
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

fn is_checked(file: &TextFile) -> bool {
    file.is_crate_source() && is_in(file, &CRATES)
}

fn is_in(file: &TextFile, crates: &[&str]) -> bool {
    let folder = |name: &str| file.path.starts_with(&format!("crates/raddle-{name}/src/"));
    crates.iter().any(|name| folder(name))
}

fn violations(file: &TextFile) -> Vec<Violation> {
    let is_named = is_in(file, &NAMED);
    let found = file.lines().filter_map(|(number, line)| {
        let code = line.split("//").next().unwrap_or_default();
        let what = if has_bare_number(code) {
            "a system call is named by its number".to_owned()
        } else if let Some(name) = copied(code) {
            format!("{name} is linux-raw-sys's, and copied here")
        } else {
            let (name, full) = renamed(code).filter(|_| is_named)?;
            format!("{name} is Linux's {full}")
        };
        Some(Violation::new(format!("{}:{number}", file.path), what))
    });
    found.collect()
}

fn has_bare_number(code: &str) -> bool {
    ["sys!(", "syscall6("].iter().any(|call| {
        let mut rest = code.split(call).skip(1);
        rest.any(|rest| rest.starts_with(|c: char| c.is_ascii_digit()))
    })
}

/// The constant that a line defines by a literal although the name is Linux's.
fn copied(code: &str) -> Option<&str> {
    let (name, value) = code.split_once("const ")?.1.split_once(": ")?;
    let value = value.split_once(" = ")?.1.trim_start_matches('-');
    let is_literal = value.starts_with(|c: char| c.is_ascii_digit());
    let is_linuxs = BEGINNINGS
        .iter()
        .any(|beginning| name.starts_with(beginning));
    (is_literal && is_linuxs && !OURS.contains(&name)).then_some(name)
}

/// The constant that a line defines by one of Linux's with another name, and that name.
fn renamed(code: &str) -> Option<(&str, &str)> {
    let (name, value) = code.split_once("const ")?.1.split_once(": ")?;
    let value = value.split_once(" = ")?.1.trim_end().strip_suffix(';')?;
    let value = value.strip_prefix("raddle_sys::").unwrap_or(value);
    let full = value.strip_prefix("nr::")?.split(" as ").next()?;
    let is_plain = full.chars().all(|c| c.is_alphanumeric() || c == '_');
    (is_plain && full != name).then_some((name, full))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn found(line: &str) -> usize {
        violations(&TextFile::new("crates/raddle-kernel/src/some.rs", line)).len()
    }

    #[test]
    fn copied_numbers_are_found() {
        for line in [
            "unsafe { sys!(231, 0usize) };",
            "unsafe { syscall6(39, [0; 6]) };",
            "pub(crate) const CLONE_VM: u64 = 0x100;",
            "    const O_CLOEXEC: usize = 0o2000000;",
            "const SI_TKILL: i32 = -6;",
            "const TKILL: i32 = raddle_sys::nr::SI_TKILL;",
            "    const WAIT: usize = nr::FUTEX_WAIT as usize;",
        ] {
            assert_eq!(found(line), 1, "{line}");
        }
    }

    #[test]
    fn names_are_not() {
        for line in [
            "unsafe { sys!(nr::__NR_exit_group, 0usize) };",
            "const CLONE_VM: u64 = nr::CLONE_VM as u64;",
            "const CLONE_FLAGS: [u64; 2] = [nr::CLONE_VM as u64; 2];",
            "const OWN: usize = 4096;",
            "// sys!(231) would be exit_group",
        ] {
            assert_eq!(found(line), 0, "{line}");
        }
    }
}
