//! Sleeping, yielding, and the kernel's ways to say "until when".

use crate::boundary::{Frame, Outcome};
use crate::is_multiplexed;
use crate::signal;
use crate::user;
use raddle_engine::clock::{self, MONOTONIC, REALTIME, now_ns, read_ns};
use raddle_engine::thread::WaitKind;
use raddle_engine::{Carrier, switch, ums};
use raddle_sched::Wake;
use raddle_sched::timers::NEVER;
use raddle_sys::abi::Timespec;
use raddle_sys::{err, errno};

/// Reads the program's timespec.
fn timespec(address: usize) -> Result<u64, isize> {
    user::read::<Timespec>(address)?
        .to_ns()
        .ok_or(err(errno::EINVAL))
}

/// The deadline (CLOCK_MONOTONIC, ns) of a relative timespec; null is for ever.
///
/// # Errors
/// EINVAL or EFAULT, negated.
pub fn relative_deadline(address: usize) -> Result<u64, isize> {
    if address == 0 {
        return Ok(NEVER);
    }
    Ok(now_ns().saturating_add(timespec(address)?).min(NEVER - 1))
}

/// The deadline of an absolute timespec on CLOCK_REALTIME or CLOCK_MONOTONIC; null is for ever.
///
/// A later step of the real-time clock doesn't move a deadline that is already set.
///
/// # Errors
/// EINVAL or EFAULT, negated.
pub fn absolute_deadline(address: usize, realtime: bool) -> Result<u64, isize> {
    if address == 0 {
        return Ok(NEVER);
    }
    Ok(deadline_at(timespec(address)?, realtime))
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

/// Sleeps until `deadline_ns`; true if a signal came first.
pub fn sleep_until(deadline_ns: u64) -> bool {
    let thread = Carrier::current().thread();
    thread.waits_for(WaitKind::Sleep, 0, deadline_ns);
    thread.task.prepare_fenced();
    let outcome = switch::park_until(deadline_ns);
    outcome == Wake::Signalled
}

/// `nanosleep(2)`.
pub extern "C" fn nanosleep(frame: &Frame) -> Outcome {
    if !is_multiplexed() {
        return Outcome::PASS;
    }
    match relative_deadline(frame.arg(0)) {
        Ok(deadline_ns) => Outcome::of(sleep_call(deadline_ns, frame.arg(1))),
        Err(errno) => Outcome::of(errno),
    }
}

/// `clock_nanosleep(2)` on the real-time, monotonic and boot clocks.
pub extern "C" fn clock_nanosleep(frame: &Frame) -> Outcome {
    const TIMER_ABSTIME: usize = 1;
    const BOOTTIME: u32 = 7;
    let clock_id = frame.rdi as u32;
    if !is_multiplexed() || !matches!(clock_id, REALTIME | MONOTONIC | BOOTTIME) {
        return Outcome::PASS;
    }
    let absolute = frame.arg(1) & TIMER_ABSTIME != 0;
    let deadline_ns = match clock_id {
        BOOTTIME if absolute => absolute_deadline(frame.arg(2), false)
            .map(|at| at.saturating_sub(read_ns(BOOTTIME).saturating_sub(now_ns()))),
        _ if absolute => absolute_deadline(frame.arg(2), clock_id == REALTIME),
        _ => relative_deadline(frame.arg(2)),
    };
    match deadline_ns {
        Ok(NEVER) => Outcome::of(err(errno::EFAULT)),
        Ok(deadline_ns) => {
            let remaining = if absolute { 0 } else { frame.arg(3) };
            Outcome::of(sleep_call(deadline_ns, remaining))
        }
        Err(errno) => Outcome::of(errno),
    }
}

/// Sleeps; on a signal writes the time that was left. Always EINTR then: handlers don't restart
/// sleeps visibly later than the kernel's restart would.
fn sleep_call(deadline_ns: u64, remaining: usize) -> isize {
    while sleep_until(deadline_ns) {
        if signal::deliver() == signal::Delivered::Nothing {
            continue;
        }
        if remaining != 0 {
            let left = Timespec::from_ns(deadline_ns.saturating_sub(clock::now_ns()));
            if let Err(errno) = user::write(remaining, &left) {
                return errno;
            }
        }
        return err(errno::EINTR);
    }
    0
}

/// `sched_yield(2)`.
pub extern "C" fn sched_yield(_: &Frame) -> Outcome {
    if !is_multiplexed() {
        return Outcome::PASS;
    }
    ums::sched_yield();
    Outcome::of(0)
}
