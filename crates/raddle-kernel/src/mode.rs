//! What the process has begun with: carriers, signals in user space, a table of descriptors.

use core::sync::atomic::{AtomicU32, Ordering};
use raddle_engine::{Carrier, PROCESS};

/// Returns true if the running thread shares its carrier with others: a call that would block the
/// kernel thread must park the green thread instead. False in a process with one thread, and on a
/// bound thread, which blocks in the kernel.
#[inline(always)]
pub fn is_multiplexed() -> bool {
    PROCESS.is_started() && !Carrier::current().is_bound()
}

/// 1 once signals are handled in user space. Written by the only thread there is.
static VIRTUAL: AtomicU32 = AtomicU32::new(0);

/// Returns true once signals are handled in user space.
#[inline(always)]
pub fn is_virtual() -> bool {
    VIRTUAL.load(Ordering::Relaxed) != 0
}

/// Says that signals are handled in user space from now on.
pub(crate) fn set_virtual() {
    VIRTUAL.store(1, Ordering::Release);
}

/// Returns true if the calling thread uses the table of descriptors that the rows describe.
#[inline(always)]
pub fn are_known() -> bool {
    PROCESS.is_started() && !Carrier::current().has_own_files()
}
