//! Waiters that leave a row of the wait table for a while and must miss no wake-up meanwhile.
//!
//! A thread that waits for a condition variable runs its signal handlers on its own stack, and the
//! handlers may wait, too: so the thread's node is out of the table while they run. A waker that
//! looks meanwhile finds no node, and nothing else records its wake-up.
//!
//! The waiter, interrupted:
//!
//! 1. [`Absences::begin`]: raises the row's count of *absent* waiters and that of all rows, then
//!    reads the row's count of *missed* wake-ups.
//! 2. [`WaitTable::cancel`](crate::WaitTable::cancel). If the node isn't linked any more, a waker
//!    found it before and could not claim the wait: that wake-up is the waiter's, and the wait is
//!    over.
//! 3. Handlers run.
//! 4. [`WaitTable::enqueue`](crate::WaitTable::enqueue), on the condition that no wake-up was
//!    missed ([`Absences::has_missed`]). If one was, the wait is over.
//! 5. The wait ends for any reason: [`Absences::end`].
//!
//! The waker wakes. If it found fewer waiters than it may wake and some are absent
//! ([`Absences::any`]), it raises the count of missed wake-ups ([`Absences::miss`]) and wakes once
//! more.
//!
//! **No wake-up is lost.** A waker that finds no node because of step 2 has read the row's count of
//! waiters, or taken its lock, after step 2: so it sees that the waiter is absent, or the wait has
//! ended since. The waker raises the count of missed wake-ups and then looks at the row again; step
//! 4 raises the row's count of waiters and then reads the missed wake-ups. All four are SeqCst, so
//! the waker sees the waiter or the waiter sees the miss.
//!
//! Keys share rows, so a wake-up that a waiter for another key has missed may end a wait: such a
//! wake-up is spurious, as POSIX allows. A waiter that a handler leaves without unwinding stays
//! counted as absent. Wakers of that row look twice then, which costs time and nothing else.

use crate::sync::{AtomicU32, Ordering};
use crate::wait::wait_table::row_of;

/// One row.
struct Row {
    /// Waiters that are, or were, absent in a wait that hasn't ended. Changed by the waiters.
    absent: AtomicU32,
    /// Raised by wakers; wraps.
    missed: AtomicU32,
}

/// See the module; `N` is a power of two.
pub struct Absences<const N: usize> {
    /// Absent waiters in all rows. Wakers read this first.
    all: AtomicU32,
    rows: [Row; N],
}

impl<const N: usize> Absences<N> {
    /// No waiter is absent.
    #[cfg(not(any(raddle_loom, raddle_shuttle)))]
    pub const fn new() -> Self {
        assert!(N.is_power_of_two());
        Self {
            all: AtomicU32::new(0),
            rows: [const {
                Row {
                    absent: AtomicU32::new(0),
                    missed: AtomicU32::new(0),
                }
            }; N],
        }
    }

    /// No waiter is absent.
    #[cfg(any(raddle_loom, raddle_shuttle))]
    pub fn new() -> Self {
        Self {
            all: AtomicU32::new(0),
            rows: core::array::from_fn(|_| Row {
                absent: AtomicU32::new(0),
                missed: AtomicU32::new(0),
            }),
        }
    }

    #[inline(always)]
    fn row(&self, key: usize) -> &Row {
        &self.rows[row_of(key, N)]
    }

    /// Step 1: the waiter is about to take its node out. Returns the argument for
    /// [`Absences::has_missed`].
    pub fn begin(&self, key: usize) -> u32 {
        self.row(key).absent.fetch_add(1, Ordering::SeqCst);
        self.all.fetch_add(1, Ordering::SeqCst);
        self.row(key).missed.load(Ordering::SeqCst)
    }

    /// Returns true if a wake-up came since [`Absences::begin`] returned `seen`. For the condition
    /// of [`WaitTable::enqueue`](crate::WaitTable::enqueue).
    pub fn has_missed(&self, key: usize, seen: u32) -> bool {
        self.row(key).missed.load(Ordering::SeqCst) != seen
    }

    /// Step 5: the wait is over.
    pub fn end(&self, key: usize) {
        self.all.fetch_sub(1, Ordering::SeqCst);
        self.row(key).absent.fetch_sub(1, Ordering::SeqCst);
    }

    /// Returns true if a waiter may be absent. For a waker that found fewer waiters than it may
    /// wake.
    #[inline(always)]
    pub fn any(&self, key: usize) -> bool {
        self.all.load(Ordering::SeqCst) != 0 && self.row(key).absent.load(Ordering::SeqCst) != 0
    }

    /// Records a missed wake-up. The waker wakes once more after this.
    pub fn miss(&self, key: usize) {
        self.row(key).missed.fetch_add(1, Ordering::SeqCst);
    }
}

impl<const N: usize> Default for Absences<N> {
    fn default() -> Self {
        Self::new()
    }
}
