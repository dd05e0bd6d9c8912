//! Where a system call enters the runtime: the entries that stubs call.
//!
//! A stub has skipped the red zone, pushed the address that follows the system call (so that
//! unwinders see an ordinary frame), and called one of five entries:
//!
//! | entry | for | saves |
//! |---|---|---|
//! | `raddle_entry_plain` | sites in functions that touch no vector register | general registers |
//! | `raddle_entry_vector` | all other sites | and xmm0 to xmm15 |
//! | `raddle_entry_clone_before` | clone, clone3, vfork, run-time numbers | everything |
//! | `raddle_entry_plain_clone_before` | run-time numbers, no vectors | as plain; for clones all |
//! | `raddle_entry_clone_after` | behind the raw instruction of those | everything |
//!
//! All preserve everything but rax, rcx and r11, as the kernel does. Handlers get a [`Frame`] and
//! return an [`Outcome`]. The entry itself executes a call that passes, at `raddle_pass_begin`,
//! with all registers as they were: a signal that arrives there, or during the look right before,
//! finds a thread that is, for all purposes, in user code. The look handles every signal that came
//! before, so that no call sleeps over a pending signal.
//!
//! Stack of `raddle_entry_plain` (addresses rising): rax r9 r8 r10 rdx rsi rdi | rbp | return to
//! stub
//! | address after the site | 128 bytes of red zone | the program's stack.

use crate::calls;
use crate::user::User;
use core::arch::global_asm;
use core::ptr::with_exposed_provenance;
use raddle_engine::carrier;
use raddle_engine::thread::CALL_SITE;
use raddle_sys::abi::SigContext;
use raddle_sys::{err, errno, syscall6};

/// The arguments of a system call, as the program passed them.
#[repr(C)]
pub struct Frame {
    /// The number.
    pub rax: u64,
    pub r9: u64,
    pub r8: u64,
    pub r10: u64,
    pub rdx: u64,
    pub rsi: u64,
    pub rdi: u64,
}

impl Frame {
    /// Argument `index` (0 to 5).
    #[inline(always)]
    pub fn arg(&self, index: usize) -> usize {
        self.args()[index]
    }

    /// Argument `index` where the kernel takes an `int` or an `unsigned int`: what lies above its
    /// 32 bits is ignored.
    #[inline(always)]
    pub fn word(&self, index: usize) -> u32 {
        self.args()[index] as u32
    }

    /// Argument `index` as an address in the program's memory.
    #[inline(always)]
    pub fn user<T>(&self, index: usize) -> User<T> {
        User::at(self.args()[index])
    }

    /// All arguments.
    #[inline(always)]
    pub fn args(&self) -> [usize; 6] {
        [
            self.rdi as usize,
            self.rsi as usize,
            self.rdx as usize,
            self.r10 as usize,
            self.r8 as usize,
            self.r9 as usize,
        ]
    }

    /// The address behind the system call's site, which the stub pushed.
    pub fn site(&self) -> usize {
        // SAFETY: the stub's word, below everything of the program's.
        unsafe { *self.pushed() }
    }

    /// The program's stack pointer at the call.
    pub fn program_stack(&self) -> *const usize {
        const RED_ZONE: usize = 128;
        self.pushed().wrapping_add(1).wrapping_byte_add(RED_ZONE)
    }

    /// Where the stub pushed the site.
    fn pushed(&self) -> *const usize {
        let mut frame = core::ptr::from_ref(self)
            .wrapping_add(1)
            .cast::<[usize; 3]>();
        // SAFETY: behind the arguments lie rbp, a return address and, if that leads to the stub,
        // the site; if it leads to an entry that called this one, rbp points at the same of that
        // entry.
        unsafe {
            if (*frame)[1] == (&raw const raddle_vector_return).addr() {
                frame = core::ptr::with_exposed_provenance((*frame)[0]);
            }
            if (*frame)[1] == (&raw const raddle_clone_return).addr()
                || (*frame)[1] == (&raw const raddle_plain_clone_return).addr()
            {
                frame = frame.wrapping_byte_add(size_of::<usize>());
            }
        }
        frame.cast::<usize>().wrapping_add(2)
    }

    /// Executes the call as it is, here: for handlers that need its result.
    ///
    /// # Safety
    /// The program asked for it; the handler must not rely on memory that the call changes.
    pub unsafe fn raw(&self) -> isize {
        // SAFETY: the caller's promise.
        unsafe { syscall6(self.rax as u32, self.args()) }
    }
}

/// What a handler decided.
#[repr(C)]
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct Outcome {
    value: isize,
    pass: u64,
}

impl Outcome {
    /// Let the kernel do it, with the program's own arguments.
    pub const PASS: Self = Self { value: 0, pass: 1 };

    /// As [`Outcome::PASS`], of a call that may wait for long: it is for a helper, where there is
    /// one ([`crate::helped::finish`]).
    pub const KERNEL: Self = Self { value: 1, pass: 1 };

    /// The call's result.
    #[inline(always)]
    pub const fn of(value: isize) -> Self {
        Self { value, pass: 0 }
    }

    /// Returns true if the kernel is to do it.
    pub const fn is_pass(self) -> bool {
        self.pass != 0
    }

    /// Returns true if the kernel is to do it and may wait for long.
    pub const fn is_for_helper(self) -> bool {
        self.pass == Self::KERNEL.pass && self.value == Self::KERNEL.value
    }

    /// The result, unless the kernel is to do it.
    pub const fn value(self) -> Option<isize> {
        if self.is_pass() {
            None
        } else {
            Some(self.value)
        }
    }

    /// Returns true if the result is `value`.
    pub const fn is_value(self, value: isize) -> bool {
        !self.is_pass() && self.value == value
    }
}

/// A handler of one system call number.
pub type Handler = extern "C" fn(&Frame) -> Outcome;

/// All registers at a clone.
#[repr(C)]
pub struct CloneFrame {
    pub call: Frame,
    pub r15: u64,
    pub r14: u64,
    pub r13: u64,
    pub r12: u64,
    pub rbx: u64,
    pub rbp: u64,
    /// Where the stub goes on.
    pub stub: u64,
    /// The address after the site, which the stub pushed.
    pub site: u64,
}

unsafe extern "C" {
    /// For sites in vector-free functions.
    pub fn raddle_entry_plain();
    /// For other sites.
    pub fn raddle_entry_vector();
    /// Before a clone-like call.
    pub fn raddle_entry_clone_before();
    /// The same, in vector-free functions.
    pub fn raddle_entry_plain_clone_before();
    /// After a raw clone-like call, in parent and child.
    pub fn raddle_entry_clone_after();
    /// Where a new green thread starts: behind the stub's call, as the child of a clone.
    pub fn raddle_child_start();
    static raddle_pass_check: u8;
    static raddle_pass_begin: u8;
    static raddle_pass_end: u8;
    static raddle_vector_return: u8;
    static raddle_clone_return: u8;
    static raddle_plain_clone_return: u8;
}

/// Returns true if `rip` is the passing system call of an entry, or its last look whether a signal
/// came.
pub fn is_pass(rip: usize) -> bool {
    let (check, end) = (&raw const raddle_pass_check, &raw const raddle_pass_end);
    (check.addr()..=end.addr()).contains(&rip)
}

/// Returns the end of the passing system call at `rip`, if a signal has interrupted the call and
/// the kernel is about to restart it: the kernel has put `rip` back. A call that hasn't begun has
/// an `rcx` of zero; the instruction stores its own end in `rcx`.
pub fn interrupted_pass(rip: usize, rcx: usize) -> Option<usize> {
    let (begin, end) = (&raw const raddle_pass_begin, &raw const raddle_pass_end);
    (begin.addr() == rip && end.addr() == rcx).then(|| end.addr())
}

/// Returns the address and the number with which an interrupted passing wait for a child begins
/// again. The kernel ends the wait with EINTR if the runtime's handler for the signal doesn't
/// restart calls: the poke's handler, and the one in the place of the program's. But the program's
/// handlers decide, if any runs; after one, `rcx` is not the call's end any more.
///
/// # Safety
/// The registers must be those of interrupted code on a program's stack.
pub unsafe fn interrupted_wait(registers: &SigContext) -> Option<(u64, u64)> {
    const WAIT4: u64 = 61;
    const WAITID: u64 = 247;
    const NUMBER: usize = 7 * size_of::<u64>(); // below rbp, see the module
    let (begin, end) = (&raw const raddle_pass_begin, &raw const raddle_pass_end);
    let ends = [registers.rip, registers.rcx] == [end.addr() as u64; 2];
    if !ends || registers.rax != err(errno::EINTR) as u64 {
        return None;
    }
    let at = with_exposed_provenance::<u64>(registers.rbp as usize - NUMBER);
    // SAFETY: at this address rbp is the entry's, which has pushed the number.
    let number = unsafe { *at };
    matches!(number, WAIT4 | WAITID).then(|| (begin.addr() as u64, number))
}

/// Returns true if `rip` is where a passing system call ends.
pub fn is_pass_end(rip: usize) -> bool {
    (&raw const raddle_pass_end).addr() == rip
}

/// What `raddle_child_start` pops.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct ChildRegisters {
    pub rdi: u64,
    pub rsi: u64,
    pub rdx: u64,
    pub r10: u64,
    pub r8: u64,
    pub r9: u64,
    pub rbx: u64,
    pub rbp: u64,
    pub r12: u64,
    pub r13: u64,
    pub r14: u64,
    pub r15: u64,
    pub stub: u64,
}

global_asm!(
    ".pushsection .text.raddle_boundary,\"ax\",@progbits",
    ".hidden raddle_entry_plain, raddle_entry_vector",
    ".hidden raddle_entry_clone_before, raddle_entry_clone_after, raddle_child_start",
    ".hidden raddle_entry_plain_clone_before, raddle_plain_clone_return",
    ".globl raddle_entry_plain_clone_before, raddle_plain_clone_return",
    ".hidden raddle_vector_return, raddle_clone_return",
    ".globl raddle_vector_return, raddle_clone_return",
    ".hidden raddle_pass_check, raddle_pass_begin, raddle_pass_end",
    ".globl raddle_entry_plain, raddle_entry_vector",
    ".globl raddle_entry_clone_before, raddle_entry_clone_after, raddle_child_start",
    ".globl raddle_pass_check, raddle_pass_begin, raddle_pass_end",
    // ---- plain
    ".p2align 6",
    "raddle_entry_plain:",
    ".cfi_startproc",
    "push rbp",
    ".cfi_def_cfa_offset 16",
    ".cfi_offset rbp, -16",
    "mov rbp, rsp",
    ".cfi_def_cfa_register rbp",
    "push rdi",
    "push rsi",
    "push rdx",
    "push r10",
    "push r8",
    "push r9",
    "push rax",
    "cmp dword ptr gs:[{raw}], 0",
    "jne 3f",
    "cmp rax, 512",
    "jae 3f",
    "lea r11, [rip + {table}]",
    "mov r11, [r11 + rax * 8]",
    "test r11, r11",
    "jz 3f",
    "mov rdi, rsp",
    "and rsp, -16",
    "call r11", // rax = value, rdx = pass
    "test edx, edx",
    "jnz 3f",
    "cmp dword ptr gs:[{attention}], 0",
    "jne 4f",
    "2:", // rax = result
    "mov rdi, [rbp - 8]",
    "mov rsi, [rbp - 16]",
    "mov rdx, [rbp - 24]",
    "mov r10, [rbp - 32]",
    "mov r8, [rbp - 40]",
    "mov r9, [rbp - 48]",
    ".cfi_remember_state",
    "leave",
    ".cfi_def_cfa rsp, 8",
    "ret",
    ".cfi_restore_state",
    "3:", // the kernel's turn, with the program's registers
    "mov rdi, [rbp - 8]",
    "mov rsi, [rbp - 16]",
    "mov rdx, [rbp - 24]",
    "mov r10, [rbp - 32]",
    "mov r8, [rbp - 40]",
    "mov r9, [rbp - 48]",
    "mov rax, [rbp - 56]",
    "xor ecx, ecx", // see `interrupted_pass`
    "raddle_pass_check:",
    "test dword ptr gs:[{attention}], {signalled}",
    "jnz 6f",
    "raddle_pass_begin:",
    "syscall",
    "raddle_pass_end:",
    "cmp dword ptr gs:[{attention}], 0",
    "jne 4f",
    ".cfi_remember_state",
    "leave",
    ".cfi_def_cfa rsp, 8",
    "ret",
    ".cfi_restore_state",
    "4:", // signals to look at
    "mov rdi, rax",
    "and rsp, -16",
    "call {on_attention}",
    "jmp 2b",
    "6:", // signals that came before the kernel's turn: it might wait for long
    "cmp dword ptr gs:[{raw}], 0",
    "jne raddle_pass_begin",
    "and rsp, -16",
    "call {before_call}",
    "jmp 3b",
    ".cfi_endproc",
    // ---- vector
    ".p2align 6",
    "raddle_entry_vector:",
    ".cfi_startproc",
    "push rbp",
    ".cfi_def_cfa_offset 16",
    ".cfi_offset rbp, -16",
    "mov rbp, rsp",
    ".cfi_def_cfa_register rbp",
    "sub rsp, 256",
    "and rsp, -16",
    ".irp n,0,1,2,3,4,5,6,7,8,9,10,11,12,13,14,15",
    "movaps [rsp + 16*\\n], xmm\\n",
    ".endr",
    "call raddle_entry_plain",
    "raddle_vector_return:",
    ".irp n,0,1,2,3,4,5,6,7,8,9,10,11,12,13,14,15",
    "movaps xmm\\n, [rsp + 16*\\n]",
    ".endr",
    "leave",
    ".cfi_def_cfa rsp, 8",
    "ret",
    ".cfi_endproc",
    // ---- clone, before, in a function without vectors
    ".p2align 6",
    "raddle_entry_plain_clone_before:",
    ".cfi_startproc",
    "cmp dword ptr gs:[{raw}], 0",
    "jne 8f",
    "cmp rax, 56",
    "je 8f",
    "cmp rax, 57",
    "je 8f",
    "cmp rax, 58",
    "je 8f",
    "cmp rax, 435",
    "je 8f",
    "mov r11, gs:[{thread}]", // any other number
    "mov [r11 + {call_site}], rcx", // the site, which the stub pushed
    "call raddle_entry_plain",
    "raddle_plain_clone_return:",
    "mov r11, gs:[{thread}]",
    "mov qword ptr [r11 + {call_site}], 0",
    "mov r11d, 1",
    "ret",
    "8:",
    "jmp raddle_entry_clone_before",
    ".cfi_endproc",
    // ---- clone, before
    ".p2align 6",
    "raddle_entry_clone_before:",
    ".cfi_startproc",
    "cmp dword ptr gs:[{raw}], 0",
    "jne 6f",
    "cmp rax, 56",
    "je 5f",
    "cmp rax, 57",
    "je 5f",
    "cmp rax, 58",
    "je 5f",
    "cmp rax, 435",
    "je 5f",
    "mov r11, gs:[{thread}]", // any other number
    "mov [r11 + {call_site}], rcx", // the site, which the stub pushed
    "call raddle_entry_vector",
    "raddle_clone_return:",
    "mov r11, gs:[{thread}]",
    "mov qword ptr [r11 + {call_site}], 0",
    "mov r11d, 1",
    "ret",
    "6:",
    "xor r11d, r11d",
    "ret",
    "5:",
    "push rbp",
    ".cfi_def_cfa_offset 16",
    ".cfi_offset rbp, -16",
    "mov rbp, rsp",
    ".cfi_def_cfa_register rbp",
    "push rbx",
    "push r12",
    "push r13",
    "push r14",
    "push r15",
    "push rdi",
    "push rsi",
    "push rdx",
    "push r10",
    "push r8",
    "push r9",
    "push rax",
    "mov rdi, rsp",
    "mov rbx, rsp",
    "sub rsp, 256",
    "and rsp, -16",
    ".irp n,0,1,2,3,4,5,6,7,8,9,10,11,12,13,14,15",
    "movaps [rsp + 16*\\n], xmm\\n",
    ".endr",
    "call {clone_before}", // rax = value, rdx = pass
    "mov r11d, edx",
    "xor r11d, 1",
    ".irp n,0,1,2,3,4,5,6,7,8,9,10,11,12,13,14,15",
    "movaps xmm\\n, [rsp + 16*\\n]",
    ".endr",
    "test r11d, r11d",
    "cmovz rax, [rbx]", // passes: the number again
    "mov r9, [rbx + 8]",
    "mov r8, [rbx + 16]",
    "mov r10, [rbx + 24]",
    "mov rdx, [rbx + 32]",
    "mov rsi, [rbx + 40]",
    "mov rdi, [rbx + 48]",
    "mov rbx, [rbp - 8]",
    "leave",
    ".cfi_def_cfa rsp, 8",
    "ret",
    ".cfi_endproc",
    // ---- clone, after: rax = result; a vfork child's calls by run-time numbers come here, too
    ".p2align 6",
    "raddle_entry_clone_after:",
    ".cfi_startproc",
    "cmp dword ptr gs:[{raw}], 0",
    "je 7f",
    "ret",
    "7:",
    "push rbp",
    ".cfi_def_cfa_offset 16",
    ".cfi_offset rbp, -16",
    "mov rbp, rsp",
    ".cfi_def_cfa_register rbp",
    "push rdi",
    "push rsi",
    "push rdx",
    "push r10",
    "push r8",
    "push r9",
    "push rax",
    "sub rsp, 256",
    "and rsp, -16",
    ".irp n,0,1,2,3,4,5,6,7,8,9,10,11,12,13,14,15",
    "movaps [rsp + 16*\\n], xmm\\n",
    ".endr",
    "mov rdi, rax",
    "lea rsi, [rbp - 56]",
    "call {clone_after}",
    ".irp n,0,1,2,3,4,5,6,7,8,9,10,11,12,13,14,15",
    "movaps xmm\\n, [rsp + 16*\\n]",
    ".endr",
    "mov rdi, [rbp - 8]",
    "mov rsi, [rbp - 16]",
    "mov rdx, [rbp - 24]",
    "mov r10, [rbp - 32]",
    "mov r8, [rbp - 40]",
    "mov r9, [rbp - 48]",
    "mov rax, [rbp - 56]",
    "leave",
    ".cfi_def_cfa rsp, 8",
    "ret",
    ".cfi_endproc",
    // ---- a new green thread: rsp -> ChildRegisters, right below what the stub pops
    ".p2align 6",
    "raddle_child_start:",
    ".cfi_startproc",
    ".cfi_undefined rip",
    "pop rdi",
    "pop rsi",
    "pop rdx",
    "pop r10",
    "pop r8",
    "pop r9",
    "pop rbx",
    "pop rbp",
    "pop r12",
    "pop r13",
    "pop r14",
    "pop r15",
    "pop rcx",
    "xor eax, eax",
    "mov r11d, 1",
    "jmp rcx",
    ".cfi_endproc",
    ".popsection",
    raw = const carrier::RAW,
    attention = const carrier::ATTENTION,
    thread = const carrier::CURRENT,
    call_site = const CALL_SITE,
    table = sym calls::TABLE,
    signalled = const carrier::SIGNALLED,
    before_call = sym crate::signal::before_call,
    on_attention = sym crate::signal::on_attention,
    clone_before = sym crate::process::clone_before,
    clone_after = sym crate::process::clone_after,
);
