//! The first instructions on a stack of our own.

/// The body of a naked function where a stack begins, whose pointer holds the argument of `$main`,
/// which never returns.
///
/// By a jump, not a call: nobody returns from there, and the CPU would take the return of whoever
/// continues after the end for the one of this call.
macro_rules! begin_in {
    ($main:path) => {
        std::arch::naked_asm!(
            ".cfi_startproc",
            ".cfi_undefined rip", // unwinders stop here
            "mov rdi, [rsp]",
            "xor ebp, ebp",
            "and rsp, -16",
            "lea rax, [rip + 2f]",
            "push rax",
            "jmp {}",
            "2: ud2",
            ".cfi_endproc",
            sym $main,
        )
    };
}

pub(crate) use begin_in;
