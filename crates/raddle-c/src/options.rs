//! Structs of options and of counters, which begin with their size, so that they can grow.

use crate::error::Errno;
use libc::c_char;
use std::ffi::CStr;
use std::mem::MaybeUninit;
use std::ptr::NonNull;

/// The smallest stack that may be asked for, in bytes.
const LEAST_STACK: usize = 16 << 10;
/// More than any address space has, in bytes.
const MOST_STACK: usize = 1 << 47;
/// The largest size of a struct, in bytes: a larger one was never set.
const LARGEST: usize = 4096;

/// A struct of options.
///
/// # Safety
/// It must begin with its size, and all zero must be valid and ask for nothing.
pub(crate) unsafe trait Options: Copy {
    /// The struct's size in the first version that had it.
    const FIRST: usize;
}

/// Reads options from C, of this version, an earlier or a later one. Members that a later version
/// appended must be zero.
///
/// # Safety
/// As many bytes must be readable as the first member says, and they must be a `T` if there are
/// enough of them.
pub(crate) unsafe fn read<T: Options>(at: NonNull<T>) -> Result<T, Errno> {
    // SAFETY: the caller's promise.
    let size = unsafe { at.cast::<usize>().read() };
    if size < T::FIRST {
        return Err(Errno(libc::EINVAL));
    }
    if size > LARGEST {
        return Err(Errno(libc::E2BIG));
    }
    // SAFETY: as above.
    let bytes = unsafe { std::slice::from_raw_parts(at.cast::<u8>().as_ptr(), size) };
    let known = size.min(size_of::<T>());
    if bytes[known..].iter().any(|&byte| byte != 0) {
        return Err(Errno(libc::E2BIG)); // asks for members of a later version
    }
    let mut options = MaybeUninit::<T>::zeroed();
    // SAFETY: both have as many bytes; what an earlier version lacks stays zero, which is valid.
    unsafe {
        std::ptr::copy_nonoverlapping(bytes.as_ptr(), options.as_mut_ptr().cast::<u8>(), known);
        Ok(options.assume_init())
    }
}

/// A struct of counters.
///
/// # Safety
/// It must be a size, to which nothing is written, and counters of eight bytes after it.
pub(crate) unsafe trait Counters: Copy {}

/// Stores counters in a struct of C's, of this version, an earlier or a later one: as many as it
/// has room for. Counters that only a later version knows become 0.
///
/// # Safety
/// As many bytes must be writable as the first member says.
pub(crate) unsafe fn store<T: Counters>(
    at: NonNull<T>,
    now: impl FnOnce() -> T,
) -> Result<(), Errno> {
    const COUNTER: usize = size_of::<u64>();
    // SAFETY: the caller's promise.
    let size = unsafe { at.cast::<usize>().read() };
    let room = match size {
        ..=LARGEST => size / COUNTER * COUNTER,
        _ => return Err(Errno(libc::E2BIG)),
    };
    if room < 2 * COUNTER {
        return Err(Errno(libc::EINVAL)); // room for the size only
    }
    let now = now();
    let known = room.min(size_of::<T>()) - COUNTER;
    // SAFETY: C's struct has room for as many bytes, and `now` is as large.
    unsafe {
        let (from, to) = (&raw const now, at.as_ptr());
        let (from, to) = (from.cast::<u8>().add(COUNTER), to.cast::<u8>().add(COUNTER));
        std::ptr::copy_nonoverlapping(from, to, known);
        to.add(known).write_bytes(0, room - COUNTER - known);
    }
    Ok(())
}

/// Returns a name from C; `None` for null.
///
/// # Safety
/// The name must be null or end in a zero byte.
pub(crate) unsafe fn name(name: *const c_char) -> Option<String> {
    // SAFETY: the caller's promise.
    let name = (!name.is_null()).then(|| unsafe { CStr::from_ptr(name) })?;
    Some(name.to_string_lossy().into_owned())
}

/// Checks a stack size from C; 0 asks for none.
pub(crate) fn stack_size(bytes: usize) -> Result<Option<usize>, Errno> {
    match bytes {
        0 => Ok(None),
        1..LEAST_STACK => Err(Errno(libc::EINVAL)),
        LEAST_STACK..MOST_STACK => Ok(Some(bytes)),
        _ => Err(Errno(libc::ENOMEM)),
    }
}
