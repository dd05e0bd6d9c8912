//! What a handler sees of the call that it interrupts, in its `ucontext_t`.
//!
//! [`raddle_arch::SigContext::show_call`] has the registers. Here is which call that is, and what
//! becomes of it.

use crate::frame::{WIDE, entry_returns, is_pass, is_pass_end};
use crate::signal::entry::{Moved, raddle_deliver_asks, raddle_delivered};
use core::sync::atomic::Ordering;
use raddle_arch::{Hidden, Interrupted, Shown, SigContext};
use raddle_engine::signals::Progress;
use raddle_engine::{PROCESS, Thread};
use raddle_sys::{err, errno};

/// Makes the context that of the program at its call, if the frame is of a call. The frame's first
/// handler decides what it shows.
///
/// # Safety
/// `frame` must be a moved frame of the running thread; a handler is about to run.
pub(super) unsafe fn show(frame: *mut Moved, thread: &Thread) {
    // SAFETY: the caller's promise.
    unsafe {
        let context = &mut (*frame).context.context;
        if !(*frame).hidden.is_noted() {
            (*frame).hidden = note(context, thread);
        }
        if (*frame).hidden.is_call() {
            context.show_call(&(*frame).hidden, &entry_returns(), &WIDE);
        }
    }
}

/// Returns what a frame's handlers are to see, before the first of them runs.
unsafe fn note(context: &SigContext, thread: &Thread) -> Hidden {
    let at = context.instruction_pointer();
    let asks = (&raw const raddle_deliver_asks).addr();
    let delivered = (&raw const raddle_delivered).addr();
    let (of, call, shown) = if is_pass_end(at) {
        let shown = Shown::Ended(context.syscall_result());
        (Interrupted::Entry, context.passing_call(), shown)
    } else if is_pass(at) {
        (Interrupted::Entry, context.passing_call(), Shown::Begins)
    } else if (asks..=delivered).contains(&at) {
        (
            Interrupted::Runtime,
            thread.signals.call_frame.get(),
            outcome(thread),
        )
    } else {
        return Hidden::NONE;
    };
    if call.is_null() {
        return Hidden::NONE; // a function of the runtime's that the program has called
    }
    // SAFETY: the frame of the call that the thread is in.
    let mut hidden = unsafe { context.note_call(of, call, &entry_returns(), shown) };
    hidden.process = PROCESS.pid.load(Ordering::Relaxed);
    hidden
}

/// Ends [`show`] when the handler has returned: the call goes on, or the program goes on where the
/// handler sent it.
///
/// # Safety
/// `frame` must be the moved frame that the handler ran on.
pub(super) unsafe fn hide(frame: *mut Moved, thread: &Thread) {
    // SAFETY: the caller's promise.
    unsafe {
        let hidden = &mut (*frame).hidden;
        if !hidden.is_call() {
            return;
        }
        let context = &mut (*frame).context.context;
        let behind = (&raw const raddle_delivered).addr();
        let goes_on = hidden.process == PROCESS.pid.load(Ordering::Relaxed);
        if !context.hide_call(hidden, &entry_returns(), &WIDE, behind, goes_on) {
            *hidden = Hidden::NONE;
            thread.signals.call_frame.set(core::ptr::null());
            thread.signals.call_site.set(0);
        }
    }
}

/// Returns what the handlers see that run in the middle of the thread's call.
fn outcome(thread: &Thread) -> Shown {
    let signals = &thread.signals;
    match signals.progress.get() {
        Progress::Begins => Shown::Begins,
        Progress::Waits { restarts } if restarts && !signals.interrupting.get() => Shown::Begins,
        Progress::Waits { .. } => Shown::Ended(err(errno::EINTR)),
        Progress::Ended(result) => Shown::Ended(result),
    }
}
