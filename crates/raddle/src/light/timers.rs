//! Deadlines of light threads.
//!
//! There is one heap for all hosts. A host looks at it now and then between two light threads, and
//! before it sleeps; the group's watch sleeps no longer than to the earliest deadline. So deadlines
//! are met while hosts work and while all of them sleep.
//!
//! No deadline is slept over: the watch stores its wake-up time, and then looks at the heap once
//! more; a thread with an earlier deadline adds it first, and then reads the watch's wake-up time
//! (all SeqCst). One of the two sees the other.

use super::group::{GROUP, ensure_watch};
use super::host::{self, Light};
use crate::futex;
use raddle_sched::timers::NEVER;
use raddle_sched::{Timers, Wake};
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};
use std::time::Duration;

static TIMERS: Timers = Timers::new();

/// States of the watch.
struct Nap;

impl Nap {
    /// The watch sleeps until a deadline, or for ever: no host works.
    const LONG: u32 = 0;
    /// The watch is awake, or was just woken.
    const OVER: u32 = 1;
    /// The watch sleeps for one of its periods at most.
    const SHORT: u32 = 2;
}

/// A [`Nap`]: the futex that the watch sleeps on. Stored by the watch, swapped by its wakers.
static NAP: AtomicU32 = AtomicU32::new(Nap::OVER);

/// The time when the watch wakes by itself. Stored by the watch before [`NAP`].
static WAKES_NS: AtomicU64 = AtomicU64::new(0);

/// Returns CLOCK_MONOTONIC in nanoseconds.
pub(crate) fn now_ns() -> u64 {
    let mut time = libc::timespec {
        tv_sec: 0,
        tv_nsec: 0,
    };
    // SAFETY: fills a live structure.
    unsafe { libc::clock_gettime(libc::CLOCK_MONOTONIC, &mut time) };
    time.tv_sec as u64 * 1_000_000_000 + time.tv_nsec as u64
}

/// Returns the time `after` from now; [`NEVER`] beyond the clock's range.
pub(crate) fn deadline_ns(after: Duration) -> u64 {
    let after_ns = u64::try_from(after.as_nanos()).unwrap_or(NEVER);
    now_ns().saturating_add(after_ns)
}

/// Parks the calling light thread, which has prepared its task, until it is woken or the deadline
/// passes. Spurious returns are possible.
pub(crate) fn park_until(light: &'static Light, deadline_ns: u64) {
    if deadline_ns == NEVER {
        return host::park(light);
    }
    let task = light.task_ref();
    if ensure_watch().is_err() {
        return keep_host(light, deadline_ns);
    }
    if TIMERS.insert(task, deadline_ns) && deadline_ns < WAKES_NS.load(Ordering::SeqCst) {
        end_nap();
    }
    host::park(light);
    if light.task.outcome() != Wake::TimedOut {
        TIMERS.remove(task);
    }
}

/// As [`park_until`], without a thread for the watch.
#[cold]
fn keep_host(light: &'static Light, deadline_ns: u64) {
    while light.task.is_waiting() && now_ns() < deadline_ns {
        std::thread::sleep(Duration::from_millis(1));
    }
    light.stay();
}

/// Returns true if there are deadlines.
#[inline(always)]
pub(super) fn has_any() -> bool {
    TIMERS.earliest_ns() != NEVER
}

/// Makes the light threads with passed deadlines runnable. Returns true if there were any.
#[cold]
pub(super) fn expire() -> bool {
    let due = TIMERS.expire(now_ns());
    let any = !due.is_empty();
    let mut for_any_host = false;
    while let Some(task) = due.pop() {
        for_any_host |= host::expired(task);
    }
    if for_any_host {
        GROUP.wake_one();
    }
    any
}

/// Wakes the watch from a long sleep, since a host works again.
pub(super) fn host_works() {
    if NAP.load(Ordering::SeqCst) == Nap::LONG {
        end_nap();
    }
}

fn end_nap() {
    if NAP.swap(Nap::OVER, Ordering::SeqCst) != Nap::OVER {
        futex::wake(NAP.as_ptr().expose_provenance());
    }
}

/// Sleeps on the watch's thread until `until_ns` at most, and no longer than to the earliest
/// deadline. `is_idle`, called after the state is stored, tells whether no host works; without a
/// time the watch sleeps only then.
pub(super) fn nap(until_ns: u64, is_idle: impl Fn() -> bool) {
    let kind = match until_ns {
        NEVER => Nap::LONG,
        _ => Nap::SHORT,
    };
    let until_ns = until_ns.min(TIMERS.earliest_ns());
    WAKES_NS.store(until_ns, Ordering::SeqCst);
    NAP.store(kind, Ordering::SeqCst);
    let is_earliest = TIMERS.earliest_ns() >= until_ns;
    if is_earliest && (kind == Nap::SHORT || is_idle()) {
        let left_ns = (until_ns != NEVER).then(|| until_ns.saturating_sub(now_ns()));
        futex::wait(&NAP, kind, left_ns.map(Duration::from_nanos));
    }
    NAP.store(Nap::OVER, Ordering::SeqCst);
}

/// Forgets all deadlines.
///
/// # Safety
/// Must be called in the child of a fork, before it has a second thread.
pub(super) unsafe fn forget() {
    // SAFETY: the caller's promise.
    unsafe { TIMERS.reset() };
    NAP.store(Nap::OVER, Ordering::Relaxed);
    WAKES_NS.store(0, Ordering::Relaxed);
}
