//! The processor: every instruction that the compiler does not write, and every register name.
//!
//! Nouns: a *context* is one stack pointer; all other state lies on its stack in a [`SwitchFrame`].
//! The *FS base* is the thread's TLS and identity (glibc's thread block), the *GS base* the
//! carrier's: FS changes at a switch, GS never does.
//!
//! The crate is the lowest one and uses no other. Two forms of assembly are here:
//!
//! - *Functions* need nothing of other crates: the switch, calls on other stacks, one system call.
//! - *Macros* lay assembly out in the crate that invokes them, around Rust handlers and offsets
//!   that are named there: the entries of system calls, the signal handler, the stubs. A macro also
//!   lays out whatever must not be in every program that links this crate.
//!
//! One folder is one architecture, with one file a subject; [decision 62] says why.
//!
//! [decision 62]: ../../../docs/design/0062-all-assembly-in-one-crate.md
#![no_std]

#[cfg(target_arch = "x86_64")]
mod x86_64;

#[cfg(target_arch = "x86_64")]
pub use x86_64::*;
