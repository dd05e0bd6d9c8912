//! Waits by what ended them: the stack of the thread that waited, and on it that of the waker,
//! upside down. The innermost functions of both meet, so that a tower leads from the begin of the
//! waiting thread up to that of the waker.
//!
//! ```text
//! waiter;start_thread;take;[waiting: condvar 0x55d0];[woken by feeder];put;feed;start_thread 1200
//! waiter;start_thread;rest;[waiting: sleep];[woken by a timer] 3000
//! ```

use std::collections::BTreeMap;
use std::io::{self, Write};

use super::folded::{frame, microseconds};
use super::names::{self, ObjectNames, ThreadNames};
use crate::profile::{Activity, Profile, Sample, Waker, Waking};

/// Writes a line for each pair of stacks, with microseconds: as [`folded`](super::folded) does.
///
/// # Errors
/// Those of the output.
pub fn write(profile: &Profile, out: &mut dyn Write) -> io::Result<()> {
    let threads = ThreadNames::of(profile);
    let objects = ObjectNames::of(profile);
    let mut lines: BTreeMap<String, u128> = BTreeMap::new();
    for waking in &profile.wakings {
        let mut frames = vec![threads.get(waking.thread).to_owned()];
        frames.extend(profile.functions_of(waking.stack).map(names::frame));
        frames.extend(between(waking, &threads, &objects));
        if let Some(stack) = waker_stack(waking) {
            frames.extend(profile.functions_of(stack).rev().map(names::frame));
        }
        let frames: Vec<String> = frames.iter().map(|it| frame(it)).collect();
        *lines.entry(frames.join(";")).or_default() += u128::from(waking.weight_ns);
    }
    for (line, weight_ns) in lines {
        let weight_us = microseconds(weight_ns);
        if weight_us != 0 {
            writeln!(out, "{line} {weight_us}")?;
        }
    }
    Ok(())
}

/// Returns the frames between the two stacks.
pub(super) fn between(
    waking: &Waking,
    threads: &ThreadNames,
    objects: &ObjectNames<'_>,
) -> Vec<String> {
    let pause = objects.pause(&Sample {
        thread: waking.thread,
        activity: waking.activity,
        object: waking.object,
        stack: waking.stack,
        at_ns: 0,
        weight_ns: waking.weight_ns,
        count: 0,
    });
    let waker = match waking.waker {
        Waker::Thread { thread, .. } => format!("woken by {}", threads.get(thread)),
        _ => word(waking).into(),
    };
    let texts = pause.into_iter().chain([waker]);
    texts.map(|text| format!("[{text}]")).collect()
}

/// Returns the stack of the thread that ended the waits, if it is known.
pub(super) fn waker_stack(waking: &Waking) -> Option<u32> {
    match waking.waker {
        Waker::Thread { stack, .. } => stack,
        _ => None,
    }
}

/// Returns what ended a wait, if it was no thread of the process. The kernel doesn't say which
/// process has written to a descriptor, or has woken a word of shared memory.
pub(super) fn word(waking: &Waking) -> &'static str {
    const FUTEX: Activity = Activity::Waiting(raddle_inspect::WaitKind::FUTEX);
    match waking.waker {
        Waker::Thread { .. } => "woken by a thread",
        Waker::Timer => "woken by a timer",
        Waker::Kernel if waking.activity == FUTEX => {
            "woken by the kernel: another process, or a wake-up of shared memory"
        }
        Waker::Kernel => {
            "woken by the kernel: a descriptor is ready, by another process or this one, or a \
             transfer is done"
        }
        Waker::End => "woken by the end of a thread",
        Waker::None => "not woken yet",
        Waker::Unknown => "woken by a place that is not known",
    }
}

/// Returns true if the wait is a sleep, which ends by itself.
pub(super) fn is_sleep(waking: &Waking) -> bool {
    waking.activity == Activity::Waiting(raddle_inspect::WaitKind::SLEEP)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::outputs::samples;

    #[test]
    fn the_stacks_of_both_threads_meet() {
        let mut out = Vec::new();
        write(&samples::small(), &mut out).unwrap();
        let text = String::from_utf8(out).unwrap();
        let expected = "\
worker-1;start_thread;work;pthread_mutex_lock;[waiting: mutex 0x5510 (table_lock)];\
[woken by a timer] 100000
worker-1;start_thread;work;pthread_mutex_lock;[waiting: mutex 0x5510 (table_lock)];\
[woken by main];descend;descend;main 1000000
";
        assert_eq!(text, expected);
    }

    #[test]
    fn hostile_names_end_no_field_and_no_line() {
        for profile in samples::hostile() {
            let mut out = Vec::new();
            write(&profile, &mut out).unwrap();
            let text = String::from_utf8(out).unwrap();
            assert!(text.lines().count() <= profile.wakings.len());
            for line in text.lines() {
                let (stacks, weight) = line.rsplit_once(' ').unwrap();
                weight.parse::<u64>().unwrap();
                assert!(stacks.split(';').all(|frame| !frame.is_empty()), "{line:?}");
            }
        }
    }
}
