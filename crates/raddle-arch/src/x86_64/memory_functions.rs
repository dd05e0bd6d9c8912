//! The memory functions that compiled code calls, without vector registers and without libc.

/// Lays out `memcpy`, `memmove`, `memset`, `memcmp`, `bcmp` and `strlen`, and the two symbols of
/// unwinding, all hidden. By a macro: a program that links this crate has libc's.
///
/// No function uses the stack:
///
/// ```text
///   [ return address ]  <- rsp
/// ```
///
/// | function | rdi | rsi | rdx | rax at exit | changed |
/// |---|---|---|---|---|---|
/// | `memcpy` | to | from | bytes | to | rdi, rsi, rdx, rcx, r11 |
/// | `memmove` | to | from | bytes | to | the same |
/// | `memset` | to | byte | bytes | to | rdi, rcx, r11 |
/// | `memcmp`, `bcmp` | one | other | bytes | their order | rcx, r8 |
/// | `strlen` | text | | | bytes before the zero | |
///
/// The direction flag is clear at entry and exit.
#[macro_export]
macro_rules! memory_functions {
    () => {
        ::core::arch::global_asm!(
            ".pushsection .text.raddle_builtins,\"ax\",@progbits",
            ".hidden memcpy, memmove, memset, memcmp, bcmp, strlen",
            ".hidden rust_eh_personality, _Unwind_Resume",
            ".globl memcpy, memmove, memset, memcmp, bcmp, strlen",
            ".globl rust_eh_personality, _Unwind_Resume",
            ".p2align 4",
            "memcpy:",
            "mov rax, rdi",
            "mov rcx, rdx",
            "shr rcx, 3",
            "jz 3f",
            "2:",
            "mov r11, [rsi]",
            "mov [rdi], r11",
            "add rsi, 8",
            "add rdi, 8",
            "dec rcx",
            "jnz 2b",
            "3:",
            "and edx, 7",
            "jz 5f",
            "4:",
            "mov r11b, [rsi]",
            "mov [rdi], r11b",
            "inc rsi",
            "inc rdi",
            "dec edx",
            "jnz 4b",
            "5:",
            "ret",
            ".p2align 4",
            "memmove:",
            "mov rax, rdi",
            "sub rax, rsi",
            "cmp rax, rdx",
            "jae memcpy", // the target doesn't begin inside the source
            "mov rax, rdi",
            "mov rcx, rdx",
            "lea rdi, [rdi + rdx - 1]",
            "lea rsi, [rsi + rdx - 1]",
            "std",
            "rep movsb",
            "cld",
            "ret",
            ".p2align 4",
            "memset:",
            "mov r11, rdi",
            "movzx eax, sil",
            "mov rcx, rdx",
            "rep stosb",
            "mov rax, r11",
            "ret",
            ".p2align 4",
            "memcmp:",
            "bcmp:",
            "xor ecx, ecx",
            "6:",
            "cmp rcx, rdx",
            "je 7f",
            "movzx eax, byte ptr [rdi + rcx]",
            "movzx r8d, byte ptr [rsi + rcx]",
            "inc rcx",
            "sub eax, r8d",
            "jz 6b",
            "ret",
            "7:",
            "xor eax, eax",
            "ret",
            ".p2align 4",
            "strlen:",
            "xor eax, eax",
            "8:",
            "cmp byte ptr [rdi + rax], 0",
            "je 9f",
            "inc rax",
            "jmp 8b",
            "9:",
            "ret",
            "rust_eh_personality:",
            "_Unwind_Resume:",
            "ud2", // nothing unwinds in here
            ".popsection",
        );
    };
}
