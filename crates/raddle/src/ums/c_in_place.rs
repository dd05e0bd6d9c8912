//! The C interface of schedulers with decisions in place, and of claims.
//!
//! A claim in C is a reference to the context: the reference of its [`Claimed`].

use super::c::{Theirs, number};
use super::claimed::Claimed;
use super::context::{Context, Inner};
use super::list::CompletionList;
use super::{Error, Reason, Why, enter_in_place};
use libc::{EBUSY, EFAULT, EINVAL};
use raddle_interface::WorkerState;
use std::ffi::{c_int, c_void};
use std::ptr::{null_mut, with_exposed_provenance_mut};
use std::sync::Arc;

type Decision = extern "C" fn(*mut c_void, c_int, usize, *mut c_void) -> *const Inner;

const STARTUP: c_int = 0;
const BLOCKED: c_int = 1;
const YIELD: c_int = 2;
const LOCKED: c_int = 3;

/// Converts a claim for C: to the context's address.
fn into_c(worker: Claimed) -> usize {
    Arc::into_raw(worker.into_context().0).expose_provenance()
}

/// See the header.
#[unsafe(no_mangle)]
pub(super) extern "C" fn raddle_ums_enter_in_place(
    decision: Option<Decision>,
    own: *mut c_void,
) -> c_int {
    let Some(decision) = decision else {
        return -EFAULT;
    };
    let Ok(list) = CompletionList::new() else {
        return number(Error::Unsupported);
    }; // C's functions name their lists, and don't see this one
    let (own, mut failed) = (Theirs(own), false);
    let entered = enter_in_place(&list, |scheduler, reason| {
        let own = &own; // captures the whole, which is `Send`
        let (mut reason, mut payload, mut parameter) = match reason {
            Reason::Startup => (STARTUP, 0, null_mut()),
            Reason::Blocked { cause, .. } => (BLOCKED, cause.number(), null_mut()),
            Reason::Yielded { worker, parameter } => (
                YIELD,
                into_c(worker),
                with_exposed_provenance_mut(parameter),
            ),
        };
        loop {
            let next = decision(own.0, reason, payload, parameter);
            if next.is_null() {
                return scheduler.leave();
            }
            // SAFETY: the header's promise: the pointer names a context that is claimed.
            if unsafe { &*next }.control.state.get() != WorkerState::RUNNING {
                failed = true;
                return scheduler.leave();
            }
            // SAFETY: as above; the claim's reference is passed back.
            let next = Claimed::of(Context(unsafe { Arc::from_raw(next) }));
            match scheduler.resume(next) {
                Ok(next) => return next,
                Err(locked) => {
                    (reason, payload, parameter) = (LOCKED, into_c(locked), null_mut());
                }
            }
        }
    });
    match entered {
        Err(error) => number(error),
        Ok(()) if failed => -EINVAL,
        Ok(()) => 0,
    }
}

/// See the header.
#[unsafe(no_mangle)]
pub(super) extern "C" fn raddle_ums_claim(inner: Option<&Inner>) -> c_int {
    let Some(inner) = inner else { return -EFAULT };
    // SAFETY: the program's context.
    match unsafe { Context::borrowed(inner) }.claim() {
        Ok(worker) => {
            into_c(worker);
            0
        }
        Err(refused) if matches!(refused.why, Why::Busy | Why::Locked) => -EBUSY,
        Err(_) => -EINVAL,
    }
}

/// See the header.
///
/// # Safety
/// As the header says.
#[unsafe(no_mangle)]
pub(super) unsafe extern "C" fn raddle_ums_release(inner: Option<&Inner>) -> c_int {
    let Some(inner) = inner else { return -EFAULT };
    if inner.control.state.get() != WorkerState::RUNNING {
        return -EINVAL;
    }
    // SAFETY: the header's promise: the caller has claimed the context, so there is a reference.
    drop(Claimed::of(Context(unsafe { Arc::from_raw(inner) })));
    0
}
