//! The explicit API for C and for all languages that can call it: `libraddle`.
//!
//! `include/raddle.h` is the reference for callers. Only C calls these functions, and keeps the
//! header's promises; other faults are checked: null pointers, and handles that were freed or never
//! given out.
//!
//! - C gets only handles from a [`raddle::handles::Table`], so that use after free is an errno.
//! - Errors are negative errno values. Nothing unwinds into C: a panic in this library, which would
//!   be a bug, is `-ENOTRECOVERABLE`; an exception that leaves a callback ends the process.
//! - A struct of one integer is passed and returned as that integer, by the calling convention.
//! - C's callbacks and their arguments cross threads; the caller promises that they may.

#![cfg(not(any(raddle_loom, raddle_shuttle)))]

mod call;
mod cancel;
mod completion;
mod engine;
mod error;
mod fiber;
mod handle;
mod options;
mod park;
mod pool;
mod runtime;
mod submit;
mod thread;
mod trace;
mod work;
