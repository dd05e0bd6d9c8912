//! x86-64: the switch and the segment bases.
//!
//! A stack at the three moments, growing down:
//!
//! ```text
//!   fresh                      running                parked
//!   [ entry address     ]      [ caller's frames ]    [ return address of switch ]
//!   [ rbp .. r15 (zero) ]                             [ rbp rbx r12 r13 r14 r15  ]
//!   [ mxcsr, x87 cw     ]  <- sp                      [ mxcsr, x87 cw            ]  <- sp
//! ```
//!
//! The resuming side pops the return address and jumps to it: a `ret` would be mispredicted at
//! every switch (its address isn't on the return stack), an indirect jump is predicted.

use core::arch::{asm, naked_asm};

/// Where a parked context continues: its stack pointer, at a [`SwitchFrame`].
pub type Context = *mut SwitchFrame;

/// What a parked stack holds at its top.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct SwitchFrame {
    pub mxcsr: u32,
    pub x87_control: u32,
    pub r15: u64,
    pub r14: u64,
    pub r13: u64,
    pub r12: u64,
    pub rbx: u64,
    pub rbp: u64,
    pub rip: u64,
}

/// Writes a first frame so that the first switch to it enters `entry` with rbx = `argument`.
///
/// `entry` is entered by a jump, with the stack pointer at `top`: it must be a naked function that
/// makes no assumption about alignment. The floating-point control words are the caller's.
///
/// # Safety
/// `top` must be the end of writable memory of at least one [`SwitchFrame`], 8-byte aligned.
pub unsafe fn prepare(top: *mut u8, entry: usize, argument: u64) -> Context {
    let (mut mxcsr, mut x87_control) = (0u32, 0u32);
    // SAFETY: both instructions store four and two bytes into live locals.
    unsafe {
        asm!("stmxcsr [{}]", in(reg) &raw mut mxcsr, options(nostack, preserves_flags));
        asm!("fnstcw [{}]", in(reg) &raw mut x87_control, options(nostack, preserves_flags));
    }
    let frame = top
        .wrapping_sub(size_of::<SwitchFrame>())
        .cast::<SwitchFrame>();
    // SAFETY: the caller promises the memory below `top`.
    unsafe {
        frame.write(SwitchFrame {
            mxcsr,
            x87_control,
            r15: 0,
            r14: 0,
            r13: 0,
            r12: 0,
            rbx: argument,
            rbp: 0,
            rip: entry as u64,
        });
    }
    frame
}

/// Parks the caller's context in `*save`, tells `*on_cpu` = 0, and continues `next` with `fs` as
/// FS base. Returns when somebody switches back to `*save`.
///
/// At entry: rdi = save, rsi = next, rdx = fs, rcx = on_cpu. The store to `*on_cpu` comes after the
/// last use of the old stack, and x86 keeps stores in order: whoever reads 0 there with acquire may
/// continue the context.
///
/// # Safety
/// `next` must be a parked or prepared context that nobody else continues; `fs` its FS base; the
/// caller must not hold anything that depends on the carrier across the call.
#[unsafe(naked)]
pub unsafe extern "C" fn switch(save: *mut Context, next: Context, fs: u64, on_cpu: *mut u32) {
    naked_asm!(
        "push rbp",
        "push rbx",
        "push r12",
        "push r13",
        "push r14",
        "push r15",
        "sub rsp, 8",
        "stmxcsr [rsp]",
        "fnstcw [rsp + 4]",
        "mov [rdi], rsp",
        "mov rsp, rsi",
        "mov dword ptr [rcx], 0", // the old stack is free from here on
        "wrfsbase rdx",
        "ldmxcsr [rsp]",
        "fldcw [rsp + 4]",
        "add rsp, 8",
        "pop r15",
        "pop r14",
        "pop r13",
        "pop r12",
        "pop rbx",
        "pop rbp",
        "pop rcx",
        "jmp rcx",
    )
}

/// As [`switch`], but leaves the FS base alone: for the way to a carrier's own stack, where no code
/// reads it.
///
/// # Safety
/// As for [`switch`].
#[unsafe(naked)]
pub unsafe extern "C" fn switch_keep_fs(save: *mut Context, next: Context, on_cpu: *mut u32) {
    naked_asm!(
        "push rbp",
        "push rbx",
        "push r12",
        "push r13",
        "push r14",
        "push r15",
        "sub rsp, 8",
        "stmxcsr [rsp]",
        "fnstcw [rsp + 4]",
        "mov [rdi], rsp",
        "mov rsp, rsi",
        "mov dword ptr [rdx], 0",
        "ldmxcsr [rsp]",
        "fldcw [rsp + 4]",
        "add rsp, 8",
        "pop r15",
        "pop r14",
        "pop r13",
        "pop r12",
        "pop rbx",
        "pop rbp",
        "pop rcx",
        "jmp rcx",
    )
}

/// The FS base: the running thread's TLS.
pub fn fs_base() -> u64 {
    let base;
    // SAFETY: reads a register; FSGSBASE was checked at start-up.
    unsafe { asm!("rdfsbase {}", out(reg) base, options(nomem, nostack, preserves_flags)) };
    base
}

/// Sets the FS base.
///
/// # Safety
/// Code that reads thread-locals afterwards sees `base`'s.
pub unsafe fn set_fs_base(base: u64) {
    // SAFETY: the caller's promise.
    unsafe { asm!("wrfsbase {}", in(reg) base, options(nostack, preserves_flags)) };
}

/// The GS base: the carrier, or zero.
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

/// The time stamp counter, in its own ticks.
pub fn timestamp() -> u64 {
    // SAFETY: rdtsc is available on every x86-64.
    unsafe { core::arch::x86_64::_rdtsc() }
}

/// A pause in a spin loop.
pub fn pause() {
    core::hint::spin_loop();
}
