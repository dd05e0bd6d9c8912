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
/// No struct grows larger, in bytes: what is was never set.
const LARGEST: usize = 4096;

/// A struct of options.
///
/// # Safety
/// It begins with its size, and all zero is a valid one, which asks for nothing.
pub unsafe trait Options: Copy {
    /// How large it was in the first version that had it.
    const FIRST: usize;
}

/// Reads options, of which C's may be an earlier version's, or a later one's. What a later version
/// appended must be zero.
///
/// # Safety
/// As many bytes must be readable as the first member says, and they must be a `T` if there are
/// enough.
pub unsafe fn read<T: Options>(at: NonNull<T>) -> Result<T, Errno> {
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
        return Err(Errno(libc::E2BIG)); // asks for what only a later version knows
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
/// It is a size, to which nothing is written, and counters of eight bytes after it.
pub unsafe trait Counters: Copy {}

/// Stores counters in a struct of C's, which may be an earlier version's, or a later one's: as many
/// as it has room for. Those that only a later version knows become 0.
///
/// # Safety
/// As many bytes must be writable as the first member says.
pub unsafe fn store<T: Counters>(at: NonNull<T>, now: impl FnOnce() -> T) -> Result<(), Errno> {
    const COUNTER: usize = size_of::<u64>();
    // SAFETY: the caller's promise.
    let size = unsafe { at.cast::<usize>().read() };
    let room = match size {
        ..=LARGEST => size / COUNTER * COUNTER,
        _ => return Err(Errno(libc::E2BIG)),
    };
    if room < 2 * COUNTER {
        return Err(Errno(libc::EINVAL)); // for the size, and nothing else
    }
    let now = now();
    let known = room.min(size_of::<T>()) - COUNTER;
    // SAFETY: C's struct has room for so much, and `now` is as large.
    unsafe {
        let (from, to) = (&raw const now, at.as_ptr());
        let (from, to) = (from.cast::<u8>().add(COUNTER), to.cast::<u8>().add(COUNTER));
        std::ptr::copy_nonoverlapping(from, to, known);
        to.add(known).write_bytes(0, room - COUNTER - known);
    }
    Ok(())
}

/// A name that C gave, or null.
///
/// # Safety
/// It must end in a zero byte if it isn't null.
pub unsafe fn name(name: *const c_char) -> Option<String> {
    // SAFETY: the caller's promise.
    let name = (!name.is_null()).then(|| unsafe { CStr::from_ptr(name) })?;
    Some(name.to_string_lossy().into_owned())
}

/// A stack's size that was asked for; 0 asks for none.
pub fn stack_size(bytes: usize) -> Result<Option<usize>, Errno> {
    match bytes {
        0 => Ok(None),
        1..LEAST_STACK => Err(Errno(libc::EINVAL)),
        LEAST_STACK..MOST_STACK => Ok(Some(bytes)),
        _ => Err(Errno(libc::ENOMEM)),
    }
}
