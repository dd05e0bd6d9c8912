//! x86-64: the switch and the segment bases.
//!
//! A stack at the three moments, growing down:
//!
//! ```text
//!   fresh                   running                parked
//!   [ entry address  ]      [ caller's frames ]    [ caller's frames ]
//!   [ mxcsr, x87 cw  ]  <- sp                      [ rbx, rbp        ]
//!                                                  [ where it goes on ]
//!                                                  [ mxcsr, x87 cw   ]  <- sp
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

use core::arch::{asm, naked_asm};

/// Where a parked context continues: its stack pointer, at a [`SwitchFrame`].
pub type Context = *mut SwitchFrame;

/// The top of a parked stack.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct SwitchFrame {
    pub mxcsr: u32,
    pub x87_control: u32,
    pub rip: u64,
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
        let (mxcsr, x87) = (&raw mut (*frame).mxcsr, &raw mut (*frame).x87_control);
        asm!("stmxcsr [{}]", in(reg) mxcsr, options(nostack, preserves_flags));
        asm!("fnstcw [{}]", in(reg) x87, options(nostack, preserves_flags));
    }
    frame
}

/// Returns the frame that [`prepare`] writes, for callers that write it themselves: the first
/// switch to a context that points at the frame enters `entry`.
pub fn first_frame(entry: usize) -> SwitchFrame {
    let (mut mxcsr, mut x87) = (0u32, 0u16);
    // SAFETY: the instructions store four and two bytes, into locals of that size.
    unsafe {
        asm!("stmxcsr [{}]", in(reg) &raw mut mxcsr, options(nostack, preserves_flags));
        asm!("fnstcw [{}]", in(reg) &raw mut x87, options(nostack, preserves_flags));
    }
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
        let (mxcsr, x87) = (&raw mut (*frame).mxcsr, &raw mut (*frame).x87_control);
        asm!("stmxcsr [{}]", in(reg) mxcsr, options(nostack, preserves_flags));
        asm!("fnstcw [{}]", in(reg) x87, options(nostack, preserves_flags));
    }
}

/// The switch, with or without an instruction that loads the FS base from rdx.
///
/// rdi = save, rsi = next, rcx = on_cpu. rbx and rbp are the compiler's own and can't be named as
/// clobbered, so they are pushed. The store to `*on_cpu` comes after the last use of the old stack,
/// and x86 keeps stores in order: a thread that reads 0 there with acquire may continue the
/// context.
macro_rules! switch_stacks {
    ($save:expr, $next:expr, $fs:expr, $on_cpu:expr, $load_fs:literal) => {
        asm!(
            "push rbx",
            "push rbp",
            "lea rax, [rip + 2f]",
            "push rax",
            "sub rsp, 8",
            "stmxcsr [rsp]",
            "fnstcw [rsp + 4]",
            "mov [rdi], rsp",
            "mov r8d, [rsp]",
            "movzx r9d, word ptr [rsp + 4]",
            "mov rsp, rsi",
            "mov dword ptr [rcx], 0", // the old stack is free from here on
            $load_fs,
            "cmp r8d, [rsp]", // loading the control words takes longer than comparing them
            "jne 3f",
            "cmp r9w, [rsp + 4]",
            "jne 3f",
            "4:",
            "add rsp, 8",
            "pop rax",
            "jmp rax",
            "3:",
            "ldmxcsr [rsp]",
            "fldcw [rsp + 4]",
            "jmp 4b",
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

/// Calls `function(argument)` on another stack.
///
/// # Safety
/// `top` must be the end of writable memory, large enough for the function's stack, 16-byte
/// aligned.
#[unsafe(naked)]
pub unsafe extern "C" fn call_on(top: *mut u8, function: extern "C" fn(usize), argument: usize) {
    // rdi = top, rsi = function, rdx = argument; rbp keeps the old stack, as the unwind entries
    // say.
    naked_asm!(
        ".cfi_startproc",
        "push rbp",
        ".cfi_def_cfa_offset 16",
        ".cfi_offset rbp, -16",
        "mov rbp, rsp",
        ".cfi_def_cfa_register rbp",
        "mov rsp, rdi",
        "mov rdi, rdx",
        "call rsi",
        "leave",
        ".cfi_def_cfa rsp, 8",
        "ret",
        ".cfi_endproc",
    )
}

/// Calls `function(first, second)` on another stack.
///
/// # Safety
/// As for [`call_on`], and those of the function, which doesn't unwind.
#[unsafe(naked)]
pub unsafe extern "C" fn call_on_with<T, R>(
    top: *mut u8,
    function: unsafe extern "C" fn(*const T, usize) -> *const R,
    first: *const T,
    second: usize,
) -> *const R {
    // rdi = top, rsi = function, rdx = first, rcx = second; rbp as above.
    naked_asm!(
        ".cfi_startproc",
        "push rbp",
        ".cfi_def_cfa_offset 16",
        ".cfi_offset rbp, -16",
        "mov rbp, rsp",
        ".cfi_def_cfa_register rbp",
        "mov rsp, rdi",
        "mov rax, rsi",
        "mov rdi, rdx",
        "mov rsi, rcx",
        "call rax",
        "leave",
        ".cfi_def_cfa rsp, 8",
        "ret",
        ".cfi_endproc",
    )
}

/// Calls `code` with two words, by jumps: `code` returns by a jump to the address that it takes off
/// the top of the stack, and preserves rbx and rbp. So a call that is entered on one stack and left
/// on another leaves no return behind that the CPU would predict wrongly.
///
/// # Safety
/// `code` must be such a function, and the arguments what it requires.
#[inline(always)]
pub unsafe fn call_by_jumps(code: unsafe extern "C" fn(), first: usize, second: usize) -> usize {
    let result;
    // SAFETY: the caller's promises; every register but rbx and rbp is declared as changed.
    unsafe {
        asm!(
            "lea rax, [rip + 2f]",
            "push rax", // as a call would, so that the stack is aligned as after a call
            "jmp r11",
            "2:",
            in("r11") code,
            in("rdi") first,
            in("rsi") second,
            lateout("rax") result,
            out("r12") _,
            out("r13") _,
            out("r14") _,
            out("r15") _,
            clobber_abi("sysv64"),
        );
    }
    result
}

/// Tells unwinders where the frame of [`call_restartable`] keeps its caller's registers.
macro_rules! saved_registers {
    () => {
        ".cfi_offset rbx, -24\n.cfi_offset r12, -32\n.cfi_offset r13, -40\n\
         .cfi_offset r14, -48\n.cfi_offset r15, -56"
    };
}

/// The end of [`call_restartable`], whether `function` or that of [`restart`] was the last one.
macro_rules! leave_restartable {
    () => {
        "add rsp, 8\npop r15\npop r14\npop r13\npop r12\npop rbx\npop rbp\n\
         .cfi_def_cfa rsp, 8\nret"
    };
}

/// Calls `function(argument)`, and stores to `*anchor` what [`restart`] needs.
///
/// # Safety
/// No requirements beyond those of the function.
#[unsafe(naked)]
pub unsafe extern "C" fn call_restartable(
    anchor: *mut usize,
    function: extern "C" fn(usize),
    argument: usize,
) {
    // rdi = anchor, rsi = function, rdx = argument. The anchor is the stack pointer at the call,
    // below all registers that are saved for the caller.
    naked_asm!(
        ".cfi_startproc",
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
        saved_registers!(),
        "sub rsp, 8",
        "mov [rdi], rsp",
        "mov rdi, rdx",
        "call rsi",
        leave_restartable!(),
        ".cfi_endproc",
    )
}

/// Abandons everything since the [`call_restartable`] that stored `anchor`, and calls
/// `function(argument)` in its place.
///
/// # Safety
/// That call must not have returned, and must be on this stack; nothing in the abandoned frames is
/// needed, and no code refers to them.
#[unsafe(naked)]
pub unsafe extern "C" fn restart(
    anchor: usize,
    function: extern "C" fn(usize),
    argument: usize,
) -> ! {
    naked_asm!(
        ".cfi_startproc",
        "mov rsp, rdi",
        "lea rbp, [rsp + 48]", // its value in the first call
        ".cfi_def_cfa rbp, 16",
        ".cfi_offset rbp, -16",
        saved_registers!(),
        "mov rdi, rdx",
        "call rsi",
        leave_restartable!(),
        ".cfi_endproc",
    )
}
