//! A stack for the command itself, where the main thread's is limited to a few pages.
//!
//! The program that `raddle run` starts may need no more than `ulimit -s` allows; parsing options
//! and reading ELF files needs more. The thread stays the same: the kernel's state of it (its
//! parent's death signal, for instance) is the program's.

use std::process::ExitCode;
use std::sync::OnceLock;

use crate::machine;

/// Enough for every command.
const ENOUGH: usize = 1 << 20;

static BODY: OnceLock<fn() -> ExitCode> = OnceLock::new();
static RESULT: OnceLock<ExitCode> = OnceLock::new();

/// Calls `body`, on a stack of its own if the main thread's may not grow.
pub(crate) fn call(body: fn() -> ExitCode) -> ExitCode {
    if machine::limit(libc::RLIMIT_STACK) >= ENOUGH as u64 || BODY.set(body).is_err() {
        return body();
    }
    let mut stack = vec![0u128; ENOUGH / size_of::<u128>()];
    // SAFETY: zero bytes are a context to be filled in.
    let (mut here, mut there): (libc::ucontext_t, libc::ucontext_t) =
        unsafe { (std::mem::zeroed(), std::mem::zeroed()) };
    // SAFETY: the contexts and the stack live until `call_body` has returned to `here`.
    unsafe {
        if libc::getcontext(&raw mut there) != 0 {
            return body();
        }
        there.uc_stack.ss_sp = stack.as_mut_ptr().cast();
        there.uc_stack.ss_size = ENOUGH;
        there.uc_link = &raw mut here;
        libc::makecontext(&raw mut there, call_body, 0);
        libc::swapcontext(&raw mut here, &raw const there);
    }
    RESULT.get().copied().unwrap_or(ExitCode::FAILURE)
}

extern "C" fn call_body() {
    if let Some(body) = BODY.get() {
        let _ = RESULT.set(body());
    }
}
