//! Forks of the process. The child has only the forking thread: a pool of its parent has no worker
//! there, and the pool's locks may be held by threads that are gone. So each pool remembers how
//! many forks lead to the process that made it, and no other process touches it.

use std::sync::Once;
use std::sync::atomic::{AtomicU32, Ordering};

/// Forks from the first process that has made a pool to this one. Written by the child while it has
/// one thread.
static FORKS: AtomicU32 = AtomicU32::new(0);

/// Returns how many forks lead to this process.
#[inline(always)]
pub(super) fn count() -> u32 {
    FORKS.load(Ordering::Relaxed)
}

/// Counts forks from now on. Returns the earlier count.
pub(super) fn watch() -> u32 {
    extern "C" fn in_child() {
        FORKS.fetch_add(1, Ordering::Relaxed);
    }
    static WATCH: Once = Once::new();
    WATCH.call_once(|| {
        // SAFETY: a function that lives for ever. If libc has no memory to note it, the child's
        // queueing waits for workers that it doesn't have.
        unsafe { libc::pthread_atfork(None, None, Some(in_child)) };
    });
    count()
}
