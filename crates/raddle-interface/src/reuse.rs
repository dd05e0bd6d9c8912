//! Ended threads that are kept for reuse.

use core::cell::Cell;
use core::ffi::c_void;
use core::ptr::null;
use core::ptr::null_mut;
use core::sync::atomic::AtomicU32;

/// A thread that can be reused, as both sides see it. It lies on the thread's own stack.
#[repr(C)]
#[derive(Debug)]
pub struct ReuseControl {
    /// The thread's next work; null if it must end for good. Written by the runtime while the
    /// thread is kept, read by the thread after that.
    pub next: Cell<*mut c_void>,
    /// The word to which the runtime adds [`ReuseControl::OVER`] once the thread has ended and left
    /// its stack, or null. Written by the thread before it is kept.
    pub told: Cell<*const AtomicU32>,
    /// libc's name for the thread.
    pub id: usize,
    /// The requested size of its stack in bytes.
    pub stack_size: usize,
}

impl ReuseControl {
    /// Bit of that word: a thread waits for it.
    pub const AWAITED: u32 = 1;
    /// Bit of that word: only the runtime changes the word from here on.
    pub const JOINED: u32 = 1 << 5;
    /// Bit of that word: the thread has ended. The runtime sets it as its last change.
    pub const OVER: u32 = 1 << 7;

    /// The reuse control of the calling thread.
    pub const fn new(id: usize, stack_size: usize) -> Self {
        Self {
            next: Cell::new(null_mut()),
            told: Cell::new(null()),
            id,
            stack_size,
        }
    }
}
