//! Threads that are kept when they have ended, to be used again.

use core::cell::Cell;
use core::ffi::c_void;
use core::ptr::null;
use core::ptr::null_mut;
use core::sync::atomic::AtomicU32;

/// A thread that can be used again, as both sides know it. It lies on the thread's own stack.
#[repr(C)]
#[derive(Debug)]
pub struct Seat {
    /// What the thread does next; null: it goes home. Written by the runtime while the thread is
    /// kept, read by the thread after that.
    pub next: Cell<*mut c_void>,
    /// The word that is told ([`Seat::OVER`]) that the thread has ended and left its stack, or
    /// null. Written by the thread before it is kept.
    pub told: Cell<*const AtomicU32>,
    /// libc's name for the thread.
    pub id: usize,
    /// Its stack's size in bytes, as it was asked for.
    pub stack_size: usize,
}

impl Seat {
    /// In the word that is told: somebody waits for it.
    pub const AWAITED: u32 = 1;
    /// Likewise: nobody but the runtime changes the word any more.
    pub const JOINED: u32 = 1 << 5;
    /// The runtime adds it to the word as its last deed.
    pub const OVER: u32 = 1 << 7;

    /// The calling thread's.
    pub const fn new(id: usize, stack_size: usize) -> Self {
        Self {
            next: Cell::new(null_mut()),
            told: Cell::new(null()),
            id,
            stack_size,
        }
    }
}
