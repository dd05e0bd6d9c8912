//! Which signals the kernel holds, because a descriptor of the program reads them.
//!
//! A descriptor of `signalfd` shows what pends in the kernel. So a signal that some descriptor
//! reads and no thread accepts becomes *held*: the carriers block it, and it is queued to the
//! process in the kernel ([`Routes::return_to_kernel`]). A thread that accepts it from now on makes
//! the carriers unblock it, and it comes once more ([`Routes::fetch_from_kernel`]).
//!
//! **No signal is lost between the two**: a router first adds the signal to the held ones, then
//! looks once more for a thread that accepts it. A thread first opens its mask, then looks at the
//! held ones. All are SeqCst, so one of the two sees the other.
//!
//! [`Routes::return_to_kernel`]: super::routes::Routes::return_to_kernel
//! [`Routes::fetch_from_kernel`]: super::routes::Routes::fetch_from_kernel

use super::queues::bit;
use crate::sync::{AtomicU64, Ordering};

/// See the module.
pub struct HeldSignals {
    /// Signals that a descriptor reads, or has read. Bits are only added.
    read: AtomicU64,
    /// Signals that carriers block, because the kernel holds them.
    held: AtomicU64,
}

impl HeldSignals {
    /// Returns the state without descriptors.
    #[cfg(not(any(raddle_loom, raddle_shuttle)))]
    pub const fn new() -> Self {
        Self {
            read: AtomicU64::new(0),
            held: AtomicU64::new(0),
        }
    }

    /// Returns the state without descriptors.
    #[cfg(any(raddle_loom, raddle_shuttle))]
    pub fn new() -> Self {
        Self {
            read: AtomicU64::new(0),
            held: AtomicU64::new(0),
        }
    }

    /// Notes that a descriptor reads the signals of `set`.
    pub fn add_read(&self, set: u64) {
        self.read.fetch_or(set, Ordering::SeqCst);
    }

    /// Returns true if a descriptor reads the signal.
    pub fn is_read(&self, signal: u32) -> bool {
        self.read.load(Ordering::SeqCst) & bit(signal) != 0
    }

    /// Returns the signals that carriers block.
    #[inline(always)]
    pub fn mask(&self) -> u64 {
        self.held.load(Ordering::SeqCst)
    }

    /// Holds the signals of `set`. The caller then makes the carriers block them, and looks for a
    /// thread that accepts one.
    pub fn add(&self, set: u64) {
        self.held.fetch_or(set, Ordering::SeqCst);
    }

    /// Holds the signals of `set` no longer. Returns true if some were held: the caller then makes
    /// the carriers unblock them.
    #[inline(always)]
    pub fn remove(&self, set: u64) -> bool {
        let some = self.mask() & set != 0;
        if some {
            self.held.fetch_and(!set, Ordering::SeqCst);
        }
        some
    }

    /// Holds those of the signals of `blocked` that a descriptor reads, and no others: at the
    /// take-over, by the only thread.
    pub fn adopt(&self, blocked: u64) {
        let held = self.read.load(Ordering::Relaxed) & blocked;
        self.held.store(held, Ordering::SeqCst);
    }
}

impl Default for HeldSignals {
    fn default() -> Self {
        Self::new()
    }
}
