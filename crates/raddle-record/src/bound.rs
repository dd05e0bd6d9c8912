//! Threads that wait in the kernel on their carriers, of which no event says so: by the events,
//! they run. Bound threads do so always, others while nothing else needs their carriers.
//!
//! The kernel counts how long a bound thread's kernel thread executed and waited for a CPU. The
//! rest of the time for which it ran or was runnable, it waited in the kernel.
//!
//! The sum is exact but for a part of the run delay that isn't known to be before or after the
//! moment at which the thread began to run. Stacks, read now and then, divide it among places.

use std::collections::HashMap;

use crate::history::{Doing, Position, Span, StackNumber, Told, Total};
use crate::profile::Activity;

/// What the kernel has counted of a bound thread's kernel thread while it was recorded.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct KernelCounts {
    pub cpu_ns: u64,
    /// The time for which it waited for a CPU.
    pub delay_ns: u64,
    /// How often it began to wait.
    pub waits: u64,
    /// For how long the kernel thread was followed.
    pub followed_ns: u64,
}

/// A look at a thread that waited in the kernel.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct KernelWait {
    pub thread: Position,
    pub stack: StackNumber,
    /// By CLOCK_BOOTTIME.
    pub at_ns: u64,
    /// For how long the same wait was seen.
    pub ns: u64,
    /// The time for which the look stands.
    pub stands_for_ns: u64,
}

/// Moves the time that bound threads have waited in the kernel from the time for which they ran.
pub fn move_kernel_waits(
    told: &mut Told,
    counts: &HashMap<Position, KernelCounts>,
    waits: &[KernelWait],
) {
    let mut moved: HashMap<Position, u64> = HashMap::new();
    for (&thread, counts) in counts {
        let times = told.threads.get(thread as usize);
        let running = told.totals.get(&doing(thread, Activity::Running));
        let (Some(times), Some(running)) = (times, running) else {
            continue;
        };
        // A wake-up takes a part of the run delay, in which the thread is runnable.
        let delay_ns = counts.delay_ns.saturating_sub(times.runnable_ns);
        let used_ns = counts.cpu_ns.saturating_add(delay_ns);
        let most_ns = counts.followed_ns.saturating_sub(counts.cpu_ns);
        let ns = running.ns.saturating_sub(used_ns).min(most_ns);
        let count = counts.waits.saturating_sub(times.turns).max(1);
        if move_time(told, thread, ns, count) {
            moved.insert(thread, ns);
        }
    }
    add_spans(told, &moved, waits);
}

/// Moves the time that other threads have waited in the kernel on their carriers, as looks have
/// found it, from the time for which they ran.
///
/// A carrier of which nothing else needs the CPU is not replaced, and no event says that its thread
/// waits.
pub fn move_seen_waits(told: &mut Told, waits: &[KernelWait]) {
    let mut found: HashMap<Position, (u64, u64)> = HashMap::new();
    for wait in waits {
        let (ns, count) = found.entry(wait.thread).or_default();
        *ns += wait.stands_for_ns;
        *count += 1;
    }
    let mut moved = HashMap::new();
    for (thread, (found_ns, count)) in found {
        let ran = told.totals.get(&doing(thread, Activity::Running));
        let ns = found_ns.min(ran.map_or(0, |ran| ran.ns));
        if move_time(told, thread, ns, count) {
            moved.insert(thread, ns);
        }
    }
    add_spans(told, &moved, waits);
}

fn doing(thread: Position, activity: Activity) -> Doing {
    Doing {
        thread,
        activity,
        object: 0,
    }
}

/// Moves a time of a thread, in so many waits. Returns false if it is 0, or no such thread ran.
fn move_time(told: &mut Told, thread: Position, ns: u64, count: u64) -> bool {
    let times = told.threads.get_mut(thread as usize);
    let running = told.totals.get_mut(&doing(thread, Activity::Running));
    let (Some(times), Some(running)) = (times, running) else {
        return false;
    };
    if ns == 0 {
        return false;
    }
    running.ns -= ns;
    times.running_ns = times.running_ns.saturating_sub(ns);
    times.in_kernel_ns += ns;
    let first_ns = running.first_ns;
    let total = told.totals.entry(doing(thread, Activity::InKernel));
    let total = total.or_insert(Total {
        first_ns,
        ..Total::default()
    });
    total.ns += ns;
    total.count += count;
    true
}

/// Adds the looks at threads of which so much time was moved.
fn add_spans(told: &mut Told, moved: &HashMap<Position, u64>, waits: &[KernelWait]) {
    for wait in waits {
        let Some(&all_ns) = moved.get(&wait.thread) else {
            continue;
        };
        let doing = doing(wait.thread, Activity::InKernel);
        if let Some(total) = told.totals.get_mut(&doing) {
            total.longest_ns = total.longest_ns.max(wait.ns.min(all_ns));
        }
        told.spans.push(Span {
            doing,
            stack: wait.stack,
            from_ns: wait.at_ns,
            ns: wait.ns,
            stands_for_ns: wait.stands_for_ns as f64,
        });
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::profile::Thread;

    fn told(running_ns: u64, runnable_ns: u64) -> Told {
        let mut told = Told {
            threads: vec![Thread {
                running_ns,
                runnable_ns,
                turns: 2,
                ..Thread::default()
            }],
            totals: Default::default(),
            ended: Default::default(),
            wakers: Default::default(),
            holds: Default::default(),
            spans: Vec::new(),
            dropped_spans: 0,
        };
        let running = Doing {
            thread: 0,
            activity: Activity::Running,
            object: 0,
        };
        let total = Total {
            ns: running_ns,
            count: 2,
            longest_ns: running_ns,
            first_ns: 7,
        };
        told.totals.insert(running, total);
        told
    }

    fn total(told: &Told, activity: Activity) -> Total {
        let is_it = |(doing, _): &(&Doing, &Total)| doing.activity == activity;
        let found = told.totals.iter().find(is_it);
        found.map_or(Total::default(), |(_, total)| *total)
    }

    #[test]
    fn what_a_thread_neither_executed_nor_wanted_to_it_waited_in_the_kernel() {
        let mut told = told(1000, 50);
        let counts = KernelCounts {
            cpu_ns: 300,
            delay_ns: 80,
            waits: 9,
            followed_ns: 2000,
        };
        let wait = KernelWait {
            thread: 0,
            stack: StackNumber {
                epoch: 0,
                number: 4,
            },
            at_ns: 100,
            ns: 40,
            stands_for_ns: 60,
        };
        move_kernel_waits(&mut told, &[(0, counts)].into(), &[wait]);
        let (running, in_kernel) = (
            total(&told, Activity::Running),
            total(&told, Activity::InKernel),
        );
        assert_eq!((running.ns, in_kernel.ns), (330, 670));
        assert_eq!((in_kernel.count, in_kernel.longest_ns), (7, 40));
        let times = &told.threads[0];
        assert_eq!((times.running_ns, times.in_kernel_ns), (330, 670));
        assert_eq!(told.spans[0].stands_for_ns, 60.0);
    }

    #[test]
    fn a_thread_that_computes_and_one_that_was_not_followed_are_left_as_they_are() {
        let mut computes = told(1000, 0);
        let counts = KernelCounts {
            cpu_ns: 990,
            delay_ns: 30,
            waits: 3,
            followed_ns: 1000,
        };
        move_kernel_waits(&mut computes, &[(0, counts)].into(), &[]);
        assert_eq!(total(&computes, Activity::InKernel), Total::default());
        let mut other = told(1000, 0);
        move_kernel_waits(&mut other, &[(0, KernelCounts::default())].into(), &[]);
        assert_eq!(other.threads[0].running_ns, 1000);
        move_kernel_waits(&mut other, &[(5, counts)].into(), &[]);
    }

    #[test]
    fn waits_that_were_seen_are_no_more_than_the_thread_ran() {
        let wait = |stands_for_ns| KernelWait {
            thread: 0,
            stack: StackNumber {
                epoch: 0,
                number: 4,
            },
            at_ns: 100,
            ns: stands_for_ns,
            stands_for_ns,
        };
        let mut told = told(1000, 0);
        move_seen_waits(&mut told, &[wait(300), wait(100)]);
        let (running, in_kernel) = (
            total(&told, Activity::Running),
            total(&told, Activity::InKernel),
        );
        assert_eq!((running.ns, in_kernel.ns), (600, 400));
        assert_eq!((in_kernel.count, in_kernel.longest_ns), (2, 300));
        assert_eq!(told.spans.len(), 2);
        move_seen_waits(&mut told, &[wait(2000)]);
        assert_eq!(total(&told, Activity::Running).ns, 0);
        assert_eq!(total(&told, Activity::InKernel).ns, 1000);
    }
}
