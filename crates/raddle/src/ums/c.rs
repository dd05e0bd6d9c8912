//! The C interface: `include/raddle_ums.h` says what each function does.
//!
//! Here a scheduler's procedure starts anew each time, as in Windows: a call that executes a worker
//! doesn't return.

use super::context::{Context, Inner, as_worker};
use super::list::CompletionList;
use super::scheduler::{Mode, claim, run};
use super::{Error, State, current, yield_now};
use libc::{EAGAIN, EBUSY, EINVAL, ENOSYS, EPERM, ETIMEDOUT};
use raddle_context::{call_restartable, restart};
use raddle_interface::{Claim, Ended};
use std::cell::Cell;
use std::ffi::{c_int, c_void};
use std::io;
use std::mem::ManuallyDrop;
use std::ptr::{null, null_mut};
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

type Procedure = extern "C" fn(c_int, usize, *mut c_void);

const STARTUP: c_int = 0;
const BLOCKED: c_int = 1;
const YIELD: c_int = 2;

/// A thread in scheduling mode.
struct Scheduling {
    procedure: Procedure,
    /// What the procedure is to be told.
    reason: Cell<(c_int, usize, *mut c_void)>,
    anchor: Cell<usize>,
}

thread_local! {
    static SCHEDULING: Cell<*const Scheduling> = const { Cell::new(null()) };
}

fn number(error: Error) -> c_int {
    match error {
        Error::Unsupported => ENOSYS,
        Error::TimedOut => ETIMEDOUT,
        Error::InUse => EBUSY,
        Error::IsScheduler | Error::IsWorker | Error::NoWorker | Error::IsLight => EPERM,
    }
}

fn error_number(error: &io::Error) -> c_int {
    let own = error.get_ref().and_then(|own| own.downcast_ref::<Error>());
    let number = own.map(|&own| number(own)).or_else(|| error.raw_os_error());
    number.unwrap_or(EINVAL)
}

/// # Safety
/// `at` must be a list of this interface.
unsafe fn list<'a>(at: *const CompletionList) -> &'a CompletionList {
    // SAFETY: the caller's promise.
    unsafe { &*at }
}

/// # Safety
/// `at` must be a context of this interface; the reference is the program's and isn't dropped.
unsafe fn context(at: *const Inner) -> ManuallyDrop<Context> {
    // SAFETY: the caller's promise.
    ManuallyDrop::new(Context(unsafe { Arc::from_raw(at) }))
}

/// See the header.
///
/// # Safety
/// As the header says.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn raddle_ums_list_create(to: *mut *const CompletionList) -> c_int {
    match CompletionList::with_event() {
        Ok(list) => {
            // SAFETY: the header's promise.
            unsafe { to.write(Box::into_raw(Box::new(list))) };
            0
        }
        Err(error) => error_number(&error),
    }
}

/// See the header.
///
/// # Safety
/// As the header says.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn raddle_ums_list_delete(at: *mut CompletionList) {
    // SAFETY: the header's promise; contexts keep what they need.
    drop(unsafe { Box::from_raw(at) });
}

/// See the header.
///
/// # Safety
/// As the header says.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn raddle_ums_list_event(at: *const CompletionList) -> c_int {
    // SAFETY: the header's promise.
    unsafe { list(at) }.0.control.event
}

/// See the header.
///
/// # Safety
/// As the header says.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn raddle_ums_dequeue(
    at: *const CompletionList,
    timeout_ms: c_int,
    first: *mut *mut Inner,
) -> c_int {
    let timeout = u64::try_from(timeout_ms).ok().map(Duration::from_millis);
    // SAFETY: the header's promise.
    let items = match unsafe { list(at) }.dequeue(timeout) {
        Ok(items) => items,
        Err(error) => return number(error),
    };
    let mut last: *mut Inner = null_mut();
    for item in items {
        item.0.next_item.store(null_mut(), Ordering::Relaxed);
        let item = Arc::as_ptr(&item.0).cast_mut(); // the program holds a reference of its own
        // SAFETY: null, or an item of this loop.
        match unsafe { last.as_ref() } {
            Some(last) => last.next_item.store(item, Ordering::Relaxed),
            // SAFETY: the header's promise.
            None => unsafe { first.write(item) },
        }
        last = item;
    }
    0
}

/// See the header.
///
/// # Safety
/// As the header says.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn raddle_ums_next_item(at: *mut Inner) -> *mut Inner {
    // SAFETY: the header's promise.
    unsafe { &*at }.next_item.load(Ordering::Relaxed)
}

/// See the header.
///
/// # Safety
/// As the header says.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn raddle_ums_context_create(
    at: *const CompletionList,
    to: *mut *const Inner,
) -> c_int {
    // SAFETY: the header's promise.
    unsafe { to.write(Arc::into_raw(Context::new(list(at)).0)) };
    0
}

/// See the header.
///
/// # Safety
/// As the header says.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn raddle_ums_context_delete(at: *const Inner) -> c_int {
    // SAFETY: the header's promise.
    let context = unsafe { context(at) };
    match context.state() {
        State::New | State::Ended => {
            drop(ManuallyDrop::into_inner(context));
            0
        }
        _ => EBUSY,
    }
}

/// See the header.
///
/// # Safety
/// As the header says.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn raddle_ums_thread_create(
    thread: *mut libc::pthread_t,
    attributes: *const libc::pthread_attr_t,
    at: *const Inner,
    start: extern "C" fn(*mut c_void) -> *mut c_void,
    argument: *mut c_void,
) -> c_int {
    // SAFETY: the header's promise.
    let made = as_worker(&*unsafe { context(at) }, || {
        // SAFETY: as above.
        match unsafe { libc::pthread_create(thread, attributes, start, argument) } {
            0 => Ok(()),
            error => Err(io::Error::from_raw_os_error(error)),
        }
    });
    made.map_or_else(|error| error_number(&error), |()| 0)
}

/// See the header.
#[unsafe(no_mangle)]
pub extern "C" fn raddle_ums_enter(procedure: Procedure, parameter: *mut c_void) -> c_int {
    let _mode = match Mode::enter() {
        Ok(mode) => mode,
        Err(error) => return number(error),
    };
    let scheduling = Scheduling {
        procedure,
        reason: Cell::new((STARTUP, 0, parameter)),
        anchor: Cell::new(0),
    };
    SCHEDULING.set(&raw const scheduling);
    let argument = (&raw const scheduling).expose_provenance();
    // SAFETY: the function keeps to what a C program's does.
    unsafe { call_restartable(scheduling.anchor.as_ptr(), call_procedure, argument) };
    SCHEDULING.set(null());
    0
}

extern "C" fn call_procedure(scheduling: usize) {
    // SAFETY: it lives in the frame of `raddle_ums_enter`, above this one.
    let scheduling = unsafe { &*std::ptr::with_exposed_provenance::<Scheduling>(scheduling) };
    let (reason, payload, parameter) = scheduling.reason.get();
    (scheduling.procedure)(reason, payload, parameter);
}

/// See the header.
///
/// # Safety
/// As the header says.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn raddle_ums_execute(at: *const Inner) -> c_int {
    // SAFETY: null, or the calling thread's own.
    let Some(scheduling) = (unsafe { SCHEDULING.get().as_ref() }) else {
        return EPERM;
    };
    // SAFETY: the header's promise.
    let context = unsafe { context(at) };
    match claim(&context) {
        Claim::Claimed => {}
        Claim::Locked => return EAGAIN,
        Claim::Busy => return EBUSY,
        Claim::Listed | Claim::Ended | Claim::New => return EINVAL,
    }
    let (ended, parameter) = run(&context);
    scheduling.reason.set(match ended {
        Ended::Yielded => {
            let parameter = std::ptr::with_exposed_provenance_mut(parameter);
            (YIELD, at.expose_provenance(), parameter)
        }
        ended => (BLOCKED, ended as usize, null_mut()),
    });
    let argument = std::ptr::from_ref(scheduling).expose_provenance();
    // SAFETY: `raddle_ums_enter` hasn't returned: it would have cleared the pointer. The frames in
    // between are the C program's, which the header warns, and this one, which owns nothing.
    unsafe { restart(scheduling.anchor.get(), call_procedure, argument) }
}

/// See the header.
#[unsafe(no_mangle)]
pub extern "C" fn raddle_ums_yield(parameter: *mut c_void) -> c_int {
    match yield_now(parameter.expose_provenance()) {
        Ok(()) => 0,
        Err(error) => number(error),
    }
}

/// See the header.
#[unsafe(no_mangle)]
pub extern "C" fn raddle_ums_current() -> *const Inner {
    current().map_or(null(), |context| Arc::as_ptr(&context.0))
}

/// See the header.
///
/// # Safety
/// As the header says.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn raddle_ums_query(at: *const Inner, class: c_int, to: *mut usize) -> c_int {
    // SAFETY: the header's promise.
    let context = unsafe { context(at) };
    let value = match class {
        0 => context.user_context(),
        1 => context.thread_id().unwrap_or(0) as usize,
        2 => usize::from(context.has_ended()),
        3 => context.0.control.state() as usize,
        _ => return EINVAL,
    };
    // SAFETY: as above.
    unsafe { to.write(value) };
    0
}

/// See the header.
///
/// # Safety
/// As the header says.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn raddle_ums_set(at: *const Inner, class: c_int, value: usize) -> c_int {
    if class != 0 {
        return EINVAL;
    }
    // SAFETY: the header's promise.
    unsafe { context(at) }.set_user_context(value);
    0
}
