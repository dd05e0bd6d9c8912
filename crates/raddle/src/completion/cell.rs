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
//!  close: from PENDING or SET, by adding CLOSED
//! ```
//!
//! | state | the result is | the listener is |
//! |---|---|---|
//! | PENDING | the producer's, unset | the consumer's |
//! | LISTENING | the producer's, unset | there, and whoever changes the state owns it |
//! | TELLING | there | the producer's |
//! | SET | there, and the consumer's, like the cell | none |
//! | PENDING and CLOSED | the producer's, like the cell | none |
//!
//! The cell is freed by the end that comes last: by the consumer, if it finds it SET; by the
//! producer, if it finds it CLOSED, or tells a listener that takes the result. So the ends need no
//! count of each other.
//!
//! No wake-up is lost: the consumer sleeps only after its exchange from PENDING to LISTENING
//! succeeded, so the producer comes later and finds the listener. Who is woken finds it SET.

use super::Failure;
use super::sync::{AtomicU32, Ordering, UnsafeCell, Waiter, pause};
use std::marker::PhantomData;
use std::ptr::NonNull;
use std::task::Waker;

const PENDING: u32 = 0;
const LISTENING: u32 = 1;
const CLOSED: u32 = 2;
const SET: u32 = 4;
const TELLING: u32 = SET | LISTENING;

/// What is called with the result.
type Call<T> = Box<dyn FnOnce(Result<T, Failure>) + Send>;

/// Who is to be told that the result is there.
pub enum Listener<T> {
    /// A thread that is parked, or about to.
    Thread(Waiter),
    /// A task.
    Task(Waker),
    /// Gets the result itself; the consumer is gone.
    Call(Call<T>),
}

/// What became of a request to listen.
pub enum Registered<T> {
    Listening,
    /// The result is there already; the listener comes back.
    Done(Listener<T>),
}

struct Cell<T> {
    /// See the module. Changes release what was written to the cells, and acquire what the other
    /// end wrote.
    state: AtomicU32,
    result: UnsafeCell<Option<Result<T, Failure>>>,
    listener: UnsafeCell<Option<Listener<T>>>,
}

/// A cell by address, which is freed with what it holds.
struct Shared<T>(NonNull<Cell<T>>, PhantomData<Cell<T>>);

/// The end that sets the result.
pub struct Producer<T>(Shared<T>);

/// The end that gets it.
pub struct Consumer<T>(Shared<T>);

// SAFETY: the state gives each cell to one end at a time. Only values and listeners cross.
unsafe impl<T: Send> Send for Shared<T> {}
// SAFETY: as above; shared references only read the state.
unsafe impl<T: Send> Sync for Shared<T> {}

/// The two ends of a new cell. Each must be finished, taken or closed; else the memory is lost.
pub fn pair<T>() -> (Producer<T>, Consumer<T>) {
    let cell = Box::new(Cell {
        state: AtomicU32::new(PENDING),
        result: UnsafeCell::new(None),
        listener: UnsafeCell::new(None),
    });
    let cell = NonNull::from(Box::leak(cell));
    let shared = || Shared(cell, PhantomData);
    (Producer(shared()), Consumer(shared()))
}

impl<T> Shared<T> {
    fn cell(&self) -> &Cell<T> {
        // SAFETY: the other end frees the cell only after this one gave it up, which consumes it.
        unsafe { self.0.as_ref() }
    }

    /// Frees the cell, and gives the result.
    ///
    /// # Safety
    /// The other end has given the cell up.
    unsafe fn take(self) -> Option<Result<T, Failure>> {
        // SAFETY: the caller's promise: it is nobody else's.
        let cell = unsafe { Box::from_raw(self.0.as_ptr()) };
        // SAFETY: as above.
        cell.result.with_mut(|result| unsafe { (*result).take() })
    }
}

impl<T> Producer<T> {
    /// True once nobody will ask for the result.
    pub fn is_closed(&self) -> bool {
        self.0.cell().state.load(Ordering::Acquire) & CLOSED != 0
    }

    /// Puts the result there and tells who listens. Gives it back if the consumer is gone.
    pub fn finish(self, result: Result<T, Failure>) -> Option<Result<T, Failure>> {
        let cell = self.0.cell();
        // SAFETY: until the state says SET the result is the producer's.
        cell.result.with_mut(|at| unsafe { *at = Some(result) });
        match cell.state.fetch_add(SET, Ordering::AcqRel) {
            PENDING => None, // the cell is the consumer's
            LISTENING => {
                self.tell();
                None
            }
            // SAFETY: the consumer is gone.
            _ => unsafe { self.0.take() },
        }
    }

    fn tell(self) {
        let cell = self.0.cell();
        // SAFETY: the state was LISTENING and isn't any more: the listener is this thread's.
        let listener = cell.listener.with_mut(|cell| unsafe { (*cell).take() });
        if let Some(Listener::Call(call)) = listener {
            // SAFETY: who listens so has given the cell up.
            let result = unsafe { self.0.take() };
            return call(result.unwrap_or(Err(Failure::Abandoned)));
        }
        // In TELLING nobody else changes the state. From here on the cell is the consumer's.
        cell.state.store(SET, Ordering::Release);
        match listener {
            Some(Listener::Thread(waiter)) => waiter.wake(),
            Some(Listener::Task(waker)) => waker.wake(),
            Some(Listener::Call(_)) | None => {}
        }
    }
}

impl<T> Consumer<T> {
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

    /// Asks to be told, in place of who listened before.
    pub fn listen(&self, listener: Listener<T>) -> Registered<T> {
        let cell = self.0.cell();
        match self.state() {
            PENDING => {}
            LISTENING if self.withdraw() => {}
            _ => {
                self.settle(); // the old listener, if any, is the producer's to tell
                return Registered::Done(listener);
            }
        }
        // SAFETY: the state was PENDING, and from there only the consumer makes it LISTENING.
        cell.listener
            .with_mut(|cell| unsafe { *cell = Some(listener) });
        let exchanged =
            cell.state
                .compare_exchange(PENDING, LISTENING, Ordering::AcqRel, Ordering::Acquire);
        if exchanged.is_ok() {
            return Registered::Listening;
        }
        // SAFETY: the producer found nobody listening and won't look again.
        match cell.listener.with_mut(|cell| unsafe { (*cell).take() }) {
            Some(listener) => Registered::Done(listener),
            None => Registered::Listening, // never: it was put there above
        }
    }

    /// As [`Consumer::listen`], by a listener that gets the result itself. Gives both back if the
    /// result is there already.
    pub fn hand_over(self, call: Call<T>) -> Option<(Self, Call<T>)> {
        match self.listen(Listener::Call(call)) {
            Registered::Done(Listener::Call(call)) => Some((self, call)),
            _ => None,
        }
    }

    /// Takes the listener away. False if the producer has found it: the result is there.
    pub fn withdraw(&self) -> bool {
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
    pub fn take(self) -> Result<T, Failure> {
        assert!(self.is_done());
        // SAFETY: in SET the cell is the consumer's.
        let result = unsafe { self.0.take() };
        result.unwrap_or(Err(Failure::Abandoned))
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
