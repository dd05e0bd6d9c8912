//! The short way from a UMS worker that yields to its scheduler, from that to the next worker, and
//! from a worker that decides in its scheduler's place to the next one.
//!
//! All are called by jumps ([`raddle_interface::Jumped`]). They make no call and touch nothing that
//! another CPU writes, unless something is out of the ordinary: then the long way is called
//! ([`raddle_engine::ums`]), which may be preempted, moved and posted. Since the short ways are the
//! runtime's text, no signal is handled in the middle. [`raddle_arch::short_ways`] has the stack
//! and the registers.

use crate::{interface, light_workers, symbols};
use raddle_arch::short_ways;
use raddle_engine::ums::path::{BREATH, HANDS_BACK, IN_PLACE, WAITS, carrier, thread};
use raddle_engine::{Carrier, Thread, accounting, ums};
use raddle_interface::{Ended, SchedulerToken, WorkerControl};

short_ways! {
    carrier: carrier,
    thread: thread,
    token: SchedulerToken,
    control: WorkerControl,
    accounting: accounting::ON,
    masks: [BREATH, IN_PLACE],
    waits: WAITS,
    hands_back: HANDS_BACK,
    yielded: Ended::Yielded as u32,
    look: look,
    breathe: breathe,
    decide: light_workers::decide,
    long_ways: [execute_the_long_way, yield_the_long_way, pass_the_long_way],
}

/// See [`raddle_interface::Runtime::take_token`].
pub(crate) extern "C" fn take_token() -> *const SchedulerToken {
    match interface::thread() {
        Some(_) => ums::take_token_to_decide(),
        None => core::ptr::null(),
    }
}

/// See [`raddle_interface::Runtime::return_token`].
pub(crate) extern "C" fn return_token(token: &SchedulerToken) {
    ums::return_token(token);
    symbols::leave();
}

/// A thread runs again, and has signals or is to give way.
pub(crate) extern "C" fn look() {
    ums::look_at_signals(Carrier::current().thread());
    symbols::leave();
}

extern "C" fn breathe() {
    ums::breathe(BREATH);
    symbols::leave();
}

extern "C" fn execute_the_long_way(control: &WorkerControl, token: &SchedulerToken) {
    ums::execute(control, token);
    symbols::leave();
}

extern "C" fn pass_the_long_way(next: &Thread, token: &SchedulerToken) {
    ums::pass(next, token);
    symbols::leave();
}

extern "C" fn yield_the_long_way(parameter: usize) -> usize {
    let has_yielded = interface::thread().is_some() && ums::yield_to_scheduler(parameter);
    symbols::leave();
    usize::from(has_yielded)
}
