//! The runtime's own system calls.

use core::arch::{asm, global_asm, naked_asm};

/// Executes one system call with six arguments.
///
/// # Safety
/// The arguments must be valid for the call.
#[inline(always)]
pub unsafe fn syscall6(nr: u32, args: [usize; 6]) -> isize {
    let result: isize;
    // SAFETY: the instruction clobbers rax, rcx and r11 only; what the kernel does to memory is the
    // caller's promise.
    unsafe {
        asm!(
            "syscall",
            inlateout("rax") nr as isize => result,
            in("rdi") args[0],
            in("rsi") args[1],
            in("rdx") args[2],
            in("r10") args[3],
            in("r8") args[4],
            in("r9") args[5],
            lateout("rcx") _,
            lateout("r11") _,
            options(nostack)
        );
    }
    result
}

unsafe extern "C" {
    fn __raddle_helper_call(nr: usize, args: *const [usize; 6], interrupted: *const u32) -> isize;
    static __raddle_helper_begin: u8;
    static __raddle_helper_end: u8;
    static __raddle_helper_interrupted: u8;
}

/// Makes a call, unless `*interrupted` isn't 0: returns -EINTR then.
///
/// # Safety
/// As for [`syscall6`]; `interrupted` must stay valid during the call.
#[inline(always)]
pub unsafe fn call_unless(nr: u32, args: &[usize; 6], interrupted: *const u32) -> isize {
    // SAFETY: the caller's promise.
    unsafe { __raddle_helper_call(nr as usize, args, interrupted) }
}

/// Returns where a thread that a signal met at `address` goes on, if the signal came between the
/// look at the flag of [`call_unless`] and the kernel: a call that begins now would not be
/// interrupted any more.
pub fn resume_interrupted_call(address: usize) -> Option<usize> {
    let (begin, end) = (
        &raw const __raddle_helper_begin,
        &raw const __raddle_helper_end,
    );
    (begin.addr()..end.addr())
        .contains(&address)
        .then(|| (&raw const __raddle_helper_interrupted).addr())
}

// Nothing is pushed:
//
//   [ return address ]  <- rsp
//
// | register | at entry | at exit |
// |---|---|---|
// | rdi | number | first argument |
// | rsi | address of the arguments | second argument |
// | rdx | address of the flag | third argument |
// | r10, r8, r9 | | the other arguments |
// | rax | | the result |
// | rcx, r11 | | changed by the kernel |
//
// The kernel preserves all but rax, rcx and r11.
global_asm!(
    ".pushsection .text.raddle_helper,\"ax\",@progbits",
    ".hidden __raddle_helper_call, __raddle_helper_begin",
    ".hidden __raddle_helper_end, __raddle_helper_interrupted",
    ".globl __raddle_helper_call, __raddle_helper_begin",
    ".globl __raddle_helper_end, __raddle_helper_interrupted",
    ".p2align 4",
    "__raddle_helper_call:",
    ".cfi_startproc",
    "mov rax, rdi",
    "mov r11, rsi",
    "mov rcx, rdx",
    crate::load_arguments!("r11"),
    "__raddle_helper_begin:",
    "cmp dword ptr [rcx], 0",
    "jne __raddle_helper_interrupted",
    "syscall",
    "__raddle_helper_end:",
    "ret",
    "__raddle_helper_interrupted:",
    "mov rax, -4", // EINTR
    "ret",
    ".cfi_endproc",
    ".popsection",
);

/// Makes the system call `number`. The stack, up to `top`, is afterwards as it was before the call;
/// meanwhile all values are in registers.
///
/// ```text
///   [ ...               ]  <- top
///   [ frames to keep    ]
///   [ return address    ]
///   [ rbp               ]
///   [ rbx, r12 to r15   ]  <- rsp: all from here to `top` is copied
/// ```
///
/// | register | at entry | during the call | at exit |
/// |---|---|---|---|
/// | rdi | number | first argument | changed |
/// | rsi | arguments | second argument | changed |
/// | rdx | copy | third argument | changed |
/// | rcx | top | changed | changed |
/// | r12, r13 | the caller's | the stack pointer; bytes from there to `top` | preserved |
/// | r14 | the caller's | the copy | preserved |
/// | rbx, r15 | the caller's | the arguments; the number | preserved |
/// | rbp | the caller's | then the result | preserved |
/// | rax | | the number | the result |
///
/// # Safety
/// The call must be valid for its arguments and leave the stack writable; `copy` must have room for
/// all from the stack pointer to `top`.
#[unsafe(naked)]
pub unsafe extern "C" fn call_keeping_stack(
    number: u64,
    args: *const [usize; 6],
    copy: *mut u8,
    top: usize,
) -> isize {
    naked_asm!(
        "push rbp",
        crate::push_preserved!(),
        "mov r12, rsp",
        "mov r13, rcx",
        "sub r13, rsp",
        "mov r14, rdx",
        "mov r15, rdi",
        "mov rbx, rsi",
        "mov rsi, r12", // copy the frames
        "mov rdi, r14",
        "mov rcx, r13",
        "rep movsb",
        "mov rax, r15",
        crate::load_arguments!("rbx"),
        "syscall",
        "mov rbp, rax",
        "mov rsi, r14", // and write them again
        "mov rdi, r12",
        "mov rcx, r13",
        "rep movsb",
        "mov rax, rbp",
        crate::pop_preserved!(),
        "pop rbp",
        "ret",
    )
}
