//! Yields: the running thread lets others run and goes on in its turn.

use crate::scheduling::switch::{leave, look_around, move_away};
use crate::scheduling::timed;
use crate::state::carrier::Carrier;
use crate::state::thread::{Thread, WaitKind};
use core::sync::atomic::Ordering;
use raddle_sched::policies::Reason;
use raddle_sched::policy::Tick;
use raddle_sys::{nr, sys};

/// Lets others run; the running thread goes to the end of the ring.
#[inline(always)]
pub fn yield_now() {
    let carrier = Carrier::current();
    let thread = carrier.thread();
    if carrier.takes_detour() {
        return yield_by_detour(carrier, thread);
    }
    let engine = carrier.engine();
    if carrier.queue.is_empty() && !engine.has_posted() {
        return yield_alone(carrier, thread);
    }
    if thread.strays_on(carrier) {
        return move_away(|| {});
    }
    thread.waits_for(WaitKind::YIELD, 0, 0);
    engine.push_ring(carrier, thread.task_ref());
    leave(carrier, thread);
    if thread.signals.deliverable() != 0 {
        Carrier::current().attention.store(1, Ordering::Relaxed);
    }
}

/// A yield where the carrier's queue isn't used, or not in the order of arrival: to the kernel's
/// threads if the carrier is a bound thread's, else to the thread that the policy or the accounts
/// prefer.
#[cold]
fn yield_by_detour(carrier: &Carrier, thread: &Thread) {
    let is_bound = carrier.is_bound();
    if is_bound || !carrier.is_wanted(thread) {
        return yield_alone(carrier, thread);
    }
    if thread.strays_on(carrier) || carrier.is_strange_to(thread) {
        return move_away(|| {});
    }
    thread.waits_for(WaitKind::YIELD, 0, 0);
    if carrier.is_timed() {
        timed::yielded(carrier, thread)
    } else {
        carrier.engine().submit(thread.task_ref(), Reason::Yielded)
    }
    leave(carrier, thread);
    if thread.signals.deliverable() != 0 {
        Carrier::current().attention.store(1, Ordering::Relaxed);
    }
}

/// After a wake-up: goes on as a rule, but lets the woken thread run at once now and then, by
/// chance, one in `one_in` and of those one in `rarer()`. A thread that takes a lock again right
/// after its release would starve the waiter else: on several CPUs the waiter wins the race
/// sometimes, on one carrier never. A bound thread's CPU is the kernel's to share.
#[inline(always)]
pub fn perhaps_yield(one_in: u32, rarer: impl FnOnce() -> u32) {
    let carrier = Carrier::current();
    let drawn = carrier.draw();
    if drawn.is_multiple_of(one_in) {
        perhaps_after_all(carrier, drawn / one_in, rarer());
    }
}

#[inline(never)]
fn perhaps_after_all(carrier: &Carrier, drawn: u32, rarer: u32) {
    if drawn.is_multiple_of(rarer) && !carrier.is_bound() {
        yield_now();
    }
}

/// A yield without another thread to run still looks at timers and descriptors now and then, and
/// gives the CPU to other processes. A bound thread's always does the latter.
#[cold]
fn yield_alone(carrier: &Carrier, thread: &Thread) {
    if thread.signals.deliverable() != 0 {
        carrier.attention.store(1, Ordering::Relaxed);
    }
    if carrier.is_bound() {
        // SAFETY: no memory is involved.
        unsafe { sys!(nr::__NR_sched_yield) };
        return;
    }
    let count = carrier.picks.get().wrapping_add(1);
    carrier.picks.set(count);
    if Tick::of(count).poll {
        look_around(carrier);
        // SAFETY: no memory is involved.
        unsafe { sys!(nr::__NR_sched_yield) };
    }
}
