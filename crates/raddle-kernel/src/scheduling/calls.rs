//! The system calls about scheduling classes and niceness.

use super::{
    DEADLINE, FLAG_RESET_ON_FORK, PRIORITY_MAX, carrier_of, change, is_real_time, is_special,
    permission, tell_policy,
};
use crate::boundary::{Frame, Outcome};
use crate::user;
use core::ptr::with_exposed_provenance_mut;
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
pub fn target<'a>(id: usize) -> Result<&'a Thread, Outcome> {
    if !ENGINE.is_started() {
        return Err(Outcome::PASS);
    }
    if id as u32 == 0 {
        return Ok(Carrier::current().thread());
    }
    match ENGINE.find(id as u32) {
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
    match target(frame.arg(0)) {
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
    match target(frame.arg(0)) {
        Ok(_) if frame.arg(1) == 0 => EINVAL,
        Ok(thread) => {
            let priority = thread.attributes.get().priority;
            answer(user::write(frame.arg(1), &priority))
        }
        Err(outcome) => outcome,
    }
}

/// `sched_setscheduler(2)`.
pub extern "C" fn sched_setscheduler(frame: &Frame) -> Outcome {
    let policy = frame.arg(1) as u32;
    if (policy as i32) < 0 {
        return EINVAL;
    }
    set_scheduler(frame.arg(0), Some(policy), frame.arg(2))
}

/// `sched_setparam(2)`.
pub extern "C" fn sched_setparam(frame: &Frame) -> Outcome {
    set_scheduler(frame.arg(0), None, frame.arg(1))
}

fn set_scheduler(id: usize, policy: Option<u32>, parameters: usize) -> Outcome {
    let thread = match target(id) {
        Ok(thread) => thread,
        Err(outcome) => return outcome,
    };
    if parameters == 0 {
        return EINVAL;
    }
    let priority = match user::read::<u32>(parameters) {
        Ok(priority) => priority,
        Err(errno) => return Outcome::of(errno),
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
    let thread = match target(frame.arg(0)) {
        Ok(thread) => thread,
        Err(outcome) => return outcome,
    };
    let (number, at, size) = (frame.rax as u32, frame.arg(1), frame.arg(2));
    // SAFETY: the program's own call, about this kernel thread: it checks and fills the structure.
    let result = unsafe { sys!(number, 0usize, at, size, frame.arg(3)) };
    if is_err(result) {
        return Outcome::of(result);
    }
    let now = thread.attributes.get();
    let at = with_exposed_provenance_mut::<SchedAttr>(at);
    // SAFETY: the kernel has just written at least the first version's bytes there, and these
    // fields are part of it.
    unsafe {
        (&raw mut (*at).policy).write_unaligned(now.policy);
        (&raw mut (*at).flags).write_unaligned(u64::from(now.resets_on_fork));
        let fair = !is_special(now.policy);
        (&raw mut (*at).nice).write_unaligned(if fair { now.nice } else { 0 });
        (&raw mut (*at).priority).write_unaligned(now.priority);
        if now.times_ns != [0; 3] || !fair {
            (&raw mut (*at).times_ns).write_unaligned(now.times_ns);
        }
    }
    Outcome::of(0)
}

/// `sched_setattr(2)`.
pub extern "C" fn sched_setattr(frame: &Frame) -> Outcome {
    const KEEP_POLICY: u64 = 8;
    const KEEP_PARAMS: u64 = 0x10;
    const CLAMPS: u64 = 0x60;
    const KNOWN: u64 = 0x7f;
    let thread = match target(frame.arg(0)) {
        Ok(thread) => thread,
        Err(outcome) => return outcome,
    };
    if frame.arg(1) == 0 || frame.arg(2) != 0 {
        return EINVAL;
    }
    let attr = match read_attr(frame.arg(1)) {
        Ok(attr) => attr,
        Err(errno) => return Outcome::of(errno),
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

/// Copies the program's structure, whose size is its first word. What lies behind the part that we
/// know must be zero.
fn read_attr(address: usize) -> Result<SchedAttr, isize> {
    let known = size_of::<SchedAttr>();
    let size = match user::read::<u32>(address)? as usize {
        0 => SchedAttr::FIRST_SIZE,
        size => size,
    };
    let mut fits = (SchedAttr::FIRST_SIZE..=mem::PAGE_SIZE).contains(&size);
    for at in known..size.min(mem::PAGE_SIZE) {
        fits &= user::read::<u8>(address + at)? == 0;
    }
    if !fits {
        user::write(address, &(known as u32))?;
        return Err(err(errno::E2BIG));
    }
    user::read_part(address, size, SchedAttr::default())
}

/// `sched_rr_get_interval(2)`: a green thread's class is that of its carrier.
pub extern "C" fn sched_rr_get_interval(frame: &Frame) -> Outcome {
    let thread = match target(frame.arg(0)) {
        Ok(thread) => thread,
        Err(outcome) => return outcome,
    };
    let own = carrier_of(thread).map_or(0, |own| own.kernel_tid.load(Ordering::Acquire));
    // SAFETY: the program's own call, about a kernel thread of ours.
    Outcome::of(unsafe { sys!(frame.rax as u32, own, frame.arg(1)) })
}

/// `getpriority(2)` of one thread; groups and users are the kernel's.
pub extern "C" fn getpriority(frame: &Frame) -> Outcome {
    if frame.rdi as u32 != 0 {
        return Outcome::PASS;
    }
    match target(frame.arg(1)) {
        Ok(thread) => Outcome::of((20 - thread.attributes.get().nice) as isize),
        Err(outcome) => outcome,
    }
}

/// `setpriority(2)` of one thread; groups and users are the kernel's.
pub extern "C" fn setpriority(frame: &Frame) -> Outcome {
    if frame.rdi as u32 != 0 {
        return Outcome::PASS;
    }
    let thread = match target(frame.arg(1)) {
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
