//! What sysmon asks about one carrier, and the threads that it sees to there.

use super::Found;
use crate::kernel_threads::own_signals::POKE;
use crate::scheduling::chaos::{self, Point};
use crate::scheduling::page_rings;
use crate::scheduling::{policies, timed};
use crate::state::carrier::{Carrier, CarrierState};
use crate::state::engine::Engine;
use crate::state::process::PROCESS;
use crate::state::turn::Turn;
use crate::state::wakers::Cause;
use core::sync::atomic::Ordering;
use raddle_sched::policy::Demand;

/// How long the thread on a carrier may run while others wait for it, or its scheduler does. A
/// scheduler's quantum may be longer than the others'.
pub(super) fn quantum_beside_others(
    carrier: &Carrier,
    found: Found,
    worker_quantum_ns: Option<u64>,
) -> u64 {
    let others_wait = is_wanted(carrier) || holds_others(carrier, found);
    let quantum_ns = match worker_quantum_ns {
        Some(worker_ns) if !others_wait => worker_ns,
        limit_ns => policies::quantum_on(carrier).min(limit_ns.unwrap_or(u64::MAX)),
    };
    timed::slice_ns(carrier, found.held_ns, quantum_ns)
}

/// Since when the carrier runs a thread again that was preempted, if it has made no switch since
/// the one that was counted.
pub(super) fn goes_on_since_ns(carrier: &Carrier, switches: u64) -> Option<u64> {
    let since_ns = carrier.thread_or_none().and_then(Turn::goes_on_since_ns);
    since_ns.filter(|_| carrier.switches.load(Ordering::Relaxed) == switches)
}

/// Returns true if a carrier keeps what others need: a UMS scheduler, while the carrier waits in
/// the kernel; or open files of its ring's requests, while it computes.
fn holds_others(carrier: &Carrier, found: Found) -> bool {
    if found.computes {
        page_rings::holds_files(carrier)
    } else {
        carrier.runs_for_scheduler()
    }
}

/// Returns true if `carrier` should let go of its thread for others, or because its engine is held.
fn is_wanted(carrier: &Carrier) -> bool {
    let thread = carrier.thread_or_none();
    carrier.is_awaited() || thread.is_some_and(|thread| carrier.is_strange_to(thread))
}

/// Sees to a thread that computes without calls although it came back from the kernel, was bound
/// while it ran elsewhere, or has a signal. The signal came between the last look of a call and its
/// end, or just as the thread began to run, so that sender and thread missed each other.
pub(super) fn see_to_signals(carrier: &Carrier, found: Found, pokes: &mut Pokes, now_ns: u64) {
    let thread = carrier.thread_or_none();
    let strays = thread.is_some_and(|thread| thread.strays_on(carrier));
    let has_signals = carrier.attention.load(Ordering::Relaxed) != 0
        || thread.is_some_and(|thread| thread.signals.deliverable() != 0);
    if found.computes && (strays || carrier.handed_off.load(Ordering::Relaxed) != 0) {
        carrier.preempt(found.switches);
    } else if !(found.computes && has_signals) {
        *pokes = Pokes::default();
    } else if pokes.is_due(now_ns) {
        carrier.send(POKE);
    }
    if found.computes && chaos::strikes(Point::Preempt) {
        carrier.preempt(found.switches);
    }
    if chaos::strikes(Point::HandOff) {
        carrier.engine().hand_off(carrier);
    }
}

/// The signals that a thread was poked for, and has not handled. Each poke comes later than the one
/// before: under a debugger a poke takes a millisecond, and a thread that is poked more often never
/// gets to handle anything.
#[derive(Clone, Copy, Default)]
pub(super) struct Pokes {
    next_ns: u64,
    wait_ns: u64,
}

impl Pokes {
    const FIRST_NS: u64 = 200_000;
    const LAST_NS: u64 = 32_000_000;

    fn is_due(&mut self, now_ns: u64) -> bool {
        if now_ns < self.next_ns {
            return false;
        }
        self.wait_ns = (2 * self.wait_ns).clamp(Self::FIRST_NS, Self::LAST_NS);
        self.next_ns = now_ns + self.wait_ns;
        true
    }
}

/// What waits for the running thread of `carrier` to make room.
pub(super) fn demand_on(
    carrier: &Carrier,
    found: Found,
    worker_quantum_ns: Option<u64>,
    unattended: bool,
) -> Demand {
    let engine = carrier.engine();
    Demand {
        waits: is_wanted(carrier) || holds_others(carrier, found) || worker_quantum_ns.is_some(),
        // A policy has all threads there, and says itself which should run at once.
        fresh: !engine.queue.is_empty() && !engine.has_one_queue(),
        unattended: unattended && engine.is_first(),
    }
}

/// Takes a carrier that runs from an engine that has more than it wants. An idle one becomes spare
/// by itself.
pub(super) fn reduce(engine: &Engine) {
    let is_busy = |carrier: &&Carrier| carrier.state() == CarrierState::Running;
    if engine.has_surplus()
        && let Some(carrier) = engine.carriers().filter(is_busy).last()
    {
        engine.mark(carrier);
    }
}

/// Posts the threads of due timers and ready descriptors, since no carrier looks at them.
pub(super) fn take_due(now_ns: u64) {
    PROCESS.inject_all(PROCESS.timers.expire(now_ns), Cause::Timer);
    if PROCESS.pump.has_waiters() {
        PROCESS.inject_all(PROCESS.pump.poll_now(None), Cause::Kernel);
    }
}
