//! libc's functions by which it maps stacks, and the program all else.

use crate::original::{self, LinkMap};
use core::ptr::with_exposed_provenance;
use raddle_kernel::callers;
use raddle_patch::wrapper;

/// Says where libc's functions are by which it maps stacks, before they are patched.
///
/// # Safety
/// `libc` must be libc's entry in ld.so's list.
pub(crate) unsafe fn know(libc: &LinkMap) {
    const CODE: usize = 128;
    let functions = [
        (&callers::MMAP, c"mmap"),
        (&callers::MPROTECT, c"mprotect"),
        (&callers::MUNMAP, c"munmap"),
        (&callers::MADVISE, c"madvise"),
    ];
    for (function, name) in functions {
        // SAFETY: the caller's promise; the function's text, and what follows it.
        let (start, code) = unsafe {
            let start = original::symbol(libc, name);
            let code = with_exposed_provenance::<[u8; CODE]>(start);
            (start, code.as_ref())
        };
        if let Some(found) = code.and_then(|code| wrapper::look_at(code)) {
            function.know(start, start + found.site, found.words);
        }
    }
}
