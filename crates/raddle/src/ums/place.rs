//! Where a scheduler's procedure is called: on its own thread, or on that of a worker that yields.
//!
//! The lease of a scheduler is the first part of its [`Place`]. A worker that yields gets the lease
//! from the runtime, and so owns all of it: the scheduler continues when somebody gives the lease
//! back.
//!
//! 1. The worker calls the procedure, which gets the worker itself, claimed, and says who is next.
//!    It runs below the scheduler's frames: nobody else uses that stack meanwhile, it is as large
//!    as a scheduler's must be, and its lines are in the cache, as those of a thousand workers'
//!    aren't.
//! 2. The lease is passed to the next worker by a switch, and lies with that as if the scheduler
//!    had executed it.
//! 3. If the procedure leaves, or panics, the answer is kept here, and the scheduler gets the lease
//!    back.

use super::claimed::Claimed;
use super::context::Inner;
use super::hosts::ended;
use super::light::change;
use super::list::CompletionList;
use super::scheduler::{Cause, Next, Reason, Scheduler};
use raddle_context::{call_by_jumps, call_on_with};
use raddle_interface::{Lease, Runtime, ThreadView, WorkerControl};
use std::any::Any;
use std::cell::{Cell, UnsafeCell};
use std::ffi::c_void;
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::ptr::{from_ref, null_mut, with_exposed_provenance};
use std::sync::Arc;
use std::sync::atomic::Ordering;

/// What a scheduler and its workers share; whose the lease is, his is this.
#[repr(C)]
struct Place {
    /// First: the runtime knows the place by it.
    lease: Lease,
    /// The worker that was executed last, until it gives the lease back.
    running: Cell<Option<Claimed>>,
    /// What a worker decided that the scheduler must see to.
    decided: Cell<Option<Result<Next, Box<dyn Any + Send>>>>,
    /// [`decide`], for the procedure's type.
    decide: unsafe extern "C" fn(*const c_void, usize) -> *mut c_void, // an `Inner`
}

/// A place and its procedure.
#[repr(C)]
pub(super) struct Seat<'a, F> {
    place: Place,
    list: &'a CompletionList,
    procedure: UnsafeCell<F>,
}

impl<'a, F: FnMut(&Scheduler<'_>, Reason) -> Next> Seat<'a, F> {
    /// # Safety
    /// The procedure must be `Send` if workers may decide `in_place`.
    pub(super) unsafe fn new(list: &'a CompletionList, procedure: F, in_place: bool) -> Self {
        Self {
            place: Place {
                lease: Lease::new(in_place),
                running: Cell::new(None),
                decided: Cell::new(None),
                decide: decide::<F>,
            },
            list,
            procedure: UnsafeCell::new(procedure),
        }
    }

    /// Calls the procedure; `own` is the thread of a worker that decides, or null.
    ///
    /// # Safety
    /// The caller must have the lease.
    #[inline(always)]
    pub(super) unsafe fn call(&self, own: *mut c_void, reason: Reason) -> Next {
        // SAFETY: who has the lease has the procedure.
        let procedure = unsafe { &mut *self.procedure.get() };
        procedure(&Scheduler::new(self.list, own), reason)
    }

    /// The lease, to be left with the next worker.
    pub(super) fn lease(&self) -> *const Lease {
        from_ref(self).cast() // of the whole: who gets it finds the rest
    }

    /// The worker that is to be executed; lives until it has ended and was taken from its list.
    pub(super) fn runs(&self, worker: Claimed) -> *const WorkerControl {
        let control = from_ref(&*worker.0).cast(); // of the whole, which it begins
        self.place.running.set(Some(worker));
        control
    }

    /// The worker that gave the lease back; `None` if it has decided.
    pub(super) fn ran(&self) -> Option<Claimed> {
        self.place.running.take()
    }

    /// What a worker decided before it gave the lease back.
    ///
    /// # Panics
    /// As the procedure did there.
    pub(super) fn decided(&self) -> Option<Next> {
        let decided = self.place.decided.take()?;
        Some(decided.unwrap_or_else(|panic| resume_unwind(panic)))
    }
}

/// Calls the procedure on the worker that has just taken the lease. The next worker, or null if the
/// scheduler must go on.
///
/// # Safety
/// `seat` must be a [`Seat<F>`], and the caller have its lease.
unsafe extern "C" fn decide<F: FnMut(&Scheduler<'_>, Reason) -> Next>(
    seat: *const c_void,
    parameter: usize,
) -> *mut c_void {
    // SAFETY: the caller's promise.
    let seat = unsafe { &*seat.cast::<Seat<'_, F>>() };
    let place = &seat.place;
    let Some(worker) = place.running.take() else {
        return null_mut(); // the worker that runs is there: this can't be
    };
    let own = worker.thread();
    let reason = match worker.0.rest.was_over() {
        true => Reason::Blocked {
            context: ended(worker),
            cause: Cause::End,
        },
        false => Reason::Yielded { worker, parameter },
    };
    // SAFETY: the caller's promise.
    let called = catch_unwind(AssertUnwindSafe(|| unsafe { seat.call(own, reason) }));
    match called.map(Next::into_worker) {
        Ok(Ok(next)) => {
            let inner = Arc::as_ptr(&next.0);
            place.running.set(Some(next));
            inner.cast_mut().cast()
        }
        Ok(Err(leaves)) => keep(place, Ok(leaves)),
        Err(panic) => keep(place, Err(panic)),
    }
}

#[cold]
fn keep(place: &Place, decided: Result<Next, Box<dyn Any + Send>>) -> *mut c_void {
    place.decided.set(Some(decided));
    null_mut()
}

/// The calling worker yields and has got the lease at this address: it decides. Returns when it is
/// executed again.
///
/// # Safety
/// The runtime must have given it to the caller.
#[inline(always)]
pub(super) unsafe fn yield_in_place(runtime: &Runtime, lease: usize, parameter: usize) {
    let seat = with_exposed_provenance::<c_void>(lease);
    // SAFETY: the caller's promise.
    let next = unsafe { decide_on(seat, parameter) };
    // SAFETY: as above; a lease is the first part of its place.
    let place = unsafe { &*seat.cast::<Place>() };
    // SAFETY: a worker that the place holds, or null.
    let Some(next) = (unsafe { next.as_ref() }) else {
        return (runtime.return_lease)(&place.lease);
    };
    let thread = next.control.thread.load(Ordering::Relaxed);
    if thread.is_null() {
        // SAFETY: the procedure has named a claimed worker, a light one at rest.
        unsafe { change(runtime, next, &place.lease) };
    } else {
        // SAFETY: the thread of a claimed worker, or of the caller.
        unsafe { call_by_jumps(runtime.pass_lease, thread.expose_provenance(), lease) };
    }
}

/// The calling thread has taken this lease: the scheduler's procedure is called. Who is next, or
/// null if the scheduler is to go on.
///
/// # Safety
/// As said, and the lease lets workers decide.
#[inline(always)]
pub(super) unsafe fn decide_on(seat: *const c_void, parameter: usize) -> *const Inner {
    // SAFETY: leases that let workers decide are made by `Seat::new` alone, and live as long as
    // nobody gives them back.
    let place = unsafe { &*seat.cast::<Place>() };
    // SAFETY: the scheduler has a thread, and goes on only when it gets the lease.
    let next = match unsafe { ThreadView::free_stack(place.lease.scheduler.get()) } {
        // SAFETY: the stack is whose the lease is; a seat's place, and the caller has the lease.
        Some(top) => unsafe { call_on_with(top, place.decide, seat, parameter) },
        // SAFETY: as above.
        None => unsafe { (place.decide)(seat, parameter) },
    };
    next.cast()
}
