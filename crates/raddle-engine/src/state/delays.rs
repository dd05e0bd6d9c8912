//! Scheduling delays: the time from runnable to running.
//!
//! A timed carrier, which reads the clock at each switch, measures each delay of its threads. A
//! delay in the injector or in a bound carrier's mailbox is measured too. A carrier that isn't
//! timed measures one in [`EVERY`] wake-ups, which counts as that many. Under other policies than
//! the default one only those are measured. The thread carries the time until it runs.
//!
//! Rejected: the time of each wake-up (reading the clock takes longer than a hand-off); the time at
//! which the carrier read the clock last (it is as old as the running thread's turn).

use crate::state::carrier::Carrier;
use crate::state::clock;
use crate::state::process::PROCESS;
use crate::state::thread::Thread;
use core::sync::atomic::{AtomicU64, Ordering};
use raddle_inspect::{BUCKETS, Delay, Histogram, bucket_of};
use raddle_sched::TaskRef;

/// A carrier that isn't timed measures one wake-up in so many.
const EVERY: u32 = 64;

/// Bits of [`Thread::ready_ns`] that are no part of the time.
pub(crate) const READY_FLAGS: u64 = WOKEN | SAMPLE;
/// Bits of the time that a thread carries: it was woken, and it stands for [`EVERY`].
const WOKEN: u64 = 1;
const SAMPLE: u64 = 2;

/// A carrier's own counts. Written by the carrier, read by sysmon.
pub(crate) struct Counts {
    /// Delays of the wake-ups that are samples.
    wake_ups: [AtomicU64; BUCKETS],
    /// All delays that are measured.
    delays: [AtomicU64; BUCKETS],
    /// The sums of both.
    wake_ups_ns: AtomicU64,
    delays_ns: AtomicU64,
    /// The longest: its thread, when it ended, and how long it was.
    longest_tid: AtomicU64,
    longest_at_ns: AtomicU64,
    longest_ns: AtomicU64,
}

impl Counts {
    /// Offset of the histogram of wake-ups.
    pub(crate) const WAKE_UPS: usize = core::mem::offset_of!(Counts, wake_ups);
    /// Offset of the histogram of all delays.
    pub(crate) const DELAYS: usize = core::mem::offset_of!(Counts, delays);

    /// In the child of a fork: forgets the parent's.
    pub(crate) fn reset(&self) {
        let Self {
            wake_ups,
            delays,
            wake_ups_ns,
            delays_ns,
            longest_tid: _,
            longest_at_ns: _,
            longest_ns,
        } = self;
        for count in wake_ups.iter().chain(delays) {
            count.store(0, Ordering::Relaxed);
        }
        for sum in [wake_ups_ns, delays_ns, longest_ns] {
            sum.store(0, Ordering::Relaxed);
        }
    }
}

/// At a wake-up by `carrier`, which isn't timed.
#[inline(always)]
pub(crate) fn woken(carrier: &Carrier, task: TaskRef) {
    if is_sample(carrier) {
        sample(task);
    }
}

#[inline(always)]
fn is_sample(carrier: &Carrier) -> bool {
    carrier.picks.get() % EVERY == 3
}

#[cold]
fn sample(task: TaskRef) {
    carry(task, clock::now_ns(), WOKEN | SAMPLE);
}

/// `task` is about to be queued.
pub(crate) fn ready(task: TaskRef, now_ns: u64) {
    carry(task, now_ns, 0);
}

/// As [`ready`], of a task that was woken; its wake-up may be a sample.
pub(crate) fn ready_by_wake_up(carrier: &Carrier, task: TaskRef, now_ns: u64) {
    carry(task, now_ns, if is_sample(carrier) { WOKEN } else { 0 });
}

fn carry(task: TaskRef, now_ns: u64, bits: u64) {
    let ready_ns = &Thread::of(task).ready_ns;
    ready_ns.store(now_ns & !(WOKEN | SAMPLE) | bits, Ordering::Relaxed);
}

/// When `thread` is about to run on `carrier`.
#[inline(always)]
pub(crate) fn runs(carrier: &Carrier, thread: &Thread) {
    if thread.ready_ns.load(Ordering::Relaxed) != 0 {
        count(carrier, thread);
    }
}

#[cold]
fn count(carrier: &Carrier, thread: &Thread) {
    let carried = thread.ready_ns.load(Ordering::Relaxed);
    thread.ready_ns.store(0, Ordering::Relaxed);
    let now_ns = if carrier.is_timed() {
        carrier.now_ns.get() // of this pick
    } else {
        clock::now_ns()
    };
    let took_ns = now_ns.saturating_sub(carried & !(WOKEN | SAMPLE));
    let counts = &carrier.delays;
    let bucket = bucket_of(took_ns);
    if carried & WOKEN != 0 {
        Carrier::count(&counts.wake_ups[bucket]);
        add(&counts.wake_ups_ns, took_ns);
    }
    let stands_for = u64::from(if carried & SAMPLE != 0 { EVERY } else { 1 });
    add(&counts.delays[bucket], stands_for);
    add(&counts.delays_ns, took_ns.saturating_mul(stands_for));
    if took_ns > counts.longest_ns.load(Ordering::Relaxed) {
        counts.longest_ns.store(took_ns, Ordering::Relaxed);
        counts.longest_at_ns.store(now_ns, Ordering::Relaxed);
        let tid = u64::from(thread.tid());
        counts.longest_tid.store(tid, Ordering::Relaxed);
    }
}

/// Adds to a count that the caller alone writes.
fn add(count: &AtomicU64, more: u64) {
    let so_far = count.load(Ordering::Relaxed);
    count.store(so_far.wrapping_add(more), Ordering::Relaxed);
}

/// Since when `thread`, which is runnable, has been so; 0 if that wasn't measured.
pub(crate) fn runnable_since_ns(thread: &Thread) -> u64 {
    thread.ready_ns.load(Ordering::Relaxed) & !(WOKEN | SAMPLE)
}

/// What all carriers counted of wake-ups.
pub(crate) fn wake_ups() -> Histogram {
    sum(|counts| &counts.wake_ups)
}

/// What all carriers counted of delays.
pub(crate) fn histogram() -> Histogram {
    sum(|counts| &counts.delays)
}

/// The sums of the durations in [`wake_ups`] and [`histogram`].
pub(crate) fn sums_ns() -> [u64; 2] {
    let mut sums = [0u64; 2];
    for carrier in PROCESS.carriers() {
        let counts = &carrier.delays;
        for (sum, own) in sums
            .iter_mut()
            .zip([&counts.wake_ups_ns, &counts.delays_ns])
        {
            *sum = sum.wrapping_add(own.load(Ordering::Relaxed));
        }
    }
    sums
}

fn sum(of: impl Fn(&Counts) -> &[AtomicU64; BUCKETS]) -> Histogram {
    let mut all = Histogram::EMPTY;
    for carrier in PROCESS.carriers() {
        for (sum, count) in all.counts.iter_mut().zip(of(&carrier.delays)) {
            *sum += count.load(Ordering::Relaxed);
        }
    }
    all
}

/// The longest delay of all. Its parts may be those of two delays, if a longer one ends meanwhile.
pub(crate) fn longest() -> Delay {
    let mut longest = Delay::NONE;
    for carrier in PROCESS.carriers() {
        let counts = &carrier.delays;
        let ns = counts.longest_ns.load(Ordering::Relaxed);
        if ns > longest.ns {
            longest = Delay {
                ns,
                at_ns: counts.longest_at_ns.load(Ordering::Relaxed),
                tid: counts.longest_tid.load(Ordering::Relaxed),
                ..Delay::NONE
            };
        }
    }
    if let Some(thread) = PROCESS.find(longest.tid as u32) {
        longest.name = thread.name();
    }
    longest
}
