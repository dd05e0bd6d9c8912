//! How a thread of the explicit API ends to be kept, and begins as another one.
//!
//! It is called by jumps ([`raddle_interface::Jumped`]). The CPU predicts returns by the calls that
//! it has seen, whatever stacks they were made on. Who makes a thread and waits for it calls a few
//! functions deep, and the thread runs while it is down there: if all that the thread does is even,
//! as many returns as calls, the CPU is right about the waiter's returns afterwards. A thread that
//! ended in a call, and began again by returning from it, made each of them a wrong guess.
//!
//! A thread that is kept looks like one that called the switch:
//!
//! ```text
//!   [ where the caller goes on ]
//!   [ rbx, rbp                 ]
//!   [ `begins`                 ]
//!   [ mxcsr, x87 cw            ]  <- context
//! ```

use crate::frame::{go_on, load_words};
use crate::symbols;
use core::arch::naked_asm;
use raddle_engine::Thread;
use raddle_engine::carrier::SCHEDULER;
use raddle_engine::ums::path::thread;
use raddle_interface::Seat;
use raddle_kernel::kept;

/// See [`raddle_interface::Runtime::keep`]: rdi = seat.
#[unsafe(naked)]
pub unsafe extern "C" fn keep() {
    naked_asm!(
        ".cfi_startproc",
        "push rbx",
        ".cfi_adjust_cfa_offset 8",
        ".cfi_offset rbx, -16",
        "push rbp",
        ".cfi_adjust_cfa_offset 8",
        ".cfi_offset rbp, -24",
        "sub rsp, 8", // calls are aligned
        ".cfi_adjust_cfa_offset 8",
        "call {ends}", // rax = the thread
        "add rsp, 8",
        ".cfi_adjust_cfa_offset -8",
        "mov rsi, gs:[0]",
        "lea rcx, [rip + 2f]",
        "push rcx",
        "sub rsp, 8",
        "stmxcsr [rsp]",
        "fnstcw [rsp + 4]",
        "mov r9d, [rsp]",
        "movzx r10d, word ptr [rsp + 4]",
        "mov [rax + {context}], rsp",
        "mov rsp, [rsi + {scheduler}]",
        "mov dword ptr [rax + {on_cpu}], 0", // the old stack is free from here on
        go_on!("4", "3"),
        load_words!("4", "3"),
        "2:", // another thread
        "sub rsp, 8",
        ".cfi_adjust_cfa_offset 8",
        "call {begins}",
        "add rsp, 8",
        ".cfi_adjust_cfa_offset -8",
        "pop rbp",
        ".cfi_adjust_cfa_offset -8",
        ".cfi_restore rbp",
        "pop rbx",
        ".cfi_adjust_cfa_offset -8",
        ".cfi_restore rbx",
        "pop rcx",
        ".cfi_adjust_cfa_offset -8",
        "jmp rcx",
        ".cfi_endproc",
        ends = sym ends,
        context = const thread::CONTEXT,
        scheduler = const SCHEDULER,
        on_cpu = const thread::ON_CPU,
        begins = sym begins,
    )
}

extern "C" fn ends(seat: &Seat) -> &'static Thread {
    kept::keep(seat)
}

extern "C" fn begins() {
    kept::begins();
    symbols::leave();
}
