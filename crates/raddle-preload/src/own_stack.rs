//! Work that needs more stack than a thread may have left.

use raddle_sys::mem;

/// Enough to plan the patches of a library.
const SIZE: usize = 512 * 1024;

/// Calls `function(argument)` on a stack of its own. False, and nothing is called, if there is no
/// memory for one.
pub(crate) fn call(function: extern "C" fn(usize), argument: usize) -> bool {
    let Ok(stack) = mem::map(SIZE) else {
        return false;
    };
    // SAFETY: the end of fresh memory; it is given back when nothing is on it any more.
    unsafe {
        raddle_arch::call_on(stack.wrapping_add(SIZE), function, argument);
        mem::unmap(stack, SIZE);
    }
    true
}
