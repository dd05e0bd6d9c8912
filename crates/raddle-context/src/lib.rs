//! The context of a green thread: the state that a switch saves, first frames, and the segment
//! bases.
//!
//! Nouns: a *context* is one stack pointer; all other state lies on its stack in a [`SwitchFrame`].
//! The *FS base* is the thread's TLS and identity (glibc's thread block), the *GS base* the
//! carrier's: FS changes at a switch, GS never does.
//!
//! A switch keeps what the System V ABI makes the callee save: itself the stack pointer, rbx, rbp,
//! MXCSR and the x87 control word; through the compiler, which is told that they change, r12 to
//! r15. Vector registers are dead at a call. A system call preserves them, so the boundary saves
//! them before it calls anything.
#![no_std]

#[cfg(target_arch = "x86_64")]
#[path = "arch/x86_64.rs"]
mod arch;

pub use arch::{
    Context, SwitchFrame, call_by_jumps, call_on, call_on_with, call_restartable, first_frame,
    fs_base, gs_base, pause, prepare, restart, set_control_words, set_fs_base, set_gs_base, switch,
    switch_keep_fs, timestamp,
};
