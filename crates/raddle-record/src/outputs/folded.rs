//! Folded stacks: a line for each stack, `thread;main;work;lock;[waiting: mutex 0x55d0] 1234`.
//!
//! It is the input of `flamegraph.pl`, inferno, speedscope and many scripts. The first frame is the
//! thread's name, as with `perf`. What the thread did, if it did not run, is the innermost frame in
//! brackets: functions stay one tower, on CPU and off it, and `grep -v '\]$\|\] '` leaves what ran.
//! The weight is microseconds. Lines are in the order of their text, so that two files can be
//! compared.
//!
//! A `;` in a name becomes a `:`. From 65 different thread names on, numbers in them become `*`.

use std::collections::BTreeMap;
use std::io::{self, Write};

use super::names::{self, ObjectNames, ThreadNames};
use crate::profile::{Profile, Sample};

/// What a line says of waits.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum Objects {
    /// Also the object.
    Named,
    /// The kind alone: addresses differ between two processes.
    Kinds,
}

/// Writes a line for each stack.
///
/// # Errors
/// Those of the output.
pub fn write(profile: &Profile, out: &mut dyn Write) -> io::Result<()> {
    for (stack, weight_ns) in stacks(profile, Objects::Named, |_| true) {
        let weight_us = microseconds(weight_ns);
        if weight_us != 0 {
            writeln!(out, "{stack} {weight_us}")?;
        }
    }
    Ok(())
}

/// Returns each stack's text with the time, in nanoseconds, for which it stands; of those samples
/// that count.
pub fn stacks(
    profile: &Profile,
    objects: Objects,
    counts: impl Fn(&Sample) -> bool,
) -> BTreeMap<String, u128> {
    let threads = ThreadNames::of(profile);
    let names = ObjectNames::of(profile);
    let functions: Vec<String> = profile
        .functions
        .iter()
        .map(|function| frame(&names::frame(function)))
        .collect();
    let mut lines = BTreeMap::new();
    for sample in profile.samples.iter().filter(|sample| counts(sample)) {
        let mut line = frame(threads.get(sample.thread));
        let stack = profile.stacks.get(sample.stack as usize);
        for &function in stack.into_iter().flatten() {
            if let Some(name) = functions.get(function as usize) {
                line.push(';');
                line += name;
            }
        }
        if let Some(pause) = pause(&names, sample, objects) {
            line += &format!(";[{}]", frame(&pause));
        }
        let sum: &mut u128 = lines.entry(line).or_default();
        *sum += u128::from(sample.weight_ns);
    }
    lines
}

fn pause(names: &ObjectNames<'_>, sample: &Sample, objects: Objects) -> Option<String> {
    let without_object = Sample {
        object: 0,
        ..*sample
    };
    match (objects, sample.activity) {
        (Objects::Kinds, crate::profile::Activity::Waiting(kind)) => {
            Some(format!("waiting: {}", kind.word()))
        }
        (Objects::Kinds, _) => names.pause(&without_object),
        (Objects::Named, _) => names.pause(sample),
    }
}

/// Returns the nearest number of microseconds that readers of such files can add.
pub fn microseconds(ns: u128) -> u64 {
    u64::try_from(ns.saturating_add(500) / 1000).unwrap_or(u64::MAX)
}

/// Returns a name that ends no frame.
pub(super) fn frame(name: &str) -> String {
    name.replace(';', ":")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::outputs::samples;

    fn text(profile: &Profile) -> String {
        let mut out = Vec::new();
        write(profile, &mut out).unwrap();
        String::from_utf8(out).unwrap()
    }

    #[test]
    fn a_line_has_the_thread_the_stack_and_what_kept_the_thread() {
        let expected = "\
main;main;descend;descend 30000
main;main;read;ksys_read_[k];[in kernel] 60000
worker-1;start_thread;work 10000
";
        let text = text(&samples::small());
        assert!(text.starts_with(expected), "{text}");
        let waits = text
            .lines()
            .filter(|line| line.ends_with("[waiting: mutex 0x5510 (table_lock)] 1100000"));
        assert_eq!(waits.count(), 9);
    }

    #[test]
    fn a_comparison_needs_no_addresses() {
        let stacks = stacks(&samples::small(), Objects::Kinds, |_| true);
        let wait = "worker-9;start_thread;work;pthread_mutex_lock;[waiting: mutex]";
        assert_eq!(stacks[wait], 1_100_000_000);
    }

    #[test]
    fn hostile_names_end_no_field_and_no_line() {
        for profile in samples::hostile() {
            let text = text(&profile);
            let all = stacks(&profile, Objects::Named, |_| true).len();
            assert!(text.lines().count() <= all);
            for line in text.lines() {
                let (stack, weight) = line.rsplit_once(' ').unwrap();
                weight.parse::<u64>().unwrap();
                assert!(stack.split(';').all(|frame| !frame.is_empty()), "{line:?}");
            }
        }
    }

    #[test]
    fn equal_profiles_have_equal_texts() {
        let mut reversed = samples::small();
        let first = text(&reversed);
        reversed.samples.reverse();
        assert_eq!(text(&reversed), first);
    }
}
