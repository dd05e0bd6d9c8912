//! State shared by a producer and a consumer: a state word, the result, and the listener.
//!
//! ```text
//!            listen                finish
//!  PENDING -----------> LISTENING --------> TELLING
//!     |    <-----------                        |
//!     |      withdraw                          | tell
//!     |                                        v
//!     +---------------- finish -------------> SET
//!
//!             await                      finish and tell
//!  PENDING -----------> AWAITED --------------------------> SET
//!
//!  close: from PENDING or SET, by adding CLOSED
//! ```
//!
//! | state | the result is | the listener is |
//! |---|---|---|
//! | PENDING | the producer's, unset | the consumer's |
//! | LISTENING | the producer's, unset | there, owned by the end that changes the state |
//! | AWAITED | the producer's, unset | the producer's |
//! | TELLING | there | the producer's |
//! | SET | there, and the consumer's, like the cell | none |
//! | PENDING and CLOSED | the producer's, like the cell | none |
//!
//! The cell is freed by the end that comes last: by the consumer, if it finds it SET; by the
//! producer, if it finds it CLOSED, or tells a listener that takes the result. So the ends need no
//! count of each other.
//!
//! A listener in AWAITED doesn't withdraw: it is a thread that waits without a timeout, or a
//! callback that gets the result. So only the producer changes that state, and it does so by a
//! store.
//!
//! No wake-up is lost: the consumer sleeps only after its exchange from PENDING to LISTENING or
//! AWAITED succeeded, so the producer comes later and finds the listener. The woken consumer finds
//! the cell SET.

use super::sync::{self, AtomicU32, Ordering, UnsafeCell, Waiter, pause};
use std::marker::PhantomData;
use std::ptr::NonNull;
use std::task::{Context, Waker};
use std::time::Duration;

const PENDING: u32 = 0;
const LISTENING: u32 = 1;
const CLOSED: u32 = 2;
const SET: u32 = 4;
const TELLING: u32 = SET | LISTENING;
const AWAITED: u32 = 8;

/// The panic message of a set cell without a result.
const THERE: &str = "a cell that is set holds its result";

/// A callback for the result. It returns what is to be called next.
type Call<R> = Box<dyn FnOnce(R) -> Option<Step> + Send>;

/// A set cell with a callback that is to be called: the next link of a chain, without its type. The
/// callbacks of a chain are called in a loop, since a chain may be longer than the stack.
#[must_use = "a step that isn't run loses the cell"]
pub(crate) struct Step {
    cell: NonNull<()>,
    /// Frees the cell and calls its callback with its result.
    run: unsafe fn(NonNull<()>) -> Option<Self>,
}

impl Step {
    /// Runs the steps of a chain to its end.
    #[inline]
    pub(crate) fn run_all(mut step: Option<Self>) {
        while let Some(Self { cell, run }) = step {
            // SAFETY: made by `Producer::call`, and run once.
            step = unsafe { run(cell) };
        }
    }
}

/// The outcome of setting a result.
pub(crate) enum Finished<R> {
    /// The listener was told, or comes later.
    Told,
    /// The consumer is gone; the result is given back.
    Unwanted(R),
    /// The listener is a callback.
    Calls(Step),
}

/// The receiver of the producer's notification that the result is there.
enum Listener<R> {
    /// A thread that is parked, or about to park.
    Thread(Waiter),
    /// A task.
    Task(Waker),
    /// Gets the result itself; the consumer is gone.
    Call(Call<R>),
}

/// The outcome of a request to listen.
enum Registered<R> {
    Listening,
    /// The result is there already; the listener is given back.
    Done(Listener<R>),
}

/// Set once, taken once: a result of the type R.
struct Cell<R> {
    /// Written and read by both ends; the module head has the states. A change releases the
    /// writer's cells, and acquires the other end's.
    state: AtomicU32,
    result: UnsafeCell<Option<R>>,
    listener: UnsafeCell<Option<Listener<R>>>,
}

/// A cell by address. The last end frees it.
struct Shared<R>(NonNull<Cell<R>>, PhantomData<Cell<R>>);

/// The end that sets the result.
pub(crate) struct Producer<R>(Shared<R>);

/// The end that takes the result.
pub(crate) struct Consumer<R>(Shared<R>);

// SAFETY: the state gives each cell to one end at a time. Only results and listeners cross.
unsafe impl<R: Send> Send for Shared<R> {}
// SAFETY: as above; shared references only read the state.
unsafe impl<R: Send> Sync for Shared<R> {}

/// Makes the two ends of a new cell. Each must be finished, taken or closed; else the memory is
/// lost.
pub(crate) fn pair<R>() -> (Producer<R>, Consumer<R>) {
    let cell = Box::new(Cell {
        state: AtomicU32::new(PENDING),
        result: UnsafeCell::new(None),
        listener: UnsafeCell::new(None),
    });
    let cell = NonNull::from(Box::leak(cell));
    let shared = || Shared(cell, PhantomData);
    (Producer(shared()), Consumer(shared()))
}

impl<R> Shared<R> {
    fn cell(&self) -> &Cell<R> {
        // SAFETY: the other end frees the cell only after this one gave it up, which consumes this
        // end.
        unsafe { self.0.as_ref() }
    }

    /// Frees the cell, and returns the result.
    ///
    /// # Safety
    /// The other end must have given the cell up.
    unsafe fn take(self) -> Option<R> {
        // SAFETY: the caller's promise: the cell is this end's alone.
        let cell = unsafe { Box::from_raw(self.0.as_ptr()) };
        // SAFETY: as above.
        cell.result.with_mut(|result| unsafe { (*result).take() })
    }
}

impl<R> Producer<R> {
    /// Returns true once the consumer is gone.
    pub(crate) fn is_closed(&self) -> bool {
        self.0.cell().state.load(Ordering::Acquire) & CLOSED != 0
    }

    /// Stores the result and notifies the listener. Returns the result if the consumer is gone.
    pub(crate) fn finish(self, result: R) -> Option<R> {
        self.finish_and(result, Waiter::wake)
    }

    /// As [`Producer::finish`], with `wake` to wake a waiting thread.
    #[inline]
    pub(crate) fn finish_and(self, result: R, wake: impl FnOnce(Waiter)) -> Option<R> {
        match self.settle(result, wake) {
            Finished::Told => None,
            Finished::Unwanted(result) => Some(result),
            Finished::Calls(step) => {
                Step::run_all(Some(step));
                None
            }
        }
    }

    /// As [`Producer::finish`], as the last act of a callback, which returns the step.
    pub(crate) fn finish_in_chain(self, result: R) -> Option<Step> {
        match self.settle(result, Waiter::wake) {
            Finished::Calls(step) => Some(step),
            Finished::Told | Finished::Unwanted(_) => None,
        }
    }

    /// Stores the result, and tells a listener that is a thread or a task.
    #[inline]
    fn settle(self, result: R, wake: impl FnOnce(Waiter)) -> Finished<R> {
        let cell = self.0.cell();
        // SAFETY: until the state says SET the result is the producer's.
        cell.result.with_mut(|at| unsafe { *at = Some(result) });
        let before = match cell.state.load(Ordering::Acquire) {
            AWAITED => AWAITED, // and stays AWAITED
            _ => cell.state.fetch_add(SET, Ordering::AcqRel),
        };
        match before {
            PENDING => Finished::Told, // the cell is the consumer's
            LISTENING | AWAITED => self.tell(wake),
            // SAFETY: the consumer is gone.
            _ => unsafe { self.0.take() }.map_or(Finished::Told, Finished::Unwanted),
        }
    }

    #[inline]
    fn tell(self, wake: impl FnOnce(Waiter)) -> Finished<R> {
        let cell = self.0.cell();
        // SAFETY: the state is AWAITED, or was LISTENING and isn't any more: the listener is the
        // producer's.
        let listener = cell.listener.with_mut(|cell| unsafe {
            match &*cell {
                Some(Listener::Call(_)) => None, // stays for the step
                _ => Some((*cell).take()),
            }
        });
        let Some(listener) = listener else {
            return Finished::Calls(Step {
                cell: self.0.0.cast(),
                run: Self::call,
            });
        };
        // In either state only the producer changes it. From the store on the cell is the
        // consumer's.
        cell.state.store(SET, Ordering::Release);
        match listener {
            Some(Listener::Thread(waiter)) => wake(waiter),
            Some(Listener::Task(waker)) => waker.wake(),
            Some(Listener::Call(_)) | None => {}
        }
        Finished::Told
    }

    /// Frees a cell and calls its callback with its result.
    ///
    /// # Safety
    /// The address must be that of a cell of this type which is set, has a callback, and which both
    /// ends gave up.
    unsafe fn call(cell: NonNull<()>) -> Option<Step> {
        // SAFETY: the caller's promise.
        let cell = unsafe { Box::from_raw(cell.cast::<Cell<R>>().as_ptr()) };
        // SAFETY: as above.
        let result = cell.result.with_mut(|result| unsafe { (*result).take() });
        // SAFETY: as above.
        let listener = cell.listener.with_mut(|cell| unsafe { (*cell).take() });
        drop(cell);
        match listener {
            Some(Listener::Call(call)) => call(result.expect(THERE)),
            _ => None,
        }
    }
}

impl<R> Consumer<R> {
    fn state(&self) -> u32 {
        self.0.cell().state.load(Ordering::Acquire)
    }

    /// Returns true if the result can be taken.
    #[inline(always)]
    pub(crate) fn is_done(&self) -> bool {
        self.state() == SET
    }

    /// Waits for a producer that has found the listener and not yet notified it: a few
    /// instructions.
    fn settle(&self) {
        let mut looks = 0;
        while self.state() == TELLING {
            pause(looks);
            looks += 1;
        }
    }

    /// Registers a listener in place of an earlier one: the state becomes `to`.
    fn listen(&self, listener: Listener<R>, to: u32) -> Registered<R> {
        let cell = self.0.cell();
        match self.state() {
            PENDING => {}
            LISTENING if self.withdraw() => {}
            _ => {
                self.settle(); // the old listener, if any, is the producer's to tell
                return Registered::Done(listener);
            }
        }
        // SAFETY: the state was PENDING, from which only the consumer adds a listener.
        cell.listener
            .with_mut(|cell| unsafe { *cell = Some(listener) });
        let exchanged =
            cell.state
                .compare_exchange(PENDING, to, Ordering::AcqRel, Ordering::Acquire);
        if exchanged.is_ok() {
            return Registered::Listening;
        }
        // SAFETY: the producer found no listener and won't look again.
        match cell.listener.with_mut(|cell| unsafe { (*cell).take() }) {
            Some(listener) => Registered::Done(listener),
            None => Registered::Listening, // never: the listener was stored above
        }
    }

    /// Hands the result to `call`: on the thread that sets it, or here if it is there. Then the
    /// step that `call` returns is run.
    pub(crate) fn give_to(self, call: impl FnOnce(R) -> Option<Step> + Send + 'static) {
        let listener = Listener::Call(Box::new(call));
        if let Registered::Done(Listener::Call(call)) = self.listen(listener, AWAITED) {
            Step::run_all(call(self.take()));
        }
    }

    /// Waits until the result is there. Returns false if the time was over first.
    pub(crate) fn wait(&self, timeout: Option<Duration>) -> bool {
        if self.is_done() {
            return true;
        }
        let to = timeout.map_or(AWAITED, |_| LISTENING);
        let announce = |waiter| {
            let registered = self.listen(Listener::Thread(waiter), to);
            matches!(registered, Registered::Listening)
        };
        let is_done = || self.is_done();
        match timeout {
            None => {
                sync::wait(&self.0.cell().state, AWAITED, announce, is_done);
                true
            }
            Some(timeout) => sync::wait_timeout(timeout, announce, is_done, || self.withdraw()),
        }
    }

    /// Returns whether the result is there; if not, the task is woken when it is.
    pub(crate) fn poll(&self, context: &Context<'_>) -> bool {
        // The waker of an earlier poll may be another task's.
        let listen = || self.listen(Listener::Task(context.waker().clone()), LISTENING);
        self.is_done() || !matches!(listen(), Registered::Listening)
    }

    /// Takes the listener back. Returns false if the producer has found it: the result is there.
    fn withdraw(&self) -> bool {
        let cell = self.0.cell();
        let exchanged =
            cell.state
                .compare_exchange(LISTENING, PENDING, Ordering::AcqRel, Ordering::Acquire);
        if exchanged.is_err() {
            self.settle();
            return false;
        }
        // SAFETY: the state is PENDING, so the listener is the consumer's.
        drop(cell.listener.with_mut(|cell| unsafe { (*cell).take() }));
        true
    }

    /// Returns the result, which must be there.
    pub(crate) fn take(self) -> R {
        assert!(self.is_done());
        // SAFETY: in SET the cell is the consumer's.
        let result = unsafe { self.0.take() };
        result.expect(THERE)
    }

    /// Gives the consumer's end up without taking the result.
    pub(crate) fn close(self) {
        if self.state() == LISTENING {
            self.withdraw();
        }
        self.settle();
        // There is no listener: the state is PENDING or SET.
        if self.0.cell().state.fetch_add(CLOSED, Ordering::AcqRel) == SET {
            // SAFETY: the producer has done its part.
            drop(unsafe { self.0.take() });
        }
    }
}
