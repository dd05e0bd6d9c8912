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
/// | `raddle_arrive` | rdi moved frame | as `raddle_signal_arrived`, rsi = 1 |
/// | `raddle_signal_arrived` | rdi moved frame, rsi takes | rsp = rdi + 8; calls `arrived` |
/// | `raddle_handler_returned` | rsp at the ucontext | calls `returned`; the context's registers |
/// | `raddle_enter_handler` | as the first; rcx, r8 | rsp = r8; jumps to rcx |
/// | `raddle_resume` | rdi moved frame | the context's registers |
/// | `raddle_deliver` | `(process, kernel thread, signal)` | as a function's |
///
/// `(signal, siginfo, ucontext)` are in rdi, rsi, rdx. `rt_sigreturn` loads a context's registers.
/// rsi is 1 if the thread takes the frame's signal now, as for a fault, and always 1 after
/// `raddle_arrive`. A moved frame is in r8 and its handler in rcx for `raddle_enter_handler`, which
/// clears rax. `arrived` never returns.
///
/// `raddle_deliver` makes its own kernel thread handle the signal there, between
/// `raddle_deliver_asks` and `raddle_delivered`, where it goes on with any registers but rsp. It
/// sets the carrier's word at the offset `$deliver_here` first. Its stack:
///
/// ```text
///   [ return address          ]
///   [ rbp rbx r12 r13 r14 r15 ]  <- rsp
/// ```
///
/// Unwinding restores the interrupted registers from the ucontext, as for the kernel's own return
/// code, at each instruction: a debugger stops at any. The offsets are those of `struct ucontext`.
#[macro_export]
macro_rules! signal_entries {
    (
        deliver_here: $deliver_here:path,
        on_signal: $on_signal:path,
        arrived: $arrived:path,
        returned: $returned:path $(,)?
    ) => {
        ::core::arch::global_asm!(
            ".pushsection .text.raddle_signal,\"ax\",@progbits",
            ".hidden raddle_signal_handler, raddle_signal_restorer, raddle_signal_arrived",
            ".hidden raddle_handler_returned, raddle_enter_handler, raddle_resume",
            ".hidden raddle_arrive, raddle_deliver, raddle_deliver_asks, raddle_delivered",
            ".globl raddle_arrive, raddle_deliver, raddle_deliver_asks, raddle_delivered",
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
            // Unwind rules while the ucontext stands at \at of the register that \base reads.
            ".macro raddle_context_rules base, at",
            ".cfi_escape 0x0f, 4, \\base, ((160 + \\at) & 0x7f) | 0x80, (160 + \\at) >> 7, 0x06",
            "raddle_saved 16, \\base, 168+\\at", // rip
            "raddle_saved 8, \\base, 40+\\at", // r8
            "raddle_saved 9, \\base, 48+\\at",
            "raddle_saved 10, \\base, 56+\\at",
            "raddle_saved 11, \\base, 64+\\at",
            "raddle_saved 12, \\base, 72+\\at",
            "raddle_saved 13, \\base, 80+\\at",
            "raddle_saved 14, \\base, 88+\\at",
            "raddle_saved 15, \\base, 96+\\at",
            "raddle_saved 5, \\base, 104+\\at", // rdi
            "raddle_saved 4, \\base, 112+\\at", // rsi
            "raddle_saved 6, \\base, 120+\\at", // rbp
            "raddle_saved 3, \\base, 128+\\at", // rbx
            "raddle_saved 1, \\base, 136+\\at", // rdx
            "raddle_saved 0, \\base, 144+\\at", // rax
            "raddle_saved 2, \\base, 152+\\at", // rcx
            "raddle_saved 7, \\base, 160+\\at", // rsp
            ".endm",
            ".macro raddle_saved register, base, at",
            ".cfi_escape 0x10, \\register, 3, \\base, ((\\at) & 0x7f) | 0x80, (\\at) >> 7",
            ".endm",
            ".p2align 4",
            ".cfi_startproc simple",
            ".cfi_signal_frame",
            "raddle_context_rules 0x77, 0", // rsp
            "nop", // unwinders look up the byte before the return address
            "raddle_signal_restorer:",
            "mov rax, 15",
            "syscall",
            "raddle_context_rules 0x75, 8", // rdi
            "raddle_arrive:",
            "mov esi, 1",
            "raddle_signal_arrived:",
            "lea rsp, [rdi + 8]",
            "raddle_context_rules 0x77, 0",
            "call {arrived}",
            "ud2",
            "nop",
            "raddle_handler_returned:",
            "lea rdi, [rsp - 8]",
            "mov rbx, rdi",
            "and rsp, -16", // no change: the ucontext is aligned
            "call {returned}",
            "lea rsp, [rbx + 8]",
            "mov eax, 15",
            "syscall",
            "raddle_context_rules 0x75, 8",
            "raddle_resume:",
            "lea rsp, [rdi + 8]",
            "raddle_context_rules 0x77, 0",
            "mov eax, 15",
            "syscall",
            "ud2",
            ".cfi_endproc",
            ".p2align 4",
            "raddle_enter_handler:",
            ".cfi_startproc simple",
            ".cfi_def_cfa r8, 8",
            ".cfi_offset rip, -8",
            "mov rsp, r8",
            "xor eax, eax",
            "jmp rcx",
            ".cfi_endproc",
            ".p2align 4",
            "raddle_deliver:",
            ".cfi_startproc",
            "push rbp",
            ".cfi_def_cfa_offset 16",
            ".cfi_offset rbp, -16",
            "push rbx",
            ".cfi_def_cfa_offset 24",
            ".cfi_offset rbx, -24",
            "push r12",
            ".cfi_def_cfa_offset 32",
            ".cfi_offset r12, -32",
            "push r13",
            ".cfi_def_cfa_offset 40",
            ".cfi_offset r13, -40",
            "push r14",
            ".cfi_def_cfa_offset 48",
            ".cfi_offset r14, -48",
            "push r15",
            ".cfi_def_cfa_offset 56",
            ".cfi_offset r15, -56",
            "mov eax, {tgkill}",
            "mov dword ptr gs:[{deliver_here}], 1",
            "raddle_deliver_asks:",
            "syscall",
            "raddle_delivered:",
            "pop r15",
            ".cfi_def_cfa_offset 48",
            "pop r14",
            ".cfi_def_cfa_offset 40",
            "pop r13",
            ".cfi_def_cfa_offset 32",
            "pop r12",
            ".cfi_def_cfa_offset 24",
            "pop rbx",
            ".cfi_def_cfa_offset 16",
            "pop rbp",
            ".cfi_def_cfa_offset 8",
            "ret",
            ".cfi_endproc",
            ".purgem raddle_context_rules",
            ".purgem raddle_saved",
            ".popsection",
            on_signal = sym $on_signal,
            arrived = sym $arrived,
            returned = sym $returned,
            deliver_here = const $deliver_here,
            tgkill = const 234,
        );
    };
}
