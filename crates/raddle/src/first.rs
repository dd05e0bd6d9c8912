//! The first instructions on a stack of our own.

/// The body of a naked function that is the first one on a stack. The stack pointer points to the
/// argument of `$main`, which never returns.
///
/// By a jump, not a call: `$main` never returns here, and the CPU would predict the next return
/// after the stack's end as the return of this call.
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
