//! A descriptor of the runtime's own, in a static.

use core::sync::atomic::{AtomicI32, Ordering};
use raddle_sys::{is_err, nr, sys};

/// None at first. Kept as the number + 1: an engine before its start is all zero bytes, and takes
/// no room in the library's file.
pub(crate) struct OwnDescriptor(AtomicI32);

impl OwnDescriptor {
    pub(crate) const fn none() -> Self {
        Self(AtomicI32::new(0))
    }

    /// The number, or -1.
    #[inline(always)]
    pub(crate) fn get(&self) -> i32 {
        self.0.load(Ordering::Relaxed) - 1
    }

    /// Takes a number; negative for none.
    pub(crate) fn set(&self, fd: i32) {
        self.0.store(fd.max(-1) + 1, Ordering::Relaxed);
    }

    /// Closes it, if there is one.
    pub(crate) fn close(&self) {
        let fd = self.get();
        self.set(-1);
        if fd >= 0 {
            // SAFETY: our own descriptor, which nobody finds any more.
            unsafe { sys!(nr::__NR_close, fd) };
        }
    }
}

/// Moves a fresh descriptor out of the program's way: behind what `select` can name and some
/// hundred numbers more, or to the top of a smaller range. Not right behind what `select` can name:
/// programs try that number on purpose. Not to the top of any range: each fork copies a table of
/// all numbers up to the highest, and a table of 1024 grows to one of 2048 at once.
pub(crate) fn hide(fd: isize) -> Result<isize, isize> {
    if is_err(fd) {
        return Err(fd);
    }
    let moved = duplicate_high(fd);
    if is_err(moved) {
        return Ok(fd);
    }
    // SAFETY: the descriptor is ours.
    unsafe { sys!(nr::__NR_close, fd) };
    Ok(moved)
}

pub(crate) fn duplicate_high(fd: isize) -> isize {
    const DUPFD_CLOEXEC: usize = 1030;
    const FIRST: u64 = 1920;
    /// More than the runtime ever has.
    const OWN: u64 = 32;
    let mut limit = [0u64; 2];
    // SAFETY: the kernel fills a live structure (RLIMIT_NOFILE is 7) and makes a descriptor.
    unsafe {
        sys!(
            nr::__NR_prlimit64,
            0usize,
            7usize,
            0usize,
            limit.as_mut_ptr()
        );
        let lowest = (limit[0].max(64) - OWN).min(FIRST);
        sys!(nr::__NR_fcntl, fd, DUPFD_CLOEXEC, lowest)
    }
}
