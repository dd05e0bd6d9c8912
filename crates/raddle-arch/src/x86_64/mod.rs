//! x86-64, System V ABI: rdi, rsi, rdx, rcx, r8, r9 are a function's arguments, rax and rdx its
//! result; rbx, rbp, r12 to r15 are the callee's to preserve. The kernel takes a call's arguments
//! in rdi, rsi, rdx, r10, r8, r9, its number in rax, and destroys rax, rcx and r11.
//!
//! Local labels are decimal and not of the digits 0 and 1 alone, which would be binary numbers.

mod calls;
mod pieces;
mod registers;
mod switch;

pub use calls::{call_by_jumps, call_on, call_on_with, call_restartable, restart};
pub use registers::{fs_base, gs_base, pause, prefetch, set_fs_base, set_gs_base, timestamp};
pub use switch::{
    Context, SwitchFrame, first_frame, prepare, set_control_words, switch, switch_keep_fs,
};
