//! What a wait must undo if the thread ends, or jumps away, inside a signal handler that has
//! interrupted it: as glibc's own waits do, by the clean-up handlers that `pthread_cleanup_push(3)`
//! was before C had `__attribute__((cleanup))`. glibc runs them as it unwinds.

use crate::original;
use crate::symbols::call_original;
use core::ffi::{c_int, c_void};
use core::mem::transmute;
use core::ptr::null_mut;
use raddle_kernel::signal::{self, Delivered};

type Routine = extern "C" fn(*mut c_void);

/// `struct _pthread_cleanup_buffer`.
#[repr(C)]
struct Buffer {
    routine: Option<Routine>,
    argument: *mut c_void,
    cancel_type: c_int,
    previous: *mut Buffer,
}

/// Runs signal handlers; `undo` is called with `what` if one of them doesn't return.
#[cold]
pub(crate) fn deliver_or<T>(what: &T, undo: Routine) -> Delivered {
    let mut buffer = Buffer {
        routine: None,
        argument: null_mut(),
        cancel_type: 0,
        previous: null_mut(),
    };
    let argument = core::ptr::from_ref(what).cast_mut().cast::<c_void>();
    let is_known = original::CLEANUP_PUSH.get() != 0 && original::CLEANUP_POP.get() != 0;
    if is_known {
        call_original!(
            original::CLEANUP_PUSH,
            fn(*mut Buffer, Routine, *mut c_void) -> (),
            &raw mut buffer,
            undo,
            argument
        );
    }
    let delivered = signal::deliver_outside();
    if is_known {
        call_original!(
            original::CLEANUP_POP,
            fn(*mut Buffer, c_int) -> (),
            &raw mut buffer,
            0
        );
    }
    delivered
}
