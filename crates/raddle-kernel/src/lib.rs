//! The user-mode kernel: what Linux's thread services do, for green threads.
//!
//! A system call enters at [`boundary`] (from a stub that replaced libc's `syscall` instruction),
//! which looks its number up in [`calls`]; the handler answers it, parks the green thread, or lets
//! it pass to the kernel as it is.
#![no_std]

pub mod boundary;
pub mod callers;
pub mod calls;
pub mod children;
pub mod clocks;
pub mod clones;
pub mod connections;
pub mod credentials;
pub mod descriptors;
pub mod exclusion;
pub mod files;
pub mod futex;
pub mod helped;
pub mod ids;
pub mod io;
pub mod kept;
pub mod loading;
pub mod memory;
pub mod messages;
pub mod poll;
pub mod process;
pub mod procfs;
pub mod rules;
pub mod scheduling;
pub mod shares;
pub mod signal;
pub mod threads;
pub mod time;
pub mod transfers;
pub mod uring;
pub mod user;
pub mod vectors;
pub mod waiting;

use raddle_engine::{Carrier, ENGINE};

/// Returns true if the running thread shares its carrier with others: a call that would block the
/// kernel thread must park the green thread instead. False in a process with one thread, and on a
/// bound thread, which blocks in the kernel.
#[inline(always)]
pub fn is_multiplexed() -> bool {
    ENGINE.is_started() && !Carrier::current().is_bound()
}
