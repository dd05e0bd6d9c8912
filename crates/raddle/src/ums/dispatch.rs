//! Calls of a scheduler's procedure: on its own thread, or on a worker that yields.
//!
//! The token of a scheduler is the first part of its [`DispatchState`]. A worker that yields gets
//! the token from the runtime, and so owns the whole dispatch state: the scheduler continues when
//! the token is given back.
//!
//! 1. The worker calls the procedure, which gets the worker itself, claimed, and returns the next
//!    one. The procedure runs below the scheduler's frames: that stack is otherwise unused
//!    meanwhile, is large enough for a scheduler, and has its lines in the cache, unlike those of a
//!    thousand workers.
//! 2. A switch passes the token to the next worker, and leaves it there as if the scheduler had
//!    executed that worker.
//! 3. If the procedure leaves or panics, the dispatch state notes it, and the scheduler gets the
//!    token back.

use super::claimed::Claimed;
use super::context::Inner;
use super::hosts::ended;
use super::light::give_host;
use super::list::CompletionList;
use super::scheduler::{Next, Reason, Scheduler};
use raddle_arch::{call_by_jumps, call_on_with};
use raddle_interface::{Runtime, SchedulerToken, ThreadView, WorkerControl};
use std::any::Any;
use std::cell::{Cell, UnsafeCell};
use std::mem::forget;
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::ptr::{from_ref, null, null_mut, with_exposed_provenance};
use std::sync::Arc;
use std::sync::atomic::Ordering;

/// State shared by a scheduler and its workers. Only the holder of `token` may touch it.
#[repr(C)]
struct DispatchState {
    /// First, so that the runtime's pointer to the token names the whole state.
    token: SchedulerToken,
    /// The worker that was executed last, until it gives the token back.
    running: Cell<Option<Claimed>>,
    /// The reason for the scheduler's own thread, if no worker was executed.
    reason: Cell<Option<Reason>>,
    /// The payload of the procedure's panic, for the scheduler's own thread.
    panic: Cell<Option<Box<dyn Any + Send>>>,
}

/// A dispatch state and the procedure that it calls.
#[repr(C)]
pub(super) struct Dispatcher<'a, F> {
    state: DispatchState,
    list: &'a CompletionList,
    procedure: UnsafeCell<F>,
}

impl DispatchState {
    /// Returns the worker that is to be executed next; null if there is none.
    fn next(&self) -> *const Inner {
        let next = self.running.take();
        let at = next.as_ref().map_or(null(), |next| Arc::as_ptr(&next.0));
        self.running.set(next);
        at
    }
}

impl<'a, F: FnMut(&Scheduler<'_>, Reason) -> Next> Dispatcher<'a, F> {
    /// # Safety
    /// The procedure must be `Send` if workers may decide `in_place`.
    pub(super) unsafe fn new(list: &'a CompletionList, procedure: F, in_place: bool) -> Self {
        Self {
            state: DispatchState {
                token: SchedulerToken::new(in_place.then_some(decide::<F>)),
                running: Cell::new(None),
                reason: Cell::new(None),
                panic: Cell::new(None),
            },
            list,
            procedure: UnsafeCell::new(procedure),
        }
    }

    /// Returns the token, to be left with the next worker.
    pub(super) fn token(&self) -> *const SchedulerToken {
        from_ref(self).cast() // of the whole: the receiver reaches the rest from it
    }

    /// Calls the procedure on the scheduler's own thread. Returns the worker to be executed, which
    /// lives until it has ended and was taken from its list; `None` if the scheduler leaves.
    ///
    /// # Safety
    /// The caller must have the token.
    ///
    /// # Panics
    /// As the procedure.
    pub(super) unsafe fn call(&self, reason: Reason) -> Option<&Inner> {
        self.state.reason.set(Some(reason));
        // SAFETY: this is a dispatcher of that type; the caller's promise.
        let next = unsafe { decide::<F>(self.token(), 0).cast::<Inner>().as_ref() };
        if next.is_none() {
            self.leaves();
        }
        next // the dispatch state holds it
    }

    /// Returns the worker that gave the token back; `None` if a worker has decided that the
    /// scheduler leaves.
    ///
    /// # Panics
    /// With the procedure's panic on that worker.
    pub(super) fn ran(&self) -> Option<Claimed> {
        let worker = self.state.running.take();
        if worker.is_none() {
            self.leaves();
        }
        worker
    }

    fn leaves(&self) {
        if let Some(panic) = self.state.panic.take() {
            resume_unwind(panic);
        }
    }
}

/// Calls the procedure: on the worker that has just taken the token, or on the scheduler's own
/// thread if that has set a reason. Returns the next worker, or null if the scheduler must go on.
///
/// The only call of a procedure, so that it is likely to be inlined here.
///
/// # Safety
/// `dispatcher` must be a [`Dispatcher<F>`], and the caller have its token.
unsafe extern "C" fn decide<F: FnMut(&Scheduler<'_>, Reason) -> Next>(
    dispatcher: *const SchedulerToken,
    parameter: usize,
) -> *const WorkerControl {
    // SAFETY: the caller's promise.
    let dispatcher = unsafe { &*dispatcher.cast::<Dispatcher<'_, F>>() };
    let state = &dispatcher.state;
    let (own, reason) = match state.running.take() {
        Some(worker) if worker.0.was_over() => (worker.thread(), ended(worker)),
        Some(worker) => (worker.thread(), Reason::Yielded { worker, parameter }),
        None => match state.reason.take() {
            Some(reason) => (null_mut(), reason),
            None => return null(), // one of them is there: never
        },
    };
    // SAFETY: the holder of the token has the procedure.
    let procedure = unsafe { &mut *dispatcher.procedure.get() };
    let call = || procedure(&Scheduler::new(dispatcher.list, own), reason);
    match catch_unwind(AssertUnwindSafe(call)).map(Next::into_worker) {
        Ok(Ok(next)) => {
            let inner = Arc::as_ptr(&next.0);
            forget(state.running.replace(Some(next))); // there was none
            inner.cast()
        }
        Ok(Err(_leaves)) => null(),
        Err(panic) => keep(state, panic),
    }
}

#[cold]
fn keep(state: &DispatchState, panic: Box<dyn Any + Send>) -> *const WorkerControl {
    state.panic.set(Some(panic));
    null()
}

/// Passes the token on, which the calling worker has got for its yield: the worker decides, or the
/// runtime has decided if the address is odd ([`Runtime::yield_worker`]). Returns when the worker
/// is executed again.
///
/// # Safety
/// The runtime must have given the token to the caller.
#[inline]
pub(super) unsafe fn yield_in_place(runtime: &Runtime, token: usize, parameter: usize) {
    let dispatcher = with_exposed_provenance::<SchedulerToken>(token & !1);
    let next = match token & 1 {
        // SAFETY: the caller's promise.
        0 => unsafe { decide_on(dispatcher, parameter) },
        // SAFETY: as above; a token is the first part of its state.
        _ => unsafe { &*dispatcher.cast::<DispatchState>() }.next(),
    };
    // SAFETY: null, or a worker that the state holds; and the caller has the token.
    match unsafe { (next.as_ref(), &*dispatcher) } {
        (None, token) => (runtime.return_token)(token),
        (Some(next), _) => {
            let mut thread = next.control.thread.load(Ordering::Relaxed);
            if thread.is_null() {
                thread = give_host(next);
            }
            let (thread, token) = (thread.expose_provenance(), dispatcher.expose_provenance());
            // SAFETY: the thread of a claimed worker, or of the caller.
            unsafe { call_by_jumps(runtime.pass_token, thread, token) };
        }
    }
}

/// Calls the scheduler's procedure on the calling thread, which has taken this token. Returns the
/// next worker, or null if the scheduler is to go on.
///
/// # Safety
/// The calling thread must have taken the token, which must let workers decide.
#[inline(always)]
pub(super) unsafe fn decide_on(
    dispatcher: *const SchedulerToken,
    parameter: usize,
) -> *const Inner {
    // SAFETY: only `Dispatcher::new` makes tokens that let workers decide, and they live until they
    // are given back.
    let token = unsafe { &*dispatcher };
    let Some(decide) = token.decide else {
        return null(); // never: the runtime has checked it
    };
    // SAFETY: the scheduler has a thread, and goes on only when it gets the token.
    let next = match unsafe { ThreadView::free_stack(token.scheduler.get()) } {
        // SAFETY: the holder of the token owns the stack; a dispatcher's state, and the caller has
        // the token.
        Some(top) => unsafe { call_on_with(top, decide, dispatcher, parameter) },
        // SAFETY: as above.
        None => unsafe { decide(dispatcher, parameter) },
    };
    next.cast()
}
