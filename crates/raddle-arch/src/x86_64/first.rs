//! The first instructions on a stack of the runtime's or the API's.

/// Defines a naked function that is entered by a switch, as the first one on a stack, and calls
/// `$main`, which never returns.
///
/// ```text
///   [ ...            ]  <- rsp at entry, of any alignment
///   [ return address ]  of `$main`
/// ```
///
/// | register | at entry | at the call |
/// |---|---|---|
/// | rbp | of no meaning | 0, the end of every backtrace |
/// | all others | of no meaning | the same |
#[macro_export]
macro_rules! first_instruction {
    ($(#[$doc:meta])* $name:ident => $main:path) => {
        $(#[$doc])*
        #[unsafe(naked)]
        extern "C" fn $name() {
            ::core::arch::naked_asm!(
                "xor ebp, ebp",
                "and rsp, -16",
                "call {}",
                "ud2",
                sym $main
            )
        }
    };
}

/// As [`first_instruction`], for a `$main` with one argument, which is at the stack pointer.
///
/// By a jump, not a call: `$main` never returns here, and the CPU would predict the next return
/// after the stack's end as the return of this call.
///
/// ```text
///   [ argument      ]  <- rsp at entry
///   [ address of 2: ]  where a return of `$main` would go
/// ```
///
/// | register | at entry | at the jump |
/// |---|---|---|
/// | rdi | of no meaning | the argument |
/// | rbp | of no meaning | 0, the end of every backtrace |
/// | rax | of no meaning | changed |
#[macro_export]
macro_rules! first_instruction_with_argument {
    ($(#[$doc:meta])* $name:ident => $main:path) => {
        $(#[$doc])*
        #[unsafe(naked)]
        extern "C" fn $name() {
            ::core::arch::naked_asm!(
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
        }
    };
}
