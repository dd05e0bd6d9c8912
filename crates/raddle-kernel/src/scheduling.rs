//! Scheduling classes, niceness and affinity of green threads.
//!
//! A green thread's attributes are stored with it, inherited as Linux inherits them, checked by
//! Linux's rules, and read back. The engine's policy is told of them; fifo ignores them. A thread
//! that asks for a real-time class or a deadline needs the kernel's scheduler: it is *bound* first,
//! and a bound thread's attributes are given to its kernel thread, too. Under a policy that knows
//! such classes the thread stays green; the permissions are the same.
//!
//! Rejected: to honour affinity by binding. Programs pin each of their threads for speed, and would
//! have kernel threads only.

mod affinity;
mod calls;
mod permission;
pub mod slack;

pub use affinity::{sched_getaffinity, sched_setaffinity};
pub use calls::{
    getpriority, sched_getattr, sched_getparam, sched_getscheduler, sched_rr_get_interval,
    sched_setattr, sched_setparam, sched_setscheduler, setpriority,
};
pub use slack::{get_slack, set_slack};

use core::sync::atomic::{AtomicU64, Ordering};
use raddle_engine::attributes::{Attributes, CPU_WORDS};
use raddle_engine::{Carrier, PROCESS, Thread, switch};
use raddle_sched::policies::Class;
use raddle_sys::abi::SchedAttr;
use raddle_sys::{err, errno, nr, sys};

const SCHED_FIFO: u32 = nr::SCHED_FIFO;
const SCHED_RR: u32 = nr::SCHED_RR;
const SCHED_DEADLINE: u32 = nr::SCHED_DEADLINE;
/// The highest priority of the real-time classes.
const PRIORITY_MAX: u32 = 99;
const SCHED_FLAG_RESET_ON_FORK: u64 = nr::SCHED_FLAG_RESET_ON_FORK as u64;

/// The slice that the kernel gives a fair thread; 0 if the kernel doesn't know slices, or the first
/// thread wasn't fair. Written before the first clone.
static USUAL_SLICE_NS: AtomicU64 = AtomicU64::new(0);

const fn is_real_time(policy: u32) -> bool {
    matches!(policy, SCHED_FIFO | SCHED_RR)
}

/// Returns true for the classes that come before all others.
const fn is_special(policy: u32) -> bool {
    is_real_time(policy) || policy == SCHED_DEADLINE
}

/// Returns true if only the kernel's scheduler can give the thread what it asked for.
fn needs_kernel(policy: u32) -> bool {
    is_special(policy) && !PROCESS.first().has_classes()
}

/// Tells the engine's policy of a thread's attributes.
fn tell_policy(thread: &Thread, attributes: &Attributes) {
    let deadline_ns = match attributes.policy {
        SCHED_DEADLINE => attributes.times_ns[1],
        _ => 0,
    };
    let (class, terms) = (Class(attributes.policy), &thread.task.policy.terms);
    terms.set_attributes(class, attributes.priority, attributes.nice, deadline_ns);
}

/// Takes over the only thread's attributes from the kernel; before the first clone.
pub fn adopt() {
    if PROCESS.is_started() {
        return;
    }
    let mut attr = SchedAttr::default();
    // SAFETY: the kernel fills a live structure.
    let result = unsafe {
        let size = size_of::<SchedAttr>();
        sys!(nr::__NR_sched_getattr, 0usize, &raw mut attr, size, 0usize)
    };
    let thread = Carrier::current().thread();
    if result == 0 {
        if !is_special(attr.policy) {
            USUAL_SLICE_NS.store(attr.times_ns[0], Ordering::Relaxed);
        }
        thread.attributes.change(|attributes| {
            attributes.policy = attr.policy;
            attributes.priority = attr.priority;
            attributes.nice = attr.nice;
            attributes.cpus = [0; CPU_WORDS];
            attributes.resets_on_fork = attr.flags & SCHED_FLAG_RESET_ON_FORK != 0;
            tell_policy(thread, attributes);
            rank(thread, attributes);
        });
    }
    affinity::adopt();
    slack::adopt(thread);
}

/// Sets the thread's rank among waiters: as in Linux, real-time threads go first, by priority.
fn rank(thread: &Thread, attributes: &Attributes) {
    let rank = match attributes.policy {
        SCHED_DEADLINE => PRIORITY_MAX + 1,
        policy if is_real_time(policy) => attributes.priority,
        _ => 0,
    };
    thread.task.rank.store(rank, Ordering::Relaxed);
}

/// Returns the attributes of a new thread or process, from its creator's.
fn inherited(attributes: Attributes) -> Attributes {
    let default_slack_ns = attributes.slack_ns;
    if !attributes.resets_on_fork {
        return Attributes {
            default_slack_ns,
            ..attributes
        };
    }
    let special = is_special(attributes.policy);
    Attributes {
        policy: if special { 0 } else { attributes.policy },
        nice: if special { 0 } else { attributes.nice.max(0) },
        cpus: attributes.cpus,
        slack_ns: attributes.slack_ns,
        default_slack_ns,
        ..Attributes::DEFAULT
    }
}

/// A new thread's attributes, from its creator. A real-time thread's child is one, too, and bound.
pub fn inherit(child: &Thread, parent: &Thread) {
    if parent.attributes.are_default() {
        return; // as the child's, which is new
    }
    let attributes = inherited(parent.attributes.get());
    child.attributes.change(|own| *own = attributes);
    tell_policy(child, &attributes);
    rank(child, &attributes);
    if parent.is_bound() && needs_kernel(attributes.policy) && carrier_of(child).is_none() {
        let _ = PROCESS.bind(child);
    }
    give_to_kernel(child);
}

/// In the child of a fork: its one thread is the kernel's again.
pub fn in_child() {
    let carrier = Carrier::current();
    let thread = carrier.thread();
    let attributes = inherited(thread.attributes.get());
    thread.attributes.change(|own| *own = attributes);
    tell_policy(thread, &attributes);
    rank(thread, &attributes);
    if attributes != Attributes::DEFAULT {
        let _ = tell(carrier, &attributes);
        affinity::tell(carrier, &attributes);
        slack::tell(&attributes);
    }
}

/// Binds the running thread if it has attributes of its own: a program that it starts or becomes
/// has the attributes of its kernel thread. Without a free kernel thread, those of the process.
pub fn bind_if_special(thread: &Thread) {
    if !thread.attributes.are_default() && bind(thread).is_ok() {
        let attributes = thread.attributes.get();
        slack::tell(&attributes);
        if resets_for_carriers(&attributes)
            && let Some(own) = carrier_of(thread)
        {
            let _ = tell_flag(own, &attributes, attributes.resets_on_fork);
        }
    }
}

/// Gives the attributes of a bound thread to its kernel thread, as far as the kernel allows.
pub fn give_to_kernel(thread: &Thread) {
    let attributes = thread.attributes.get();
    if attributes != Attributes::DEFAULT
        && let Some(own) = carrier_of(thread)
    {
        let _ = tell(own, &attributes);
        affinity::tell(own, &attributes);
    }
}

/// A carrier's start: undoes the mask that a carrier inherits if a bound thread made it.
pub fn carrier_starts(carrier: &Carrier) {
    if !carrier.is_bound() {
        affinity::restore();
    }
}

/// The kernel thread of a bound thread.
fn carrier_of<'a>(thread: &Thread) -> Option<&'a Carrier> {
    // SAFETY: null or a carrier, which lives for ever.
    unsafe { thread.bound.load(Ordering::Acquire).as_ref() }
}

/// After [`bind_if_special`] and the call that it was for, in the process that goes on.
pub fn program_started(thread: &Thread) {
    if PROCESS.is_started() {
        let attributes = thread.attributes.get();
        slack::take_back(&attributes);
        if resets_for_carriers(&attributes)
            && let Some(own) = carrier_of(thread)
        {
            let _ = tell(own, &attributes);
        }
    }
}

/// Checks whether the process may change a thread's attributes `now` to `next`.
///
/// # Errors
/// EPERM.
fn check(now: &Attributes, next: &Attributes) -> Result<(), isize> {
    if permission::needs_privilege(now, next) && !permission::has_privilege() {
        Err(err(errno::EPERM))
    } else {
        Ok(())
    }
}

/// Changes a thread's attributes to `next`, binding it if that needs the kernel's scheduler.
///
/// # Errors
/// EPERM, EAGAIN, or what the kernel says to a bound thread.
fn change(thread: &Thread, next: &Attributes) -> Result<(), isize> {
    let now = thread.attributes.get();
    check(&now, next)?;
    if !permission::may_change(thread) {
        return Err(err(errno::EPERM));
    }
    if needs_kernel(next.policy) {
        bind(thread)?;
    }
    if let Some(own) = carrier_of(thread) {
        tell(own, next)?;
        PROCESS.call_home(thread);
    }
    thread.attributes.change(|attributes| {
        let class = |of: &Attributes| (of.policy, of.priority, of.times_ns);
        let is_same_class = class(attributes) == class(next);
        *attributes = Attributes {
            cpus: attributes.cpus,
            ..*next
        };
        if is_same_class {
            // A priority or a deadline that the explicit API asked for stays.
            thread.task.policy.terms.set_nice(attributes.nice);
        } else {
            tell_policy(thread, attributes);
        }
        rank(thread, attributes);
    });
    Ok(())
}

/// Gives a thread, if it has none, a kernel thread of its own with the thread's stored attributes.
/// The running thread moves there at once, another one when it is called home.
///
/// # Errors
/// EAGAIN.
pub fn bind(thread: &Thread) -> Result<(), isize> {
    if keeps(thread) {
        return Ok(());
    }
    if core::ptr::eq(thread, Carrier::current().thread()) {
        switch::bind_current();
    } else if Carrier::current().is_apart() {
        return Err(err(errno::EAGAIN)); // it would become as different as this one
    } else {
        PROCESS.bind(thread)?;
    }
    if carrier_of(thread).is_none() {
        return Err(err(errno::EAGAIN));
    }
    give_to_kernel(thread);
    Ok(())
}

/// Returns true if the thread has a kernel thread, which it keeps from now on.
fn keeps(thread: &Thread) -> bool {
    thread.attributes.with_lock(|| {
        let own = carrier_of(thread);
        if let Some(own) = own {
            own.lent.store(0, Ordering::Relaxed);
        }
        own.is_some()
    })
}

/// Tells the kernel a thread's attributes. Kernel threads that a bound thread's kernel thread makes
/// are carriers: they must not inherit these attributes, whatever the program asked for. A program
/// that the thread starts does inherit ([`bind_if_special`]).
fn tell(own: &Carrier, attributes: &Attributes) -> Result<(), isize> {
    let resets = own.is_bound() && resets_for_carriers(attributes);
    tell_flag(own, attributes, attributes.resets_on_fork || resets)
}

/// Returns true if carriers would inherit these attributes from a bound thread's kernel thread
/// without the flag: only a privileged process may take the flag back.
fn resets_for_carriers(attributes: &Attributes) -> bool {
    is_special(attributes.policy) || attributes.nice < 0
}

/// As [`tell`], with the flag as it is given.
fn tell_flag(own: &Carrier, attributes: &Attributes, resets: bool) -> Result<(), isize> {
    let attr = SchedAttr {
        size: SchedAttr::FIRST_SIZE as u32,
        policy: attributes.policy,
        flags: if resets { SCHED_FLAG_RESET_ON_FORK } else { 0 },
        nice: attributes.nice,
        priority: attributes.priority,
        times_ns: attributes.times_ns,
        util_min: 0,
        util_max: 0,
    };
    let kernel_tid = own.kernel_tid.load(Ordering::Acquire);
    // SAFETY: the kernel reads a live structure.
    match unsafe { sys!(nr::__NR_sched_setattr, kernel_tid, &raw const attr, 0usize) } {
        0 => Ok(()),
        error => Err(error),
    }
}
