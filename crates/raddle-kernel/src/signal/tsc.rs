//! Readings of the time stamp counter by the runtime on a kernel thread that may not read it.
//!
//! A thread that forbids itself the instruction (`prctl(PR_SET_TSC)`) gets SIGSEGV for it. So does
//! the runtime on the thread's kernel thread: for its own readings, and in the vDSO's clocks, which
//! it reads. The handler emulates the instruction and goes on behind it: the runtime's readings get
//! a count that moves on, and the vDSO a count that makes it ask the kernel.

use raddle_engine::Carrier;
use raddle_sys::abi::{SigContext, SigInfo, Timespec};
use raddle_sys::{nr, sys};

/// Emulates the instruction that raised `info` on this carrier, if it is a reading by the runtime
/// or on its behalf; `is_ours` says that it is the runtime's own text. In the signal handler.
pub(super) fn answer(
    carrier: &Carrier,
    info: &SigInfo,
    is_ours: bool,
    context: &mut SigContext,
) -> bool {
    const SEGV: i32 = 11;
    const BY_KERNEL: i32 = 0x80;
    let in_clock = carrier.in_clock.get() != 0;
    if info.signo != SEGV || info.code != BY_KERNEL || !(is_ours || in_clock) {
        return false;
    }
    let count = || if in_clock { u64::MAX } else { now_ns() };
    // SAFETY: text that was just executed, of the runtime or the vDSO, which goes on behind this.
    unsafe { context.emulate_time_stamp(count) }.is_some()
}

/// Reads the clock by a system call: the vDSO may be the interrupted code.
fn now_ns() -> u64 {
    const CLOCK_MONOTONIC: usize = nr::CLOCK_MONOTONIC as usize;
    let mut time = Timespec::default();
    // SAFETY: the kernel fills a live structure.
    unsafe { sys!(nr::__NR_clock_gettime, CLOCK_MONOTONIC, &raw mut time) };
    time.to_ns().unwrap_or(0)
}
