//! How a thread of the explicit API ends to be kept, and begins as another one.
//!
//! It is called by jumps ([`raddle_interface::Jumped`]). The CPU predicts returns by the calls that
//! it has seen, whatever stacks they were made on. A thread that makes one and waits for it calls a
//! few functions deep, and the thread runs while it is down there: if all that the thread does is
//! even, as many returns as calls, the CPU is right about the waiter's returns afterwards. A thread
//! that ended in a call, and began again by returning from it, made each of them a wrong guess.
//!
//! [`raddle_arch::keep_threads`] has the stack and the registers.

use crate::symbols;
use raddle_engine::Thread;
use raddle_engine::carrier::SCHEDULER;
use raddle_engine::ums::path::thread;
use raddle_interface::ReuseControl;
use raddle_kernel::task::reuse;

raddle_arch::keep_threads! {
    thread: thread,
    scheduler: SCHEDULER,
    ends: ends,
    begins: begins,
}

extern "C" fn ends(control: &ReuseControl) -> &'static Thread {
    reuse::end_for_reuse(control)
}

extern "C" fn begins() {
    reuse::begin_again();
    symbols::leave();
}
