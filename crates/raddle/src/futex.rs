//! Waiting for a word to change (`futex(2)`), in the process.

use std::ptr::{from_ref, null, without_provenance};
use std::sync::atomic::AtomicU32;
use std::time::Duration;

/// Waits until the word changes from `seen`, for `timeout` at most. Spurious returns are possible.
pub(crate) fn wait(word: &AtomicU32, seen: u32, timeout: Option<Duration>) {
    let operation = libc::FUTEX_WAIT | libc::FUTEX_PRIVATE_FLAG;
    let time = timeout.map(|timeout| libc::timespec {
        tv_sec: timeout.as_secs() as libc::time_t,
        tv_nsec: timeout.subsec_nanos().into(),
    });
    let time = time.as_ref().map_or(null(), from_ref);
    // SAFETY: a live word, and a live time or none; spurious returns are allowed.
    unsafe { libc::syscall(libc::SYS_futex, word.as_ptr(), operation, seen, time) };
}

/// As [`wait`], for wakers of one of these bits, without a timeout.
pub(crate) fn wait_bits(word: &AtomicU32, seen: u32, bits: u32) {
    let operation = libc::FUTEX_WAIT_BITSET | libc::FUTEX_PRIVATE_FLAG;
    let (no_time, no_word) = (null::<libc::timespec>(), null::<u32>());
    // SAFETY: a live word; spurious returns are allowed.
    unsafe {
        libc::syscall(
            libc::SYS_futex,
            word.as_ptr(),
            operation,
            seen,
            no_time,
            no_word,
            bits,
        )
    };
}

/// Wakes all threads that wait with one of these bits on the word at this address.
pub(crate) fn wake_bits(address: usize, bits: u32) {
    let operation = libc::FUTEX_WAKE_BITSET | libc::FUTEX_PRIVATE_FLAG;
    let word = without_provenance::<u32>(address);
    let (no_time, no_word) = (null::<libc::timespec>(), null::<u32>());
    // SAFETY: the address is a name only: nothing is read there.
    unsafe {
        libc::syscall(
            libc::SYS_futex,
            word,
            operation,
            i32::MAX,
            no_time,
            no_word,
            bits,
        )
    };
}

/// Wakes one waiter of the word at this address. The word may be gone: then a waiter of another
/// word at this address looks once more.
pub(crate) fn wake(address: usize) {
    let operation = libc::FUTEX_WAKE | libc::FUTEX_PRIVATE_FLAG;
    let word = without_provenance::<u32>(address);
    // SAFETY: the address is a name only: nothing is read there.
    unsafe { libc::syscall(libc::SYS_futex, word, operation, 1) };
}
