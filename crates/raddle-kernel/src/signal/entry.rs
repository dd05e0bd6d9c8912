//! The runtime's signal handler and the way from there to a green stack.
//!
//! The kernel enters `raddle_signal_handler` on the carrier's alternate stack with every signal
//! blocked. If the carrier was in user code, the handler *moves the frame*: it copies the kernel's
//! frame (saved registers, floating-point state, `siginfo`) to the thread's save area. It edits the
//! original so that the handler's return enters `raddle_signal_arrived` there, with the kernel's
//! mask empty again. The frame goes on to the program's stack only when the thread takes the
//! signal, or a fault. If the carrier was in the runtime, the handler only records the signal. It
//! is handled when the runtime is left.
//!
//! Four things follow. No green thread ever holds a carrier's alternate stack. A frame can be
//! resumed on any carrier. Nothing that takes a lock runs in a handler. A signal that a thread
//! doesn't take writes nothing to its stacks.
//!
//! A moved frame, addresses rising: return address | ucontext | siginfo | padding | xsave area.

use super::{alternate, bit, delivery, preemption, samples, stops, timers, tsc};
use crate::frame::{interrupted_ioctl, interrupted_wait, is_pass, pass_end, raddle_child_start};
use crate::kernel_threads;
use crate::user::User;
use crate::words::robust;
use core::ptr::{with_exposed_provenance, with_exposed_provenance_mut};
use core::sync::atomic::Ordering;
use raddle_arch::{Hidden, resume_after_fault, resume_interrupted_call};
use raddle_engine::carrier::{CarrierState, DELIVER_HERE, PREEMPT};
use raddle_engine::helpers::POKE;
use raddle_engine::inspect::{CodePlaces, crash};
use raddle_engine::{Carrier, PROCESS, Thread, own_signals, page_rings, plugins, quantum_timer};
use raddle_sys::abi::{SigInfo, UContext};
use raddle_sys::mem::PAGE_SIZE;
use raddle_sys::{change_signal_mask, err, errno, nr, sys};

use crate::signal::{actions, held};

unsafe extern "C" {
    /// The handler that the kernel enters.
    pub fn raddle_signal_handler();
    /// The code to which the handler's frame returns.
    pub fn raddle_signal_restorer();
    /// Entered below a moved frame, with 1 if the thread takes the frame's signal now.
    fn raddle_signal_arrived();
    /// Leaves the current stack for `raddle_signal_arrived`, where the thread takes the frame's
    /// signal.
    pub fn raddle_arrive(frame: *mut Moved) -> !;
    /// The code to which user handlers return, with the stack pointer at the moved frame's
    /// `ucontext`.
    pub fn raddle_handler_returned();
    /// Calls a user handler on the frame.
    pub fn raddle_enter_handler(
        signal: u32,
        info: *mut SigInfo,
        context: *mut UContext,
        handler: usize,
        frame: *mut Moved,
    ) -> !;
    /// Resumes the context of a moved frame: `rt_sigreturn`.
    pub fn raddle_resume(frame: *mut Moved) -> !;
    /// Makes the calling kernel thread handle `signal` between the two places below.
    pub fn raddle_deliver(process: u32, kernel_thread: u32, signal: usize);
    pub static raddle_deliver_asks: u8;
    pub static raddle_delivered: u8;
    static __ehdr_start: u8;
    static etext: u8;
}

/// The head of a moved frame.
#[repr(C)]
pub struct Moved {
    pub return_address: usize,
    pub context: UContext,
    pub info: SigInfo,
    /// `ThreadSignals::call_site` while the handler runs.
    pub call_site: usize,
    /// The call that the frame's handlers see: [`contexts`](super::contexts).
    pub hidden: Hidden,
}

/// Returns true for a signal that the interrupted instruction has raised. The codes of sent signals
/// are at most 0. Those of faults are positive; so is `SI_KERNEL`, the code of a breakpoint's trap
/// and of a general protection fault.
fn is_fault(info: &SigInfo) -> bool {
    info.code > 0 && matches!(info.signo, 4 | 5 | 7 | 8 | 11 | 31)
}

/// Returns true for the trap behind an instruction of code that runs with the trap flag.
fn is_trace(info: &SigInfo) -> bool {
    const TRAP: i32 = 5;
    const TRAP_TRACE: i32 = nr::TRAP_TRACE as i32;
    info.signo == TRAP && info.code == TRAP_TRACE
}

/// Prepares the process's death by a fault. After the handler's return the instruction faults
/// again, without a handler. A breakpoint or a refused system call isn't repeated, so its signal is
/// sent once more.
fn die(carrier: &Carrier, signal: u32) {
    // SAFETY: the handlers of faults are fit for any thread. A robust list may lead anywhere.
    unsafe { change_signal_mask(nr::SIG_UNBLOCK, actions::FAULTS) };
    robust::process_ends();
    crash::write(signal);
    actions::surrender(signal);
    if matches!(signal, 5 | 31) {
        let pid = PROCESS.pid.load(Ordering::Relaxed);
        let own = carrier.kernel_tid.load(Ordering::Relaxed);
        // SAFETY: signals this very kernel thread, which blocks all signals until it returns.
        unsafe { sys!(nr::__NR_tgkill, pid, own, signal) };
    }
}

/// Returns true if `address` is code of the runtime.
fn is_ours(address: usize) -> bool {
    let (from, to) = ((&raw const __ehdr_start).addr(), (&raw const etext).addr());
    (from..to).contains(&address) && !is_pass(address)
}

/// What a reader of stacks must know of the code here and of the boundary's, and the bytes of a
/// save area.
pub fn code_places() -> (CodePlaces, usize) {
    let places = CodePlaces {
        text_start: (&raw const __ehdr_start).addr() as u64,
        text_end: (&raw const etext).addr() as u64,
        child_start: raddle_child_start as *const () as u64,
        pass_end: pass_end() as u64,
        actions: actions::place() as u64,
    };
    (places, preemption::AREA)
}

/// Makes a wait for a child begin again that was passed to the kernel and interrupted, unless a
/// handler of the program's decides otherwise. Returns the address at which the interrupted code
/// goes on.
fn begin_wait_again(context: &mut UContext) -> usize {
    // SAFETY: the registers of the code that the signal has interrupted.
    if let Some((at, number)) = unsafe { interrupted_wait(&context.context) } {
        context.context.set_instruction_pointer(at);
        context.context.set_syscall_number(number);
    }
    context.context.instruction_pointer()
}

/// Makes an `ioctl` begin again that a signal of the runtime's own has ended with EINTR. Linux
/// restarts none that waits for a terminal's output (`tcdrain`), whatever the handler's flags are.
fn begin_ioctl_again(context: &mut UContext) {
    let registers = &mut context.context;
    if is_ours(registers.instruction_pointer()) || registers.syscall_result() != err(errno::EINTR) {
        return;
    }
    // SAFETY: the registers of the code that the signal has interrupted.
    let ended = unsafe { interrupted_ioctl(registers).or_else(|| registers.ended_call()) };
    if let Some((at, number)) = ended
        && number == nr::__NR_ioctl as u64
    {
        registers.set_instruction_pointer(at);
        registers.set_syscall_number(number);
    }
}

/// Returns where the runtime's own call goes on that faulted or was interrupted.
fn way_out(info: &SigInfo, is_fault: bool, at: usize) -> Option<usize> {
    if is_fault {
        resume_after_fault(at) // a bad pointer that the program gave us: EFAULT
    } else if timers::is_libcs(info) {
        None // it is for no call of a helper's
    } else {
        resume_interrupted_call(at)
    }
}

/// Handles a signal on a kernel thread that is no carrier: a helper, or else a vfork child.
fn off_carriers(info: &SigInfo, is_fault: bool, is_helper: bool) {
    if is_fault {
        actions::surrender(info.signo as u32);
    } else if is_helper && timers::is_libcs(info) {
        timers::miss(info);
        own_signals::send(PROCESS.pid.load(Ordering::Relaxed), POKE);
    } // else a helper was poked
}

/// Handles a signal, on the carrier's alternate stack. Takes no lock.
extern "C" fn on_signal(signal: u32, info: *mut SigInfo, context: *mut UContext) {
    // SAFETY: the kernel made both.
    let (info, context) = unsafe { (&*info, &mut *context) };
    let is_request = preemption::is_request(info);
    if is_request && PROCESS.roster.answer() {
        begin_ioctl_again(context);
        return; // the kernel goes on, or restarts its call
    }
    let at = context.context.instruction_pointer();
    let fault = is_fault(info);
    if let Some(at) = way_out(info, fault, at) {
        context.context.set_instruction_pointer(at);
        return;
    }
    let pointer = Carrier::current_or_null();
    if pointer.is_null() || kernel_threads::is_raw(pointer) {
        return off_carriers(info, fault, pointer.is_null());
    }
    let at = begin_wait_again(context);
    let carrier = Carrier::current();
    if signal as usize == PREEMPT {
        page_rings::let_go(carrier);
    }
    let makes_child = carrier.child_shares.load(Ordering::Relaxed) != 0;
    if signal as usize == POKE && !makes_child {
        context.sigmask = held::mask_of(carrier);
    } else {
        context.sigmask |= held::mask();
    }
    if fault && tsc::answer(carrier, info, is_ours(at), &mut context.context) {
        return;
    }
    if fault && is_ours(at) && is_trace(info) {
        context.context.trace_no_more();
        return; // a program that traces itself has made a call
    }
    let thread = carrier.thread_or_none();
    // The instructions around a clone with a child that shares memory count as the runtime's code.
    let in_user = !is_ours(at) && carrier.in_clock.get() == 0 && (fault || !makes_child);
    if is_request && !makes_child && sample(carrier, context) {
        return;
    }
    if is_request || quantum_timer::is_expiry(carrier, info) {
        begin_ioctl_again(context);
        if is_request || quantum_timer::expire(carrier) {
            preempt(carrier, info, context, in_user);
        }
        return;
    }
    let asked = carrier.deliver_here.replace(0) != 0;
    if fault && (!in_user || thread.is_none_or(|thread| delivery::is_fatal(thread, signal))) {
        return die(carrier, signal); // it has no handler, or is a bug of the runtime's
    }
    let Some(thread) = thread.filter(|_| in_user || asked) else {
        record(carrier, info);
        close_if_full(carrier, context, makes_child);
        wake_own_sleep(carrier);
        return;
    };
    if !fault {
        record(carrier, info);
        close_if_full(carrier, context, makes_child);
    }
    let idle = carrier.arrivals.is_empty() && !held::has_waiting() && !timers::has_missed();
    if in_user && idle && !fault && delivery::deliverable(thread) == 0 {
        begin_ioctl_again(context);
        // A poke for signals that were handled already needs no frame on the program's stack.
        carrier.attention.store(0, Ordering::Relaxed);
        return;
    }
    let stack = stack_for(thread, signal, context, fault);
    // SAFETY: the stack's memory is free.
    let moved = unsafe { move_frame(context, info, stack, &Hidden::UNKNOWN) };
    go_on(carrier, context, moved, fault);
}

/// Returns where a frame goes: to the save area, if the runtime's own code isn't there. Without
/// memory for a save area, the frame goes to the handler's stack, as does a frame of code there.
fn stack_for(thread: &Thread, signal: u32, context: &UContext, fault: bool) -> usize {
    let registers = &context.context;
    let is_free = !preemption::is_in_area(thread, registers.stack_pointer());
    let area = is_free.then(|| preemption::area(thread)).flatten();
    area.unwrap_or_else(|| {
        let flags = if fault {
            actions::get(signal).flags
        } else {
            delivery::flags_due(thread)
        };
        delivery::stack_for(thread, flags, registers)
    })
}

/// Takes a sample if sysmon wants one. Returns true if sysmon wants nothing else.
fn sample(carrier: &Carrier, context: &mut UContext) -> bool {
    if !samples::take(carrier, context) {
        return false;
    }
    begin_ioctl_again(context);
    if carrier.closed.load(Ordering::Relaxed) != 0 {
        // A signal that came meanwhile may have closed the carrier.
        context.sigmask |= held::mask_of(carrier);
    }
    !carrier.is_to_preempt() && plugins::way_out(carrier).is_none()
}

/// Blocks further signals, which stay with the kernel, until the carrier has handled the recorded
/// ones. Has no effect while a child or a new program inherits the mask.
fn close_if_full(carrier: &Carrier, context: &mut UContext, makes_child: bool) {
    if carrier.arrivals.is_full() && !makes_child {
        carrier.closed.store(1, Ordering::Relaxed);
        context.sigmask |= held::mask_of(carrier);
    }
}

/// Makes the signal handler return to `raddle_signal_arrived`, with a moved frame, which the thread
/// takes at once for a fault.
fn go_on(carrier: &Carrier, context: &mut UContext, moved: *mut Moved, fault: bool) {
    let registers = &mut context.context;
    registers.set_function_args([moved.addr(), usize::from(fault), 0]);
    registers.set_stack_pointer(moved.addr());
    registers.enter_function(raddle_signal_arrived as *const () as usize);
    // Handlers start with the initial floating-point state, and the interrupted code's x87 stack
    // must not reach the next thread.
    // SAFETY: the kernel's frame, which was copied already.
    unsafe { registers.clear_float_state() };
    context.sigmask = held::mask_of(carrier);
}

/// Handles sysmon's signal: moves the frame into the save area, or leaves the preemption to the end
/// of the call.
fn preempt(carrier: &Carrier, info: &SigInfo, context: &mut UContext, in_user: bool) {
    carrier.attention.store(1, Ordering::Relaxed);
    if let Some((code, args)) = plugins::way_out(carrier) {
        context.context.set_function_args(args);
        context.context.enter_function(code);
        return;
    }
    let gives_way = in_user && carrier.is_to_preempt() && !carrier.is_bound();
    if let Some(thread) = carrier.thread_or_none().filter(|_| gives_way)
        && let Some(area) = preemption::area(thread)
    {
        // SAFETY: the save area is free while its thread runs.
        let moved = unsafe { move_frame(context, info, area, &Hidden::UNKNOWN) };
        go_on(carrier, context, moved, false);
    }
}

fn record(carrier: &Carrier, info: &SigInfo) {
    if bit(info.signo as u32) & stops::JOB_CONTROL != 0 {
        if let Some(info) = stops::arrives(info) {
            carrier.arrivals.push(&info);
        }
    } else if info.signo as usize != POKE {
        carrier.arrivals.push(info);
    }
    carrier.attention.store(1, Ordering::Relaxed);
}

/// Makes a carrier that may be about to sleep look for work again. If its thread's call may be past
/// its last look, or the carrier is past its own and about to run a thread, sysmon makes the thread
/// look.
fn wake_own_sleep(carrier: &Carrier) {
    if !PROCESS.is_started() {
        return;
    }
    if carrier.thread_or_none().is_none() {
        carrier.wake_up_from_handler();
        PROCESS.pump.write_kick();
        if carrier.state() != CarrierState::Running {
            return; // it looks when it runs again
        }
    }
    PROCESS.sysmon.wake_up();
}

/// Returns where a frame below `stack` is, and its floating-point state of `size` bytes.
fn place(stack: usize, size: usize) -> (usize, usize) {
    let area = stack.wrapping_sub(size) & !63;
    // A handler is entered as if called: the stack pointer is 8 below a multiple of 16.
    let at = (area.wrapping_sub(size_of::<Moved>()) & !15).wrapping_sub(8);
    (at, area)
}

/// Returns true if [`move_frame`] has room for a frame of `context` below `stack`: the memory can
/// be written, and an alternate stack doesn't end there.
///
/// # Safety
/// `context` must be that of a moved frame; the memory below `stack` is the running thread's.
pub unsafe fn has_room(thread: &Thread, context: &UContext, stack: usize) -> bool {
    // SAFETY: the caller's promise.
    let size = unsafe { context.context.float_state_bytes() };
    let (at, _) = place(stack, size);
    let mut pages = (at / PAGE_SIZE..=stack.wrapping_sub(1) / PAGE_SIZE).map(|it| it * PAGE_SIZE);
    let can_write = |address: usize| {
        let byte = User::<u8>::at(address.max(at));
        byte.read().and_then(|value| byte.write(&value)).is_ok()
    };
    at < stack
        && alternate::holds(&thread.signals.alternate.get(), stack, at)
        && pages.all(can_write)
}

/// Returns true if `frame` is where [`move_frame`] puts its copy.
///
/// # Safety
/// `frame` must be a moved frame.
pub unsafe fn is_below(frame: *const Moved, stack: usize) -> bool {
    // SAFETY: the caller's promise.
    let size = unsafe { (*frame).context.context.float_state_bytes() };
    place(stack, size).0 == frame.addr()
}

/// Copies a frame to below `stack`; returns the copy.
///
/// # Safety
/// The memory below `stack` must be free, and hold a frame and its floating-point state.
pub unsafe fn move_frame(
    context: &UContext,
    info: &SigInfo,
    stack: usize,
    hidden: &Hidden,
) -> *mut Moved {
    let state = context.context.float_state();
    // SAFETY: the kernel's frame.
    let size = unsafe { context.context.float_state_bytes() };
    let (at, area) = place(stack, size);
    let moved = with_exposed_provenance_mut::<Moved>(at);
    // SAFETY: the caller's promise; the kernel's frame is whole.
    unsafe {
        let from = with_exposed_provenance::<u8>(state);
        if size != 0 {
            core::ptr::copy_nonoverlapping(from, with_exposed_provenance_mut(area), size);
        }
        moved.write(Moved {
            return_address: raddle_handler_returned as *const () as usize,
            context: *context,
            info: *info,
            call_site: 0,
            hidden: *hidden,
        });
        (*moved)
            .context
            .context
            .set_float_state(if size == 0 { 0 } else { area });
    }
    moved
}

raddle_arch::signal_entries! {
    deliver_here: DELIVER_HERE,
    on_signal: on_signal,
    arrived: delivery::arrived,
    returned: delivery::returned,
}
