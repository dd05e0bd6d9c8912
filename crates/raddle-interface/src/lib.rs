//! What the runtime's library and the explicit API know of each other.
//!
//! The runtime must lie within two gigabytes of libc, whose system calls jump into it, so it is
//! always a shared library: preloaded by `raddle run`, or loaded by a program that was built with
//! the API. Either way it exports one table, [`Runtime`], under the name [`SYMBOL`].
#![no_std]

use core::ffi::CStr;

/// The table's name among the library's dynamic symbols.
pub const SYMBOL: &CStr = c"raddle_runtime";

/// Changes whenever the table's meaning does.
pub const VERSION: u32 = 1;

/// The environment variable by which a program that loads the runtime itself asks that threads be
/// green on request only.
pub const EXPLICIT: &CStr = c"RADDLE_EXPLICIT";

/// What the runtime does for the API. All functions may be called on any thread of the process.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct Runtime {
    /// [`VERSION`] of the runtime; what follows is known only if it is one's own.
    pub version: u32,
    /// 1 if the process's system calls reach the runtime; 0 if it stays on kernel threads.
    pub is_up: extern "C" fn() -> u32,
    /// 1 if the calling thread is green, 0 if it has a kernel thread to itself.
    pub is_green: extern "C" fn() -> u32,
    /// The next thread that the calling thread creates is to be green (1) or not (0).
    pub next_is_green: extern "C" fn(u32),
    /// How many carriers may be active; 0 for as many as CPUs may be used.
    pub set_carriers: extern "C" fn(u32),
    /// How many carriers may be active now.
    pub carriers: extern "C" fn() -> u32,
}
