//! What stands in for four calls of libc until the first thread is made.

/// Lays out a stub for each of the four calls. A stub makes the call, unless it is one that trips
/// the wire: then the stub calls `ensure`, and goes on at the second word of its way.
///
/// ```text
///   [ the function's stack   ]  <- rsp at the site and in the stub
///   [ 128 bytes of red zone  ]
///   [ rax rdi rsi rdx r10 r8 r9 r11 rbp ]  <- rbp during `ensure`
///   [ 512 bytes of `fxsave`  ]  <- rsp at `ensure`, a multiple of 64
/// ```
///
/// | register | at a stub | at exit |
/// |---|---|---|
/// | rax | the number, at the stub of `syscall` | the result; the number after `ensure` |
/// | rdi, rsi, rdx, r10, r8 | arguments | preserved |
/// | r9 | argument; loaded from the stack by the stub of `syscall` | preserved |
/// | rcx | the program's | changed, as by the call |
/// | r11 | the program's | the address of the stub's way |
/// | rbp, xmm0 to xmm15, mxcsr, x87 | the program's | preserved |
///
/// It leaves the stack alone while the call is made: a child with another stack goes on behind the
/// call. `ensure` runs with vector registers saved, which a compiled function may use around its
/// call.
///
/// `$ways` is an array of two addresses for each stub: where the text goes on behind the wire, and
/// where the call is made after `ensure`. `others` are numbers that trip the wire of `syscall`.
#[macro_export]
macro_rules! tripwires {
    (
        ways: $ways:path,
        ensure: $ensure:path,
        clone: $clone:path,
        clone3: $clone3:path,
        prctl: $prctl:path,
        others: [$other0:path, $other1:path, $other2:path, $other3:path],
        clone_thread: $clone_thread:path,
        prctl_options: [$option0:path, $option1:path] $(,)?
    ) => {
        ::core::arch::global_asm!(
            ".p2align 4",
            ".globl raddle_wire_clone, raddle_pass_clone, raddle_wire_clone3, raddle_pass_clone3",
            ".globl raddle_wire_prctl, raddle_pass_prctl, raddle_wire_syscall, raddle_pass_syscall",
            ".hidden raddle_wire_clone, raddle_pass_clone, raddle_wire_clone3, raddle_pass_clone3",
            ".hidden raddle_wire_prctl, raddle_pass_prctl",
            ".hidden raddle_wire_syscall, raddle_pass_syscall",
            ".cfi_startproc",
            "raddle_wire_clone:",
            "mov eax, {clone}",
            "lea r11, [rip + {ways}]",
            "test edi, {clone_thread}",
            "jnz 9f",
            "raddle_pass_clone:",
            "syscall",
            "jmp [rip + {ways}]",
            "raddle_wire_clone3:",
            "mov eax, {clone3}",
            "lea r11, [rip + {ways} + 16]",
            "test dword ptr [rdi], {clone_thread}",
            "jnz 9f",
            "raddle_pass_clone3:",
            "syscall",
            "jmp [rip + {ways} + 16]",
            "raddle_wire_prctl:",
            "mov eax, {prctl}",
            "lea r11, [rip + {ways} + 32]",
            "cmp edi, {option0}",
            "je 9f",
            "cmp edi, {option1}",
            "je 9f",
            "raddle_pass_prctl:",
            "syscall",
            "jmp [rip + {ways} + 32]",
            "raddle_wire_syscall:",
            "mov r9, [rsp + 8]",
            "lea r11, [rip + {ways} + 48]",
            "cmp eax, {clone3}", // its flags are in memory that may be missing
            "je 9f",
            "cmp eax, {other0}",
            "je 9f",
            "cmp eax, {other1}",
            "je 9f",
            "cmp eax, {other2}",
            "je 9f",
            "cmp eax, {other3}",
            "je 9f",
            "cmp eax, {clone}",
            "je 2f",
            "cmp eax, {prctl}",
            "je 3f",
            "raddle_pass_syscall:",
            "syscall",
            "jmp [rip + {ways} + 48]",
            "2:",
            "test edi, {clone_thread}",
            "jnz 9f",
            "jmp raddle_pass_syscall",
            "3:",
            "cmp edi, {option0}",
            "je 9f",
            "cmp edi, {option1}",
            "jne raddle_pass_syscall",
            "9:",
            "lea rsp, [rsp - 128]",
            "push rax",
            "push rdi",
            "push rsi",
            "push rdx",
            "push r10",
            "push r8",
            "push r9",
            "push r11",
            "push rbp",
            "mov rbp, rsp",
            "sub rsp, 512",
            "and rsp, -64",
            "fxsave64 [rsp]",
            "call {ensure}",
            "fxrstor64 [rsp]",
            "mov rsp, rbp",
            "pop rbp",
            "pop r11",
            "pop r9",
            "pop r8",
            "pop r10",
            "pop rdx",
            "pop rsi",
            "pop rdi",
            "pop rax",
            "lea rsp, [rsp + 128]",
            "jmp [r11 + 8]",
            ".cfi_endproc",
            ways = sym $ways,
            ensure = sym $ensure,
            clone = const $clone,
            clone3 = const $clone3,
            prctl = const $prctl,
            other0 = const $other0,
            other1 = const $other1,
            other2 = const $other2,
            other3 = const $other3,
            clone_thread = const $clone_thread,
            option0 = const $option0,
            option1 = const $option1,
        );
    };
}

/// Defines an exported function of libc's name that stores 1 to `mark` and goes on in libc's, at
/// the address in `original`.
///
/// ```text
///   [ return address ]  <- rsp, unchanged
/// ```
///
/// All registers are as at entry: they are the arguments of libc's function.
#[macro_export]
macro_rules! mark_and_go_on {
    ($(#[$doc:meta])* $name:ident, mark: $mark:path, original: $original:path) => {
        $(#[$doc])*
        #[unsafe(naked)]
        #[unsafe(no_mangle)]
        pub unsafe extern "C" fn $name() {
            ::core::arch::naked_asm!(
                "mov dword ptr [rip + {mark}], 1",
                "jmp [rip + {original}]",
                mark = sym $mark,
                original = sym $original,
            )
        }
    };
}
