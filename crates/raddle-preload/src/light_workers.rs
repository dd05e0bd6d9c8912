//! The short way from a light worker that yields in place to the next one: one function, which
//! calls the scheduler's procedure and switches, and returns to nobody else's caller.
//!
//! 1. The worker has taken its lease ([`crate::workers::yield_to_scheduler`]). It saves its
//!    registers on its stack, goes to the scheduler's, and calls what decides there: an ordinary
//!    thread, which may be preempted, moved and wait.
//! 2. If the next one is another light worker at rest, the thread, which is the host of both,
//!    becomes that one and gets the lease; the caller rests, and its stack is left last. As in
//!    [`crate::workers`], no signal is handled in the middle: neither on a stack that somebody else
//!    may use, nor as a worker whose stack this isn't.
//! 3. In all other cases the caller is told, which sees to it in Rust.
//!
//! A light worker at rest looks like a thread that has left by the short way:
//!
//! ```text
//!   [ where the caller goes on ]
//!   [ rbx, rbp                 ]
//!   [ `2:`                     ]
//!   [ mxcsr, x87 cw            ]  <- stack
//! ```
//!
//! | register | holds |
//! |---|---|
//! | rax | the next worker's control |
//! | rcx | the caller's |
//! | rdx | the thread, which stays |
//! | rsi | the carrier |
//! | rbx | the lease |
//! | rbp | the caller's stack pointer, while it is on the scheduler's |

use crate::frame::{go_on, load_words, save_frame};
use crate::symbols;
use core::arch::naked_asm;
use core::mem::offset_of;
use raddle_engine::ums;
use raddle_engine::ums::path::{IN_PLACE, carrier, thread};
use raddle_interface::{Lease, WorkerControl};

/// The host becomes the next worker, which gets the lease, and the caller rests.
macro_rules! switch_to_the_next {
    () => {
        concat!(
            "5:\n",
            "mov rcx, [rbx + {worker}]\n",
            "mov [rax + {of_control}], rdx\n", // it is claimed: nobody else asks
            "mov dword ptr [rcx + {leaves}], 1\n",
            "mov qword ptr [rcx + {of_control}], 0\n", // at rest, once its stack is left
            "mov [rcx + {stack}], rsp\n",
            "mov r9d, [rsp]\n",
            "movzx r10d, word ptr [rsp + 4]\n",
            "mov [rdx + {ums}], rax\n",
            "mov [rdx + {lease}], rbx\n", // from here on the scheduler is whose who takes that
            "mov rsp, [rax + {stack}]\n",
            "mov dword ptr [rcx + {leaves}], 0\n", // the old stack is free from here on
            "inc qword ptr [rsi + {switches}]\n",
            "mov dword ptr [rsi + {calls}], 0\n",
            "mov eax, [rsi + {attention}]\n",
            "or rax, [rdx + {pending}]\n",
            "jnz 6f\n",
            "8:\n",
        )
    };
}

/// What is out of the ordinary.
macro_rules! rare_ways {
    () => {
        concat!(
            "4:\n", // rare: others run meanwhile, and this thread may be moved
            ".cfi_def_cfa rsp, 40\n",
            "push rax\n",
            ".cfi_def_cfa_offset 48\n",
            "call {breathe}\n",
            "pop rax\n",
            ".cfi_def_cfa_offset 40\n",
            "mov rsi, gs:[0]\n",
            "mov rdx, [rsi + {current}]\n",
            "jmp 5b\n",
            "6:\n", // the next one has signals, or is to give way
            "mov rbp, rsp\n",
            ".cfi_def_cfa rbp, 40\n",
            "sub rsp, 16\n",
            "and rsp, -16\n",
            "mov [rsp], r9\n",
            "mov [rsp + 8], r10\n",
            "call {look}\n",
            "mov r9, [rsp]\n",
            "mov r10, [rsp + 8]\n",
            "mov rsp, rbp\n",
            ".cfi_def_cfa rsp, 40\n",
            "jmp 8b\n",
            "7:\n", // the caller sees to it
            "lea rax, [rbx + 1]\n",
            "add rsp, 16\n",
            ".cfi_def_cfa_offset 24\n",
            "pop rbp\n",
            ".cfi_def_cfa_offset 16\n",
            "pop rbx\n",
            ".cfi_def_cfa_offset 8\n",
            "pop rcx\n",
            "jmp rcx\n",
            ".cfi_def_cfa rsp, 40\n",
        )
    };
}

/// rdi = parameter, rdx = thread, r8 = lease, which was taken. Jumped to as
/// [`crate::workers::yield_to_scheduler`] is, and returns what that does.
#[unsafe(naked)]
pub unsafe extern "C" fn decide() {
    naked_asm!(
        ".cfi_startproc",
        save_frame!(),
        "mov [rdx + {deciding}], r8",
        "mov rbp, rsp",
        ".cfi_def_cfa rbp, 40",
        "mov rcx, [r8 + {scheduler}]",
        "mov rsi, rdi",
        "mov rdi, r8",
        "cmp dword ptr [rcx + {on_cpu}], 0",
        "jne 3f", // its stack isn't free yet
        "mov rsp, [rcx + {context}]",
        "3:",
        "and rsp, -16",
        "call [r8 + {decide}]",
        "mov rsp, rbp",
        ".cfi_def_cfa rsp, 40",
        "mov rsi, gs:[0]",
        "mov rdx, [rsi + {current}]",
        "mov rbx, [rdx + {deciding}]", // kept there, since nothing but the thread comes early
        "test rax, rax",
        "jz 7f",
        "cmp qword ptr [rax + {of_control}], 0",
        "jne 7f", // it is no light one, or isn't at rest
        "test dword ptr [rsi + {switches}], {breath}",
        "jz 4f",
        switch_to_the_next!(),
        go_on!("9", "10"),
        "2:",
        ".cfi_def_cfa rsp, 24",
        "mov eax, 1",
        "pop rbp",
        "pop rbx",
        "pop rcx",
        "jmp rcx",
        rare_ways!(),
        load_words!("9", "10"),
        ".cfi_endproc",
        scheduler = const Lease::SCHEDULER,
        decide = const Lease::DECIDE,
        deciding = const thread::DECIDING,
        worker = const Lease::WORKER,
        on_cpu = const thread::ON_CPU,
        context = const thread::CONTEXT,
        ums = const thread::UMS,
        lease = const thread::LEASE,
        pending = const thread::PENDING,
        of_control = const offset_of!(WorkerControl, thread),
        leaves = const offset_of!(WorkerControl, on_cpu),
        stack = const offset_of!(WorkerControl, stack),
        switches = const carrier::SWITCHES,
        breath = const IN_PLACE,
        current = const carrier::CURRENT,
        calls = const carrier::CALLS,
        attention = const carrier::ATTENTION,
        breathe = sym breathe,
        look = sym crate::workers::look,
    )
}

/// Others' turn, before the next worker's.
extern "C" fn breathe() {
    ums::breathe(IN_PLACE);
    symbols::leave();
}
