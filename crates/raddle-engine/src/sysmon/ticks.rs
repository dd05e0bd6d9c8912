//! Ticks: sysmon asks carriers that execute for samples ([`samples`]).
//!
//! The time between two ticks is drawn by lot, between a half and one and a half periods, so that a
//! program with a period of its own is not seen at the same place again and again. At a tick a
//! carrier is asked if
//!
//! 1. it has used half a period of CPU time since it was asked last, and
//! 2. it executes, or waits for a CPU. One that waits in the kernel isn't asked: the signal could
//!    end its call. Its CPU time counts for the next sample.
//!
//! A carrier that begins to wait between the look and the signal is interrupted, as it is by the
//! signal for a thread at the end of its quantum. That is a matter of microseconds.
//!
//! A carrier that hasn't answered yet isn't asked again for a while: it may compute in the kernel,
//! and each signal would be queued.

use crate::kernel_threads::{kthread, own_signals};
use crate::state::carrier::{Carrier, CarrierState, PREEMPT};
use crate::state::process::PROCESS;
use crate::state::samples;
use crate::sysmon::{WATCHED, watched};
use core::sync::atomic::Ordering;
use raddle_inspect::Lots;

/// After so long a carrier is asked again: what it was asked by may have got lost.
const LOST_NS: u64 = 100_000_000;

/// The most carriers of bound threads that are asked.
const BOUND: usize = 256;

/// Sysmon's memory of them.
pub(crate) struct Ticks {
    /// When the next one is due; 0 while none are wanted.
    due_ns: u64,
    lots: Lots,
    each: [Asked; WATCHED],
    /// Carriers of bound threads, which are not watched otherwise.
    bound: [Asked; BOUND],
}

/// What a carrier, by its place there, was asked last.
#[derive(Clone, Copy)]
struct Asked {
    /// Its kernel thread, and that one's CPU time.
    tid: u32,
    cpu_ns: u64,
    at_ns: u64,
}

impl Ticks {
    pub(crate) const fn new() -> Self {
        let none = Asked {
            tid: 0,
            cpu_ns: 0,
            at_ns: 0,
        };
        Self {
            due_ns: 0,
            lots: Lots::new(0x9e37_79b9_7f4a_7c15),
            each: [none; WATCHED],
            bound: [none; BOUND],
        }
    }

    /// Asks carriers if a tick is due. Returns the time until the next one, if there is any.
    pub(crate) fn look(&mut self, now_ns: u64) -> Option<u64> {
        let period_ns = samples::period_ns();
        if period_ns == 0 {
            self.due_ns = 0;
            return None;
        }
        if self.due_ns == 0 {
            // The time before is no sample's.
            self.lots.stir(now_ns);
            let all = self.each.iter_mut().chain(&mut self.bound);
            all.for_each(|asked| asked.tid = 0);
        } else if now_ns < self.due_ns {
            return Some(self.due_ns - now_ns);
        }
        for (at, carrier) in watched() {
            if carrier.state() == CarrierState::Running {
                ask(&mut self.each[at], carrier, now_ns, period_ns);
            }
        }
        let bound = PROCESS.all_carriers().filter(|carrier| carrier.is_bound());
        for (asked, carrier) in self.bound.iter_mut().zip(bound) {
            if carrier.state() == CarrierState::Running {
                ask(asked, carrier, now_ns, period_ns);
            }
        }
        let within_ns = self.lots.around_ns(period_ns);
        self.due_ns = now_ns + within_ns;
        Some(within_ns)
    }
}

/// Asks a carrier for a sample, if it is to have one.
fn ask(asked: &mut Asked, carrier: &Carrier, now_ns: u64, period_ns: u64) {
    let tid = carrier.kernel_tid.load(Ordering::Relaxed);
    let cpu_ns = kthread::cpu_ns(tid);
    if asked.tid != tid {
        *asked = Asked {
            tid,
            cpu_ns,
            at_ns: 0,
        };
        return;
    }
    let used_ns = cpu_ns.saturating_sub(asked.cpu_ns);
    let is_open = carrier.sample_wanted.is_set() && now_ns - asked.at_ns < LOST_NS;
    let shares_memory = carrier.child_shares.load(Ordering::Relaxed) != 0;
    if used_ns < period_ns / 2 || is_open || shares_memory || !executes(tid, cpu_ns) {
        return;
    }
    (asked.cpu_ns, asked.at_ns) = (cpu_ns, now_ns);
    carrier.sample_wanted.set(true);
    if own_signals::send(tid, PREEMPT) != Some(0) {
        carrier.sample_wanted.set(false);
    }
}

/// Returns true if a kernel thread with the CPU time `cpu_ns`, just read, executes or waits for a
/// CPU.
fn executes(tid: u32, cpu_ns: u64) -> bool {
    kthread::cpu_ns(tid) != cpu_ns || !kthread::is_waiting(tid)
}
