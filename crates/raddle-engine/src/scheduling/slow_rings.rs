//! Threads that wait in the ring of a slower carrier run on a faster one.
//!
//! A carrier that always has work of its own never comes to steal. Without this module it serves
//! its own clients many times while threads wait in the ring of another carrier, for example if the
//! kernel has taken the CPU of that carrier, or its thread computes. The order of arrival holds
//! within a ring only.
//!
//! 1. A carrier that looks at timers and descriptors *marks* its own ring and the ring of another
//!    carrier, the *watched* one.
//! 2. At a later look, [`INTERVAL_NS`] after the marks or more, it compares. If no thread waits
//!    that was in its own ring then, and some wait that were in the watched ring, it moves half of
//!    these to the end of its own ring.
//! 3. It marks both rings again: those of the same pair if it has moved threads, else with the next
//!    carrier of the list.
//!
//! A ring that is emptied within the interval loses no thread, so threads that hand work to each
//! other on one carrier stay together.

use crate::scheduling::idle;
use crate::scheduling::page_rings;
use crate::state::carrier::Carrier;

/// How long a thread waits in a ring before another carrier may take it for this reason.
const INTERVAL_NS: u64 = 100_000;

/// Compares the own ring with the watched carrier's and takes threads that have waited longer than
/// those of the own ring.
#[inline(always)]
pub(crate) fn look(carrier: &Carrier, now_ns: u64) {
    let is_time = now_ns.saturating_sub(carrier.watch.marked_ns.get()) >= INTERVAL_NS;
    if is_time && carrier.engine().active() > 1 && carrier.has_queue() {
        compare(carrier, now_ns);
    }
}

#[inline(never)]
fn compare(carrier: &Carrier, now_ns: u64) {
    let watch = &carrier.watch;
    let engine = carrier.engine();
    let count = engine.up();
    let index = watch.index.get() % count;
    let Some(other) = engine.carriers().nth(index as usize) else {
        return;
    };
    let is_other = !core::ptr::eq(other, carrier);
    let next = if is_other && takes(carrier, other) {
        index
    } else {
        (index + 1) % count
    };
    watch.index.set(next);
    if let Some(other) = engine.carriers().nth(next as usize) {
        watch.watched.set(other.queue.mark());
    }
    watch.own.set(carrier.queue.mark());
    watch.marked_ns.set(now_ns);
}

/// Takes threads of `other`, the watched carrier, that have waited since the marks. Returns true if
/// it took any.
fn takes(carrier: &Carrier, other: &Carrier) -> bool {
    let watch = &carrier.watch;
    if carrier.queue.waiting_since(watch.own.get()) != 0
        || page_rings::is_exempt_from_stealing(other)
    {
        return false;
    }
    let waiting = other.queue.waiting_since(watch.watched.get());
    let taken = carrier.queue.steal_some(&other.queue, waiting.div_ceil(2));
    if taken != 0 {
        idle::note_theft(carrier, other);
    }
    taken != 0
}
