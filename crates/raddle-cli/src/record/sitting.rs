//! Threads that wait in the kernel on carriers of which nothing else needs the CPU.
//!
//! Such a carrier is not replaced, so no event tells of the wait. At each look, a thread of which
//! the carrier's kernel thread waits stands for the time since the look before. As long as that
//! kernel thread has used no CPU time, it is the same wait, and its stack is not read again.

use std::collections::HashMap;
use std::time::{Duration, Instant};

use raddle_record::bound::KernelWait;
use raddle_record::history::{History, StackNumber, Told};
use raddle_stacks::{CarrierThreads, KernelTimes, StackReader, Target};

use super::bound::in_kernel;
use super::chooser::Chooser;
use crate::peers::cpu_time;

/// The most waits that are kept.
const WAITS_MAX: usize = 1 << 18;
/// Of the time between two looks, at most this part is spent.
const PART: u32 = 50;

/// See the module.
pub(super) struct Sitting {
    pid: u32,
    carriers: CarrierThreads,
    /// By carrier.
    seen: HashMap<u32, Seen>,
    waits: Vec<KernelWait>,
    /// When the kernel was asked last, how long that took, and the time of the look.
    looked: Instant,
    looking: Duration,
    looked_ns: u64,
}

/// A wait in the kernel at the last look.
struct Seen {
    thread: u32,
    cpu_ns: u64,
    /// Its position in the list.
    wait: Option<usize>,
}

impl Sitting {
    pub(super) fn new(pid: u32) -> Sitting {
        Sitting {
            pid,
            carriers: CarrierThreads::default(),
            seen: HashMap::new(),
            waits: Vec::new(),
            looked: Instant::now(),
            looking: Duration::ZERO,
            looked_ns: 0,
        }
    }

    /// Finds the carriers that there are now.
    pub(super) fn follow(&mut self, target: &Target<'_>) {
        self.carriers.follow(target);
    }

    /// Looks, at a time of CLOCK_BOOTTIME, unless that costs too much.
    pub(super) fn look(
        &mut self,
        reader: &mut StackReader<'_>,
        chooser: &mut Chooser,
        history: &History,
        epoch: u32,
        at_ns: u64,
    ) {
        let begun = Instant::now();
        if begun - self.looked < self.looking * PART {
            return;
        }
        let before_ns = std::mem::replace(&mut self.looked_ns, at_ns);
        let since_ns = match before_ns {
            0 => 0,
            before_ns => at_ns.saturating_sub(before_ns),
        };
        let mut before = std::mem::take(&mut self.seen);
        for carrier in self.carriers.iter() {
            let runs = history.runs_on(carrier.carrier);
            let Some((tid, thread)) = runs.filter(|_| carrier.waits()) else {
                continue;
            };
            let Some(KernelTimes { cpu_ns, .. }) = KernelTimes::of(self.pid, carrier.tid) else {
                continue;
            };
            let known = before.remove(&carrier.carrier);
            let is_it = |it: &Seen| it.thread == tid && it.cpu_ns == cpu_ns;
            if let Some(known) = known.filter(is_it) {
                if let Some(wait) = known.wait.and_then(|at| self.waits.get_mut(at)) {
                    wait.ns += since_ns;
                    wait.stands_for_ns += since_ns;
                }
                self.seen.insert(carrier.carrier, known);
                continue;
            }
            let read_from = cpu_time();
            let captured = reader.read(tid);
            chooser.spent(cpu_time().saturating_sub(read_from));
            let number = captured.as_ref().and_then(in_kernel);
            let number = number.filter(|_| self.waits.len() < WAITS_MAX);
            let wait = number.map(|number| {
                self.waits.push(KernelWait {
                    thread,
                    stack: StackNumber { epoch, number },
                    at_ns,
                    ns: since_ns,
                    stands_for_ns: since_ns,
                });
                self.waits.len() - 1
            });
            let seen = Seen {
                thread: tid,
                cpu_ns,
                wait,
            };
            self.seen.insert(carrier.carrier, seen);
        }
        self.looked = Instant::now();
        self.looking = self.looked - begun;
    }

    /// Numbers of stacks are others from now on.
    pub(super) fn begin_epoch(&mut self) {
        self.seen.clear();
    }

    /// Gives the recording what was seen.
    pub(super) fn finish(&self, told: &mut Told) {
        raddle_record::bound::move_seen_waits(told, &self.waits);
    }
}
