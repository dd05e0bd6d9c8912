//! Filters of system calls, which may kill who makes a call that they don't know.
//!
//! The runtime makes some calls for speed alone: timers, perf events, a look at a stack. Where the
//! process has a seccomp filter it does without. A filter can also come later, for all kernel
//! threads at once (`seccomp(2)` with TSYNC):
//!
//! 1. Who makes such a call has the lock, sees that no filter is on its way and that the calling
//!    kernel thread has none, and makes it ([`Filters::unless_any`]).
//! 2. A thread of the program's that is about to install a filter says so, under the lock, and
//!    deletes the timers that go on by themselves: nobody could afterwards. Then it installs the
//!    filter, which every kernel thread has from that moment on, and says that it isn't on its way
//!    any more ([`Filters::install`]).
//!
//! So none of these calls meets a filter. If the kernel refuses the filter, sysmon soon finds that
//! it may make them again.
//!
//! The lock is held over system calls, as the roster's is: by kernel threads that carry nobody, by
//! who gives a signal back to the kernel, and by who installs a filter. Afterwards that one takes it no more: to wait for a lock is a call.

use crate::engine::ENGINE;
use crate::kthread;
use core::sync::atomic::{AtomicU32, Ordering};
use raddle_sched::SpinLock;
use raddle_sys::syscall6;

/// See the module.
pub struct Filters {
    lock: SpinLock<()>,
    /// Threads that are about to install one. Raised under the lock, read under it.
    coming: AtomicU32,
}

impl Filters {
    pub(crate) const fn new() -> Self {
        Self {
            lock: SpinLock::new(()),
            coming: AtomicU32::new(0),
        }
    }

    /// In the child of a fork, which has no other thread; before it forgets the parent's carriers.
    pub(crate) fn reset(&self) {
        // SAFETY: the only thread, so nobody holds the lock.
        unsafe { self.lock.break_lock() };
        self.coming.store(0, Ordering::Relaxed);
        ENGINE.carriers().for_each(|it| it.metronome.forget());
    }

    /// Makes calls that a filter may kill for, if there is none.
    pub fn unless_any<T>(&self, make: impl FnOnce() -> T) -> Option<T> {
        let _lock = self.lock.lock();
        let free = self.coming.load(Ordering::Acquire) == 0 && !kthread::is_filtered();
        free.then(make)
    }

    /// Makes a call that may give every kernel thread of the process a filter.
    ///
    /// # Safety
    /// As for the call itself.
    pub unsafe fn install(&self, nr: u32, arguments: [usize; 6]) -> isize {
        {
            let _lock = self.lock.lock();
            self.coming.fetch_add(1, Ordering::Relaxed);
            for carrier in ENGINE.carriers() {
                carrier.metronome.delete();
            }
        }
        // SAFETY: the caller's promise.
        let result = unsafe { syscall6(nr, arguments) };
        self.coming.fetch_sub(1, Ordering::Release);
        result
    }
}
