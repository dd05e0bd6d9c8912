//! What watches threads from below and counts on kernel threads: sanitizers, valgrind, debuggers.

use crate::original::{self, LinkMap};
use core::ffi::CStr;

/// What each sanitizer's library defines.
const SANITIZERS: [&CStr; 5] = [
    c"__asan_init",
    c"__hwasan_init",
    c"__lsan_init",
    c"__msan_init",
    c"__tsan_init",
];

/// True if `object` is a sanitizer's library, or contains one.
///
/// # Safety
/// `object` must be an entry of ld.so's list, relocated.
pub(crate) unsafe fn is_sanitizer(object: &LinkMap) -> bool {
    SANITIZERS
        .iter()
        // SAFETY: the caller's promise.
        .any(|name| unsafe { original::symbol(object, name) } != 0)
}

/// True if `program` itself calls `ptrace(2)`: it may trace what it forks.
///
/// # Safety
/// As for [`is_sanitizer`].
pub(crate) unsafe fn is_tracer(program: &LinkMap) -> bool {
    // SAFETY: the caller's promise.
    unsafe { original::imports(program, c"ptrace") }
}

/// Returns true if valgrind simulates the instructions and signals of this process.
pub(crate) fn is_under_valgrind() -> bool {
    raddle_arch::is_under_valgrind()
}
