//! Directions between the modules of a crate: a *room*, which is a top-level module with its
//! folder, may name only the rooms that stand beside it in the crate's list.
//!
//! The lists are in order: a room's allowed rooms stand above it, so that no circle of modules is
//! longer than a room. A name counts where it stands in code, in a `use` or in a macro's arguments;
//! one in a comment does not.

use anyhow::{Context, Result};
use proc_macro2::{Delimiter, TokenStream, TokenTree};
use std::collections::BTreeSet;

use super::tree::TextFile;
use super::{Findings, Subject, Violation};

type Room = (&'static str, &'static [&'static str]);

/// The crates with rooms, and the rooms that each of their rooms may name.
const CRATES: &[(&str, &[Room])] = &[
    ("raddle-sched", SCHED),
    ("raddle-engine", ENGINE),
    ("raddle-kernel", KERNEL),
];

/// The rooms of the scheduler; its `lib.rs` says what is in each.
const SCHED: &[Room] = &[
    ("sync", &[]),
    ("task", &["sync"]),
    ("order", &["sync", "task"]),
    ("queue", &["order", "sync", "task"]),
    ("wait", &["sync", "task"]),
    ("wake", &["sync"]),
    ("pace", &[]),
    ("count", &["sync", "wake"]),
    ("kernel_threads", &["sync", "task", "wake"]),
    ("signals", &["sync", "task"]),
];

/// The rooms of the engine; its `lib.rs` says what is in each.
const ENGINE: &[Room] = &[
    ("os", &[]),
    ("state", &["os"]),
    ("kernel_threads", &["os", "state"]),
    ("kernel_events", &["kernel_threads", "state"]),
    (
        "scheduling",
        &["kernel_events", "kernel_threads", "os", "state"],
    ),
    ("io", &["kernel_threads", "os", "scheduling", "state"]),
    ("inspect", &["kernel_threads", "os", "scheduling", "state"]),
    (
        "sysmon",
        &[
            "inspect",
            "kernel_events",
            "kernel_threads",
            "os",
            "scheduling",
            "state",
        ],
    ),
    (
        "start",
        &["inspect", "kernel_threads", "scheduling", "state"],
    ),
];

/// The rooms of the user-mode kernel; its `lib.rs` says what is in each.
const KERNEL: &[Room] = &[
    ("mode", &[]),
    ("line", &[]),
    ("user", &["mode"]),
    ("frame", &["user"]),
    ("callers", &["frame", "user"]),
    ("kernel_threads", &["frame"]),
    ("clocks", &["frame", "user"]),
    ("rules", &[]),
    ("words", &["frame", "user"]),
    ("scheduling", &["frame", "kernel_threads", "user"]),
    (
        "signal",
        &[
            "callers",
            "clocks",
            "frame",
            "kernel_threads",
            "line",
            "mode",
            "scheduling",
            "user",
            "words",
        ],
    ),
    ("futex", &["clocks", "frame", "signal", "user", "words"]),
    (
        "time",
        &["clocks", "frame", "mode", "scheduling", "signal", "user"],
    ),
    ("memory", &["callers", "frame", "kernel_threads", "user"]),
    (
        "task",
        &[
            "callers",
            "frame",
            "kernel_threads",
            "line",
            "memory",
            "mode",
            "rules",
            "scheduling",
            "signal",
            "user",
            "words",
        ],
    ),
    ("procfs", &["frame", "line", "mode", "task", "user"]),
    (
        "fd",
        &[
            "clocks", "frame", "memory", "mode", "procfs", "signal", "task", "user",
        ],
    ),
    (
        "table",
        &[
            "clocks",
            "fd",
            "frame",
            "futex",
            "kernel_threads",
            "memory",
            "procfs",
            "scheduling",
            "signal",
            "task",
            "time",
            "words",
        ],
    ),
    ("entry", &["frame", "signal", "table", "task"]),
];

pub(super) fn check(subject: &Subject<'_>) -> Result<Findings> {
    let mut findings = Findings {
        looked_at: 0,
        violations: Vec::new(),
    };
    for (name, rooms) in CRATES {
        let folder = format!("crates/{name}/src/");
        let files = subject.tree.files.iter();
        let files: Vec<_> = files
            .filter(|file| file.path.starts_with(&folder) && file.extension() == "rs")
            .collect();
        findings.looked_at += files.len();
        for file in &files {
            findings
                .violations
                .extend(violations(file, &folder, rooms)?);
        }
        let missing = rooms.iter().filter(|(room, _)| {
            let path = format!("{folder}{room}.rs");
            !files.iter().any(|file| file.path == path)
        });
        findings.violations.extend(
            missing.map(|(room, _)| Violation::new(*name, format!("the room {room} is missing"))),
        );
    }
    Ok(findings)
}

fn violations(file: &TextFile, folder: &str, rooms: &[Room]) -> Result<Vec<Violation>> {
    let path = file.path.trim_start_matches(folder).trim_end_matches(".rs");
    let here: Vec<_> = path.split('/').map(str::to_owned).collect();
    let own = here[0].as_str();
    if path == "lib" {
        return Ok(Vec::new());
    }
    let Some((_, allowed)) = rooms.iter().find(|(room, _)| *room == own) else {
        let what = "is in no room: add it to the list of its crate";
        return Ok(vec![Violation::new(&*file.path, what)]);
    };
    let tokens: TokenStream = file
        .text
        .parse()
        .map_err(|error| anyhow::anyhow!("{error}"))
        .with_context(|| format!("{} is no Rust", file.path))?;
    let mut named = BTreeSet::new();
    collect(tokens, &here, &mut named);
    let wrong = named
        .iter()
        .filter(|name| *name != own && !allowed.contains(&name.as_str()));
    Ok(wrong
        .map(|name| Violation::new(&*file.path, format!("the room {own} must not name {name}")))
        .collect())
}

/// Collects the first parts of paths from the crate's root. `here` is the module of the tokens.
fn collect(tokens: TokenStream, here: &[String], named: &mut BTreeSet<String>) {
    let tokens: Vec<_> = tokens.into_iter().collect();
    let mut at = 0;
    while at < tokens.len() {
        let rest = &tokens[at..];
        at += 1;
        match &tokens[at - 1] {
            TokenTree::Ident(word) if word == "mod" => {
                if let [_, TokenTree::Ident(name), TokenTree::Group(body), ..] = rest {
                    let inner = [here, &[name.to_string()]].concat();
                    collect(body.stream(), &inner, named);
                    at += 2;
                }
            }
            TokenTree::Ident(word) if word == "crate" => note_root(&rest[1..], named),
            TokenTree::Ident(word) if word == "super" => {
                let mut up = 1;
                let mut tail = &rest[1..];
                while let Some(behind) = after_colons(tail)
                    && matches!(behind.first(), Some(TokenTree::Ident(word)) if word == "super")
                {
                    up += 1;
                    at += 3; // two colons and the word
                    tail = &behind[1..];
                }
                if up == here.len() {
                    note_root(tail, named);
                }
            }
            TokenTree::Group(group) => collect(group.stream(), here, named),
            _ => {}
        }
    }
}

/// Notes what follows a path's root: `::name`, or `::{name, ...}`.
fn note_root(tail: &[TokenTree], named: &mut BTreeSet<String>) {
    match after_colons(tail).and_then(<[_]>::first) {
        Some(TokenTree::Ident(name)) => _ = named.insert(name.to_string()),
        Some(TokenTree::Group(group)) if group.delimiter() == Delimiter::Brace => {
            let mut is_first = true;
            for token in group.stream() {
                if let TokenTree::Ident(name) = &token
                    && is_first
                {
                    named.insert(name.to_string());
                }
                is_first = matches!(&token, TokenTree::Punct(mark) if mark.as_char() == ',');
            }
        }
        _ => {}
    }
}

fn after_colons(tokens: &[TokenTree]) -> Option<&[TokenTree]> {
    match tokens {
        [TokenTree::Punct(a), TokenTree::Punct(b), rest @ ..]
            if a.as_char() == ':' && b.as_char() == ':' =>
        {
            Some(rest)
        }
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const ROOMS: &[Room] = &[("low", &[]), ("high", &["low"])];

    fn wrong(path: &str, text: &str) -> Vec<String> {
        let file = TextFile::new(&format!("src/{path}"), text);
        let found = violations(&file, "src/", ROOMS).unwrap();
        found.into_iter().map(|violation| violation.what).collect()
    }

    #[test]
    fn a_name_from_below_is_allowed_and_one_from_above_is_found() {
        let text = "use crate::low::a;\nfn f() { crate::low::b() }\n";
        assert!(wrong("high.rs", text).is_empty());
        for text in [
            "use crate::high::a;",
            "use crate::{low, high::a};",
            "fn f() { crate::high::b() }",
            "call!(crate::high::b);",
            "use super::high;",
        ] {
            assert_eq!(wrong("low.rs", text), ["the room low must not name high"]);
        }
        assert_eq!(wrong("low/part.rs", "use super::super::high;").len(), 1);
        assert_eq!(wrong("other.rs", "").len(), 1);
    }

    #[test]
    fn comments_and_the_own_room_are_free() {
        let text = "/// As [`crate::high`].\nuse crate::low::a;\nmod tests { use super::high; }\n";
        assert!(wrong("low.rs", text).is_empty());
        assert!(wrong("low/part.rs", "use super::high;").is_empty());
        assert!(wrong("lib.rs", "use crate::high::a;").is_empty());
    }

    #[test]
    fn the_lists_have_no_circle() {
        for (name, rooms) in CRATES {
            for (index, (room, allowed)) in rooms.iter().enumerate() {
                for lower in *allowed {
                    let position = rooms.iter().position(|(other, _)| other == lower);
                    let is_above = position.is_some_and(|position| position < index);
                    assert!(is_above, "{name}: {room} -> {lower}");
                }
            }
        }
    }
}
