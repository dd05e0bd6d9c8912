//! x86-64, System V ABI: rdi, rsi, rdx, rcx, r8, r9 are a function's arguments, rax and rdx its
//! result; rbx, rbp, r12 to r15 are the callee's to preserve. The kernel takes a call's arguments
//! in rdi, rsi, rdx, r10, r8, r9, its number in rax, and destroys rax, rcx and r11.
//!
//! Local labels are decimal and not of the digits 0 and 1 alone, which would be binary numbers.

mod calls;
mod context;
mod entry;
mod first;
mod kernel_thread;
mod memory_functions;
mod pieces;
mod registers;
mod reuse;
mod signal;
mod stub;
mod switch;
mod system_call;
mod tripwire;
mod ums_fast;
mod ums_light;
mod user_copy;
mod wide;

pub use calls::{call_by_jumps, call_on, call_on_with, call_restartable, restart};
pub use context::{
    CALL_BEGINS, CALL_ENDS, Hidden, Interrupted, Shown, SigContext, StackT, UContext,
};
pub use entry::{CallFrame, Caller, ChildRegisters, CloneFrame, EntryReturns, RED_ZONE};
pub use kernel_thread::{KernelThread, raw_clone, raw_clone3, unmap_and_exit};
pub use registers::{
    carrier_address, fs_base, gs_base, is_under_valgrind, own_registers, pause, prefetch,
    set_fs_base, set_gs_base, thread_local_word, timestamp,
};
pub use switch::{
    Context, SwitchFrame, first_frame, prepare, set_control_words, switch, switch_keep_fs,
};
pub use system_call::{call_keeping_stack, call_unless, resume_interrupted_call, syscall6};
pub use user_copy::{resume_after_fault, user_copy, user_exchange, user_load, user_store};
pub use wide::WideState;
#[doc(hidden)]
pub use wide::X87;
