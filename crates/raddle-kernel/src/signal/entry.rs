//! The runtime's signal handler and the way from there to a green stack.
//!
//! The kernel enters `raddle_signal_handler` on the carrier's alternate stack with every signal
//! blocked. If the carrier was in user code, the handler *moves the frame*: it copies the kernel's
//! frame (saved registers, floating-point state, `siginfo`) below the green thread's stack pointer,
//! or to the top of its alternate stack, and edits the original so that the handler's return enters
//! `raddle_signal_arrived` there, with the kernel's mask empty again. If the carrier was in the
//! runtime, the handler only records the signal, which is handled when the runtime is left.
//!
//! So no green thread ever holds a carrier's alternate stack, a frame can be resumed on any
//! carrier, and nothing that takes a lock runs in a handler.
//!
//! A moved frame, addresses rising: return address | ucontext | siginfo | padding | xsave area.

use super::{MASK_BYTES, bit, delivery, preemption, stops, tsc};
use crate::boundary::{interrupted_wait, is_pass};
use crate::futex::robust;
use crate::{process, user};
use core::arch::global_asm;
use core::ptr::{with_exposed_provenance, with_exposed_provenance_mut};
use core::sync::atomic::Ordering;
use raddle_engine::carrier::PREEMPT;
use raddle_engine::helpers::{self, POKE};
use raddle_engine::{Carrier, ENGINE, metronome, pages, plugins};
use raddle_sys::abi::{SigInfo, UContext};
use raddle_sys::{nr, sys};

use super::actions;
use super::kept;

unsafe extern "C" {
    /// What the kernel enters.
    pub fn raddle_signal_handler();
    /// What its frame returns to.
    pub fn raddle_signal_restorer();
    /// On a green stack: rdi = the moved frame, rsi = 1 for a fault.
    fn raddle_signal_arrived();
    /// On a save area: rdi = the moved frame.
    fn raddle_preempted();
    /// Goes to `raddle_signal_arrived`, leaving the current stack.
    pub fn raddle_arrive(frame: *mut Moved) -> !;
    /// Where user handlers return to, with the stack pointer at the moved frame's `ucontext`.
    pub fn raddle_handler_returned();
    /// Calls a user handler: rdi signal, rsi siginfo, rdx ucontext, rcx handler, r8 frame.
    pub fn raddle_enter_handler(
        signal: u32,
        info: *mut SigInfo,
        context: *mut UContext,
        handler: usize,
        frame: *mut Moved,
    ) -> !;
    /// Resumes the context of a moved frame: `rt_sigreturn`.
    pub fn raddle_resume(frame: *mut Moved) -> !;
    static __ehdr_start: u8;
    static etext: u8;
}

/// What a moved frame begins with.
#[repr(C)]
pub struct Moved {
    pub return_address: usize,
    pub context: UContext,
    pub info: SigInfo,
    /// `ThreadSignals::call_site` while the handler runs.
    pub call_site: usize,
}

/// Returns true for a signal that the interrupted instruction raised. `SI_USER`-like codes are at
/// most 0, a fault's are positive, as is `SI_KERNEL`, of a breakpoint's trap and a general
/// protection fault.
fn is_fault(info: &SigInfo) -> bool {
    info.code > 0 && matches!(info.signo, 4 | 5 | 7 | 8 | 11 | 31)
}

/// Prepares the process's death by a fault: after the handler's return the instruction faults
/// again, without a handler. A breakpoint or a refused system call isn't repeated, so its signal is
/// sent once more.
fn die(carrier: &Carrier, signal: u32) {
    const UNBLOCK: usize = nr::SIG_UNBLOCK as usize;
    let faults = actions::FAULTS;
    // SAFETY: the kernel reads a live word. A robust list may lead anywhere.
    unsafe {
        let faults = &raw const faults;
        sys!(nr::__NR_rt_sigprocmask, UNBLOCK, faults, 0usize, MASK_BYTES);
    }
    robust::process_ends();
    actions::surrender(signal);
    if matches!(signal, 5 | 31) {
        let pid = ENGINE.pid.load(Ordering::Relaxed);
        let own = carrier.kernel_tid.load(Ordering::Relaxed);
        // SAFETY: signals this very kernel thread, which blocks all signals until it returns.
        unsafe { sys!(nr::__NR_tgkill, pid, own, signal) };
    }
}

/// Returns true if `rip` is code of the runtime.
fn is_ours(rip: usize) -> bool {
    let (from, to) = ((&raw const __ehdr_start).addr(), (&raw const etext).addr());
    (from..to).contains(&rip) && !is_pass(rip)
}

/// Makes an interrupted passing wait for a child begin again, unless a handler of the program's
/// decides otherwise. Returns the address where the interrupted code goes on.
fn begin_wait_again(context: &mut UContext) -> usize {
    // SAFETY: the registers of the code that the signal has interrupted.
    if let Some((rip, number)) = unsafe { interrupted_wait(&context.context) } {
        (context.context.rip, context.context.rax) = (rip, number);
    }
    context.context.rip as usize
}

/// The handler's body, on the carrier's alternate stack; takes no lock.
extern "C" fn on_signal(signal: u32, info: *mut SigInfo, context: *mut UContext) {
    // SAFETY: the kernel made both.
    let (info, context) = unsafe { (&*info, &mut *context) };
    if signal as usize == PREEMPT && ENGINE.roster.answer() {
        return; // the kernel goes on, or restarts its call
    }
    let rip = context.context.rip as usize;
    let fault = is_fault(info);
    let resume = if fault {
        user::resume_after_fault(rip) // a bad pointer that the program gave us: EFAULT
    } else {
        helpers::resume_after_poke(rip)
    };
    if let Some(rip) = resume {
        context.context.rip = rip as u64;
        return;
    }
    let pointer = Carrier::current_or_null();
    if pointer.is_null() || process::is_raw(pointer) {
        if fault {
            actions::surrender(signal);
        }
        return; // a helper that was poked, or a vfork child
    }
    let rip = begin_wait_again(context);
    let carrier = Carrier::current();
    if signal as usize == PREEMPT {
        pages::let_go(carrier);
    }
    let makes_child = carrier.child_shares.load(Ordering::Relaxed) != 0;
    if signal as usize == POKE && !makes_child {
        context.sigmask = kept::mask_of(carrier);
    } else {
        context.sigmask |= kept::mask();
    }
    if fault && tsc::answer(carrier, info, is_ours(rip), &mut context.context) {
        return;
    }
    let thread = carrier.thread_or_none();
    // The few instructions around a clone with a child that shares memory count as the runtime's.
    let in_user = !is_ours(rip) && carrier.in_clock.get() == 0 && (fault || !makes_child);
    let is_request = preemption::is_request(info);
    if is_request || metronome::is_beat(carrier, info) {
        if is_request || metronome::beat(carrier) {
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
    let idle = carrier.arrivals.is_empty() && !kept::has_waiting();
    if in_user && idle && !fault && delivery::deliverable(thread) == 0 {
        // A poke for signals that were handled already: nothing is written to the program's stack.
        carrier.attention.store(0, Ordering::Relaxed);
        return;
    }
    let hit = (signal as usize != POKE).then_some(signal);
    let stack = delivery::stack_for(thread, hit, context.context.rsp as usize, fault);
    // SAFETY: the green stack below its pointer (or its alternate stack) is free.
    let moved = unsafe { move_frame(context, info, stack) };
    go_on(
        carrier,
        context,
        moved,
        raddle_signal_arrived,
        u64::from(fault),
    );
}

/// Leaves further signals to the kernel until the carrier has handled the recorded ones. Not while
/// a child or a new program inherits the mask.
fn close_if_full(carrier: &Carrier, context: &mut UContext, makes_child: bool) {
    if carrier.arrivals.is_full() && !makes_child {
        carrier.closed.store(1, Ordering::Relaxed);
        context.sigmask |= kept::mask_of(carrier);
    }
}

/// Makes the handler return to `code`, with a moved frame.
fn go_on(
    carrier: &Carrier,
    context: &mut UContext,
    moved: *mut Moved,
    code: unsafe extern "C" fn(),
    argument: u64,
) {
    let registers = &mut context.context;
    registers.rdi = moved as u64;
    registers.rsi = argument;
    registers.rsp = moved as u64;
    registers.rip = code as *const () as u64;
    registers.eflags &= !0x400; // the ABI's direction flag
    let state = registers.fpstate;
    context.sigmask = kept::mask_of(carrier);
    // SAFETY: the kernel's frame, which was copied already.
    unsafe { clear_float(state) };
}

/// Makes `rt_sigreturn` load the initial floating-point state, with which handlers start: the
/// interrupted code's x87 stack must not reach the next thread.
unsafe fn clear_float(state: usize) {
    const MXCSR: usize = 24;
    const DEFAULT_MXCSR: u32 = 0x1f80;
    const XSTATE_BV: usize = 512; // of the header that follows the legacy area
    // SAFETY: the caller's frame; the header is there if the state is more than the legacy area.
    unsafe {
        if state == 0 || xsave_size(state) <= XSTATE_BV {
            return;
        }
        *with_exposed_provenance_mut::<u32>(state + MXCSR) = DEFAULT_MXCSR;
        *with_exposed_provenance_mut::<u64>(state + XSTATE_BV) = 0;
    }
}

/// Handles sysmon's signal: moves the frame into the save area, or leaves the preemption to the end
/// of the call.
fn preempt(carrier: &Carrier, info: &SigInfo, context: &mut UContext, in_user: bool) {
    carrier.attention.store(1, Ordering::Relaxed);
    if let Some((code, [rdi, rsi, rdx])) = plugins::way_out(carrier) {
        let registers = &mut context.context;
        (registers.rdi, registers.rsi, registers.rdx) = (rdi as u64, rsi as u64, rdx as u64);
        registers.rip = code as u64;
        registers.eflags &= !0x400;
        return;
    }
    if let Some(thread) = carrier.thread_or_none().filter(|_| in_user)
        && let Some(area) = preemption::area(carrier, thread)
    {
        // SAFETY: the save area is free while its thread runs.
        let moved = unsafe { move_frame(context, info, area) };
        go_on(carrier, context, moved, raddle_preempted, 0);
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

/// Makes a carrier that may be about to sleep look again. For a call that may be past its last
/// look, sysmon does so.
fn wake_own_sleep(carrier: &Carrier) {
    if !ENGINE.is_started() {
        return;
    }
    match carrier.thread_or_none() {
        None => {
            carrier.wake_up_from_handler();
            ENGINE.pump.write_kick();
        }
        Some(_) => ENGINE.sysmon.wake_up(),
    }
}

/// Copies a frame to below `stack`; returns the copy.
///
/// # Safety
/// The memory below `stack` must be free, and hold a frame and its floating-point state.
pub unsafe fn move_frame(context: &UContext, info: &SigInfo, stack: usize) -> *mut Moved {
    let state = context.context.fpstate;
    let size = if state == 0 { 0 } else { xsave_size(state) };
    let area = (stack - size) & !63;
    // A handler is entered as if called: the stack pointer is 8 below a multiple of 16.
    let at = ((area - size_of::<Moved>()) & !15) - 8;
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
        });
        (*moved).context.context.fpstate = if size == 0 { 0 } else { area };
    }
    moved
}

/// Bytes of a frame's floating-point state (`struct _fpx_sw_bytes` at its offset 464).
fn xsave_size(state: usize) -> usize {
    const MAGIC: u32 = 0x4650_5853;
    const LEGACY: usize = 512;
    let words = with_exposed_provenance::<u32>(state + 464);
    // SAFETY: the kernel's frame has at least the 512 bytes of fxsave.
    unsafe {
        if *words == MAGIC {
            *words.add(1) as usize
        } else {
            LEGACY
        }
    }
}

// Unwinding through `raddle_handler_returned` restores the interrupted registers from the ucontext
// at the stack pointer, as for the kernel's own return code: offsets of `struct ucontext`.
global_asm!(
    ".pushsection .text.raddle_signal,\"ax\",@progbits",
    ".hidden raddle_signal_handler, raddle_signal_restorer, raddle_signal_arrived",
    ".hidden raddle_handler_returned, raddle_enter_handler, raddle_resume",
    ".hidden raddle_preempted, raddle_arrive",
    ".globl raddle_preempted, raddle_arrive",
    ".globl raddle_signal_handler, raddle_signal_restorer, raddle_signal_arrived",
    ".globl raddle_handler_returned, raddle_enter_handler, raddle_resume",
    ".p2align 4",
    "raddle_signal_handler:",
    ".cfi_startproc",
    "sub rsp, 8",
    ".cfi_adjust_cfa_offset 8",
    "call {on_signal}",
    "add rsp, 8",
    ".cfi_adjust_cfa_offset -8",
    "ret",
    ".cfi_endproc",
    ".p2align 4",
    "raddle_signal_restorer:",
    "mov rax, 15",
    "syscall",
    ".p2align 4",
    ".cfi_startproc simple",
    ".cfi_signal_frame",
    // CFA = *(rsp + 160)
    ".cfi_escape 0x0f, 4, 0x77, 0xa0, 1, 0x06",
    ".cfi_escape 0x10, 16, 3, 0x77, 0xa8, 1", // rip
    ".cfi_escape 0x10, 8, 2, 0x77, 40",       // r8
    ".cfi_escape 0x10, 9, 2, 0x77, 48",
    ".cfi_escape 0x10, 10, 2, 0x77, 56",
    ".cfi_escape 0x10, 11, 3, 0x77, 0xc0, 0", // 64
    ".cfi_escape 0x10, 12, 3, 0x77, 0xc8, 0",
    ".cfi_escape 0x10, 13, 3, 0x77, 0xd0, 0",
    ".cfi_escape 0x10, 14, 3, 0x77, 0xd8, 0",
    ".cfi_escape 0x10, 15, 3, 0x77, 0xe0, 0",
    ".cfi_escape 0x10, 5, 3, 0x77, 0xe8, 0",  // rdi
    ".cfi_escape 0x10, 4, 3, 0x77, 0xf0, 0",  // rsi
    ".cfi_escape 0x10, 6, 3, 0x77, 0xf8, 0",  // rbp
    ".cfi_escape 0x10, 3, 3, 0x77, 0x80, 1",  // rbx
    ".cfi_escape 0x10, 1, 3, 0x77, 0x88, 1",  // rdx
    ".cfi_escape 0x10, 0, 3, 0x77, 0x90, 1",  // rax
    ".cfi_escape 0x10, 2, 3, 0x77, 0x98, 1",  // rcx
    ".cfi_escape 0x10, 7, 3, 0x77, 0xa0, 1",  // rsp
    // Entered with rdi = the moved frame; the unwind rules hold from the second instruction on.
    "raddle_arrive:",
    "xor esi, esi",
    "raddle_signal_arrived:",
    "lea rsp, [rdi + 8]",
    "call {arrived}",
    "ud2",
    "raddle_preempted:",
    "lea rsp, [rdi + 8]",
    "call {preempted}",
    "ud2",
    "nop", // unwinders look up the byte before the return address
    "raddle_handler_returned:",
    "lea rdi, [rsp - 8]",
    "mov rbx, rdi",
    "and rsp, -16",
    "call {returned}",
    "lea rsp, [rbx + 8]",
    "mov eax, 15",
    "syscall",
    ".cfi_endproc",
    ".p2align 4",
    "raddle_enter_handler:",
    "mov rsp, r8",
    "xor eax, eax",
    "jmp rcx",
    "raddle_resume:",
    "lea rsp, [rdi + 8]",
    "mov eax, 15",
    "syscall",
    "ud2",
    ".popsection",
    on_signal = sym on_signal,
    arrived = sym delivery::arrived,
    preempted = sym preemption::preempted,
    returned = sym delivery::returned,
);
