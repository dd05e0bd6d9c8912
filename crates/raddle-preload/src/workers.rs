//! The short way from a UMS worker that yields to its scheduler, from that to the next worker, and
//! from a worker that decides in its scheduler's place to the next one.
//!
//! All are called by jumps ([`raddle_interface::Jumped`]): who returns from here isn't who called.
//! They make no call and touch nothing that another CPU writes, unless something is out of the
//! ordinary: then the long way is called ([`raddle_engine::ums`]), which may be preempted, moved
//! and posted. Since this is the runtime's text, no signal is handled in the middle.
//!
//! A thread that left by the short way looks like one that called the switch:
//!
//! ```text
//!   [ where the caller goes on ]
//!   [ rbx, rbp                 ]
//!   [ `resumed`                ]
//!   [ mxcsr, x87 cw            ]  <- context
//! ```
//!
//! | register | holds |
//! |---|---|
//! | rsi | the carrier |
//! | rdx | the thread that leaves |
//! | rcx | the thread that comes |
//! | r8 | the lease |

use crate::frame::{go_on, load_words, save_frame};
use crate::{interface, light_workers, symbols};
use core::arch::naked_asm;
use raddle_engine::ums::path::{BREATH, HANDS_BACK, IN_PLACE, WAITS, carrier, thread};
use raddle_engine::{Carrier, Thread, accounting, ums};
use raddle_interface::{Ended, Lease, WorkerControl};

/// The end of these functions: calls Rust, with the arguments that are in place.
macro_rules! go_the_long_way {
    () => {
        "sub rsp, 8\n.cfi_adjust_cfa_offset 8\ncall {long_way}\nadd rsp, 8\n\
         .cfi_adjust_cfa_offset -8\npop rcx\njmp rcx\n.cfi_endproc"
    };
}

/// See [`raddle_interface::Runtime::execute_worker`]: rdi = control, rsi = lease.
#[unsafe(naked)]
pub unsafe extern "C" fn execute() {
    naked_asm!(
        ".cfi_startproc",
        "mov r8, rsi",
        "mov rsi, gs:[0]",
        "test dword ptr [rsi + {switches}], {breath}",
        "jz 3f",
        "2:",
        "mov rcx, [rdi + {of_control}]",
        "mov rdx, [rsi + {current}]",
        "cmp [rcx + {carrier}], rsi", // it ran here last
        "jne 4f",
        "cmp qword ptr [rsi + {bound}], 0",
        "jne 4f",
        "cmp dword ptr [rip + {accounting}], 0",
        "jne 4f",
        "mov [r8 + {scheduler}], rdx",
        "mov dword ptr [rdx + {wait_kind}], {waits}",
        "mov qword ptr [rdx + {wait_arg}], 0",
        "mov qword ptr [rdx + {deadline}], 0",
        "mov [rcx + {lease}], r8", // from here on the scheduler is whose who takes that
        "jmp {change}",
        "3:", // rare: others run meanwhile, and this thread may be moved
        "push rdi",
        ".cfi_adjust_cfa_offset 8",
        "push r8",
        ".cfi_adjust_cfa_offset 8",
        "sub rsp, 8",
        ".cfi_adjust_cfa_offset 8",
        "call {breathe}",
        "add rsp, 8",
        ".cfi_adjust_cfa_offset -8",
        "pop r8",
        ".cfi_adjust_cfa_offset -8",
        "pop rdi",
        ".cfi_adjust_cfa_offset -8",
        "mov rsi, gs:[0]",
        "jmp 2b",
        "4:",
        "mov rsi, r8",
        go_the_long_way!(),
        of_control = const core::mem::offset_of!(WorkerControl, thread),
        current = const carrier::CURRENT,
        switches = const carrier::SWITCHES,
        breath = const BREATH,
        bound = const carrier::BOUND,
        carrier = const thread::CARRIER,
        accounting = sym accounting::ON,
        scheduler = const Lease::SCHEDULER,
        wait_kind = const thread::WAIT_KIND,
        waits = const WAITS,
        wait_arg = const thread::WAIT_ARG,
        deadline = const thread::DEADLINE,
        lease = const thread::LEASE,
        change = sym change,
        breathe = sym breathe,
        long_way = sym execute_the_long_way,
    )
}

/// See [`raddle_interface::Runtime::yield_worker`]: rdi = parameter.
#[unsafe(naked)]
pub unsafe extern "C" fn yield_to_scheduler() {
    naked_asm!(
        ".cfi_startproc",
        "mov rsi, gs:[0]",
        "mov rdx, [rsi + {current}]",
        "test rdx, rdx", // a vfork child, which borrows memory
        "jz 3f",
        "mov dword ptr [rdx + {on_cpu}], {hands_back}", // sysmon leaves the lease alone now,
        "cmp dword ptr [rsi + {watched}], 0",           // has begun before,
        "jne 2f",
        "mov r8, [rdx + {lease}]", // or is done
        "test r8, r8",
        "jz 2f",
        "cmp qword ptr [r8 + {decide}], 0",
        "jne 5f",
        "mov rcx, [r8 + {scheduler}]",
        "cmp [rcx + {carrier}], rsi", // it waits here
        "jne 2f",
        "cmp dword ptr [rip + {accounting}], 0",
        "jne 2f",
        "mov qword ptr [rdx + {lease}], 0",
        "mov [r8 + {parameter}], rdi",
        "mov dword ptr [r8 + {end}], {yielded}",
        "jmp {change}",
        "5:", // the caller decides: it has the lease, and is an ordinary thread
        "mov rcx, [rdx + {ums}]",
        "mov [r8 + {worker}], rcx",
        "mov qword ptr [rdx + {ums}], 0",
        "mov qword ptr [rdx + {lease}], 0",
        "mov dword ptr [rdx + {on_cpu}], 1", // sysmon finds no lease now
        "cmp dword ptr [rcx + {kind}], {light}",
        "je {decides}",
        "mov rax, r8",
        "pop rcx",
        ".cfi_adjust_cfa_offset -8",
        "jmp rcx",
        ".cfi_adjust_cfa_offset 8",
        "2:",
        "mov dword ptr [rdx + {on_cpu}], 1",
        "3:",
        go_the_long_way!(),
        current = const carrier::CURRENT,
        watched = const carrier::WATCHED,
        lease = const thread::LEASE,
        on_cpu = const thread::ON_CPU,
        hands_back = const HANDS_BACK,
        decide = const Lease::DECIDE,
        decides = sym light_workers::decide,
        kind = const core::mem::offset_of!(WorkerControl, kind),
        light = const WorkerControl::LIGHT,
        worker = const Lease::WORKER,
        ums = const thread::UMS,
        scheduler = const Lease::SCHEDULER,
        carrier = const thread::CARRIER,
        accounting = sym accounting::ON,
        parameter = const Lease::PARAMETER,
        end = const Lease::END,
        yielded = const Ended::Yielded as u32,
        change = sym change,
        long_way = sym yield_the_long_way,
    )
}

/// See [`raddle_interface::Runtime::pass_lease`]: rdi = the next thread, rsi = lease.
#[unsafe(naked)]
pub unsafe extern "C" fn pass_lease() {
    naked_asm!(
        ".cfi_startproc",
        "mov rcx, rdi",
        "mov r8, rsi",
        "mov rsi, gs:[0]",
        "mov rdx, [rsi + {current}]",
        "cmp [rcx + {carrier}], rsi", // it ran here last
        "jne 4f",
        "cmp rcx, rdx",
        "je 7f",
        "test dword ptr [rsi + {switches}], {breath}",
        "jz 4f",
        "cmp qword ptr [rsi + {bound}], 0",
        "jne 4f",
        "cmp dword ptr [rip + {accounting}], 0",
        "jne 4f",
        "mov rax, [r8 + {worker}]",
        "mov [rdx + {ums}], rax",
        "mov [rcx + {lease}], r8", // from here on the scheduler is whose who takes that
        "jmp {change}",
        "7:", // the thread stays, as another worker perhaps
        "test dword ptr [rsi + {switches}], {breath}",
        "jz 4f",
        "inc qword ptr [rsi + {switches}]",
        "mov dword ptr [rsi + {calls}], 0",
        "mov rax, [r8 + {worker}]",
        "mov [rdx + {ums}], rax",
        "mov [rdx + {lease}], r8",
        "mov eax, [rsi + {attention}]",
        "or rax, [rdx + {pending}]",
        "jnz 8f",
        "pop rcx",
        ".cfi_adjust_cfa_offset -8",
        "jmp rcx",
        ".cfi_adjust_cfa_offset 8",
        "8:",
        "sub rsp, 8",
        ".cfi_adjust_cfa_offset 8",
        "call {look}",
        "add rsp, 8",
        ".cfi_adjust_cfa_offset -8",
        "pop rcx",
        ".cfi_adjust_cfa_offset -8",
        "jmp rcx",
        ".cfi_adjust_cfa_offset 8",
        "4:",
        "mov rsi, r8",
        go_the_long_way!(),
        calls = const carrier::CALLS,
        attention = const carrier::ATTENTION,
        pending = const thread::PENDING,
        look = sym look,
        current = const carrier::CURRENT,
        switches = const carrier::SWITCHES,
        breath = const IN_PLACE,
        bound = const carrier::BOUND,
        carrier = const thread::CARRIER,
        accounting = sym accounting::ON,
        worker = const Lease::WORKER,
        ums = const thread::UMS,
        lease = const thread::LEASE,
        change = sym change,
        long_way = sym pass_the_long_way,
    )
}

/// See [`raddle_interface::Runtime::take_lease`].
pub extern "C" fn take_lease() -> *const Lease {
    match interface::thread() {
        Some(_) => ums::take_lease_to_decide(),
        None => core::ptr::null(),
    }
}

/// See [`raddle_interface::Runtime::return_lease`].
pub extern "C" fn return_lease(lease: &Lease) {
    ums::return_lease(lease);
    symbols::leave();
}

/// The switch; registers as above.
#[unsafe(naked)]
unsafe extern "C" fn change() {
    naked_asm!(
        ".cfi_startproc",
        "mov dword ptr [rcx + {on_cpu}], 1",
        "inc qword ptr [rcx + {switches}]",
        "inc qword ptr [rsi + {carrier_switches}]",
        "mov dword ptr [rsi + {calls}], 0",
        "mov [rsi + {current}], rcx",
        save_frame!(),
        "mov r9d, [rsp]",
        "movzx r10d, word ptr [rsp + 4]",
        "mov [rdx + {context}], rsp",
        "mov rsp, [rcx + {context}]",
        "mov rax, [rcx + {fs}]",
        "mov dword ptr [rdx + {on_cpu}], 0", // the old stack is free from here on
        "wrfsbase rax",
        go_on!("5", "6"),
        "2:", // resumed, by this switch or by another one
        "mov rsi, gs:[0]",
        "mov rdx, [rsi + {current}]",
        "mov eax, [rsi + {attention}]",
        "or rax, [rdx + {pending}]",
        "jnz 4f",
        "3:",
        "mov eax, 1",
        "pop rbp",
        ".cfi_adjust_cfa_offset -8",
        ".cfi_restore rbp",
        "pop rbx",
        ".cfi_adjust_cfa_offset -8",
        ".cfi_restore rbx",
        "pop rcx",
        "jmp rcx",
        ".cfi_adjust_cfa_offset 16",
        ".cfi_offset rbx, -16",
        ".cfi_offset rbp, -24",
        "4:",
        "sub rsp, 8",
        ".cfi_adjust_cfa_offset 8",
        "call {look}",
        "add rsp, 8",
        ".cfi_adjust_cfa_offset -8",
        "jmp 3b",
        load_words!("5", "6"),
        ".cfi_endproc",
        on_cpu = const thread::ON_CPU,
        switches = const thread::SWITCHES,
        carrier_switches = const carrier::SWITCHES,
        calls = const carrier::CALLS,
        current = const carrier::CURRENT,
        context = const thread::CONTEXT,
        fs = const thread::FS,
        attention = const carrier::ATTENTION,
        pending = const thread::PENDING,
        look = sym look,
    )
}

/// A thread runs again, and has signals or is to give way.
pub(crate) extern "C" fn look() {
    ums::look_at_signals(Carrier::current().thread());
    symbols::leave();
}

extern "C" fn breathe() {
    ums::breathe(BREATH);
    symbols::leave();
}

extern "C" fn execute_the_long_way(control: &WorkerControl, lease: &Lease) {
    ums::execute(control, lease);
    symbols::leave();
}

extern "C" fn pass_the_long_way(next: &Thread, lease: &Lease) {
    ums::pass(next, lease);
    symbols::leave();
}

extern "C" fn yield_the_long_way(parameter: usize) -> usize {
    let has_yielded = interface::thread().is_some() && ums::yield_to_scheduler(parameter);
    symbols::leave();
    usize::from(has_yielded)
}
