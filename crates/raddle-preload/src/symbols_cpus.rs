//! How many CPUs there are, and which one this is: by libc's functions, as
//! [`raddle_engine::shown`] says.
//!
//! The number of CPUs that the machine could have (`_SC_NPROCESSORS_CONF`) stays the machine's:
//! programs size tables of CPUs by it.

use crate::original;
use crate::symbols::call_original;
use core::ffi::{c_int, c_long, c_uint};
use core::mem::transmute;
use raddle_engine::{PROCESS, shown};
use raddle_kernel::user::User;
use raddle_sys::{nr, sys};

/// Returns true if a mask that libc has filled for the process's only thread may have CPUs that are
/// to be hidden. Once there are more threads, the system call has done so.
fn hides() -> bool {
    shown::most().is_some() && !PROCESS.is_started()
}

/// Hides CPUs of a mask that libc has filled.
///
/// # Safety
/// `mask` points to `bytes` bytes that may be written, as multiples of 8.
unsafe fn hide(bytes: usize, mask: *mut u64) {
    // SAFETY: the caller's promise; libc has written there.
    shown::keep_shown(unsafe { core::slice::from_raw_parts_mut(mask, bytes / 8) });
}

/// `sched_getaffinity(2)`.
///
/// # Safety
/// As glibc says.
#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn sched_getaffinity(
    pid: c_int,
    bytes: usize,
    mask: *mut u64,
) -> c_int {
    let result = call_original!(
        original::GETAFFINITY,
        fn(c_int, usize, *mut u64) -> c_int,
        pid,
        bytes,
        mask
    );
    // SAFETY: a plain query.
    let is_own = || pid == 0 || pid as isize == unsafe { sys!(nr::__NR_getpid) };
    // Runtimes ask often: Mono does so six times for each answer of a server.
    if result == 0 && hides() && is_own() {
        // SAFETY: the caller's mask, which libc has filled.
        unsafe { hide(bytes, mask) };
    }
    result
}

/// `pthread_getaffinity_np(3)`.
///
/// # Safety
/// As glibc says.
#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn pthread_getaffinity_np(
    thread: u64,
    bytes: usize,
    mask: *mut u64,
) -> c_int {
    let result = call_original!(
        original::PTHREAD_GETAFFINITY,
        fn(u64, usize, *mut u64) -> c_int,
        thread,
        bytes,
        mask
    );
    if result == 0 && hides() {
        // SAFETY: the caller's mask, which libc has filled.
        unsafe { hide(bytes, mask) };
    }
    result
}

fn at_most_shown<T: Ord + From<u16>>(count: T) -> T {
    match shown::most() {
        Some(most) => count.min(T::from(most.min(u32::from(u16::MAX)) as u16)),
        None => count,
    }
}

/// `sysconf(3)`.
#[unsafe(no_mangle)]
pub(crate) extern "C" fn sysconf(name: c_int) -> c_long {
    const NPROCESSORS_ONLN: c_int = 84;
    let value = call_original!(original::SYSCONF, fn(c_int) -> c_long, name);
    match name {
        NPROCESSORS_ONLN => at_most_shown(value),
        _ => value,
    }
}

/// `get_nprocs(3)`.
#[unsafe(no_mangle)]
pub(crate) extern "C" fn get_nprocs() -> c_int {
    at_most_shown(call_original!(original::GET_NPROCS, fn() -> c_int,))
}

/// `sched_getcpu(3)`.
#[unsafe(no_mangle)]
pub(crate) extern "C" fn sched_getcpu() -> c_int {
    let cpu = call_original!(original::SCHED_GETCPU, fn() -> c_int,);
    match u32::try_from(cpu) {
        Ok(number) => shown::in_place_of(number) as c_int,
        Err(_) => cpu,
    }
}

/// `getcpu(2)`.
///
/// # Safety
/// As glibc says.
#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn getcpu(cpu: *mut c_uint, node: *mut c_uint) -> c_int {
    let result = call_original!(
        original::GETCPU,
        fn(*mut c_uint, *mut c_uint) -> c_int,
        cpu,
        node
    );
    if result == 0 && shown::most().is_some() {
        let at = User::<u32>::at(cpu.expose_provenance());
        if let Ok(number) = at.read() {
            let _ = at.write(&shown::in_place_of(number));
        }
    }
    result
}
