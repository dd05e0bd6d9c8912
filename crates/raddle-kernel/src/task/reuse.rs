//! Reusable threads: threads of the explicit API that become the next thread when they have ended
//! ([`raddle_engine::reusable`]).
//!
//! This crate has in the thread's slot what the kernel keeps of a thread, and prepares the slot
//! anew for the next thread: id, name, mask, alternate stack, attributes, times. So nothing of the
//! runtime's tells the next thread from one that clone makes; the thread itself sees to libc's
//! part. A thread with more (a kernel thread, an engine's worker, robust locks) ends for good.

use crate::rules::shares;
use crate::task::threads;
use crate::words;
use crate::{scheduling, signal, user};
use core::ffi::c_void;
use core::ptr::NonNull;
use core::sync::atomic::{AtomicU32, Ordering};
use raddle_arch::set_control_words;
use raddle_engine::reusable::ReuseControl;
use raddle_engine::thread::WaitKind;
use raddle_engine::{Carrier, PROCESS, Thread, events, switch, ums};
use raddle_sched::timers::NEVER;
use raddle_sys::{err, errno};

const ANY: u32 = u32::MAX;

/// Returns the running thread's mask, if the thread may be reused. The thread accepts no signal
/// from then on; [`end_for_reuse`] or [`forgo_reuse`] has to follow. Its stack has `stack_size`
/// bytes.
pub fn may_reuse(thread: &Thread, stack_size: usize) -> Option<u64> {
    signal::calls::deliver_first();
    let clear_tid = thread.clear_tid.get();
    let is_plain = !thread.is_bound()
        && thread.ums.load(Ordering::Relaxed).is_null()
        && thread.host.get().is_null()
        && thread.attributes.are_default()
        && thread.tid() != PROCESS.pid.load(Ordering::Relaxed)
        && !Carrier::current().is_apart()
        && clear_tid != 0
        && user::load(clear_tid) == Ok(thread.tid())
        && thread.has_new_id()
        && !words::robust::holds_something(thread);
    if !is_plain || !PROCESS.reusable.has_room(stack_size) {
        return None;
    }
    let mask = thread.signals.mask.load(Ordering::Relaxed);
    // Ordered with senders by the thread's next step if it is to be reused, which marks it as
    // ending.
    thread.signals.mask.store(u64::MAX, Ordering::Relaxed);
    Some(mask)
}

/// Undoes [`may_reuse`]: the running thread ends for good.
pub fn forgo_reuse(thread: &Thread, mask: u64) {
    signal::calls::set_mask(thread, mask);
}

/// Ends the running thread, which is returned and may be reused. The caller makes the switch, as
/// [`switch::end`] says; the thread's next life begins with [`begin_again`].
pub fn end_for_reuse<'a>(control: &ReuseControl) -> &'a Thread {
    let thread = Carrier::current().thread();
    thread.reuse.set(control);
    threads::ends(thread);
    switch::end()
}

/// Begins the next life of the running thread, which is reused.
pub fn begin_again() {
    if Carrier::current().thread().signals.deliverable() != 0 {
        Carrier::current().attention.store(1, Ordering::Relaxed);
    }
}

/// The rest of [`end_for_reuse`], on the carrier's own stack. Returns how many threads are left.
pub(crate) fn exited(thread: &Thread, control: NonNull<ReuseControl>) -> usize {
    // SAFETY: the thread is in no list yet, so its reuse control is as the thread left it.
    let told = unsafe { control.as_ref() }.told.get();
    let left = PROCESS.reusable.retire(&PROCESS.threads, thread, control);
    // SAFETY: null, or a word that lives until it is told; then its address is all that is used.
    if let Some(word) = unsafe { told.as_ref() } {
        tell(word);
    }
    left
}

fn tell(word: &AtomicU32) {
    let address = word.as_ptr().expose_provenance();
    let mut before = word.load(Ordering::Acquire);
    if before & ReuseControl::JOINED != 0 {
        word.store(before | ReuseControl::OVER, Ordering::Release);
    } else {
        before = word.fetch_or(ReuseControl::OVER, Ordering::AcqRel);
    }
    if before & ReuseControl::AWAITED != 0 {
        words::wake(address, 1, ANY);
    }
}

/// Only reusable threads are left, if any: wakes them, so that libc hears of the end of each and
/// ends the process as it does. Returns false if there are none. On the carrier's own stack.
pub(crate) fn end_reusable_threads() -> bool {
    let mut any = false;
    while let Some((thread, control)) = PROCESS.reusable.renew_any(&PROCESS.threads) {
        control.next.set(core::ptr::null_mut());
        PROCESS.unpark(thread.task_ref());
        any = true;
    }
    any
}

/// Makes a green thread, which does `next`, from a reusable one with a stack of `stack_size` bytes.
/// Returns libc's name for the thread.
pub fn reuse(stack_size: usize, next: *mut c_void) -> Option<usize> {
    let carrier = Carrier::current();
    let parent = carrier.thread();
    let is_plain = parent.attributes.are_default()
        && parent.ums_next_is_none()
        && !parent.bind_next.get()
        && !carrier.is_apart()
        && !shares::any()
        && !PROCESS.is_crowded();
    if !is_plain {
        return None;
    }
    PROCESS.first().make_spare();
    let (thread, control) = PROCESS.reusable.renew(&PROCESS.threads, stack_size)?;
    control.next.set(next);
    let id = control.id; // the reuse control goes with the thread
    // SAFETY: the thread is off its stack, and in no queue yet.
    unsafe { set_control_words(thread.context.get()) };
    threads::inherit(thread, parent);
    scheduling::inherit(thread, parent);
    ums::adopt(thread, parent);
    shares::created(thread, parent);
    events::created(thread, parent);
    PROCESS.unpark(thread.task_ref());
    Some(id)
}

/// Waits while the word has this value, or until a signal was handled.
pub fn wait(word: &AtomicU32, seen: u32) {
    let address = word.as_ptr().expose_provenance();
    if words::wait(address, seen, ANY, NEVER, WaitKind::JOIN) == err(errno::EINTR) {
        signal::deliver_outside();
    }
}

/// Wakes one thread that waits on the word at this address.
pub fn wake(address: usize) {
    words::wake(address, 1, ANY);
}
