//! Calls on another stack, calls without a return, and calls that begin again.

use core::arch::{asm, naked_asm};

/// Calls `function(argument)` on another stack.
///
/// ```text
///   the caller's stack              the other stack
///   [ return address ]              [ ...            ]  <- top
///   [ caller's rbp   ]  <- rbp      [ return address ]  of `function`
/// ```
///
/// | register | at entry | at exit |
/// |---|---|---|
/// | rdi | `top` | changed |
/// | rsi | `function` | changed |
/// | rdx | `argument` | changed |
/// | rbp | the caller's; the old stack during the call, as the unwind entries say | preserved |
///
/// # Safety
/// `top` must be the end of writable memory, large enough for the function's stack, 16-byte
/// aligned.
#[unsafe(naked)]
pub unsafe extern "C" fn call_on(top: *mut u8, function: extern "C" fn(usize), argument: usize) {
    naked_asm!(
        ".cfi_startproc",
        crate::enter_frame!(),
        "mov rsp, rdi",
        "mov rdi, rdx",
        "call rsi",
        crate::leave_frame!(),
        ".cfi_endproc",
    )
}

/// Calls `function(first, second)` on another stack.
///
/// The stacks are as for [`call_on`].
///
/// | register | at entry | at exit |
/// |---|---|---|
/// | rdi | `top` | changed |
/// | rsi | `function` | changed |
/// | rdx | `first` | changed |
/// | rcx | `second` | changed |
/// | rax | | the function's result |
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
    naked_asm!(
        ".cfi_startproc",
        crate::enter_frame!(),
        "mov rsp, rdi",
        "mov rax, rsi",
        "mov rdi, rdx",
        "mov rsi, rcx",
        "call rax",
        crate::leave_frame!(),
        ".cfi_endproc",
    )
}

/// Calls `code` with two words, by jumps: `code` returns by a jump to the address that it takes off
/// the top of the stack, and preserves rbx and rbp. So a call that is entered on one stack and left
/// on another leaves no return behind that the CPU would predict wrongly.
///
/// ```text
///   [ the caller's frame      ]
///   [ where the caller goes on ]  <- rsp, as after a call
/// ```
///
/// | register | at the jump | when the caller goes on |
/// |---|---|---|
/// | r11 | `code` | changed |
/// | rdi, rsi | the two words | changed |
/// | rax | | the result |
/// | rbx, rbp | the compiler's | preserved |
/// | all others | | changed |
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
        concat!(
            "add rsp, 8\n",
            crate::pop_preserved!(),
            "\npop rbp\n.cfi_def_cfa rsp, 8\nret"
        )
    };
}

/// Calls `function(argument)`, and stores to `*anchor` what [`restart`] needs.
///
/// ```text
///   [ return address  ]
///   [ caller's rbp    ]  <- rbp
///   [ rbx, r12 to r15 ]
///   [ padding         ]  <- rsp at the call, the anchor
/// ```
///
/// | register | at entry | at exit |
/// |---|---|---|
/// | rdi | `anchor` | changed |
/// | rsi | `function` | changed |
/// | rdx | `argument` | changed |
/// | rbx, rbp, r12 to r15 | the caller's | from the frame: the same |
///
/// # Safety
/// No requirements beyond those of the function.
#[unsafe(naked)]
pub unsafe extern "C" fn call_restartable(
    anchor: *mut usize,
    function: extern "C" fn(usize),
    argument: usize,
) {
    naked_asm!(
        ".cfi_startproc",
        crate::enter_frame!(),
        crate::push_preserved!(),
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
/// The stack is that of [`call_restartable`] from the first instruction on.
///
/// | register | at entry | at exit, to the caller of [`call_restartable`] |
/// |---|---|---|
/// | rdi | `anchor` | changed |
/// | rsi | `function` | changed |
/// | rdx | `argument` | changed |
/// | rbx, rbp, r12 to r15 | not needed any more | from the frame: that caller's |
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
