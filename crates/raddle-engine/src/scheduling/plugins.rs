//! Calls of a plug-in's functions, and their end if they have none.
//!
//! Carriers alone make such calls: sysmon, which watches them, must never wait for one, nor
//! helpers, which aren't watched. They happen under a policy's lock, so other carriers may wait
//! meanwhile.
//!
//! 1. The carrier counts the call, and stores an *anchor*, where its stack goes on behind the call.
//! 2. Sysmon sees the same call for [`LONG_CPU_NS`] of the carrier's CPU time, or for
//!    [`LONG_NS`]: it stores the call's number to [`Carrier::abandon`] and sends its signal.
//! 3. The handler compares: if the call is still that one, returning from the handler abandons the
//!    plug-in's frames and goes on behind the call, which has failed. The plug-in is never called
//!    again, so what it has left half done isn't used.

use crate::kernel_threads::kthread;
use crate::state::carrier::{Carrier, PREEMPT};
use crate::state::process::PROCESS;
use core::cell::Cell;
use core::ptr::{from_ref, with_exposed_provenance};
use core::sync::atomic::{AtomicU32, Ordering};
use raddle_arch::{call_restartable, restart};
use raddle_sched::policies::Call;

/// So much CPU time is too long for one call.
const LONG_CPU_NS: u64 = 50_000_000;
/// So much time is too long if the carrier waits in the call.
const LONG_NS: u64 = 1_000_000_000;

/// 1 once there is a plug-in.
static ANY: AtomicU32 = AtomicU32::new(0);

/// A call as the carrier makes it.
struct Pending {
    call: Call,
    result: Cell<Option<usize>>,
}

/// From now on sysmon looks for calls.
pub(crate) fn expect_calls() {
    ANY.store(1, Ordering::Relaxed);
}

/// Makes a call, on a carrier. `None` if it was abandoned.
pub(crate) fn call(call: Call) -> Option<usize> {
    let carrier = Carrier::current();
    let pending = Pending {
        call,
        result: Cell::new(None),
    };
    // No signal is delivered, and no thread preempted, in a plug-in's code, which isn't in the
    // runtime's text.
    carrier.in_clock.set(1);
    let number = carrier.plugin_call.load(Ordering::Relaxed) + 1; // odd: a call is being made
    carrier.plugin_call.store(number, Ordering::Release);
    let argument = from_ref(&pending).expose_provenance();
    // SAFETY: `run` takes what it is given; what it would leave on this stack is not needed.
    unsafe { call_restartable(carrier.anchor.as_ptr(), run, argument) };
    carrier.plugin_call.store(number + 1, Ordering::Release);
    carrier.in_clock.set(0);
    pending.result.get()
}

extern "C" fn run(pending: usize) {
    // SAFETY: what `call` gave; its frame is below this one.
    let pending = unsafe { &*with_exposed_provenance::<Pending>(pending) };
    let result = pending.call.make();
    pending.result.set(Some(result));
    Carrier::current().anchor.set(0); // before this returns, and the anchor's frame with it
}

/// In place of the call that was abandoned.
extern "C" fn abandoned(_: usize) {
    Carrier::current().anchor.set(0);
}

/// In the handler of sysmon's signal: the function to enter, and its arguments, if the call that
/// the carrier is in is to be abandoned.
pub fn way_out(carrier: &Carrier) -> Option<(usize, [usize; 3])> {
    let number = carrier.plugin_call.load(Ordering::Relaxed);
    let is_it = number % 2 == 1 && carrier.abandon.load(Ordering::Acquire) == number;
    let anchor = carrier.anchor.get();
    (is_it && anchor != 0).then(|| {
        let code = restart as *const () as usize;
        (code, [anchor, abandoned as *const () as usize, 0])
    })
}

/// What sysmon remembers of the call that it has seen last.
pub(crate) struct Watch {
    carrier: u32,
    number: u64,
    since_ns: u64,
    cpu_ns: u64,
}

impl Watch {
    pub(crate) const fn new() -> Self {
        Self {
            carrier: u32::MAX,
            number: 0,
            since_ns: 0,
            cpu_ns: 0,
        }
    }

    /// Looks for a call that doesn't end. Returns true if a carrier is in a call, which may be one.
    pub(crate) fn look(&mut self, now_ns: u64) -> bool {
        if ANY.load(Ordering::Relaxed) == 0 {
            return false;
        }
        let is_in_call = |carrier: &&Carrier| carrier.plugin_call.load(Ordering::Acquire) % 2 == 1;
        // Under one policy there is one call at a time.
        let Some(carrier) = PROCESS.all_carriers().find(is_in_call) else {
            self.carrier = u32::MAX;
            return false;
        };
        let number = carrier.plugin_call.load(Ordering::Acquire);
        let cpu_ns = kthread::cpu_ns(carrier.kernel_tid.load(Ordering::Relaxed));
        if (self.carrier, self.number) != (carrier.id.get(), number) {
            *self = Self {
                carrier: carrier.id.get(),
                number,
                since_ns: now_ns,
                cpu_ns,
            };
        } else if cpu_ns.saturating_sub(self.cpu_ns) >= LONG_CPU_NS
            || now_ns.saturating_sub(self.since_ns) >= LONG_NS
        {
            carrier.abandon.store(number, Ordering::Release);
            carrier.send(PREEMPT);
        }
        true
    }
}
