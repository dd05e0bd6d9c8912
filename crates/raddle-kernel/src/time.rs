//! Sleeping, yielding, and the kernel's forms of a time limit.

use crate::clocks::deadlines::{sleep_until, timespec};
use crate::frame::{Frame, Outcome};
use crate::mode::is_multiplexed;
use crate::scheduling::slack;
use crate::user::User;
use crate::{clocks, scheduling, signal};
use raddle_engine::accounting::cpu_ns;
use raddle_engine::clock::{MONOTONIC, REALTIME, now_ns, read_ns};
use raddle_engine::thread::WaitKind;
use raddle_engine::{Carrier, PROCESS, ums};
use raddle_sched::timers::NEVER;
use raddle_sys::abi::Timespec;
use raddle_sys::{err, errno, is_err, nr, sys};

const CLOCK_BOOTTIME: u32 = nr::CLOCK_BOOTTIME;

/// `nanosleep(2)`.
pub extern "C" fn nanosleep(frame: &Frame) -> Outcome {
    if !is_multiplexed() {
        return Outcome::PASS;
    }
    Outcome::of(match timespec(frame.user(0)) {
        Ok(left_ns) => sleep_call(deadline_of(left_ns), frame.user(1)),
        Err(errno) => errno,
    })
}

/// The deadline of a relative time.
fn deadline_of(left_ns: u64) -> u64 {
    now_ns().saturating_add(left_ns).min(NEVER - 1)
}

/// `clock_nanosleep(2)`: on the real-time, monotonic and boot clocks here, on others by a helper.
pub extern "C" fn clock_nanosleep(frame: &Frame) -> Outcome {
    const TIMER_ABSTIME: u32 = nr::TIMER_ABSTIME;
    let clock_id = frame.word(0);
    if !is_multiplexed() {
        return Outcome::PASS;
    }
    let is_absolute = frame.word(1) & TIMER_ABSTIME != 0;
    let remaining = if is_absolute {
        User::at(0)
    } else {
        frame.user(3)
    };
    if !matches!(clock_id, REALTIME | MONOTONIC | CLOCK_BOOTTIME) {
        return sleep_on(frame, clock_id, is_absolute, remaining);
    }
    let time_ns = match timespec(frame.user(2)) {
        Ok(time_ns) => time_ns,
        Err(errno) => return Outcome::of(errno),
    };
    let deadline_ns = match is_absolute {
        true if clock_id == MONOTONIC => time_ns.min(NEVER - 1),
        true => deadline_of(time_ns.saturating_sub(read_ns(clock_id))),
        false => deadline_of(time_ns),
    };
    Outcome::of(sleep_call(deadline_ns, remaining))
}

/// Sleeps; on a signal writes the time that was left. Always EINTR then: handlers don't restart
/// sleeps visibly later than the kernel's restart would.
fn sleep_call(deadline_ns: u64, remaining: User<Timespec>) -> isize {
    let deadline_ns = in_the_future(deadline_ns);
    while sleep_until(deadline_ns) {
        if signal::deliver(false) {
            return interrupted(deadline_ns.saturating_sub(now_ns()), remaining);
        }
    }
    0
}

/// Returns a deadline that is not over before the thread has been put to sleep, unless it was over
/// long ago.
///
/// Linux ends a sleep between its deadline and the timer slack after it, and nearly always at the
/// end: a sleep of no time takes 50 us. Programs wait so for what another thread does, in loops
/// that would compute if the call returned at once. Most of the slack stays unused here, as the
/// kernel adds its own when the carrier sleeps as well.
fn in_the_future(deadline_ns: u64) -> u64 {
    const SOON_NS: u64 = 1_000;
    const LEAST_NS: u64 = 10_000;
    let now = now_ns();
    if deadline_ns > now.saturating_add(SOON_NS) || deadline_ns.saturating_add(LEAST_NS) < now {
        return deadline_ns;
    }
    now.saturating_add(slack::own_slack_ns().min(LEAST_NS))
}

/// A handler has interrupted a sleep with so much of its time left.
fn interrupted(left_ns: u64, remaining: User<Timespec>) -> isize {
    if !remaining.is_null()
        && let Err(errno) = remaining.write(&Timespec::from_ns(left_ns))
    {
        return errno;
    }
    err(errno::EINTR)
}

/// Sleeps on another clock: CPU time of the process or another thread, atomic time, clocks that
/// wake the machine. A signal of the runtime's would end the sleep like one of the program's, so a
/// helper sleeps, until a time on that clock.
#[inline(never)]
fn sleep_on(frame: &Frame, clock_id: u32, is_absolute: bool, remaining: User<Timespec>) -> Outcome {
    const TIMER_ABSTIME: usize = nr::TIMER_ABSTIME as usize;
    const THREAD_CPUTIME: u32 = 3;
    if clock_id == THREAD_CPUTIME {
        return Outcome::PASS; // no thread can sleep on it
    }
    let Ok(time_ns) = timespec(frame.user(2)) else {
        return Outcome::PASS; // the kernel finds the right errno
    };
    let of = clocks::owner(clock_id);
    if let Some(thread) = of {
        if core::ptr::eq(thread, Carrier::current().thread()) {
            return Outcome::of(err(errno::EINVAL)); // its own, which stands still meanwhile
        }
        if let Err(errno) = scheduling::bind(thread) {
            return Outcome::of(errno);
        }
    }
    let clock_id = clocks::for_kernel(clock_id);
    // A green thread's clock isn't its kernel thread's: the kernel thread's also counts the
    // runtime's CPU time, and the thread's while nothing was counted.
    let shown_ns = || match of {
        Some(thread) => Some(cpu_ns(thread)),
        None => kernels_ns(clock_id),
    };
    let Some(now) = shown_ns() else {
        return Outcome::PASS;
    };
    let until_ns = if is_absolute {
        time_ns
    } else {
        now.saturating_add(time_ns)
    };
    let left_ns = || until_ns.saturating_sub(shown_ns().unwrap_or(until_ns));
    loop {
        let mut kernels_until_ns = until_ns;
        if of.is_some() {
            let Some(kernels_now) = kernels_ns(clock_id) else {
                return Outcome::PASS; // the thread has ended
            };
            kernels_until_ns = kernels_now.saturating_add(left_ns());
        }
        let until = Timespec::from_ns(kernels_until_ns);
        let until_at = (&raw const until).expose_provenance();
        let thread = Carrier::current().thread();
        thread.waits_for(WaitKind::SLEEP, clock_id as usize, 0);
        let args = [clock_id as usize, TIMER_ABSTIME, until_at, 0, 0, 0];
        // SAFETY: the time lives in this frame, which stays while the helper works for it.
        let result = unsafe { PROCESS.helpers.call(nr::__NR_clock_nanosleep, args) };
        if result == 0 && of.is_some() && left_ns() != 0 {
            continue;
        }
        if result != err(errno::EINTR) {
            return Outcome::of(result);
        }
        if signal::deliver(false) {
            return Outcome::of(interrupted(left_ns(), remaining));
        }
    }
}

/// Returns the time of a clock; `None` if the kernel knows no such clock.
fn kernels_ns(clock_id: u32) -> Option<u64> {
    let mut time = Timespec::default();
    // SAFETY: the kernel fills a live structure.
    let result = unsafe { sys!(nr::__NR_clock_gettime, clock_id, &raw mut time) };
    (!is_err(result)).then(|| time.to_ns().unwrap_or(0))
}

/// `sched_yield(2)`.
pub extern "C" fn sched_yield(_: &Frame) -> Outcome {
    if !is_multiplexed() {
        return Outcome::PASS;
    }
    ums::sched_yield();
    Outcome::of(0)
}
