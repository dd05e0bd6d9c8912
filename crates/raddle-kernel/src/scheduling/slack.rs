//! Timer slack: how late a thread's time limits may be.
//!
//! A thread's slack is kept with its attributes, inherited and read back. The kernel's threads
//! serve all green threads, so a slack is never made larger there: a thread that allows its own
//! waits to be late would delay those of others. A slack that is smaller than any before is given
//! to all of them. A thread of a real-time class or with a deadline has no slack, and its requests
//! have no effect; the kernel answers questions about such a slack.
//!
//! Rejected: one slack for the process. A slack of hours, which is meant for one thread, stops
//! sysmon and the poller.

use super::is_special;
use crate::frame::{Frame, Outcome};
use core::sync::atomic::{AtomicUsize, Ordering};
use raddle_engine::attributes::Attributes;
use raddle_engine::roster::Differs;
use raddle_engine::{Carrier, PROCESS, Thread};
use raddle_sys::{is_err, nr, prctl, sys};

/// The smallest slack that the kernel's threads have been given.
static LEAST_NS: AtomicUsize = AtomicUsize::new(Attributes::USUAL_SLACK_NS);

/// Notes the kernel's slack of the only thread.
pub(super) fn adopt(thread: &Thread) {
    // SAFETY: a plain query.
    let slack = unsafe { sys!(nr::__NR_prctl, prctl::PR_GET_TIMERSLACK) };
    if !is_err(slack) && slack != 0 && slack as usize != Attributes::USUAL_SLACK_NS {
        thread
            .attributes
            .change(|attributes| attributes.slack_ns = slack as usize);
    }
}

/// Gives the calling kernel thread, the only one of the process, the slack of its thread.
pub(super) fn tell(attributes: &Attributes) {
    if attributes.slack_ns != 0 {
        // SAFETY: no memory is involved.
        unsafe {
            sys!(
                nr::__NR_prctl,
                prctl::PR_SET_TIMERSLACK,
                attributes.slack_ns
            )
        };
    }
}

/// Undoes [`tell`] on the kernel thread of a bound thread: kernel threads that it makes for the
/// runtime inherit its slack.
pub(super) fn take_back(attributes: &Attributes) {
    if attributes.slack_ns != 0 {
        let least_ns = LEAST_NS.load(Ordering::Relaxed);
        // SAFETY: no memory is involved.
        unsafe { sys!(nr::__NR_prctl, prctl::PR_SET_TIMERSLACK, least_ns) };
    }
}

/// `prctl(PR_SET_TIMERSLACK)`; 0 restores the thread's first slack.
pub fn set_slack(frame: &Frame) -> Result<Outcome, Differs> {
    let thread = Carrier::current().thread();
    if is_special(thread.attributes.get().policy) {
        return Ok(Outcome::of(0));
    }
    let slack_ns = thread.attributes.change(|attributes| {
        attributes.slack_ns = match frame.arg(1) {
            0 => attributes.default_slack_ns,
            Attributes::USUAL_SLACK_NS => 0,
            slack_ns => slack_ns,
        };
        attributes.slack_ns
    });
    if slack_ns == 0 || slack_ns >= LEAST_NS.fetch_min(slack_ns, Ordering::Relaxed) {
        return Ok(Outcome::of(0));
    }
    // SAFETY: the program's own call, which changes nothing but a value.
    let result = unsafe { PROCESS.roster.everywhere(frame.number(), frame.args()) };
    result.map(Outcome::of)
}

/// How long the calling thread's waits may last beyond their time limits, in nanoseconds.
pub fn own_slack_ns() -> u64 {
    let attributes = Carrier::current().thread().attributes.get();
    match attributes.slack_ns {
        _ if is_special(attributes.policy) => 0,
        0 => Attributes::USUAL_SLACK_NS as u64,
        slack_ns => slack_ns as u64,
    }
}

/// `prctl(PR_GET_TIMERSLACK)`.
pub fn get_slack() -> Outcome {
    let attributes = Carrier::current().thread().attributes.get();
    match attributes.slack_ns {
        _ if is_special(attributes.policy) => Outcome::PASS,
        0 => Outcome::of(Attributes::USUAL_SLACK_NS as isize),
        slack_ns => Outcome::of(slack_ns as isize),
    }
}
