//! The stacks of fibers.

use std::io;
use std::ptr::null_mut;

const PAGE: usize = 4096;
const LEAST: usize = 16 << 10;

/// A mapping with a guard page at its low end.
pub(super) struct Stack {
    low: *mut libc::c_void,
    size: usize,
}

impl Stack {
    pub(super) fn new(bytes: usize) -> io::Result<Self> {
        let size = bytes.max(LEAST).checked_next_multiple_of(PAGE);
        let size = size.and_then(|size| size.checked_add(PAGE));
        let size = size.ok_or(io::ErrorKind::OutOfMemory)?;
        let flags = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_NORESERVE;
        let access = libc::PROT_READ | libc::PROT_WRITE;
        // SAFETY: fresh memory wherever there is room; its lowest page is made a guard.
        unsafe {
            let low = libc::mmap(null_mut(), size, access, flags | libc::MAP_STACK, -1, 0);
            if low == libc::MAP_FAILED {
                return Err(io::Error::last_os_error());
            }
            let stack = Self { low, size };
            match libc::mprotect(low, PAGE, libc::PROT_NONE) {
                0 => Ok(stack),
                _ => Err(io::Error::last_os_error()),
            }
        }
    }

    /// Returns the address above the stack.
    pub(super) fn top(&self) -> *mut u8 {
        self.low.cast::<u8>().wrapping_add(self.size)
    }
}

impl Drop for Stack {
    fn drop(&mut self) {
        // SAFETY: our own mapping; no fiber runs on it.
        unsafe { libc::munmap(self.low, self.size) };
    }
}
