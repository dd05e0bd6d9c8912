//! What the two ends share: a state, the result, and who is to be told.
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
//! | LISTENING | the producer's, unset | there, and whoever changes the state owns it |
//! | AWAITED | the producer's, unset | the producer's |
//! | TELLING | there | the producer's |
//! | SET | there, and the consumer's, like the cell | none |
//! | PENDING and CLOSED | the producer's, like the cell | none |
//!
//! The cell is freed by the end that comes last: by the consumer, if it finds it SET; by the
//! producer, if it finds it CLOSED, or tells a listener that takes the result. So the ends need no
//! count of each other.
//!
//! Who listens in AWAITED doesn't withdraw: a thread that waits without a timeout, or what gets the
//! result itself. So nobody but the producer changes that state, and it does so by a store.
//!
//! No wake-up is lost: the consumer sleeps only after its exchange from PENDING to LISTENING
//! or AWAITED succeeded, so the producer comes later and finds the listener. Who is woken finds it
//! SET.

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

/// What a cell that is set holds.
const THERE: &str = "a cell that is set holds its result";

/// What is called with the result.
type Call<R> = Box<dyn FnOnce(R) + Send>;

/// Who is to be told that the result is there.
enum Listener<R> {
    /// A thread that is parked, or about to.
    Thread(Waiter),
    /// A task.
    Task(Waker),
    /// Gets the result itself; the consumer is gone.
    Call(Call<R>),
}

/// What became of a request to listen.
enum Registered<R> {
    Listening,
    /// The result is there already; the listener comes back.
    Done(Listener<R>),
}

/// Set once, taken once: a result of the type R.
struct Cell<R> {
    /// See the module. Changes release what was written to the cells, and acquire what the other
    /// end wrote.
    state: AtomicU32,
    result: UnsafeCell<Option<R>>,
    listener: UnsafeCell<Option<Listener<R>>>,
}

/// A cell by address, which is freed with what it holds.
struct Shared<R>(NonNull<Cell<R>>, PhantomData<Cell<R>>);

/// The end that sets the result.
pub struct Producer<R>(Shared<R>);

/// The end that gets it.
pub struct Consumer<R>(Shared<R>);

// SAFETY: the state gives each cell to one end at a time. Only results and listeners cross.
unsafe impl<R: Send> Send for Shared<R> {}
// SAFETY: as above; shared references only read the state.
unsafe impl<R: Send> Sync for Shared<R> {}

/// The two ends of a new cell. Each must be finished, taken or closed; else the memory is lost.
pub fn pair<R>() -> (Producer<R>, Consumer<R>) {
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
        // SAFETY: the other end frees the cell only after this one gave it up, which consumes it.
        unsafe { self.0.as_ref() }
    }

    /// Frees the cell, and gives the result.
    ///
    /// # Safety
    /// The other end has given the cell up.
    unsafe fn take(self) -> Option<R> {
        // SAFETY: the caller's promise: it is nobody else's.
        let cell = unsafe { Box::from_raw(self.0.as_ptr()) };
        // SAFETY: as above.
        cell.result.with_mut(|result| unsafe { (*result).take() })
    }
}

impl<R> Producer<R> {
    /// True once nobody will ask for the result.
    pub fn is_closed(&self) -> bool {
        self.0.cell().state.load(Ordering::Acquire) & CLOSED != 0
    }

    /// Puts the result there and tells who listens. Gives it back if the consumer is gone.
    pub fn finish(self, result: R) -> Option<R> {
        self.finish_and(result, Waiter::wake)
    }

    /// As [`Producer::finish`]; a thread that waits is woken by `wake`.
    #[inline]
    pub fn finish_and(self, result: R, wake: impl FnOnce(Waiter)) -> Option<R> {
        let cell = self.0.cell();
        // SAFETY: until the state says SET the result is the producer's.
        cell.result.with_mut(|at| unsafe { *at = Some(result) });
        let before = match cell.state.load(Ordering::Acquire) {
            AWAITED => AWAITED, // and stays so
            _ => cell.state.fetch_add(SET, Ordering::AcqRel),
        };
        match before {
            PENDING => None, // the cell is the consumer's
            LISTENING | AWAITED => {
                self.tell(wake);
                None
            }
            // SAFETY: the consumer is gone.
            _ => unsafe { self.0.take() },
        }
    }

    #[inline]
    fn tell(self, wake: impl FnOnce(Waiter)) {
        let cell = self.0.cell();
        // SAFETY: the state is AWAITED, or was LISTENING and isn't any more: the listener is this
        // thread's.
        let listener = cell.listener.with_mut(|cell| unsafe { (*cell).take() });
        if let Some(Listener::Call(call)) = listener {
            // SAFETY: who listens so has given the cell up.
            let result = unsafe { self.0.take() };
            return call(result.expect(THERE));
        }
        // In either state nobody else changes it. From here on the cell is the consumer's.
        cell.state.store(SET, Ordering::Release);
        match listener {
            Some(Listener::Thread(waiter)) => wake(waiter),
            Some(Listener::Task(waker)) => waker.wake(),
            Some(Listener::Call(_)) | None => {}
        }
    }
}

impl<R> Consumer<R> {
    fn state(&self) -> u32 {
        self.0.cell().state.load(Ordering::Acquire)
    }

    /// True if the result can be taken.
    #[inline(always)]
    pub fn is_done(&self) -> bool {
        self.state() == SET
    }

    /// Waits for a producer that has found the listener and not yet told it: a few instructions.
    fn settle(&self) {
        let mut looks = 0;
        while self.state() == TELLING {
            pause(looks);
            looks += 1;
        }
    }

    /// Asks to be told, in place of who listened before: the state becomes `to`.
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
        // SAFETY: the state was PENDING, and only the consumer makes it another with a listener.
        cell.listener
            .with_mut(|cell| unsafe { *cell = Some(listener) });
        let exchanged =
            cell.state
                .compare_exchange(PENDING, to, Ordering::AcqRel, Ordering::Acquire);
        if exchanged.is_ok() {
            return Registered::Listening;
        }
        // SAFETY: the producer found nobody listening and won't look again.
        match cell.listener.with_mut(|cell| unsafe { (*cell).take() }) {
            Some(listener) => Registered::Done(listener),
            None => Registered::Listening, // never: it was put there above
        }
    }

    /// Hands the result to `call`: by who sets it, or here if it is there.
    pub fn give_to(self, call: impl FnOnce(R) + Send + 'static) {
        let listener = Listener::Call(Box::new(call));
        if let Registered::Done(Listener::Call(call)) = self.listen(listener, AWAITED) {
            call(self.take());
        }
    }

    /// Waits until the result is there; false if the time was over first.
    pub fn wait(&self, timeout: Option<Duration>) -> bool {
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

    /// Whether the result is there; if not, the task is woken when it is.
    pub fn poll(&self, context: &Context<'_>) -> bool {
        // The waker of an earlier poll may be another task's.
        let listen = || self.listen(Listener::Task(context.waker().clone()), LISTENING);
        self.is_done() || !matches!(listen(), Registered::Listening)
    }

    /// Takes the listener away. False if the producer has found it: the result is there.
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

    /// The result, which must be there.
    pub fn take(self) -> R {
        assert!(self.is_done());
        // SAFETY: in SET the cell is the consumer's.
        let result = unsafe { self.0.take() };
        result.expect(THERE)
    }

    /// The consumer goes, and doesn't want the result.
    pub fn close(self) {
        if self.state() == LISTENING {
            self.withdraw();
        }
        self.settle();
        // Nobody listens: the state is PENDING or SET.
        if self.0.cell().state.fetch_add(CLOSED, Ordering::AcqRel) == SET {
            // SAFETY: the producer has done its part.
            drop(unsafe { self.0.take() });
        }
    }
}
