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
//! 3. If the procedure leaves, or panics, that is kept here, and the scheduler gets the lease
//!    back.

use super::claimed::Claimed;
use super::context::Inner;
use super::hosts::ended;
use super::light::give_host;
use super::list::CompletionList;
use super::scheduler::{Next, Reason, Scheduler};
use raddle_context::{call_by_jumps, call_on_with};
use raddle_interface::{Lease, Runtime, ThreadView, WorkerControl};
use std::any::Any;
use std::cell::{Cell, UnsafeCell};
use std::mem::forget;
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::ptr::{from_ref, null, null_mut, with_exposed_provenance};
use std::sync::Arc;
use std::sync::atomic::Ordering;

/// What a scheduler and its workers share; whose the lease is, his is this.
#[repr(C)]
struct Place {
    /// First: the runtime knows the place by it.
    lease: Lease,
    /// The worker that was executed last, until it gives the lease back.
    running: Cell<Option<Claimed>>,
    /// What the scheduler's own thread is told, if nobody was executed.
    reason: Cell<Option<Reason>>,
    /// What the procedure has panicked with, for the scheduler's own thread.
    panic: Cell<Option<Box<dyn Any + Send>>>,
}

/// A place and its procedure.
#[repr(C)]
pub(super) struct Seat<'a, F> {
    place: Place,
    list: &'a CompletionList,
    procedure: UnsafeCell<F>,
}

impl Place {
    /// The worker that is to be executed; null if nobody is.
    fn next(&self) -> *const Inner {
        let next = self.running.take();
        let at = next.as_ref().map_or(null(), |next| Arc::as_ptr(&next.0));
        self.running.set(next);
        at
    }
}

impl<'a, F: FnMut(&Scheduler<'_>, Reason) -> Next> Seat<'a, F> {
    /// # Safety
    /// The procedure must be `Send` if workers may decide `in_place`.
    pub(super) unsafe fn new(list: &'a CompletionList, procedure: F, in_place: bool) -> Self {
        Self {
            place: Place {
                lease: Lease::new(in_place.then_some(decide::<F>)),
                running: Cell::new(None),
                reason: Cell::new(None),
                panic: Cell::new(None),
            },
            list,
            procedure: UnsafeCell::new(procedure),
        }
    }

    /// The lease, to be left with the next worker.
    pub(super) fn lease(&self) -> *const Lease {
        from_ref(self).cast() // of the whole: who gets it finds the rest
    }

    /// Calls the procedure on the scheduler's own thread. The worker that is to be executed, which
    /// lives until it has ended and was taken from its list; `None` if the scheduler leaves.
    ///
    /// # Safety
    /// The caller must have the lease.
    ///
    /// # Panics
    /// As the procedure.
    pub(super) unsafe fn call(&self, reason: Reason) -> Option<&Inner> {
        self.place.reason.set(Some(reason));
        // SAFETY: this is a seat of that type; the caller's promise.
        let next = unsafe { decide::<F>(self.lease(), 0).cast::<Inner>().as_ref() };
        if next.is_none() {
            self.leaves();
        }
        next // the place holds it
    }

    /// The worker that gave the lease back; `None` if one has decided that the scheduler leaves.
    ///
    /// # Panics
    /// As the procedure did there.
    pub(super) fn ran(&self) -> Option<Claimed> {
        let worker = self.place.running.take();
        if worker.is_none() {
            self.leaves();
        }
        worker
    }

    fn leaves(&self) {
        if let Some(panic) = self.place.panic.take() {
            resume_unwind(panic);
        }
    }
}

/// Calls the procedure: on the worker that has just taken the lease, or on the scheduler's own
/// thread if that has said why. The next worker, or null if the scheduler must go on.
///
/// The only place where a procedure is called, so that it is likely to be compiled into this.
///
/// # Safety
/// `seat` must be a [`Seat<F>`], and the caller have its lease.
unsafe extern "C" fn decide<F: FnMut(&Scheduler<'_>, Reason) -> Next>(
    seat: *const Lease,
    parameter: usize,
) -> *const WorkerControl {
    // SAFETY: the caller's promise.
    let seat = unsafe { &*seat.cast::<Seat<'_, F>>() };
    let place = &seat.place;
    let (own, reason) = match place.running.take() {
        Some(worker) if worker.0.was_over() => (worker.thread(), ended(worker)),
        Some(worker) => (worker.thread(), Reason::Yielded { worker, parameter }),
        None => match place.reason.take() {
            Some(reason) => (null_mut(), reason),
            None => return null(), // one of them is there: this can't be
        },
    };
    // SAFETY: who has the lease has the procedure.
    let procedure = unsafe { &mut *seat.procedure.get() };
    let call = || procedure(&Scheduler::new(seat.list, own), reason);
    match catch_unwind(AssertUnwindSafe(call)).map(Next::into_worker) {
        Ok(Ok(next)) => {
            let inner = Arc::as_ptr(&next.0);
            forget(place.running.replace(Some(next))); // there was none
            inner.cast()
        }
        Ok(Err(_leaves)) => null(),
        Err(panic) => keep(place, panic),
    }
}

#[cold]
fn keep(place: &Place, panic: Box<dyn Any + Send>) -> *const WorkerControl {
    place.panic.set(Some(panic));
    null()
}

/// The calling worker yields and has got the lease at this address: it decides, or has decided if
/// the address is odd ([`Runtime::yield_worker`]). Returns when it is executed again.
///
/// # Safety
/// The runtime must have given it to the caller.
#[inline]
pub(super) unsafe fn yield_in_place(runtime: &Runtime, lease: usize, parameter: usize) {
    let seat = with_exposed_provenance::<Lease>(lease & !1);
    let next = match lease & 1 {
        // SAFETY: the caller's promise.
        0 => unsafe { decide_on(seat, parameter) },
        // SAFETY: as above; a lease is the first part of its place.
        _ => unsafe { &*seat.cast::<Place>() }.next(),
    };
    // SAFETY: null, or a worker that the place holds; and the caller has the lease.
    match unsafe { (next.as_ref(), &*seat) } {
        (None, lease) => (runtime.return_lease)(lease),
        (Some(next), _) => {
            let mut thread = next.control.thread.load(Ordering::Relaxed);
            if thread.is_null() {
                thread = give_host(next);
            }
            let (thread, lease) = (thread.expose_provenance(), seat.expose_provenance());
            // SAFETY: the thread of a claimed worker, or of the caller.
            unsafe { call_by_jumps(runtime.pass_lease, thread, lease) };
        }
    }
}

/// The calling thread has taken this lease: the scheduler's procedure is called. Who is next, or
/// null if the scheduler is to go on.
///
/// # Safety
/// As said, and the lease lets workers decide.
#[inline(always)]
pub(super) unsafe fn decide_on(seat: *const Lease, parameter: usize) -> *const Inner {
    // SAFETY: leases that let workers decide are made by `Seat::new` alone, and live as long as
    // nobody gives them back.
    let lease = unsafe { &*seat };
    let Some(decide) = lease.decide else {
        return null(); // the runtime has asked
    };
    // SAFETY: the scheduler has a thread, and goes on only when it gets the lease.
    let next = match unsafe { ThreadView::free_stack(lease.scheduler.get()) } {
        // SAFETY: the stack is whose the lease is; a seat's place, and the caller has the lease.
        Some(top) => unsafe { call_on_with(top, decide, seat, parameter) },
        // SAFETY: as above.
        None => unsafe { decide(seat, parameter) },
    };
    next.cast()
}
