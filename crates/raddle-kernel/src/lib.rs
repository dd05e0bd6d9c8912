//! The user-mode kernel: what Linux's thread services do, for green threads.
//!
//! A system call enters at [`boundary`] (from a stub that replaced libc's `syscall` instruction),
//! which looks its number up in [`calls`]; the handler answers it, parks the green thread, or lets it
//! pass to the kernel as it is.
#![no_std]

pub mod boundary;
pub mod calls;
pub mod descriptors;
pub mod futex;
pub mod io;
pub mod ids;
pub mod memory;
pub mod poll;
pub mod process;
pub mod signal;
pub mod threads;
pub mod time;
