//! Light workers: a stack and a context, without a thread of their own.
//!
//! A light worker runs on a *host*, a thread that is a worker to the runtime. While the light
//! worker runs or is blocked there, the host is that worker in every respect: the runtime finds its
//! control in the host's thread, lists it when it is woken or has ended, and leaves tokens with it.
//!
//! A light worker that *keeps its host* has the host to itself from its first execution to its end,
//! and is a full worker of the runtime meanwhile. A light worker that *migrates* gives its host
//! away:
//!
//! 1. A light worker that doesn't run is *at rest* (its control names no thread, and `on_cpu` is 0
//!    once its stack was left), or it sits in its host, as a worker in its thread. Each is at rest
//!    before its first execution.
//! 2. A scheduler that executes one at rest gives it an idle host, which becomes that worker; then
//!    it is executed like any other ([`give_host`]).
//! 3. A migrating worker may yield, decide in its scheduler's place, and choose one at rest. It
//!    then gives that worker its own host and the token, notes this in both controls, rests, and
//!    switches: no thread is left. The runtime does that, in the middle of the yield. In all other
//!    cases the worker stays in its host.
//! 4. A light worker that has ended goes to its host's own stack, where the next one is decided
//!    ([`super::hosts`]).
//!
//! So a light worker that has just yielded is locked for its next claimer: its control names a host
//! that isn't this worker any more, or no host and `on_cpu` is 1, until the switch has stored 0.

use super::context::{Context, Inner};
use super::list::CompletionList;
use super::{Error, hosts};
use crate::completion::{self, Completion};
use crate::light::{STACK_SIZE, Shell, take_shell};
use crate::runtime;
use raddle_arch::{Context as Stack, prepare, switch_keep_fs};
use raddle_interface::{Claim, SchedulerToken, ThreadView, WorkerControl, WorkerState};
use raddle_sched::worker_state::is_locked_or_rests;
use std::cell::Cell;
use std::ffi::c_void;
use std::io;
use std::ptr::from_ref;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

/// Bytes between the beginnings of two light workers' frames: more than a yield touches.
const STEP: usize = 192;
/// The number of different beginnings.
const PLACES: usize = 16;

/// A light worker's closure and stack, for its start and its end.
#[derive(Default)]
pub(super) struct Rest {
    run: Cell<Option<Box<dyn FnOnce() + Send>>>,
    shell: Cell<Option<Shell>>,
}

// SAFETY: the cells are used by the light worker or by its one host; their values are `Send`.
unsafe impl Send for Rest {}
// SAFETY: as above.
unsafe impl Sync for Rest {}

impl Inner {
    /// Prepares a light worker that hasn't been listed yet; the runtime holds the context.
    fn set_up(&self, shell: Shell, kind: u32, run: Box<dyn FnOnce() + Send>) {
        static NEXT: AtomicUsize = AtomicUsize::new(0);
        let place = NEXT.fetch_add(1, Ordering::Relaxed) % PLACES;
        let top = shell.top().wrapping_sub((place + 1) * STEP);
        // SAFETY: the upper end of an unused stack, which is larger; aligned to 64 bytes.
        let stack = unsafe {
            top.cast::<*const Self>().write(self);
            prepare(top, first_instruction as *const () as usize)
        };
        self.control.stack.set(stack.cast());
        self.rest.run.set(Some(run));
        self.rest.shell.set(Some(shell));
        self.control.kind.store(kind, Ordering::Relaxed); // before it is listed
    }

    /// Switches to the light worker, which is at rest, from its host's own stack.
    ///
    /// # Safety
    /// The caller must be the worker's host, and `base` must be the cell of its own stack.
    pub(super) unsafe fn continue_from(&self, base: *mut Stack, left: *mut u32) {
        // SAFETY: the caller's promise.
        unsafe { switch_keep_fs(base, self.control.stack.get().cast(), left) };
    }

    /// Gives back the stack of a light worker that has returned; its host has left the stack.
    pub(super) fn release_stack(&self) {
        drop(self.rest.shell.take());
    }

    /// Marks the light worker as over: its host has taken the token, and decides.
    pub(super) fn is_over(&self) {
        let kind = WorkerControl::LIGHT_IS_OVER;
        self.control.kind.store(kind, Ordering::Relaxed);
    }

    /// Returns true for a light worker that was marked as over.
    #[inline(always)]
    pub(super) fn was_over(&self) -> bool {
        self.control.kind.load(Ordering::Relaxed) == WorkerControl::LIGHT_IS_OVER
    }

    /// Returns true while the worker, which the caller has claimed, can't be executed.
    #[inline(always)]
    pub(super) fn is_locked(&self) -> bool {
        is_locked_or_rests(&self.control.thread, &self.control.on_cpu, |thread| {
            // SAFETY: the runtime's threads are in type-stable memory.
            !unsafe { ThreadView::at(thread) }.is_locked_as(&raw const self.control)
        })
    }

    /// Claims the worker for the calling thread. `own` is the calling thread if it is a worker that
    /// decides, which may claim itself; else null.
    #[inline(always)]
    pub(super) fn claim_by(&self, own: *mut c_void) -> Claim {
        let control = &self.control;
        let is_own = || !own.is_null() && control.thread.load(Ordering::Relaxed) == own;
        control.state.claim(|| !is_own() && self.is_locked())
    }

    /// Prefetches the memory that a switch to a light worker at rest touches.
    #[inline(always)]
    pub(super) fn prefetch_rest(&self) {
        let at = self.control.stack.get().cast_const().cast::<u8>();
        raddle_arch::prefetch(at);
        raddle_arch::prefetch(at.wrapping_add(64));
    }

    /// Returns the address of the control, which is the first part.
    #[inline(always)]
    fn as_control(&self) -> *mut WorkerControl {
        from_ref(self).cast_mut().cast()
    }
}

/// Makes the calling host the worker `next`, which is at rest, from the moment when the host gets
/// the token. The host is on its own stack and has taken the token.
pub(super) fn host_next(next: &Inner, thread: *mut c_void, token: &SchedulerToken) {
    next.control.thread.store(thread, Ordering::Relaxed); // claimed: no other thread looks
    token.worker.set(next.as_control());
}

/// Gives a claimed light worker at rest an idle host to be executed on. Returns the host's thread.
/// Waits if there is none and none can be made.
#[cold]
pub(super) fn give_host(inner: &Inner) -> *mut c_void {
    let (host, thread) = hosts::take();
    host.runs_next(inner);
    inner.control.thread.store(thread, Ordering::Relaxed); // as in `host_next`
    // SAFETY: the host was claimed, and isn't locked.
    unsafe { ThreadView::at(thread).becomes(inner.as_control()) };
    thread
}

raddle_arch::first_instruction_with_argument! {
    /// The first instruction of a light worker: its `Inner` is at the stack pointer.
    first_instruction => main
}

extern "C" fn main(own: &Inner) -> ! {
    if let Some(run) = own.rest.run.take() {
        run(); // it catches panics
    }
    // SAFETY: the worker is never continued; the host frees the stack, the runtime holds the
    // context.
    unsafe {
        hosts::end(
            own,
            own.control.stack.as_ptr().cast(),
            own.control.on_cpu.as_ptr(),
        )
    };
    unreachable!("a light worker came back after its end")
}

/// Starts a light worker that runs `f`: it begins on a used thread and ends without ending that
/// thread, so that it is the quickest to make and to end. It is listed at once, and runs when a
/// scheduler executes it. Returns the context and a completion with the result.
///
/// Schedulers execute a light worker like any other. The differences are:
///
/// - Its thread is its own until its end, with the thread-locals that earlier workers have left
///   there; their destructors don't run at its end.
/// - It has no thread id ([`Context::thread_id`]) and no niceness, it can't become a fiber, and it
///   must not call `pthread_exit`.
///
/// [`spawn_migrating`] makes light workers with the quickest yield.
///
/// ```
/// # if raddle::runtime::status() != raddle::runtime::Status::Green { return Ok(()); }
/// use raddle::ums::{self, CompletionList, Reason};
/// let list = CompletionList::new()?;
/// let count = || (0..3usize).map(|i| { ums::yield_now(i).unwrap(); i }).sum::<usize>();
/// let (_, result) = ums::spawn_light(&list, count)?;
/// let schedules = raddle::spawn(move || {
///     ums::enter_in_place(&list, |scheduler, reason| match reason {
///         Reason::Startup => {
///             let listed = scheduler.list().dequeue(None).expect("a worker").next().expect("it");
///             scheduler.execute(listed).expect("it is new")
///         }
///         Reason::Yielded { worker, .. } => scheduler.resume(worker).expect("it is ours"),
///         Reason::Blocked { .. } => scheduler.leave(), // its end
///     })
/// });
/// schedules.join().unwrap()?;
/// assert_eq!(result.wait()?, 3);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
///
/// # Errors
/// [`io::ErrorKind::OutOfMemory`] if there is no memory for the stack, and
/// [`io::ErrorKind::Unsupported`] without an engine.
pub fn spawn_light<T: Send + 'static>(
    list: &CompletionList,
    f: impl FnOnce() -> T + Send + 'static,
) -> io::Result<(Context, Completion<T>)> {
    let context = Context::new(list);
    let result = spawn_light_with(STACK_SIZE, &context, f)?;
    Ok((context, result))
}

/// As [`spawn_light`], with a context of the caller's, and a stack of at least so many bytes.
///
/// ```
/// # if raddle::runtime::status() != raddle::runtime::Status::Green { return Ok(()); }
/// # use raddle::ums::{self, CompletionList, Context};
/// let context = Context::new(&CompletionList::new()?);
/// let _result = ums::spawn_light_with(16 << 10, &context, || 5)?;
/// assert!(ums::spawn_light_with(16 << 10, &context, || 5).is_err()); // it has a worker
/// # Ok::<(), std::io::Error>(())
/// ```
///
/// # Errors
/// Those of [`spawn_light`], and [`Error::InUse`].
pub fn spawn_light_with<T: Send + 'static>(
    stack_bytes: usize,
    context: &Context,
    f: impl FnOnce() -> T + Send + 'static,
) -> io::Result<Completion<T>> {
    let (promise, completion) = completion::pair();
    let run = Box::new(move || promise.run(f));
    start(stack_bytes, context, WorkerControl::KEEPS_HOST, run)?;
    Ok(completion)
}

/// As [`spawn_light`], for a worker that *migrates*: one without a thread of its own. It costs only
/// a stack, and its yields to other migrating workers are the quickest, if its scheduler lets
/// workers decide ([`super::enter_in_place`]).
///
/// - Its thread-locals are those of a thread that it shares with others, one after another. Between
///   two calls of [`super::yield_now`] they stay the same, also over waits; a yield may change
///   them, and other workers may have used them meanwhile. That goes for all that libc knows by
///   thread: owners of recursive locks, `errno`, `pthread_self`, signal masks.
/// - If its scheduler decides itself, a yield costs as much as any worker's.
/// - In the child of a fork a worker that was at rest after a yield still has its state.
///
/// ```
/// # if raddle::runtime::status() != raddle::runtime::Status::Green { return Ok(()); }
/// use raddle::ums::{self, CompletionList, Reason};
/// let list = CompletionList::new()?;
/// let count = || (0..3usize).map(|i| { ums::yield_now(i).unwrap(); i }).sum::<usize>();
/// // SAFETY: it holds two numbers over its yields.
/// let (_, result) = unsafe { ums::spawn_migrating(&list, count)? };
/// let schedules = raddle::spawn(move || {
///     ums::enter_in_place(&list, |scheduler, reason| match reason {
///         Reason::Startup => {
///             let listed = scheduler.list().dequeue(None).expect("a worker").next().expect("it");
///             scheduler.execute(listed).expect("it is new")
///         }
///         Reason::Yielded { worker, .. } => scheduler.resume(worker).expect("it is ours"),
///         Reason::Blocked { .. } => scheduler.leave(), // its end
///     })
/// });
/// schedules.join().unwrap()?;
/// assert_eq!(result.wait()?, 3);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
///
/// # Safety
/// `f` must run as if it were sent to another thread at each [`super::yield_now`]: over a yield it
/// holds nothing that isn't `Send`, no reference to what isn't `Sync`, nothing of a thread-local,
/// and no lock that its thread owns ([`crate::light::Builder::migrating`] has the list). A call
/// that waits in std or libc is no yield.
///
/// # Errors
/// As [`spawn_light`].
pub unsafe fn spawn_migrating<T: Send + 'static>(
    list: &CompletionList,
    f: impl FnOnce() -> T + Send + 'static,
) -> io::Result<(Context, Completion<T>)> {
    let context = Context::new(list);
    // SAFETY: the caller's promise.
    let result = unsafe { spawn_migrating_with(STACK_SIZE, &context, f) }?;
    Ok((context, result))
}

/// As [`spawn_migrating`], with a context of the caller's, and a stack of at least so many bytes.
///
/// ```
/// # if raddle::runtime::status() != raddle::runtime::Status::Green { return Ok(()); }
/// # use raddle::ums::{self, CompletionList, Context};
/// let context = Context::new(&CompletionList::new()?);
/// // SAFETY: it never yields.
/// let _result = unsafe { ums::spawn_migrating_with(16 << 10, &context, || 5)? };
/// # Ok::<(), std::io::Error>(())
/// ```
///
/// # Safety
/// As of [`spawn_migrating`].
///
/// # Errors
/// As [`spawn_light_with`].
pub unsafe fn spawn_migrating_with<T: Send + 'static>(
    stack_bytes: usize,
    context: &Context,
    f: impl FnOnce() -> T + Send + 'static,
) -> io::Result<Completion<T>> {
    let (promise, completion) = completion::pair();
    let run = Box::new(move || promise.run(f));
    // SAFETY: the caller's promise; a promise catches panics.
    unsafe { spawn_migrating_boxed(stack_bytes, context, run) }?;
    Ok(completion)
}

/// As [`spawn_migrating_with`], for a function that doesn't unwind.
///
/// # Safety
/// As of [`spawn_migrating`].
pub(super) unsafe fn spawn_migrating_boxed(
    stack_bytes: usize,
    context: &Context,
    run: Box<dyn FnOnce() + Send>,
) -> io::Result<()> {
    start(stack_bytes, context, WorkerControl::LIGHT, run)
}

fn start(
    stack_bytes: usize,
    context: &Context,
    kind: u32,
    run: Box<dyn FnOnce() + Send>,
) -> io::Result<()> {
    runtime::table().ok_or(Error::Unsupported)?;
    let inner = &context.0;
    if inner.in_use.swap(true, Ordering::Relaxed) {
        return Err(Error::InUse.into());
    }
    let shell = match take_shell(stack_bytes) {
        Ok(shell) => shell,
        Err(error) => {
            inner.in_use.store(false, Ordering::Relaxed);
            return Err(error);
        }
    };
    std::mem::forget(Arc::clone(inner)); // until it was taken as ended
    inner.set_up(shell, kind, run);
    context.list_as(WorkerState::LISTED);
    Ok(())
}
