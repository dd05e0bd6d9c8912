//! The system calls about scheduling classes and niceness.

use super::{
    PRIORITY_MAX, SCHED_DEADLINE, SCHED_FLAG_RESET_ON_FORK, USUAL_SLICE_NS, carrier_of, change,
    check, is_real_time, is_special,
};
use crate::frame::{Frame, Outcome};
use crate::kernel_threads::kernel_thread_of;
use crate::scheduling::permission;
use crate::user::User;
use core::sync::atomic::Ordering;
use raddle_engine::attributes::Attributes;
use raddle_engine::thread::TID_BASE;
use raddle_engine::{Carrier, PROCESS, Thread};
use raddle_sys::abi::SchedAttr;
use raddle_sys::{err, errno, is_err, mem, nr, sys};

/// `SCHED_RESET_ON_FORK`, or'ed to a policy.
const SCHED_RESET_ON_FORK: u32 = nr::SCHED_RESET_ON_FORK;
const NICE_MIN: i32 = -20;
const NICE_MAX: i32 = 19;

const EINVAL: Outcome = Outcome::of(err(errno::EINVAL));

/// The thread of this process that a call's id names; else the call's outcome.
pub(super) fn target<'a>(id: u32) -> Result<&'a Thread, Outcome> {
    if !PROCESS.is_started() {
        return Err(Outcome::PASS);
    }
    if id == 0 {
        return Ok(Carrier::current().thread());
    }
    match PROCESS.find(id) {
        Some(thread) => Ok(thread),
        None if (id as i32) < TID_BASE as i32 => Err(Outcome::PASS), // another process, or none
        None => Err(Outcome::of(err(errno::ESRCH))),
    }
}

fn answer(result: Result<(), isize>) -> Outcome {
    Outcome::of(result.err().unwrap_or(0))
}

/// Returns true if Linux knows the policy.
const fn is_known(policy: u32) -> bool {
    matches!(policy, 0..=3 | 5 | SCHED_DEADLINE)
}

/// Returns true if the priority is one of the policy's.
const fn is_priority_of(policy: u32, priority: u32) -> bool {
    priority <= PRIORITY_MAX && is_real_time(policy) == (priority != 0)
}

/// Returns true for `SCHED_OTHER` and `SCHED_BATCH`, in which a thread has a niceness and a slice.
const fn is_fair(policy: u32) -> bool {
    matches!(policy, 0 | 3)
}

/// Returns true for a run time, a deadline and a period that Linux takes (`__checkparam_dl` in
/// `kernel/sched/deadline.c`).
const fn is_feasible([runtime_ns, deadline_ns, period_ns]: [u64; 3]) -> bool {
    const LEAST_RUNTIME_NS: u64 = 1024;
    const TOO_LONG: u64 = 1 << 63;
    const LEAST_PERIOD_NS: u64 = 100_000;
    const MOST_PERIOD_NS: u64 = (1 << 22) * 1000;
    let period = if period_ns == 0 {
        deadline_ns
    } else {
        period_ns
    };
    deadline_ns != 0
        && runtime_ns >= LEAST_RUNTIME_NS
        && deadline_ns < TOO_LONG
        && period_ns < TOO_LONG
        && runtime_ns <= deadline_ns
        && deadline_ns <= period
        && LEAST_PERIOD_NS <= period
        && period <= MOST_PERIOD_NS
}

/// Returns the slice of a fair thread that asks for `wanted_ns`; 0 for the kernel's own choice.
fn slice_ns(wanted_ns: u64) -> u64 {
    const LEAST_NS: u64 = 100_000;
    const MOST_NS: u64 = 100_000_000;
    match wanted_ns {
        0 => 0,
        _ if !has_slices() => 0,
        _ => wanted_ns.clamp(LEAST_NS, MOST_NS),
    }
}

/// Returns true if the kernel knows slices (from Linux 6.12 on), and so reports one.
fn has_slices() -> bool {
    if USUAL_SLICE_NS.load(Ordering::Relaxed) != 0 {
        return true;
    }
    let mut attr = SchedAttr::default();
    let size = size_of::<SchedAttr>();
    // SAFETY: the kernel fills a live structure.
    let result = unsafe { sys!(nr::__NR_sched_getattr, 0usize, &raw mut attr, size, 0usize) };
    result == 0 && !is_special(attr.policy) && attr.times_ns[0] != 0
}

/// `sched_getscheduler(2)`.
pub extern "C" fn sched_getscheduler(frame: &Frame) -> Outcome {
    match target(frame.word(0)) {
        Ok(thread) => {
            let attributes = thread.attributes.get();
            let flag = u32::from(attributes.resets_on_fork) * SCHED_RESET_ON_FORK;
            Outcome::of((attributes.policy | flag) as isize)
        }
        Err(outcome) => outcome,
    }
}

/// `sched_getparam(2)`.
pub extern "C" fn sched_getparam(frame: &Frame) -> Outcome {
    let to = frame.user::<u32>(1);
    if to.is_null() {
        return Outcome::PASS; // the kernel says EINVAL
    }
    match target(frame.word(0)) {
        Ok(thread) => answer(to.write(&thread.attributes.get().priority)),
        Err(outcome) => outcome,
    }
}

/// `sched_setscheduler(2)`.
pub extern "C" fn sched_setscheduler(frame: &Frame) -> Outcome {
    let policy = frame.word(1);
    if (policy as i32) < 0 {
        return EINVAL;
    }
    set_scheduler(frame.word(0), Some(policy), frame.user(2))
}

/// `sched_setparam(2)`.
pub extern "C" fn sched_setparam(frame: &Frame) -> Outcome {
    set_scheduler(frame.word(0), None, frame.user(1))
}

fn set_scheduler(id: u32, policy: Option<u32>, parameters: User<u32>) -> Outcome {
    let target = target(id);
    if let Err(outcome) = target
        && outcome.is_pass()
    {
        return outcome;
    }
    if parameters.is_null() {
        return EINVAL;
    }
    let priority = match parameters.read() {
        Ok(priority) => priority,
        Err(errno) => return Outcome::of(errno),
    };
    let thread = match target {
        Ok(thread) => thread,
        Err(outcome) => return outcome,
    };
    let now = thread.attributes.get();
    let (policy, resets_on_fork) = match policy {
        Some(policy) => (
            policy & !SCHED_RESET_ON_FORK,
            policy & SCHED_RESET_ON_FORK != 0,
        ),
        None => (now.policy, now.resets_on_fork),
    };
    if !is_known(policy) || !is_priority_of(policy, priority) || policy == SCHED_DEADLINE {
        return EINVAL; // a deadline has no times here
    }
    let next = Attributes {
        policy,
        priority,
        resets_on_fork,
        times_ns: [slice_of(&now), 0, 0],
        ..now
    };
    answer(change(thread, &next))
}

/// Returns the slice that a thread has asked for and keeps in other classes; 0 for none.
const fn slice_of(attributes: &Attributes) -> u64 {
    match attributes.policy {
        SCHED_DEADLINE => 0,
        _ => attributes.times_ns[0],
    }
}

/// `sched_getattr(2)`.
pub extern "C" fn sched_getattr(frame: &Frame) -> Outcome {
    const KNOWN: usize = size_of::<SchedAttr>();
    /// One byte more shows whether the kernel clears the part that it doesn't know.
    const ROOM: usize = KNOWN + 1;
    let (to, size) = (frame.user::<u8>(1), frame.word(2) as usize);
    let is_size = (SchedAttr::FIRST_SIZE..=mem::PAGE_SIZE).contains(&size);
    if to.is_null() || !is_size || frame.word(3) != 0 {
        return Outcome::PASS; // the kernel says EINVAL
    }
    let thread = match target(frame.word(0)) {
        Ok(thread) => thread,
        Err(outcome) => return outcome,
    };
    let mut bytes = [u8::MAX; ROOM];
    let (at, room) = (bytes.as_mut_ptr(), size.min(ROOM));
    // SAFETY: the program's own call, about this kernel thread; the kernel fills a live structure.
    let result = unsafe { sys!(frame.number(), 0usize, at, room, 0usize) };
    if is_err(result) {
        return Outcome::of(result);
    }
    let clears = bytes[KNOWN] == 0;
    // SAFETY: the kernel has filled the bytes, and any bytes are a `SchedAttr`.
    let mut attr = unsafe { bytes.as_ptr().cast::<SchedAttr>().read_unaligned() };
    let now = thread.attributes.get();
    let fair = !is_special(now.policy);
    let asked_special = is_special(attr.policy);
    attr.policy = now.policy;
    attr.flags = u64::from(now.resets_on_fork);
    attr.nice = if fair { now.nice } else { 0 };
    attr.priority = now.priority;
    match now.policy {
        SCHED_DEADLINE => {
            let [runtime_ns, deadline_ns, period_ns] = now.times_ns;
            let period_ns = if period_ns == 0 {
                deadline_ns
            } else {
                period_ns
            };
            attr.times_ns = [runtime_ns, deadline_ns, period_ns];
        }
        _ if !fair => attr.times_ns = [0; 3],
        _ if now.times_ns[0] != 0 => attr.times_ns = [now.times_ns[0], 0, 0],
        _ if asked_special => attr.times_ns = [USUAL_SLICE_NS.load(Ordering::Relaxed), 0, 0],
        _ => {} // the kernel's choice
    }
    let filled = (attr.size as usize).min(KNOWN);
    let cleared = if clears {
        to.byte_add(filled).clear(size - filled)
    } else {
        Ok(())
    };
    answer(cleared.and_then(|()| to.cast().write_start(&attr, filled)))
}

/// `sched_setattr(2)`.
pub extern "C" fn sched_setattr(frame: &Frame) -> Outcome {
    const SCHED_FLAG_KEEP_POLICY: u64 = nr::SCHED_FLAG_KEEP_POLICY as u64;
    const SCHED_FLAG_KEEP_PARAMS: u64 = nr::SCHED_FLAG_KEEP_PARAMS as u64;
    const KNOWN: u64 = 0x7f;
    let target = target(frame.word(0));
    if let Err(outcome) = target
        && outcome.is_pass()
    {
        return outcome;
    }
    if frame.arg(1) == 0 || frame.word(2) != 0 {
        return EINVAL;
    }
    let mut attr = match read_attr(frame.user(1)) {
        Ok(attr) if (attr.policy as i32) < 0 => return EINVAL,
        Ok(attr) => attr,
        Err(errno) => return Outcome::of(errno),
    };
    let thread = match target {
        Ok(thread) => thread,
        Err(outcome) => return outcome,
    };
    let now = thread.attributes.get();
    let mut resets_on_fork = attr.flags & SCHED_FLAG_RESET_ON_FORK != 0;
    if attr.flags & SCHED_FLAG_KEEP_POLICY != 0 {
        (attr.policy, resets_on_fork) = (now.policy, now.resets_on_fork);
    }
    let keeps = attr.flags & SCHED_FLAG_KEEP_PARAMS != 0;
    match now.policy {
        _ if !keeps => attr.nice = attr.nice.clamp(NICE_MIN, NICE_MAX),
        SCHED_DEADLINE => (attr.priority, attr.times_ns) = (now.priority, now.times_ns),
        policy if is_real_time(policy) => attr.priority = now.priority,
        _ => (attr.nice, attr.times_ns[0]) = (now.nice, now.times_ns[0]),
    }
    // The runtime is the slice that the kernel gives a thread.
    let is_for_kernel = keeps && attr.policy == SCHED_DEADLINE && is_fair(now.policy);
    if !is_known(attr.policy)
        || attr.flags & !KNOWN != 0
        || !is_priority_of(attr.policy, attr.priority)
        || attr.policy == SCHED_DEADLINE && !is_for_kernel && !is_feasible(attr.times_ns)
    {
        return EINVAL;
    }
    if is_for_kernel && let Err(errno) = is_admitted(attr) {
        return Outcome::of(errno);
    }
    let mut next = Attributes {
        policy: attr.policy,
        priority: attr.priority,
        resets_on_fork,
        times_ns: [slice_of(&now), 0, 0],
        ..now
    };
    if is_fair(attr.policy) {
        next.nice = attr.nice;
        next.times_ns[0] = slice_ns(attr.times_ns[0]);
    } else if attr.policy == SCHED_DEADLINE {
        next.times_ns = attr.times_ns;
    }
    if let Err(errno) = check(&now, &next) {
        return Outcome::of(errno);
    }
    if attr.flags & CLAMPS != 0 {
        return Outcome::of(err(errno::EOPNOTSUPP)); // as a kernel without them
    }
    if keeps {
        // The class is one of the parameters that stay.
        next = Attributes {
            resets_on_fork,
            ..now
        };
    }
    answer(change(thread, &next))
}

/// Asks the kernel whether it admits a deadline. The parameters of its thread stay as they are.
///
/// # Errors
/// EINVAL, EBUSY, EPERM.
#[cold]
fn is_admitted(mut attr: SchedAttr) -> Result<(), isize> {
    attr.size = SchedAttr::FIRST_SIZE as u32;
    attr.flags &= !(CLAMPS | SCHED_FLAG_RESET_ON_FORK);
    // SAFETY: the kernel reads a live structure.
    match unsafe { sys!(nr::__NR_sched_setattr, 0usize, &raw const attr, 0usize) } {
        0 => Ok(()),
        errno => Err(errno),
    }
}

/// Flags of `sched_setattr(2)` that clamp the utilisation.
const CLAMPS: u64 = 0x60;

/// Copies the program's structure; its first word is its size. The bytes behind the known part must
/// be zero.
fn read_attr(at: User<SchedAttr>) -> Result<SchedAttr, isize> {
    const KNOWN: usize = size_of::<SchedAttr>();
    let size = match at.cast::<u32>().read()? as usize {
        0 => SchedAttr::FIRST_SIZE,
        size => size,
    };
    let is_size = (SchedAttr::FIRST_SIZE..=mem::PAGE_SIZE).contains(&size);
    let rest = at.cast::<u8>().byte_add(KNOWN);
    if !is_size || !rest.are_zero(size.saturating_sub(KNOWN))? {
        let _ = at.cast().write(&(KNOWN as u32)); // it may be read-only
        return Err(err(errno::E2BIG));
    }
    let attr = at.read_start(size, SchedAttr::default())?;
    if attr.flags & CLAMPS != 0 && size < KNOWN {
        return Err(err(errno::EINVAL));
    }
    Ok(attr)
}

/// `sched_rr_get_interval(2)`: a green thread has the class of a carrier that isn't bound.
pub extern "C" fn sched_rr_get_interval(frame: &Frame) -> Outcome {
    let Some(kernel_tid) = kernel_thread_of(frame.word(0)) else {
        return Outcome::PASS; // another process, or none
    };
    // SAFETY: the program's own call, about a kernel thread of ours.
    Outcome::of(unsafe { sys!(frame.number(), kernel_tid, frame.arg(1)) })
}

/// `getpriority(2)` of one thread; groups and users are the kernel's.
pub extern "C" fn getpriority(frame: &Frame) -> Outcome {
    if frame.word(0) != 0 {
        return Outcome::PASS;
    }
    match target(frame.word(1)) {
        Ok(thread) => Outcome::of((20 - thread.attributes.get().nice) as isize),
        Err(outcome) => outcome,
    }
}

/// `setpriority(2)`.
pub extern "C" fn setpriority(frame: &Frame) -> Outcome {
    if frame.word(0) != 0 {
        return set_priorities(frame);
    }
    let thread = match target(frame.word(1)) {
        Ok(thread) => thread,
        Err(outcome) => return outcome,
    };
    if !permission::may_change(thread) {
        return Outcome::of(err(errno::EPERM));
    }
    let nice = (frame.arg(2) as i32).clamp(NICE_MIN, NICE_MAX);
    let lower = nice < thread.attributes.get().nice;
    if lower && !permission::may_lower_nice(nice) && !permission::has_privilege() {
        return Outcome::of(err(errno::EACCES));
    }
    if let Some(own) = carrier_of(thread) {
        let kernel_tid = own.kernel_tid.load(Ordering::Acquire);
        // SAFETY: the program's own call, about a bound thread's kernel thread.
        let result = unsafe { sys!(frame.number(), 0usize, kernel_tid, nice as isize) };
        if is_err(result) {
            return Outcome::of(result);
        }
    }
    thread.attributes.change(|attributes| {
        attributes.nice = nice;
        thread.task.policy.terms.set_nice(nice); // the class stays, the explicit API's, too
    });
    Outcome::of(0)
}

/// `setpriority(2)` of a group or a user: the kernel's threads change; if this process belongs to
/// them, so do all of its threads.
fn set_priorities(frame: &Frame) -> Outcome {
    const GROUP: u32 = 1;
    const PRIO_USER: u32 = nr::PRIO_USER;
    if !PROCESS.is_started() {
        return Outcome::PASS;
    }
    // SAFETY: plain queries.
    let own = unsafe {
        match frame.word(0) {
            GROUP => sys!(nr::__NR_getpgid, 0usize),
            PRIO_USER => sys!(nr::__NR_getuid),
            _ => return Outcome::PASS, // the kernel says EINVAL
        }
    };
    let whom = frame.word(1);
    if whom != 0 && whom != own as u32 {
        return Outcome::PASS;
    }
    // SAFETY: the program's own call.
    let result = unsafe { frame.raw() };
    if result == 0 {
        let nice = (frame.arg(2) as i32).clamp(NICE_MIN, NICE_MAX);
        for thread in PROCESS.threads.iter() {
            thread.attributes.change(|attributes| {
                attributes.nice = nice;
                thread.task.policy.terms.set_nice(nice);
            });
        }
    }
    Outcome::of(result)
}
