//! Who watches threads from below, and counts on kernel threads: sanitizers, valgrind, debuggers.

use crate::original::{self, LinkMap};
use core::arch::asm;
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
pub unsafe fn is_sanitizer(object: &LinkMap) -> bool {
    SANITIZERS
        .iter()
        // SAFETY: the caller's promise.
        .any(|name| unsafe { original::symbol(object, name) } != 0)
}

/// True if `program` itself calls `ptrace(2)`: it may trace what it forks.
///
/// # Safety
/// As for [`is_sanitizer`].
pub unsafe fn is_tracer(program: &LinkMap) -> bool {
    // SAFETY: the caller's promise.
    unsafe { original::imports(program, c"ptrace") }
}

/// valgrind's own question (`valgrind.h`, RUNNING_ON_VALGRIND): rotations that change nothing on a
/// CPU, and that valgrind recognises. It simulates instructions and signals by itself.
pub fn is_under_valgrind() -> bool {
    const RUNNING_ON_VALGRIND: u64 = 0x1001;
    let request = [RUNNING_ON_VALGRIND, 0, 0, 0, 0, 0];
    let mut answer = 0u64;
    // SAFETY: rdi is rotated by 128 bits in all; valgrind reads the request and writes rdx.
    unsafe {
        asm!(
            "rol rdi, 3",
            "rol rdi, 13",
            "rol rdi, 61",
            "rol rdi, 51",
            "xchg rbx, rbx",
            in("rax") request.as_ptr(),
            inout("rdx") answer,
            inout("rdi") 0u64 => _,
        );
    }
    answer != 0
}
