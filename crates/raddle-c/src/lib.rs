//! The explicit API for C and for all languages that can call it: `libraddle`.
//!
//! `include/raddle.h` is the reference for callers; here is what is behind it. Every function is
//! called by C, which keeps the header's promises; a value that has one is checked for the rest:
//! null pointers, and handles that were freed or never given out.
//!
//! - Everything that C gets is a handle from a [`raddle::handles::Table`], so that use after free
//!   is an errno.
//! - Errors are negative errno values. Nothing unwinds into C: a panic in here, which would be our
//!   bug, is `-ENOTRECOVERABLE`; an exception that leaves a callback ends the process.
//! - A struct of one integer is passed and returned as that integer, by the calling convention.
//! - C's callbacks and their arguments cross threads; that they may is the caller's promise.

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
mod work;
