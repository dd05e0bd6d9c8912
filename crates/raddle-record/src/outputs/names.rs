//! Names as outputs show them.

use std::collections::{BTreeSet, HashMap};

use raddle_inspect::WaitKind;

use crate::profile::{Activity, Function, Origin, Profile, Sample, Thread};
use crate::text;

/// From so many different names on, numbers in names become stars, so that threads form groups.
const NAMES_MAX: usize = 64;

/// The name of what has none.
pub(super) const UNKNOWN: &str = "[unknown]";

/// Returns a name in one line, as a terminal may have it ([`text::plain`]). It is never empty.
pub(super) fn plain(name: &str) -> String {
    match name.trim() {
        "" => UNKNOWN.into(),
        trimmed => text::plain(trimmed),
    }
}

/// Returns a function's name.
pub(super) fn function(function: &Function) -> String {
    plain(&function.name)
}

/// Returns a function's name, marked if it is the kernel's: `[k]` is what flame graphs color.
pub(super) fn frame(function: &Function) -> String {
    let mut name = plain(&function.name);
    if function.origin == Origin::Kernel {
        name += "_[k]";
    }
    name
}

/// Returns a thread's name; that of one without a name has its id.
pub(super) fn thread(thread: &Thread) -> String {
    match plain(&thread.name) {
        name if name == UNKNOWN => format!("thread {}", thread.tid),
        name => name,
    }
}

/// Returns the name of the program: the last part of its path.
pub(super) fn program(profile: &Profile) -> String {
    let path = profile.command.first().map_or("", String::as_str);
    let name = path.rsplit('/').next().unwrap_or_default();
    match name.trim() {
        "" => format!("process {}", profile.pid),
        name => plain(name),
    }
}

/// The names of all threads by position, equal ones for threads of a group.
pub(super) struct ThreadNames {
    names: Vec<String>,
}

impl ThreadNames {
    /// Names with their numbers, as long as there are few.
    pub(super) fn of(profile: &Profile) -> ThreadNames {
        let names: Vec<String> = profile.threads.iter().map(thread).collect();
        let different: BTreeSet<&String> = names.iter().collect();
        if different.len() > NAMES_MAX {
            return ThreadNames::groups(profile);
        }
        ThreadNames { names }
    }

    /// Names in which each number is a star, if there are different numbers.
    pub(super) fn groups(profile: &Profile) -> ThreadNames {
        let names: Vec<String> = profile.threads.iter().map(thread).collect();
        let mut groups: HashMap<String, &String> = HashMap::new();
        let mut many: BTreeSet<String> = BTreeSet::new();
        for name in &names {
            let group = without_numbers(name);
            if *groups.entry(group.clone()).or_insert(name) != name {
                many.insert(group);
            }
        }
        let shown = |name: &String| match without_numbers(name) {
            group if many.contains(&group) => group,
            _ => name.clone(),
        };
        ThreadNames {
            names: names.iter().map(shown).collect(),
        }
    }

    /// The thread's name; those of a group are equal.
    pub(super) fn get(&self, thread: u32) -> &str {
        self.names
            .get(thread as usize)
            .map_or(UNKNOWN, String::as_str)
    }
}

/// Returns the name with a star in place of each number.
pub(super) fn without_numbers(name: &str) -> String {
    let mut text = String::with_capacity(name.len());
    for c in name.chars() {
        if !c.is_ascii_digit() {
            text.push(c);
        } else if !text.ends_with('*') {
            text.push('*');
        }
    }
    text
}

/// The names of objects.
pub(super) struct ObjectNames<'a> {
    names: HashMap<(WaitKind, u64), &'a str>,
}

impl<'a> ObjectNames<'a> {
    pub(super) fn of(profile: &'a Profile) -> ObjectNames<'a> {
        let named = |wait: &'a crate::profile::Wait| {
            let name = wait.name.as_deref()?;
            Some(((wait.kind, wait.object), name))
        };
        ObjectNames {
            names: profile.waits.iter().filter_map(named).collect(),
        }
    }

    /// Returns the object: its number, and its name if it has one; none if there is no object.
    pub(super) fn object(&self, kind: WaitKind, object: u64) -> Option<String> {
        let number = number(kind, object)?;
        let name = self.names.get(&(kind, object));
        Some(match name {
            Some(name) => format!("{number} ({})", plain(name)),
            None => number,
        })
    }

    /// Returns what a thread did, if it did not run: `waiting: mutex 0x55d0 (table_lock)`.
    pub(super) fn pause(&self, sample: &Sample) -> Option<String> {
        match sample.activity {
            Activity::Running => None,
            // The stack says it.
            Activity::WithoutCpu => None,
            Activity::Runnable | Activity::InKernel => Some(sample.activity.word()),
            Activity::Waiting(kind) => Some(match self.object(kind, sample.object) {
                Some(object) => format!("waiting: {} {object}", kind.word()),
                None => format!("waiting: {}", kind.word()),
            }),
        }
    }
}

/// Returns an object's number: an address, a descriptor or a count; none if there is no object.
pub(super) fn number(kind: WaitKind, object: u64) -> Option<String> {
    if kind.is_descriptor() {
        return Some(object.to_string());
    }
    match object {
        0 => None,
        _ if kind.is_address() => Some(format!("{object:#x}")),
        _ => Some(object.to_string()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_is_one_line_and_not_empty() {
        let escaped = "a\\nb\\u{1b}[31m\\u{202e}c";
        assert_eq!(plain("a\nb\u{1b}[31m\u{202e}c"), escaped);
        assert_eq!(plain(" \r\n"), UNKNOWN);
        assert_eq!(plain(""), UNKNOWN);
        assert_eq!(plain("größe<T>"), "größe<T>");
    }

    #[test]
    fn threads_are_grouped_from_65_names_on() {
        let threads = |count: u32| {
            let thread = |tid| Thread {
                tid,
                name: format!("worker-{tid}"),
                ..Thread::default()
            };
            ThreadNames::of(&Profile {
                threads: (0..count).map(thread).collect(),
                ..Profile::default()
            })
        };
        assert_eq!(threads(64).get(63), "worker-63");
        assert_eq!(threads(65).get(63), "worker-*");
        assert_eq!(threads(1).get(1), UNKNOWN);
        let mut threads = crate::outputs::samples::small().threads;
        threads[0].name = "main-2".into();
        let groups = ThreadNames::groups(&Profile {
            threads,
            ..Profile::default()
        });
        assert_eq!((groups.get(0), groups.get(9)), ("main-2", "worker-*"));
        assert_eq!(without_numbers("a12b3"), "a*b*");
    }

    #[test]
    fn an_object_is_an_address_a_descriptor_or_a_count() {
        assert_eq!(number(WaitKind::MUTEX, 0x5510).as_deref(), Some("0x5510"));
        assert_eq!(number(WaitKind::MUTEX, 0), None);
        assert_eq!(number(WaitKind::FD_READ, 0).as_deref(), Some("0"));
        assert_eq!(number(WaitKind::POLL, 12).as_deref(), Some("12"));
        assert_eq!(number(WaitKind::SLEEP, 0), None);
    }
}
