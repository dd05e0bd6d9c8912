//! The C interface, documented in `raddle_ums.h` of `libraddle`.
//!
//! Null pointers are checked; any other wrong pointer is undefined behaviour of the caller.
//!
//! Here a scheduler's procedure starts anew each time, as in Windows: a call that executes a worker
//! doesn't return.

use super::colour::spread;
use super::context::{Context, Inner, as_worker};
use super::light::spawn_migrating_boxed;
use super::list::CompletionList;
use super::scheduler::{Mode, run_alone};
use super::{Error, State, current, yield_now};
use libc::{EAGAIN, EBUSY, EFAULT, EINVAL, ENOMEM, ENOSYS, EPERM, ETIMEDOUT};
use raddle_arch::{call_restartable, restart};
use raddle_interface::{Claim, Ended};
use std::cell::Cell;
use std::ffi::{c_int, c_void};
use std::io;
use std::mem::{ManuallyDrop, MaybeUninit};
use std::ptr::{null, null_mut};
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

type Procedure = extern "C" fn(c_int, usize, *mut c_void);
type Start = unsafe extern "C-unwind" fn(*mut c_void) -> *mut c_void;
/// A pointer of the C program's, which only the program uses.
#[derive(Clone, Copy)]
pub(super) struct Theirs(pub(super) *mut c_void);

// SAFETY: the pointer is only passed back, on the threads that the header names.
unsafe impl Send for Theirs {}
// SAFETY: as above.
unsafe impl Sync for Theirs {}

/// A pointer to a result, or null.
type Out<'a, T> = Option<&'a mut MaybeUninit<T>>;

const STARTUP: c_int = 0;
const BLOCKED: c_int = 1;
const YIELD: c_int = 2;

/// A thread in scheduling mode.
struct Scheduling {
    procedure: Procedure,
    /// The arguments of the procedure's next call.
    reason: Cell<(c_int, usize, *mut c_void)>,
    anchor: Cell<usize>,
}

thread_local! {
    static SCHEDULING: Cell<*const Scheduling> = const { Cell::new(null()) };
}

/// Returns the errno value for C.
pub(super) fn number(error: Error) -> c_int {
    -match error {
        Error::Unsupported => ENOSYS,
        Error::TimedOut => ETIMEDOUT,
        Error::InUse => EBUSY,
        Error::IsScheduler | Error::IsWorker | Error::NoWorker | Error::IsLight => EPERM,
    }
}

fn error_number(error: &io::Error) -> c_int {
    let own = error.get_ref().and_then(|own| own.downcast_ref::<Error>());
    let number = own.map(|&own| number(own));
    let other = match error.kind() {
        io::ErrorKind::OutOfMemory => ENOMEM,
        _ => EINVAL,
    };
    number.unwrap_or_else(|| -error.raw_os_error().unwrap_or(other))
}

/// Returns the context of an `Inner` that C named; C keeps its reference, so it isn't dropped.
fn context(inner: &Inner) -> ManuallyDrop<Context> {
    // SAFETY: C's contexts are made by `raddle_ums_context_create`, which leaks a reference.
    ManuallyDrop::new(Context(unsafe { Arc::from_raw(inner) }))
}

/// See the header.
#[unsafe(no_mangle)]
pub(super) extern "C" fn raddle_ums_list_create(to: Out<'_, *mut CompletionList>) -> c_int {
    let Some(to) = to else { return -EFAULT };
    match CompletionList::with_event() {
        Ok(list) => {
            to.write(Box::into_raw(Box::new(list)));
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
pub(super) unsafe extern "C" fn raddle_ums_list_delete(at: *mut CompletionList) {
    if !at.is_null() {
        // SAFETY: the header's promise; contexts hold the list's inner part.
        drop(unsafe { Box::from_raw(at) });
    }
}

/// See the header.
#[unsafe(no_mangle)]
pub(super) extern "C" fn raddle_ums_list_event(list: Option<&CompletionList>) -> c_int {
    list.map_or(-EFAULT, |list| list.0.control.event)
}

/// See the header.
#[unsafe(no_mangle)]
pub(super) extern "C" fn raddle_ums_dequeue(
    list: Option<&CompletionList>,
    timeout_ms: c_int,
    first: Out<'_, *mut Inner>,
) -> c_int {
    let (Some(list), Some(first)) = (list, first) else {
        return -EFAULT;
    };
    let timeout = u64::try_from(timeout_ms).ok().map(Duration::from_millis);
    let items = match list.dequeue(timeout) {
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
            None => _ = first.write(item),
        }
        last = item;
    }
    0
}

/// See the header.
#[unsafe(no_mangle)]
pub(super) extern "C" fn raddle_ums_next_item(item: Option<&Inner>) -> *mut Inner {
    item.map_or(null_mut(), |item| item.next_item.load(Ordering::Relaxed))
}

/// See the header.
#[unsafe(no_mangle)]
pub(super) extern "C" fn raddle_ums_context_create(
    list: Option<&CompletionList>,
    to: Out<'_, *const Inner>,
) -> c_int {
    let (Some(list), Some(to)) = (list, to) else {
        return -EFAULT;
    };
    to.write(Arc::into_raw(Context::new(list).0));
    0
}

/// See the header.
///
/// # Safety
/// As the header says.
#[unsafe(no_mangle)]
pub(super) unsafe extern "C" fn raddle_ums_context_delete(inner: Option<&Inner>) -> c_int {
    let Some(context) = inner.map(context) else {
        return -EFAULT;
    };
    match context.state() {
        State::New | State::Ended => {
            drop(ManuallyDrop::into_inner(context));
            0
        }
        _ => -EBUSY,
    }
}

/// The start function of a worker of C's, and its argument.
struct Beginning {
    start: Start,
    argument: *mut c_void,
}

extern "C-unwind" fn begin(at: *mut c_void) -> *mut c_void {
    // SAFETY: made for this thread by `raddle_ums_thread_create`.
    let beginning = unsafe { Box::from_raw(at.cast::<Beginning>()) };
    // Nothing is left to drop from here on: the thread may exit anywhere.
    let Beginning { start, argument } = *beginning;
    let mut result = null_mut();
    // SAFETY: the header's promise.
    spread(&mut || result = unsafe { start(argument) });
    result
}

/// See the header.
///
/// # Safety
/// As the header says.
#[unsafe(no_mangle)]
pub(super) unsafe extern "C" fn raddle_ums_thread_create(
    thread: Out<'_, libc::pthread_t>,
    attributes: *const libc::pthread_attr_t,
    inner: Option<&Inner>,
    start: Option<Start>,
    argument: *mut c_void,
) -> c_int {
    let (Some(thread), Some(inner), Some(start)) = (thread, inner, start) else {
        return -EFAULT;
    };
    let context = context(inner);
    let beginning = Box::into_raw(Box::new(Beginning { start, argument }));
    let made = as_worker(&context, || {
        // SAFETY: the attributes are C's, and `begin` frees what it is passed.
        match unsafe { pthread_create(thread, attributes, begin, beginning.cast()) } {
            0 => Ok(()),
            error => Err(io::Error::from_raw_os_error(error)),
        }
    });
    made.map_or_else(
        |error| {
            // SAFETY: no thread has got the box.
            drop(unsafe { Box::from_raw(beginning) });
            error_number(&error)
        },
        |()| 0,
    )
}

unsafe extern "C" {
    /// libc's `pthread_create`, for a function that `pthread_exit(3)` and cancellation may unwind.
    #[link_name = "pthread_create"]
    fn pthread_create(
        thread: &mut MaybeUninit<libc::pthread_t>,
        attributes: *const libc::pthread_attr_t,
        start: Start,
        argument: *mut c_void,
    ) -> c_int;
}

/// See the header.
#[unsafe(no_mangle)]
pub(super) extern "C" fn raddle_ums_enter(
    procedure: Option<Procedure>,
    parameter: *mut c_void,
) -> c_int {
    let Some(procedure) = procedure else {
        return -EFAULT;
    };
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
    // SAFETY: `call_procedure` has the signature that is expected.
    unsafe { call_restartable(scheduling.anchor.as_ptr(), call_procedure, argument) };
    SCHEDULING.set(null());
    0
}

extern "C" fn call_procedure(scheduling: usize) {
    // SAFETY: the value lives in the frame of `raddle_ums_enter`, above this one.
    let scheduling = unsafe { &*std::ptr::with_exposed_provenance::<Scheduling>(scheduling) };
    let (reason, payload, parameter) = scheduling.reason.get();
    (scheduling.procedure)(reason, payload, parameter);
}

/// See the header.
///
/// # Safety
/// As the header says: the caller's frames up to its procedure are abandoned.
#[unsafe(no_mangle)]
pub(super) unsafe extern "C" fn raddle_ums_execute(inner: Option<&Inner>) -> c_int {
    let Some(inner) = inner else { return -EFAULT };
    // SAFETY: null, or the calling thread's own.
    let Some(scheduling) = (unsafe { SCHEDULING.get().as_ref() }) else {
        return -EPERM;
    };
    let context = context(inner);
    match inner.claim_by(null_mut()) {
        Claim::Claimed => {}
        Claim::Locked => return -EAGAIN,
        Claim::Busy => return -EBUSY,
        Claim::Listed | Claim::Ended | Claim::New => return -EINVAL,
    }
    // SAFETY: the worker was claimed above.
    let (ended, parameter) = unsafe { run_alone(&context) };
    scheduling.reason.set(match ended {
        Ended::Yielded => {
            let payload = std::ptr::from_ref(inner).expose_provenance();
            let parameter = std::ptr::with_exposed_provenance_mut(parameter);
            (YIELD, payload, parameter)
        }
        ended => (BLOCKED, ended as usize, null_mut()),
    });
    let argument = std::ptr::from_ref(scheduling).expose_provenance();
    // SAFETY: `raddle_ums_enter` hasn't returned: it would have cleared the pointer. The frames in
    // between are the C program's, which the header abandons, and this one, which owns nothing.
    unsafe { restart(scheduling.anchor.get(), call_procedure, argument) }
}

/// See the header.
///
/// # Safety
/// As the header says.
#[unsafe(no_mangle)]
pub(super) unsafe extern "C" fn raddle_ums_light_create(
    inner: Option<&Inner>,
    stack_bytes: usize,
    run: Option<unsafe extern "C" fn(*mut c_void)>,
    argument: *mut c_void,
) -> c_int {
    let (Some(context), Some(run)) = (inner.map(context), run) else {
        return -EFAULT;
    };
    let argument = Theirs(argument);
    // SAFETY: the header's promise.
    let run = Box::new(move || unsafe { run({ argument }.0) });
    // SAFETY: the header's promise.
    let started = unsafe { spawn_migrating_boxed(stack_bytes, &context, run) };
    started.map_or_else(|error| error_number(&error), |()| 0)
}

/// See the header.
#[unsafe(no_mangle)]
pub(super) extern "C" fn raddle_ums_yield(parameter: *mut c_void) -> c_int {
    match yield_now(parameter.expose_provenance()) {
        Ok(()) => 0,
        Err(error) => number(error),
    }
}

/// See the header.
#[unsafe(no_mangle)]
pub(super) extern "C" fn raddle_ums_current() -> *const Inner {
    current().map_or(null(), |context| Arc::as_ptr(&context.0))
}

/// See the header.
#[unsafe(no_mangle)]
pub(super) extern "C" fn raddle_ums_query(
    inner: Option<&Inner>,
    class: c_int,
    to: Out<'_, usize>,
) -> c_int {
    let (Some(context), Some(to)) = (inner.map(context), to) else {
        return -EFAULT;
    };
    to.write(match class {
        0 => context.user_context(),
        1 => context.thread_id().unwrap_or(0) as usize,
        2 => usize::from(context.has_ended()),
        3 => context.0.control.state.get() as usize,
        4 => context.pthread().map_or(0, |thread| thread as usize),
        5 => match context.niceness() {
            Ok(niceness) => niceness as usize,
            Err(error) => return error_number(&error),
        },
        6 => match context.cpus() {
            Ok(cpus) => cpus
                .iter()
                .filter(|&&cpu| cpu < 64)
                .map(|cpu| 1 << cpu)
                .sum(),
            Err(error) => return error_number(&error),
        },
        _ => return -EINVAL,
    });
    0
}

/// See the header.
#[unsafe(no_mangle)]
pub(super) extern "C" fn raddle_ums_set(
    inner: Option<&Inner>,
    class: c_int,
    value: usize,
) -> c_int {
    let Some(context) = inner.map(context) else {
        return -EFAULT;
    };
    let set = match class {
        0 => {
            context.set_user_context(value);
            Ok(())
        }
        5 => context.set_niceness(value as c_int),
        6 => {
            let cpus: Vec<_> = (0..64).filter(|cpu| value >> cpu & 1 != 0).collect();
            context.set_cpus(&cpus)
        }
        _ => return -EINVAL,
    };
    set.map_or_else(|error| error_number(&error), |()| 0)
}
