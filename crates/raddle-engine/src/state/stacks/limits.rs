//! Whether address space that isn't used may be had for nothing.

use raddle_sys::{is_err, nr, sys};

/// `RLIMIT_DATA` and `RLIMIT_AS`, which count mappings.
pub(super) const COUNTING: [usize; 2] = [2, 9];

/// Returns true if the process has a limit on its mappings.
pub(super) fn are_set() -> bool {
    const INFINITY: u64 = u64::MAX;
    COUNTING.iter().any(|&resource| {
        let mut limit = [INFINITY; 2];
        // SAFETY: the kernel fills a live structure.
        unsafe {
            sys!(
                nr::__NR_prlimit64,
                0usize,
                resource,
                0usize,
                limit.as_mut_ptr()
            )
        };
        limit[0] != INFINITY
    })
}

/// Returns true if the kernel counts all mappings that can be written (`vm.overcommit_memory` is
/// 2).
pub(super) fn is_memory_counted() -> bool {
    const CLOEXEC: usize = nr::O_CLOEXEC as usize;
    let path = c"/proc/sys/vm/overcommit_memory";
    let mut mode = 0u8;
    // SAFETY: a path and a byte that live.
    unsafe {
        let fd = sys!(nr::__NR_open, path.as_ptr(), CLOEXEC);
        if !is_err(fd) {
            sys!(nr::__NR_read, fd, &raw mut mode, 1usize);
            sys!(nr::__NR_close, fd);
        }
    }
    mode == b'2'
}
