//! The short way from a light worker that yields in place to the next one: one function, which
//! calls the scheduler's procedure and switches, and returns to the caller of no other worker.
//!
//! 1. The worker has taken its token ([`crate::workers::yield_to_scheduler`]). It saves its
//!    registers on its stack, goes to the scheduler's, and calls what decides there: an ordinary
//!    thread, which may be preempted, moved and wait.
//! 2. If the next one is another light worker at rest, the thread, which is the host of both,
//!    becomes that one and gets the token; the caller rests, and its stack is left last. As in
//!    [`crate::workers`], no signal is handled in the middle: neither on a stack that another
//!    thread may use, nor as a worker with another stack.
//! 3. In all other cases the caller is told, which sees to it in Rust.
//!
//! [`raddle_arch::short_way_of_light_workers`] has the stack and the registers.

use crate::symbols;
use raddle_engine::ums;
use raddle_engine::ums::path::{IN_PLACE, carrier, thread};
use raddle_interface::{SchedulerToken, WorkerControl};

raddle_arch::short_way_of_light_workers! {
    carrier: carrier,
    thread: thread,
    token: SchedulerToken,
    control: WorkerControl,
    in_place: IN_PLACE,
    breathe: breathe,
    look: crate::workers::look,
}

/// Others' turn, before the next worker's.
extern "C" fn breathe() {
    ums::breathe(IN_PLACE);
    symbols::leave();
}
