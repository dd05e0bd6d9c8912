//! The time from a wake-up to running, of a sample of all wake-ups.
//!
//! One wake-up in [`EVERY`] reads the clock; the thread carries the time until it runs. Each
//! carrier counts in a histogram of its own.

use crate::carrier::Carrier;
use crate::clock;
use crate::engine::ENGINE;
use crate::thread::Thread;
use core::sync::atomic::{AtomicU64, Ordering};
use raddle_inspect::{BUCKETS, Histogram, bucket_of};
use raddle_sched::TaskRef;

/// One in how many wake-ups is measured.
const EVERY: u32 = 64;

/// A carrier's own counts. Written by the carrier, read by sysmon.
pub(crate) type Counts = [AtomicU64; BUCKETS];

/// At a wake-up by `carrier`.
#[inline(always)]
pub(crate) fn woken(carrier: &Carrier, task: TaskRef) {
    if carrier.picks.get() % EVERY == 3 {
        stamp(task);
    }
}

#[cold]
fn stamp(task: TaskRef) {
    let thread = Thread::of(task);
    thread.woken_ns.store(clock::now_ns(), Ordering::Relaxed);
}

/// When `thread` is about to run on `carrier`.
#[inline(always)]
pub(crate) fn runs(carrier: &Carrier, thread: &Thread) {
    if thread.woken_ns.load(Ordering::Relaxed) != 0 {
        count(carrier, thread);
    }
}

#[cold]
fn count(carrier: &Carrier, thread: &Thread) {
    let since_ns = thread.woken_ns.load(Ordering::Relaxed);
    thread.woken_ns.store(0, Ordering::Relaxed);
    let took_ns = clock::now_ns().saturating_sub(since_ns);
    Carrier::count(&carrier.latency[bucket_of(took_ns)]);
}

/// What all carriers counted.
pub(crate) fn histogram() -> Histogram {
    let mut all = Histogram::EMPTY;
    for carrier in ENGINE.carriers().chain(ENGINE.sides.carriers()) {
        for (sum, count) in all.counts.iter_mut().zip(&carrier.latency) {
            *sum += count.load(Ordering::Relaxed);
        }
    }
    all
}
