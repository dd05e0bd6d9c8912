//! Test entries for stubs: they execute the system call as it is, count, and can call a hook.

use core::arch::global_asm;
use core::sync::atomic::AtomicU64;

unsafe extern "C" {
    pub(crate) fn test_entry_plain();
    pub(crate) fn test_entry_vector();
    pub(crate) fn test_entry_before();
    pub(crate) fn test_entry_after();
}

/// How often each entry has been called.
pub(crate) static PLAIN_CALLS: AtomicU64 = AtomicU64::new(0);
pub(crate) static VECTOR_CALLS: AtomicU64 = AtomicU64::new(0);
pub(crate) static BEFORE_CALLS: AtomicU64 = AtomicU64::new(0);
pub(crate) static AFTER_CALLS: AtomicU64 = AtomicU64::new(0);
/// The number of a system call before which the hook is called; 0 for none.
pub(crate) static HOOKED: AtomicU64 = AtomicU64::new(0);
/// The hook, a C function without arguments.
pub(crate) static HOOK: AtomicU64 = AtomicU64::new(0);

// A system call may destroy rcx and r11, and so may entries.
global_asm!(
    ".pushsection .text.test_entries, \"ax\", @progbits",
    ".globl test_entry_plain, test_entry_vector, test_entry_before, test_entry_after",
    ".macro test_counted_call counter",
    "lea r11, [rip + \\counter]",
    "lock inc qword ptr [r11]",
    "cmp rax, [rip + {hooked}]",
    "jne 2f",
    "test rax, rax",
    "jz 2f",
    "call test_call_hook",
    "2:",
    "syscall",
    "ret",
    ".endm",
    "test_entry_plain:",
    ".cfi_startproc",
    "test_counted_call {plain_calls}",
    ".cfi_endproc",
    "test_entry_vector:",
    ".cfi_startproc",
    "test_counted_call {vector_calls}",
    ".cfi_endproc",
    // Handles nothing.
    "test_entry_before:",
    ".cfi_startproc",
    "lea r11, [rip + {before_calls}]",
    "lock inc qword ptr [r11]",
    "xor r11d, r11d",
    "ret",
    ".cfi_endproc",
    "test_entry_after:",
    ".cfi_startproc",
    "lea r11, [rip + {after_calls}]",
    "lock inc qword ptr [r11]",
    "ret",
    ".cfi_endproc",
    // Calls the hook once, with all registers that a function may destroy saved.
    "test_call_hook:",
    ".cfi_startproc",
    "push rbp",
    ".cfi_def_cfa_offset 16",
    ".cfi_offset rbp, -16",
    "mov rbp, rsp",
    ".cfi_def_cfa_register rbp",
    "push rax",
    "push rdi",
    "push rsi",
    "push rdx",
    "push r10",
    "push r8",
    "push r9",
    "and rsp, -16",
    "mov qword ptr [rip + {hooked}], 0",
    "call [rip + {hook}]",
    "mov rax, [rbp - 8]",
    "mov rdi, [rbp - 16]",
    "mov rsi, [rbp - 24]",
    "mov rdx, [rbp - 32]",
    "mov r10, [rbp - 40]",
    "mov r8, [rbp - 48]",
    "mov r9, [rbp - 56]",
    "leave",
    ".cfi_def_cfa rsp, 8",
    "ret",
    ".cfi_endproc",
    ".purgem test_counted_call",
    ".popsection",
    plain_calls = sym PLAIN_CALLS,
    vector_calls = sym VECTOR_CALLS,
    before_calls = sym BEFORE_CALLS,
    after_calls = sym AFTER_CALLS,
    hooked = sym HOOKED,
    hook = sym HOOK,
);
