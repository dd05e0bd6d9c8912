//! CPU clocks of threads: their ids, their time, and what else is counted for each thread.
//!
//! `pthread_getcpuclockid` makes a clock's id of a thread's id without asking the kernel, and reads
//! go through the vDSO, which no stub sees: the symbol layer takes `clock_gettime` for these ids.

pub mod deadlines;

use crate::frame::{Frame, Outcome};
use core::sync::atomic::Ordering;
use raddle_engine::accounting::{clock_of, cpu_ns};
use raddle_engine::{Carrier, PROCESS, Thread};
use raddle_sys::abi::Timespec;
use raddle_sys::{is_err, sys};

/// `CLOCK_THREAD_CPUTIME_ID`.
const OWN: u32 = 3;
/// Bits of a thread's id that a clock's id has room for.
const TID_BITS: u32 = (1 << 29) - 1;

/// Returns true if `clock` may be a thread's CPU clock.
#[inline(always)]
pub fn may_be_threads(clock: u32) -> bool {
    const FIRST_DYNAMIC: u32 = 16;
    clock == OWN || clock >= FIRST_DYNAMIC
}

/// Returns the green thread that `clock` counts the CPU time of.
pub fn owner<'a>(clock: u32) -> Option<&'a Thread> {
    const SCHED: u32 = 2;
    const PER_THREAD: u32 = 4;
    if !PROCESS.is_started() || !may_be_threads(clock) {
        return None;
    }
    if clock == OWN {
        return Some(Carrier::current().thread());
    }
    if clock & 7 != PER_THREAD | SCHED {
        return None;
    }
    let tid = !(clock >> 3) & TID_BITS;
    if tid == 0 {
        return Some(Carrier::current().thread());
    }
    PROCESS.find_by_low_bits(tid, TID_BITS)
}

/// The time of a thread's CPU clock; `None` if `clock` isn't one.
pub fn read(clock: u32) -> Option<Timespec> {
    owner(clock).map(|thread| Timespec::from_ns(cpu_ns(thread)))
}

/// `clock_gettime(2)`, where it is a system call.
pub extern "C" fn clock_gettime(frame: &Frame) -> Outcome {
    match read(frame.word(0)) {
        Some(time) => Outcome::of(frame.user(1).write(&time).err().unwrap_or(0)),
        None => Outcome::PASS,
    }
}

/// `clock_getres(2)`: all CPU clocks have one resolution.
pub extern "C" fn clock_getres(frame: &Frame) -> Outcome {
    match owner(frame.word(0)) {
        // SAFETY: the program's own call, about the carrier's clock.
        Some(_) => Outcome::of(unsafe { sys!(frame.number(), OWN, frame.arg(1)) }),
        None => Outcome::PASS,
    }
}

/// Returns the clock to give to the kernel for `clock`: for a bound thread, its kernel thread's.
pub fn for_kernel(clock: u32) -> u32 {
    // SAFETY: null or a carrier, which lives for ever.
    let bound = |thread: &Thread| unsafe { thread.bound.load(Ordering::Acquire).as_ref() };
    match owner(clock).and_then(bound) {
        Some(own) => clock_of(own.kernel_tid.load(Ordering::Acquire)),
        None => clock,
    }
}

/// `getrusage(2)` of the calling thread: all its CPU time is said to be user time.
pub extern "C" fn getrusage(frame: &Frame) -> Outcome {
    const RUSAGE_THREAD: u32 = raddle_sys::nr::RUSAGE_THREAD;
    const WORDS: usize = 18;
    if frame.word(0) != RUSAGE_THREAD || !PROCESS.is_started() {
        return Outcome::PASS;
    }
    // struct rusage: user time, system time, twelve counters, voluntary and involuntary switches.
    let mut usage = [0u64; WORDS];
    // SAFETY: the program's own call, about the carrier; the kernel fills a live structure.
    let result = unsafe { sys!(frame.number(), RUSAGE_THREAD, usage.as_mut_ptr()) };
    if is_err(result) {
        return Outcome::of(result);
    }
    let thread = Carrier::current().thread();
    let cpu_us = cpu_ns(thread) / 1000;
    let parks = thread.park.load(Ordering::Relaxed);
    let yields = thread
        .switches
        .load(Ordering::Relaxed)
        .saturating_sub(parks);
    usage[..4].copy_from_slice(&[cpu_us / 1_000_000, cpu_us % 1_000_000, 0, 0]);
    usage[16..].copy_from_slice(&[parks, yields]);
    Outcome::of(frame.user(1).write(&usage).err().unwrap_or(0))
}
