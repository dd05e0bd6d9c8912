//! Memory from the kernel: reservations that are committed as they fill.
//!
//! A reservation takes address space only (PROT_NONE), so that tables sized for a million entries
//! cost nothing until they are used, even where `vm.overcommit_memory` is 2.

use crate::{err, errno, is_err, nr, sys};

/// Bytes in a page.
pub const PAGE_SIZE: usize = 4096;
const PROT_READ_WRITE: usize = (crate::nr::PROT_READ | crate::nr::PROT_WRITE) as usize;
const MAP_PRIVATE_ANON: usize = (crate::nr::MAP_PRIVATE | crate::nr::MAP_ANONYMOUS) as usize;
const MAP_NORESERVE: usize = crate::nr::MAP_NORESERVE as usize;

/// Maps `len` bytes of zeroed memory.
///
/// # Errors
/// The kernel's negated errno, usually ENOMEM.
pub fn map(len: usize) -> Result<*mut u8, isize> {
    map_with(len, PROT_READ_WRITE)
}

/// Reserves `len` bytes of address space without access.
///
/// # Errors
/// The kernel's negated errno.
pub fn reserve(len: usize) -> Result<*mut u8, isize> {
    map_with(len, 0)
}

fn map_with(len: usize, prot: usize) -> Result<*mut u8, isize> {
    let flags = MAP_PRIVATE_ANON | MAP_NORESERVE;
    // SAFETY: a fresh anonymous mapping at an address of the kernel's choice replaces no other.
    let at = unsafe { sys!(nr::__NR_mmap, 0usize, len, prot, flags, usize::MAX, 0usize) };
    if is_err(at) {
        Err(at)
    } else {
        Ok(at as *mut u8)
    }
}

/// Returns `len` bytes at `at` to the kernel.
///
/// # Safety
/// The range must be a mapping that no code uses any more.
pub unsafe fn unmap(at: *mut u8, len: usize) {
    // SAFETY: the caller owns the range.
    unsafe { sys!(nr::__NR_munmap, at, len) };
}

/// Makes `len` bytes at `at` zero in the child of any later fork.
///
/// # Safety
/// The range must be a private anonymous mapping of the caller's.
///
/// # Errors
/// EINVAL before Linux 4.14.
pub unsafe fn wipe_on_fork(at: *mut u8, len: usize) -> Result<(), isize> {
    const MADV_WIPEONFORK: usize = crate::nr::MADV_WIPEONFORK as usize;
    // SAFETY: the caller owns the range; in this process nothing changes.
    let r = unsafe { sys!(nr::__NR_madvise, at, len, MADV_WIPEONFORK) };
    if is_err(r) { Err(r) } else { Ok(()) }
}

/// Leaves `len` bytes at `at` out of the children of each fork.
///
/// # Safety
/// The range must be a mapping of the caller's that no child uses.
pub unsafe fn leave_out_of_forks(at: *mut u8, len: usize) {
    const MADV_DONTFORK: usize = crate::nr::MADV_DONTFORK as usize;
    // SAFETY: the caller owns the range; in this process nothing changes.
    unsafe { sys!(nr::__NR_madvise, at, len, MADV_DONTFORK) };
}

/// Undoes [`leave_out_of_forks`].
///
/// # Safety
/// The range must be a mapping of the caller's.
pub unsafe fn take_to_forks(at: *mut u8, len: usize) {
    const MADV_DOFORK: usize = crate::nr::MADV_DOFORK as usize;
    // SAFETY: the caller owns the range; in this process nothing changes.
    unsafe { sys!(nr::__NR_madvise, at, len, MADV_DOFORK) };
}

/// Changes the access of `len` bytes at `at`; `prot` as in `mprotect(2)`.
///
/// # Safety
/// No code may rely on the access that is taken away.
///
/// # Errors
/// The kernel's negated errno.
pub unsafe fn protect(at: *mut u8, len: usize, prot: usize) -> Result<(), isize> {
    // SAFETY: the caller owns the range.
    let r = unsafe { sys!(nr::__NR_mprotect, at, len, prot) };
    if is_err(r) { Err(r) } else { Ok(()) }
}

/// Makes `len` bytes of a reservation readable and writable.
///
/// # Safety
/// The range must lie in a reservation of the caller's.
///
/// # Errors
/// ENOMEM when the process may not have more memory or mappings.
pub unsafe fn commit(at: *mut u8, len: usize) -> Result<(), isize> {
    // SAFETY: the range is the caller's and gains access only.
    match unsafe { protect(at, len, PROT_READ_WRITE) } {
        Ok(()) => Ok(()),
        Err(_) => Err(err(errno::ENOMEM)),
    }
}
