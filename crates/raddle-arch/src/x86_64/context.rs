//! The registers of code that a signal has interrupted, as the kernel lays them out.

mod calls;

pub use calls::{CALL_BEGINS, CALL_ENDS, Hidden, Interrupted, Shown};

use core::ptr::{with_exposed_provenance, with_exposed_provenance_mut};

/// `stack_t` of `sigaltstack(2)`.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct StackT {
    pub sp: usize,
    pub flags: i32,
    pub pad: i32,
    pub size: usize,
}

impl StackT {
    /// No alternate stack (`SS_DISABLE`).
    pub const DISABLED: Self = Self {
        sp: 0,
        flags: 2,
        pad: 0,
        size: 0,
    };
}

/// `struct sigcontext`, the general registers of a `ucontext_t`, in the kernel's order.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct SigContext {
    r8: u64,
    r9: u64,
    r10: u64,
    r11: u64,
    r12: u64,
    r13: u64,
    r14: u64,
    r15: u64,
    rdi: u64,
    rsi: u64,
    rbp: u64,
    rbx: u64,
    rdx: u64,
    rax: u64,
    rcx: u64,
    rsp: u64,
    rip: u64,
    eflags: u64,
    segments: u64,
    err: u64,
    trapno: u64,
    oldmask: u64,
    cr2: u64,
    fpstate: usize,
    reserved: [u64; 8],
}

/// The trap flag.
const TRAP: u64 = 0x100;
/// The flags that the kernel clears for a handler: resume, direction, trap.
const CLEARED: u64 = 0x1_0500;
/// Bytes of the oldest form of the floating-point state (`fxsave`).
const LEGACY: usize = 512;

impl SigContext {
    /// Returns the address of the next instruction.
    #[inline(always)]
    pub fn instruction_pointer(&self) -> usize {
        self.rip as usize
    }

    /// Makes the interrupted code go on at `address`.
    #[inline(always)]
    pub fn set_instruction_pointer(&mut self, address: usize) {
        self.rip = address as u64;
    }

    /// Returns the registers from which unwinding begins: rbx, rbp, rsp, rip, r12 to r15.
    pub fn unwind_registers(&self) -> [u64; 8] {
        [
            self.rbx, self.rbp, self.rsp, self.rip, self.r12, self.r13, self.r14, self.r15,
        ]
    }

    /// Returns the stack pointer.
    #[inline(always)]
    pub fn stack_pointer(&self) -> usize {
        self.rsp as usize
    }

    /// Makes the interrupted code go on with this stack pointer.
    #[inline(always)]
    pub fn set_stack_pointer(&mut self, address: usize) {
        self.rsp = address as u64;
    }

    /// Returns the result of a system call that has just ended.
    #[inline(always)]
    pub fn syscall_result(&self) -> isize {
        self.rax as isize
    }

    /// Changes the result of a system call that has just ended.
    #[inline(always)]
    pub fn set_syscall_result(&mut self, result: isize) {
        self.rax = result as u64;
    }

    /// Sets the number of a system call that begins.
    #[inline(always)]
    pub fn set_syscall_number(&mut self, number: u64) {
        self.rax = number;
    }

    /// Returns the end of the last system call's instruction, which the instruction itself notes;
    /// of no meaning in code that has used the register since.
    #[inline(always)]
    pub fn syscall_end(&self) -> usize {
        self.rcx as usize
    }

    /// Returns the address and the number of the system call that has just ended here, if the
    /// number stands in the instruction before it, as in most functions of C libraries.
    ///
    /// # Safety
    /// The registers must be those of interrupted code.
    pub unsafe fn ended_call(&self) -> Option<(usize, u64)> {
        /// `mov` of four bytes to eax, these, and `syscall`.
        const CALL: [u8; 7] = [0xb8, 0, 0, 0, 0, 0x0f, 0x05];
        const PAGE: usize = 4096;
        let end = self.instruction_pointer();
        if self.syscall_end() != end || end % PAGE < CALL.len() {
            return None;
        }
        let code = core::ptr::with_exposed_provenance::<[u8; CALL.len()]>(end - CALL.len());
        // SAFETY: the code before its end has just been executed, in this page.
        let [m, a, b, c, d, s, t] = unsafe { code.read_unaligned() };
        let is_call = [m, s, t] == [CALL[0], CALL[5], CALL[6]];
        is_call.then(|| (end - 2, u32::from_le_bytes([a, b, c, d]).into()))
    }

    /// Returns the end and the number of the system call that the kernel restarts here: it has put
    /// the instruction pointer back to the instruction. A call that is about to be made for the
    /// first time looks the same, if the one before was made here as well.
    ///
    /// # Safety
    /// The registers must be those of interrupted code.
    pub unsafe fn restarting_call(&self) -> Option<(usize, u64)> {
        const CALL: [u8; 2] = [0x0f, 0x05];
        let end = self.instruction_pointer().wrapping_add(CALL.len());
        if self.syscall_end() != end {
            return None;
        }
        let code = with_exposed_provenance::<[u8; CALL.len()]>(self.instruction_pointer());
        // SAFETY: the instruction that is next; the one that noted its end has been executed here.
        let is_call = unsafe { code.read_unaligned() } == CALL;
        is_call.then_some((end, self.rax))
    }

    /// Forgets the end of the last system call.
    #[inline(always)]
    pub fn forget_syscall_end(&mut self) {
        self.rcx = 0;
    }

    /// Returns the number that the entry has pushed which was interrupted.
    ///
    /// # Safety
    /// The interrupted instruction must be one of an entry that has its frame pointer.
    pub unsafe fn entry_call_number(&self) -> u64 {
        const BELOW: usize = 7 * size_of::<u64>(); // see the stack of the entry
        // SAFETY: the caller's promise.
        unsafe { *with_exposed_provenance::<u64>(self.rbp as usize - BELOW) }
    }

    /// Sets the first three arguments of a function that is entered.
    #[inline(always)]
    pub fn set_function_args(&mut self, args: [usize; 3]) {
        [self.rdi, self.rsi, self.rdx] = args.map(|arg| arg as u64);
    }

    /// Makes the interrupted code go on at the beginning of a function of the runtime's, which
    /// isn't traced.
    #[inline(always)]
    pub fn enter_function(&mut self, address: usize) {
        self.set_instruction_pointer(address);
        self.eflags &= !CLEARED;
    }

    /// Makes the code go on without a trap behind each instruction.
    pub fn trace_no_more(&mut self) {
        self.eflags &= !TRAP;
    }

    /// Makes the interrupted code go on at the beginning of a signal handler, as the kernel enters
    /// one: with the initial floating-point state.
    pub fn enter_handler(&mut self, address: usize) {
        self.rax = 0;
        self.set_instruction_pointer(address);
        self.eflags &= !CLEARED;
        self.fpstate = 0;
    }

    /// Sets the result of an instruction that reads the time stamp counter, and of `rdtscp` the
    /// CPU's number; goes on behind it. `None` if the instruction is another one.
    ///
    /// # Safety
    /// The interrupted instruction must be readable, with one byte more.
    pub unsafe fn emulate_time_stamp(&mut self, count: impl FnOnce() -> u64) -> Option<()> {
        const READ: [u8; 2] = [0x0f, 0x31];
        const READ_WITH_CPU: [u8; 3] = [0x0f, 0x01, 0xf9];
        let text = with_exposed_provenance::<[u8; 3]>(self.instruction_pointer());
        // SAFETY: the caller's promise.
        let bytes = unsafe { text.read_unaligned() };
        let len = match bytes {
            READ_WITH_CPU => READ_WITH_CPU.len(),
            [first, second, _] if [first, second] == READ => READ.len(),
            _ => return None,
        };
        if len == READ_WITH_CPU.len() {
            self.rcx = 0;
        }
        let count = count();
        self.rax = count & u64::from(u32::MAX);
        self.rdx = count >> 32;
        self.rip += len as u64;
        Some(())
    }

    /// Returns the address of the floating-point state; 0 for the initial state.
    #[inline(always)]
    pub fn float_state(&self) -> usize {
        self.fpstate
    }

    /// Sets the address of the floating-point state.
    #[inline(always)]
    pub fn set_float_state(&mut self, address: usize) {
        self.fpstate = address;
    }

    /// Returns the size of the floating-point state in bytes (`struct _fpx_sw_bytes` at its offset
    /// 464).
    ///
    /// # Safety
    /// The state's address must be 0 or that of a whole state.
    pub unsafe fn float_state_bytes(&self) -> usize {
        const MAGIC: u32 = 0x4650_5853;
        if self.fpstate == 0 {
            return 0;
        }
        let words = with_exposed_provenance::<u32>(self.fpstate + 464);
        // SAFETY: the state has at least the 512 bytes of fxsave.
        unsafe {
            match *words {
                MAGIC => *words.add(1) as usize,
                _ => LEGACY,
            }
        }
    }

    /// Makes `rt_sigreturn` load the initial floating-point state.
    ///
    /// # Safety
    /// As for [`SigContext::float_state_bytes`]; no other code uses the state.
    pub unsafe fn clear_float_state(&self) {
        const MXCSR: usize = 24;
        const DEFAULT_MXCSR: u32 = 0x1f80;
        const XSTATE_BV: usize = LEGACY; // of the header that follows the legacy area
        // SAFETY: the caller's promise; the header is there if the state is more than the legacy
        // area.
        unsafe {
            if self.float_state_bytes() <= LEGACY {
                return;
            }
            *with_exposed_provenance_mut::<u32>(self.fpstate + MXCSR) = DEFAULT_MXCSR;
            *with_exposed_provenance_mut::<u64>(self.fpstate + XSTATE_BV) = 0;
        }
    }
}

/// The kernel's `struct ucontext` of a signal frame.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct UContext {
    pub flags: u64,
    pub link: usize,
    pub stack: StackT,
    pub context: SigContext,
    pub sigmask: u64,
}
