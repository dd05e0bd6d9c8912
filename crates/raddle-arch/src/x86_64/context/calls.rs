//! What a handler sees of the system call that it interrupts: the program's registers, at the call
//! itself.
//!
//! Natively a handler that interrupts a call finds the registers of the program at the `syscall`
//! instruction: before it, if the call begins or begins again when the handler returns; behind it,
//! with the result, if the call has ended. Here the runtime's code has been interrupted, in the
//! middle of the call. The registers of the program are those that the entry has saved. The
//! instruction stands in the stub: [`CALL_BEGINS`] before the stub's return address and
//! [`CALL_ENDS`] behind it all registers may be the program's own.
//!
//! A handler that leaves its context as it is lets the call go on inside of the runtime. A handler
//! that changes the context leaves the call, as a jump out of the handler does.

use super::SigContext;
use crate::x86_64::entry::Vectors;
use crate::{CallFrame, EntryReturns, RED_ZONE, WideState, X87};
use core::ptr::{with_exposed_provenance, with_exposed_provenance_mut};

/// Bytes between the place in a stub where a call begins, with all registers as at the site, and
/// the return address of the stub's call.
pub const CALL_BEGINS: usize = 18;
/// Bytes between that return address and the place where the call has ended.
pub const CALL_ENDS: usize = 9;

/// What a stub for clone-like calls finds in r11 behind a call that was handled. Linux has the
/// flags there.
const HANDLED: u64 = 1;

/// The bit of the vector registers' component in the header of a floating-point state.
const VECTORS_USED: u64 = 2;
/// Where xmm0 to xmm15 are in a floating-point state, and their bytes.
const VECTORS: (usize, usize) = (160, 256);
/// The parts of a floating-point state that are x87's: its words, then its registers. The MXCSR is
/// between them.
const X87_PARTS: [(usize, usize); 2] = [(0, 24), (32, 128)];
/// Where the header of a floating-point state is; it begins with the set of components in use.
const HEADER: core::ops::Range<usize> = super::LEGACY..super::LEGACY + 64;

/// The outcome of a call that is shown.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Shown {
    /// It begins when the handler returns.
    Begins,
    /// It has ended, with this result.
    Ended(isize),
}

/// The code that a signal has interrupted.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[repr(C)]
pub enum Interrupted {
    /// An entry, at the instruction that passes the call to the kernel: all registers but the
    /// pointers to stack and code are the program's.
    Entry,
    /// The runtime, in a function that has saved its own registers.
    Runtime,
}

/// What of the interrupted code isn't shown, and what is shown instead.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct Hidden {
    is_noted: bool,
    of: Interrupted,
    call: *const CallFrame,
    rip: u64,
    rsp: u64,
    shown_rip: u64,
    shown_rax: u64,
    eflags: u64,
    /// The process in which the call was noted. The child of a fork in a handler has no call to go
    /// on with: it leaves the call.
    pub process: u32,
}

impl Hidden {
    /// Of a frame that no handler has seen.
    pub const UNKNOWN: Self = Self {
        is_noted: false,
        of: Interrupted::Entry,
        call: core::ptr::null(),
        rip: 0,
        rsp: 0,
        shown_rip: 0,
        shown_rax: 0,
        eflags: 0,
        process: 0,
    };

    /// Nothing: the context is shown as it is.
    pub const NONE: Self = Self {
        is_noted: true,
        ..Self::UNKNOWN
    };

    /// Returns true once it is known which call the frame's handlers see, if any.
    pub fn is_noted(&self) -> bool {
        self.is_noted
    }

    /// Returns true if a call is shown to the frame's handlers.
    pub fn is_call(&self) -> bool {
        !self.call.is_null()
    }
}

impl SigContext {
    /// Returns the frame of the call that an entry passes to the kernel. The interrupted
    /// instruction must be one of an entry that has its frame pointer.
    pub fn passing_call(&self) -> *const CallFrame {
        with_exposed_provenance::<CallFrame>(self.rbp as usize).wrapping_sub(1)
    }

    /// Notes what [`SigContext::show_call`] is to show.
    ///
    /// # Safety
    /// The call must be that of the interrupted code, and made by an entry.
    pub unsafe fn note_call(
        &self,
        of: Interrupted,
        call: *const CallFrame,
        returns: &EntryReturns,
        shown: Shown,
    ) -> Hidden {
        // SAFETY: the caller's promise.
        let (number, behind) = unsafe { ((*call).rax, (*call).caller(returns).stub_return()) };
        let (rip, rax) = match shown {
            Shown::Begins => (behind - CALL_BEGINS as u64, number),
            Shown::Ended(result) => (behind + CALL_ENDS as u64, result as u64),
        };
        Hidden {
            is_noted: true,
            of,
            call,
            rip: self.rip,
            rsp: self.rsp,
            shown_rip: rip,
            shown_rax: rax,
            eflags: self.eflags,
            process: 0,
        }
    }

    /// Shows the program's registers.
    ///
    /// # Safety
    /// The context must be the one that `hidden` is of, with a whole floating-point state.
    pub unsafe fn show_call(&mut self, hidden: &Hidden, returns: &EntryReturns, wide: &WideState) {
        // SAFETY: the frame lies above the interrupted code's stack.
        unsafe {
            *self = self.as_shown(hidden, returns);
            if let Some(saved) = (*hidden.call).caller(returns).vectors {
                self.exchange_vectors(saved, wide, false);
            }
        }
    }

    /// Ends [`SigContext::show_call`]. The interrupted code goes on if the handler has changed
    /// nothing and `goes_on`: an entry where it was, the runtime at `behind`. Otherwise the program
    /// leaves the call; the result is false.
    ///
    /// # Safety
    /// As for [`SigContext::show_call`].
    pub unsafe fn hide_call(
        &mut self,
        hidden: &Hidden,
        returns: &EntryReturns,
        wide: &WideState,
        behind: usize,
        goes_on: bool,
    ) -> bool {
        // SAFETY: the frame lies above the interrupted code's stack.
        unsafe {
            if !goes_on || self.has_changed(&self.as_shown(hidden, returns), hidden) {
                if self.rip == hidden.shown_rip {
                    self.r11 = HANDLED; // the program expects nothing in it
                }
                return false;
            }
            if let Some(saved) = (*hidden.call).caller(returns).vectors {
                self.exchange_vectors(saved, wide, true);
            }
            self.rsp = hidden.rsp;
            self.rip = match hidden.of {
                Interrupted::Entry => hidden.rip,
                Interrupted::Runtime => behind as u64,
            };
            self.rbp = hidden.call.wrapping_add(1).addr() as u64;
            self.forget_syscall_end();
            true
        }
    }

    /// Returns the registers that are shown for this context. Those that an entry preserves are
    /// taken from the context itself: what a handler changes there reaches the program.
    unsafe fn as_shown(&self, hidden: &Hidden, returns: &EntryReturns) -> Self {
        // SAFETY: the caller's promise.
        let (call, caller) = unsafe { (&*hidden.call, (*hidden.call).caller(returns)) };
        // SAFETY: as above.
        let behind = unsafe { caller.stub_return() };
        let mut shown = Self {
            rdi: call.rdi,
            rsi: call.rsi,
            rdx: call.rdx,
            r10: call.r10,
            r8: call.r8,
            r9: call.r9,
            rax: hidden.shown_rax,
            rcx: behind + CALL_ENDS as u64,
            r11: HANDLED,
            rip: hidden.shown_rip,
            rsp: (caller.site.wrapping_add(1).addr() + RED_ZONE) as u64,
            // SAFETY: the caller's promise.
            rbp: unsafe { *caller.rbp },
            ..*self
        };
        if hidden.of == Interrupted::Runtime {
            // SAFETY: the entry has pushed them below the frame.
            let saved = unsafe { *hidden.call.cast::<[u64; 5]>().wrapping_sub(1) };
            [shown.r15, shown.r14, shown.r13, shown.r12, shown.rbx] = saved;
        }
        shown
    }

    /// Returns true if a handler has changed what was shown.
    fn has_changed(&self, shown: &Self, hidden: &Hidden) -> bool {
        let registers = |of: &Self| {
            let preserved = [of.rbx, of.r12, of.r13, of.r14, of.r15];
            let arguments = [of.rdi, of.rsi, of.rdx, of.r10, of.r8, of.r9];
            let others = [of.rax, of.rcx, of.r11, of.rip, of.rsp, of.rbp];
            (preserved, arguments, others)
        };
        registers(self) != registers(shown) || self.eflags != hidden.eflags
    }

    /// Copies the vector registers that an entry has saved to the context, or back.
    unsafe fn exchange_vectors(&self, saved: Vectors, wide: &WideState, back: bool) {
        if self.fpstate == 0 {
            return;
        }
        let exchange = |ours: usize, shown: usize, bytes: usize| {
            let (from, to) = if back { (shown, ours) } else { (ours, shown) };
            // SAFETY: the entry's frame and the context's state are whole, and apart.
            unsafe {
                let to = with_exposed_provenance_mut::<u8>(to);
                to.copy_from_nonoverlapping(with_exposed_provenance(from), bytes);
            }
        };
        exchange(saved.narrow, self.fpstate + VECTORS.0, VECTORS.1);
        let (components, bytes) = wide.get();
        // SAFETY: the caller's promise: the state is whole.
        let shown_bytes = unsafe { self.float_state_bytes() };
        if shown_bytes < HEADER.end.max(bytes) {
            return;
        }
        let header = |at: usize| with_exposed_provenance_mut::<u64>(at + HEADER.start);
        // SAFETY: the header follows the legacy area, in both.
        let (used, shown) = unsafe {
            let used = match saved.wide {
                0 => 0,
                at => *header(at),
            };
            (used, &mut *header(self.fpstate))
        };
        // Without a saved state the x87 registers are empty, as they are in the runtime's code.
        let hidden = components & !X87 | used & X87;
        if !back {
            *shown = *shown & !hidden | used & hidden | VECTORS_USED;
        } else if saved.wide != 0 {
            // SAFETY: as above.
            unsafe { *header(saved.wide) = *shown & hidden };
        }
        if used & X87 != 0 {
            for (at, bytes) in X87_PARTS {
                exchange(saved.wide + at, self.fpstate + at, bytes);
            }
            if back {
                *shown &= !X87; // the runtime goes on, with empty registers
            }
        }
        if saved.wide != 0 {
            let beyond = bytes - HEADER.end;
            exchange(saved.wide + HEADER.end, self.fpstate + HEADER.end, beyond);
        }
    }
}
