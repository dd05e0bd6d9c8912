//! Bound threads of a recording: what the kernel counts of their kernel threads, and where in the
//! kernel they wait.
//!
//! A kernel thread that has begun while it was recorded is counted from its beginning, however late
//! it is found.
//!
//! A thread that has not executed since the last look waits where it did then: its stack is not
//! read again.

use std::collections::HashMap;
use std::time::{Duration, Instant};

use raddle_inspect::ThreadState;
use raddle_record::bound::{KernelCounts, KernelWait};
use raddle_record::clock::Moment;
use raddle_record::history::{History, Position, StackNumber, Told};
use raddle_record::profile::Thread;
use raddle_stacks::{
    BoundThread, Captured, KernelTimes, Kind, StackReader, kernel_thread_began_ns, kernel_waits,
    waits_in_kernel,
};

use super::chooser::Chooser;
use crate::peers::cpu_time;

/// The most looks that are kept.
const WAITS_MAX: usize = 1 << 18;
/// Of the time between two counts, or two looks, at most this part is spent.
const PART: u32 = 50;
/// A thread that was found so long after its beginning has been bound since then.
const NEW_NS: u64 = 300_000_000;

/// See the module.
pub(super) struct Bound {
    pid: u32,
    begun: Instant,
    /// The same, by CLOCK_BOOTTIME.
    begun_ns: u64,
    threads: HashMap<Position, Followed>,
    waits: Vec<KernelWait>,
    counted: Instant,
    counting: Duration,
    /// When the kernel was asked last at a look, how long that took, and the time of the look.
    looked: Instant,
    looking: Duration,
    looked_ns: u64,
}

/// A kernel thread of a bound thread.
struct Followed {
    tid: u32,
    kernel_tid: u32,
    /// When the kernel thread began, since recording began, if that was later.
    began_ns: Option<u64>,
    first: Counted,
    last: Counted,
    /// At the last look: the CPU time, and the position of the wait in the kernel, if any.
    seen: Option<(u64, Option<usize>)>,
    /// The thread was there at the last count.
    is_there: bool,
    /// The first count since the kernel thread has neither waited nor begun to.
    wants_cpu: Counted,
}

#[derive(Clone, Copy, Default)]
struct Counted {
    /// Since recording began.
    at_ns: u64,
    times: KernelTimes,
    waits: u64,
    /// It neither executed nor wanted a CPU.
    is_waiting: bool,
}

impl Counted {
    /// `None` if the kernel doesn't tell it.
    fn of(pid: u32, kernel_tid: u32, begun: Instant) -> Option<Counted> {
        Some(Counted {
            at_ns: begun.elapsed().as_nanos() as u64,
            times: KernelTimes::of(pid, kernel_tid)?,
            waits: kernel_waits(pid, kernel_tid)?,
            is_waiting: waits_in_kernel(pid, kernel_tid),
        })
    }

    /// Returns how long the kernel thread has wanted a CPU until `now` in addition to what the
    /// kernel has counted, which counts that when the kernel thread gets a CPU. In this time it has
    /// not waited.
    fn starved_ns(&self, now: &Counted) -> u64 {
        let counted = |times: &KernelTimes| times.cpu_ns + times.delay_ns;
        let counted_ns = counted(&now.times).saturating_sub(counted(&self.times));
        (now.at_ns - self.at_ns).saturating_sub(counted_ns)
    }
}

impl Bound {
    pub(super) fn new(pid: u32) -> Bound {
        Bound {
            pid,
            begun: Instant::now(),
            begun_ns: Moment::now().boot_ns,
            threads: HashMap::new(),
            waits: Vec::new(),
            counted: Instant::now(),
            counting: Duration::ZERO,
            looked: Instant::now(),
            looking: Duration::ZERO,
            looked_ns: 0,
        }
    }

    /// Counts what kernel threads have used, unless that costs too much.
    pub(super) fn count(&mut self, bound: &[BoundThread], history: &History) {
        if self.counted.elapsed() >= self.counting * PART {
            self.count_now(bound, history);
        }
    }

    /// As [`Bound::count`], whatever it costs.
    pub(super) fn count_now(&mut self, bound: &[BoundThread], history: &History) {
        let begun = Instant::now();
        self.threads.values_mut().for_each(|it| it.is_there = false);
        for thread in bound {
            let Some(position) = history.position(thread.tid) else {
                continue;
            };
            let Some(now) = Counted::of(self.pid, thread.kernel_tid, self.begun) else {
                continue;
            };
            let (pid, begun_ns) = (self.pid, self.begun_ns);
            let followed = self.threads.entry(position).or_insert_with(|| Followed {
                tid: thread.tid,
                kernel_tid: thread.kernel_tid,
                began_ns: kernel_thread_began_ns(pid, thread.kernel_tid)
                    .and_then(|began_ns| began_ns.checked_sub(begun_ns)),
                first: now,
                last: now,
                seen: None,
                is_there: true,
                wants_cpu: now,
            });
            followed.is_there = true;
            if followed.kernel_tid == thread.kernel_tid {
                if followed.last.is_waiting || followed.last.waits != now.waits {
                    followed.wants_cpu = now;
                }
                followed.last = now;
            }
        }
        self.counting = begun.elapsed();
        self.counted = Instant::now();
    }

    /// Looks where threads wait in the kernel, at a time of CLOCK_BOOTTIME, unless that costs too
    /// much. At each look at waits.
    pub(super) fn look(
        &mut self,
        reader: &mut StackReader<'_>,
        chooser: &mut Chooser,
        epoch: u32,
        at_ns: u64,
    ) {
        let begun = Instant::now();
        if self.threads.is_empty() || begun - self.looked < self.looking * PART {
            return;
        }
        let before_ns = std::mem::replace(&mut self.looked_ns, at_ns);
        let since_ns = match before_ns {
            0 => 0,
            before_ns => at_ns.saturating_sub(before_ns),
        };
        let moved = self.moved(since_ns);
        self.looked = Instant::now();
        self.looking = self.looked - begun;
        if moved.is_empty() {
            return;
        }
        let chance = chooser.chance(moved.len());
        for (position, cpu_ns) in moved {
            let Some(followed) = self.threads.get_mut(&position) else {
                continue;
            };
            followed.seen = None;
            if !chooser.draws(chance) {
                continue;
            }
            let begun = cpu_time();
            let captured = reader.read(followed.tid);
            chooser.spent(cpu_time().saturating_sub(begun));
            let number = captured.as_ref().and_then(in_kernel);
            let mut wait = None;
            if let Some(number) = number.filter(|_| self.waits.len() < WAITS_MAX) {
                wait = Some(self.waits.len());
                self.waits.push(KernelWait {
                    thread: position,
                    stack: StackNumber { epoch, number },
                    at_ns,
                    ns: since_ns,
                    stands_for_ns: (since_ns as f64 / chance).round() as u64,
                });
            }
            // One that executes is looked at again.
            if captured.is_some_and(|it| it.kind != Kind::Running) {
                followed.seen = Some((cpu_ns, wait));
            }
        }
    }

    /// Returns the threads that have executed since the last look, with their CPU times. The waits
    /// of the others have gone on for so long.
    fn moved(&mut self, since_ns: u64) -> Vec<(Position, u64)> {
        let mut moved = Vec::new();
        for (&position, followed) in self.threads.iter_mut().filter(|(_, it)| it.is_there) {
            let Some(times) = KernelTimes::of(self.pid, followed.kernel_tid) else {
                continue;
            };
            match followed.seen {
                Some((cpu_ns, wait)) if cpu_ns == times.cpu_ns => {
                    if let Some(wait) = wait.and_then(|at| self.waits.get_mut(at)) {
                        wait.ns += since_ns;
                        wait.stands_for_ns += since_ns;
                    }
                }
                _ => moved.push((position, times.cpu_ns)),
            }
        }
        moved
    }

    /// Numbers of stacks are others from now on.
    pub(super) fn begin_epoch(&mut self) {
        self.threads.values_mut().for_each(|it| it.seen = None);
    }

    /// Gives the recording what the kernel has counted, and what was seen.
    pub(super) fn finish(&self, told: &mut Told) {
        let counts = self.threads.iter().filter_map(|(&position, followed)| {
            let thread = told.threads.get(position as usize)?;
            Some((position, followed.counts(thread)))
        });
        let counts = counts.collect();
        raddle_record::bound::move_kernel_waits(told, &counts, &self.waits);
    }
}

impl Followed {
    fn counts(&self, thread: &Thread) -> KernelCounts {
        let found_ns = self.first.at_ns;
        // All that a new kernel thread has used was recorded.
        let made_ns = thread.began_ns;
        let began_ns = match self.began_ns {
            Some(began_ns) => Some(began_ns.max(made_ns.unwrap_or(0))),
            None => made_ns.filter(|&it| found_ns.saturating_sub(it) < NEW_NS),
        };
        let (first, from_ns) = match began_ns {
            Some(began_ns) => (Counted::default(), began_ns),
            None => (self.first, found_ns),
        };
        let counted_ns = self.last.at_ns.saturating_sub(from_ns);
        // One that has ended has gone on after the last count as before.
        let followed_ns = match thread.ended_ns {
            Some(ended_ns) => ended_ns.saturating_sub(from_ns).max(counted_ns),
            None => counted_ns,
        };
        let whole = |last: u64, first: u64| {
            let counted = u128::from(last.saturating_sub(first));
            (counted * u128::from(followed_ns) / u128::from(counted_ns.max(1))) as u64
        };
        let (last, first_times) = (self.last.times, first.times);
        let starved_ns = if self.last.is_waiting {
            0
        } else {
            self.wants_cpu.starved_ns(&self.last)
        };
        KernelCounts {
            cpu_ns: whole(last.cpu_ns, first_times.cpu_ns),
            delay_ns: whole(last.delay_ns, first_times.delay_ns) + starved_ns,
            waits: whole(self.last.waits, first.waits),
            followed_ns,
        }
    }
}

/// Returns the stack of a thread that waits in the kernel on its carrier.
pub(super) fn in_kernel(captured: &Captured) -> Option<u32> {
    let is_on_carrier = captured.record.state == ThreadState::RUNNING;
    let waits = matches!(captured.kind, Kind::InKernel(_) | Kind::LentToChild);
    captured.stack.filter(|_| is_on_carrier && waits)
}
