//! Making and ending green threads: `clone` and `clone3` with CLONE_THREAD, `exit`.
//!
//! glibc made the stack and the thread block; a new green thread starts exactly where the kernel
//! would start one: behind the system call, with the parent's registers, the result 0, its own
//! stack and FS base. Its start frame lies right below the stack pointer that the program gave.

use crate::callers;
use crate::frame::{Frame, Outcome, raddle_child_start};
use crate::rules::shares;
use crate::signal::routing::Process;
use crate::task::clones::{
    CLONE_CHILD_CLEARTID, CLONE_CHILD_SETTID, CLONE_PARENT_SETTID, CLONE_SETTLS, Request,
};
use crate::task::reuse;
use crate::user::{Plain, User};
use crate::words;
use crate::{scheduling, signal};
use core::ptr::NonNull;
use core::sync::atomic::Ordering;
use raddle_arch::{ChildRegisters, CloneFrame, RED_ZONE, SwitchFrame, first_frame};
use raddle_engine::{Carrier, PROCESS, Thread, events, switch, timed, ums};
use raddle_sched::routes::{Receiver, Routes};
use raddle_sys::{err, errno};

/// Starts the engine, unless it has started. First the only thread takes over its attributes from
/// the kernel.
///
/// # Errors
/// EAGAIN.
pub fn start() -> Result<(), isize> {
    scheduling::adopt();
    PROCESS.start()
}

/// Makes a thread, green or bound. Returns its id, or a negated errno.
pub fn create(frame: &CloneFrame, request: &Request) -> isize {
    if let Err(errno) = start() {
        return errno;
    }
    signal::virtualize();
    PROCESS.first().make_spare(); // after that, so that the carrier starts with an empty mask
    let is_green = !PROCESS.is_explicit() || Carrier::current().thread().green_next.replace(false);
    if PROCESS.is_explicit() && is_only_thread() {
        let _ = scheduling::bind(Carrier::current().thread()); // green rather than not at all
    }
    if PROCESS.is_crowded() {
        return err(errno::EAGAIN);
    }
    let thread = match PROCESS.threads.allocate() {
        Ok(thread) => thread,
        Err(errno) => return errno,
    };
    let parent = Carrier::current().thread();
    let tid = thread.tid();
    let is_apart = Carrier::current().is_apart();
    let wants_own = parent.bind_next.replace(false) || !is_green;
    let bound = match request.asked() {
        Some(asked) => PROCESS.bind_as(thread, &asked),
        None if is_apart => PROCESS.bind(thread), // as different as its maker, or not at all
        None => {
            if wants_own {
                let _ = PROCESS.bind(thread); // green rather than not at all
            }
            Ok(())
        }
    };
    if let Err(errno) = bound {
        discard(thread);
        return errno;
    }
    // As in the kernel, a bad address is no error of the call.
    let set = |address: u64| User::at(address as usize).write(&tid).unwrap_or(());
    if request.has(CLONE_PARENT_SETTID) {
        set(request.args.parent_tid);
    }
    if request.has(CLONE_CHILD_SETTID) {
        set(request.args.child_tid);
    }
    let child_tid = request.args.child_tid as usize;
    if request.has(CLONE_CHILD_CLEARTID) {
        thread.clear_tid.set(child_tid);
    }
    thread.fs.set(if request.has(CLONE_SETTLS) {
        request.args.tls
    } else {
        raddle_arch::fs_base()
    });
    let is_libcs = || callers::is_libcs(frame.site() as usize);
    if request.has(CLONE_SETTLS | CLONE_CHILD_CLEARTID) && is_libcs() {
        words::shared::learn_join_word(request.args.tls, child_tid);
    }
    inherit(thread, parent);
    if lay_out(thread, frame, request.stack).is_err() {
        // As at the thread's first push: a handler can't run on such a stack either.
        let is_canonical = (request.stack << 16) as isize >> 16 == request.stack as isize;
        signal::routing::default_action(if is_canonical { SIGSEGV } else { SIGBUS });
    }
    scheduling::inherit(thread, parent);
    ums::adopt(thread, parent);
    shares::created(thread, parent);
    events::created(thread, parent);
    PROCESS.unpark(thread.task_ref());
    tid as isize
}

const SIGBUS: u32 = raddle_sys::nr::SIGBUS;
const SIGSEGV: u32 = raddle_sys::nr::SIGSEGV;

/// Gives up a thread that was to be made.
fn discard(thread: &Thread) {
    thread.set_exiting();
    thread.signals.drop_pending();
    PROCESS.threads.retire(thread);
    // SAFETY: the thread has never run.
    unsafe { PROCESS.threads.recycle(thread) };
}

/// Copies the maker's mask and name to a new thread, green or bound, and what it has used.
pub(crate) fn inherit(thread: &Thread, parent: &Thread) {
    thread.signals.mask.store(
        parent.signals.mask.load(Ordering::Relaxed),
        Ordering::Relaxed,
    );
    for (to, from) in thread.name.iter().zip(&parent.name) {
        to.store(from.load(Ordering::Relaxed), Ordering::Relaxed);
    }
    timed::made(thread, parent);
}

/// Returns true if the calling thread has made no other, or has seen them all end.
fn is_only_thread() -> bool {
    PROCESS.threads.live() == 1
}

/// What lies on a new thread's stack, addresses rising: a switch frame, the child's registers, and
/// what the stub pops.
#[repr(C)]
#[derive(Clone, Copy)]
struct Layout {
    switch: SwitchFrame,
    registers: ChildRegisters,
    site: u64,
}

const _: () = assert!(size_of::<Layout>() == 16 + 13 * 8 + 8);

// SAFETY: integers, without padding.
unsafe impl Plain for Layout {}

/// Lays out the child's stack.
fn lay_out(thread: &Thread, frame: &CloneFrame, stack: usize) -> Result<(), isize> {
    let layout = Layout {
        switch: first_frame(raddle_child_start as *const () as usize),
        registers: frame.child_registers(),
        site: frame.site(),
    };
    let at = User::<Layout>::at(stack.wrapping_sub(RED_ZONE + size_of::<Layout>()));
    thread.context.set(at.cast::<SwitchFrame>().as_stack());
    at.write(&layout)
}

/// `exit(2)`: ends the calling thread.
pub extern "C" fn exit(_: &Frame) -> Outcome {
    if !PROCESS.is_started() {
        return Outcome::PASS;
    }
    signal::calls::deliver_first();
    let thread = Carrier::current().thread();
    words::robust::thread_ends(thread);
    ends(thread);
    switch::exit()
}

/// Prepares the end of the running thread.
pub(crate) fn ends(thread: &Thread) {
    Process.end(thread);
    words::owners::owner_ends(thread);
}

/// A carrier's start, on its own stack.
pub fn carrier_starts(carrier: &Carrier) {
    scheduling::carrier_starts(carrier);
    signal::carrier_starts(carrier);
}

/// The rest of an exit, on the carrier's own stack: the joiner is told when the stack is not in use
/// any more.
pub fn exited(thread: &Thread) {
    thread.signals.drop_pending();
    let left = match NonNull::new(thread.reuse.get().cast_mut()) {
        Some(control) => reuse::exited(thread, control),
        None => {
            let left = PROCESS.threads.retire(thread);
            words::clear_tid(thread.clear_tid.get());
            // SAFETY: an exiting thread is in no queue, and it has left its stack.
            unsafe { PROCESS.threads.recycle(thread) };
            left
        }
    };
    if left == 0 && !reuse::end_reusable_threads() {
        // Every thread has called exit(2), which ends the process.
        // SAFETY: nothing of the program is left to run.
        unsafe { raddle_sys::sys!(raddle_sys::nr::__NR_exit_group, 0usize) };
    }
}
