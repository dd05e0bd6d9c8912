//! Signals: what the kernel enters, and the ways back.
//!
//! The kernel's frame, and a moved frame, at the stack pointer of `raddle_handler_returned`:
//!
//! ```text
//!   [ floating-point state ]
//!   [ siginfo              ]
//!   [ ucontext             ]  <- rsp when a handler has returned
//!   [ return address       ]  <- rsp when a handler is entered
//! ```

/// Lays out the entries of signals, around the handlers that are named.
///
/// | entry | at entry | at exit |
/// |---|---|---|
/// | `raddle_signal_handler` | `(signal, siginfo, ucontext)`, by the kernel | calls `on_signal` |
/// | `raddle_signal_restorer` | rsp at the ucontext | the context's registers |
/// | `raddle_arrive` | rdi moved frame | as `raddle_signal_arrived`, rsi = 0 |
/// | `raddle_signal_arrived` | rdi moved frame, rsi fault | rsp = rdi + 8; calls `arrived` |
/// | `raddle_preempted` | rdi moved frame | rsp = rdi + 8; calls `preempted` |
/// | `raddle_handler_returned` | rsp at the ucontext | calls `returned`; the context's registers |
/// | `raddle_enter_handler` | as the first; rcx, r8 | rsp = r8; jumps to rcx |
/// | `raddle_resume` | rdi moved frame | the context's registers |
///
/// `(signal, siginfo, ucontext)` are in rdi, rsi, rdx. `rt_sigreturn` loads a context's registers.
/// rsi is 1 for a fault, 0 for other signals, and always 0 after `raddle_arrive`. A moved frame is
/// in r8 and its handler in rcx for `raddle_enter_handler`, which clears rax.
/// `arrived` and `preempted` never return.
///
/// Unwinding through `raddle_handler_returned` restores the interrupted registers from the ucontext
/// at the stack pointer, as for the kernel's own return code: the offsets are those of
/// `struct ucontext`. `raddle_arrive` and what follows it share these unwind rules, which hold from
/// the second instruction on.
#[macro_export]
macro_rules! signal_entries {
    (
        on_signal: $on_signal:path,
        arrived: $arrived:path,
        preempted: $preempted:path,
        returned: $returned:path $(,)?
    ) => {
        ::core::arch::global_asm!(
            ".pushsection .text.raddle_signal,\"ax\",@progbits",
            ".hidden raddle_signal_handler, raddle_signal_restorer, raddle_signal_arrived",
            ".hidden raddle_handler_returned, raddle_enter_handler, raddle_resume",
            ".hidden raddle_preempted, raddle_arrive",
            ".globl raddle_preempted, raddle_arrive",
            ".globl raddle_signal_handler, raddle_signal_restorer, raddle_signal_arrived",
            ".globl raddle_handler_returned, raddle_enter_handler, raddle_resume",
            ".p2align 4",
            "raddle_signal_handler:",
            ".cfi_startproc",
            "sub rsp, 8",
            ".cfi_adjust_cfa_offset 8",
            "call {on_signal}",
            "add rsp, 8",
            ".cfi_adjust_cfa_offset -8",
            "ret",
            ".cfi_endproc",
            ".p2align 4",
            "raddle_signal_restorer:",
            "mov rax, 15",
            "syscall",
            ".p2align 4",
            ".cfi_startproc simple",
            ".cfi_signal_frame",
            // CFA = *(rsp + 160)
            ".cfi_escape 0x0f, 4, 0x77, 0xa0, 1, 0x06",
            ".cfi_escape 0x10, 16, 3, 0x77, 0xa8, 1", // rip
            ".cfi_escape 0x10, 8, 2, 0x77, 40",       // r8
            ".cfi_escape 0x10, 9, 2, 0x77, 48",
            ".cfi_escape 0x10, 10, 2, 0x77, 56",
            ".cfi_escape 0x10, 11, 3, 0x77, 0xc0, 0", // 64
            ".cfi_escape 0x10, 12, 3, 0x77, 0xc8, 0",
            ".cfi_escape 0x10, 13, 3, 0x77, 0xd0, 0",
            ".cfi_escape 0x10, 14, 3, 0x77, 0xd8, 0",
            ".cfi_escape 0x10, 15, 3, 0x77, 0xe0, 0",
            ".cfi_escape 0x10, 5, 3, 0x77, 0xe8, 0",  // rdi
            ".cfi_escape 0x10, 4, 3, 0x77, 0xf0, 0",  // rsi
            ".cfi_escape 0x10, 6, 3, 0x77, 0xf8, 0",  // rbp
            ".cfi_escape 0x10, 3, 3, 0x77, 0x80, 1",  // rbx
            ".cfi_escape 0x10, 1, 3, 0x77, 0x88, 1",  // rdx
            ".cfi_escape 0x10, 0, 3, 0x77, 0x90, 1",  // rax
            ".cfi_escape 0x10, 2, 3, 0x77, 0x98, 1",  // rcx
            ".cfi_escape 0x10, 7, 3, 0x77, 0xa0, 1",  // rsp
            // The unwind rules hold from the second instruction on.
            "raddle_arrive:",
            "xor esi, esi",
            "raddle_signal_arrived:",
            "lea rsp, [rdi + 8]",
            "call {arrived}",
            "ud2",
            "raddle_preempted:",
            "lea rsp, [rdi + 8]",
            "call {preempted}",
            "ud2",
            "nop", // unwinders look up the byte before the return address
            "raddle_handler_returned:",
            "lea rdi, [rsp - 8]",
            "mov rbx, rdi",
            "and rsp, -16",
            "call {returned}",
            "lea rsp, [rbx + 8]",
            "mov eax, 15",
            "syscall",
            ".cfi_endproc",
            ".p2align 4",
            "raddle_enter_handler:",
            "mov rsp, r8",
            "xor eax, eax",
            "jmp rcx",
            "raddle_resume:",
            "lea rsp, [rdi + 8]",
            "mov eax, 15",
            "syscall",
            "ud2",
            ".popsection",
            on_signal = sym $on_signal,
            arrived = sym $arrived,
            preempted = sym $preempted,
            returned = sym $returned,
        );
    };
}
