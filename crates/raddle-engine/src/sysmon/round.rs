//! What sysmon has seen in one look at all carriers, and when it must look again.

use crate::kernel_threads::kthread;
use crate::scheduling::idle;
use crate::scheduling::ums;
use crate::state::carrier::{Carrier, CarrierState};
use crate::state::process::PROCESS;
use core::sync::atomic::Ordering;
use raddle_sched::policy::{BLOCKED_NS, BUSY_NS, Found, SOON_NS, Seen};

/// What all carriers together showed.
#[derive(Default)]
pub(crate) struct Round {
    pub(crate) acted: bool,
    pub(crate) running: bool,
    /// A carrier has switched since the last look.
    pub(crate) progress: bool,
    /// The next look must not come later than this.
    pub(crate) within_ns: Option<u64>,
    pub(crate) watch: bool,
    /// A carrier waits in the kernel, in others' way.
    pub(crate) stuck: bool,
}

impl Round {
    /// Lets another carrier run in the place of one that waits in the kernel; false if it doesn't.
    pub(crate) fn replace(&mut self, seen: &mut Seen, carrier: &Carrier, found: Found) -> bool {
        if carrier.handed_off.load(Ordering::Relaxed) != 0 {
            // The carrier's thread came back, woke others, and sits in the kernel again.
            idle::give_queue_away(carrier);
            ums::replace(carrier);
            return true;
        }
        // If it went to sleep for want of work meanwhile, it has said so before.
        let sits = self.asks(seen, carrier, found) && carrier.state() == CarrierState::Running;
        if sits {
            carrier.engine().hand_off(carrier);
            self.stuck = true;
            PROCESS.blocking.note(carrier); // it takes a while: after the others have been helped
            self.acted = true;
        }
        sits
    }

    /// Asks whether a carrier that uses no CPU waits in the kernel. If not, there is nothing to be
    /// on guard for: what becomes ready can't run before the carrier gets its CPU back.
    pub(crate) fn asks(&mut self, seen: &mut Seen, carrier: &Carrier, found: Found) -> bool {
        let tid = carrier.kernel_tid.load(Ordering::Relaxed);
        let sits = found.waits || kthread::is_waiting(tid);
        seen.asked(sits);
        if !sits {
            // The kernel has other threads to run; asking it often would add one.
            self.look_within((found.held_ns / 2).clamp(BLOCKED_NS, BUSY_NS));
        }
        sits
    }

    /// Returns true if a carrier that has nothing else to do should wait for timers and descriptors
    /// now.
    pub(crate) fn has_to_poll(&mut self, now_ns: u64) -> bool {
        let left_ns = idle::polling_matters_ns().saturating_sub(now_ns);
        if left_ns > SOON_NS {
            self.look_within(left_ns - SOON_NS);
        }
        left_ns <= SOON_NS
    }

    pub(crate) fn look_within(&mut self, ns: u64) {
        self.within_ns = Some(self.within_ns.map_or(ns, |within| within.min(ns)));
    }
}
