//! Permissions for attributes: the rules of `sched(7)`, "Privileges and resource limits".

use super::{SCHED_DEADLINE, is_real_time};
use crate::kernel_threads::kernel_thread_told_apart;
use raddle_engine::attributes::Attributes;
use raddle_engine::{Carrier, Thread};
use raddle_sys::{err, errno, is_err, nr, sys};

const SCHED_IDLE: u32 = nr::SCHED_IDLE;
const RLIMIT_NICE: usize = nr::RLIMIT_NICE as usize;
const RLIMIT_RTPRIO: usize = nr::RLIMIT_RTPRIO as usize;

/// Returns true if an unprivileged process may not change `now` to `next`.
pub(super) fn needs_privilege(now: &Attributes, next: &Attributes) -> bool {
    let may_be = |nice: i32| nice >= lowest_nice();
    if is_real_time(next.policy) {
        let limit = limit(RLIMIT_RTPRIO);
        if next.policy != now.policy && limit == 0
            || next.priority > now.priority && u64::from(next.priority) > limit
        {
            return true;
        }
    } else if next.policy != SCHED_DEADLINE && next.nice < now.nice && !may_be(next.nice) {
        return true;
    }
    next.policy == SCHED_DEADLINE
        || now.policy == SCHED_IDLE && next.policy != SCHED_IDLE && !may_be(now.nice)
        || now.resets_on_fork && !next.resets_on_fork
}

/// Returns true if an unprivileged process may have `nice`, or less than it had.
pub(super) fn may_lower_nice(nice: i32) -> bool {
    nice >= lowest_nice()
}

/// Returns true if the caller's credentials let it change `thread`. If they may differ, the kernel
/// compares them: it is asked to set the niceness that the thread's kernel thread has.
pub(super) fn may_change(thread: &Thread) -> bool {
    const PRIO_PROCESS: usize = nr::PRIO_PROCESS as usize;
    let carrier = Carrier::current();
    if core::ptr::eq(thread, carrier.thread()) || !carrier.is_apart() && !thread.is_bound() {
        return true;
    }
    let kernel_tid = kernel_thread_told_apart(thread.tid()).unwrap_or(thread.tid());
    // SAFETY: plain calls about a kernel thread of ours, which change nothing.
    unsafe {
        let nice = 20 - sys!(nr::__NR_getpriority, PRIO_PROCESS, kernel_tid);
        sys!(nr::__NR_setpriority, PRIO_PROCESS, kernel_tid, nice) != err(errno::EPERM)
    }
}

/// `RLIMIT_NICE` counts upwards from nice 20.
fn lowest_nice() -> i32 {
    20 - limit(RLIMIT_NICE).min(40) as i32
}

fn limit(resource: usize) -> u64 {
    let mut limits = [0u64; 2];
    // SAFETY: the kernel fills a live structure.
    unsafe { sys!(nr::__NR_getrlimit, resource, limits.as_mut_ptr()) };
    limits[0]
}

/// Returns true if the process has CAP_SYS_NICE.
pub(super) fn has_privilege() -> bool {
    const _LINUX_CAPABILITY_VERSION_3: u32 = nr::_LINUX_CAPABILITY_VERSION_3;
    const SYS_NICE: u32 = 1 << 23;
    let header = [_LINUX_CAPABILITY_VERSION_3, 0];
    let mut sets = [0u32; 6]; // effective, permitted, inheritable; then the same for bits 32 to 63
    // SAFETY: the kernel reads and fills live structures.
    let result = unsafe { sys!(nr::__NR_capget, header.as_ptr(), sets.as_mut_ptr()) };
    !is_err(result) && sets[0] & SYS_NICE != 0
}
