//! Calls of Linux that need nothing of the engine: waits on words, pauses, CPU time.

use raddle_sys::abi::Timespec;
use raddle_sys::{nr, sys};

/// CPU time that the kernel thread `tid` has used; 0 if there is none.
pub(crate) fn cpu_ns(tid: u32) -> u64 {
    const THREAD: u32 = 4;
    const SCHED: u32 = 2;
    read_clock((!tid << 3 | THREAD | SCHED) as i32)
}

/// CPU time of the process.
pub(crate) fn process_cpu_ns() -> u64 {
    read_clock(nr::CLOCK_PROCESS_CPUTIME_ID as i32)
}

fn read_clock(clock: i32) -> u64 {
    let mut time = Timespec::default();
    // SAFETY: the kernel fills a live structure.
    unsafe { sys!(nr::__NR_clock_gettime, clock, &raw mut time) };
    time.to_ns().unwrap_or(0)
}

/// Sleeps, if `*word` is `expected`, until a wake-up or a signal comes.
pub fn futex_wait(word: *const u32, expected: u32) {
    // SAFETY: the word is live; FUTEX_WAIT_PRIVATE reads it.
    unsafe {
        sys!(
            nr::__NR_futex,
            word,
            nr::FUTEX_WAIT | nr::FUTEX_PRIVATE_FLAG,
            expected,
            0usize
        )
    };
}

/// As [`futex_wait`], for at most `timeout_ns`. Returns true if the time passed.
pub fn futex_wait_for(word: *const u32, expected: u32, timeout_ns: u64) -> bool {
    let timeout = Timespec::from_ns(timeout_ns);
    // SAFETY: as above; the kernel reads a live timespec.
    let r = unsafe {
        sys!(
            nr::__NR_futex,
            word,
            nr::FUTEX_WAIT | nr::FUTEX_PRIVATE_FLAG,
            expected,
            &raw const timeout
        )
    };
    r == raddle_sys::err(raddle_sys::errno::ETIMEDOUT)
}

/// Sleeps for about `ns`, or until a signal comes.
pub(crate) fn nap(ns: u64) {
    let word = 0u32;
    futex_wait_for(&raw const word, word, ns);
}

/// Gives the CPU to kernel threads that may have been stopped by this one. `times` is how often
/// this wait has called before: first it yields. That does nothing for a kernel thread of a lower
/// scheduling class, so a longer wait sleeps.
#[cold]
pub fn give_cpu_away(times: u32) {
    const YIELDS: u32 = 16;
    const NAP_NS: u64 = 50_000;
    if times >= YIELDS {
        return nap(NAP_NS);
    }
    // SAFETY: no memory is involved.
    unsafe { sys!(nr::__NR_sched_yield) };
}

/// Wakes up to `count` sleepers on `word`.
pub fn futex_wake(word: *const u32, count: u32) {
    // SAFETY: FUTEX_WAKE_PRIVATE only uses the address.
    unsafe {
        sys!(
            nr::__NR_futex,
            word,
            nr::FUTEX_WAKE | nr::FUTEX_PRIVATE_FLAG,
            count
        )
    };
}
