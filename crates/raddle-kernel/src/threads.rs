//! Making and ending green threads: `clone` and `clone3` with CLONE_THREAD, `exit`.
//!
//! glibc made the stack and the thread block; a new green thread starts exactly where the kernel
//! would start one: behind the system call, with the parent's registers, rax = 0, its own stack and
//! FS base. Its start frame lies right below the stack pointer that the program gave.

use crate::boundary::{ChildRegisters, CloneFrame, Frame, Outcome, raddle_child_start};
use crate::futex;
use crate::kept;
use crate::scheduling;
use crate::shares;
use crate::signal;
use crate::user;
use core::ptr::{NonNull, with_exposed_provenance_mut};
use core::sync::atomic::Ordering;
use raddle_context::prepare;
use raddle_engine::{Carrier, ENGINE, Thread, switch, ums};
use raddle_sys::abi::CloneArgs;
use raddle_sys::{err, errno};

pub const CLONE_VM: u64 = 0x100;
pub const CLONE_THREAD: u64 = 0x10000;
const CLONE_SETTLS: u64 = 0x80000;
const CLONE_PARENT_SETTID: u64 = 0x10_0000;
const CLONE_CHILD_CLEARTID: u64 = 0x20_0000;
const CLONE_CHILD_SETTID: u64 = 0x100_0000;

/// What a clone asks for, whichever call it came by.
#[derive(Clone, Copy, Debug)]
pub struct Request {
    pub flags: u64,
    /// The child's first stack pointer.
    pub stack: usize,
    pub tls: u64,
    pub parent_tid: usize,
    pub child_tid: usize,
}

impl Request {
    /// From the registers of `clone(2)` on x86-64.
    pub fn from_clone(call: &Frame) -> Self {
        Self {
            flags: call.rdi,
            stack: call.arg(1),
            tls: call.r8,
            parent_tid: call.arg(2),
            child_tid: call.arg(3),
        }
    }

    /// From `clone3(2)`'s structure; `None` if it is too small to be one, or isn't there.
    pub fn from_clone3(call: &Frame) -> Option<Self> {
        if call.arg(1) < 64 {
            return None;
        }
        let args = user::read_part(call.arg(0), call.arg(1), CloneArgs::default()).ok()?;
        Some(Self {
            flags: args.flags,
            stack: (args.stack + args.stack_size) as usize,
            tls: args.tls,
            parent_tid: args.parent_tid as usize,
            child_tid: args.child_tid as usize,
        })
    }
}

/// Starts the engine, unless it has started. The only thread there is takes over what the kernel
/// knows of it first.
///
/// # Errors
/// EAGAIN.
pub fn start() -> Result<(), isize> {
    scheduling::adopt();
    ENGINE.start()
}

/// Makes a green thread. Returns its id, or a negated errno.
pub fn create(frame: &CloneFrame, request: &Request) -> isize {
    if let Err(errno) = start() {
        return errno;
    }
    signal::virtualize();
    ENGINE.breed(); // after that, so that the carrier starts with an empty mask
    let is_green = !ENGINE.is_explicit() || Carrier::current().thread().green_next.replace(false);
    if ENGINE.is_explicit() && is_only_thread() {
        let _ = scheduling::bind(Carrier::current().thread()); // green rather than not at all
    }
    if ENGINE.is_crowded() {
        return err(errno::EAGAIN);
    }
    let thread = match ENGINE.threads.allocate() {
        Ok(thread) => thread,
        Err(errno) => return errno,
    };
    let parent = Carrier::current().thread();
    let tid = thread.tid();
    // As in the kernel, a bad address is only found missing when the id is looked for.
    let set = |address: usize| user::write(address, &tid).unwrap_or(());
    if request.flags & CLONE_PARENT_SETTID != 0 {
        set(request.parent_tid);
    }
    if request.flags & CLONE_CHILD_SETTID != 0 {
        set(request.child_tid);
    }
    if request.flags & CLONE_CHILD_CLEARTID != 0 {
        thread
            .clear_tid
            .set(with_exposed_provenance_mut(request.child_tid));
    }
    let tls = request.flags & CLONE_SETTLS != 0;
    if tls && request.flags & CLONE_CHILD_CLEARTID != 0 {
        futex::learn_join_word(request.tls, request.child_tid);
    }
    thread.fs.set(if tls {
        request.tls
    } else {
        raddle_context::fs_base()
    });
    inherit(thread, parent);
    first_frame(thread, frame, request.stack);
    let is_apart = Carrier::current().is_apart();
    if parent.bind_next.replace(false) || !is_green || is_apart {
        let bound = ENGINE.bind(thread); // green rather than not at all
        if let Err(errno) = bound
            && is_apart
        {
            thread.set_exiting();
            thread.signals.drop_pending();
            ENGINE.threads.retire(thread);
            // SAFETY: nobody has seen it run.
            unsafe { ENGINE.threads.recycle(thread) };
            return errno; // as different as its maker, or not at all
        }
    }
    scheduling::inherit(thread, parent);
    ums::adopt(thread, parent);
    shares::created(thread, parent);
    ENGINE.unpark(thread.task_ref());
    tid as isize
}

/// What a new thread has from its maker, whatever it will be.
pub(crate) fn inherit(thread: &Thread, parent: &Thread) {
    thread.signals.mask.store(
        parent.signals.mask.load(Ordering::Relaxed),
        Ordering::Relaxed,
    );
    for (to, from) in thread.name.iter().zip(&parent.name) {
        to.store(from.load(Ordering::Relaxed), Ordering::Relaxed);
    }
}

/// True if the calling thread has made no other, or has seen them all end.
fn is_only_thread() -> bool {
    ENGINE.threads.live() == 1
}

/// Lays out the child's stack: what the stub pops, the child's registers, and a switch frame.
fn first_frame(thread: &Thread, frame: &CloneFrame, stack: usize) {
    const RED_ZONE: usize = 128;
    let site = stack - RED_ZONE - size_of::<u64>();
    let registers = site - size_of::<ChildRegisters>();
    let call = &frame.call;
    let child = ChildRegisters {
        rdi: call.rdi,
        rsi: call.rsi,
        rdx: call.rdx,
        r10: call.r10,
        r8: call.r8,
        r9: call.r9,
        rbx: frame.rbx,
        rbp: frame.rbp,
        r12: frame.r12,
        r13: frame.r13,
        r14: frame.r14,
        r15: frame.r15,
        stub: frame.stub,
    };
    // SAFETY: the program gave the memory below `stack` to the new thread.
    unsafe {
        with_exposed_provenance_mut::<u64>(site).write_unaligned(frame.site);
        with_exposed_provenance_mut::<ChildRegisters>(registers).write_unaligned(child);
        let top = with_exposed_provenance_mut::<u8>(registers);
        thread
            .context
            .set(prepare(top, raddle_child_start as *const () as usize));
    }
}

/// `exit(2)`: ends the calling thread.
pub extern "C" fn exit(_: &Frame) -> Outcome {
    if !ENGINE.is_started() {
        return Outcome::PASS;
    }
    signal::calls::deliver_first();
    let thread = Carrier::current().thread();
    futex::robust::thread_ends(thread);
    ends(thread);
    switch::exit()
}

/// The running thread is about to end.
pub(crate) fn ends(thread: &Thread) {
    thread.set_exiting();
    signal::routing::pass_on(thread, u64::MAX);
    futex::pi::owner_ends(thread);
}

/// A carrier's start, on its own stack.
pub fn carrier_starts(carrier: &Carrier) {
    scheduling::carrier_starts(carrier);
    signal::carrier_starts(carrier);
}

/// The rest of an exit, on the carrier's own stack: the joiner hears of it when nobody uses the
/// stack.
pub fn exited(thread: &Thread) {
    thread.signals.drop_pending();
    let left = match NonNull::new(thread.seat.get().cast_mut()) {
        Some(seat) => kept::exited(thread, seat),
        None => {
            let left = ENGINE.threads.retire(thread);
            futex::clear_tid(thread.clear_tid.get());
            // SAFETY: an exiting thread is in no queue, and it has left its stack.
            unsafe { ENGINE.threads.recycle(thread) };
            left
        }
    };
    if left == 0 && !kept::go_home() {
        // Every thread has called exit(2): so ends the process.
        // SAFETY: nothing of the program is left to run.
        unsafe { raddle_sys::sys!(231, 0usize) };
    }
}
