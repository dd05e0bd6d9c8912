//! Reads and writes of memory that may be missing: a fault becomes -EFAULT.
//!
//! Nothing is pushed, so that a fault anywhere in these routines can return for all of them:
//!
//! ```text
//!   [ return address ]  <- rsp, from the first to the last instruction
//! ```
//!
//! | routine | rdi | rsi | rdx | rax at exit | changed |
//! |---|---|---|---|---|---|
//! | `user_load` | address | | | the word | |
//! | `user_exchange` | address | old word | new word | the word found | |
//! | `user_store` | address | value | | 0 | |
//! | `user_copy` | to | from | bytes | 0 | rdi, rsi, rdx, rcx |
//!
//! After a fault rax is -EFAULT.

use core::arch::global_asm;

unsafe extern "C" {
    fn __raddle_user_load(address: usize) -> i64;
    fn __raddle_user_exchange(address: usize, old: u32, new: u32) -> i64;
    fn __raddle_user_store(address: usize, value: usize) -> i64;
    fn __raddle_user_copy(to: usize, from: usize, bytes: usize) -> i64;
    static __raddle_user_begin: u8;
    static __raddle_user_words: u8;
    static __raddle_user_bytes: u8;
    static __raddle_user_fault: u8;
}

/// Returns the 32-bit word at `address`, or -EFAULT. The load is as strong as a SeqCst one.
///
/// # Safety
/// The handler of SIGSEGV and SIGBUS must ask [`resume_after_fault`], here and in all functions of
/// this module.
#[inline(always)]
pub unsafe fn user_load(address: usize) -> i64 {
    // SAFETY: the caller's promise.
    unsafe { __raddle_user_load(address) }
}

/// Stores `new` to the word at `address` if it holds `old`. Returns the old value, or -EFAULT.
///
/// # Safety
/// As for [`user_load`]; the word may be written.
#[inline(always)]
pub unsafe fn user_exchange(address: usize, old: u32, new: u32) -> i64 {
    // SAFETY: the caller's promise.
    unsafe { __raddle_user_exchange(address, old, new) }
}

/// Stores `value` at `address`. Returns 0, or -EFAULT if nothing is stored.
///
/// # Safety
/// As for [`user_exchange`].
#[inline(always)]
pub unsafe fn user_store(address: usize, value: usize) -> i64 {
    // SAFETY: the caller's promise.
    unsafe { __raddle_user_store(address, value) }
}

/// Copies bytes, one word of eight, four or two bytes at once. Returns 0, or -EFAULT after all
/// bytes are copied that can be copied.
///
/// # Safety
/// As for [`user_load`]; the memory at `to` may be written.
#[inline(always)]
pub unsafe fn user_copy(to: usize, from: usize, bytes: usize) -> i64 {
    // SAFETY: the caller's promise.
    unsafe { __raddle_user_copy(to, from, bytes) }
}

/// Returns the address to go on at after a fault at `address`, if that is in one of these routines:
/// a word that can't be copied whole is copied byte by byte. Called in the signal handler.
pub fn resume_after_fault(address: usize) -> Option<usize> {
    let (begin, words) = (
        &raw const __raddle_user_begin,
        &raw const __raddle_user_words,
    );
    let (bytes, fault) = (
        &raw const __raddle_user_bytes,
        &raw const __raddle_user_fault,
    );
    if (words.addr()..bytes.addr()).contains(&address) {
        return Some(bytes.addr());
    }
    (begin.addr()..fault.addr())
        .contains(&address)
        .then(|| fault.addr())
}

// Names that begin with `raddle_` stay global in the static C library.
global_asm!(
    ".pushsection .text.raddle_user,\"ax\",@progbits",
    ".hidden __raddle_user_begin, __raddle_user_words, __raddle_user_bytes, __raddle_user_fault",
    ".hidden __raddle_user_load, __raddle_user_exchange, __raddle_user_store, __raddle_user_copy",
    ".globl __raddle_user_begin, __raddle_user_words, __raddle_user_bytes, __raddle_user_fault",
    ".globl __raddle_user_load, __raddle_user_exchange, __raddle_user_store, __raddle_user_copy",
    ".p2align 4",
    "__raddle_user_begin:",
    "__raddle_user_load:",
    ".cfi_startproc",
    "mov eax, [rdi]",
    "ret",
    ".cfi_endproc",
    ".p2align 4",
    "__raddle_user_exchange:",
    ".cfi_startproc",
    "mov eax, esi",
    "lock cmpxchg [rdi], edx",
    "mov eax, eax", // a 32-bit result, whether it was exchanged or not
    "ret",
    ".cfi_endproc",
    ".p2align 4",
    "__raddle_user_store:",
    ".cfi_startproc",
    "mov [rdi], rsi",
    "xor eax, eax",
    "ret",
    ".cfi_endproc",
    ".p2align 4",
    "__raddle_user_copy:",
    ".cfi_startproc",
    "mov rcx, rdx",
    "shr rcx, 3",
    "jz 3f",
    "__raddle_user_words:",
    "2:",
    "mov rax, [rsi]",
    "mov [rdi], rax",
    "add rsi, 8",
    "add rdi, 8",
    "dec rcx",
    "jnz 2b",
    "3:", // rcx = 0
    "test edx, 4",
    "jz 6f",
    "mov eax, [rsi]", // at once: other threads may read a thread's id meanwhile
    "mov [rdi], eax",
    "add rsi, 4",
    "add rdi, 4",
    "and edx, 3",
    "6:",
    "test edx, 2",
    "jz 4f",
    "mov ax, [rsi]",
    "mov [rdi], ax",
    "add rsi, 2",
    "add rdi, 2",
    "and edx, 1",
    "4:",
    "test edx, 1",
    "jz 5f",
    "mov al, [rsi]",
    "mov [rdi], al",
    "5:",
    "xor eax, eax",
    "ret",
    // After a fault above: rcx words and the lowest bits of edx bytes are left, a part of which can
    // be copied, and all of it if the memory is there again.
    "__raddle_user_bytes:",
    "and edx, 7",
    "lea rcx, [rcx * 8 + rdx]",
    "7:",
    "mov al, [rsi]",
    "mov [rdi], al",
    "inc rsi",
    "inc rdi",
    "dec rcx",
    "jnz 7b",
    "xor eax, eax",
    "ret",
    ".cfi_endproc",
    ".p2align 4",
    "__raddle_user_fault:",
    ".cfi_startproc",
    "mov rax, -14", // EFAULT
    "ret",
    ".cfi_endproc",
    ".popsection",
);
