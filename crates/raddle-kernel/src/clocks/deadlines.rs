//! The kernel's forms of a time limit, and a sleep until one.

use crate::user::User;
use raddle_engine::clock::{REALTIME, now_ns, read_ns};
use raddle_engine::thread::WaitKind;
use raddle_engine::{Carrier, switch};
use raddle_sched::Wake;
use raddle_sched::timers::NEVER;
use raddle_sys::abi::Timespec;
use raddle_sys::{err, errno};

/// Reads the program's timespec.
pub(crate) fn timespec(at: User<Timespec>) -> Result<u64, isize> {
    at.read()?.to_ns().ok_or(err(errno::EINVAL))
}

/// The deadline (CLOCK_MONOTONIC, ns) of a relative timespec; null is for ever.
///
/// # Errors
/// EINVAL or EFAULT, negated.
pub fn relative_deadline(at: User<Timespec>) -> Result<u64, isize> {
    if at.is_null() {
        return Ok(NEVER);
    }
    Ok(now_ns().saturating_add(timespec(at)?).min(NEVER - 1))
}

/// The deadline of an absolute timespec on CLOCK_REALTIME or CLOCK_MONOTONIC; null is for ever.
///
/// A later step of the real-time clock doesn't move a deadline that is already set.
///
/// # Errors
/// EINVAL or EFAULT, negated.
pub fn absolute_deadline(at: impl Into<User<Timespec>>, realtime: bool) -> Result<u64, isize> {
    let at = at.into();
    if at.is_null() {
        return Ok(NEVER);
    }
    Ok(deadline_at(timespec(at)?, realtime))
}

/// The deadline of a time on CLOCK_REALTIME or CLOCK_MONOTONIC.
pub fn deadline_at(at_ns: u64, realtime: bool) -> u64 {
    if !realtime {
        return at_ns.min(NEVER - 1);
    }
    let left = at_ns.saturating_sub(read_ns(REALTIME));
    now_ns().saturating_add(left).min(NEVER - 1)
}

/// The deadline of a timeout in milliseconds; negative is for ever.
pub fn millisecond_deadline(timeout_ms: i32) -> u64 {
    match u64::try_from(timeout_ms) {
        Ok(ms) => now_ns() + ms * 1_000_000,
        Err(_) => NEVER,
    }
}

/// Sleeps until `deadline_ns`; returns true if a signal came first.
pub fn sleep_until(deadline_ns: u64) -> bool {
    let thread = Carrier::current().thread();
    thread.waits_for(WaitKind::SLEEP, 0, deadline_ns);
    thread.task.prepare_fenced();
    let outcome = switch::park_until(deadline_ns);
    outcome == Wake::Signalled
}
