//! Delivery: a green thread runs its handlers, on its own stack.

use super::{UNBLOCKABLE, bit, poke_self};
use crate::callers;
use crate::frame::{interrupted_pass, is_pass_end};
use crate::signal::actions::{
    self, DEFAULT, IGNORE, SA_NODEFER, SA_ONSTACK, SA_RESETHAND, SA_RESTART,
};
use crate::signal::entry::{
    Moved, has_room, is_below, move_frame, raddle_arrive, raddle_deliver, raddle_enter_handler,
    raddle_handler_returned, raddle_resume,
};
use crate::signal::routing::{self, Process, process_pending};
use crate::signal::{alternate, contexts, fatal, held, preemption, stops};
use core::sync::atomic::Ordering;
use raddle_arch::{CallFrame, Hidden};
use raddle_engine::chaos::{self, Point};
use raddle_engine::helpers::POKE;
use raddle_engine::signals::Progress;
use raddle_engine::{Carrier, PROCESS, Thread, events};
use raddle_sched::routes::Routes;
use raddle_sys::abi::{SigAction, SigContext, SigInfo, StackT};
use raddle_sys::{err, errno, nr};

/// libc's signal that cancels a thread.
///
/// Until glibc 2.40 its handler has no SA_RESTART, so an interrupted call returns EINTR. Later
/// handlers have SA_RESTART, and act on a thread only if the interrupted instruction is libc's one
/// cancellable system call. Here a handler never interrupts that instruction, because the call is
/// parked in the runtime. libc also looks for a cancellation when that call returns EINTR: so a
/// call from that site does.
const CANCEL: u32 = 32;
/// SIGSEGV.
const SEGV: u32 = 11;

/// The outcome of a look at the pending signals.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Delivered {
    /// No handler ran.
    Nothing,
    /// Handlers ran, all of them with SA_RESTART.
    Restarting,
    /// A handler ran that wants the interrupted call to return EINTR.
    Interrupting,
}

impl Delivered {
    /// Returns true if the interrupted call ends with EINTR. A call that restarts (`restarts`) goes
    /// on behind handlers with SA_RESTART; every call goes on if no handler ran.
    pub fn ends_call(self, restarts: bool) -> bool {
        match self {
            Self::Nothing => false,
            Self::Restarting => !restarts,
            Self::Interrupting => true,
        }
    }
}

/// Delivers the pending signals that the running thread doesn't block, in a call that waits and
/// restarts behind handlers with SA_RESTART if `restarts`. Returns true if the call ends with
/// EINTR.
pub fn deliver(restarts: bool) -> bool {
    deliver_at(Progress::Waits { restarts }).ends_call(restarts)
}

/// As [`deliver_at`], in a function of the runtime's that the program has called: handlers find the
/// registers of the runtime, as natively those of libc.
pub fn deliver_outside() -> Delivered {
    Carrier::current()
        .thread()
        .signals
        .call_frame
        .set(core::ptr::null());
    deliver_at(Progress::Begins)
}

/// Delivers the pending signals that the running thread doesn't block: their handlers run before
/// this returns. The result tells whether the system call in progress restarts.
pub fn deliver_at(progress: Progress) -> Delivered {
    let carrier = Carrier::current();
    carrier.attention.store(0, Ordering::Relaxed);
    routing::route();
    let thread = carrier.thread();
    if deliverable(thread) == 0 {
        return Delivered::Nothing;
    }
    let signals = &thread.signals;
    // A handler may make this call. The result of the call that it has interrupted is decided
    // already, and is kept.
    let outer_interrupting = signals.interrupting.replace(false);
    let outer_handled = signals.handled.replace(false);
    let outer_progress = signals.progress.replace(progress);
    let call_frame = signals.call_frame.get();
    deliver_here(carrier);
    // The handlers have run; this may be another carrier.
    signals.call_frame.set(call_frame);
    signals.progress.set(outer_progress);
    let interrupting = signals.interrupting.replace(outer_interrupting);
    match (signals.handled.replace(outer_handled), interrupting) {
        (false, _) => Delivered::Nothing,
        (true, false) => Delivered::Restarting,
        (true, true) => Delivered::Interrupting,
    }
}

/// Makes this kernel thread look at the pending signals of the thread it runs, here: handlers run
/// before this returns, or leave by a jump. So the gate, which counts senders, is not passed; the
/// caller is no thread that has closed the gate.
fn deliver_here(carrier: &Carrier) {
    let own = carrier.kernel_tid.load(Ordering::Relaxed);
    let pid = PROCESS.pid.load(Ordering::Relaxed);
    // SAFETY: signals this very kernel thread, which handles the signal.
    unsafe { raddle_deliver(pid, own, POKE) };
}

/// Returns the signals that `thread` would take now.
pub fn deliverable(thread: &Thread) -> u64 {
    let pending = thread.signals.pending.load(Ordering::Acquire) | process_pending();
    pending & !thread.signals.mask.load(Ordering::Relaxed)
}

/// Delivers signals that were recorded or became pending during a call, at its end. Returns
/// `result`. A thread that gives way here looks for signals once more afterwards, on which a sender
/// relies that has found the thread runnable. `call` is the call's frame, if an entry has saved the
/// program's registers below it.
pub extern "C" fn on_attention(result: isize, call: *const CallFrame) -> isize {
    loop {
        deliver_in(call, Progress::Ended(result));
        preemption::at_end_of_call();
        if chaos::is_on() {
            chaos::at_safe_point(Point::Call);
        }
        if is_settled() {
            return result;
        }
    }
}

/// Returns true if the running thread has no signal to take, and its carrier has none to route.
/// Threads that ran on the carrier meanwhile may have left some.
fn is_settled() -> bool {
    let carrier = Carrier::current();
    carrier.arrivals.is_empty() && deliverable(carrier.thread()) == 0
}

/// Delivers signals in the call with this frame.
fn deliver_in(call: *const CallFrame, progress: Progress) {
    let signals = &Carrier::current().thread().signals;
    signals.call_frame.set(call);
    deliver_at(progress);
}

/// Delivers the signals that have come until now, before a call that passes to the kernel.
pub extern "C" fn before_call(call: *const CallFrame) {
    loop {
        deliver_in(call, Progress::Begins);
        preemption::at_end_of_call();
        if is_settled() {
            break;
        }
    }
    if chaos::is_on() {
        chaos::ask_again();
    }
}

/// Returns the address below which a frame for a handler with `flags` goes that interrupts the code
/// with `registers`: that of the stack pointer minus the red zone, or the top of the thread's
/// alternate stack.
pub fn stack_for(thread: &Thread, flags: u64, registers: &SigContext) -> usize {
    const RED_ZONE: usize = 128;
    let sp = registers.stack_pointer();
    let below = sp.wrapping_sub(RED_ZONE);
    match alternate::top_for(thread, sp) {
        Some(top) if flags & SA_ONSTACK != 0 => top,
        _ => below,
    }
}

/// Returns the flags of the handlers that are due, together. Any of them may run next.
pub fn flags_due(thread: &Thread) -> u64 {
    let due = deliverable(thread);
    (1..=super::SIGNALS)
        .filter(|&signal| due & bit(signal) != 0)
        .fold(0, |flags, signal| flags | actions::get(signal).flags)
}

/// Returns true if a fault of `thread` ends the process: its signal has no handler, or is blocked.
pub fn is_fatal(thread: &Thread, signal: u32) -> bool {
    let blocked = thread.signals.mask.load(Ordering::Relaxed) & bit(signal) != 0;
    blocked || matches!(actions::get(signal).handler, DEFAULT | IGNORE)
}

/// Routes signals, runs due handlers, then resumes the frame. The thread takes the frame's own
/// signal first if `takes` isn't 0: one that has been dequeued, or a fault. On the stack below the
/// frame, which is the thread's save area or the program's stack.
///
/// # Safety
/// `frame` must be the moved frame on top of this stack.
pub unsafe extern "C" fn arrived(frame: *mut Moved, takes: u64) -> ! {
    let thread = look();
    if takes == 0 && preemption::at_end_of_call() {
        look();
    }
    // SAFETY: the frame is this stack's own.
    unsafe {
        if takes != 0 {
            let info = (*frame).info;
            take(frame, thread, &info);
        }
        next(frame, thread)
    }
}

/// Routes the signals that have come to the carrier. Returns the running thread.
fn look<'a>() -> &'a Thread {
    Carrier::current().attention.store(0, Ordering::Relaxed);
    routing::route();
    Carrier::current().thread()
}

/// Runs the next due handler, or resumes the frame. Threads that the same signals have woken run
/// before the resume.
unsafe fn next(frame: *mut Moved, thread: &Thread) -> ! {
    loop {
        let due = deliverable(thread);
        let Some(info) = (due != 0).then(|| routing::take(thread, due)).flatten() else {
            if preemption::at_end_of_call() {
                look(); // signals may have come meanwhile
                continue;
            }
            // SAFETY: the caller's frame.
            unsafe { resume(frame) }
        };
        // SAFETY: the caller's frame.
        unsafe { take(frame, thread, &info) }
    }
}

/// Does what the program has asked for a signal that was dequeued, or for a fault. Returns if no
/// handler runs: another thread may change the action at any time.
unsafe fn take(frame: *mut Moved, thread: &Thread, info: &SigInfo) {
    let signal = info.signo as u32;
    let action = actions::get(signal);
    match action.handler {
        IGNORE => {}
        DEFAULT if stops::is_stale(info) => {}
        DEFAULT => routing::default_action(signal),
        // SAFETY: the caller's frame.
        _ => unsafe { handle(frame, thread, info, &action) },
    }
}

/// Calls a user handler on the stack that it asks for: below the interrupted code's stack pointer,
/// or on the alternate stack. The frame moves there, by the save area if it is on the other one: a
/// handler may have changed the interrupted code's stack pointer, so that the two may overlap.
unsafe fn handle(frame: *mut Moved, thread: &Thread, info: &SigInfo, action: &SigAction) -> ! {
    // SAFETY: the caller's frame. The save area and the stack below the interrupted code's are
    // free, but for the frame.
    unsafe {
        let (context, hidden) = (&(*frame).context, &(*frame).hidden);
        let stack = stack_for(thread, action.flags, &context.context);
        if is_below(frame, stack) {
            enter(frame, thread, info, action)
        }
        if preemption::is_in_area(thread, frame.addr()) {
            if !has_room(thread, context, stack) {
                lack_room(frame, thread, info.signo as u32)
            }
            enter(
                move_frame(context, info, stack, hidden),
                thread,
                info,
                action,
            )
        }
        match preemption::area(thread) {
            Some(area) => raddle_arrive(move_frame(context, info, area, hidden)),
            None => enter(frame, thread, info, action), // no memory: on the stack that it has
        }
    }
}

/// The frame of a handler for `signal` has no room on its stack: the thread takes SIGSEGV instead.
/// This ends the process if SIGSEGV has no handler or is blocked, or if its own frame has no room
/// (`signal_setup_done` in `kernel/signal.c`).
unsafe fn lack_room(frame: *mut Moved, thread: &Thread, signal: u32) -> ! {
    let info = SigInfo {
        signo: SEGV as i32,
        code: raddle_sys::nr::SI_KERNEL as i32,
        ..SigInfo::EMPTY
    };
    while signal == SEGV || is_fatal(thread, SEGV) {
        fatal::end(SEGV);
    }
    // SAFETY: the caller's frame.
    unsafe { handle(frame, thread, &info, &actions::get(SEGV)) }
}

/// Calls a user handler with the frame as its context.
unsafe fn enter(frame: *mut Moved, thread: &Thread, info: &SigInfo, action: &SigAction) -> ! {
    let signal = info.signo as u32;
    events::signalled(thread, signal);
    let signals = &thread.signals;
    let mask = signals.mask.load(Ordering::Relaxed);
    let after = signals.suspended_mask.take().unwrap_or(mask);
    let own = if action.flags & SA_NODEFER != 0 {
        0
    } else {
        bit(signal)
    };
    let blocked = (mask | action.mask | own) & !UNBLOCKABLE;
    signals.mask.store(blocked, Ordering::SeqCst);
    routing::pass_on(thread, blocked);
    let is_first = !signals.handled.replace(true);
    let call_site = signals.call_site.replace(0);
    let cancels = signal == CANCEL && callers::is_libcs(call_site);
    let interrupts = action.flags & SA_RESTART == 0 || cancels;
    // The first handler decides, as in Linux.
    if cancels || interrupts && is_first {
        signals.interrupting.set(true);
    }
    if action.flags & SA_RESETHAND != 0 {
        actions::set(
            signal,
            &SigAction {
                handler: DEFAULT,
                ..*action
            },
        );
    }
    // SAFETY: the frame is this stack's own; everything below it is free.
    unsafe {
        let registers = &mut (*frame).context.context;
        if let Some(end) = interrupted_pass(registers) {
            // Here, too.
            registers.forget_syscall_end();
            if interrupts {
                registers.set_instruction_pointer(end);
                registers.set_syscall_result(err(errno::EINTR));
            }
        } else if is_pass_end(registers.instruction_pointer()) {
            registers.forget_syscall_end(); // it has been decided
        } else if interrupts {
            end_unpatched_call(registers);
        }
        // The return of the last handler has popped this word, and a call may have overwritten it
        // since.
        (*frame).return_address = raddle_handler_returned as *const () as usize;
        (*frame).info = *info;
        (*frame).call_site = call_site;
        (*frame).context.sigmask = after;
        (*frame).context.stack = alternate::enter(signals);
        contexts::show(frame, thread);
        if deliverable(thread) != 0 {
            be_interrupted(frame, action.handler);
        }
        let (info, context) = (&raw mut (*frame).info, &raw mut (*frame).context);
        raddle_enter_handler(signal, info, context, action.handler, frame)
    }
}

/// Ends a call of code that isn't patched, which the kernel would restart because the runtime's
/// handler has SA_RESTART.
unsafe fn end_unpatched_call(registers: &mut SigContext) {
    // SAFETY: the registers of the code that the signal has interrupted.
    if let Some((end, number)) = unsafe { registers.restarting_call() }
        && RESTARTED.contains(&(number as u32))
    {
        registers.set_instruction_pointer(end);
        registers.set_syscall_result(err(errno::EINTR));
    }
}

/// Calls that Linux restarts behind handlers with SA_RESTART only (`signal(7)`).
const RESTARTED: [u32; 24] = [
    nr::__NR_read,
    nr::__NR_readv,
    nr::__NR_write,
    nr::__NR_writev,
    nr::__NR_preadv,
    nr::__NR_pwritev,
    nr::__NR_ioctl,
    nr::__NR_open,
    nr::__NR_openat,
    nr::__NR_wait4,
    nr::__NR_waitid,
    nr::__NR_accept,
    nr::__NR_accept4,
    nr::__NR_connect,
    nr::__NR_recvfrom,
    nr::__NR_recvmsg,
    nr::__NR_sendto,
    nr::__NR_sendmsg,
    nr::__NR_flock,
    nr::__NR_fcntl,
    nr::__NR_mq_timedreceive,
    nr::__NR_mq_timedsend,
    nr::__NR_futex,
    nr::__NR_getrandom,
];

/// Enters a handler that another signal interrupts before its first instruction. Linux prepares the
/// frames of all due signals before it runs a handler, so the handler of the last signal runs
/// first.
///
/// The runtime's own signal waits until the kernel has loaded the handler's registers.
///
/// # Safety
/// As for [`raddle_enter_handler`].
#[cold]
unsafe fn be_interrupted(frame: *mut Moved, handler: usize) -> ! {
    let carrier = Carrier::current();
    // SAFETY: the caller's frame. What the kernel reads stays until it has read it.
    unsafe {
        let mut entry = Moved {
            return_address: 0,
            context: (*frame).context,
            info: (*frame).info,
            call_site: 0,
            hidden: Hidden::UNKNOWN,
        };
        let registers = &mut entry.context.context;
        registers.set_function_args([
            (*frame).info.signo as usize,
            (&raw const (*frame).info).addr(),
            (&raw const (*frame).context).addr(),
        ]);
        registers.set_stack_pointer(frame.addr());
        registers.enter_handler(handler);
        super::block_all();
        poke_self(carrier);
        resume(&raw mut entry)
    }
}

/// Ends a user handler: restores the mask of its context and runs other due handlers. The caller
/// then resumes the frame.
///
/// # Safety
/// `frame` must be the moved frame that the handler ran on.
pub unsafe extern "C" fn returned(frame: *mut Moved) {
    let thread = Carrier::current().thread();
    // SAFETY: the frame that the handler ran on.
    let (context, call_site) = unsafe { (&(*frame).context, (*frame).call_site) };
    let mask = context.sigmask;
    alternate::leave(
        &thread.signals,
        &context.stack,
        context.context.stack_pointer(),
    );
    thread.signals.call_site.set(call_site);
    Process.set_mask(thread, mask & !UNBLOCKABLE);
    // SAFETY: as above.
    unsafe {
        contexts::hide(frame, thread);
        next(frame, thread)
    }
}

/// Gives the frame back to the kernel, with this carrier's own mask and signal stack.
///
/// # Safety
/// `frame` must be a moved frame of the running thread, without a later use.
pub unsafe fn resume(frame: *mut Moved) -> ! {
    let carrier = Carrier::current();
    let (base, size) = carrier.signal_stack.get();
    // SAFETY: the caller's frame.
    unsafe {
        (*frame).context.sigmask = held::mask_of(carrier);
        (*frame).context.stack = if size == 0 {
            StackT::DISABLED
        } else {
            StackT {
                sp: base,
                flags: 0,
                pad: 0,
                size,
            }
        };
        raddle_resume(frame)
    }
}
