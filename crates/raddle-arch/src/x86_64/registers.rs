//! Single registers: the segment bases, the clock, hints.

use core::arch::asm;

/// Returns the FS base: the running thread's TLS.
pub fn fs_base() -> u64 {
    let base;
    // SAFETY: reads a register; FSGSBASE was checked at start-up.
    unsafe { asm!("rdfsbase {}", out(reg) base, options(nomem, nostack, preserves_flags)) };
    base
}

/// Sets the FS base.
///
/// # Safety
/// Code that reads thread-locals afterwards sees those of `base`.
pub unsafe fn set_fs_base(base: u64) {
    // SAFETY: the caller's promise.
    unsafe { asm!("wrfsbase {}", in(reg) base, options(nostack, preserves_flags)) };
}

/// Returns the GS base: the carrier, or zero.
pub fn gs_base() -> u64 {
    let base;
    // SAFETY: reads a register.
    unsafe { asm!("rdgsbase {}", out(reg) base, options(nomem, nostack, preserves_flags)) };
    base
}

/// Sets the GS base.
///
/// # Safety
/// Must be done once a carrier, by the carrier itself.
pub unsafe fn set_gs_base(base: u64) {
    // SAFETY: the caller's promise.
    unsafe { asm!("wrgsbase {}", in(reg) base, options(nostack, preserves_flags)) };
}

/// Returns the time stamp counter, in its own ticks.
pub fn timestamp() -> u64 {
    // SAFETY: rdtsc is available on every x86-64.
    unsafe { core::arch::x86_64::_rdtsc() }
}

/// Pauses in a spin loop.
pub fn pause() {
    core::hint::spin_loop();
}

/// Prefetches the cache line at `at`, which may be any address.
#[inline(always)]
pub fn prefetch(at: *const u8) {
    use core::arch::x86_64::{_MM_HINT_T0, _mm_prefetch};
    // SAFETY: a prefetch never faults.
    unsafe { _mm_prefetch::<_MM_HINT_T0>(at.cast()) };
}

/// Reads the first word behind the GS base: the carrier's own address. The instruction is volatile,
/// so that no value is kept over a switch.
///
/// # Safety
/// The GS base must be that of a carrier.
#[inline(always)]
pub unsafe fn carrier_address<T>() -> *const T {
    let address: *const T;
    // SAFETY: the caller's promise.
    unsafe { asm!("mov {}, gs:[0]", out(reg) address, options(nostack, preserves_flags)) };
    address
}

/// Reads the word at an offset in bytes from the FS base.
///
/// # Safety
/// The word must be one of the calling thread's thread-locals.
#[inline(always)]
pub unsafe fn thread_local_word(offset: isize) -> usize {
    let word;
    // SAFETY: reads one word, by the caller's promise the thread's own.
    unsafe {
        asm!(
            "mov {}, fs:[{}]",
            out(reg) word,
            in(reg) offset,
            options(readonly, nostack, preserves_flags)
        );
    }
    word
}

/// Returns rbx, rbp, rsp, rip and r12 to r15 as they are in the calling function, for an unwinder
/// that reads the stack from there upwards.
#[inline(always)]
pub fn own_registers() -> [u64; 8] {
    let mut registers = [0u64; 8];
    // SAFETY: writes the eight words.
    unsafe {
        asm!(
            "mov [{to}], rbx",
            "mov [{to} + 8], rbp",
            "mov [{to} + 16], rsp",
            "lea {at}, [rip]",
            "mov [{to} + 24], {at}",
            "mov [{to} + 32], r12",
            "mov [{to} + 40], r13",
            "mov [{to} + 48], r14",
            "mov [{to} + 56], r15",
            to = in(reg) registers.as_mut_ptr(),
            at = out(reg) _,
            options(nostack, preserves_flags)
        );
    }
    registers
}

/// Asks valgrind (`valgrind.h`, RUNNING_ON_VALGRIND) by rotations that change nothing on a CPU, and
/// that valgrind recognises.
///
/// | register | at entry | at exit |
/// |---|---|---|
/// | rax | address of the request's six words | preserved |
/// | rdx | 0 | the answer |
/// | rdi | 0 | rotated by 128 bits in all: the same |
pub fn is_under_valgrind() -> bool {
    const RUNNING_ON_VALGRIND: u64 = 0x1001;
    let request = [RUNNING_ON_VALGRIND, 0, 0, 0, 0, 0];
    let mut answer = 0u64;
    // SAFETY: rdi is rotated by 128 bits in all; valgrind reads the request and writes rdx.
    unsafe {
        asm!(
            "rol rdi, 3",
            "rol rdi, 13",
            "rol rdi, 61",
            "rol rdi, 51",
            "xchg rbx, rbx",
            in("rax") request.as_ptr(),
            inout("rdx") answer,
            inout("rdi") 0u64 => _,
        );
    }
    answer != 0
}
