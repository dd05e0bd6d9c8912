//! The first and the last instructions of a kernel thread.

use core::arch::{asm, naked_asm};

/// The function that a new kernel thread runs, with its argument and the lowest address of its
/// stack; it never returns.
pub type KernelThread = extern "C" fn(usize, *mut u8) -> !;

/// The call that makes a kernel thread, and what both threads do behind it.
///
/// ```text
///   the maker                        the child
///   [ return address   ]             [ ...            ]  <- its first stack pointer
///   [ r12, r13, r14    ]  <- rsp     [ return address ]  of `entry`
/// ```
///
/// | register | at entry | at the call, in both threads | at exit, in the maker |
/// |---|---|---|---|
/// | rdi, rsi | the call's first arguments | the same | changed |
/// | rdx | `entry` | the call's third argument, if it has one | changed |
/// | rcx | `argument` | changed by the kernel | changed |
/// | r8 | the stack's lowest address | the call's fifth argument, if it has one | changed |
/// | r12, r13, r14 | the caller's | `entry`, `argument`, the stack's lowest address | preserved |
/// | rax | | the number, then the result: 0 in the child | the result |
macro_rules! clone_and_run {
    ($arguments:literal, $number:literal) => {
        concat!(
            "push r12\npush r13\npush r14\n",
            "mov r12, rdx\nmov r13, rcx\nmov r14, r8\n",
            $arguments,
            concat!("mov eax, ", $number, "\n"),
            "syscall\n",
            "test rax, rax\n",
            "jne 2f\n",
            "xor ebp, ebp\n", // the end of every backtrace
            "mov rdi, r13\nmov rsi, r14\n",
            "and rsp, -16\n",
            "call r12\n",
            "ud2\n",
            "2:\n",
            "pop r14\npop r13\npop r12\n",
            "ret",
        )
    };
}

/// Makes a kernel thread by `clone(2)`, without ids and TLS. Returns its id or a negated errno.
///
/// # Safety
/// As for `clone(2)`: `top` must be the end of memory that only the new thread uses.
#[unsafe(naked)]
pub unsafe extern "C" fn raw_clone(
    flags: usize,
    top: *mut u8,
    entry: KernelThread,
    argument: usize,
    stack: *mut u8,
) -> isize {
    naked_asm!(clone_and_run!(
        "xor edx, edx\nxor r10d, r10d\nxor r8d, r8d\n",
        "56"
    ))
}

/// Makes a kernel thread by `clone3(2)`, from its structure and the structure's size in bytes.
/// Returns the thread's id or a negated errno.
///
/// # Safety
/// As for `clone3(2)`: the structure must name memory as the stack that only the new thread uses.
#[unsafe(naked)]
pub unsafe extern "C" fn raw_clone3<T>(
    args: &T,
    size: usize,
    entry: KernelThread,
    argument: usize,
    stack: *mut u8,
) -> isize {
    naked_asm!(clone_and_run!("", "435"))
}

/// Unmaps the stack in use and ends the calling kernel thread. From the first call on the stack is
/// not touched.
///
/// | register | holds |
/// |---|---|
/// | rdi, rsi | address and size of the stack in bytes, then the exit status |
/// | rax | the number |
///
/// # Safety
/// No other thread may use the stack, and all signals must be blocked.
pub unsafe fn unmap_and_exit(stack: *mut u8, size: usize) -> ! {
    const MUNMAP: u32 = 11;
    const EXIT: u32 = 60;
    // SAFETY: the caller's promise.
    unsafe {
        asm!(
            "mov eax, {munmap}",
            "syscall",
            "2:",
            "xor edi, edi",
            "mov eax, {exit}",
            "syscall",
            "jmp 2b",
            munmap = const MUNMAP,
            exit = const EXIT,
            in("rdi") stack,
            in("rsi") size,
            options(noreturn, nostack),
        )
    }
}
