//! The switch between two stacks.
//!
//! The switch keeps what the System V ABI makes the callee save: itself the stack pointer, rbx,
//! rbp, MXCSR and the x87 control word; through the compiler, which is told that they change, r12
//! to r15. Vector registers are dead at a call. A system call preserves them, so the boundary saves
//! them before it calls anything.
//!
//! A stack at the three moments, growing down:
//!
//! ```text
//!   fresh                       running                    parked
//!   [ entry address   ]         [ caller's frames ] <- sp  [ caller's frames    ]
//!   [ mxcsr, x87 word ] <- sp                              [ rbx                ]
//!                                                          [ rbp                ]
//!                                                          [ where it continues ]
//!                                                          [ mxcsr, x87 word    ] <- sp
//! ```
//!
//! The switch is inline and tells the compiler that no other register survives, so that the code
//! around it saves, once, only what is in use there.
//!
//! It makes no call and no return. The CPU predicts returns by a stack of the calls that it has
//! seen. After a switch to a stack of the same depth, this thread's calls predict the other
//! thread's returns, and both have the same ones when they wait in the same way: two threads that
//! hand work to each other. A call of the switch that is left by a jump shifts that stack by one,
//! and then every return up to where the thread came from is mispredicted (measured: 60 ns of a
//! Java hand-off's 420).

use core::arch::asm;

/// Where a parked context continues: its stack pointer, at a [`SwitchFrame`].
pub type Context = *mut SwitchFrame;

/// The top of a parked stack.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct SwitchFrame {
    mxcsr: u32,
    x87_control: u32,
    rip: u64,
}

/// Writes a first frame so that the first switch to it enters `entry`.
///
/// `entry` is entered by a jump, with the stack pointer at `top`: it must be a naked function that
/// makes no assumption about alignment or registers. The frame gets the caller's floating-point
/// control words.
///
/// # Safety
/// `top` must be the end of writable memory of at least one [`SwitchFrame`], 8-byte aligned.
pub unsafe fn prepare(top: *mut u8, entry: usize) -> Context {
    let frame = top
        .wrapping_sub(size_of::<SwitchFrame>())
        .cast::<SwitchFrame>();
    // SAFETY: the caller promises the memory below `top`. The two instructions store four and two
    // bytes there. Locals would be slower: a load of four bytes after a store of two takes long.
    unsafe {
        frame.write(SwitchFrame {
            mxcsr: 0,
            x87_control: 0,
            rip: entry as u64,
        });
        store_control_words(
            &raw mut (*frame).mxcsr,
            (&raw mut (*frame).x87_control).cast(),
        );
    }
    frame
}

/// Returns the frame that [`prepare`] writes, for callers that write it themselves: the first
/// switch to a context that points at the frame enters `entry`.
pub fn first_frame(entry: usize) -> SwitchFrame {
    let (mut mxcsr, mut x87) = (0u32, 0u16);
    // SAFETY: the instructions store four and two bytes, into locals of that size.
    unsafe { store_control_words(&raw mut mxcsr, &raw mut x87) };
    SwitchFrame {
        mxcsr,
        x87_control: u32::from(x87),
        rip: entry as u64,
    }
}

/// Sets the floating-point control words of a context to the caller's.
///
/// # Safety
/// `context` must be parked or prepared, and only the caller uses it meanwhile.
pub unsafe fn set_control_words(context: Context) {
    let frame = context.cast::<SwitchFrame>();
    // SAFETY: the caller's promise; a context is the address of its frame.
    unsafe {
        store_control_words(
            &raw mut (*frame).mxcsr,
            (&raw mut (*frame).x87_control).cast(),
        );
    }
}

/// Stores the loaded floating-point control words.
///
/// # Safety
/// Four and two bytes are written.
#[inline(always)]
unsafe fn store_control_words(mxcsr: *mut u32, x87: *mut u16) {
    // SAFETY: the caller's promise.
    unsafe {
        asm!("stmxcsr [{}]", in(reg) mxcsr, options(nostack, preserves_flags));
        asm!("fnstcw [{}]", in(reg) x87, options(nostack, preserves_flags));
    }
}

/// The switch, with or without an instruction that loads the FS base.
///
/// | register | at entry | at exit, on the other stack |
/// |---|---|---|
/// | rdi | where to store the context that is left | changed |
/// | rsi | the context to continue | changed |
/// | rdx | the FS base to load | changed |
/// | rcx | address of the `on_cpu` that becomes 0 | changed |
/// | rsp | the stack that is left | the stack that is continued |
/// | rbx, rbp | the compiler's, pushed | as pushed there |
/// | mxcsr, x87 word | saved | as saved there |
/// | r12 to r15 | changed: the compiler saves what it uses | changed |
/// | all others | changed: dead at a call | changed |
///
/// rbx and rbp are the compiler's own and can't be named as clobbered. The store to `*on_cpu` comes
/// after the last use of the old stack, and x86 keeps stores in order: a thread that reads 0 there
/// with acquire may continue the context.
macro_rules! switch_stacks {
    ($save:expr, $next:expr, $fs:expr, $on_cpu:expr, $load_fs:literal) => {
        asm!(
            "push rbx",
            "push rbp",
            crate::push_switch_frame!(),
            "mov [rdi], rsp",
            crate::keep_control_words!("r8d", "r9d"),
            "mov rsp, rsi",
            "mov dword ptr [rcx], 0", // the old stack is free from here on
            $load_fs,
            crate::continue_context!("r8d", "r9w", "3", "4"),
            crate::load_control_words!("3", "4"),
            "2:",
            "pop rbp",
            "pop rbx",
            in("rdi") $save,
            in("rsi") $next,
            in("rdx") $fs,
            in("rcx") $on_cpu,
            out("r12") _,
            out("r13") _,
            out("r14") _,
            out("r15") _,
            clobber_abi("sysv64"),
        )
    };
}

/// Parks the caller's context in `*save`, stores 0 to `*on_cpu`, and continues `next` with `fs` as
/// FS base. Returns when a thread switches back to `*save`.
///
/// # Safety
/// `next` must be a parked or prepared context that only the caller continues, and `fs` its FS
/// base; the caller must not hold anything that depends on the carrier across the call.
#[inline(always)]
pub unsafe fn switch(save: *mut Context, next: Context, fs: u64, on_cpu: *mut u32) {
    // SAFETY: the caller's promises; every register but those pushed is declared as changed.
    unsafe { switch_stacks!(save, next, fs, on_cpu, "wrfsbase rdx") };
}

/// As [`switch`], but leaves the FS base unchanged: for a switch to a carrier's own stack, where no
/// code reads it.
///
/// # Safety
/// As for [`switch`].
#[inline(always)]
pub unsafe fn switch_keep_fs(save: *mut Context, next: Context, on_cpu: *mut u32) {
    // SAFETY: as in `switch`.
    unsafe { switch_stacks!(save, next, 0u64, on_cpu, "") };
}
