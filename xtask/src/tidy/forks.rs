//! Each lock that is a `static` has a reset for the child of a fork.
//!
//! A fork copies a lock that another thread holds, and its holder doesn't exist in the child. The
//! fields of a structure are safe from being forgotten, since a structure's reset destructures it
//! and names each field. No such function names all statics, which this check does.
//!
//! 1. A type is a lock if it is one of [`LOCKS`], or a structure with a field of such a type.
//! 2. A static of such a type must be reset in its file by one of [`RESETS`], or be listed in
//!    [`NEEDLESS`] with the reason.
//!
//! The initializers of the standard library (`Once`, `LazyLock`) are not checked.

use std::collections::BTreeMap;

use anyhow::Result;

use super::tree::TextFile;
use super::{Findings, Subject, Violation};

/// Locks that are made of words.
const LOCKS: [&str; 4] = ["SpinLock", "CountedLock", "Mutex", "RwLock"];

/// Calls on a static that make its locks free.
const RESETS: [&str; 3] = [".break_lock()", ".reset()", ".forget()"];

/// Crates inside the process. A fork copies their statics.
const CRATES: [&str; 12] = [
    "raddle",
    "raddle-c",
    "raddle-arch",
    "raddle-engine",
    "raddle-handles",
    "raddle-inspect",
    "raddle-interface",
    "raddle-kernel",
    "raddle-patch",
    "raddle-preload",
    "raddle-sched",
    "raddle-sys",
];

/// Statics that need no reset in their file: the file, the name and the reason.
const NEEDLESS: [(&str, &str, &str); 18] = [
    ("crates/raddle-c/src/cancel.rs", "SOURCES", VALUES),
    ("crates/raddle-c/src/completion.rs", "COMPLETIONS", VALUES),
    ("crates/raddle-c/src/engine.rs", "ENGINES", VALUES),
    ("crates/raddle-c/src/fiber.rs", "KEYS", UNSAFE),
    ("crates/raddle-c/src/fiber.rs", "COUNT", UNSAFE),
    ("crates/raddle-c/src/pool.rs", "POOLS", VALUES),
    ("crates/raddle-c/src/submit.rs", "TASKS", VALUES),
    ("crates/raddle-c/src/thread.rs", "THREADS", VALUES),
    ("crates/raddle-c/src/work.rs", "WATCHES", VALUES),
    (
        "crates/raddle-engine/src/state/process.rs",
        "PROCESS",
        FIELDS,
    ),
    ("crates/raddle-preload/src/environment.rs", "COPIES", ALONE),
    ("crates/raddle-preload/src/start.rs", "WAITING", ALONE),
    ("crates/raddle-preload/src/tripwires.rs", "SET", ALONE),
    ("crates/raddle/src/light/group.rs", "GROUP", FIELDS),
    (
        "crates/raddle/src/light/stack.rs",
        "CLASSES",
        "held by the thread that forks",
    ),
    ("crates/raddle/src/pool/context.rs", "CALLBACKS", UNSAFE),
    ("crates/raddle/src/pool/memory.rs", "LAST", UNSAFE),
    (
        "crates/raddle/src/thread/reuse/images.rs",
        "MAKER",
        "tried, and never waited for",
    ),
];

const VALUES: &str = "a table without a lock; each of its values has its own";
const UNSAFE: &str = "taken by functions that a child of several threads may not call (POSIX)";
const FIELDS: &str = "a method of its type destructures it";
const ALONE: &str = "taken by the process's only thread";

pub(super) fn check(subject: &Subject<'_>) -> Result<Findings> {
    let files: Vec<_> = subject
        .tree
        .files
        .iter()
        .filter(|it| is_checked(it))
        .collect();
    Ok(findings(&files, &NEEDLESS))
}

fn is_checked(file: &TextFile) -> bool {
    let is_test = file.path.ends_with("/tests.rs") || file.path.contains("/tests/");
    let name = file.path.split('/').nth(1);
    file.is_crate_source() && !is_test && name.is_some_and(|name| CRATES.contains(&name))
}

fn findings(files: &[&TextFile], needless: &[(&str, &str, &str)]) -> Findings {
    let locks = Locks::find(files);
    let mut unused: Vec<_> = needless.to_vec();
    let mut findings = Findings {
        looked_at: 0,
        violations: Vec::new(),
    };
    for file in files {
        for (number, name) in static_locks(file, &locks) {
            findings.looked_at += 1;
            if RESETS.iter().any(|reset| resets(file, &name, reset)) {
                continue;
            }
            let listed = unused.len();
            unused.retain(|(path, listed, _)| (*path, *listed) != (file.path.as_str(), &name));
            if unused.len() == listed {
                let what = format!("the child of a fork doesn't reset the lock {name}");
                let place = format!("{}:{number}", file.path);
                findings.violations.push(Violation::new(place, what));
            }
        }
    }
    let gone = unused.iter().map(|(path, name, _)| {
        Violation::new(
            *path,
            format!("{name}, listed as needing no reset, is gone or reset"),
        )
    });
    findings.violations.extend(gone);
    findings
}

/// The code of a file, without its comments and tests.
fn code(file: &TextFile) -> impl Iterator<Item = (usize, &str)> {
    let lines = file.lines().take_while(|(_, line)| !is_test_gate(line));
    lines.map(|(number, line)| (number, line.split("//").next().unwrap_or_default()))
}

fn is_test_gate(line: &str) -> bool {
    line.starts_with("#[cfg(test)]") || line.starts_with("#[cfg(all(test")
}

fn resets(file: &TextFile, name: &str, reset: &str) -> bool {
    let call = format!("{name}{reset}");
    code(file).any(|(_, line)| line.contains(&call))
}

/// Lines and names of the statics of types that have a lock in them.
fn static_locks(file: &TextFile, locks: &Locks) -> Vec<(usize, String)> {
    let declared = code(file).filter_map(|(number, line)| {
        let (before, rest) = line.split_once("static ")?;
        let is_item = matches!(before.trim(), "" | "pub" | "pub(crate)" | "pub(super)");
        let (name, kind) = rest.split_once(':')?;
        let kind = kind.split(['=', '&', '*']).next()?; // what is pointed to is another's
        let is_lock = is_item && locks.has_one(crate_of(file), kind);
        is_lock.then(|| (number, name.trim().to_owned()))
    });
    declared.collect()
}

fn crate_of(file: &TextFile) -> &str {
    file.path.split('/').nth(1).unwrap_or_default()
}

/// The structures, by crate and name, and whether they are locks or have one among their fields.
struct Locks(BTreeMap<(String, String), bool>);

impl Locks {
    fn find(files: &[&TextFile]) -> Locks {
        let mut fields = Vec::new();
        for file in files {
            for (name, text) in structures(file) {
                fields.push(((crate_of(file).to_owned(), name), text));
            }
        }
        let names = fields.iter().map(|(name, _)| (name.clone(), false));
        let mut locks = Locks(names.collect());
        loop {
            let is_new = |(name, text): &&((String, String), String)| {
                !locks.0[name] && locks.has_one(&name.0, text)
            };
            let more: Vec<_> = fields
                .iter()
                .filter(is_new)
                .map(|it| it.0.clone())
                .collect();
            if more.is_empty() {
                return locks;
            }
            locks.0.extend(more.into_iter().map(|name| (name, true)));
        }
    }

    /// Returns whether the types in `text`, which is of the crate `own`, have a lock. A name means
    /// the crate's own structure if there is one, else any of another crate.
    fn has_one(&self, own: &str, text: &str) -> bool {
        names(text).any(|name| {
            let here = self.0.get(&(own.to_owned(), name.to_owned()));
            let elsewhere = || self.0.iter().any(|(of, is_lock)| of.1 == name && *is_lock);
            LOCKS.contains(&name) || here.copied().unwrap_or_else(elsewhere)
        })
    }
}

/// Names of structures, and the text of their fields. References own no lock: a line with one is
/// left out.
fn structures(file: &TextFile) -> Vec<(String, String)> {
    let mut found: Vec<(String, String)> = Vec::new();
    let mut is_inside = false;
    for (_, line) in code(file) {
        if let Some((_, rest)) = line.split_once("struct ") {
            let name = names(rest).next().unwrap_or_default().to_owned();
            let fields = rest.split_once('(').map_or("", |(_, fields)| fields);
            is_inside = !rest.contains(';') && !rest.contains('}');
            found.push((name, fields.to_owned()));
        } else if line.starts_with('}') || line.starts_with(");") {
            is_inside = false;
        } else if let Some((_, fields)) = found.last_mut()
            && is_inside
            && !line.contains('&')
            && !line.contains('*')
        {
            fields.push_str(line.split_once(": ").map_or("", |(_, kind)| kind));
            fields.push(' ');
        }
    }
    found
}

fn names(text: &str) -> impl Iterator<Item = &str> {
    let is_part = |c: char| c.is_alphanumeric() || c == '_';
    text.split(move |c| !is_part(c))
        .filter(|name| !name.is_empty())
}

#[cfg(test)]
mod tests {
    use super::*;

    const FILE: &str = "crates/raddle-kernel/src/some.rs";

    fn found(text: &str, needless: &[(&str, &str, &str)]) -> usize {
        let file = TextFile::new(FILE, text);
        findings(&[&file], needless).violations.len()
    }

    #[test]
    fn a_static_lock_without_a_reset_is_found() {
        for text in [
            "static TABLE: SpinLock<[Row; 4]> = SpinLock::new([ROW; 4]);\n",
            "pub(crate) static TABLE: CountedLock<u32> =\n",
            "struct Inner(SpinLock<u8>);\nstruct Outer {\n    /// It.\n    inner: Inner,\n}\n\
             static TABLE: Outer = Outer::new();\n",
            "static TABLE: SpinLock<u8> = SpinLock::new(0);\n// TABLE.break_lock()\n",
        ] {
            assert_eq!(found(text, &[]), 1, "{text}");
        }
    }

    #[test]
    fn one_with_a_reset_and_what_is_no_lock_are_not() {
        for text in [
            "static TABLE: SpinLock<u8> = SpinLock::new(0);\nunsafe { TABLE.break_lock() };\n",
            "struct Borrowed<'a> {\n    lock: &'a SpinLock<u8>,\n}\nstatic TABLE: Borrowed = IT;\n",
            "static COUNT: AtomicU32 = AtomicU32::new(0);\n",
            "#[cfg(test)]\nstatic TABLE: SpinLock<u8> = SpinLock::new(0);\n",
        ] {
            assert_eq!(found(text, &[]), 0, "{text}");
        }
    }

    #[test]
    fn the_list_has_no_more_than_is_there() {
        let listed = [(FILE, "TABLE", "held by no thread that forks")];
        let lock = "static TABLE: SpinLock<u8> = SpinLock::new(0);\n";
        assert_eq!(found(lock, &listed), 0);
        assert_eq!(found("", &listed), 1);
        assert_eq!(found(&format!("{lock}TABLE.break_lock();\n"), &listed), 1);
    }
}
