//! The system calls about scheduling classes and niceness.

use super::{
    DEADLINE, FLAG_RESET_ON_FORK, PRIORITY_MAX, carrier_of, change, is_real_time, is_special,
    permission, tell_policy,
};
use crate::boundary::{Frame, Outcome};
use crate::user::User;
use core::sync::atomic::Ordering;
use raddle_engine::attributes::Attributes;
use raddle_engine::thread::TID_BASE;
use raddle_engine::{Carrier, ENGINE, Thread};
use raddle_sys::abi::SchedAttr;
use raddle_sys::{err, errno, is_err, mem, sys};

/// `SCHED_RESET_ON_FORK`, or'ed to a policy.
const RESET_ON_FORK: u32 = 0x4000_0000;
const NICE_MIN: i32 = -20;
const NICE_MAX: i32 = 19;

const EINVAL: Outcome = Outcome::of(err(errno::EINVAL));

/// The thread that a call's id names, if it is one of ours; else what to answer.
pub fn target<'a>(id: u32) -> Result<&'a Thread, Outcome> {
    if !ENGINE.is_started() {
        return Err(Outcome::PASS);
    }
    if id == 0 {
        return Ok(Carrier::current().thread());
    }
    match ENGINE.find(id) {
        Some(thread) => Ok(thread),
        None if (id as i32) < TID_BASE as i32 => Err(Outcome::PASS), // another process, or nobody
        None => Err(Outcome::of(err(errno::ESRCH))),
    }
}

fn answer(result: Result<(), isize>) -> Outcome {
    Outcome::of(result.err().unwrap_or(0))
}

/// True if Linux knows the policy and the priority goes with it.
fn is_valid(policy: u32, priority: u32) -> bool {
    matches!(policy, 0..=3 | 5 | DEADLINE)
        && if is_real_time(policy) {
            (1..=PRIORITY_MAX).contains(&priority)
        } else {
            priority == 0
        }
}

/// `sched_getscheduler(2)`.
pub extern "C" fn sched_getscheduler(frame: &Frame) -> Outcome {
    match target(frame.word(0)) {
        Ok(thread) => {
            let attributes = thread.attributes.get();
            let flag = u32::from(attributes.resets_on_fork) * RESET_ON_FORK;
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
        Some(policy) => (policy & !RESET_ON_FORK, policy & RESET_ON_FORK != 0),
        None => (now.policy, now.resets_on_fork),
    };
    if !is_valid(policy, priority) || policy == DEADLINE {
        return EINVAL;
    }
    let next = Attributes {
        policy,
        priority,
        resets_on_fork,
        times_ns: [0; 3],
        ..now
    };
    answer(change(thread, &next))
}

/// `sched_getattr(2)`.
pub extern "C" fn sched_getattr(frame: &Frame) -> Outcome {
    const KNOWN: usize = size_of::<SchedAttr>();
    /// One byte more tells whether the kernel clears what it doesn't know.
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
    let result = unsafe { sys!(frame.rax as u32, 0usize, at, room, 0usize) };
    if is_err(result) {
        return Outcome::of(result);
    }
    let clears = bytes[KNOWN] == 0;
    // SAFETY: the kernel has filled it, and any bytes are one.
    let mut attr = unsafe { bytes.as_ptr().cast::<SchedAttr>().read_unaligned() };
    let now = thread.attributes.get();
    let fair = !is_special(now.policy);
    attr.policy = now.policy;
    attr.flags = u64::from(now.resets_on_fork);
    attr.nice = if fair { now.nice } else { 0 };
    attr.priority = now.priority;
    if now.times_ns != [0; 3] || !fair {
        attr.times_ns = now.times_ns;
    }
    let filled = (attr.size as usize).min(KNOWN);
    let cleared = match clears {
        true => to.byte_add(filled).clear(size - filled),
        false => Ok(()),
    };
    answer(cleared.and_then(|()| to.cast().write_start(&attr, filled)))
}

/// `sched_setattr(2)`.
pub extern "C" fn sched_setattr(frame: &Frame) -> Outcome {
    const KEEP_POLICY: u64 = 8;
    const KEEP_PARAMS: u64 = 0x10;
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
    let attr = match read_attr(frame.user(1)) {
        Ok(attr) if (attr.policy as i32) < 0 => return EINVAL,
        Ok(attr) => attr,
        Err(errno) => return Outcome::of(errno),
    };
    let thread = match target {
        Ok(thread) => thread,
        Err(outcome) => return outcome,
    };
    let now = thread.attributes.get();
    let mut next = Attributes {
        policy: attr.policy,
        resets_on_fork: attr.flags & FLAG_RESET_ON_FORK != 0,
        ..now
    };
    if attr.flags & KEEP_POLICY != 0 {
        (next.policy, next.resets_on_fork) = (now.policy, now.resets_on_fork);
    }
    if attr.flags & KEEP_PARAMS == 0 {
        next.priority = attr.priority;
        next.times_ns = attr.times_ns;
        if !is_special(next.policy) {
            next.nice = attr.nice.clamp(NICE_MIN, NICE_MAX);
        }
    }
    if attr.flags & !KNOWN != 0 || !is_valid(next.policy, next.priority) {
        return EINVAL;
    }
    if attr.flags & CLAMPS != 0 {
        return Outcome::of(err(errno::EOPNOTSUPP)); // as a kernel without them
    }
    // The kernel would look at these times, but isn't asked about a thread that stays green.
    let [runtime_ns, deadline_ns, period_ns] = next.times_ns;
    let is_feasible = 0 < runtime_ns && runtime_ns <= deadline_ns;
    if next.policy == DEADLINE && !(is_feasible && (period_ns == 0 || deadline_ns <= period_ns)) {
        return EINVAL;
    }
    answer(change(thread, &next))
}

/// Flags of `sched_setattr(2)` that clamp the utilisation.
const CLAMPS: u64 = 0x60;

/// Copies the program's structure, whose size is its first word. What lies behind the part that we
/// know must be zero.
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

/// `sched_rr_get_interval(2)`: a green thread's class is that of its carrier.
pub extern "C" fn sched_rr_get_interval(frame: &Frame) -> Outcome {
    let thread = match target(frame.word(0)) {
        Ok(thread) => thread,
        Err(outcome) => return outcome,
    };
    let own = carrier_of(thread).map_or(0, |own| own.kernel_tid.load(Ordering::Acquire));
    // SAFETY: the program's own call, about a kernel thread of ours.
    Outcome::of(unsafe { sys!(frame.rax as u32, own, frame.arg(1)) })
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

/// `setpriority(2)` of one thread; groups and users are the kernel's.
pub extern "C" fn setpriority(frame: &Frame) -> Outcome {
    if frame.word(0) != 0 {
        return Outcome::PASS;
    }
    let thread = match target(frame.word(1)) {
        Ok(thread) => thread,
        Err(outcome) => return outcome,
    };
    let nice = (frame.arg(2) as i32).clamp(NICE_MIN, NICE_MAX);
    let lower = nice < thread.attributes.get().nice;
    if lower && !permission::may_lower_nice(nice) && !permission::has_privilege() {
        return Outcome::of(err(errno::EACCES));
    }
    if let Some(own) = carrier_of(thread) {
        let kernel_tid = own.kernel_tid.load(Ordering::Acquire);
        // SAFETY: the program's own call, about a bound thread's kernel thread.
        let result = unsafe { sys!(frame.rax as u32, 0usize, kernel_tid, nice as isize) };
        if is_err(result) {
            return Outcome::of(result);
        }
    }
    thread.attributes.change(|attributes| {
        attributes.nice = nice;
        tell_policy(thread, attributes);
    });
    Outcome::of(0)
}
